//! Where actions happen: the interface between the worker and a system, the real system, and one for dry runs.
//!
//! [`Machine`] has what every action needs: processes, copies of them, and what host and cgroup have to spare. What an
//! action does to a huge range is a trait in the module of that action, which also implements it for [`Live`] and [`DryRun`].

mod advice;
mod cgroup;
mod dry_run;
mod live;

pub(crate) use advice::{advise_all, failure_of_advice, ranges_of, refusal_of};
pub use cgroup::CgroupState;
pub use dry_run::DryRun;
pub use live::Live;
pub(crate) use live::timed;

use crate::outcome::Refusal;
use isotherm_heat::{Ns, TargetId};
use isotherm_sys::free::Swap;
use isotherm_units::Bytes;
use std::fmt;

/// A process at its admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its resident memory.
    pub resident: Bytes,
    /// It has not disabled huge pages for itself by prctl(PR_SET_THP_DISABLE).
    pub takes_huge_pages: bool,
    /// Why none of its memory may be paged out, if so.
    pub must_stay: Option<Refusal>,
}

/// Why no action can be done to a process, if so.
pub type Unfit<'a> = dyn Fn(&Process) -> Option<Refusal> + 'a;

/// What the host has to spare; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostState {
    /// Memory available without swapping.
    pub available: Option<Bytes>,
    /// All memory.
    pub memory: Option<Bytes>,
    /// Free blocks of 2 MiB or more, in blocks of 2 MiB.
    pub free_blocks: Option<u64>,
    /// Swap.
    pub swap: Option<Swap>,
    /// Percentage of the last ten seconds in which something waited for memory.
    pub pressure_pct: Option<f64>,
    /// The same for I/O.
    pub io_pressure_pct: Option<f64>,
}

/// A system with processes, as every action needs it.
pub trait Machine: fmt::Debug {
    /// Admits a process, unless it is `unfit` for every action. `unfit` is called as soon as the process is known,
    /// before the expensive checks.
    fn admit(&mut self, process: TargetId, unfit: &Unfit<'_>) -> Result<Process, Refusal>;
    /// Forgets a process.
    fn dismiss(&mut self, process: TargetId);
    /// A live forked copy that shares memory with the process.
    fn fork_of(&mut self, process: TargetId) -> Option<u32>;
    /// What the host has to spare.
    fn host(&mut self) -> HostState;
    /// The memory cgroup of a process at this moment; `None` if it has none, or none that can be read.
    fn cgroup(&mut self, process: TargetId) -> Option<CgroupState>;
    /// CPU time that this thread has used so far. It includes every call to the machine, not only the actions.
    fn cpu_ns(&mut self) -> Ns;
}

impl<M: Machine + ?Sized> Machine for Box<M> {
    fn admit(&mut self, process: TargetId, unfit: &Unfit<'_>) -> Result<Process, Refusal> {
        (**self).admit(process, unfit)
    }

    fn dismiss(&mut self, process: TargetId) {
        (**self).dismiss(process);
    }

    fn fork_of(&mut self, process: TargetId) -> Option<u32> {
        (**self).fork_of(process)
    }

    fn host(&mut self) -> HostState {
        (**self).host()
    }

    fn cgroup(&mut self, process: TargetId) -> Option<CgroupState> {
        (**self).cgroup(process)
    }

    fn cpu_ns(&mut self) -> Ns {
        (**self).cpu_ns()
    }
}
