//! Waiting for a lease, giving up at any moment, and taking over from a predecessor.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold_core::charter::Style;

use super::{TTL, acquire, held, until, waiters};
use crate::blocking::block_on;
use crate::testing::Grantor;
use crate::{Client, Code, HandOver, State};

#[test]
fn tasks_of_one_client_are_strangers_to_each_other() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let first = acquire(&client, "a").expect("it is free");
    let busy = acquire(&client, "a").expect_err("another task has it").into_error();
    assert_eq!(busy.code(), Some(Code::Busy));
    let lock = client.lock("a").ttl(TTL).wait(TTL);
    let mut waiting = pin!(lock.acquire());
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    until(|| waiters(&grantor, "a") == 1);
    block_on(first.release()).expect("it is ours");
    let second = block_on(waiting).expect("it was given back");
    assert_eq!(second.state(), State::Held);
}

#[test]
fn dropping_the_acquire_future_at_any_point_leaves_nothing_behind() {
    for contended in [false, true] {
        for polls in 0..6 {
            let grantor = Grantor::new();
            let (client, other) = (grantor.client("w1"), grantor.client("w2"));
            let first = contended.then(|| acquire(&other, "a").expect("it is free"));
            let lock = client.lock("a").ttl(TTL).wait(10 * TTL);
            {
                let mut future = Box::pin(lock.acquire());
                let mut context = Context::from_waker(Waker::noop());
                for poll in 0..polls {
                    if let Poll::Ready(_granted) = future.as_mut().poll(&mut context) {
                        break;
                    }
                    // In some runs the answer is there before the next poll, in others it is not.
                    if poll % 2 == 1 {
                        until(|| held(&grantor, "a") + waiters(&grantor, "a") > usize::from(contended));
                        grantor.advance(Duration::from_millis(10));
                    }
                }
            }
            grantor.advance(Duration::from_millis(50));
            until(|| held(&grantor, "a") == usize::from(contended) && waiters(&grantor, "a") == 0);
            drop(first);
            until(|| held(&grantor, "a") == 0);
            let again = acquire(&client, "a").expect("nobody was left behind");
            assert_eq!(again.state(), State::Held);
        }
    }
}

#[test]
fn a_grant_that_races_its_cancelling_is_given_back() {
    for after in 0..40 {
        let grantor = Grantor::new();
        let (client, other) = (grantor.client("w1"), grantor.client("w2"));
        let first = acquire(&other, "a").expect("it is free");
        let lock = client.lock("a").ttl(TTL).wait(10 * TTL);
        let mut future = Box::pin(lock.acquire());
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        until(|| waiters(&grantor, "a") == 1);
        let release = std::thread::spawn(move || block_on(first.release()));
        (0..after * 50).for_each(|_| std::hint::spin_loop());
        drop(future);
        release.join().expect("it ran").expect("it was held");
        until(|| held(&grantor, "a") == 0 && waiters(&grantor, "a") == 0);
    }
}

#[test]
fn a_lock_that_was_waited_for_longer_than_its_ttl_comes_held() {
    let grantor = Grantor::new();
    let (client, other) = (grantor.client("w1"), grantor.client("w2"));
    let first = acquire(&client, "a").expect("it is free");
    let lock = other.lock("a").ttl(TTL).wait(10 * TTL);
    let mut waiting = pin!(lock.acquire());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until(|| waiters(&grantor, "a") == 1);
    grantor.advance(3 * TTL);
    block_on(first.release()).expect("it is ours");
    assert_eq!(block_on(waiting).expect("it follows").state(), State::Held);
}

#[test]
fn a_wait_that_is_older_than_a_thousand_requests_does_not_hold_the_others_up() {
    let grantor = Grantor::new();
    let (client, other) = (grantor.client("w1"), grantor.client("w2"));
    let first = acquire(&other, "a").expect("it is free");
    let lock = client.lock("a").ttl(TTL).wait(100 * TTL);
    let mut waiting = pin!(lock.acquire());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until(|| waiters(&grantor, "a") == 1);
    let guard = acquire(&client, "b").expect("it is free");
    for at in 0..2_500_u32 {
        block_on(guard.put("at", &at.to_be_bytes())).expect("it is current");
    }
    until(|| waiters(&grantor, "a") == 1);
    block_on(first.release()).expect("it is held");
    assert_eq!(block_on(waiting).expect("it still waited").state(), State::Held);
}

