//! The renewal rules as sentences, and whole lives of a holder beside its grantor and its successor.

use proptest::prelude::*;

use super::*;
use crate::holder::{RateError, Succession};
use crate::limits::{GRACE_MAX, TTL_MAX_EVER, TTL_MIN};

const T7: Number = Number::new(7).expect("7 is a number");
const T8: Number = Number::new(8).expect("8 is a number");
const TTL: u64 = 9_001;
const BELIEVED: u64 = 8_820;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn grant() -> Granted {
    Granted { token: T7, sent: at(0), received: at(0), ttl_ms: TTL, drain_ms: None, rotates: false }
}

fn renewal(granted: Granted) -> Renewal {
    Renewal::new(Timing::new(TTL, RateError::default()).unwrap(), granted).unwrap()
}

fn renewed(token: Number) -> Answer {
    Answer::Renewed(Renewed { token, remaining_ms: TTL, draining_ms: None })
}

fn draining(left: u64) -> Answer {
    Answer::Renewed(Renewed { token: T7, remaining_ms: TTL, draining_ms: Some(left) })
}

fn sent(renewal: &mut Renewal, now: Instant) -> Attempt {
    match renewal.poll(now, 0) {
        Action::Send(attempt) => attempt,
        other => panic!("{other:?} instead of an attempt"),
    }
}

#[test]
fn a_holder_asks_after_a_third_and_again_a_third_after_the_sending_that_was_answered() {
    let mut renewal = renewal(grant());
    assert_eq!(renewal.poll(at(0), 0), Action::Wait(at(3_000)));
    let attempt = sent(&mut renewal, at(3_000));
    assert_eq!((attempt.token(), attempt.sent()), (T7, at(3_000)));
    renewal.answered(attempt, at(3_700), renewed(T7));
    assert_eq!(renewal.poll(at(3_700), 0), Action::Wait(at(6_000)));
    assert_eq!(renewal.deadline().earliest, at(3_000 + BELIEVED));
}

#[test]
fn chance_makes_a_holder_ask_earlier_and_never_later() {
    assert_eq!(renewal(grant()).poll(at(0), u64::MAX), Action::Wait(at(2_250)));
    assert_eq!(renewal(grant()).poll(at(0), u64::MAX / 2), Action::Wait(at(2_626)));
}

