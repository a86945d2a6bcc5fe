//! Waiting for a lease, taking several, giving up at any moment, and taking over.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold::{Code, HandOver, State};
use leasehold_core::command::Style;
use tokio::sync::Notify;

use crate::servers::Server;
use crate::support::PATIENCE;
use crate::{acquire, client, crowd, until};

#[tokio::test]
async fn a_release_wakes_exactly_one_of_a_thousand_waiters() {
    let server = Server::start();
    let (holder, crowd) = (client(&server, "w1"), client(&server, "crowd"));
    let first = acquire(&holder, "a").await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let lock = crowd.lock("a").wait(PATIENCE);
        waiting.spawn(async move { lock.acquire().await });
    }
    let looking = client(&server, "looks");
    while looking.waiters("a").await.expect("the server answers").len() < 1_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    first.release().await.expect("it is ours");
    let second = waiting.join_next().await.expect("one is woken").expect("it ran").expect("it was given back");
    assert_eq!(second.state(), State::Held);
    assert_eq!(looking.waiters("a").await.expect("the server answers").len(), 999);
    assert!(waiting.try_join_next().is_none(), "nobody else was woken");
    waiting.abort_all();
    while waiting.join_next().await.is_some() {}
    while !looking.waiters("a").await.expect("the server answers").is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    second.confirm().await.expect("it holds");
}

#[tokio::test]
async fn two_clients_of_one_holder_name_are_two_holders() {
    let server = Server::start();
    let (one, other) = (client(&server, "w1"), client(&server, "w1"));
    let guard = acquire(&one, "a").await;
    let busy = other.lock("a").holder("w1").acquire().await.expect_err("it is held").into_error();
    assert_eq!(busy.code(), Some(Code::Busy));
    guard.release().await.expect("it is ours");
    let second = other.lock("a").holder("w1").acquire().await.expect("it is free");
    assert_eq!(second.state(), State::Held);
}

/// Polls a future until it is done, but so many times at most, and each time only after it asked to be polled.
async fn poll_up_to<T>(mut future: Pin<&mut impl Future<Output = T>>, times: usize) -> Option<T> {
    struct Rung(Notify);
    impl Wake for Rung {
        fn wake(self: Arc<Self>) {
            self.0.notify_one();
        }
    }
    let rung = Arc::new(Rung(Notify::new()));
    let waker = Waker::from(rung.clone());
    for _ in 0..times {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(done);
        }
        rung.0.notified().await;
    }
    None
}

#[tokio::test]
async fn dropping_the_acquire_future_at_each_await_leaves_no_orphan() {
    let server = Server::start();
    let (one, other, looking) = (client(&server, "w1"), client(&server, "w2"), client(&server, "looks"));
    for contended in [false, true] {
        for polls in 0.. {
            let first = if contended { Some(acquire(&other, "a").await) } else { None };
            let lock = one.lock("a").wait(PATIENCE);
            let mut future = Box::pin(lock.acquire());
            let release = async {
                if let Some(first) = first {
                    until(async || polls == 0 || crowd(&looking, "a").await.1 == 1).await;
                    first.release().await.expect("it is ours");
                }
            };
            let (done, ()) = tokio::join!(poll_up_to(future.as_mut(), polls), release);
            let complete = done.is_some();
            drop((done, future));
            until(async || crowd(&looking, "a").await == (0, 0)).await;
            if complete {
                break;
            }
        }
    }
}

#[tokio::test]
async fn dropping_the_acquire_future_in_the_queue_leaves_the_queue() {
    let server = Server::start();
    let (one, other, looking) = (client(&server, "w1"), client(&server, "w2"), client(&server, "looks"));
    let first = acquire(&other, "a").await;
    let lock = one.lock("a").wait(PATIENCE);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until(async || crowd(&looking, "a").await == (1, 1)).await;
    waiting.abort();
    until(async || crowd(&looking, "a").await == (1, 0)).await;
    first.release().await.expect("it is ours");
    assert_eq!(crowd(&looking, "a").await, (0, 0), "a wait that was taken back is never granted");
}

