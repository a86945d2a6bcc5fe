//! The holder's side of a lease as pure logic, so that the simulator runs the very code that the SDK runs.
//!
//! Every point of time here is the holder's own boot clock, which goes on while the machine sleeps.

mod belief;
mod renewal;

pub use belief::{Belief, Claim, Deadline, MayWrite, MustRead, Standing, Succession};
pub use renewal::{Action, Answer, Attempt, Drained, NotDrained, Renewal};

use std::fmt;

use crate::lease::Reason;
use crate::limits::{GRACE_MAX, RENEW_GAP_MIN, TTL_MAX_EVER, TTL_MIN};
use crate::time::Instant;
use crate::token::Number;

/// The whole, in parts per million.
const MILLION: u64 = 1_000_000;

/// How much faster or slower than real time any one clock may run, in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateError(u32);

impl RateError {
    /// The largest rate error with which every allowed ttl leaves room for three attempts: one fifth.
    pub const MAX: Self = Self(200_000);

    /// A rate error of so many parts per million.
    pub const fn from_ppm(ppm: u32) -> Result<Self, TimingError> {
        if ppm > Self::MAX.0 {
            return Err(TimingError { field: "rate_error_ppm", given: ppm as u64, least: 0, most: Self::MAX.0 as u64 });
        }
        Ok(Self(ppm))
    }

    /// The parts per million.
    pub const fn ppm(self) -> u32 {
        self.0
    }

    /// So long may a holder count on what lasts `ms` on another clock: never longer in real time.
    ///
    /// A grantor counts whole milliseconds, so what it began in the middle of one ends up to one early.
    pub const fn shorter(self, ms: u64) -> u64 {
        scaled(ms.saturating_sub(1), MILLION - 2 * self.0 as u64, MILLION, false)
    }

    /// So long must be waited until `ms` are over on any other clock.
    ///
    /// Slightly more than twice the rate error: a fast clock here against a slow one there is (1 + e) / (1 - e).
    pub const fn longer(self, ms: u64) -> u64 {
        scaled(ms.saturating_add(1), MILLION + self.0 as u64, MILLION - self.0 as u64, true)
    }
}

impl Default for RateError {
    /// One percent.
    fn default() -> Self {
        Self(10_000)
    }
}

const fn scaled(ms: u64, times: u64, per: u64, up: bool) -> u64 {
    let product = ms as u128 * times as u128;
    let quotient = if up { product.div_ceil(per as u128) } else { product / per as u128 };
    if quotient > u64::MAX as u128 { u64::MAX } else { quotient as u64 }
}

/// How long a lease lasts and how often it is renewed, checked once so that no holder starts with timing that must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    ttl_ms: u64,
    interval_ms: u64,
    rate: RateError,
}

impl Timing {
    /// A ttl that is renewed after a third of it.
    pub const fn new(ttl_ms: u64, rate_error: RateError) -> Result<Self, TimingError> {
        if ttl_ms < TTL_MIN || ttl_ms > TTL_MAX_EVER {
            return Err(TimingError { field: "ttl_ms", given: ttl_ms, least: TTL_MIN, most: TTL_MAX_EVER });
        }
        Ok(Self { ttl_ms, interval_ms: ttl_ms / 3, rate: rate_error })
    }

    /// The same ttl renewed at another interval; two more attempts must fit before the local deadline.
    pub const fn every(self, interval_ms: u64) -> Result<Self, TimingError> {
        let least = gap_in(self.ttl_ms);
        // Strictly before the deadline, hence the last millisecond.
        let most = self.rate.shorter(self.ttl_ms) - 2 * least - 1;
        if interval_ms < least || interval_ms > most {
            return Err(TimingError { field: "interval_ms", given: interval_ms, least, most });
        }
        Ok(Self { interval_ms, ..self })
    }

    /// The ttl, in milliseconds.
    pub const fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// The longest time between two renewals that both succeed, in milliseconds.
    pub const fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    /// The rate error that was reckoned with.
    pub const fn rate_error(&self) -> RateError {
        self.rate
    }

    /// A drain period shorter than the ttl binds the holder too, so it must leave room for the same three attempts.
    const fn check_drain(drain_ms: u64) -> Result<(), TimingError> {
        if drain_ms < TTL_MIN || drain_ms > GRACE_MAX {
            return Err(TimingError { field: "drain_ms", given: drain_ms, least: TTL_MIN, most: GRACE_MAX });
        }
        Ok(())
    }

    /// When to renew what was granted for `span_ms`, which a maximum hold or a drain period can make less than the ttl.
    const fn interval_in(&self, span_ms: u64) -> u64 {
        if span_ms >= self.ttl_ms || self.interval_ms < span_ms / 3 { self.interval_ms } else { span_ms / 3 }
    }
}

/// The least time between two attempts under a lease of `span_ms`.
const fn gap_in(span_ms: u64) -> u64 {
    if span_ms / 30 > RENEW_GAP_MIN { span_ms / 30 } else { RENEW_GAP_MIN }
}

/// Takes up to a quarter off, so that holders who started together do not go on asking together.
///
/// Never adds: what fits before a deadline still fits.
fn jittered(ms: u64, chance: u64) -> u64 {
    ms - scaled(ms / 4, chance >> 32, u64::from(u32::MAX), false)
}

/// Timing that cannot work, with the range that can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingError {
    /// Which value is wrong.
    pub field: &'static str,
    /// What was given.
    pub given: u64,
    /// The least that is allowed.
    pub least: u64,
    /// The most that is allowed.
    pub most: u64,
}

impl fmt::Display for TimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, given, least, most } = self;
        write!(f, "{field} is {given}; choose a value from {least} to {most}")
    }
}

