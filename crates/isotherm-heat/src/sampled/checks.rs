//! The checks in progress, and when each huge range is read next.
//!
//! A check ends when further reads can add nothing. Before that, it has decided to which region its huge range belongs.
//! Until it has, it is *undecided*, and its possible cost is reserved in the slow-down budget. [`super::choose`]
//! decides which huge ranges to check.

use super::mix::{Check, FIRST, Mix, distance};
use crate::Ns;
use crate::due::{Reads, claim};
use isotherm_units::PmdNo;
use std::collections::{BTreeMap, BTreeSet};

/// Reads this far from the clear are due at multiples of [`GRID`].
const COARSE: Ns = 600_000_000;
const GRID: Ns = 200_000_000;

/// All checks in progress.
#[derive(Debug)]
pub(crate) struct Checks {
    checks: BTreeMap<PmdNo, Check>,
    /// Huge ranges whose check has not yet decided to which region they belong.
    undecided: BTreeSet<PmdNo>,
    reads: Reads,
    reserved: f64,
}

impl Checks {
    /// None.
    pub fn new() -> Checks {
        Checks { checks: BTreeMap::new(), undecided: BTreeSet::new(), reads: Reads::new(), reserved: 0.0 }
    }

    /// Retouches expected from undecided checks.
    pub fn reserved(&self) -> f64 {
        self.reserved
    }

    pub fn contains(&self, pmd: PmdNo) -> bool {
        self.checks.contains_key(&pmd)
    }

    pub fn is_undecided(&self, pmd: PmdNo) -> bool {
        self.undecided.contains(&pmd)
    }

    /// Whether a huge range strictly between the two is undecided.
    pub fn are_between(&self, below: PmdNo, above: PmdNo) -> bool {
        self.undecided.range(below.next()..above).next().is_some()
    }

    pub fn get(&self, pmd: PmdNo) -> Option<&Check> {
        self.checks.get(&pmd)
    }

    pub fn get_mut(&mut self, pmd: PmdNo) -> Option<&mut Check> {
        self.checks.get_mut(&pmd)
    }

    /// Huge ranges with a check in progress, in address order.
    pub fn pmds(&self) -> impl Iterator<Item = PmdNo> {
        self.checks.keys().copied()
    }

    /// Begins a check in place of another, if there was one.
    pub fn begin(&mut self, pmd: PmdNo, check: Check) {
        self.end(pmd);
        self.reserved += check.reserved;
        self.reads.push(check.next_read, pmd);
        self.checks.insert(pmd, check);
        self.undecided.insert(pmd);
    }

    /// Settles what `pmd` was found to be. Returns whether that is new.
    pub fn decide(&mut self, pmd: PmdNo) -> bool {
        let is_new = self.undecided.remove(&pmd);
        if let Some(check) = self.checks.get(&pmd).filter(|_| is_new) {
            self.reserved -= check.reserved;
        }
        is_new
    }

    /// Ends a check, decided or not.
    pub fn end(&mut self, pmd: PmdNo) {
        self.decide(pmd);
        self.checks.remove(&pmd);
    }

    /// A check in progress, of a huge range drawn at random, stands for `pmds` more huge ranges. Their region is `expected` to
    /// be like this.
    pub fn add_weight(&mut self, pmd: PmdNo, pmds: f64, expected: Option<Mix>) {
        if let Some(check) = self.checks.get_mut(&pmd) {
            check.weight = match (check.weight, expected) {
                (Some((before, mut mean)), Some(expected)) => {
                    #[expect(clippy::cast_possible_truncation, reason = "0 to 1")]
                    mean.blend(&expected, (pmds / (before + pmds)) as f32);
                    Some((before + pmds, mean))
                }
                (before, expected) => before.or(Some(pmds).zip(expected)),
            };
        }
    }

    /// Huge ranges whose read is due, in address order.
    pub fn due(&mut self, now: Ns) -> Vec<PmdNo> {
        let checks = &mut self.checks;
        self.reads.take_due(now, |pmd, at| checks.get_mut(&pmd).is_some_and(|l| claim(&mut l.next_read, at)))
    }

