//! Whether accessed memory is in spans longer than the distances of the survey.
//!
//! Between two accessed huge ranges of the survey, memory is accessed if one span has both of them. It need not: with
//! accessed spans of a few MiB all over, two neighbours are accessed by chance, and what lies between is idle. The
//! survey itself shows which it is: how many neighbours of an accessed huge range are accessed, compared with how many
//! would be by chance. Spans whose ends are independent of each other (a process of two states, without memory) have a
//! correlation that falls by its square root over half of a distance, which gives the probability for the middle.
//! `survey` estimates nothing as accessed where that is small. What is idle on both sides is estimated in any case:
//! most memory is idle.

use super::{STRETCH, Sketch};
use crate::pmd_map::PmdMap;
use isotherm_units::PmdNo;

/// From this probability on, what lies in the middle between two accessed huge ranges is estimated to be accessed.
const PROBABLE: f64 = 0.9;
/// Of the pairs of accessed neighbours, three standard deviations of how many there are by chance count for nothing, as if a quarter of a pair at least
/// were to be expected: it is decided anew with each check of the survey. With two, and one pair of many that proves it, one target with short
/// spans only in fifteen was filled at some moment.
const DEVIATIONS: f64 = 3.0;
const MIN_BY_CHANCE: f64 = 0.25;
/// Nearer neighbours say nothing about what lies between others.
const NEAR: u64 = STRETCH as u64 / 2;

/// Whether accessed memory is in long spans, by the huge ranges of the survey.
///
/// Of those that were cleared, accessed ones are known at once and idle ones after a second. So it begins to be so only
/// if it is when all that are not known yet are idle, and ends only if it is not by those that are known.
#[derive(Debug)]
pub(super) struct Clustering {
    /// Those that are not known yet are in it.
    all: Points,
    known: Points,
    fills_gaps: bool,
}

impl Clustering {
    pub fn new() -> Clustering {
        Clustering { all: Points::new(), known: Points::new(), fills_gaps: false }
    }

    /// Adds a huge range of the survey whose check has begun, or is about to. O(log n).
    pub fn expect(&mut self, pmd: PmdNo) {
        if self.all.points.get(pmd).is_none() {
            self.all.note(pmd, Sketch::Pending);
            self.decide();
        }
    }

    /// Takes in what the check of one that was added has shown. O(log n).
    pub fn note(&mut self, pmd: PmdNo, sketch: Sketch) {
        if self.all.points.get(pmd).is_some() {
            self.all.note(pmd, sketch);
            self.known.note(pmd, sketch);
            self.decide();
        }
    }

    /// Forgets one that is gone, or that cannot be checked.
    pub fn forget(&mut self, pmd: PmdNo) {
        if self.all.forget(pmd) {
            self.known.forget(pmd);
            self.decide();
        }
    }

    /// Whether memory between two accessed neighbours is accessed too, most probably.
    pub fn fills_gaps(&self) -> bool {
        self.fills_gaps
    }

    fn decide(&mut self) {
        let decides = if self.fills_gaps { &self.known } else { &self.all };
        self.fills_gaps = decides.probability_between() >= PROBABLE;
    }
}

type Point = (PmdNo, Sketch);

/// Huge ranges of the survey, and how their neighbours compare.
#[derive(Debug)]
struct Points {
    points: PmdMap<Sketch>,
    accessed: usize,
    /// Neighbours of which both are accessed, alike.
    alike: usize,
    /// Accessed ones beside a neighbour that is not accessed, or not alike. Those between two such count twice.
    differing: usize,
}

impl Points {
    fn new() -> Points {
        Points { points: PmdMap::new(), accessed: 0, alike: 0, differing: 0 }
    }

    fn note(&mut self, pmd: PmdNo, sketch: Sketch) {
        self.forget(pmd);
        let this = Some((pmd, sketch));
        let [left, right] = self.neighbours(pmd);
        self.count_pair(left, right, false);
        self.points.insert(pmd, sketch);
        self.accessed += usize::from(is_accessed(sketch));
        self.count_pair(left, this, true);
        self.count_pair(this, right, true);
    }

    /// Whether it was there.
    fn forget(&mut self, pmd: PmdNo) -> bool {
        let Some(sketch) = self.points.remove(pmd) else { return false };
        let this = Some((pmd, sketch));
        let [left, right] = self.neighbours(pmd);
        self.accessed -= usize::from(is_accessed(sketch));
        self.count_pair(left, this, false);
        self.count_pair(this, right, false);
        self.count_pair(left, right, true);
        true
    }

