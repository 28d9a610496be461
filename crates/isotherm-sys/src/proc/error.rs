//! What can go wrong when reading `/proc` and cgroup files.
//!
//! For a monitor it is normal that a process ends, or may not be read. Each of these is a variant, so that callers need
//! not parse messages. Messages do not repeat their source: print the chain.

use std::io;
use std::path::{Path, PathBuf};

/// The result of every reader here.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a file could not be read or understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process or cgroup is no longer there (`ENOENT`, `ESRCH`, `ENODEV`). Normal: drop the target.
    #[error("{}: gone, it ended before or while it was read", path.display())]
    Gone {
        /// The file that was asked for.
        path: PathBuf,
    },
    /// The kernel refused (`EACCES`, `EPERM`).
    #[error(
        "{}: permission denied: {}",
        path.display(),
        advice(*may_ptrace, *ptrace_scope)
    )]
    Denied {
        /// The file that was asked for.
        path: PathBuf,
        /// `kernel.yama.ptrace_scope`, if there is such a setting.
        ptrace_scope: Option<u8>,
        /// Whether we have CAP_SYS_PTRACE.
        may_ptrace: bool,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Any other failure to read.
    #[error("read {}", path.display())]
    Io {
        /// The file that was asked for.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A file could not be written.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The file was read, but not in the kernel's format.
    #[error("{}: line {line}: {item}: expected {expected}, got {got:?}", path.display())]
    Parse {
        /// The file that was read.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// Which item of the line.
        item: &'static str,
        /// What was expected there.
        expected: &'static str,
        /// What was there instead, shortened.
        got: String,
    },
    /// No hierarchy holds such a cgroup.
    #[error("no cgroup {asked:?}: looked in {}", searched_in(searched))]
    NoCgroup {
        /// As the user typed it.
        asked: String,
        /// The hierarchies, such as `memory (v1) at /sys/fs/cgroup/memory`.
        searched: Vec<String>,
    },
}

impl Error {
    /// Whether the process or cgroup has ended. That is no failure: there is nothing left to read.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Gone { .. })
    }

    /// Whether privilege is missing.
    pub fn is_denied(&self) -> bool {
        matches!(self, Error::Denied { .. })
    }

    /// Converts an I/O error to its variant.
    pub(crate) fn from_io(path: &Path, source: io::Error) -> Error {
        let path = path.to_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH | libc::ENODEV) => Error::Gone { path },
            Some(libc::EACCES | libc::EPERM) => Error::Denied { path, ptrace_scope: None, may_ptrace: false, source },
            _ => Error::Io { path, source },
        }
    }

    /// The same of a write. What is denied there is a matter of the file, and not of ptrace.
    pub(crate) fn from_write(path: &Path, source: io::Error) -> Error {
        match Error::from_io(path, source) {
            Error::Denied { path, source, .. } | Error::Io { path, source } => Error::Write { path, source },
            gone => gone,
        }
    }
}

/// What to do about it. With CAP_SYS_PTRACE it is no capability that is missing.
fn advice(may_ptrace: bool, scope: Option<u8>) -> String {
    if may_ptrace {
        return "although we have CAP_SYS_PTRACE: something else refuses, such as a security module (SELinux, AppArmor: see /proc/PID/attr/current)".to_owned();
    }
    format!(
        "run as the process's own user if that may be ptraced, as root, or with CAP_SYS_PTRACE ({})",
        scope_note(scope)
    )
}

/// Yama restricts attaching; reading maps and clearing bits needs less. The message says so. Otherwise users turn Yama
/// off in vain.
fn scope_note(scope: Option<u8>) -> String {
    match scope {
        Some(scope) => format!("kernel.yama.ptrace_scope is {scope}, which limits attaching and not this"),
        None => "no kernel.yama.ptrace_scope is set".to_owned(),
    }
}

fn searched_in(searched: &[String]) -> String {
    if searched.is_empty() { "nothing, no cgroup hierarchy is mounted".to_owned() } else { searched.join(", ") }
}

/// What a parser found wrong; the reader adds path and line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unexpected {
    pub(crate) item: &'static str,
    pub(crate) expected: &'static str,
    pub(crate) got: String,
}

impl Unexpected {
    pub(crate) fn new(item: &'static str, expected: &'static str, got: &[u8]) -> Unexpected {
        // An unexpected line may be megabytes long. The message shows its start only.
        const SHOWN: usize = 80;
        let got = String::from_utf8_lossy(&got[..got.len().min(SHOWN)]).into_owned();
        Unexpected { item, expected, got }
    }

    pub(crate) fn at(self, path: &Path, line: usize) -> Error {
        Error::Parse { path: path.to_owned(), line, item: self.item, expected: self.expected, got: self.got }
    }
}
