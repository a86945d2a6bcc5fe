//! Random jitter for renewals and reconnects, so that holders that started together spread out.

use std::hash::{BuildHasher, RandomState};

/// Number of neighboring leases that share one jitter. They are adjacent in memory and are renewed in one message; other leases
/// and other clients renew at other times.
const NEIGHBORS: u32 = 1_024;

/// A small generator (SplitMix64); not for secrets.
#[derive(Debug)]
pub(super) struct Jitter {
    state: u64,
    /// Base of the jitter of all leases that are polled in this round.
    round: u64,
}

impl Jitter {
    /// Seeded by the operating system, through the standard library's hash keys.
    pub(super) fn from_os() -> Self {
        Self::seeded(RandomState::new().hash_one(0_u64))
    }

    pub(super) const fn seeded(seed: u64) -> Self {
        Self { state: seed, round: mix(seed) }
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Starts another round of polls.
    pub(super) const fn next_round(&mut self) {
        self.round = self.next();
    }

    /// Jitter of a lease; the same for neighbors within one round.
    pub(super) const fn at(&self, index: u32) -> u64 {
        mix(self.round ^ (index / NEIGHBORS) as u64)
    }
}

const fn mix(mut mixed: u64) -> u64 {
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
