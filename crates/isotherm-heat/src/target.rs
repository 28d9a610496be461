//! One target: the heat of its huge ranges, and which of them to read and to clear next.
//!
//! The tests of `isotherm-monitor` check these rules on replayed histories:
//! - A huge range whose pages were cleared is read after 10, 20, 40 ... ms, and from one background-scan period on once per
//!   period. Reading is cheap and costs the target nothing. So cold memory is read often, and memory that becomes hot
//!   is found within one period. Neighbours are read at different times, and those around a range that is found accessed are read
//!   at once, so that a span of 64 MiB or more is found in a quarter of it (`around`).
//! - A first check of memory that is assumed to be idle is read after 640 and 1,280 ms, and then with the background
//!   scan: it most probably confirms what is assumed, and reads would be half of its cost.
//! - While much of a large target waits for its first check, what is cleared is read after 20, 160 and 1,280 ms, and then after 10 s. Reads
//!   are a third of what a check costs, and later checks show the interval more exactly. The survey is read at each step.
//! - The bits of a huge range without cleared pages can say nothing new, so it is read every few seconds only: for memory that has come or gone, and
//!   for a collapse, after which it is checked anew. One on a huge page is not read at all. When RSS has fallen, both are read for what is still
//!   there (`track::freed`).
//! - A huge range is cleared again when its time has come, which backs off from 2 s to 4 minutes. It is cleared at once when
//!   a read finds several of its pages unexpectedly accessed (long idle, now touched). That also resets the back-off.
//!   Unexpected accesses go first. If it is only a page or two, the huge range is cleared soon, not at once: the thin edge
//!   of a hot set has unexpected accesses all the time. So is one of which a quarter of the pages or more came since its
//!   check: fewer are estimated from the others. Because of a few pages it is cleared 16 s after its last clear at the
//!   soonest, or 32 s if their accesses are as expected: where they are at random, each range has such pages all the time, and under
//!   reclaim each clear costs.
//! - One with hot pages is cleared every minute, each at a time of its own, so that of a span of them some are checked every
//!   few seconds. When much of one turns out to have cooled down, the hot ones around it are cleared at once. While half of the
//!   slow-down budget's credit is spent, it backs off like the others.
//! - Clears stop while the slow-down expected of them exceeds the budget. The expectation is learned from what is seen.
//! - First checks begin with a survey of all huge ranges, of large targets in two parts, and go on where it shows edges (`survey`). The
//!   others follow in random order, by a stretch of neighbours at a time, which a source clears in one piece for two thirds of the cost.
//! - Unexpected accesses, first checks and routine checks each have a share of the slow-down budget that the others
//!   cannot use up.
//!
//! Times come from the caller. The only randomness is a seeded generator.

mod around;
mod clears;
mod first;
mod freed;
mod known;
mod moments;
mod stuck;

pub use known::View;
pub(crate) use known::Visit;

use crate::Mask;
use crate::Rng;
use crate::behind_huge::BehindHuge;
use crate::budget::{RETOUCH_NS, Shares};
use crate::due::{Queue, Reads};
use crate::idle::Accessed;
use crate::moment::SOONEST;
use crate::pmd::{AccessesFound, Flags, MIN_IDLE, Ns, PmdBits, Timing};
use crate::pmd_heat::PmdHeat;
use crate::pmd_map::PmdMap;
use crate::survey::{Rank, Survey, choose};
use around::Ahead;
use first::FirstChecks;
use isotherm_units::PmdNo;
use moments::{hot_turn, late_read, scan_turn};

/// Distance of the first read after a clear.
pub const FIRST_READ: Ns = 10_000_000;
/// Pages touched at least this often are expected to be touched again during a check. Their cost is reserved in
/// advance.
pub const HORIZON: Ns = 10_000_000_000;
/// A huge range whose next read is this far away, or farther, is packed until then. Not one whose check goes on: to pack and to unpack it takes as long as
/// two reads.
const PACKED_FROM: Ns = 128 * FIRST_READ;
/// One in which a read has found accesses is packed only if the next read is this far away: that will find some too, and packing and
/// unpacking take as long as the read itself. Background scans are so near where the target has a few GiB.
const PACKED_FROM_IF_ACCESSED: Ns = 256 * FIRST_READ;
/// Doublings of [`FIRST_READ`] to the first read of memory that is assumed to be idle.
const IDLE_STEP: u8 = 6;
/// More huge ranges of a large target than this wait for their first check.
const HURRIED_FROM: usize = 256;
/// Doublings of [`FIRST_READ`] to the first read meanwhile, and from one read to the next. A first check takes 100 us where every CPU is busy,
/// and with twice as many reads a third of that was theirs.
const HURRIED_STEP: u8 = 1;
const HURRIED_DOUBLINGS: u8 = 3;
/// Doublings of [`FIRST_READ`] from which on a page counts as idle.
const COUNTS_AS_IDLE_STEP: u8 = 7;
const _: () =
    assert!((FIRST_READ << COUNTS_AS_IDLE_STEP) / 2 < MIN_IDLE && MIN_IDLE <= FIRST_READ << COUNTS_AS_IDLE_STEP);
/// The shortest time between two checks of a huge range that confirm each other.
const FIRST_BACKOFF: Ns = 2_000_000_000;
/// A huge range with this many unexpectedly accessed pages is cleared before all others.
const MANY: u32 = 8;
/// How soon a huge range is cleared again whose long-idle pages were accessed as expected.
const WEAK_RECHECK: Ns = 8_000_000_000;
/// Doublings of `FIRST_BACKOFF` after a check because of a few pages.
const RECHECK_BACKOFF: u8 = 3;
/// From the last check of a huge range to the next one because of a few pages, at least: 16 s, and 32 s if they were accessed as expected.
const MIN_RECHECK: Ns = FIRST_BACKOFF << RECHECK_BACKOFF;
const MIN_WEAK_RECHECK: Ns = 2 * MIN_RECHECK;
/// When a huge range whose pages a clear did not reach is tried again.
pub(crate) const STUCK_RETRY: Ns = 60_000_000_000;
/// Doublings of `FIRST_BACKOFF` at most: about four minutes.
pub(crate) const MAX_BACKOFF: u8 = 7;
/// From so many doublings on this is what is between them.
const HOT_FROM: u8 = 3;
/// Seconds' worth of slow-down that may be spent at once at the start, for a quick first answer.
pub const CREDIT_S: f64 = 5.0;
/// The shares of the slow-down budget that unexpected accesses, first checks and routine checks have in any case.
const SHARES: [f64; 3] = [0.3, 0.4, 0.2];

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub heat: PmdHeat,
    pub timing: Timing,
}

