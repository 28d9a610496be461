//! Snapshots of processes that are none: their memory stays, and a hot span wanders through it.

use isotherm_heat::{CgroupMemory, Histogram, Interval, Mapping, Region};
use isotherm_stream::{HostRow, MappingRow, ProcessRow, RegionRow, Snapshot};
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE, PAGES_PER_PMD, PMD_SIZE, Perms};

const NS_PER_MS: u64 = 1_000_000;
/// Where the memory of each process begins.
const BASE: Addr = Addr(0x7f00_0000_0000);
/// A region of a process: 8 MiB.
const REGION_PMDS: u64 = 4;
const REGION_PAGES: u64 = REGION_PMDS * PAGES_PER_PMD as u64;
/// Between regions, so that none is merged with the next.
const STEP: u64 = (REGION_PMDS + 1) * PMD_SIZE;
/// How long the hot span of a process stays.
const STAY_MS: u64 = 60_000;

/// A host with processes that do not end.
#[derive(Clone, Debug)]
pub(super) struct Host {
    processes: Vec<Process>,
}

#[derive(Clone, Debug)]
struct Process {
    pid: u32,
    comm: &'static str,
    cgroup: String,
    regions: u64,
}

const COMMS: [&str; 8] = ["postgres", "java", "nginx", "node", "memcached", "python3", "redis-server", "envoy"];

impl Host {
    /// `processes` processes in `cgroups` cgroups in turn. The first has `first` regions of 8 MiB, the others 4 to 12.
    pub fn new(processes: u32, cgroups: u32, first: u64) -> Host {
        let process = |n: u32| Process {
            pid: 1000 + n,
            comm: COMMS[n as usize % COMMS.len()],
            cgroup: cgroup(n % cgroups),
            regions: if n == 0 { first } else { 4 + u64::from(n % 9) },
        };
        Host { processes: (0..processes).map(process).collect() }
    }

    /// What all of them have resident.
    pub fn resident(&self) -> Bytes {
        Bytes(self.processes.iter().map(|process| process.regions * REGION_PAGES * PAGE_SIZE).sum())
    }

    /// The snapshot of a window, by its begin and end, milliseconds since the epoch.
    pub fn snapshot(&self, begin_ms: u64, end_ms: u64) -> Snapshot {
        let mut snapshot = Snapshot { host: host_row(begin_ms, end_ms), ..Snapshot::default() };
        for process in &self.processes {
            process.add(&mut snapshot, end_ms);
        }
        snapshot
    }
}

/// As the kubelet names them: names of that length are most of a scrape.
fn cgroup(n: u32) -> String {
    let pod = format!("{n:08x}_90a1_4f5d_8c2e_1a2b3c4d5e6f");
    let container = format!("{:064x}", u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    format!(
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice/cri-containerd-{container}.scope"
    )
}

fn host_row(begin_ms: u64, end_ms: u64) -> HostRow {
    HostRow {
        start_unix_ns: begin_ms * NS_PER_MS,
        end_unix_ns: end_ms * NS_PER_MS,
        hostname: "model".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        source: "page-table".to_owned(),
        cpus: 64,
        memory_bytes: 256 << 30,
        elapsed_ns: (end_ms - begin_ms) * NS_PER_MS,
        ..HostRow::default()
    }
}

impl Process {
    fn add(&self, to: &mut Snapshot, at_ms: u64) {
        let mut row = ProcessRow {
            pid: self.pid,
            start_ticks: u64::from(self.pid),
            comm: self.comm.to_owned(),
            cgroup: self.cgroup.clone(),
            swapped_bytes: Some(0),
            cgroup_memory: Some(CgroupMemory {
                anon: Bytes(self.regions * REGION_PAGES * PAGE_SIZE),
                file: Bytes(1 << 20),
                slab: Bytes(1 << 16),
                swap: Bytes(0),
            }),
            cgroup_limit_bytes: Some(1 << 34),
            ..ProcessRow::default()
        };
        for n in 0..self.regions {
            let region = self.region(n, at_ms);
            row.heat.add(region.interval, region.resident_pages);
            row.idle.add(Interval::from_ns(region.idle_ns), region.resident_pages);
            to.regions.push(RegionRow { pid: row.pid, start_ticks: row.start_ticks, region });
        }
        let range = AddrRange::new(BASE, Addr(BASE.0 + self.regions * STEP));
        let mapping = Mapping { range, name: "[heap]".to_owned(), perms: Perms::READ.union(Perms::WRITE) };
        to.mappings.push(MappingRow { pid: row.pid, start_ticks: row.start_ticks, mapping });
        row.heat_huge = Histogram::default();
        to.processes.push(row);
    }

    fn region(&self, n: u64, at_ms: u64) -> Region {
        let is_hot = n % self.regions.min(16) == at_ms / STAY_MS % self.regions.min(16);
        // Of the others each has its own heat, from 0.5 s to 18 h.
        let octaves = if is_hot { 3.0 } else { 9.0 + (n * 7 % 18) as f64 };
        let interval = Interval::from_octaves(octaves);
        let start = BASE.0 + n * STEP;
        Region {
            range: AddrRange::new(Addr(start), Addr(start + REGION_PMDS * PMD_SIZE)),
            resident_pages: REGION_PAGES,
            measured_pages: REGION_PAGES,
            huge_pages: 0,
            interval,
            rate_hz: 1.0,
            age_ns: at_ms % STAY_MS * NS_PER_MS,
            idle_ns: interval.ns().unwrap_or_default(),
            sampled_pages: 0,
            estimated_pages: 0,
            hot_pages: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_and_the_hot_span_wanders() {
        let host = Host::new(30, 10, 100);
        let at = |ms| host.snapshot(ms - 1000, ms);
        let (first, later) = (at(STAY_MS), at(2 * STAY_MS));
        let resident = |snapshot: &Snapshot| snapshot.processes.iter().map(|row| row.heat.resident()).sum::<u64>();
        assert_eq!((resident(&first), resident(&later)), (resident(&later), host.resident().pages()));
        let hot =
            |snapshot: &Snapshot| snapshot.regions.iter().position(|row| row.region.interval.octaves() == Some(3.0));
        assert_eq!((hot(&first), hot(&later)), (Some(1), Some(2)));
        let mut cgroups: Vec<_> = first.processes.iter().map(|row| &row.cgroup).collect();
        cgroups.sort_unstable();
        cgroups.dedup();
        assert_eq!(cgroups.len(), 10);
        assert!(isotherm_stream::encode(&first).is_ok());
    }
}
