//! A simulated clock for each actor: offset, rate and pauses. Only the scheduler knows real time.

use leasehold_core::time::{Instant, Now, WallClock};

/// Real time, in microseconds since the run began. No actor sees it.
pub type SimTime = u64;

/// One millisecond of real time.
pub const MS: SimTime = 1_000;

/// One, in parts per million.
const MILLION: i128 = 1_000_000;

/// A monotonic clock with its own rate, and a wall clock.
#[derive(Clone, Debug)]
pub struct SimClock {
    /// Real time and own time (microseconds) at the last change.
    since: SimTime,
    own: u64,
    /// Parts per million of real time; a million is right.
    rate: u64,
    /// When a paused clock resumes.
    paused_until: SimTime,
    /// Error of the wall clock in milliseconds.
    wall_offset: i64,
}

impl SimClock {
    /// A clock that begins at `own` microseconds with a rate in parts per million.
    pub const fn new(own: u64, rate: u64) -> Self {
        Self { since: 0, own, rate, paused_until: 0, wall_offset: 0 }
    }

    /// Its rate in parts per million.
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    fn own_at(&self, at: SimTime) -> u64 {
        let ran = at.saturating_sub(self.since.max(self.paused_until));
        self.own + (u128::from(ran) * u128::from(self.rate) / MILLION as u128) as u64
    }

    /// Reads the monotonic clock.
    pub fn instant(&self, at: SimTime) -> Instant {
        Instant(self.own_at(at) * 1_000)
    }

    /// Reads both clocks.
    pub fn now(&self, at: SimTime) -> Now {
        let wall = (at / MS) as i64 + 86_400_000 + self.wall_offset;
        Now { instant: self.instant(at), wall: WallClock::after_era(wall.max(1) as u64) }
    }

    /// Real time at which the clock will show `own`, but not before now.
    pub fn real(&self, reading: Instant, now: SimTime) -> SimTime {
        let left = (reading.0.div_ceil(1_000)).saturating_sub(self.own_at(now));
        let real = (u128::from(left) * MILLION as u128).div_ceil(u128::from(self.rate));
        now.max(self.paused_until) + u64::try_from(real).unwrap_or(u64::MAX / 4)
    }

    /// Pauses the clock until `until`: a machine that sleeps without noticing.
    pub fn pause(&mut self, now: SimTime, until: SimTime) {
        self.own = self.own_at(now);
        self.since = now;
        self.paused_until = self.paused_until.max(until);
    }

    /// Resumes now.
    pub fn resume(&mut self, now: SimTime) {
        self.own = self.own_at(now);
        self.since = now;
        self.paused_until = now;
    }

    /// Steps the wall clock by this many milliseconds.
    pub const fn step_wall(&mut self, by: i64) {
        self.wall_offset += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_runs_at_its_rate_pauses_and_predicts_when_it_reaches_a_time() {
        let mut clock = SimClock::new(1_000, 2_000_000);
        assert_eq!(clock.instant(500), Instant(2_000_000));
        assert_eq!(clock.real(Instant(3_000_000), 500), 1_000);
        clock.pause(500, 10_500);
        assert_eq!(clock.instant(9_000), Instant(2_000_000));
        assert_eq!(clock.instant(11_000), Instant(3_000_000));
        assert_eq!(clock.real(Instant(3_000_000), 9_000), 11_000);
        clock.pause(11_000, 90_000);
        clock.resume(12_000);
        assert_eq!(clock.instant(12_500), Instant(4_000_000));
    }

    #[test]
    fn stepping_the_wall_clock_does_not_change_the_monotonic_clock() {
        let mut clock = SimClock::new(0, 1_000_000);
        let before = clock.now(5_000);
        clock.step_wall(-3_000);
        assert_eq!(clock.now(5_000).instant, before.instant);
        assert_eq!(clock.now(5_000).wall.0 + 3_000, before.wall.0);
    }
}