const _: () = assert!(size_of::<Entry>() <= 32);

impl Entry {
    /// Whether this read is the first to show that much of it has cooled down.
    fn turns_out_cooled(&mut self) -> bool {
        // Before that, no page counts as idle.
        let is_late = FIRST_READ << self.timing.step() >= MIN_IDLE;
        let has_cooled = is_late && self.timing.looks() && self.heat.has_cooled();
        if has_cooled {
            self.timing.set_hot(false);
        }
        has_cooled
    }
}

/// Parameters of a target's monitoring that can be changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watch {
    /// Allowed slow-down, in percent of one core. Over 100: no limit.
    pub max_slowdown_pct: f64,
    /// Period of the background scan: every cold huge range is read once in this time.
    pub scan_period_ns: Ns,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Pages (or huge pages) cleared.
    pub cleared: u64,
    /// Those seen touched again.
    pub retouched: u64,
    /// Pages read whose accessed bit the previous read left set.
    pub still_set: u64,
    /// Those of them whose bit somebody else had cleared.
    pub lost: u64,
}

impl Tally {
    /// The sum of both.
    pub fn and(self, other: Tally) -> Tally {
        Tally {
            cleared: self.cleared + other.cleared,
            retouched: self.retouched + other.retouched,
            still_set: self.still_set + other.still_set,
            lost: self.lost + other.lost,
        }
    }
}

/// The heat of one process and the schedule of its access checks.
#[derive(Debug)]
pub struct Target {
    pub(crate) pmds: PmdMap<Entry>,
    /// What was known of huge pages before they were made.
    behind: PmdMap<BehindHuge>,
    reads: Reads,
    routine: Queue<(Ns, PmdNo)>,
    urgent: Queue<(Ns, PmdNo)>,
    first: FirstChecks,
    survey: Survey,
    /// Huge ranges that are new and belong to the survey. Sorted.
    surveyed: Vec<(PmdNo, Rank)>,
    slowdown: Shares,
    /// Sum of the huge ranges' reservations.
    reserved: u64,
    scan_period_ns: Ns,
    tally: Tally,
    accessed: Accessed,
    ahead: Ahead,
    /// Orders the first checks.
    seed: u64,
    /// Huge ranges that were neither cleared nor found to be unclearable yet.
    unchecked: usize,
    /// Of huge ranges of which the last clear reached some pages: which it did not, if they are many.
    partly_stuck: PmdMap<Mask>,
}

impl Target {
    /// A target of which nothing is known. The seed orders the first checks.
    pub fn new(now: Ns, watch: Watch, seed: u64) -> Target {
        Target {
            pmds: PmdMap::new(),
            behind: PmdMap::new(),
            reads: Reads::new(),
            routine: Queue::new(),
            urgent: Queue::new(),
            first: FirstChecks::new(seed),
            survey: Survey::new(),
            surveyed: Vec::new(),
            slowdown: Shares::new(watch.max_slowdown_pct, CREDIT_S, SHARES, now),
            reserved: 0,
            scan_period_ns: watch.scan_period_ns,
            tally: Tally::default(),
            accessed: Accessed::default(),
            ahead: Ahead::new(),
            seed,
            unchecked: 0,
            partly_stuck: PmdMap::new(),
        }
    }

    /// Changes the period of the background scan. The caller stretches it for targets that cannot all be read in time.
    pub fn set_scan_period(&mut self, scan_period_ns: Ns) {
        self.scan_period_ns = scan_period_ns;
    }

    /// Takes in which huge ranges are populated now (sorted). Huge ranges not listed are forgotten. The huge ranges returned are new:
    /// each has to be read once, through [`Target::read`], before anything else happens with it. O(huge ranges).
    pub fn refit(&mut self, populated: &[PmdNo]) -> Vec<PmdNo> {
        let (fresh, gone) = self.pmds.differences(populated);
        for pmd in gone {
            self.remove(pmd);
        }
        let (pmds, waiting) = (&self.pmds, self.unchecked);
        self.first.drop_stale(waiting, |rank, pmd| pmds.get(pmd).is_some_and(|e| e.timing.rank() == Some(rank)));
        self.first.begin_listing();
        if fresh.len() > HURRIED_FROM {
            self.survey.begin_anew();
        }
        let mut rng = Rng::new(self.seed ^ fresh.first().map_or(0, |pmd| pmd.0));
        self.surveyed = choose(&fresh, |below| rng.below(below));
        fresh
    }

    fn remove(&mut self, pmd: PmdNo) {
        if let Some(entry) = self.pmds.remove(pmd) {
            self.reserved -= u64::from(entry.timing.reserved());
            self.unchecked -= usize::from(!entry.timing.is(Flags::CHECKED));
            self.survey.forget(pmd);
            self.behind.remove(pmd);
            self.partly_stuck.remove(pmd);
        }
    }

    /// Takes in that nothing is mapped in `pmd` any more.
    pub fn gone(&mut self, pmd: PmdNo) {
        self.remove(pmd);
    }

    /// A due read could not be done. It is due again shortly.
    pub fn postpone(&mut self, now: Ns, pmd: PmdNo) {
        if let Some(entry) = self.pmds.get_mut(pmd) {
            self.reads.push(entry.timing.plan_read(now + FIRST_READ), pmd);
        }
    }

    /// A huge range chosen by [`Target::due_clears`] could not be cleared now. It is due again shortly.
    pub fn clear_later(&mut self, now: Ns, pmd: PmdNo) {
        let Some(entry) = self.pmds.get_mut(pmd) else { return };
        entry.timing.flags.remove(Flags::URGENT);
        if entry.timing.is_unchecked() {
            // Routine checks have a small share while many first ones wait. It had its turn, so it does not wait for others again.
            return self.check_first(pmd, Rank::Edge);
        }
        self.routine.push((entry.timing.plan_clear(now + FIRST_READ, true), pmd));
    }

