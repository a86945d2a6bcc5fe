//! The holder against the real grantor in memory: what is promised when things go wrong, without a real second passing.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::charter::{Charter, Style, TokenOnRenewal};
use leasehold_core::lease::Reason;

use crate::blocking::block_on;
use crate::testing::Grantor;
use crate::{Client, Code, Error, Failure, Guard, HandOver, Loss, State, Stopped};

const TTL: Duration = Duration::from_secs(3);

fn acquire(client: &Client, name: &str) -> Result<Guard, Failure<Guard>> {
    block_on(client.lock(name).ttl(TTL).acquire())
}

fn held(grantor: &Grantor, name: &str) -> usize {
    grantor.show(name).map_or(0, |shown| shown.leases.len())
}

fn waiters(grantor: &Grantor, name: &str) -> usize {
    grantor.show(name).map_or(0, |shown| shown.waiters)
}

#[test]
fn a_guard_is_renewed_for_as_long_as_it_lives_and_dropping_it_gives_back() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let token = guard.token();
    grantor.advance(10 * TTL);
    assert_eq!((guard.state(), guard.token()), (State::Held, token.clone()));
    assert!(token.starts_with("lh1-") && token.contains(&guard.token_number().to_string()));
    assert!(guard.deadline().earliest < guard.deadline().latest && guard.left() < TTL);
    block_on(guard.confirm()).expect("it is current");
    drop(guard);
    grantor.advance(Duration::from_millis(10));
    assert_eq!(held(&grantor, "a"), 0);
}

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
fn a_partitioned_holder_stops_at_its_own_deadline_and_goes_on_under_the_same_token() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let token = guard.token_number();
    grantor.partition(&client);
    grantor.advance(TTL / 2);
    assert_eq!(guard.state(), State::Held);
    grantor.advance(TTL / 2 - Duration::from_millis(20));
    assert_eq!((guard.state(), held(&grantor, "a")), (State::Suspended, 1), "the holder stops before the grantor");
    grantor.heal(&client);
    // Healed between the holder's deadline and the grantor's: the reconnect is what decides.
    grantor.advance(2 * TTL);
    match guard.state() {
        State::Held => assert_eq!(guard.token_number(), token),
        state => assert_eq!(state, State::Lost(Loss::Ended(Reason::Ttl))),
    }
}

#[test]
fn an_expired_lease_is_lost_by_the_grantors_word() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.expire("a");
    grantor.advance(TTL);
    let loss = block_on(guard.lost());
    assert_eq!((loss, guard.state()), (Loss::Ended(Reason::Ttl), State::Lost(loss)));
    let error = block_on(guard.put("k", b"v")).expect_err("nothing is written after the end").into_error();
    assert_eq!(error.lost(), Some(Reason::Ttl));
}

#[test]
fn a_paused_holder_finds_out_that_its_session_is_over_and_a_new_lock_works() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.pause(&client);
    grantor.advance(Duration::from_secs(100));
    assert_eq!((guard.state(), held(&grantor, "a")), (State::Suspended, 0));
    grantor.resume(&client);
    grantor.advance(TTL);
    assert!(matches!(guard.state(), State::Lost(Loss::Ended(Reason::Ttl | Reason::Session))), "{:?}", guard.state());
    assert_eq!(acquire(&client, "a").expect("a new session").state(), State::Held);
}

#[test]
fn a_revoked_lease_is_told_and_never_asked_for_again() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let mut begun = 0;
    let lock = client.lock("a").ttl(TTL);
    let ran: Result<(), Error> = block_on(lock.run(|_| {
        begun += 1;
        let grantor = grantor.clone();
        async move {
            std::thread::spawn(move || grantor.revoke("a")).join().expect("it ran").expect("it is held");
            std::future::pending().await
        }
    }));
    assert_eq!(ran.expect_err("it was revoked").lost(), Some(Reason::Operator));
    assert_eq!(begun, 1);
}

#[test]
fn an_expired_lease_is_asked_for_again_where_that_was_asked() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let mut begun = 0;
    let ran = block_on(client.lock("a").ttl(TTL).run(|hold| {
        begun += 1;
        let (first, grantor) = (begun == 1, grantor.clone());
        async move {
            if first {
                std::thread::spawn(move || {
                    grantor.expire("a");
                    grantor.advance(TTL);
                });
                std::future::pending::<()>().await;
            }
            hold.token_number()
        }
    }));
    assert!(ran.is_ok() && begun == 2);
}

#[test]
fn a_revocation_that_a_dead_session_hides_is_still_told_as_one() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.partition(&client);
    grantor.revoke("a").expect("it is held");
    grantor.advance(Duration::from_secs(100));
    grantor.heal(&client);
    grantor.advance(TTL);
    assert_eq!(block_on(guard.lost()), Loss::Ended(Reason::Operator));
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
fn work_is_dropped_at_the_local_deadline_and_only_then_the_lease_goes() {
    struct Working(Grantor);
    impl Drop for Working {
        fn drop(&mut self) {
            assert_eq!(held(&self.0, "a"), 1, "the work ends before the lease does");
        }
    }
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.partition(&client);
    let late = std::thread::spawn({
        let grantor = grantor.clone();
        move || grantor.advance(TTL - Duration::from_millis(20))
    });
    let work = Working(grantor.clone());
    let stopped = block_on(guard.run(|_| async move {
        let _work = work;
        std::future::pending::<()>().await
    }));
    assert_eq!(stopped, Err(Stopped::Suspended));
    late.join().expect("time passed");
}

