//! Where actions happen: the seam between the worker and a system, the real system, and one on which nothing is done.
//!
//! [`Machine`] is what every action wants: processes, copies of them, what host and cgroup have to spare. What an action does to a block
//! is a trait in the module of that action, implemented there for [`Live`] and [`DryRun`].

mod cgroup;
mod dry_run;
mod live;

pub use cgroup::CgroupState;
pub use dry_run::DryRun;
pub use live::Live;

use crate::outcome::Refusal;
use isotherm_heat::{Ns, TargetId};
use isotherm_units::Bytes;
use std::fmt;

/// A process as it was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its resident memory.
    pub resident: Bytes,
    /// It has not switched huge pages off for itself: prctl(PR_SET_THP_DISABLE).
    pub takes_huge_pages: bool,
}

/// Why nothing of what is to be done can be done to a process, if so.
pub type Unfit<'a> = dyn Fn(&Process) -> Option<Refusal> + 'a;

/// What the host has to spare; `None` where it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostState {
    /// Memory available without swapping.
    pub available: Option<Bytes>,
    /// All memory.
    pub memory: Option<Bytes>,
    /// Free blocks of 2 MiB or more, in blocks of 2 MiB.
    pub free_blocks: Option<u64>,
    /// Share of the last ten seconds in which something waited for memory.
    pub pressure_pct: Option<f64>,
}

/// A system with processes: what every action wants of it.
pub trait Machine: fmt::Debug {
    /// Begins to deal with a process, unless it is `unfit` for all that is to be done: that is asked as soon as the process is known, before
    /// what is expensive to find out.
    fn admit(&mut self, process: TargetId, unfit: &Unfit<'_>) -> Result<Process, Refusal>;
    /// Ends that.
    fn dismiss(&mut self, process: TargetId);
    /// A live copy of the process that shares its memory, made by a fork.
    fn fork_of(&mut self, process: TargetId) -> Option<u32>;
    /// What the host has to spare.
    fn host(&mut self) -> HostState;
    /// The memory cgroup of a process, at this moment; `None` where it has none, or none that can be read.
    fn cgroup(&mut self, process: TargetId) -> Option<CgroupState>;
    /// CPU time that this thread has used so far. Everything that the machine is asked for costs some, not what is done alone.
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
