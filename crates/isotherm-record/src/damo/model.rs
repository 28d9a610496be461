//! The JSON of damo as it is read: one record for each target, with its snapshots.
//!
//! Only fields that mean something to us are read. [`is_known`] has the names of the others, so that the additions of a
//! later damo can be distinguished from fields that we skip on purpose.

use super::charged::{self, Charged, Free};
use super::number;
use isotherm_heat::{Region, RunInfo, Snapshot, TargetHeat};
use serde::{Deserialize, Serialize};

/// Fields that exist and are not used: their information is lost, or follows from other fields.
const UNUSED: [&str; 7] =
    ["ops_update_us", "intervals_goal", "probe_hits", "total_bytes", "damos_stats", "data_source", "isotherm"];

/// Whether damo 3.4 writes a field of this name.
pub fn is_known(field: &str) -> bool {
    UNUSED.contains(&field)
}

/// All of a file.
#[derive(Debug, Deserialize)]
pub struct Records(#[serde(deserialize_with = "charged::list")] pub Vec<Record>);

// Twice the items of a growing list, and once what is made of them.

impl Charged for Record {
    // And what is stored for its target.
    const BYTES: u64 = 2 * size_of::<Record>() as u64 + 512;
}

impl Charged for SnapshotRecord {
    // Each is made into two histograms of 2 KiB.
    const BYTES: u64 =
        (2 * size_of::<SnapshotRecord>() + 2 * size_of::<TargetHeat>() + 2 * size_of::<Snapshot>() + 4096 + 256) as u64;
}

impl Charged for RegionRecord {
    const BYTES: u64 = (2 * size_of::<RegionRecord>() + size_of::<Region>()) as u64;
}

/// The accesses to one target, as one scheme of one context saw them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Record {
    #[serde(default, deserialize_with = "number::index_or_null")]
    pub kdamond_idx: Option<u64>,
    #[serde(default, deserialize_with = "number::index_or_null")]
    pub context_idx: Option<u64>,
    #[serde(default)]
    pub intervals: Option<Intervals>,
    #[serde(default, deserialize_with = "number::index_or_null")]
    pub scheme_idx: Option<u64>,
    #[serde(deserialize_with = "number::index_or_null")]
    pub target_id: Option<u64>,
    #[serde(default)]
    pub scheme_filters: Option<Vec<Free>>,
    #[serde(deserialize_with = "charged::list")]
    pub snapshots: Vec<SnapshotRecord>,
    /// What our own exports add. Anything else under that name is ignored.
    #[serde(default, rename = "isotherm")]
    pub ours: Option<Free>,
}

/// The intervals that give counts their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Intervals {
    #[serde(rename = "sample_us", deserialize_with = "number::microseconds")]
    pub sample_ns: u64,
    #[serde(rename = "aggr_us", deserialize_with = "number::microseconds")]
    pub aggregation_ns: u64,
}

/// The regions of a target at one time.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SnapshotRecord {
    #[serde(rename = "start_time", deserialize_with = "number::nanoseconds")]
    pub start_ns: u64,
    #[serde(rename = "end_time", deserialize_with = "number::nanoseconds")]
    pub end_ns: u64,
    #[serde(deserialize_with = "charged::list")]
    pub regions: Vec<RegionRecord>,
    /// Set in a record whose intervals were tuned while it was made.
    #[serde(default, rename = "sample_interval_us", deserialize_with = "number::microseconds_or_null")]
    pub sample_ns: Option<u64>,
}

/// A region and its count.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct RegionRecord {
    #[serde(deserialize_with = "number::bytes")]
    pub start: u64,
    #[serde(deserialize_with = "number::bytes")]
    pub end: u64,
    /// Absent if nothing is known.
    #[serde(default)]
    pub nr_accesses: Option<NrAccesses>,
    #[serde(default)]
    pub age: Age,
    #[serde(default, deserialize_with = "number::bytes_or_null")]
    pub sz_filter_passed: Option<u64>,
}

/// Checks that found an access: how many, or what share of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct NrAccesses {
    #[serde(default, deserialize_with = "number::count_or_null")]
    pub samples: Option<i64>,
    #[serde(default, deserialize_with = "number::percent_or_null")]
    pub percent: Option<f64>,
}

/// How long a region has had its count, in nanoseconds or in aggregation intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Age {
    #[serde(default, deserialize_with = "number::microseconds_or_null")]
    pub usec: Option<u64>,
    #[serde(default, deserialize_with = "number::count_or_null")]
    pub aggr_intervals: Option<i64>,
}

/// What damo's format has no field for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ours {
    pub comm: String,
    pub cgroup: String,
    pub start_ticks: u64,
    pub run: RunInfo,
}

impl SnapshotRecord {
    /// Whether this was only written to mark the length of the previous snapshot: text has no start times.
    pub fn is_filler(&self) -> bool {
        let filler = |r: &RegionRecord| (r.start, r.end) == (0, 0) && r.samples() == Some(-1);
        self.regions.len() == 1 && self.regions.iter().all(filler)
    }
}

impl RegionRecord {
    pub fn samples(&self) -> Option<i64> {
        self.nr_accesses.as_ref().and_then(|n| n.samples)
    }
}

impl Record {
    /// What our export stored for the target, if this is one.
    pub fn ours(&self) -> Option<Ours> {
        Ours::deserialize(&self.ours.as_ref()?.0).ok()
    }

    /// Whether `sz_filter_passed` is the resident size: the only filter passes everything but holes.
    pub fn passes_resident(&self) -> bool {
        let [filter] = self.scheme_filters.as_deref().unwrap_or_default() else { return false };
        let is = |key: &str, value: bool| filter.0[key].as_bool() == Some(value);
        filter.0["filter_type"] == "unmapped" && is("matching", true) && is("allow", false)
    }
}
