//! The interface between the engine and the sources of access data: what the engine asks, and the types of the answers.
//!
//! A source is an [`AccessSource`], and in addition implements only what it can do: [`PageSource`] if it reads and
//! clears the accessed bits of pages, [`MappingSource`] if it counts them by mapping, [`RegionSource`] if it finds
//! regions by itself, and [`ReportSource`] if single accesses are reported to it. A source can be two of these, such as
//! page tables with samples. Trackers ([`crate::track`]) ask for the one that they need. The back ends are in
//! `isotherm-sources`. A modelled host is another, and so is the fake source of a test.
//!
//! The traits are defined here, with their callers, and their error is opaque. So the engine, and what is built on it,
//! knows no system call.

mod error;

pub use error::{SourceError, SourceErrorKind};

use crate::{Access, Granularity, KernelRegion, Mapping, MappingBits, Mask, Ns, PmdBits, Resident, Silence, TargetId};
use isotherm_units::{Bytes, PmdNo};

/// The result of asking a source.
pub type SourceResult<T> = Result<T, SourceError>;

/// A way to learn which memory of a process is accessed.
///
/// All methods but [`AccessSource::describe`] name a process that was attached. An error of kind
/// [`SourceError::is_gone`] means that there is nothing more to learn of that process. That is a normal event.
pub trait AccessSource {
    /// What it is, and what it cannot show.
    fn describe(&self) -> Description;

    /// Begins to monitor process `pid`.
    fn attach(&mut self, pid: u32) -> SourceResult<Attached>;

    /// Stops monitoring it. Unknown pids are ignored.
    fn detach(&mut self, pid: u32);

    /// What is mapped and populated now. Cost follows the number of mappings and page tables, not of pages.
    fn layout(&mut self, pid: u32) -> SourceResult<Layout>;

    /// Messages for people that were not returned yet, a sentence each.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Itself, if it reads and clears accessed bits page by page.
    fn as_pages(&mut self) -> Option<&mut dyn PageSource> {
        None
    }

    /// Itself, if it counts accessed bits mapping by mapping.
    fn as_mappings(&mut self) -> Option<&mut dyn MappingSource> {
        None
    }

    /// Itself, if it finds regions.
    fn as_regions(&mut self) -> Option<&mut dyn RegionSource> {
        None
    }

    /// Itself, if accesses are reported to it.
    fn as_reports(&mut self) -> Option<&mut dyn ReportSource> {
        None
    }
}

/// Accessed bits, page by page.
pub trait PageSource {
    /// Reads the accessed bits of `pmds` (sorted).
    ///
    /// `sink` gets the time and what was found, each huge range once, in any order within a pass. It gets `None` for a huge range
    /// whose tables could not be read: nothing is known of it, and it is to be asked for again. [`Progress::answered`]
    /// is the number of huge ranges answered. The rest could not be read now and may be asked for again.
    fn read(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress>;

    /// Clears the accessed bits of `pmds` (sorted), and of no other huge ranges.
    ///
    /// `sink` gets the time and the outcome, in the order of `pmds`. After an error, the huge ranges that it did not get
    /// are at the end of the list. The progress is that of its reads: of what was cleared, and just before that.
    fn clear(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress>;

    /// Clears the accessed bits of the whole process, including those in `stuck` that [`PageSource::clear`] did not
    /// reach. The target may stall. Accesses that were not read yet are lost, so read `all` of it just before. Where that is not
    /// permitted, nothing is cleared, and that is no error: the rest of the target is still measured.
    fn clear_process(&mut self, pid: u32, stuck: &[PmdNo], all: &[PmdNo]) -> SourceResult<ClearedProcess>;

    /// Calls `each` for every page of `pmds` that several processes map: with its frame, or with `None` if the frame
    /// may not be known. Returns whether it can find such pages.
    fn shared_frames(&mut self, _pid: u32, _pmds: &[PmdNo], _each: &mut dyn FnMut(Option<u64>)) -> SourceResult<bool> {
        Ok(false)
    }
}

/// Accessed bits, counted mapping by mapping.
pub trait MappingSource {
    /// Counts the accessed bits of every mapping with memory in it.
    fn count(&mut self, pid: u32) -> SourceResult<Counted>;

    /// Clears the accessed bits of the whole process. The target may stall.
    fn clear(&mut self, pid: u32) -> SourceResult<Clear>;
}

/// Regions found by a monitor in the kernel.
pub trait RegionSource {
    /// The newest regions that it has found, the same again if there are no newer ones. `None` if it has none yet.
    fn regions(&mut self, pid: u32) -> SourceResult<Option<Aggregation>>;
}

/// Accesses that are reported as they happen.
pub trait ReportSource {
    /// Passes on the accesses of `pid` that were reported since the last call, in no order of time. Still answers for a
    /// process that has just ended.
    fn accesses(&mut self, pid: u32, sink: &mut dyn FnMut(Access)) -> SourceResult<EnabledTime>;

    /// Totals of reports so far, for all processes.
    fn reports(&mut self) -> Reports;
}

/// Receives what a read finds, and when.
pub type BitsSink<'a> = dyn FnMut(Ns, PmdNo, Option<PmdBits>) + 'a;

/// Receives the outcome of a clear, and when.
pub type ClearedSink<'a> = dyn FnMut(Ns, PmdNo, Cleared) + 'a;

/// What a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name, as in `--source NAME`.
    pub name: &'static str,
    /// The granularity of the source.
    pub granularity: Granularity,
    /// Whether accesses are reported to it.
    pub accesses: Accesses,
    /// Whether a clear reaches other processes than its target.
    pub clears_others: bool,
    /// A sentence for people: how it works here, and what it cannot show.
    pub note: String,
}

impl Description {
    /// Whether it clears accessed bits of processes. Two such sources would take the bits from each other.
    pub fn clears(&self) -> bool {
        self.granularity != Granularity::Region && !matches!(self.accesses, Accesses::Only(_))
    }
}

/// Whether accesses are reported to a source as they happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accesses {
    /// They are not. It has to check.
    #[default]
    None,
    /// Reports are all it has. The value says what the absence of reports means.
    Only(Silence),
    /// Reports in addition to what it finds by checks.
    Beside(Silence),
}

