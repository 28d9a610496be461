//! What frontends, planners and recordings read: the heat of every target at one moment.
//!
//! A snapshot is plain data, made by `isotherm-monitor` and never changed after. It holds regions and histograms, not
//! pages, so `max_regions` bounds its size whatever the size of the target. Times are nanoseconds since the Unix epoch,
//! given by the caller: nothing here reads a clock.

use crate::tune::Tuning;
use crate::{Histogram, Interval, MappingIdle};
use isotherm_units::{AddrRange, Bytes, Perms};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Which process. A pid may be reused for another program; a pid with its start time identifies one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TargetId {
    /// The process id.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot, field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
}

/// The granularity of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// Each page separately (a huge page has one bit for its 512 pages).
    Page,
    /// Whole mappings only: how many of their pages were touched, not which.
    Mapping,
    /// Regions, known from samples or found by the source: the mean heat of their pages, not the heat of each.
    Region,
}

/// Neighbouring pages of like heat.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Its addresses.
    pub range: AddrRange,
    /// Pages present in it.
    pub resident_pages: u64,
    /// Those of them whose interval is known.
    pub measured_pages: u64,
    /// Pages that lie on huge pages.
    pub huge_pages: u64,
    /// The mean interval on the log scale over measured pages; `Interval::UNMEASURED` if there are none.
    pub interval: Interval,
    /// Mean accesses a second to each measured page. Differs from `1 / interval` where hot and cold pages are mixed.
    pub rate_hz: f32,
    /// How long the region has had this heat.
    pub age_ns: u64,
    /// Mean time since its pages were last seen accessed.
    pub idle_ns: u64,
    /// Measured pages whose heat is known from sampled accesses. The heat of the others comes from accessed bits or
    /// from the kernel's regions.
    #[serde(default)]
    pub sampled_pages: u64,
    /// Measured pages that were not checked themselves yet: their heat is assumed from checked memory around them.
    #[serde(default)]
    pub estimated_pages: u64,
    /// Measured pages that are accessed at least once a second ([`Interval::HOT`]). `None` if they were not counted: the
    /// source reports no pages, or the file is from before they were.
    #[serde(default)]
    pub hot_pages: Option<u64>,
}

/// If a region's mean interval is more than this many times its mean idle time, its pages were never seen accessed. A
/// single such page has a factor of eight ([`Interval::extrapolated`]). Half of that leaves room for means over pages
/// of both kinds.
const EXTRAPOLATED_TIMES: u64 = 4;

impl Region {
    /// Measured pages that are accessed at least once a second. Where they were not counted, the mean interval stands
    /// for all pages: all of them or none.
    pub fn hot(&self) -> u64 {
        let by_mean = if self.interval.is_hot() { self.measured_pages } else { 0 };
        self.hot_pages.map_or(by_mean, |pages| pages.min(self.measured_pages))
    }

    /// Whether its interval follows from idle time alone, as far as means over its pages can show.
    pub fn is_extrapolated(&self) -> bool {
        self.interval.ns().is_some_and(|ns| ns > EXTRAPOLATED_TIMES * self.idle_ns.max(1))
    }
}

/// Whether a picture shows the heat of memory of which so many pages are resident and so many of these measured: at least half. The numbers
/// are of pages or of parts of pages.
pub fn is_mostly_measured(measured: f64, resident: f64) -> bool {
    measured > 0.0 && measured * 2.0 >= resident
}

/// Whether it shows this heat as an estimate: more than half of the measured pages were not checked themselves yet
/// ([`Region::estimated_pages`]).
pub fn is_mostly_estimated(estimated: f64, measured: f64) -> bool {
    estimated * 2.0 > measured
}

/// A mapping of the target, as in `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mapping {
    /// Its addresses.
    pub range: AddrRange,
    /// Path, `[heap]`, `[stack]`, `[anon:name]`, or empty for anonymous memory.
    pub name: String,
    /// Its permissions. Unknown for memory that is no mapping of a process.
    pub perms: Perms,
}

impl Mapping {
    /// The first of `mappings` (in address order) that contains a part of `range`.
    pub fn first_in(mappings: &[Mapping], range: AddrRange) -> Option<&Mapping> {
        let at = mappings.partition_point(|m| m.range.end <= range.start);
        mappings.get(at).filter(|m| m.range.start < range.end)
    }
}

