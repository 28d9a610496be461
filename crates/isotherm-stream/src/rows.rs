//! The rows of a snapshot: plain data, as flat as the tables in which they are sent.
//!
//! They differ from the snapshots of `isotherm-heat` in what a view needs and in what it does not. A process has its
//! heat on huge pages apart, its swap, its limit, and what has left memory. Of its idle pages by mapping it has only those that
//! were found accessed, and without the mapping.

use isotherm_heat::{self as heat, CgroupMemory, Histogram, Interval, Mapping, Region, RunInfo, TargetHeat, TargetId};

/// What a monitor knows at the end of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The machine and the monitor.
    pub host: HostRow,
    /// Processes. A process occurs once.
    pub processes: Vec<ProcessRow>,
    /// Their regions, in address order for each process.
    pub regions: Vec<RegionRow>,
    /// Their mappings, in address order for each process.
    pub mappings: Vec<MappingRow>,
    /// Pages that were found accessed in this window after they had been idle.
    pub idle: Vec<IdleRow>,
    /// What was done to memory, counted since the monitor started.
    pub actions: Vec<ActionRow>,
    /// What happened in this window and lately, in order of time: an event comes with several snapshots, as one may be lost.
    pub events: Vec<EventRow>,
    /// What actions would do, as of a few seconds ago. Empty if the monitor has not made a plan.
    pub plan: Vec<PlanRow>,
}

/// The machine, and the monitor and its cost since it started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostRow {
    /// When the window began, nanoseconds since the epoch.
    pub start_unix_ns: u64,
    /// When it ended.
    pub end_unix_ns: u64,
    /// Name of the host.
    pub hostname: String,
    /// Version of Isotherm.
    pub version: String,
    /// Name of the source, such as `page-table`.
    pub source: String,
    /// What the source cannot show: a sentence for people.
    pub source_note: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU model name.
    pub cpu: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Time monitored.
    pub elapsed_ns: u64,
    /// CPU time of the monitor.
    pub monitor_cpu_ns: u64,
    /// Estimated slow-down of the targets, percent of one core.
    pub slowdown_pct: f64,
    /// The allowed CPU of the monitor, percent of one core.
    pub max_cpu_pct: f64,
    /// The allowed slow-down of the targets, percent.
    pub max_slowdown_pct: f64,
    /// Reads of page tables that failed.
    pub read_errors: u64,
    /// Huge ranges that were not checked yet.
    pub unchecked_pmds: u64,
    /// All huge ranges of the targets.
    pub all_pmds: u64,
    /// Page-table entries read.
    pub pages_read: u64,
    /// Pages whose accessed bit was cleared.
    pub pages_cleared: u64,
    /// Cleared pages seen accessed again.
    pub pages_retouched: u64,
    /// Samples that were lost.
    pub samples_lost: u64,
}

impl HostRow {
    /// What a run and its snapshot say of them. The name of the host and what is unchecked they do not have.
    pub fn of(run: &RunInfo, snapshot: &heat::Snapshot) -> HostRow {
        let cost = &snapshot.cost;
        HostRow {
            start_unix_ns: snapshot.start_unix_ns,
            end_unix_ns: snapshot.end_unix_ns,
            version: run.version.clone(),
            source: run.source.clone(),
            source_note: run.source_note.clone(),
            kernel: run.kernel.clone(),
            cpu: run.cpu.clone(),
            cpus: run.cpus,
            memory_bytes: run.memory.0,
            elapsed_ns: cost.elapsed_ns,
            monitor_cpu_ns: cost.monitor_cpu_ns,
            slowdown_pct: cost.slowdown_pct,
            max_cpu_pct: run.max_cpu_pct,
            max_slowdown_pct: run.max_slowdown_pct,
            read_errors: cost.read_errors,
            pages_read: cost.pages_read,
            pages_cleared: cost.pages_cleared,
            pages_retouched: cost.pages_retouched,
            samples_lost: cost.samples_lost,
            ..HostRow::default()
        }
    }
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessRow {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot: with the pid, it identifies the process.
    pub start_ticks: u64,
    /// Command name.
    pub comm: String,
    /// Cgroup path; empty if unknown.
    pub cgroup: String,
    /// It has ended.
    pub exited: bool,
    /// Its heat comes from a sample of its memory, or from sampled accesses.
    pub sampled: bool,
    /// Pages by access interval: where huge pages have replaced small pages whose heat was known, by estimate.
    pub heat: Histogram,
    /// Those of them on huge pages; empty if not known.
    pub heat_huge: Histogram,
    /// Pages by time since last seen accessed.
    pub idle: Histogram,
    /// Resident pages that are also counted for another process.
    pub counted_elsewhere_pages: u64,
    /// Pages whose heat is assumed from checked memory around them.
    pub estimated_pages: u64,
    /// Pages of which no heat can be known.
    pub unclearable_pages: u64,
    /// Swapped out; `None` if not known.
    pub swapped_bytes: Option<u64>,
    /// What its memory cgroup is charged for, with those below.
    pub cgroup_memory: Option<CgroupMemory>,
    /// The limit of its memory cgroup; `None` if there is none or it is not known.
    pub cgroup_limit_bytes: Option<u64>,
    /// Memory that has left by page-out, counted since the monitor started.
    pub left_bytes: u64,
    /// Memory that came back after it had left, counted likewise.
    pub refaulted_bytes: u64,
    /// Memory that has left and has not come back.
    pub out_bytes: u64,
}

impl ProcessRow {
    /// What a snapshot says of a process. Its heat on huge pages it does not have.
    pub fn of(target: &TargetHeat) -> ProcessRow {
        let acted = target.facts.acted.unwrap_or_default();
        ProcessRow {
            pid: target.id.pid,
            start_ticks: target.id.start_ticks,
            comm: target.comm.clone(),
            cgroup: target.cgroup.clone(),
            exited: target.exited,
            sampled: target.regions.iter().any(|region| region.sampled_pages > 0),
            heat: as_seen(target, target.by_estimate()),
            idle: as_seen(target, &target.idle),
            counted_elsewhere_pages: target.counted_elsewhere_pages,
            estimated_pages: if target.facts.runs_guest { 0 } else { target.estimated().pages() },
            unclearable_pages: target.unclearable_pages,
            cgroup_memory: target.facts.cgroup_memory,
            swapped_bytes: target.facts.swapped.map(|bytes| bytes.0),
            cgroup_limit_bytes: target.facts.cgroup_limit.map(|bytes| bytes.0),
            left_bytes: acted.left_bytes.0,
            refaulted_bytes: acted.refaulted_bytes.0,
            out_bytes: acted.out_bytes.0,
            ..ProcessRow::default()
        }
    }

