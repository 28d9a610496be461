//! Which huge ranges to check next.
//!
//! Half of all checks go to undecided huge ranges between regions that differ. The rest of the clear budget goes to one
//! random huge range of each region in turn, so that small hot spots are found in the end. Randomness is a seeded generator
//! of its own.

use super::checks::Checks;
use super::pieces::Pieces;
use crate::target::STUCK_RETRY;
use crate::{Ns, Rng};
use isotherm_units::PmdNo;
use std::collections::{BTreeMap, BTreeSet};

/// Small regions are checked in at least this share of the intervals.
const MIN_TURNS: f64 = 0.2;
/// A gap of more huge ranges than this is cut in four at once, not in two.
const WIDE_GAP: u64 = 16;
/// Boundaries visited for each check that may be spent on them.
const VISITS: usize = 4;

/// Where the last pass stopped, and which huge ranges it drew.
#[derive(Debug)]
pub(crate) struct Chooser {
    /// Every region is checked once in this time.
    interval_ns: Ns,
    open_from: PmdNo,
    turn: PmdNo,
    interval_began: Option<Ns>,
    /// Aggregations since [`Chooser::set_interval`], and how long the last of all took.
    aggregations: u32,
    aggregated_in: Option<Ns>,
    /// Random huge ranges that are about to be cleared, with the number of huge ranges that each stands for.
    drawn: BTreeMap<PmdNo, f64>,
    rng: Rng,
}

/// One pass: what it chooses from, what was chosen, and what may still be chosen.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    pub pieces: &'a mut Pieces,
    pub checks: &'a mut Checks,
    /// Retouches that further checks may cause.
    pub allowed: f64,
    pub chosen: BTreeSet<PmdNo>,
}

impl Pass<'_> {
    fn is_over(&self, most: usize) -> bool {
        self.chosen.len() >= most || self.allowed <= 0.0
    }

    fn choose(&mut self, pmd: PmdNo) {
        if !self.checks.contains(pmd) && self.chosen.insert(pmd) {
            self.allowed -= self.pieces.expected(pmd);
        }
    }

    /// Chooses among the huge ranges strictly between two: the middle one, and in a wide gap the quarters as well.
    fn choose_within(&mut self, (below, above): (PmdNo, PmdNo), most: usize) {
        let pmds = above.0 - below.0;
        self.choose(PmdNo(below.0 + pmds / 2));
        if pmds > WIDE_GAP {
            for quarter in [1, 3] {
                if self.chosen.len() < most {
                    self.choose(PmdNo(below.0 + pmds * quarter / 4));
                }
            }
        }
    }
}

/// The region that is next in turn.
struct Visit {
    start: PmdNo,
    end: PmdNo,
    is_marked: bool,
    /// A clear of one huge range leaves pages here. It is tried again later.
    is_stuck: bool,
}

impl Chooser {
    pub fn new(interval_ns: Ns, seed: u64) -> Chooser {
        Chooser {
            interval_ns,
            open_from: PmdNo(0),
            turn: PmdNo(0),
            interval_began: None,
            aggregations: 0,
            aggregated_in: None,
            drawn: BTreeMap::new(),
            rng: Rng::new(seed),
        }
    }

    /// The time in which every region is to be checked once.
    pub fn interval_ns(&self) -> Ns {
        self.interval_ns
    }

    /// The time between the last two rounds through all regions: the interval, or longer if the budgets did not allow more.
    /// `None` before the first round is over.
    pub fn aggregated_in(&self) -> Option<Ns> {
        self.aggregated_in
    }

    /// Rounds through all regions since the interval was set.
    pub fn aggregations(&self) -> u32 {
        self.aggregations
    }

    /// Changes the interval, and counts aggregations from 0 again. It holds for the round in progress as well.
    pub fn set_interval(&mut self, interval_ns: Ns) {
        self.interval_ns = interval_ns;
        self.aggregations = 0;
    }

    /// Up to `most` huge ranges to check, in address order.
    pub fn choose(&mut self, now: Ns, most: usize, mut pass: Pass) -> Vec<PmdNo> {
        self.drawn.clear();
        self.choose_at_open_ends(most.div_ceil(2), &mut pass);
        self.choose_by_visits(now, most, &mut pass);
        // Budget that the regions in turn did not use.
        self.choose_at_open_ends(most, &mut pass);
        pass.chosen.into_iter().collect()
    }

