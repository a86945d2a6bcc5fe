//! Locks on the test server: exclusion, sharing, slots, and several locks at once.

use std::time::Duration;

use leasehold_core::lease::EndReason;

use crate::Code;
use crate::blocking::block_on;
use crate::recipes::wait_until;
use crate::testing::TestServer;

#[test]
fn try_acquire_succeeds_when_free_and_returns_none_when_held() {
    let server = TestServer::new();
    let (one, two) = (server.client("one"), server.client("two"));
    let guard = block_on(one.lock("a").try_acquire()).expect("the server replies").expect("the resource is free");
    let lock = two.lock("a").wait(Duration::from_secs(60));
    assert!(block_on(lock.try_acquire()).expect("the server replies").is_none(), "try_acquire does not wait");
    block_on(guard.release()).expect("the lease is held");
    assert!(block_on(lock.try_acquire()).expect("the server replies").is_some());
}

#[test]
fn readers_share_a_lock_and_a_writer_excludes_them() {
    let server = TestServer::new();
    let client = server.client("one");
    let readers: Vec<_> =
        (0..3).map(|_| block_on(client.lock("a").shared().acquire()).expect("the lease is shared")).collect();
    assert!(block_on(client.lock("a").try_acquire()).expect("the server replies").is_none());
    drop(readers);
    wait_until(|| server.show("a").is_none_or(|view| view.leases.is_empty()));
    let _writer = block_on(client.lock("a").acquire()).expect("the resource is free");
    assert!(block_on(client.lock("a").shared().try_acquire()).expect("the server replies").is_none());
}

#[test]
fn three_slots_are_granted_three_times() {
    let server = TestServer::new();
    let client = server.client("one");
    let slot = || block_on(client.lock("pool").slots(3).try_acquire()).expect("the server replies");
    let mut held: Vec<_> = (0..3).map(|_| slot().expect("a slot is free")).collect();
    assert!(slot().is_none());
    block_on(held.remove(1).release()).expect("the lease is held");
    assert!(slot().is_some());
}

#[test]
fn work_under_several_locks_stops_when_one_is_revoked_and_releases_the_others() {
    let server = TestServer::new();
    let client = server.client("one");
    let working = std::thread::spawn(move || {
        let all = client.lock("a").also("b").also("c");
        let result = block_on(all.run_all(|leases| async move {
            assert_eq!(leases.iter().map(|lease| lease.resource()).collect::<Vec<_>>(), ["a", "b", "c"]);
            std::future::pending::<()>().await;
        }));
        (client, result)
    });
    wait_until(|| server.show("c").is_some_and(|view| view.leases.len() == 1));
    server.revoke("b").expect("the lease is held");
    let (client, result) = working.join().expect("the thread did not panic");
    assert_eq!(result.expect_err("the work was stopped").end_reason(), Some(EndReason::Operator));
    let others = block_on(client.lock("a").also("c").acquire_all()).expect("the other locks were released");
    assert_eq!(others.len(), 2);
}

#[test]
fn several_locks_are_acquired_all_or_none() {
    let server = TestServer::new();
    let (one, two) = (server.client("one"), server.client("two"));
    let _held = block_on(one.lock("b").acquire()).expect("the resource is free");
    let busy = block_on(two.lock("a").also("b").run_all(|_| async {})).expect_err("one of them is held");
    assert_eq!(busy.code(), Some(Code::Busy));
    assert!(
        block_on(one.lock("a").try_acquire()).expect("the server replies").is_some(),
        "the other lock was not acquired"
    );
    let done = block_on(two.lock("c").also("d").run_all(|leases| async move { leases.len() }));
    assert_eq!(done.expect("the resources are free"), 2);
    assert!(
        block_on(one.lock("c").try_acquire()).expect("the server replies").is_some(),
        "the lock was released before run_all returned"
    );
}
