//! Snapshots for tests: small, all different, and every field set.

use isotherm_heat::tune::{IntervalGoal, Tuning};
use isotherm_heat::*;
use isotherm_units::{Addr, AddrRange, Bytes, Perms};

/// The description of a run.
pub fn run() -> RunInfo {
    RunInfo {
        version: "0.1.0".into(),
        source: "page-table".into(),
        source_note: "Sees \"every\" page — nothing is lost.".into(),
        window_ns: 1_000_000_000,
        max_regions: 1000,
        max_slowdown_pct: 0.1 + 0.2,
        max_cpu_pct: 5.0,
        sample_interval_ns: 1_000_000_000,
        intervals_goal: Some(Tuning {
            goal: IntervalGoal { observed_bp: 400, min_interval_ns: 1, max_interval_ns: u64::MAX },
            aggregations: 3,
        }),
        command: vec!["isotherm".into(), "record".into()],
        kernel: "6.8.0".into(),
        cpu: "A CPU".into(),
        cpus: 2,
        memory: Bytes::of_mib(1024),
    }
}

/// The snapshot of index `i`, a second after the one before. Mappings of the first target change every third time; the second
/// target is there every other time.
pub fn snapshot(i: u64) -> Snapshot {
    let mut targets = vec![target(100, i, i / 3)];
    if i.is_multiple_of(2) {
        targets.push(target(7, i, 0));
    }
    Snapshot {
        start_unix_ns: i * 1_000_000_000,
        end_unix_ns: (i + 1) * 1_000_000_000,
        targets,
        cost: Cost {
            elapsed_ns: i + 1,
            monitor_cpu_ns: 2,
            pages_read: 3,
            pages_cleared: 4,
            pages_retouched: 5,
            slowdown_pct: 0.5,
            longest_hold_ns: 7,
            read_errors: u64::from(i == 3),
            samples: 8,
            samples_lost: 9,
            events: 10,
        },
    }
}

/// The snapshots up to `n`.
pub fn snapshots(n: u64) -> Vec<Snapshot> {
    (0..n).map(snapshot).collect()
}

fn target(pid: u32, i: u64, generation: u64) -> TargetHeat {
    let mut temperature = Histogram::default();
    temperature.add(Interval::ABSENT, 3);
    temperature.add(Interval::UNMEASURED, 5 + i);
    temperature.add(Interval::from_ns(16_000_000), 30);
    let mut idle = Histogram::default();
    idle.add(Interval::LONGEST, 35 + i);
    let mut estimated = temperature.clone();
    estimated.add(Interval::LONGEST, 9);
    TargetHeat {
        id: TargetId { pid, start_ticks: 1 << 40 },
        comm: "worker".into(),
        cgroup: "/system.slice/ä".into(),
        exited: i == 5,
        granularity: if pid == 7 { Granularity::Mapping } else { Granularity::Page },
        regions: vec![region(0x7f00_0000_0000, i), region(0xffff_ffff_ff60_0000, i + 1)],
        mappings: [
            mapping(0x7f00_0000_0000, &format!("/lib/{generation}.so")),
            mapping(0xffff_ffff_ff60_0000, "[vsyscall]"),
        ]
        .into(),
        temperature,
        idle,
        counted_elsewhere_pages: 11,
        maybe_shared_pages: 12,
        unclearable_pages: 13,
        behind_huge: (pid == 7).then_some(PagesBehindHuge { temperature: estimated, pages: 9, age_ns: 17 }),
        idle_by_mapping: vec![
            MappingIdle { start: None, steps: vec![idle_step(Interval::HOT, i)] },
            MappingIdle {
                start: Some(Addr(0x7f00_0000_0000)),
                steps: vec![idle_step(Interval::from_ns(16_000_000_000), i + 1), idle_step(Interval::LONGEST, 0)],
            },
        ],
        facts: facts(pid, i),
    }
}

fn facts(pid: u32, i: u64) -> TargetFacts {
    TargetFacts {
        cleared_by_others_pages: 14 * i,
        runs_guest: pid == 7,
        cgroup_memory: (pid != 7).then_some(CgroupMemory {
            anon: Bytes(1 << 40),
            file: Bytes(15 + i),
            slab: Bytes(16),
            swap: Bytes(0),
        }),
        swapped: (pid != 7).then_some(Bytes(18 + i)),
        cgroup_limit: (pid == 7).then_some(Bytes(1 << 45)),
        acted: (pid == 7).then_some(Acted {
            left_bytes: Bytes(19 + i),
            out_bytes: Bytes(20),
            refaulted_bytes: Bytes(21 * i),
            demoted_bytes: Bytes(1 << 44),
            promoted_bytes: Bytes(0),
            returned_bytes: Bytes(22),
        }),
    }
}

fn idle_step(idle: Interval, i: u64) -> IdleStep {
    IdleStep { idle, pages: 17 + i, huge_pages: 512 * i, accessed_pages: 18 * i, accessed_huge_pages: 1024 }
}

fn range(start: u64) -> AddrRange {
    AddrRange::new(Addr(start), Addr(start + 0x3000))
}

fn mapping(start: u64, name: &str) -> Mapping {
    Mapping { range: range(start), name: name.into(), perms: Perms::READ.union(Perms::EXEC) }
}

fn region(start: u64, i: u64) -> Region {
    Region {
        range: range(start),
        resident_pages: 3,
        measured_pages: 2,
        huge_pages: 1,
        interval: if i.is_multiple_of(2) { Interval::UNMEASURED } else { Interval::from_ns(i << 20) },
        rate_hz: 0.1,
        age_ns: i,
        idle_ns: 2 * i,
        sampled_pages: i,
        estimated_pages: i / 2,
        hot_pages: i.is_multiple_of(3).then_some(i),
    }
}
