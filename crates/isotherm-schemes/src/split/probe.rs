//! What a few split huge pages show about all of them.
//!
//! Huge pages of a mapping are alike more often than not, and those of different mappings are not. So each mapping is probed by itself,
//! with at least [`LEAST_PROBES`] huge pages drawn at random, and more in proportion to its size. The share of their pages that stays
//! idle estimates the share of the mapping's huge memory; its interval follows from how much the probes differ.

use isotherm_heat::Rng;
use isotherm_units::{Addr, PAGES_PER_PMD, PmdNo};
use std::collections::BTreeMap;

/// Huge pages that are split of each mapping at least, as far as it has so many.
pub const LEAST_PROBES: usize = 4;

/// What became of one split huge page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// Pages that the kernel gave back when it was split.
    pub returned: u16,
    /// Other pages that were not accessed for the age.
    pub idle: u16,
}

impl Probed {
    /// The share of its pages that is not in use.
    pub fn unused_share(self) -> f64 {
        f64::from(self.returned + self.idle) / PAGES_PER_PMD as f64
    }
}

/// An estimate of a share, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShareEstimate {
    /// The mean of the probes.
    pub mean: f64,
    /// Half of the 95% interval around it: 1 (nothing is known) below two probes, 0 if all were probed.
    pub half_interval: f64,
}

/// Which huge pages to split, of mappings with these huge pages: about `most` in all, by start of mapping.
pub fn choose(huge: &BTreeMap<Addr, Vec<PmdNo>>, most: usize, rng: &mut Rng) -> BTreeMap<Addr, Vec<PmdNo>> {
    let all: usize = huge.values().map(Vec::len).sum();
    let draw = |pmds: &Vec<PmdNo>| {
        let share = (most * pmds.len()).div_ceil(all.max(1));
        sample(pmds, share.max(LEAST_PROBES), rng)
    };
    huge.values().map(draw).zip(huge.keys()).map(|(drawn, start)| (*start, drawn)).collect()
}

/// Some of these at random, sorted.
fn sample(pmds: &[PmdNo], most: usize, rng: &mut Rng) -> Vec<PmdNo> {
    let mut left = pmds.to_vec();
    for at in 0..most.min(left.len()) {
        #[expect(clippy::cast_possible_truncation, reason = "below the length")]
        let other = at + rng.below((left.len() - at) as u64) as usize;
        left.swap(at, other);
    }
    left.truncate(most);
    left.sort_unstable();
    left
}

/// The share of a mapping's huge memory that is not in use, of which `all` huge pages were there and these were probed.
pub fn unused_share(probed: &[Probed], all: usize) -> ShareEstimate {
    let n = probed.len() as f64;
    if probed.is_empty() {
        return ShareEstimate { mean: 0.0, half_interval: 1.0 };
    }
    let mean = probed.iter().map(|p| p.unused_share()).sum::<f64>() / n;
    if probed.len() >= all {
        return ShareEstimate { mean, half_interval: 0.0 };
    }
    if probed.len() == 1 {
        return ShareEstimate { mean, half_interval: 1.0 };
    }
    let variance = probed.iter().map(|p| (p.unused_share() - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // Those that were probed are known, so only the others can differ.
    let rest = 1.0 - n / all as f64;
    ShareEstimate { mean, half_interval: (student(probed.len()) * (variance / n * rest).sqrt()).min(1.0) }
}

/// The factor of a 95% interval of a mean of `n` values: Student's t with n - 1 degrees of freedom, to 2%.
fn student(n: usize) -> f64 {
    const FEW: [f64; 9] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26];
    FEW.get(n.saturating_sub(2)).copied().unwrap_or_else(|| 1.96 + 2.6 / (n as f64 - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probed(unused: u16) -> Probed {
        Probed { returned: unused / 2, idle: unused - unused / 2 }
    }

    #[test]
    fn each_mapping_is_probed_in_proportion_and_no_huge_page_twice() {
        let span = |first: u64, pmds: u64| (Addr(first << 21), (first..first + pmds).map(PmdNo).collect::<Vec<_>>());
        let huge: BTreeMap<_, _> = [span(0, 1000), span(2000, 100), span(5000, 3)].into();
        let drawn = choose(&huge, 50, &mut Rng::new(3));
        let counts: Vec<usize> = drawn.values().map(Vec::len).collect();
        assert_eq!(counts, [46, 5, 3]);
        for (start, pmds) in &drawn {
            assert!(pmds.is_sorted() && pmds.windows(2).all(|pair| pair[0] != pair[1]));
            assert!(pmds.iter().all(|pmd| huge[start].contains(pmd)));
        }
        assert_ne!(drawn, choose(&huge, 50, &mut Rng::new(4)));
        assert_eq!(choose(&BTreeMap::new(), 50, &mut Rng::new(3)), BTreeMap::new());
    }

    #[test]
    fn the_interval_follows_from_how_much_the_probes_differ() {
        let of = |unused: &[u16], all| unused_share(&unused.iter().map(|n| probed(*n)).collect::<Vec<_>>(), all);
        assert_eq!(of(&[256, 256, 256], 100), ShareEstimate { mean: 0.5, half_interval: 0.0 });
        assert_eq!(of(&[0, 512], 2), ShareEstimate { mean: 0.5, half_interval: 0.0 }, "all are known");
        assert_eq!((of(&[512], 100).half_interval, of(&[], 100).half_interval), (1.0, 1.0));
        let few = of(&[0, 512, 0, 512], 1000);
        let many = of(&[0, 512].repeat(50), 1000);
        assert!(
            (0.85..=1.0).contains(&few.half_interval) && (0.09..0.10).contains(&many.half_interval),
            "{few:?} {many:?}"
        );
    }

    #[test]
    fn the_truth_lies_within_the_interval_nineteen_times_of_twenty() {
        let seed = 17;
        let mut rng = Rng::new(seed);
        let mut within = 0;
        for _ in 0..1000 {
            #[expect(clippy::cast_possible_truncation, reason = "below 513")]
            let all: Vec<u16> = (0..400).map(|_| rng.below(513) as u16).collect();
            let truth = all.iter().map(|n| f64::from(*n)).sum::<f64>() / 400.0 / 512.0;
            let first: Vec<Probed> = all[..12].iter().map(|n| probed(*n)).collect();
            let ShareEstimate { mean, half_interval } = unused_share(&first, 400);
            within += u32::from((mean - truth).abs() <= half_interval);
        }
        assert!((925..=975).contains(&within), "{within} of 1,000, seed {seed}");
    }
}
