//! Joins the segments of a recording into one.
//!
//! Used by `writer` at the end of a recording. The joined segment is written next to the old ones. It replaces them by
//! covering what they cover, and only then are they removed. So a crash at any point neither loses a snapshot nor shows
//! it twice. The price is that everything is on disk twice for a moment. If there is no space for that, the segments
//! stay.

use crate::cursor::open_batches;
use crate::publish::{Plan, TableWriter, into_io};
use crate::schema::Table;
use crate::segment::FileName;
use crate::storage::Storage;
use parquet::errors::ParquetError;
use std::io;
use std::path::Path;

const BATCH_ROWS: usize = 1 << 14;

/// Publishes `plan` with all rows of `segments`, in that order, then removes the segments.
pub(crate) fn join(plan: &Plan<'_>, storage: &dyn Storage, segments: &[u64]) -> io::Result<()> {
    plan.publish(storage, |table, writer| {
        segments.iter().try_for_each(|segment| copy(plan.dir, table, *segment, writer))
    })?;
    remove(plan.dir, storage, segments)
}

fn copy(dir: &Path, table: Table, segment: u64, writer: &mut TableWriter) -> io::Result<()> {
    let path = dir.join(FileName::of(table, segment).to_string());
    for batch in open_batches(&path, BATCH_ROWS).map_err(io::Error::other)? {
        writer.write(&batch.map_err(|e| into_io(ParquetError::from(e)))?)?;
    }
    Ok(())
}

/// Removes segments. The file that makes a segment count goes first.
fn remove(dir: &Path, storage: &dyn Storage, segments: &[u64]) -> io::Result<()> {
    for table in Table::ALL.into_iter().rev() {
        for segment in segments {
            storage.remove(&dir.join(FileName::of(table, *segment).to_string()))?;
        }
    }
    storage.sync_dir(dir)
}
