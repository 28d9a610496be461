//! The regions of each target: where its memory is, and how often each part is accessed.
//!
//! The equivalent of `damo report access`. Shares of resident and huge memory are columns, because a region is a range
//! of addresses of which only a part may be populated.

use super::cost::{CostSummary, percent_of};
use super::target::title;
use crate::human::{self, Keep};
use crate::text::{Column, Table, TextStyle, write_wrapped};
use isotherm_heat::{Granularity, Interval, Mapping, Region, Snapshot, TargetHeat};
use isotherm_units::{Addr, AddrRange, Bytes};
use serde::Serialize;
use std::cmp::Reverse;
use std::io::{self, Write};

/// The order of regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// By address.
    #[default]
    Address,
    /// Hottest first; unmeasured ones last.
    Heat,
    /// Most resident bytes first.
    Size,
    /// Longest unchanged first.
    Age,
}

/// What the access report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessOptions {
    /// The order of regions.
    pub sort: SortBy,
    /// Omit regions smaller than this.
    pub min_size: Bytes,
    /// Omit regions that are accessed less often than this, and unmeasured regions.
    pub max_interval_ns: Option<u64>,
    /// Show only so many regions of each target: those with most accesses, by rate and resident memory.
    pub hottest: Option<usize>,
    /// A page belongs to the working set if it is accessed at least this often.
    pub wss_ns: u64,
}

impl Default for AccessOptions {
    fn default() -> AccessOptions {
        AccessOptions {
            sort: SortBy::Address,
            min_size: Bytes(0),
            max_interval_ns: None,
            hottest: None,
            wss_ns: 1_000_000_000,
        }
    }
}

/// One region.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccessRegion {
    /// First address.
    pub start: Addr,
    /// One past the last address.
    pub end: Addr,
    /// Its length.
    pub size_bytes: Bytes,
    /// Resident part of it.
    pub resident_bytes: Bytes,
    /// Part of the resident memory with a known interval.
    pub measured_bytes: Bytes,
    /// Part of the resident memory on huge pages, in percent.
    pub huge_pct: f64,
    /// Measured memory whose heat comes from sampled accesses instead of accessed bits.
    pub sampled_bytes: Bytes,
    /// Measured memory that was not checked itself yet, and is assumed to be like checked memory around it.
    pub estimated_bytes: Bytes,
    /// Mean interval between accesses; `None` if unmeasured.
    pub interval_ns: Option<u64>,
    /// Mean accesses per second and page.
    pub rate_hz: f32,
    /// How long it has had this heat.
    pub age_ns: u64,
    /// Mean time since the last access found.
    pub idle_ns: u64,
    /// Name of the mapping that holds most of it; empty for anonymous memory.
    pub mapping: String,
    #[serde(skip)]
    interval: Interval,
}

/// One target and its regions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccessTarget {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: String,
    /// Path of its cgroup.
    pub cgroup: String,
    /// Whether it has ended.
    pub exited: bool,
    /// The granularity of the source.
    pub granularity: Granularity,
    /// Its resident memory.
    pub resident_bytes: Bytes,
    /// Its working set. A huge page, which has one accessed bit, counts as a whole.
    pub wss_bytes: Bytes,
    /// The same if pages on huge pages count as they did before those were made. `None` if none was known.
    pub wss_by_estimate_bytes: Option<Bytes>,
    /// How long ago these pages were known, in the mean.
    pub estimate_age_ns: Option<u64>,
    /// Memory whose heat cannot be measured.
    pub unclearable_bytes: Bytes,
    /// Regions that pass the filters, sorted.
    pub regions: Vec<AccessRegion>,
    /// Number of regions that the filters omit.
    pub regions_left_out: usize,
}

/// The access report of one snapshot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccessReport {
    /// When the window began.
    pub start_unix_ns: u64,
    /// When it ended.
    pub end_unix_ns: u64,
    /// A page belongs to the working set if it is accessed at least this often.
    pub wss_interval_ns: u64,
    /// The targets, in the order of the snapshot.
    pub targets: Vec<AccessTarget>,
    /// The cost of monitoring.
    pub cost: CostSummary,
}

impl AccessReport {
    /// Builds the report.
    pub fn build(snapshot: &Snapshot, options: &AccessOptions) -> AccessReport {
        AccessReport {
            start_unix_ns: snapshot.start_unix_ns,
            end_unix_ns: snapshot.end_unix_ns,
            wss_interval_ns: options.wss_ns,
            targets: snapshot.targets.iter().map(|t| AccessTarget::build(t, options)).collect(),
            cost: CostSummary::of(&snapshot.cost),
        }
    }

