//! Whether accessed memory is in spans longer than the distances of the survey.
//!
//! Between two accessed huge ranges of the survey, memory is accessed if one span has both of them. It need not: with
//! accessed spans of a few MiB all over, two neighbours are accessed by chance, and what lies between is idle. The
//! survey itself shows which it is: how many neighbours of an accessed huge range are accessed, compared with how many
//! would be by chance. Spans whose ends are independent of each other (a process of two states, without memory) have a
//! correlation that falls by its square root over half of a distance, which gives the probability for the middle.
//! `survey` estimates nothing as accessed where that is small. What is idle on both sides is estimated in any case:
//! most memory is idle.

use super::Sketch;
use crate::pmd_map::PmdMap;
use isotherm_units::PmdNo;

/// From this probability on, what lies in the middle between two accessed huge ranges is estimated to be accessed.
const PROBABLE: f64 = 0.9;
/// Pairs that are more than chance gives count only from so many of its standard deviations on.
const DEVIATIONS: f64 = 2.0;

/// The huge ranges of the survey, and how their neighbours compare.
#[derive(Debug)]
pub(super) struct Clustering {
    points: PmdMap<Sketch>,
    accessed: usize,
    /// Neighbours of which both are accessed, alike.
    alike: usize,
    /// Neighbours of which one is accessed, or both are at intervals that differ.
    differing: usize,
}

impl Clustering {
    pub fn new() -> Clustering {
        Clustering { points: PmdMap::new(), accessed: 0, alike: 0, differing: 0 }
    }

    /// Takes in a huge range of the survey. O(log n).
    pub fn note(&mut self, pmd: PmdNo, sketch: Sketch) {
        self.forget(pmd);
        let (left, right) = self.neighbours(pmd);
        self.count_pair(left, right, false);
        self.points.insert(pmd, sketch);
        self.accessed += usize::from(is_accessed(sketch));
        self.count_pair(left, Some(sketch), true);
        self.count_pair(Some(sketch), right, true);
    }

    /// Forgets one that is gone.
    pub fn forget(&mut self, pmd: PmdNo) {
        let Some(sketch) = self.points.remove(pmd) else { return };
        let (left, right) = self.neighbours(pmd);
        self.accessed -= usize::from(is_accessed(sketch));
        self.count_pair(left, Some(sketch), false);
        self.count_pair(Some(sketch), right, false);
        self.count_pair(left, right, true);
    }

    pub fn clear(&mut self) {
        *self = Clustering::new();
    }

    /// Whether memory between two accessed neighbours is accessed too, most probably.
    pub fn fills_gaps(&self) -> bool {
        self.probability_between() >= PROBABLE
    }

    /// That the middle between two accessed neighbours is accessed.
    fn probability_between(&self) -> f64 {
        if self.points.is_empty() {
            return 0.0;
        }
        let share = self.accessed as f64 / self.points.len() as f64;
        // So many pairs are found where accessed memory is in no span at all, give or take.
        let by_chance = self.accessed as f64 * share;
        let alike = 2.0 * (self.alike as f64 - DEVIATIONS * by_chance.sqrt() * (1.0 - share)).max(0.0);
        let next = alike / (alike + self.differing as f64).max(1.0);
        if next <= share {
            return share;
        }
        // `next` is above `share` and at most 1, so `share` is below 1.
        let correlation = (next - share) / (1.0 - share);
        (share + (1.0 - share) * correlation.sqrt()).powi(2) / next
    }

    fn neighbours(&self, pmd: PmdNo) -> (Option<Sketch>, Option<Sketch>) {
        let left = self.points.last_before(pmd).map(|(_, sketch)| *sketch);
        (left, self.points.first_from(pmd.next()).map(|(_, sketch)| *sketch))
    }

    fn count_pair(&mut self, left: Option<Sketch>, right: Option<Sketch>, is_new: bool) {
        let Some((left, right)) = left.zip(right) else { return };
        let count = match (is_accessed(left), is_accessed(right)) {
            (true, true) if left.is_like(right) => &mut self.alike,
            (false, false) => return,
            _ => &mut self.differing,
        };
        *count = if is_new { *count + 1 } else { *count - 1 };
    }
}

