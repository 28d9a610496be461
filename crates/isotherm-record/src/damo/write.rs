//! Writes snapshots as a file that damo reads: zlib-compressed JSON.
//!
//! One record for each process. The file gets its name only when it is complete, and only its owner may read it.

use super::count::Counting;
use super::model::Ours;
use crate::storage::create_private;
use crate::{Error, Result};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_heat::{Region, RunInfo, Snapshot, TargetHeat, TargetId};
use isotherm_units::Bytes;
use serde::Serialize;
use serde::ser::Serializer;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reports call one access a second hot, so a count has to distinguish it from none.
const MIN_DEFAULT_AGGREGATION: Duration = Duration::from_secs(1);

/// What counts in an export mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// The sampling interval: 1 / this is the highest rate that can be exported. 5 ms by default, as in DAMON.
    pub sample: Duration,
    /// The aggregation interval: 1 / this is the rate of one counted access. Half of that is the lowest rate that is
    /// not exported as 0. An interval longer than a snapshot exports fewer snapshots and resolves colder memory. By
    /// default the length of a snapshot, at least a second.
    pub aggregation: Option<Duration>,
    /// Replace a file of that name. Off by default.
    pub overwrite: bool,
}

impl Default for ExportOptions {
    fn default() -> ExportOptions {
        ExportOptions { sample: Duration::from_millis(5), aggregation: None, overwrite: false }
    }
}

/// What an export holds, and what it could not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// The aggregation interval.
    pub aggregation: Duration,
    /// Processes in it.
    pub targets: usize,
    /// Snapshots in it.
    pub snapshots: usize,
    /// The most memory of one snapshot in regions of which nothing is known. These are omitted.
    pub unmeasured: Bytes,
    /// The most memory of one snapshot that is accessed too rarely for a count of one. It is exported as not accessed.
    pub below_one: Bytes,
    /// The most memory of one snapshot that is accessed more often than the highest count shows.
    pub saturated: Bytes,
}

/// Writes `snapshots` to the file `path`.
pub fn write(
    path: impl AsRef<Path>,
    run: &RunInfo,
    snapshots: &[Snapshot],
    options: &ExportOptions,
) -> Result<Exported> {
    let path = path.as_ref();
    let counting = counting(options, length_ns(run, snapshots))
        .map_err(|what| Error::DamoOptions { path: path.to_owned(), what })?;
    if !options.overwrite && path.symlink_metadata().is_ok() {
        return Err(Error::DamoExists { path: path.to_owned() });
    }
    let part = part_name(path);
    let export =
        Export { run, moments: moments(snapshots, counting.aggregation_ns), counting, lost: RefCell::default() };
    let written = export.write(&part).and_then(|()| fs::rename(&part, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&part);
        return Err(Error::DamoWrite { path: path.to_owned(), error });
    }
    Ok(export.exported())
}

/// The length of a snapshot: what was asked for, unless most of them are longer. On a busy machine windows are stretched.
fn length_ns(run: &RunInfo, snapshots: &[Snapshot]) -> u64 {
    let mut lengths: Vec<u64> = snapshots.iter().map(|s| s.end_unix_ns.saturating_sub(s.start_unix_ns)).collect();
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    // A snapshot ends a moment sooner or later than its window.
    let is_stretched = median > run.window_ns.saturating_add(run.window_ns / 2);
    if run.window_ns == 0 || is_stretched { median } else { run.window_ns }
}

/// One exported snapshot: its nominal start, and what was known at its end.
#[derive(Clone, Copy, Debug)]
struct Moment<'a> {
    start_ns: u64,
    snapshot: &'a Snapshot,
}