    /// When the next read is due.
    pub fn next_due(&self) -> Option<Ns> {
        self.reads.next_at()
    }

    /// Plans the next read, by the number of reads done.
    pub fn plan_next(&mut self, pmd: PmdNo) {
        if let Some(check) = self.checks.get(&pmd) {
            let at = check.cleared_at + distance(check.reads);
            self.plan(pmd, if distance(check.reads) >= COARSE { at.next_multiple_of(GRID) } else { at });
        }
    }

    /// A due read could not be done. It is due again shortly.
    pub fn postpone(&mut self, now: Ns, pmd: PmdNo) {
        self.plan(pmd, now + FIRST);
    }

    fn plan(&mut self, pmd: PmdNo, at: Ns) {
        if let Some(check) = self.checks.get_mut(&pmd) {
            check.next_read = at;
            self.reads.push(at, pmd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mix::OUTCOMES;
    use super::*;
    use crate::Mask;

    const MS: Ns = 1_000_000;
    const PMD: PmdNo = PmdNo(5);

    fn checks() -> Checks {
        let mut checks = Checks::new();
        checks.begin(PMD, Check::new(0, Mask::NONE, 100.0));
        checks
    }

    #[test]
    fn what_is_reserved_is_that_of_undecided_looks() {
        let mut checks = checks();
        checks.begin(PmdNo(6), Check::new(0, Mask::NONE, 10.0));
        assert_eq!(checks.reserved(), 110.0);
        checks.begin(PMD, Check::new(MS, Mask::NONE, 1.0));
        assert_eq!(checks.reserved(), 11.0, "one in place of another");
        assert!(checks.decide(PMD) && !checks.decide(PMD) && checks.contains(PMD));
        assert_eq!(checks.reserved(), 10.0);
        checks.end(PMD);
        checks.end(PmdNo(6));
        assert!(checks.reserved() == 0.0 && !checks.contains(PMD) && !checks.is_undecided(PmdNo(6)));
    }

    #[test]
    fn between_is_strictly_between() {
        let checks = checks();
        let between = |below, above| checks.are_between(PmdNo(below), PmdNo(above));
        assert_eq!([between(4, 6), between(5, 9), between(1, 5)], [true, false, false]);
    }

    #[test]
    fn late_reads_are_due_on_a_grid_and_each_once() {
        let mut checks = checks();
        checks.get_mut(PMD).unwrap().cleared_at = 7 * MS;
        let mut planned = |reads: usize| {
            checks.get_mut(PMD).unwrap().reads = reads;
            checks.plan_next(PMD);
            checks.get(PMD).unwrap().next_read / MS
        };
        assert_eq!([planned(1), planned(2), planned(3), planned(4)], [47, 167, 800, 2600]);
        assert_eq!(checks.next_due(), Some(10 * MS), "what is planned no more is dropped when it comes");
        assert_eq!((checks.due(2600 * MS), checks.due(2600 * MS)), (vec![PMD], vec![]));
        checks.postpone(2600 * MS, PMD);
        assert_eq!((checks.due(2605 * MS), checks.due(2610 * MS)), (vec![], vec![PMD]));
    }

    #[test]
    fn a_look_that_stands_for_more_expects_the_mean() {
        let of = |hot, cold| {
            let mut counts = [0; OUTCOMES];
            (counts[0], counts[OUTCOMES - 1]) = (hot, cold);
            Mix::of_counts(counts)
        };
        let mut checks = checks();
        checks.add_weight(PMD, 10.0, None);
        assert_eq!(checks.get(PMD).unwrap().weight, None, "there is nothing to compare with");
        checks.add_weight(PMD, 10.0, Some(of(1, 0)));
        checks.add_weight(PMD, 30.0, Some(of(0, 1)));
        let (pmds, expected) = checks.get(PMD).unwrap().weight.unwrap();
        assert_eq!((pmds, expected), (40.0, of(1, 3)));
    }
}
