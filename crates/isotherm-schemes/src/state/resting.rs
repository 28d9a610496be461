//! Huge ranges that an action has handled, and that get no hint for it for a while.

use isotherm_heat::{Ns, TargetId};
use isotherm_units::PmdNo;
use std::collections::BTreeMap;

/// Until when each of them rests.
#[derive(Debug, Default)]
pub(super) struct Resting {
    until: BTreeMap<(TargetId, PmdNo), Ns>,
    swept_at: Ns,
}

impl Resting {
    /// Drops those that rest no longer at `now`: once for all targets of a window, which have the same time. For each of many, all of them would be
    /// looked through.
    pub fn sweep(&mut self, now: Ns) {
        if std::mem::replace(&mut self.swept_at, now) != now {
            self.until.retain(|_, until| *until > now);
        }
    }

    pub fn insert(&mut self, process: TargetId, pmd: PmdNo, until: Ns) {
        self.until.insert((process, pmd), until);
    }

    pub fn contains(&self, process: TargetId, pmd: PmdNo) -> bool {
        self.until.contains_key(&(process, pmd))
    }
}
