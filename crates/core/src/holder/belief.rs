//! Local validity of a lease: how long a holder may act by its own clock alone, and when its successor may start.

use super::{ClockDrift, Loss, ReceivedGrant, ReceivedRenewal, Timing};
use crate::limits::TURN_EVERY;
use crate::mutants::{self, Mutant};
use crate::time::Instant;
use crate::token::Number;

/// The local state of a lease at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeliefState {
    /// The lease is held, and work may continue until the deadline.
    Held {
        /// The local deadline.
        until: Instant,
    },
    /// The local deadline has passed: work stops, and continues only if the grantor renews the same token.
    Suspended,
    /// The grantor reported the end of the lease.
    Lost(Loss),
}

/// Bounds on the deadline of a lease, as far as its holder can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The holder may act until here: earlier than the grantor's deadline on any clocks within the drift bound (L2).
    pub earliest: Instant,
    /// After this, a grantor in service no longer considers the lease held, according to its replies. Outages of the
    /// grantor, and attempts without a reply, make that later.
    pub latest: Instant,
}

/// Belief of a holder about its lease: its local validity.
///
/// A successor waits only for the drain period, not for the ttl. Where a handoff may overlap, a holder without contact
/// therefore stops after the drain period if it is shorter: it cannot know whether it has become a predecessor.
#[derive(Clone, Debug)]
pub struct Belief {
    drift: ClockDrift,
    ttl_ms: u64,
    rotates: bool,
    token: Number,
    /// When the newest answered request was sent.
    sent: Instant,
    remaining_ms: u64,
    latest: Instant,
    drain_ms: Option<u64>,
    /// When the last request was sent whose reply was "not draining".
    last_not_draining: Instant,
    drain_until: Option<Instant>,
    drained: bool,
    /// The deadline was observed as passed since the last renewal, so that no clock read out of order revives the lease.
    expired_locally: bool,
    loss: Option<Loss>,
}

impl Belief {
    /// The belief that a grant justifies.
    pub fn new(timing: &Timing, granted: &ReceivedGrant) -> Self {
        let drift = timing.clock_drift();
        let mut belief = Self {
            drift,
            ttl_ms: timing.ttl_ms(),
            rotates: granted.rotates,
            token: granted.token,
            sent: granted.sent,
            remaining_ms: granted.ttl_ms.min(timing.ttl_ms()),
            latest: latest_end(drift, granted.received, granted.ttl_ms),
            drain_ms: granted.drain_ms,
            last_not_draining: granted.sent,
            drain_until: None,
            drained: false,
            expired_locally: false,
            loss: None,
        };
        belief.observe(granted.received);
        belief
    }

    /// The token under which the holder acts.
    pub const fn token(&self) -> Number {
        self.token
    }

    /// The state at this moment.
    pub fn state(&self, now: Instant) -> BeliefState {
        let until = self.local_deadline();
        match self.loss {
            Some(loss) => BeliefState::Lost(loss),
            None if self.expired_locally || self.drained || now >= until => BeliefState::Suspended,
            None => BeliefState::Held { until },
        }
    }

    /// Whether the holder may act now.
    pub fn holds(&self, now: Instant) -> bool {
        matches!(self.state(now), BeliefState::Held { .. })
    }

    /// The earliest and latest deadline.
    pub fn deadline(&self) -> Deadline {
        Deadline { earliest: self.local_deadline(), latest: self.latest }
    }

    /// When the lease ends even if it is renewed, by the holder's clock; `None` if a renewal moves its end. A renewal that gives
    /// less than the ttl shows it: progress is missing, or the maximum hold or a drain period is nearly over.
    pub fn fixed_end(&self) -> Option<Instant> {
        (self.remaining_ms < self.ttl_ms).then(|| self.sent.plus_millis(self.drift.shrink(self.remaining_ms)))
    }

    /// When a draining holder stops; `None` if it is not draining.
    pub const fn drain_until(&self) -> Option<Instant> {
        self.drain_until
    }

    /// The state at this moment. A deadline observed as passed stays passed until the next renewal.
    pub fn observe(&mut self, now: Instant) -> BeliefState {
        self.expired_locally |= now >= self.local_deadline();
        self.state(now)
    }

