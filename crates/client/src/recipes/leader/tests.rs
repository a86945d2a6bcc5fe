//! Elections in memory, on a clock that stands still unless it is moved: what happens at once happens without it.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use futures::channel::oneshot;
use leasehold_core::command::Style;
use leasehold_core::lease::Reason;

use crate::blocking::block_on;
use crate::recipes::until;
use crate::testing::Grantor;
use crate::{HandOver, State};

const TTL: Duration = Duration::from_secs(30);

fn waiters(grantor: &Grantor) -> usize {
    grantor.show("leader").map_or(0, |shown| shown.waiters)
}

#[test]
fn who_resigns_is_followed_at_once_under_a_higher_token() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("one").election("leader"), grantor.client("two").election("leader"));
    let first = block_on(one.campaign()).expect("nobody leads");
    let (number, leader) = (first.token_number(), block_on(two.leader()).expect("it can be asked"));
    assert_eq!(leader.expect("somebody leads").token_number, number.get());
    let next = std::thread::spawn(move || block_on(two.campaign()).expect("its turn comes"));
    until(|| waiters(&grantor) == 1);
    block_on(first.resign()).expect("it leads");
    let second = next.join().expect("it was elected");
    assert!(second.token_number() > number);
    assert_eq!(block_on(one.leader()).expect("it can be asked").expect("somebody leads").holder, "two");
}

#[test]
fn a_leader_told_to_stop_hands_over_at_once_and_not_by_expiry() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("one").election("leader").ttl(TTL), grantor.client("two").election("leader"));
    let (stop, stopped) = oneshot::channel::<()>();
    let leading = std::thread::spawn(move || {
        let stop = async {
            let _ = stopped.await;
        };
        block_on(one.lead(stop, |hold| async move {
            hold.leaving().await;
            // What is written while it drains is still its own.
            hold.put("last", b"words").await.map(|_| hold.token_number())
        }))
    });
    until(|| grantor.show("leader").is_some_and(|shown| shown.leases.len() == 1));
    let next = std::thread::spawn(move || block_on(two.campaign()).expect("its turn comes"));
    until(|| waiters(&grantor) == 1);
    stop.send(()).expect("it listens");
    // The clock stands still: nothing runs out, so only the handover can have made it leader.
    let second = next.join().expect("it was elected");
    let finished = leading.join().expect("it ended").expect("it was not revoked").expect("the work returned");
    assert!(second.token_number() > finished.expect("its last write was taken"));
}

#[test]
fn in_an_overlap_the_successor_is_chosen_at_once_and_claims_when_the_leader_has_finished() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("one").election("leader"), grantor.client("two").election("leader"));
    let first = block_on(one.campaign()).expect("nobody leads");
    let next = std::thread::spawn(move || block_on(two.campaign()).expect("its turn comes"));
    until(|| waiters(&grantor) == 1);
    let (finish, finished) = oneshot::channel::<()>();
    let how = HandOver { style: Some(Style::Overlap), ..HandOver::default() };
    let handing = std::thread::spawn(move || {
        block_on(first.hand_over(how, async {
            let _ = finished.await;
        }))
    });
    let second = next.join().expect("it was elected before the first has finished");
    let mut claiming = pin!(second.may_claim());
    assert!(claiming.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let seen = block_on(one.leader()).expect("it can be asked").expect("somebody leads");
    assert_eq!(seen.token_number, second.token_number().get(), "who only finishes leads no more");
    finish.send(()).expect("it listens");
    handing.join().expect("it ended").expect("it finished in time");
    let _claim = block_on(claiming).expect("the first is done");
}

#[test]
fn a_leader_that_is_cut_off_stops_before_the_next_one_leads() {
    let grantor = Grantor::new();
    let client = grantor.client("one");
    let (one, two) = (client.election("leader").ttl(TTL), grantor.client("two").election("leader"));
    let first = block_on(one.campaign()).expect("nobody leads");
    let next = std::thread::spawn(move || block_on(two.campaign()).expect("its turn comes"));
    until(|| waiters(&grantor) == 1);
    grantor.partition(&client);
    while grantor.show("leader").is_some_and(|shown| shown.waiters == 1) {
        let led = first.state() == State::Held;
        grantor.advance(Duration::from_millis(10));
        let next_leads = grantor.show("leader").is_some_and(|shown| shown.waiters == 0);
        assert!(!(led && next_leads), "the first still believed when the second was elected");
    }
    assert!(next.join().expect("it was elected").token_number() > first.token_number());
}

#[test]
fn a_revoked_leader_does_not_campaign_again_by_itself() {
    let grantor = Grantor::new();
    let election = grantor.client("one").election("leader");
    let leading =
        std::thread::spawn(move || block_on(election.lead(std::future::pending(), |_| std::future::pending::<()>())));
    until(|| grantor.show("leader").is_some_and(|shown| shown.leases.len() == 1));
    grantor.revoke("leader").expect("it is held");
    let error = leading.join().expect("it ended").expect_err("it was revoked");
    assert_eq!(error.lost(), Some(Reason::Operator));
    assert!(grantor.show("leader").is_none_or(|shown| shown.leases.is_empty() && shown.waiters == 0));
}

#[test]
fn a_candidacy_that_is_dropped_is_taken_back() {
    let grantor = Grantor::new();
    let (one, two) = (grantor.client("one").election("leader"), grantor.client("two").election("leader"));
    let first = block_on(one.campaign()).expect("nobody leads");
    {
        let mut campaign = pin!(two.campaign());
        assert!(campaign.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        until(|| waiters(&grantor) == 1);
    }
    until(|| waiters(&grantor) == 0);
    block_on(first.resign()).expect("it leads");
    assert_eq!(block_on(one.leader()).expect("it can be asked"), None);
}
