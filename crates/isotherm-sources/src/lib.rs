//! Where access reports come from: one trait, and its back ends.
//!
//! `isotherm-monitor` asks, `isotherm-heat` understands the answers; a source knows how accessed bits are read and cleared on
//! this machine and has no policy. Adding one means implementing [`AccessSource`] in a module of its own here.
//!
//! - [`page_table`]: page by page, through BPF. The default where it can be had.
//! - [`referenced`]: mapping by mapping, through `clear_refs` and `smaps`. Needs no privilege.
//! - [`damon`]: regions, as the kernel's own monitor finds them. Where nobody else uses it.
//! - [`perf`]: sampled accesses with addresses, as perf events report them. [`fused`] has them beside page tables.
//! - [`replay`]: a recording or a made-up history. Needs nothing.
//!
//! Beside them, [`mglru`] reads what the kernel's own LRU knows of pages, as hints: no source, for it has no accessed bits.

#![forbid(unsafe_code)]

pub mod choose;
pub mod damon;
pub mod fused;
pub mod mglru;
pub mod page_table;
pub mod perf;
mod process;
pub mod referenced;
pub mod replay;
mod resident;
mod time;

pub use time::{Clock, RealClock, VirtualClock};

use isotherm_heat::{Access, BlockBits, Granularity, Mapping, Mask, Ns, Resident, Silence, TargetId, ToldRegion};
use isotherm_sys::descriptors;
use isotherm_sys::perf::RingError;
use isotherm_units::{AddrRange, BlockNo};
use std::io;

/// A way to learn which memory of a process is accessed.
///
/// All methods but [`AccessSource::describe`] name a process that was attached. An error of kind [`Error::is_gone`] means that
/// there is nothing more to learn of that process, which is a normal event.
pub trait AccessSource {
    /// What it is and what is lost with it.
    fn describe(&self) -> Description;

    /// Begins to watch process `pid`. Returns who it is and its name.
    fn attach(&mut self, pid: u32) -> Result<(TargetId, String), Error>;

    /// The cgroup of a process that was attached, where the source is the one to know: its processes are not this machine's.
    fn cgroup_of(&self, _pid: u32) -> Option<String> {
        None
    }

    /// Ends watching it. Unknown pids are ignored.
    fn detach(&mut self, pid: u32);

    /// What is mapped and populated now. Cost follows the number of mappings and page tables, not of pages.
    fn layout(&mut self, pid: u32) -> Result<Layout, Error>;

    /// Reads accessed bits. `blocks` is sorted; a source of [`Granularity::Mapping`] reads all mappings instead, and one of
    /// [`Granularity::Region`] tells the regions that it has found last, again if there are no newer ones.
    ///
    /// `sink` is told the time and what was found, in order. [`Progress::answered`] says how many blocks were; the rest could
    /// not be read now and may be asked for again.
    fn read(&mut self, pid: u32, blocks: &[BlockNo], sink: &mut Sink<'_>) -> Result<Progress, Error>;

    /// Clears the accessed bits of `blocks` (sorted), without reaching others.
    ///
    /// The progress is that of reading back what was cleared.
    fn clear(
        &mut self,
        pid: u32,
        blocks: &[BlockNo],
        sink: &mut dyn FnMut(Ns, BlockNo, Cleared),
    ) -> Result<Progress, Error>;

    /// Clears the accessed bits of the whole process, also in `stuck`, where [`AccessSource::clear`] left some. The target may
    /// stall, and what was accessed but not read is lost: read `all` of it just before.
    fn clear_process(&mut self, pid: u32, stuck: &[BlockNo], all: &[BlockNo]) -> Result<ClearedProcess, Error>;

    /// Of the pages of `blocks` that are mapped by several processes, calls `each` with the frame, if it may be known. A source that
    /// knows of none tells of none.
    fn shared_frames(
        &mut self,
        _pid: u32,
        _blocks: &[BlockNo],
        _each: &mut dyn FnMut(Option<u64>),
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Hands over the accesses of `pid` that were reported since the last call, in no order of time. A source that is told of
    /// none ([`Accesses::None`]) hands over none. Still answers for a process that has just ended.
    fn accesses(&mut self, _pid: u32, _sink: &mut dyn FnMut(Access)) -> Result<Listened, Error> {
        Ok(Listened::default())
    }

    /// What has become of reports so far, of all processes.
    fn reports(&self) -> Reports {
        Reports::default()
    }

    /// What people should know and was not told yet, a sentence each.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Receives what a read finds.
pub type Sink<'a> = dyn FnMut(Ns, Report) + 'a;

/// What a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name, as in `--source NAME`.
    pub name: &'static str,
    /// How fine it sees.
    pub granularity: Granularity,
    /// Whether accesses are reported to it.
    pub accesses: Accesses,
    /// Whether a clear reaches other processes than the one it is for.
    pub clears_others: bool,
    /// A sentence for people: how it works here, and what is lost.
    pub note: String,
}

/// Whether a source is told of accesses as they happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accesses {
    /// It is not: it has to look.
    #[default]
    None,
    /// That is all it has, and that is what it means if nothing is told.
    Only(Silence),
    /// Beside what it finds by looking.
    Beside(Silence),
}

impl Accesses {
    /// What it means that nothing is told of a page; `None` if nothing ever is.
    pub const fn silence(self) -> Option<Silence> {
        match self {
            Accesses::None => None,
            Accesses::Only(silence) | Accesses::Beside(silence) => Some(silence),
        }
    }
}

/// For how long, and how much of the time, reports were listened to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Listened {
    /// Until when.
    pub until: Ns,
    /// The share of the time of late in which the event was on and not waiting for its turn, 0 to 1.
    pub share: f64,
    /// How many events a report stands for, where that is known beforehand.
    pub weight: Option<u32>,
    /// How often the process was interrupted for it since the last call, reports that told of no access included.
    pub interrupts: u64,
}