impl std::error::Error for TimingError {}

/// A grant as its holder received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The token's number.
    pub token: Number,
    /// The boot clock before the request was sent. After a long wait this is long ago, and the first act is to renew.
    pub sent: Instant,
    /// The boot clock when the grant arrived.
    pub received: Instant,
    /// For how long it was granted, in milliseconds.
    pub ttl_ms: u64,
    /// How long a predecessor drains, in milliseconds, if the charter lets a handoff overlap.
    pub drain_ms: Option<u64>,
    /// Whether the charter raises the token on every renewal.
    pub rotates: bool,
}

/// A renewal that the grantor accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The token under which the lease goes on.
    pub token: Number,
    /// How long the lease still lasts, in milliseconds.
    pub remaining_ms: u64,
    /// If a successor was granted: how long the holder may still drain, in milliseconds.
    pub draining_ms: Option<u64>,
}

/// How the grantor said that a lease is no longer the holder's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// It ended.
    Ended(Reason),
    /// The grantor does not know this token as current, and no longer knows how it ended.
    NotCurrent,
}

impl Loss {
    /// What a client may do without being told to.
    pub const fn next_step(self) -> NextStep {
        match self {
            Self::Ended(reason) if reason.may_retry() => NextStep::AcquireAgain,
            // An end that was forgotten may have been a revocation.
            Self::Ended(_) | Self::NotCurrent => NextStep::LeaveToCaller,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(reason) => write!(f, "the lease is over: {reason}"),
            Self::NotCurrent => f.write_str("the lease is over: its token is not current"),
        }?;
        match self.next_step() {
            NextStep::AcquireAgain => f.write_str("; stop, then acquire again"),
            NextStep::LeaveToCaller => f.write_str("; stop, and acquire again only when told to"),
        }
    }
}

/// What follows the loss of a lease. In either case the work has stopped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextStep {
    /// The client may acquire again by itself.
    AcquireAgain,
    /// Only the caller decides: the lease may have been taken by authority.
    LeaveToCaller,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ttl_outside_the_limits_is_refused_with_the_range() {
        for ttl in [0, 99, TTL_MAX_EVER + 1, u64::MAX] {
            let error = Timing::new(ttl, RateError::default()).unwrap_err();
            assert_eq!((error.field, error.given, error.least, error.most), ("ttl_ms", ttl, TTL_MIN, TTL_MAX_EVER));
        }
        let text = Timing::new(99, RateError::default()).unwrap_err().to_string();
        assert_eq!(text, "ttl_ms is 99; choose a value from 100 to 604800000");
    }

    #[test]
    fn a_rate_error_that_leaves_nothing_to_believe_is_refused() {
        for ppm in [200_001, 500_000, 1_000_000, u32::MAX] {
            let error = RateError::from_ppm(ppm).unwrap_err();
            assert_eq!((error.field, error.least, error.most), ("rate_error_ppm", 0, 200_000));
        }
        assert_eq!(RateError::from_ppm(10_000), Ok(RateError::default()));
    }

    #[test]
    fn a_lease_is_renewed_after_a_third_unless_chosen_otherwise() {
        let timing = Timing::new(10_000, RateError::default()).unwrap();
        assert_eq!(timing.interval_ms(), 3_333);
        assert_eq!(timing.every(5_000).unwrap().interval_ms(), 5_000);
    }

    #[test]
    fn an_interval_without_room_for_two_more_attempts_is_refused_with_the_range() {
        let timing = Timing::new(3_000, RateError::default()).unwrap();
        // 2,939 are believed, two retries take 200.
        assert!(timing.every(2_738).is_ok() && timing.every(100).is_ok());
        for interval in [0, 99, 2_739, 2_939, 3_000, u64::MAX] {
            let error = timing.every(interval).unwrap_err();
            assert_eq!((error.field, error.least, error.most), ("interval_ms", 100, 2_738));
        }
    }

    #[test]
    fn only_an_expired_lease_is_acquired_again_by_itself() {
        for reason in Reason::ALL {
            let by_itself = Loss::Ended(reason).next_step() == NextStep::AcquireAgain;
            assert_eq!(by_itself, reason.may_retry(), "{reason}");
        }
        assert_eq!(Loss::NotCurrent.next_step(), NextStep::LeaveToCaller);
        let text = Loss::Ended(Reason::Operator).to_string();
        assert_eq!(text, "the lease is over: operator; stop, and acquire again only when told to");
    }

    #[test]
    fn no_length_overflows() {
        let worst = RateError::MAX;
        assert_eq!(worst.longer(u64::MAX), u64::MAX);
        assert_eq!(worst.shorter(u64::MAX), u64::MAX / 10 * 6 + 2);
        assert_eq!(jittered(u64::MAX, u64::MAX), u64::MAX - u64::MAX / 4);
    }

    proptest! {
        #[test]
        fn every_allowed_ttl_has_room_for_three_attempts(
            ttl in TTL_MIN..=TTL_MAX_EVER,
            short in TTL_MIN..1_000,
            ppm in 0..=RateError::MAX.ppm(),
        ) {
            let rate = RateError::from_ppm(ppm).unwrap();
            for ttl in [ttl, short] {
                let timing = Timing::new(ttl, rate).unwrap();
                prop_assert_eq!(timing.every(timing.interval_ms()), Ok(timing));
            }
        }

        #[test]
        fn chance_only_shortens_and_by_a_quarter_at_most(ms in 0..=TTL_MAX_EVER, chance: u64) {
            let wait = jittered(ms, chance);
            prop_assert!(wait <= ms && wait >= ms - ms / 4);
        }
    }
}
