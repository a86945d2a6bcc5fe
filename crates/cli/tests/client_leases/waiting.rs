//! Waiting: wait queues, acquiring several leases, cancellation at every await point, deadlocks and handoffs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold::{Code, GuardState, HandoffOptions};
use leasehold_core::command::HandoffMode;
use tokio::sync::Notify;

use crate::servers::Server;
use crate::support::TEST_TIMEOUT;
use crate::{acquire, client, holders_and_waiters, until};

#[tokio::test]
async fn a_release_wakes_exactly_one_of_a_thousand_waiters() {
    let server = Server::start();
    let (holder, many) = (client(&server, "w1"), client(&server, "many"));
    let first = acquire(&holder, "a").await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let lock = many.lock("a").wait(TEST_TIMEOUT);
        waiting.spawn(async move { lock.acquire().await });
    }
    let observer = client(&server, "observer");
    while observer.waiters("a").await.expect("the server responds").len() < 1_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    first.release().await.expect("the lease is held");
    let second = waiting
        .join_next()
        .await
        .expect("one waiter is granted")
        .expect("the task completed")
        .expect("the lease was released");
    assert_eq!(second.state(), GuardState::Held);
    assert_eq!(observer.waiters("a").await.expect("the server responds").len(), 999);
    assert!(waiting.try_join_next().is_none(), "no other waiter was granted");
    waiting.abort_all();
    while waiting.join_next().await.is_some() {}
    while !observer.waiters("a").await.expect("the server responds").is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    second.check().await.expect("the lease is held");
}

#[tokio::test]
async fn two_clients_with_the_same_holder_name_are_two_holders() {
    let server = Server::start();
    let (one, other) = (client(&server, "w1"), client(&server, "w1"));
    let guard = acquire(&one, "a").await;
    let busy = other.lock("a").holder("w1").acquire().await.expect_err("the resource is held").into_error();
    assert_eq!(busy.code(), Some(Code::Busy));
    guard.release().await.expect("the lease is held");
    let second = other.lock("a").holder("w1").acquire().await.expect("the resource is free");
    assert_eq!(second.state(), GuardState::Held);
}

/// Polls a future at most `times` times, each time after it was woken.
async fn poll_up_to<T>(mut future: Pin<&mut impl Future<Output = T>>, times: usize) -> Option<T> {
    struct NotifyOnWake(Notify);
    impl Wake for NotifyOnWake {
        fn wake(self: Arc<Self>) {
            self.0.notify_one();
        }
    }
    let notify = Arc::new(NotifyOnWake(Notify::new()));
    let waker = Waker::from(notify.clone());
    for _ in 0..times {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(done);
        }
        notify.0.notified().await;
    }
    None
}

#[tokio::test]
async fn dropping_the_acquire_future_at_each_await_leaves_no_orphan() {
    let server = Server::start();
    let (one, other, observer) = (client(&server, "w1"), client(&server, "w2"), client(&server, "observer"));
    for contended in [false, true] {
        for polls in 0.. {
            let first = if contended { Some(acquire(&other, "a").await) } else { None };
            let lock = one.lock("a").wait(TEST_TIMEOUT);
            let mut future = Box::pin(lock.acquire());
            let release = async {
                if let Some(first) = first {
                    until(async || polls == 0 || holders_and_waiters(&observer, "a").await.1 == 1).await;
                    first.release().await.expect("the lease is held");
                }
            };
            let (done, ()) = tokio::join!(poll_up_to(future.as_mut(), polls), release);
            let complete = done.is_some();
            drop((done, future));
            until(async || holders_and_waiters(&observer, "a").await == (0, 0)).await;
            if complete {
                break;
            }
        }
    }
}

#[tokio::test]
async fn dropping_the_acquire_future_in_the_queue_leaves_the_queue() {
    let server = Server::start();
    let (one, other, observer) = (client(&server, "w1"), client(&server, "w2"), client(&server, "observer"));
    let first = acquire(&other, "a").await;
    let lock = one.lock("a").wait(TEST_TIMEOUT);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until(async || holders_and_waiters(&observer, "a").await == (1, 1)).await;
    waiting.abort();
    until(async || holders_and_waiters(&observer, "a").await == (1, 0)).await;
    first.release().await.expect("the lease is held");
    assert_eq!(holders_and_waiters(&observer, "a").await, (0, 0), "a cancelled wait is never granted");
}