    /// Writes the report as text.
    pub fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        write_wrapped(out, &format!("access at {} UTC", human::utc(self.end_unix_ns)), style)?;
        if self.targets.is_empty() {
            write_wrapped(out, "no targets", style)?;
        }
        for target in &self.targets {
            writeln!(out)?;
            write_wrapped(out, &target.head_line(self.wss_interval_ns), style)?;
            target.table().write(out, style)?;
        }
        writeln!(out)?;
        self.cost.write_text(out, style)
    }
}

impl AccessTarget {
    fn build(target: &TargetHeat, options: &AccessOptions) -> AccessTarget {
        let passes = |r: &&Region| {
            let hot_enough = |limit| r.interval.is_measured() && r.interval <= Interval::from_ns(limit);
            r.range.len() >= options.min_size && options.max_interval_ns.is_none_or(hot_enough)
        };
        let mut shown: Vec<&Region> = target.regions.iter().filter(passes).collect();
        if let Some(most) = options.hottest {
            shown.sort_by(|a, b| accesses_hz(b).total_cmp(&accesses_hz(a)));
            shown.truncate(most);
        }
        let mut regions: Vec<AccessRegion> = shown.iter().map(|r| AccessRegion::build(r, &target.mappings)).collect();
        sort(&mut regions, options.sort);
        let behind = target.behind_huge.as_ref();
        AccessTarget {
            pid: target.id.pid,
            comm: target.comm.clone(),
            cgroup: target.cgroup.clone(),
            exited: target.exited,
            granularity: target.granularity,
            resident_bytes: Bytes::of_pages(target.temperature.resident()),
            wss_bytes: Bytes::of_pages(target.working_set(options.wss_ns)),
            wss_by_estimate_bytes: behind.map(|_| Bytes::of_pages(target.working_set_by_estimate(options.wss_ns))),
            estimate_age_ns: behind.map(|b| b.age_ns),
            unclearable_bytes: Bytes::of_pages(target.unclearable_pages),
            regions_left_out: target.regions.len() - regions.len(),
            regions,
        }
    }

    fn head_line(&self, wss_ns: u64) -> String {
        let name = title(Some(self.pid), &self.comm, self.exited);
        let window = human::duration(wss_ns);
        let mut line = format!("{name}: resident {}, WSS {} (every {window})", self.resident_bytes, self.wss_bytes);
        if let Some((bytes, age)) = self.wss_by_estimate_bytes.zip(self.estimate_age_ns) {
            line += &format!(", {bytes} by estimate (as the pages of huge pages were {} ago)", human::duration(age));
        }
        match self.granularity {
            Granularity::Page => {}
            Granularity::Mapping => line += ", seen by mapping only",
            Granularity::Region => line += ", seen by region only",
        }
        let sampled = Bytes(self.regions.iter().map(|r| r.sampled_bytes.0).sum());
        if sampled.0 > 0 {
            line += &format!(", {sampled} known from samples");
        }
        let estimated = Bytes(self.regions.iter().map(|r| r.estimated_bytes.0).sum());
        if estimated.0 > 0 {
            line += &format!(", {estimated} estimated");
        }
        if self.unclearable_bytes.0 > 0 {
            line += &format!(", heat unknown for {}", self.unclearable_bytes);
        }
        if self.regions_left_out > 0 {
            line += &format!(", {} regions filtered out", self.regions_left_out);
        }
        line
    }

    fn table(&self) -> Table {
        let numbers = Column::numbers(&[
            ("SIZE", 5),
            ("RESIDENT", 1),
            ("HUGE %", 8),
            ("INTERVAL", 0),
            ("RATE Hz", 7),
            ("AGE", 4),
            ("IDLE", 6),
        ]);
        let (address, mapping) = (Column::fixed("ADDRESS", 3), Column::name("MAPPING", Keep::End, 10, 2));
        let columns = [vec![address], numbers, vec![mapping]].concat();
        Table::of(&columns, self.regions.iter().map(AccessRegion::cells))
    }
}

impl AccessRegion {
    fn build(region: &Region, mappings: &[Mapping]) -> AccessRegion {
        AccessRegion {
            start: region.range.start,
            end: region.range.end,
            size_bytes: region.range.len(),
            resident_bytes: Bytes::of_pages(region.resident_pages),
            measured_bytes: Bytes::of_pages(region.measured_pages),
            huge_pct: percent_of(region.huge_pages, region.resident_pages),
            sampled_bytes: Bytes::of_pages(region.sampled_pages),
            estimated_bytes: Bytes::of_pages(region.estimated_pages),
            interval_ns: region.interval.ns(),
            rate_hz: region.rate_hz,
            age_ns: region.age_ns,
            idle_ns: region.idle_ns,
            mapping: name_of(region.range, mappings).to_owned(),
            interval: region.interval,
        }
    }

