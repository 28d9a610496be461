//! The trait, and what a tracker gets and may use for one run on its target.

use crate::source::{
    AccessSource, BitsSink, EnabledTime, Layout, MappingSource, PageSource, Progress, RegionSource, ReportSource,
    SourceError, SourceResult,
};
use crate::view::Since;
use crate::{Class, Granularity, Ns, ReportedTarget, Sampling, Summary, Tally, Target};
use isotherm_units::PmdNo;

/// Huge ranges of each class cleared at once, between two checks of the budgets.
pub const CLEAR_BATCH: usize = 64;

/// How a target is tracked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tracking {
    /// Bounds on regions, and the slow-down allowed.
    pub sampling: Sampling,
    /// Orders the first checks. The same seed and history give the same checks.
    pub seed: u64,
}

/// What a step cost. The monitor adds these up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Page-table entries read.
    pub pages_read: u64,
    /// Huge ranges read.
    pub pmds_read: u64,
    /// Huge ranges cleared.
    pub pmds_cleared: u64,
    /// Those of them of each class, in the order of [`Class::ALL`].
    pub by_class: [u64; 3],
    /// The longest time that a target's memory map was locked in one piece.
    pub longest_hold_ns: Ns,
    /// Reads of page tables that failed.
    pub read_errors: u64,
}

impl Spent {
    pub(super) fn add(&mut self, pmds: usize, progress: Progress) {
        self.pages_read += progress.entries;
        self.pmds_read += pmds as u64;
        self.read_errors += progress.read_errors;
        self.held(progress.longest_hold_ns);
    }

    /// Notes that a target's memory map was locked for `hold_ns`.
    pub(super) fn held(&mut self, hold_ns: Ns) {
        self.longest_hold_ns = self.longest_hold_ns.max(hold_ns);
    }
}

/// How many huge ranges may be cleared in one run, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClearQuota {
    /// With unexpected accesses.
    pub urgent: usize,
    /// For the first time.
    pub first: usize,
    /// Again, in due time.
    pub routine: usize,
}

impl ClearQuota {
    /// This many of each class.
    pub const fn each(most: usize) -> ClearQuota {
        ClearQuota { urgent: most, first: most, routine: most }
    }

    /// How many of one class.
    pub fn most(self, class: Class) -> usize {
        match class {
            Class::Urgent => self.urgent,
            Class::First => self.first,
            Class::Routine => self.routine,
        }
    }

    /// Whether checks may be done that are not urgent.
    pub fn has_planned(self) -> bool {
        self.first + self.routine > 0
    }

    /// The part of a full batch that one of several targets may use before the next one runs.
    #[must_use]
    pub fn dealt(self, share: f64) -> ClearQuota {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and min'ed after")]
        let batch = ((CLEAR_BATCH as f64 * share) as usize).max(1);
        let ClearQuota { urgent, first, routine } = self;
        ClearQuota { urgent: urgent.min(batch), first: first.min(batch), routine: routine.min(batch) }
    }
}

/// The size of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Huge ranges that are all checked.
    pub whole_pmds: usize,
    /// The sampled part.
    pub sampled: Option<SampledExtent>,
}

impl Extent {
    /// The total that [`Tracker::unchecked`] counts down from.
    pub fn checked_one_by_one(&self) -> usize {
        self.sampled.map_or(self.whole_pmds, |sampled| sampled.regions)
    }
}

/// The size of a target of which samples are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledExtent {
    /// Its regions.
    pub regions: usize,
    /// The huge ranges that they span.
    pub pmds: u64,
    /// Each region is to be checked once in this time at present.
    pub interval_ns: Ns,
    /// The time in which each was checked once, the last time that all were: longer than the interval if the budgets did not
    /// allow more. `None` before the first time.
    pub aggregated_in: Option<Ns>,
}

/// A tracker's share of what all targets share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allotment {
    /// Period of the background scan: every cold huge range is read once in this time.
    pub scan_period_ns: Ns,
    /// Its share of the regions of all sampled targets.
    pub sampled_regions: usize,
    /// The shortest interval at which the regions of all sampled targets can be checked within the CPU budget.
    pub affordable_interval_ns: Ns,
}

