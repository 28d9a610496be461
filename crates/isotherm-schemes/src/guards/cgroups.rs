//! Checks whether the memory cgroup of a process has room for the charge of an action, and records which cgroups wait
//! for room.
//!
//! A collapse charges a whole huge page while the pages that it replaces are still charged. Near a limit, that charge
//! makes the kernel reclaim from the cgroup, which stalls its processes. (If that is not enough, the kernel refuses the
//! charge: for one of this size it starts no OOM killer.) The remaining room may be too small for the program's next burst,
//! which can. So some room is left alone below every limit.
//!
//! Page cache of the cgroup counts as used although the kernel could drop it, because dropping it is the stall to be
//! avoided. A cgroup that page cache keeps at its limit is never collapsed.

use crate::budgets::{Budgets, Wait};
use crate::machine::CgroupState;
use crate::retry::Handled;
use isotherm_heat::Ns;
use isotherm_sys::proc::MemoryUse;
use isotherm_units::{Bytes, PMD_SIZE};
use std::collections::BTreeMap;

const MS: Ns = 1_000_000;
const S: Ns = 1_000_000_000;

/// The least room to leave below a limit, whatever the percentage. Programs often have bursts of a few MiB.
const MIN_MARGIN: Bytes = Bytes(8 << 20);
/// Time until a cgroup is checked again. Doubled each time it still has to wait.
const FIRST_WAIT: Ns = 500 * MS;
/// The longest waits: for room, which may come at any time, and after a refused charge, for which the kernel has reclaimed.
const LONGEST_FOR_ROOM: Ns = 8 * S;
const LONGEST_AFTER_CHARGE: Ns = 60 * S;

/// What forbids charging `charge` bytes to a cgroup.
pub(crate) fn shortage(state: &CgroupState, charge: Bytes, budgets: &Budgets) -> Option<Wait> {
    if state.pressure_pct.is_some_and(|percent| percent > budgets.pressure_pct) {
        return Some(Wait::CgroupPressure);
    }
    let fits = |held: &MemoryUse| {
        let (Some(room), Some(limit)) = (held.room(), held.lowest()) else { return true };
        let share = limit.0 as f64 * budgets.cgroup_margin_pct / 100.0;
        // At 0% there is no margin: `undo` brings back whatever fits.
        let margin = if share > 0.0 { share.max(MIN_MARGIN.0 as f64) } else { 0.0 };
        room.0 as f64 >= charge.0 as f64 + margin
    };
    (!state.limited.iter().all(fits)).then_some(Wait::CgroupLimit)
}

/// Whether what leaves a huge range of it may not go to swap, as in a pod without swap (`memory.swap.max`). The kernel does not report that: it
/// moves nothing, as if the pages were locked.
pub(crate) fn lacks_swap(state: &CgroupState) -> bool {
    state.swap_room.is_some_and(|room| room.0 < PMD_SIZE)
}

#[derive(Debug)]
struct Pause {
    until: Ns,
    why: Wait,
    next: Ns,
}

/// Cgroups that wait, by path.
#[derive(Debug, Default)]
pub(crate) struct Pauses(BTreeMap<String, Pause>);

impl Pauses {
    /// The answer to hints of a cgroup that waits.
    pub(crate) fn at(&self, cgroup: &str, now: Ns) -> Option<Handled> {
        let pause = self.0.get(cgroup).filter(|pause| now < pause.until)?;
        // `NoCharge` counts as a try, and only the huge range that was tried has had one.
        let why = if pause.why == Wait::NoCharge { Wait::CgroupLimit } else { pause.why };
        Some(Handled::Later(pause.until, why))
    }

    /// What a cgroup waits for, or waited for at the last check.
    pub(crate) fn why(&self, cgroup: &str) -> Option<Wait> {
        self.0.get(cgroup).map(|pause| pause.why)
    }

    /// Lets a cgroup wait. Waits longer than the last time if it has had no room in between.
    pub(crate) fn pause(&mut self, cgroup: &str, now: Ns, why: Wait) -> Handled {
        let longest = if why == Wait::NoCharge { LONGEST_AFTER_CHARGE } else { LONGEST_FOR_ROOM };
        let wait = self.0.get(cgroup).map_or(FIRST_WAIT, |pause| pause.next).min(longest);
        let until = now + wait;
        self.0.insert(cgroup.to_owned(), Pause { until, why, next: (wait * 2).min(longest) });
        Handled::Later(until, why)
    }

    /// The cgroup has room. This does not clear a refused charge, which only a granted one does.
    pub(crate) fn has_room(&mut self, cgroup: &str) {
        if self.why(cgroup).is_some_and(|why| why != Wait::NoCharge) {
            self.0.remove(cgroup);
        }
    }

    /// A charge was granted, or the cgroup has no member left.
    pub(crate) fn forget(&mut self, cgroup: &str) {
        self.0.remove(cgroup);
    }
}
