//! How much of each mapping was accessed, where nothing finer is available.
//!
//! A check clears the whole process and counts its pages nine times, each of which walks all of it. So it has no share of the CPU budget that it
//! could save up: the next one waits until all budgets are paid back, and until the stall of the last clear is a small part of the time.

use super::process_clears::STALL_SHARE;
use super::tracker::{ClearQuota, Tracker, Turn};
use crate::source::{Layout, SourceResult};
use crate::view::Since;
use crate::{Bucket, CREDIT_S, Granularity, MappingTarget, Next, Ns, RETOUCH_NS, Summary, Tally};

/// A target monitored by mapping.
#[derive(Debug)]
pub(super) struct MappingTracker {
    target: MappingTarget,
    slowdown: Bucket,
    /// No clear comes before: the process was held up by the last one.
    rests_until: Ns,
}

impl MappingTracker {
    pub fn new(now: Ns, max_slowdown_pct: f64) -> MappingTracker {
        let slowdown = Bucket::new(max_slowdown_pct, CREDIT_S, now);
        MappingTracker { target: MappingTarget::new(), slowdown, rests_until: now }
    }
}

impl Tracker for MappingTracker {
    fn granularity(&self) -> Granularity {
        Granularity::Mapping
    }

    fn refit(&mut self, _: Layout, _: &mut Turn<'_>) -> SourceResult<()> {
        // A count lists the mappings each time.
        Ok(())
    }

    fn read_due(&mut self, turn: &mut Turn<'_>) -> SourceResult<()> {
        if !matches!(self.target.next(), Next::Read(at) if at <= turn.now) {
            return Ok(());
        }
        let (before, pid) = (self.target.tally().retouched, turn.pid);
        let counted = turn.mappings()?.count(pid)?;
        self.target.read(counted.at, &counted.mappings);
        turn.spent.add(0, counted.progress);
        self.slowdown.spend((self.target.tally().retouched - before) as f64 * RETOUCH_NS);
        Ok(())
    }

    fn next_read(&self) -> Option<Ns> {
        match self.target.next() {
            Next::Read(at) => Some(at),
            Next::Clear => None,
        }
    }

    fn is_cleared(&self) -> bool {
        true
    }

    fn checks_all_at_once(&self) -> bool {
        true
    }

    fn clear_due(&mut self, quota: ClearQuota, turn: &mut Turn<'_>) -> SourceResult<usize> {
        let is_due = quota.has_planned() && self.target.next() == Next::Clear;
        if !is_due || turn.now < self.rests_until || self.slowdown.available_ns(turn.now) <= 0.0 {
            return Ok(0);
        }
        let pid = turn.pid;
        let clear = turn.mappings()?.clear(pid)?;
        turn.spent.held(clear.stall_ns);
        self.target.cleared(clear.at);
        self.rests_until = clear.at + clear.stall_ns * STALL_SHARE;
        Ok(1)
    }

    fn tally(&self) -> Tally {
        self.target.tally()
    }

    fn summarize(&mut self, _: Ns, max_regions: usize, last: Since<'_>) -> Summary {
        let mut sum = self.target.summarize(max_regions);
        last.carry_ages(&mut sum.regions);
        sum
    }
}
