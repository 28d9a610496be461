//! Why a back end could not do what was asked, in its own terms, and how the engine classifies it.

use isotherm_heat::source::{SourceError, SourceErrorKind};
use isotherm_sys::descriptors;
use isotherm_sys::perf::RingError;
use std::io;

/// Why a source could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process has ended.
    #[error("process {0} is not there, or has ended")]
    Gone(u32),
    /// The process executes another program now, or its pid belongs to another.
    #[error("process {0} has executed another program")]
    Replaced(u32),
    /// The process's mmap lock was held for so long that nothing could be read: try again later.
    #[error("the memory map of process {0} is locked by the process itself; try again")]
    Busy(u32),
    /// The process has no memory of its own.
    #[error("process {0} has no user memory (a kernel thread or a zombie)")]
    NoMemory(u32),
    /// Nearly all file descriptors that this process may have are in use: try again later.
    #[error(
        "process {pid} waits for file descriptors: of {limit} all but a reserve are in use; raise the limit (ulimit -n, LimitNOFILE= of a unit)"
    )]
    NoDescriptors {
        /// The process.
        pid: u32,
        /// `RLIMIT_NOFILE`.
        limit: u64,
    },
    /// A privilege is missing.
    #[error("{attempted}: permission denied; {advice}")]
    Denied {
        /// What was attempted, on what.
        attempted: String,
        /// The privilege that it needs.
        advice: &'static str,
    },
    /// Reading `/proc` failed.
    #[error(transparent)]
    Proc(isotherm_sys::proc::Error),
    /// The page-table reader failed.
    #[error(transparent)]
    PageTable(#[from] isotherm_bpf::page_table::Error),
    /// The kernel's DAMON cannot be used.
    #[error(transparent)]
    Damon(#[from] isotherm_sys::damon::Error),
    /// Its reports cannot be found.
    #[error(transparent)]
    Tracepoint(#[from] isotherm_sys::tracepoint::TracepointError),
    /// A perf ring cannot be opened or read.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// There is no such event here.
    #[error(transparent)]
    Event(#[from] isotherm_host::events::NamedError),
    /// The multi-generation LRU cannot be used, or failed.
    #[error(transparent)]
    Mglru(#[from] isotherm_sys::lru_gen::Error),
    /// Another system call failed.
    #[error("{attempted}: {source}")]
    Io {
        /// What was attempted, on what.
        attempted: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// Whether the process is fine and can be tried again later: we or the system are short of descriptors.
    pub fn is_shortage(&self) -> bool {
        let is_short = |e: &io::Error| descriptors::are_short(e);
        match self {
            Error::NoDescriptors { .. } | Error::Ring(RingError::Descriptors { .. }) => true,
            Error::Io { source, .. } | Error::PageTable(isotherm_bpf::page_table::Error::Io { source, .. }) => {
                is_short(source)
            }
            Error::Proc(isotherm_sys::proc::Error::Io { source, .. }) => is_short(source),
            _ => false,
        }
    }

    /// Whether the process (or the program in it) no longer exists. That is no failure: there is nothing left to
    /// monitor.
    pub fn is_gone(&self) -> bool {
        match self {
            Error::Gone(_) | Error::NoMemory(_) => true,
            Error::Proc(e) => e.is_gone(),
            Error::Ring(RingError::Gone { .. }) => true,
            Error::Ring(RingError::Threads(e)) => e.is_gone(),
            // ESRCH, or ENOENT of a file below /proc/PID.
            Error::Io { source, .. } => matches!(source.raw_os_error(), Some(2 | 3)),
            _ => false,
        }
    }
}

impl From<isotherm_sys::proc::Error> for Error {
    fn from(error: isotherm_sys::proc::Error) -> Error {
        Error::Proc(error)
    }
}

impl From<Error> for SourceError {
    fn from(error: Error) -> SourceError {
        let kind = match &error {
            Error::Replaced(_) => SourceErrorKind::Replaced,
            Error::Busy(_) => SourceErrorKind::Busy,
            other if other.is_shortage() => SourceErrorKind::Shortage,
            other if other.is_gone() => SourceErrorKind::Gone,
            _ => SourceErrorKind::Failed,
        };
        SourceError::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SourceErrorKind::{Busy, Failed, Gone, Replaced, Shortage};
    use isotherm_sys::perf::Event;
    use isotherm_sys::proc;

    const ENOENT: i32 = 2;
    const ESRCH: i32 = 3;
    const EACCES: i32 = 13;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const EVENT: Event = Event::PAGE_FAULTS;

    fn io(errno: i32) -> Error {
        Error::Io { attempted: "open /proc/7/pagemap".into(), source: io::Error::from_raw_os_error(errno) }
    }

    fn of_page_tables(errno: i32) -> Error {
        isotherm_bpf::page_table::Error::Io {
            attempted: "open a pidfd".into(),
            source: io::Error::from_raw_os_error(errno),
        }
        .into()
    }

    fn of_proc(errno: i32) -> Error {
        proc::Error::Io { path: "/proc/7/maps".into(), source: io::Error::from_raw_os_error(errno) }.into()
    }

    #[track_caller]
    fn assert_kinds<const N: usize>(table: [(Error, SourceErrorKind); N]) {
        for (error, expected) in table {
            let shown = error.to_string();
            let passed_on = SourceError::from(error);
            assert_eq!(passed_on.kind(), expected, "{shown}");
            assert_eq!(passed_on.to_string(), shown, "what went wrong is shown as it was");
        }
    }

    #[test]
    fn what_follows_from_the_state_of_a_process() {
        assert_kinds([
            (Error::Gone(7), Gone),
            (Error::NoMemory(7), Gone),
            (Error::Replaced(7), Replaced),
            (Error::Busy(7), Busy),
            (Error::NoDescriptors { pid: 7, limit: 64 }, Shortage),
            (Error::Denied { attempted: "read the page tables of 7".into(), advice: "be root" }, Failed),
        ]);
    }

    #[test]
    fn what_follows_from_an_error_of_the_system() {
        assert_kinds([
            (io(EMFILE), Shortage),
            (io(ENFILE), Shortage),
            (io(ENOENT), Gone),
            (io(ESRCH), Gone),
            (io(EACCES), Failed),
            (of_page_tables(EMFILE), Shortage),
            (of_page_tables(EACCES), Failed),
            (of_proc(ENFILE), Shortage),
            (of_proc(EACCES), Failed),
            (proc::Error::Gone { path: "/proc/7/maps".into() }.into(), Gone),
        ]);
    }

    #[test]
    fn what_follows_from_an_error_of_a_ring() {
        let descriptors = RingError::Descriptors { event: EVENT, threads: 3, cpus: 2, needed: 6, limit: 64 };
        assert_kinds([
            (RingError::Gone { event: EVENT }.into(), Gone),
            (RingError::Threads(proc::Error::Gone { path: "/proc/7/task".into() }).into(), Gone),
            (descriptors.into(), Shortage),
            (RingError::Busy { event: EVENT }.into(), Failed),
            (RingError::Unfit { event: EVENT, what: "it has no address" }.into(), Failed),
        ]);
    }
}
