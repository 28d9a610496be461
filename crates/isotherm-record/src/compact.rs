//! Joins the segments of a recording into one.
//!
//! Used by `writer` for some neighbours at a time (`tiers`), and for all at the end of a recording. The joined segment is written next to the
//! old ones. It replaces them by covering what they cover, and only then do they lose their names. So a crash at any point neither loses a snapshot nor
//! shows it twice. The price is that what is joined is on disk twice for a while. If there is no space for that, the segments stay.

use crate::cursor::open_batches;
use crate::publish::{Plan, TableWriter, into_io};
use crate::schema::Table;
use crate::segment::FileName;
use crate::storage::Storage;
use parquet::errors::ParquetError;
use std::io;
use std::path::Path;

const BATCH_ROWS: usize = 1 << 14;

/// Publishes `plan` with all rows of `segments`, in that order. The segments stay.
pub(crate) fn join(plan: &Plan<'_>, storage: &dyn Storage, segments: &[u64]) -> io::Result<()> {
    plan.publish(storage, |table, writer| {
        segments.iter().try_for_each(|segment| copy(plan.dir, table, *segment, writer))
    })
}

fn copy(dir: &Path, table: Table, segment: u64, writer: &mut TableWriter) -> io::Result<()> {
    let path = dir.join(FileName::of(table, segment).to_string());
    for batch in open_batches(&path, BATCH_ROWS).map_err(io::Error::other)? {
        writer.write(&batch.map_err(|e| into_io(ParquetError::from(e)))?)?;
    }
    Ok(())
}

/// Gives replaced segments their temporary names: for other tools they are gone, and whoever has opened the recording reads on in them. The file
/// that makes a segment count goes first.
pub(crate) fn retire(dir: &Path, storage: &dyn Storage, segments: &[u64]) -> io::Result<()> {
    for file in files(segments) {
        storage.rename(&dir.join(file.to_string()), &dir.join(file.temporary().to_string()))?;
    }
    storage.sync_dir(dir)
}

/// Removes segments, whichever names they have. The file that makes a segment count goes first.
pub(crate) fn remove(dir: &Path, storage: &dyn Storage, segments: &[u64]) -> io::Result<()> {
    if segments.is_empty() {
        return Ok(());
    }
    for file in files(segments).flat_map(|file| [file, file.temporary()]) {
        storage.remove(&dir.join(file.to_string()))?;
    }
    storage.sync_dir(dir)
}

fn files(segments: &[u64]) -> impl Iterator<Item = FileName> {
    Table::ALL.into_iter().rev().flat_map(|table| segments.iter().map(move |segment| FileName::of(table, *segment)))
}
