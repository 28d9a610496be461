//! From snapshots to rows: the columns of a segment as it fills up.
//!
//! Fed by `writer`, which passes the batches to Parquet. `cursor` reads the same columns back, in the same order. Rows
//! go straight into columns, so a pending segment takes the memory of its numbers, and no copies of snapshots are
//! stored.

use crate::schema::{Kind, Table};
use arrow_array::builder::{BooleanBuilder, Float32Builder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::ArrowError;
use isotherm_heat::{Granularity, Histogram, Interval, Mapping, MappingIdle, Region, Snapshot, TargetHeat, TargetId};
use std::collections::HashMap;
use std::sync::Arc;

/// One value of a row.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Int(u64),
    Nullable(Option<u64>),
    F64(f64),
    F32(f32),
    Text(&'a str),
    Bool(bool),
}
use Value::{Bool, F32, F64, Int, Nullable, Text};

#[derive(Debug)]
enum Column {
    Int(Int64Builder),
    F64(Float64Builder),
    F32(Float32Builder),
    Text(StringBuilder),
    Bool(BooleanBuilder),
}

impl Column {
    fn new(kind: Kind) -> Column {
        match kind {
            Kind::Int | Kind::Added | Kind::Optional | Kind::Derived => Column::Int(Int64Builder::new()),
            Kind::F64 => Column::F64(Float64Builder::new()),
            Kind::F32 => Column::F32(Float32Builder::new()),
            Kind::Text => Column::Text(StringBuilder::new()),
            Kind::Bool => Column::Bool(BooleanBuilder::new()),
        }
    }

    fn push(&mut self, value: Value<'_>) {
        match (self, value) {
            (Column::Int(column), Int(v)) => column.append_value(v.cast_signed()),
            (Column::Int(column), Nullable(v)) => column.append_option(v.map(u64::cast_signed)),
            (Column::F64(column), F64(v)) => column.append_value(v),
            (Column::F32(column), F32(v)) => column.append_value(v),
            (Column::Text(column), Text(v)) => column.append_value(v),
            (Column::Bool(column), Bool(v)) => column.append_value(v),
            (column, value) => unreachable!("{value:?} does not belong into {column:?}"),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Column::Int(column) => Arc::new(column.finish()),
            Column::F64(column) => Arc::new(column.finish()),
            Column::F32(column) => Arc::new(column.finish()),
            Column::Text(column) => Arc::new(column.finish()),
            Column::Bool(column) => Arc::new(column.finish()),
        }
    }
}

#[derive(Debug)]
struct Rows {
    table: Table,
    columns: Vec<Column>,
    len: usize,
}

impl Rows {
    fn new(table: Table) -> Rows {
        Rows { table, columns: table.columns().iter().map(|(_, kind)| Column::new(*kind)).collect(), len: 0 }
    }

    fn push<const N: usize>(&mut self, row: [Value<'_>; N]) {
        debug_assert_eq!(N, self.columns.len(), "a row of {}", self.table.name());
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(value);
        }
        self.len += 1;
    }

    fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        self.len = 0;
        RecordBatch::try_new(self.table.schema(), self.columns.iter_mut().map(Column::finish).collect())
    }
}

/// The rows of snapshots that are not written yet, and the mappings that the recording has.
#[derive(Debug)]
pub(crate) struct Pending {
    snapshots: Rows,
    targets: Rows,
    regions: Rows,
    mappings: Rows,
    heat: Rows,
    idle: Rows,
    /// Mappings of the targets of the last snapshot, and the snapshot under which they are stored.
    known: HashMap<TargetId, (u64, Arc<[Mapping]>)>,
}

impl Pending {
    pub(crate) fn new() -> Pending {
        Pending {
            snapshots: Rows::new(Table::Snapshots),
            targets: Rows::new(Table::Targets),
            regions: Rows::new(Table::Regions),
            mappings: Rows::new(Table::Mappings),
            heat: Rows::new(Table::Heat),
            idle: Rows::new(Table::Idle),
            known: HashMap::new(),
        }
    }

