//! Synthetic snapshots, plausible and always the same: for the examples and the tests, which both include this file.

use isotherm_heat::{
    Cost, Granularity, Histogram, IdleStep, Interval, Mapping, MappingIdle, Region, RunInfo, Snapshot, TargetHeat,
    TargetId,
};
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE, PMD_SIZE, Perms};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;
/// 2026-08-21 12:00:00 UTC.
pub const EPOCH: u64 = 1_787_313_600 * SECOND;
pub const MIB: u64 = 1 << 20;

/// A fully resident region; `interval_ns` of 0 is unmeasured.
pub fn region(start: u64, bytes: u64, interval_ns: u64) -> Region {
    let pages = bytes / PAGE_SIZE;
    let interval = if interval_ns == 0 { Interval::UNMEASURED } else { Interval::from_ns(interval_ns) };
    Region {
        range: AddrRange::new(Addr(start), Addr(start.saturating_add(bytes))),
        resident_pages: pages,
        measured_pages: if interval_ns == 0 { 0 } else { pages },
        huge_pages: if start.is_multiple_of(PMD_SIZE) && bytes >= PMD_SIZE { pages / 512 * 512 } else { 0 },
        interval,
        rate_hz: interval.ns().map_or(0.0, |ns| 1e9 / ns as f32),
        age_ns: 20 * SECOND,
        idle_ns: interval_ns / 2,
        sampled_pages: 0,
        estimated_pages: 0,
        hot_pages: None,
    }
}

pub fn mapping(start: u64, bytes: u64, name: &str) -> Mapping {
    let range = AddrRange::new(Addr(start), Addr(start.saturating_add(bytes)));
    Mapping { range, name: name.to_owned(), perms: Perms::READ.union(Perms::WRITE) }
}

pub fn target(pid: u32, comm: &str, cgroup: &str, mappings: Vec<Mapping>, regions: Vec<Region>) -> TargetHeat {
    let (mut temperature, mut idle) = (Histogram::default(), Histogram::default());
    for r in &regions {
        temperature.add(r.interval, r.measured_pages);
        temperature.add(Interval::UNMEASURED, r.resident_pages.saturating_sub(r.measured_pages));
        let idleness = if r.measured_pages == 0 { Interval::UNMEASURED } else { Interval::from_ns(r.idle_ns) };
        idle.add(idleness, r.resident_pages);
    }
    let idle_by_mapping = mappings.iter().map(|m| idle_of(m, &regions)).filter(|m| !m.steps.is_empty()).collect();
    TargetHeat {
        id: TargetId { pid, start_ticks: u64::from(pid) * 10 },
        comm: comm.to_owned(),
        cgroup: cgroup.to_owned(),
        exited: false,
        granularity: Granularity::Page,
        regions,
        mappings: mappings.into(),
        temperature,
        idle,
        counted_elsewhere_pages: 0,
        maybe_shared_pages: 0,
        unclearable_pages: 0,
        behind_huge: None,
        idle_by_mapping,
        facts: Default::default(),
    }
}

/// The pages of a mapping that are idle for a second or more, one of 8,192 of them accessed in each window.
fn idle_of(mapping: &Mapping, regions: &[Region]) -> MappingIdle {
    let mut steps: Vec<IdleStep> = Vec::new();
    let within = regions.iter().filter(|r| mapping.range.contains(r.range.start) && r.idle_ns >= SECOND);
    for region in within {
        let (idle, huge_pages) = (Interval::from_ns(region.idle_ns), region.huge_pages / 4 / 512 * 512);
        let at = steps.binary_search_by_key(&idle, |s| s.idle).unwrap_or_else(|at| {
            steps.insert(at, IdleStep { idle, pages: 0, huge_pages: 0, accessed_pages: 0, accessed_huge_pages: 0 });
            at
        });
        steps[at].pages += region.resident_pages - huge_pages;
        steps[at].huge_pages += huge_pages;
        steps[at].accessed_pages += region.resident_pages / 8192;
    }
    MappingIdle { start: Some(mapping.range.start), steps }
}

/// A snapshot of the window that ends `second` seconds after the epoch.
pub fn snapshot(second: u64, targets: Vec<TargetHeat>) -> Snapshot {
    let end = EPOCH + second * SECOND;
    let cost = Cost {
        elapsed_ns: second.max(1) * SECOND,
        monitor_cpu_ns: second.max(1) * 4 * MS,
        pages_read: 1_000_000,
        pages_cleared: 90_000,
        pages_retouched: 30_000,
        slowdown_pct: 0.12,
        longest_hold_ns: 350_000,
        read_errors: 0,
        samples: 0,
        samples_lost: 0,
        events: 0,
    };
    Snapshot { start_unix_ns: end - SECOND, end_unix_ns: end, targets, cost }
}

