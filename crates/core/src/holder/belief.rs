//! Until when a holder may act, by its own clock alone, and from when its successor may.

use super::{Granted, Loss, RateError, Renewed, Timing};
use crate::limits::TURN_EVERY;
use crate::mutants::{self, Mutant};
use crate::time::Instant;
use crate::token::Number;

/// What a holder may think of its lease at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds, and its work may go on until then.
    Held {
        /// The local deadline.
        until: Instant,
    },
    /// Past the local deadline: work stops, and goes on only if the grantor renews the same token.
    Suspended,
    /// The grantor said that it is over.
    Lost(Loss),
}

/// The two ends of what a holder can know about its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Until here the holder may act: earlier than the grantor's deadline on any clocks within the rate error (L2).
    pub earliest: Instant,
    /// After this a grantor in service no longer counts the lease as held, by what its answers told. Its outages, and
    /// attempts it never answered, make that later.
    pub latest: Instant,
}

/// Until when a holder may think it holds.
///
/// A successor is told to wait for the drain period only, not for the ttl. So where a handoff may overlap, a holder
/// that hears nothing stops after the drain period if that is shorter: it cannot know that it has become a predecessor.
#[derive(Clone, Debug)]
pub struct Belief {
    rate: RateError,
    ttl_ms: u64,
    rotates: bool,
    token: Number,
    /// When the newest request that was answered was sent.
    sent: Instant,
    remaining_ms: u64,
    latest: Instant,
    drain_ms: Option<u64>,
    /// When the last request that was answered "not draining" was sent.
    calm: Instant,
    drain_until: Option<Instant>,
    drained: bool,
    /// Seen past its deadline since the last renewal, so that no clock read out of order brings it back.
    lapsed: bool,
    loss: Option<Loss>,
}

impl Belief {
    /// What a grant lets its holder believe.
    pub fn new(timing: &Timing, granted: &Granted) -> Self {
        let rate = timing.rate_error();
        let mut belief = Self {
            rate,
            ttl_ms: timing.ttl_ms(),
            rotates: granted.rotates,
            token: granted.token,
            sent: granted.sent,
            remaining_ms: granted.ttl_ms.min(timing.ttl_ms()),
            latest: latest_end(rate, granted.received, granted.ttl_ms),
            drain_ms: granted.drain_ms,
            calm: granted.sent,
            drain_until: None,
            drained: false,
            lapsed: false,
            loss: None,
        };
        belief.look(granted.received);
        belief
    }

    /// The token under which the holder acts.
    pub const fn token(&self) -> Number {
        self.token
    }

    /// What the holder may think now.
    pub fn standing(&self, now: Instant) -> Standing {
        let until = self.until();
        match self.loss {
            Some(loss) => Standing::Lost(loss),
            None if self.lapsed || self.drained || now >= until => Standing::Suspended,
            None => Standing::Held { until },
        }
    }

    /// Whether the holder may act now.
    pub fn holds(&self, now: Instant) -> bool {
        matches!(self.standing(now), Standing::Held { .. })
    }

    /// The earliest and the latest end.
    pub fn deadline(&self) -> Deadline {
        Deadline { earliest: self.until(), latest: self.latest }
    }

    /// When a draining holder stops, once it was told that it drains.
    pub const fn drain_until(&self) -> Option<Instant> {
        self.drain_until
    }

    /// What the holder may think now; a deadline found passed stays passed until the next renewal.
    pub fn look(&mut self, now: Instant) -> Standing {
        self.lapsed |= now >= self.until();
        self.standing(now)
    }

