//! The journal on disk: what was done to which huge range, so that `isotherm undo` can bring it back, also after SIGKILL.
//!
//! The line of the first act on a huge range is synced before the act; that the range is as it was again is noted after that, and not synced
//! ([`isotherm_schemes::journal`] has the format). Commands that act hold the file locked as readers
//! do, `undo` as a writer does: so nothing is undone while something else goes on acting. The only holder of the lock drops what is of processes
//! that have ended.

use crate::args::socket::runtime_file;
use crate::output;
use crate::privileges::as_user;
use anyhow::{Context, Result};
use isotherm_heat::TargetId;
use isotherm_schemes::journal::{Act, Entry, Journal, first_acts, parse};
use isotherm_schemes::machine::Live;
use isotherm_sys::proc::Proc;
use isotherm_units::PmdNo;
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_setfl, flock};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the journal is by default: next to the socket or, if it is set, in the folder where the locks on targets are.
pub fn default_journal() -> Result<PathBuf> {
    let Some(dir) = std::env::var_os("ISOTHERM_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from) else {
        return runtime_file(NAME, "--journal");
    };
    fs::create_dir_all(&dir).with_context(|| format!("make the folder {}", dir.display()))?;
    Ok(dir.join(NAME))
}

const NAME: &str = "isotherm.journal";

/// The real machine, which notes what it does at `path` or at the default place.
pub fn journaled(path: Option<&Path>) -> Result<Live> {
    let journal = FileJournal::open_or_note(path)?;
    Ok(journal.map_or_else(Live::new, |journal| Live::new().with_journal(Box::new(journal))))
}

/// After so many bytes more, what is of processes that have ended is dropped.
const GROWTH: u64 = 1 << 20;

/// A huge range of a process, and its program: another that runs in its place has other memory there.
type Key = (TargetId, PmdNo, Option<(u64, u64)>);

fn key(entry: &Entry) -> Key {
    (entry.process, entry.pmd, entry.image)
}

/// An open journal.
#[derive(Debug)]
pub struct FileJournal {
    file: File,
    /// The first act on each huge range, which is the one to bring back.
    known: BTreeMap<Key, Act>,
    /// The last act that was begun is the first on its huge range.
    is_first: bool,
    written: u64,
}

impl FileJournal {
    /// Opens it to act.
    pub fn open(path: &Path) -> Result<FileJournal> {
        let doing = || format!("open the journal {} (give another with --journal)", path.display());
        let file = as_user(|| opened(path).with_context(doing))?;
        let mut journal = FileJournal { file, known: BTreeMap::new(), is_first: false, written: 0 };
        journal.compact().with_context(doing)?;
        Ok(journal)
    }

    /// The journal at `path` or, without one, at its default place. There it may be missing: then nothing can be undone, and that is said.
    pub fn open_or_note(path: Option<&Path>) -> Result<Option<FileJournal>> {
        if let Some(path) = path {
            return FileJournal::open(path).map(Some);
        }
        match default_journal().and_then(|path| FileJournal::open(&path)) {
            Ok(journal) => Ok(Some(journal)),
            Err(error) => {
                output::note(format_args!("`isotherm undo` will know nothing of this: {error:#}"));
                Ok(None)
            }
        }
    }

    /// Drops what is of processes that have ended, unless another command has it open, and learns what is in it.
    fn compact(&mut self) -> io::Result<()> {
        self.written = 0;
        let is_alone = flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !is_alone {
            // Only `undo` holds it alone for longer than a moment.
            flock(&self.file, FlockOperation::LockShared)?;
        }
        let text = read(&mut self.file)?;
        let entries = first_acts(&alive(parse(&text)));
        if is_alone {
            replace(&self.file, &entries)?;
            flock(&self.file, FlockOperation::LockShared)?;
        }
        self.known = entries.iter().map(|entry| (key(entry), entry.act)).collect();
        Ok(())
    }

    /// One call, at the end: other commands append to it too.
    fn append(&mut self, entry: Entry) -> io::Result<()> {
        let line = entry.line();
        self.file.write_all(line.as_bytes())?;
        self.written += line.len() as u64;
        Ok(())
    }
}

impl Journal for FileJournal {
    fn begin(&mut self, entry: Entry) -> io::Result<()> {
        self.is_first = !self.known.contains_key(&key(&entry));
        if !self.is_first {
            return Ok(());
        }
        if self.written > GROWTH {
            self.compact()?;
        }
        self.append(entry)?;
        self.file.sync_data()?;
        self.known.insert(key(&entry), entry.act);
        Ok(())
    }

    fn end(&mut self, entry: Entry, is_done: bool) {
        let first = self.known.get(&key(&entry)).copied();
        let is_back = match (first, is_done) {
            (Some(first), true) => first.undone_by() == entry.act,
            (first, false) => self.is_first && first == Some(entry.act),
            (None, true) => false,
        };
        if is_back && self.append(Entry { act: Act::Back, ..entry }).is_ok() {
            self.known.remove(&key(&entry));
        }
    }
}

/// A journal that nobody else uses.
#[derive(Debug)]
pub struct OwnJournal {
    file: File,
    /// The first act on each huge range of processes that are there, in the order in which they were done.
    pub entries: Vec<Entry>,
}

impl OwnJournal {
    /// Opens it to undo. `None` if something goes on acting.
    pub fn open(path: &Path) -> Result<Option<OwnJournal>> {
        let doing = || format!("open the journal {}", path.display());
        let mut file = opened(path).with_context(doing)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        let entries = first_acts(&alive(parse(&read(&mut file).with_context(doing)?)));
        Ok(Some(OwnJournal { file, entries }))
    }

