//! How long the lock is held for a chunk: measured times drawn at random, or one constant time.

use super::error::DrainModelError;
use isotherm_rng::Rng;

/// Hold times to draw from, in ns.
#[derive(Clone, Debug)]
pub struct Holds {
    /// Sorted, and never empty.
    sorted: Vec<u32>,
}

impl Holds {
    /// One constant hold time.
    pub fn constant(ns: u32) -> Holds {
        Holds { sorted: vec![ns] }
    }

    /// Measured hold times, one for each chunk that was timed. All are equally likely. Needs at least one.
    pub fn samples(mut ns: Vec<u32>) -> Result<Holds, DrainModelError> {
        if ns.is_empty() {
            return Err(DrainModelError::NoHolds);
        }
        ns.sort_unstable();
        Ok(Holds { sorted: ns })
    }

    /// All hold times multiplied by a factor, such as 8 for instrumented frees, as with KASAN.
    pub fn scaled(&self, factor: f64) -> Result<Holds, DrainModelError> {
        let scale = |ns: &u32| {
            let scaled = (f64::from(*ns) * factor).round();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds")]
            (factor > 0.0 && (0.0..=f64::from(u32::MAX)).contains(&scaled)).then_some(scaled as u32)
        };
        let sorted: Option<Vec<u32>> = self.sorted.iter().map(scale).collect();
        Ok(Holds { sorted: sorted.ok_or(DrainModelError::Factor(factor))? })
    }

    /// A random hold time.
    #[inline]
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        let at = rng.below(self.sorted.len() as u64);
        u64::from(self.sorted[usize::try_from(at).unwrap_or(0)])
    }

    /// The length of *a hold* where waits are counted in holds. It is the median and not the maximum: the maximum is
    /// usually an outlier, and every wait would look short compared with it.
    pub fn median_ns(&self) -> u64 {
        self.percentile_ns(50)
    }

    /// The hold time that `percent` percent of the samples do not exceed; 100 for the longest.
    pub fn percentile_ns(&self, percent: u32) -> u64 {
        let last = self.sorted.len() - 1;
        u64::from(self.sorted[(last * percent.min(100) as usize).div_ceil(100)])
    }

    /// The mean.
    pub fn mean_ns(&self) -> f64 {
        self.sorted.iter().map(|&ns| f64::from(ns)).sum::<f64>() / self.sorted.len() as f64
    }
}
