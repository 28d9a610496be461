//! Snapshots for the tests of modules that take one.

use isotherm_heat::{Snapshot, TargetHeat, TargetId};

/// A snapshot of processes without memory.
pub fn snapshot(pids: &[u32], end_unix_ns: u64) -> Snapshot {
    let text = r#"{"id": {"pid": 0, "start_ticks": 5}, "comm": "db", "cgroup": "", "exited": false, "granularity": "page",
        "regions": [], "mappings": [], "temperature": [], "idle": [], "counted_elsewhere_pages": 0, "maybe_shared_pages": 0,
        "unclearable_pages": 0}"#;
    let target = |pid: &u32| {
        let target: TargetHeat = serde_json::from_str(text).unwrap();
        TargetHeat { id: TargetId { pid: *pid, start_ticks: 5 }, ..target }
    };
    Snapshot { start_unix_ns: 0, end_unix_ns, targets: pids.iter().map(target).collect(), cost: Default::default() }
}
