//! Reported accesses, and nothing else.

use super::tracker::{Tracker, Turn};
use crate::source::{Layout, SourceResult};
use crate::view::Since;
use crate::{Granularity, Ns, ReportedTarget, Silence, Summary, Tally};

/// A target known from reports only.
#[derive(Debug)]
pub(super) struct ReportTracker(Box<ReportedTarget>);

impl ReportTracker {
    pub fn new(now: Ns, silence: Silence) -> ReportTracker {
        ReportTracker(Box::new(ReportedTarget::new(now, silence)))
    }
}

impl Tracker for ReportTracker {
    fn granularity(&self) -> Granularity {
        Granularity::Region
    }

    fn refit(&mut self, layout: Layout, _: &mut Turn<'_>) -> SourceResult<()> {
        self.0.refit(layout.resident);
        Ok(())
    }

    /// The monitor decides when reports are taken in: see [`Tracker::take_reports`].
    fn read_due(&mut self, _: &mut Turn<'_>) -> SourceResult<()> {
        Ok(())
    }

    fn next_read(&self) -> Option<Ns> {
        None
    }

    /// It needs no accessed bits.
    fn is_cleared(&self) -> bool {
        false
    }

    fn take_reports(&mut self, turn: &mut Turn<'_>) -> SourceResult<f64> {
        turn.take_reports(&mut self.0)
    }

    fn has_reports(&self) -> bool {
        true
    }

    fn tally(&self) -> Tally {
        Tally::default()
    }

    fn summarize(&mut self, now: Ns, max_regions: usize, last: Since<'_>) -> Summary {
        self.0.summarize(now, max_regions, last.regions, last.elapsed_ns)
    }
}
