//! The format: which files a recording has, what their columns mean, and when a segment counts.
//!
//! Written by [`crate::Writer`], read by [`crate::Recording`] and by any tool that knows Parquet. It uses rows, not
//! nested lists, because SQL and data frames group and join rows directly. It uses 64-bit signed integers because
//! several readers turn unsigned ones into decimals.
//!
//! # Files
//!
//! A recording is a directory. Segment `n` is six files, one for each table: `snapshots-000001.parquet` and so on,
//! numbered from 1 in the order in which they were written. While a recording goes on, some of its segments are joined, which gives a new one;
//! the former get names as below, and are removed half a minute later. A finished recording has one segment, so six files, unless it is too large
//! for that. Names
//! that start with a dot and end in `.tmp` are being written, or were when the recorder was stopped, or were replaced. Readers ignore
//! them, unless they know the name without these from a moment ago.
//!
//! # Columns
//!
//! `Int64` unless a type is given. Only those marked nullable may be null. Values of 2^63 and more (addresses in the kernel's
//! half, for one) are stored as the negative number of the same 64 bits. Times are nanoseconds, `unix` ones since the
//! Unix epoch. Pages have 4 KiB. Rows are ordered by `snapshot`, and within one as the monitor listed them.
//!
//! The key of a snapshot is `snapshot`, an index that counts from 0 over the whole recording. The key of a target in it
//! is `snapshot, pid, start_ticks`. A process is identified by `pid, start_ticks`, since pids are reused.
//!
//! **snapshots**: one row each.
//!
//! | column | meaning |
//! |---|---|
//! | `snapshot` | its index |
//! | `start_unix_ns`, `end_unix_ns` | when its window began and ended |
//! | `targets` | number of its rows in `targets` |
//! | `cost_elapsed_ns` | time monitored since the monitor started, as all costs |
//! | `cost_monitor_cpu_ns` | CPU time of the monitor |
//! | `cost_pages_read` | page-table entries read |
//! | `cost_pages_cleared` | page-table entries whose accessed bit was cleared |
//! | `cost_pages_retouched` | cleared pages seen accessed again |
//! | `cost_slowdown_pct` (`Float64`) | estimated slow-down of the targets, percent of one core |
//! | `cost_longest_hold_ns` | longest time that a target's memory map was locked in one piece |
//! | `cost_read_errors` | reads of page tables that failed |
//! | `cost_samples`, `cost_samples_lost` | accesses that the kernel reported; reports that were lost |
//! | `cost_events` | how often the sampled event has happened, by its own count |
//!
//! **targets**: one row for each process of a snapshot.
//!
//! | column | meaning |
//! |---|---|
//! | `snapshot`, `pid`, `start_ticks` | key; `start_ticks` is field 22 of `/proc/PID/stat` |
//! | `comm`, `cgroup` (`Utf8`) | command name; cgroup path, empty if unknown |
//! | `exited` (`Boolean`) | whether it had ended by then |
//! | `granularity` (`Utf8`) | granularity of the source: `page`, `mapping` or `region` |
//! | `regions` | number of its rows in `regions` |
//! | `mappings` | number of its mappings |
//! | `mappings_snapshot` | the `snapshot` under which its mappings are stored in `mappings` |
//! | `counted_elsewhere_pages` | resident pages that another target counts too |
//! | `maybe_shared_pages` | pages of which it is not known whether another target counts them |
//! | `unclearable_pages` | pages of which no heat can be known |
//! | `cleared_by_others_pages` | pages whose accessed bit somebody else has cleared since the previous snapshot, once they are many |
//! | `runs_guest` | 1: it runs a KVM guest, whose accesses are not seen |
//! | `cgroup_memory_known` | 1: the next four are known |
//! | `cgroup_anon_bytes`, `cgroup_file_bytes`, `cgroup_slab_bytes`, `cgroup_swap_bytes` | charged to its cgroup and those below |
//! | `behind_huge_pages`, `behind_huge_age_ns` | pages on huge pages that were known before as small ones; how long ago, in the mean |
//! | `swapped_bytes` | of its own memory, swapped out; null if not known |
//! | `cgroup_limit_bytes` | the lowest memory limit of its cgroup and those above; null without one |
//! | `left_bytes`, `out_bytes`, `refaulted_bytes` | what has left by page-out so far; what of it is out now; what has come back; null if no scheme takes its memory, as the next three |
//! | `demoted_bytes`, `promoted_bytes` | what has gone to a slower memory tier so far, and to a faster one |
//! | `returned_bytes` | what the kernel gave back so far when huge pages were split |
//!
//! **regions**: neighbouring pages of like heat.
//!
//! | column | meaning |
//! |---|---|
//! | `snapshot`, `pid`, `start_ticks` | key of the target |
//! | `start_addr`, `end_addr` | first address, and one past the last |
//! | `resident_pages`, `measured_pages`, `huge_pages` | pages present; of known interval; on huge pages |
//! | `code` | mean access interval as a step of the scale: 1 unmeasured, from 2 on 1 ms times 2^((code - 2) / 8) |
//! | `interval_ns` (nullable) | the same in nanoseconds; null if not measured |
//! | `rate_hz` (`Float32`) | mean accesses a second to each measured page |
//! | `age_ns` | how long the region has had this heat |
//! | `idle_ns` | mean time since its pages were last seen accessed |
//! | `sampled_pages` | measured pages whose heat is known from sampled accesses |
//! | `estimated_pages` | measured pages that were not checked themselves yet: assumed to be like checked memory around them |
//! | `hot_pages` (nullable) | measured pages accessed at least once a second; null if they were not counted |
//!
//! **mappings**: the mappings of a target, as in `/proc/PID/maps`. They are written when the target is new to the
//! recording, was missing from the previous snapshot, or has other mappings than before. They are always written in
//! full. To find the mappings of a target, join `mappings.snapshot` with `targets.mappings_snapshot` (and `pid`,
//! `start_ticks`). That is the last list written at or before the snapshot. No rows there means no mappings.
//!
//! | column | meaning |
//! |---|---|
//! | `snapshot`, `pid`, `start_ticks` | the snapshot in which this list was first seen, and the process |
//! | `start_addr`, `end_addr` | first address, and one past the last |
//! | `name` (`Utf8`) | path, `[heap]`, `[anon:name]`, or empty for anonymous memory |
//! | `perms` (`Utf8`) | `rwxp` as the kernel prints them |
//!
//! **heat**: the two histograms of a target, one row for each step that holds pages.
//!
//! | column | meaning |
//! |---|---|
//! | `snapshot`, `pid`, `start_ticks` | key of the target |
//! | `kind` (`Utf8`) | `temperature`: pages by access interval; `idle`: pages by time since last seen accessed |
//! | `code`, `interval_ns` (nullable) | the step, as in `regions`; code 0 counts absent pages |
//! | `pages` | pages at that step |
//! | `pages_by_estimate` (nullable) | the same with pages behind huge pages as they were before; null if there are none, and for `idle` |
//!
//! **idle** (from version 2 on): pages by the time for which they are known to be idle, one row for each mapping and step of the
//! scale. Idle for a second or more.
//!
//! | column | meaning |
//! |---|---|
//! | `snapshot`, `pid`, `start_ticks` | key of the target |
//! | `mapping_start_addr` (nullable) | where the mapping begins; null: memory of no known mapping, or all small mappings where there are too many |
//! | `code`, `idle_ns` (nullable) | the idle time, as a step of the scale and in nanoseconds |
//! | `pages`, `huge_pages` | small pages, and pages on huge pages, that are idle for so long now |
//! | `accessed_pages`, `accessed_huge_pages` | those found accessed in this window that were idle for so long before |
//!
//! # Metadata
//!
//! Each file has these keys in its Parquet key-value metadata: `isotherm.format` ([`FORMAT`]), `isotherm.version`
//! ([`VERSION`]), `isotherm.run` (the `RunInfo` as JSON), `isotherm.table`, `isotherm.first_snapshot` and
//! `isotherm.snapshots` (the indices the segment covers: the first, and how many), `isotherm.finished` (`true` in the
//! last segment of a recorder that ended properly). A reader refuses a greater version. Within a version, columns and
//! keys may be added, and readers skip those they do not know. Removing one, or changing its meaning, makes a new
//! version. So does another table: version 1 had no `idle`.
//!
//! # When a segment counts
//!
//! A segment counts if its six files are complete and agree on what they cover. Its `snapshots` file is renamed into
//! place last, so without that file the segment does not count. A segment replaces all those of lower number whose
//! snapshots it covers. So segments can be joined, and at no moment is a snapshot there twice or not at all:
//!
//! ```text
//!  1. snapshots 0..20 in segment 1    20..40 in segment 2
//!  2. segment 3 = 0..40, complete but for its snapshots file: ignored, 1 and 2 count
//!  3. snapshots-000003 renamed: 3 counts and replaces 1 and 2, whatever is left of them
//!  4. the files of 1 and 2 removed
//! ```

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// Value of `isotherm.format` in every file of a recording.
pub const FORMAT: &str = "isotherm-recording";
/// The version of the format that is written, and the newest that is read.
pub const VERSION: u32 = 2;

