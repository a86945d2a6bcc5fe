//! Ends of leases: what happens to the work, and when a lease is acquired again.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::command::{Command, LeaseSelector, Revoke};
use leasehold_core::lease::EndReason;

use super::{TTL, acquire, held, wait_until};
use crate::blocking::block_on;
use crate::testing::TestServer;
use crate::{Code, Error, GuardState, Loss, RunError};

#[test]
fn an_expired_lease_is_reported_as_lost() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    server.expire("a");
    server.advance(TTL);
    let loss = block_on(guard.wait_lost());
    assert_eq!((loss, guard.state()), (Loss::Ended(EndReason::Ttl), GuardState::Lost(loss)));
    let error = block_on(guard.put("k", b"v")).expect_err("the lease ended").into_error();
    assert_eq!(error.end_reason(), Some(EndReason::Ttl));
}

#[test]
fn a_paused_holder_learns_that_its_session_ended_and_can_lock_again() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    server.pause(&client);
    server.advance(Duration::from_secs(100));
    assert_eq!((guard.state(), held(&server, "a")), (GuardState::Suspended, 0));
    server.resume(&client);
    server.advance(TTL);
    assert!(
        matches!(guard.state(), GuardState::Lost(Loss::Ended(EndReason::Ttl | EndReason::Session))),
        "{:?}",
        guard.state()
    );
    assert_eq!(acquire(&client, "a").expect("a new session is opened").state(), GuardState::Held);
}

#[test]
fn a_lease_revoked_with_a_grace_period_is_never_reacquired() {
    let server = TestServer::new();
    let lock = server.client("w1").lock("a").ttl(TTL);
    let working = std::thread::spawn(move || {
        let mut runs = 0;
        let ran = block_on(lock.run(|_| {
            runs += 1;
            let first = runs == 1;
            async move {
                if first {
                    std::future::pending::<()>().await;
                }
            }
        }));
        (ran, runs)
    });
    wait_until(|| held(&server, "a") == 1);
    server.revoke_with_grace("a", TTL / 2).expect("the lease is held");
    // The work is stopped at the local deadline, which comes before the grantor's.
    wait_until(|| {
        server.advance(Duration::from_millis(10));
        working.is_finished()
    });
    let (ran, runs) = working.join().expect("the thread did not panic");
    let error = ran.expect_err("the lease was revoked");
    assert_eq!((error.end_reason(), runs), (Some(EndReason::Operator), 1), "{error}");
    assert_eq!(held(&server, "a"), 0);
}

#[test]
fn a_lease_that_is_released_during_its_grace_period_reports_the_revocation() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    server.revoke_with_grace("a", TTL).expect("the lease is held");
    assert_eq!(block_on(guard.release_with_reason()), Ok(EndReason::Operator));
    let guard = acquire(&client, "a").expect("the resource is free");
    assert_eq!(block_on(guard.release_with_reason()), Ok(EndReason::Released));
}

#[test]
fn missing_progress_is_visible_as_a_fixed_end_until_progress_is_made() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = block_on(client.lock("a").ttl(TTL).require_progress(TTL * 2).acquire()).expect("the resource is free");
    assert_eq!(guard.status().fixed_end, None, "a renewal moves the end");
    server.advance(TTL + TTL / 2);
    let status = guard.status();
    assert_eq!((status.state, status.fixed_end), (GuardState::Held, Some(status.deadline.earliest)));
    guard.progress(1);
    server.advance(TTL / 2);
    assert_eq!((guard.state(), guard.status().fixed_end), (GuardState::Held, None));
    server.advance(TTL * 3);
    assert_eq!(guard.state(), GuardState::Lost(Loss::Ended(EndReason::Stalled)));
}

#[test]
fn a_revoked_lease_is_reported_and_never_reacquired() {
    let server = TestServer::new();
    let client = server.client("w1");
    let mut runs = 0;
    let lock = client.lock("a").ttl(TTL);
    let ran: Result<(), Error> = block_on(lock.run(|_| {
        runs += 1;
        let server = server.clone();
        async move {
            std::thread::spawn(move || server.revoke("a"))
                .join()
                .expect("the thread did not panic")
                .expect("the lease is held");
            std::future::pending().await
        }
    }));
    assert_eq!(ran.expect_err("the lease was revoked").end_reason(), Some(EndReason::Operator));
    assert_eq!(runs, 1);
}

