//! Publishes a segment, so that after a crash at any point it counts as a whole or not at all.
//!
//! Used by `writer` for new segments and by `compact` for joined ones. `schema` gives the rule that readers follow. Two
//! barriers ensure it. First, the names of four tables are on disk before the fifth, `snapshots`, gets its name.
//! Second, that name is on disk before the caller relies on it.

use crate::schema::Table;
use crate::segment::{Coverage, FileName};
use crate::storage::{Storage, StorageFile};
use arrow_array::RecordBatch;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::Compression;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bounds the memory for joining segments. Large enough for readers to skip well.
const ROW_GROUP_ROWS: usize = 1 << 17;

/// A segment to write.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) run: &'a str,
    pub(crate) segment: u64,
    pub(crate) coverage: Coverage,
    /// Whether it has the rows of others.
    pub(crate) is_joined: bool,
}

type Sheet = BufWriter<Box<dyn StorageFile>>;

/// Takes the rows of a table: as batches, or as row groups of other files.
pub(crate) enum TableWriter {
    Batches(ArrowWriter<Sheet>),
    Groups(SerializedFileWriter<Sheet>),
}

impl TableWriter {
    /// Encodes rows. Not after row groups were copied.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        match self {
            TableWriter::Batches(writer) => writer.write(batch).map_err(into_io),
            TableWriter::Groups(_) => Err(io::Error::other("row groups are copied into this file")),
        }
    }

    /// One that takes row groups from now on.
    pub(crate) fn of_groups(self) -> io::Result<TableWriter> {
        match self {
            TableWriter::Batches(writer) => {
                let (writer, _) = writer.into_serialized_writer().map_err(into_io)?;
                Ok(TableWriter::Groups(writer))
            }
            groups => Ok(groups),
        }
    }

    /// Copies the row groups of a file of the same table, byte for byte. Only for [`TableWriter::of_groups`].
    pub(crate) fn copy(&mut self, from: &File, metadata: &ParquetMetaData) -> io::Result<()> {
        let TableWriter::Groups(writer) = self else { return Err(io::Error::other("this file takes batches")) };
        metadata.row_groups().iter().try_for_each(|group| copy_group(writer, from, group)).map_err(into_io)
    }

    fn finish(&mut self) -> io::Result<&mut Sheet> {
        // Not `into_inner`, which returns the system's error as a text.
        match self {
            TableWriter::Batches(writer) => writer.finish().map(|_| writer.inner_mut()).map_err(into_io),
            TableWriter::Groups(writer) => writer.finish().map(|_| writer.inner_mut()).map_err(into_io),
        }
    }
}

fn copy_group(to: &mut SerializedFileWriter<Sheet>, from: &File, group: &RowGroupMetaData) -> Result<(), ParquetError> {
    let mut copied = to.next_row_group()?;
    for column in group.columns() {
        let close = ColumnCloseResult {
            bytes_written: u64::try_from(column.compressed_size()).unwrap_or(0),
            rows_written: u64::try_from(group.num_rows()).unwrap_or(0),
            metadata: column.clone(),
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        copied.append_column(from, close)?;
    }
    copied.close()?;
    Ok(())
}

impl Plan<'_> {
    /// Writes the tables, which `fill` provides one after the other, and makes them count. On an error nothing of the
    /// segment is left, as far as the file system still works.
    pub(crate) fn publish(
        &self,
        storage: &dyn Storage,
        mut fill: impl FnMut(Table, TableWriter) -> io::Result<TableWriter>,
    ) -> io::Result<()> {
        let written = Table::ALL.into_iter().try_for_each(|table| self.write_table(storage, table, &mut fill));
        let named = written.and_then(|()| self.rename_all(storage));
        if named.is_err() {
            self.clear(storage);
        }
        named?;
        storage.sync_dir(self.dir)
    }

    fn write_table(
        &self,
        storage: &dyn Storage,
        table: Table,
        fill: &mut impl FnMut(Table, TableWriter) -> io::Result<TableWriter>,
    ) -> io::Result<()> {
        let file = BufWriter::new(storage.create(&self.path(FileName::of(table, self.segment).temporary()))?);
        let options = ArrowWriterOptions::new().with_properties(self.properties(table)).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(file, table.schema(), options).map_err(into_io)?;
        let mut writer = fill(table, TableWriter::Batches(writer))?;
        let file = writer.finish()?;
        file.flush()?;
        file.get_mut().sync()
    }

    fn rename_all(&self, storage: &dyn Storage) -> io::Result<()> {
        for table in Table::ALL {
            if table == Table::Snapshots {
                storage.sync_dir(self.dir)?;
            }
            let file = FileName::of(table, self.segment);
            storage.rename(&self.path(file.temporary()), &self.path(file))?;
        }
        Ok(())
    }

    /// Removes what was written, first the file that could make the segment count. Frees space on a full disk. Ignores
    /// errors, so that they do not hide the error that led here.
    fn clear(&self, storage: &dyn Storage) {
        for table in Table::ALL.into_iter().rev() {
            let file = FileName::of(table, self.segment);
            let _ = storage.remove(&self.path(file));
            let _ = storage.remove(&self.path(file.temporary()));
        }
    }

    fn path(&self, file: FileName) -> PathBuf {
        self.dir.join(file.to_string())
    }

    /// Only joined segments have dictionaries and statistics. The others are small, are written every few seconds out of the monitor's
    /// budget, and are joined soon: the two take a third of the time of such a segment and make it no smaller.
    fn properties(&self, table: Table) -> WriterProperties {
        // Statistics by page would be half of a small segment.
        let statistics = if self.is_joined { EnabledStatistics::Chunk } else { EnabledStatistics::None };
        WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_dictionary_enabled(self.is_joined)
            .set_statistics_enabled(statistics)
            .set_offset_index_disabled(true)
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_key_value_metadata(Some(self.coverage.to_metadata(table, self.run)))
            .build()
    }
}

/// The system's error where there is one below, so that a caller can distinguish a full disk from other errors.
pub(crate) fn into_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{run, snapshot};
    use crate::segment::open_parquet;
    use crate::{Options, Writer};
    use parquet::file::metadata::ColumnChunkMetaData;
    use std::time::Duration;

    #[test]
    fn dictionaries_and_statistics_are_made_when_segments_are_joined() {
        let dir = tempfile::tempdir().unwrap();
        let at_once = Options { flush_interval: Duration::ZERO, ..Options::default() };
        let mut writer = Writer::create(dir.path(), &run(), at_once).unwrap();
        (0..3).for_each(|i| writer.push(&snapshot(i)).unwrap());
        let is_made = |segment, of: fn(&ColumnChunkMetaData) -> bool| {
            let (_, metadata) =
                open_parquet(&dir.path().join(FileName::of(Table::Regions, segment).to_string())).unwrap();
            metadata.metadata().row_group(0).columns().iter().any(of)
        };
        let has_dictionary = |column: &ColumnChunkMetaData| column.dictionary_page_offset().is_some();
        let has_statistics = |column: &ColumnChunkMetaData| column.statistics().is_some();
        assert_eq!((is_made(2, has_dictionary), is_made(2, has_statistics)), (false, false));
        writer.finish().unwrap();
        assert_eq!((is_made(5, has_dictionary), is_made(5, has_statistics)), (true, true));
    }
}