    /// Page walks that a clear of all of `pmds` costs the target at most.
    pub fn walks_in(&self, pmds: &[PmdNo]) -> u64 {
        pmds.iter().filter_map(|pmd| self.pmds.get(*pmd)).map(|entry| entry.heat.uncleared_walks()).sum()
    }

    /// Takes in a read of one huge range.
    pub fn read(&mut self, now: Ns, pmd: PmdNo, bits: PmdBits) {
        let Some(entry) = self.pmds.get_mut(pmd) else {
            let in_survey = self.surveyed.binary_search_by_key(&pmd, |(pmd, _)| *pmd);
            return self.insert(now, pmd, bits, in_survey.map_or(Rank::Rest, |index| self.surveyed[index].1));
        };
        let had_cleared = entry.heat.has_cleared();
        let Some(found) = entry.heat.read(now, bits) else {
            // Collapsed, split or unmapped since: what was known of the old shape does not hold for the new one.
            let behind = entry.heat.behind(now, bits);
            self.remove(pmd);
            if let Some(behind) = behind {
                self.behind.insert(pmd, behind);
            }
            return self.insert(now, pmd, bits, Rank::Changed);
        };
        let has_cooled = entry.turns_out_cooled();
        self.account(pmd, found);
        if has_cooled {
            self.check_around_cooled(now, pmd);
        }
        self.plan_after_read(now, pmd, found);
        // One without cleared pages has shown all that it can.
        if self.is_survey_open(now) && had_cleared {
            self.note_first_check(now, pmd);
        }
        self.close_survey(now);
    }

    /// Whether first checks are to come, or the last ones may have more to show.
    fn is_survey_open(&self, now: Ns) -> bool {
        self.unchecked > 0 || self.survey.is_held_open(now)
    }

    /// Ends the survey, if everything was checked.
    fn close_survey(&mut self, now: Ns) {
        if self.unchecked == 0 {
            self.survey.close(now);
        }
    }

    fn insert(&mut self, now: Ns, pmd: PmdNo, bits: PmdBits, rank: Rank) {
        let Some(heat) = PmdHeat::new(bits) else { return };
        self.close_survey(now);
        self.unchecked += 1;
        if rank == Rank::Survey {
            self.survey.add_point(pmd);
            self.survey.expect(pmd);
        }
        let mut timing = Timing::default();
        timing.flags.set(Flags::SURVEYED, matches!(rank, Rank::Survey | Rank::Finer));
        self.pmds.insert(pmd, Entry { heat, timing });
        self.check_first(pmd, rank);
    }

    fn account(&mut self, pmd: PmdNo, found: AccessesFound) {
        let seen = u64::from(found.retouched);
        self.tally.retouched += seen;
        self.tally.still_set += u64::from(found.still_set);
        self.tally.lost += u64::from(found.lost);
        self.slowdown.spend(seen as f64 * RETOUCH_NS);
        if let Some(entry) = self.pmds.get_mut(pmd) {
            self.accessed.add(pmd, matches!(entry.heat, PmdHeat::Huge(_)), &found);
            let before = u64::from(entry.timing.reserved());
            let left = entry.timing.set_reserved(before.saturating_sub(seen));
            self.reserved -= before - u64::from(left);
        }
    }

    /// Takes the accesses to idle pages since the last call.
    pub(crate) fn take_accessed(&mut self) -> Accessed {
        std::mem::take(&mut self.accessed)
    }

    fn plan_after_read(&mut self, now: Ns, pmd: PmdNo, found: AccessesFound) {
        let Some(entry) = self.pmds.get_mut(pmd) else { return };
        let t = &mut entry.timing;
        let mut has_turned_hot = false;
        if !t.is(Flags::QUEUED) && t.next_clear() <= now {
            // Nothing was left to clear when it was due.
            t.plan_clear(0, false);
        }
        if found.unexpected >= MANY {
            t.set_backoff(0);
        }
        if t.rank().is_some() || t.is(Flags::URGENT | Flags::UNCLEARABLE | Flags::STUCK) {
            // It is cleared anyway, or never.
        } else if found.unexpected >= MANY {
            t.flags.insert(Flags::URGENT);
            self.urgent.push((t.plan_clear(now.max(SOONEST), true), pmd));
            has_turned_hot = true;
        } else if found.retouched >= MANY && t.backoff() > HOT_FROM && entry.heat.hot() >= MANY {
            // It was not known to be hot when its next check was planned.
            let turn = hot_turn(self.seed, pmd, now);
            if t.next_clear() > turn && self.slowdown.is_ample(now) {
                self.routine.push((t.plan_clear(turn, true), pmd));
            }
        } else if found.unexpected + found.weakly_unexpected > 0 {
            // A page here and there, as at the edge of any hot set. Soon, and after huge ranges that were never checked. But each only so
            // often: where accesses are at random, every range has such pages all the time.
            let is_few = found.unexpected + found.weakly_unexpected < MANY;
            let (soon, apart) =
                if found.unexpected > 0 { (FIRST_BACKOFF, MIN_RECHECK) } else { (WEAK_RECHECK, MIN_WEAK_RECHECK) };
            let soon = (now + soon).max(if is_few { entry.heat.cleared_at() + apart } else { 0 });
            if t.next_clear() == 0 || t.next_clear() > soon {
                if found.unexpected > 0 {
                    t.set_backoff(t.backoff().min(if is_few { RECHECK_BACKOFF } else { 0 }));
                }
                self.routine.push((t.plan_clear(soon, true), pmd));
            }
        }
        if found.renewed && t.rank().is_none() && !t.is(Flags::UNCLEARABLE | Flags::STUCK | Flags::URGENT) {
            // For much of it, it is a first check. Routine checks have the smallest shares of both budgets. What was never
            // checked at all does not wait for it.
            t.flags.insert(Flags::RENEWED);
            self.check_first(pmd, Rank::Rest);
        }
        if has_turned_hot {
            self.read_around(now, pmd);
        }
        let packed_from = if found.retouched > 0 { PACKED_FROM_IF_ACCESSED } else { PACKED_FROM };
        self.plan_read(now, pmd, packed_from);
    }

