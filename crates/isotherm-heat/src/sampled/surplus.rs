//! The overall error of regions: what random checks found, less what their regions predicted.
//!
//! Checks at the ends of regions are no fair sample of what is between. And if there must be fewer regions than spans
//! of different heat, regions report too little or too much hot memory. A mean over random checks has neither fault,
//! but few checks. [`super::summary`] corrects by it. Only histograms are corrected, since the mean does not show where
//! the error is.

use super::mix::{Kinds, Mix};

/// The mean is over at least this many random checks, and over at most `ENOUGH_SAMPLE` plus two for each region.
const MIN_SAMPLE: f64 = 50.0;
const ENOUGH_SAMPLE: f64 = 3000.0;
/// After this many checks, half of the measured error is applied.
const ENOUGH_TO_TRUST: f64 = 500.0;

/// A fading mean of that error.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Surplus {
    /// What random checks found, less what was predicted, and the number of huge ranges that they stood for. Older checks
    /// fade.
    kinds: Kinds,
    stood_for: f64,
    compared: f64,
}

impl Surplus {
    /// Takes in what a random check that stands for `pmds` found, and what its region let `expect`. There are
    /// `regions` regions.
    pub fn compare(&mut self, found: &Mix, (pmds, expected): (f64, Mix), regions: usize) {
        self.compared += 1.0;
        // Early predictions were mostly wrong and have improved since, so only the last quarter of the checks counts.
        let sample = (self.compared / 4.0).clamp(MIN_SAMPLE, 2.0 * regions as f64 + ENOUGH_SAMPLE);
        let fading = 1.0 - 1.0 / sample;
        let old = std::mem::take(&mut self.kinds);
        self.kinds.add(&old, fading);
        self.kinds.add(&found.early().kinds(), pmds);
        self.kinds.add(&expected.kinds(), -pmds);
        self.stood_for = self.stood_for * fading + pmds;
    }

    /// Corrects the numbers by kind of `pages` pages.
    pub fn correct(&self, said: &mut Kinds, pages: u64) {
        if self.stood_for > 0.0 {
            // A few random checks say less than all checks together say through the regions.
            let trust = self.compared / (self.compared + ENOUGH_TO_TRUST);
            said.correct(&self.kinds, trust * pages as f64 / self.stood_for);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mix::{OUTCOMES, READS};
    use super::*;
    use crate::Interval;

    fn mix(hot: u32) -> Mix {
        let mut counts = [0; OUTCOMES];
        (counts[0], counts[READS]) = (hot, 100 - hot);
        Mix::of_counts(counts)
    }

    /// How many of 1,000 pages are hot, where regions said 100, after so many looks that found `hot` percent where a tenth was expected.
    fn corrected(checks: usize, hot: u32) -> f64 {
        let mut surplus = Surplus::default();
        for _ in 0..checks {
            surplus.compare(&mix(hot), (4.0, mix(10)), 100);
        }
        let mut said = Kinds::default();
        said.add(&mix(10).kinds(), 1000.0);
        surplus.correct(&mut said, 1000);
        said.intervals().filter(|(i, ..)| *i < Interval::from_ns(1_000_000_000)).map(|(.., pages)| pages).sum()
    }

    #[test]
    fn what_was_found_is_believed_by_half_after_500_looks() {
        assert!((corrected(0, 30) - 100.0).abs() < 1e-3, "nothing was compared");
        assert!((corrected(500, 30) - 200.0).abs() < 1e-3, "{}", corrected(500, 30));
        assert!((corrected(4500, 30) - 280.0).abs() < 1e-3, "nine tenths: {}", corrected(4500, 30));
        assert!((corrected(4500, 10) - 100.0).abs() < 1e-3, "as expected");
    }
}
