//! Everything that can go wrong with a recording, worded for the person who has to act on it.
//!
//! Used by the writer and the reader. A cause is part of the message and not of the error chain, so that a program
//! which prints the chain does not print it twice. Where a caller may want to distinguish causes, the `io::Error` is a
//! field.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a recording could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory of a new recording could not be created.
    #[error("create recording {}: {error}; {}", path.display(), advice(error))]
    Create {
        /// The recording.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Something else has the name of a new recording.
    #[error("create recording {}: {what}; choose another name, nothing there was touched", path.display())]
    Occupied {
        /// The name that was asked for.
        path: PathBuf,
        /// What was found there.
        what: &'static str,
    },
    /// There is a recording of that name already.
    #[error("create recording {}: a recording is there already; choose another name or ask to overwrite it", path.display())]
    Exists {
        /// The recording.
        path: PathBuf,
    },
    /// The description of the run cannot be stored without loss.
    #[error("create recording {}: the description of the run cannot be stored: {what}", path.display())]
    RunInfo {
        /// The recording.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A segment could not be written. What was written before it stays.
    #[error(
        "write segment {segment} of recording {}: {error}; {} kept and readable, {lost} lost; {}",
        path.display(), counted(*kept, "snapshot"), advice(error)
    )]
    Write {
        /// The recording.
        path: PathBuf,
        /// The number of the segment.
        segment: u64,
        /// Snapshots on disk.
        kept: u64,
        /// Snapshots that were waiting to be written.
        lost: u64,
        /// What the system said.
        error: io::Error,
    },
    /// An earlier write failed, so the writer accepts no more snapshots: a recording has no gaps.
    #[error(
        "write recording {}: an earlier write failed, and nothing was added since; {} kept and readable; \
         start a new recording", path.display(), counted(*kept, "snapshot")
    )]
    Stopped {
        /// The recording.
        path: PathBuf,
        /// Snapshots on disk.
        kept: u64,
    },
    /// A snapshot has the same process twice, so its rows could not be distinguished.
    #[error("write recording {}: snapshot {snapshot} has process {pid} twice; it was not added", path.display())]
    DuplicateTarget {
        /// The recording.
        path: PathBuf,
        /// Index that the snapshot would have had.
        snapshot: u64,
        /// The process.
        pid: u32,
    },
    /// The recording could not be listed, or one of its files could not be read.
    #[error("open recording {}: {error}; check the name and the permissions", path.display())]
    Open {
        /// The recording or the file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Isotherm did not write what is there.
    #[error("open {}: not an Isotherm recording: {what}; give the directory that `-o` named", path.display())]
    NotARecording {
        /// What was opened.
        path: PathBuf,
        /// Why it is not a recording.
        what: String,
    },
    /// The recording is from a later Isotherm.
    #[error(
        "open {}: the recording has format version {found} and this Isotherm reads up to version {supported}; \
         update Isotherm to read it", path.display()
    )]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        found: String,
        /// The newest version that can be read.
        supported: u32,
    },
    /// A file is cut off, changed or inconsistent.
    #[error("read {}: damaged: {what}; the other segments can still be read", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// It is a recording, but none of its segments is complete.
    #[error("open recording {}: no segment of it can be read: {what}; restore it from a copy", path.display())]
    NothingLeft {
        /// The recording.
        path: PathBuf,
        /// What is wrong with the newest segment.
        what: String,
    },
    /// The contents of the file take more memory than a file of its size should.
    #[error(
        "read {}: it would take more than {limit} of memory, which no recording of this size should; if you know where it is \
         from, set ISOTHERM_MAX_MEMORY to allow more, such as ISOTHERM_MAX_MEMORY=4GiB", path.display()
    )]
    TooMuchMemory {
        /// The recording or the file.
        path: PathBuf,
        /// The limit.
        limit: isotherm_units::Bytes,
    },
    /// A recording by damo could not be understood.
    #[error("read {} as a recording by damo: {what}; {advice}", path.display())]
    Damo {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// A file for damo could not be written. A file that had this name before is unchanged.
    #[error("write {} for damo: {error}; {}", path.display(), advice(error))]
    DamoWrite {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// There is a file of that name already.
    #[error("write {} for damo: the file is there already; choose another name or ask to overwrite it", path.display())]
    DamoExists {
        /// The file.
        path: PathBuf,
    },
    /// The options cannot be expressed in damo's terms.
    #[error("write {} for damo: {what}", path.display())]
    DamoOptions {
        /// The file.
        path: PathBuf,
        /// What cannot be expressed, and what can.
        what: String,
    },
}

impl Error {
    /// Whether a file is not there: it was removed since its name was read.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Error::Open { error, .. } if error.kind() == ErrorKind::NotFound)
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "free space on that disk or record to another one"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "choose a directory that you may write to",
        ErrorKind::NotFound => "check that the directory exists and was not removed or unmounted",
        _ => "check that disk or record to another one",
    }
}

/// `1 snapshot`, `2 snapshots`.
pub(crate) fn counted(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
