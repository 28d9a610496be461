//! Why frames, nodes or caches cannot be read.

use crate::direct_mapped::CacheError;
use crate::report::LeftOut;
use isotherm_sys::proc;
use std::io;
use std::path::PathBuf;

/// Why there is nothing to report on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel shows us no frame numbers.
    #[error(
        "frame numbers in /proc/PID/pagemap are hidden from you: run as root, or with CAP_SYS_ADMIN in the first user namespace"
    )]
    Hidden,
    /// Not even our own.
    #[error("read /proc/self/pagemap")]
    OwnPagemap(#[source] io::Error),
    /// Which frames hold nothing but zeros cannot be found out.
    #[error("find the frames of pages of zeros")]
    ZeroFrames(#[source] io::Error),
    /// The frames of a process cannot be read.
    #[error("read /proc/{pid}/pagemap{}", advice(source))]
    Pagemap {
        /// The process.
        pid: u32,
        /// Why not.
        source: io::Error,
    },
    /// Something else of a process cannot be read.
    #[error(transparent)]
    Proc(#[from] proc::Error),
    /// A process that was named is none.
    #[error("there is no process {0}: it has ended, or never was")]
    NoSuch(u32),
    /// A thread of the kernel.
    #[error("process {0} has no user memory: it is a kernel thread")]
    KernelThread(u32),
    /// It has ended and was not waited for.
    #[error("process {0} has ended")]
    Ended(u32),
    /// It has ended since it was listed.
    #[error("process {0} has ended, and another one has its pid")]
    Replaced(u32),
    /// It ended while it was read.
    #[error("process {0} ended (or exec'd) while it was read; nothing of it counts")]
    CutShort(u32),
    /// Nothing is mapped in it.
    #[error("process {0} has no user memory, or has ended")]
    NoMemory(u32),
    /// Asked to end.
    #[error("stopped before all frames were read")]
    Stopped,
    /// None of the processes has memory.
    #[error("no frames were found: no process with memory of its own")]
    NoProcess,
    /// All processes were left out.
    #[error("no frames were found; process {}: {}", .0.pid, .0.why)]
    NoFrames(LeftOut),
    /// There is no cache that frames could be held against.
    #[error("this machine tells of no memory-side cache that is direct-mapped")]
    NoCache,
    /// There may be one.
    #[error(
        "of no memory-side cache that this machine tells of it is known that it is direct-mapped and of which size (node {node}: {unclear})"
    )]
    UnclearCache {
        /// The first node that has one.
        node: u32,
        /// What is unclear about it.
        unclear: String,
    },
    /// A cache of the machine is of a size that no cache has.
    #[error("take the memory-side cache of node {node}")]
    Cache {
        /// The node.
        node: u32,
        /// What is wrong with it.
        source: CacheError,
    },
    /// Which node a frame lies on cannot be found out.
    #[error("read {}, which tells the node of a frame", file.display())]
    Zones {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn pagemap(pid: u32, source: io::Error) -> Error {
        Error::Pagemap { pid, source }
    }

    /// It and its causes, on one line.
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
