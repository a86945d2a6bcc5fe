//! Waiting for a lease, canceling a wait, and succeeding a predecessor.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold_core::charter::HandoffMode;

use super::{TTL, acquire, held, wait_until, waiters};
use crate::blocking::block_on;
use crate::testing::TestServer;
use crate::{Client, Code, GuardState, HandoffOptions};

#[test]
fn tasks_of_one_client_exclude_each_other() {
    let server = TestServer::new();
    let client = server.client("w1");
    let first = acquire(&client, "a").expect("the resource is free");
    let busy = acquire(&client, "a").expect_err("another task holds it").into_error();
    assert_eq!(busy.code(), Some(Code::Busy));
    let lock = client.lock("a").ttl(TTL).wait(TTL);
    let mut waiting = pin!(lock.acquire());
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    wait_until(|| waiters(&server, "a") == 1);
    block_on(first.release()).expect("the lease is held");
    let second = block_on(waiting).expect("the lease was released");
    assert_eq!(second.state(), GuardState::Held);
}

#[test]
fn a_request_whose_session_no_server_opens_is_refused_immediately_with_the_limit() {
    let server = TestServer::new();
    let hour = Duration::from_secs(3_600);
    let lock = server.client_with(|client| client.session_ttl(hour)).lock("a").ttl(hour).wait(hour);
    // Time does not pass, so only the refusal can end the wait.
    let waiting = std::thread::spawn(move || block_on(lock.acquire()).map_err(crate::RequestError::into_error));
    wait_until(|| waiting.is_finished());
    let error = waiting.join().expect("the thread did not panic").expect_err("the ttl is too long");
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert!(error.message().starts_with("ttl: 1h is not allowed; the cluster allows 100ms to 10m"), "{error}");
}

#[test]
fn dropping_an_acquire_future_at_any_point_leaves_no_lease_and_no_waiter() {
    for contended in [false, true] {
        for polls in 0..6 {
            let server = TestServer::new();
            let (client, other) = (server.client("w1"), server.client("w2"));
            let first = contended.then(|| acquire(&other, "a").expect("the resource is free"));
            let lock = client.lock("a").ttl(TTL).wait(10 * TTL);
            {
                let mut future = Box::pin(lock.acquire());
                let mut context = Context::from_waker(Waker::noop());
                for poll in 0..polls {
                    if let Poll::Ready(_granted) = future.as_mut().poll(&mut context) {
                        break;
                    }
                    // In some runs the reply arrives before the next poll, in others it does not.
                    if poll % 2 == 1 {
                        wait_until(|| held(&server, "a") + waiters(&server, "a") > usize::from(contended));
                        server.advance(Duration::from_millis(10));
                    }
                }
            }
            server.advance(Duration::from_millis(50));
            wait_until(|| held(&server, "a") == usize::from(contended) && waiters(&server, "a") == 0);
            drop(first);
            wait_until(|| held(&server, "a") == 0);
            let again = acquire(&client, "a").expect("no lease and no waiter is left");
            assert_eq!(again.state(), GuardState::Held);
        }
    }
}

#[test]
fn a_grant_that_races_its_cancellation_is_released() {
    for after in 0..40 {
        let server = TestServer::new();
        let (client, other) = (server.client("w1"), server.client("w2"));
        let first = acquire(&other, "a").expect("the resource is free");
        let lock = client.lock("a").ttl(TTL).wait(10 * TTL);
        let mut future = Box::pin(lock.acquire());
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        wait_until(|| waiters(&server, "a") == 1);
        let release = std::thread::spawn(move || block_on(first.release()));
        (0..after * 50).for_each(|_| std::hint::spin_loop());
        drop(future);
        release.join().expect("the thread did not panic").expect("the lease was held");
        wait_until(|| held(&server, "a") == 0 && waiters(&server, "a") == 0);
    }
}

#[test]
fn a_lock_granted_after_a_wait_longer_than_its_ttl_is_held() {
    let server = TestServer::new();
    let (client, other) = (server.client("w1"), server.client("w2"));
    let first = acquire(&client, "a").expect("the resource is free");
    let lock = other.lock("a").ttl(TTL).wait(10 * TTL);
    let mut waiting = pin!(lock.acquire());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait_until(|| waiters(&server, "a") == 1);
    server.advance(3 * TTL);
    block_on(first.release()).expect("the lease is held");
    assert_eq!(block_on(waiting).expect("the waiter is granted").state(), GuardState::Held);
}

