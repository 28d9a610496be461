//! What was seen: runs of `vmstat_update`, waits for zone locks, and how much of either could be seen.
//!
//! The observer of `isotherm-bpf` fills these, the rest of this crate reads them. Addresses of functions have been given their
//! names here already, since an address means nothing outside of the kernel that it is of.

use serde::Serialize;

/// Why a run was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Not seen: queued before the observer began.
    Unknown,
    /// By its CPU's own timer.
    Timer,
    /// By the shepherd, `vmstat_shepherd`, which found counters to fold on that CPU: a kick.
    Shepherd,
}

/// One run of `vmstat_update`, or of `vmstat_shepherd`. Times in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where it ran.
    pub cpu: u32,
    /// When it was queued; `None` if that was before the observer began, or for the shepherd.
    pub queued_ns: Option<u64>,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// The kernel's count of ticks when it began.
    pub jiffies: u64,
    /// Why it ran.
    pub cause: Cause,
}

/// Runs, as far as they were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Of `vmstat_update`, in any order.
    pub updates: Vec<Run>,
    /// Of the shepherd.
    pub shepherds: Vec<Run>,
}

impl Runs {
    /// Adds those that were seen later.
    pub fn extend(&mut self, more: Runs) {
        self.updates.extend(more.updates);
        self.shepherds.extend(more.shepherds);
    }
}

/// Waits for the lock of one zone from one place in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The zone's NUMA node.
    pub node: u32,
    /// The zone's name: `DMA`, `DMA32`, `Normal`, `Movable`, ...
    pub zone: String,
    /// Functions on the stack, innermost first; empty if the stack could not be taken.
    pub functions: Vec<String>,
    /// The waiter was in `vmstat_update`.
    pub updating: bool,
    /// `vmstat_update` ran on another CPU when the wait began.
    pub beside: bool,
    /// How many.
    pub count: u64,
    /// Of all of them together.
    pub total_ns: u64,
    /// Of the longest.
    pub max_ns: u64,
}

/// For which waiters this kernel has events. The tracepoint stands where a waiter joins the queue of a queued spinlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeenWaiters {
    /// All: a guest whose hypervisor wakes processors puts every waiter into the queue.
    Every,
    /// The second waiter of a lock and those after. The first sets a bit of the lock and spins on it.
    NotTheFirst,
    /// None: a guest whose hypervisor does not help uses locks without a queue.
    Nobody,
    /// Not known for this processor or hypervisor.
    Unknown,
}

/// What was seen of waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// By zone and place.
    pub by_place: Vec<Wait>,
    /// Waits for any lock that spins, zones' or not: 0 says that the kernel has no events for any.
    pub spins: u64,
    /// Waits that found no room in the table and are in no figure.
    pub lost: u64,
    /// Which waiters can be seen.
    pub seen: SeenWaiters,
}

/// Everything that was seen.
#[derive(Clone, Debug)]
pub struct Observed {
    /// When it began, by the clock of the runs.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// CPUs online, by number.
    pub online: Vec<u32>,
    /// Those of them that `vmstat_shepherd` skips (`nohz_full=`, `isolcpus=`).
    pub isolated: Vec<u32>,
    /// `vm.stat_interval`, in seconds; 0 is taken for 1.
    pub interval_s: u32,
    /// In any order.
    pub runs: Runs,
    /// Runs that are in no figure.
    pub lost_runs: u64,
    /// Waits, or why they were not seen.
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
