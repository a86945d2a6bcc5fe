//! Chance that a seed repeats. What the machine does between two draws is its own.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another source, as independent as the seed's.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in so many.
    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// In another order.
    pub fn shuffle<T>(&mut self, what: &mut [T]) {
        for i in (1..what.len()).rev() {
            what.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}
