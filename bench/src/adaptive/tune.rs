//! Intervals that follow the accesses: short ones where much is accessed, long ones where little is, towards a [`Goal`].

use super::{Attrs, Counters, Goal};
use isotherm_heat::Tiles;

/// A score of this is the goal met.
const MET: u64 = 10_000;

/// Accesses counted since the last tuning, next to all that could have been counted, both by size.
#[derive(Clone, Debug, Default)]
pub(super) struct Score {
    counted: u128,
    possible: u128,
    aggregations: u32,
}

impl Score {
    /// Adds an aggregation that has just ended.
    pub(super) fn add(&mut self, targets: &[Tiles<Counters>], max_nr_accesses: u32) {
        for tile in targets.iter().flat_map(Tiles::iter) {
            let bytes = u128::from(tile.range.len().0);
            self.counted += bytes * u128::from(tile.of.nr_accesses);
            self.possible += bytes * u128::from(max_nr_accesses);
        }
        self.aggregations = self.aggregations.saturating_add(1);
    }

    /// The intervals for the time to come, if it is time to tune; counting starts anew with them.
    pub(super) fn tune(&mut self, attrs: &Attrs) -> Option<Attrs> {
        let goal = attrs.goal.filter(|goal| self.aggregations >= goal.aggregations)?;
        let score = std::mem::take(self).of(&goal);
        Some(tuned(attrs, &goal, score)).filter(|new| new.sample_ns != attrs.sample_ns)
    }

    /// The share counted, in ten-thousandths of the goal.
    fn of(&self, goal: &Goal) -> u64 {
        let wanted = self.possible.saturating_mul(goal.access_bp.into()) / 10_000;
        u64::try_from(self.counted.saturating_mul(MET.into()) / wanted.max(1)).unwrap_or(u64::MAX)
    }
}

/// The next input of a loop that gave `score` for the input `last`: more of it if the score is below [`MET`], less if it is above,
/// in proportion to the distance, and as little as there is from twice the goal on.
fn feed_loop(last: u64, score: u64) -> u64 {
    const LEAST: u64 = 10_000;
    let change = |by: u64| u64::try_from(u128::from(last) * u128::from(by) / u128::from(MET)).unwrap_or(u64::MAX);
    match score {
        MET => last,
        below if below < MET => last.saturating_add(change(MET - below)),
        above if above < 2 * MET => last.saturating_sub(change(above - MET)).max(LEAST),
        _ => LEAST,
    }
}

/// Halves the intervals at most, and doubles them at most; the number of samples in an aggregation stays.
fn tuned(attrs: &Attrs, goal: &Goal, score: u64) -> Attrs {
    let adaptation = match feed_loop(100_000_000, score) / 10_000 {
        shorter @ ..=10_000 => 5_000 + shorter / 2,
        longer => longer,
    };
    let wanted = u128::from(attrs.sample_ns) * u128::from(adaptation) / 10_000;
    let sample_ns = u64::try_from(wanted).unwrap_or(u64::MAX).clamp(goal.min_sample_ns, goal.max_sample_ns);
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
    fn the_loop_goes_the_right_way() {
        let last = 900_000;
        assert!(feed_loop(last, 200) > last);
        assert!(feed_loop(last, 250_000_000) < last);
        assert!(feed_loop(last, 200) > feed_loop(last, 2_000));
        assert_eq!(feed_loop(last, 10_000), last);
        assert_eq!(feed_loop(last, 5_000), 1_350_000);
        assert_eq!(feed_loop(last, 15_000), 450_000);
        assert_eq!([feed_loop(last, 20_000), feed_loop(last, u64::MAX)], [10_000; 2]);
        assert_eq!(feed_loop(u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn intervals_double_halve_or_stay_within_bounds() {
        let sample = |score| tuned(&attrs(), &GOAL, score).sample_ns;
        assert_eq!([sample(0), sample(5_000), sample(10_000)], [10_000_000, 7_500_000, 5_000_000]);
        assert_eq!([sample(15_000), sample(20_000), sample(u64::MAX)], [3_750_000, 2_500_000, 2_500_000]);
        let at =
            |sample_ns, score| tuned(&Attrs { sample_ns, aggregation_ns: 20 * sample_ns, ..attrs() }, &GOAL, score);
        assert_eq!(at(800_000_000, 0).sample_ns, GOAL.max_sample_ns);
        assert_eq!(at(1_500_000, u64::MAX).sample_ns, GOAL.min_sample_ns);
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
        let all = score.clone().of(&GOAL);
        assert_eq!(all, 10_000, "a tenth of 24 / 60 is 4 %");
        assert_eq!(score.tune(&attrs), None, "so nothing changes");
        assert_eq!(score.possible, 0, "and counting starts anew");
        for _ in 0..3 {
            score.add(&target(0), 20);
        }
        assert_eq!(score.tune(&attrs).unwrap().sample_ns, 10_000_000);
    }

    #[test]
    fn nothing_to_watch_scores_nothing() {
        let mut score = Score::default();
        (0..3).for_each(|_| score.add(&[], 20));
        assert_eq!(score.of(&GOAL), 0);
    }
}
