//! Elections on the test server. Its clock advances only on request, so that an immediate change cannot be an expiry.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use futures::channel::oneshot;
use leasehold_core::command::HandoffMode;
use leasehold_core::lease::EndReason;

use crate::blocking::block_on;
use crate::recipes::wait_until;
use crate::testing::TestServer;
use crate::{GuardState, HandoffOptions};

const TTL: Duration = Duration::from_secs(30);

fn waiters(server: &TestServer) -> usize {
    server.show("leader").map_or(0, |view| view.waiters)
}

#[test]
fn a_resigning_leader_is_succeeded_immediately_under_a_higher_token() {
    let server = TestServer::new();
    let (one, two) = (server.client("one").election("leader"), server.client("two").election("leader"));
    let first = block_on(one.campaign()).expect("there is no leader");
    let (number, leader) = (first.token_number(), block_on(two.leader()).expect("the server replies"));
    assert_eq!(leader.expect("there is a leader").token_number, number.get());
    let next = std::thread::spawn(move || block_on(two.campaign()).expect("the candidate is elected"));
    wait_until(|| waiters(&server) == 1);
    block_on(first.resign()).expect("the leader leads");
    let second = next.join().expect("the thread did not panic");
    assert!(second.token_number() > number);
    assert_eq!(block_on(one.leader()).expect("the server replies").expect("there is a leader").holder, "two");
}

#[test]
fn a_stopping_leader_hands_off_immediately_instead_of_expiring() {
    let server = TestServer::new();
    let (one, two) = (server.client("one").election("leader").ttl(TTL), server.client("two").election("leader"));
    let (stop, stopped) = oneshot::channel::<()>();
    let (started, leads) = std::sync::mpsc::channel();
    let leading = std::thread::spawn(move || {
        let stop = async {
            let _ = stopped.await;
        };
        block_on(one.lead(stop, |hold| {
            started.send(()).expect("the test waits for it");
            async move {
                hold.draining_started().await;
                // Writes while draining are still accepted.
                hold.put("last", b"words").await.map(|_| hold.token_number())
            }
        }))
    });
    leads.recv().expect("the first candidate is elected");
    let next = std::thread::spawn(move || block_on(two.campaign()).expect("the candidate is elected"));
    wait_until(|| waiters(&server) == 1);
    stop.send(()).expect("the receiver exists");
    // The clock does not advance, so only the handoff can have elected the successor.
    let second = next.join().expect("the thread did not panic");
    let finished = leading
        .join()
        .expect("the thread did not panic")
        .expect("the lease was not revoked")
        .expect("the work returned");
    assert!(second.token_number() > finished.expect("the last write was accepted"));
}

#[test]
fn in_an_overlap_the_successor_is_elected_immediately_and_claims_when_the_leader_is_done() {
    let server = TestServer::new();
    let (one, two) = (server.client("one").election("leader"), server.client("two").election("leader"));
    let first = block_on(one.campaign()).expect("there is no leader");
    let next = std::thread::spawn(move || block_on(two.campaign()).expect("the candidate is elected"));
    wait_until(|| waiters(&server) == 1);
    let (finish, finished) = oneshot::channel::<()>();
    let options = HandoffOptions::new().mode(HandoffMode::Overlap);
    let handing = std::thread::spawn(move || {
        block_on(first.handoff(options, async {
            let _ = finished.await;
        }))
    });
    let second = next.join().expect("it was elected before the first has finished");
    let mut claiming = pin!(second.wait_claimable());
    assert!(claiming.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let seen = block_on(one.leader()).expect("the server replies").expect("there is a leader");
    assert_eq!(seen.token_number, second.token_number().get(), "a draining leader does not lead");
    finish.send(()).expect("the receiver exists");
    handing.join().expect("the thread did not panic").expect("the work finished in time");
    let _claim = block_on(claiming).expect("the first leader is done");
}

#[test]
fn a_partitioned_leader_stops_before_the_next_one_leads() {
    let server = TestServer::new();
    let client = server.client("one");
    let (one, two) = (client.election("leader").ttl(TTL), server.client("two").election("leader"));
    let first = block_on(one.campaign()).expect("there is no leader");
    let next = std::thread::spawn(move || block_on(two.campaign()).expect("the candidate is elected"));
    wait_until(|| waiters(&server) == 1);
    server.partition(&client);
    while server.show("leader").is_some_and(|view| view.waiters == 1) {
        let led = first.state() == GuardState::Held;
        server.advance(Duration::from_millis(10));
        let next_leads = server.show("leader").is_some_and(|view| view.waiters == 0);
        assert!(!(led && next_leads), "the first leader believed to lead when the second was elected");
    }
    assert!(next.join().expect("the thread did not panic").token_number() > first.token_number());
}

#[test]
fn a_revoked_leader_does_not_campaign_again() {
    let server = TestServer::new();
    let election = server.client("one").election("leader");
    let leading =
        std::thread::spawn(move || block_on(election.lead(std::future::pending(), |_| std::future::pending::<()>())));
    wait_until(|| server.show("leader").is_some_and(|view| view.leases.len() == 1));
    server.revoke("leader").expect("the lease is held");
    let error = leading.join().expect("the thread did not panic").expect_err("the lease was revoked");
    assert_eq!(error.end_reason(), Some(EndReason::Operator));
    assert!(server.show("leader").is_none_or(|view| view.leases.is_empty() && view.waiters == 0));
}

#[test]
fn a_leader_revoked_with_a_grace_period_does_not_campaign_again() {
    let server = TestServer::new();
    let election = server.client("one").election("leader").ttl(TTL);
    let leading = std::thread::spawn(move || {
        let mut terms = 0;
        block_on(election.lead(std::future::pending(), |_| {
            terms += 1;
            let first = terms == 1;
            async move {
                if first {
                    std::future::pending::<()>().await;
                }
            }
        }))
    });
    wait_until(|| server.show("leader").is_some_and(|view| view.leases.len() == 1));
    server.revoke_with_grace("leader", TTL / 2).expect("the lease is held");
    wait_until(|| {
        server.advance(Duration::from_millis(10));
        leading.is_finished()
    });
    let error = leading.join().expect("the thread did not panic").expect_err("the lease was revoked");
    assert_eq!(error.end_reason(), Some(EndReason::Operator));
    assert!(server.show("leader").is_none_or(|view| view.leases.is_empty() && view.waiters == 0));
}

#[test]
fn a_dropped_campaign_withdraws_its_candidacy() {
    let server = TestServer::new();
    let (one, two) = (server.client("one").election("leader"), server.client("two").election("leader"));
    let first = block_on(one.campaign()).expect("there is no leader");
    {
        let mut campaign = pin!(two.campaign());
        assert!(campaign.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        wait_until(|| waiters(&server) == 1);
    }
    wait_until(|| waiters(&server) == 0);
    block_on(first.resign()).expect("the leader leads");
    assert_eq!(block_on(one.leader()).expect("the server replies"), None);
}