/// Snapshots that are one aggregation interval apart, to within half a snapshot.
fn moments(snapshots: &[Snapshot], aggregation_ns: u64) -> Vec<Moment<'_>> {
    let mut moments = Vec::new();
    let mut begin = None;
    for (index, snapshot) in snapshots.iter().enumerate() {
        let (start, end) = (snapshot.start_unix_ns, snapshot.end_unix_ns);
        let start_ns = *begin.get_or_insert(start);
        let half = end.saturating_sub(start) / 2;
        // A recording shorter than the interval is still exported.
        let only = index + 1 == snapshots.len() && moments.is_empty();
        if only || end.saturating_sub(start_ns).saturating_add(half) >= aggregation_ns {
            // If snapshots are longer than the interval, the end of each is exported.
            let start_ns = if half > aggregation_ns { end.saturating_sub(aggregation_ns) } else { start_ns };
            moments.push(Moment { start_ns, snapshot });
            begin = None;
        }
    }
    moments
}

fn counting(options: &ExportOptions, length_ns: u64) -> std::result::Result<Counting, String> {
    let aggregation = options
        .aggregation
        .unwrap_or_else(|| Duration::from_nanos(length_ns).max(MIN_DEFAULT_AGGREGATION).max(options.sample));
    let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX / 1000).min(u64::MAX / 1000) * 1000;
    let (sample, aggregation_ns) = (micros(options.sample), micros(aggregation));
    if sample == 0 || aggregation_ns < sample {
        return Err(
            "the sampling interval has to be a microsecond or longer, and the aggregation interval no shorter".into()
        );
    }
    Ok(Counting { sample_ns: Some(sample), aggregation_ns })
}

/// A name next to the file that nobody else uses.
fn part_name(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".part");
    path.with_file_name(name)
}

struct Export<'a> {
    run: &'a RunInfo,
    moments: Vec<Moment<'a>>,
    counting: Counting,
    /// For each snapshot, what could not be exported. Filled in while regions are written: there is no other pass over
    /// them.
    lost: RefCell<BTreeMap<u64, Lost>>,
}

/// Pages of a snapshot that a count does not describe fully.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    unmeasured: u64,
    below_one: u64,
    saturated: u64,
}

impl Export<'_> {
    fn write(&self, path: &Path) -> io::Result<()> {
        let out = BufWriter::new(create_private(path)?);
        let mut out = BufWriter::new(ZlibEncoder::new(out, Compression::default()));
        serde_json::Serializer::new(&mut out).collect_seq(self.targets().map(|id| self.record(id)))?;
        let zlib = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        zlib.finish()?.flush()
    }

    /// Processes, in the order of their first snapshots.
    fn targets(&self) -> impl Iterator<Item = TargetId> {
        let mut ids: Vec<TargetId> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        ids.extend(self.alive().map(|(_, t)| t.id).filter(|id| seen.insert(*id)));
        ids.into_iter()
    }

    fn alive(&self) -> impl Iterator<Item = (Moment<'_>, &TargetHeat)> {
        self.moments.iter().flat_map(|m| m.snapshot.alive().map(move |t| (*m, t)))
    }

    fn record(&self, id: TargetId) -> impl Serialize {
        let last = self.alive().filter(|(_, t)| t.id == id).last();
        let (comm, cgroup) = last.map_or_else(Default::default, |(_, t)| (t.comm.clone(), t.cgroup.clone()));
        let snapshots = self.alive().filter(move |(_, t)| t.id == id).map(|(m, t)| self.snapshot(m, t));
        RecordOut {
            kdamond_idx: 0,
            context_idx: 0,
            intervals: IntervalsOut::of(self.counting),
            scheme_idx: None,
            target_id: id.pid,
            scheme_filters: [Filter::holes()],
            snapshots: Sequence(RefCell::new(Some(snapshots))),
            data_source: "unknown",
            isotherm: Ours { comm, cgroup, start_ticks: id.start_ticks, run: self.run.clone() },
        }
    }

    fn snapshot(&self, moment: Moment<'_>, target: &TargetHeat) -> SnapshotOut {
        let end_time = moment.snapshot.end_unix_ns;
        let mut lost = Lost::default();
        let regions: Vec<RegionOut> = target.regions.iter().filter_map(|r| self.region(r, &mut lost)).collect();
        let mut all = self.lost.borrow_mut();
        let sum = all.entry(end_time).or_default();
        sum.unmeasured += lost.unmeasured;
        sum.below_one += lost.below_one;
        sum.saturated += lost.saturated;
        SnapshotOut {
            start_time: moment.start_ns.min(end_time),
            end_time,
            total_bytes: regions.iter().map(|r| r.end - r.start).sum(),
            regions,
            damos_stats: None,
            sample_interval_us: None,
        }
    }

    fn region(&self, region: &Region, lost: &mut Lost) -> Option<RegionOut> {
        let pages = region.resident_pages;
        if region.measured_pages == 0 || region.range.is_empty() {
            lost.unmeasured += pages;
            return None;
        }
        let counted = self.counting.count(region);
        lost.below_one += if counted.samples == 0 { pages } else { 0 };
        lost.saturated += if counted.saturated { pages } else { 0 };
        Some(RegionOut {
            start: region.range.start.0,
            end: region.range.end.0,
            nr_accesses: AccessesOut { samples: counted.samples, percent: None },
            age: AgeOut { usec: counted.age_ns / 1000, aggr_intervals: counted.age_ns / self.counting.aggregation_ns },
            probe_hits: [],
            sz_filter_passed: Bytes::of_pages(pages).0,
        })
    }

    fn exported(&self) -> Exported {
        let lost = self.lost.borrow();
        let most = |of: fn(&Lost) -> u64| Bytes::of_pages(lost.values().map(of).max().unwrap_or(0));
        Exported {
            aggregation: Duration::from_nanos(self.counting.aggregation_ns),
            targets: self.targets().count(),
            snapshots: self.moments.len(),
            unmeasured: most(|l| l.unmeasured),
            below_one: most(|l| l.below_one),
            saturated: most(|l| l.saturated),
        }
    }
}

