//! Writes a recording, segment by segment.
//!
//! Fed with the snapshots of a monitor. `encode` turns them into rows, and `publish` publishes a segment. `tiers` knows which of them to join
//! meanwhile, and `compact` joins them. Time and rows bound what is pending in memory. Both are measured on the snapshots themselves: the writer reads no clock. An empty
//! first segment is written at once. So a disk that cannot be written shows at the start and not seconds later, and a
//! recording can be opened from its first moment.

use crate::compact::{self, Effort, MAX_GROUPS};
use crate::encode::Pending;
use crate::publish::Plan;
use crate::schema::Table;
use crate::segment::{Coverage, FileName, run_to_json};
use crate::storage::{Disk, Storage, create_private_dir, tighten_dir};
use crate::tiers::{Limits, Tiers};
use crate::{Error, Result};
use isotherm_heat::{RunInfo, Snapshot};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// At the end a table of four million rows is encoded anew in some seconds. A larger one is copied, if it can be, or its segments stay: who has
/// stopped a recording of days waits for it, and a service manager waits some seconds.
const AT_THE_END: Effort = Effort { max_encoded_rows: 1 << 22, max_groups: MAX_GROUPS };

/// How to write a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Write a segment once the newest snapshot ends this long after the start of the oldest pending one, give or take half of its own length.
    /// A crash may lose so much, and the snapshot that is being made. Zero writes each snapshot at once. 2 s by default.
    pub flush_interval: Duration,
    /// Write a segment once this many rows are pending over all tables, whatever the time. Bounds memory, at some 60
    /// bytes a row. Zero writes each snapshot at once. 500 000 by default.
    pub max_rows: usize,
    /// Replace a recording that has the same name. Only files with our names are removed. Off by default.
    pub overwrite: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { flush_interval: Duration::from_secs(2), max_rows: 500_000, overwrite: false }
    }
}

/// What a finished recording holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The directory.
    pub path: PathBuf,
    /// Snapshots in it.
    pub snapshots: u64,
    /// Size of its files.
    pub bytes: u64,
    /// Why it still has several segments, if it has: a sentence for people. Nothing is lost by that.
    pub note: Option<String>,
}

/// Writes a recording.
///
/// If it is dropped without [`Writer::finish`], it writes nothing more. What it has written stays readable.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    /// It was not there before.
    made_dir: bool,
    /// The directory, locked against other recorders, which would take these segments for theirs, join them and remove them.
    _lock: File,
    storage: Box<dyn Storage>,
    run: String,
    options: Options,
    pending: Pending,
    /// Start of the oldest pending snapshot.
    waiting_since: Option<u64>,
    /// Snapshots pushed.
    next: u64,
    /// Snapshots on disk. The rest is pending.
    kept: u64,
    /// Segments on disk.
    pub(crate) tiers: Tiers,
    /// How segments are joined at the end.
    pub(crate) at_the_end: Effort,
    stopped: bool,
}

impl Writer {
    /// Creates the directory `path`, for its owner only, and starts a recording in it. An empty directory may exist
    /// already and keeps its mode. The files in it are for their owner only.
    pub fn create(path: impl AsRef<Path>, run: &RunInfo, options: Options) -> Result<Writer> {
        Writer::create_in(Box::new(Disk), path.as_ref(), run, options)
    }

    pub(crate) fn create_in(storage: Box<dyn Storage>, path: &Path, run: &RunInfo, options: Options) -> Result<Writer> {
        let run = run_to_json(run).map_err(|what| Error::RunInfo { path: path.to_owned(), what })?;
        let (lock, made_dir) = prepare(path, storage.as_ref(), options.overwrite)?;
        let mut writer = Writer {
            dir: path.to_owned(),
            made_dir,
            _lock: lock,
            storage,
            run,
            options,
            pending: Pending::new(),
            waiting_since: None,
            next: 0,
            kept: 0,
            tiers: Tiers::new(Limits::DEFAULT),
            at_the_end: AT_THE_END,
            stopped: false,
        };
        writer.flush()?;
        Ok(writer)
    }

    /// Adds a snapshot, and writes a segment if it is time. After an error other than [`Error::DuplicateTarget`] the
    /// writer accepts no more snapshots.
    pub fn push(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.check_running()?;
        self.check_distinct(snapshot)?;
        self.pending.push(self.next, snapshot);
        self.next += 1;
        let since = *self.waiting_since.get_or_insert(snapshot.start_unix_ns);
        // The absolute difference: a clock that was set back must not stop the writing.
        // A snapshot ends a moment sooner or later than its window: half of it decides.
        let half = snapshot.end_unix_ns.abs_diff(snapshot.start_unix_ns) / 2;
        let waited = Duration::from_nanos(snapshot.end_unix_ns.abs_diff(since).saturating_add(half));
        if waited >= self.options.flush_interval || self.pending.rows() >= self.options.max_rows {
            self.flush()?;
            self.join_some();
        }
        Ok(())
    }

