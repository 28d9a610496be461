//! Sums over processes that have ended, for the cost of the whole run.

use crate::watched::TargetMonitor;
use isotherm_heat::Ns;

/// Counts of processes that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    pub cleared: u64,
    pub retouched: u64,
    pub slowdown_pct: f64,
}

impl Ended {
    pub fn add(&mut self, watched: &TargetMonitor, now: Ns) {
        let tally = watched.tally();
        self.cleared += tally.cleared;
        self.retouched += tally.retouched;
        self.slowdown_pct = self.slowdown_pct.max(watched.slowdown_pct(now));
    }
}