    /// How many huge ranges one of the last pass's random huge ranges stands for. `None` if `pmd` was not drawn at random.
    pub fn weight(&self, pmd: PmdNo) -> Option<f64> {
        self.drawn.get(&pmd).copied()
    }

    fn choose_at_open_ends(&mut self, most: usize, pass: &mut Pass) {
        while !pass.is_over(most) {
            let Some(pmd) = pass.pieces.next_stale() else { break };
            // A check that only waits for its late reads makes room for a new one.
            if !pass.checks.is_undecided(pmd) {
                pass.checks.end(pmd);
            }
            pass.choose(pmd);
        }
        for _ in 0..pass.pieces.open_ends().min(VISITS * most) {
            if pass.is_over(most) {
                return;
            }
            let Some(cut) = pass.pieces.next_open(self.open_from) else { return };
            self.open_from = cut.next();
            match pass.pieces.open_gap(cut) {
                // The next clear of the whole process shows it.
                Some(_) if pass.pieces.is_within_stuck(cut) => {}
                Some((below, above)) if !pass.checks.are_between(below, above) => {
                    pass.choose_within((below, above), most);
                }
                // A check there is in progress, or the gap is closed.
                _ => {}
            }
        }
    }

    /// Chooses one random huge range of each region in turn: every time in regions as large as their share, less often in
    /// small ones.
    fn choose_by_visits(&mut self, now: Ns, most: usize, pass: &mut Pass) {
        let cap = pass.pieces.cap();
        while !pass.is_over(most) {
            let Some(Visit { start, end, is_marked, is_stuck }) = self.next_visit(now, pass.pieces) else { return };
            if is_stuck {
                continue;
            }
            let pmds = end.0 - start.0;
            let wanted = if is_marked { (pmds as f64 / cap as f64).clamp(MIN_TURNS, 1.0) } else { 1.0 };
            if self.rng.below(1000) as f64 >= wanted * 1000.0 {
                continue;
            }
            let pmd = PmdNo(start.0 + self.rng.below(pmds));
            let weight = pmds as f64 / wanted;
            if pass.checks.is_undecided(pmd) {
                // It is being checked anyway.
                pass.checks.add_weight(pmd, weight, pass.pieces.early_of(pmd));
                continue;
            }
            // A huge range that only waits for its late reads is checked anew: skipping such huge ranges would skip mostly cold
            // ones.
            pass.checks.end(pmd);
            pass.choose(pmd);
            self.drawn.insert(pmd, weight);
        }
    }

    /// The next region in turn. `None` if all were checked in this interval.
    fn next_visit(&mut self, now: Ns, pieces: &Pieces) -> Option<Visit> {
        let began = *self.interval_began.get_or_insert(now);
        let next = pieces.from(self.turn).or_else(|| {
            if now < began.saturating_add(self.interval_ns) {
                return None;
            }
            self.interval_began = Some(now);
            self.aggregated_in = Some(now - began);
            self.aggregations = self.aggregations.saturating_add(1);
            self.turn = PmdNo(0);
            pieces.iter().next()
        });
        let (start, piece) = next?;
        self.turn = piece.end;
        let is_stuck = piece.is_stuck() && now < piece.stuck_at() + STUCK_RETRY;
        Some(Visit { start, end: piece.end, is_marked: piece.marks.last().is_some(), is_stuck })
    }
}

#[cfg(test)]
mod tests {
    use super::super::mix::{Check, Finding, Mix, OUTCOMES, Reach};
    use super::*;
    use crate::Mask;

    const S: Ns = 1_000_000_000;

    struct Target(Pieces, Checks, Chooser);

    /// 100 huge ranges in regions of up to ten.
    fn target() -> Target {
        let mut pieces = Pieces::new(20, None);
        pieces.refit(&(0..100).map(PmdNo).collect::<Vec<_>>());
        Target(pieces, Checks::new(), Chooser::new(S, 1))
    }

