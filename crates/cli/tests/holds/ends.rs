//! How leases end, and what is refused after it.

use leasehold::{Code, Loss, State, Stopped};
use leasehold_core::lease::Reason;

use crate::servers::Server;
use crate::{TTL, acquire, client, client_by_way};

#[tokio::test]
async fn a_revoked_guard_is_told_at_once() {
    let server = Server::start();
    let client = client(&server, "w1");
    let guard = acquire(&client, "a").await;
    server.run(&["revoke", "a", "--reason", "a test"]).ok();
    assert_eq!(guard.lost().await, Loss::Ended(Reason::Operator));
    let refused = guard.release().await.expect_err("it is not ours any more").into_error();
    assert_eq!(refused.lost(), Some(Reason::Operator));
}

#[tokio::test]
async fn a_revoked_lease_is_never_asked_for_again() {
    let server = Server::start();
    let (one, looking) = (client(&server, "w1"), client(&server, "looks"));
    let lock = one.lock("a").ttl(TTL);
    let (tell, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let running = tokio::spawn(async move {
        let work = |_| {
            tell.send(()).expect("the test listens");
            std::future::pending::<()>()
        };
        lock.run(work).await
    });
    begun.recv().await.expect("it began");
    server.run(&["revoke", "a", "--reason", "a test"]).ok();
    let error = running.await.expect("it ran").expect_err("it was revoked");
    assert_eq!(error.lost(), Some(Reason::Operator));
    assert!(begun.try_recv().is_err(), "it began once");
    assert_eq!(crate::crowd(&looking, "a").await.0, 0);
}

#[tokio::test]
async fn a_holder_without_progress_loses_its_lease_as_stalled() {
    let server = Server::start();
    let client = client(&server, "w1");
    let guard = client.lock("a").ttl(TTL).progress(3 * TTL).acquire().await.expect("it is free");
    for at in 1..=4 {
        guard.progress(at);
        tokio::time::sleep(TTL).await;
    }
    guard.confirm().await.expect("longer than its window, it made progress");
    assert_eq!(guard.lost().await, Loss::Ended(Reason::Stalled));
}

#[tokio::test]
async fn a_write_under_a_lease_that_is_over_is_refused() {
    let server = Server::start();
    let (one, other) = (client(&server, "w1"), client(&server, "w2"));
    let first = acquire(&one, "a").await;
    let hold = first.hold().clone();
    assert_eq!(hold.put("at", b"1").await.expect("it is current"), 1);
    first.release().await.expect("it is ours");
    let second = acquire(&other, "a").await;
    assert_eq!(second.put("at", b"2").await.expect("it is current"), 2);
    let late = hold.put("at", b"late").await.expect_err("its authority is over").into_error();
    assert_eq!(late.code(), Some(Code::LeaseLost));
    assert_eq!(second.store("at", Some(b"3"), Some(2)).await.expect("nothing came between"), 3);
}

#[tokio::test]
async fn work_stops_when_its_server_is_gone_and_its_lease_is_asked_for_again() {
    let mut server = Server::start();
    let (client, way) = client_by_way(&server).await;
    let guard = client.lock("a").ttl(TTL).acquire().await.expect("it is free");
    let token = guard.token_number();
    let working = tokio::spawn(guard.run(|_| std::future::pending::<()>()));
    server.signal("KILL");
    server.wait();
    assert_eq!(working.await.expect("it ran"), Err(Stopped::Suspended));
    let server = server.again();
    way.leads_to(&server.address);
    // What was stopped was given back, once somebody could be told.
    let again = client.lock("a").ttl(TTL).wait(crate::support::PATIENCE).acquire().await.expect("it is given back");
    assert!(again.token_number() > token && again.state() == State::Held);
    drop(server);
}