#[tokio::test]
async fn acquire_all_grants_all_or_none() {
    let server = Server::start();
    let (one, other, observer) = (client(&server, "w1"), client(&server, "w2"), client(&server, "observer"));
    let busy = acquire(&other, "b").await;
    let several = one.lock("a").also("b").also("c");
    let refused = several.acquire_all().await.expect_err("one of them is held").into_error();
    assert_eq!(refused.code(), Some(Code::Busy));
    let waiting = tokio::spawn(async move { several.wait(TEST_TIMEOUT).acquire_all().await });
    until(async || holders_and_waiters(&observer, "b").await == (1, 1)).await;
    assert_eq!((holders_and_waiters(&observer, "a").await.0, holders_and_waiters(&observer, "c").await.0), (0, 0));
    busy.release().await.expect("the lease is held");
    let guards = waiting.await.expect("the task completed").expect("all are free");
    assert_eq!(guards.iter().map(|guard| guard.resource()).collect::<Vec<_>>(), ["a", "b", "c"]);
    for guard in guards {
        guard.check().await.expect("each lease is held");
        guard.release().await.expect("each lease is released separately");
    }
}

#[tokio::test]
async fn the_request_that_would_cause_a_deadlock_is_rejected_with_the_cycle() {
    let server = Server::start();
    let (one, other, observer) = (client(&server, "w1"), client(&server, "w2"), client(&server, "observer"));
    let _a = one.lock("a").holder("t1").acquire().await.expect("the resource is free");
    let b = other.lock("b").holder("t2").acquire().await.expect("the resource is free");
    let lock = one.lock("b").holder("t1").wait(TEST_TIMEOUT);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until(async || holders_and_waiters(&observer, "b").await.1 == 1).await;
    let reply = other.lock("a").holder("t2").wait(TEST_TIMEOUT).acquire().await.expect_err("a deadlock").into_error();
    assert_eq!(reply.code(), Some(Code::Deadlock));
    assert!(reply.to_string().contains("t1") && reply.to_string().contains("t2"), "{reply}");
    b.release().await.expect("the victim releases its lease");
    assert_eq!(waiting.await.expect("the task completed").expect("the other is granted").state(), GuardState::Held);
}

#[tokio::test]
async fn a_gap_successor_is_granted_after_the_release_and_an_overlap_successor_claims_after_it() {
    let server = Server::start();
    let (one, other, observer) = (client(&server, "w1"), client(&server, "w2"), client(&server, "observer"));
    for mode in [HandoffMode::Gap, HandoffMode::Overlap] {
        let first = acquire(&one, "a").await;
        let lock = other.lock("a").wait(TEST_TIMEOUT);
        let mut waiting = tokio::spawn(async move { lock.acquire().await });
        until(async || holders_and_waiters(&observer, "a").await == (1, 1)).await;
        let options = HandoffOptions::new().mode(mode).drain(TEST_TIMEOUT);
        first.handoff(options).await.expect("there is a waiter");
        until(async || first.draining().is_some()).await;
        let second = match mode {
            HandoffMode::Gap => {
                assert_eq!(
                    holders_and_waiters(&observer, "a").await.1,
                    1,
                    "no successor is granted before the release"
                );
                assert!(!waiting.is_finished());
                first.release().await.expect("the release succeeds");
                waiting.await.expect("the task completed").expect("the successor is granted")
            }
            HandoffMode::Overlap => {
                let second = (&mut waiting).await.expect("the task completed").expect("granted immediately");
                assert!(second.token_number() > first.token_number());
                {
                    let mut claim = std::pin::pin!(second.wait_claimable());
                    assert!(poll_up_to(claim.as_mut(), 0).await.is_none());
                    let early = tokio::time::timeout(Duration::ZERO, claim.as_mut()).await;
                    assert!(early.is_err(), "the predecessor still writes");
                    first.put("last", b"words").await.expect("its writes pass until the release");
                    first.release().await.expect("the release succeeds");
                    let claim = claim.await.expect("the lease is held");
                    let _may_write = claim.claimed().read_again();
                }
                second
            }
        };
        second.release().await.expect("the lease is held");
    }
}
