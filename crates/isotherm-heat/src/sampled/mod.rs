//! A target too large to check as a whole: regions, known from checks of single huge ranges.
//!
//! Cost follows the number of regions, not the size of memory. In each interval, one random huge range of every region is
//! cleared and read back. That check covers 512 pages at once (`mix`). DAMON cuts regions at random places and sees
//! later whether the parts differ. We cut where checks have differed: between two huge ranges that disagree there is a place
//! where heat changes. Checking the middle finds it in as many steps as the distance has bits. The huge ranges between the
//! last check that agreed and the first that did not stay undecided. Half of all checks go there.
//!
//! - Regions are never larger than twice their fair share (`cap`). So the random checks, one huge range in each region, are
//!   spread over all of memory, and small hot spots are found in the end.
//! - `tidy` does what DAMON's merging does: similar neighbours become one region. If there are too many regions, the
//!   most similar merge first, with a bound that doubles.
//! - Checks at the ends of regions are no fair sample of what is between. Random checks are. The mean of what they
//!   found, less what their regions predict, is the overall error of all regions. It is corrected in the histograms.
//! - Where a clear of one huge range leaves pages that several processes map, the huge range is *stuck*. Its region waits for
//!   a clear of the whole process, after which many of its huge ranges are read at once (`stuck`).
//! - A huge range that was checked long ago and borders on a change is checked again at once. So a large region that turns
//!   hot or cold as a whole is relabelled in a few steps.
//!
//! | module | job |
//! |---|---|
//! | [`choose`] | which huge ranges to check next |
//! | [`checks`] | the checks in progress, and when each huge range is read |
//! | [`mix`] | one check, and the results of checks |
//! | [`pieces`], [`piece`] | all regions, and one region: its heat and where it ends |
//! | [`tidy`] | makes few regions of many, and cuts those that are too large |
//! | [`stuck`] | what only a clear of the whole process reaches |
//! | [`surplus`] | the overall error of the regions |
//! | [`tuner`] | how the interval follows a goal |
//! | [`summary`] | regions and histograms as they are reported |
//!
//! Uses `tiles` to follow changes of what is mapped. Times come from the caller. Randomness is a seeded generator.

mod checks;
mod choose;
mod mix;
mod piece;
mod pieces;
mod stuck;
mod summary;
mod surplus;
mod tidy;
mod tuner;

use crate::budget::{Bucket, RETOUCH_NS};
use crate::pmd::{Ns, PmdBits};
use crate::regions::{PastRegion, carry_ages};
use crate::target::{CREDIT_S, Tally};
use crate::tune::{Observed, Tuning};
use crate::view::Summary;
use crate::{Mask, Rng};
use checks::Checks;
use choose::{Chooser, Pass};
use isotherm_units::{Bytes, PmdNo};
use mix::{Check, EARLY, Finding, Mix, Reach, Seen};
use pieces::Pieces;
use std::collections::BTreeSet;
pub(crate) use stuck::DECIDED_AFTER;
use stuck::ProcessCost;
use summary::Totals;
use surplus::Surplus;
use tuner::Tuner;

/// Parameters of sampling that can be changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The bound on regions. At least 2.
    pub max_regions: usize,
    /// No region is larger than this, if the bound on their number allows.
    pub max_region: Option<Bytes>,
    /// Every region is checked once in this time, if the budgets allow. With `tuning`: at first.
    pub interval_ns: Ns,
    /// How the interval follows the accesses. `None`: it stays as it is.
    pub tuning: Option<Tuning>,
    /// Allowed slow-down, in percent of one core. Over 100: no limit.
    pub max_slowdown_pct: f64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            max_regions: 1000,
            max_region: None,
            interval_ns: 1_000_000_000,
            tuning: None,
            max_slowdown_pct: 1.0,
        }
    }
}

/// The heat of one process known from samples, and which huge range to check next.
#[derive(Debug)]
pub struct SampledTarget {
    pieces: Pieces,
    checks: Checks,
    chooser: Chooser,
    surplus: Surplus,
    slowdown: Bucket,
    tally: Tally,
    tuner: Tuner,
    process_cost: ProcessCost,
    /// Draws the huge ranges that are read after a clear of the whole process.
    process_rng: Rng,
}

impl SampledTarget {
    /// A target of which nothing is known.
    pub fn new(now: Ns, sampling: Sampling, seed: u64) -> SampledTarget {
        SampledTarget {
            pieces: Pieces::new(sampling.max_regions, sampling.max_region),
            checks: Checks::new(),
            chooser: Chooser::new(sampling.interval_ns, seed),
            surplus: Surplus::default(),
            slowdown: Bucket::new(sampling.max_slowdown_pct, CREDIT_S, now),
            tally: Tally::default(),
            tuner: Tuner::new(sampling.interval_ns, sampling.tuning),
            process_cost: ProcessCost::new(sampling.max_slowdown_pct, now),
            process_rng: Rng::new(!seed),
        }
    }

    /// Changes the bound on regions. It holds from the next [`SampledTarget::refit`] on.
    pub fn set_max_regions(&mut self, max_regions: usize) {
        self.pieces.set_max_regions(max_regions);
    }

    /// Below the interval that it began with, the interval is tuned only down to this.
    pub fn set_affordable_interval(&mut self, interval_ns: Ns) {
        self.tuner.set_affordable(interval_ns);
    }

    /// Takes in which huge ranges are populated now (sorted). O(huge ranges), and O(regions) if that has changed.
    pub fn refit(&mut self, populated: &[PmdNo]) {
        self.pieces.refit(populated);
    }