#[test]
fn the_successor_of_an_overlap_claims_only_when_its_predecessor_has_drained() {
    let grantor = Grantor::new();
    let (client, other) = (grantor.client("w1"), grantor.client("w2"));
    let first = acquire(&client, "a").expect("it is free");
    let lock = other.lock("a").ttl(TTL).wait(10 * TTL);
    let mut waiting = pin!(lock.acquire());
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    until(|| waiters(&grantor, "a") == 1);
    let overlap = HandOver { style: Some(Style::Overlap), drain: Some(4 * TTL), ..HandOver::default() };
    block_on(first.hand_off(overlap)).expect("somebody waits");
    let second = block_on(waiting).expect("an overlap grants at once");
    assert!(second.token_number() > first.token_number());
    grantor.advance(TTL);
    assert!(first.draining().is_some() && first.state() == State::Held, "it drains");
    let mut claim = Box::pin(second.may_claim());
    assert!(claim.as_mut().poll(&mut context).is_pending(), "the predecessor still writes");
    block_on(first.release()).expect("it has drained");
    let claim = block_on(claim).expect("it is held");
    let _may_write = claim.claimed().read_again();
}

#[test]
fn the_successor_of_a_gap_is_granted_after_its_predecessor() {
    let grantor = Grantor::new();
    let (client, other) = (grantor.client("w1"), grantor.client("w2"));
    let first = acquire(&client, "a").expect("it is free");
    let lock = other.lock("a").ttl(TTL).wait(10 * TTL);
    let mut waiting = pin!(lock.acquire());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until(|| waiters(&grantor, "a") == 1);
    block_on(first.hand_off(HandOver::default())).expect("it may");
    assert_eq!((held(&grantor, "a"), waiters(&grantor, "a")), (1, 1), "nobody follows before it is done");
    block_on(first.release()).expect("it has drained");
    let second = block_on(waiting).expect("it follows");
    let _claim = block_on(second.may_claim()).expect("nobody drains");
}

#[test]
fn more_waits_than_a_grantor_remembers_take_turns_and_nobody_starves() {
    let grantor = Grantor::new();
    let (client, other) = (grantor.client("w1"), grantor.client("w2"));
    let _busy = acquire(&other, "busy").expect("it is free");
    let wanted = acquire(&other, "wanted").expect("it is free");
    let names = (0..1_500).map(|at| if at == 100 { "wanted" } else { "busy" });
    let locks: Vec<_> = names.map(|name| client.lock(name).ttl(TTL).wait(Duration::from_secs(3_600))).collect();
    let mut waiting: Vec<_> = locks.iter().map(|lock| Box::pin(lock.acquire())).collect();
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.iter_mut().all(|wait| wait.as_mut().poll(&mut context).is_pending()));
    let free = acquire(&client, "free").expect("who needs no wait is not held up");
    assert_eq!(free.state(), State::Held);
    block_on(wanted.release()).expect("it is ours");
    until(|| {
        grantor.advance(Duration::from_millis(250));
        held(&grantor, "wanted") == 1
    });
    let guard = block_on(waiting.swap_remove(100)).expect("its turn came");
    assert_eq!(guard.state(), State::Held);
}