    /// Writes what is pending, and joins all segments into one.
    pub fn finish(mut self) -> Result<Summary> {
        self.check_running()?;
        if self.next > self.kept {
            self.flush()?;
        }
        let note = self
            .join_all()
            .err()
            .map(|error| format!("the recording is complete, but still has {} segments: {error}", self.tiers.len()));
        Ok(Summary { snapshots: self.kept, bytes: size(&self.dir), path: self.dir, note })
    }

    /// Abandons the recording: removes what was written, and the directory if it was made for it and nothing else is in it.
    pub fn discard(self) -> Result<()> {
        let failed = |error| Error::Create { path: self.dir.clone(), error };
        let (ours, others) = list(&self.dir).map_err(failed)?;
        ours.iter().try_for_each(|file| self.storage.remove(&self.dir.join(file.to_string()))).map_err(failed)?;
        if others || !self.made_dir { Ok(()) } else { fs::remove_dir(&self.dir).map_err(failed) }
    }

    /// The directory of the recording.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Snapshots that are on disk. Later ones are pending until their segment is written.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Writes the pending rows as a segment, an empty one if there are none.
    fn flush(&mut self) -> Result<()> {
        let (snapshots, rows) = (self.kept..self.next, self.pending.rows() as u64);
        let segment = self.tiers.next_number();
        let plan = plan(&self.dir, &self.run, segment, snapshots.clone());
        let pending = &mut self.pending;
        let written = publish(&plan, self.storage.as_ref(), pending);
        if let Err(error) = written {
            self.stopped = true;
            // Nothing is written any more that would remove them, and the disk may be full.
            let _ = compact::remove(&self.dir, self.storage.as_ref(), &self.tiers.replaced());
            let (kept, lost) = (self.kept, self.next - self.kept);
            return Err(Error::Write { path: self.dir.clone(), segment, kept, lost, error });
        }
        self.tiers.add(snapshots, rows);
        self.kept = self.next;
        self.waiting_since = None;
        Ok(())
    }

    /// Joins a few segments, if it is time, and removes those that were joined a while ago. Whatever fails here is left for later: the segments
    /// are as good as a joined one.
    fn join_some(&mut self) {
        let old = self.tiers.old();
        match compact::remove(&self.dir, self.storage.as_ref(), &old) {
            Ok(()) => self.tiers.removed(&old),
            Err(_) => return,
        }
        let Some(join) = self.tiers.due() else { return };
        let effort = Effort { max_encoded_rows: self.tiers.max_encoded_rows(), max_groups: MAX_GROUPS };
        let plan =
            Plan { is_joined: true, ..plan(&self.dir, &self.run, self.tiers.next_number(), join.snapshots.clone()) };
        match compact::join(&plan, self.storage.as_ref(), &join.numbers, effort) {
            Ok(()) => {
                self.tiers.joined(&join);
                // Those that keep their names are removed later, as the others are.
                let _ = compact::retire(&self.dir, self.storage.as_ref(), &join.numbers);
            }
            // A segment that cannot be read, or has too many row groups, would be in the way for ever.
            Err(error) if is_full(&error) => self.tiers.rest(),
            Err(_) => self.tiers.leave(&join),
        }
    }

    fn join_all(&self) -> io::Result<()> {
        let (mut segments, replaced) = (self.tiers.numbers(), self.tiers.replaced());
        // First, as a copy of everything needs space.
        let _ = compact::remove(&self.dir, self.storage.as_ref(), &replaced);
        let coverage = Coverage { snapshots: 0..self.kept, finished: true };
        let segment = self.tiers.next_number();
        let plan = Plan { dir: &self.dir, run: &self.run, segment, coverage, is_joined: true };
        if let Err(error) = compact::join(&plan, self.storage.as_ref(), &segments, self.at_the_end) {
            // Where there is no space for that either, readers say that it may not have been finished.
            let _ = self.mark_finished(segment + 1);
            return Err(error);
        }
        segments.extend(replaced);
        compact::remove(&self.dir, self.storage.as_ref(), &segments)
    }

