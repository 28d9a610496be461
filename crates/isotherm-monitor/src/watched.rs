//! One watched process: its heat, and the steps that bring source and heat together.

use crate::Settings;
use isotherm_heat::{
    BlockBits, Bucket, CREDIT_S, Granularity, Mapping, MappingBits, MappingTarget, Next, Ns, Region, ReportedTarget,
    SampledTarget, Sampling, Silence, Summary, Tally, Target, TargetId, ToldRegions, Watch, raise_rates,
    summarize_after, summarize_fused,
};
use isotherm_sources::perf::SAMPLE_NS;
use isotherm_sources::{AccessSource, Accesses, Cleared, Description, Error, Progress, Report};
use isotherm_sys::proc;
use isotherm_units::BlockNo;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Blocks cleared at once, between two looks at the budgets.
pub(crate) const ARM_BATCH: usize = 64;
/// A clear of the whole process is worth its stall only for this many pages, and this part of what is resident.
const MIN_STUCK_PAGES: u64 = 256;
const MIN_STUCK_SHARE: u64 = 1000;
/// Seconds to the first clear of the whole process for the sake of stuck pages, and the factor it backs off by.
const STUCK_FIRST: Ns = 1_000_000_000;
const STUCK_BACKOFF: u64 = 2;
const STUCK_LONGEST: Ns = 120_000_000_000;
/// Bits cleared by others are reported from this many on, and from this part of the checked ones.
const MIN_LOST: u64 = 256;
const MIN_LOST_SHARE: u64 = 50;
/// How often accesses that were reported are asked for.
const ASK_FOR_ACCESSES: Ns = 100_000_000;
/// The share of time that the target may spend stalled by clears of the whole process.
const STALL_SHARE: u64 = 200;

/// What a step cost, added up by the monitor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub pages_read: u64,
    pub blocks_read: u64,
    pub blocks_cleared: u64,
    pub longest_hold_ns: Ns,
    pub read_errors: u64,
}

impl Spent {
    fn add(&mut self, blocks: usize, progress: Progress) {
        self.pages_read += progress.entries;
        self.blocks_read += blocks as u64;
        self.longest_hold_ns = self.longest_hold_ns.max(progress.longest_hold_ns);
        self.read_errors += progress.read_errors;
    }
}

/// How many blocks may be cleared in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Most {
    /// Up to this many.
    Blocks(usize),
    /// The CPU budget is used up: a few that have surprised, so that news is never held back for long.
    Urgent,
}

impl Most {
    /// The part of a full batch that one of several targets may use before the next has its turn.
    pub fn dealt(self, share: f64) -> Most {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and min'ed after")]
        let batch = (ARM_BATCH as f64 * share) as usize;
        match self {
            Most::Blocks(n) => Most::Blocks(n.min(batch.max(1))),
            Most::Urgent => Most::Urgent,
        }
    }

    fn blocks(self) -> usize {
        match self {
            Most::Blocks(n) => n,
            Most::Urgent => 16,
        }
    }
}

/// How the source sees it.
#[derive(Debug)]
pub(crate) enum Heat {
    Pages(Box<Target>),
    /// Page by page as well, but only of a block here and there.
    Sampled(Box<SampledTarget>),
    Mappings(MappingTarget),
    Regions(ToldRegions),
    /// By accesses that are reported, and nothing else.
    Reported(Box<ReportedTarget>),
}

