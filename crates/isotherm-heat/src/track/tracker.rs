//! The trait, and what one turn of a target is given and may use.

use crate::source::{
    AccessSource, Asked, BitsSink, Layout, Listened, MappingSource, PageSource, Progress, RegionSource, ReportSource,
    SourceError,
};
use crate::view::Since;
use crate::{Granularity, Ns, ReportedTarget, Sampling, Summary, Tally, Target};
use isotherm_units::BlockNo;

/// Blocks cleared at once, between two checks of the budgets.
pub const CLEAR_BATCH: usize = 64;
/// Blocks that may be cleared when the CPU budget is used up.
const URGENT_CLEARS: usize = 16;

/// How a target is tracked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tracking {
    /// Bounds on regions, and the slow-down allowed.
    pub sampling: Sampling,
    /// Orders the first checks. The same seed and history give the same checks.
    pub seed: u64,
}

/// What a step cost, added up by the monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Page-table entries read.
    pub pages_read: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Blocks cleared.
    pub blocks_cleared: u64,
    /// The longest time the map of a target was locked in one piece.
    pub longest_hold_ns: Ns,
    /// Reads of page tables that failed.
    pub read_errors: u64,
}

impl Spent {
    pub(super) fn add(&mut self, blocks: usize, progress: Progress) {
        self.pages_read += progress.entries;
        self.blocks_read += blocks as u64;
        self.read_errors += progress.read_errors;
        self.held(progress.longest_hold_ns);
    }

    /// Notes that the map of a target was locked for so long.
    pub(super) fn held(&mut self, hold_ns: Ns) {
        self.longest_hold_ns = self.longest_hold_ns.max(hold_ns);
    }
}

/// How many blocks may be cleared in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearQuota {
    /// Up to this many.
    Blocks(usize),
    /// The CPU budget is used up: a few that have surprised, so that news is never held back for long.
    Urgent,
}

impl ClearQuota {
    /// The part of a full batch that one of several targets may use before the next has its turn.
    #[must_use]
    pub fn dealt(self, share: f64) -> ClearQuota {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and min'ed after")]
        let batch = (CLEAR_BATCH as f64 * share) as usize;
        match self {
            ClearQuota::Blocks(n) => ClearQuota::Blocks(n.min(batch.max(1))),
            ClearQuota::Urgent => ClearQuota::Urgent,
        }
    }

    /// Blocks at the most.
    pub(super) fn blocks(self) -> usize {
        match self {
            ClearQuota::Blocks(n) => n.min(CLEAR_BATCH),
            ClearQuota::Urgent => URGENT_CLEARS,
        }
    }
}

/// How much there is of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Blocks that are checked each.
    pub whole_blocks: usize,
    /// What only samples are checked of.
    pub sampled: Option<SampledExtent>,
}

impl Extent {
    /// What [`Tracker::unchecked`] counts, in all.
    pub fn checked_one_by_one(&self) -> usize {
        self.sampled.map_or(self.whole_blocks, |sampled| sampled.regions)
    }
}

/// How much there is of a target of which samples are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledExtent {
    /// Its regions.
    pub regions: usize,
    /// The blocks that they span.
    pub blocks: u64,
}

/// What a tracker may use of what all targets share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allotment {
    /// The time in which every cold block is read once.
    pub patrol_ns: Ns,
    /// Its part of the regions that there may be among sampled targets.
    pub sampled_regions: usize,
}

/// One turn of a target: whom to ask about which process, when, and where to note what it cost.
pub struct Turn<'a> {
    /// The source.
    pub source: &'a mut dyn AccessSource,
    /// The process.
    pub pid: u32,
    /// The time.
    pub now: Ns,
    /// Costs.
    pub spent: &'a mut Spent,
}

impl std::fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "turn of {} at {} by {}", self.pid, self.now, self.source.describe().name)
    }
}

