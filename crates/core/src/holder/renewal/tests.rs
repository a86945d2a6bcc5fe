//! Tests of the renewal rules, and simulated runs of a holder with its grantor and its successor.

use proptest::prelude::*;

use super::*;
use crate::holder::{ClockDrift, Succession};
use crate::limits::{GRACE_MAX, TTL_MAX_EVER, TTL_MIN};

const T7: Number = Number::new(7).expect("7 is a number");
const T8: Number = Number::new(8).expect("8 is a number");
const TTL: u64 = 9_001;
const LOCAL_TTL: u64 = 8_820;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn grant() -> ReceivedGrant {
    ReceivedGrant { token: T7, sent: at(0), received: at(0), ttl_ms: TTL, drain_ms: None, rotates: false }
}

fn renewal(granted: ReceivedGrant) -> Renewal {
    Renewal::new(Timing::new(TTL, ClockDrift::default()).unwrap(), granted).unwrap()
}

fn renewed(token: Number) -> RenewalAnswer {
    RenewalAnswer::Renewed(ReceivedRenewal { token, remaining_ms: TTL, draining_ms: None })
}

fn draining(left: u64) -> RenewalAnswer {
    RenewalAnswer::Renewed(ReceivedRenewal { token: T7, remaining_ms: TTL, draining_ms: Some(left) })
}

fn sent(renewal: &mut Renewal, now: Instant) -> RenewalAttempt {
    match renewal.poll(now, 0) {
        RenewalAction::Send(attempt) => attempt,
        other => panic!("{other:?} instead of an attempt"),
    }
}

#[test]
fn a_holder_renews_after_a_third_of_the_ttl_counted_from_the_last_answered_request() {
    let mut renewal = renewal(grant());
    assert_eq!(renewal.poll(at(0), 0), RenewalAction::Wait(at(3_000)));
    let attempt = sent(&mut renewal, at(3_000));
    assert_eq!((attempt.token(), attempt.sent()), (T7, at(3_000)));
    renewal.handle_answer(attempt, at(3_700), renewed(T7));
    assert_eq!(renewal.poll(at(3_700), 0), RenewalAction::Wait(at(6_000)));
    assert_eq!(renewal.deadline().earliest, at(3_000 + LOCAL_TTL));
}

#[test]
fn jitter_makes_a_holder_renew_earlier_and_never_later() {
    assert_eq!(renewal(grant()).poll(at(0), u64::MAX), RenewalAction::Wait(at(2_250)));
    assert_eq!(renewal(grant()).poll(at(0), u64::MAX / 2), RenewalAction::Wait(at(2_626)));
}

#[test]
fn attempts_come_closer_together_as_the_deadline_nears() {
    let mut renewal = renewal(grant());
    let mut gaps = Vec::new();
    let mut now = sent(&mut renewal, at(3_000)).sent();
    while renewal.may_act(now) {
        let RenewalAction::Wait(next) = renewal.poll(now, 0) else { panic!("an attempt follows an attempt") };
        gaps.push(next.millis_since(now));
        now = next;
        if renewal.may_act(now) {
            let attempt = sent(&mut renewal, now);
            renewal.handle_answer(attempt, now, RenewalAnswer::Unavailable);
        }
    }
    assert_eq!(gaps, [1_940, 1_293, 862, 575, 383, 300, 300, 167]);
}

#[test]
fn a_jump_of_the_clock_suspends_before_anything_else() {
    let mut renewal = renewal(grant());
    let attempt = sent(&mut renewal, at(3_000));
    assert!(renewal.may_act(at(3_000)));
    let woken = at(60_000);
    assert!(!renewal.may_act(woken), "also before it was polled");
    assert_eq!(renewal.poll(woken, 0), RenewalAction::Suspend);
    assert!(matches!(renewal.poll(woken, 0), RenewalAction::Send(_)));
    renewal.handle_answer(attempt, woken, renewed(T7));
    assert!(!renewal.may_act(woken), "a request sent before the suspend proves nothing after it");
}

