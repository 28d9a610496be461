//! The working set over time: the memory that is accessed at least once in a given interval.
//!
//! Per target and in total. Percentiles are over snapshots, by the nearest rank, so each is a measured value. A target
//! counts only in snapshots in which it was alive. It is not known which of the pages that two targets share are in the
//! working set. So the total is a plain sum, marked `~` if sharing is known or possible.
//!
//! The size follows from the observations of all pages ([`TargetHeat::working_set`]); JSON has beside it what is counted page by page.
//!
//! Memory that is not measured yet is in no working set, and any of it may belong there. So it is shown, as long as there is any. Memory that was not
//! checked yet and is estimated from memory around it counts, and is shown beside the size as well.
//!
//! A huge page counts as a whole, because it has one accessed bit. Where its small pages were known before, a second figure counts
//! them as they were: the working set lies between the two.

use super::cost::CostSummary;
use super::target::{may_be_shared, title};
use crate::human;
use crate::math;
use crate::text::{Column, Table, TextStyle, write_wrapped};
use isotherm_heat::{Interval, Snapshot, TargetHeat, TargetId};
use isotherm_units::Bytes;
use serde::Serialize;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The percentiles that are shown.
pub const PERCENTILES: [u8; 9] = [0, 1, 5, 25, 50, 75, 95, 99, 100];

/// What the working-set report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WssOptions {
    /// A page belongs to the working set if it is accessed at least this often.
    pub interval_ns: u64,
    /// Show percentiles.
    pub percentiles: bool,
    /// Show one line per snapshot.
    pub over_time: bool,
}

impl Default for WssOptions {
    fn default() -> WssOptions {
        WssOptions { interval_ns: 1_000_000_000, percentiles: true, over_time: true }
    }
}

/// The working set at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WssPoint {
    /// The time.
    pub unix_ns: u64,
    /// The size: what is accessed at least once per interval, by the observations of all pages.
    pub bytes: Bytes,
    /// Pages whose own interval is as short as that. Each comes from a check or two and is off by a factor of up to four.
    pub counted_bytes: Bytes,
    /// The size if pages on huge pages count as they did before those were made. `None` if none was known.
    pub by_estimate_bytes: Option<Bytes>,
    /// Resident memory whose heat was not known at that time, without what cannot be measured here. It is not in the size.
    pub unmeasured_bytes: Bytes,
    /// Resident memory that was not checked yet, and counts as checked memory around it.
    pub estimated_bytes: Bytes,
}

/// The working set that a share of the snapshots does not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Percentile {
    /// The share, in percent.
    pub percent: u8,
    /// The working set.
    pub bytes: Bytes,
}

/// The working set of one target, or of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WssSeries {
    /// Process id; none for the total.
    pub pid: Option<u32>,
    /// Command name; empty for the total.
    pub comm: String,
    /// Whether pages may be counted twice.
    pub approximate: bool,
    /// Smallest working set in any snapshot.
    pub min_bytes: Bytes,
    /// Largest working set in any snapshot.
    pub max_bytes: Bytes,
    /// Smallest and largest by estimate. `None` if there is none in any snapshot.
    pub by_estimate_bytes: Option<[Bytes; 2]>,
    /// Percentiles over snapshots.
    pub percentiles: Vec<Percentile>,
    /// One point per snapshot in which the target was alive.
    pub points: Vec<WssPoint>,
}

/// The working-set report of a series of snapshots.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WssReport {
    /// A page belongs to the working set if it is accessed at least this often.
    pub interval_ns: u64,
    /// Every target in any snapshot, by pid.
    pub targets: Vec<WssSeries>,
    /// The sum over targets.
    pub total: WssSeries,
    /// The cost of monitoring.
    pub cost: CostSummary,
    #[serde(skip)]
    options: WssOptions,
}

impl WssReport {
    /// Builds the report from snapshots in order of time.
    pub fn build<S: Borrow<Snapshot>>(snapshots: &[S], options: &WssOptions) -> WssReport {
        let mut targets: BTreeMap<TargetId, WssSeries> = BTreeMap::new();
        let mut total = WssSeries::new(None, "");
        for snapshot in snapshots.iter().map(Borrow::borrow) {
            let mut sum = Size::default();
            for target in snapshot.alive() {
                let size = Size::of(target, options.interval_ns);
                let series =
                    targets.entry(target.id).or_insert_with(|| WssSeries::new(Some(target.id.pid), &target.comm));
                series.push(snapshot.end_unix_ns, size);
                total.approximate |= may_be_shared(target);
                sum.add(size);
            }
            total.push(snapshot.end_unix_ns, sum);
        }
        let cost = snapshots.last().map(|s| CostSummary::of(&s.borrow().cost)).unwrap_or_default();
        WssReport {
            interval_ns: options.interval_ns,
            targets: targets.into_values().map(WssSeries::summed_up).collect(),
            total: total.summed_up(),
            cost,
            options: *options,
        }
    }

