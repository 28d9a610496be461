//! From rows to values: reads one table of one segment forward, a snapshot at a time.
//!
//! Used by `reader`, which joins six of these. Only a batch of rows is in memory, however large the file is. Columns
//! are found by name and checked by type once a batch. Then they are read by position, in the order in which `encode`
//! pushes them.

use crate::allowance::Allowance;
use crate::encode::{IDLE, TEMPERATURE};
use crate::schema::{Kind, Table};
use crate::segment::{FileName, guard, open_parquet};
use crate::{Error, Result, pages};
use arrow_array::{Array, BooleanArray, Float32Array, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use isotherm_heat::{
    Acted, CgroupMemory, Cost, Granularity, Histogram, IdleStep, Interval, Mapping, MappingIdle, Region, TargetFacts,
    TargetHeat, TargetId,
};
use isotherm_units::{Addr, AddrRange, Bytes, Perms};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

/// More rows than this in one snapshot are damage: run-length encoding lets a small file claim any number of them.
const MAX_ROWS_OF_SNAPSHOT: usize = 1 << 24;

/// A row is in a batch, among the rows of a snapshot, and among those of a target. Growing vectors have up to twice the
/// space.
const GROWN: u64 = 4;
/// A counter for each of 256 steps, and what the allocator adds.
pub(crate) const HISTOGRAM: u64 = 256 * 8 + 32;

type Decoded<T> = std::result::Result<T, String>;

/// A row of a table, without the index of its snapshot.
pub(crate) trait Row: Sized {
    const TABLE: Table;
    /// Rows that are decoded at a time.
    const BATCH_ROWS: usize = 8192;
    /// The most memory that a row takes, both while decoded and in the snapshot, without its texts.
    const BYTES: u64;
    fn decode(cells: &mut Cells<'_>) -> Decoded<Self>;
}

/// Reads the rows of one table of a segment.
pub(crate) struct Cursor<R> {
    path: PathBuf,
    batches: ParquetRecordBatchReader,
    ready: Peekable<vec::IntoIter<(u64, R)>>,
}

impl<R: Row> Cursor<R> {
    pub(crate) fn open(dir: &Path, segment: u64) -> Result<Cursor<R>> {
        let path = dir.join(FileName::of(R::TABLE, segment).to_string());
        let batches = open_rows(&path, R::TABLE, R::BATCH_ROWS)?;
        Ok(Cursor { path, batches, ready: Vec::new().into_iter().peekable() })
    }

    /// The rows of `snapshot`. They come next or do not exist.
    pub(crate) fn take(&mut self, snapshot: u64, allowance: &mut Allowance) -> Result<Vec<R>> {
        let mut rows = Vec::new();
        while let Some(index) = self.peek(allowance)? {
            if index > snapshot {
                break;
            }
            if index < snapshot || rows.len() == MAX_ROWS_OF_SNAPSHOT {
                return Err(self.damaged(format!("rows of snapshot {index} out of order or too many")));
            }
            rows.extend(self.ready.next().map(|(_, row)| row));
        }
        Ok(rows)
    }

    /// Passes over the rows of snapshots before this one. What they take is given back at once.
    pub(crate) fn skip_to(&mut self, snapshot: u64, allowance: &Allowance) -> Result<()> {
        loop {
            while self.ready.next_if(|(index, _)| *index < snapshot).is_some() {}
            if self.ready.peek().is_some() || self.peek(&mut allowance.clone())?.is_none() {
                return Ok(());
            }
        }
    }

    /// The snapshot of the next row.
    pub(crate) fn peek(&mut self, allowance: &mut Allowance) -> Result<Option<u64>> {
        while self.ready.peek().is_none() {
            let batches = &mut self.batches;
            let batch = guard(&self.path, || batches.next().transpose().map_err(|e| e.to_string()))?;
            let Some(batch) = batch else { return Ok(None) };
            allowance.charge(cost::<R>(&batch))?;
            let rows = guard(&self.path, || decode(&batch))?;
            self.ready = rows.into_iter().peekable();
        }
        Ok(self.ready.peek().map(|(index, _)| *index))
    }

    pub(crate) fn damaged(&self, what: String) -> Error {
        Error::Damaged { path: self.path.clone(), what }
    }
}

/// The batches of an untrusted file: only columns that we know, of the types that they should have, and from pages
/// whose sizes were checked.
fn open_rows(path: &Path, table: Table, rows: usize) -> Result<ParquetRecordBatchReader> {
    let (file, metadata) = open_parquet(path)?;
    guard(path, || {
        for (name, kind) in table.columns().iter().filter(|(_, kind)| *kind != Kind::Derived) {
            if let Ok(field) = metadata.schema().field_with_name(name)
                && *field.data_type() != kind.data_type()
            {
                return Err(format!("column {name} is {}, expected {}", field.data_type(), kind.data_type()));
            }
        }
        let used = table.columns().iter().filter(|(_, kind)| *kind != Kind::Derived).map(|(name, _)| *name);
        let mask = ProjectionMask::columns(metadata.parquet_schema(), used);
        pages::check(&file, metadata.metadata(), &mask)?;
        // With views, the texts of a dictionary are in memory once, however many rows have them.
        let options = ArrowReaderOptions::new().with_schema(with_views(metadata.schema()));
        let metadata =
            ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options).map_err(|e| e.to_string())?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
        builder.with_projection(mask).with_batch_size(rows).build().map_err(|e| e.to_string())
    })
}

fn with_views(schema: &Schema) -> SchemaRef {
    let view = |field: &Field| match field.data_type() {
        DataType::Utf8 => field.clone().with_data_type(DataType::Utf8View),
        _ => field.clone(),
    };
    Arc::new(Schema::new(schema.fields().iter().map(|field| view(field)).collect::<Vec<_>>()))
}

/// Memory that the rows of a batch take once they are decoded.
fn cost<R: Row>(batch: &RecordBatch) -> u64 {
    let texts = batch.columns().iter().filter_map(|column| column.as_any().downcast_ref::<StringViewArray>());
    let lengths = texts.flat_map(|texts| texts.lengths().map(u64::from));
    lengths.fold(R::BYTES.saturating_mul(batch.num_rows() as u64), u64::saturating_add)
}

fn decode<R: Row>(batch: &RecordBatch) -> Decoded<Vec<(u64, R)>> {
    let columns =
        R::TABLE.columns().iter().map(|(name, kind)| column(batch, name, *kind)).collect::<Decoded<Vec<_>>>()?;
    let row = |row| {
        let mut cells = Cells { columns: &columns, row, next: 0 };
        Ok((cells.int()?, R::decode(&mut cells)?))
    };
    (0..batch.num_rows()).map(row).collect()
}

enum Column<'a> {
    Int(&'a Int64Array),
    F64(&'a Float64Array),
    F32(&'a Float32Array),
    Text(&'a StringViewArray),
    Bool(&'a BooleanArray),
    /// May have nulls.
    Optional(&'a Int64Array),
    /// The recording is older than this column and does not have it.
    Missing,
    Unused,
}

fn column<'a>(batch: &'a RecordBatch, name: &str, kind: Kind) -> Decoded<Column<'a>> {
    if kind == Kind::Derived {
        return Ok(Column::Unused);
    }
    if matches!(kind, Kind::Added | Kind::Optional) && batch.column_by_name(name).is_none() {
        return Ok(Column::Missing);
    }
    let array = batch.column_by_name(name).ok_or_else(|| format!("column {name} is missing"))?;
    if kind != Kind::Optional && array.null_count() > 0 {
        return Err(format!("column {name} has nulls"));
    }
    let any = array.as_any();
    let column = match kind {
        Kind::Int | Kind::Added => any.downcast_ref().map(Column::Int),
        Kind::Optional => any.downcast_ref().map(Column::Optional),
        Kind::F64 => any.downcast_ref().map(Column::F64),
        Kind::F32 => any.downcast_ref().map(Column::F32),
        Kind::Text => any.downcast_ref().map(Column::Text),
        Kind::Bool => any.downcast_ref().map(Column::Bool),
        Kind::Derived => Some(Column::Unused),
    };
    column.ok_or_else(|| format!("column {name} is {}, expected {}", array.data_type(), kind.data_type()))
}

/// The values of a row, taken from left to right.
pub(crate) struct Cells<'a> {
    columns: &'a [Column<'a>],
    row: usize,
    next: usize,
}

impl<'a> Cells<'a> {
    fn next(&mut self) -> Decoded<&'a Column<'a>> {
        self.next += 1;
        self.columns.get(self.next - 1).ok_or_else(|| "too few columns".into())
    }

    fn int(&mut self) -> Decoded<u64> {
        match self.next()? {
            Column::Int(column) => Ok(column.value(self.row).cast_unsigned()),
            Column::Missing => Ok(0),
            _ => Err("expected an integer".into()),
        }
    }

    fn optional(&mut self) -> Decoded<Option<u64>> {
        match self.next()? {
            Column::Optional(column) => Ok(column.is_valid(self.row).then(|| column.value(self.row).cast_unsigned())),
            Column::Missing => Ok(None),
            _ => Err("expected an integer".into()),
        }
    }

    fn small<T: TryFrom<u64>>(&mut self, what: &str) -> Decoded<T> {
        let value = self.int()?;
        T::try_from(value).map_err(|_| format!("{what} {value} is out of range"))
    }

    fn float(&mut self) -> Decoded<f64> {
        match self.next()? {
            Column::F64(column) => Ok(column.value(self.row)),
            _ => Err("expected a double".into()),
        }
    }

    fn single(&mut self) -> Decoded<f32> {
        match self.next()? {
            Column::F32(column) => Ok(column.value(self.row)),
            _ => Err("expected a float".into()),
        }
    }

    fn text(&mut self) -> Decoded<&'a str> {
        match self.next()? {
            Column::Text(column) => Ok(column.value(self.row)),
            _ => Err("expected a text".into()),
        }
    }

    fn flag(&mut self) -> Decoded<bool> {
        match self.next()? {
            Column::Bool(column) => Ok(column.value(self.row)),
            _ => Err("expected a boolean".into()),
        }
    }

    fn id(&mut self) -> Decoded<TargetId> {
        Ok(TargetId { pid: self.small("pid")?, start_ticks: self.int()? })
    }

    fn range(&mut self) -> Decoded<AddrRange> {
        Ok(AddrRange::new(Addr(self.int()?), Addr(self.int()?)))
    }

    fn interval(&mut self) -> Decoded<Interval> {
        let interval = Interval::from_code(self.small("code")?);
        self.next()?; // interval_ns has the same value in another unit
        Ok(interval)
    }
}

/// A row of `snapshots`.
pub(crate) struct SnapshotRow {
    pub(crate) start_unix_ns: u64,
    pub(crate) end_unix_ns: u64,
    pub(crate) targets: u64,
    pub(crate) cost: Cost,
}

impl Row for SnapshotRow {
    const TABLE: Table = Table::Snapshots;
    const BYTES: u64 = 3 * size_of::<SnapshotRow>() as u64;

    fn decode(cells: &mut Cells<'_>) -> Decoded<SnapshotRow> {
        Ok(SnapshotRow {
            start_unix_ns: cells.int()?,
            end_unix_ns: cells.int()?,
            targets: cells.int()?,
            cost: Cost {
                elapsed_ns: cells.int()?,
                monitor_cpu_ns: cells.int()?,
                pages_read: cells.int()?,
                pages_cleared: cells.int()?,
                pages_retouched: cells.int()?,
                slowdown_pct: cells.float()?,
                longest_hold_ns: cells.int()?,
                read_errors: cells.int()?,
                samples: cells.int()?,
                samples_lost: cells.int()?,
                events: cells.int()?,
            },
        })
    }
}

/// A row of `targets`: the heat without what is in other tables, and the number of rows there.
pub(crate) struct TargetRow {
    pub(crate) heat: TargetHeat,
    pub(crate) regions: u64,
    pub(crate) mappings: u64,
    pub(crate) mappings_snapshot: u64,
    /// Pages behind huge pages, and how long ago they were known.
    pub(crate) behind_huge: (u64, u64),
}

impl Row for TargetRow {
    const TABLE: Table = Table::Targets;
    // Each row brings two histograms of 2 KiB.
    const BATCH_ROWS: usize = 512;
    const BYTES: u64 = 3 * size_of::<TargetRow>() as u64 + 2 * HISTOGRAM;

    fn decode(cells: &mut Cells<'_>) -> Decoded<TargetRow> {
        let id = cells.id()?;
        let (comm, cgroup) = (cells.text()?.to_owned(), cells.text()?.to_owned());
        let (exited, granularity) = (cells.flag()?, granularity(cells.text()?)?);
        let (regions, mappings, mappings_snapshot) = (cells.int()?, cells.int()?, cells.int()?);
        let mut heat = TargetHeat {
            id,
            comm,
            cgroup,
            exited,
            granularity,
            regions: Vec::new(),
            mappings: [].into(),
            temperature: Histogram::default(),
            idle: Histogram::default(),
            counted_elsewhere_pages: cells.int()?,
            maybe_shared_pages: cells.int()?,
            unclearable_pages: cells.int()?,
            facts: facts(cells)?,
            behind_huge: None,
            idle_by_mapping: Vec::new(),
        };
        let behind_huge = (cells.int()?, cells.int()?);
        heat.facts.swapped = cells.optional()?.map(Bytes);
        heat.facts.cgroup_limit = cells.optional()?.map(Bytes);
        heat.facts.acted = acted(cells)?;
        Ok(TargetRow { heat, regions, mappings, mappings_snapshot, behind_huge })
    }
}

fn facts(cells: &mut Cells<'_>) -> Decoded<TargetFacts> {
    let (cleared_by_others_pages, runs_guest) = (cells.int()?, cells.int()? != 0);
    let is_known = cells.int()? != 0;
    let mut bytes = || cells.int().map(Bytes);
    let held = CgroupMemory { anon: bytes()?, file: bytes()?, slab: bytes()?, swap: bytes()? };
    let cgroup_memory = is_known.then_some(held);
    Ok(TargetFacts { cleared_by_others_pages, runs_guest, cgroup_memory, ..TargetFacts::default() })
}

/// What was done to a target: known if any of it is.
fn acted(cells: &mut Cells<'_>) -> Decoded<Option<Acted>> {
    let mut is_known = false;
    let mut bytes = || -> Decoded<Bytes> {
        let found = cells.optional()?;
        is_known |= found.is_some();
        Ok(Bytes(found.unwrap_or_default()))
    };
    let acted = Acted {
        left_bytes: bytes()?,
        out_bytes: bytes()?,
        refaulted_bytes: bytes()?,
        demoted_bytes: bytes()?,
        promoted_bytes: bytes()?,
        returned_bytes: bytes()?,
    };
    Ok(is_known.then_some(acted))
}

fn granularity(name: &str) -> Decoded<Granularity> {
    match name {
        "page" => Ok(Granularity::Page),
        "mapping" => Ok(Granularity::Mapping),
        "region" => Ok(Granularity::Region),
        other => Err(format!("granularity {other:?} is unknown")),
    }
}

/// A row of `regions`.
pub(crate) struct RegionRow {
    pub(crate) id: TargetId,
    pub(crate) region: Region,
}

impl Row for RegionRow {
    const TABLE: Table = Table::Regions;
    const BYTES: u64 = GROWN * size_of::<RegionRow>() as u64;

    fn decode(cells: &mut Cells<'_>) -> Decoded<RegionRow> {
        let id = cells.id()?;
        let region = Region {
            range: cells.range()?,
            resident_pages: cells.int()?,
            measured_pages: cells.int()?,
            huge_pages: cells.int()?,
            interval: cells.interval()?,
            rate_hz: cells.single()?,
            age_ns: cells.int()?,
            idle_ns: cells.int()?,
            sampled_pages: cells.int()?,
            estimated_pages: cells.int()?,
            hot_pages: cells.optional()?,
        };
        Ok(RegionRow { id, region })
    }
}

/// A row of `mappings`.
pub(crate) struct MappingRow {
    pub(crate) id: TargetId,
    pub(crate) mapping: Mapping,
}

impl Row for MappingRow {
    const TABLE: Table = Table::Mappings;
    const BYTES: u64 = GROWN * size_of::<MappingRow>() as u64;

    fn decode(cells: &mut Cells<'_>) -> Decoded<MappingRow> {
        let id = cells.id()?;
        let (range, name) = (cells.range()?, cells.text()?.to_owned());
        // Files from others may hold any text here, and nothing but a list of mappings depends on it.
        let perms = cells.text()?.parse().unwrap_or(Perms::UNKNOWN);
        let mapping = Mapping { range, name, perms };
        Ok(MappingRow { id, mapping })
    }
}

/// Which histogram a row of `heat` belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeatKind {
    Temperature,
    Idle,
}

