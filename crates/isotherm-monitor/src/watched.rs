//! One watched process: its tracker, its mappings, and other facts about it.

use crate::Settings;
use crate::shared::Counts;
use crate::swapped::Swapped;
use isotherm_heat::source::{Attached, Description, SourceResult};
use isotherm_heat::track::{self, Extent, Room, Tracker, Tracking, Turn};
use isotherm_heat::{Mapping, Ns, PastRegion, RETOUCH_NS, Sampling, Since, Summary, Tally, TargetId};
use isotherm_sys::proc;
use std::sync::Arc;

/// Bits cleared by others are reported if they are at least this many, and at least this part of the checked ones.
const MIN_LOST: u64 = 256;
const MIN_LOST_SHARE: u64 = 50;
/// How often reported accesses are fetched.
const ASK_FOR_ACCESSES: Ns = 100_000_000;

#[derive(Debug)]
pub(crate) struct TargetMonitor {
    pub id: TargetId,
    pub comm: String,
    pub cgroup: String,
    /// Both are read from this machine: not in a replay or a model.
    pub is_here: bool,
    pub tracker: Box<dyn Tracker>,
    next_accesses: Ns,
    /// Time that interrupts have taken from it to report accesses.
    interrupts_ns: f64,
    pub mappings: Vec<Mapping>,
    /// Those of the last snapshot.
    pub shown_mappings: Arc<[Mapping]>,
    pub exited: bool,
    /// Of the last snapshot.
    past_regions: Box<[PastRegion]>,
    pub shared: Counts,
    /// Its pages were compared with those of the other targets.
    pub is_compared: bool,
    /// It runs a KVM guest.
    pub runs_guest: bool,
    pub swapped: Swapped,
    /// Whether bits cleared by others are detected: not where clears of other targets reach this one.
    notices_others: bool,
    /// The counts of the last snapshot.
    reported: Tally,
    /// Those of trackers that were replaced.
    before: Tally,
    attached_at: Ns,
}

impl TargetMonitor {
    pub fn new(attached: Attached, source: &Description, now: Ns, settings: &Settings) -> TargetMonitor {
        let Attached { id, comm, .. } = attached;
        TargetMonitor {
            id,
            comm,
            cgroup: String::new(),
            is_here: false,
            tracker: track::begin(source, now, tracking(settings, id)),
            next_accesses: now,
            interrupts_ns: 0.0,
            mappings: Vec::new(),
            shown_mappings: [].into(),
            exited: false,
            past_regions: Box::default(),
            shared: Counts::default(),
            is_compared: false,
            runs_guest: false,
            swapped: Swapped::default(),
            notices_others: !source.clears_others,
            reported: Tally::default(),
            before: Tally::default(),
            attached_at: now,
        }
    }

    /// Reads the current layout, and the huge ranges not seen before. A target with more than there is room for is sampled.
    pub fn refit(&mut self, room: Room, turn: &mut Turn<'_>) -> SourceResult<()> {
        let mut layout = turn.source.layout(turn.pid)?;
        self.mappings = std::mem::take(&mut layout.mappings);
        // Once seen it stays so: between two runs of a guest its memory stays as the guest left it.
        self.runs_guest |= proc::maps_guest(self.mappings.iter().map(|m| &*m.name));
        if let Some(other) = self.tracker.outgrown(layout.pmds.len(), room, turn.now) {
            self.before = self.tally();
            self.tracker = other;
            // Its pages are no longer known one by one, or not yet.
            self.forget_shared();
        }
        self.tracker.refit(layout, turn)
    }

    /// Fetches the accesses that were reported since the last call, if there are any.
    pub fn take_accesses(&mut self, turn: &mut Turn<'_>) -> SourceResult<()> {
        self.interrupts_ns += self.tracker.take_reports(turn)?;
        Ok(())
    }

    /// Reads what is due.
    pub fn read_due(&mut self, turn: &mut Turn<'_>) -> SourceResult<()> {
        if self.tracker.has_reports() && self.next_accesses <= turn.now {
            self.next_accesses = turn.now + ASK_FOR_ACCESSES;
            self.take_accesses(turn)?;
        }
        self.tracker.read_due(turn)
    }

    /// When a read is due.
    pub fn next_read(&self) -> Option<Ns> {
        let of_accesses = self.tracker.has_reports().then_some(self.next_accesses);
        self.tracker.next_read().into_iter().chain(of_accesses).min()
    }

    /// The share of a batch that this target's turn may use, so that each sampled region has as many checks as any
    /// other, in any target. `regions_each` is the average number of regions per target.
    pub fn share_of_checks(&self, regions_each: f64) -> f64 {
        let share = |regions: usize| (regions as f64 / regions_each.max(1.0)).min(1.0);
        self.tracker.extent().sampled.map_or(1.0, |sampled| share(sampled.regions))
    }

    pub fn extent(&self) -> Extent {
        self.tracker.extent()
    }

    /// Huge ranges that are sampled.
    pub fn sampled_pmds(&self) -> u64 {
        self.extent().sampled.map_or(0, |sampled| sampled.pmds)
    }

    /// Pages whose accessed bit others have cleared since the last call. 0 as long as they are few: some pages are
    /// freed by the program in its own way, and some are reclaimed by a kernel without pressure.
    pub fn cleared_by_others(&mut self) -> u64 {
        let tally = self.tally();
        let before = std::mem::replace(&mut self.reported, tally);
        let lost = tally.lost.saturating_sub(before.lost);
        let still_set = tally.still_set.saturating_sub(before.still_set);
        let are_many = lost >= MIN_LOST && lost.saturating_mul(MIN_LOST_SHARE) >= still_set;
        if self.notices_others && are_many { lost } else { 0 }
    }

    /// What was cleared and seen so far.
    pub fn tally(&self) -> Tally {
        self.before.and(self.tracker.tally())
    }

    /// Forgets which of its pages other targets map.
    pub fn forget_shared(&mut self) {
        (self.shared, self.is_compared) = (Counts::default(), false);
    }

    /// The estimated slow-down in percent of one core.
    pub fn slowdown_pct(&self, now: Ns) -> f64 {
        let cost_ns = self.tally().retouched as f64 * RETOUCH_NS + self.interrupts_ns;
        100.0 * cost_ns / now.saturating_sub(self.attached_at).max(1) as f64
    }

    /// Makes the summary, `elapsed_ns` after the last one, and keeps what the ages of the next regions follow from.
    pub fn summarize(&mut self, now: Ns, max_regions: usize, elapsed_ns: Ns) -> Summary {
        let sum = self.summarize_once(now, max_regions, elapsed_ns);
        self.past_regions = sum.regions.iter().map(PastRegion::from).collect();
        sum
    }

    /// Makes a summary besides, with ages as of the last one.
    pub fn summarize_once(&mut self, now: Ns, max_regions: usize, elapsed_ns: Ns) -> Summary {
        let last = Since { regions: &self.past_regions, elapsed_ns, mappings: &self.mappings };
        self.tracker.summarize(now, max_regions, last)
    }
}

fn tracking(settings: &Settings, id: TargetId) -> Tracking {
    let sampling = Sampling {
        max_regions: settings.max_regions,
        max_region: settings.max_region,
        interval_ns: settings.sample_interval_ns,
        tuning: settings.intervals_goal,
        max_slowdown_pct: settings.max_slowdown_pct,
    };
    Tracking { sampling, seed: settings.seed ^ u64::from(id.pid) }
}
