//! Chance for jitter: holders that started together must not go on asking together.

/// A small generator (SplitMix64); nothing secret hangs on it.
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    /// Seeded by the kernel, or by the clock where the kernel gives nothing.
    pub(super) fn drawn(otherwise: u64) -> Self {
        let mut seed = [0; 8];
        match rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::NONBLOCK) {
            Ok(8) => Self(u64::from_ne_bytes(seed)),
            _ => Self(otherwise),
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
