//! Locks in memory: what others may have at the same time, and what they may not.

use std::time::Duration;

use leasehold_core::lease::Reason;

use crate::Code;
use crate::blocking::block_on;
use crate::recipes::until;
use crate::testing::Grantor;

#[test]
fn trying_takes_what_is_free_and_says_when_it_is_not() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("one"), grantor.client("two"));
    let guard = block_on(one.lock("a").try_acquire()).expect("it can be asked").expect("it is free");
    let patient = two.lock("a").wait(Duration::from_secs(60));
    assert!(block_on(patient.try_acquire()).expect("it can be asked").is_none(), "trying does not wait");
    block_on(guard.release()).expect("it is held");
    assert!(block_on(patient.try_acquire()).expect("it can be asked").is_some());
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let grantor = Grantor::new();
    let client = grantor.client("one");
    let readers: Vec<_> =
        (0..3).map(|_| block_on(client.lock("a").shared().acquire()).expect("it is shared")).collect();
    assert!(block_on(client.lock("a").try_acquire()).expect("it can be asked").is_none());
    drop(readers);
    until(|| grantor.show("a").is_none_or(|shown| shown.leases.is_empty()));
    let _writer = block_on(client.lock("a").acquire()).expect("it is free");
    assert!(block_on(client.lock("a").shared().try_acquire()).expect("it can be asked").is_none());
}

#[test]
fn of_three_slots_three_are_held_and_no_fourth() {
    let grantor = Grantor::new();
    let client = grantor.client("one");
    let slot = || block_on(client.lock("pool").slot_of(3).try_acquire()).expect("it can be asked");
    let mut held: Vec<_> = (0..3).map(|_| slot().expect("there are three")).collect();
    assert!(slot().is_none());
    block_on(held.remove(1).release()).expect("it is held");
    assert!(slot().is_some());
}

#[test]
fn work_under_several_stops_when_one_is_taken_away_and_gives_back_the_others() {
    let grantor = Grantor::new();
    let client = grantor.client("one");
    let working = std::thread::spawn(move || {
        let all = client.lock("a").and("b").and("c");
        let told = block_on(all.run_all(|holds| async move {
            assert_eq!(holds.iter().map(|hold| hold.resource()).collect::<Vec<_>>(), ["a", "b", "c"]);
            std::future::pending::<()>().await;
        }));
        (client, told)
    });
    until(|| grantor.show("c").is_some_and(|shown| shown.leases.len() == 1));
    grantor.revoke("b").expect("it is held");
    let (client, told) = working.join().expect("it ended");
    assert_eq!(told.expect_err("it was stopped").lost(), Some(Reason::Operator));
    let others = block_on(client.lock("a").and("c").acquire_all()).expect("they were given back");
    assert_eq!(others.len(), 2);
}

#[test]
fn several_are_taken_all_or_none() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("one"), grantor.client("two"));
    let _held = block_on(one.lock("b").acquire()).expect("it is free");
    let busy = block_on(two.lock("a").and("b").run_all(|_| async {})).expect_err("one of them is held");
    assert_eq!(busy.code(), Some(Code::Busy));
    assert!(block_on(one.lock("a").try_acquire()).expect("it can be asked").is_some(), "the other was not kept");
    let done = block_on(two.lock("c").and("d").run_all(|holds| async move { holds.len() }));
    assert_eq!(done.expect("they are free"), 2);
    assert!(block_on(one.lock("c").try_acquire()).expect("it can be asked").is_some(), "given back before it returned");
}