    /// Writes the report as text.
    pub fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        let every = human::duration(self.interval_ns);
        let head = format!(
            "working set: memory accessed at least once every {every}; {} snapshots{}",
            self.total.points.len(),
            self.total.points.first().map(|p| format!(" from {} UTC", human::utc(p.unix_ns))).unwrap_or_default(),
        );
        write_wrapped(out, &head, style)?;
        for series in self.targets.iter().chain((self.targets.len() != 1).then_some(&self.total)) {
            writeln!(out)?;
            self.write_series(series, out, style)?;
        }
        writeln!(out)?;
        self.cost.write_text(out, style)
    }

    fn write_series(&self, series: &WssSeries, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        let name = title(series.pid, &series.comm, false);
        let line = format!("{name}: {} to {}", series.shown(series.min_bytes), series.shown(series.max_bytes));
        write_wrapped(out, &(line + &series.estimate_text()), style)?;
        if self.options.percentiles {
            series.percentile_table().write(out, style)?;
        }
        if self.options.over_time {
            series.time_table().write(out, style)?;
        }
        Ok(())
    }
}

/// A working set in pages.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    by_bits: u64,
    counted: u64,
    by_estimate: u64,
    unmeasured: u64,
    /// Estimated from memory around it.
    unchecked: u64,
    /// Whether any of it is estimated as it was before huge pages.
    is_estimated: bool,
}

impl Size {
    fn of(target: &TargetHeat, interval_ns: u64) -> Size {
        Size {
            by_bits: target.working_set(interval_ns),
            counted: target.temperature.within_ns(interval_ns),
            by_estimate: target.working_set_by_estimate(interval_ns),
            // What cannot be measured at all does not become less.
            unmeasured: target.temperature.at(Interval::UNMEASURED).saturating_sub(target.unclearable_pages),
            unchecked: target.estimated().pages(),
            is_estimated: target.behind_huge.is_some(),
        }
    }

    fn add(&mut self, other: Size) {
        self.by_bits = self.by_bits.saturating_add(other.by_bits);
        self.counted = self.counted.saturating_add(other.counted);
        self.by_estimate = self.by_estimate.saturating_add(other.by_estimate);
        self.unmeasured = self.unmeasured.saturating_add(other.unmeasured);
        self.unchecked = self.unchecked.saturating_add(other.unchecked);
        self.is_estimated |= other.is_estimated;
    }
}

impl WssSeries {
    fn new(pid: Option<u32>, comm: &str) -> WssSeries {
        WssSeries {
            pid,
            comm: comm.to_owned(),
            approximate: false,
            min_bytes: Bytes(0),
            max_bytes: Bytes(0),
            by_estimate_bytes: None,
            percentiles: Vec::new(),
            points: Vec::new(),
        }
    }

    fn push(&mut self, unix_ns: u64, size: Size) {
        let by_estimate_bytes = size.is_estimated.then_some(Bytes::of_pages(size.by_estimate));
        self.points.push(WssPoint {
            unix_ns,
            bytes: Bytes::of_pages(size.by_bits),
            counted_bytes: Bytes::of_pages(size.counted),
            by_estimate_bytes,
            unmeasured_bytes: Bytes::of_pages(size.unmeasured),
            estimated_bytes: Bytes::of_pages(size.unchecked),
        });
    }

    /// Fills in the fields that depend on all points.
    fn summed_up(mut self) -> WssSeries {
        let mut sorted: Vec<Bytes> = self.points.iter().map(|p| p.bytes).collect();
        sorted.sort_unstable();
        if let (Some(min), Some(max)) = (sorted.first(), sorted.last()) {
            (self.min_bytes, self.max_bytes) = (*min, *max);
            self.percentiles =
                PERCENTILES.iter().map(|p| Percentile { percent: *p, bytes: nearest_rank(&sorted, *p) }).collect();
        }
        let estimates = || self.points.iter().filter_map(|p| p.by_estimate_bytes);
        self.by_estimate_bytes = estimates().min().zip(estimates().max()).map(<[Bytes; 2]>::from);
        self
    }