fn is_accessed(sketch: Sketch) -> bool {
    matches!(sketch, Sketch::Active(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interval, Rng};

    fn active(ns: u64) -> Sketch {
        Sketch::Active(Interval::from_ns(ns))
    }

    /// One of the survey every 32 huge ranges of `len`, of which `spans` are accessed.
    fn surveyed(len: u64, is_accessed: impl Fn(u64) -> bool) -> Clustering {
        let mut found = Clustering::new();
        for n in (0..len).step_by(32) {
            found.note(PmdNo(n), if is_accessed(n) { active(50_000_000) } else { Sketch::Idle });
        }
        found
    }

    #[test]
    fn long_spans_fill_their_gaps_and_short_ones_do_not() {
        assert!(!Clustering::new().fills_gaps());
        let one = surveyed(7168, |n| (2000..2700).contains(&n));
        assert!(one.fills_gaps(), "{}", one.probability_between());
        let eight = surveyed(7168, |n| n % 896 < 90);
        assert!(eight.fills_gaps(), "{}", eight.probability_between());
        assert!(surveyed(7168, |_| true).fills_gaps(), "all of it is accessed");
        assert!(!surveyed(7168, |n| n == 64).fills_gaps(), "one alone");
        assert!(surveyed(7168, |n| (64..=96).contains(&n)).fills_gaps(), "one pair of 224 is no chance");
    }

    #[test]
    fn by_chance_gaps_are_filled_in_few_targets() {
        for percent in [2, 5, 10, 20, 50] {
            let fills = |seed: &u64| {
                let mut rng = Rng::new(*seed);
                let accessed: Vec<bool> = (0..7168).map(|_| rng.below(100) < percent).collect();
                surveyed(7168, |n| accessed[usize::try_from(n).unwrap()]).fills_gaps()
            };
            let wrong: Vec<u64> = (1..200).filter(fills).collect();
            assert!(wrong.len() < 10, "{percent}% accessed: seeds {wrong:?}");
        }
    }

    #[test]
    fn what_is_not_known_yet_is_not_counted_as_accessed() {
        let mut found = Clustering::new();
        (0..20).for_each(|n| found.note(PmdNo(8 * n), Sketch::Pending));
        (5..8).for_each(|n| found.note(PmdNo(8 * n), active(50_000_000)));
        assert_eq!((found.accessed, found.alike, found.differing), (3, 2, 2));
        found.note(PmdNo(48), Sketch::Mixed);
        assert_eq!((found.accessed, found.alike, found.differing), (2, 0, 4));
    }

    /// The same counts, whatever the order of notes, and after some were forgotten.
    #[test]
    fn the_counts_are_those_of_the_points_that_are_left() {
        let mut rng = Rng::new(5);
        let kinds = [Sketch::Idle, active(50_000_000), active(1_000_000), Sketch::Mixed, Sketch::Pending];
        let mut found = Clustering::new();
        for _ in 0..400 {
            let pmd = PmdNo(rng.below(60));
            match rng.below(4) {
                0 => found.forget(pmd),
                _ => found.note(pmd, kinds[usize::try_from(rng.below(5)).unwrap()]),
            }
            let all: Vec<Sketch> = found.points.values().copied().collect();
            let pairs = |is: fn(Sketch, Sketch) -> bool| all.windows(2).filter(|two| is(two[0], two[1])).count();
            let alike = pairs(|a, b| is_accessed(a) && a.is_like(b));
            let one_sided = pairs(|a, b| (is_accessed(a) || is_accessed(b)) && !(is_accessed(a) && a.is_like(b)));
            let accessed = all.iter().filter(|sketch| is_accessed(**sketch)).count();
            assert_eq!((found.accessed, found.alike, found.differing), (accessed, alike, one_sided));
        }
    }
}