impl Heat {
    pub fn granularity(&self) -> Granularity {
        match self {
            Heat::Pages(_) => Granularity::Page,
            Heat::Mappings(_) => Granularity::Mapping,
            Heat::Sampled(_) | Heat::Regions(_) | Heat::Reported(_) => Granularity::Region,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Watched {
    pub id: TargetId,
    pub comm: String,
    pub cgroup: String,
    pub heat: Heat,
    /// Accesses that are reported beside what is looked at.
    beside: Option<Box<ReportedTarget>>,
    next_accesses: Ns,
    /// How often it was interrupted to tell of an access.
    interrupts: u64,
    pub mappings: Vec<Mapping>,
    /// Those of the last snapshot.
    pub shown_mappings: Arc<[Mapping]>,
    pub exited: bool,
    pub regions: Vec<Region>,
    pub counted_elsewhere_pages: u64,
    pub maybe_shared_pages: u64,
    /// It runs a KVM guest.
    pub runs_guest: bool,
    /// Bits that others clear are noticed: not where clears of other targets reach this one.
    notices_others: bool,
    /// The counts of the last snapshot.
    reported: Tally,
    attached_at: Ns,
    next_stuck: Ns,
    stuck_interval: Ns,
    slowdown: Bucket,
    settings: Settings,
}

/// A target watched whole grows to this many times of what would have been sampled from the start before it is sampled.
const GROWN: usize = 2;

impl Watched {
    pub fn new(id: TargetId, comm: String, source: &Description, now: Ns, settings: &Settings) -> Watched {
        let heat = match source.granularity {
            _ if matches!(source.accesses, Accesses::Only(_)) => Heat::Reported(reported(source, now)),
            Granularity::Page => {
                let watch = Watch { max_slowdown_pct: settings.max_slowdown_pct, patrol_ns: 1_000_000_000 };
                Heat::Pages(Box::new(Target::new(now, watch, settings.seed ^ u64::from(id.pid))))
            }
            Granularity::Mapping => Heat::Mappings(MappingTarget::new()),
            Granularity::Region => Heat::Regions(ToldRegions::new()),
        };
        Watched {
            id,
            comm,
            cgroup: String::new(),
            heat,
            beside: matches!(source.accesses, Accesses::Beside(_)).then(|| reported(source, now)),
            next_accesses: now,
            interrupts: 0,
            mappings: Vec::new(),
            shown_mappings: [].into(),
            exited: false,
            regions: Vec::new(),
            counted_elsewhere_pages: 0,
            maybe_shared_pages: 0,
            runs_guest: false,
            notices_others: !source.clears_others,
            reported: Tally::default(),
            attached_at: now,
            next_stuck: now + STUCK_FIRST,
            stuck_interval: STUCK_FIRST,
            settings: *settings,
            slowdown: Bucket::new(settings.max_slowdown_pct, CREDIT_S, now),
        }
    }

    /// Takes in what is mapped now, and reads blocks not seen before. A target of more than `whole` blocks is sampled.
    pub fn refit(
        &mut self,
        source: &mut dyn AccessSource,
        now: Ns,
        whole: usize,
        spent: &mut Spent,
    ) -> Result<(), Error> {
        let layout = source.layout(self.id.pid)?;
        self.mappings = layout.mappings;
        // Once seen it stays so: between two runs of a guest its memory is as it left it.
        self.runs_guest |= self.mappings.iter().any(|m| m.name.starts_with(proc::GUEST_MAPPING));
        if matches!(&self.heat, Heat::Pages(target) if is_too_large(layout.blocks.len(), whole, target.is_empty())) {
            self.heat = Heat::Sampled(Box::new(self.sampled(now)));
        }
        match &mut self.heat {
            Heat::Pages(target) => {
                let fresh = target.refit(&layout.blocks);
                read_blocks(target, source, self.id.pid, now, &fresh, spent).map(|_| ())
            }
            Heat::Sampled(target) => {
                target.refit(&layout.blocks);
                Ok(())
            }
            Heat::Reported(target) => {
                target.refit(layout.resident);
                Ok(())
            }
            Heat::Mappings(_) | Heat::Regions(_) => Ok(()),
        }
    }

    /// Takes in the accesses that were reported since the last time, if there are any such.
    pub fn take_accesses(&mut self, source: &mut dyn AccessSource) -> Result<(), Error> {
        let reported = match (&mut self.heat, &mut self.beside) {
            (Heat::Reported(target), _) | (_, Some(target)) => target,
            _ => return Ok(()),
        };
        let listened = source.accesses(self.id.pid, &mut |access| reported.report(access))?;
        if let Some(weight) = listened.weight {
            reported.expect_weight(weight);
        }
        reported.listened(listened.until, listened.share);
        self.interrupts += listened.interrupts;
        Ok(())
    }

    fn reported(&self) -> Option<&ReportedTarget> {
        match (&self.heat, &self.beside) {
            (Heat::Reported(target), _) | (_, Some(target)) => Some(target),
            _ => None,
        }
    }

    fn sampled(&self, now: Ns) -> SampledTarget {
        let sampling = Sampling {
            max_regions: self.settings.max_regions,
            max_region: self.settings.max_region,
            interval_ns: self.settings.sample_interval_ns,
            max_slowdown_pct: self.settings.max_slowdown_pct,
        };
        SampledTarget::new(now, sampling, self.settings.seed ^ u64::from(self.id.pid))
    }

    /// Of a batch, what this target's turn may use, so that each sampled region has as many looks as any other, whichever target
    /// it belongs to. `regions_each` is how many regions they have on average.
    pub fn share_of_looks(&self, regions_each: f64) -> f64 {
        match &self.heat {
            Heat::Sampled(target) => (target.len() as f64 / regions_each.max(1.0)).min(1.0),
            Heat::Pages(_) | Heat::Mappings(_) | Heat::Regions(_) | Heat::Reported(_) => 1.0,
        }
    }

    /// Whether anything is ever cleared here: not if the source clears what it samples, or needs no bits.
    pub fn is_cleared(&self) -> bool {
        match self.heat {
            Heat::Pages(_) | Heat::Sampled(_) | Heat::Mappings(_) => true,
            Heat::Regions(_) | Heat::Reported(_) => false,
        }
    }

    /// Whether only a block here and there is looked at.
    pub fn is_sampled(&self) -> bool {
        matches!(self.heat, Heat::Sampled(_))
    }

    /// Reads what is due.
    pub fn read_due(&mut self, source: &mut dyn AccessSource, now: Ns, spent: &mut Spent) -> Result<(), Error> {
        if self.reported().is_some() && self.next_accesses <= now {
            self.next_accesses = now + ASK_FOR_ACCESSES;
            self.take_accesses(source)?;
        }
        match &mut self.heat {
            Heat::Pages(target) => {
                let due = target.due_reads(now);
                read_blocks(target, source, self.id.pid, now, &due, spent).map(|_| ())
            }
            Heat::Sampled(target) => read_samples(target, source, self.id.pid, now, spent),
            Heat::Mappings(heat) => match heat.next() {
                Next::Read(at) if at <= now => {
                    let before = heat.tally().retouched;
                    read_mappings(heat, source, self.id.pid, spent)?;
                    self.slowdown.spend((heat.tally().retouched - before) as f64 * isotherm_heat::RETOUCH_NS);
                    Ok(())
                }
                _ => Ok(()),
            },
            Heat::Regions(heat) if heat.next_read() <= now => read_regions(heat, source, self.id.pid, now, spent),
            Heat::Regions(_) | Heat::Reported(_) => Ok(()),
        }
    }

    /// Clears up to `most` blocks that are due. Returns how many were.
    pub fn arm_due(
        &mut self,
        source: &mut dyn AccessSource,
        now: Ns,
        most: Most,
        spent: &mut Spent,
    ) -> Result<usize, Error> {
        match &mut self.heat {
            Heat::Pages(target) => {
                let due = target.due_arms(now, most.blocks().min(ARM_BATCH), matches!(most, Most::Urgent));
                // What was touched until now would be lost with the bits. Where nothing is armed there is nothing to lose.
                let (armed, mut ready): (Vec<_>, Vec<_>) = due.iter().partition(|b| target.has_armed(**b));
                let answered = match read_blocks(target, source, self.id.pid, now, &armed, spent) {
                    Ok(answered) => answered,
                    Err(error) => {
                        due.iter().for_each(|block| target.arm_later(now, *block));
                        return Err(error);
                    }
                };
                for block in &armed[answered..] {
                    target.arm_later(now, *block);
                }
                ready.extend(&armed[..answered]);
                ready.sort_unstable();
                clear_blocks(target, source, self.id.pid, now, &ready, spent)
            }
            Heat::Sampled(target) => match most {
                // Everything may be news here; there is nothing that cannot wait.
                Most::Urgent => Ok(0),
                Most::Blocks(most) => clear_samples(target, source, self.id.pid, now, most, spent),
            },
            Heat::Mappings(heat)
                if most != Most::Urgent && heat.next() == Next::Clear && self.slowdown.available_ns(now) > 0.0 =>
            {
                let cleared = source.clear_process(self.id.pid, &[], &[])?;
                spent.longest_hold_ns = spent.longest_hold_ns.max(cleared.stall_ns);
                heat.cleared(cleared.at);
                Ok(1)
            }
            // The source clears what it samples, or needs no bits.
            Heat::Mappings(_) | Heat::Regions(_) | Heat::Reported(_) => Ok(0),
        }
    }

    /// Clears the whole process if enough of it cannot be reached otherwise, and enough time has passed.
    pub fn clear_stuck(&mut self, source: &mut dyn AccessSource, now: Ns, spent: &mut Spent) -> Result<(), Error> {
        let Heat::Pages(target) = &mut self.heat else { return Ok(()) };
        if now < self.next_stuck {
            return Ok(());
        }
        self.next_stuck = now + self.stuck_interval;
        let stuck = target.stuck_blocks();
        let pages = target.unarmed_in(&stuck);
        if pages < MIN_STUCK_PAGES.max(target.resident() / MIN_STUCK_SHARE) {
            return Ok(());
        }
        // Everything, not only what is stuck: what was touched and not read is lost with the bits.
        let all = target.all_blocks();
        let answered = read_blocks(target, source, self.id.pid, now, &all, spent)?;
        if answered < all.len() {
            return Ok(());
        }
        let cleared = source.clear_process(self.id.pid, &stuck, &all)?;
        let cost_ns = pages as f64 * isotherm_heat::RETOUCH_NS;
        for block in &cleared.blocks {
            target.armed_whole(cleared.at, *block);
        }
        for block in &cleared.partly {
            target.partly_cleared(*block);
        }
        spent.longest_hold_ns = spent.longest_hold_ns.max(cleared.stall_ns);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds to minutes")]
        let for_budget = (cost_ns * 100.0 / self.settings.max_slowdown_pct) as Ns;
        let backed_off = (self.stuck_interval * STUCK_BACKOFF).min(STUCK_LONGEST);
        self.stuck_interval = backed_off.max(cleared.stall_ns * STALL_SHARE).max(for_budget);
        self.next_stuck = cleared.at + self.stuck_interval;
        Ok(())
    }

    /// When a read is due.
    pub fn next_read(&self) -> Option<Ns> {
        let of_heat = match &self.heat {
            Heat::Pages(target) => target.next_read(),
            Heat::Sampled(target) => target.next_read(),
            Heat::Mappings(heat) => match heat.next() {
                Next::Read(at) => Some(at),
                Next::Clear => None,
            },
            Heat::Regions(heat) => Some(heat.next_read()),
            Heat::Reported(_) => None,
        };
        let of_accesses = self.reported().map(|_| self.next_accesses);
        of_heat.into_iter().chain(of_accesses).min()
    }

    /// Blocks that wait for their first clear.
    pub fn unlooked(&self) -> usize {
        match &self.heat {
            Heat::Pages(target) => target.unlooked(),
            Heat::Sampled(target) => target.unlooked(),
            Heat::Mappings(_) | Heat::Regions(_) | Heat::Reported(_) => 0,
        }
    }

    /// What [`Watched::unlooked`] counts, in all: blocks, or sampled regions.
    pub fn looked_at_one_by_one(&self) -> usize {
        match &self.heat {
            Heat::Pages(target) => target.len(),
            Heat::Sampled(target) => target.len(),
            Heat::Mappings(_) | Heat::Regions(_) | Heat::Reported(_) => 0,
        }
    }

    /// Blocks that are looked at each.
    pub fn whole_blocks(&self) -> usize {
        match &self.heat {
            Heat::Pages(target) => target.len(),
            Heat::Sampled(_) | Heat::Mappings(_) | Heat::Regions(_) | Heat::Reported(_) => 0,
        }
    }

    /// Blocks that are sampled.
    pub fn sampled_blocks(&self) -> u64 {
        match &self.heat {
            Heat::Sampled(target) => target.blocks(),
            Heat::Pages(_) | Heat::Mappings(_) | Heat::Regions(_) | Heat::Reported(_) => 0,
        }
    }

    pub fn tally(&self) -> Tally {
        match &self.heat {
            Heat::Pages(target) => target.tally(),
            Heat::Sampled(target) => target.tally(),
            Heat::Mappings(heat) => heat.tally(),
            Heat::Regions(heat) => heat.tally(),
            Heat::Reported(_) => Tally::default(),
        }
    }

    /// Pages whose accessed bit others have cleared since the last call; 0 as long as they are few, as pages that the program frees in its own
    /// way are, or a kernel under no pressure reclaims.
    pub fn cleared_by_others(&mut self) -> u64 {
        let tally = self.tally();
        let before = std::mem::replace(&mut self.reported, tally);
        // A target that is watched in another way from now on begins anew.
        let lost = tally.lost.saturating_sub(before.lost);
        let left_set = tally.left_set.saturating_sub(before.left_set);
        let are_many = lost >= MIN_LOST && lost.saturating_mul(MIN_LOST_SHARE) >= left_set;
        if self.notices_others && are_many { lost } else { 0 }
    }

    /// The estimated slow-down in percent of one core.
    pub fn slowdown_pct(&self, now: Ns) -> f64 {
        let interrupts_ns = self.interrupts as f64 * SAMPLE_NS;
        let cost_ns = self.tally().retouched as f64 * isotherm_heat::RETOUCH_NS + interrupts_ns;
        100.0 * cost_ns / now.saturating_sub(self.attached_at).max(1) as f64
    }

    pub fn summarize(&mut self, now: Ns, max_regions: usize, elapsed: Ns) -> Summary {
        match (&mut self.heat, &mut self.beside) {
            (Heat::Pages(target), Some(reported)) => {
                summarize_fused(target, reported, now, max_regions, &self.regions, elapsed)
            }
            (Heat::Pages(target), None) => summarize_after(target, now, max_regions, &self.regions, elapsed),
            (Heat::Sampled(target), beside) => {
                let mut sum = target.summarize(max_regions, &self.regions, elapsed);
                if let Some(reported) = beside {
                    raise_rates(&mut sum.regions, reported);
                }
                sum
            }
            (Heat::Mappings(heat), _) => {
                let mut sum = heat.summarize(now, max_regions);
                isotherm_heat::carry_ages(&mut sum.regions, &self.regions, elapsed);
                sum
            }
            // These come with their ages.
            (Heat::Regions(heat), _) => heat.summarize(max_regions),
            (Heat::Reported(target), _) => target.summarize(now, max_regions, &self.regions, elapsed),
        }
    }
}

fn reported(source: &Description, now: Ns) -> Box<ReportedTarget> {
    Box::new(ReportedTarget::new(now, source.accesses.silence().unwrap_or(Silence::Unknown)))
}

/// Reads `blocks`; returns how many were answered, from the front.
fn read_blocks(
    target: &mut Target,
    source: &mut dyn AccessSource,
    pid: u32,
    now: Ns,
    blocks: &[BlockNo],
    spent: &mut Spent,
) -> Result<usize, Error> {
    ask(source, pid, now, blocks, spent, &mut |at, block, bits| match bits {
        Some(BlockBits::Gone) => target.gone(block),
        Some(bits) => target.read(at, block, bits),
        None => target.postpone(at, block),
    })
}

/// Clears `blocks`. Those that an error has kept from being cleared have their turn again shortly: it may pass.
fn clear_blocks(
    target: &mut Target,
    source: &mut dyn AccessSource,
    pid: u32,
    now: Ns,
    blocks: &[BlockNo],
    spent: &mut Spent,
) -> Result<usize, Error> {
    let mut cleared = 0;
    let done = source.clear(pid, blocks, &mut |at, block, outcome| {
        cleared += 1;
        match outcome {
            Cleared::Except(stuck) => target.armed(at, block, stuck),
            Cleared::Refused => target.refused(block),
        }
    });
    spent.blocks_cleared += cleared as u64;
    match done {
        Ok(progress) => spent.add(0, progress),
        Err(error) => {
            // In the order of the list, so that those that are missing are at its end.
            blocks[cleared..].iter().for_each(|block| target.arm_later(now, *block));
            return Err(error);
        }
    }
    Ok(blocks.len())
}

/// Reads `blocks` and tells `each` what was found; nothing, if a block could not be read now. Returns how many were answered, from
/// the front.
fn ask(
    source: &mut dyn AccessSource,
    pid: u32,
    now: Ns,
    blocks: &[BlockNo],
    spent: &mut Spent,
    each: &mut dyn FnMut(Ns, BlockNo, Option<BlockBits>),
) -> Result<usize, Error> {
    if blocks.is_empty() {
        return Ok(0);
    }
    let mut told = BTreeSet::new();
    let progress = source.read(pid, blocks, &mut |at, report| match report {
        Report::Block(block, bits) => {
            told.insert(block);
            each(at, block, Some(bits));
        }
        Report::Failed(block) => {
            told.insert(block);
            each(at, block, None);
        }
        Report::Mapping { .. } | Report::Region(_) => {}
    });
    let progress = match progress {
        Ok(progress) => progress,
        Err(error) => {
            // It may pass, as a shortage of descriptors does: what was due is due again soon.
            blocks.iter().filter(|block| !told.contains(block)).for_each(|block| each(now, *block, None));
            return Err(error);
        }
    };
    // The target's map was busy: the rest soon again.
    for block in &blocks[progress.answered..] {
        each(now, *block, None);
    }
    spent.add(blocks.len(), progress);
    Ok(progress.answered)
}

/// Whether a target of so many blocks is to be sampled. One that is watched whole already has some room to grow.
fn is_too_large(blocks: usize, whole: usize, is_new: bool) -> bool {
    blocks > if is_new { whole } else { whole.saturating_mul(GROWN) }
}

/// Reads the blocks of looks that are under way.
fn read_samples(
    target: &mut SampledTarget,
    source: &mut dyn AccessSource,
    pid: u32,
    now: Ns,
    spent: &mut Spent,
) -> Result<(), Error> {
    let due = target.due_reads(now);
    ask(source, pid, now, &due, spent, &mut |at, block, bits| match bits {
        Some(bits) => target.read(at, block, bits),
        None => target.postpone(at, block),
    })
    .map(|_| ())
}

/// Begins up to `most` looks. Returns how many.
fn clear_samples(
    target: &mut SampledTarget,
    source: &mut dyn AccessSource,
    pid: u32,
    now: Ns,
    most: usize,
    spent: &mut Spent,
) -> Result<usize, Error> {
    let due = target.due_clears(now, most.min(ARM_BATCH));
    if due.is_empty() {
        return Ok(0);
    }
    let progress = source.clear(pid, &due, &mut |at, block, outcome| match outcome {
        Cleared::Except(stuck) => target.cleared(at, block, stuck),
        Cleared::Refused => target.refused(at, block),
    })?;
    spent.blocks_cleared += due.len() as u64;
    spent.add(0, progress);
    Ok(due.len())
}

fn read_mappings(
    heat: &mut MappingTarget,
    source: &mut dyn AccessSource,
    pid: u32,
    spent: &mut Spent,
) -> Result<(), Error> {
    let mut found = Vec::new();
    let mut at = 0;
    let progress = source.read(pid, &[], &mut |when, report| {
        at = when;
        if let Report::Mapping { range, resident_pages, young_pages, huge_pages } = report {
            found.push(MappingBits { range, resident_pages, young_pages, huge_pages });
        }
    })?;
    heat.read(at, &found);
    spent.add(0, progress);
    Ok(())
}

fn read_regions(
    heat: &mut ToldRegions,
    source: &mut dyn AccessSource,
    pid: u32,
    now: Ns,
    spent: &mut Spent,
) -> Result<(), Error> {
    let mut found = Vec::new();
    let mut told_at = 0;
    let progress = source.read(pid, &[], &mut |when, report| {
        told_at = when;
        if let Report::Region(region) = report {
            found.push(region);
        }
    })?;
    heat.read(now, told_at, found);
    spent.add(0, progress);
    Ok(())
}
