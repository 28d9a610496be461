//! A target too large to check as a whole: regions, known from checks of single blocks.
//!
//! Cost follows the number of regions, not the size of memory. In each interval, one random block of every region is
//! cleared and read back. That check covers 512 pages at once (`mix`). DAMON cuts regions at random places and sees
//! later whether the parts differ. We cut where checks have differed: between two blocks that disagree there is a place
//! where heat changes. Checking the middle finds it in as many steps as the distance has bits. The blocks between the
//! last check that agreed and the first that did not stay undecided. Half of all checks go there.
//!
//! - Regions are never larger than twice their fair share (`cap`). So the random checks, one block in each region, are
//!   spread over all of memory, and small hot spots are found in the end.
//! - `tidy` does what DAMON's merging does: similar neighbours become one region. If there are too many regions, the
//!   most similar merge first, with a bound that doubles.
//! - Checks at the ends of regions are no fair sample of what is between. Random checks are. The mean of what they
//!   found, less what their regions predict, is the overall error of all regions. It is corrected in the histograms.
//! - A block that was checked long ago and borders on a change is checked again at once. So a large region that turns
//!   hot or cold as a whole is relabelled in a few steps.
//!
//! | module | job |
//! |---|---|
//! | [`choose`] | which blocks to check next |
//! | [`looks`] | the checks in progress, and when each block is read |
//! | [`mix`] | one check, and the results of checks |
//! | [`pieces`], [`piece`] | all regions, and one region: its heat and where it ends |
//! | [`tidy`] | makes few regions of many, and cuts those that are too large |
//! | [`surplus`] | the overall error of the regions |
//! | [`summary`] | regions and histograms as they are reported |
//!
//! Uses `tiles` to follow changes of what is mapped. Times come from the caller. Randomness is a seeded generator.

mod choose;
mod looks;
mod mix;
mod piece;
mod pieces;
mod summary;
mod surplus;
mod tidy;

use crate::block::{BlockBits, Ns};
use crate::budget::{Bucket, RETOUCH_NS};
use crate::regions::carry_ages;
use crate::target::{CREDIT_S, Tally};
use crate::view::Summary;
use crate::{Mask, Region};
use choose::{Chooser, Pass};
use isotherm_units::{BlockNo, Bytes};
use looks::Looks;
use mix::{EARLY, Finding, Look, Mix};
use pieces::Pieces;
use std::collections::BTreeSet;
use surplus::Surplus;

/// Parameters of sampling that can be changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The bound on regions. At least 2.
    pub max_regions: usize,
    /// No region is larger than this, if the bound on their number allows.
    pub max_region: Option<Bytes>,
    /// Every region is checked once in this time, if the budgets allow.
    pub interval_ns: Ns,
    /// Allowed slow-down, in percent of one core. Over 100: no limit.
    pub max_slowdown_pct: f64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { max_regions: 1000, max_region: None, interval_ns: 1_000_000_000, max_slowdown_pct: 1.0 }
    }
}

/// The heat of one process known from samples, and which block to check next.
#[derive(Debug)]
pub struct SampledTarget {
    pieces: Pieces,
    looks: Looks,
    chooser: Chooser,
    surplus: Surplus,
    slowdown: Bucket,
    tally: Tally,
}

impl SampledTarget {
    /// A target of which nothing is known.
    pub fn new(now: Ns, sampling: Sampling, seed: u64) -> SampledTarget {
        SampledTarget {
            pieces: Pieces::new(sampling.max_regions, sampling.max_region),
            looks: Looks::new(),
            chooser: Chooser::new(sampling.interval_ns, seed),
            surplus: Surplus::default(),
            slowdown: Bucket::new(sampling.max_slowdown_pct, CREDIT_S, now),
            tally: Tally::default(),
        }
    }

    /// Changes the bound on regions. It holds from the next [`SampledTarget::refit`] on.
    pub fn set_max_regions(&mut self, max_regions: usize) {
        self.pieces.set_max_regions(max_regions);
    }

