//! What waits on disk: batches of rows of the open hour, and objects that are ready to be sent.
//!
//! ```text
//! lock                      held by the owner for as long as it lives
//! counts.json               see `counts`
//! open/<sequence>.log       batches of one boot and hour, see `record`; appended, and synced before anybody relies on it
//! making/<sequence>/        objects that are being written
//! ready/<sequence>/<name>   objects that wait, see `names`
//! ```
//!
//! An hour becomes objects in one step: they are written and synced in `making`, and the folder is renamed to `ready`. If it is there, the
//! batches of that number count no more, and are removed. An object is sent only after that. So a crash at any point leaves either the
//! batches or their objects, and nothing that was sent is made again. A sequence number is written to `counts.json` before its first use and
//! never used again, so a folder of objects is never taken for that of other batches.
//!
//! An object that is sent or dropped is counted first, with its name, and removed then. Recovery removes what was counted.
//!
//! The bytes of files are bounded. The oldest objects are dropped first, and the batches of open hours never: they are the newest.

mod contents;
mod counts;
mod files;
mod names;
mod record;
mod recovery;

pub use contents::{Contents, is_in_use};
pub use counts::Counts;
pub use names::ObjectId;

use crate::fault;
use isotherm_rollup::rollup::MAX_BACK_NS;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const OPEN: &str = "open";
const MAKING: &str = "making";
const READY: &str = "ready";
const COUNTS: &str = "counts.json";
const LOCK: &str = "lock";
/// How often the lock is tried, and the wait in between.
const LOCK_TRIES: u32 = 5;
const LOCK_WAIT: Duration = Duration::from_millis(20);

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the spool could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("{doing} {}: {error}", path.display())]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Another process is its owner.
    #[error("use the spool {}: another isotherm-ship uses it; stop that, or give another --spool", path.display())]
    InUse {
        /// The spool.
        path: PathBuf,
    },
    /// A folder with other files in it.
    #[error("use {} as the spool: other files are in it, and a spool is closed to all but its owner; name an empty folder, or one that is not there yet", path.display())]
    NoSpool {
        /// The folder.
        path: PathBuf,
    },
    /// An object has a path that is none.
    #[error("name an object {path:?}: this is no path in a store; please report this")]
    Path {
        /// The path.
        path: String,
    },
    /// A batch is too long.
    #[error("keep a batch of {bytes} bytes: more than {}; watch fewer processes", record::MAX_BODY_BYTES)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

/// Names what was attempted, for the error of a system call.
fn doing<'a, E: Into<io::Error>>(doing: &'static str, path: &'a Path) -> impl FnOnce(E) -> Error + 'a {
    move |error| Error::Io { doing, path: path.to_owned(), error: error.into() }
}

/// Whose batches are in a file. Its first record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Header {
    /// Key of the host.
    pub host: String,
    /// Its boot.
    pub boot: String,
    /// The hour, in hours since the epoch.
    pub hour: u64,
}

/// An object that was made from batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Where it goes in the store.
    pub path: String,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Objects that were dropped to make room.
    pub dropped: Vec<ObjectId>,
    /// There was no room: the batch is lost, and counted.
    pub is_lost: bool,
}

/// What became of the batches of an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// The objects that were made of them, which wait.
    pub objects: Vec<ObjectId>,
    /// How many could not be read from the disk: they are lost, and counted.
    pub damaged: u64,
}

/// Why an object leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in the store.
    Sent {
        /// The store had it already.
        already: bool,
    },
    /// There is no room for it.
    Dropped,
}

/// A file of batches.
#[derive(Debug)]
struct Log {
    header: Header,
    file: File,
    bytes: u64,
    batches: u64,
    /// The end of the last of them.
    until_unix_ns: u64,
}

/// The spool. There is one in a folder at a time.
#[derive(Debug)]
pub struct Spool {
    root: PathBuf,
    limit_bytes: u64,
    counts: Counts,
    logs: BTreeMap<u64, Log>,
    /// Objects that wait, with their size.
    ready: BTreeMap<ObjectId, u64>,
    /// Those of them that are being sent. They are not dropped.
    busy: BTreeSet<ObjectId>,
    /// The end of the last batch that was kept since it was opened.
    appended_until_unix_ns: Option<u64>,
    /// Unlocked when closed.
    _lock: File,
}