#[test]
fn a_renewal_after_the_deadline_still_suspends_the_work_first() {
    let mut renewal = renewal(grant());
    let attempt = sent(&mut renewal, at(8_000));
    renewal.handle_answer(attempt, at(9_500), renewed(T7));
    assert!(!renewal.may_act(at(9_500)));
    assert_eq!(renewal.poll(at(9_500), 0), RenewalAction::Suspend);
    assert!(!renewal.may_act(at(9_500)));
    assert_eq!(renewal.poll(at(9_500), 0), RenewalAction::Resume(T7));
    assert!(renewal.may_act(at(9_500)));
}

#[test]
fn a_suspended_holder_keeps_renewing_and_resumes_after_an_outage() {
    let mut renewal = renewal(grant());
    let mut now = at(0);
    let mut attempts = 0;
    while now < at(3 * TTL) {
        match renewal.poll(now, 0) {
            RenewalAction::Wait(next) => now = next,
            RenewalAction::Send(attempt) => {
                attempts += u64::from(now >= at(LOCAL_TTL));
                renewal.handle_answer(attempt, now, RenewalAnswer::Unavailable);
            }
            other => assert_eq!((other, now), (RenewalAction::Suspend, at(LOCAL_TTL))),
        }
    }
    assert_eq!(attempts, 19, "one every ninth of the ttl");
    let attempt = sent(&mut renewal, now);
    renewal.handle_answer(attempt, now, renewed(T7));
    assert_eq!(renewal.poll(now, 0), RenewalAction::Resume(T7));
}

#[test]
fn a_grant_after_a_long_wait_is_used_only_after_a_renewal() {
    let mut renewal = renewal(ReceivedGrant { received: at(3_600_000), ..grant() });
    assert!(!renewal.may_act(at(3_600_000)));
    let attempt = sent(&mut renewal, at(3_600_000));
    renewal.handle_answer(attempt, at(3_600_010), renewed(T7));
    assert_eq!(renewal.poll(at(3_600_010), 0), RenewalAction::Resume(T7));
}

#[test]
fn an_end_reported_by_the_grantor_is_final() {
    let mut renewal = renewal(grant());
    let attempt = sent(&mut renewal, at(3_000));
    renewal.handle_answer(attempt, at(3_100), RenewalAnswer::Ended(EndReason::Operator));
    assert!(!renewal.may_act(at(3_100)));
    renewal.handle_answer(attempt, at(3_200), renewed(T7));
    for now in [at(3_200), at(90_000)] {
        assert_eq!(renewal.poll(now, 0), RenewalAction::Lost(Loss::Ended(EndReason::Operator)));
    }
}

#[test]
fn a_lease_with_a_token_that_is_not_current_is_lost() {
    let mut renewal = renewal(grant());
    let attempt = sent(&mut renewal, at(3_000));
    renewal.handle_answer(attempt, at(3_100), RenewalAnswer::NotCurrent);
    assert_eq!(renewal.poll(at(3_100), 0), RenewalAction::Lost(Loss::NotCurrent));
}

#[test]
fn a_rotated_token_is_adopted_and_reported() {
    let mut renewal = renewal(ReceivedGrant { rotates: true, ..grant() });
    let attempt = sent(&mut renewal, at(3_000));
    renewal.handle_answer(attempt, at(3_100), renewed(T8));
    assert_eq!(renewal.poll(at(3_100), 0), RenewalAction::Rotated(T8));
    assert_eq!(sent(&mut renewal, at(6_000)).token(), T8);
    renewal.handle_answer(attempt, at(6_100), RenewalAnswer::NotCurrent);
    assert!(renewal.may_act(at(6_100)), "the old token is known to be not current");
}

#[test]
fn another_token_is_ignored_where_renewals_do_not_rotate_it() {
    let mut renewal = renewal(grant());
    let attempt = sent(&mut renewal, at(3_000));
    renewal.handle_answer(attempt, at(3_100), renewed(T8));
    assert_eq!((renewal.token(), renewal.deadline().earliest), (T7, at(LOCAL_TTL)));
}