    /// Takes in which blocks are populated now (sorted). O(blocks), and O(regions) if that has changed.
    pub fn refit(&mut self, populated: &[BlockNo]) {
        self.pieces.refit(populated);
    }

    /// Up to `most` blocks to clear now, in address order, as the slow-down budget allows. The caller clears each and
    /// reports it to [`SampledTarget::cleared`] or [`SampledTarget::refused`].
    pub fn due_clears(&mut self, now: Ns, most: usize) -> Vec<BlockNo> {
        let allowed = self.slowdown.available_ns(now) / RETOUCH_NS - self.looks.reserved();
        let (pieces, looks) = (&mut self.pieces, &mut self.looks);
        self.chooser.choose(now, most, Pass { pieces, looks, allowed, chosen: BTreeSet::new() })
    }

    /// Notes that `block` was cleared at `now`, except for the pages in `stuck`.
    pub fn cleared(&mut self, now: Ns, block: BlockNo, stuck: Mask) {
        let mut look = Look::new(now, stuck, self.pieces.expected(block));
        look.stands_for = self.chooser.stands_for(block).zip(self.pieces.early_of(block));
        self.looks.begin(block, look);
    }

    /// Notes that `block` cannot be cleared: nothing can be known of its heat.
    pub fn refused(&mut self, now: Ns, block: BlockNo) {
        self.pieces.settle(now, block, &Finding { mix: Mix::default(), resident: 1.0, huge: false });
    }

    /// Blocks whose read is due, in address order.
    pub fn due_reads(&mut self, now: Ns) -> Vec<BlockNo> {
        self.looks.due(now)
    }

    /// When the next read is due.
    pub fn next_read(&self) -> Option<Ns> {
        self.looks.next_due()
    }

    /// A due read could not be done. It is due again shortly.
    pub fn postpone(&mut self, now: Ns, block: BlockNo) {
        self.looks.postpone(now, block);
    }

    /// Takes in a read of one block. Blocks without a check in progress are ignored.
    pub fn read(&mut self, now: Ns, block: BlockNo, bits: BlockBits) {
        let Some(look) = self.looks.get_mut(block) else { return };
        let is_first = look.reads == 0;
        let Some(seen) = look.read(now, bits) else {
            return self.looks.end(block);
        };
        let (finding, is_done, reads) = (look.finding(), look.is_done(), look.reads);
        if is_first {
            self.tally.cleared += look.units();
        }
        self.tally.retouched += u64::from(seen.units);
        self.tally.left_set += u64::from(seen.left_set);
        self.tally.lost += u64::from(seen.lost);
        self.slowdown.spend(f64::from(seen.units) * RETOUCH_NS);
        if (is_done || reads >= EARLY) && self.looks.decide(block) {
            self.compare(block, &finding);
            self.pieces.settle(now, block, &finding);
        }
        if is_done {
            self.looks.end(block);
            self.pieces.learn_late(block, &finding);
        } else {
            self.looks.plan_next(block);
        }
    }

    /// Notes how far a random check was off what its region predicts.
    fn compare(&mut self, block: BlockNo, found: &Finding) {
        let expected = self.looks.get(block).and_then(|look| look.stands_for);
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

    /// Blocks in all regions.
    pub fn blocks(&self) -> u64 {
        self.pieces.blocks()
    }

    /// Regions that were never checked.
    pub fn unchecked(&self) -> usize {
        self.pieces.iter().filter(|(_, p)| !p.is_known()).count()
    }

    /// Sums up. Pages are counted by the shares found in checked blocks, so numbers of pages are estimates.
    pub fn summarize(&self, max_regions: usize, before: &[Region], elapsed: Ns) -> Summary {
        let mut sum = summary::histograms(self.pieces.iter(), &self.surplus);
        sum.regions = summary::regions(self.pieces.iter(), max_regions);
        carry_ages(&mut sum.regions, before, elapsed);
        sum
    }
}

#[cfg(test)]
mod tests;
