//! What only a clear of the whole process reaches: which huge ranges are read after it, and what it costs the target.
//!
//! Pages that several processes map stay set when their huge range is cleared. A clear of the whole process reaches them, but it
//! is expensive and rare. A read is not, so after one such clear many huge ranges are read: all of the stuck regions if these are
//! small, else random ones all over them, and some in each gap between two that differ. Each is a check like any other.
//!
//! A shared huge range of which no page was accessed since has nothing that a clear would leave. It is reached by clears of its
//! own again, so that it is soon noticed when it is accessed. So the stuck regions are those that are accessed, or not known.
//!
//! [`crate::track`] has the schedule of these clears, which targets monitored page by page share.

use super::mix::{Check, EARLY, distance};
use super::pieces::Pieces;
use super::{SampledTarget, summary};
use crate::budget::RETOUCH_NS;
use crate::pmd::{Ns, PmdBits};
use crate::source::ClearedProcess;
use crate::{Mask, Rng};
use isotherm_units::PmdNo;
use std::collections::BTreeMap;

/// Huge ranges read after a clear of the whole process: two passes over page tables each time.
const MAX_SAMPLES: u64 = 1024;
/// Of larger memory, this many random ones but at least one of each region, and the others in gaps between regions that differ,
/// so many in each.
const MAX_RANDOM: u64 = 512;
const IN_GAP: u64 = 16;
/// Clears of the whole process may take this share of the slow-down budget.
const SHARE: f64 = 0.5;
/// From a clear of the whole process until its checks have decided to which regions their huge ranges belong. The next one
/// would begin them anew.
pub(crate) const DECIDED_AFTER: Ns = distance(EARLY - 1) + distance(EARLY - 1) / 8;

/// What clears of the whole process have cost the target and its budget has not paid yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessCost {
    owed_ns: f64,
    paid_at: Ns,
    /// The share of time that pays for it.
    share: f64,
}

impl ProcessCost {
    pub fn new(max_slowdown_pct: f64, now: Ns) -> ProcessCost {
        ProcessCost { owed_ns: 0.0, paid_at: now, share: max_slowdown_pct / 100.0 * SHARE }
    }

    pub fn owe(&mut self, ns: f64) {
        self.owed_ns += ns;
    }

    /// What to charge to the budget at `now`, so that other checks go on meanwhile.
    pub fn pay(&mut self, now: Ns) -> f64 {
        let most = now.saturating_sub(self.paid_at) as f64 * self.share;
        self.paid_at = self.paid_at.max(now);
        let paid = self.owed_ns.min(most);
        self.owed_ns -= paid;
        paid
    }

    pub fn is_paid(&self) -> bool {
        self.owed_ns <= 0.0
    }
}

/// A clear of the whole process that is about to be done.
#[derive(Clone, Debug, Default)]
pub struct ProcessPlan {
    /// A stuck huge range of each region that waits for it.
    pub stuck: Vec<PmdNo>,
    /// Huge ranges with a check in progress: to be read just before, through [`SampledTarget::read_before_process`].
    pub in_progress: Vec<PmdNo>,
    /// Huge ranges of which the source reports whether it has cleared them: all that this target has a use for, sorted.
    pub all: Vec<PmdNo>,
    /// Those to be read afterwards, and how many huge ranges each stands for.
    samples: BTreeMap<PmdNo, f64>,
}

impl SampledTarget {
    /// Resident pages of regions that wait for a clear of the whole process, and of all. O(regions).
    pub fn stuck_pages(&self) -> (u64, u64) {
        self.pieces.iter().fold((0, 0), |(stuck, all), (start, piece)| {
            let pages = summary::resident(start, piece);
            (stuck + if piece.is_stuck() { pages } else { 0 }, all + pages)
        })
    }

    /// Whether the slow-down budget has paid for the last clear of the whole process.
    pub fn has_paid(&self) -> bool {
        self.process_cost.is_paid()
    }

    /// Plans a clear of the whole process. O(regions).
    pub fn plan_process_clear(&mut self) -> ProcessPlan {
        let stuck = |(start, piece): (PmdNo, &super::piece::Piece)| piece.stuck_pmd().unwrap_or(start);
        let samples = samples(&self.pieces, &mut self.process_rng);
        let in_progress: Vec<PmdNo> = self.checks.pmds().collect();
        let of_pieces = self.pieces.iter().map(|(start, _)| start);
        let mut all: Vec<PmdNo> = samples.keys().chain(&in_progress).copied().chain(of_pieces).collect();
        all.sort_unstable();
        all.dedup();
        let stuck = self.pieces.iter().filter(|(_, piece)| piece.is_stuck()).map(stuck).collect();
        ProcessPlan { stuck, in_progress, all, samples }
    }

    /// Takes in a read of a huge range with a check in progress, just before the whole process is cleared: accesses that
    /// were not read are lost with the bits.
    pub fn read_before_process(&mut self, now: Ns, pmd: PmdNo, bits: PmdBits) {
        let Some(check) = self.checks.get_mut(pmd) else { return };
        let stands_for = check.with_process;
        match check.read_between(now, bits) {
            Some(seen) => self.account(seen, stands_for),
            None => self.checks.end(pmd),
        }
    }

