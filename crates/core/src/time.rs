//! The three kinds of time as separate types: the driver's monotonic clock, grantor time and the wall clock.

use std::fmt;

/// A point of the driver's monotonic clock, in nanoseconds. Only differences are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The point this many milliseconds after the clock's start; for tests and scripts.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Whole milliseconds since `earlier`; zero if the clock went backwards.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000_000
    }

    /// This many milliseconds later.
    pub const fn plus_millis(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }
}

/// Grantor time: milliseconds during which a grantor of the cluster was in service. It stops during an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantorTime(pub u64);

impl GrantorTime {
    /// This many milliseconds later.
    pub const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Milliseconds until `later`; zero if it has passed.
    pub const fn until(self, later: Self) -> u64 {
        later.0.saturating_sub(self.0)
    }
}

impl fmt::Display for GrantorTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// The wall clock, in milliseconds since 1970. It raises token numbers and timestamps the audit log; no deadline
/// depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallClock(pub u64);

/// 2025-01-01T00:00:00Z, the epoch of token numbers.
const TOKEN_ERA: u64 = 1_735_689_600_000;

impl WallClock {
    /// The wall clock this many milliseconds after the epoch of token numbers.
    pub const fn after_era(ms: u64) -> Self {
        Self(TOKEN_ERA + ms)
    }

    /// Milliseconds since the epoch of token numbers; zero before it.
    pub const fn since_era(self) -> u64 {
        self.0.saturating_sub(TOKEN_ERA)
    }
}

/// The clocks that a driver samples once per turn, after it drained its inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The driver's monotonic clock.
    pub instant: Instant,
    /// The wall clock.
    pub wall: WallClock,
}

/// A number of milliseconds as people read it: its two largest units without zeros, for example `1m30s`, `29.9s` or `10m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationText(pub u64);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0;
        let (s, m, h) = (ms / 1_000, ms / 60_000, ms / 3_600_000);
        let (whole, unit, part, rest) = match ms {
            0..1_000 => return write!(f, "{ms}ms"),
            1_000..60_000 if ms % 1_000 / 100 == 0 => return write!(f, "{s}s"),
            1_000..60_000 => return write!(f, "{s}.{}s", ms % 1_000 / 100),
            60_000..3_600_000 => (m, "m", s % 60, "s"),
            3_600_000..86_400_000 => (h, "h", m % 60, "m"),
            _ => (h / 24, "d", h % 24, "h"),
        };
        match part {
            0 => write!(f, "{whole}{unit}"),
            part => write!(f, "{whole}{unit}{part:02}{rest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DurationText;

    #[test]
    fn a_duration_shows_its_two_largest_units_without_zeros() {
        let table = [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_099, "1s"),
            (29_960, "29.9s"),
            (60_000, "1m"),
            (61_000, "1m01s"),
            (600_000, "10m"),
            (3_600_000, "1h"),
            (3_660_000, "1h01m"),
            (86_400_000, "1d"),
            (90_000_000, "1d01h"),
            (u64::MAX, "213503982334d14h"),
        ];
        for (ms, text) in table {
            assert_eq!(DurationText(ms).to_string(), text);
        }
    }
}
