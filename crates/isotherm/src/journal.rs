//! The journal on disk: what was done to which huge range, so that `isotherm undo` can bring it back, also after SIGKILL.
//!
//! Each line is synced before the act ([`isotherm_schemes::journal`] has the format). Commands that act hold the file locked as readers
//! do, `undo` as a writer does: so nothing is undone while something else goes on acting. Whoever has it alone drops what is of processes
//! that have ended.

use crate::args::socket::runtime_file;
use crate::output;
use anyhow::{Context, Result};
use isotherm_schemes::journal::{Entry, Journal, first_acts, parse};
use isotherm_schemes::machine::Live;
use isotherm_sys::proc::Proc;
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_setfl, flock};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the journal is by default: next to the socket.
pub fn default_journal() -> Result<PathBuf> {
    runtime_file("isotherm.journal", "--journal")
}

/// The real machine, which notes what it does at `path` or at the default place.
pub fn journaled(path: Option<&Path>) -> Result<Live> {
    let journal = FileJournal::open_or_note(path)?;
    Ok(journal.map_or_else(Live::new, |journal| Live::new().with_journal(Box::new(journal))))
}

/// After so many bytes more, what is of processes that have ended is dropped.
const GROWTH: u64 = 1 << 20;

/// An open journal.
#[derive(Debug)]
pub struct FileJournal {
    file: File,
    /// What it has already: the first act on a huge range is the one to bring back.
    known: BTreeSet<Entry>,
    written: u64,
}

impl FileJournal {
    /// Opens it to act.
    pub fn open(path: &Path) -> Result<FileJournal> {
        let doing = || format!("open the journal {} (give another with --journal)", path.display());
        let file = opened(path).with_context(doing)?;
        let mut journal = FileJournal { file, known: BTreeSet::new(), written: 0 };
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
        } else if !text.is_empty() && !text.ends_with('\n') {
            // A crash has cut the last line off.
            self.file.write_all(b"\n")?;
        }
        self.known = entries.into_iter().collect();
        Ok(())
    }
}

impl Journal for FileJournal {
    fn note(&mut self, entry: Entry) -> io::Result<()> {
        if self.known.contains(&entry) {
            return Ok(());
        }
        if self.written > GROWTH {
            self.compact()?;
        }
        // One call, at the end: other commands append to it too.
        let line = entry.line();
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        self.written += line.len() as u64;
        self.known.insert(entry);
        Ok(())
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

fn opened(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path)
}

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
    let proc = Proc::default();
    let is_there =
        |entry: &Entry| proc.identity(entry.process.pid).is_ok_and(|id| id.start_ticks == entry.process.start_ticks);
    entries.into_iter().filter(is_there).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::TargetId;
    use isotherm_schemes::journal::Act;
    use isotherm_units::PmdNo;
    use std::fs;

    fn entry(pid: u32, pmd: u64, act: Act) -> Entry {
        let start_ticks = Proc::default().identity(pid).map_or(1, |id| id.start_ticks);
        Entry { process: TargetId { pid, start_ticks }, pmd: PmdNo(pmd), act }
    }

    #[test]
    fn what_was_done_is_there_after_the_end_but_for_processes_that_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let (own, gone) = (std::process::id(), u32::MAX >> 1);
        {
            let mut journal = FileJournal::open(&path).unwrap();
            for noted in [entry(own, 1, Act::Split), entry(gone, 2, Act::Split), entry(own, 1, Act::Split)] {
                journal.note(noted).unwrap();
            }
            assert!(OwnJournal::open(&path).unwrap().is_none(), "something goes on acting");
            // Another command acts at the same time.
            FileJournal::open(&path).unwrap().note(entry(own, 3, Act::Collapse)).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3, "each once");
        }
        // Cut off in the middle of a line.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text + "{\"pid\":7,").unwrap();
        let expected = [entry(own, 1, Act::Split), entry(own, 3, Act::Collapse)];
        let journal = OwnJournal::open(&path).unwrap().unwrap();
        assert_eq!(journal.entries, expected);
        journal.keep(&expected[1..]).unwrap();
        assert_eq!(FileJournal::open(&path).unwrap().known, [expected[1]].into());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        FileJournal::open(&link).expect_err("a link is not followed");
    }
}