#[test]
fn where_renewals_rotate_the_token_the_same_request_is_resent_until_it_is_answered() {
    let mut renewal = renewal(ReceivedGrant { rotates: true, ..grant() });
    let first = sent(&mut renewal, at(3_000));
    renewal.handle_answer(first, at(3_100), RenewalAnswer::Unavailable);
    assert_eq!(sent(&mut renewal, at(6_000)), first);
    renewal.handle_answer(first, at(6_100), renewed(T8));
    assert_eq!(renewal.deadline().earliest, at(3_000 + LOCAL_TTL));
    assert_eq!(renewal.poll(at(6_100), 0), RenewalAction::Rotated(T8));
    let second = sent(&mut renewal, at(6_400));
    assert_eq!((second.id(), second.token()), (2, T8));
}

#[test]
fn a_notice_triggers_a_renewal_and_moves_no_deadline() {
    let mut renewal = renewal(ReceivedGrant { drain_ms: Some(60_000), ..grant() });
    let before = renewal.deadline();
    renewal.renew_now(at(1_000));
    let attempt = sent(&mut renewal, at(1_000));
    assert_eq!(renewal.deadline(), before);
    renewal.renew_now(at(1_001));
    assert_eq!(renewal.poll(at(1_001), 0), RenewalAction::Wait(at(1_300)), "many notices do not cause many requests");
    renewal.handle_answer(attempt, at(1_100), draining(2_001));
    assert_eq!(renewal.poll(at(1_100), 0), RenewalAction::Drain { until: at(2_960) });
}

#[test]
fn a_drain_finishes_only_while_draining_and_without_open_writes() {
    let mut renewal = renewal(ReceivedGrant { drain_ms: Some(60_000), ..grant() });
    assert_eq!(renewal.finish_drain(0), Err(DrainError::NotDraining));
    let attempt = sent(&mut renewal, at(3_000));
    renewal.handle_answer(attempt, at(3_100), draining(2_001));
    assert_eq!(renewal.finish_drain(2), Err(DrainError::WritesOpen(2)));
    assert!(renewal.may_act(at(3_100)));
    assert_eq!(renewal.finish_drain(0).map(|drained| drained.token()), Ok(T7));
    assert!(!renewal.may_act(at(3_100)));
    assert_eq!(renewal.poll(at(3_100), 0), RenewalAction::Suspend);
}

#[test]
fn a_drain_period_without_time_to_renew_is_refused_with_the_range() {
    let timing = Timing::new(TTL, ClockDrift::default()).unwrap();
    for drain_ms in [0, 99, GRACE_MAX + 1, u64::MAX] {
        let error = Renewal::new(timing, ReceivedGrant { drain_ms: Some(drain_ms), ..grant() }).unwrap_err();
        assert_eq!((error.field, error.given, error.min, error.max), ("drain_ms", drain_ms, 100, GRACE_MAX));
    }
}

#[test]
fn renewals_fit_into_a_short_drain_period() {
    let mut renewal = renewal(ReceivedGrant { drain_ms: Some(600), ..grant() });
    assert_eq!(renewal.poll(at(0), 0), RenewalAction::Wait(at(200)));
}

/// A clock with drift, as a function of real time in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct DriftingClock {
    ppm: u64,
    start: u64,
}

impl DriftingClock {
    fn at(self, real: u64) -> Instant {
        Instant(self.start + (u128::from(real) * u128::from(self.ppm) / 1_000_000) as u64)
    }

    /// The first moment of real time at which the clock reads `then`.
    fn real_time_at(self, then: Instant) -> u64 {
        (u128::from(then.0.saturating_sub(self.start)) * 1_000_000).div_ceil(u128::from(self.ppm)) as u64
    }
}

fn clock(drift: ClockDrift) -> impl Strategy<Value = DriftingClock> {
    let ppm = u64::from(drift.ppm());
    let edges = prop_oneof![Just(1_000_000 - ppm), Just(1_000_000 + ppm), 1_000_000 - ppm..=1_000_000 + ppm];
    (edges, 0..1u64 << 40).prop_map(|(ppm, start)| DriftingClock { ppm, start })
}

