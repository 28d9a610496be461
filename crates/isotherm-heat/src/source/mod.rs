//! The seam between the engine and whatever tells it of accesses: what the engine asks, and in which words it is answered.
//!
//! A source is an [`AccessSource`], and implements beside it only what it can do: [`PageSource`] where it reads and clears the
//! accessed bits of pages, [`MappingSource`] where it counts them by mapping, [`RegionSource`] where it finds regions by itself, and
//! [`ReportSource`] where single accesses are reported to it. One can be two of these, as page tables with samples beside them are.
//! Trackers ([`crate::track`]) ask for the one that they need. The back ends are in `isotherm-sources`; a modelled host is another,
//! and so is the made-up source of a test.
//!
//! The traits stand with who calls them, and their error is opaque: so the engine, and what is built on it, knows no system call.

mod error;

pub use error::{SourceError, SourceErrorKind};

use crate::{Access, BlockBits, Granularity, Mapping, MappingBits, Mask, Ns, Resident, Silence, TargetId, ToldRegion};
use isotherm_units::BlockNo;

/// What asking a source comes to.
pub type Asked<T> = Result<T, SourceError>;

/// A way to learn which memory of a process is accessed.
///
/// All methods but [`AccessSource::describe`] name a process that was attached. An error of kind [`SourceError::is_gone`] means that
/// there is nothing more to learn of that process, which is a normal event.
pub trait AccessSource {
    /// What it is and what is lost with it.
    fn describe(&self) -> Description;

    /// Begins to watch process `pid`.
    fn attach(&mut self, pid: u32) -> Asked<Attached>;

    /// Ends watching it. Unknown pids are ignored.
    fn detach(&mut self, pid: u32);

    /// What is mapped and populated now. Cost follows the number of mappings and page tables, not of pages.
    fn layout(&mut self, pid: u32) -> Asked<Layout>;

    /// What people should know and was not reported yet, a sentence each.
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
    /// Reads the accessed bits of `blocks` (sorted).
    ///
    /// `sink` is given the time and what was found, each block once, in any order within a pass; `None` for a block whose tables could not be read:
    /// nothing is known, and it is to be asked for again. [`Progress::answered`] says how many blocks were answered; the rest could
    /// not be read now and may be asked for again.
    fn read(&mut self, pid: u32, blocks: &[BlockNo], sink: &mut BitsSink<'_>) -> Asked<Progress>;

    /// Clears the accessed bits of `blocks` (sorted), without reaching others.
    ///
    /// `sink` is given the time and what it came to, in the order of `blocks`: after an error those that it was not given are at the end
    /// of the list. The progress is that of reading back what was cleared.
    fn clear(&mut self, pid: u32, blocks: &[BlockNo], sink: &mut ClearedSink<'_>) -> Asked<Progress>;

    /// Clears the accessed bits of the whole process, also in `stuck`, where [`PageSource::clear`] left some. The target may
    /// stall, and what was accessed but not read is lost: read `all` of it just before.
    fn clear_process(&mut self, pid: u32, stuck: &[BlockNo], all: &[BlockNo]) -> Asked<ClearedProcess>;

    /// Of the pages of `blocks` that are mapped by several processes, calls `each` with the frame, if it may be known. A source that
    /// knows of none calls it for none.
    fn shared_frames(&mut self, _pid: u32, _blocks: &[BlockNo], _each: &mut dyn FnMut(Option<u64>)) -> Asked<()> {
        Ok(())
    }
}

/// Accessed bits, counted mapping by mapping.
pub trait MappingSource {
    /// Counts the accessed bits of every mapping with memory in it.
    fn count(&mut self, pid: u32) -> Asked<Counted>;

    /// Clears the accessed bits of the whole process. The target may stall.
    fn clear(&mut self, pid: u32) -> Asked<Clear>;
}

/// Regions that a monitor of the kernel's finds.
pub trait RegionSource {
    /// The regions that it has found last, again if there are no newer ones; `None` as long as there are none at all.
    fn regions(&mut self, pid: u32) -> Asked<Option<Aggregation>>;
}

/// Accesses that are reported as they happen.
pub trait ReportSource {
    /// Hands over the accesses of `pid` that were reported since the last call, in no order of time. Still answers for a process
    /// that has just ended.
    fn accesses(&mut self, pid: u32, sink: &mut dyn FnMut(Access)) -> Asked<Listened>;

    /// What has become of reports so far, of all processes.
    fn reports(&mut self) -> Reports;
}

/// Is given what a read finds, and when.
pub type BitsSink<'a> = dyn FnMut(Ns, BlockNo, Option<BlockBits>) + 'a;

/// Is given what clearing comes to, and when.
pub type ClearedSink<'a> = dyn FnMut(Ns, BlockNo, Cleared) + 'a;

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

impl Description {
    /// Whether it clears accessed bits of processes, so that two of its kind would take them from each other.
    pub fn clears(&self) -> bool {
        self.granularity != Granularity::Region && !matches!(self.accesses, Accesses::Only(_))
    }
}

/// Whether accesses are reported to a source as they happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accesses {
    /// They are not: it has to check.
    #[default]
    None,
    /// That is all it has, and that is what it means if nothing is reported.
    Only(Silence),
    /// Beside what it finds by checks.
    Beside(Silence),
}

impl Accesses {
    /// What it means that nothing is reported of a page; `None` if nothing ever is.
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
    /// Its cgroup, where the source is the one to know: its processes are not this machine's.
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
    /// Blocks with a page table or a huge page, sorted.
    pub blocks: Vec<BlockNo>,
    /// Mappings, sorted.
    pub mappings: Vec<Mapping>,
    /// How much of each mapping is resident, sorted; only of sources to which accesses are reported and that see no pages.
    pub resident: Vec<Resident>,
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
    /// What interrupts for reports have taken of the process since the last call, those for reports of no access included.
    pub interrupts_ns: f64,
}

/// What has become of reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// Samples read.
    pub samples: u64,
    /// Samples that were lost, reported to be or missing by the event's own count.
    pub lost: u64,
    /// How often the event has happened.
    pub events: u64,
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

/// A clear of a whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clear {
    /// When it was done.
    pub at: Ns,
    /// How long the target's map was locked for writing: its page faults waited.
    pub stall_ns: Ns,
    /// Whether the TLB was flushed after: if not, what stays in it looks idle.
    pub flushed: bool,
}

/// What clearing a whole process page by page came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClearedProcess {
    /// How it went.
    pub clear: Clear,
    /// The blocks that were cleared: all of them, or those of files and shared memory.
    pub blocks: Vec<BlockNo>,
    /// Blocks of which some pages may have been cleared, and it is not known which.
    pub partly: Vec<BlockNo>,
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
    pub regions: Vec<ToldRegion>,
}