impl Spool {
    /// Opens a spool, or makes one. After a crash it is put in order.
    pub fn open(root: &Path, limit_bytes: u64) -> Result<Spool> {
        files::create_folder(root).map_err(doing("make the spool", root))?;
        if !is_spool(root).map_err(doing("read", root))? {
            return Err(Error::NoSpool { path: root.to_owned() });
        }
        // One that is there may be readable by others.
        let mode = Permissions::from_mode(files::FOLDER_MODE);
        fs::set_permissions(root, mode).map_err(doing("set the mode of", root))?;
        let lock = lock(root)?;
        for name in [OPEN, MAKING, READY] {
            let path = root.join(name);
            files::create_folder(&path).map_err(doing("make a folder of the spool", &path))?;
        }
        let path = root.join(COUNTS);
        let counts = Counts::read(&path).map_err(doing("read", &path))?;
        let mut spool = Spool {
            root: root.to_owned(),
            limit_bytes,
            counts: counts.unwrap_or_default(),
            logs: BTreeMap::new(),
            ready: BTreeMap::new(),
            busy: BTreeSet::new(),
            appended_until_unix_ns: None,
            _lock: lock,
        };
        spool.recover()?;
        spool.make_room(0);
        Ok(spool)
    }

    /// What it remembers.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Up to when time is covered: the end of the last batch that was ever kept, nanoseconds since the epoch; 0 if there was none. What lies far
    /// ahead of the last batch of this run is of a clock that was wrong then. To remember it would make all that follows look covered.
    pub fn covered_until_unix_ns(&self) -> u64 {
        let is_of_this_clock = |until: &u64| {
            self.appended_until_unix_ns.is_none_or(|appended| *until <= appended.saturating_add(MAX_BACK_NS))
        };
        let untils = self.logs.values().map(|log| log.until_unix_ns).chain([self.counts.covered_until_unix_ns]);
        untils.filter(is_of_this_clock).max().unwrap_or(0)
    }

    /// Bytes of all that waits.
    pub fn bytes(&self) -> u64 {
        self.logs.values().map(|log| log.bytes).sum::<u64>() + self.ready.values().sum::<u64>()
    }

    /// Objects that wait, oldest first, with their size.
    pub fn ready(&self) -> impl Iterator<Item = (&ObjectId, u64)> {
        self.ready.iter().map(|(id, bytes)| (id, *bytes))
    }

    /// Hours that are open, by sequence number, with the number of their batches.
    pub fn open_hours(&self) -> impl Iterator<Item = (u64, &Header, u64)> {
        self.logs.iter().map(|(sequence, log)| (*sequence, &log.header, log.batches))
    }

    /// Open hours that have a batch up to their end, which takes `hour_ns`.
    pub fn complete_hours(&self, hour_ns: u64) -> Vec<u64> {
        let is_complete = |log: &Log| log.until_unix_ns >= log.header.hour.saturating_add(1).saturating_mul(hour_ns);
        self.logs.iter().filter(|(_, log)| is_complete(log)).map(|(sequence, _)| *sequence).collect()
    }

    /// Keeps a batch, whose time ends at `until_unix_ns`. When this returns, it outlasts a loss of power.
    pub fn append(&mut self, header: &Header, until_unix_ns: u64, batch: &[u8]) -> Result<Appended> {
        let record = record::encode(&[&until_unix_ns.to_le_bytes(), batch].concat())
            .ok_or(Error::TooLong { bytes: batch.len() })?;
        let found = self.logs.iter().find(|(_, log)| log.header == *header).map(|(sequence, _)| *sequence);
        let first =
            if found.is_some() { Vec::new() } else { first_bytes(header).map_err(doing("write", &self.root))? };
        let bytes = (first.len() + record.len()) as u64;
        let dropped = self.make_room(bytes);
        if self.bytes() + bytes > self.limit_bytes {
            self.lose_batch();
            return Ok(Appended { dropped, is_lost: true });
        }
        let sequence = found.map_or_else(|| self.start_log(header, &first), Ok);
        let written = sequence.and_then(|sequence| self.append_record(sequence, until_unix_ns, &record));
        if written.is_err() {
            self.lose_batch();
        }
        written.map(|()| Appended { dropped, is_lost: false })
    }

    fn append_record(&mut self, sequence: u64, until_unix_ns: u64, record: &[u8]) -> Result<()> {
        let path = self.log_path(sequence);
        let Some(log) = self.logs.get_mut(&sequence) else { return Ok(()) };
        write_record(&mut log.file, record).map_err(|error| {
            // What was written of it would end the file for a reader.
            let _ = log.file.set_len(log.bytes);
            doing("append to", &path)(error)
        })?;
        log.bytes += record.len() as u64;
        log.batches += 1;
        log.until_unix_ns = log.until_unix_ns.max(until_unix_ns);
        self.appended_until_unix_ns = Some(until_unix_ns);
        Ok(())
    }

