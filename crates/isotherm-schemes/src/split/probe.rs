//! What a few split huge pages show about all of them.
//!
//! Huge pages of a mapping are alike more often than not, and those of different mappings are not. So each mapping is probed by itself,
//! with at least [`MIN_PROBES`] huge pages drawn at random, and more in proportion to its size. The share of their pages that stays
//! idle estimates the share of the mapping's huge memory; its interval follows from how much the probes differ.
//!
//! Which huge pages are idle as a whole is known without a probe, by their own bits. So they are counted by themselves, and the probes among those
//! in use speak for those only ([`judge`]). Splitting these pays if most of their pages are unused. Idle ones can leave as a whole, and
//! splitting them pays only if most of their pages hold nothing but zeros.

use isotherm_heat::Rng;
use isotherm_units::{Addr, PAGES_PER_PMD, PmdNo};
use serde::Serialize;
use std::collections::BTreeMap;

/// Huge pages that are split of each mapping at least, as far as it has so many.
pub const MIN_PROBES: usize = 4;

/// What became of one split huge page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// Pages that the kernel gave back when it was split.
    pub returned: u16,
    /// Other pages that were not accessed for the age.
    pub idle: u16,
}

/// An estimate of a share, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ShareEstimate {
    /// The mean of the probes.
    pub mean: f64,
    /// Half of the 95% interval around it: 1 (nothing is known) below two probes, 0 if all were probed.
    pub half_interval: f64,
}

impl Probed {
    /// Whether none of its pages is in use.
    pub fn is_idle(self) -> bool {
        usize::from(self.returned + self.idle) >= PAGES_PER_PMD
    }
}

impl ShareEstimate {
    /// The lower end of the interval.
    pub fn lower_end(self) -> f64 {
        (self.mean - self.half_interval).max(0.0)
    }
}

/// What is known of the huge pages of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Judged {
    /// Huge pages that are idle as a whole.
    pub idle: usize,
    /// The share of all huge memory that is not in use.
    pub unused: ShareEstimate,
    /// The share of the memory of huge pages in use that is not in use itself.
    pub unused_of_used: ShareEstimate,
    /// The share of the memory of idle huge pages that holds nothing but zeros.
    pub zeros_of_idle: ShareEstimate,
}

/// What the probes of a mapping with `all` huge pages have shown, of which `idle` that were not probed are idle as a whole.
pub fn judge(probed: &[Probed], idle: usize, all: usize) -> Judged {
    let (idle_probes, used_probes): (Vec<Probed>, Vec<Probed>) = probed.iter().partition(|probe| probe.is_idle());
    let all_idle = idle + idle_probes.len();
    let used = all.saturating_sub(all_idle);
    let unused_of_used = estimate(&used_probes, used, |probe| probe.returned + probe.idle);
    let of_all = |share: f64| share * used as f64 / all.max(1) as f64;
    let unused = ShareEstimate {
        mean: all_idle as f64 / all.max(1) as f64 + of_all(unused_of_used.mean),
        half_interval: of_all(unused_of_used.half_interval),
    };
    Judged { idle: all_idle, unused, unused_of_used, zeros_of_idle: estimate(&idle_probes, all_idle, |p| p.returned) }
}

/// Which huge pages to split, of mappings with these huge pages: about `most` in all, by start of mapping.
pub fn choose(huge: &BTreeMap<Addr, Vec<PmdNo>>, most: usize, rng: &mut Rng) -> BTreeMap<Addr, Vec<PmdNo>> {
    let all: usize = huge.values().map(Vec::len).sum();
    let draw = |pmds: &Vec<PmdNo>| {
        let share = (most * pmds.len()).div_ceil(all.max(1));
        sample(pmds, share.max(MIN_PROBES), rng)
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

/// The share of the pages of `all` huge pages that `of` counts, by those probed.
fn estimate(probed: &[Probed], all: usize, of: impl Fn(&Probed) -> u16) -> ShareEstimate {
    let n = probed.len() as f64;
    if probed.is_empty() {
        return ShareEstimate { mean: 0.0, half_interval: if all > 0 { 1.0 } else { 0.0 } };
    }
    let shares: Vec<f64> = probed.iter().map(|probe| f64::from(of(probe)) / PAGES_PER_PMD as f64).collect();
    let mean = shares.iter().sum::<f64>() / n;
    if probed.len() >= all {
        return ShareEstimate { mean, half_interval: 0.0 };
    }
    if probed.len() == 1 {
        return ShareEstimate { mean, half_interval: 1.0 };
    }
    let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // Those that were probed are known, so only the others can differ.
    let rest = 1.0 - n / all as f64;
    ShareEstimate { mean, half_interval: (student(probed.len()) * (variance / n * rest).sqrt()).min(1.0) }
}

/// The factor of a 95% interval of a mean of `n` values: Student's t with n - 1 degrees of freedom, to 2%.
fn student(n: usize) -> f64 {
    const OF_2_TO_10: [f64; 9] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26];
    OF_2_TO_10.get(n.saturating_sub(2)).copied().unwrap_or_else(|| 1.96 + 2.6 / (n as f64 - 1.0))
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
        let of = |unused: &[u16], all| {
            let probes: Vec<Probed> = unused.iter().map(|n| probed(*n)).collect();
            estimate(&probes, all, |probe| probe.returned + probe.idle)
        };
        assert_eq!(of(&[256, 256, 256], 100), ShareEstimate { mean: 0.5, half_interval: 0.0 });
        assert_eq!(of(&[0, 512], 2), ShareEstimate { mean: 0.5, half_interval: 0.0 }, "all are known");
        assert_eq!(
            (of(&[512], 100).half_interval, of(&[], 100).half_interval, of(&[], 0).half_interval),
            (1.0, 1.0, 0.0)
        );
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
            let ShareEstimate { mean, half_interval } = estimate(&first, 400, |probe| probe.returned + probe.idle);
            within += u32::from((mean - truth).abs() <= half_interval);
        }
        assert!((925..=975).contains(&within), "{within} of 1,000, seed {seed}");
    }

    #[test]
    fn huge_pages_that_are_idle_as_a_whole_are_counted_by_themselves() {
        let [hot, half, idle] = [0, 256, 512].map(|unused| Probed { returned: 0, idle: unused });
        // A mapping of which nine of ten huge pages are idle, and the others in use all over: splitting these would not pay.
        let judged = judge(&[idle, idle, idle, hot, hot, hot], 87, 100);
        assert_eq!((judged.idle, judged.unused.mean, judged.unused.half_interval), (90, 0.9, 0.0));
        assert_eq!((judged.unused_of_used.lower_end(), judged.zeros_of_idle.lower_end()), (0.0, 0.0));
        // Half of each is in use.
        let judged = judge(&[half, half, half, half], 0, 100);
        assert_eq!((judged.unused.mean, judged.unused_of_used.lower_end(), judged.idle), (0.5, 0.5, 0));
        // Idle, and nothing but zeros.
        let zeros = Probed { returned: 500, idle: 12 };
        let judged = judge(&[zeros, zeros, hot], 47, 50);
        assert!(judged.zeros_of_idle.lower_end() > 0.97, "{judged:?}");
        assert_eq!(judge(&[], 0, 0), Judged::default());
        // Only idle ones were drawn: nothing is known of the others.
        let judged = judge(&[idle, idle], 6, 10);
        assert_eq!((judged.unused.mean, judged.unused.half_interval), (0.8, 0.2));
    }
}
