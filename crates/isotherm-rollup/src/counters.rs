//! Counters that run since the monitor started, as differences from snapshot to snapshot.
//!
//! A monitor that is started anew counts from 0. It is recognised by its own clock or CPU time, which never go back. What a counter
//! of a process falls by within one run and then rises by again has been counted already. Whatever was counted before the first
//! snapshot that arrives happened at an unknown time and counts as nothing, unless the monitor had just started.

use isotherm_heat::TargetId;
use isotherm_stream::{HostRow, Snapshot};
use std::collections::HashMap;
use std::hash::Hash;

/// A monitor has just started if it ran for no more than so many times its window.
const FIRST_WINDOWS: u64 = 2;

/// What happened between a snapshot and the one before.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// Monotonic time; `None` if the monitor is another one, or this is the first snapshot.
    pub elapsed_ns: Option<u64>,
    pub monitor_cpu_ns: u64,
    pub read_errors: u64,
    /// By process: bytes that left, and that came back.
    pub by_process: HashMap<TargetId, [u64; 2]>,
    /// By action and result: huge ranges and bytes.
    pub by_action: Vec<((String, String), [u64; 2])>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    last: Option<Last>,
}

#[derive(Debug, Default)]
struct Last {
    elapsed_ns: u64,
    monitor_cpu_ns: u64,
    read_errors: u64,
    processes: HashMap<TargetId, [u64; 2]>,
    actions: HashMap<(String, String), [u64; 2]>,
}

impl Last {
    fn is_of_another_run(&self, host: &HostRow) -> bool {
        host.elapsed_ns < self.elapsed_ns || host.monitor_cpu_ns < self.monitor_cpu_ns
    }
}

impl Counters {
    /// What happened since the snapshot before.
    pub(crate) fn step(&mut self, snapshot: &Snapshot) -> Steps {
        let host = &snapshot.host;
        let window_ns = host.end_unix_ns.saturating_sub(host.start_unix_ns);
        let has_just_started = host.elapsed_ns <= window_ns.saturating_mul(FIRST_WINDOWS);
        let last = self.last.take();
        let is_next = last.as_ref().is_some_and(|last| !last.is_of_another_run(host));
        // From 0 on if it began since the last snapshot, or just now; else from what the first snapshot has.
        let counts_all = last.is_some() || has_just_started;
        let mut last = last.filter(|_| is_next).unwrap_or_default();
        let mut steps = Steps::default();
        let mut processes = HashMap::with_capacity(snapshot.processes.len());
        for row in &snapshot.processes {
            let now = [row.left_bytes, row.refaulted_bytes];
            let step = step_of(&mut last.processes, &row.id(), now, counts_all);
            processes.insert(row.id(), step.1);
            if step.0 != [0, 0] {
                steps.by_process.insert(row.id(), step.0);
            }
        }
        for row in &snapshot.actions {
            let key = (row.action.clone(), row.result.clone());
            let step = step_of(&mut last.actions, &key, [row.huge_ranges, row.bytes], counts_all);
            last.actions.insert(key.clone(), step.1);
            if step.0 != [0, 0] {
                steps.by_action.push((key, step.0));
            }
        }
        if counts_all {
            steps.monitor_cpu_ns = host.monitor_cpu_ns.saturating_sub(last.monitor_cpu_ns);
            steps.read_errors = host.read_errors.saturating_sub(last.read_errors);
        }
        steps.elapsed_ns = is_next.then(|| host.elapsed_ns - last.elapsed_ns);
        self.last = Some(Last {
            elapsed_ns: host.elapsed_ns,
            monitor_cpu_ns: host.monitor_cpu_ns,
            read_errors: host.read_errors,
            processes,
            actions: last.actions,
        });
        steps
    }
}

/// The step of a pair of counters, and their highest values so far.
fn step_of<K: Eq + Hash>(
    last: &mut HashMap<K, [u64; 2]>,
    key: &K,
    now: [u64; 2],
    counts_all: bool,
) -> ([u64; 2], [u64; 2]) {
    let before = last.get(key).copied().unwrap_or(if counts_all { [0, 0] } else { now });
    let step = [now[0].saturating_sub(before[0]), now[1].saturating_sub(before[1])];
    (step, [now[0].max(before[0]), now[1].max(before[1])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stream::{ActionRow, ProcessRow};

    const S: u64 = 1_000_000_000;

    fn snapshot(elapsed_s: u64, cpu: u64, left: &[(u32, u64)], ranges: u64) -> Snapshot {
        let host = HostRow {
            start_unix_ns: 0,
            end_unix_ns: S,
            elapsed_ns: elapsed_s * S,
            monitor_cpu_ns: cpu,
            read_errors: cpu / 10,
            ..HostRow::default()
        };
        let process = |(pid, left_bytes): &(u32, u64)| ProcessRow {
            pid: *pid,
            left_bytes: *left_bytes,
            refaulted_bytes: *left_bytes / 2,
            ..ProcessRow::default()
        };
        let action = ActionRow { action: "collapse".into(), result: "done".into(), huge_ranges: ranges, bytes: 0 };
        Snapshot { host, processes: left.iter().map(process).collect(), actions: vec![action], ..Snapshot::default() }
    }

    fn left(steps: &Steps, pid: u32) -> u64 {
        steps.by_process.get(&TargetId { pid, start_ticks: 0 }).map_or(0, |step| step[0])
    }

    #[test]
    fn the_first_snapshot_counts_only_of_a_monitor_that_has_just_started() {
        let late = Counters::default().step(&snapshot(100, 50, &[(1, 8)], 3));
        assert_eq!((late.monitor_cpu_ns, left(&late, 1), late.by_action.len(), late.elapsed_ns), (0, 0, 0, None));
        let early = Counters::default().step(&snapshot(1, 50, &[(1, 8)], 3));
        assert_eq!((early.monitor_cpu_ns, early.read_errors, left(&early, 1)), (50, 5, 8));
        assert_eq!(early.by_action[0].1, [3, 0]);
    }

    #[test]
    fn steps_are_differences_and_what_came_since_counts_in_full() {
        let mut counters = Counters::default();
        counters.step(&snapshot(100, 50, &[(1, 8)], 3));
        let next = counters.step(&snapshot(101, 70, &[(1, 10), (2, 6)], 5));
        assert_eq!((next.monitor_cpu_ns, next.read_errors, next.elapsed_ns), (20, 2, Some(S)));
        assert_eq!((left(&next, 1), left(&next, 2), next.by_action[0].1), (2, 6, [2, 0]));
        let fallen = counters.step(&snapshot(102, 70, &[(1, 4)], 5));
        assert_eq!((left(&fallen, 1), fallen.by_action.len()), (0, 0));
        let risen = counters.step(&snapshot(103, 70, &[(1, 11)], 5));
        assert_eq!(left(&risen, 1), 1, "up to 10 was counted before");
    }

    #[test]
    fn a_monitor_that_starts_anew_counts_from_0() {
        let mut counters = Counters::default();
        counters.step(&snapshot(100, 50, &[(1, 8)], 3));
        let anew = counters.step(&snapshot(60, 7, &[(1, 5)], 2));
        assert_eq!((anew.monitor_cpu_ns, left(&anew, 1), anew.elapsed_ns), (7, 5, None));
        assert_eq!(anew.by_action[0].1, [2, 0]);
    }
}
