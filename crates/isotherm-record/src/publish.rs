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
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
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
}

/// Takes the batches of a table.
pub(crate) struct TableWriter(ArrowWriter<BufWriter<Box<dyn StorageFile>>>);

impl TableWriter {
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        self.0.write(batch).map_err(into_io)
    }
}

impl Plan<'_> {
    /// Writes the tables, which `fill` provides one after the other, and makes them count. On an error nothing of the
    /// segment is left, as far as the file system still works.
    pub(crate) fn publish(
        &self,
        storage: &dyn Storage,
        mut fill: impl FnMut(Table, &mut TableWriter) -> io::Result<()>,
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
        fill: &mut impl FnMut(Table, &mut TableWriter) -> io::Result<()>,
    ) -> io::Result<()> {
        let file = BufWriter::new(storage.create(&self.path(FileName::of(table, self.segment).temporary()))?);
        let options = ArrowWriterOptions::new()
            .with_properties(properties(self.coverage.to_metadata(table, self.run)))
            .with_skip_arrow_metadata(true);
        let mut writer =
            TableWriter(ArrowWriter::try_new_with_options(file, table.schema(), options).map_err(into_io)?);
        fill(table, &mut writer)?;
        // Not `into_inner`, which returns the system's error as a text.
        writer.0.finish().map_err(into_io)?;
        let file = writer.0.inner_mut();
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
}

fn properties(metadata: Vec<parquet::file::metadata::KeyValue>) -> WriterProperties {
    // Statistics by page would be half of a small segment.
    WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_key_value_metadata(Some(metadata))
        .build()
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