#[test]
fn an_old_wait_does_not_block_later_requests() {
    let server = TestServer::new();
    let (client, other) = (server.client("w1"), server.client("w2"));
    let first = acquire(&other, "a").expect("the resource is free");
    let lock = client.lock("a").ttl(TTL).wait(100 * TTL);
    let mut waiting = pin!(lock.acquire());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait_until(|| waiters(&server, "a") == 1);
    let guard = acquire(&client, "b").expect("the resource is free");
    for at in 0..2_500_u32 {
        block_on(guard.put("at", &at.to_be_bytes())).expect("the lease is current");
    }
    wait_until(|| waiters(&server, "a") == 1);
    block_on(first.release()).expect("the lease is held");
    assert_eq!(block_on(waiting).expect("the wait was still queued").state(), GuardState::Held);
}

#[test]
fn the_successor_of_an_overlap_claims_only_when_its_predecessor_has_drained() {
    let server = TestServer::new();
    let (client, other) = (server.client("w1"), server.client("w2"));
    let first = acquire(&client, "a").expect("the resource is free");
    let lock = other.lock("a").ttl(TTL).wait(10 * TTL);
    let mut waiting = pin!(lock.acquire());
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    wait_until(|| waiters(&server, "a") == 1);
    let overlap = HandoffOptions::new().mode(HandoffMode::Overlap).drain(4 * TTL);
    block_on(first.handoff(overlap)).expect("there is a waiter");
    let second = block_on(waiting).expect("an overlap grants immediately");
    assert!(second.token_number() > first.token_number());
    server.advance(TTL);
    assert!(first.draining().is_some() && first.state() == GuardState::Held, "the predecessor drains");
    let mut claim = Box::pin(second.wait_claimable());
    assert!(claim.as_mut().poll(&mut context).is_pending(), "the predecessor may still write");
    block_on(first.release()).expect("the lease is held");
    let claim = block_on(claim).expect("the lease is held");
    let _may_write = claim.claimed().read_again();
}

#[test]
fn the_successor_of_a_gap_is_granted_after_its_predecessor() {
    let server = TestServer::new();
    let (client, other) = (server.client("w1"), server.client("w2"));
    let first = acquire(&client, "a").expect("the resource is free");
    let lock = other.lock("a").ttl(TTL).wait(10 * TTL);
    let mut waiting = pin!(lock.acquire());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait_until(|| waiters(&server, "a") == 1);
    block_on(first.handoff(HandoffOptions::new())).expect("the handoff starts");
    assert_eq!((held(&server, "a"), waiters(&server, "a")), (1, 1), "the successor is not granted before the drain");
    block_on(first.release()).expect("the lease is held");
    let second = block_on(waiting).expect("the waiter is granted");
    let _claim = block_on(second.wait_claimable()).expect("no predecessor drains");
}

#[test]
fn more_waits_than_a_grantor_remembers_take_turns_and_none_starves() {
    let server = TestServer::new();
    let (client, other) = (server.client("w1"), server.client("w2"));
    let _busy = acquire(&other, "busy").expect("the resource is free");
    let wanted = acquire(&other, "wanted").expect("the resource is free");
    let names = (0..1_500).map(|at| if at == 100 { "wanted" } else { "busy" });
    let locks: Vec<_> = names.map(|name| client.lock(name).ttl(TTL).wait(Duration::from_secs(3_600))).collect();
    let mut waiting: Vec<_> = locks.iter().map(|lock| Box::pin(lock.acquire())).collect();
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.iter_mut().all(|wait| wait.as_mut().poll(&mut context).is_pending()));
    let free = acquire(&client, "free").expect("a request without a wait is not blocked");
    assert_eq!(free.state(), GuardState::Held);
    block_on(wanted.release()).expect("the lease is held");
    wait_until(|| {
        server.advance(Duration::from_millis(250));
        held(&server, "wanted") == 1
    });
    let guard = block_on(waiting.swap_remove(100)).expect("the waiter is granted");
    assert_eq!(guard.state(), GuardState::Held);
}

