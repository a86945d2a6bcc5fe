//! The holder's side of a lease as pure logic: timing, local validity and renewal.
//!
//! The simulator runs the same code as the client library. Every [`Instant`] here is the holder's own boot clock, which
//! continues while the machine is suspended.

mod belief;
mod renewal;

pub use belief::{Belief, BeliefState, Claim, Deadline, MayWrite, MustRead, Succession};
pub use renewal::{DrainError, DrainProof, Renewal, RenewalAction, RenewalAnswer, RenewalAttempt};

use std::fmt;

use crate::lease::EndReason;
use crate::limits::{GRACE_MAX, RENEW_GAP_MIN, TTL_MAX_EVER, TTL_MIN};
use crate::time::Instant;
use crate::token::Number;

const MILLION: u64 = 1_000_000;

/// Bound on clock drift: how much faster or slower than real time any clock may run, in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockDrift(u32);

impl ClockDrift {
    /// The largest drift with which every allowed ttl leaves time for three attempts: one fifth.
    pub const MAX: Self = Self(200_000);

    /// A drift in parts per million.
    pub const fn from_ppm(ppm: u32) -> Result<Self, TimingError> {
        if ppm > Self::MAX.0 {
            return Err(TimingError { field: "clock_drift_ppm", given: ppm as u64, min: 0, max: Self::MAX.0 as u64 });
        }
        Ok(Self(ppm))
    }

    /// The parts per million.
    pub const fn ppm(self) -> u32 {
        self.0
    }

    /// A duration on this clock that is never longer in real time than `ms` on another clock.
    ///
    /// A grantor counts whole milliseconds, so an interval that begins within one ends up to a millisecond early.
    pub const fn shrink(self, ms: u64) -> u64 {
        scaled(ms.saturating_sub(1), MILLION - 2 * self.0 as u64, MILLION, false)
    }

    /// The time to wait on this clock until `ms` have passed on any other clock.
    ///
    /// It adds slightly more than twice the drift: a fast clock here against a slow one there is (1 + e) / (1 - e).
    pub const fn stretch(self, ms: u64) -> u64 {
        scaled(ms.saturating_add(1), MILLION + self.0 as u64, MILLION - self.0 as u64, true)
    }
}

impl Default for ClockDrift {
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

/// Ttl, renewal interval and clock drift of a lease, validated once so that no holder starts with impossible timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    ttl_ms: u64,
    interval_ms: u64,
    drift: ClockDrift,
}

impl Timing {
    /// Timing with this ttl, renewed after a third of it.
    pub const fn new(ttl_ms: u64, drift: ClockDrift) -> Result<Self, TimingError> {
        if ttl_ms < TTL_MIN || ttl_ms > TTL_MAX_EVER {
            return Err(TimingError { field: "ttl_ms", given: ttl_ms, min: TTL_MIN, max: TTL_MAX_EVER });
        }
        Ok(Self { ttl_ms, interval_ms: ttl_ms / 3, drift })
    }

    /// The same timing with another renewal interval; two more attempts must fit before the local deadline.
    pub const fn with_interval(self, interval_ms: u64) -> Result<Self, TimingError> {
        let min = gap_in(self.ttl_ms);
        // Strictly before the deadline, hence the last millisecond.
        let max = self.drift.shrink(self.ttl_ms) - 2 * min - 1;
        if interval_ms < min || interval_ms > max {
            return Err(TimingError { field: "interval_ms", given: interval_ms, min, max });
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

    /// The assumed clock drift.
    pub const fn clock_drift(&self) -> ClockDrift {
        self.drift
    }

    /// A drain period shorter than the ttl also limits the holder, so it must leave time for the same three attempts.
    const fn check_drain(drain_ms: u64) -> Result<(), TimingError> {
        if drain_ms < TTL_MIN || drain_ms > GRACE_MAX {
            return Err(TimingError { field: "drain_ms", given: drain_ms, min: TTL_MIN, max: GRACE_MAX });
        }
        Ok(())
    }

    /// Renewal interval of a lease granted for `span_ms`, which a maximum hold or a drain period can make shorter than
    /// the ttl.
    const fn interval_in(&self, span_ms: u64) -> u64 {
        if span_ms >= self.ttl_ms || self.interval_ms < span_ms / 3 { self.interval_ms } else { span_ms / 3 }
    }
}

/// Shortest pause between two attempts under a lease of `span_ms`.
const fn gap_in(span_ms: u64) -> u64 {
    if span_ms / 30 > RENEW_GAP_MIN { span_ms / 30 } else { RENEW_GAP_MIN }
}

/// Reduces `ms` by up to a quarter, so that holders that started together do not renew together.
///
/// It never adds, so an interval that fits before a deadline still fits.
fn jittered(ms: u64, random: u64) -> u64 {
    ms - scaled(ms / 4, random >> 32, u64::from(u32::MAX), false)
}

/// An impossible timing value, with the allowed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingError {
    /// The field.
    pub field: &'static str,
    /// The given value.
    pub given: u64,
    /// Smallest allowed value.
    pub min: u64,
    /// Largest allowed value.
    pub max: u64,
}

impl fmt::Display for TimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, given, min, max } = self;
        write!(f, "{field} is {given}; choose a value from {min} to {max}")
    }
}

impl std::error::Error for TimingError {}

/// A grant as the holder received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedGrant {
    /// The token number.
    pub token: Number,
    /// The boot clock before the request was sent. After a long wait this is long ago, and the holder renews first.
    pub sent: Instant,
    /// The boot clock when the grant arrived.
    pub received: Instant,
    /// The granted time, in milliseconds.
    pub ttl_ms: u64,
    /// How long a predecessor drains, in milliseconds, if the charter allows overlap handoffs.
    pub drain_ms: Option<u64>,
    /// Whether every renewal issues a new token.
    pub rotates: bool,
}

