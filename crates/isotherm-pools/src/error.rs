//! What can go wrong with a pool, in words that say what to do.

use crate::HugeSize;
use isotherm_frames::{AddError, AllocError, ConfigError, FreeError, OfflineError, SetsError, zone::Inconsistent};
use isotherm_units::Bytes;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a pool did not do what was asked. Nothing has changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No block was handed out.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// A block was not taken back.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// A zone like this cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Per-CPU sets like these cannot be.
    #[error(transparent)]
    Sets(#[from] SetsError),
    /// A range was not added.
    #[error(transparent)]
    Add(#[from] AddError),
    /// A range cannot leave.
    #[error(transparent)]
    Offline(#[from] OfflineError),
    /// The books contradict each other.
    #[error(transparent)]
    Inconsistent(#[from] Inconsistent),
    /// This process is a child of the one that made the pool.
    #[error(
        "this pool belongs to the process that forked this one; make one here, or, if its memory is not shared, \
         fork within Pool::while_quiet"
    )]
    Forked,
    /// The pool has frame numbers only.
    #[error("this pool has frame numbers and no memory behind them; use alloc_frame")]
    NoMemory,
    /// The system refused.
    #[error("{doing}: {source}")]
    System {
        /// What was attempted, and on what.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// There are not enough huge pages.
    #[error(
        "map {wanted} huge pages of {size}: {free} are free and {reserved} of those promised to others; \
         raise {}/nr_hugepages, or allow small pages in their place", pool.display()
    )]
    HugePages {
        /// How many were asked for.
        wanted: u64,
        /// Of what size.
        size: HugeSize,
        /// Free ones, as the kernel counts them.
        free: u64,
        /// How many of those are promised to someone else.
        reserved: u64,
        /// The directory of the pool that they come from.
        pool: PathBuf,
    },
    /// This kernel has no huge pages of that size.
    #[error("map huge pages of {size}: this kernel has none ({} is missing)", pool.display())]
    NoHugeSize {
        /// The size.
        size: HugeSize,
        /// The directory that is not there.
        pool: PathBuf,
    },
    /// The file is no DAX device.
    #[error("{}: no DAX device: {why}; give a device such as /dev/dax0.0, see `daxctl list`", path.display())]
    NotDax {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A size or place that the backing does not have.
    #[error("{what}: {value} is no multiple of {unit}")]
    Unaligned {
        /// What it is.
        what: &'static str,
        /// Its value.
        value: Bytes,
        /// What it has to be a multiple of.
        unit: Bytes,
    },
    /// The pool as asked for has no room for its memory.
    #[error("a pool of {bytes} in a span of {span}: give a span that is at least as large, and neither may be 0")]
    Span {
        /// Bytes of memory.
        bytes: Bytes,
        /// Bytes that were to be reserved.
        span: Bytes,
    },
}

impl Error {
    pub(crate) fn system(doing: impl Into<String>, source: io::Error) -> Error {
        Error::System { doing: doing.into(), source }
    }
}
