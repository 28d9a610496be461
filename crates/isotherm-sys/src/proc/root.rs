//! [`Proc`] itself: where `/proc` is, and how its files are opened. Errors distinguish a process that has ended from
//! one that we may not read. The modules next to this one parse the files.

use super::error::{Error, Result};
use super::namespace::Namespace;
use super::stat::{Identity, Stat};
use crate::caps::{Cap, Caps};
use crate::files::Tree;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// How often a process may have executed another program while a file about its memory was read.
const MAX_EXECS: usize = 16;

/// A `/proc`, by its root.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
    pub(super) namespace: Namespace,
}

/// What was found of the namespace follows from the root.
impl PartialEq for Proc {
    fn eq(&self, other: &Proc) -> bool {
        self.root == other.root
    }
}

impl Eq for Proc {}

impl Default for Proc {
    fn default() -> Proc {
        Proc::at("/proc")
    }
}

impl Proc {
    /// The `/proc` mounted at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Proc {
        Proc { root: root.into(), namespace: Namespace::default() }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a file of a process.
    pub fn path(&self, pid: u32, file: &str) -> PathBuf {
        let mut path = self.root.join(pid.to_string());
        path.push(file);
        path
    }

    /// `/proc/PID/stat`.
    pub fn stat(&self, pid: u32) -> Result<Stat> {
        let path = self.path(pid, "stat");
        Stat::parse(&self.read(&path)?).map_err(|e| e.at(&path, 1))
    }

    /// The pid with the start time, which distinguishes a process from a later one with the same pid.
    pub fn identity(&self, pid: u32) -> Result<Identity> {
        Ok(self.stat(pid)?.identity())
    }

    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>> {
        fs::read(path).map_err(|e| self.error(path, e))
    }

    /// Converts an I/O error to its variant, with the ptrace scope where that helps.
    pub(super) fn error(&self, path: &Path, source: std::io::Error) -> Error {
        let mut error = Error::from_io(path, source);
        if let Error::Denied { ptrace_scope, may_ptrace, .. } = &mut error {
            let caps = Caps::effective(&Tree::at(&self.root));
            *may_ptrace = caps.is_some_and(|caps| caps.has(Cap::SysPtrace));
            let scope = fs::read_to_string(self.root.join("sys/kernel/yama/ptrace_scope")).ok();
            *ptrace_scope = scope.and_then(|text| text.trim().parse().ok());
        }
        error
    }

    /// Opens a file about the memory of a process; `None` if the process exists but has no memory.
    pub(super) fn open_memory(&self, pid: u32, path: &Path) -> Result<Option<File>> {
        match File::open(path) {
            Ok(file) => Ok(Some(file)),
            Err(e) => self.memoryless(pid, path, e).map(|()| None),
        }
    }

    /// Calls `find` until it finds something of the memory of a process, or the process has none. A file that was opened
    /// before the process executed another program shows nothing, and with every CPU busy that happens several times in a
    /// row. Returns whether anything was found.
    pub fn find_memory<E>(
        &self,
        pid: u32,
        mut find: impl FnMut() -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E> {
        for _ in 0..MAX_EXECS {
            if find()? {
                return Ok(true);
            }
            if !self.stat(pid).is_ok_and(|stat| stat.has_memory()) {
                break;
            }
        }
        Ok(false)
    }

    /// For kernel threads and zombies some kernels return an empty file, others `ESRCH`, as for a process that has
    /// ended. Returns `Ok` if `stat` shows that the process is a kernel thread or a zombie.
    pub(super) fn memoryless(&self, pid: u32, path: &Path, source: std::io::Error) -> Result<()> {
        let error = self.error(path, source);
        if !error.is_gone() {
            return Err(error);
        }
        match self.stat(pid) {
            Ok(stat) if !stat.has_memory() => Ok(()),
            _ => Err(error),
        }
    }
}