    /// Plans the next read, and a clear if there is something to learn again. Packs the huge range if that read is `packed_from` away.
    fn plan_read(&mut self, now: Ns, pmd: PmdNo, packed_from: Ns) {
        let scan_period = self.scan_period_ns;
        let is_hurried = self.is_hurried();
        // What a first check was expected to cost is a guess, and most of it comes at once or never.
        let horizon = if !self.is_survey_open(now) || self.survey.knows(pmd) { HORIZON } else { MIN_IDLE };
        let Some(entry) = self.pmds.get_mut(pmd) else { return };
        let t = &mut entry.timing;
        let waits = t.rank().is_some() || t.is(Flags::QUEUED | Flags::UNCLEARABLE | Flags::STUCK);
        if !waits && entry.heat.has_uncleared() {
            // Everything was cleared. Now there is something to learn again.
            let at = t.next_clear().max(now).max(SOONEST);
            self.routine.push((t.plan_clear(at, true), pmd));
        }
        if !entry.heat.has_cleared() {
            entry.heat.pack();
            return self.plan_presence_read(now, pmd);
        }
        let passed = FIRST_READ << t.step().min(20);
        // The read after 1,280 ms is not skipped: by then a page counts as idle. What is idle then is read again after 10 s.
        let doublings = match t.step() {
            _ if !is_hurried || t.is(Flags::SURVEYED) => 1,
            step if step < COUNTS_AS_IDLE_STEP => HURRIED_DOUBLINGS.min(COUNTS_AS_IDLE_STEP - step),
            _ => HURRIED_DOUBLINGS,
        };
        let next = (passed << doublings) - passed;
        let distance = if t.is(Flags::ASSUMED_IDLE) && passed >= MIN_IDLE { Ns::MAX } else { next };
        if distance >= scan_period.min(horizon) {
            // Retouches expected within the horizon have come by now, or they will not come.
            self.reserved -= u64::from(t.reserved());
            t.set_reserved(0);
        }
        if distance.min(scan_period) >= packed_from {
            entry.heat.pack();
        }
        let planned = t.next_read();
        if distance < scan_period {
            t.set_step(t.step() + doublings);
            // From the clear on, reads are at 10, 20, 40 ...: each gap is about as long as all gaps before it.
            t.plan_read(late_read(now + distance, distance));
        } else {
            t.plan_read(scan_turn(self.seed, pmd, now, scan_period));
            self.ahead.earn();
        }
        // A read on demand comes before the one that was planned, which may still be the next.
        if t.next_read() != planned {
            self.reads.push(t.next_read(), pmd);
        }
    }

    /// Huge ranges whose read is due, in address order.
    pub fn due_reads(&mut self, now: Ns) -> Vec<PmdNo> {
        let pmds = &mut self.pmds;
        self.reads.take_due(now, |pmd, at| pmds.get_mut(pmd).is_some_and(|e| e.timing.claim_read(at)))
    }

    /// Notes that `pmd` was cleared at `now`, except for the pages in `stuck`: several processes map them, or they
    /// are locked. If only those were left to clear, the huge range waits for [`Target::process_cleared`]. It is also tried
    /// again after a minute: other memory may be there by then, or the other processes that map it may have ended.
    pub fn cleared(&mut self, now: Ns, pmd: PmdNo, stuck: Mask) {
        let Some(entry) = self.pmds.get(pmd) else { return };
        let (was_renewed, is_hot) = (entry.timing.is(Flags::RENEWED), entry.heat.hot() >= MANY);
        let learned = self.mark_cleared(now, pmd, stuck);
        self.note_stuck(pmd, learned, stuck);
        let has_turns = is_hot && self.slowdown.is_ample(now);
        let Some(entry) = self.pmds.get_mut(pmd) else { return };
        let t = &mut entry.timing;
        t.flags.remove(Flags::URGENT);
        if t.is(Flags::STUCK) {
            self.routine.push((t.plan_clear(now + STUCK_RETRY, true), pmd));
            self.survey.drop_point(pmd);
            return;
        }
        if was_renewed {
            // For other pages than the checks before. They do not confirm each other.
            t.set_backoff(0);
        }
        t.set_hot(is_hot);
        let at = if has_turns && t.backoff() >= HOT_FROM {
            hot_turn(self.seed, pmd, now)
        } else {
            now + (FIRST_BACKOFF << t.backoff())
        };
        t.set_backoff((t.backoff() + 1).min(MAX_BACKOFF));
        // Most huge ranges are idle, and wait in no queue: there is nothing to clear until a read finds an access.
        let at = t.plan_clear(at, entry.heat.has_uncleared());
        if t.is(Flags::QUEUED) {
            self.routine.push((at, pmd));
        }
    }

    /// Notes that `pages` of `pmd` were cleared at `now` together with the whole process, which reaches every page, or every page of a file. They
    /// were read just before: where none was accessed since the last clear, its check goes on.
    pub fn process_cleared(&mut self, now: Ns, pmd: PmdNo, pages: Mask) {
        let Some(entry) = self.pmds.get(pmd) else { return };
        let is_new = !(entry.heat.uncleared() & pages).is_empty();
        // Hugetlb and device memory: such a clear skips it, too, and it would look hot for ever.
        if is_new && !entry.timing.is(Flags::UNCLEARABLE) {
            self.mark_cleared(now, pmd, !pages);
        }
    }

    /// Whether there is more to check for the first time than the budgets allow soon, so that reads are fewer but for the survey's.
    fn is_hurried(&self) -> bool {
        self.unchecked > HURRIED_FROM && self.survey.is_large()
    }

