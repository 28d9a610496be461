//! Checks of single huge ranges, for targets too large to check each huge range in good time. Now and then it clears the whole
//! process, for pages that nothing else reaches.

use super::pages::{KNOWN_AFTER, PageTracker};
use super::process_clears::{ProcessClears, is_worth_a_stall};
use super::tracker::{Allotment, CLEAR_BATCH, ClearQuota, Extent, Room, SampledExtent, Tracker, Tracking, Turn};
use crate::sampled::DECIDED_AFTER;
use crate::source::{Cleared, Layout, SourceResult};
use crate::view::Since;
use crate::{Class, Granularity, Ns, ReportedTarget, SampledTarget, Summary, Tally, raise_rates};

/// Where more pages than this wait for a clear of the whole process (40 GiB), it is not done: it takes up to 50 ns a page, in one piece, and page
/// faults of the target wait for half a second. A source that has another way has a limit of its own.
const MAX_STUCK_PAGES: u64 = 10 << 20;

/// A target that could be watched whole for this long is. Then all is measured anew, so not for a moment.
const WHOLE_AGAIN: Ns = KNOWN_AFTER;

/// A target of which samples are checked.
#[derive(Debug)]
pub(super) struct SampledTracker {
    target: SampledTarget,
    beside: Option<Box<ReportedTarget>>,
    tracking: Tracking,
    process_clears: ProcessClears,
    /// Since when it could be watched whole.
    fits_since: Option<Ns>,
}

impl SampledTracker {
    pub fn new(now: Ns, tracking: Tracking, beside: Option<Box<ReportedTarget>>) -> SampledTracker {
        let target = SampledTarget::new(now, tracking.sampling, tracking.seed);
        SampledTracker { target, beside, tracking, process_clears: ProcessClears::new(now), fits_since: None }
    }
}

impl Tracker for SampledTracker {
    fn granularity(&self) -> Granularity {
        Granularity::Region
    }

    fn refit(&mut self, layout: Layout, _: &mut Turn<'_>) -> SourceResult<()> {
        self.target.refit(&layout.pmds);
        Ok(())
    }

    fn outgrown(&mut self, pmds: usize, room: Room, now: Ns) -> Option<Box<dyn Tracker>> {
        if pmds > room.again {
            self.fits_since = None;
            return None;
        }
        let since = *self.fits_since.get_or_insert(now);
        (room.again > 0 && now >= since + WHOLE_AGAIN)
            .then(|| Box::new(PageTracker::new(now, self.tracking, self.beside.take())) as Box<dyn Tracker>)
    }

    fn read_due(&mut self, turn: &mut Turn<'_>) -> SourceResult<()> {
        let target = &mut self.target;
        let due = target.due_reads(turn.now);
        let read = turn.read(&due, &mut |at, pmd, bits| match bits {
            Some(bits) => target.read(at, pmd, bits),
            None => target.postpone(at, pmd),
        });
        read.map(drop)
    }

    fn next_read(&self) -> Option<Ns> {
        self.target.next_read()
    }

    fn is_cleared(&self) -> bool {
        true
    }

    fn clear_process(&mut self, turn: &mut Turn<'_>) -> SourceResult<()> {
        if !self.target.has_paid() || !self.process_clears.is_due(turn.now) {
            return Ok(());
        }
        let (stuck_pages, resident) = self.target.stuck_pages();
        if !is_worth_a_stall(stuck_pages, || resident) || stuck_pages > MAX_STUCK_PAGES {
            return Ok(());
        }
        let plan = self.target.plan_process_clear();
        let target = &mut self.target;
        let answered = turn.read(&plan.in_progress, &mut |at, pmd, bits| {
            if let Some(bits) = bits {
                target.read_before_process(at, pmd, bits);
            }
        })?;
        if answered < plan.in_progress.len() {
            return Ok(());
        }
        let pid = turn.pid;
        let cleared = turn.pages()?.clear_process(pid, &plan.stuck, &plan.all)?;
        turn.spent.held(cleared.clear.stall_ns);
        self.target.process_cleared(&plan, &cleared);
        self.process_clears.cleared(&cleared, DECIDED_AFTER);
        Ok(())
    }

    fn clear_due(&mut self, quota: ClearQuota, turn: &mut Turn<'_>) -> SourceResult<usize> {
        // Any access may be unexpected here, so no huge range is urgent, and every check is like a first one.
        if quota.first == 0 {
            return Ok(0);
        }
        let (target, pid) = (&mut self.target, turn.pid);
        let due = target.due_clears(turn.now, quota.first.min(CLEAR_BATCH));
        if due.is_empty() {
            return Ok(0);
        }
        let progress = turn.pages()?.clear(pid, &due, &mut |at, pmd, outcome| match outcome {
            Cleared::Except(stuck) => target.cleared(at, pmd, stuck),
            Cleared::Refused => target.refused(at, pmd),
        })?;
        turn.spent.pmds_cleared += due.len() as u64;
        turn.spent.by_class[Class::First as usize] += due.len() as u64;
        turn.spent.add(0, progress);
        Ok(due.len())
    }

    fn take_reports(&mut self, turn: &mut Turn<'_>) -> SourceResult<f64> {
        self.beside.as_mut().map_or(Ok(0.0), |target| turn.take_reports(target))
    }

    fn has_reports(&self) -> bool {
        self.beside.is_some()
    }

    fn extent(&self) -> Extent {
        let target = &self.target;
        let sampled = SampledExtent {
            regions: target.len(),
            pmds: target.pmds(),
            interval_ns: target.interval_ns(),
            aggregated_in: target.aggregated_in(),
        };
        Extent { whole_pmds: 0, sampled: Some(sampled) }
    }

    fn unchecked(&self) -> usize {
        self.target.unchecked()
    }

    fn allot(&mut self, allotment: Allotment) {
        self.target.set_max_regions(allotment.sampled_regions);
        self.target.set_affordable_interval(allotment.affordable_interval_ns);
    }

    fn tally(&self) -> Tally {
        self.target.tally()
    }

    fn summarize(&mut self, _: Ns, max_regions: usize, last: Since<'_>) -> Summary {
        let mut sum = self.target.summarize(max_regions, last.regions, last.elapsed_ns);
        if let Some(reported) = &mut self.beside {
            raise_rates(&mut sum.regions, reported);
        }
        sum
    }
}