/// One holder, one grantor with an outage, and the network between them.
#[derive(Clone, Debug)]
struct RenewalModel {
    drift: ClockDrift,
    ttl: u64,
    drain: u64,
    holder: DriftingClock,
    successor: DriftingClock,
    grantor: DriftingClock,
    down: (u64, u64),
    /// For each attempt: latency of the request, latency of the reply, and whether it is lost.
    paths: Vec<(u64, u64, bool)>,
    random: u64,
    handoff: u64,
    grant_path: u64,
}

fn models() -> impl Strategy<Value = RenewalModel> {
    let drift = prop_oneof![Just(ClockDrift::default()), Just(ClockDrift::MAX), Just(ClockDrift::from_ppm(0).unwrap())];
    let way = prop_oneof![Just(0), 0..2_000_000_000u64];
    let moment = 0..20_000_000_000u64;
    drift.prop_flat_map(move |drift| {
        let paths = proptest::collection::vec((way.clone(), way.clone(), any::<bool>()), 1..12);
        let spans = (TTL_MIN..10_000, TTL_MIN..10_000, any::<u64>());
        let clocks = (clock(drift), clock(drift), clock(drift));
        (spans, clocks, (moment.clone(), way.clone()), paths, moment.clone(), way.clone()).prop_map(
            move |((ttl, drain, random), (holder, successor, grantor), down, paths, handoff, grant_path)| {
                RenewalModel { drift, ttl, drain, holder, successor, grantor, down, paths, random, handoff, grant_path }
            },
        )
    })
}

impl RenewalModel {
    fn is_up(&self, real: u64) -> bool {
        real < self.down.0 || real >= self.down.0 + self.down.1
    }

    /// Grantor time, in whole milliseconds; it stops while the grantor is down.
    fn served(&self, real: u64) -> u64 {
        let downtime = real.saturating_sub(self.down.0).min(self.down.1);
        self.grantor.at(real - downtime).0 / 1_000_000
    }

    /// The first moment at which grantor time is `then`.
    fn real_time_when_served(&self, then: u64) -> u64 {
        let real = self.grantor.real_time_at(Instant::from_millis(then));
        if real < self.down.0 { real } else { real + self.down.1 }
    }

    fn claim(&self) -> u64 {
        let received = self.successor.at(self.handoff + self.grant_path);
        let by_itself = self.successor.real_time_at(Succession::new(received, self.drain, self.drift).claim_from());
        by_itself.min(self.real_time_when_served(self.served(self.handoff) + self.drain))
    }

    /// Runs the holder beyond the last of `stops`. Calls `visit` at each stop and at every event, with the grantor's deadline
    /// in grantor time.
    fn run(&self, drain_ms: Option<u64>, stops: &[u64], mut visit: impl FnMut(u64, &Renewal, u64)) {
        let timing = Timing::new(self.ttl, self.drift).unwrap();
        let (there, back, _) = self.paths[0];
        let granted = ReceivedGrant {
            sent: self.holder.at(0),
            received: self.holder.at(there + back),
            ttl_ms: self.ttl,
            drain_ms,
            ..grant()
        };
        let mut renewal = Renewal::new(timing, granted).unwrap();
        let mut deadline = self.served(there) + self.ttl;
        let mut paths = self.paths.iter().cycle().skip(1);
        // Requests on their way to the grantor, and replies on their way to the holder.
        let (mut requests, mut replies) =
            (Vec::<(u64, u64, RenewalAttempt)>::new(), Vec::<(u64, RenewalAttempt, RenewalAnswer)>::new());
        let mut now = there + back;
        let end = stops.iter().max().copied().unwrap_or(0).max(now) + 3_000_000_000;
        while now < end {
            while let Some(i) = requests.iter().position(|(arrives, ..)| *arrives <= now) {
                let (arrives, back, attempt) = requests.swap_remove(i);
                let (served, decided) = (self.served(arrives), self.served(self.handoff));
                let handed = drain_ms.filter(|_| arrives >= self.handoff);
                let reply = ReceivedRenewal {
                    token: T7,
                    remaining_ms: self.ttl,
                    draining_ms: handed.map(|drain| (decided + drain).saturating_sub(served)),
                };
                deadline = deadline.max(served + self.ttl);
                replies.push((arrives + back, attempt, RenewalAnswer::Renewed(reply)));
            }
            while let Some(i) = replies.iter().position(|(arrives, ..)| *arrives <= now) {
                let (_, attempt, answer) = replies.swap_remove(i);
                renewal.handle_answer(attempt, self.holder.at(now), answer);
            }
            let wake = loop {
                match renewal.poll(self.holder.at(now), self.random) {
                    RenewalAction::Wait(until) => break self.holder.real_time_at(until),
                    RenewalAction::Send(attempt) => {
                        let (there, back, lost) = *paths.next().expect("a cycle has no end");
                        if !lost && self.is_up(now + there) {
                            requests.push((now + there, back, attempt));
                        }
                    }
                    _ => {}
                }
            };
            visit(now, &renewal, deadline);
            let events = requests.iter().map(|(at, ..)| *at).chain(replies.iter().map(|(at, ..)| *at));
            now = events.chain(stops.iter().copied()).filter(|at| *at > now).fold(wake.max(now + 1), u64::min);
        }
    }
}