#[test]
fn several_are_taken_all_or_none_by_one_actor() {
    let grantor = Grantor::new();
    let (client, other) = (grantor.client("w1"), grantor.client("w2"));
    let several = || client.lock("a").and("b").and("c").ttl(TTL);
    let busy = acquire(&other, "b").expect("it is free");
    let refused = block_on(several().acquire_all()).expect_err("one of them is held").into_error();
    assert_eq!((refused.code(), held(&grantor, "a"), held(&grantor, "c")), (Some(Code::Busy), 0, 0));
    let wait = several().wait(10 * TTL);
    let mut waiting = Box::pin(wait.acquire_all());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until(|| waiters(&grantor, "b") == 1);
    grantor.advance(2 * TTL);
    assert_eq!((held(&grantor, "a"), held(&grantor, "c")), (0, 0), "none is held while one is waited for");
    block_on(busy.release()).expect("it is ours");
    let guards = block_on(waiting).expect("all are free");
    let names: Vec<&str> = guards.iter().map(|guard| guard.resource()).collect();
    assert!(names == ["a", "b", "c"] && guards.iter().all(|guard| guard.is_held()));
    grantor.advance(5 * TTL);
    assert!(guards.iter().all(|guard| guard.is_held()), "each is renewed");
    drop(guards);
    until(|| ["a", "b", "c"].iter().all(|name| held(&grantor, name) == 0));
    let wrong = block_on(several().acquire()).expect_err("one guard cannot hold three").into_error();
    assert_eq!(wrong.code(), Some(Code::InvalidArgument));
}

#[test]
fn dropping_a_wish_for_several_leaves_nothing_behind() {
    for waits in [false, true] {
        let grantor = Grantor::new();
        let (client, other) = (grantor.client("w1"), grantor.client("w2"));
        let busy = waits.then(|| acquire(&other, "b").expect("it is free"));
        let lock = client.lock("a").and("b").ttl(TTL).wait(10 * TTL);
        let mut wish = Box::pin(lock.acquire_all());
        // What is free may be there at the first look.
        let first = wish.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        until(|| if waits { waiters(&grantor, "b") == 1 } else { held(&grantor, "b") == 1 });
        drop((first, wish));
        until(|| waiters(&grantor, "b") == 0 && held(&grantor, "b") == usize::from(waits));
        drop(busy);
        until(|| held(&grantor, "a") + held(&grantor, "b") == 0);
    }
}

#[test]
fn whoever_would_close_a_circle_of_waits_is_told_the_circle() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("one"), grantor.client("two"));
    let lock = |client: &Client, name: &str, holder: &str| client.lock(name).holder(holder).ttl(TTL).wait(10 * TTL);
    let _a = block_on(lock(&one, "a", "t1").acquire()).expect("it is free");
    let b = block_on(lock(&two, "b", "t2").acquire()).expect("it is free");
    let first = lock(&one, "b", "t1");
    let mut waiting = Box::pin(first.acquire());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until(|| waiters(&grantor, "b") == 1);
    let told = block_on(lock(&two, "a", "t2").acquire()).expect_err("nobody could go on").into_error();
    assert_eq!(told.code(), Some(Code::Deadlock));
    assert!(told.to_string().contains("t1") && told.to_string().contains("t2"), "{told}");
    block_on(b.release()).expect("the victim gives up what it has");
    assert_eq!(block_on(waiting).expect("and the other goes on").state(), State::Held);
}

#[test]
fn a_successor_whose_grantor_is_gone_claims_by_its_own_clock() {
    struct Rung(AtomicBool);
    impl Wake for Rung {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }
    let grantor = Grantor::new();
    let (client, other) = (grantor.client("w1"), grantor.client("w2"));
    let first = acquire(&client, "a").expect("it is free");
    let lock = other.lock("a").ttl(Duration::from_secs(30)).wait(10 * TTL);
    let mut waiting = pin!(lock.acquire());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until(|| waiters(&grantor, "a") == 1);
    let overlap = HandOver { style: Some(Style::Overlap), drain: Some(TTL), ..HandOver::default() };
    block_on(first.hand_off(overlap)).expect("somebody waits");
    let second = block_on(waiting).expect("an overlap grants at once");
    let rung = Arc::new(Rung(AtomicBool::new(false)));
    let waker = Waker::from(rung.clone());
    let mut claim = Box::pin(second.may_claim());
    assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "the predecessor still writes");
    grantor.partition(&other);
    rung.0.store(false, Ordering::Release);
    grantor.advance(TTL + Duration::from_millis(100));
    assert!(rung.0.load(Ordering::Acquire), "it is told when its time has come");
    let _claim = block_on(claim).expect("it is held");
}
