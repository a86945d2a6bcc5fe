//! The three kinds of time, kept apart by type: a driver's clock, the time served, and the wall.

use std::fmt;

/// A point of the driver's monotonic clock, in nanoseconds. Only differences mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// A point that many milliseconds after the clock's start; for tests and scripts.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Whole milliseconds from `earlier` to here; zero if the clock went backwards.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000_000
    }

    /// This many milliseconds later.
    pub const fn plus_millis(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }
}

/// Grantor time: the milliseconds for which the cluster has been served. It stands still in an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// This many milliseconds later.
    pub const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to here; zero if it is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Milliseconds from here until `later`; zero if it has passed.
    pub const fn until(self, later: Self) -> u64 {
        later.0.saturating_sub(self.0)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// The wall clock, in milliseconds since 1970. It lifts token numbers and stamps the audit; no deadline depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub u64);

/// 2025-01-01T00:00:00Z, from which token numbers count their milliseconds.
const TOKEN_ERA: u64 = 1_735_689_600_000;

impl Wall {
    /// The wall clock this many milliseconds after the era of token numbers began.
    pub const fn after_era(ms: u64) -> Self {
        Self(TOKEN_ERA + ms)
    }

    /// Milliseconds since the era of token numbers began; zero before it.
    pub const fn since_era(self) -> u64 {
        self.0.saturating_sub(TOKEN_ERA)
    }
}

/// What a driver reads once a turn, after it drained its inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The driver's monotonic clock.
    pub instant: Instant,
    /// The wall clock.
    pub wall: Wall,
}
