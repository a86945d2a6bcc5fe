//! Waiting for a lease, giving up at any moment, and taking over from a predecessor.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::charter::Style;

use super::{TTL, acquire, held, until, waiters};
use crate::blocking::block_on;
use crate::testing::Grantor;
use crate::{Code, HandOver, State};

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
