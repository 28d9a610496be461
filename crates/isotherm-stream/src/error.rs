//! Everything that can go wrong with a stream, worded for the person who has to act on it.

use std::io;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a stream could not be opened, written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A snapshot has more rows than a frame may hold.
    #[error("send a snapshot: {rows} rows of {table}, more than {limit}; watch fewer processes or lower --max-regions")]
    TooManyRows {
        /// The table.
        table: &'static str,
        /// How many rows.
        rows: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// A snapshot takes more bytes than a frame may hold.
    #[error("send a snapshot: {bytes} bytes, more than {limit}; watch fewer processes or lower --max-regions")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The allowed size.
        limit: usize,
    },
    /// Arrow refused the rows of a snapshot.
    #[error("send a snapshot: {what}; this is a bug, please report it")]
    Encode {
        /// What it said.
        what: String,
    },
    /// The bytes are not a stream, or are damaged.
    #[error("read the stream of a monitor: {what}; is the other end an `isotherm` of this version?")]
    Damaged {
        /// What is wrong with them.
        what: String,
    },
    /// The stream has a newer major version.
    #[error(
        "read the stream of a monitor: it has version {found}, and this program reads {known}; update this program"
    )]
    Version {
        /// The version of the stream.
        found: u16,
        /// The newest version that is read.
        known: u16,
    },
    /// The stream ended within a frame.
    #[error("read the stream of a monitor: it ended in the middle of {what}; the monitor was stopped, start it again")]
    Truncated {
        /// What was being read.
        what: &'static str,
    },
    /// Reading failed.
    #[error("read the stream of a monitor: {0}")]
    Read(io::Error),
    /// The socket could not be opened.
    #[error("listen at {}: {what}", path.display())]
    Listen {
        /// Its path.
        path: PathBuf,
        /// What was attempted, what the system said, and what to do.
        what: String,
    },
    /// The thread that writes to clients could not be started, or a socket not be prepared.
    #[error("send snapshots: {what}: {error}")]
    Send {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl Error {
    pub(crate) fn damaged(what: impl Into<String>) -> Error {
        Error::Damaged { what: what.into() }
    }
}
