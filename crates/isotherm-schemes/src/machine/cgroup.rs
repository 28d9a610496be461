//! The memory cgroup of a process, for [`super::Live`]: which it is, and what can still be charged to it.
//!
//! Which cgroups have a limit changes seldom and is believed for half a second; what is charged to those that have one changes
//! with every page fault, and is read before each collapse.

use isotherm_heat::Ns;
use isotherm_sys::proc::{Cgroup, Cgroups, MemoryUse, Proc};

/// How long the cgroup of a process, those of its limits that are set, and its pressure are believed.
const BELIEVED_FOR: Ns = 500_000_000;

/// The memory cgroup that collapses of a process are charged to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupState {
    /// Its path, by which those that share it know each other.
    pub path: String,
    /// Of it and those above it, what each holds and may hold: those that have a limit.
    pub limited: Vec<MemoryUse>,
    /// Share of the last ten seconds in which something in it waited for memory; `None` where the kernel does not tell.
    pub pressure_pct: Option<f64>,
}

/// What is known of the cgroup of one process.
#[derive(Debug, Default)]
pub(crate) struct Known {
    path: String,
    limited: Vec<Cgroup>,
    pressure_pct: Option<f64>,
    at: Ns,
    /// All limits that there are can be read: a container does not see those above its own root.
    complete: bool,
    /// How often charges had met one of the limits when they were last read.
    hits: u64,
}

impl Known {
    /// The cgroup of process `pid` at `now`; `None` if it has none that is accounted.
    pub(super) fn state(&mut self, proc: &Proc, cgroups: &Cgroups, pid: u32, now: Ns) -> Option<CgroupState> {
        if self.at == 0 || now.saturating_sub(self.at) >= BELIEVED_FOR {
            *self = Known::read(proc, cgroups, pid, now);
        }
        if self.path.is_empty() {
            return None;
        }
        self.hits = self.count_hits();
        let limited = self.limited.iter().filter_map(|cgroup| cgroup.memory_use().ok().flatten()).collect();
        Some(CgroupState { path: self.path.clone(), limited, pressure_pct: self.pressure_pct })
    }

    fn read(proc: &Proc, cgroups: &Cgroups, pid: u32, now: Ns) -> Known {
        let none = Known { at: now, ..Known::default() };
        let own = proc.membership(pid).ok().and_then(|membership| cgroups.of(&membership));
        let Some(own) = own else { return none };
        let is_limited = |cgroup: &Cgroup| cgroup.memory_use().ok().flatten().is_some_and(|u| u.lowest().is_some());
        let pressure_pct = own.memory_pressure().ok().flatten().map(|pressure| pressure.some_avg10);
        let all = own.with_ancestors();
        let complete = all.last().is_some_and(Cgroup::is_root);
        let limited = all.into_iter().filter(is_limited).collect();
        Known { path: own.path, limited, pressure_pct, at: now, complete, hits: 0 }
    }

    /// Whether no charge has met a limit since [`Known::state`]. False if that cannot be known.
    pub(crate) fn no_charge_was_refused(&self) -> bool {
        self.complete && self.count_hits() == self.hits
    }

    fn count_hits(&self) -> u64 {
        let hits = |cgroup: &Cgroup| cgroup.memory_events().ok().and_then(|events| events.max).unwrap_or_default();
        self.limited.iter().map(hits).sum()
    }
}