#[test]
fn run_reacquires_an_expired_lease() {
    let server = TestServer::new();
    let client = server.client("w1");
    let mut runs = 0;
    let ran = block_on(client.lock("a").ttl(TTL).run(|hold| {
        runs += 1;
        let (first, server) = (runs == 1, server.clone());
        async move {
            if first {
                std::thread::spawn(move || {
                    server.expire("a");
                    server.advance(TTL);
                });
                std::future::pending::<()>().await;
            }
            hold.token_number()
        }
    }));
    assert!(ran.is_ok() && runs == 2);
}

#[test]
fn a_revocation_before_the_end_of_the_session_is_still_reported_as_revocation() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    server.partition(&client);
    server.revoke("a").expect("the lease is held");
    server.advance(Duration::from_secs(100));
    server.heal(&client);
    server.advance(TTL);
    assert_eq!(block_on(guard.wait_lost()), Loss::Ended(EndReason::Operator));
}

#[test]
fn work_is_dropped_at_the_local_deadline_before_the_lease_ends() {
    struct Working(TestServer);
    impl Drop for Working {
        fn drop(&mut self) {
            assert_eq!(held(&self.0, "a"), 1, "the work is dropped before the lease ends");
        }
    }
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    server.partition(&client);
    let late = std::thread::spawn({
        let server = server.clone();
        move || server.advance(TTL - Duration::from_millis(20))
    });
    let work = Working(server.clone());
    let stopped = block_on(guard.run(|_| async move {
        let _work = work;
        std::future::pending::<()>().await
    }));
    assert_eq!(stopped, Err(RunError::Suspended));
    late.join().expect("the thread did not panic");
}

#[test]
fn the_lease_is_released_after_the_work_has_returned() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let seen =
        block_on(guard.run(|hold| async move { (hold.state(), hold.token_number()) })).expect("the lease was held");
    assert_eq!((seen.0, held(&server, "a")), (GuardState::Held, 0));
}

#[test]
fn a_write_is_the_check_and_a_late_one_is_refused() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let first = block_on(guard.put("at", b"1")).expect("the lease is current");
    assert!(block_on(guard.put_if("at", Some(b"2"), Some(first))).expect("the revision matches") > first);
    server.pause(&client);
    server.advance(2 * TTL);
    let other = server.client("w2");
    let second = acquire(&other, "a").expect("the first lease expired");
    block_on(second.put("at", b"3")).expect("the lease is current");
    server.resume(&client);
    let stale = block_on(guard.put("at", b"late")).expect_err("the lease ended").into_error();
    assert!(matches!(stale.code(), Some(Code::LeaseLost | Code::NotCurrent)), "{stale}");
}

#[test]
fn a_holder_that_renews_without_progress_loses_its_lease_as_stalled() {
    let server = TestServer::new();
    let client = server.client("w1");
    let lock = client.lock("a").ttl(TTL).require_progress(2 * TTL);
    let guard = block_on(lock.acquire()).expect("the resource is free");
    for at in 1..6 {
        guard.progress(at);
        server.advance(TTL);
        assert_eq!(guard.state(), GuardState::Held, "the holder makes progress");
    }
    for _ in 0..4 {
        guard.progress(5);
        server.advance(TTL);
    }
    assert_eq!(block_on(guard.wait_lost()), Loss::Ended(EndReason::Stalled));
}

#[test]
fn work_is_not_polled_after_its_deadline_even_if_the_worker_is_paused() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let mut polled = 0;
    let mut running = Box::pin(guard.run(|_| {
        std::future::poll_fn(|_| {
            polled += 1;
            Poll::<()>::Pending
        })
    }));
    let mut context = Context::from_waker(Waker::noop());
    assert!(running.as_mut().poll(&mut context).is_pending());
    // Like a suspended machine: the worker did nothing, and the deadline has passed.
    server.pause(&client);
    server.advance(2 * TTL);
    assert_eq!(running.as_mut().poll(&mut context), Poll::Ready(Err(RunError::Suspended)));
    drop(running);
    assert_eq!(polled, 1);
    server.resume(&client);
}

#[test]
fn a_holder_revoked_with_grace_finishes_and_releases() {
    let server = TestServer::new();
    let client = server.client("w1");
    let guard = acquire(&client, "a").expect("the resource is free");
    let (which, reason) = (LeaseSelector::Resource("a"), EndReason::Operator);
    let revoke = Revoke { selector: which, reason, comment: "a test", grace_ms: 60_000 };
    server.execute(Command::Revoke(revoke)).expect("the lease is held");
    server.advance(Duration::from_millis(100));
    assert!(guard.draining().is_some() && guard.is_held(), "the holder has time to finish");
    block_on(guard.release()).expect("the lease is held");
    assert_eq!(held(&server, "a"), 0);
}