    fn cells(&self) -> Vec<String> {
        let measured = self.interval.is_measured();
        let known = |text: String| if measured { text } else { "?".to_owned() };
        vec![
            format!("{:x}-{:x}", self.start.0, self.end.0),
            self.size_bytes.to_string(),
            self.resident_bytes.to_string(),
            human::percent(self.huge_pct),
            human::interval(self.interval),
            known(human::rate(f64::from(self.rate_hz))),
            human::duration(self.age_ns),
            known(human::duration(self.idle_ns)),
            human::mapping(&self.mapping),
        ]
    }
}

fn sort(regions: &mut [AccessRegion], by: SortBy) {
    match by {
        SortBy::Address => regions.sort_by_key(|r| r.start),
        SortBy::Heat => regions.sort_by_key(|r| (!r.interval.is_measured(), r.interval, r.start)),
        SortBy::Size => regions.sort_by_key(|r| (Reverse(r.resident_bytes), r.start)),
        SortBy::Age => regions.sort_by_key(|r| (Reverse(r.age_ns), r.start)),
    }
}

/// The name of the mapping with the largest overlap with `range`. Mappings are in address order and disjoint.
fn name_of(range: AddrRange, mappings: &[Mapping]) -> &str {
    let first = mappings.partition_point(|m| m.range.end <= range.start);
    let overlapping = mappings[first..].iter().take_while(|m| m.range.start < range.end);
    let most = overlapping.max_by_key(|m| m.range.intersect(range).map_or(0, |r| r.len().0));
    most.map_or("", |m| &m.name)
}

/// Accesses a second to all pages of a region; below 0 if that is not known.
fn accesses_hz(region: &Region) -> f64 {
    if region.interval.is_measured() { f64::from(region.rate_hz) * region.resident_pages as f64 } else { -1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{MIB, MS, SECOND, mapping, region, snapshot, target};

    fn report(options: AccessOptions) -> Vec<u64> {
        let mut regions = vec![region(0, 4 * MIB, 0), region(8 * MIB, 2 * MIB, 5 * SECOND), region(16 * MIB, MIB, MS)];
        regions[1].age_ns = 99 * SECOND;
        let targets = vec![target(1, "a", "", vec![mapping(0, 20 * MIB, "m")], regions)];
        let report = AccessReport::build(&snapshot(1, targets), &options);
        report.targets[0].regions.iter().map(|r| r.start.0 / MIB).collect()
    }

    #[test]
    fn regions_come_in_the_order_asked_for() {
        let by = |sort| report(AccessOptions { sort, ..AccessOptions::default() });
        assert_eq!(by(SortBy::Address), [0, 8, 16]);
        assert_eq!(by(SortBy::Heat), [16, 8, 0]);
        assert_eq!(by(SortBy::Size), [0, 8, 16]);
        assert_eq!(by(SortBy::Age), [8, 0, 16]);
    }

    #[test]
    fn filters_leave_out_the_small_the_cold_and_the_unmeasured() {
        let options = AccessOptions { min_size: Bytes(2 * MIB), ..AccessOptions::default() };
        assert_eq!(report(options), [0, 8]);
        let options = AccessOptions { max_interval_ns: Some(SECOND), ..AccessOptions::default() };
        assert_eq!(report(options), [16]);
    }

    #[test]
    fn the_hottest_are_those_with_most_accesses() {
        let hottest = |n| report(AccessOptions { hottest: Some(n), ..AccessOptions::default() });
        // 1 MiB every ms, 2 MiB every 5 s, and 4 MiB of which nothing is known.
        assert_eq!((hottest(1), hottest(2), hottest(9)), (vec![16], vec![8, 16], vec![0, 8, 16]));
    }

    #[test]
    fn a_region_is_named_after_the_mapping_that_holds_most_of_it() {
        let mappings = [mapping(0, 10, "a"), mapping(10, 100, "b"), mapping(200, 10, "c")];
        let name = |start, end| name_of(AddrRange::new(Addr(start), Addr(end)), &mappings);
        assert_eq!([name(5, 12), name(5, 30), name(120, 150), name(150, 300)], ["a", "b", "", "c"]);
    }
}
