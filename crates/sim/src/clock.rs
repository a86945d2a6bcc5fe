//! Each actor's own clock: an offset, a rate, and standing still. Real time is the world's alone.

use leasehold_core::time::{Instant, Now, Wall};

/// Real time, in microseconds since the run began. No actor sees it.
pub type At = u64;

/// One millisecond of real time.
pub const MS: At = 1_000;

/// The whole, in parts per million.
const MILLION: i128 = 1_000_000;

/// A clock: monotonic, at a rate of its own, with a wall clock beside it.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Real time and own time (microseconds) at the last change.
    since: At,
    own: u64,
    /// Parts per million of real time; a million is right.
    rate: u64,
    /// From when on it goes again, if it stands still.
    stands_until: At,
    /// Milliseconds that the wall clock is off.
    wall_off: i64,
}

impl Clock {
    /// A clock that begins at `own` microseconds with a rate in parts per million.
    pub const fn new(own: u64, rate: u64) -> Self {
        Self { since: 0, own, rate, stands_until: 0, wall_off: 0 }
    }

    /// Its rate in parts per million.
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    fn own_at(&self, at: At) -> u64 {
        let ran = at.saturating_sub(self.since.max(self.stands_until));
        self.own + (u128::from(ran) * u128::from(self.rate) / MILLION as u128) as u64
    }

    /// What the monotonic clock shows.
    pub fn instant(&self, at: At) -> Instant {
        Instant(self.own_at(at) * 1_000)
    }

    /// What both clocks show.
    pub fn now(&self, at: At) -> Now {
        let wall = (at / MS) as i64 + 86_400_000 + self.wall_off;
        Now { instant: self.instant(at), wall: Wall::after_era(wall.max(1) as u64) }
    }

    /// When it will show this, not before now.
    pub fn real(&self, shown: Instant, now: At) -> At {
        let left = (shown.0.div_ceil(1_000)).saturating_sub(self.own_at(now));
        let real = (u128::from(left) * MILLION as u128).div_ceil(u128::from(self.rate));
        now.max(self.stands_until) + u64::try_from(real).unwrap_or(u64::MAX / 4)
    }

    /// Stands still until then: a machine that sleeps without noticing.
    pub fn stand_still(&mut self, now: At, until: At) {
        self.own = self.own_at(now);
        self.since = now;
        self.stands_until = self.stands_until.max(until);
    }

    /// Goes again from now on.
    pub fn go(&mut self, now: At) {
        self.own = self.own_at(now);
        self.since = now;
        self.stands_until = now;
    }

    /// The wall clock is set by so many milliseconds.
    pub const fn step_wall(&mut self, by: i64) {
        self.wall_off += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_runs_at_its_rate_stands_still_and_tells_when_it_will_show_a_time() {
        let mut clock = Clock::new(1_000, 2_000_000);
        assert_eq!(clock.instant(500), Instant(2_000_000));
        assert_eq!(clock.real(Instant(3_000_000), 500), 1_000);
        clock.stand_still(500, 10_500);
        assert_eq!(clock.instant(9_000), Instant(2_000_000));
        assert_eq!(clock.instant(11_000), Instant(3_000_000));
        assert_eq!(clock.real(Instant(3_000_000), 9_000), 11_000);
        clock.stand_still(11_000, 90_000);
        clock.go(12_000);
        assert_eq!(clock.instant(12_500), Instant(4_000_000));
    }

    #[test]
    fn setting_the_wall_clock_moves_no_deadline() {
        let mut clock = Clock::new(0, 1_000_000);
        let before = clock.now(5_000);
        clock.step_wall(-3_000);
        assert_eq!(clock.now(5_000).instant, before.instant);
        assert_eq!(clock.now(5_000).wall.0 + 3_000, before.wall.0);
    }
}
