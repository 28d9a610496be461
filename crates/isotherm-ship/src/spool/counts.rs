//! What a spool remembers beyond its files: the next sequence number, and what became of objects. In `counts.json`.

use crate::spool::{Fate, files};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Numbers since the spool was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// The next sequence number. It is written before it is used, so none is used twice.
    pub next_sequence: u64,
    /// The end of the last batch that is in an object or was lost, nanoseconds since the epoch. Its time is not covered again.
    #[serde(default)]
    pub covered_until_unix_ns: u64,
    /// Objects that are in the store.
    #[serde(default)]
    pub sent_objects: u64,
    /// Their bytes.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Of them, those that the store had already when they were sent: an answer was lost, or this program was killed.
    #[serde(default)]
    pub already_there_objects: u64,
    /// Objects that were removed unsent, because the spool was full.
    #[serde(default)]
    pub dropped_objects: u64,
    /// Their bytes.
    #[serde(default)]
    pub dropped_bytes: u64,
    /// Batches of five minutes that could not be written, as the spool or its disk was full, or not be read again.
    #[serde(default)]
    pub dropped_batches: u64,
    /// Bytes after the last whole record of a file, which a crash has left.
    #[serde(default)]
    pub torn_bytes: u64,
    /// The object that was counted last, and may still be there. The name of its folder and of its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removing: Option<(String, String)>,
}

impl Counts {
    /// Reads them. `None` if there are none.
    pub fn read(path: &Path) -> io::Result<Option<Counts>> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Counts an object that leaves.
    pub fn add(&mut self, fate: Fate, bytes: u64) {
        let (objects, sum) = match fate {
            Fate::Sent { already } => {
                self.already_there_objects += u64::from(already);
                (&mut self.sent_objects, &mut self.sent_bytes)
            }
            Fate::Dropped => (&mut self.dropped_objects, &mut self.dropped_bytes),
        };
        *objects += 1;
        *sum += bytes;
    }

    /// Replaces the file.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        files::replace(path, &serde_json::to_vec(self)?)
    }
}
