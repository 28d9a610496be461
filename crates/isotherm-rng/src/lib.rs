//! Randomness as an argument: a small generator seeded by the caller, so that every schedule can be replayed.
//!
//! Nothing security-relevant uses it. It orders access checks and picks the page to sample in each region. The second
//! use decided the choice: it runs once for each region and sample, 200,000 times in a few milliseconds. So there is
//! one generator for each context, without a lock. Its state is one word. Each step depends on the previous one by a
//! single addition, so the processor works on several regions at once. Drawing a page in a region with it, and storing
//! the page, takes
//!
//! | generator | instructions | ns |
//! |---|---|---|
//! | wyrand (Wang Yi, 2019), this one | 14 | 1.6 |
//! | SplitMix64 (Steele, Lea, Flood, 2014) | 21 | 1.9 |
//! | xoshiro256++ (Blackman, Vigna, 2019) | 20 | 1.9 |
//! | lfsr113 (L'Ecuyer, 1999), two draws for 64 bits | 77 | 5.6 |
//!
//! (Instructions as counted by valgrind. Times at 20,000 regions, as measured by `bench-sampling`. At 200,000 regions,
//! memory decides and the first three are alike.) wyrand has a period of 2^64 and is reported to pass BigCrush and
//! PractRand. Not every 64-bit value occurs among its results, which does not matter for sampling pages. Its one
//! multiplication mixes neighbouring states poorly, so a seed goes through the finaliser of SplitMix64 first:
//! generators seeded with 1, 2, 3 are unrelated from their first number on.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

