//! Budgets: how much may be done, and the reasons for waiting. Set by the user; enforced by [`crate::Worker`].

use serde::{Deserialize, Serialize};

/// How much may be done. All budgets hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budgets {
    /// Collapses per second.
    pub per_second: f64,
    /// CPU of the worker, for copying and for checking huge ranges before that, in percent of one core. Over 100: no limit.
    pub cpu_pct: f64,
    /// Time for which collapses may stall a target (their CPU time), in percent of elapsed time. Over 100: no limit.
    pub stall_pct: f64,
    /// Growth of a process, in percent of its resident memory at its largest, without what was added.
    pub growth_pct: f64,
    /// Pages of a huge range that must be present, of 512.
    pub min_present: u16,
    /// Available memory to leave alone, in percent of all memory.
    pub headroom_pct: f64,
    /// Free blocks of 2 MiB to leave alone, so that no collapse has to compact memory.
    pub free_blocks: u64,
    /// Memory pressure (PSI, some, 10 s) above which nothing is done, in percent. That of the host applies to all
    /// processes, that of a memory cgroup to the processes in it.
    pub pressure_pct: f64,
    /// Pressure on I/O of the host (PSI, some, 10 s) above which nothing is written to swap or read from it, in percent. With zram or zswap in front of
    /// the device, that is hardly any I/O.
    pub io_pressure_pct: f64,
    /// Room to leave below each limit of a target's memory cgroup and its ancestors, in percent of that limit; at least 8 MiB. 0: no
    /// room is left.
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
            io_pressure_pct: 30.0,
            cgroup_margin_pct: 1.0,
        }
    }
}

impl Budgets {
    /// What is wrong with the budgets, if anything. A rate of 0, or a negative share, would silently stop everything.
    pub fn fault(&self) -> Option<&'static str> {
        let shares =
            [self.growth_pct, self.headroom_pct, self.pressure_pct, self.io_pressure_pct, self.cgroup_margin_pct];
        let rates = [self.per_second, self.cpu_pct, self.stall_pct];
        if !rates.iter().all(|rate| *rate > 0.0 && rate.is_finite()) {
            Some("per_second, cpu_pct and stall_pct have to be numbers above 0")
        } else if shares.iter().any(|s| s.is_nan() || *s < 0.0) {
            Some("growth_pct, headroom_pct, pressure_pct, io_pressure_pct and cgroup_margin_pct have to be 0 or more")
        } else {
            (self.min_present > 512).then_some("min_present is a number of pages, at most 512")
        }
    }
}

/// What the worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// The budget of collapses per second.
    Rate,
    /// The CPU budget of the worker.
    Cpu,
    /// The stall budget of the target.
    Stall,
    /// Available memory is low.
    Headroom,
    /// Few free blocks of 2 MiB are left.
    FreeBlocks,
    /// There is no swap, or it is nearly full.
    Swap,
    /// Memory pressure.
    Pressure,
    /// Pressure on I/O.
    IoPressure,
    /// The kernel had no free huge page.
    NoHugePage,
    /// The target's memory cgroup, or one above it, is near its limit.
    CgroupLimit,
    /// Processes of the target's memory cgroup wait for memory.
    CgroupPressure,
    /// The target's memory cgroup, or one above it, may use no more swap.
    CgroupSwap,
    /// The kernel refused to charge the target's memory cgroup.
    NoCharge,
    /// A forked copy of the target is alive.
    Fork,
    /// The quota of the scheme is used up in this interval.
    Quota,
    /// Pages were busy.
    Busy,
    /// The kernel refused without a reason: most likely no page of the huge range is writable until it is touched or written.
    Unwritable,
    /// No window has ended for a minute longer than it should take: what was hot may not be any more.
    NoWindow,
}

impl Wait {
    /// Budgets of ours, which fill with time whatever the machine does.
    pub const OF_BUDGETS: [Wait; 3] = [Wait::Rate, Wait::Cpu, Wait::Stall];
    /// What a memory cgroup can wait for.
    pub const OF_CGROUPS: [Wait; 4] = [Wait::CgroupLimit, Wait::CgroupPressure, Wait::CgroupSwap, Wait::NoCharge];

    /// A short description.
    pub fn text(self) -> &'static str {
        match self {
            Wait::Rate => "limit of huge ranges per second",
            Wait::Cpu => "CPU budget",
            Wait::Stall => "stall budget of the target",
            Wait::Headroom => "available memory is low",
            Wait::FreeBlocks => "few free huge pages left",
            Wait::Swap => "no swap, or nine tenths of it are in use",
            Wait::Pressure => "memory pressure",
            Wait::IoPressure => "pressure on I/O",
            Wait::NoHugePage => "the kernel had no huge page",
            Wait::CgroupLimit => "the memory cgroup is near its limit",
            Wait::CgroupPressure => "memory pressure in the cgroup",
            Wait::CgroupSwap => "the memory cgroup may use no more swap (memory.swap.max)",
            Wait::NoCharge => "the kernel refused to charge the memory cgroup",
            Wait::Fork => "a forked copy of the target is alive",
            Wait::Quota => "quota of the scheme",
            Wait::Busy => "pages were busy",
            Wait::Unwritable => {
                "most likely no page is writable until one is written (after a fork) or touched (NUMA balancing)"
            }
            Wait::NoWindow => {
                "no window has ended for a minute longer than it should take: most likely a target blocks all that read its mappings"
            }
        }
    }
}