impl Turn<'_> {
    pub(super) fn pages(&mut self) -> Asked<&mut dyn PageSource> {
        self.source.as_pages().ok_or_else(|| SourceError::cannot("accessed bits of pages"))
    }

    pub(super) fn mappings(&mut self) -> Asked<&mut dyn MappingSource> {
        self.source.as_mappings().ok_or_else(|| SourceError::cannot("accessed bits by mapping"))
    }

    pub(super) fn regions(&mut self) -> Asked<&mut dyn RegionSource> {
        self.source.as_regions().ok_or_else(|| SourceError::cannot("regions"))
    }

    pub(super) fn reports(&mut self) -> Asked<&mut dyn ReportSource> {
        self.source.as_reports().ok_or_else(|| SourceError::cannot("reports of accesses"))
    }

    /// Reads `blocks` and hands each to `sink`, as not read if it could not be read now: what was due is due again soon. Returns how many
    /// were answered, from the front.
    pub(super) fn read(&mut self, blocks: &[BlockNo], sink: &mut BitsSink<'_>) -> Asked<usize> {
        if blocks.is_empty() {
            return Ok(0);
        }
        let (now, pid) = (self.now, self.pid);
        let mut answered = Vec::with_capacity(blocks.len());
        let read = self.pages()?.read(pid, blocks, &mut |at, block, bits| {
            answered.push(block);
            sink(at, block, bits);
        });
        let progress = match read {
            Ok(progress) => progress,
            Err(error) => {
                // It may pass, as a shortage of descriptors does.
                answered.sort_unstable();
                let missing = blocks.iter().filter(|block| answered.binary_search(block).is_err());
                missing.for_each(|block| sink(now, *block, None));
                return Err(error);
            }
        };
        // The target's map was busy: the rest soon again.
        for block in &blocks[progress.answered..] {
            sink(now, *block, None);
        }
        self.spent.add(blocks.len(), progress);
        Ok(progress.answered)
    }

    /// Takes in the accesses that were reported since the last time. Returns what the interrupts for them took of the target.
    pub(super) fn take_reports(&mut self, target: &mut ReportedTarget) -> Asked<f64> {
        let pid = self.pid;
        let Listened { until, share, weight, interrupts_ns } =
            self.reports()?.accesses(pid, &mut |access| target.report(access))?;
        if let Some(weight) = weight {
            target.expect_weight(weight);
        }
        target.listened(until, share);
        Ok(interrupts_ns)
    }
}

/// What is kept of one target.
///
/// An error of a step is the source's. What was due then is due again, soon or when it has its turn.
pub trait Tracker: std::fmt::Debug {
    /// How fine it knows the target.
    fn granularity(&self) -> Granularity;

    /// Takes in what is populated now, and reads what was not seen before. Mappings are the caller's.
    fn refit(&mut self, layout: Layout, turn: &mut Turn<'_>) -> Asked<()>;

    /// Another tracker in its place, if the target has outgrown it: `blocks` are populated, and `whole` may be checked each.
    fn outgrown(&mut self, _blocks: usize, _whole: usize, _now: Ns) -> Option<Box<dyn Tracker>> {
        None
    }

    /// Reads what is due.
    fn read_due(&mut self, turn: &mut Turn<'_>) -> Asked<()>;

    /// When a read is due; `None` if none is planned.
    fn next_read(&self) -> Option<Ns>;

    /// Whether anything is ever cleared here: not if the source clears what it samples, or needs no bits.
    fn is_cleared(&self) -> bool;

    /// Clears up to `quota` that is due. Returns how many blocks that were.
    fn clear_due(&mut self, _quota: ClearQuota, _turn: &mut Turn<'_>) -> Asked<usize> {
        Ok(0)
    }

    /// Takes in the accesses that were reported since the last time, if there are any such. Returns what the interrupts for them took
    /// of the target, in nanoseconds.
    fn take_reports(&mut self, _turn: &mut Turn<'_>) -> Asked<f64> {
        Ok(0.0)
    }

    /// Whether accesses are reported of it.
    fn has_reports(&self) -> bool {
        false
    }

    /// How much there is of it. O(1).
    fn extent(&self) -> Extent {
        Extent::default()
    }

    /// Blocks, or sampled regions, that were not checked yet. O(regions) of a sampled target.
    fn unchecked(&self) -> usize {
        0
    }

    /// Takes in what it may use; what it has no use for is left.
    fn allot(&mut self, _allotment: Allotment) {}

    /// Counts since the start.
    fn tally(&self) -> Tally;

    /// Sums up at `now`, in at most `max_regions`, with what is carried on from the last time.
    fn summarize(&mut self, now: Ns, max_regions: usize, last: Since<'_>) -> Summary;

    /// Its pages, if each of them is known.
    fn pages(&self) -> Option<&Target> {
        None
    }
}