    /// Keeps these, which are some of the entries in their order, and nothing else.
    pub fn keep(self, entries: &[Entry]) -> Result<()> {
        replace(&self.file, entries).context("write the journal")
    }
}

/// Opens a file of our own, to which nobody else can write: what is in it is acted on.
fn opened(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != geteuid().as_raw() || found.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(io::Error::other("it is no file of this user alone"));
    }
    Ok(file)
}

const WRITABLE_BY_OTHERS: u32 = 0o022;

fn read(file: &mut File) -> io::Result<String> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Replaces the text by `entries`, which are some of those in it, in their order.
///
/// Overwrites before it cuts off: each entry moves towards the beginning, so if this is killed in the middle, each is there at its new or at
/// its old place.
fn replace(file: &File, entries: &[Entry]) -> io::Result<()> {
    let lines: String = entries.iter().map(Entry::line).collect();
    // With the flag set, the kernel appends whatever the position.
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags - OFlags::APPEND)?;
    let written = file.write_all_at(lines.as_bytes(), 0).and_then(|()| file.set_len(lines.len() as u64));
    fcntl_setfl(file, flags)?;
    written.and_then(|()| file.sync_data())
}

/// What is of processes that are there.
fn alive(entries: Vec<Entry>) -> Vec<Entry> {
    let mut there: BTreeMap<(TargetId, Option<(u64, u64)>), bool> = BTreeMap::new();
    let of = |entry: &Entry| (entry.process, entry.image);
    entries.iter().for_each(|entry| _ = there.entry(of(entry)).or_insert_with(|| is_there(entry)));
    entries.into_iter().filter(|entry| there[&of(entry)]).collect()
}

/// Whether the process of an entry is there, and executes the same program. Yes, as long as the opposite is not known.
pub fn is_there(entry: &Entry) -> bool {
    match Proc::default().stat(entry.process.pid) {
        Ok(stat) => stat.start_ticks == entry.process.start_ticks && stat.image() == entry.image,
        Err(error) => !error.is_gone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn entry(pid: u32, pmd: u64, act: Act) -> Entry {
        let stat = Proc::default().stat(pid).ok();
        let start_ticks = stat.as_ref().map_or(1, |stat| stat.start_ticks);
        let image = stat.and_then(|stat| stat.image());
        Entry { process: TargetId { pid, start_ticks }, image, pmd: PmdNo(pmd), act }
    }

    #[test]
    fn what_was_done_is_there_after_the_end_but_for_processes_that_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let (own, gone) = (std::process::id(), u32::MAX >> 1);
        let exec = Entry { image: Some((1, 2)), ..entry(own, 9, Act::Split) };
        {
            let mut journal = FileJournal::open(&path).unwrap();
            for noted in [entry(own, 1, Act::Split), entry(gone, 2, Act::Split), entry(own, 1, Act::Split), exec] {
                journal.begin(noted).unwrap();
                journal.end(noted, true);
            }
            assert!(OwnJournal::open(&path).unwrap().is_none(), "something goes on acting");
            // Another command acts at the same time.
            FileJournal::open(&path).unwrap().begin(entry(own, 3, Act::Collapse)).unwrap();
            assert_eq!(parse(&fs::read_to_string(&path).unwrap()).len(), 4, "each once");
        }
        // Cut off in the middle of a line.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text + "\n{\"pid\":7,").unwrap();
        let expected = [entry(own, 1, Act::Split), entry(own, 3, Act::Collapse)];
        let journal = OwnJournal::open(&path).unwrap().unwrap();
        assert_eq!(journal.entries, expected);
        journal.keep(&expected[1..]).unwrap();
        assert_eq!(FileJournal::open(&path).unwrap().known, [(key(&expected[1]), Act::Collapse)].into());
    }

    #[test]
    fn what_is_done_to_another_program_in_the_same_process_is_noted_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let mut journal = FileJournal::open(&path).unwrap();
        let now = entry(std::process::id(), 9, Act::Collapse);
        // The program that has replaced itself was another file before, at the same addresses.
        journal.begin(Entry { image: Some((1, 2)), ..now }).unwrap();
        journal.begin(now).unwrap();
        journal.begin(now).unwrap();
        assert_eq!(parse(&fs::read_to_string(&path).unwrap()).len(), 2);
        drop(journal);
        assert_eq!(
            FileJournal::open(&path).unwrap().known.into_iter().collect::<Vec<_>>(),
            [(key(&now), Act::Collapse)]
        );
    }

    #[test]
    fn what_has_failed_or_is_back_is_not_undone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let own = std::process::id();
        let mut journal = FileJournal::open(&path).unwrap();
        let mut act = |pmd, act, is_done| {
            journal.begin(entry(own, pmd, act)).unwrap();
            journal.end(entry(own, pmd, act), is_done);
        };
        act(1, Act::Collapse, false);
        act(2, Act::Split, true);
        act(2, Act::Collapse, true);
        act(3, Act::Split, true);
        act(3, Act::Collapse, false);
        act(4, Act::Collapse, false);
        act(4, Act::Collapse, true);
        drop(journal);
        let left = OwnJournal::open(&path).unwrap().unwrap().entries;
        assert_eq!(left, [entry(own, 3, Act::Split), entry(own, 4, Act::Collapse)]);
    }

    #[test]
    fn a_file_that_others_can_write_to_and_a_link_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("j"), dir.path().join("link"));
        FileJournal::open(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        FileJournal::open(&link).expect_err("a link is not followed");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        let error = format!("{:#}", FileJournal::open(&path).unwrap_err());
        assert!(error.contains("no file of this user alone") && error.contains("--journal"), "{error}");
    }
}
