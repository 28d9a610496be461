//! Joins the segments of a recording into one.
//!
//! Used by `writer` for some neighbours at a time (`tiers`), and for all at the end of a recording. The joined segment is written next to the
//! old ones. It replaces them by covering what they cover, and only then do they lose their names. So a crash at any point neither loses a snapshot nor
//! shows it twice. The price is that what is joined is on disk twice for a while. If there is no space for that, the segments stay.

use crate::publish::{Plan, TableWriter, into_io};
use crate::schema::Table;
use crate::segment::{FileName, open_parquet};
use crate::storage::Storage;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use std::fs::File;
use std::io;
use std::path::Path;

const BATCH_ROWS: usize = 1 << 14;
/// Row groups of a table of one file: each takes 7 KB once it is opened.
pub(crate) const MAX_GROUPS: usize = 4096;
/// The files of at most so many segments of a table are open at once: a part of the descriptors that targets leave free. Where there are more, as at
/// the end of a recording, or too few descriptors, each is opened twice.
const MAX_OPEN: usize = 32;

/// How segments are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effort {
    /// A table of no more rows is encoded anew, as few large row groups take less space than many small ones. Of a larger one the row groups are
    /// copied, about as fast as the disk.
    pub(crate) max_encoded_rows: u64,
    /// Row groups of a table that is copied: [`MAX_GROUPS`], but in tests. With more it is not joined.
    pub(crate) max_groups: usize,
}

/// Publishes `plan` with all rows of `segments`, in that order. The segments stay.
pub(crate) fn join(plan: &Plan<'_>, storage: &dyn Storage, segments: &[u64], effort: Effort) -> io::Result<()> {
    plan.publish(storage, |table, writer| {
        let open = |segment: &u64| {
            let path = plan.dir.join(FileName::of(table, *segment).to_string());
            open_parquet(&path).map_err(io::Error::other)
        };
        let files = || segments.iter().map(open);
        let all = if segments.len() <= MAX_OPEN { files().collect::<io::Result<Vec<Opened>>>().ok() } else { None };
        if let Some(opened) = all {
            let size = Size::of(opened.iter().map(|(_, metadata)| Ok(metadata.clone())))?;
            return join_table(table, writer, size, opened.into_iter().map(Ok), effort);
        }
        let size = Size::of(files().map(|opened| opened.map(|(_, metadata)| metadata)))?;
        join_table(table, writer, size, files(), effort)
    })
}

type Opened = (File, ArrowReaderMetadata);

/// How large a table is over some files.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    rows: u64,
    groups: usize,
}

impl Size {
    fn of(mut files: impl Iterator<Item = io::Result<ArrowReaderMetadata>>) -> io::Result<Size> {
        files.try_fold(Size::default(), |sum, metadata| {
            let metadata = metadata?;
            let metadata = metadata.metadata();
            let rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0);
            Ok(Size { rows: sum.rows.saturating_add(rows), groups: sum.groups + metadata.num_row_groups() })
        })
    }
}

fn join_table(
    table: Table,
    writer: TableWriter,
    Size { rows, groups }: Size,
    files: impl Iterator<Item = io::Result<Opened>>,
    effort: Effort,
) -> io::Result<TableWriter> {
    if rows <= effort.max_encoded_rows {
        encode(writer, files)
    } else if groups <= effort.max_groups {
        copy(writer, files)
    } else {
        Err(io::Error::other(format!("{} would have {groups} row groups", table.name())))
    }
}

fn encode(mut writer: TableWriter, files: impl Iterator<Item = io::Result<Opened>>) -> io::Result<TableWriter> {
    for opened in files {
        let (file, metadata) = opened?;
        let batches = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata).with_batch_size(BATCH_ROWS);
        for batch in batches.build().map_err(into_io)? {
            writer.write(&batch.map_err(|e| into_io(ParquetError::from(e)))?)?;
        }
    }
    Ok(writer)
}

fn copy(writer: TableWriter, files: impl Iterator<Item = io::Result<Opened>>) -> io::Result<TableWriter> {
    let mut writer = writer.of_groups()?;
    for opened in files {
        let (file, metadata) = opened?;
        writer.copy(&file, metadata.metadata())?;
    }
    Ok(writer)
}

/// Gives replaced segments their temporary names: for other tools they are gone, and a reader that has opened the recording reads on in them. The
/// file that makes a segment count goes first.
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
