//! Stops the writer at every single thing it does to the disk, in three ways, and looks at what opens.
//!
//! [`Probe`] passes everything on to the real file system, counts it and keeps a log. From the log [`Disk::after`] works out
//! what a loss of power may leave: names since the last `sync_dir` each may be there or not, and data that was not synced is
//! not there.

use crate::compact::Effort;
use crate::samples;
use crate::storage::{self, Storage, StorageFile};
use crate::tiers::Limits;
use crate::{Error, Options, Recording, Result, Summary, Writer};
use isotherm_heat::Snapshot;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const SNAPSHOTS: u64 = 6;

#[derive(Clone, Debug)]
enum Op {
    Create {
        name: String,
        file: usize,
    },
    Write {
        file: usize,
        bytes: Vec<u8>,
    },
    Sync {
        file: usize,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    SyncDir,
    /// Not an operation: from here on this many snapshots were said to be kept.
    Kept(u64),
}

#[derive(Debug, Default)]
struct State {
    log: Vec<Op>,
    files: usize,
    done: usize,
    fail_at: Option<usize>,
    /// Whether everything after the failure fails too, as for a process that is gone.
    dead: bool,
}

#[derive(Clone, Debug, Default)]
struct Probe(Arc<Mutex<State>>);

impl Probe {
    fn failing(at: usize, dead: bool) -> Probe {
        Probe(Arc::new(Mutex::new(State { fail_at: Some(at), dead, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn log(&self, op: Op) -> io::Result<()> {
        let mut state = self.state();
        let now = state.done;
        state.done += 1;
        match state.fail_at {
            Some(at) if now == at || (state.dead && now > at) => Err(ErrorKind::StorageFull.into()),
            _ => {
                state.log.push(op);
                Ok(())
            }
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

struct ProbeFile {
    probe: Probe,
    file: usize,
    real: Box<dyn StorageFile>,
}

impl Write for ProbeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.probe.log(Op::Write { file: self.file, bytes: bytes.to_vec() })?;
        self.real.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.real.flush()
    }
}

impl StorageFile for ProbeFile {
    fn sync(&mut self) -> io::Result<()> {
        self.probe.log(Op::Sync { file: self.file })
    }
}

impl Storage for Probe {
    fn create(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        let file = self.state().files;
        self.log(Op::Create { name: name(path), file })?;
        self.state().files += 1;
        Ok(Box::new(ProbeFile { probe: self.clone(), file, real: storage::Disk.create(path)? }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.log(Op::Rename { from: name(from), to: name(to) })?;
        storage::Disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.log(Op::Remove { name: name(path) })?;
        storage::Disk.remove(path)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.log(Op::SyncDir)
    }
}

/// Two segments are joined at a time, and are removed after the next one. Some of their tables are encoded anew, the others are copied.
const JOINS: Limits = Limits { fan: 2, max_rows: 1000, max_encoded_rows: 4, keeps: 1 };

/// Writes a recording in four segments, joins some of them meanwhile, and finishes it. Returns how many snapshots were kept when it ended.
fn record(probe: &Probe, dir: &Path) -> (u64, Result<Summary>) {
    let options = Options { flush_interval: Duration::from_secs(2), ..Options::default() };
    let mut writer = match Writer::create_in(Box::new(probe.clone()), dir, &samples::run(), options) {
        Ok(writer) => writer,
        Err(error) => return (0, Err(error)),
    };
    writer.tiers.set_limits(JOINS);
    probe.state().log.push(Op::Kept(0));
    for i in 0..SNAPSHOTS {
        if let Err(error) = writer.push(&samples::snapshot(i)) {
            return (writer.kept(), Err(error));
        }
        let kept = writer.kept();
        probe.state().log.push(Op::Kept(kept));
    }
    (SNAPSHOTS, writer.finish())
}

/// What opens, which must be the first snapshots, each once, and at least those that were kept.
fn assert_opens(dir: &Path, kept: u64, case: &str) -> Vec<Snapshot> {
    let recording = Recording::open(dir).unwrap_or_else(|e| panic!("{case}: {e}"));
    assert_eq!(recording.run(), &samples::run(), "{case}");
    // A crash is no damage: what does not count must not look like a file that went bad.
    assert!(recording.notes().iter().all(|n| n.contains("did not finish")), "{case}: {:?}", recording.notes());
    let found = recording.read_all().unwrap_or_else(|e| panic!("{case}: {e}"));
    let count = found.len() as u64;
    assert!((kept..=SNAPSHOTS).contains(&count), "{case}: {count} snapshots, {kept} were kept");
    assert_eq!(recording.len(), found.len(), "{case}");
    assert_eq!(found, samples::snapshots(count), "{case}");
    found
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| name(&e.unwrap().path())).collect();
    names.sort();
    names
}

/// Calls `check` for a failure at each operation in turn, until a recording comes through without one.
fn at_each_operation(dead: bool, check: impl Fn(usize, &Path, u64, Result<Summary>)) -> usize {
    for at in 0.. {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("recording");
        let probe = Probe::failing(at, dead);
        let (kept, outcome) = record(&probe, &dir);
        if probe.state().done <= at {
            return at;
        }
        check(at, &dir, kept, outcome);
    }
    unreachable!()
}

#[test]
fn a_recorder_that_dies_anywhere_leaves_what_it_had_kept() {
    let operations = at_each_operation(true, |at, dir, kept, outcome| match outcome {
        Err(Error::Create { .. } | Error::Write { kept: 0, lost: 0, .. }) => {
            // Dead before the first segment was complete, or just after it was.
            let opened = Recording::open(dir).map(|r| r.len());
            let fine = matches!(opened, Ok(0) | Err(Error::NotARecording { .. } | Error::NothingLeft { .. }));
            assert!(fine, "{at}: {opened:?}");
        }
        _ => {
            let found = assert_opens(dir, kept, &format!("died at {at}"));
            let notes = Recording::open(dir).unwrap().notes().to_vec();
            assert!(found.len() as u64 == SNAPSHOTS || notes[0].contains("did not finish"), "{at}: {notes:?}");
        }
    });
    assert!(operations > 100, "{operations} operations");
}

#[test]
fn a_disk_that_is_full_once_costs_the_waiting_segment_and_leaves_no_litter() {
    at_each_operation(false, |at, dir, kept, outcome| {
        let full = |error: &io::Error| error.kind() == ErrorKind::StorageFull;
        match outcome {
            Err(Error::Create { error, .. }) => assert!(full(&error), "{at}"),
            Err(Error::Write { kept: said, lost, error, .. }) => {
                assert!(full(&error), "{at}: {error:?}");
                assert_eq!(said, kept, "{at}");
                if kept + lost > 0 {
                    assert_opens(dir, kept, &format!("full at {at}"));
                }
            }
            Ok(summary) => {
                // What fails when segments are joined meanwhile is done later.
                assert!(summary.note.is_some() || names(dir).len() == 6, "{at}: {:?}", names(dir));
                assert_eq!(assert_opens(dir, SNAPSHOTS, &format!("full at {at}")).len() as u64, SNAPSHOTS);
            }
            Err(other) => panic!("{at}: {other}"),
        }
        if dir.exists() {
            assert!(names(dir).iter().all(|n| !n.ends_with(".tmp")), "{at}: {:?}", names(dir));
        }
    });
}

/// What is left of a table at its end takes another way to the disk than the rest; how much that is depends on its size.
#[test]
fn a_disk_that_is_full_at_the_end_of_a_large_table_is_told_as_that() {
    let failures: usize = (200..1400).step_by(100).map(each_failure_is_of_a_full_disk).sum();
    assert!(failures > 200, "{failures}");
}

/// Lets each operation fail in turn that a segment of so many targets takes. Tells how many there were.
fn each_failure_is_of_a_full_disk(targets: u32) -> usize {
    let mut large = samples::snapshot(0);
    let worker = large.targets[0].clone();
    let target = |pid: u32| {
        let mut target = worker.clone();
        target.id.pid = pid;
        target.comm = format!("{:x}", u64::from(pid + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        target
    };
    large.targets = (0..targets).map(target).collect();
    let mut failures = 0;
    for at in 0.. {
        let parent = tempfile::tempdir().unwrap();
        let probe = Probe::failing(at, false);
        let options = Options { flush_interval: Duration::ZERO, ..Options::default() };
        let written = Writer::create_in(Box::new(probe.clone()), &parent.path().join("r"), &samples::run(), options)
            .and_then(|mut writer| writer.push(&large));
        if probe.state().done <= at {
            break;
        }
        if let Err(Error::Write { error, .. }) = written {
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{targets} targets, operation {at}: {error:?}");
            failures += 1;
        }
    }
    failures
}

#[test]
fn after_a_failed_write_nothing_more_is_taken() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("recording");
    let probe = Probe::default();
    let options = Options { flush_interval: Duration::ZERO, ..Options::default() };
    let mut writer = Writer::create_in(Box::new(probe.clone()), &dir, &samples::run(), options).unwrap();
    writer.push(&samples::snapshot(0)).unwrap();
    let next = probe.state().done;
    probe.state().fail_at = Some(next);
    let error = writer.push(&samples::snapshot(1)).unwrap_err().to_string();
    for part in ["segment 3", &dir.display().to_string(), "1 snapshot kept and readable", "1 lost", "free space"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(matches!(writer.push(&samples::snapshot(2)), Err(Error::Stopped { kept: 1, .. })));
    assert!(matches!(writer.finish(), Err(Error::Stopped { kept: 1, .. })));
    assert_eq!(Recording::open(&dir).unwrap().read_all().unwrap(), samples::snapshots(1));
}

/// The directory as a loss of power would leave it.
#[derive(Default)]
struct Disk {
    /// Data of each file, and how much of it is synced.
    files: Vec<(Vec<u8>, usize)>,
    names: BTreeMap<String, usize>,
    /// Names as the running process sees them.
    seen: BTreeMap<String, usize>,
    /// Changes of names that are not synced.
    waiting: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Link(String, usize),
    Move(String, String, usize),
    Unlink(String),
}

fn apply(names: &mut BTreeMap<String, usize>, change: &Change) {
    match change {
        Change::Link(name, file) => {
            names.insert(name.clone(), *file);
        }
        Change::Move(from, to, file) => {
            names.remove(from);
            names.insert(to.clone(), *file);
        }
        Change::Unlink(name) => {
            names.remove(name);
        }
    }
}

impl Disk {
    fn run(&mut self, op: &Op) {
        match op {
            Op::Create { name, file } => {
                self.files.push((Vec::new(), 0));
                self.change(Change::Link(name.clone(), *file));
            }
            Op::Write { file, bytes } => self.files[*file].0.extend(bytes),
            Op::Sync { file } => self.files[*file].1 = self.files[*file].0.len(),
            Op::Rename { from, to } => {
                let file = self.seen[from];
                self.change(Change::Move(from.clone(), to.clone(), file));
            }
            Op::Remove { name } => self.change(Change::Unlink(name.clone())),
            Op::SyncDir => {
                self.names = self.seen.clone();
                self.waiting.clear();
            }
            Op::Kept(_) => {}
        }
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.seen, &change);
        self.waiting.push(change);
    }

    /// Names that may be found: none of the changes since the last sync, all, and all but one or only one of them.
    fn outcomes(&self) -> Vec<BTreeMap<String, usize>> {
        let count = self.waiting.len();
        let mut outcomes = vec![self.names.clone(), self.seen.clone()];
        for one in 0..count {
            for only in [true, false] {
                let mut names = self.names.clone();
                self.waiting
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| (*i == one) == only)
                    .for_each(|(_, c)| apply(&mut names, c));
                outcomes.push(names);
            }
        }
        outcomes.sort();
        outcomes.dedup();
        outcomes
    }

    fn write_to(&self, dir: &Path, names: &BTreeMap<String, usize>) {
        for (name, file) in names {
            let (data, synced) = &self.files[*file];
            fs::write(dir.join(name), &data[..*synced]).unwrap();
        }
    }
}

#[test]
fn a_loss_of_power_anywhere_leaves_what_was_kept() {
    let parent = tempfile::tempdir().unwrap();
    let probe = Probe::default();
    let (_, outcome) = record(&probe, &parent.path().join("recording"));
    outcome.unwrap();
    let log = probe.state().log.clone();
    let (mut disk, mut kept, mut cases) = (Disk::default(), None, 0);
    for (at, op) in log.iter().enumerate() {
        disk.run(op);
        if let Op::Kept(count) = op {
            kept = Some(*count);
        }
        let Some(kept) = kept else { continue };
        for names in disk.outcomes() {
            let left = tempfile::tempdir().unwrap();
            disk.write_to(left.path(), &names);
            assert_opens(left.path(), kept, &format!("power lost after {at}, {op:?}: {:?}", names.keys()));
            cases += 1;
        }
    }
    assert_eq!(kept, Some(SNAPSHOTS));
    assert!(cases > 500, "{cases} cases");
}

/// Days of a large host have more row groups than one file may, and more rows than are encoded anew while somebody waits.
#[test]
fn segments_that_are_too_many_and_too_large_stay_and_the_recording_is_finished() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("recording");
    let options = Options { flush_interval: Duration::ZERO, ..Options::default() };
    let mut writer = Writer::create(&path, &samples::run(), options).unwrap();
    writer.at_the_end = Effort { max_encoded_rows: 0, max_groups: 3 };
    samples::snapshots(SNAPSHOTS).iter().for_each(|snapshot| writer.push(snapshot).unwrap());
    let note = writer.finish().unwrap().note.unwrap();
    assert!(note.contains("still has") && note.contains("row groups"), "{note}");
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.notes(), [""; 0]);
    assert_eq!(recording.read_all().unwrap(), samples::snapshots(SNAPSHOTS));
    assert!(fs::read_dir(&path).unwrap().all(|file| !file.unwrap().file_name().to_str().unwrap().ends_with(".tmp")));
}
