//! The working set: how much is accessed at least once in a window, from intervals that come from a check or two.
//!
//! A check shows the time to one access (`pmd`). Where accesses are at random that time is exponential, so an observation is off by a factor of
//! 3.6 either way (one standard deviation, 1.85 octaves). Of pages with 1.5 accesses a second, 40% seem to have less than one, and of those with
//! 0.7 as many seem to have more. Counted page by page ([`Histogram::within_ns`]), a working set is right only where as many pages lie a little
//! above the bound as below it.
//!
//! All observations together show more. We look for the shares of rates under which they are most likely, by expectation maximization
//! (Dempster, Laird and Rubin 1977). For a histogram with a known blur that is Richardson's and Lucy's algorithm (1972, 1974). The blur is that of
//! one check; further ones are averaged in and leave a little less, which makes no difference of note. Accesses at regular intervals leave less,
//! too: the result may be a tenth too large then. We accept that: on servers they are the exception, and counting is off by more where they are not.
//!
//! It says how many, never which. Regions, heat maps and the order of actions go by each page's own interval.

use crate::target::FIRST_READ;
use crate::{Granularity, Histogram, Interval, Ns, STEPS_PER_OCTAVE, TargetHeat};

/// Longer windows are counted: beyond a few times the window there have to be intervals that were measured. A page that was never seen accessed has
/// 8 s or more ([`Interval::extrapolated`]).
const MAX_WINDOW: Ns = 2_000_000_000;
/// Reads of a check, each at twice the distance of the one before. An access comes before one of them, or after the last.
const READS: usize = 10;
const BINS: usize = READS + 1;
/// Rates that are looked for: none at all, and half octaves around one access in a window.
const HALF_OCTAVES_BELOW: i32 = 12;
const RATES: usize = 27;
/// More of them follow the noise, fewer leave some of the blur.
const ROUNDS: usize = 30;

impl TargetHeat {
    /// The working set: how many pages are accessed at least once every `window_ns`. It follows from the observations of all pages
    /// ([`Histogram::expected_within_ns`]) if they are checked one by one; otherwise those are counted whose interval is as short as that.
    pub fn working_set(&self, window_ns: Ns) -> u64 {
        self.within(&self.temperature, window_ns)
    }

    /// The same with pages behind huge pages as they were ([`TargetHeat::by_estimate`]).
    pub fn working_set_by_estimate(&self, window_ns: Ns) -> u64 {
        self.within(self.by_estimate(), window_ns)
    }

    fn within(&self, temperature: &Histogram, window_ns: Ns) -> u64 {
        let is_checked = self.granularity == Granularity::Page && self.regions.iter().all(|r| r.sampled_pages == 0);
        if is_checked { temperature.expected_within_ns(window_ns) } else { temperature.within_ns(window_ns) }
    }
}

impl Histogram {
    /// Measured pages that are accessed at least once every `window_ns`, if each interval comes from the time to one random access. About 10 us.
    ///
    /// The same as [`Histogram::within_ns`] if the window is longer than 2 s, or if no interval is within a factor of four of it.
    pub fn expected_within_ns(&self, window_ns: Ns) -> u64 {
        let near = self.within_ns(window_ns.saturating_mul(4)) - self.within_ns(window_ns / 4);
        if window_ns > MAX_WINDOW || near == 0 {
            return self.within_ns(window_ns);
        }
        let expected = self.measured() as f64 * share_at_or_above(&observations(self), window_ns);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the pages")]
        let expected = expected.round() as u64;
        // What seems to be accessed once in eight windows at the most is hardly accessed in each.
        expected.min(self.within_ns(window_ns.saturating_mul(8)))
    }
}

/// When a check's reads are.
fn read_at(read: usize) -> Ns {
    FIRST_READ << read
}

/// Measured pages by the read before which the access came.
fn observations(temperature: &Histogram) -> [f64; BINS] {
    let mut bins = [0.0; BINS];
    for (interval, pages) in temperature.iter() {
        let Some(step) = interval.step() else { continue };
        bins[bin_of(step)] += pages as f64;
    }
    bins
}

/// The read whose observations have an interval nearest to `step`.
fn bin_of(step: u8) -> usize {
    // Between a read at `hi` and the one before, the interval is taken for the square root of 2 times `hi` (`pmd::estimate_octaves`).
    let first = Interval::from_ns(FIRST_READ).step().unwrap_or(0) + STEPS_PER_OCTAVE / 2;
    let above = (step + STEPS_PER_OCTAVE / 2).saturating_sub(first);
    usize::from(above / STEPS_PER_OCTAVE).min(READS)
}

