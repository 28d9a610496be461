//! Randomness as an argument: a small generator seeded by the caller, so that every schedule can be replayed.
//!
//! SplitMix64 (Steele, Lea, Flood 2014). It only orders looks; nothing security-relevant uses it.

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that always gives the same numbers for the same seed.
    pub const fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n` (0 for `n` = 0) by multiply and shift; the bias is below `n` / 2^64.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_covers_the_range_evenly() {
        let mut rng = Rng::new(1);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[usize::try_from(rng.below(10)).unwrap()] += 1;
        }
        assert!(counts.iter().all(|c| (9_600..10_400).contains(c)), "{counts:?}");
        assert_eq!(rng.below(0), 0);
    }
}