/// What has become of reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// Samples read.
    pub samples: u64,
    /// Samples that were lost, told to be or missing by the event's own count.
    pub lost: u64,
    /// How often the event has happened.
    pub events: u64,
}

/// What is mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Blocks with a page table or a huge page, sorted.
    pub blocks: Vec<BlockNo>,
    /// Mappings, sorted.
    pub mappings: Vec<Mapping>,
    /// How much of each mapping is resident, sorted; only of sources that are told of accesses and see no pages.
    pub resident: Vec<Resident>,
}

/// One finding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Report {
    /// Bits of a block.
    Block(BlockNo, BlockBits),
    /// A block whose tables could not be read: nothing is known, and it is to be asked for again.
    Failed(BlockNo),
    /// Counts of a mapping.
    Mapping {
        /// Its addresses.
        range: AddrRange,
        /// Pages present.
        resident_pages: u64,
        /// Pages of those accessed since last cleared.
        young_pages: u64,
        /// Pages of those on huge pages.
        huge_pages: u64,
    },
    /// A region that the source has found, as it was at the time that is told with it.
    Region(ToldRegion),
}

/// How a read went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Blocks answered, from the front of the list.
    pub answered: usize,
    /// Page-table entries read.
    pub entries: u64,
    /// Reads of page tables that failed: the blocks were left out, and the result is suspect.
    pub read_errors: u64,
    /// The longest time the map of the target was locked in one piece.
    pub longest_hold_ns: Ns,
}

/// What clearing one block came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// Done, but for these pages, which several processes map or which are locked.
    Except(Mask),
    /// No way to clear this block exists here (hugetlb, device memory).
    Refused,
}

/// What clearing a whole process came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearedProcess {
    /// When it was done.
    pub at: Ns,
    /// How long the target's map was locked for writing: its page faults waited.
    pub stall_ns: Ns,
    /// Whether the TLB was flushed after: if not, what stays in it looks idle.
    pub flushed: bool,
    /// The blocks that were cleared: all of them, or those of files and shared memory.
    pub blocks: Vec<BlockNo>,
    /// Blocks of which some pages may have been cleared, and it is not known which.
    pub partly: Vec<BlockNo>,
}

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
    /// The process's memory map was locked for so long that nothing could be read: ask again later.
    #[error("the memory map of process {0} is locked by the process itself; try again")]
    Busy(u32),
    /// The process has no memory of its own.
    #[error("process {0} has no user memory (a kernel thread or a zombie)")]
    NoMemory(u32),
    /// Nearly all file descriptors that this process may have are in use: ask again later.
    #[error(
        "process {pid} waits for file descriptors: of {limit} all but a reserve are in use; raise the limit (ulimit -n, LimitNOFILE= of a unit)"
    )]
    NoDescriptors {
        /// The process.
        pid: u32,
        /// `RLIMIT_NOFILE`.
        limit: u64,
    },
    /// Another monitor watches the process.
    #[error(
        "process {pid} is watched by process {holder} already ({command}); each would take accesses from the other: end that one, ask it \
         (`isotherm status`), or watch beside it with --beside"
    )]
    Watched {
        /// The process.
        pid: u32,
        /// The monitor.
        holder: u32,
        /// Its command line.
        command: String,
    },
    /// A privilege is missing.
    #[error("{attempted}: permission denied; {advice}")]
    Denied {
        /// What was attempted, on what.
        attempted: String,
        /// Which privilege it takes.
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
    /// Its reports cannot be read.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// There is no such event here.
    #[error(transparent)]
    Event(#[from] isotherm_sys::perf::named::NamedError),
    /// The multi-generation LRU cannot be used, or failed.
    #[error(transparent)]
    Mglru(#[from] isotherm_sys::lru_gen::Error),
    /// Another system call failed.
    #[error("{attempted}: {source}")]
    Io {
        /// What was attempted, on what.
        attempted: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    /// Whether nothing is wrong with the process, and it can be asked about again later: descriptors are short, of us or of the system.
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

    /// Whether the process (or the program in it) is no more: nothing is wrong, there is just nothing left to watch.
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
