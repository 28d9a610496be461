//! The machine of this action: memory cgroups, their pressure, and what the host has to spare.

use crate::machine::{HostState, Live, Machine};
use isotherm_heat::Ns;
use isotherm_sys::clock;
use isotherm_sys::proc::{Cgroup, Error, ReclaimCounts};
use isotherm_units::Bytes;

/// A system whose cgroups can be asked.
pub trait AskMachine {
    /// What the host has to spare.
    fn host(&mut self) -> HostState;
    /// Percentage of the last ten seconds in which something in the cgroup waited for memory; `None` if unknown.
    fn pressure_pct(&mut self, cgroup: &Cgroup) -> Option<f64>;
    /// What the kernel counts of it; `None` where it does not.
    fn counts(&mut self, cgroup: &Cgroup) -> Result<Option<ReclaimCounts>, Error>;
    /// Asks for so much of its files, and returns whether all of it was taken. With 0 bytes, finds out whether it can be asked.
    fn ask(&mut self, cgroup: &Cgroup, bytes: Bytes) -> Result<bool, Error>;
    /// CPU time that this thread has used so far.
    fn cpu_ns(&mut self) -> Ns;
}

/// The real machine, or one on which nothing is asked.
#[derive(Debug, Default)]
pub struct Asker {
    live: Live,
    dry_run: bool,
}

impl Asker {
    /// The machine. In a dry run nothing leaves.
    pub fn new(dry_run: bool) -> Asker {
        Asker { live: Live::new(), dry_run }
    }
}

impl AskMachine for Asker {
    fn host(&mut self) -> HostState {
        self.live.host()
    }

    fn pressure_pct(&mut self, cgroup: &Cgroup) -> Option<f64> {
        Some(cgroup.memory_pressure().ok()??.some_avg10)
    }

    fn counts(&mut self, cgroup: &Cgroup) -> Result<Option<ReclaimCounts>, Error> {
        cgroup.reclaim_counts()
    }

    fn ask(&mut self, cgroup: &Cgroup, bytes: Bytes) -> Result<bool, Error> {
        let bytes = if self.dry_run { Bytes(0) } else { bytes };
        Ok(cgroup.reclaim_file(bytes)? && !self.dry_run)
    }

    fn cpu_ns(&mut self) -> Ns {
        clock::thread_cpu_ns()
    }
}
