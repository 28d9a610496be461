//! Miss rates of a node's frames: where they are, and in random placements.

use crate::direct_mapped::{DirectMapped, Footprint, Misses, Shuffle, Spread, coloured, coloured_by_heat, unavoidable};
use crate::progress::{Progress, Stopped};
use crate::report::{DrawnRate, PlacementRates};
use isotherm_rng::Rng;
use isotherm_units::Bytes;

/// Number of shuffles drawn. With 20, the standard error of their mean is about a quarter of their spread.
pub(crate) const SHUFFLES: u32 = 20;
/// Number of even spreads drawn. They differ by heat only, and only slightly.
const SPREADS: u32 = 5;

/// The frames of a node, behind its cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFrames<'a> {
    pub footprint: &'a Footprint,
    pub cache: DirectMapped,
    /// The node's memory, in which a shuffle places blocks.
    pub memory: Bytes,
}

/// Draws placements. One generator serves all nodes, so that the draws of each node are independent.
pub(crate) struct Draws<'a> {
    pub rng: Rng,
    pub progress: &'a mut dyn Progress,
}

impl Draws<'_> {
    /// Rates where the frames are, which `placed` contains, and elsewhere; `None` if nothing is accessed.
    pub fn rates(&mut self, behind: NodeFrames<'_>, placed: &Misses) -> Result<Option<Rates>, Stopped> {
        let NodeFrames { footprint, cache, memory } = behind;
        let (Some(placed_rate), Some(unavoidable)) = (placed.rate(), unavoidable(footprint, cache)) else {
            return Ok(None);
        };
        let mut shuffle = Shuffle::new(memory, footprint);
        // All draws are equal if all frames have the same weight.
        let spreads = if footprint.is_uniform() { 1 } else { SPREADS };
        self.progress.begin(u64::from(SHUFFLES + spreads));
        let shuffled = self.draw(SHUFFLES, |rng| shuffle.draw(footprint, cache, rng))?;
        let coloured = self.draw(spreads, |rng| coloured(footprint, cache, rng))?;
        self.progress.end();
        Ok(Some(Rates {
            placed: placed_rate,
            shuffled,
            coloured,
            coloured_by_heat: coloured_by_heat(footprint, cache).rate().unwrap_or_default(),
            unavoidable,
            crowded: placed.crowded_share().unwrap_or_default(),
        }))
    }

    fn draw(&mut self, times: u32, mut one: impl FnMut(&mut Rng) -> Misses) -> Result<Vec<f64>, Stopped> {
        let mut rates = Vec::new();
        for _ in 0..times {
            if self.progress.is_stopped() {
                return Err(Stopped);
            }
            rates.push(one(&mut self.rng).rate().unwrap_or_default());
            self.progress.step();
        }
        Ok(rates)
    }
}

/// Miss rates, 0 to 1, one entry per draw: the draws of several nodes are added before their spread is computed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    pub placed: f64,
    pub shuffled: Vec<f64>,
    pub coloured: Vec<f64>,
    pub coloured_by_heat: f64,
    pub unavoidable: f64,
    pub crowded: f64,
}

impl Rates {
    /// Adds `other`, multiplied by `share`.
    pub fn add(&mut self, share: f64, other: &Rates) {
        let add_all = |sums: &mut Vec<f64>, rates: &[f64]| {
            sums.resize(sums.len().max(rates.len()), 0.0);
            sums.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += share * rate);
        };
        self.placed += share * other.placed;
        add_all(&mut self.shuffled, &other.shuffled);
        add_all(&mut self.coloured, &other.coloured);
        self.coloured_by_heat += share * other.coloured_by_heat;
        self.unavoidable += share * other.unavoidable;
        self.crowded += share * other.crowded;
    }

    /// The share of shuffles that miss less than the frames as placed; `None` if nothing was drawn.
    fn below_placed(&self) -> Option<f64> {
        let below = self.shuffled.iter().filter(|rate| **rate < self.placed).count();
        (!self.shuffled.is_empty()).then(|| below as f64 / self.shuffled.len() as f64)
    }

    /// In percent; `None` if nothing was drawn.
    pub fn to_report(&self) -> Option<PlacementRates> {
        let pct = |rate: f64| rate * 100.0;
        let drawn = |rates: &[f64]| {
            let mut spread = Spread::default();
            rates.iter().for_each(|rate| spread.add(*rate));
            Some(DrawnRate {
                mean_pct: pct(spread.mean()?),
                min_pct: pct(spread.least()?),
                max_pct: pct(spread.most()?),
                draws: spread.draws(),
            })
        };
        Some(PlacementRates {
            placed_pct: pct(self.placed),
            shuffled: drawn(&self.shuffled)?,
            shuffled_below_placed_pct: pct(self.below_placed()?),
            coloured: drawn(&self.coloured)?,
            coloured_by_heat_pct: pct(self.coloured_by_heat),
            unavoidable_pct: pct(self.unavoidable),
            crowded_pct: pct(self.crowded),
        })
    }
}

/// The rates of all nodes together, each weighted by its accesses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Total {
    /// Total weight of the frames behind a cache.
    pub weight: f64,
    nodes: Vec<(f64, Rates)>,
}

impl Total {
    pub fn add(&mut self, weight: f64, rates: &Rates) {
        self.weight += weight;
        self.nodes.push((weight, rates.clone()));
    }

    /// `None` if nothing behind a cache is accessed.
    pub fn rates(&self) -> Option<PlacementRates> {
        let mut sum = Rates::default();
        for (weight, rates) in &self.nodes {
            sum.add(weight / self.weight, rates);
        }
        sum.to_report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_draws_below_is_of_those_that_miss_less() {
        let rates = Rates { placed: 0.3, shuffled: vec![0.1, 0.3, 0.2, 0.4], coloured: vec![0.1], ..Rates::default() };
        assert_eq!(rates.to_report().unwrap().shuffled_below_placed_pct, 50.0);
        assert!(Rates::default().to_report().is_none());
    }
}
