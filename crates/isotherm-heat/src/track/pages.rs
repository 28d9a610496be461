//! Every page: reads what is due, and clears as the budgets allow. Now and then it clears the whole process, for pages
//! that nothing else reaches.

use super::sampled::SampledTracker;
use super::tracker::{Allotment, ClearQuota, Extent, Tracker, Tracking, Turn};
use crate::source::{Asked, Cleared, ClearedProcess, Layout};
use crate::view::Since;
use crate::{
    BlockBits, Granularity, Ns, RETOUCH_NS, ReportedTarget, Summary, Tally, Target, Watch, summarize_after,
    summarize_fused,
};
use isotherm_units::BlockNo;

/// A clear of the whole process is worth its stall only for this many pages, and for this share of the resident pages.
const MIN_STUCK_PAGES: u64 = 256;
const MIN_STUCK_SHARE: u64 = 1000;
/// Time to the first clear of the whole process for stuck pages, and the factor it backs off by.
const STUCK_FIRST: Ns = 1_000_000_000;
const STUCK_BACKOFF: u64 = 2;
const STUCK_LONGEST: Ns = 120_000_000_000;
/// The target may spend one part in this many of its time stalled by clears of the whole process.
const STALL_SHARE: u64 = 200;
/// A target monitored as a whole may grow to this many times the size at which a new target is sampled.
const GROWN: usize = 2;
/// The background-scan period until the monitor sets one.
const FIRST_SCAN_PERIOD: Ns = 1_000_000_000;

/// A target monitored as a whole.
#[derive(Debug)]
pub(super) struct PageTracker {
    target: Target,
    /// Accesses that are reported, in addition to what is checked.
    beside: Option<Box<ReportedTarget>>,
    tracking: Tracking,
    next_stuck: Ns,
    stuck_interval: Ns,
}

impl PageTracker {
    pub fn new(now: Ns, tracking: Tracking, beside: Option<Box<ReportedTarget>>) -> PageTracker {
        let watch = Watch { max_slowdown_pct: tracking.sampling.max_slowdown_pct, scan_period_ns: FIRST_SCAN_PERIOD };
        PageTracker {
            target: Target::new(now, watch, tracking.seed),
            beside,
            tracking,
            next_stuck: now + STUCK_FIRST,
            stuck_interval: STUCK_FIRST,
        }
    }

    /// Reads `blocks`. Returns how many were answered, from the front.
    fn read(&mut self, blocks: &[BlockNo], turn: &mut Turn<'_>) -> Asked<usize> {
        let target = &mut self.target;
        turn.read(blocks, &mut |at, block, bits| match bits {
            Some(BlockBits::Gone) => target.gone(block),
            Some(bits) => target.read(at, block, bits),
            None => target.postpone(at, block),
        })
    }

    /// Clears `blocks`. Blocks that were not cleared because of an error are due again shortly: the error may pass.
    fn clear(&mut self, blocks: &[BlockNo], turn: &mut Turn<'_>) -> Asked<usize> {
        let (target, pid, now) = (&mut self.target, turn.pid, turn.now);
        let mut cleared = 0;
        let done = turn.pages()?.clear(pid, blocks, &mut |at, block, outcome| {
            cleared += 1;
            match outcome {
                Cleared::Except(stuck) => target.cleared(at, block, stuck),
                Cleared::Refused => target.refused(block),
            }
        });
        turn.spent.blocks_cleared += cleared as u64;
        match done {
            Ok(progress) => turn.spent.add(0, progress),
            Err(error) => {
                // In the order of the list, so the missing blocks are at its end.
                blocks[cleared..].iter().for_each(|block| target.clear_later(now, *block));
                return Err(error);
            }
        }
        Ok(blocks.len())
    }

    /// Clears what is due: blocks with unexpected accesses and, unless the budget is for those only, blocks whose time
    /// has come.
    fn clear_blocks(&mut self, quota: ClearQuota, turn: &mut Turn<'_>) -> Asked<usize> {
        let now = turn.now;
        let due = self.target.due_clears(now, quota.blocks(), quota == ClearQuota::Urgent);
        // Accesses until now would be lost with the bits. A block without cleared pages has nothing to lose.
        let (cleared, mut ready): (Vec<_>, Vec<_>) = due.iter().partition(|b| self.target.has_cleared(**b));
        let answered = match self.read(&cleared, turn) {
            Ok(answered) => answered,
            Err(error) => {
                due.iter().for_each(|block| self.target.clear_later(now, *block));
                return Err(error);
            }
        };
        for block in &cleared[answered..] {
            self.target.clear_later(now, *block);
        }
        ready.extend(&cleared[..answered]);
        ready.sort_unstable();
        self.clear(&ready, turn)
    }