    /// Applies a renewal that was requested at `sent`, and returns whether it moved the deadline.
    ///
    /// `remaining_ms` counts from some moment after `sent`; the holder counts from `sent`, which is all that is proven.
    pub fn apply_renewal(&mut self, sent: Instant, received: Instant, reply: ReceivedRenewal) -> bool {
        self.observe(received);
        let rotated = self.rotates && self.drain_until.is_none() && reply.token > self.token;
        if self.loss.is_some() || (reply.token != self.token && !rotated) {
            return false;
        }
        match reply.draining_ms {
            Some(left) => self.set_drain_deadline(sent.plus_millis(self.drift.shrink(left))),
            // Once draining under a token, never current again under it.
            None if self.drain_until.is_none() => self.last_not_draining = self.last_not_draining.max(sent),
            None => {}
        }
        self.latest = self.latest.max(latest_end(self.drift, received, reply.remaining_ms));
        if sent < self.sent {
            return false;
        }
        self.token = reply.token;
        self.sent = sent;
        // More than the requested ttl is a fault of the grantor, and must not become an unbounded lease (L10).
        self.remaining_ms = reply.remaining_ms.min(self.ttl_ms);
        self.expired_locally = received >= self.local_deadline();
        true
    }

    /// Records that the grantor reported the end. The first report stays.
    pub fn lose(&mut self, loss: Loss) {
        self.loss.get_or_insert(loss);
    }

    /// Stops permanently: all writes of the holder are answered, and it starts no other.
    pub(super) fn stop_permanently(&mut self) {
        self.drained = true;
    }

    /// When the newest answered request was sent.
    pub(super) const fn last_answered_sent(&self) -> Instant {
        self.sent
    }

    /// Time that one renewal gives, before the drift is subtracted.
    pub(super) fn span_ms(&self) -> u64 {
        self.drain_ms.map_or(self.remaining_ms, |drain| drain.min(self.remaining_ms))
    }

    fn local_deadline(&self) -> Instant {
        let lease = self.sent.plus_millis(self.drift.shrink(self.remaining_ms));
        [self.silence_deadline(), self.drain_until].into_iter().flatten().fold(lease, Instant::min)
    }

    /// Until here no unknown successor can have waited for its whole drain period.
    fn silence_deadline(&self) -> Option<Instant> {
        self.drain_ms.map(|drain| self.last_not_draining.plus_millis(self.drift.shrink(drain)))
    }

    /// Sets the drain deadline to the earliest one known. Grantor time stops in an outage, so a later reply can report more.
    fn set_drain_deadline(&mut self, until: Instant) {
        self.drain_until = [self.drain_until, self.silence_deadline(), Some(until)].into_iter().flatten().min();
    }
}

/// The grantor decided no later than the reply arrived, and it notices an end at its next turn.
fn latest_end(drift: ClockDrift, received: Instant, remaining_ms: u64) -> Instant {
    received.plus_millis(drift.stretch(remaining_ms.saturating_add(TURN_EVERY)))
}

/// A successor in an overlap handoff that must not claim yet.
///
/// The steps from here to [`MayWrite`] keep two holders from interleaving (H2): wait, claim, read.
#[derive(Debug)]
pub struct Succession {
    from: Instant,
}

impl Succession {
    /// A successor whose grant arrived at `received`. It waits by its own clock, so that it needs no live grantor (H3).
    pub fn new(received: Instant, drain_ms: u64, drift: ClockDrift) -> Self {
        Self { from: received.plus_millis(drift.stretch(drain_ms)) }
    }

    /// When it may claim, unless it learns earlier that the predecessor ended.
    pub const fn claim_from(&self) -> Instant {
        self.from
    }

    /// The grantor reported that the predecessor has drained or ended.
    pub fn predecessor_ended(&mut self) {
        self.from = Instant::default();
    }

    /// Permission to claim, or the successor itself if it must still wait.
    pub fn claim(self, now: Instant) -> Result<Claim, Self> {
        if now >= self.from || mutants::on(Mutant::ClaimAtOnce) { Ok(Claim(())) } else { Err(self) }
    }
}

/// Permission to claim at the targets.
#[derive(Debug)]
#[must_use = "the predecessor's writes pass until the claim"]
pub struct Claim(());

impl Claim {
    /// Every target has accepted the claim. Data read before it may be outdated.
    pub fn claimed(self) -> MustRead {
        MustRead(())
    }
}

/// The claim is in effect; the holder must read the data again before its first write.
#[derive(Debug)]
#[must_use = "data must be read again before the first write"]
pub struct MustRead(());

