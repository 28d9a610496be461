//! Rows of a table as columns: texts once each, everything else as numbers.
//!
//! Made by `rows`, joined and sorted by `objects`. A row of heat repeats the path of its cgroup, so texts are numbered: an hour of
//! a host takes the memory of its numbers.

use crate::error::{Error, Result};
use crate::schema::{SORTED_BY, Table, Type};
use arrow_array::types::{Int32Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Float64Array, Int32Array, Int64Array, PrimitiveArray, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

/// A value of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell<'a> {
    /// Microseconds since the epoch.
    Time(i64),
    Text(&'a str),
    Int(u64),
    Signed(i64),
    Nullable(Option<u64>),
    Float(f64),
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Texts, each once, and which of them each row has.
#[derive(Clone, Debug, Default)]
struct Texts {
    ids: Vec<u32>,
    values: Vec<Arc<str>>,
    places: HashMap<Arc<str>, u32>,
}

impl Texts {
    fn id_of(&mut self, text: &str) -> u32 {
        // Rows of one service follow each other.
        if let Some(last) = self.ids.last()
            && &*self.values[*last as usize] == text
        {
            return *last;
        }
        if let Some(id) = self.places.get(text) {
            return *id;
        }
        let id = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        self.values.push(Arc::clone(&text));
        self.places.insert(text, id);
        id
    }

    fn push(&mut self, text: &str) {
        let id = self.id_of(text);
        self.ids.push(id);
    }

    fn extend(&mut self, other: &Texts) {
        let ids: Vec<u32> = other.values.iter().map(|text| self.id_of(text)).collect();
        self.ids.extend(other.ids.iter().map(|id| ids[*id as usize]));
    }

    /// The place of each row's text among the texts in order.
    fn ranks(&self) -> Vec<i64> {
        let mut order: Vec<usize> = (0..self.values.len()).collect();
        order.sort_by_key(|place| &self.values[*place]);
        let mut rank = vec![0; order.len()];
        for (place, of) in (0..).zip(order) {
            rank[of] = place;
        }
        self.ids.iter().map(|id| rank[*id as usize]).collect()
    }
}

#[derive(Clone, Debug)]
enum Column {
    Time(Vec<i64>),
    Int(Vec<i64>),
    Nullable(Vec<Option<i64>>),
    Float(Vec<f64>),
    Text(Texts),
}

impl Column {
    fn new(kind: Type) -> Column {
        match kind {
            Type::Time => Column::Time(Vec::new()),
            Type::Text => Column::Text(Texts::default()),
            Type::Int => Column::Int(Vec::new()),
            Type::Nullable => Column::Nullable(Vec::new()),
            Type::Float => Column::Float(Vec::new()),
        }
    }

    fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Column::Time(column), Cell::Time(value)) | (Column::Int(column), Cell::Signed(value)) => {
                column.push(value)
            }
            (Column::Int(column), Cell::Int(value)) => column.push(signed(value)),
            (Column::Nullable(column), Cell::Nullable(value)) => column.push(value.map(signed)),
            (Column::Float(column), Cell::Float(value)) => column.push(if value.is_finite() { value } else { 0.0 }),
            (Column::Text(column), Cell::Text(value)) => column.push(value),
            (column, cell) => unreachable!("{cell:?} does not belong into {column:?}"),
        }
    }

    fn extend(&mut self, other: &Column) {
        match (self, other) {
            (Column::Time(mine), Column::Time(theirs)) | (Column::Int(mine), Column::Int(theirs)) => {
                mine.extend(theirs)
            }
            (Column::Nullable(mine), Column::Nullable(theirs)) => mine.extend(theirs),
            (Column::Float(mine), Column::Float(theirs)) => mine.extend(theirs),
            (Column::Text(mine), Column::Text(theirs)) => mine.extend(theirs),
            (mine, theirs) => unreachable!("{theirs:?} does not belong into {mine:?}"),
        }
    }

    /// Numbers by which rows are sorted.
    fn ranks(&self) -> Vec<i64> {
        match self {
            Column::Time(column) | Column::Int(column) => column.clone(),
            Column::Text(column) => column.ranks(),
            Column::Nullable(_) | Column::Float(_) => unreachable!("nothing is sorted by {self:?}"),
        }
    }

    /// The rows in this order.
    fn to_array(&self, order: &[usize]) -> ArrayRef {
        match self {
            Column::Time(column) => {
                let times = TimestampMicrosecondArray::from_iter_values(order.iter().map(|row| column[*row]));
                Arc::new(times.with_timezone("UTC"))
            }
            Column::Int(column) => Arc::new(Int64Array::from_iter_values(order.iter().map(|row| column[*row]))),
            Column::Nullable(column) => Arc::new(Int64Array::from_iter(order.iter().map(|row| column[*row]))),
            Column::Float(column) => Arc::new(Float64Array::from_iter_values(order.iter().map(|row| column[*row]))),
            Column::Text(column) => {
                let id = |row: &usize| i32::try_from(column.ids[*row]).unwrap_or(i32::MAX);
                let ids = Int32Array::from_iter_values(order.iter().map(id));
                let values = StringArray::from_iter_values(column.values.iter().map(|text| &**text));
                Arc::new(DictionaryArray::<Int32Type>::new(ids, Arc::new(values)))
            }
        }
    }

    fn push_array(&mut self, array: &dyn Array) -> Option<()> {
        let any = array.as_any();
        match self {
            Column::Time(column) => {
                column.extend(any.downcast_ref::<PrimitiveArray<TimestampMicrosecondType>>()?.values());
            }
            Column::Int(column) => column.extend(any.downcast_ref::<Int64Array>()?.values()),
            Column::Nullable(column) => column.extend(any.downcast_ref::<Int64Array>()?),
            Column::Float(column) => column.extend(any.downcast_ref::<Float64Array>()?.values()),
            Column::Text(column) => {
                let array = any.downcast_ref::<StringArray>()?;
                (0..array.len()).for_each(|row| column.push(array.value(row)));
            }
        }
        Some(())
    }
}