#[test]
fn attempts_come_closer_together_as_the_deadline_nears() {
    let mut renewal = renewal(grant());
    let mut gaps = Vec::new();
    let mut now = sent(&mut renewal, at(3_000)).sent();
    while renewal.may_act(now) {
        let Action::Wait(next) = renewal.poll(now, 0) else { panic!("an attempt follows an attempt") };
        gaps.push(next.millis_since(now));
        now = next;
        if renewal.may_act(now) {
            let attempt = sent(&mut renewal, now);
            renewal.answered(attempt, now, Answer::Unavailable);
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
    assert_eq!(renewal.poll(woken, 0), Action::Suspend);
    assert!(matches!(renewal.poll(woken, 0), Action::Send(_)));
    renewal.answered(attempt, woken, renewed(T7));
    assert!(!renewal.may_act(woken), "what was asked before the sleep proves nothing after it");
}

#[test]
fn a_renewal_that_arrives_after_the_deadline_does_not_hide_that_work_had_to_stop() {
    let mut renewal = renewal(grant());
    let attempt = sent(&mut renewal, at(8_000));
    renewal.answered(attempt, at(9_500), renewed(T7));
    assert!(!renewal.may_act(at(9_500)));
    assert_eq!(renewal.poll(at(9_500), 0), Action::Suspend);
    assert!(!renewal.may_act(at(9_500)));
    assert_eq!(renewal.poll(at(9_500), 0), Action::Resume(T7));
    assert!(renewal.may_act(at(9_500)));
}

#[test]
fn a_suspended_holder_goes_on_asking_and_resumes_when_the_grantor_is_back() {
    let mut renewal = renewal(grant());
    let mut now = at(0);
    let mut attempts = 0;
    while now < at(3 * TTL) {
        match renewal.poll(now, 0) {
            Action::Wait(next) => now = next,
            Action::Send(attempt) => {
                attempts += u64::from(now >= at(BELIEVED));
                renewal.answered(attempt, now, Answer::Unavailable);
            }
            other => assert_eq!((other, now), (Action::Suspend, at(BELIEVED))),
        }
    }
    assert_eq!(attempts, 19, "one every ninth of the ttl");
    let attempt = sent(&mut renewal, now);
    renewal.answered(attempt, now, renewed(T7));
    assert_eq!(renewal.poll(now, 0), Action::Resume(T7));
}

#[test]
fn a_grant_that_was_long_in_coming_is_acted_upon_only_after_a_renewal() {
    let mut renewal = renewal(Granted { received: at(3_600_000), ..grant() });
    assert!(!renewal.may_act(at(3_600_000)));
    let attempt = sent(&mut renewal, at(3_600_000));
    renewal.answered(attempt, at(3_600_010), renewed(T7));
    assert_eq!(renewal.poll(at(3_600_010), 0), Action::Resume(T7));
}

#[test]
fn the_grantors_word_ends_it_and_nothing_follows() {
    let mut renewal = renewal(grant());
    let attempt = sent(&mut renewal, at(3_000));
    renewal.answered(attempt, at(3_100), Answer::Ended(Reason::Operator));
    assert!(!renewal.may_act(at(3_100)));
    renewal.answered(attempt, at(3_200), renewed(T7));
    for now in [at(3_200), at(90_000)] {
        assert_eq!(renewal.poll(now, 0), Action::Lost(Loss::Ended(Reason::Operator)));
    }
}

#[test]
fn a_token_that_is_not_current_is_lost() {
    let mut renewal = renewal(grant());
    let attempt = sent(&mut renewal, at(3_000));
    renewal.answered(attempt, at(3_100), Answer::NotCurrent);
    assert_eq!(renewal.poll(at(3_100), 0), Action::Lost(Loss::NotCurrent));
}

#[test]
fn a_raised_token_is_taken_over_and_told() {
    let mut renewal = renewal(Granted { rotates: true, ..grant() });
    let attempt = sent(&mut renewal, at(3_000));
    renewal.answered(attempt, at(3_100), renewed(T8));
    assert_eq!(renewal.poll(at(3_100), 0), Action::Rotated(T8));
    assert_eq!(sent(&mut renewal, at(6_000)).token(), T8);
    renewal.answered(attempt, at(6_100), Answer::NotCurrent);
    assert!(renewal.may_act(at(6_100)), "the old token not being current is no news");
}

#[test]
fn another_token_is_not_taken_over_where_the_charter_keeps_it() {
    let mut renewal = renewal(grant());
    let attempt = sent(&mut renewal, at(3_000));
    renewal.answered(attempt, at(3_100), renewed(T8));
    assert_eq!((renewal.token(), renewal.deadline().earliest), (T7, at(BELIEVED)));
}

#[test]
fn where_tokens_are_raised_the_same_request_is_sent_until_it_is_answered() {
    let mut renewal = renewal(Granted { rotates: true, ..grant() });
    let first = sent(&mut renewal, at(3_000));
    renewal.answered(first, at(3_100), Answer::Unavailable);
    assert_eq!(sent(&mut renewal, at(6_000)), first);
    renewal.answered(first, at(6_100), renewed(T8));
    assert_eq!(renewal.deadline().earliest, at(3_000 + BELIEVED));
    assert_eq!(renewal.poll(at(6_100), 0), Action::Rotated(T8));
    let second = sent(&mut renewal, at(6_400));
    assert_eq!((second.id(), second.token()), (2, T8));
}

#[test]
fn a_notice_asks_now_and_moves_no_deadline() {
    let mut renewal = renewal(Granted { drain_ms: Some(60_000), ..grant() });
    let before = renewal.deadline();
    renewal.ask_now(at(1_000));
    let attempt = sent(&mut renewal, at(1_000));
    assert_eq!(renewal.deadline(), before);
    renewal.ask_now(at(1_001));
    assert_eq!(renewal.poll(at(1_001), 0), Action::Wait(at(1_300)), "a flood of notices is no flood of requests");
    renewal.answered(attempt, at(1_100), draining(2_001));
    assert_eq!(renewal.poll(at(1_100), 0), Action::Drain { until: at(2_960) });
}

#[test]
fn drained_is_said_only_when_told_to_and_with_every_write_answered() {
    let mut renewal = renewal(Granted { drain_ms: Some(60_000), ..grant() });
    assert_eq!(renewal.drained(0), Err(NotDrained::NotDraining));
    let attempt = sent(&mut renewal, at(3_000));
    renewal.answered(attempt, at(3_100), draining(2_001));
    assert_eq!(renewal.drained(2), Err(NotDrained::WritesOpen(2)));
    assert!(renewal.may_act(at(3_100)));
    assert_eq!(renewal.drained(0).map(|drained| drained.token()), Ok(T7));
    assert!(!renewal.may_act(at(3_100)));
    assert_eq!(renewal.poll(at(3_100), 0), Action::Suspend);
}

#[test]
fn a_drain_period_without_room_to_renew_is_refused_with_the_range() {
    let timing = Timing::new(TTL, RateError::default()).unwrap();
    for drain_ms in [0, 99, GRACE_MAX + 1, u64::MAX] {
        let error = Renewal::new(timing, Granted { drain_ms: Some(drain_ms), ..grant() }).unwrap_err();
        assert_eq!((error.field, error.given, error.least, error.most), ("drain_ms", drain_ms, 100, GRACE_MAX));
    }
}

#[test]
fn a_short_drain_period_is_renewed_within() {
    let mut renewal = renewal(Granted { drain_ms: Some(600), ..grant() });
    assert_eq!(renewal.poll(at(0), 0), Action::Wait(at(200)));
}

/// A clock that runs wrong, in nanoseconds of real time.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ppm: u64,
    start: u64,
}

impl Clock {
    fn at(self, real: u64) -> Instant {
        Instant(self.start + (u128::from(real) * u128::from(self.ppm) / 1_000_000) as u64)
    }

    /// The first moment of real time at which the clock shows `then`.
    fn when(self, then: Instant) -> u64 {
        (u128::from(then.0.saturating_sub(self.start)) * 1_000_000).div_ceil(u128::from(self.ppm)) as u64
    }
}

fn clock(rate: RateError) -> impl Strategy<Value = Clock> {
    let ppm = u64::from(rate.ppm());
    let edges = prop_oneof![Just(1_000_000 - ppm), Just(1_000_000 + ppm), 1_000_000 - ppm..=1_000_000 + ppm];
    (edges, 0..1u64 << 40).prop_map(|(ppm, start)| Clock { ppm, start })
}

/// One holder, one grantor that may be down for a while, and the network between them.
#[derive(Clone, Debug)]
struct World {
    rate: RateError,
    ttl: u64,
    drain: u64,
    holder: Clock,
    successor: Clock,
    grantor: Clock,
    down: (u64, u64),
    /// For each attempt: the way there, the way back, and whether it is lost.
    ways: Vec<(u64, u64, bool)>,
    chance: u64,
    handoff: u64,
    grant_way: u64,
}

fn worlds() -> impl Strategy<Value = World> {
    let rate = prop_oneof![Just(RateError::default()), Just(RateError::MAX), Just(RateError::from_ppm(0).unwrap())];
    let way = prop_oneof![Just(0), 0..2_000_000_000u64];
    let moment = 0..20_000_000_000u64;
    rate.prop_flat_map(move |rate| {
        let ways = proptest::collection::vec((way.clone(), way.clone(), any::<bool>()), 1..12);
        let spans = (TTL_MIN..10_000, TTL_MIN..10_000, any::<u64>());
        let clocks = (clock(rate), clock(rate), clock(rate));
        (spans, clocks, (moment.clone(), way.clone()), ways, moment.clone(), way.clone()).prop_map(
            move |((ttl, drain, chance), (holder, successor, grantor), down, ways, handoff, grant_way)| World {
                rate,
                ttl,
                drain,
                holder,
                successor,
                grantor,
                down,
                ways,
                chance,
                handoff,
                grant_way,
            },
        )
    })
}

impl World {
    fn up(&self, real: u64) -> bool {
        real < self.down.0 || real >= self.down.0 + self.down.1
    }

    /// Served time, in whole milliseconds; it stands still while the grantor is down.
    fn served(&self, real: u64) -> u64 {
        let stood = real.saturating_sub(self.down.0).min(self.down.1);
        self.grantor.at(real - stood).0 / 1_000_000
    }

    /// The first moment at which served time is `then`.
    fn when_served(&self, then: u64) -> u64 {
        let real = self.grantor.when(Instant::from_millis(then));
        if real < self.down.0 { real } else { real + self.down.1 }
    }

    fn claim(&self) -> u64 {
        let received = self.successor.at(self.handoff + self.grant_way);
        let by_itself = self.successor.when(Succession::new(received, self.drain, self.rate).claim_from());
        by_itself.min(self.when_served(self.served(self.handoff) + self.drain))
    }

    /// Runs the holder beyond the last of `stops` and shows it at each of them and at every event, with the
    /// grantor's deadline in served time.
    fn run(&self, drain_ms: Option<u64>, stops: &[u64], mut see: impl FnMut(u64, &Renewal, u64)) {
        let timing = Timing::new(self.ttl, self.rate).unwrap();
        let (there, back, _) = self.ways[0];
        let granted = Granted {
            sent: self.holder.at(0),
            received: self.holder.at(there + back),
            ttl_ms: self.ttl,
            drain_ms,
            ..grant()
        };
        let mut renewal = Renewal::new(timing, granted).unwrap();
        let mut deadline = self.served(there) + self.ttl;
        let mut ways = self.ways.iter().cycle().skip(1);
        // What the grantor will be asked, and what the holder will hear.
        let (mut asked, mut heard) = (Vec::<(u64, u64, Attempt)>::new(), Vec::<(u64, Attempt, Answer)>::new());
        let mut now = there + back;
        let end = stops.iter().max().copied().unwrap_or(0).max(now) + 3_000_000_000;
        while now < end {
            while let Some(i) = asked.iter().position(|(arrives, ..)| *arrives <= now) {
                let (arrives, back, attempt) = asked.swap_remove(i);
                let (served, decided) = (self.served(arrives), self.served(self.handoff));
                let handed = drain_ms.filter(|_| arrives >= self.handoff);
                let told = Renewed {
                    token: T7,
                    remaining_ms: self.ttl,
                    draining_ms: handed.map(|drain| (decided + drain).saturating_sub(served)),
                };
                deadline = deadline.max(served + self.ttl);
                heard.push((arrives + back, attempt, Answer::Renewed(told)));
            }
            while let Some(i) = heard.iter().position(|(arrives, ..)| *arrives <= now) {
                let (_, attempt, answer) = heard.swap_remove(i);
                renewal.answered(attempt, self.holder.at(now), answer);
            }
            let wake = loop {
                match renewal.poll(self.holder.at(now), self.chance) {
                    Action::Wait(until) => break self.holder.when(until),
                    Action::Send(attempt) => {
                        let (there, back, lost) = *ways.next().expect("a cycle has no end");
                        if !lost && self.up(now + there) {
                            asked.push((now + there, back, attempt));
                        }
                    }
                    _ => {}
                }
            };
            see(now, &renewal, deadline);
            let events = asked.iter().map(|(at, ..)| *at).chain(heard.iter().map(|(at, ..)| *at));
            now = events.chain(stops.iter().copied()).filter(|at| *at > now).fold(wake.max(now + 1), u64::min);
        }
    }
}

proptest! {
    #[test]
    fn the_local_deadline_comes_before_the_grantors(world in worlds()) {
        let mut early = Ok(());
        world.run(None, &[20_000_000_000], |now, renewal, deadline| {
            let local = world.holder.when(renewal.deadline().earliest);
            let grantors = world.when_served(deadline);
            if local > grantors {
                early = Err(TestCaseError::fail(format!("at {now}: {local} is after {grantors}")));
            }
        });
        early?;
    }

    #[test]
    fn the_grantors_deadline_comes_before_the_latest_that_its_answer_told(world in worlds()) {
        let (there, back, _) = world.ways[0];
        let world = World { down: (u64::MAX / 2, 0), ..world };
        let timing = Timing::new(world.ttl, world.rate).unwrap();
        let (sent, received) = (world.holder.at(0), world.holder.at(there + back));
        let renewal = Renewal::new(timing, Granted { sent, received, ttl_ms: world.ttl, ..grant() }).unwrap();
        let decided = world.when_served(world.served(there) + world.ttl);
        prop_assert!(world.holder.when(renewal.deadline().latest) >= decided);
    }

    #[test]
    fn the_predecessor_has_stopped_before_the_successor_claims(world in worlds()) {
        let claim = world.claim();
        let mut overlap = Ok(());
        world.run(Some(world.drain), &[world.handoff, claim], |now, renewal, _| {
            if now >= claim && renewal.may_act(world.holder.at(now)) {
                overlap = Err(TestCaseError::fail(format!("acts at {now}, claimed at {claim}")));
            }
        });
        overlap?;
    }

    #[test]
    fn three_attempts_come_before_the_local_deadline_whatever_chance_says(
        ttl in prop_oneof![TTL_MIN..1_000, TTL_MIN..=TTL_MAX_EVER],
        interval: u64,
        drain in proptest::option::of(prop_oneof![TTL_MIN..1_000, TTL_MIN..=GRACE_MAX]),
        ppm in 0..=RateError::MAX.ppm(),
        chances in proptest::collection::vec(any::<u64>(), 1..8),
    ) {
        let timing = Timing::new(ttl, RateError::from_ppm(ppm).unwrap()).unwrap();
        let range = timing.every(0).unwrap_err();
        let chosen = timing.every(range.least + interval % (range.most - range.least + 1)).unwrap();
        for timing in [timing, chosen] {
            let granted = Granted { ttl_ms: ttl, drain_ms: drain, ..grant() };
            let mut renewal = Renewal::new(timing, granted).unwrap();
            let (mut now, mut attempts) = (at(0), 0);
            for chance in chances.iter().cycle() {
                match renewal.poll(now, *chance) {
                    Action::Wait(until) => now = until,
                    Action::Send(_) => attempts += 1,
                    other => {
                        prop_assert_eq!(other, Action::Suspend);
                        break;
                    }
                }
            }
            prop_assert!((3..=20).contains(&attempts), "{} attempts", attempts);
        }
    }
}