proptest! {
    #[test]
    fn the_local_deadline_comes_before_the_grantors(model in models()) {
        let mut early = Ok(());
        model.run(None, &[20_000_000_000], |now, renewal, deadline| {
            let local = model.holder.real_time_at(renewal.deadline().earliest);
            let grantors = model.real_time_when_served(deadline);
            if local > grantors {
                early = Err(TestCaseError::fail(format!("at {now}: {local} is after {grantors}")));
            }
        });
        early?;
    }

    #[test]
    fn the_grantors_deadline_comes_before_the_latest_deadline_of_its_reply(model in models()) {
        let (there, back, _) = model.paths[0];
        let model = RenewalModel { down: (u64::MAX / 2, 0), ..model };
        let timing = Timing::new(model.ttl, model.drift).unwrap();
        let (sent, received) = (model.holder.at(0), model.holder.at(there + back));
        let renewal = Renewal::new(timing, ReceivedGrant { sent, received, ttl_ms: model.ttl, ..grant() }).unwrap();
        let decided = model.real_time_when_served(model.served(there) + model.ttl);
        prop_assert!(model.holder.real_time_at(renewal.deadline().latest) >= decided);
    }

    #[test]
    fn the_predecessor_has_stopped_before_the_successor_claims(model in models()) {
        let claim = model.claim();
        let mut overlap = Ok(());
        model.run(Some(model.drain), &[model.handoff, claim], |now, renewal, _| {
            if now >= claim && renewal.may_act(model.holder.at(now)) {
                overlap = Err(TestCaseError::fail(format!("acts at {now}, claimed at {claim}")));
            }
        });
        overlap?;
    }

    #[test]
    fn at_least_three_attempts_come_before_the_local_deadline_with_any_jitter(
        ttl in prop_oneof![TTL_MIN..1_000, TTL_MIN..=TTL_MAX_EVER],
        interval: u64,
        drain in proptest::option::of(prop_oneof![TTL_MIN..1_000, TTL_MIN..=GRACE_MAX]),
        ppm in 0..=ClockDrift::MAX.ppm(),
        randoms in proptest::collection::vec(any::<u64>(), 1..8),
    ) {
        let timing = Timing::new(ttl, ClockDrift::from_ppm(ppm).unwrap()).unwrap();
        let range = timing.with_interval(0).unwrap_err();
        let chosen = timing.with_interval(range.min + interval % (range.max - range.min + 1)).unwrap();
        for timing in [timing, chosen] {
            let granted = ReceivedGrant { ttl_ms: ttl, drain_ms: drain, ..grant() };
            let mut renewal = Renewal::new(timing, granted).unwrap();
            let (mut now, mut attempts) = (at(0), 0);
            for random in randoms.iter().cycle() {
                match renewal.poll(now, *random) {
                    RenewalAction::Wait(until) => now = until,
                    RenewalAction::Send(_) => attempts += 1,
                    other => {
                        prop_assert_eq!(other, RenewalAction::Suspend);
                        break;
                    }
                }
            }
            prop_assert!((3..=20).contains(&attempts), "{} attempts", attempts);
        }
    }
}
