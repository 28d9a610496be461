//! Snapshots for tests, and objects read back as rows.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use isotherm_heat::{Interval, Mapping, Region};
use isotherm_rollup::{Object, Table};
use isotherm_stream::{HostRow, MappingRow, ProcessRow, RegionRow, Snapshot};
use isotherm_units::{Addr, AddrRange};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::BTreeMap;

pub const S: u64 = 1_000_000_000;
/// 2026-11-01 00:00 UTC, a multiple of an hour.
pub const T0: u64 = 1_793_491_200;

/// A row, by column: numbers as they are, times in seconds, texts by themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub numbers: BTreeMap<String, i64>,
    pub floats: BTreeMap<String, f64>,
    pub texts: BTreeMap<String, String>,
}

impl Row {
    pub fn get(&self, name: &str) -> i64 {
        *self.numbers.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    pub fn text(&self, name: &str) -> &str {
        &self.texts[name]
    }
}

pub fn read(bytes: &[u8]) -> Vec<RecordBatch> {
    let bytes = bytes::Bytes::from(bytes.to_vec());
    ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap().map(Result::unwrap).collect()
}

/// The rows of a table in all objects.
pub fn rows(objects: &[Object], table: Table) -> Vec<Row> {
    let batches = objects.iter().filter(|object| object.table == table).flat_map(|object| read(&object.bytes));
    batches.flat_map(|batch| (0..batch.num_rows()).map(move |row| row_of(&batch, row)).collect::<Vec<_>>()).collect()
}

fn row_of(batch: &RecordBatch, at: usize) -> Row {
    let mut row = Row::default();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let name = field.name().clone();
        if column.is_null(at) {
            continue;
        }
        if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
            row.numbers.insert(name, numbers.value(at));
        } else if let Some(times) = column.as_primitive_opt::<TimestampMicrosecondType>() {
            row.numbers.insert(name, times.value(at) / 1_000_000);
        } else if let Some(floats) = column.as_primitive_opt::<Float64Type>() {
            row.floats.insert(name, floats.value(at));
        } else {
            row.texts.insert(name, column.as_string::<i32>().value(at).to_owned());
        }
    }
    row
}

/// A snapshot of a window, given in seconds after [`T0`], of a monitor that has run since 0.
pub fn snapshot(start_s: u64, end_s: u64, processes: Vec<ProcessRow>) -> Snapshot {
    let host = HostRow {
        start_unix_ns: (T0 + start_s) * S,
        end_unix_ns: (T0 + end_s) * S,
        hostname: "here".into(),
        kernel: "6.12".into(),
        cpus: 4,
        memory_bytes: 1 << 34,
        elapsed_ns: end_s * S,
        monitor_cpu_ns: end_s * 10_000_000,
        slowdown_pct: 0.5,
        ..HostRow::default()
    };
    Snapshot { host, processes, ..Snapshot::default() }
}

/// A process of a unit, with pages by code.
pub fn process(pid: u32, unit: &str, heat: &[(u8, u64)]) -> ProcessRow {
    let cgroup = format!("/system.slice/{unit}.service");
    ProcessRow { pid, comm: unit.into(), cgroup, heat: heat.to_vec().into(), ..ProcessRow::default() }
}

/// Adds a mapping that is one region, with so many pages.
pub fn add_memory(snapshot: &mut Snapshot, pid: u32, name: &str, pages: u64, code: u8) {
    let start = 0x1000_0000 * (snapshot.regions.len() as u64 + 1);
    let range = AddrRange::new(Addr(start), Addr(start + pages * 4096));
    let interval = Interval::from_code(code);
    let region = Region {
        range,
        resident_pages: pages,
        measured_pages: if interval.is_measured() { pages } else { 0 },
        huge_pages: 0,
        interval,
        rate_hz: 2.0,
        age_ns: 0,
        idle_ns: S,
        sampled_pages: 0,
        estimated_pages: 0,
        hot_pages: None,
    };
    let mapping = Mapping { range, name: name.into(), perms: "rw-p".parse().unwrap() };
    snapshot.regions.push(RegionRow { pid, start_ticks: 0, region });
    snapshot.mappings.push(MappingRow { pid, start_ticks: 0, mapping });
}