/// The tables of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// One row for each process of a snapshot.
    Targets,
    /// Regions of targets.
    Regions,
    /// Mappings of targets, written when they change.
    Mappings,
    /// Histograms of targets.
    Heat,
    /// Pages of targets by idle time and mapping.
    Idle,
    /// One row for each snapshot, with its times and costs.
    Snapshots,
}

impl Table {
    /// All tables, in the order in which the files of a segment are renamed. The one that makes it count is last.
    pub const ALL: [Table; 6] =
        [Table::Targets, Table::Regions, Table::Mappings, Table::Heat, Table::Idle, Table::Snapshots];

    /// Its name, as in file names and metadata.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Targets => "targets",
            Table::Regions => "regions",
            Table::Mappings => "mappings",
            Table::Heat => "heat",
            Table::Idle => "idle",
            Table::Snapshots => "snapshots",
        }
    }

    /// Whether segments of a version of the format have it.
    pub(crate) const fn is_in(self, version: u32) -> bool {
        !matches!(self, Table::Idle) || version >= 2
    }

    /// Its columns, in the order in which they are written.
    pub fn schema(self) -> SchemaRef {
        let fields = self.columns().iter().map(|(name, kind)| kind.field(name)).collect::<Vec<_>>();
        Arc::new(Schema::new(fields))
    }

    pub(crate) const fn columns(self) -> &'static [(&'static str, Kind)] {
        match self {
            Table::Snapshots => SNAPSHOTS,
            Table::Targets => TARGETS,
            Table::Regions => REGIONS,
            Table::Mappings => MAPPINGS,
            Table::Heat => HEAT,
            Table::Idle => IDLE,
        }
    }
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Int,
    /// Added within a version. Reads as 0 where an older recording has no such column.
    Added,
    /// Added within a version, and may be null. Reads as unknown where an older recording has no such column.
    Optional,
    /// May be null. Computed from another column for queries; our reader does not use it.
    Derived,
    F64,
    F32,
    Text,
    Bool,
}

