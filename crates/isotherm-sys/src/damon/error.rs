//! Why DAMON cannot be used.

use std::io;
use std::path::PathBuf;

/// Why DAMON cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel lacks something.
    #[error("this kernel has no {missing}; {advice}")]
    Absent {
        /// What it lacks.
        missing: String,
        /// What to do about it.
        advice: String,
    },
    /// Somebody else uses it.
    #[error("DAMON is in use by {by}; leave it to its user and take another source, or have it stopped first")]
    InUse {
        /// Who, as far as known.
        by: String,
    },
    /// Somebody else has changed what we had set up. It was left as found.
    #[error("somebody else has changed DAMON's settings below {} meanwhile; they were left as they are now", path.display())]
    Taken {
        /// Where.
        path: PathBuf,
    },
    /// Permission denied.
    #[error("{attempted}: permission denied; run as root")]
    Denied {
        /// What was attempted, on what.
        attempted: String,
    },
    /// The settings contradict themselves.
    #[error("DAMON would refuse these settings: {0}")]
    Settings(String),
    /// The kernel refused to monitor the targets (`EINVAL`): most often one of them has just ended.
    #[error("the kernel refuses to monitor {targets}: has one of them ended?")]
    Refused {
        /// Which ones.
        targets: String,
    },
    /// Any other failure.
    #[error("{attempted}: {source}")]
    Io {
        /// What was attempted, on what.
        attempted: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn from_io(attempted: String, source: io::Error) -> Error {
        match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => Error::Denied { attempted },
            Some(libc::EBUSY) => Error::InUse { by: format!("somebody who does not show ({attempted}: {source})") },
            _ => Error::Io { attempted, source },
        }
    }
}