    /// Makes the file of an hour.
    fn start_log(&mut self, header: &Header, first: &[u8]) -> Result<u64> {
        let sequence = self.counts.next_sequence;
        self.counts.next_sequence += 1;
        self.write_counts()?;
        let path = self.log_path(sequence);
        files::write(&path, first).map_err(doing("write", &path))?;
        fault::point("log.made");
        let folder = self.root.join(OPEN);
        files::sync_folder(&folder).map_err(doing("sync", &folder))?;
        let file = OpenOptions::new().append(true).open(&path).map_err(doing("open", &path))?;
        let log = Log { header: header.clone(), file, bytes: first.len() as u64, batches: 0, until_unix_ns: 0 };
        self.logs.insert(sequence, log);
        Ok(sequence)
    }

    /// Turns the batches of a sequence number into objects, which wait from now on. `make` gets the sequence number, whose batches these
    /// are, and the batches. Its result must depend on nothing else: after a crash it is asked again.
    pub fn close_hour<E: From<Error>>(
        &mut self,
        sequence: u64,
        make: impl FnOnce(u64, &Header, Vec<Vec<u8>>) -> std::result::Result<Vec<Made>, E>,
    ) -> std::result::Result<Closed, E> {
        let Some(log) = self.logs.get(&sequence) else { return Ok(Closed::default()) };
        let path = self.log_path(sequence);
        let bytes = fs::read(&path).map_err(doing("read", &path))?;
        let batches: Vec<Vec<u8>> =
            record::scan(&bytes).others().filter_map(|body| Some(parts(body)?.1.to_vec())).collect();
        let damaged = log.batches.saturating_sub(batches.len() as u64);
        let made = make(sequence, &log.header, batches)?;
        let objects = self.commit(sequence, &made)?;
        if damaged > 0 {
            // The objects are there, whether or not this can be written.
            let _ = self.note_lost(damaged);
        }
        Ok(Closed { objects, damaged })
    }

    fn commit(&mut self, sequence: u64, made: &[Made]) -> Result<Vec<ObjectId>> {
        let making = self.root.join(MAKING).join(names::of_sequence(sequence));
        remove_folder(&making).map_err(doing("remove", &making))?;
        files::create_folder(&making).map_err(doing("make", &making))?;
        for object in made {
            let name = names::file_name(&object.path).ok_or_else(|| Error::Path { path: object.path.clone() })?;
            let path = making.join(name);
            files::write(&path, &object.bytes).map_err(doing("write", &path))?;
            fault::point("object.written");
        }
        files::sync_folder(&making).map_err(doing("sync", &making))?;
        let folder = self.root.join(READY);
        let ready = folder.join(names::of_sequence(sequence));
        // Of a try that has failed after this: its log is still there, and none of these waits yet. Rows may have come since.
        remove_folder(&ready).map_err(doing("remove", &ready))?;
        fs::rename(&making, &ready).map_err(doing("rename to", &ready))?;
        fault::point("objects.renamed");
        let named = files::sync_folder(&folder).map_err(doing("sync", &folder));
        if let Err(error) = named.and_then(|()| self.forget_log(sequence)) {
            // More batches may come. After a crash these objects must not pass for all of them.
            if self.logs.contains_key(&sequence) {
                fs::rename(&ready, &making).map_err(doing("rename to", &making))?;
                let _ = files::sync_folder(&folder);
            }
            return Err(error);
        }
        fault::point("log.removed");
        let new: Vec<ObjectId> = made.iter().map(|object| ObjectId { sequence, path: object.path.clone() }).collect();
        self.ready.extend(new.iter().cloned().zip(made.iter().map(|object| object.bytes.len() as u64)));
        if new.is_empty() {
            remove_folder(&ready).map_err(doing("remove", &ready))?;
        }
        Ok(new)
    }

    /// Removes batches of which no objects can be made. They are counted as lost.
    pub fn discard_hour(&mut self, sequence: u64) -> Result<()> {
        let batches = self.logs.get(&sequence).map_or(0, |log| log.batches);
        self.counts.dropped_batches += batches;
        self.forget_log(sequence)
    }

    /// Counts batches as lost that were left out of the objects of an hour.
    pub fn note_lost(&mut self, batches: u64) -> Result<()> {
        self.counts.dropped_batches += batches;
        self.write_counts()
    }

    /// What its batches cover has to be remembered before they are removed.
    fn forget_log(&mut self, sequence: u64) -> Result<()> {
        self.counts.covered_until_unix_ns = self.covered_until_unix_ns();
        self.write_counts()?;
        self.logs.remove(&sequence);
        let path = self.log_path(sequence);
        files::remove(&path).map_err(doing("remove", &path))?;
        let folder = self.root.join(OPEN);
        files::sync_folder(&folder).map_err(doing("sync", &folder))
    }

    /// The contents of an object, which is *busy* from now on: it is not dropped until it is released or has left.
    pub fn lend(&mut self, id: &ObjectId) -> Result<Vec<u8>> {
        let path = self.object_path(id)?;
        let bytes = fs::read(&path).map_err(doing("read", &path))?;
        self.busy.insert(id.clone());
        Ok(bytes)
    }