    /// Takes in a renewal that was asked for at `sent`, and tells whether it counted for the deadline.
    ///
    /// Its `remaining_ms` ran from some moment after `sent`; counting from `sent` is what it proves, and no more.
    pub fn renewed(&mut self, sent: Instant, received: Instant, told: Renewed) -> bool {
        self.look(received);
        let raised = self.rotates && self.drain_until.is_none() && told.token > self.token;
        if self.loss.is_some() || (told.token != self.token && !raised) {
            return false;
        }
        match told.draining_ms {
            Some(left) => self.drain_by(sent.plus_millis(self.rate.shorter(left))),
            // Once draining under a token, never current again under it.
            None if self.drain_until.is_none() => self.calm = self.calm.max(sent),
            None => {}
        }
        self.latest = self.latest.max(latest_end(self.rate, received, told.remaining_ms));
        if sent < self.sent {
            return false;
        }
        self.token = told.token;
        self.sent = sent;
        // More than was asked for is a mistake of the grantor's, and must not become "for ever" (L10).
        self.remaining_ms = told.remaining_ms.min(self.ttl_ms);
        self.lapsed = received >= self.until();
        true
    }

    /// The grantor's word that it is over. The first one stays.
    pub fn lose(&mut self, loss: Loss) {
        self.loss.get_or_insert(loss);
    }

    /// The holder has answered for all its writes and begins no other.
    pub(super) fn stop_for_good(&mut self) {
        self.drained = true;
    }

    /// When the newest request that was answered was sent.
    pub(super) const fn asked(&self) -> Instant {
        self.sent
    }

    /// How long one answer lasts, before it is shrunk.
    pub(super) fn span_ms(&self) -> u64 {
        self.drain_ms.map_or(self.remaining_ms, |drain| drain.min(self.remaining_ms))
    }

    fn until(&self) -> Instant {
        let lease = self.sent.plus_millis(self.rate.shorter(self.remaining_ms));
        [self.unheard_until(), self.drain_until].into_iter().flatten().fold(lease, Instant::min)
    }

    /// Until when no successor can have waited for its drain period, told or not.
    fn unheard_until(&self) -> Option<Instant> {
        self.drain_ms.map(|drain| self.calm.plus_millis(self.rate.shorter(drain)))
    }

    /// The earliest of all that was told: grantor time stands still in an outage, so a later answer can say more.
    fn drain_by(&mut self, until: Instant) {
        self.drain_until = [self.drain_until, self.unheard_until(), Some(until)].into_iter().flatten().min();
    }
}

/// The grantor decided when the answer arrived at the latest, and notices an end at its next turn.
fn latest_end(rate: RateError, received: Instant, remaining_ms: u64) -> Instant {
    received.plus_millis(rate.longer(remaining_ms.saturating_add(TURN_EVERY)))
}

/// A successor in an overlapping handoff, which must not claim yet.
///
/// The way from here to [`MayWrite`] is the order that keeps two holders from interleaving (H2): wait, claim, read.
#[derive(Debug)]
pub struct Succession {
    from: Instant,
}

impl Succession {
    /// A successor whose grant arrived at `received`. It waits by its own clock, so that it needs no live grantor (H3).
    pub fn new(received: Instant, drain_ms: u64, rate: RateError) -> Self {
        Self { from: received.plus_millis(rate.longer(drain_ms)) }
    }

    /// From when it may claim, if nothing is heard before.
    pub const fn claim_from(&self) -> Instant {
        self.from
    }

    /// The grantor says that the predecessor has drained, or that its time is over.
    pub fn told_over(&mut self) {
        self.from = Instant::default();
    }

    /// Leave to claim, or the same successor who must wait on.
    pub fn claim(self, now: Instant) -> Result<Claim, Self> {
        if now >= self.from || mutants::on(Mutant::ClaimAtOnce) { Ok(Claim(())) } else { Err(self) }
    }
}

/// Leave to claim at the targets.
#[derive(Debug)]
#[must_use = "the predecessor's writes pass until the claim"]
pub struct Claim(());

impl Claim {
    /// Every target has the claim. What was read before it may have been overwritten since.
    pub fn claimed(self) -> MustRead {
        MustRead(())
    }
}