#[tokio::test]
async fn several_at_once_are_all_or_none() {
    let server = Server::start();
    let (one, other, looking) = (client(&server, "w1"), client(&server, "w2"), client(&server, "looks"));
    let busy = acquire(&other, "b").await;
    let several = one.lock("a").and("b").and("c");
    let refused = several.acquire_all().await.expect_err("one of them is held").into_error();
    assert_eq!(refused.code(), Some(Code::Busy));
    let waiting = tokio::spawn(async move { several.wait(PATIENCE).acquire_all().await });
    until(async || crowd(&looking, "b").await == (1, 1)).await;
    assert_eq!((crowd(&looking, "a").await.0, crowd(&looking, "c").await.0), (0, 0));
    busy.release().await.expect("it is ours");
    let guards = waiting.await.expect("it ran").expect("all are free");
    assert_eq!(guards.iter().map(|guard| guard.resource()).collect::<Vec<_>>(), ["a", "b", "c"]);
    for guard in guards {
        guard.confirm().await.expect("each is held");
        guard.release().await.expect("each on its own");
    }
}

#[tokio::test]
async fn whoever_would_close_a_circle_of_waits_is_told_the_circle() {
    let server = Server::start();
    let (one, other, looking) = (client(&server, "w1"), client(&server, "w2"), client(&server, "looks"));
    let _a = one.lock("a").holder("t1").acquire().await.expect("it is free");
    let b = other.lock("b").holder("t2").acquire().await.expect("it is free");
    let lock = one.lock("b").holder("t1").wait(PATIENCE);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until(async || crowd(&looking, "b").await.1 == 1).await;
    let told = other.lock("a").holder("t2").wait(PATIENCE).acquire().await.expect_err("a circle").into_error();
    assert_eq!(told.code(), Some(Code::Deadlock));
    assert!(told.to_string().contains("t1") && told.to_string().contains("t2"), "{told}");
    b.release().await.expect("the victim gives up what it has");
    assert_eq!(waiting.await.expect("it ran").expect("the other goes on").state(), State::Held);
}

#[tokio::test]
async fn the_successor_of_a_gap_follows_and_of_an_overlap_claims_when_its_predecessor_is_done() {
    let server = Server::start();
    let (one, other, looking) = (client(&server, "w1"), client(&server, "w2"), client(&server, "looks"));
    for style in [Style::Gap, Style::Overlap] {
        let first = acquire(&one, "a").await;
        let lock = other.lock("a").wait(PATIENCE);
        let mut waiting = tokio::spawn(async move { lock.acquire().await });
        until(async || crowd(&looking, "a").await == (1, 1)).await;
        let how = HandOver { style: Some(style), drain: Some(PATIENCE), ..HandOver::default() };
        first.hand_off(how).await.expect("somebody waits");
        until(async || first.draining().is_some()).await;
        let second = match style {
            Style::Gap => {
                assert_eq!(crowd(&looking, "a").await.1, 1, "nobody follows before it is done");
                assert!(!waiting.is_finished());
                first.release().await.expect("it is done");
                waiting.await.expect("it ran").expect("it follows")
            }
            Style::Overlap => {
                let second = (&mut waiting).await.expect("it ran").expect("granted at once");
                assert!(second.token_number() > first.token_number());
                {
                    let mut claim = std::pin::pin!(second.may_claim());
                    assert!(poll_up_to(claim.as_mut(), 0).await.is_none());
                    let early = tokio::time::timeout(Duration::ZERO, claim.as_mut()).await;
                    assert!(early.is_err(), "the predecessor still writes");
                    first.put("last", b"words").await.expect("until it is done its writes pass");
                    first.release().await.expect("it is done");
                    let claim = claim.await.expect("it is held");
                    let _may_write = claim.claimed().read_again();
                }
                second
            }
        };
        second.release().await.expect("it holds");
    }
}