    /// Up to `most` huge ranges to clear now, in address order, as the slow-down budget allows. The caller clears each and
    /// reports it to [`SampledTarget::cleared`] or [`SampledTarget::refused`].
    pub fn due_clears(&mut self, now: Ns, most: usize) -> Vec<PmdNo> {
        self.tune();
        self.slowdown.spend(self.process_cost.pay(now));
        let allowed = self.slowdown.available_ns(now) / RETOUCH_NS - self.checks.reserved();
        let (pieces, checks) = (&mut self.pieces, &mut self.checks);
        self.chooser.choose(now, most, Pass { pieces, checks, allowed, chosen: BTreeSet::new() })
    }

    /// Brings the interval closer to the goal, if it is time to. O(regions) then.
    fn tune(&mut self) {
        if self.tuner.is_due(self.chooser.aggregations()) {
            let interval_ns = self.chooser.interval_ns();
            let next = self.tuner.next(interval_ns, self.observed_within(interval_ns));
            self.chooser.set_interval(next);
        }
    }

    /// Pages accessed within an interval, as all regions report them, and pages that are known.
    fn observed_within(&self, interval_ns: Ns) -> Observed {
        let totals = self.totals();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a number of pages")]
        let counted = totals.kinds.within(interval_ns).round() as u128;
        Observed { counted, possible: totals.known_pages.into() }
    }

    fn totals(&self) -> Totals {
        summary::totals(self.pieces.iter(), &self.surplus)
    }

    /// The interval at present: every region is checked once in this time, if the budgets allow.
    pub fn interval_ns(&self) -> Ns {
        self.chooser.interval_ns()
    }

    /// The time in which every region was checked once, the last time that all were. `None` before the first time.
    pub fn aggregated_in(&self) -> Option<Ns> {
        self.chooser.aggregated_in()
    }

    /// Notes that `pmd` was cleared at `now`, except for the pages in `stuck`.
    pub fn cleared(&mut self, now: Ns, pmd: PmdNo, stuck: Mask) {
        let mut check = Check::new(now, stuck, self.pieces.expected(pmd));
        check.weight = self.chooser.weight(pmd).zip(self.pieces.early_of(pmd));
        self.checks.begin(pmd, check);
    }

    /// Notes that `pmd` cannot be cleared: nothing can be known of its heat.
    pub fn refused(&mut self, now: Ns, pmd: PmdNo) {
        self.pieces.settle(
            now,
            pmd,
            &Finding { mix: Mix::default(), resident: 1.0, huge: false, reach: Reach::Itself },
        );
    }

    /// Huge ranges whose read is due, in address order.
    pub fn due_reads(&mut self, now: Ns) -> Vec<PmdNo> {
        self.checks.due(now)
    }

    /// When the next read is due.
    pub fn next_read(&self) -> Option<Ns> {
        self.checks.next_due()
    }

    /// A due read could not be done. It is due again shortly.
    pub fn postpone(&mut self, now: Ns, pmd: PmdNo) {
        self.checks.postpone(now, pmd);
    }

    /// Takes in a read of one huge range. Huge ranges without a check in progress are ignored.
    pub fn read(&mut self, now: Ns, pmd: PmdNo, bits: PmdBits) {
        let Some(check) = self.checks.get_mut(pmd) else { return };
        let is_first = check.reads == 0;
        let Some(seen) = check.read(now, bits) else {
            return self.checks.end(pmd);
        };
        let (finding, is_done, reads) = (check.finding(), check.is_done(), check.reads);
        if is_first {
            self.tally.cleared += check.units();
        }
        let stands_for = check.with_process;
        self.account(seen, stands_for);
        if (is_done || reads >= EARLY) && self.checks.decide(pmd) {
            self.compare(pmd, &finding);
            self.pieces.settle(now, pmd, &finding);
        }
        if is_done {
            self.checks.end(pmd);
            self.pieces.learn_late(pmd, &finding);
        } else {
            self.checks.plan_next(pmd);
        }
    }

    /// Counts what a read has seen. A check with the whole process stands for others, in which the process pays as well.
    fn account(&mut self, seen: Seen, with_process: Option<f64>) {
        self.tally.still_set += u64::from(seen.still_set);
        self.tally.lost += u64::from(seen.lost);
        let Some(stands_for) = with_process else {
            self.tally.retouched += u64::from(seen.units);
            return self.slowdown.spend(f64::from(seen.units) * RETOUCH_NS);
        };
        let retouched = f64::from(seen.units) * stands_for;
        self.process_cost.owe(retouched * RETOUCH_NS);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of pages")]
        let whole_pages = retouched.round() as u64;
        self.tally.retouched += whole_pages;
    }

    /// Notes how far a random check was off what its region predicts.
    fn compare(&mut self, pmd: PmdNo, found: &Finding) {
        let expected = self.checks.get(pmd).and_then(|check| check.weight);
        if let Some(expected) = expected.filter(|_| found.mix.is_known()) {
            self.surplus.compare(&found.mix, expected, self.pieces.len());
        }
    }

    /// Counts since the start.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Number of regions.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Huge ranges in all regions.
    pub fn pmds(&self) -> u64 {
        self.pieces.pmds()
    }

    /// Regions that were never checked.
    pub fn unchecked(&self) -> usize {
        self.pieces.iter().filter(|(_, p)| !p.is_known()).count()
    }

    /// Sums up. Pages are counted by the shares found in checked huge ranges, so numbers of pages are estimates.
    pub fn summarize(&self, max_regions: usize, before: &[PastRegion], elapsed: Ns) -> Summary {
        let mut sum = summary::histograms(&self.totals());
        sum.regions = summary::regions(self.pieces.iter(), max_regions);
        carry_ages(&mut sum.regions, before, elapsed);
        sum
    }
}

#[cfg(test)]
mod tests;
