//! What can go wrong with a pool, in words that say what to do.

use crate::backing::HugeSize;
use isotherm_frames::{
    AddError, AllocError, ConfigError, FrameNo, FrameRange, FreeError, Interval, OfflineError, SetsError, Watermarks,
    zone::Inconsistent,
};
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
        "map {wanted} huge pages of {size}: {}; raise {}/nr_hugepages, or allow small pages in their place",
        counted(*free, *reserved), pool.display()
    )]
    HugePages {
        /// How many were asked for.
        wanted: u64,
        /// Of what size.
        size: HugeSize,
        /// Free ones, as the kernel counts them; `None` where it cannot be asked, as without sysfs.
        free: Option<u64>,
        /// How many of those are promised to someone else.
        reserved: Option<u64>,
        /// The directory of the pool that they come from.
        pool: PathBuf,
    },
    /// This kernel has no huge pages of that size.
    #[error("map huge pages of {size}: this kernel or processor has none: {source}; use another size, or small pages")]
    NoHugeSize {
        /// The size.
        size: HugeSize,
        /// What the system said.
        source: io::Error,
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
    #[error("{what}: {} bytes is no multiple of {unit}", value.0)]
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
    /// The numbers of its frames would be too high.
    #[error("a pool from frame {first:?} on in a span of {span}: frame numbers end at 2^52; give a lower first frame")]
    FirstFrame {
        /// Its first frame.
        first: FrameNo,
        /// Bytes that were to be reserved.
        span: Bytes,
    },
    /// Sets for more CPUs than any machine has.
    #[error(
        "a pool with sets for {cpus} CPUs: {most} is the most; give the highest CPU number that is possible, plus one"
    )]
    Cpus {
        /// How many were asked for.
        cpus: u32,
        /// How many there can be.
        most: u32,
    },
    /// Watermarks that do not rise.
    #[error(
        "a pool with the watermarks min {}, low {} and high {}: each has to be at least the one before",
        .0.min, .0.low, .0.high
    )]
    Watermarks(Watermarks),
    /// A thread that would keep house without pause.
    #[error(
        "keep house for a pool every {} ns: {} ns is the shortest interval; a second, {} ns, is usual",
        interval.ns(), least.ns(), Interval::SECOND.ns()
    )]
    Interval {
        /// From one turn to the next, as asked for.
        interval: Interval,
        /// The shortest that is taken.
        least: Interval,
    },
    /// Frames that could not be there.
    #[error("take {range:?} out of a pool, or keep it: it is not within the span {span:?}")]
    OutsideSpan {
        /// What was to leave or stay.
        range: FrameRange,
        /// The span of the pool.
        span: FrameRange,
    },
}

fn counted(free: Option<u64>, reserved: Option<u64>) -> String {
    match (free, reserved) {
        (Some(free), Some(reserved)) => format!("{free} are free and {reserved} of those promised to others"),
        _ => "there are too few, and how many are free cannot be read".into(),
    }
}

impl Error {
    pub(crate) fn system(doing: impl Into<String>, source: io::Error) -> Error {
        Error::System { doing: doing.into(), source }
    }
}