    impl Target {
        fn choose(&mut self, now: Ns, most: usize, allowed: f64) -> Vec<u64> {
            let Target(pieces, checks, chooser) = self;
            let chosen = chooser.choose(now, most, Pass { pieces, checks, allowed, chosen: BTreeSet::new() });
            chosen.iter().map(|pmd| pmd.0).collect()
        }

        /// A look at `pmd` finds all of its pages touched at once, or never.
        fn settle(&mut self, pmd: u64, is_hot: bool) {
            let mut counts = [0; OUTCOMES];
            counts[if is_hot { 0 } else { OUTCOMES - 1 }] = 512;
            self.0.settle(
                0,
                PmdNo(pmd),
                &Finding { mix: Mix::of_counts(counts), resident: 1.0, huge: false, reach: Reach::Itself },
            );
        }
    }

    #[test]
    fn each_region_has_one_turn_an_interval() {
        let mut target = target();
        let chosen = target.choose(0, 1000, 1e9);
        assert_eq!(chosen.iter().map(|pmd| pmd / 10).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert!(chosen.iter().all(|pmd| target.2.weight(PmdNo(*pmd)) == Some(10.0)));
        assert!(target.choose(S - 1, 1000, 1e9).is_empty());
        assert_eq!(target.choose(S, 1000, 1e9).len(), 10);
    }

    #[test]
    fn an_aggregation_ends_when_each_region_had_its_turn_and_the_interval_is_over() {
        let mut target = target();
        let done = |t: &Target| (t.2.aggregations(), t.2.aggregated_in());
        target.choose(0, 1000, 1e9);
        assert_eq!(done(&target), (0, None), "each had its turn, within the interval");
        target.choose(S, 4, 1e9);
        assert_eq!(done(&target), (1, Some(S)));
        // Of the ten, four had their turn; the others later than the interval allows.
        target.choose(3 * S, 4, 1e9);
        target.choose(4 * S, 4, 1e9);
        assert_eq!(done(&target), (2, Some(3 * S)));
        target.2.set_interval(S / 2);
        assert_eq!((done(&target), target.2.interval_ns()), ((0, Some(3 * S)), S / 2));
        target.choose(4 * S, 1000, 1e9);
        assert!(target.choose(4 * S + S / 2 - 1, 1000, 1e9).is_empty());
        assert_eq!(target.choose(4 * S + S / 2, 1000, 1e9).len(), 10, "the new one holds for the round in progress");
    }

    #[test]
    fn no_more_are_chosen_than_the_budgets_allow() {
        assert!(target().choose(0, 1000, 0.0).is_empty());
        assert_eq!(target().choose(0, 3, 1e9).len(), 3);
        // Of what is not known 51.2 retouches are expected: two leave none of 100.
        assert_eq!(target().choose(0, 1000, 100.0).len(), 2);
    }

    #[test]
    fn what_lies_between_regions_that_differ_comes_first_and_once() {
        let mut target = target();
        for no in 0..10 {
            target.settle(no * 10 + 5, no >= 5);
        }
        assert_eq!(target.0.open_gap(PmdNo(50)), Some((PmdNo(45), PmdNo(55))));
        assert_eq!(target.choose(0, 1, 1e9), [50]);
        target.1.begin(PmdNo(50), Check::new(0, Mask::NONE, 0.0));
        assert!(target.choose(0, 1, 1e9)[0] < 10, "while it is looked at, turns begin");
        for pmd in 46..55 {
            target.settle(pmd, pmd >= 50);
        }
        assert_eq!(target.0.open_gap(PmdNo(50)), None, "each huge range is known");
    }

    #[test]
    fn a_wide_gap_is_cut_in_four() {
        let Target(mut pieces, mut checks, _) = target();
        let mut pass = Pass { pieces: &mut pieces, checks: &mut checks, allowed: 1e9, chosen: BTreeSet::new() };
        pass.choose_within((PmdNo(10), PmdNo(26)), 9);
        pass.choose_within((PmdNo(40), PmdNo(60)), 3);
        assert_eq!(pass.chosen.iter().map(|b| b.0).collect::<Vec<_>>(), [18, 45, 50], "and no more than asked for");
    }
}
