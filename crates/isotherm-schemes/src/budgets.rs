//! How much may be done, and what is waited for when no more may be. Set by the user; kept by [`crate::Worker`].

use serde::{Deserialize, Serialize};

/// How much may be done. All of them hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budgets {
    /// Collapses a second.
    pub per_second: f64,
    /// CPU of the worker, which does the copying and looks at blocks before, in percent of one core. Over 100: no limit.
    pub cpu_pct: f64,
    /// Time that a target may be held up by collapses (their CPU time), in percent of the time. Over 100: no limit.
    pub stall_pct: f64,
    /// Growth of a process, in percent of what it had when it was first seen.
    pub growth_pct: f64,
    /// Pages that have to be present in a block, of 512.
    pub min_present: u16,
    /// Available memory that is left alone, in percent of all.
    pub headroom_pct: f64,
    /// Free blocks of 2 MiB that are left alone, so that no collapse has to compact memory.
    pub free_blocks: u64,
    /// Memory pressure (PSI, some, the last ten seconds) above which nothing is done, in percent. Of the host for all, of a memory
    /// cgroup for the processes in it.
    pub pressure_pct: f64,
    /// What is left alone below each limit of a target's memory cgroup and of those above it, in percent of that limit; 8 MiB at
    /// the least.
    pub cgroup_margin_pct: f64,
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets {
            per_second: 20.0,
            cpu_pct: 10.0,
            stall_pct: 5.0,
            growth_pct: 2.0,
            min_present: 460,
            headroom_pct: 5.0,
            free_blocks: 64,
            pressure_pct: 10.0,
            cgroup_margin_pct: 1.0,
        }
    }
}

impl Budgets {
    /// What is wrong with them, if anything: a rate of nothing or a share below it would stop everything in silence.
    pub fn fault(&self) -> Option<&'static str> {
        let shares = [self.growth_pct, self.headroom_pct, self.pressure_pct, self.cgroup_margin_pct];
        if !(self.per_second > 0.0 && self.cpu_pct > 0.0 && self.stall_pct > 0.0) {
            Some("per_second, cpu_pct and stall_pct have to be above 0")
        } else if shares.iter().any(|s| s.is_nan() || *s < 0.0) {
            Some("growth_pct, headroom_pct, pressure_pct and cgroup_margin_pct have to be 0 or more")
        } else {
            (self.min_present > 512).then_some("min_present is a number of pages, at most 512")
        }
    }
}

/// What a server waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// The number of collapses a second.
    Rate,
    /// The worker's CPU share.
    Cpu,
    /// The target's own stalls.
    Stall,
    /// Available memory is low.
    Headroom,
    /// Few free blocks of 2 MiB are left.
    FreeBlocks,
    /// Memory pressure.
    Pressure,
    /// The kernel had no huge page to give.
    NoHugePage,
    /// The target's memory cgroup, or one above it, is near its limit.
    CgroupLimit,
    /// Processes of the target's memory cgroup wait for memory.
    CgroupPressure,
    /// The kernel refused to charge the target's memory cgroup.
    NoCharge,
    /// A forked copy of the target is alive.
    Fork,
    /// Pages were busy.
    Busy,
    /// The kernel refused without a reason: most likely no page of the block is writable, until something touches or writes it.
    Unwritable,
}

impl Wait {
    /// What a memory cgroup can wait for.
    pub const OF_CGROUPS: [Wait; 3] = [Wait::CgroupLimit, Wait::CgroupPressure, Wait::NoCharge];

    /// A few words for people.
    pub fn text(self) -> &'static str {
        match self {
            Wait::Rate => "limit of collapses a second",
            Wait::Cpu => "CPU budget",
            Wait::Stall => "stall budget of the target",
            Wait::Headroom => "available memory is low",
            Wait::FreeBlocks => "few free huge pages left",
            Wait::Pressure => "memory pressure",
            Wait::NoHugePage => "the kernel had no huge page",
            Wait::CgroupLimit => "the memory cgroup is near its limit",
            Wait::CgroupPressure => "memory pressure in the cgroup",
            Wait::NoCharge => "the kernel refused to charge the memory cgroup",
            Wait::Fork => "a forked snapshot of the target is alive",
            Wait::Busy => "pages were busy",
            Wait::Unwritable => {
                "no page is writable, most likely, until one is written (after a fork) or touched (NUMA balancing)"
            }
        }
    }
}
