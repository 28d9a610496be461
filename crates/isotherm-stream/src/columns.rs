//! From values to Arrow columns, and back from columns that nobody vouches for.
//!
//! `tables` lists the columns of each kind of row. A row is written and read from left to right, so that the two cannot
//! disagree about more than the order in one list.
//!
//! Only four types of columns are decoded. The schema comes first, and is checked before any data: nested types,
//! dictionaries and compressed batches never reach Arrow's decoder. It still may panic on bytes that contradict each
//! other, which is caught and reported as damage.

use crate::error::{Error, Result};
use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An integer without which a row means nothing. Unsigned ones are stored as the signed number of the same bits.
    Key,
    /// An integer; 0 if missing.
    Int,
    /// An integer that may be unknown.
    Optional,
    /// A number; 0 if missing.
    Float,
    /// A text; empty if missing.
    Text,
    /// Yes or no; no if missing.
    Flag,
}

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Kind::Key | Kind::Int | Kind::Optional => DataType::Int64,
            Kind::Float => DataType::Float64,
            Kind::Text => DataType::Utf8,
            Kind::Flag => DataType::Boolean,
        }
    }
}

/// A kind of row.
pub(crate) trait Row: Sized {
    /// Its table, for messages.
    const NAME: &'static str;
    /// Names and types, in the order in which a row is put and taken.
    const COLUMNS: &'static [(&'static str, Kind)];

    fn put(&self, row: &mut Writer);
    fn take(row: &mut Cells<'_>) -> Result<Self>;
}

#[derive(Debug)]
enum Builder {
    Int(Int64Builder),
    Float(Float64Builder),
    Text(StringBuilder),
    Flag(BooleanBuilder),
}

/// The columns of a table as they fill up.
#[derive(Debug)]
pub(crate) struct Writer {
    columns: Vec<Builder>,
    next: usize,
}

impl Writer {
    fn new<R: Row>(rows: usize) -> Writer {
        let column = |(_, kind): &(&str, Kind)| match kind {
            Kind::Key | Kind::Int | Kind::Optional => Builder::Int(Int64Builder::with_capacity(rows)),
            Kind::Float => Builder::Float(Float64Builder::with_capacity(rows)),
            Kind::Text => Builder::Text(StringBuilder::new()),
            Kind::Flag => Builder::Flag(BooleanBuilder::with_capacity(rows)),
        };
        Writer { columns: R::COLUMNS.iter().map(column).collect(), next: 0 }
    }

    fn column(&mut self) -> &mut Builder {
        let at = self.next;
        self.next = (at + 1) % self.columns.len();
        &mut self.columns[at]
    }

    pub(crate) fn int(&mut self, value: impl Into<u64>) {
        self.optional(Some(value.into()));
    }

    pub(crate) fn optional(&mut self, value: Option<u64>) {
        match self.column() {
            Builder::Int(column) => column.append_option(value.map(u64::cast_signed)),
            other => unreachable!("an integer for {other:?}"),
        }
    }

    pub(crate) fn float(&mut self, value: f64) {
        match self.column() {
            // A reader refuses what is not finite.
            Builder::Float(column) => column.append_value(if value.is_finite() { value } else { 0.0 }),
            other => unreachable!("a number for {other:?}"),
        }
    }

    pub(crate) fn text(&mut self, value: &str) {
        match self.column() {
            Builder::Text(column) => column.append_value(value),
            other => unreachable!("a text for {other:?}"),
        }
    }

    pub(crate) fn flag(&mut self, value: bool) {
        match self.column() {
            Builder::Flag(column) => column.append_value(value),
            other => unreachable!("a flag for {other:?}"),
        }
    }

    fn finish<R: Row>(self) -> std::result::Result<RecordBatch, ArrowError> {
        debug_assert_eq!(self.next, 0, "a row of {} is incomplete", R::NAME);
        let array = |column| -> ArrayRef {
            match column {
                Builder::Int(mut column) => Arc::new(column.finish()),
                Builder::Float(mut column) => Arc::new(column.finish()),
                Builder::Text(mut column) => Arc::new(column.finish()),
                Builder::Flag(mut column) => Arc::new(column.finish()),
            }
        };
        let field = |(name, kind): &(&str, Kind)| Field::new(*name, kind.data_type(), *kind == Kind::Optional);
        let schema = Schema::new(R::COLUMNS.iter().map(field).collect::<Vec<_>>());
        RecordBatch::try_new(Arc::new(schema), self.columns.into_iter().map(array).collect())
    }
}

/// Rows as an Arrow IPC stream with one batch.
pub(crate) fn to_arrow<R: Row>(rows: &[R], out: &mut Vec<u8>) -> Result<()> {
    let mut writer = Writer::new::<R>(rows.len());
    rows.iter().for_each(|row| row.put(&mut writer));
    let write = || {
        let batch = writer.finish::<R>()?;
        let mut stream = StreamWriter::try_new(out, &batch.schema())?;
        stream.write(&batch)?;
        stream.finish()
    };
    write().map_err(|error| Error::Encode { what: format!("{}: {error}", R::NAME) })
}

/// The rows of an Arrow IPC stream with one batch; at most `limit`.
pub(crate) fn from_arrow<R: Row>(bytes: &[u8], limit: usize) -> Result<Vec<R>> {
    let decoded = catch_unwind(AssertUnwindSafe(|| batch::<R>(bytes)));
    let batch = decoded.unwrap_or_else(|_| Err(damaged::<R>("the decoder gave up")))?;
    if batch.num_rows() > limit {
        return Err(damaged::<R>(&format!("{} rows, more than {limit}", batch.num_rows())));
    }
    let columns = R::COLUMNS.iter().map(|(name, kind)| column::<R>(&batch, name, *kind)).collect::<Result<Vec<_>>>()?;
    // Not `collect`, which does not know how many there are where one may fail, and moves all of them as often as it grows.
    let mut rows = Vec::with_capacity(batch.num_rows().min(MAX_AT_ONCE));
    for row in 0..batch.num_rows() {
        rows.push(R::take(&mut Cells { columns: &columns, row, next: 0, of: R::NAME })?);
    }
    Ok(rows)
}

