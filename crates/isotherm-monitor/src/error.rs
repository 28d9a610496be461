//! Why a process is not watched.

use isotherm_heat::source::{SourceError, SourceErrorKind};
use isotherm_sys::{descriptors, proc};
use std::io;

/// Why a process is not watched, or why none can be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Processes could not be listed.
    #[error(transparent)]
    Proc(#[from] proc::Error),
    /// The process has ended, and another has its id.
    #[error("process {0} is not there, or has ended")]
    Gone(u32),
    /// Another monitor watches the process.
    #[error(
        "process {pid} is watched by process {holder} already ({command}); each would take accesses from the other: end that one, ask it \
         (`isotherm status`), or watch in addition to it with --beside"
    )]
    Watched {
        /// The process.
        pid: u32,
        /// The monitor.
        holder: u32,
        /// Its command line.
        command: String,
    },
    /// It could not be locked against other monitors.
    #[error("lock process {pid} against other monitors: {source}")]
    Lock {
        /// The process.
        pid: u32,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// The kind of error, which decides how to go on.
    pub fn kind(&self) -> SourceErrorKind {
        match self {
            Error::Source(error) => error.kind(),
            Error::Gone(_) => SourceErrorKind::Gone,
            Error::Proc(proc::Error::Io { source, .. }) | Error::Lock { source, .. }
                if descriptors::are_short(source) =>
            {
                SourceErrorKind::Shortage
            }
            Error::Proc(error) if error.is_gone() => SourceErrorKind::Gone,
            // ENOENT or ESRCH: the process ended while it was locked, or its owner's last logout has removed the
            // directory of locks.
            Error::Lock { source, .. } if matches!(source.raw_os_error(), Some(2 | 3)) => SourceErrorKind::Gone,
            Error::Proc(_) | Error::Lock { .. } | Error::Watched { .. } => SourceErrorKind::Failed,
        }
    }

    /// Whether the process no longer exists.
    pub fn is_gone(&self) -> bool {
        self.kind() == SourceErrorKind::Gone
    }

    /// Whether descriptors are short.
    pub fn is_shortage(&self) -> bool {
        self.kind() == SourceErrorKind::Shortage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SourceErrorKind::{Busy, Failed, Gone, Replaced, Shortage};

    const ENOENT: i32 = 2;
    const ESRCH: i32 = 3;
    const EACCES: i32 = 13;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;

    fn lock(errno: i32) -> Error {
        Error::Lock { pid: 7, source: io::Error::from_raw_os_error(errno) }
    }

    fn of_proc(errno: i32) -> Error {
        proc::Error::Io { path: "/proc/7/maps".into(), source: io::Error::from_raw_os_error(errno) }.into()
    }

    #[test]
    fn what_follows_from_an_error() {
        let watched = Error::Watched { pid: 7, holder: 8, command: "isotherm top".into() };
        let table = [
            (Error::Gone(7), Gone),
            (watched, Failed),
            (lock(EMFILE), Shortage),
            (lock(ENFILE), Shortage),
            (lock(ENOENT), Gone),
            (lock(ESRCH), Gone),
            (lock(EACCES), Failed),
            (proc::Error::Gone { path: "/proc/7".into() }.into(), Gone),
            (of_proc(EMFILE), Shortage),
            (of_proc(EACCES), Failed),
        ];
        for (error, expected) in table {
            assert_eq!(error.kind(), expected, "{error}");
            assert_eq!((error.is_gone(), error.is_shortage()), (expected == Gone, expected == Shortage), "{error}");
        }
    }

    #[test]
    fn an_error_of_a_source_keeps_its_kind() {
        for kind in [Gone, Replaced, Busy, Shortage, Failed] {
            let error = Error::from(SourceError::new(kind, "as the source says"));
            assert_eq!((error.kind(), error.to_string()), (kind, "as the source says".to_owned()));
        }
    }
}
