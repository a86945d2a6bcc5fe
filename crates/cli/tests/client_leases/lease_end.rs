//! Ends of leases: revocation, stalled progress, lost servers, and writes after the end.

use leasehold::{Code, GuardState, Loss, RunError};
use leasehold_core::lease::EndReason;

use crate::servers::Server;
use crate::{TTL, acquire, client, proxied_client};

#[tokio::test]
async fn a_guard_learns_of_its_revocation_immediately() {
    let server = Server::start();
    let client = client(&server, "w1");
    let guard = acquire(&client, "a").await;
    server.run(&["revoke", "a", "--comment", "a test"]).ok();
    assert_eq!(guard.wait_lost().await, Loss::Ended(EndReason::Operator));
    let refused = guard.release().await.expect_err("the lease is revoked").into_error();
    assert_eq!(refused.end_reason(), Some(EndReason::Operator));
}

#[tokio::test]
async fn a_revoked_lease_is_not_requested_again() {
    let server = Server::start();
    let (one, observer) = (client(&server, "w1"), client(&server, "observer"));
    let lock = one.lock("a").ttl(TTL);
    let (started_tx, mut started) = tokio::sync::mpsc::unbounded_channel();
    let running = tokio::spawn(async move {
        let work = |_| {
            started_tx.send(()).expect("the test listens");
            std::future::pending::<()>()
        };
        lock.run(work).await
    });
    started.recv().await.expect("the work started");
    server.run(&["revoke", "a", "--comment", "a test"]).ok();
    let error = running.await.expect("the task completed").expect_err("the lease was revoked");
    assert_eq!(error.end_reason(), Some(EndReason::Operator));
    assert!(started.try_recv().is_err(), "the work started once");
    assert_eq!(crate::holders_and_waiters(&observer, "a").await.0, 0);
}

#[tokio::test]
async fn a_holder_without_progress_loses_its_lease_as_stalled() {
    let server = Server::start();
    let client = client(&server, "w1");
    let guard = client.lock("a").ttl(TTL).require_progress(3 * TTL).acquire().await.expect("the resource is free");
    for at in 1..=4 {
        guard.progress(at);
        tokio::time::sleep(TTL).await;
    }
    guard.check().await.expect("progress kept the lease beyond its window");
    assert_eq!(guard.wait_lost().await, Loss::Ended(EndReason::Stalled));
}

#[tokio::test]
async fn a_write_under_an_ended_lease_is_rejected() {
    let server = Server::start();
    let (one, other) = (client(&server, "w1"), client(&server, "w2"));
    let first = acquire(&one, "a").await;
    let hold = first.handle().clone();
    assert_eq!(hold.put("at", b"1").await.expect("the lease is current"), 1);
    first.release().await.expect("the lease is held");
    let second = acquire(&other, "a").await;
    assert_eq!(second.put("at", b"2").await.expect("the lease is current"), 2);
    let late = hold.put("at", b"late").await.expect_err("the lease has ended").into_error();
    assert_eq!(late.code(), Some(Code::LeaseLost));
    assert_eq!(second.put_if("at", Some(b"3"), Some(2)).await.expect("no write in between"), 3);
}

#[tokio::test]
async fn work_stops_when_the_server_is_gone_and_its_lease_is_released_afterwards() {
    let mut server = Server::start();
    let (client, proxy) = proxied_client(&server);
    let guard = client.lock("a").ttl(TTL).acquire().await.expect("the resource is free");
    let token = guard.token_number();
    let working = tokio::spawn(guard.run(|_| std::future::pending::<()>()));
    server.signal("KILL");
    server.wait();
    assert_eq!(working.await.expect("the task completed"), Err(RunError::Suspended));
    let server = server.crash_and_restart();
    proxy.set_upstream(&server.address);
    // The guard that stopped released its lease as soon as a server was reachable.
    let again =
        client.lock("a").ttl(TTL).wait(crate::support::TEST_TIMEOUT).acquire().await.expect("the lease was released");
    assert!(again.token_number() > token && again.state() == GuardState::Held);
    drop(server);
}