/// A row of `heat`.
pub(crate) struct HeatRow {
    pub(crate) id: TargetId,
    pub(crate) kind: HeatKind,
    pub(crate) interval: Interval,
    pub(crate) pages: u64,
    pub(crate) by_estimate: Option<u64>,
}

impl Row for HeatRow {
    const TABLE: Table = Table::Heat;
    const BYTES: u64 = 2 * size_of::<HeatRow>() as u64;

    fn decode(cells: &mut Cells<'_>) -> Decoded<HeatRow> {
        let id = cells.id()?;
        let kind = match cells.text()? {
            TEMPERATURE => HeatKind::Temperature,
            IDLE => HeatKind::Idle,
            other => return Err(format!("kind {other:?} is unknown")),
        };
        let (interval, pages, by_estimate) = (cells.interval()?, cells.int()?, cells.optional()?);
        Ok(HeatRow { id, kind, interval, pages, by_estimate })
    }
}

/// A row of `idle`.
pub(crate) struct IdleRow {
    pub(crate) id: TargetId,
    pub(crate) start: Option<Addr>,
    pub(crate) step: IdleStep,
}

impl Row for IdleRow {
    const TABLE: Table = Table::Idle;
    // Each row may begin a mapping, with room for four steps.
    const BYTES: u64 =
        GROWN * size_of::<IdleRow>() as u64 + (2 * size_of::<MappingIdle>() + 4 * size_of::<IdleStep>()) as u64;

    fn decode(cells: &mut Cells<'_>) -> Decoded<IdleRow> {
        let (id, start) = (cells.id()?, cells.optional()?.map(Addr));
        let step = IdleStep {
            idle: cells.interval()?,
            pages: cells.int()?,
            huge_pages: cells.int()?,
            accessed_pages: cells.int()?,
            accessed_huge_pages: cells.int()?,
        };
        Ok(IdleRow { id, start, step })
    }
}