/// The claim stands; what is there must be read again before the first write.
#[derive(Debug)]
#[must_use = "nothing may be written before it was read again"]
pub struct MustRead(());

impl MustRead {
    /// What is there was read after the claim.
    pub fn read_again(self) -> MayWrite {
        MayWrite(())
    }
}

/// The proof that a successor waited, claimed and read, in this order.
#[derive(Debug)]
pub struct MayWrite(());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Reason;

    const T7: Number = Number::new(7).expect("7 is a number");
    const T8: Number = Number::new(8).expect("8 is a number");
    const TTL: u64 = 10_001;
    const BELIEVED: u64 = 9_800;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn granted(drain_ms: Option<u64>) -> Belief {
        let timing = Timing::new(TTL, RateError::default()).unwrap();
        let grant = Granted { token: T7, sent: at(1_000), received: at(1_500), ttl_ms: TTL, drain_ms, rotates: false };
        Belief::new(&timing, &grant)
    }

    fn renewal(token: Number, remaining_ms: u64) -> Renewed {
        Renewed { token, remaining_ms, draining_ms: None }
    }

    fn draining(left: u64) -> Renewed {
        Renewed { token: T7, remaining_ms: TTL, draining_ms: Some(left) }
    }

    #[test]
    fn a_holder_counts_from_before_it_asked_and_less_than_was_granted() {
        let belief = granted(None);
        let until = at(1_000 + BELIEVED);
        assert_eq!(belief.standing(at(1_500)), Standing::Held { until });
        assert!(belief.holds(Instant(until.0 - 1)));
        assert_eq!(belief.standing(until), Standing::Suspended);
    }

    #[test]
    fn the_latest_end_counts_from_the_answer_and_more_than_was_granted() {
        let Deadline { earliest, latest } = granted(None).deadline();
        assert_eq!(earliest, at(1_000 + BELIEVED));
        // (10,001 ms, a turn and a millisecond) * 1.01 / 0.99, rounded up.
        assert_eq!(latest, at(1_500 + 10_256));
    }

    #[test]
    fn the_same_token_resumes_a_suspended_holder() {
        let mut belief = granted(None);
        assert_eq!(belief.look(at(40_000)), Standing::Suspended);
        assert!(belief.renewed(at(40_000), at(40_100), renewal(T7, TTL)));
        assert_eq!(belief.standing(at(40_100)), Standing::Held { until: at(40_000 + BELIEVED) });
    }

    #[test]
    fn another_token_neither_resumes_nor_extends() {
        let mut belief = granted(None);
        let before = belief.deadline();
        assert!(!belief.renewed(at(2_000), at(2_100), renewal(T8, TTL)));
        assert_eq!((belief.token(), belief.deadline()), (T7, before));
        belief.look(at(40_000));
        assert!(!belief.renewed(at(40_000), at(40_100), renewal(T8, TTL)));
        assert_eq!(belief.standing(at(40_100)), Standing::Suspended);
    }

    #[test]
    fn an_answer_to_an_old_request_proves_no_more_than_its_own_sending() {
        let mut belief = granted(None);
        assert!(belief.renewed(at(4_000), at(9_000), renewal(T7, TTL)));
        assert_eq!(belief.deadline().earliest, at(4_000 + BELIEVED));
    }

    #[test]
    fn an_answer_overtaken_by_a_newer_one_moves_nothing() {
        let mut belief = granted(None);
        assert!(belief.renewed(at(5_000), at(5_100), renewal(T7, TTL)));
        assert!(!belief.renewed(at(4_000), at(5_200), renewal(T7, TTL)));
        assert!(!belief.renewed(at(4_000), at(5_200), renewal(T7, 1)));
        assert_eq!(belief.deadline().earliest, at(5_000 + BELIEVED));
    }

    #[test]
    fn the_newest_answer_is_believed_when_it_says_less() {
        let mut belief = granted(None);
        assert!(belief.renewed(at(5_000), at(5_100), renewal(T7, 101)));
        assert_eq!(belief.deadline().earliest, at(5_098));
    }

    #[test]
    fn an_answer_that_comes_after_all_it_proves_leaves_the_holder_suspended() {
        let mut belief = granted(None);
        assert!(belief.renewed(at(4_000), at(4_000 + BELIEVED), renewal(T7, TTL)));
        assert_eq!(belief.standing(at(4_000 + BELIEVED)), Standing::Suspended);
    }

    #[test]
    fn a_deadline_seen_passed_stays_passed_when_the_clock_is_read_out_of_order() {
        let mut belief = granted(None);
        belief.look(at(1_000 + BELIEVED));
        assert_eq!(belief.standing(at(2_000)), Standing::Suspended);
    }

    #[test]
    fn no_answer_means_for_ever() {
        let mut belief = granted(None);
        assert!(belief.renewed(at(5_000), at(5_100), renewal(T7, u64::MAX)));
        assert_eq!(belief.deadline().earliest, at(5_000 + BELIEVED));
    }

    #[test]
    fn an_end_is_final_and_the_first_one_stays() {
        let mut belief = granted(None);
        belief.lose(Loss::Ended(Reason::Operator));
        belief.lose(Loss::Ended(Reason::Ttl));
        assert!(!belief.renewed(at(2_000), at(2_100), renewal(T7, TTL)));
        assert_eq!(belief.standing(at(2_100)), Standing::Lost(Loss::Ended(Reason::Operator)));
    }

    #[test]
    fn a_predecessor_stops_at_the_remaining_counted_from_its_asking() {
        let mut belief = granted(Some(20_001));
        belief.renewed(at(5_000), at(5_400), draining(3_001));
        assert_eq!(belief.drain_until(), Some(at(5_000 + 2_940)));
        assert_eq!(belief.deadline().earliest, at(5_000 + 2_940));
    }

    #[test]
    fn a_predecessor_stops_a_drain_period_after_it_was_last_told_that_it_does_not_drain() {
        let mut belief = granted(Some(5_001));
        belief.renewed(at(3_000), at(3_100), renewal(T7, TTL));
        // The grantor was down for a while, its time stood still, and so it says more than is left.
        belief.renewed(at(7_000), at(7_100), draining(4_900));
        assert_eq!(belief.drain_until(), Some(at(3_000 + 4_900)));
    }

    #[test]
    fn a_holder_that_hears_nothing_stops_a_drain_period_after_its_last_answer() {
        let belief = granted(Some(5_001));
        assert_eq!(belief.deadline().earliest, at(1_000 + 4_900));
        assert_eq!(belief.drain_until(), None);
    }

    #[test]
    fn a_draining_holder_is_never_current_again_under_its_token() {
        let mut belief = granted(Some(20_001));
        belief.renewed(at(4_000), at(4_100), draining(2_001));
        let stop = at(4_000 + 1_960);
        belief.renewed(at(4_500), at(4_600), renewal(T7, TTL));
        belief.renewed(at(4_700), at(4_800), draining(60_000));
        assert_eq!(belief.deadline().earliest, stop);
        assert!(!belief.holds(stop));
    }

    #[test]
    fn a_successor_claims_a_drain_period_after_it_received_its_grant() {
        let successor = Succession::new(at(1_000), 4_949, RateError::default());
        // 4,950 ms * 1.01 / 0.99.
        assert_eq!(successor.claim_from(), at(1_000 + 5_050));
        let waits = successor.claim(Instant(at(6_050).0 - 1)).expect_err("its time has not come");
        let claim = waits.claim(at(6_050)).expect("its time has come");
        let MayWrite(()) = claim.claimed().read_again();
    }

    #[test]
    fn a_successor_claims_at_once_when_told_that_the_predecessor_is_over() {
        let mut successor = Succession::new(at(1_000), 5_000, RateError::default());
        successor.told_over();
        assert!(successor.claim(at(1_000)).is_ok());
    }
}
