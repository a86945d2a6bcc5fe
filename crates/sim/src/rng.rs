//! The only source of randomness in a run: the same seed gives the same run.

/// Random number generator (splitmix64).
#[derive(Clone, Debug)]
pub struct SimRng(u64);

impl SimRng {
    /// Generator for a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x6a09_e667_f3bc_c908)
    }

    /// The next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..count`.
    pub const fn below(&mut self, count: u64) -> u64 {
        if count == 0 { 0 } else { self.draw() % count }
    }

    /// From `min` to `max`, inclusive.
    pub const fn between(&mut self, min: u64, max: u64) -> u64 {
        min + self.below(max - min + 1)
    }

    /// True with probability 1/`times`.
    pub const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_and_different_seeds_do_not() {
        let draw = |seed| {
            let mut rng = SimRng::new(seed);
            [rng.draw(), rng.draw(), rng.between(5, 9)]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!((5..=9).contains(&draw(7)[2]));
    }
}