/// A database: an arena through which a hot band moves, a pool of shared buffers, code, a stack.
fn database(second: u64) -> TargetHeat {
    const HEAP: u64 = 0x55d0_4a20_0000;
    const POOL: u64 = 0x7f20_0000_0000;
    const CODE: u64 = 0x7f61_1240_0000;
    const STACK: u64 = 0x7ffd_8a40_0000;
    let mut regions = Vec::new();
    for slot in 0..16 {
        let distance = (slot + 64 - second / 8 % 16) % 16;
        let ns = if second < 6 && slot > 10 { 0 } else { (20 * MS) << distance.min(15) };
        regions.push(region(HEAP + slot * 8 * MIB, 8 * MIB, ns));
    }
    for slot in 0..24 {
        let hot = (slot * 7 + second / 20) % 24 < 4;
        let ns = if hot { 60 * MS } else { (2 + slot * slot) * SECOND };
        regions.push(region(POOL + slot * 32 * MIB, 32 * MIB, ns));
    }
    regions.push(region(CODE, 2 * MIB, 12 * MS));
    regions.push(region(CODE + 2 * MIB, 6 * MIB, 400 * SECOND));
    regions.push(region(STACK, 132 * 1024, 9 * MS));
    let mappings = vec![
        mapping(HEAP, 128 * MIB, "[heap]"),
        mapping(POOL, 768 * MIB, "/dev/shm/PostgreSQL.1804289383"),
        mapping(CODE, 8 * MIB, "/usr/lib/postgresql/17/bin/postgres"),
        mapping(STACK, 132 * 1024, "[stack]"),
    ];
    let mut target = target(812, "postgres", "/system.slice/postgresql.service", mappings, regions);
    target.maybe_shared_pages = 1000;
    target
}

/// A cache that grows, whose oldest part goes cold.
fn cache(second: u64) -> TargetHeat {
    const ARENA: u64 = 0x7fa4_8000_0000;
    let slots = 4 + second / 6;
    let regions = (0..slots).map(|slot| {
        let age = slots - slot;
        region(ARENA + slot * 16 * MIB, 16 * MIB, (30 * MS) << (age / 2).min(16))
    });
    let mappings = vec![mapping(ARENA, slots * 16 * MIB, "[anon:jemalloc]")];
    let mut target = target(2041, "redis-server", "/system.slice/redis.service", mappings, regions.collect());
    target.counted_elsewhere_pages = 2048;
    target
}

fn shell() -> TargetHeat {
    const HEAP: u64 = 0x5601_0000_0000;
    let regions = vec![region(HEAP, 2 * MIB, 90 * SECOND), region(0x7f00_1000_0000, MIB, 5 * SECOND)];
    let mappings = vec![mapping(HEAP, 2 * MIB, "[heap]"), mapping(0x7f00_1000_0000, MIB, "/usr/lib/libc.so.6")];
    target(3100, "bash", "/user.slice/user-1000.slice/session-3.scope", mappings, regions)
}

/// `count` snapshots, one a second. The shell is there for the middle half only.
pub fn series(count: u64) -> Vec<Snapshot> {
    (1..=count)
        .map(|second| {
            let mut targets = vec![database(second), cache(second)];
            if second * 4 > count && second * 4 <= count * 3 {
                targets.push(shell());
            }
            snapshot(second, targets)
        })
        .collect()
}

/// One target of `regions` regions in each of `count` snapshots.
pub fn large(count: u64, regions: u64) -> Vec<Snapshot> {
    let base = 0x7f00_0000_0000;
    (1..=count)
        .map(|second| {
            let list = (0..regions).map(|r| region(base + r * 4 * MIB, 3 * MIB, (10 + (r * 31 + second) % 9000) * MS));
            let mappings = (0..regions).map(|r| mapping(base + r * 4 * MIB, 3 * MIB, &format!("/data/file-{r}")));
            snapshot(second, vec![target(7, "large", "/large", mappings.collect(), list.collect())])
        })
        .collect()
}

/// How a monitor that made these snapshots would describe itself.
pub fn run_info() -> RunInfo {
    RunInfo {
        version: "0.1.0".to_owned(),
        source: "page-table".to_owned(),
        source_note: "accessed bits of the page tables; nothing is lost".to_owned(),
        window_ns: SECOND,
        max_regions: 1000,
        max_slowdown_pct: 1.0,
        max_cpu_pct: 5.0,
        kernel: "6.12".to_owned(),
        cpu: "Synthetic".to_owned(),
        cpus: 2,
        memory: Bytes(24 << 30),
        ..RunInfo::default()
    }
}