    /// Pending rows over all tables.
    pub(crate) fn rows(&self) -> usize {
        let tables = [&self.snapshots, &self.targets, &self.regions, &self.mappings, &self.heat, &self.idle];
        tables.map(|rows| rows.len).iter().sum()
    }

    /// Takes the pending rows of a table.
    pub(crate) fn take(&mut self, table: Table) -> Result<RecordBatch, ArrowError> {
        match table {
            Table::Snapshots => self.snapshots.finish(),
            Table::Targets => self.targets.finish(),
            Table::Regions => self.regions.finish(),
            Table::Mappings => self.mappings.finish(),
            Table::Heat => self.heat.finish(),
            Table::Idle => self.idle.finish(),
        }
    }

    /// Adds a snapshot under `index`. Its targets are distinct.
    pub(crate) fn push(&mut self, index: u64, snapshot: &Snapshot) {
        let cost = &snapshot.cost;
        self.snapshots.push([
            Int(index),
            Int(snapshot.start_unix_ns),
            Int(snapshot.end_unix_ns),
            Int(snapshot.targets.len() as u64),
            Int(cost.elapsed_ns),
            Int(cost.monitor_cpu_ns),
            Int(cost.pages_read),
            Int(cost.pages_cleared),
            Int(cost.pages_retouched),
            F64(cost.slowdown_pct),
            Int(cost.longest_hold_ns),
            Int(cost.read_errors),
            Int(cost.samples),
            Int(cost.samples_lost),
            Int(cost.events),
        ]);
        // Only targets of this snapshot are carried over. A target that was absent is written again, and memory stays
        // bounded.
        let mut before = std::mem::take(&mut self.known);
        for target in &snapshot.targets {
            let known = before.remove(&target.id).filter(|(_, mappings)| *mappings == target.mappings);
            let known = known.unwrap_or_else(|| self.push_mappings(index, target));
            self.push_target(index, known.0, target);
            self.known.insert(target.id, known);
        }
    }

    fn push_target(&mut self, index: u64, mappings_index: u64, target: &TargetHeat) {
        let facts = target.facts;
        let held = facts.cgroup_memory.unwrap_or_default();
        let behind = target.behind_huge.as_ref();
        self.targets.push([
            Int(index),
            Int(target.id.pid.into()),
            Int(target.id.start_ticks),
            Text(&target.comm),
            Text(&target.cgroup),
            Bool(target.exited),
            Text(granularity_name(target.granularity)),
            Int(target.regions.len() as u64),
            Int(target.mappings.len() as u64),
            Int(mappings_index),
            Int(target.counted_elsewhere_pages),
            Int(target.maybe_shared_pages),
            Int(target.unclearable_pages),
            Int(facts.cleared_by_others_pages),
            Int(facts.runs_guest.into()),
            Int(facts.cgroup_memory.is_some().into()),
            Int(held.anon.0),
            Int(held.file.0),
            Int(held.slab.0),
            Int(held.swap.0),
            Int(behind.map_or(0, |b| b.pages)),
            Int(behind.map_or(0, |b| b.age_ns)),
            Nullable(facts.swapped.map(|bytes| bytes.0)),
            Nullable(facts.cgroup_limit.map(|bytes| bytes.0)),
            Nullable(facts.acted.map(|acted| acted.left_bytes.0)),
            Nullable(facts.acted.map(|acted| acted.out_bytes.0)),
            Nullable(facts.acted.map(|acted| acted.refaulted_bytes.0)),
            Nullable(facts.acted.map(|acted| acted.demoted_bytes.0)),
            Nullable(facts.acted.map(|acted| acted.promoted_bytes.0)),
            Nullable(facts.acted.map(|acted| acted.returned_bytes.0)),
        ]);
        for region in &target.regions {
            self.push_region(index, target.id, region);
        }
        self.push_histogram(index, target.id, TEMPERATURE, [Some(&target.temperature), behind.map(|b| &b.temperature)]);
        self.push_histogram(index, target.id, IDLE, [Some(&target.idle), None]);
        target.idle_by_mapping.iter().for_each(|mapping| self.push_idle(index, target.id, mapping));
    }