    /// Which process.
    pub fn id(&self) -> TargetId {
        TargetId { pid: self.pid, start_ticks: self.start_ticks }
    }
}

/// A histogram of a target as it counts in sums. The accesses of a KVM guest are not seen, so its memory looks idle and is of unknown heat.
fn as_seen(target: &TargetHeat, pages: &Histogram) -> Histogram {
    if !target.facts.runs_guest {
        return pages.clone();
    }
    let mut unknown = Histogram::default();
    unknown.add(Interval::UNMEASURED, pages.resident());
    unknown
}

/// The same for a region.
fn region_as_seen(target: &TargetHeat, region: Region) -> Region {
    if !target.facts.runs_guest {
        return region;
    }
    Region {
        measured_pages: 0,
        sampled_pages: 0,
        estimated_pages: 0,
        hot_pages: Some(0),
        interval: Interval::UNMEASURED,
        rate_hz: 0.0,
        age_ns: 0,
        idle_ns: 0,
        ..region
    }
}

/// A region of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionRow {
    /// Process id.
    pub pid: u32,
    /// Start time of the process.
    pub start_ticks: u64,
    /// The region.
    pub region: Region,
}

impl RegionRow {
    /// The regions of a process.
    pub fn of(target: &TargetHeat) -> impl Iterator<Item = RegionRow> + '_ {
        let TargetId { pid, start_ticks } = target.id;
        target.regions.iter().map(move |region| RegionRow { pid, start_ticks, region: region_as_seen(target, *region) })
    }

    /// Of which process.
    pub fn id(&self) -> TargetId {
        TargetId { pid: self.pid, start_ticks: self.start_ticks }
    }
}

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingRow {
    /// Process id.
    pub pid: u32,
    /// Start time of the process.
    pub start_ticks: u64,
    /// The mapping.
    pub mapping: Mapping,
}

impl MappingRow {
    /// The mappings of a process.
    pub fn of(target: &TargetHeat) -> impl Iterator<Item = MappingRow> + '_ {
        let TargetId { pid, start_ticks } = target.id;
        target.mappings.iter().map(move |mapping| MappingRow { pid, start_ticks, mapping: mapping.clone() })
    }

    /// Of which process.
    pub fn id(&self) -> TargetId {
        TargetId { pid: self.pid, start_ticks: self.start_ticks }
    }
}

/// Pages of a process that were found accessed in this window, by the time for which they were idle before: what would have come
/// back, had it left at that age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleRow {
    /// Process id.
    pub pid: u32,
    /// Start time of the process.
    pub start_ticks: u64,
    /// The idle time before the access. One row for each.
    pub interval: Interval,
    /// Pages, those on huge pages included. A huge page counts as 512: it is not known how many of them were accessed.
    pub pages: u64,
}

impl IdleRow {
    /// Of a process, summed over its mappings; the shortest idle time first.
    pub fn of(target: &TargetHeat) -> impl Iterator<Item = IdleRow> + use<> {
        let mut found = Histogram::default();
        for step in target.idle_by_mapping.iter().flat_map(|mapping| &mapping.steps) {
            found.add(step.idle, step.accessed_pages.saturating_add(step.accessed_huge_pages));
        }
        let TargetId { pid, start_ticks } = target.id;
        let rows: Vec<_> =
            found.iter().map(|(interval, pages)| IdleRow { pid, start_ticks, interval, pages }).collect();
        rows.into_iter()
    }

    /// Of which process.
    pub fn id(&self) -> TargetId {
        TargetId { pid: self.pid, start_ticks: self.start_ticks }
    }
}

/// What was done to memory, or was not, counted since the monitor started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActionRow {
    /// Such as `collapse` or `page-out`.
    pub action: String,
    /// `done`; `would` in a dry run, which does nothing; or the name of the reason for which it was not done.
    pub result: String,
    /// Huge ranges.
    pub huge_ranges: u64,
    /// Memory.
    pub bytes: u64,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventRow {
    /// When, nanoseconds since the epoch.
    pub at_unix_ns: u64,
    /// A sentence for people.
    pub text: String,
}

/// What an action would do to memory of a process, or why it would do nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanRow {
    /// Process id.
    pub pid: u32,
    /// Start time of the process.
    pub start_ticks: u64,
    /// The action, such as `page-out`.
    pub action: String,
    /// Where the mapping begins; `None`: several mappings.
    pub mapping_start_addr: Option<u64>,
    /// Huge ranges.
    pub huge_ranges: u64,
    /// Memory that would become huge, leave, or be returned.
    pub bytes: u64,
    /// Why nothing would be done to them; empty if something would.
    pub why_not: String,
}

impl PlanRow {
    /// Of which process.
    pub fn id(&self) -> TargetId {
        TargetId { pid: self.pid, start_ticks: self.start_ticks }
    }
}