/// The heat of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetHeat {
    /// Which process.
    pub id: TargetId,
    /// Its command name, at most 15 bytes, as the kernel stores it.
    pub comm: String,
    /// Its cgroup path (v2, or the v1 memory controller's); empty if none is known.
    pub cgroup: String,
    /// Whether it has ended by the time of the snapshot.
    pub exited: bool,
    /// The granularity of the source.
    pub granularity: Granularity,
    /// Regions in address order, disjoint. At most `max_regions`.
    pub regions: Vec<Region>,
    /// Mappings that hold a region, in address order. Snapshots with the same mappings share them: a target may have
    /// tens of thousands of mappings, and a recording thousands of snapshots.
    pub mappings: Arc<[Mapping]>,
    /// Pages by access interval. Counts resident pages; unmeasured ones are at `Interval::UNMEASURED`.
    pub temperature: Histogram,
    /// Pages by time since last seen accessed.
    pub idle: Histogram,
    /// Resident pages that are also counted for another target, so that totals may subtract them.
    pub counted_elsewhere_pages: u64,
    /// Pages mapped by several processes. It is not known whether another target counts them too.
    pub maybe_shared_pages: u64,
    /// Pages that can be read but not cleared here (hugetlb, device memory): no heat is known for them.
    pub unclearable_pages: u64,
    /// The same where huge pages have replaced small pages whose heat was known. `None` if there are none.
    #[serde(default)]
    pub behind_huge: Option<PagesBehindHuge>,
    /// Idle pages by mapping, and those of them found accessed in this window. In address order, at most `max_regions`. Empty if pages
    /// are not checked one by one, or if the file is from before they were counted.
    #[serde(default)]
    pub idle_by_mapping: Vec<MappingIdle>,
    /// Further facts that matter when reading its heat.
    #[serde(default)]
    pub facts: TargetFacts,
}

impl TargetHeat {
    /// Pages by access interval, by estimate where there is one, and else by bits.
    pub fn by_estimate(&self) -> &Histogram {
        self.behind_huge.as_ref().map_or(&self.temperature, |behind| &behind.temperature)
    }

    /// Memory whose heat is assumed from checked memory around it.
    pub fn estimated(&self) -> Bytes {
        Bytes::of_pages(self.regions.iter().map(|region| region.estimated_pages).sum())
    }
}

/// The heat of a target by estimate: small pages that huge pages have replaced count as they were before, or as the huge page is if
/// that is colder.
///
/// A huge page has one accessed bit. By bits ([`TargetHeat::temperature`]) all of it is as hot as its hottest part, which is an upper
/// bound. This is the lower end of the range, as far as what was known still holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PagesBehindHuge {
    /// All pages of the target by access interval.
    pub temperature: Histogram,
    /// Those of them whose interval differs from that by bits, or may: pages on huge pages with an estimate.
    pub pages: u64,
    /// How long ago they were known, in the mean.
    pub age_ns: u64,
}

/// Facts about a target that its accessed bits do not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetFacts {
    /// Pages whose accessed bit somebody else has cleared since the last snapshot: another monitor, the kernel's DAMON
    /// or reclaim, or the program's own `MADV_FREE`. Reported once they are many. Earlier accesses to them are not
    /// known, so heat is understated.
    pub cleared_by_others_pages: u64,
    /// It runs a KVM guest. The guest's accesses set bits in tables that are not read, so its memory looks idle and may
    /// not be.
    pub runs_guest: bool,
    /// Memory charged to its cgroup, including all cgroups below, where that is known.
    pub cgroup_memory: Option<CgroupMemory>,
    /// Of its own memory, swapped out; `None` where that is not known.
    pub swapped: Option<Bytes>,
    /// The lowest memory limit of its cgroup and those above; `None` without a limit, or where it is not known.
    pub cgroup_limit: Option<Bytes>,
    /// What `isotherm run` has done to it; `None` where no scheme takes its memory.
    pub acted: Option<Acted>,
}

