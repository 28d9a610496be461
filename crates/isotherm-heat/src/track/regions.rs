//! Regions found by a monitor in the kernel: nothing is checked or cleared here.

use super::tracker::{Tracker, Turn};
use crate::source::{Layout, SourceResult};
use crate::view::Since;
use crate::{Granularity, KernelRegions, Ns, Summary, Tally};

/// A target whose regions are reported.
#[derive(Debug, Default)]
pub(super) struct RegionTracker(KernelRegions);

impl Tracker for RegionTracker {
    fn granularity(&self) -> Granularity {
        Granularity::Region
    }

    fn refit(&mut self, _: Layout, _: &mut Turn<'_>) -> SourceResult<()> {
        Ok(())
    }

    fn read_due(&mut self, turn: &mut Turn<'_>) -> SourceResult<()> {
        if self.0.next_read() > turn.now {
            return Ok(());
        }
        let (now, pid) = (turn.now, turn.pid);
        let found = turn.regions()?.regions(pid)?.unwrap_or_default();
        self.0.read(now, found.at, found.regions);
        Ok(())
    }

    fn next_read(&self) -> Option<Ns> {
        Some(self.0.next_read())
    }

    /// The source clears what it samples.
    fn is_cleared(&self) -> bool {
        false
    }

    fn tally(&self) -> Tally {
        self.0.tally()
    }

    /// The regions come with their ages.
    fn summarize(&mut self, _: Ns, max_regions: usize, _: Since<'_>) -> Summary {
        self.0.summarize(max_regions)
    }
}
