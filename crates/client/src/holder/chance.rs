//! Chance for jitter: holders that started together must not go on asking together.

/// So many neighbours are renewed in step. They lie together in memory and go in one message; their client's other leases
/// and other clients go at other times.
const IN_STEP: u32 = 1_024;

/// A small generator (SplitMix64); nothing secret hangs on it.
#[derive(Debug)]
pub(super) struct Chance {
    state: u64,
    /// What is drawn from now, for all who are looked at together.
    round: u64,
}

impl Chance {
    /// Seeded by the kernel, or by the clock where the kernel gives nothing.
    pub(super) fn drawn(otherwise: u64) -> Self {
        let mut seed = [0; 8];
        match rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::NONBLOCK) {
            Ok(8) => Self::seeded(u64::from_ne_bytes(seed)),
            _ => Self::seeded(otherwise),
        }
    }

    pub(super) const fn seeded(seed: u64) -> Self {
        Self { state: seed, round: mix(seed) }
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Others are looked at together from now on.
    pub(super) const fn another_round(&mut self) {
        self.round = self.next();
    }

    /// The same for neighbours who are looked at together.
    pub(super) const fn at(&self, place: u32) -> u64 {
        mix(self.round ^ (place / IN_STEP) as u64)
    }
}

const fn mix(mut mixed: u64) -> u64 {
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
