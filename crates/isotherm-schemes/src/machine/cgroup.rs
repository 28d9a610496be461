//! The memory cgroup of a process, for [`super::Live`]: which it is, and what can still be charged to it.
//!
//! Which cgroups have a limit seldom changes, so it is read every 0.5 s. The charge of those that have one changes with
//! every page fault and is read before each collapse.

use isotherm_heat::Ns;
use isotherm_sys::proc::{Cgroup, Cgroups, MemoryUse, Proc};
use isotherm_units::Bytes;

/// How long a process's cgroup, the limits that are set, and its pressure are cached.
const CACHE_TTL: Ns = 500_000_000;

/// The memory cgroup that collapses of a process are charged to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupState {
    /// Its path. Processes with the same path share it.
    pub path: String,
    /// What it and its ancestors hold and may hold; only those with a limit.
    pub limited: Vec<MemoryUse>,
    /// Percentage of the last ten seconds in which something in it waited for memory; `None` if the kernel does not
    /// report it.
    pub pressure_pct: Option<f64>,
    /// Swap that may still be charged to it and its ancestors; `None` if none of them has a limit.
    pub swap_room: Option<Bytes>,
}

/// Cached data about the cgroup of one process.
#[derive(Debug, Default)]
pub(crate) struct Known {
    path: String,
    limited: Vec<Cgroup>,
    pressure_pct: Option<f64>,
    swap_room: Option<Bytes>,
    at: Ns,
    /// Whether all existing limits can be read. A container does not see those above its own root.
    complete: bool,
    /// How many times charges had hit one of the limits, when last read.
    hits: u64,
}

impl Known {
    /// The cgroup of process `pid` at `now`; `None` if it has none with memory accounting.
    pub(super) fn state(&mut self, proc: &Proc, cgroups: &Cgroups, pid: u32, now: Ns) -> Option<CgroupState> {
        if self.at == 0 || now.saturating_sub(self.at) >= CACHE_TTL {
            *self = Known::read(proc, cgroups, pid, now);
        }
        if self.path.is_empty() {
            return None;
        }
        self.hits = self.count_hits();
        let limited = self.limited.iter().filter_map(|cgroup| cgroup.memory_use().ok().flatten()).collect();
        Some(CgroupState {
            path: self.path.clone(),
            limited,
            pressure_pct: self.pressure_pct,
            swap_room: self.swap_room,
        })
    }

    fn read(proc: &Proc, cgroups: &Cgroups, pid: u32, now: Ns) -> Known {
        let none = Known { at: now, ..Known::default() };
        let own = proc.membership(pid).ok().and_then(|membership| cgroups.of(&membership));
        let Some(own) = own else { return none };
        let is_limited = |cgroup: &Cgroup| cgroup.memory_use().ok().flatten().is_some_and(|u| u.lowest().is_some());
        let pressure_pct = own.memory_pressure().ok().flatten().map(|pressure| pressure.some_avg10);
        let all = own.with_ancestors();
        let swap_room = all.iter().filter_map(|cgroup| cgroup.swap_room().ok().flatten()).min();
        let complete = all.last().is_some_and(Cgroup::is_root);
        let limited = all.into_iter().filter(is_limited).collect();
        Known { path: own.path, limited, pressure_pct, swap_room, at: now, complete, hits: 0 }
    }

    /// Whether no charge has hit a limit since [`Known::state`]. False if that is unknown.
    pub(crate) fn no_charge_was_refused(&self) -> bool {
        self.complete && self.count_hits() == self.hits
    }

    fn count_hits(&self) -> u64 {
        let hits = |cgroup: &Cgroup| cgroup.memory_events().ok().and_then(|events| events.max).unwrap_or_default();
        self.limited.iter().map(hits).sum()
    }
}