    /// That the middle between two accessed neighbours is accessed.
    fn probability_between(&self) -> f64 {
        if self.points.is_empty() {
            return 0.0;
        }
        let share = self.accessed as f64 / self.points.len() as f64;
        // So many pairs are found where accessed memory is in no span at all, give or take.
        let by_chance = (self.accessed as f64 * share).max(MIN_BY_CHANCE);
        let alike = 2.0 * (self.alike as f64 - DEVIATIONS * by_chance.sqrt() * (1.0 - share)).max(0.0);
        let next = alike / (alike + self.differing as f64).max(1.0);
        if next <= share {
            return share;
        }
        // `next` is above `share` and at most 1, so `share` is below 1.
        let correlation = (next - share) / (1.0 - share);
        (share + (1.0 - share) * correlation.sqrt()).powi(2) / next
    }

    fn neighbours(&self, pmd: PmdNo) -> [Option<Point>; 2] {
        let left = self.points.last_before(pmd).map(|(at, sketch)| (at, *sketch));
        [left, self.points.first_from(pmd.next()).map(|(at, sketch)| (at, *sketch))]
    }

    fn count_pair(&mut self, left: Option<Point>, right: Option<Point>, is_new: bool) {
        let Some(((from, left), (to, right))) = left.zip(right) else { return };
        let accessed = usize::from(is_accessed(left)) + usize::from(is_accessed(right));
        if accessed == 0 || to.0 - from.0 < NEAR {
            return;
        }
        let (count, by) = match accessed == 2 && left.is_like(right) {
            true => (&mut self.alike, 1),
            false => (&mut self.differing, accessed),
        };
        *count = if is_new { *count + by } else { *count - by };
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

    /// One of the survey every 32 huge ranges of `len`.
    fn surveyed(len: u64, is_accessed: impl Fn(u64) -> bool) -> Clustering {
        let mut found = Clustering::new();
        let sketch = |n| if is_accessed(n) { active(50_000_000) } else { Sketch::Idle };
        (0..len).step_by(32).for_each(|n| found.expect(PmdNo(n)));
        // As checks show them.
        let (accessed, idle): (Vec<u64>, Vec<u64>) = (0..len).step_by(32).partition(|n| is_accessed(*n));
        accessed.into_iter().chain(idle).for_each(|n| found.note(PmdNo(n), sketch(n)));
        found
    }

    #[test]
    fn long_spans_fill_their_gaps_and_short_ones_do_not() {
        assert!(!Clustering::new().fills_gaps());
        let one = surveyed(7168, |n| (2000..2700).contains(&n));
        assert!(one.fills_gaps(), "{}", one.all.probability_between());
        let eight = surveyed(7168, |n| n % 896 < 90);
        assert!(eight.fills_gaps(), "{}", eight.all.probability_between());
        assert!(surveyed(7168, |_| true).fills_gaps(), "all of it is accessed");
        assert!(!surveyed(7168, |n| n == 64).fills_gaps(), "one alone");
        assert!(!surveyed(7168, |n| (64..=96).contains(&n)).fills_gaps(), "one pair");
        assert!(surveyed(7168, |n| (64..=128).contains(&n)).fills_gaps(), "two of 224 are no chance");
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

    /// Spans of 1 to 4 MiB all over, a tenth in all. A huge range counts as accessed where all of it is in a span.
    #[test]
    fn short_spans_fill_no_gaps_at_any_moment_of_the_survey() {
        let fills_once = |seed: &u64| {
            let mut rng = Rng::new(*seed);
            // In quarters of a huge range.
            let mut hot = vec![false; 4 * 7168];
            let mut left = hot.len() / 10;
            while left > 0 {
                let (first, len) = (rng.below(4 * 7168 - 8), 2 + rng.below(7));
                hot[usize::try_from(first).unwrap()..][..usize::try_from(len).unwrap()].fill(true);
                left = left.saturating_sub(usize::try_from(len).unwrap());
            }
            let is_accessed = |n: &u64| hot[4 * usize::try_from(*n).unwrap()..][..4].iter().all(|hot| *hot);
            let shuffled = |rng: &mut Rng, mut all: Vec<u64>| {
                (1..all.len()).rev().for_each(|n| all.swap(n, usize::try_from(rng.below(n as u64 + 1)).unwrap()));
                all
            };
            let coarse: Vec<u64> = (0..224).map(|n| 32 * n + rng.below(32)).collect();
            let finer: Vec<u64> = (0..896).filter(|n| n % 4 > 0).map(|n| 8 * n + rng.below(8)).collect();
            let mut survey = vec![shuffled(&mut rng, coarse)];
            survey.extend(shuffled(&mut rng, finer).chunks(64).map(<[u64]>::to_vec));
            let (mut found, mut fills) = (Clustering::new(), false);
            for batch in &survey {
                batch.iter().for_each(|n| found.expect(PmdNo(*n)));
                for n in batch.iter().filter(|n| is_accessed(n)) {
                    found.note(PmdNo(*n), active(50_000_000));
                    fills |= found.fills_gaps();
                }
            }
            fills
        };
        let wrong: Vec<u64> = (1..=200).filter(fills_once).collect();
        assert!(wrong.len() < 3, "seeds {wrong:?}");
    }

    /// Of the second part of the survey, accessed ones are known a second before idle ones.
    #[test]
    fn gaps_are_filled_neither_by_what_is_known_early_nor_left_for_what_is_not_known_yet() {
        let mut rng = Rng::new(1);
        let accessed: Vec<bool> = (0..7168).map(|_| rng.below(10) < 7).collect();
        let mut by_chance = surveyed(7168, |n| accessed[usize::try_from(n).unwrap()]);
        assert!(!by_chance.fills_gaps(), "{}", by_chance.all.probability_between());
        let between: Vec<u64> = (0..7168).step_by(8).filter(|n| n % 32 != 0).collect();
        between.iter().for_each(|n| by_chance.expect(PmdNo(*n)));
        for n in between.iter().filter(|_| rng.below(10) < 7) {
            by_chance.note(PmdNo(*n), active(50_000_000));
            assert!(!by_chance.fills_gaps());
        }
        let mut whole = surveyed(7168, |_| true);
        for n in &between {
            whole.expect(PmdNo(*n));
            assert!(whole.fills_gaps());
        }
    }

    /// As of a heap that grows by little at each listing.
    #[test]
    fn near_neighbours_prove_nothing_about_others() {
        let mut found = surveyed(7168, |n| n % 160 == 0);
        assert!(!found.fills_gaps());
        for n in (0..900).map(|n| PmdNo(10_000 + n)) {
            found.expect(n);
            found.note(n, active(50_000_000));
        }
        assert_eq!(found.all.alike, 0);
    }

    #[test]
    fn what_was_not_added_or_is_forgotten_does_not_count() {
        let mut found = Clustering::new();
        found.note(PmdNo(8), active(50_000_000));
        (0..20).for_each(|n| found.expect(PmdNo(8 * n)));
        (5..8).for_each(|n| found.note(PmdNo(8 * n), active(50_000_000)));
        assert_eq!((found.all.accessed, found.all.alike, found.all.differing), (3, 2, 2));
        assert_eq!((found.known.accessed, found.known.alike, found.known.differing), (3, 2, 0));
        found.note(PmdNo(48), Sketch::Mixed);
        assert_eq!((found.all.accessed, found.all.alike, found.all.differing), (2, 0, 4));
        (0..20).for_each(|n| found.forget(PmdNo(8 * n)));
        assert_eq!((found.all.points.len(), found.known.points.len(), found.all.differing), (0, 0, 0));
    }

    /// The same counts, whatever the order of notes, and after some were forgotten.
    #[test]
    fn the_counts_are_those_of_the_points_that_are_left() {
        let mut rng = Rng::new(5);
        let kinds = [Sketch::Idle, active(50_000_000), active(1_000_000), Sketch::Mixed, Sketch::Pending];
        let mut found = Points::new();
        for _ in 0..400 {
            let pmd = PmdNo(rng.below(60));
            match rng.below(4) {
                0 => drop(found.forget(pmd)),
                _ => found.note(pmd, kinds[usize::try_from(rng.below(5)).unwrap()]),
            }
            let all: Vec<(PmdNo, Sketch)> = found.points.iter().map(|(pmd, sketch)| (pmd, *sketch)).collect();
            let (mut alike, mut differing) = (0, 0);
            for two in all.windows(2).filter(|two| two[1].0.0 - two[0].0.0 >= NEAR) {
                match (is_accessed(two[0].1), is_accessed(two[1].1)) {
                    (true, true) if two[0].1.is_like(two[1].1) => alike += 1,
                    (a, b) => differing += usize::from(a) + usize::from(b),
                }
            }
            let accessed = all.iter().filter(|(_, sketch)| is_accessed(*sketch)).count();
            assert_eq!((found.accessed, found.alike, found.differing), (accessed, alike, differing));
        }
    }
}