    /// Marks pages as cleared and plans the first read. Returns how many pages (or huge pages) that were.
    fn mark_cleared(&mut self, now: Ns, pmd: PmdNo, stuck: Mask) -> u64 {
        let expected = self.expected(pmd).unwrap_or(0);
        let assumed_idle = self.unchecked > 0 && self.survey.assumes_idle(pmd);
        let is_hurried = self.is_hurried();
        let Some(entry) = self.pmds.get_mut(pmd) else { return 0 };
        let learned = entry.heat.set_cleared(now, stuck);
        self.tally.cleared += learned;
        let t = &mut entry.timing;
        let is_first = t.first_checked();
        self.unchecked -= usize::from(is_first);
        t.set_rank(None);
        t.flags.remove(Flags::RENEWED);
        if is_first {
            if t.is(Flags::SURVEYED) {
                self.survey.add_point(pmd);
            }
            self.survey.note_first_begun(now, pmd);
        } else if self.unchecked > 0 {
            self.survey.expect(pmd);
        }
        self.reserved -= u64::from(t.reserved());
        self.reserved += u64::from(t.set_reserved(expected.min(learned)));
        let assumed_idle = assumed_idle && !t.is(Flags::SURVEYED);
        t.flags.set(Flags::ASSUMED_IDLE, assumed_idle);
        t.set_step(match (assumed_idle, is_hurried && !t.is(Flags::SURVEYED)) {
            (true, _) => IDLE_STEP,
            (false, true) => HURRIED_STEP,
            (false, false) => 0,
        });
        let distance = FIRST_READ << t.step();
        self.reads.push(t.plan_read(late_read(now + distance, distance)), pmd);
        self.close_survey(now);
        learned
    }

    /// Notes that `pmd` cannot be cleared by any means here. It is not tried again, and counts as unclearable.
    pub fn refused(&mut self, now: Ns, pmd: PmdNo) {
        if let Some(entry) = self.pmds.get_mut(pmd) {
            entry.timing.flags.insert(Flags::UNCLEARABLE);
            entry.timing.flags.remove(Flags::STUCK);
            self.partly_stuck.remove(pmd);
            self.unchecked -= usize::from(entry.timing.first_checked());
            self.survey.drop_point(pmd);
        }
        self.close_survey(now);
    }

    /// Whether `pmd` has cleared pages, so that a read can show something.
    pub fn has_cleared(&self, pmd: PmdNo) -> bool {
        self.pmds.get(pmd).is_some_and(|e| e.heat.has_cleared())
    }

    /// Huge ranges that wait for their first clear.
    pub fn unchecked(&self) -> usize {
        self.unchecked
    }

    /// Every huge range, in address order.
    pub fn all_pmds(&self) -> Vec<PmdNo> {
        self.pmds.keys().collect()
    }

    /// When the next read is due.
    pub fn next_read(&self) -> Option<Ns> {
        self.reads.next_at()
    }

    /// The share of never-measured pages expected to be touched again: the share seen so far, starting from a cautious
    /// half.
    fn prior(&self) -> f64 {
        (self.tally.retouched as f64 + 256.0) / (self.tally.cleared as f64 + 512.0)
    }

    /// Counts since the start.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Number of huge ranges known.
    pub fn len(&self) -> usize {
        self.pmds.len()
    }

    /// Whether no huge range is known.
    pub fn is_empty(&self) -> bool {
        self.pmds.is_empty()
    }

    /// Pages present.
    pub fn resident(&self) -> u64 {
        self.pmds.values().map(|e| e.heat.resident()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interval;
    use crate::track::ClearQuota;

    const ALL: ClearQuota = ClearQuota { urgent: 64, first: 64, routine: 64 };
    const URGENT: ClearQuota = ClearQuota { urgent: 64, first: 0, routine: 0 };

    #[test]
    fn a_huge_range_that_a_clear_did_not_reach_is_tried_again_after_a_minute() {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: 1_000_000_000 }, 1);
        target.read(0, PmdNo(1), PmdBits::Pages { young: Mask::ALL, present: Mask::ALL });
        let first = 1_000_000_000;
        assert_eq!(target.due_clears(first, ALL), [PmdNo(1)]);
        target.cleared(first, PmdNo(1), Mask::ALL);
        assert_eq!(target.stuck(), (vec![PmdNo(1)], 512));
        assert_eq!(target.due_clears(first + STUCK_RETRY - SOONEST, ALL), [] as [PmdNo; 0]);
        assert_eq!(target.due_clears(first + STUCK_RETRY, ALL), [PmdNo(1)]);
        // Still shared; cleared with the process a second later, and nothing in it is touched for the next two minutes.
        let second = first + STUCK_RETRY;
        target.cleared(second, PmdNo(1), Mask::ALL);
        target.process_cleared(second + 1_000_000_000, PmdNo(1), Mask::ALL);
        assert_eq!(target.due_clears(second + STUCK_RETRY, ALL), [] as [PmdNo; 0], "all of it is armed");
        let warm = second + STUCK_RETRY + 1_000_000_000;
        target.read(warm, PmdNo(1), PmdBits::Pages { young: Mask::ALL, present: Mask::ALL });
        let third = second + 2 * STUCK_RETRY;
        assert_eq!(target.due_clears(third, ALL), [PmdNo(1)]);
        // Private memory lies there now: the clear reaches it.
        target.cleared(third, PmdNo(1), Mask::NONE);
        assert_eq!(target.stuck(), (vec![], 0));
    }

    /// Pages that are measured, estimated, and neither.
    fn known(target: &Target, now: Ns) -> (u16, u16, u16) {
        let mut pages = (0, 0, 0);
        target.for_each_pmd(now, |_, view| {
            for run in view.runs {
                match (run.interval.is_measured(), run.estimated) {
                    (true, false) => pages.0 += run.pages,
                    (true, true) => pages.1 += run.pages,
                    (false, _) => pages.2 += run.pages,
                }
            }
        });
        pages
    }