    /// What follows the sizes by bits, if anything was estimated.
    fn estimate_text(&self) -> String {
        self.by_estimate_bytes.map_or_else(String::new, |[least, largest]| {
            format!(
                "; by estimate {} to {}, as the pages of huge pages were before",
                self.shown(least),
                self.shown(largest)
            )
        })
    }

    fn shown(&self, bytes: Bytes) -> String {
        format!("{}{bytes}", if self.approximate { "~" } else { "" })
    }

    fn percentile_table(&self) -> Table {
        let columns = Column::numbers(&[("PERCENT", 0), ("WSS", 0)]);
        let row = |p: &Percentile| (vec![p.percent.to_string(), self.shown(p.bytes)], self.share(p.bytes));
        Table::with_bars(&columns, self.percentiles.iter().map(row))
    }

    fn time_table(&self) -> Table {
        let mut columns = vec![Column::fixed("TIME UTC", 0), Column::number("WSS", 0)];
        let is_estimated = self.by_estimate_bytes.is_some();
        columns.extend(is_estimated.then_some(Column::number("BY ESTIMATE", 0)));
        let is_partial = self.points.iter().any(|p| p.unmeasured_bytes.0 > 0);
        columns.extend(is_partial.then_some(Column::number("UNMEASURED", 1)));
        let is_unchecked = self.points.iter().any(|p| p.estimated_bytes.0 > 0);
        columns.extend(is_unchecked.then_some(Column::number("ESTIMATED", 1)));
        let row = |p: &WssPoint| {
            let mut cells = vec![human::clock(p.unix_ns), self.shown(p.bytes)];
            cells.extend(is_estimated.then(|| p.by_estimate_bytes.map_or_else(String::new, |b| self.shown(b))));
            cells.extend(is_partial.then(|| self.shown(p.unmeasured_bytes)));
            cells.extend(is_unchecked.then(|| self.shown(p.estimated_bytes)));
            (cells, self.share(p.bytes))
        };
        Table::with_bars(&columns, self.points.iter().map(row))
    }

    fn share(&self, bytes: Bytes) -> f64 {
        math::share(bytes.0, self.max_bytes.0)
    }
}

