//! How long the lock is held for a chunk: what was timed, replayed at random, or one length for all.

use super::error::HerdError;
use isotherm_rng::Rng;

/// Lengths of holds, in ns, to draw from.
#[derive(Clone, Debug)]
pub struct Holds {
    /// Sorted, and never empty.
    sorted: Vec<u32>,
}

impl Holds {
    /// All of one length.
    pub fn constant(ns: u32) -> Holds {
        Holds { sorted: vec![ns] }
    }

    /// Each as likely as the next: one sample for each chunk that was timed. At least one.
    pub fn samples(mut ns: Vec<u32>) -> Result<Holds, HerdError> {
        if ns.is_empty() {
            return Err(HerdError::NoHolds);
        }
        ns.sort_unstable();
        Ok(Holds { sorted: ns })
    }

    /// All of them times a factor: 8 for frees that are instrumented, as with KASAN.
    pub fn scaled(&self, factor: f64) -> Result<Holds, HerdError> {
        let scale = |ns: &u32| {
            let scaled = (f64::from(*ns) * factor).round();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds")]
            (factor > 0.0 && (0.0..=f64::from(u32::MAX)).contains(&scaled)).then_some(scaled as u32)
        };
        let sorted: Option<Vec<u32>> = self.sorted.iter().map(scale).collect();
        Ok(Holds { sorted: sorted.ok_or(HerdError::Factor(factor))? })
    }

    /// Any of them.
    #[inline]
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        let at = rng.below(self.sorted.len() as u64);
        u64::from(self.sorted[usize::try_from(at).unwrap_or(0)])
    }

    /// What is meant by *a hold* where waits are counted in holds. The middle one and not the longest: by the longest,
    /// which is the timing's outlier as a rule, every wait would look short.
    pub fn median_ns(&self) -> u64 {
        self.percentile_ns(50)
    }

    /// So many percent of them are no longer than this; 100 for the longest.
    pub fn percentile_ns(&self, percent: u32) -> u64 {
        let last = self.sorted.len() - 1;
        u64::from(self.sorted[(last * percent.min(100) as usize).div_ceil(100)])
    }

    /// The mean.
    pub fn mean_ns(&self) -> f64 {
        self.sorted.iter().map(|&ns| f64::from(ns)).sum::<f64>() / self.sorted.len() as f64
    }
}