/// Rows of one table.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    table: Table,
    columns: Vec<Column>,
    rows: usize,
}

impl Columns {
    pub(crate) fn new(table: Table) -> Columns {
        Columns { table, columns: table.columns().iter().map(|(_, kind)| Column::new(*kind)).collect(), rows: 0 }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn push<const N: usize>(&mut self, row: [Cell<'_>; N]) {
        debug_assert_eq!(N, self.columns.len(), "a row of {}", self.table.name());
        for (column, cell) in self.columns.iter_mut().zip(row) {
            column.push(cell);
        }
        self.rows += 1;
    }

    fn column(&self, name: &str) -> Option<&Column> {
        let place = self.table.columns().iter().position(|(column, _)| *column == name)?;
        self.columns.get(place)
    }

    /// A number of a row; of a time, microseconds. `None` if it is unknown, or the table has no such column.
    pub(crate) fn number(&self, name: &str, row: usize) -> Option<i64> {
        match self.column(name)? {
            Column::Time(column) | Column::Int(column) => column.get(row).copied(),
            Column::Nullable(column) => column.get(row).copied().flatten(),
            Column::Float(_) | Column::Text(_) => None,
        }
    }

    /// A text of a row; empty if the table has no such column.
    pub(crate) fn text(&self, name: &str, row: usize) -> &str {
        match self.column(name) {
            Some(Column::Text(column)) => column.ids.get(row).map_or("", |id| &column.values[*id as usize]),
            _ => "",
        }
    }

    /// Adds rows of the same table.
    pub(crate) fn extend(&mut self, other: &Columns) {
        for (mine, theirs) in self.columns.iter_mut().zip(&other.columns) {
            mine.extend(theirs);
        }
        self.rows += other.rows;
    }

    /// Adds the rows of a batch that was read. `None` if it is not one of this table.
    pub(crate) fn push_batch(&mut self, batch: &RecordBatch) -> Option<()> {
        for ((name, kind), column) in self.table.columns().iter().zip(&mut self.columns) {
            let array = batch.column_by_name(name)?;
            if *kind != Type::Nullable && array.null_count() > 0 {
                return None;
            }
            column.push_array(array)?;
        }
        self.rows += batch.num_rows();
        Some(())
    }

    /// The schema of [`Columns::sorted`]: that of the table, with texts numbered.
    pub(crate) fn schema(table: Table) -> SchemaRef {
        let numbered = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let field = |(name, kind): &(&str, Type)| {
            let data_type = if *kind == Type::Text { numbered.clone() } else { kind.data_type() };
            Field::new(*name, data_type, *kind == Type::Nullable)
        };
        Arc::new(Schema::new(table.columns().iter().map(field).collect::<Vec<_>>()))
    }

    /// All rows, sorted by [`SORTED_BY`].
    pub(crate) fn sorted(&self) -> Result<RecordBatch> {
        let place = |name: &str| self.table.columns().iter().position(|(column, _)| *column == name);
        let keys: Vec<Vec<i64>> =
            SORTED_BY.iter().filter_map(|name| Some(self.columns[place(name)?].ranks())).collect();
        let mut order: Vec<usize> = (0..self.rows).collect();
        order.sort_by(|a, b| {
            keys.iter().map(|key| key[*a].cmp(&key[*b])).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        });
        let arrays = self.columns.iter().map(|column| column.to_array(&order)).collect();
        RecordBatch::try_new(Columns::schema(self.table), arrays)
            .map_err(|error| Error::Write { table: self.table.name(), reason: error.to_string() })
    }
}