/// The smallest value that at least `percent` percent of the sorted values do not exceed.
fn nearest_rank(sorted: &[Bytes], percent: u8) -> Bytes {
    let rank = (sorted.len() * usize::from(percent)).div_ceil(100);
    sorted[rank.saturating_sub(1).min(sorted.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{MIB, MS, SECOND, region, snapshot, target};
    use isotherm_heat::{Granularity, PagesBehindHuge, Region};

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let sorted: Vec<Bytes> = (1..=10).map(Bytes).collect();
        let at = |p| nearest_rank(&sorted, p).0;
        assert_eq!([at(0), at(10), at(11), at(50), at(99), at(100)], [1, 1, 2, 5, 10, 10]);
    }

    #[test]
    fn the_estimate_stands_beside_the_size_by_bits() {
        let plain = target(1, "t", "", vec![], vec![region(0, 8 * MIB, MS)]);
        let mut estimated = plain.clone();
        let temperature =
            target(1, "t", "", vec![], vec![region(0, MIB, MS), region(MIB, 7 * MIB, 90 * SECOND)]).temperature;
        estimated.behind_huge = Some(PagesBehindHuge { temperature, pages: 2048, age_ns: SECOND });
        let other = target(2, "u", "", vec![], vec![region(0, 2 * MIB, MS)]);
        let snapshots = [snapshot(1, vec![plain]), snapshot(2, vec![estimated, other])];
        let report = WssReport::build(&snapshots, &WssOptions::default());
        let of = |s: &WssSeries| s.points.iter().map(|p| p.by_estimate_bytes.map(|b| b.0 / MIB)).collect::<Vec<_>>();
        assert_eq!((of(&report.targets[0]), of(&report.targets[1])), (vec![None, Some(1)], vec![None]));
        assert_eq!(of(&report.total), [None, Some(3)], "1 MiB by estimate, and 2 MiB by bits");
        let mut text = Vec::new();
        report.write_text(&mut text, TextStyle::default()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("8.0 MiB to 8.0 MiB; by estimate 1.0 MiB to 1.0 MiB"), "{text}");
        assert_eq!(text.matches("BY ESTIMATE").count(), 2, "not for the process without huge pages: {text}");
    }

    #[test]
    fn what_was_not_checked_yet_stands_beside_the_size() {
        let unchecked = Region { estimated_pages: 512, ..region(0, 8 * MIB, MS) };
        let checked = target(1, "t", "", vec![], vec![region(0, 8 * MIB, MS)]);
        let snapshots = [snapshot(1, vec![target(1, "t", "", vec![], vec![unchecked])]), snapshot(2, vec![checked])];
        let report = WssReport::build(&snapshots, &WssOptions::default());
        let of: Vec<Bytes> = report.total.points.iter().map(|point| point.estimated_bytes).collect();
        assert_eq!(of, [Bytes(2 * MIB), Bytes(0)]);
        let mut text = Vec::new();
        report.write_text(&mut text, TextStyle::default()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("ESTIMATED") && text.contains("8.0 MiB    2.0 MiB"), "{text}");
    }

    #[test]
    fn the_size_follows_from_all_observations_and_what_is_counted_stands_beside() {
        // Of pages with two accesses a second, a check shows 640 ms or more for one in four, as if they had less than one.
        let spread = [(11, 1810), (20, 905), (22, 453), (17, 226), (14, 113), (13, 57)];
        let regions = spread.map(|(mib, ms)| region(mib << 30, mib * MIB, ms * MS));
        let one = target(1, "t", "", vec![], regions.to_vec());
        let (mut by_region, mut sampled) = (one.clone(), one.clone());
        (by_region.id.pid, by_region.granularity) = (2, Granularity::Region);
        (sampled.id.pid, sampled.regions[0].sampled_pages) = (3, 1);
        let report = WssReport::build(&[snapshot(1, vec![one, by_region, sampled])], &WssOptions::default());
        let json = serde_json::to_value(&report).unwrap();
        let mib = |path: &str| json.pointer(path).and_then(serde_json::Value::as_u64).map(|b| b / MIB);
        assert_eq!(mib("/targets/0/points/0/counted_bytes"), Some(86));
        assert!((90..=97).contains(&mib("/targets/0/points/0/bytes").unwrap()), "{json:#}");
        for target in [1, 2] {
            let is = ["bytes", "counted_bytes"].map(|key| mib(&format!("/targets/{target}/points/0/{key}")));
            assert_eq!(is, [Some(86); 2], "these were not checked page by page");
        }
        assert_eq!(mib("/total/points/0/counted_bytes"), Some(3 * 86));
    }

    #[test]
    fn what_is_not_measured_yet_is_beside_the_size_as_long_as_there_is_any() {
        let mut first = target(1, "t", "", vec![], vec![region(0, 2 * MIB, MS)]);
        first.temperature.add(Interval::UNMEASURED, 6 * MIB / 4096);
        let later = target(1, "t", "", vec![], vec![region(0, 8 * MIB, MS)]);
        let known = target(2, "u", "", vec![], vec![region(0, MIB, MS)]);
        let snapshots = [snapshot(1, vec![first, known.clone()]), snapshot(2, vec![later, known])];
        let report = WssReport::build(&snapshots, &WssOptions::default());
        let of = |s: &WssSeries| s.points.iter().map(|p| p.unmeasured_bytes.0 / MIB).collect::<Vec<_>>();
        assert_eq!((of(&report.targets[0]), of(&report.targets[1])), (vec![6, 0], vec![0, 0]));
        assert_eq!(of(&report.total), [6, 0]);
        let mut text = Vec::new();
        report.write_text(&mut text, TextStyle::default()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.matches("UNMEASURED").count(), 2, "not for the process that is known: {text}");
    }

    #[test]
    fn a_target_counts_only_while_it_is_there() {
        let one =
            |pid, mib| target(pid, "t", "", vec![], vec![region(0, mib * MIB, MS), region(1 << 40, MIB, 20 * SECOND)]);
        let snapshots = [snapshot(1, vec![one(1, 2)]), snapshot(2, vec![one(1, 4), one(2, 8)]), snapshot(3, vec![])];
        let report = WssReport::build(&snapshots, &WssOptions::default());
        let of = |s: &WssSeries| s.points.iter().map(|p| p.bytes.0 / MIB).collect::<Vec<_>>();
        assert_eq!((of(&report.targets[0]), of(&report.targets[1])), (vec![2, 4], vec![8]));
        assert_eq!(of(&report.total), [2, 12, 0]);
        assert_eq!((report.total.min_bytes, report.total.max_bytes), (Bytes(0), Bytes(12 * MIB)));
    }
}
