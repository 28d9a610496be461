//! What a spool holds, counted without being its owner.

use super::{COUNTS, Counts, LOCK, OPEN, READY, names, parts, record};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// What waits. It may change while it is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Objects that are ready.
    pub objects: u64,
    /// Hours whose rows are still added to, or were when a shipper ended.
    pub open_hours: u64,
    /// Their batches of five minutes.
    pub batches: u64,
    /// The end of the last batch that was kept and is in no object yet, nanoseconds since the epoch; 0: there is none.
    pub covered_until_unix_ns: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// The path of the oldest object.
    pub oldest: Option<String>,
}

impl Contents {
    /// Counts what is in a spool.
    pub fn read(root: &Path) -> io::Result<Contents> {
        let mut found = Contents::default();
        let mut oldest = None;
        for folder in fs::read_dir(root.join(READY))? {
            let folder = folder?;
            let Some(sequence) = folder.file_name().to_str().and_then(names::sequence_of) else { continue };
            let Some(files) = still_there(fs::read_dir(folder.path()))? else { continue };
            for file in files {
                let file = file?;
                let Some(path) = file.file_name().to_str().and_then(names::path_of) else { continue };
                let Some(metadata) = still_there(file.metadata())? else { continue };
                found.objects += 1;
                found.bytes += metadata.len();
                if oldest.as_ref().is_none_or(|(oldest, _)| sequence < *oldest) {
                    oldest = Some((sequence, path));
                }
            }
        }
        found.oldest = oldest.map(|(_, path)| path);
        for file in fs::read_dir(root.join(OPEN))? {
            let Some(bytes) = still_there(fs::read(file?.path()))? else { continue };
            found.open_hours += 1;
            let batches: Vec<&[u8]> = record::scan(&bytes).others().collect();
            found.batches += batches.len() as u64;
            let until = batches.into_iter().filter_map(|body| Some(parts(body)?.0)).max().unwrap_or(0);
            found.covered_until_unix_ns = found.covered_until_unix_ns.max(until);
            found.bytes += bytes.len() as u64;
        }
        Ok(found)
    }
}

impl Counts {
    /// Those of a spool. `None` if it has none yet.
    pub fn in_spool(root: &Path) -> io::Result<Option<Counts>> {
        Counts::read(&root.join(COUNTS))
    }
}

/// Whether a spool has an owner.
pub fn is_in_use(root: &Path) -> io::Result<bool> {
    let lock = File::open(root.join(LOCK))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// What was sent in the meantime is no error.
fn still_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(there) => Ok(Some(there)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
