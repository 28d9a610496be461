//! Whether the memory cgroup of a process has room for what an action charges to it, and which cgroups wait because it has not.
//!
//! A collapse charges a whole huge page while the pages that it replaces are still charged. Where a limit is near, that charge makes
//! the kernel reclaim from the cgroup, stalls its processes, and can end in the OOM killer; what is left of the room afterwards may
//! be too little for the next burst of the program itself. So some room is left alone below every limit that counts.
//!
//! Page cache of the cgroup counts as used although the kernel could drop it: dropping it is the very stall to be avoided. A
//! cgroup that page cache keeps at its limit is not collapsed.

use crate::budgets::{Budgets, Wait};
use crate::machine::CgroupState;
use crate::retry::Handled;
use isotherm_heat::Ns;
use isotherm_sys::proc::MemoryUse;
use isotherm_units::Bytes;
use std::collections::BTreeMap;

const MS: Ns = 1_000_000;
const S: Ns = 1_000_000_000;

/// The least that is left alone below a limit, whatever share of it that is: a burst of a few MiB is an everyday event.
const MIN_MARGIN: Bytes = Bytes(8 << 20);
/// Until a cgroup is checked again: doubled each time it still has to wait.
const FIRST_WAIT: Ns = 500 * MS;
/// The longest wait for room, which may come at any time, and after a charge that was refused, for which the kernel has reclaimed.
const LONGEST_FOR_ROOM: Ns = 8 * S;
const LONGEST_AFTER_CHARGE: Ns = 60 * S;

/// What speaks against charging so much to a cgroup.
pub(crate) fn shortage(state: &CgroupState, charge: Bytes, budgets: &Budgets) -> Option<Wait> {
    if state.pressure_pct.is_some_and(|percent| percent > budgets.pressure_pct) {
        return Some(Wait::CgroupPressure);
    }
    let fits = |held: &MemoryUse| {
        let (Some(room), Some(limit)) = (held.room(), held.lowest()) else { return true };
        let share = limit.0 as f64 * budgets.cgroup_margin_pct / 100.0;
        room.0 as f64 >= charge.0 as f64 + share.max(MIN_MARGIN.0 as f64)
    };
    (!state.limited.iter().all(fits)).then_some(Wait::CgroupLimit)
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
    /// What to say to hints of a cgroup that waits.
    pub(crate) fn at(&self, cgroup: &str, now: Ns) -> Option<Handled> {
        let pause = self.0.get(cgroup).filter(|pause| now < pause.until)?;
        // Only the block that was tried has had a try.
        let why = if pause.why == Wait::NoCharge { Wait::CgroupLimit } else { pause.why };
        Some(Handled::Later(pause.until, why))
    }

    /// What a cgroup waits for, or waited for at the last check.
    pub(crate) fn why(&self, cgroup: &str) -> Option<Wait> {
        self.0.get(cgroup).map(|pause| pause.why)
    }

    /// Lets a cgroup wait, longer than the last time if it has not had what it waits for in between.
    pub(crate) fn pause(&mut self, cgroup: &str, now: Ns, why: Wait) -> Handled {
        let longest = if why == Wait::NoCharge { LONGEST_AFTER_CHARGE } else { LONGEST_FOR_ROOM };
        let wait = self.0.get(cgroup).map_or(FIRST_WAIT, |pause| pause.next).min(longest);
        let until = now + wait;
        self.0.insert(cgroup.to_owned(), Pause { until, why, next: (wait * 2).min(longest) });
        Handled::Later(until, why)
    }

    /// There is room. A charge that was refused is forgotten only once one was granted.
    pub(crate) fn has_room(&mut self, cgroup: &str) {
        if self.why(cgroup).is_some_and(|why| why != Wait::NoCharge) {
            self.0.remove(cgroup);
        }
    }

    /// A charge was granted, or nobody is left in it.
    pub(crate) fn forget(&mut self, cgroup: &str) {
        self.0.remove(cgroup);
    }
}
