//! Errors of pools. The messages say what to do.

use crate::backing::HugeSize;
use isotherm_frames::{
    AddError, AllocError, ConfigError, FrameNo, FrameRange, FreeError, Interval, OfflineError, PcpError, Watermarks,
    zone::Inconsistent,
};
use isotherm_units::Bytes;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a pool did not do what was requested. Nothing has changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// An allocation failed.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// A free was refused.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// A zone with this configuration is not possible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Per-CPU lists with this configuration are not possible.
    #[error(transparent)]
    PcpLists(#[from] PcpError),
    /// A range was not added.
    #[error(transparent)]
    Add(#[from] AddError),
    /// A range cannot be removed.
    #[error(transparent)]
    Offline(#[from] OfflineError),
    /// The metadata contradicts itself.
    #[error(transparent)]
    Inconsistent(#[from] Inconsistent),
    /// This process is a child of the one that made the pool.
    #[error(
        "this pool belongs to the process that forked this one; create one here, or, if its memory is not shared, \
         fork within Pool::while_quiet"
    )]
    Forked,
    /// The pool has frame numbers only.
    #[error("this pool has frame numbers and no memory behind them; use alloc_frame")]
    NoMemory,
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// What was attempted, and on what.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
    /// There are not enough huge pages.
    #[error(
        "map {wanted} huge pages of {size}: {}; raise {}/nr_hugepages, or allow small pages in their place",
        counted(*free, *reserved), pool.display()
    )]
    HugePages {
        /// Number of pages requested.
        wanted: u64,
        /// Their size.
        size: HugeSize,
        /// Free pages by the kernel's count; `None` if it cannot be read, for example without sysfs.
        free: Option<u64>,
        /// How many of the free pages are reserved for others.
        reserved: Option<u64>,
        /// The sysfs directory of the kernel's pool that they come from.
        pool: PathBuf,
    },
    /// This kernel has no huge pages of that size.
    #[error("map huge pages of {size}: this kernel or processor has none: {source}; use another size, or small pages")]
    NoHugeSize {
        /// The size.
        size: HugeSize,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a DAX device.
    #[error("{}: not a DAX device: {why}; give a device such as /dev/dax0.0, see `daxctl list`", path.display())]
    NotDax {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A size or address that the backing does not support.
    #[error("{what}: {} bytes is not a multiple of {unit}", value.0)]
    Unaligned {
        /// What has this value.
        what: &'static str,
        /// Its value.
        value: Bytes,
        /// The unit that it must be a multiple of.
        unit: Bytes,
    },
    /// The memory does not fit into the span, or one of them is 0, or the span of a DAX device is not its size.
    #[error(
        "a pool of {bytes} in a span of {span}: give a span that is at least as large, of a DAX device none, and neither may be 0"
    )]
    Span {
        /// Bytes of memory.
        bytes: Bytes,
        /// Bytes of the span.
        span: Bytes,
    },
    /// Its frame numbers would be too high.
    #[error("a pool from frame {first:?} on in a span of {span}: frame numbers end at 2^52; give a lower first frame")]
    FirstFrame {
        /// Its first frame.
        first: FrameNo,
        /// Bytes of the span.
        span: Bytes,
    },
    /// Per-CPU lists for more CPUs than any machine has.
    #[error(
        "a pool with per-CPU lists for {cpus} CPUs: the limit is {most}; give the highest possible CPU number plus one"
    )]
    Cpus {
        /// Number of CPUs requested.
        cpus: u32,
        /// The largest possible number.
        most: u32,
    },
    /// Watermarks that are not in ascending order.
    #[error(
        "a pool with the watermarks min {}, low {} and high {}: each has to be at least the one before",
        .0.min, .0.low, .0.high
    )]
    Watermarks(Watermarks),
    /// The interval of the periodic drain is too short.
    #[error(
        "drain the per-CPU lists of a pool every {} ns: {} ns is the shortest interval; a second, {} ns, is usual",
        interval.ns(), least.ns(), Interval::SECOND.ns()
    )]
    Interval {
        /// The requested interval.
        interval: Interval,
        /// The shortest interval allowed.
        least: Interval,
    },
    /// The range is not within the span.
    #[error("remove {range:?} from a pool, or keep it: it is not within the span {span:?}")]
    OutsideSpan {
        /// The range that was to be removed or kept.
        range: FrameRange,
        /// The span of the pool.
        span: FrameRange,
    },
}

fn counted(free: Option<u64>, reserved: Option<u64>) -> String {
    match (free, reserved) {
        (Some(free), Some(reserved)) => format!("{free} are free and {reserved} of those are reserved for others"),
        _ => "there are too few, and how many are free cannot be read".into(),
    }
}

impl Error {
    pub(crate) fn system(doing: impl Into<String>, source: io::Error) -> Error {
        Error::System { doing: doing.into(), source }
    }
}