/// What actions have done to a target since `isotherm run` watches it. Counted by those who act; a monitor does not know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Acted {
    /// Memory that has left by page-out so far.
    pub left_bytes: Bytes,
    /// Of it, what is out now.
    pub out_bytes: Bytes,
    /// Memory that had left and was accessed again so far.
    pub refaulted_bytes: Bytes,
    /// Memory that has gone to a slower memory tier so far.
    pub demoted_bytes: Bytes,
    /// Memory that has gone to a faster one so far.
    pub promoted_bytes: Bytes,
    /// Memory that the kernel gave back when huge pages were split.
    pub returned_bytes: Bytes,
}

/// What a memory cgroup is charged for, by kind. Heat is known of mapped memory only. No page table shows the rest of
/// `file`, or `slab`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupMemory {
    /// Anonymous memory.
    pub anon: Bytes,
    /// Page cache, mapped or not, and shared memory.
    pub file: Bytes,
    /// Slab (v2), or all kernel memory (v1).
    pub slab: Bytes,
    /// Swapped out.
    pub swap: Bytes,
}

/// Cost of monitoring since the monitor started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Time monitored.
    pub elapsed_ns: u64,
    /// CPU time of the monitor, including opening the source.
    pub monitor_cpu_ns: u64,
    /// Page-table entries read.
    pub pages_read: u64,
    /// Pages (a huge page is one) whose accessed bit was cleared to learn of their next access.
    pub pages_cleared: u64,
    /// Cleared pages (a huge page is one) seen accessed again. Each cost the target a slow walk.
    pub pages_retouched: u64,
    /// Estimated slow-down of the targets, in percent of one core.
    pub slowdown_pct: f64,
    /// The longest time that a target's memory map was locked in one piece.
    pub longest_hold_ns: u64,
    /// Reads of page tables that failed. Any value but 0 makes the result suspect.
    pub read_errors: u64,
    /// Accesses that the kernel reported, for all processes.
    #[serde(default)]
    pub samples: u64,
    /// Reports that were lost: reported as lost, or missing by the event's own count.
    #[serde(default)]
    pub samples_lost: u64,
    /// How often the event has happened by its own count, where it is counted in addition to being sampled.
    #[serde(default)]
    pub events: u64,
}

/// The heat of all targets at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When the window began, nanoseconds since the epoch.
    pub start_unix_ns: u64,
    /// When it ended and the snapshot was taken.
    pub end_unix_ns: u64,
    /// Processes, by pid.
    pub targets: Vec<TargetHeat>,
    /// Cost of monitoring since the start.
    pub cost: Cost,
}

impl Snapshot {
    /// The processes that had not ended by then.
    pub fn alive(&self) -> impl Iterator<Item = &TargetHeat> {
        self.targets.iter().filter(|target| !target.exited)
    }
}

/// How and where a series of snapshots was made: the head of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Version of Isotherm.
    pub version: String,
    /// Name of the source, such as `page-table`.
    pub source: String,
    /// Why that source was chosen and what it cannot show: a sentence for people.
    pub source_note: String,
    /// Length of a window.
    pub window_ns: u64,
    /// The bound on regions of one target.
    pub max_regions: u64,
    /// The allowed slow-down of the targets in percent.
    pub max_slowdown_pct: f64,
    /// The allowed CPU of the monitor in percent of one core.
    pub max_cpu_pct: f64,
    /// Each region of a sampled target is checked once in this time, if the budgets allow. With a goal: at first. 0 in recordings
    /// made before it was recorded.
    pub sample_interval_ns: u64,
    /// How that interval follows the accesses. `None` if it stays as it is.
    pub intervals_goal: Option<Tuning>,
    /// Command line of the monitor.
    pub command: Vec<String>,
    /// Kernel release.
    pub kernel: String,
    /// CPU model name.
    pub cpu: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory of the machine.
    pub memory: Bytes,
}

/// Bounds between the four classes that reports speak of, as access intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Hot: accessed at least this often.
    pub hot_ns: u64,
    /// Warm: not hot, and at least this often.
    pub warm_ns: u64,
    /// Cold: not warm, and at least this often. Idle: anything beyond.
    pub cold_ns: u64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { hot_ns: 1_000_000_000, warm_ns: 10_000_000_000, cold_ns: 60_000_000_000 }
    }
}

/// Bytes by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classes {
    /// Accessed at least every `hot_ns`.
    pub hot: Bytes,
    /// At least every `warm_ns`.
    pub warm: Bytes,
    /// At least every `cold_ns`.
    pub cold: Bytes,
    /// Less often.
    pub idle: Bytes,
    /// Resident and not yet known.
    pub unmeasured: Bytes,
}

