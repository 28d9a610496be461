//! What regions are off by on the whole: what looks drawn at random found, less what their regions let expect.
//!
//! Looks at the ends of regions are no fair sample of what is between, and regions that have to be fewer than the spans there are say too
//! little or too much of what is hot. A mean over random looks has neither fault, but few looks: [`super::summary`] corrects by it,
//! the histograms only, as it cannot say where.

use super::mix::{Kinds, Mix};

/// Random looks that a mean is taken over at the least, and, besides two for each region, at the most.
const LEAST_SAMPLE: f64 = 50.0;
const ENOUGH_SAMPLE: f64 = 3000.0;
/// After this many, half of what they say is believed.
const ENOUGH_TO_TRUST: f64 = 500.0;

/// A fading mean of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Surplus {
    /// What random looks found less what was expected, and the blocks that they stood for. Older ones fade.
    kinds: Kinds,
    stood_for: f64,
    compared: f64,
}

impl Surplus {
    /// Takes in what a random look that stands for `blocks` found, and what its region let `expect`; there are so many `regions`.
    pub fn compare(&mut self, found: &Mix, (blocks, expected): (f64, Mix), regions: usize) {
        self.compared += 1.0;
        // What was expected at first was mostly wrong and is known better by now: only the last quarter counts.
        let sample = (self.compared / 4.0).clamp(LEAST_SAMPLE, 2.0 * regions as f64 + ENOUGH_SAMPLE);
        let fading = 1.0 - 1.0 / sample;
        let old = std::mem::take(&mut self.kinds);
        self.kinds.add(&old, fading);
        self.kinds.add(&found.early().kinds(), blocks);
        self.kinds.add(&expected.kinds(), -blocks);
        self.stood_for = self.stood_for * fading + blocks;
    }

    /// Corrects what regions say of so many `pages`.
    pub fn correct(&self, said: &mut Kinds, pages: u64) {
        if self.stood_for > 0.0 {
            // A few looks drawn at random say less than what all looks together have made of the regions.
            let trust = self.compared / (self.compared + ENOUGH_TO_TRUST);
            said.put_right(&self.kinds, trust * pages as f64 / self.stood_for);
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
    fn corrected(looks: usize, hot: u32) -> f64 {
        let mut surplus = Surplus::default();
        for _ in 0..looks {
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
