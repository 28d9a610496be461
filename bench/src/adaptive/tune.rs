//! The counts over the aggregations of a [`Goal`], and the new intervals, which `isotherm_heat::tune` computes.

use super::{Attrs, Counters, Goal};
use isotherm_heat::Tiles;
use isotherm_heat::tune::Observed;

/// Accesses counted since the last tuning, and the maximum that could have been counted, both weighted by size.
#[derive(Clone, Debug, Default)]
pub(super) struct Score {
    observed: Observed,
    aggregations: u32,
}

impl Score {
    /// Adds an aggregation that has just ended.
    pub(super) fn add(&mut self, targets: &[Tiles<Counters>], max_nr_accesses: u32) {
        for tile in targets.iter().flat_map(Tiles::iter) {
            let bytes = u128::from(tile.range.len().0);
            self.observed.counted += bytes * u128::from(tile.of.nr_accesses);
            self.observed.possible += bytes * u128::from(max_nr_accesses);
        }
        self.aggregations = self.aggregations.saturating_add(1);
    }

    /// The new intervals, if tuning is due. Counting then starts again.
    pub(super) fn tune(&mut self, attrs: &Attrs) -> Option<Attrs> {
        let goal = attrs.goal.filter(|goal| self.aggregations >= goal.aggregations)?;
        let observed = std::mem::take(self).observed;
        Some(tuned(attrs, &goal, observed)).filter(|new| new.sample_ns != attrs.sample_ns)
    }
}

/// The number of samples in an aggregation does not change.
fn tuned(attrs: &Attrs, goal: &Goal, observed: Observed) -> Attrs {
    let sample_ns = goal.interval().next_interval(attrs.sample_ns, observed);
    Attrs { sample_ns, aggregation_ns: sample_ns.saturating_mul(attrs.samples()), ..attrs.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::{Addr, AddrRange, Bytes};

    const GOAL: Goal = Goal { access_bp: 400, aggregations: 3, min_sample_ns: 1_000_000, max_sample_ns: 1_000_000_000 };

    fn attrs() -> Attrs {
        Attrs { goal: Some(GOAL), ..Attrs::default() }
    }

    /// 100 pages, a tenth of which was counted `nr_accesses` times.
    fn target(nr_accesses: u32) -> [Tiles<Counters>; 1] {
        let range = |from: u64, to: u64| AddrRange::new(Addr(from), Addr(to));
        let mut tiles = Tiles::new();
        tiles.refit(&[range(0, 10), range(10, 100)], Bytes(1), |_| Counters::default());
        tiles.iter_mut().next().unwrap().1.nr_accesses = nr_accesses;
        [tiles]
    }

    #[test]
    fn an_aggregation_stays_twenty_samples() {
        // 4% of 10,000 is 400: none of it, half, just that, one and a half, twice.
        let sample = |counted| tuned(&attrs(), &GOAL, Observed { counted, possible: 10_000 }).sample_ns;
        assert_eq!([sample(0), sample(200), sample(400)], [10_000_000, 7_500_000, 5_000_000]);
        assert_eq!([sample(600), sample(800), sample(u128::MAX)], [3_750_000, 2_500_000, 2_500_000]);
        let at = |sample_ns, counted| {
            let attrs = Attrs { sample_ns, aggregation_ns: 20 * sample_ns, ..attrs() };
            tuned(&attrs, &GOAL, Observed { counted, possible: 10_000 })
        };
        assert_eq!(at(800_000_000, 0).sample_ns, GOAL.max_sample_ns);
        assert_eq!(at(1_500_000, u128::MAX).sample_ns, GOAL.min_sample_ns);
        assert_eq!(at(800_000_000, 0).aggregation_ns, 20 * GOAL.max_sample_ns, "still twenty samples");
    }

    #[test]
    fn all_aggregations_are_scored_not_the_last_alone() {
        let mut score = Score::default();
        let attrs = attrs();
        score.add(&target(20), 20);
        assert_eq!(score.tune(&attrs), None);
        score.add(&target(4), 20);
        assert_eq!(score.tune(&attrs), None);
        score.add(&target(0), 20);
        let Observed { counted, possible } = score.observed;
        assert_eq!(counted * 10_000, possible * u128::from(GOAL.access_bp), "a tenth of 24 / 60 is 4 %");
        assert_eq!(score.tune(&attrs), None, "so nothing changes");
        assert_eq!(score.observed.possible, 0, "and counting starts anew");
        for _ in 0..3 {
            score.add(&target(0), 20);
        }
        assert_eq!(score.tune(&attrs).unwrap().sample_ns, 10_000_000);
    }

    #[test]
    fn nothing_to_watch_scores_nothing() {
        let mut score = Score::default();
        (0..3).for_each(|_| score.add(&[], 20));
        assert_eq!(score.observed, Observed::default());
        assert_eq!(score.tune(&attrs()).unwrap().sample_ns, 10_000_000, "so the interval doubles");
    }
}