#[test]
fn several_leases_are_acquired_all_or_none_by_one_actor() {
    let server = TestServer::new();
    let (client, other) = (server.client("w1"), server.client("w2"));
    let several = || client.lock("a").also("b").also("c").ttl(TTL);
    let busy = acquire(&other, "b").expect("the resource is free");
    let refused = block_on(several().acquire_all()).expect_err("one resource is held").into_error();
    assert_eq!((refused.code(), held(&server, "a"), held(&server, "c")), (Some(Code::Busy), 0, 0));
    let wait = several().wait(10 * TTL);
    let mut waiting = Box::pin(wait.acquire_all());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait_until(|| waiters(&server, "b") == 1);
    server.advance(2 * TTL);
    assert_eq!((held(&server, "a"), held(&server, "c")), (0, 0), "no lease is held while one is waited for");
    block_on(busy.release()).expect("the lease is held");
    let guards = block_on(waiting).expect("all resources are free");
    let names: Vec<&str> = guards.iter().map(|guard| guard.resource()).collect();
    assert!(names == ["a", "b", "c"] && guards.iter().all(|guard| guard.is_held()));
    server.advance(5 * TTL);
    assert!(guards.iter().all(|guard| guard.is_held()), "each lease is renewed");
    drop(guards);
    wait_until(|| ["a", "b", "c"].iter().all(|name| held(&server, name) == 0));
    let wrong = block_on(several().acquire()).expect_err("acquire is for one resource").into_error();
    assert_eq!(wrong.code(), Some(Code::InvalidArgument));
}

#[test]
fn dropping_a_request_for_several_leases_leaves_nothing() {
    for waits in [false, true] {
        let server = TestServer::new();
        let (client, other) = (server.client("w1"), server.client("w2"));
        let busy = waits.then(|| acquire(&other, "b").expect("the resource is free"));
        let lock = client.lock("a").also("b").ttl(TTL).wait(10 * TTL);
        let mut request = Box::pin(lock.acquire_all());
        // A free lease may be granted at the first poll.
        let first = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        wait_until(|| if waits { waiters(&server, "b") == 1 } else { held(&server, "b") == 1 });
        drop((first, request));
        wait_until(|| waiters(&server, "b") == 0 && held(&server, "b") == usize::from(waits));
        drop(busy);
        wait_until(|| held(&server, "a") + held(&server, "b") == 0);
    }
}

#[test]
fn a_wait_that_would_close_a_cycle_is_refused_with_the_cycle() {
    let server = TestServer::new();
    let (one, two) = (server.client("one"), server.client("two"));
    let lock = |client: &Client, name: &str, holder: &str| client.lock(name).holder(holder).ttl(TTL).wait(10 * TTL);
    let _a = block_on(lock(&one, "a", "t1").acquire()).expect("the resource is free");
    let b = block_on(lock(&two, "b", "t2").acquire()).expect("the resource is free");
    let first = lock(&one, "b", "t1");
    let mut waiting = Box::pin(first.acquire());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait_until(|| waiters(&server, "b") == 1);
    let error = block_on(lock(&two, "a", "t2").acquire()).expect_err("the wait would never end").into_error();
    assert_eq!(error.code(), Some(Code::Deadlock));
    assert!(error.to_string().contains("t1") && error.to_string().contains("t2"), "{error}");
    block_on(b.release()).expect("the victim releases its lease");
    assert_eq!(block_on(waiting).expect("the other waiter is granted").state(), GuardState::Held);
}

#[test]
fn a_partitioned_successor_claims_by_its_own_clock() {
    struct WakeFlag(AtomicBool);
    impl Wake for WakeFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }
    let server = TestServer::new();
    let (client, other) = (server.client("w1"), server.client("w2"));
    let first = acquire(&client, "a").expect("the resource is free");
    let lock = other.lock("a").ttl(Duration::from_secs(30)).wait(10 * TTL);
    let mut waiting = pin!(lock.acquire());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait_until(|| waiters(&server, "a") == 1);
    let overlap = HandoffOptions::new().mode(HandoffMode::Overlap).drain(TTL);
    block_on(first.handoff(overlap)).expect("there is a waiter");
    let second = block_on(waiting).expect("an overlap grants immediately");
    let woken = Arc::new(WakeFlag(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut claim = Box::pin(second.wait_claimable());
    assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "the predecessor may still write");
    server.partition(&other);
    woken.0.store(false, Ordering::Release);
    server.advance(TTL + Duration::from_millis(100));
    assert!(woken.0.load(Ordering::Acquire), "the task is woken when it may claim");
    let _claim = block_on(claim).expect("the lease is held");
}