    /// It could not be sent, and waits again.
    pub fn release(&mut self, id: &ObjectId) {
        self.busy.remove(id);
    }

    /// Removes an object, and counts why. It is gone even if the count could not be written.
    pub fn settle(&mut self, id: &ObjectId, fate: Fate) -> Result<()> {
        let path = self.object_path(id)?;
        let Some(bytes) = self.ready.remove(id) else { return Ok(()) };
        self.busy.remove(id);
        self.counts.add(fate, bytes);
        self.counts.removing = Some(names::of_sequence(id.sequence)).zip(names::file_name(&id.path));
        let counted = self.write_counts();
        fault::point("object.counted");
        files::remove(&path).map_err(doing("remove", &path))?;
        fault::point("object.removed");
        if self.ready.range(first_of(id.sequence)..).next().is_none_or(|(next, _)| next.sequence != id.sequence) {
            let folder = self.root.join(READY).join(names::of_sequence(id.sequence));
            remove_folder(&folder).map_err(doing("remove", &folder))?;
        }
        counted
    }

    /// Drops the oldest objects if there are too many bytes. Returns them.
    pub fn shrink(&mut self) -> Vec<ObjectId> {
        self.make_room(0)
    }

    /// Drops the oldest objects until so many bytes fit. Returns them.
    fn make_room(&mut self, bytes: u64) -> Vec<ObjectId> {
        let mut dropped = Vec::new();
        while self.bytes() + bytes > self.limit_bytes {
            let Some(oldest) = self.ready.keys().find(|id| !self.busy.contains(*id)).cloned() else { break };
            // What could not be removed counts no more: it is found again at the next start.
            let _ = self.settle(&oldest, Fate::Dropped);
            fault::point("object.dropped");
            dropped.push(oldest);
        }
        dropped
    }

    fn lose_batch(&mut self) {
        self.counts.dropped_batches += 1;
        // The disk may be full: it is written with the next change.
        let _ = self.write_counts();
    }

    fn write_counts(&self) -> Result<()> {
        let path = self.root.join(COUNTS);
        self.counts.write(&path).map_err(doing("write", &path))
    }

    fn log_path(&self, sequence: u64) -> PathBuf {
        self.root.join(OPEN).join(format!("{}.log", names::of_sequence(sequence)))
    }

    fn object_path(&self, id: &ObjectId) -> Result<PathBuf> {
        let name = names::file_name(&id.path).ok_or_else(|| Error::Path { path: id.path.clone() })?;
        Ok(self.root.join(READY).join(names::of_sequence(id.sequence)).join(name))
    }
}

impl Error {
    /// What it is about is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Before all objects of a sequence number.
fn first_of(sequence: u64) -> ObjectId {
    ObjectId { sequence, path: String::new() }
}

/// The end of a batch, and its bytes.
fn parts(body: &[u8]) -> Option<(u64, &[u8])> {
    let (until, batch) = body.split_first_chunk()?;
    Some((u64::from_le_bytes(*until), batch))
}

/// A file of batches without batches.
fn first_bytes(header: &Header) -> io::Result<Vec<u8>> {
    let header = record::encode(&serde_json::to_vec(header)?).ok_or(io::ErrorKind::InvalidInput)?;
    Ok([&record::MAGIC[..], &header].concat())
}

/// In two parts where a test asks for a torn record.
fn write_record(file: &mut File, record: &[u8]) -> io::Result<()> {
    let half = if cfg!(debug_assertions) { record.len() / 2 } else { 0 };
    file.write_all(&record[..half])?;
    fault::point("batch.half");
    file.write_all(&record[half..])?;
    fault::point("batch.written");
    file.sync_data()?;
    fault::point("batch.synced");
    Ok(())
}

fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Whether a folder is a spool or an empty one. Anything else would be closed to everybody but us.
fn is_spool(root: &Path) -> io::Result<bool> {
    if root.join(OPEN).is_dir() {
        return Ok(true);
    }
    // What a start that was cut short leaves, and what is in a new file system.
    let own = [LOCK, COUNTS, OPEN, MAKING, READY, "lost+found"];
    for entry in fs::read_dir(root)? {
        let name = entry?.file_name();
        if !own.iter().any(|own| name == *own) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn lock(root: &Path) -> Result<File> {
    let path = root.join(LOCK);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(doing("open", &path))?;
    for tries_left in (0..LOCK_TRIES).rev() {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            // `is_in_use` holds it for a moment.
            Err(rustix::io::Errno::WOULDBLOCK) if tries_left > 0 => std::thread::sleep(LOCK_WAIT),
            Err(rustix::io::Errno::WOULDBLOCK) => break,
            Err(error) => return Err(doing("lock", &path)(error)),
        }
    }
    Err(Error::InUse { path: root.to_owned() })
}

#[cfg(test)]
mod tests;