    /// As at the edge of a hot span: the first second of the check has shown the hot pages, and of the others nothing.
    #[test]
    fn in_the_first_second_of_a_first_check_what_was_not_accessed_is_not_like_what_was() {
        const MS: Ns = 1_000_000;
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: 1000 * MS }, 1);
        let read = |target: &mut Target, ms, hot: std::ops::Range<usize>, present| {
            target.read(ms * MS, PmdNo(1), PmdBits::Pages { young: hot.collect(), present });
        };
        let few = (500..512).collect::<Mask>();
        read(&mut target, 0, 0..500, !few);
        target.cleared(0, PmdNo(1), Mask::NONE);
        read(&mut target, 50, 0..425, !few);
        assert_eq!(known(&target, 50 * MS), (425, 0, 75));
        read(&mut target, 1300, 0..0, !few);
        assert_eq!(known(&target, 1300 * MS), (500, 0, 0));
        // Twelve come, and it is checked again.
        read(&mut target, 9000, 0..512, Mask::ALL);
        assert_eq!(known(&target, 9000 * MS), (500, 12, 0));
        target.cleared(10_000 * MS, PmdNo(1), Mask::NONE);
        read(&mut target, 10_050, 0..500, Mask::ALL);
        assert_eq!(known(&target, 10_050 * MS), (500, 12, 0), "of old and new pages, the old ones are known");
    }

    #[test]
    fn a_few_pages_that_came_after_the_check_of_their_range_are_estimated_until_the_next() {
        const S: Ns = 1_000_000_000;
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let read = |target: &mut Target, now, young, present| {
            target.read(now, PmdNo(1), PmdBits::Pages { young, present });
        };
        let without = |few: std::ops::Range<usize>| !few.collect::<Mask>();
        read(&mut target, 0, Mask::ALL, without(0..200));
        // It has been checked for long, and the next check is a minute away.
        (0..6).for_each(|_| target.cleared(0, PmdNo(1), Mask::NONE));
        assert_eq!(known(&target, 0), (0, 0, 312), "no page has been idle for long enough");
        read(&mut target, 20 * S, Mask::NONE, without(0..200));
        assert_eq!(known(&target, 20 * S), (312, 0, 0));
        read(&mut target, 21 * S, (190..200).collect(), without(0..190));
        assert_eq!(known(&target, 21 * S), (312, 10, 0), "ten came and are like the others");
        read(&mut target, 22 * S, (0..200).collect(), Mask::ALL);
        assert_eq!(known(&target, 22 * S), (312, 0, 200), "too many to say");
        let first_only = ClearQuota { urgent: 0, first: 1, routine: 0 };
        assert_eq!(target.due_clears(22 * S, first_only), [PmdNo(1)], "so it is checked again, for the first time");
        assert_eq!(target.due_clears(200 * S, ALL), [] as [PmdNo; 0], "and not by a routine check as well");
        target.cleared(22 * S, PmdNo(1), Mask::NONE);
        read(&mut target, 32 * S, Mask::NONE, Mask::ALL);
        assert_eq!(known(&target, 32 * S), (512, 0, 0));
    }

    #[test]
    fn a_first_check_that_could_not_be_made_is_still_a_first_check() {
        const S: Ns = 1_000_000_000;
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: 60 * S }, 1);
        let pmds: Vec<PmdNo> = (0..40).map(PmdNo).collect();
        let fresh = target.refit(&pmds);
        let bits = PmdBits::Pages { young: Mask::ALL, present: Mask::ALL };
        fresh.iter().for_each(|pmd| target.read(0, *pmd, bits));
        let first_only = ClearQuota { urgent: 0, first: 64, routine: 0 };
        let due = target.due_clears(0, ClearQuota { first: 4, ..first_only });
        assert_eq!(due.len(), 4);
        due.iter().for_each(|pmd| target.clear_later(0, *pmd));
        let again = target.due_clears(S / 5, first_only);
        assert!(due.iter().all(|pmd| again.contains(pmd)), "{due:?}, then {again:?}");
        again.iter().for_each(|pmd| target.cleared(S / 5, *pmd, Mask::NONE));
        assert!(target.due_clears(S / 2, first_only).iter().all(|pmd| !due.contains(pmd)), "once");
    }

    #[test]
    fn a_large_target_is_surveyed_from_coarse_to_fine_before_the_rest_is_checked() {
        const MS: Ns = 1_000_000;
        let pmds: Vec<PmdNo> = (0..4096).map(PmdNo).collect();
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: 1000 * MS }, 1);
        let read = |target: &mut Target, now, pmds: &[PmdNo], young| {
            pmds.iter().for_each(|pmd| target.read(now, *pmd, PmdBits::Pages { young, present: Mask::ALL }));
        };
        let clear_all = |target: &mut Target, now| {
            let mut all = Vec::new();
            loop {
                let due = target.due_clears(now, ALL);
                if due.is_empty() {
                    return all;
                }
                due.iter().for_each(|pmd| target.cleared(now, *pmd, Mask::NONE));
                all.extend(due);
            }
        };
        let fresh = target.refit(&pmds);
        read(&mut target, 0, &fresh, Mask::ALL);
        // One in 32, and the last. All are idle, which a read in time shows.
        let coarse = clear_all(&mut target, 0);
        assert!((129..=130).contains(&coarse.len()), "{}", coarse.len());
        read(&mut target, 1290 * MS, &coarse, Mask::NONE);
        assert_eq!(clear_all(&mut target, 1290 * MS), [] as [PmdNo; 0], "edges could still be found");
        let finer = clear_all(&mut target, 1300 * MS);
        assert!((383..=385).contains(&finer.len()), "{}", finer.len());
        let due = target.due_reads(1310 * MS);
        assert!(
            finer.iter().all(|pmd| due.contains(pmd)),
            "their intervals are measured, although they should be idle"
        );
        read(&mut target, 2590 * MS, &finer, Mask::NONE);
        let rest = clear_all(&mut target, 2600 * MS);
        assert_eq!(coarse.len() + finer.len() + rest.len(), pmds.len());
        let due = target.due_reads(2610 * MS);
        assert!(!rest.iter().any(|pmd| due.contains(pmd)), "two reads show that they are idle");
    }

    #[test]
    fn while_much_of_a_large_target_waits_what_is_not_of_the_survey_is_read_less_often() {
        const MS: Ns = 1_000_000;
        let pmds: Vec<PmdNo> = (0..4096).map(PmdNo).collect();
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: 60_000 * MS }, 1);
        let half: Mask = (0..256).collect();
        let read = |target: &mut Target, now, pmd, young| {
            target.read(now, pmd, PmdBits::Pages { young, present: Mask::ALL });
        };
        // When it is read in the two seconds after its clear, half of it being accessed at once.
        let reads_of = |target: &mut Target, cleared_at: Ns, pmd| {
            target.cleared(cleared_at, pmd, Mask::NONE);
            let mut at = Vec::new();
            for ms in (0..2000).step_by(10) {
                let now = cleared_at + ms * MS;
                if target.due_reads(now).contains(&pmd) {
                    at.push(ms);
                    read(target, now, pmd, half);
                }
            }
            at
        };
        let fresh = target.refit(&pmds);
        fresh.iter().for_each(|pmd| read(&mut target, 0, *pmd, Mask::ALL));
        let of_survey = target.due_clears(0, ClearQuota { urgent: 0, first: 1, routine: 0 })[0];
        assert_eq!(
            reads_of(&mut target, 0, of_survey),
            [10, 20, 40, 80, 160, 300, 600, 1200],
            "the late ones on the grid"
        );
        let rank = |target: &Target, pmd| target.pmds.get(pmd).and_then(|entry: &Entry| entry.timing.rank());
        let rest: Vec<PmdNo> = pmds.iter().copied().filter(|pmd| rank(&target, *pmd) == Some(Rank::Rest)).collect();
        assert_eq!(reads_of(&mut target, 5000 * MS, rest[0]), [20, 160, 1300], "the last on the grid");
        let next = target.pmds.get(rest[0]).map(|entry: &Entry| entry.timing.next_read());
        assert!(next >= Some(15_000 * MS), "and ten seconds after its clear, not {next:?}");
        let (last, others) = (rest[rest.len() - 1], pmds.iter().filter(|pmd| !rest[rest.len() - 200..].contains(pmd)));
        others.for_each(|pmd| target.refused(9000 * MS, *pmd));
        assert!((1..=HURRIED_FROM).contains(&target.unchecked()), "{}", target.unchecked());
        assert_eq!(reads_of(&mut target, 9000 * MS, last), [10, 20, 40, 80, 160, 300, 600, 1200]);
    }

    #[test]
    fn a_range_that_was_given_back_and_filled_again_many_times_is_checked_soon_afterwards() {
        const S: Ns = 1_000_000_000;
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let halves: [Mask; 2] = [(0..256).collect(), (256..512).collect()];
        let read = |target: &mut Target, now, pages| {
            target.read(now, PmdNo(1), PmdBits::Pages { young: pages, present: pages });
        };
        let mut now = 20 * S;
        for round in 0..20 {
            read(&mut target, now, halves[round % 2]);
            assert_eq!(target.due_clears(now, ALL), [PmdNo(1)], "round {round}: other pages are there");
            target.cleared(now, PmdNo(1), Mask::NONE);
            now += S / 10;
        }
        // All that is known to be there was accessed, so little is to be learned by reads. The rest has come since.
        read(&mut target, now, halves[1]);
        assert_eq!(target.due_reads(now + 19 * S / 10), [] as [PmdNo; 0]);
        assert_eq!(target.due_clears(now + 2 * S, ALL), [PmdNo(1)]);
    }

    #[test]
    fn a_range_without_cleared_pages_is_read_every_few_seconds_unless_it_is_huge() {
        const S: Ns = 1_000_000_000;
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        target.refit(&[PmdNo(1)]);
        let all = PmdBits::Pages { young: Mask::ALL, present: Mask::ALL };
        target.read(0, PmdNo(1), all);
        target.cleared(S, PmdNo(1), Mask::NONE);
        let _ = target.due_reads(S + FIRST_READ);
        target.read(S + FIRST_READ, PmdNo(1), all);
        let mut reads = Vec::new();
        for tenth in 11..130 {
            let now = tenth * S / 10;
            if !target.due_reads(now).is_empty() {
                reads.push(now);
                target.read(now, PmdNo(1), all);
            }
        }
        assert!(reads[0] <= 5 * S && reads.windows(2).all(|two| two[1] - two[0] == 25 * S / 10), "{reads:?}");
        // Collapsed, and checked: the bit of the huge page is set again at once.
        target.read(13 * S, PmdNo(1), PmdBits::Huge { young: true });
        assert_eq!(target.due_clears(13 * S, ALL), [PmdNo(1)]);
        target.cleared(13 * S, PmdNo(1), Mask::NONE);
        let _ = target.due_reads(13 * S + FIRST_READ);
        target.read(13 * S + FIRST_READ, PmdNo(1), PmdBits::Huge { young: true });
        assert_eq!(target.due_reads(1000 * S), [] as [PmdNo; 0]);
    }

    /// A program takes and returns memory faster than all of it can be checked.
    #[test]
    fn what_stays_is_checked_although_new_memory_comes_faster_than_checks() {
        const S: Ns = 1_000_000_000;
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: 60 * S }, 1);
        let stays = 0..64;
        for listing in 0..20 {
            let now = listing * 6 * S;
            // Always the same two places, by turns.
            let comes = 10_000 + listing % 2 * 10_000;
            let listed: Vec<PmdNo> = stays.clone().chain(comes..comes + 2000).map(PmdNo).collect();
            for pmd in target.refit(&listed) {
                target.read(now, pmd, PmdBits::Pages { young: Mask::ALL, present: Mask::ALL });
            }
            let mut left = 1000;
            for tenth in 0..50 {
                let at = now + tenth * S / 10;
                for pmd in target.due_clears(at, ClearQuota { urgent: 0, first: left, routine: 0 }) {
                    target.cleared(at, pmd, Mask::NONE);
                    left -= 1;
                }
            }
            assert!(left < 100, "there is work for all that is allowed, {left}");
            assert!(target.first.len() <= 2 * 2064 + 4096 + 4000, "stale ones do not pile up: {}", target.first.len());
        }
        let waits = |pmd: &u64| !target.pmds.get(PmdNo(*pmd)).unwrap().timing.is(Flags::CHECKED);
        assert_eq!(stays.filter(waits).collect::<Vec<_>>(), [] as [u64; 0], "after two minutes");
    }

    #[test]
    fn what_nothing_can_clear_is_not_cleared_with_the_whole_process_either() {
        const S: Ns = 1_000_000_000;
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let read = |target: &mut Target, now| target.read(now, PmdNo(1), PmdBits::Huge { young: true });
        read(&mut target, 0);
        assert_eq!(target.due_clears(0, ALL), [PmdNo(1)]);
        target.refused(0, PmdNo(1));
        target.process_cleared(S, PmdNo(1), Mask::ALL);
        assert_eq!(
            target.due_reads(60 * S),
            [] as [PmdNo; 0],
            "hugetlb would be found accessed after 10 ms, each time"
        );
        assert!(!target.has_cleared(PmdNo(1)));
    }

    #[test]
    fn what_nothing_can_clear_is_not_estimated_to_be_like_its_neighbours() {
        const S: Ns = 1_000_000_000;
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let read = |target: &mut Target, now, pmds: &[PmdNo], young| {
            pmds.iter().for_each(|pmd| target.read(now, *pmd, PmdBits::Pages { young, present: Mask::ALL }));
        };
        let fresh = target.refit(&(0..64).map(PmdNo).collect::<Vec<_>>());
        read(&mut target, 0, &fresh, Mask::ALL);
        let checked = target.due_clears(0, ClearQuota { urgent: 0, first: 16, routine: 0 });
        checked.iter().for_each(|pmd| target.cleared(0, *pmd, Mask::NONE));
        read(&mut target, 2 * S, &checked, Mask::NONE);
        let estimated = |target: &Target| {
            let mut found = Vec::new();
            target.for_each_pmd(2 * S, |pmd, view| {
                found.extend(view.runs.iter().any(|run| run.estimated).then_some(pmd));
            });
            found
        };
        let before = estimated(&target);
        assert!(before.len() >= 8, "those between idle ones: {before:?}");
        target.refused(2 * S, before[0]);
        assert_eq!(estimated(&target), before[1..]);
    }

    /// The last clear of a target that is surveyed is a large one: the rest of its memory, a third of which is accessed all the time.
    #[test]
    fn what_is_assumed_holds_until_the_last_first_checks_have_shown_what_is_true() {
        const MS: Ns = 1_000_000;
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: 1000 * MS }, 1);
        let read = |target: &mut Target, ms, pmds: &[PmdNo]| {
            for pmd in pmds {
                let young = if (64..128).contains(&pmd.0) { Mask::ALL } else { Mask::NONE };
                target.read(ms * MS, *pmd, PmdBits::Pages { young, present: Mask::ALL });
            }
        };
        let clear = |target: &mut Target, ms, first| {
            let due = target.due_clears(ms * MS, ClearQuota { urgent: 0, first, routine: 0 });
            due.iter().for_each(|pmd| target.cleared(ms * MS, *pmd, Mask::NONE));
            due
        };
        let hot_and_unknown = |target: &Target, ms| {
            let mut pages = (0, 0);
            target.for_each_pmd(ms * MS, |_, view| {
                for run in view.runs {
                    match run.interval {
                        Interval::UNMEASURED => pages.1 += u32::from(run.pages),
                        interval if interval <= Interval::HOT => pages.0 += u32::from(run.pages),
                        _ => {}
                    }
                }
            });
            pages
        };
        let fresh = target.refit(&(0..96).chain(97..193).map(PmdNo).collect::<Vec<_>>());
        read(&mut target, 0, &fresh);
        let survey = clear(&mut target, 0, 26);
        [10, 20, 40, 1300].iter().for_each(|ms| read(&mut target, *ms, &survey));
        let edges = clear(&mut target, 1400, 64);
        [1410, 1420, 2700].iter().for_each(|ms| read(&mut target, *ms, &edges));
        let rest = clear(&mut target, 3000, 192);
        assert!(rest.len() > 96 && target.unchecked() == 0, "{} at last", rest.len());
        assert_eq!(hot_and_unknown(&target, 3000), (63 * 512, 0), "as before the clear");
        read(&mut target, 3010, &rest);
        read(&mut target, 4300, &rest);
        assert_eq!(hot_and_unknown(&target, 4300), (63 * 512, 0), "measured");
        // A range that comes meanwhile does not end it.
        read(&mut target, 4400, &[PmdNo(96)]);
        assert_eq!(hot_and_unknown(&target, 4400), (64 * 512, 0));
        target.gone(PmdNo(96));
        // Of one that comes after that nothing is assumed, although all around it is hot.
        read(&mut target, 6000, &rest);
        read(&mut target, 6000, &[PmdNo(96)]);
        assert_eq!(hot_and_unknown(&target, 6000), (63 * 512, 512));
    }

    #[test]
    fn several_surprises_go_first_and_one_or_two_soon() {
        const S: Ns = 1_000_000_000;
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let bits = |young| PmdBits::Pages { young, present: Mask::ALL };
        for pmd in [PmdNo(1), PmdNo(2)] {
            target.read(0, pmd, bits(Mask::ALL));
            target.cleared(0, pmd, Mask::NONE);
            target.read(5 * S, pmd, bits(Mask::NONE));
        }
        assert_eq!(target.due_clears(5 * S, ALL), [] as [PmdNo; 0], "every page is armed");
        // Idle for six seconds, of which nothing else was known, and touched.
        for (pmd, pages) in [(PmdNo(1), 1), (PmdNo(2), 8)] {
            target.read(6 * S, pmd, bits((0..pages).collect()));
        }
        assert_eq!(target.due_clears(6 * S, URGENT), [PmdNo(2)], "at once, whatever the budget");
        assert_eq!(target.due_clears(15 * S, ALL), [] as [PmdNo; 0], "it was checked not long ago");
        assert_eq!(target.due_clears(16 * S, ALL), [PmdNo(1)]);
        target.cleared(16 * S, PmdNo(1), Mask::NONE);
        target.read(40 * S, PmdNo(1), bits(Mask::NONE));
        // A page of which nothing else is known, and later the same, about as soon as before.
        target.read(41 * S, PmdNo(1), bits((9..10).collect()));
        assert_eq!(target.due_clears(42 * S, ALL), [] as [PmdNo; 0]);
        assert_eq!(target.due_clears(43 * S, ALL), [PmdNo(1)], "two seconds later, with the others");
        target.cleared(43 * S, PmdNo(1), Mask::NONE);
        target.read(60 * S, PmdNo(1), bits(Mask::NONE));
        target.read(61 * S, PmdNo(1), bits((9..10).collect()));
        let first = (61..200).find(|s| target.due_clears(s * S, ALL) == [PmdNo(1)]);
        assert_eq!(first, Some(75));
    }
}
