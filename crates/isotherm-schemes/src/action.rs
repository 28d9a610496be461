//! The interface of an action: all that the queue, the planner, the worker and the guards need to know about it.
//!
//! An action is a module ([`crate::collapse`], [`crate::page_out`], [`crate::split`], [`crate::migrate`], [`crate::bring_back`]) that
//! implements [`Action`] for the worker. Collapsing also has a [`Planner`](crate::plan::Planner); the others make their hints in their own
//! modules. Everything else is shared: one queue orders the hints of all actions, and one worker performs them within one set of budgets.
//! [`crate::state`] and [`crate::pass`] plan with [`crate::collapse::Rules`]. If an action needs
//! more of the system than [`Machine`](crate::machine::Machine) has, its module defines another trait.
//!
//! This is a trait and not an enum: a new action adds a file and changes no `match` in the worker. Reasons for failure
//! are still one enum ([`Refusal`], [`Failure`]), because most of them (a process that has ended, a fork, a missing
//! right) apply to all actions.

use crate::budgets::{Budgets, Wait};
use crate::machine::{HostState, Process};
use crate::outcome::Refusal;
use crate::queue::{ActionId, Hint};
use isotherm_heat::Ns;
use isotherm_sys::free::Swap;
use isotherm_units::Bytes;
use std::fmt;

/// Guards that not every action needs. Two rules hold for all actions: the process must have been named, and it is
/// stalled for no longer than its share of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Memory pressure of the host.
    Pressure,
    /// Pressure on I/O of the host.
    Io,
    /// Available memory to leave alone.
    Headroom,
    /// Free blocks of 2 MiB to leave alone.
    FreeBlocks,
    /// Swap to leave free, for memory that the kernel has to page out.
    Swap,
    /// A forked copy of the process, which shares its memory.
    Fork,
    /// Limits and pressure of the memory cgroup.
    Cgroup,
    /// Pressure of the memory cgroup alone: the action takes nothing of its limits.
    CgroupPressure,
    /// Swap that the memory cgroup may use.
    CgroupSwap,
}

impl Guard {
    /// What this guard waits for on a host in this state, if it forbids acting now.
    pub(crate) fn of_host(self, host: &HostState, budgets: &Budgets) -> Option<Wait> {
        let is_short = |(free, all): (Bytes, Bytes)| (free.0 as f64) < all.0 as f64 * budgets.headroom_pct / 100.0;
        match self {
            Guard::Pressure => host.pressure_pct.is_some_and(|p| p > budgets.pressure_pct).then_some(Wait::Pressure),
            Guard::Io => host.io_pressure_pct.is_some_and(|p| p > budgets.io_pressure_pct).then_some(Wait::IoPressure),
            Guard::Headroom => host.available.zip(host.memory).is_some_and(is_short).then_some(Wait::Headroom),
            Guard::FreeBlocks => host.free_blocks.is_some_and(|n| n <= budgets.free_blocks).then_some(Wait::FreeBlocks),
            Guard::Swap => host.swap.is_some_and(|swap| !has_room(swap)).then_some(Wait::Swap),
            Guard::Fork | Guard::Cgroup | Guard::CgroupPressure | Guard::CgroupSwap => None,
        }
    }

    /// Whether it holds for what a memory cgroup waits for.
    pub(crate) fn is_of_cgroup(self, why: Wait) -> bool {
        match self {
            Guard::Cgroup => why != Wait::CgroupSwap,
            Guard::CgroupPressure => why == Wait::CgroupPressure,
            Guard::CgroupSwap => why == Wait::CgroupSwap,
            _ => false,
        }
    }
}

/// Whether some swap may be used: with less than this part free (one in so many), the rest is the kernel's.
fn has_room(swap: Swap) -> bool {
    swap.free.0 > swap.total.0 / SWAP_PART_LEFT
}

const SWAP_PART_LEFT: u64 = 10;

/// The cost of acting on a huge range, known before the try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Pages by which the process would grow.
    pub grows: u16,
    /// Bytes that would be charged to its memory cgroup, while what they replace is still charged.
    pub charge: Bytes,
}

/// The result of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Performed {
    /// Whether it worked.
    pub result: Result<(), Failure>,
    /// Pages that have left memory.
    pub pages: u16,
    /// How long it took: an upper bound of the time for which the target was stalled.
    pub took_ns: Ns,
    /// CPU time that it took. It counts against the stall budget of the target.
    pub cpu_ns: Ns,
}

/// Why a try failed, by what the worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Permanent: the hint is dropped.
    Refused(Refusal),
    /// Pages were locked or could not be isolated: the huge range is tried again, at growing intervals.
    Busy,
    /// The limit of the cgroup: the whole cgroup waits.
    NoCharge,
    /// No free huge page: the whole action waits.
    NoHugePage,
    /// Refused, and nothing known about the huge range explains why. Retried like a busy huge range; a worker that runs on
    /// retries it for longer. It may pass: kernels 6.1 and 6.12 (but not 6.18) refuse a huge range without a single writable
    /// page, with the same errno as one that can never be huge. NUMA balancing makes a huge range so until it is touched
    /// again, and a fork, even one that has ended, until it is written again. Nothing shows this from outside.
    Unexplained,
}

/// An action on a huge range of a process, on a machine `M`.
pub trait Action<M>: fmt::Debug {
    /// The id by which hints name it.
    fn id(&self) -> ActionId;

    /// What counters call huge ranges on which it succeeded, as a JSON key: "collapsed".
    fn done(&self) -> &'static str;

    /// The guards that apply to it. If several forbid acting, the first one is reported.
    fn guards(&self) -> &'static [Guard];

    /// Why it is never done to this process, if so.
    fn refuses(&self, process: &Process) -> Option<Refusal>;

    /// Checks a huge range right before the try: returns the cost, or what forbids it.
    fn check(&mut self, machine: &mut M, hint: &Hint, budgets: &Budgets) -> Result<Price, Refusal>;

    /// Performs the action.
    fn perform(&mut self, machine: &mut M, hint: &Hint) -> Performed;
}