/// Rows for which there is room before any was read: nobody vouches for their number.
const MAX_AT_ONCE: usize = 1 << 14;

fn damaged<R: Row>(what: &str) -> Error {
    Error::damaged(format!("table {}: {what}", R::NAME))
}

/// Length of the words before a message of an Arrow stream: a marker, and the length of its metadata.
const PREFIX: usize = 8;

fn batch<R: Row>(bytes: &[u8]) -> Result<RecordBatch> {
    let arrow = |error: ArrowError| damaged::<R>(&error.to_string());
    // The message with the schema. It has no body.
    let (prefix, _) = bytes.split_first_chunk::<PREFIX>().ok_or_else(|| damaged::<R>("too short"))?;
    let [.., a, b, c, d] = *prefix;
    let end = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok().and_then(|len| len.checked_add(PREFIX));
    let (head, rest) = end.and_then(|end| bytes.split_at_checked(end)).ok_or_else(|| damaged::<R>("no schema"))?;
    let mut decoder = StreamDecoder::new();
    // The decoder turns a message into a schema once it sees what follows.
    let mut head = Buffer::from([head, rest.get(..1).unwrap_or_default()].concat());
    if decoder.decode(&mut head).map_err(arrow)?.is_some() {
        return Err(damaged::<R>("a batch before its schema"));
    }
    let schema = decoder.schema().ok_or_else(|| damaged::<R>("no schema"))?;
    let is_foreign = |field: &&Arc<Field>| {
        !matches!(field.data_type(), DataType::Int64 | DataType::Float64 | DataType::Utf8 | DataType::Boolean)
    };
    if let Some(field) = schema.fields().iter().find(is_foreign) {
        return Err(damaged::<R>(&format!("column {} is {}", field.name(), field.data_type())));
    }
    let mut rest = Buffer::from(rest.get(1..).unwrap_or_default());
    decoder.decode(&mut rest).map_err(arrow)?.ok_or_else(|| damaged::<R>("no rows"))
}

#[derive(Debug)]
enum Column<'a> {
    Int(&'a Int64Array),
    Float(&'a Float64Array),
    Text(&'a StringArray),
    Flag(&'a BooleanArray),
    Missing,
}

fn column<'a, R: Row>(batch: &'a RecordBatch, name: &str, kind: Kind) -> Result<Column<'a>> {
    let Some(array) = batch.column_by_name(name) else {
        return if kind == Kind::Key { Err(damaged::<R>(&format!("no column {name}"))) } else { Ok(Column::Missing) };
    };
    if kind != Kind::Optional && array.null_count() > 0 {
        return Err(damaged::<R>(&format!("column {name} has nulls")));
    }
    let any = array.as_any();
    let column = match kind {
        Kind::Key | Kind::Int | Kind::Optional => any.downcast_ref().map(Column::Int),
        Kind::Float => any.downcast_ref().map(Column::Float),
        Kind::Text => any.downcast_ref().map(Column::Text),
        Kind::Flag => any.downcast_ref().map(Column::Flag),
    };
    column.ok_or_else(|| damaged::<R>(&format!("column {name} is {}", array.data_type())))
}

/// The values of a row, taken from left to right.
#[derive(Debug)]
pub(crate) struct Cells<'a> {
    columns: &'a [Column<'a>],
    row: usize,
    next: usize,
    of: &'static str,
}

impl<'a> Cells<'a> {
    fn next(&mut self) -> &'a Column<'a> {
        self.next += 1;
        self.columns.get(self.next - 1).unwrap_or(&Column::Missing)
    }

    pub(crate) fn int(&mut self) -> u64 {
        self.optional().unwrap_or_default()
    }

    pub(crate) fn optional(&mut self) -> Option<u64> {
        match self.next() {
            Column::Int(column) => column.is_valid(self.row).then(|| column.value(self.row).cast_unsigned()),
            _ => None,
        }
    }

    /// An integer that is at most `max`.
    pub(crate) fn at_most(&mut self, max: u64) -> Result<u64> {
        let value = self.int();
        if value <= max { Ok(value) } else { Err(self.out_of_range(value)) }
    }

    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T> {
        let value = self.int();
        T::try_from(value).map_err(|_| self.out_of_range(value))
    }

    pub(crate) fn float(&mut self) -> Result<f64> {
        match self.next() {
            Column::Float(column) if column.value(self.row).is_finite() => Ok(column.value(self.row)),
            Column::Missing => Ok(0.0),
            _ => Err(self.out_of_range("a number that is not finite")),
        }
    }

    /// A text of at most `max_bytes`.
    pub(crate) fn text(&mut self, max_bytes: usize) -> Result<String> {
        match self.next() {
            Column::Text(column) if column.value(self.row).len() <= max_bytes => Ok(column.value(self.row).to_owned()),
            Column::Missing => Ok(String::new()),
            _ => Err(self.out_of_range(format_args!("a text of more than {max_bytes} bytes"))),
        }
    }

    pub(crate) fn flag(&mut self) -> bool {
        matches!(self.next(), Column::Flag(column) if column.value(self.row))
    }

    pub(crate) fn out_of_range(&self, value: impl std::fmt::Display) -> Error {
        Error::damaged(format!("table {}, row {}, value {}: {value} is out of range", self.of, self.row, self.next))
    }
}