    /// Takes in that the whole process was cleared, as planned.
    pub fn process_cleared(&mut self, plan: &ProcessPlan, cleared: &ClearedProcess) {
        let at = cleared.clear.at;
        self.owe_for_others(cleared);
        for (pmd, _) in &cleared.partly {
            if let Some(check) = self.checks.get_mut(*pmd) {
                check.process_cleared();
            }
        }
        for pmd in &cleared.pmds {
            let says_all = self.checks.get_mut(*pmd).is_some_and(Check::process_cleared);
            let sample = plan.samples.get(pmd).filter(|_| !says_all);
            if let Some(stands_for) = sample {
                let mut check = Check::new(at, Mask::NONE, 0.0);
                check.with_process = Some(*stands_for);
                self.checks.begin(*pmd, check);
            }
        }
    }

    /// Regions that were not the reason for the clear are cleared with the others. What is known of them shows the cost.
    fn owe_for_others(&mut self, cleared: &ClearedProcess) {
        let others =
            self.pieces.iter().filter(|(start, piece)| !piece.is_stuck() && cleared.pmds.binary_search(start).is_ok());
        let retouches = others.map(|(start, piece)| {
            let pages = summary::resident(start, piece) as f64;
            if piece.early.is_known() { pages * piece.early.touched_early() } else { 0.0 }
        });
        let retouched: f64 = retouches.sum();
        self.process_cost.owe(retouched * RETOUCH_NS);
    }
}

/// The huge ranges to read after a clear of the whole process, and how many each stands for.
fn samples(pieces: &Pieces, rng: &mut Rng) -> BTreeMap<PmdNo, f64> {
    let stuck = || pieces.iter().filter(|(_, p)| p.is_stuck()).map(|(start, p)| (start.0, p.end.0 - start.0));
    let of_all: u64 = stuck().map(|(_, pmds)| pmds).sum();
    if of_all <= MAX_SAMPLES {
        return stuck().flat_map(|(start, pmds)| (start..start + pmds).map(|no| (PmdNo(no), 1.0))).collect();
    }
    let mut samples = BTreeMap::new();
    for (start, pmds) in stuck() {
        // Huge ranges are fewer than 2^43, so the product fits.
        let parts = (pmds * MAX_RANDOM).div_ceil(of_all);
        let bound = |no: u64| start + pmds / parts * no + pmds % parts * no / parts;
        for no in 0..parts {
            let pmd = PmdNo(bound(no) + rng.below(bound(no + 1) - bound(no)));
            samples.insert(pmd, pmds as f64 / parts as f64);
        }
    }
    for (below, above) in pieces.stuck_gaps() {
        let room = MAX_SAMPLES.saturating_sub(samples.len() as u64).min(IN_GAP);
        let parts = (above.0 - below.0).min(room + 1);
        for no in 1..parts {
            let pmd = PmdNo(below.0 + (above.0 - below.0) * no / parts);
            samples.entry(pmd).or_insert(0.0);
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::super::mix::{Finding, Mix, Reach};
    use super::*;

    const S: Ns = 1_000_000_000;

    #[test]
    fn half_of_the_budget_pays_evenly() {
        let mut cost = ProcessCost::new(1.0, 0);
        assert!(cost.is_paid());
        cost.owe(12e6);
        assert_eq!((cost.pay(S), cost.pay(S), cost.pay(2 * S)), (5e6, 0.0, 5e6));
        assert!(!cost.is_paid());
        assert_eq!((cost.pay(9 * S), cost.is_paid()), (2e6, true));
    }

    /// Huge ranges that are stuck, in regions of ten, and as many that are not.
    fn pieces(stuck: u64) -> Pieces {
        let mut pieces = Pieces::new(usize::try_from(stuck / 5).unwrap(), None);
        pieces.refit(&(0..stuck).chain(1 << 20..(1 << 20) + stuck).map(PmdNo).collect::<Vec<_>>());
        let found = Finding { mix: Mix::default(), resident: 1.0, huge: false, reach: Reach::Stuck };
        (0..stuck).step_by(3).for_each(|pmd| pieces.settle(0, PmdNo(pmd), &found));
        pieces
    }

    #[test]
    fn small_memory_is_read_as_a_whole_and_large_memory_everywhere() {
        let all = samples(&pieces(1000), &mut Rng::new(1));
        assert!(all.keys().eq((0..1000).map(PmdNo).collect::<Vec<_>>().iter()) && all.values().all(|n| *n == 1.0));
        for seed in 1..=5 {
            let some = samples(&pieces(20_000), &mut Rng::new(seed));
            assert!(some.len() as u64 <= 2 * MAX_SAMPLES, "seed {seed}: {}", some.len());
            assert!(some.keys().all(|pmd| pmd.0 < 20_000), "seed {seed}");
            let stand_for: f64 = some.values().sum();
            assert!((stand_for - 20_000.0).abs() < 1.0, "seed {seed}: {stand_for}");
            let gaps: Vec<u64> = some.keys().zip(some.keys().skip(1)).map(|(a, b)| b.0 - a.0).collect();
            assert!(gaps.iter().all(|gap| *gap <= 80), "seed {seed}: {:?}", gaps.iter().max());
        }
    }
}