/// A successful renewal as the holder received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedRenewal {
    /// The token under which the lease continues.
    pub token: Number,
    /// The remaining time of the lease, in milliseconds.
    pub remaining_ms: u64,
    /// If a successor was granted: the time left to drain, in milliseconds.
    pub draining_ms: Option<u64>,
}

/// How a holder lost its lease, as reported by the grantor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The lease ended.
    Ended(EndReason),
    /// The token is not current, and the grantor no longer knows how the lease ended.
    NotCurrent,
}

impl Loss {
    /// What the client may do on its own.
    pub const fn next_step(self) -> NextStep {
        match self {
            Self::Ended(reason) if reason.may_retry() => NextStep::AcquireAgain,
            // An end that is no longer known may have been a revocation.
            Self::Ended(_) | Self::NotCurrent => NextStep::LeaveToCaller,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(EndReason::Released) => f.write_str("the lease was released"),
            Self::Ended(reason) => {
                write!(f, "the lease {}: {reason}", if reason.may_retry() { "expired" } else { "was revoked" })
            }
            Self::NotCurrent => f.write_str("the lease ended: its token is not current"),
        }?;
        match self.next_step() {
            NextStep::AcquireAgain => f.write_str("; stop, then acquire again"),
            NextStep::LeaveToCaller => f.write_str("; stop, and acquire again only on request"),
        }
    }
}

/// The next step after a lease is lost. In either case the work stops first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextStep {
    /// The client may acquire again on its own.
    AcquireAgain,
    /// The caller decides, because the lease may have been revoked.
    LeaveToCaller,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ttl_outside_the_limits_is_refused_with_the_range() {
        for ttl in [0, 99, TTL_MAX_EVER + 1, u64::MAX] {
            let error = Timing::new(ttl, ClockDrift::default()).unwrap_err();
            assert_eq!((error.field, error.given, error.min, error.max), ("ttl_ms", ttl, TTL_MIN, TTL_MAX_EVER));
        }
        let text = Timing::new(99, ClockDrift::default()).unwrap_err().to_string();
        assert_eq!(text, "ttl_ms is 99; choose a value from 100 to 604800000");
    }

    #[test]
    fn a_clock_drift_above_one_fifth_is_refused() {
        for ppm in [200_001, 500_000, 1_000_000, u32::MAX] {
            let error = ClockDrift::from_ppm(ppm).unwrap_err();
            assert_eq!((error.field, error.min, error.max), ("clock_drift_ppm", 0, 200_000));
        }
        assert_eq!(ClockDrift::from_ppm(10_000), Ok(ClockDrift::default()));
    }

    #[test]
    fn a_lease_is_renewed_after_a_third_of_its_ttl_by_default() {
        let timing = Timing::new(10_000, ClockDrift::default()).unwrap();
        assert_eq!(timing.interval_ms(), 3_333);
        assert_eq!(timing.with_interval(5_000).unwrap().interval_ms(), 5_000);
    }

    #[test]
    fn an_interval_without_time_for_two_more_attempts_is_refused_with_the_range() {
        let timing = Timing::new(3_000, ClockDrift::default()).unwrap();
        // 2,939 are believed, two retries take 200.
        assert!(timing.with_interval(2_738).is_ok() && timing.with_interval(100).is_ok());
        for interval in [0, 99, 2_739, 2_939, 3_000, u64::MAX] {
            let error = timing.with_interval(interval).unwrap_err();
            assert_eq!((error.field, error.min, error.max), ("interval_ms", 100, 2_738));
        }
    }

    #[test]
    fn only_an_expired_lease_may_be_acquired_again_automatically() {
        for reason in EndReason::ALL {
            let automatic = Loss::Ended(reason).next_step() == NextStep::AcquireAgain;
            assert_eq!(automatic, reason.may_retry(), "{reason}");
        }
        assert_eq!(Loss::NotCurrent.next_step(), NextStep::LeaveToCaller);
        let text = Loss::Ended(EndReason::Operator).to_string();
        assert_eq!(text, "the lease was revoked: operator; stop, and acquire again only on request");
        assert_eq!(Loss::Ended(EndReason::Released).to_string(), "the lease was released; stop, then acquire again");
    }

    #[test]
    fn durations_do_not_overflow() {
        let worst = ClockDrift::MAX;
        assert_eq!(worst.stretch(u64::MAX), u64::MAX);
        assert_eq!(worst.shrink(u64::MAX), u64::MAX / 10 * 6 + 2);
        assert_eq!(jittered(u64::MAX, u64::MAX), u64::MAX - u64::MAX / 4);
    }

    proptest! {
        #[test]
        fn every_allowed_ttl_leaves_time_for_three_attempts(
            ttl in TTL_MIN..=TTL_MAX_EVER,
            short in TTL_MIN..1_000,
            ppm in 0..=ClockDrift::MAX.ppm(),
        ) {
            let drift = ClockDrift::from_ppm(ppm).unwrap();
            for ttl in [ttl, short] {
                let timing = Timing::new(ttl, drift).unwrap();
                prop_assert_eq!(timing.with_interval(timing.interval_ms()), Ok(timing));
            }
        }

        #[test]
        fn jitter_only_shortens_and_by_at_most_a_quarter(ms in 0..=TTL_MAX_EVER, random: u64) {
            let wait = jittered(ms, random);
            prop_assert!(wait <= ms && wait >= ms - ms / 4);
        }
    }
}