/// The share of pages that are accessed once in a window or more often, of the distribution of rates that fits the observations.
fn share_at_or_above(observed: &[f64; BINS], window_ns: Ns) -> f64 {
    let rates: [f64; RATES] = std::array::from_fn(|index| rate(index, window_ns));
    let likely = rates.map(likelihood);
    let pages = observed.iter().sum::<f64>().max(1.0);
    // What was not accessed by the last read most probably never is.
    let never = observed[READS] / pages;
    let mut share = [(1.0 - never) / (RATES - 1) as f64; RATES];
    share[0] = never;
    for _ in 0..ROUNDS {
        share = next(&share, &likely, observed);
    }
    rates.iter().zip(share).filter(|(rate, _)| **rate * window_ns as f64 >= 1.0).map(|(_, share)| share).sum()
}

/// Accesses a nanosecond. None of them is just one in a window, so that each is on one side.
fn rate(index: usize, window_ns: Ns) -> f64 {
    let Some(half_octaves) = i32::try_from(index).ok().and_then(|i| (i > 0).then(|| i - 1 - HALF_OCTAVES_BELOW)) else {
        return 0.0;
    };
    (f64::from(half_octaves) / 2.0 + 0.25).exp2() / window_ns as f64
}

/// How likely it is that the first access of pages with this rate comes before each read, and not before the read before; and after the last.
fn likelihood(rate: f64) -> [f64; BINS] {
    let later_than = |read: usize| (-rate * read_at(read) as f64).exp();
    let mut before = 1.0;
    std::array::from_fn(|bin| {
        let after = if bin == READS { 0.0 } else { later_than(bin) };
        std::mem::replace(&mut before, after) - after
    })
}