impl Classes {
    /// Sorts the pages of a histogram into classes. A page exactly on a bound belongs to the hotter class.
    pub fn of(temperature: &Histogram, bounds: Thresholds) -> Classes {
        let hot = temperature.within_ns(bounds.hot_ns);
        let warm = temperature.within_ns(bounds.warm_ns.max(bounds.hot_ns));
        let cold = temperature.within_ns(bounds.cold_ns.max(bounds.warm_ns).max(bounds.hot_ns));
        let measured = temperature.measured();
        Classes {
            hot: Bytes::of_pages(hot),
            warm: Bytes::of_pages(warm - hot),
            cold: Bytes::of_pages(cold - warm),
            idle: Bytes::of_pages(measured - cold),
            unmeasured: Bytes::of_pages(temperature.resident() - measured),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::Addr;

    #[test]
    fn a_mapping_is_found_by_any_part_of_it() {
        let mapping = |start, end| Mapping {
            range: AddrRange::new(Addr(start), Addr(end)),
            name: String::new(),
            perms: "rw-p".parse().unwrap(),
        };
        let mappings = [mapping(10, 20), mapping(30, 40)];
        let start =
            |from, to| Mapping::first_in(&mappings, AddrRange::new(Addr(from), Addr(to))).map(|m| m.range.start.0);
        assert_eq!(
            [start(0, 10), start(0, 11), start(20, 30), start(15, 35), start(39, 50)],
            [None, Some(10), None, Some(10), Some(30)]
        );
    }

    #[test]
    fn a_region_is_extrapolated_from_more_than_four_times_its_idle_time_on() {
        const S: u64 = 1_000_000_000;
        let page = Region {
            range: AddrRange::new(Addr(0), Addr(4096)),
            resident_pages: 1,
            measured_pages: 1,
            huge_pages: 0,
            interval: Interval::UNMEASURED,
            rate_hz: 1.0,
            age_ns: 0,
            idle_ns: 0,
            sampled_pages: 0,
            estimated_pages: 0,
            hot_pages: None,
        };
        let is = |interval, idle_ns| Region { interval, idle_ns, ..page }.is_extrapolated();
        let of = |seconds| Interval::from_ns(seconds * S);
        let four = of(4).ns().unwrap();
        assert_eq!([is(of(4), four / 4 + 1), is(of(4), four / 4 - 1)], [false, true]);
        assert_eq!([is(of(8), S), is(of(2), S)], [true, false], "eight times is a page that was never seen");
        assert_eq!(
            [is(Interval::SHORTEST, 0), is(Interval::UNMEASURED, 0)],
            [true, false],
            "of nothing is no interval"
        );
    }

    #[test]
    fn hot_pages_are_those_counted_and_follow_from_the_mean_if_none_were() {
        let region = |interval, measured_pages, hot_pages| Region {
            range: AddrRange::new(Addr(0), Addr(8 * 4096)),
            resident_pages: 8,
            measured_pages,
            huge_pages: 0,
            interval,
            rate_hz: 0.0,
            age_ns: 0,
            idle_ns: 0,
            sampled_pages: 0,
            estimated_pages: 0,
            hot_pages,
        };
        let cold = Interval::from_code(Interval::HOT.code() + 1);
        assert_eq!(
            [region(cold, 6, Some(2)).hot(), region(cold, 6, Some(9)).hot()],
            [2, 6],
            "never more than measured"
        );
        assert_eq!([Interval::HOT, cold, Interval::UNMEASURED].map(|i| region(i, 6, None).hot()), [6, 0, 0]);
    }

    #[test]
    fn classes_add_up_to_the_resident_pages() {
        let mut h = Histogram::default();
        for (seconds, pages) in [(1, 1), (2, 10), (10, 100), (30, 1000), (100, 10_000)] {
            h.add(Interval::from_ns(seconds * 1_000_000_000), pages);
        }
        h.add(Interval::UNMEASURED, 5);
        let c = Classes::of(&h, Thresholds::default());
        assert_eq!([c.hot, c.warm, c.cold, c.idle, c.unmeasured].map(Bytes::pages), [1, 110, 1000, 10_000, 5]);
    }
}
