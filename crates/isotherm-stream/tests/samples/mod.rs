//! Snapshots for tests: every field set, and different from snapshot to snapshot.

use isotherm_heat::{CgroupMemory, Histogram, Interval, Mapping, Region};
use isotherm_stream::{ActionRow, EventRow, HostRow, IdleRow, MappingRow, PlanRow, ProcessRow, RegionRow, Snapshot};
use isotherm_units::{Addr, AddrRange, Bytes};

/// The snapshot of second `n`, with `regions` regions for its one process.
pub fn snapshot(n: u64, regions: u64) -> Snapshot {
    Snapshot {
        host: host(n),
        processes: vec![process(n)],
        regions: (0..regions).map(|at| region(n, at)).collect(),
        mappings: vec![MappingRow {
            pid: 42,
            start_ticks: u64::MAX,
            mapping: Mapping {
                range: range(0, regions.max(1)),
                name: "/lib/ä.so".into(),
                perms: "r-xp".parse().unwrap(),
            },
        }],
        idle: vec![IdleRow { pid: 42, start_ticks: u64::MAX, interval: Interval::HOT, pages: n }],
        actions: vec![ActionRow { action: "collapse".into(), result: "done".into(), huge_ranges: n, bytes: n << 21 }],
        events: vec![EventRow { at_unix_ns: n, text: "it \"began\"".into() }],
        plan: vec![PlanRow {
            pid: 42,
            start_ticks: u64::MAX,
            action: "page-out".into(),
            mapping_start_addr: n.is_multiple_of(2).then_some(u64::MAX),
            huge_ranges: 3,
            bytes: 4096 * n,
            why_not: "idle".into(),
        }],
    }
}

fn host(n: u64) -> HostRow {
    HostRow {
        start_unix_ns: n * 1_000_000_000,
        end_unix_ns: (n + 1) * 1_000_000_000,
        hostname: "here".into(),
        version: "0.1.0".into(),
        source: "page-table".into(),
        source_note: "Sees every page.".into(),
        kernel: "6.12.0".into(),
        cpu: "A CPU".into(),
        cpus: 2,
        memory_bytes: 1 << 40,
        elapsed_ns: n + 1,
        monitor_cpu_ns: 2,
        slowdown_pct: 0.25,
        max_cpu_pct: 1.0,
        max_slowdown_pct: 0.1 + 0.2,
        read_errors: 3,
        unchecked_pmds: 4,
        all_pmds: 5,
        pages_read: 6,
        pages_cleared: 7,
        pages_retouched: 8,
        samples_lost: 9,
    }
}

fn process(n: u64) -> ProcessRow {
    let histogram = |code, pages| Histogram::from(vec![(1, 5), (code, pages)]);
    ProcessRow {
        pid: 42,
        start_ticks: u64::MAX,
        comm: "worker".into(),
        cgroup: "/system.slice/ä.service".into(),
        exited: n % 2 == 1,
        sampled: n.is_multiple_of(2),
        heat: histogram(40, 100 + n),
        heat_huge: histogram(41, 50),
        idle: histogram(255, 60),
        counted_elsewhere_pages: 10,
        estimated_pages: 11,
        unclearable_pages: 12,
        swapped_bytes: (n.is_multiple_of(2)).then_some(4096),
        cgroup_memory: (n.is_multiple_of(2)).then_some(CgroupMemory {
            anon: Bytes(1),
            file: Bytes(2),
            slab: Bytes(3),
            swap: Bytes(4),
        }),
        cgroup_limit_bytes: (n.is_multiple_of(2)).then_some(1 << 30),
        left_bytes: 13,
        refaulted_bytes: 14,
        out_bytes: 15,
    }
}

fn region(n: u64, at: u64) -> RegionRow {
    RegionRow {
        pid: 42,
        start_ticks: u64::MAX,
        region: Region {
            range: range(at, at + 1),
            resident_pages: 3,
            measured_pages: 2,
            huge_pages: 1,
            interval: Interval::from_code(u8::try_from(n % 250).unwrap()),
            rate_hz: 0.1,
            age_ns: n,
            idle_ns: 2 * n,
            sampled_pages: 1,
            estimated_pages: 0,
            hot_pages: at.is_multiple_of(2).then_some(1),
        },
    }
}

fn range(from: u64, to: u64) -> AddrRange {
    let at = |n: u64| Addr(0x7f00_0000_0000 + n * 0x4000);
    AddrRange::new(at(from), at(to))
}