    /// An empty segment after the others that says so. Its number is one that nothing has: a join that has failed may be there all the same.
    fn mark_finished(&self, segment: u64) -> io::Result<()> {
        let coverage = Coverage { snapshots: self.kept..self.kept, finished: true };
        let plan = Plan { coverage, ..plan(&self.dir, &self.run, segment, self.kept..self.kept) };
        publish(&plan, self.storage.as_ref(), &mut Pending::new())
    }

    fn check_running(&self) -> Result<()> {
        if self.stopped {
            return Err(Error::Stopped { path: self.dir.clone(), kept: self.kept });
        }
        Ok(())
    }

    fn check_distinct(&self, snapshot: &Snapshot) -> Result<()> {
        let mut seen = HashSet::with_capacity(snapshot.targets.len());
        match snapshot.targets.iter().find(|target| !seen.insert(target.id)) {
            Some(twice) => {
                Err(Error::DuplicateTarget { path: self.dir.clone(), snapshot: self.next, pid: twice.id.pid })
            }
            None => Ok(()),
        }
    }
}

/// Whether there was no room on the disk, which may be there later.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Of the segment of this number, in a recording that goes on.
fn plan<'a>(dir: &'a Path, run: &'a str, segment: u64, snapshots: Range<u64>) -> Plan<'a> {
    Plan { dir, run, segment, coverage: Coverage { snapshots, finished: false }, is_joined: false }
}

/// Publishes a segment with these rows.
fn publish(plan: &Plan<'_>, storage: &dyn Storage, rows: &mut Pending) -> io::Result<()> {
    plan.publish(storage, |table, mut writer| {
        writer.write(&rows.take(table).map_err(io::Error::other)?)?;
        Ok(writer)
    })
}

/// Creates the directory, or checks that the existing one may be used and removes our files from it. Returns it, locked until that is dropped, and
/// whether it was not there before.
fn prepare(path: &Path, storage: &dyn Storage, overwrite: bool) -> Result<(File, bool)> {
    let failed = |error| Error::Create { path: path.to_owned(), error };
    match create_private_dir(path) {
        Ok(()) => {
            let lock = locked(path)?;
            return sync_parent(path, storage).map(|()| (lock, true)).map_err(failed);
        }
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(failed(e)),
        Err(_) => {}
    }
    if !path.is_dir() {
        return Err(Error::Occupied { path: path.to_owned(), what: "it is not a directory" });
    }
    let lock = locked(path)?;
    let (mut ours, others) = list(path).map_err(failed)?;
    if ours.is_empty() {
        let what = "the directory holds other files";
        return if others { Err(Error::Occupied { path: path.to_owned(), what }) } else { Ok((lock, false)) };
    }
    if !overwrite {
        return Err(Error::Exists { path: path.to_owned() });
    }
    // The files that make segments count are removed first, newest first. So a crash leaves an older state or nothing.
    ours.sort_by_key(|file| std::cmp::Reverse((file.table == Table::Snapshots, file.segment)));
    ours.iter().try_for_each(|file| storage.remove(&path.join(file.to_string()))).map_err(failed)?;
    // Recordings of older versions were readable by anyone. The user decides about a directory with other files in it.
    if !others {
        tighten_dir(path).map_err(failed)?;
    }
    storage.sync_dir(path).map(|()| (lock, false)).map_err(failed)
}

/// The directory, if no other program records into it. File systems that know no locks are taken as they are.
fn locked(path: &Path) -> Result<File> {
    let dir = File::open(path).map_err(|error| Error::Create { path: path.to_owned(), error })?;
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            Err(Error::Occupied { path: path.to_owned(), what: "another program is recording into it" })
        }
        _ => Ok(dir),
    }
}

/// Whether a directory has files of a recording, which [`Options::overwrite`] would remove.
pub fn is_recording(dir: &Path) -> bool {
    list(dir).is_ok_and(|(ours, _)| !ours.is_empty())
}

/// Files of ours in a directory, and whether there are others.
fn list(dir: &Path) -> io::Result<(Vec<FileName>, bool)> {
    let (mut ours, mut others) = (Vec::new(), false);
    for entry in fs::read_dir(dir)? {
        match entry?.file_name().to_str().and_then(FileName::parse) {
            Some(file) => ours.push(file),
            None => others = true,
        }
    }
    Ok((ours, others))
}

fn sync_parent(path: &Path, storage: &dyn Storage) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    storage.sync_dir(parent)
}

fn size(dir: &Path) -> u64 {
    let files = list(dir).map(|(ours, _)| ours).unwrap_or_default();
    files.iter().filter_map(|file| fs::metadata(dir.join(file.to_string())).ok()).map(|m| m.len()).sum()
}