use isotherm_units::{Addr, AddrRange};

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that always gives the same numbers for the same seed.
    pub const fn new(seed: u64) -> Rng {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Rng(z ^ (z >> 31))
    }

    /// The next 64 bits.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = self.0 as u128 * (self.0 ^ 0xe703_7ed1_a0b4_28db) as u128;
        (product >> 64) as u64 ^ product as u64
    }

    /// A number below `n` (0 for `n` = 0), by multiply and shift.
    ///
    /// Of the 2^64 equally likely inputs, each result gets either the floor or the ceiling of 2^64 / `n`. So its
    /// probability differs from 1 / `n` by less than 2^-64, which is less than `n` / 2^64 of it. Powers of two are
    /// exact. For the 2^32 pages of 16 TiB that is one part in four thousand million, for the 2^52 pages of the whole
    /// address space one in 4,096.
    #[inline]
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// A number from 0 up to but not including 1, in steps of 2^-53.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub const fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A random address in `range`, which must not be empty. It is the start of a granule of 2^`granule_shift` bytes,
    /// drawn from all granules that the range overlaps, each with equal probability. If the range starts within that
    /// granule, it is the start of the range.
    ///
    /// Any range is allowed, from a part of a page to the whole address space.
    #[inline]
    pub const fn in_range(&mut self, range: AddrRange, granule_shift: u32) -> Addr {
        let first = range.start.0 >> granule_shift;
        let last = range.end.0.wrapping_sub(1) >> granule_shift;
        let addr = (first + self.below(last - first + 1)) << granule_shift;
        if addr < range.start.0 { range.start } else { Addr(addr) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::{PAGE_SHIFT, PAGE_SIZE, PMD_SHIFT, PMD_SIZE};

    const SEEDS: [u64; 8] = [0, 1, 2, 3, 0xdead_beef, 1 << 32, 1 << 63, u64::MAX];
    const BUCKETS: u64 = 64;
    const DRAWS: u64 = 20_000;

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

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut rng = Rng::new(42);
        let numbers: [u64; 4] = std::array::from_fn(|_| rng.next_u64());
        assert_eq!(
            numbers,
            [0x57ce_9f0f_b367_a6da, 0xd089_6df6_4775_c178, 0xa456_8876_599a_444c, 0x0cd4_3036_0c64_3e52]
        );
        let mut rng = Rng::new(0);
        assert_eq!(Rng::new(42).unit(), (numbers[0] >> 11) as f64 / 9_007_199_254_740_992.0);
        let range = AddrRange::new(Addr(0x7f00_0000_0000), Addr(0x7fff_0000_0000));
        let addrs: [Addr; 3] = std::array::from_fn(|_| rng.in_range(range, PAGE_SHIFT));
        assert_eq!(addrs, [Addr(0x7f78_d782_6000), Addr(0x7fbd_5c5e_8000), Addr(0x7fdb_abdc_5000)]);
    }

    /// Bounds that a chi-square of `dof` degrees leaves once in a million draws on either side (Wilson and Hilferty).
    fn chi_square_bounds(dof: f64) -> (f64, f64) {
        let (centre, width) = (1.0 - 2.0 / (9.0 * dof), 4.753 * (2.0 / (9.0 * dof)).sqrt());
        (dof * (centre - width).max(0.0).powi(3), dof * (centre + width).powi(3))
    }

    /// How many of `pages` fall into a bucket: those whose number times `buckets` over `pages` is `bucket`.
    fn share(pages: u64, buckets: u64, bucket: u64) -> f64 {
        let from = |b: u64| (u128::from(b) * u128::from(pages)).div_ceil(u128::from(buckets));
        (from(bucket + 1) - from(bucket)) as f64 / pages as f64
    }

    fn chi_square(
        pages: u64,
        buckets: u64,
        bucket_of: impl Fn(u64) -> u64,
        seed: u64,
        shares: impl Fn(u64) -> f64,
    ) -> f64 {
        let mut rng = Rng::new(seed);
        let range = AddrRange::new(Addr(PAGE_SIZE), Addr((pages + 1) << PAGE_SHIFT));
        let mut counts = vec![0_u32; usize::try_from(buckets).unwrap()];
        for _ in 0..DRAWS {
            let page = rng.in_range(range, PAGE_SHIFT).page().0 - 1;
            counts[usize::try_from(bucket_of(page)).unwrap()] += 1;
        }
        let term = |(bucket, &count): (usize, &u32)| {
            let expected = shares(bucket as u64) * DRAWS as f64;
            (f64::from(count) - expected).powi(2) / expected
        };
        counts.iter().enumerate().map(term).sum()
    }

    /// 7 spans, 8 seeds, two statistics with two bounds of one in a million each: a list of seeds drawn anew would fail once in
    /// 4,000 times. This list is fixed.
    #[test]
    fn pages_of_any_span_are_drawn_evenly() {
        // A few pages, 1 MiB, 4 GiB, more than that, 16 TiB, and 2^63 bytes.
        for pages in [2, 3, 256, 1 << 20, (1 << 20) + 77_777, 1 << 32, 1 << 51] {
            let buckets = pages.min(BUCKETS);
            let (low, high) = chi_square_bounds((buckets - 1) as f64);
            for seed in SEEDS {
                let by_place =
                    |page: u64| u64::try_from(u128::from(page) * u128::from(buckets) / u128::from(pages)).unwrap();
                let chi = chi_square(pages, buckets, by_place, seed, |b| share(pages, buckets, b));
                assert!(low <= chi && chi <= high, "{pages} pages, seed {seed}: {chi} not in {low} to {high}");
                let by_low_bits = |page: u64| page % buckets;
                let of_residue = |b: u64| (pages / buckets + u64::from(b < pages % buckets)) as f64 / pages as f64;
                let chi = chi_square(pages, buckets, by_low_bits, seed, of_residue);
                assert!(
                    low <= chi && chi <= high,
                    "{pages} pages, seed {seed}, low bits: {chi} not in {low} to {high}"
                );
            }
        }
    }

    #[test]
    fn first_numbers_of_neighbouring_seeds_are_spread_evenly() {
        let mut counts = [0_u32; 64];
        for seed in 0..64_000 {
            counts[usize::try_from(Rng::new(seed).below(64)).unwrap()] += 1;
        }
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - 1000.0).powi(2) / 1000.0).sum();
        let (low, high) = chi_square_bounds(63.0);
        assert!(low <= chi && chi <= high, "{chi}");
    }

    #[test]
    fn both_ends_are_reached_and_never_passed() {
        for seed in SEEDS {
            let mut rng = Rng::new(seed);
            let small = AddrRange::new(Addr(3 * PAGE_SIZE), Addr(8 * PAGE_SIZE));
            let drawn: Vec<u64> = (0..500).map(|_| rng.in_range(small, PAGE_SHIFT).page().0).collect();
            assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&7)));
            for end in [1 << 44, 1 << 63, u64::MAX] {
                let range = AddrRange::new(Addr(0), Addr(end));
                let drawn: Vec<u64> = (0..4_000).map(|_| rng.in_range(range, PAGE_SHIFT).0).collect();
                assert!(drawn.iter().all(|&a| a < end && a % PAGE_SIZE == 0));
                assert!(drawn.iter().any(|&a| a < end / 512) && drawn.iter().any(|&a| a > end - end / 512));
            }
        }
    }

    #[test]
    fn parts_of_granules_are_drawn_from_as_well() {
        let mut rng = Rng::new(1);
        let part = AddrRange::new(Addr(100), Addr(101));
        assert_eq!(rng.in_range(part, PAGE_SHIFT), Addr(100));
        let whole = AddrRange::new(Addr(0), Addr(u64::MAX));
        assert!((0..100).any(|_| rng.in_range(whole, 0).0 % 2 == 1), "bytes, exact over 64 bits");
        let three = AddrRange::new(Addr(PMD_SIZE - PAGE_SIZE), Addr(2 * PMD_SIZE + PAGE_SIZE));
        let mut pmds = [0_u32; 3];
        for _ in 0..3_000 {
            let addr = rng.in_range(three, PMD_SHIFT);
            assert!(three.contains(addr));
            pmds[usize::try_from(addr.pmd().0).unwrap()] += 1;
        }
        assert!(pmds.iter().all(|n| (850..1150).contains(n)), "{pmds:?}");
    }
}
