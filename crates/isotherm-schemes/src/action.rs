//! What an action is to the rest: all that the queue, the planner, the worker and the guards ask of it.
//!
//! An action is a module (today [`crate::collapse`]) that implements [`Action`] for the worker and [`Planner`](crate::plan::Planner) for
//! the planner. Everything else is shared: one queue orders the hints of all actions, one worker performs them, within one set of
//! budgets, and of these none names an action. [`crate::state`] and [`crate::pass`] plan with [`crate::collapse::Rules`] so far: what they plan
//! with will be a table of schemes. What an action wants of the system beside what [`Machine`](crate::machine::Machine)
//! has is a trait of its own module.
//!
//! A trait and not an enum: a new action adds a file, and changes no `match` in the worker. What it may meet is one enum all the
//! same ([`Refusal`], [`Failure`]), since most reasons (a process that has ended, a fork, a right that is missing) are the same for all.

use crate::budgets::{Budgets, Wait};
use crate::machine::{HostState, Process};
use crate::outcome::Refusal;
use crate::queue::{ActionId, Hint};
use isotherm_heat::Ns;
use isotherm_units::Bytes;
use std::fmt;

/// What would have to wait for what: the guards that not every action needs. That a process was named, and that it is held up no
/// longer than its share of the time, holds for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Memory pressure of the host.
    Pressure,
    /// Available memory that is left alone.
    Headroom,
    /// Free blocks of 2 MiB that are left alone.
    FreeBlocks,
    /// A forked copy of the process, which shares its memory.
    Fork,
    /// Limits and pressure of the memory cgroup.
    Cgroup,
}

impl Guard {
    /// What it waits for on a host in this state, if it speaks against doing anything now.
    pub(crate) fn of_host(self, host: &HostState, budgets: &Budgets) -> Option<Wait> {
        let is_short = |(free, all): (Bytes, Bytes)| (free.0 as f64) < all.0 as f64 * budgets.headroom_pct / 100.0;
        match self {
            Guard::Pressure => host.pressure_pct.is_some_and(|p| p > budgets.pressure_pct).then_some(Wait::Pressure),
            Guard::Headroom => host.available.zip(host.memory).is_some_and(is_short).then_some(Wait::Headroom),
            Guard::FreeBlocks => host.free_blocks.is_some_and(|n| n <= budgets.free_blocks).then_some(Wait::FreeBlocks),
            Guard::Fork | Guard::Cgroup => None,
        }
    }
}

/// What it takes to act on a block, known before it is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Pages by which the process would grow.
    pub grows: u16,
    /// What would be charged to its memory cgroup, while what it replaces is still charged.
    pub charge: Bytes,
}

/// What a try came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Performed {
    /// Whether it worked.
    pub result: Result<(), Failure>,
    /// How long it took: the target was held up for no longer than this.
    pub took_ns: Ns,
    /// CPU time it took, which counts against the stall budget of the target.
    pub cpu_ns: Ns,
}

/// Why a try failed, by what the worker does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// For good: the hint is dropped.
    Refused(Refusal),
    /// Pages were locked or could not be isolated: the block is tried again, later and later.
    Busy,
    /// The cgroup's limit: the whole cgroup waits.
    NoCharge,
    /// No free huge page: the whole action waits.
    NoHugePage,
    /// Refused, and nothing that is known of the block says why: tried again as a busy one, by a patient worker for longer. It may
    /// pass: kernels (seen on 6.1 and 6.12, not on 6.18) refuse a block without a single writable page like one that can never be
    /// huge. That is what NUMA balancing makes of a block until it is touched again, and a fork, also one that has ended, until it
    /// is written again. Nothing shows it from outside.
    Unexplained,
}

/// Something that can be done to a block of a process, on a machine `M`.
pub trait Action<M>: fmt::Debug {
    /// By which hints name it.
    fn id(&self) -> ActionId;

    /// What counters call blocks to which it was done, as a key of JSON: "collapsed".
    fn done(&self) -> &'static str;

    /// The guards that hold for it. Of several that do, the first one is told.
    fn guards(&self) -> &'static [Guard];

    /// Why it is never done to this process, if so.
    fn refuses(&self, process: &Process) -> Option<Refusal>;

    /// Checks a block right before it is tried: what that would take, or what speaks against it.
    fn check(&mut self, machine: &mut M, hint: &Hint, budgets: &Budgets) -> Result<Price, Refusal>;

    /// Does it.
    fn perform(&mut self, machine: &mut M, hint: &Hint) -> Performed;
}
