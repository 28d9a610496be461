//! Checks of single huge ranges, for targets too large to check each huge range in good time.

use super::tracker::{Allotment, CLEAR_BATCH, ClearQuota, Extent, SampledExtent, Tracker, Tracking, Turn};
use crate::source::{Cleared, Layout, SourceResult};
use crate::view::Since;
use crate::{Class, Granularity, Ns, ReportedTarget, SampledTarget, Summary, Tally, raise_rates};

/// A target of which samples are checked.
#[derive(Debug)]
pub(super) struct SampledTracker {
    target: SampledTarget,
    beside: Option<Box<ReportedTarget>>,
}

impl SampledTracker {
    pub fn new(now: Ns, tracking: Tracking, beside: Option<Box<ReportedTarget>>) -> SampledTracker {
        SampledTracker { target: SampledTarget::new(now, tracking.sampling, tracking.seed), beside }
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
