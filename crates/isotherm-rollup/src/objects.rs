//! Rows to Parquet, and where an object goes.
//!
//! An object is one table of one hour of one host. Its bytes and its name follow from its rows alone: the same rows give the same
//! object, so that a writer that was killed may make it again. One row group: a host has some ten thousand rows an hour, and a
//! reader that wants less reads what compaction has made of them.

use crate::columns::Columns;
use crate::error::{Error, Result};
use crate::hosts::{Host, digest, hex};
use crate::schema::{FORMAT, Table, VERSION};
use crate::time::{HOUR_S, date_and_hour};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The metadata key of the format, [`FORMAT`].
pub const FORMAT_KEY: &str = "isotherm.format";
/// The metadata key of the version.
pub const VERSION_KEY: &str = "isotherm.version";
/// The metadata key of the name of the table.
pub const TABLE_KEY: &str = "isotherm.table";
/// The metadata key of the time of the first snapshot, nanoseconds since the epoch. Only in batches.
const SINCE_KEY: &str = "isotherm.since_unix_ns";
/// The metadata key of the start of the five minutes, seconds since the epoch. Only in batches.
const TIME_KEY: &str = "isotherm.time_s";
/// The most rows of an object that is read. A host with a hundred services has a million in an hour.
const MAX_ROWS: i64 = 1 << 26;

/// Rows of one table and five minutes that no object has yet. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RowBatch {
    table: Table,
    time_s: i64,
    since_unix_ns: u64,
    columns: Arc<Columns>,
}

impl RowBatch {
    pub(crate) fn new(table: Table, time_s: i64, since_unix_ns: u64, columns: Columns) -> RowBatch {
        RowBatch { table, time_s, since_unix_ns, columns: Arc::new(columns) }
    }

    /// Of which table.
    pub fn table(&self) -> Table {
        self.table
    }

    /// The start of the five minutes, seconds since the epoch.
    pub fn time_s(&self) -> i64 {
        self.time_s
    }

    /// The start of the hour whose object will have it, seconds since the epoch.
    pub fn hour_s(&self) -> i64 {
        self.time_s.div_euclid(HOUR_S) * HOUR_S
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.rows()
    }

    /// As bytes that [`RowBatch::from_bytes`] reads: some ten kilobytes for each ten services. They have no length or checksum of their
    /// own that would show a cut end for certain; a spool keeps those. They live for an hour, and are not compressed: to set up a compressor for
    /// each column takes longer than to write it.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let more = [(SINCE_KEY, self.since_unix_ns.to_string()), (TIME_KEY, self.time_s.to_string())];
        let properties = properties(self.table, &more).set_compression(Compression::UNCOMPRESSED).build();
        to_parquet(self.table, &self.columns, properties)
    }

    /// The batch that was stored.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<RowBatch> {
        let (table, columns, metadata) = from_parquet(bytes)?;
        let value = |key: &str| metadata.iter().find(|entry| entry.key == key).and_then(|entry| entry.value.clone());
        let number = |key| value(key).and_then(|text| text.parse::<i64>().ok()).ok_or_else(|| wrong("no time"));
        let (since, time_s) = (number(SINCE_KEY)?, number(TIME_KEY)?);
        Ok(RowBatch { table, time_s, since_unix_ns: since.cast_unsigned(), columns: Arc::new(columns) })
    }

    pub(crate) fn columns(&self) -> &Columns {
        &self.columns
    }
}

fn wrong(reason: &str) -> Error {
    Error::Read { reason: reason.to_owned() }
}

/// The rows of an object or a batch, and its metadata. What is damaged is an error: the decoder panics on some of it, which is caught. Objects
/// are read of a directory that the user has named, and batches of a spool of our own. Of strangers, neither should be: a footer that was made
/// for it can keep the decoder busy.
pub(crate) fn from_parquet(bytes: Vec<u8>) -> Result<(Table, Columns, Vec<KeyValue>)> {
    catch_unwind(AssertUnwindSafe(|| decode(bytes))).unwrap_or_else(|_| Err(wrong("the decoder gave up")))
}