/// The items of an iterator, each created when it is written.
struct Sequence<I>(RefCell<Option<I>>);

impl<T: Serialize, I: Iterator<Item = T>> Serialize for Sequence<I> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_seq(self.0.borrow_mut().take().into_iter().flatten())
    }
}

#[derive(Serialize)]
struct RecordOut<S> {
    kdamond_idx: u64,
    context_idx: u64,
    intervals: IntervalsOut,
    scheme_idx: Option<u64>,
    target_id: u32,
    scheme_filters: [Filter; 1],
    snapshots: S,
    data_source: &'static str,
    isotherm: Ours,
}

#[derive(Serialize)]
struct IntervalsOut {
    sample_us: u64,
    aggr_us: u64,
    ops_update_us: u64,
}

impl IntervalsOut {
    fn of(counting: Counting) -> IntervalsOut {
        let aggr_us = counting.aggregation_ns / 1000;
        // Regions are made anew for every snapshot, so they follow mappings at that rate.
        IntervalsOut { sample_us: counting.sample_ns.unwrap_or(0) / 1000, aggr_us, ops_update_us: aggr_us }
    }
}

/// What `sz_filter_passed` is the size of.
#[derive(Serialize)]
struct Filter {
    filter_type: &'static str,
    matching: bool,
    allow: bool,
}

impl Filter {
    /// Passes everything but unmapped memory.
    fn holes() -> Filter {
        Filter { filter_type: "unmapped", matching: true, allow: false }
    }
}

#[derive(Serialize)]
struct SnapshotOut {
    start_time: u64,
    end_time: u64,
    regions: Vec<RegionOut>,
    total_bytes: u64,
    damos_stats: Option<()>,
    sample_interval_us: Option<u64>,
}

#[derive(Serialize)]
struct RegionOut {
    start: u64,
    end: u64,
    nr_accesses: AccessesOut,
    age: AgeOut,
    probe_hits: [u64; 0],
    sz_filter_passed: u64,
}

#[derive(Serialize)]
struct AccessesOut {
    samples: u64,
    percent: Option<f64>,
}

#[derive(Serialize)]
struct AgeOut {
    usec: u64,
    aggr_intervals: u64,
}