#[test]
fn work_that_is_done_gives_its_lease_back_after_it_returned() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let seen = block_on(guard.run(|hold| async move { (hold.state(), hold.token_number()) })).expect("it was held");
    assert_eq!((seen.0, held(&grantor, "a")), (State::Held, 0));
}

#[test]
fn a_write_is_the_check_and_a_late_one_is_refused() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let first = block_on(guard.put("at", b"1")).expect("it is current");
    assert!(block_on(guard.store("at", Some(b"2"), Some(first))).expect("it stands there") > first);
    grantor.pause(&client);
    grantor.advance(2 * TTL);
    let other = grantor.client("w2");
    let second = acquire(&other, "a").expect("the first one is over");
    block_on(second.put("at", b"3")).expect("it is current");
    grantor.resume(&client);
    let stale = block_on(guard.put("at", b"late")).expect_err("its authority is over").into_error();
    assert!(matches!(stale.code(), Some(Code::LeaseLost | Code::NotCurrent)), "{stale}");
}

#[test]
fn a_holder_that_pulses_without_progress_loses_its_lease_as_stalled() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let lock = client.lock("a").ttl(TTL).progress(2 * TTL);
    let guard = block_on(lock.acquire()).expect("it is free");
    for at in 1..6 {
        guard.progress(at);
        grantor.advance(TTL);
        assert_eq!(guard.state(), State::Held, "it makes progress");
    }
    for _ in 0..4 {
        guard.progress(5);
        grantor.advance(TTL);
    }
    assert_eq!(block_on(guard.lost()), Loss::Ended(Reason::Stalled));
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
fn a_charter_that_raises_tokens_is_followed_and_watched() {
    let grantor = Grantor::new();
    let charter = Charter { token_on_renewal: TokenOnRenewal::Rotate, ..Charter::default() };
    grantor.set_charter("a", charter).expect("a sound charter");
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    let first = guard.token_number();
    let mut watching = guard.watch();
    assert_eq!(block_on(watching.next()).map(|sight| sight.token.number), Some(first));
    grantor.advance(4 * TTL);
    assert!(guard.state() == State::Held && guard.token_number() > first);
    let sight = block_on(watching.next()).expect("it goes on");
    assert_eq!((sight.token.number, sight.state), (guard.token_number(), State::Held));
    block_on(guard.release()).expect("under the newest token");
}

#[test]
fn an_unknown_outcome_is_an_answer_and_is_resolved_under_the_same_id() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guard = acquire(&client, "a").expect("it is free");
    grantor.deafen(&client);
    let hold = guard.hold().clone();
    let put = std::thread::spawn(move || block_on(hold.put("k", b"v")));
    until(|| grantor.unheard(&client) > 0);
    grantor.partition(&client);
    grantor.advance(Duration::from_secs(11));
    let Err(Failure::Unknown(open)) = put.join().expect("it ran") else { panic!("nobody heard the answer") };
    assert!(open.request_id().contains(':'));
    grantor.heal(&client);
    let resolving = std::thread::spawn(move || block_on(open.resolve()));
    grantor.advance(TTL);
    assert!(resolving.join().expect("it ran").expect("it had happened, once") > 0);
}

#[test]
fn timing_that_must_fail_is_refused_before_anybody_is_asked() {
    let client = Grantor::new().client("w1");
    let lock = || client.lock("a");
    let wrong = [
        ("ttl", lock().ttl(Duration::from_millis(99))),
        ("renew_every", lock().ttl(TTL).renew_every(TTL)),
        ("wait", lock().wait(Duration::from_secs(25 * 3_600))),
        ("max_hold", lock().max_hold(Duration::ZERO)),
        ("progress", lock().progress(Duration::from_millis(1))),
        ("resource", client.lock("")),
        ("holder", lock().holder("")),
    ];
    for (field, lock) in wrong {
        let error = block_on(lock.acquire()).expect_err(field).into_error();
        assert_eq!(error.code(), Some(Code::InvalidArgument));
        assert!(error.fields().iter().any(|(_, value)| value == field), "{error}");
    }
}

#[test]
fn closing_gives_everything_back_in_one_step() {
    let grantor = Grantor::new();
    let client = grantor.client("w1");
    let guards: Vec<Guard> = (0..20).map(|at| acquire(&client, &format!("a/{at}")).expect("it is free")).collect();
    block_on(client.close()).expect("it is there");
    assert!((0..20).all(|at| held(&grantor, &format!("a/{at}")) == 0));
    assert!(guards.iter().all(|guard| guard.state() != State::Held));
    let gone = block_on(guards[0].confirm()).expect_err("there is nobody to ask");
    assert!(gone.is_unavailable(), "{gone}");
}

/// Waits for what other threads do, with a generous bound.
#[track_caller]
fn until(mut happened: impl FnMut() -> bool) {
    let over = std::time::Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(std::time::Instant::now() < over, "it never happened");
        std::thread::yield_now();
    }
}