    fn push_region(&mut self, index: u64, id: TargetId, region: &Region) {
        self.regions.push([
            Int(index),
            Int(id.pid.into()),
            Int(id.start_ticks),
            Int(region.range.start.0),
            Int(region.range.end.0),
            Int(region.resident_pages),
            Int(region.measured_pages),
            Int(region.huge_pages),
            Int(region.interval.code().into()),
            Nullable(region.interval.ns()),
            F32(region.rate_hz),
            Int(region.age_ns),
            Int(region.idle_ns),
            Int(region.sampled_pages),
            Int(region.estimated_pages),
            Nullable(region.hot_pages),
        ]);
    }

    fn push_idle(&mut self, index: u64, id: TargetId, mapping: &MappingIdle) {
        for step in &mapping.steps {
            self.idle.push([
                Int(index),
                Int(id.pid.into()),
                Int(id.start_ticks),
                Nullable(mapping.start.map(|start| start.0)),
                Int(step.idle.code().into()),
                Nullable(step.idle.ns()),
                Int(step.pages),
                Int(step.huge_pages),
                Int(step.accessed_pages),
                Int(step.accessed_huge_pages),
            ]);
        }
    }

    fn push_mappings(&mut self, index: u64, target: &TargetHeat) -> (u64, Arc<[Mapping]>) {
        for mapping in target.mappings.iter() {
            self.mappings.push([
                Int(index),
                Int(target.id.pid.into()),
                Int(target.id.start_ticks),
                Int(mapping.range.start.0),
                Int(mapping.range.end.0),
                Text(&mapping.name),
                Text(&mapping.perms.to_string()),
            ]);
        }
        (index, Arc::clone(&target.mappings))
    }

    /// A histogram as measured, and by estimate.
    fn push_histogram(&mut self, index: u64, id: TargetId, kind: &str, of: [Option<&Histogram>; 2]) {
        // Not by `Histogram::iter`, which skips absent pages.
        for interval in (0..=u8::MAX).map(Interval::from_code) {
            let [pages, by_estimate] = of.map(|histogram| histogram.map(|h| h.at(interval)));
            if pages.max(by_estimate) > Some(0) {
                self.heat.push([
                    Int(index),
                    Int(id.pid.into()),
                    Int(id.start_ticks),
                    Text(kind),
                    Int(interval.code().into()),
                    Nullable(interval.ns()),
                    Int(pages.unwrap_or_default()),
                    Nullable(by_estimate),
                ]);
            }
        }
    }
}

/// Value of `heat.kind` for pages by access interval.
pub(crate) const TEMPERATURE: &str = "temperature";
/// Value of `heat.kind` for pages by time since last seen accessed.
pub(crate) const IDLE: &str = "idle";

/// Value of `targets.granularity`.
pub(crate) const fn granularity_name(granularity: Granularity) -> &'static str {
    match granularity {
        Granularity::Page => "page",
        Granularity::Mapping => "mapping",
        Granularity::Region => "region",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn mappings_are_written_when_they_change_or_the_target_was_away() {
        let mut pending = Pending::new();
        let with = samples::snapshot(0);
        let mut changed = with.clone();
        let mut mappings = changed.targets[0].mappings.to_vec();
        mappings[0].name = "/other".into();
        changed.targets[0].mappings = mappings.into();
        let mut without = with.clone();
        without.targets.clear();
        let mut written = |index, snapshot| {
            let before = pending.mappings.len;
            pending.push(index, snapshot);
            pending.mappings.len - before
        };
        let all: usize = with.targets.iter().map(|t| t.mappings.len()).sum();
        let first = with.targets[0].mappings.len();
        assert!(all > first && first > 0);
        assert_eq!(written(0, &with), all);
        assert_eq!(written(1, &with), 0);
        assert_eq!(written(2, &changed), first);
        assert_eq!(written(3, &changed), 0);
        assert_eq!(written(4, &without), 0);
        assert_eq!(written(5, &changed), all);
    }
}
