//! Registrations of processes that pause, are partitioned, close, or are revoked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::lease::EndReason;

use crate::blocking::block_on;
use crate::recipes::discovery::ServiceRegistration;
use crate::testing::TestServer;
use crate::{Client, Code, GuardState};

const TTL: Duration = Duration::from_secs(3);

fn instance(client: &Client, name: &str) -> ServiceRegistration {
    client.service("db", name).ttl(TTL).details("10.0.0.1:5432")
}

fn found(server: &TestServer, name: &str) -> usize {
    server.show(&format!("db/{name}")).map_or(0, |view| view.leases.len())
}

/// Waits for other threads, with a generous bound.
#[track_caller]
fn wait_until(mut condition: impl FnMut() -> bool) {
    let timeout = std::time::Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(std::time::Instant::now() < timeout, "the condition did not become true in time");
        std::thread::yield_now();
    }
}

#[test]
fn all_registrations_end_with_their_session_in_one_step() {
    let server = TestServer::new();
    let client = server.client("host-1");
    let a = block_on(instance(&client, "a").register()).expect("the name is free");
    let b = block_on(instance(&client, "b").register()).expect("the name is free");
    assert_eq!(server.show("db/a").expect("the instance is registered").leases[0].metadata, b"10.0.0.1:5432");
    block_on(client.close()).expect("the server hears it");
    assert_eq!((found(&server, "a"), found(&server, "b")), (0, 0));
    assert!(matches!((a.state(), b.state()), (GuardState::Lost(_), GuardState::Lost(_))));
}

#[test]
fn an_old_instance_stops_before_its_name_is_granted_to_another() {
    let server = TestServer::new();
    let (old, new) = (server.client("host-1"), server.client("host-1"));
    let first = block_on(instance(&old, "a").register()).expect("the name is free");
    let taken =
        block_on(instance(&new, "a").register()).expect_err("two processes with one name are different holders");
    assert_eq!(taken.code(), Some(Code::Busy));
    server.partition(&old);
    let mut held_for = 0;
    let second = loop {
        let holds = first.is_held();
        match block_on(instance(&new, "a").register()) {
            Ok(second) => {
                assert!(!holds, "the name was granted while the old instance believed to hold it");
                break second;
            }
            Err(error) => assert_eq!(error.code(), Some(Code::Busy)),
        }
        held_for += usize::from(holds);
        server.advance(Duration::from_millis(50));
    };
    assert!(held_for > 0, "a short partition ends nothing");
    server.heal(&old);
    server.advance(TTL);
    assert!(matches!(first.state(), GuardState::Lost(_)));
    assert_eq!(second.state(), GuardState::Held);
}

#[test]
fn a_short_partition_ends_no_registration() {
    let server = TestServer::new();
    let client = server.client("host-1");
    let registration = block_on(instance(&client, "a").register()).expect("the name is free");
    let token = registration.token();
    server.partition(&client);
    server.advance(TTL / 3);
    server.heal(&client);
    server.advance(2 * TTL);
    assert_eq!((registration.state(), registration.token() == token), (GuardState::Held, true));
}

#[test]
fn keep_registered_registers_again_after_expiry_and_never_after_revocation() {
    let server = TestServer::new();
    let client = server.client("host-1");
    let times = Arc::new(AtomicUsize::new(0));
    let (registration, counted) = (instance(&client, "a"), times.clone());
    let stay = std::thread::spawn(move || {
        block_on(registration.keep_registered(|_| {
            counted.fetch_add(1, Ordering::SeqCst);
        }))
    });
    wait_until(|| times.load(Ordering::SeqCst) == 1);
    // It may register again so soon that it expires twice.
    server.expire("db/a");
    wait_until(|| {
        server.advance(Duration::from_millis(50));
        times.load(Ordering::SeqCst) >= 2 && found(&server, "a") == 1
    });
    server.revoke("db/a").expect("the lease is held");
    wait_until(|| stay.is_finished());
    let error = stay.join().expect("the thread did not panic");
    assert_eq!(error.end_reason(), Some(EndReason::Operator));
    let before = times.load(Ordering::SeqCst);
    server.advance(2 * TTL);
    assert_eq!((times.load(Ordering::SeqCst), found(&server, "a")), (before, 0));
}