/// A round of expectation maximization: the share of each rate in what was observed, if shares are as they were found so far.
fn next(share: &[f64; RATES], likely: &[[f64; BINS]; RATES], observed: &[f64; BINS]) -> [f64; RATES] {
    let mut weight = [0.0; RATES];
    for (bin, pages) in observed.iter().enumerate().filter(|(_, pages)| **pages > 0.0) {
        let of_rate: [f64; RATES] = std::array::from_fn(|index| share[index] * likely[index][bin]);
        let sum: f64 = of_rate.iter().sum();
        for (weight, of_rate) in weight.iter_mut().zip(of_rate) {
            *weight += pages * of_rate / sum.max(f64::MIN_POSITIVE);
        }
    }
    let sum = weight.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    weight.map(|weight| weight / sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mask, PageHeat, Rng};

    const MS: Ns = 1_000_000;
    const S: Ns = 1_000_000_000;

    /// What checks show of pages, by octaves of their rate in Hz and how many there are. Each is accessed at random, or regularly, and checked once
    /// to three times. How many are accessed once a second or more often, too.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "seconds are positive, and end at 2^64 ns"
    )]
    fn checked(octaves: &[(i32, u64)], regular: bool, seed: u64) -> (Histogram, u64) {
        let (mut temperature, mut hot, mut checks) = (Histogram::default(), 0, 0);
        let mut rng = Rng::new(seed);
        let mut uniform = move || (rng.below(1 << 30) as f64 + 0.5) / f64::from(1 << 30);
        for (octave, pages) in octaves {
            for _ in 0..*pages {
                let hz = (f64::from(*octave) + uniform()).exp2();
                hot += u64::from(hz >= 1.0);
                let mut page = PageHeat::new((0..1).collect());
                let mut now = S;
                checks = checks % 3 + 1;
                for _ in 0..checks {
                    let left_s = if regular { uniform() / hz } else { -uniform().ln() / hz };
                    now = check(&mut page, now, (left_s * 1e9) as Ns);
                }
                let mut runs = Vec::new();
                page.runs(now, &mut runs);
                temperature.add(runs[0].interval, 1);
            }
        }
        (temperature, hot)
    }

    /// A check of 20 s of a page that is next accessed so long after its clear.
    fn check(page: &mut PageHeat, now: Ns, left: Ns) -> Ns {
        let only: Mask = (0..1).collect();
        page.set_cleared(now, only);
        for distance in (0..12).map(read_at) {
            let young = if left <= distance { only } else { Mask::NONE };
            page.read(now + distance, young, only);
            if left <= distance {
                break;
            }
        }
        now + 21 * S
    }

    fn error(pages: u64, truth: u64) -> f64 {
        (pages as f64 / truth as f64 - 1.0) * 100.0
    }

    #[test]
    fn each_observation_falls_before_its_read() {
        let of = |ns| bin_of(Interval::from_ns(ns).step().unwrap());
        // What a read at 10, 20, 40 ... ms makes of an access since the one before.
        let observed = [14, 28, 57, 113, 226, 453, 905, 1810, 3620, 7241].map(|ms| of(ms * MS));
        assert_eq!(observed, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!([of(MS), of(10_300 * MS), of(3600 * S)], [0, READS, READS]);
    }

    #[test]
    fn what_is_likely_of_each_rate_adds_up() {
        for index in 0..RATES {
            let sum: f64 = likelihood(rate(index, S)).iter().sum();
            assert!((sum - 1.0).abs() < 1e-9, "{index}: {sum}");
        }
        assert_eq!(likelihood(0.0)[READS], 1.0, "what is never accessed is not before the last read");
        // One access in 640 ms: before the read at 640 ms, and not before 320.
        let half = likelihood(1.0 / 640e6)[6];
        assert!((half - ((-0.5_f64).exp() - (-1.0_f64).exp())).abs() < 1e-9, "{half}");
    }

    /// The error in percent of the estimate, and of what is counted.
    #[test]
    fn a_working_set_is_right_where_many_pages_are_on_one_side_of_the_bound() {
        let busy = [(-3, 400), (-2, 1000), (-1, 1700), (0, 4600), (1, 6200), (2, 6000), (3, 4000), (4, 2200)];
        let with_idle = [&busy[..], &[(-20, 40_000)]].concat();
        let mostly_warm = [(2, 800), (1, 2000), (0, 3400), (-1, 9200), (-2, 12_400), (-3, 12_000), (-4, 8000)];
        let (hot, hot_and_warm) = (vec![(4, 5000), (-20, 20_000)], vec![(4, 4000), (-2, 12_000)]);
        let cases = [
            (busy.to_vec(), -12.0..-7.0, 4.0),
            (with_idle, -12.0..-7.0, 4.0),
            (mostly_warm.to_vec(), 50.0..100.0, 20.0),
            (hot, -0.5..0.5, 0.5),
            (hot_and_warm, 20.0..80.0, 15.0),
        ];
        for (seed, (octaves, counted_off, off)) in (1..).zip(cases) {
            let (temperature, truth) = checked(&octaves, false, seed);
            let counted = error(temperature.within_ns(S), truth);
            let estimate = error(temperature.expected_within_ns(S), truth);
            assert!(counted_off.contains(&counted), "seed {seed}, {octaves:?}: counted {counted:+.1}%");
            assert!(estimate.abs() < off, "seed {seed}, {octaves:?}: {estimate:+.1}%, counted {counted:+.1}%");
        }
    }

    #[test]
    fn regular_accesses_make_it_a_tenth_too_large_at_most_where_it_was_right() {
        let busy = [(-3, 400), (-2, 1000), (-1, 1700), (0, 4600), (1, 6200), (2, 6000), (3, 4000), (4, 2200)];
        let (temperature, truth) = checked(&busy, true, 9);
        let estimate = error(temperature.expected_within_ns(S), truth);
        assert!((0.0..11.0).contains(&estimate), "{estimate:+.1}%");
        let (temperature, truth) = checked(&[(4, 3000), (-20, 9000)], true, 10);
        assert_eq!(temperature.expected_within_ns(S), truth);
    }

    #[test]
    fn what_lies_far_from_the_bound_is_counted_and_so_are_long_windows() {
        let mut h = Histogram::default();
        for (ms, pages) in [(100, 30), (5000, 60), (100_000, 500)] {
            h.add(Interval::from_ns(ms * MS), pages);
        }
        h.add(Interval::UNMEASURED, 1000);
        assert_eq!([S, 60 * S].map(|window| h.expected_within_ns(window)), [30, 90]);
        assert_eq!(Histogram::default().expected_within_ns(S), 0);
        h.add(Interval::from_ns(1800 * MS), 10);
        assert_eq!(h.expected_within_ns(10 * S), 100);
        assert!((20..=40).contains(&h.expected_within_ns(S)), "{}", h.expected_within_ns(S));
    }
}