impl MustRead {
    /// The data was read after the claim.
    pub fn read_again(self) -> MayWrite {
        MayWrite(())
    }
}

/// Proof that a successor waited, claimed and read, in this order.
#[derive(Debug)]
pub struct MayWrite(());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::EndReason;

    const T7: Number = Number::new(7).expect("7 is a number");
    const T8: Number = Number::new(8).expect("8 is a number");
    const TTL: u64 = 10_001;
    const LOCAL_TTL: u64 = 9_800;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn granted(drain_ms: Option<u64>) -> Belief {
        let timing = Timing::new(TTL, ClockDrift::default()).unwrap();
        let grant =
            ReceivedGrant { token: T7, sent: at(1_000), received: at(1_500), ttl_ms: TTL, drain_ms, rotates: false };
        Belief::new(&timing, &grant)
    }

    fn renewal(token: Number, remaining_ms: u64) -> ReceivedRenewal {
        ReceivedRenewal { token, remaining_ms, draining_ms: None }
    }

    fn draining(left: u64) -> ReceivedRenewal {
        ReceivedRenewal { token: T7, remaining_ms: TTL, draining_ms: Some(left) }
    }

    #[test]
    fn the_local_deadline_counts_from_the_request_and_is_shorter_than_the_grant() {
        let belief = granted(None);
        let until = at(1_000 + LOCAL_TTL);
        assert_eq!(belief.state(at(1_500)), BeliefState::Held { until });
        assert!(belief.holds(Instant(until.0 - 1)));
        assert_eq!(belief.state(until), BeliefState::Suspended);
    }

    #[test]
    fn the_latest_deadline_counts_from_the_reply_and_is_longer_than_the_grant() {
        let Deadline { earliest, latest } = granted(None).deadline();
        assert_eq!(earliest, at(1_000 + LOCAL_TTL));
        // (10,001 ms, a turn and a millisecond) * 1.01 / 0.99, rounded up.
        assert_eq!(latest, at(1_500 + 10_256));
    }

    #[test]
    fn the_same_token_resumes_a_suspended_holder() {
        let mut belief = granted(None);
        assert_eq!(belief.observe(at(40_000)), BeliefState::Suspended);
        assert!(belief.apply_renewal(at(40_000), at(40_100), renewal(T7, TTL)));
        assert_eq!(belief.state(at(40_100)), BeliefState::Held { until: at(40_000 + LOCAL_TTL) });
    }

    #[test]
    fn another_token_neither_resumes_nor_extends() {
        let mut belief = granted(None);
        let before = belief.deadline();
        assert!(!belief.apply_renewal(at(2_000), at(2_100), renewal(T8, TTL)));
        assert_eq!((belief.token(), belief.deadline()), (T7, before));
        belief.observe(at(40_000));
        assert!(!belief.apply_renewal(at(40_000), at(40_100), renewal(T8, TTL)));
        assert_eq!(belief.state(at(40_100)), BeliefState::Suspended);
    }

    #[test]
    fn a_late_reply_extends_only_from_the_time_of_its_request() {
        let mut belief = granted(None);
        assert!(belief.apply_renewal(at(4_000), at(9_000), renewal(T7, TTL)));
        assert_eq!(belief.deadline().earliest, at(4_000 + LOCAL_TTL));
    }

    #[test]
    fn a_reply_overtaken_by_a_newer_one_changes_nothing() {
        let mut belief = granted(None);
        assert!(belief.apply_renewal(at(5_000), at(5_100), renewal(T7, TTL)));
        assert!(!belief.apply_renewal(at(4_000), at(5_200), renewal(T7, TTL)));
        assert!(!belief.apply_renewal(at(4_000), at(5_200), renewal(T7, 1)));
        assert_eq!(belief.deadline().earliest, at(5_000 + LOCAL_TTL));
    }

    #[test]
    fn the_newest_reply_applies_even_if_it_shortens_the_lease() {
        let mut belief = granted(None);
        assert!(belief.apply_renewal(at(5_000), at(5_100), renewal(T7, 101)));
        assert_eq!(belief.deadline().earliest, at(5_098));
    }

    #[test]
    fn a_reply_after_its_own_deadline_leaves_the_holder_suspended() {
        let mut belief = granted(None);
        assert!(belief.apply_renewal(at(4_000), at(4_000 + LOCAL_TTL), renewal(T7, TTL)));
        assert_eq!(belief.state(at(4_000 + LOCAL_TTL)), BeliefState::Suspended);
    }

    #[test]
    fn an_observed_deadline_stays_passed_when_the_clock_is_read_out_of_order() {
        let mut belief = granted(None);
        belief.observe(at(1_000 + LOCAL_TTL));
        assert_eq!(belief.state(at(2_000)), BeliefState::Suspended);
    }

    #[test]
    fn no_reply_makes_a_lease_unbounded() {
        let mut belief = granted(None);
        assert!(belief.apply_renewal(at(5_000), at(5_100), renewal(T7, u64::MAX)));
        assert_eq!(belief.deadline().earliest, at(5_000 + LOCAL_TTL));
    }

    #[test]
    fn a_renewal_that_gives_less_than_the_ttl_shows_a_fixed_end() {
        let mut belief = granted(Some(5_001));
        assert_eq!(belief.fixed_end(), None, "the drain period limits a silent holder, and a renewal moves that limit");
        assert!(belief.apply_renewal(at(5_000), at(5_100), renewal(T7, 3_001)));
        assert_eq!(belief.fixed_end(), Some(at(5_000 + 2_940)));
        assert!(belief.apply_renewal(at(6_000), at(6_100), renewal(T7, TTL)));
        assert_eq!(belief.fixed_end(), None);
    }

    #[test]
    fn an_end_is_final_and_the_first_one_stays() {
        let mut belief = granted(None);
        belief.lose(Loss::Ended(EndReason::Operator));
        belief.lose(Loss::Ended(EndReason::Ttl));
        assert!(!belief.apply_renewal(at(2_000), at(2_100), renewal(T7, TTL)));
        assert_eq!(belief.state(at(2_100)), BeliefState::Lost(Loss::Ended(EndReason::Operator)));
    }

    #[test]
    fn a_predecessor_drains_for_the_remaining_time_counted_from_its_request() {
        let mut belief = granted(Some(20_001));
        belief.apply_renewal(at(5_000), at(5_400), draining(3_001));
        assert_eq!(belief.drain_until(), Some(at(5_000 + 2_940)));
        assert_eq!(belief.deadline().earliest, at(5_000 + 2_940));
    }

    #[test]
    fn a_predecessor_stops_one_drain_period_after_its_last_not_draining_reply() {
        let mut belief = granted(Some(5_001));
        belief.apply_renewal(at(3_000), at(3_100), renewal(T7, TTL));
        // Grantor time stopped in an outage, so the grantor reports more than is left.
        belief.apply_renewal(at(7_000), at(7_100), draining(4_900));
        assert_eq!(belief.drain_until(), Some(at(3_000 + 4_900)));
    }

    #[test]
    fn a_holder_without_contact_stops_one_drain_period_after_its_last_reply() {
        let belief = granted(Some(5_001));
        assert_eq!(belief.deadline().earliest, at(1_000 + 4_900));
        assert_eq!(belief.drain_until(), None);
    }

    #[test]
    fn a_draining_holder_is_never_current_again_under_its_token() {
        let mut belief = granted(Some(20_001));
        belief.apply_renewal(at(4_000), at(4_100), draining(2_001));
        let stop = at(4_000 + 1_960);
        belief.apply_renewal(at(4_500), at(4_600), renewal(T7, TTL));
        belief.apply_renewal(at(4_700), at(4_800), draining(60_000));
        assert_eq!(belief.deadline().earliest, stop);
        assert!(!belief.holds(stop));
    }

    #[test]
    fn a_successor_claims_one_drain_period_after_it_received_its_grant() {
        let successor = Succession::new(at(1_000), 4_949, ClockDrift::default());
        // 4,950 ms * 1.01 / 0.99.
        assert_eq!(successor.claim_from(), at(1_000 + 5_050));
        let waits = successor.claim(Instant(at(6_050).0 - 1)).expect_err("too early");
        let claim = waits.claim(at(6_050)).expect("the drain period is over");
        let MayWrite(()) = claim.claimed().read_again();
    }

    #[test]
    fn a_successor_claims_immediately_after_the_predecessor_ended() {
        let mut successor = Succession::new(at(1_000), 5_000, ClockDrift::default());
        successor.predecessor_ended();
        assert!(successor.claim(at(1_000)).is_ok());
    }
}
