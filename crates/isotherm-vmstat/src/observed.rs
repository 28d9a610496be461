//! An observation: runs of `vmstat_update`, waits for zone locks, and how much of either could be observed.
//!
//! The observer in `isotherm-bpf` fills these types, and the rest of this crate reads them. Addresses of functions are
//! already resolved to names, since an address has no meaning outside the kernel it came from.

use serde::Serialize;

/// Why a run was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Unknown: queued before the observer began.
    Unknown,
    /// The CPU's own timer.
    Timer,
    /// The shepherd, `vmstat_shepherd`, found counters to fold on that CPU and queued the run.
    Shepherd,
}

/// One run of `vmstat_update` or of `vmstat_shepherd`. Times are in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The CPU on which it ran.
    pub cpu: u32,
    /// When it was queued; `None` if that was before the observer began, or for the shepherd.
    pub queued_ns: Option<u64>,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// The kernel's `jiffies` when it began.
    pub jiffies: u64,
    /// Why it ran.
    pub cause: Cause,
}

/// Observed runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Runs of `vmstat_update`, in any order.
    pub updates: Vec<Run>,
    /// Runs of the shepherd.
    pub shepherds: Vec<Run>,
}

impl Runs {
    /// Appends runs that were observed later.
    pub fn extend(&mut self, more: Runs) {
        self.updates.extend(more.updates);
        self.shepherds.extend(more.shepherds);
    }
}

/// Waits for the lock of one zone, from one place in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The zone's NUMA node.
    pub node: u32,
    /// The zone's name: `DMA`, `DMA32`, `Normal`, `Movable`, ...
    pub zone: String,
    /// Functions on the stack, innermost first; empty if the stack could not be captured.
    pub functions: Vec<String>,
    /// The waiter was in `vmstat_update`.
    pub updating: bool,
    /// `vmstat_update` ran on another CPU when the wait began.
    pub beside: bool,
    /// Number of waits.
    pub count: u64,
    /// Total time of all of them.
    pub total_ns: u64,
    /// Time of the longest.
    pub max_ns: u64,
}

/// Which waiters this kernel has events for. The tracepoint is where a waiter joins the queue of a queued spinlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeenWaiters {
    /// All waiters: in a guest whose hypervisor wakes virtual CPUs, every waiter joins the queue.
    Every,
    /// Every waiter except the first of each lock. The first sets a bit of the lock and spins on it.
    NotTheFirst,
    /// None: a guest without help from its hypervisor uses locks without a queue.
    Nobody,
    /// Unknown for this processor or hypervisor.
    Unknown,
}

/// Observed waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// By zone and place.
    pub by_place: Vec<Wait>,
    /// Waits for any spinning lock, of a zone or not: 0 means that the kernel has no events for any.
    pub spins: u64,
    /// Waits that did not fit into the table and are in no figure.
    pub lost: u64,
    /// Which waiters can be observed.
    pub seen: SeenWaiters,
}

/// A whole observation.
#[derive(Clone, Debug)]
pub struct Observed {
    /// When it began, on the clock of the runs.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// CPUs online, by number.
    pub online: Vec<u32>,
    /// Online CPUs that `vmstat_shepherd` skips (`nohz_full=`, `isolcpus=`).
    pub isolated: Vec<u32>,
    /// `vm.stat_interval`, in seconds; 0 is treated as 1.
    pub interval_s: u32,
    /// Runs, in any order.
    pub runs: Runs,
    /// Runs that are in no figure.
    pub lost_runs: u64,
    /// Waits, or why they were not observed.
    pub waits: Result<Waits, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_come_later_go_behind_their_kind() {
        let run = |cpu| Run { cpu, queued_ns: None, start_ns: 1, end_ns: 2, jiffies: 0, cause: Cause::Unknown };
        let mut runs = Runs { updates: vec![run(0)], shepherds: Vec::new() };
        runs.extend(Runs { updates: vec![run(1)], shepherds: vec![run(2)] });
        let cpus = |runs: &[Run]| runs.iter().map(|r| r.cpu).collect::<Vec<_>>();
        assert_eq!((cpus(&runs.updates), cpus(&runs.shepherds)), (vec![0, 1], vec![2]));
    }

    #[test]
    fn words_of_the_json_stay() {
        let words = [SeenWaiters::Every, SeenWaiters::NotTheFirst, SeenWaiters::Nobody, SeenWaiters::Unknown];
        let all = words.map(|seen| serde_json::to_string(&seen).unwrap()).join(" ");
        assert_eq!(all, r#""every" "not-the-first" "nobody" "unknown""#);
    }
}