impl Kind {
    pub(crate) const fn data_type(self) -> DataType {
        match self {
            Kind::Int | Kind::Added | Kind::Optional | Kind::Derived => DataType::Int64,
            Kind::F64 => DataType::Float64,
            Kind::F32 => DataType::Float32,
            Kind::Text => DataType::Utf8,
            Kind::Bool => DataType::Boolean,
        }
    }

    fn field(self, name: &str) -> Field {
        Field::new(name, self.data_type(), matches!(self, Kind::Derived | Kind::Optional))
    }
}

const SNAPSHOTS: &[(&str, Kind)] = &[
    ("snapshot", Kind::Int),
    ("start_unix_ns", Kind::Int),
    ("end_unix_ns", Kind::Int),
    ("targets", Kind::Int),
    ("cost_elapsed_ns", Kind::Int),
    ("cost_monitor_cpu_ns", Kind::Int),
    ("cost_pages_read", Kind::Int),
    ("cost_pages_cleared", Kind::Int),
    ("cost_pages_retouched", Kind::Int),
    ("cost_slowdown_pct", Kind::F64),
    ("cost_longest_hold_ns", Kind::Int),
    ("cost_read_errors", Kind::Int),
    ("cost_samples", Kind::Added),
    ("cost_samples_lost", Kind::Added),
    ("cost_events", Kind::Added),
];

