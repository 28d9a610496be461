//! Why frames, nodes or caches cannot be read.

use crate::direct_mapped::CacheError;
use crate::report::SkippedProcess;
use isotherm_sys::proc;
use std::io;
use std::path::PathBuf;

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel hides frame numbers from this process.
    #[error(
        "frame numbers in /proc/PID/pagemap are hidden from you: run as root, or with CAP_SYS_ADMIN in the first user namespace"
    )]
    Hidden,
    /// Not even our own pagemap can be read.
    #[error("read /proc/self/pagemap")]
    OwnPagemap(#[source] io::Error),
    /// The frames that hold only zeros cannot be found.
    #[error("find the frames of pages of zeros")]
    ZeroFrames(#[source] io::Error),
    /// The frames of a process cannot be read.
    #[error("read /proc/{pid}/pagemap{}", advice(source))]
    Pagemap {
        /// The process.
        pid: u32,
        /// The cause.
        source: io::Error,
    },
    /// Another file of a process cannot be read.
    #[error(transparent)]
    Proc(#[from] proc::Error),
    /// A process that the user named does not exist.
    #[error("there is no process {0}: it has ended, or never was")]
    NoSuch(u32),
    /// A thread of the kernel.
    #[error("process {0} has no user memory: it is a kernel thread")]
    KernelThread(u32),
    /// It has ended and is a zombie.
    #[error("process {0} has ended")]
    Ended(u32),
    /// It has ended since it was listed, and its pid was reused.
    #[error("process {0} has ended, and another one has its pid")]
    Replaced(u32),
    /// It ended or called exec while it was read.
    #[error("process {0} ended or called exec while it was read; none of its frames are counted")]
    CutShort(u32),
    /// Nothing is mapped in it.
    #[error("process {0} has no user memory, or has ended")]
    NoMemory(u32),
    /// The user asked to stop.
    #[error("stopped before all frames were read")]
    Stopped,
    /// No process has memory.
    #[error("no frames were found: no process has user memory")]
    NoProcess,
    /// All processes were skipped.
    #[error("no frames were found; process {}: {}", .0.pid, .0.why)]
    NoFrames(SkippedProcess),
    /// The machine reports no direct-mapped cache.
    #[error("this machine reports no direct-mapped memory-side cache")]
    NoCache,
    /// The machine reports a cache whose kind or size is unclear.
    #[error(
        "no memory-side cache of this machine is known to be direct-mapped with a known size (node {node}: {unclear})"
    )]
    UnclearCache {
        /// The first node that has one.
        node: u32,
        /// What is unclear about it.
        unclear: String,
    },
    /// The machine reports a cache with an impossible size.
    #[error("take the memory-side cache of node {node}")]
    Cache {
        /// The node.
        node: u32,
        /// What is wrong with it.
        source: CacheError,
    },
    /// The node of a frame cannot be found.
    #[error("read {}, which gives the node of a frame", file.display())]
    Zones {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn pagemap(pid: u32, source: io::Error) -> Error {
        Error::Pagemap { pid, source }
    }

    /// The error and its causes, on one line.
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        text
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ": run as root, or with CAP_SYS_ADMIN and CAP_SYS_PTRACE",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_what_was_attempted() {
        let refused = Error::pagemap(7, io::ErrorKind::PermissionDenied.into());
        let advice = "read /proc/7/pagemap: run as root, or with CAP_SYS_ADMIN and CAP_SYS_PTRACE: permission denied";
        assert_eq!(refused.with_causes(), advice);
        assert_eq!(Error::Ended(7).with_causes(), "process 7 has ended");
    }
}
