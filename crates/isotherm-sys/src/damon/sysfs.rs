//! The files below `kernel/mm/damon/admin/kdamonds`, behind a trait, so that tests can replace the kernel.

use super::Error;
use super::settings::{NR_KDAMONDS, STATE, THREAD};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the files are, below `/sys`.
pub(super) const DIR: &str = "kernel/mm/damon/admin/kdamonds";

/// Reads and writes files by their name below [`DIR`].
pub(super) trait Sysfs: fmt::Debug {
    fn read(&self, name: &str) -> io::Result<String>;
    fn write(&self, name: &str, value: &str) -> io::Result<()>;
}

/// The real ones.
#[derive(Debug)]
pub(super) struct Files(PathBuf);

impl Files {
    pub(super) fn below(sys: &Path) -> Files {
        Files(sys.join(DIR))
    }
}

impl Sysfs for Files {
    fn read(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.0.join(name))
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        // Not created if missing. One write call: sysfs takes each write as a whole.
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.0.join(name))?
            .write_all(format!("{value}\n").as_bytes())
    }
}

/// The files, with errors that name the attempted operation.
#[derive(Debug)]
pub(super) struct Tree {
    files: Box<dyn Sysfs>,
    pub(super) path: PathBuf,
}

/// The kernel uses trylock here: a write that collides with another is refused, and a retry succeeds.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

impl Tree {
    pub(super) fn new(files: Box<dyn Sysfs>, sys: &Path) -> Tree {
        Tree { files, path: sys.join(DIR) }
    }

    /// The text of a file without its newline; `None` if there is no such file.
    pub(super) fn read_tree(&self, name: &str) -> Result<Option<String>, Error> {
        match self.files.read(name) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::from_io(format!("read {}", self.path.join(name).display()), e)),
        }
    }

    pub(super) fn write(&self, name: &str, value: &str) -> Result<(), Error> {
        self.try_write(name, value)
            .map_err(|e| Error::from_io(format!("write {value} to {}", self.path.join(name).display()), e))
    }

    pub(super) fn try_write(&self, name: &str, value: &str) -> io::Result<()> {
        for _ in 1..TRIES {
            match self.files.write(name, value) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(BETWEEN_TRIES),
                other => return other,
            }
        }
        self.files.write(name, value)
    }

    /// The number of kdamonds set up; `None` if this kernel has no such file.
    pub(super) fn kdamonds(&self) -> Result<Option<u64>, Error> {
        Ok(self.read_tree(NR_KDAMONDS)?.and_then(|n| n.parse().ok()))
    }

    /// The thread of the first kdamond, if it runs.
    pub(super) fn thread(&self) -> Result<Option<u32>, Error> {
        if self.read_tree(STATE)?.as_deref() != Some("on") {
            return Ok(None);
        }
        // -1 if it has just ended.
        Ok(self.read_tree(THREAD)?.and_then(|pid| pid.parse().ok()))
    }

    /// Stops the first kdamond if it runs, and removes all of them.
    pub(super) fn clear(&self) -> Result<(), Error> {
        if self.read_tree(STATE)?.as_deref() == Some("on") {
            match self.try_write(STATE, "off") {
                // It has ended by itself since, with its last target.
                Err(_) if self.read_tree(STATE)?.as_deref() != Some("on") => {}
                Err(e) => return Err(Error::from_io(format!("stop {}", self.path.join("0").display()), e)),
                Ok(()) => {}
            }
        }
        self.write(NR_KDAMONDS, "0")
    }
}