const TARGETS: &[(&str, Kind)] = &[
    ("snapshot", Kind::Int),
    ("pid", Kind::Int),
    ("start_ticks", Kind::Int),
    ("comm", Kind::Text),
    ("cgroup", Kind::Text),
    ("exited", Kind::Bool),
    ("granularity", Kind::Text),
    ("regions", Kind::Int),
    ("mappings", Kind::Int),
    ("mappings_snapshot", Kind::Int),
    ("counted_elsewhere_pages", Kind::Int),
    ("maybe_shared_pages", Kind::Int),
    ("unclearable_pages", Kind::Int),
    ("cleared_by_others_pages", Kind::Added),
    ("runs_guest", Kind::Added),
    ("cgroup_memory_known", Kind::Added),
    ("cgroup_anon_bytes", Kind::Added),
    ("cgroup_file_bytes", Kind::Added),
    ("cgroup_slab_bytes", Kind::Added),
    ("cgroup_swap_bytes", Kind::Added),
    ("behind_huge_pages", Kind::Added),
    ("behind_huge_age_ns", Kind::Added),
    ("swapped_bytes", Kind::Optional),
    ("cgroup_limit_bytes", Kind::Optional),
    ("left_bytes", Kind::Optional),
    ("out_bytes", Kind::Optional),
    ("refaulted_bytes", Kind::Optional),
    ("demoted_bytes", Kind::Optional),
    ("promoted_bytes", Kind::Optional),
    ("returned_bytes", Kind::Optional),
];

const REGIONS: &[(&str, Kind)] = &[
    ("snapshot", Kind::Int),
    ("pid", Kind::Int),
    ("start_ticks", Kind::Int),
    ("start_addr", Kind::Int),
    ("end_addr", Kind::Int),
    ("resident_pages", Kind::Int),
    ("measured_pages", Kind::Int),
    ("huge_pages", Kind::Int),
    ("code", Kind::Int),
    ("interval_ns", Kind::Derived),
    ("rate_hz", Kind::F32),
    ("age_ns", Kind::Int),
    ("idle_ns", Kind::Int),
    ("sampled_pages", Kind::Added),
    ("estimated_pages", Kind::Added),
    ("hot_pages", Kind::Optional),
];

const MAPPINGS: &[(&str, Kind)] = &[
    ("snapshot", Kind::Int),
    ("pid", Kind::Int),
    ("start_ticks", Kind::Int),
    ("start_addr", Kind::Int),
    ("end_addr", Kind::Int),
    ("name", Kind::Text),
    ("perms", Kind::Text),
];

const HEAT: &[(&str, Kind)] = &[
    ("snapshot", Kind::Int),
    ("pid", Kind::Int),
    ("start_ticks", Kind::Int),
    ("kind", Kind::Text),
    ("code", Kind::Int),
    ("interval_ns", Kind::Derived),
    ("pages", Kind::Int),
    ("pages_by_estimate", Kind::Optional),
];

const IDLE: &[(&str, Kind)] = &[
    ("snapshot", Kind::Int),
    ("pid", Kind::Int),
    ("start_ticks", Kind::Int),
    ("mapping_start_addr", Kind::Optional),
    ("code", Kind::Int),
    ("idle_ns", Kind::Derived),
    ("pages", Kind::Int),
    ("huge_pages", Kind::Int),
    ("accessed_pages", Kind::Int),
    ("accessed_huge_pages", Kind::Int),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_that_makes_a_segment_count_is_last() {
        assert_eq!(Table::ALL.last(), Some(&Table::Snapshots));
    }

    #[test]
    fn every_column_is_described_in_the_documentation_of_the_format() {
        let docs = [include_str!("schema.rs"), include_str!("../../../docs/reference/recording.md")];
        for (table, (column, _)) in Table::ALL.iter().flat_map(|t| t.columns().iter().map(move |c| (t, c))) {
            for text in docs {
                assert!(text.contains(&format!("`{column}`")), "{}.{column}", table.name());
            }
        }
    }
}
