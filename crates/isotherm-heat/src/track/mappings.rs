//! How much of each mapping was accessed, where nothing finer is available.
//!
//! A check clears the whole process and counts its pages ten times, each of which walks all of it. No share of the CPU budget could save up as much: the
//! next check waits until the budget is paid back, and until the stall of the last clear is a small part of the time. Just before its clear the pages
//! are counted once more: what was accessed while it waited would be lost with the bits.

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
    /// When the next check waits for the CPU budget no longer.
    waits_until: Ns,
}

/// A check waits for the CPU budget for so long at most: where other work takes all of it, it would never come.
const LONGEST_WAIT: Ns = 600_000_000_000;

impl MappingTracker {
    pub fn new(now: Ns, max_slowdown_pct: f64) -> MappingTracker {
        let slowdown = Bucket::new(max_slowdown_pct, CREDIT_S, now);
        MappingTracker { target: MappingTarget::new(), slowdown, rests_until: now, waits_until: now }
    }

    fn count(&mut self, turn: &mut Turn<'_>) -> SourceResult<()> {
        let (before, pid) = (self.target.tally().retouched, turn.pid);
        let counted = turn.mappings()?.count(pid)?;
        self.target.read(counted.at, &counted.mappings);
        turn.spent.add(0, counted.progress);
        self.slowdown.spend((self.target.tally().retouched - before) as f64 * RETOUCH_NS);
        Ok(())
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
        self.count(turn)
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

    fn waits_for_budget(&self, now: Ns) -> bool {
        now < self.waits_until
    }

    fn clear_due(&mut self, quota: ClearQuota, turn: &mut Turn<'_>) -> SourceResult<usize> {
        let is_due = quota.has_planned() && self.target.next() == Next::Clear;
        if !is_due || turn.now < self.rests_until || self.slowdown.available_ns(turn.now) <= 0.0 {
            return Ok(0);
        }
        if self.target.is_begun() {
            self.count(turn)?;
        }
        let pid = turn.pid;
        let clear = turn.mappings()?.clear(pid)?;
        turn.spent.held(clear.stall_ns);
        self.target.cleared(clear.at);
        self.rests_until = clear.at + clear.stall_ns * STALL_SHARE;
        self.waits_until = clear.at + LONGEST_WAIT;
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
