//! Seeded random numbers: one seed gives one sequence on every machine, and the sequences never change, because tests record
//! seeds.

/// The random number generator SplitMix64.
#[derive(Clone, Copy, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator for a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The state: a generator with this seed continues the sequence.
    pub const fn state(&self) -> u64 {
        self.0
    }

    /// An independent generator, seeded with the next number.
    pub const fn fork(&mut self) -> Self {
        Self(self.next_u64())
    }

    /// The next number.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// True with probability 1/`times`.
    pub const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A random element.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// A random element, by weight.
    pub fn weighted<T: Copy>(&mut self, items: &[(u64, T)]) -> T {
        let mut at = self.below(items.iter().map(|(weight, _)| weight).sum());
        for (weight, item) in items {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *item,
            }
        }
        unreachable!("the number is below the sum of the weights")
    }

    /// Puts the elements in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_published_algorithm() {
        // The first numbers of the reference implementation (https://prng.di.unimi.it/splitmix64.c) for the seed 1234567.
        let mut rng = SplitMix64::new(1_234_567);
        let first = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn weights_and_shuffles_keep_to_their_elements() {
        let mut rng = SplitMix64::new(7);
        for _ in 0..100 {
            assert_eq!(rng.weighted(&[(0, "never"), (3, "always"), (0, "never")]), "always");
        }
        let mut items: Vec<u32> = (0..50).collect();
        rng.shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
