//! What becomes of registrations when their process pauses, is cut off, closes, or is told to go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::lease::Reason;

use crate::blocking::block_on;
use crate::recipes::session::Announce;
use crate::testing::Grantor;
use crate::{Client, Code, State};

const TTL: Duration = Duration::from_secs(3);

fn announce(client: &Client, name: &str) -> Announce {
    client.announce("db", name).ttl(TTL).details("10.0.0.1:5432")
}

fn found(grantor: &Grantor, name: &str) -> usize {
    grantor.show(&format!("db/{name}")).map_or(0, |shown| shown.leases.len())
}

/// Waits for what other threads do, with a generous bound.
#[track_caller]
fn until(mut happened: impl FnMut() -> bool) {
    let over = std::time::Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(std::time::Instant::now() < over, "it never happened");
        std::thread::yield_now();
    }
}

#[test]
fn everything_that_was_registered_ends_with_its_session_in_one_step() {
    let grantor = Grantor::new();
    let client = grantor.client("host-1");
    let a = block_on(announce(&client, "a").register()).expect("the name is free");
    let b = block_on(announce(&client, "b").register()).expect("the name is free");
    assert_eq!(grantor.show("db/a").expect("it is there").leases[0].metadata, b"10.0.0.1:5432");
    block_on(client.close()).expect("the grantor hears it");
    assert_eq!((found(&grantor, "a"), found(&grantor, "b")), (0, 0));
    assert!(matches!((a.state(), b.state()), (State::Lost(_), State::Lost(_))));
}

#[test]
fn an_old_instance_has_stopped_believing_before_its_name_is_given_to_another() {
    let grantor = Grantor::new();
    let (old, new) = (grantor.client("host-1"), grantor.client("host-1"));
    let first = block_on(announce(&old, "a").register()).expect("the name is free");
    let taken = block_on(announce(&new, "a").register()).expect_err("two processes of one name are two");
    assert_eq!(taken.code(), Some(Code::Busy));
    grantor.partition(&old);
    let mut believed = 0;
    let second = loop {
        let holds = first.is_held();
        match block_on(announce(&new, "a").register()) {
            Ok(second) => {
                assert!(!holds, "the name was given away under one that thought it had it");
                break second;
            }
            Err(error) => assert_eq!(error.code(), Some(Code::Busy)),
        }
        believed += usize::from(holds);
        grantor.advance(Duration::from_millis(50));
    };
    assert!(believed > 0, "a short silence ends nothing");
    grantor.heal(&old);
    grantor.advance(TTL);
    assert!(matches!(first.state(), State::Lost(_)));
    assert_eq!(second.state(), State::Held);
}

#[test]
fn a_short_cut_in_the_network_ends_no_registration() {
    let grantor = Grantor::new();
    let client = grantor.client("host-1");
    let registration = block_on(announce(&client, "a").register()).expect("the name is free");
    let token = registration.token();
    grantor.partition(&client);
    grantor.advance(TTL / 3);
    grantor.heal(&client);
    grantor.advance(2 * TTL);
    assert_eq!((registration.state(), registration.token() == token), (State::Held, true));
}

#[test]
fn one_who_stays_comes_back_after_expiry_and_never_after_a_revocation() {
    let grantor = Grantor::new();
    let client = grantor.client("host-1");
    let times = Arc::new(AtomicUsize::new(0));
    let (staying, counted) = (announce(&client, "a"), times.clone());
    let stay = std::thread::spawn(move || {
        block_on(staying.stay(|_| {
            counted.fetch_add(1, Ordering::SeqCst);
        }))
    });
    until(|| times.load(Ordering::SeqCst) == 1);
    // It may be back so soon that it expires twice.
    grantor.expire("db/a");
    until(|| {
        grantor.advance(Duration::from_millis(50));
        times.load(Ordering::SeqCst) >= 2 && found(&grantor, "a") == 1
    });
    grantor.revoke("db/a").expect("it is held");
    until(|| stay.is_finished());
    let why = stay.join().expect("it ended");
    assert_eq!(why.lost(), Some(Reason::Operator));
    let before = times.load(Ordering::SeqCst);
    grantor.advance(2 * TTL);
    assert_eq!((times.load(Ordering::SeqCst), found(&grantor, "a")), (before, 0));
}