fn decode(bytes: Vec<u8>) -> Result<(Table, Columns, Vec<KeyValue>)> {
    let read = |error: ParquetError| Error::Read { reason: error.to_string() };
    let builder = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).map_err(read)?;
    let metadata = builder.metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
    let value = |key: &str| metadata.iter().find(|entry| entry.key == key).and_then(|entry| entry.value.as_deref());
    if value(FORMAT_KEY) != Some(FORMAT) || value(VERSION_KEY) != Some(&VERSION.to_string()) {
        return Err(wrong("not rows of this version"));
    }
    if builder.metadata().file_metadata().num_rows() > MAX_ROWS {
        return Err(wrong("more rows than an object has"));
    }
    let table = value(TABLE_KEY).and_then(Table::of_name).ok_or_else(|| wrong("an unknown table"))?;
    let mut columns = Columns::new(table);
    for batch in builder.build().map_err(read)? {
        let batch = batch.map_err(|error| wrong(&error.to_string()))?;
        columns.push_batch(&batch).ok_or_else(|| wrong("other columns than those of its table"))?;
    }
    Ok((table, columns, metadata))
}

/// An object to store: put it at its path if nothing is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its table.
    pub table: Table,
    /// The start of its hour, seconds since the epoch.
    pub hour_s: i64,
    /// `v1/<table>/date=YYYY-MM-DD/hour=HH/<name>.parquet`.
    pub path: String,
    /// Number of rows.
    pub rows: usize,
    /// Its contents.
    pub bytes: Vec<u8>,
}

impl Object {
    /// Of all batches of a table and an hour. The batches of other tables and hours are not used. `None` if no rows are left.
    pub fn of_rows(host: &Host, (table, hour_s): (Table, i64), batches: &[RowBatch]) -> Result<Option<Object>> {
        let mut columns = Columns::new(table);
        let mut since_unix_ns = u64::MAX;
        for batch in batches.iter().filter(|batch| batch.table == table && batch.hour_s() == hour_s) {
            columns.extend(&batch.columns);
            since_unix_ns = since_unix_ns.min(batch.since_unix_ns);
        }
        if columns.rows() == 0 {
            return Ok(None);
        }
        let path = path_of(host, (table, hour_s), since_unix_ns);
        Ok(Some(Object {
            table,
            hour_s,
            path,
            rows: columns.rows(),
            bytes: to_parquet(table, &columns, properties(table, &[]).build())?,
        }))
    }

    /// One object for each table and hour that occurs in the batches.
    pub fn all_of(host: &Host, batches: &[RowBatch]) -> Result<Vec<Object>> {
        let mut keys: Vec<(i64, Table)> = batches.iter().map(|batch| (batch.hour_s(), batch.table)).collect();
        keys.sort_unstable();
        keys.dedup();
        let object = |(hour_s, table)| Object::of_rows(host, (table, hour_s), batches).transpose();
        keys.into_iter().filter_map(object).collect()
    }
}

fn path_of(host: &Host, (table, hour_s): (Table, i64), since_unix_ns: u64) -> String {
    let parts = [host.key.as_bytes(), host.boot_id.as_bytes(), table.name().as_bytes(), &hour_s.to_le_bytes()];
    let [key, boot, name, hour] = parts;
    let name = hex(&digest(&[b"object", key, boot, name, hour, &since_unix_ns.to_le_bytes()])[..16]);
    let (date, hour) = date_and_hour(hour_s);
    format!("v1/{}/date={date}/hour={hour:02}/{name}.parquet", table.name())
}

fn to_parquet(table: Table, columns: &Columns, properties: WriterProperties) -> Result<Vec<u8>> {
    let write = |error: ParquetError| Error::Write { table: table.name(), reason: error.to_string() };
    let batch = columns.sorted()?;
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), batch.schema(), options).map_err(write)?;
    writer.write(&batch).map_err(write)?;
    writer.into_inner().map_err(write)
}

/// What takes most of the space are pages. They differ from row to row, so a dictionary of them would be as large as they are;
/// differences take the bits that they need.
fn properties(table: Table, more: &[(&str, String)]) -> WriterPropertiesBuilder {
    let fixed =
        [(FORMAT_KEY, FORMAT.to_owned()), (VERSION_KEY, VERSION.to_string()), (TABLE_KEY, table.name().to_owned())];
    let entries = fixed.iter().chain(more).map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(usize::MAX))
        .set_created_by(format!("isotherm {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(entries.collect()));
    for name in ["pages", "huge_pages", "ranges"] {
        if table.columns().iter().any(|(column, _)| *column == name) {
            properties = properties
                .set_column_dictionary_enabled(name.into(), false)
                .set_column_encoding(name.into(), Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties
}