/// One run on a target: the source, the process, the time, and where to note the cost.
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
    pub(super) fn pages(&mut self) -> SourceResult<&mut dyn PageSource> {
        self.source.as_pages().ok_or_else(|| SourceError::cannot("accessed bits of pages"))
    }

    pub(super) fn mappings(&mut self) -> SourceResult<&mut dyn MappingSource> {
        self.source.as_mappings().ok_or_else(|| SourceError::cannot("accessed bits by mapping"))
    }

    pub(super) fn regions(&mut self) -> SourceResult<&mut dyn RegionSource> {
        self.source.as_regions().ok_or_else(|| SourceError::cannot("regions"))
    }

    pub(super) fn reports(&mut self) -> SourceResult<&mut dyn ReportSource> {
        self.source.as_reports().ok_or_else(|| SourceError::cannot("reports of accesses"))
    }

    /// Reads `pmds` and passes each to `sink`. A huge range that could not be read now is passed as not read, so that it
    /// is due again soon. Returns how many were answered, from the front.
    pub(super) fn read(&mut self, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<usize> {
        if pmds.is_empty() {
            return Ok(0);
        }
        let (now, pid) = (self.now, self.pid);
        let mut answered = Vec::with_capacity(pmds.len());
        let read = self.pages()?.read(pid, pmds, &mut |at, pmd, bits| {
            answered.push(pmd);
            sink(at, pmd, bits);
        });
        let progress = match read {
            Ok(progress) => progress,
            Err(error) => {
                // The error may pass, as a shortage of descriptors does.
                answered.sort_unstable();
                let missing = pmds.iter().filter(|pmd| answered.binary_search(pmd).is_err());
                missing.for_each(|pmd| sink(now, *pmd, None));
                return Err(error);
            }
        };
        // The target's map was busy. The rest is due again soon.
        for pmd in &pmds[progress.answered..] {
            sink(now, *pmd, None);
        }
        self.spent.add(progress.answered, progress);
        Ok(progress.answered)
    }

    /// Takes in the accesses that were reported since the last time. Returns the time that their interrupts took from
    /// the target.
    pub(super) fn take_reports(&mut self, target: &mut ReportedTarget) -> SourceResult<f64> {
        let pid = self.pid;
        let EnabledTime { until, share, weight, interrupts_ns } =
            self.reports()?.accesses(pid, &mut |access| target.report(access))?;
        if let Some(weight) = weight {
            target.expect_weight(weight);
        }
        target.listened(until, share);
        Ok(interrupts_ns)
    }
}

/// How many huge ranges a target may have to be watched whole, beside all others. It depends on how it is watched now: what is known of
/// its pages is lost when it is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// If it is new.
    pub new: usize,
    /// If it is watched whole, and much of it was not checked yet. Beside sampled targets as much as if it were sampled itself.
    pub begun: usize,
    /// If it is watched whole and known. What others do is no reason to sample it: a child that is forked for a minute has as much memory
    /// again.
    pub grown: usize,
    /// If it is sampled. It is watched whole once it has had no more than this for a while.
    pub again: usize,
}

impl Room {
    /// As many as there are.
    pub const UNLIMITED: Room = Room { new: usize::MAX, begun: usize::MAX, grown: usize::MAX, again: usize::MAX };
    /// Nothing is watched whole.
    pub const NONE: Room = Room { new: 0, begun: 0, grown: 0, again: 0 };
}

/// What is stored for one target.
///
/// An error of a step comes from the source. What was due then is due again, soon or at the next run.
pub trait Tracker: std::fmt::Debug {
    /// The granularity at which it knows the target.
    fn granularity(&self) -> Granularity;

    /// Takes in what is populated now, and reads what was not seen before. The caller handles mappings.
    fn refit(&mut self, layout: Layout, turn: &mut Turn<'_>) -> SourceResult<()>;

    /// Another tracker to replace this one, if the target has outgrown it, or fits another again: `pmds` are populated.
    fn outgrown(&mut self, _pmds: usize, _room: Room, _now: Ns) -> Option<Box<dyn Tracker>> {
        None
    }

    /// Reads what is due.
    fn read_due(&mut self, turn: &mut Turn<'_>) -> SourceResult<()>;

    /// Reads these huge ranges now, if it reads pages one by one: for a caller that acts on what is known of them. Returns
    /// those that were read, sorted.
    fn read_now(&mut self, _pmds: &[PmdNo], _turn: &mut Turn<'_>) -> SourceResult<Vec<PmdNo>> {
        Ok(Vec::new())
    }

    /// When the next read is due. `None` if none is planned.
    fn next_read(&self) -> Option<Ns>;

    /// Whether anything is ever cleared here. False if the source clears what it samples, or needs no bits.
    fn is_cleared(&self) -> bool;

    /// Whether its next clear waits while the CPU budget is overspent. Clears of huge ranges need not: each class of them has a share of it.
    fn waits_for_budget(&self, _now: Ns) -> bool {
        false
    }

    /// Clears the whole process if enough of it cannot be reached otherwise and enough time has passed.
    fn clear_process(&mut self, _turn: &mut Turn<'_>) -> SourceResult<()> {
        Ok(())
    }

    /// Clears huge ranges that are due, up to `quota`. Returns how many.
    fn clear_due(&mut self, _quota: ClearQuota, _turn: &mut Turn<'_>) -> SourceResult<usize> {
        Ok(0)
    }

    /// Takes in the accesses that were reported since the last time, if there are reports. Returns the time that their
    /// interrupts took from the target, in nanoseconds.
    fn take_reports(&mut self, _turn: &mut Turn<'_>) -> SourceResult<f64> {
        Ok(0.0)
    }

    /// Whether its accesses are reported.
    fn has_reports(&self) -> bool {
        false
    }

    /// Its size. O(1).
    fn extent(&self) -> Extent {
        Extent::default()
    }

    /// Huge ranges, or sampled regions, that were not checked yet. O(regions) for a sampled target.
    fn unchecked(&self) -> usize {
        0
    }

    /// Takes in its allotment. Ignores what it does not need.
    fn allot(&mut self, _allotment: Allotment) {}

    /// Counts since the start.
    fn tally(&self) -> Tally;

    /// Sums up at `now` in at most `max_regions`. Ages are carried on from the last report.
    fn summarize(&mut self, now: Ns, max_regions: usize, last: Since<'_>) -> Summary;

    /// Its pages, if each page is known.
    fn pages(&self) -> Option<&Target> {
        None
    }
}