impl Accesses {
    /// What the absence of reports about a page means. `None` if accesses are never reported.
    pub const fn silence(self) -> Option<Silence> {
        match self {
            Accesses::None => None,
            Accesses::Only(silence) | Accesses::Beside(silence) => Some(silence),
        }
    }
}

/// A process that was attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Which process.
    pub id: TargetId,
    /// Its name.
    pub comm: String,
    /// Its cgroup, if only the source can know it: its processes are not this machine's.
    pub cgroup: Option<String>,
}

impl Attached {
    /// A process of this machine.
    pub fn here(id: TargetId, comm: String) -> Attached {
        Attached { id, comm, cgroup: None }
    }
}

/// What is mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Huge ranges with a page table or a huge page, sorted.
    pub pmds: Vec<PmdNo>,
    /// Mappings, sorted.
    pub mappings: Vec<Mapping>,
    /// How much of each mapping is resident, sorted. Only from sources to which accesses are reported and that see no
    /// pages.
    pub resident: Vec<Resident>,
    /// Resident memory in all, if the source has looked. Only those that read pages use it, to find out that memory was freed.
    pub rss: Option<Bytes>,
}

/// For how long, and for what share of that time, the event was enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EnabledTime {
    /// Until when.
    pub until: Ns,
    /// The recent share of time in which the event was on and not waiting for its multiplexing slot, 0 to 1.
    pub share: f64,
    /// How many events a report stands for, if that is known beforehand.
    pub weight: Option<u32>,
    /// Time that interrupts for reports have taken from the process since the last call. Includes reports of no access.
    pub interrupts_ns: f64,
}

/// Totals of reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// Samples read.
    pub samples: u64,
    /// Samples that were lost: reported as lost, or missing by the event's own count.
    pub lost: u64,
    /// How often the event has happened.
    pub events: u64,
}

/// How a read went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Huge ranges answered, from the front of the list.
    pub answered: usize,
    /// Page-table entries read.
    pub entries: u64,
    /// Reads of page tables that failed. Their huge ranges were skipped, and the result is suspect.
    pub read_errors: u64,
    /// The longest time the map of the target was locked in one piece.
    pub longest_hold_ns: Ns,
}

impl Progress {
    /// Takes in the reads of `other`, but not what it has answered.
    pub fn add_reads(&mut self, other: Progress) {
        self.entries += other.entries;
        self.read_errors += other.read_errors;
        self.longest_hold_ns = self.longest_hold_ns.max(other.longest_hold_ns);
    }
}

/// The outcome of clearing one huge range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// Done, except for these pages, which several processes map or which are locked.
    Except(Mask),
    /// This huge range cannot be cleared here (hugetlb, device memory).
    Refused,
}

/// A clear of a whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clear {
    /// When it was done.
    pub at: Ns,
    /// How long the target's map was locked for writing. Its page faults waited for that time.
    pub stall_ns: Ns,
    /// Whether the TLB was flushed afterwards. If not, pages that stay in it look idle.
    pub flushed: bool,
}

/// The outcome of clearing a whole process page by page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClearedProcess {
    /// How it went.
    pub clear: Clear,
    /// The huge ranges that were cleared: all of them, or those of files and shared memory.
    pub pmds: Vec<PmdNo>,
    /// Huge ranges of which only these pages were cleared: those of files, beside private memory.
    pub partly: Vec<(PmdNo, Mask)>,
}

impl ClearedProcess {
    /// Whether nothing was cleared.
    pub fn is_none(&self) -> bool {
        self.pmds.is_empty() && self.partly.is_empty()
    }
}

/// Accessed bits by mapping at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// When counting began.
    pub at: Ns,
    /// Mappings with memory in them, sorted.
    pub mappings: Vec<MappingBits>,
    /// How counting went.
    pub progress: Progress,
}

/// The regions of one aggregation interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aggregation {
    /// When it ended.
    pub at: Ns,
    /// The regions, in address order.
    pub regions: Vec<KernelRegion>,
}