    /// Clears the whole process if enough of it cannot be reached otherwise and enough time has passed.
    fn clear_stuck(&mut self, turn: &mut Turn<'_>) -> Asked<()> {
        if turn.now < self.next_stuck {
            return Ok(());
        }
        self.next_stuck = turn.now + self.stuck_interval;
        let stuck = self.target.stuck_blocks();
        let pages = self.target.uncleared_in(&stuck);
        if pages < MIN_STUCK_PAGES.max(self.target.resident() / MIN_STUCK_SHARE) {
            return Ok(());
        }
        // Reads everything, not only the stuck blocks: accesses that were not read are lost with the bits.
        let all = self.target.all_blocks();
        if self.read(&all, turn)? < all.len() {
            return Ok(());
        }
        let pid = turn.pid;
        let cleared = turn.pages()?.clear_process(pid, &stuck, &all)?;
        turn.spent.held(cleared.clear.stall_ns);
        self.process_cleared(&cleared, pages);
        Ok(())
    }

    /// Takes in a clear of the whole process for `pages` stuck pages, and sets when the next one may come.
    fn process_cleared(&mut self, cleared: &ClearedProcess, pages: u64) {
        let clear = cleared.clear;
        cleared.blocks.iter().for_each(|block| self.target.process_cleared(clear.at, *block));
        cleared.partly.iter().for_each(|block| self.target.partly_cleared(*block));
        let cost_ns = pages as f64 * RETOUCH_NS;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds to minutes")]
        let for_budget = (cost_ns * 100.0 / self.tracking.sampling.max_slowdown_pct) as Ns;
        let backed_off = (self.stuck_interval * STUCK_BACKOFF).min(STUCK_LONGEST);
        self.stuck_interval = backed_off.max(clear.stall_ns * STALL_SHARE).max(for_budget);
        self.next_stuck = clear.at + self.stuck_interval;
    }
}

impl Tracker for PageTracker {
    fn granularity(&self) -> Granularity {
        Granularity::Page
    }

    fn refit(&mut self, layout: Layout, turn: &mut Turn<'_>) -> Asked<()> {
        let fresh = self.target.refit(&layout.blocks);
        self.read(&fresh, turn).map(drop)
    }

    fn outgrown(&mut self, blocks: usize, whole: usize, now: Ns) -> Option<Box<dyn Tracker>> {
        // A target that is monitored as a whole already has some room to grow.
        let most = if self.target.is_empty() { whole } else { whole.saturating_mul(GROWN) };
        (blocks > most).then(|| {
            let sampled = SampledTracker::new(now, self.tracking, self.beside.take());
            Box::new(sampled) as Box<dyn Tracker>
        })
    }

    fn read_due(&mut self, turn: &mut Turn<'_>) -> Asked<()> {
        let due = self.target.due_reads(turn.now);
        self.read(&due, turn).map(drop)
    }

    fn next_read(&self) -> Option<Ns> {
        self.target.next_read()
    }

    fn is_cleared(&self) -> bool {
        true
    }

    fn clear_due(&mut self, quota: ClearQuota, turn: &mut Turn<'_>) -> Asked<usize> {
        if quota != ClearQuota::Urgent {
            self.clear_stuck(turn)?;
        }
        self.clear_blocks(quota, turn)
    }

    fn take_reports(&mut self, turn: &mut Turn<'_>) -> Asked<f64> {
        self.beside.as_mut().map_or(Ok(0.0), |target| turn.take_reports(target))
    }

    fn has_reports(&self) -> bool {
        self.beside.is_some()
    }

    fn extent(&self) -> Extent {
        Extent { whole_blocks: self.target.len(), sampled: None }
    }

    fn unchecked(&self) -> usize {
        self.target.unchecked()
    }

    fn allot(&mut self, allotment: Allotment) {
        self.target.set_scan_period(allotment.scan_period_ns);
    }

    fn tally(&self) -> Tally {
        self.target.tally()
    }

    fn summarize(&mut self, now: Ns, max_regions: usize, last: Since<'_>) -> Summary {
        match &mut self.beside {
            Some(reported) => summarize_fused(&self.target, reported, now, max_regions, last),
            None => summarize_after(&self.target, now, max_regions, last),
        }
    }

    fn pages(&self) -> Option<&Target> {
        Some(&self.target)
    }
}
