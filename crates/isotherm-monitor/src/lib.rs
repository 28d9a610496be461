//! Drives heat with a source: follows targets, keeps the budgets, makes snapshots.
//!
//! The one place where time passes. `isotherm-sources` answers, `isotherm-heat` decides, this crate asks one and tells the
//! other, sleeps in between, and hands out [`Snapshot`]s. It runs on any [`Clock`], so a replayed history of an hour takes a
//! moment.

#![forbid(unsafe_code)]

mod cgroups;
mod declined;
mod follow;
mod shared;
mod watched;

pub use follow::{Follower, Selection};

use cgroups::CgroupReader;
use declined::Declined;
use isotherm_heat::{Bucket, Cost, Granularity, Mapping, Ns, Snapshot, Target, TargetFacts, TargetHeat, TargetId};
use isotherm_sources::{AccessSource, Accesses, Clock, Description, Error};
use isotherm_sys::proc::{Identity, Proc};
use isotherm_sys::target_lock::TargetLocks;
use isotherm_units::{BLOCK_SIZE, Bytes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use watched::{ARM_BATCH, Heat, Most, Spent, Watched};

/// More mappings than this for each region are not all told in a snapshot.
const MAPPINGS_PER_REGION: usize = 4;
/// How often clears are considered, and so the shortest interval between two samples of a region.
pub const ARM_TICK: Ns = 200_000_000;
/// Between two batches of clears, reads that are due so soon are done: a full batch takes as long, 64 blocks at 35 us, and reads
/// may be 4 ms early. Also how often at the most.
const READ_AHEAD: Ns = 2_000_000;
/// How often mappings and processes are listed again, at the most.
const REFIT_TICK: Ns = 1_000_000_000;
/// How soon a process that could not be attached just now is tried again.
const TRY_AGAIN: Ns = 10_000_000;
/// Listing may take this share of the time.
const REFIT_SHARE: u64 = 250;
/// Over how long the cost of listing and snapshots is averaged.
const BOOKED_LATELY: Ns = 10_000_000_000;
/// How often the frames of shared pages are compared.
const SHARED_TICK: Ns = 10_000_000_000;
/// That may take this share of the time.
const SHARED_SHARE: u64 = 1000;
/// Seconds' worth of CPU that may be used at once at the start.
const CPU_CREDIT_S: f64 = 10.0;
/// Of that, what the opening of the source may use up. What it took beyond is paid back with half of the budget: it may take ten times as
/// much when nothing is in the caches yet, and that must not keep the first picture waiting.
const OPENING_CREDIT_S: f64 = 5.0;
const OPENING_PAY_BACK: f64 = 0.5;
/// The share of the CPU budget that clears may use even when the rest has used up all of it, so that a target that is dear to
/// list (tens of thousands of mappings) is looked at all the same.
const LEAST_FOR_CLEARS: f64 = 0.2;
/// Seconds' worth of that which may be saved up: enough for a batch.
const LEAST_CREDIT_S: f64 = 2.5;
/// The share of the CPU budget that goes into patrol reads, once everything was looked at; and the share until then.
const PATROL_SHARE: f64 = 0.3;
const PATROL_SHARE_AT_FIRST: f64 = 0.15;
/// Everything but a few newcomers counts as everything.
const FEW_UNLOOKED: usize = 20;
const PATROL_SHORTEST: Ns = 1_000_000_000;
const PATROL_LONGEST: Ns = 60_000_000_000;
/// Never asleep for longer than this, so that a request to stop is heard.
const LONGEST_SLEEP: Ns = 100_000_000;

/// A target is sampled if at the allowed CPU it would take longer than this to look at all of its blocks once.
pub const FIRST_PICTURE: Ns = 300_000_000_000;
/// What looking at a block for the first time costs: a clear and the reads that follow.
const FIRST_LOOK_NS: f64 = 50_000.0;
/// Regions of a sampled target, however small its part of all that is sampled.
const LEAST_REGIONS: usize = 16;

/// How much of a target is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// All of it, as long as a first picture of all targets takes no more than five minutes at the allowed CPU.
    #[default]
    Auto,
    /// Every block.
    Whole,
    /// A block here and there in each of a bounded number of regions: cost does not follow the size of memory.
    Sampled,
}

/// What may be changed about watching.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How much of a target is looked at.
    pub mode: Mode,
    /// The bound on regions of one target; of all sampled targets together. At least 1.
    pub max_regions: usize,
    /// No region of a sampled target is larger than this, as far as `max_regions` allows.
    pub max_region: Option<Bytes>,
    /// Each region of a sampled target has a look in this time, if the budgets allow.
    pub sample_interval_ns: Ns,
    /// Slow-down allowed to each target, in percent of one core. Over 100: no limit.
    pub max_slowdown_pct: f64,
    /// CPU allowed to the monitor, in percent of one core. Over 100: no limit.
    pub max_cpu_pct: f64,
    /// Orders the first looks. The same seed and history give the same looks.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: Mode::Auto,
            max_regions: 1000,
            max_region: None,
            sample_interval_ns: 1_000_000_000,
            max_slowdown_pct: 1.0,
            max_cpu_pct: 1.0,
            seed: 1,
        }
    }
}

/// Watches processes through one source.
#[derive(Debug)]
pub struct Monitor<C: Clock> {
    source: SourceBox,
    follower: Follower,
    proc: Proc,
    clock: C,
    settings: Settings,
    watched: BTreeMap<u32, Watched>,
    /// Processes that cannot be watched, or have no memory of their own.
    declined: Declined,
    /// Locks on targets, if others are to be kept from watching them.
    locks: Option<TargetLocks>,
    /// Sentences for the user that were not reported yet.
    news: Vec<String>,
    reported_shortage: bool,
    reported_others: bool,
    cgroups: CgroupReader,
    cpu: Bucket,
    /// What clears may use whatever else was spent.
    least: Bucket,
    cpu_seen: Ns,
    /// CPU time of the thread before anything was done here.
    cpu_from: Ns,
    /// What opening the source took and is not paid back yet, and when a part of it was paid last.
    opening_debt_ns: f64,
    paid_at: Ns,
    read_ns_per_block: f64,
    clear_ns_per_block: f64,
    spent: Spent,
    turn: usize,
    bookkeeping_ns: Ns,
    booked_since: Ns,
    ended: Ended,
    ever_watched: bool,
    /// A process could not be attached just now.
    try_again: bool,
    started: Ns,
    next_refit: Ns,
    next_arm: Ns,
    next_shared: Ns,
    last_snapshot: Ns,
}

struct SourceBox(Box<dyn AccessSource>);

impl std::fmt::Debug for SourceBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.describe().name)
    }
}

/// Counts of processes that have ended.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    cleared: u64,
    retouched: u64,
    slowdown_pct: f64,
}

impl Ended {
    fn add(&mut self, watched: &Watched, now: Ns) {
        let tally = watched.tally();
        self.cleared += tally.cleared;
        self.retouched += tally.retouched;
        self.slowdown_pct = self.slowdown_pct.max(watched.slowdown_pct(now));
    }
}

/// How targets are watched, in sum: kept up while they are listed, since each of them depends on all others.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    whole_blocks: usize,
    sampled: usize,
}

impl Known {
    fn with(self, one: Known) -> Known {
        Known { whole_blocks: self.whole_blocks + one.whole_blocks, sampled: self.sampled + one.sampled }
    }

    fn without(self, one: Known) -> Known {
        Known { whole_blocks: self.whole_blocks - one.whole_blocks, sampled: self.sampled - one.sampled }
    }
}

impl<C: Clock> Monitor<C> {
    /// A monitor that has looked at nothing yet.
    pub fn new(source: Box<dyn AccessSource>, follower: Follower, clock: C, settings: Settings) -> Monitor<C> {
        let now = clock.now();
        // Opening the source counts: it was done in this thread.
        let cpu_seen = clock.cpu();
        let (cpu, opening_debt_ns) = opened(&settings, cpu_seen, now);
        Monitor {
            source: SourceBox(source),
            follower,
            proc: Proc::default(),
            settings,
            watched: BTreeMap::new(),
            declined: Declined::default(),
            locks: None,
            news: Vec::new(),
            reported_shortage: false,
            reported_others: false,
            cgroups: CgroupReader::default(),
            cpu,
            least: Bucket::new(settings.max_cpu_pct * LEAST_FOR_CLEARS, LEAST_CREDIT_S, now),
            cpu_seen,
            opening_debt_ns,
            cpu_from: 0,
            paid_at: now,
            read_ns_per_block: 1_500.0,
            clear_ns_per_block: 35_000.0,
            spent: Spent::default(),
            turn: 0,
            bookkeeping_ns: 0,
            booked_since: now,
            ended: Ended::default(),
            ever_watched: false,
            try_again: false,
            started: now,
            next_refit: now,
            next_arm: now,
            next_shared: now + SHARED_TICK / 4,
            last_snapshot: now,
            clock,
        }
    }

    /// The source.
    pub fn source(&self) -> &dyn AccessSource {
        &*self.source.0
    }

    /// How it watches.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Counts CPU time from `cpu` on, what the clock said before the source was opened: a thread may have done other things before.
    #[must_use]
    pub fn counting_from(mut self, cpu: Ns) -> Monitor<C> {
        let now = self.clock.now();
        self.cpu_from = cpu;
        (self.cpu, self.opening_debt_ns) = opened(&self.settings, self.cpu_seen.saturating_sub(cpu), now);
        self
    }

    /// Keeps other monitors from watching what this one does, and does not watch what another does: each would take accesses from the
    /// other. Only where this one's source clears accessed bits of processes.
    #[must_use]
    pub fn exclusive(mut self, locks: TargetLocks) -> Monitor<C> {
        let Description { granularity, accesses, .. } = self.source.0.describe();
        let clears = granularity != Granularity::Region && !matches!(accesses, Accesses::Only(_));
        self.locks = Some(locks).filter(|_| clears && self.follower.is_of_machine());
        self
    }

    /// Processes that were asked for and could not be watched, with the reason.
    pub fn refused(&self) -> &BTreeMap<u32, String> {
        self.declined.reasons()
    }

    /// Whether any process is being watched.
    pub fn is_watching(&self) -> bool {
        self.watched.values().any(|w| !w.exited)
    }

    /// The pages of one process, for faces that want more than regions; `None` if it is not watched page by page.
    pub fn pages_of(&self, pid: u32) -> Option<&Target> {
        match &self.watched.get(&pid)?.heat {
            Heat::Pages(target) => Some(target),
            Heat::Sampled(_) | Heat::Mappings(_) | Heat::Regions(_) | Heat::Reported(_) => None,
        }
    }

    /// All mappings of one process as last listed (a snapshot tells only those with regions); `None` if it is not watched.
    pub fn mappings_of(&self, pid: u32) -> Option<&[Mapping]> {
        Some(&self.watched.get(&pid)?.mappings)
    }

    /// How much memory of watched processes is known by samples only.
    pub fn sampled(&self) -> Bytes {
        let blocks: u64 = self.watched.values().filter(|w| !w.exited).map(Watched::sampled_blocks).sum();
        Bytes(blocks * BLOCK_SIZE)
    }

    /// Blocks (or regions of sampled targets) that were never looked at yet, of all that are known: while they are many, little is known of the heat.
    pub fn unlooked(&self) -> (usize, usize) {
        let all = self.watched.values().map(Watched::looked_at_one_by_one).sum();
        (self.watched.values().map(Watched::unlooked).sum(), all)
    }

    /// What people should know of the source and was not told yet, a sentence each.
    pub fn news(&mut self) -> Vec<String> {
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.source.0.news());
        news
    }

    /// Now, on the monitor's clock.
    pub fn now(&self) -> Ns {
        self.clock.now()
    }

    /// Watches until `until`, or until `stop` is set, or until there is nothing left to watch.
    ///
    /// Fails if a process that was named cannot be watched at all, or if the source itself fails.
    pub fn watch(&mut self, until: Ns, stop: &AtomicBool) -> Result<(), Error> {
        loop {
            let now = self.clock.now();
            if now >= until || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if now >= self.next_refit {
                self.refit(now)?;
                if !self.is_watching() && self.follower.is_named() && !self.try_again {
                    return Ok(());
                }
                continue;
            }
            self.read_due();
            if now >= self.next_arm {
                self.pay_back_opening(now);
                self.arm();
                self.next_arm = now + ARM_TICK;
            }
            if now >= self.next_shared {
                self.compare_shared();
                let took = self.clock.now().saturating_sub(now);
                self.next_shared = now + SHARED_TICK.max(took * SHARED_SHARE);
            }
            self.clock.sleep_until(self.next_event().min(until).min(self.clock.now() + LONGEST_SLEEP));
        }
    }

    fn next_event(&self) -> Ns {
        self.next_read().min(self.next_arm).min(self.next_refit).min(self.next_shared)
    }

    /// When the first read of all is due. O(targets).
    fn next_read(&self) -> Ns {
        let reads = self.watched.values().filter(|w| !w.exited).filter_map(Watched::next_read);
        reads.min().unwrap_or(Ns::MAX)
    }

    /// Lists processes and their mappings again.
    fn refit(&mut self, now: Ns) -> Result<(), Error> {
        self.charge_cpu();
        let pids = match self.follower.current().map_err(Error::from) {
            Err(error) if error.is_shortage() => {
                self.note_shortage(&error);
                self.next_refit = now + REFIT_TICK;
                return Ok(());
            }
            pids => pids?,
        };
        self.declined.keep_listed(&pids);
        let all = self.refit_known(&pids, now);
        self.try_again = false;
        let first_error = self.attach_new(&pids, now, all);
        // Named, and none of them can be watched: the user wants to know. A child that has ended already is no news.
        if let Some(error) = first_error
            .filter(|_| self.follower.is_named() && self.watched.is_empty() && !self.ever_watched && !self.try_again)
        {
            return Err(error);
        }
        self.ever_watched |= !self.watched.is_empty();
        self.set_patrol();
        self.deal_regions();
        self.charge_bookkeeping();
        let took = self.clock.now().saturating_sub(now);
        self.next_refit = now + if self.try_again { TRY_AGAIN } else { REFIT_TICK.max(took * REFIT_SHARE) };
        Ok(())
    }

    /// Lists the mappings of processes that are watched. One that executes another program is dropped here, and attached anew right after.
    fn refit_known(&mut self, pids: &[u32], now: Ns) -> Known {
        let alive = self.alive();
        let mut all = alive.iter().fold(Known::default(), |all, pid| all.with(self.known(*pid)));
        for pid in alive {
            let others = all.without(self.known(pid));
            if pids.binary_search(&pid).is_err() {
                self.end(pid);
            } else {
                let room = self.room_for_whole(others);
                self.step(pid, |w, source, spent| w.refit(source, now, room, spent));
            }
            all = others.with(self.known(pid));
        }
        all
    }

    /// Begins to watch who is new; returns the first reason for which one cannot be.
    fn attach_new(&mut self, pids: &[u32], now: Ns, mut all: Known) -> Option<Error> {
        let mut first_error = None;
        for pid in pids {
            if self.watched.contains_key(pid) || self.declined.holds(*pid, self.follower.meant(*pid), now) {
                continue;
            }
            let failed = self.attach(*pid, now, self.room_for_whole(all));
            all = all.with(self.known(*pid));
            let is_short = failed.as_ref().is_some_and(Error::is_shortage);
            first_error = first_error.or(failed);
            if is_short {
                // The next would fail as well. They wait for those that end, or for a higher limit.
                break;
            }
        }
        first_error
    }

    /// Says once that descriptors are short.
    fn note_shortage(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.reported_shortage, true) {
            self.news.push(format!("not all processes are watched yet: {error}"));
        }
    }

    /// What of a target matters to how much of the others may be watched whole.
    fn known(&self, pid: u32) -> Known {
        let of = |w: &Watched| Known { whole_blocks: w.whole_blocks(), sampled: usize::from(w.is_sampled()) };
        self.watched.get(&pid).filter(|w| !w.exited).map_or(Known::default(), of)
    }

    /// How many blocks a process may have to be watched whole, beside the others that are; none if another is sampled.
    fn room_for_whole(&self, others: Known) -> usize {
        match self.settings.mode {
            Mode::Whole => usize::MAX,
            // All or nothing: first looks at what is whole would starve beside samples, and samples beside re-looks.
            Mode::Auto if others.sampled == 0 => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 300 s / 50 us")]
                let limit = (FIRST_PICTURE as f64 * self.cpu.share().min(1.0) / FIRST_LOOK_NS) as usize;
                limit.saturating_sub(others.whole_blocks)
            }
            Mode::Sampled | Mode::Auto => 0,
        }
    }

    /// Deals out the regions that there may be among sampled targets, by their size.
    fn deal_regions(&mut self) {
        let all: u64 = self.watched.values().filter(|w| !w.exited).map(Watched::sampled_blocks).sum();
        for watched in self.watched.values_mut() {
            if let Heat::Sampled(target) = &mut watched.heat {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a usize")]
                let share = (self.settings.max_regions as f64 * target.blocks() as f64 / all.max(1) as f64) as usize;
                target.set_max_regions(share.max(LEAST_REGIONS.min(self.settings.max_regions)));
            }
        }
    }

    fn alive(&self) -> Vec<u32> {
        self.watched.iter().filter(|(_, w)| !w.exited).map(|(pid, _)| *pid).collect()
    }

    /// Begins to watch a process; returns why it cannot be watched, if so.
    fn attach(&mut self, pid: u32, now: Ns, room: usize) -> Option<Error> {
        let description = self.source.0.describe();
        let tried = self.source.0.attach(pid).and_then(|(id, comm)| {
            self.admit(id)?;
            let mut watched = Watched::new(id, comm, &description, now, &self.settings);
            let fitted = watched.refit(&mut *self.source.0, now, room, &mut self.spent);
            fitted.inspect_err(|_| self.release(id))?;
            Ok(watched)
        });
        match tried {
            Ok(mut watched) => {
                // Reading it all for the first time happens once and is no bookkeeping.
                self.charge_cpu();
                watched.cgroup = self.cgroup_of(watched.id);
                watched.runs_guest |= self.follower.is_of_machine() && self.proc.holds_guest(pid).unwrap_or(false);
                self.watched.insert(pid, watched);
                self.declined.forget(pid);
                None
            }
            Err(error) => {
                self.source.0.detach(pid);
                self.decline(pid, now, &error);
                Some(error)
            }
        }
    }

    /// Whether a process that was attached is one to watch: the one that was meant, and not another monitor's.
    fn admit(&self, id: TargetId) -> Result<(), Error> {
        if !self.follower.means(id.pid, id.start_ticks) {
            return Err(Error::Gone(id.pid));
        }
        let Some(locks) = &self.locks else { return Ok(()) };
        let failed =
            |source| Error::Io { attempted: format!("lock process {} against other monitors", id.pid), source };
        locks.claim(identity(id)).map_err(failed)?.map_err(|holder| Error::Watched {
            pid: id.pid,
            holder: holder.pid,
            command: holder.command,
        })
    }

    fn release(&self, id: TargetId) {
        if let Some(locks) = &self.locks {
            locks.release(identity(id));
        }
    }

    fn decline(&mut self, pid: u32, now: Ns, error: &Error) {
        match error {
            // In the middle of an exec, say: it is there, and is tried again at once.
            Error::Busy(_) | Error::Replaced(_) => self.try_again = true,
            short if short.is_shortage() => self.note_shortage(short),
            other => {
                // Kernel threads, and children that ended before they were attached, are no news.
                let is_news = !other.is_gone() || self.follower.was_named(pid);
                self.declined.note(pid, self.follower.meant(pid), now, is_news.then(|| other.to_string()));
            }
        }
    }

    /// The cgroup of a process; empty if it is none of this machine's, as in a replay.
    fn cgroup_of(&mut self, id: TargetId) -> String {
        if let Some(told) = self.source.0.cgroup_of(id.pid) {
            return told;
        }
        let here = self.proc.identity(id.pid).is_ok_and(|i| i.start_ticks == id.start_ticks);
        let Some(membership) = self.proc.membership(id.pid).ok().filter(|_| here) else { return String::new() };
        self.cgroups.note(&self.proc, &membership);
        membership.memory_path().unwrap_or_default().to_owned()
    }

    /// Marks a process as ended; it is told once more, in the next snapshot.
    fn end(&mut self, pid: u32) {
        if let Some(watched) = self.watched.get_mut(&pid) {
            watched.exited = true;
            // What it did last; its end is known, and nothing else can be wrong.
            let _ = watched.take_accesses(&mut *self.source.0);
            let id = watched.id;
            self.release(id);
        }
        self.source.0.detach(pid);
        self.follower.ended(pid);
    }

    /// Does one thing with one process; its end, or another program in its place, is a normal outcome.
    fn step(&mut self, pid: u32, f: impl FnOnce(&mut Watched, &mut dyn AccessSource, &mut Spent) -> Result<(), Error>) {
        let Some(watched) = self.watched.get_mut(&pid) else { return };
        match f(watched, &mut *self.source.0, &mut self.spent) {
            // Busy: nothing was learned and nothing is lost; the next turn tries again.
            Ok(()) | Err(Error::Busy(_)) => {}
            Err(error) if error.is_shortage() => self.note_shortage(&error),
            Err(Error::Replaced(_)) => self.replace(pid),
            Err(error) if error.is_gone() => self.end(pid),
            Err(error) => {
                let now = self.clock.now();
                self.declined.note(pid, self.follower.meant(pid), now, Some(error.to_string()));
                self.end(pid);
            }
        }
    }

    /// The process executes another program: all that was known is of memory that is no more.
    fn replace(&mut self, pid: u32) {
        self.source.0.detach(pid);
        if let Some(watched) = self.watched.remove(&pid) {
            self.release(watched.id);
            self.ended.add(&watched, self.clock.now());
        }
        self.next_refit = 0;
    }

    fn read_due(&mut self) {
        let began = self.charge_cpu();
        let blocks = self.spent.blocks_read;
        for pid in self.alive() {
            let now = self.clock.now();
            self.step(pid, |w, source, spent| w.read_due(source, now, spent));
        }
        let read = self.spent.blocks_read - blocks;
        let took = self.charge_cpu().saturating_sub(began);
        if read >= 64 {
            learn(&mut self.read_ns_per_block, took, read);
        }
    }

    /// Clears what is due, as far as the budgets go. Targets take turns, a batch each. O(targets), at the most once more in
    /// [`READ_AHEAD`], and what it takes to clear and to read.
    fn arm(&mut self) {
        // Who was first last time is last this time, so that a small budget is not used up by the lowest pids.
        let mut targets = self.alive();
        targets.retain(|pid| self.watched[pid].is_cleared());
        let regions_each = self.regions_each();
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn % targets.len().max(1);
        targets.rotate_left(first);
        // Kept beside: to ask all targets after each of them would cost the square of their number.
        let (mut next_read, mut read_at) = (self.next_read(), self.clock.now());
        while !targets.is_empty() {
            let mut busy = Vec::new();
            for pid in targets {
                let began = self.charge_cpu();
                let now = self.clock.now();
                let tokens = self.cpu.available_ns(now).max(self.least.available_ns(now));
                let most = self.affordable(tokens);
                let blocks = self.spent.blocks_cleared;
                let mut cleared = 0;
                self.step(pid, |w, source, spent| {
                    if most != Most::Urgent {
                        w.clear_stuck(source, now, spent)?;
                    }
                    cleared = w.arm_due(source, now, most.dealt(w.share_of_looks(regions_each)), spent)?;
                    Ok(())
                });
                let took = self.charge_cpu().saturating_sub(began);
                self.least.spend(took as f64);
                if self.spent.blocks_cleared > blocks {
                    learn(&mut self.clear_ns_per_block, took, self.spent.blocks_cleared - blocks);
                }
                // Reads that fall due while many are cleared must not wait for the last of them.
                let of_target = self.watched.get(&pid).filter(|w| !w.exited).and_then(Watched::next_read);
                next_read = next_read.min(of_target.unwrap_or(Ns::MAX));
                let now = self.clock.now();
                if next_read.saturating_sub(READ_AHEAD).max(read_at + READ_AHEAD) <= now {
                    self.read_due();
                    (next_read, read_at) = (self.next_read(), now);
                }
                if cleared > 1 && most != Most::Urgent {
                    busy.push(pid);
                }
            }
            targets = busy;
        }
    }

    /// Regions of a sampled target on average.
    fn regions_each(&self) -> f64 {
        let sampled = || self.watched.values().filter(|w| !w.exited && w.is_sampled());
        sampled().map(Watched::looked_at_one_by_one).sum::<usize>() as f64 / sampled().count().max(1) as f64
    }

    /// How many blocks can be cleared for `tokens` of CPU time.
    ///
    /// Every batch is read back seven times within a second or so, and each of these passes has a cost of its own, as much as
    /// reading forty blocks: so a small budget is saved up for whole batches.
    fn affordable(&self, tokens: f64) -> Most {
        let blocks = tokens / self.clear_ns_per_block;
        let batch = (self.cpu.capacity_ns() / self.clear_ns_per_block / 4.0).min(ARM_BATCH as f64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and bounded")]
        if blocks < batch.max(1.0) { Most::Urgent } else { Most::Blocks(blocks.min(1e6) as usize) }
    }

    fn compare_shared(&mut self) {
        let alive = self.alive();
        if alive.len() < 2 {
            return;
        }
        let mut frames = shared::Frames::among(self.watched.values().filter(|w| !w.exited));
        for pid in alive {
            self.step(pid, |w, source, _| frames.count(w, source));
        }
    }

    fn set_patrol(&mut self) {
        let blocks: usize = self.watched.values().map(Watched::whole_blocks).sum();
        let unlooked: usize = self.watched.values().map(Watched::unlooked).sum();
        let for_reads = if unlooked * FEW_UNLOOKED > blocks { PATROL_SHARE_AT_FIRST } else { PATROL_SHARE };
        // What listing and snapshots take is not there for reads.
        let share = self.cpu.share() * for_reads * (1.0 - self.bookkeeping_share().min(0.75));
        let ns = blocks as f64 * self.read_ns_per_block / share.max(1e-6);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a minute")]
        let patrol = ns.clamp(PATROL_SHORTEST as f64, PATROL_LONGEST as f64) as Ns;
        for watched in self.watched.values_mut() {
            if let Heat::Pages(target) = &mut watched.heat {
                target.set_patrol(patrol);
            }
        }
    }

    /// Takes a part of what opening the source took out of the budget, as much as the time since the last call allows.
    fn pay_back_opening(&mut self, now: Ns) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.paid_at, now)) as f64;
        let part = (passed * self.cpu.share() * OPENING_PAY_BACK).min(self.opening_debt_ns);
        self.opening_debt_ns -= part;
        self.cpu.spend(part);
    }

    /// Takes CPU time used since the last call out of the budget. Returns the CPU time so far.
    fn charge_cpu(&mut self) -> Ns {
        let cpu = self.clock.cpu();
        self.cpu.spend(cpu.saturating_sub(self.cpu_seen) as f64);
        self.cpu_seen = cpu;
        cpu
    }

    /// Takes CPU time of listing and snapshots out of the budget, and notes it as such.
    fn charge_bookkeeping(&mut self) {
        let before = self.cpu_seen;
        self.bookkeeping_ns += self.charge_cpu().saturating_sub(before);
        // Only what was lately counts: the older half is forgotten again and again.
        let lately = self.clock.now().saturating_sub(self.booked_since);
        if lately > BOOKED_LATELY {
            self.bookkeeping_ns /= 2;
            self.booked_since += lately / 2;
        }
    }

    /// Which share of the CPU budget lately went into listing mappings and making snapshots. Above a half, snapshots should be
    /// made less often.
    pub fn bookkeeping_share(&self) -> f64 {
        let granted =
            self.clock.now().saturating_sub(self.booked_since).max(BOOKED_LATELY / 4) as f64 * self.cpu.share();
        self.bookkeeping_ns as f64 / granted
    }

    /// The heat of all targets now. Wall time is an argument: the monitor's clock may be a replay's.
    pub fn snapshot(&mut self, unix_ns: u64) -> Snapshot {
        for pid in self.alive() {
            self.step(pid, |w, source, _| w.take_accesses(source));
        }
        let now = self.clock.now();
        let elapsed = now.saturating_sub(self.last_snapshot);
        let used: BTreeSet<&str> = self.watched.values().map(|w| w.cgroup.as_str()).collect();
        self.cgroups.refresh(now, &used);
        let mut targets = Vec::with_capacity(self.watched.len());
        for watched in self.watched.values_mut() {
            let facts = TargetFacts {
                cleared_by_others_pages: watched.cleared_by_others(),
                runs_guest: watched.runs_guest,
                cgroup_memory: self.cgroups.memory(&watched.cgroup),
            };
            targets.push(TargetHeat { facts, ..target_heat(watched, now, elapsed, &self.settings) });
        }
        self.note_others(&targets);
        self.forget_ended(now);
        self.last_snapshot = now;
        self.charge_bookkeeping();
        Snapshot { start_unix_ns: unix_ns.saturating_sub(elapsed), end_unix_ns: unix_ns, targets, cost: self.cost(now) }
    }

    /// Says once that somebody else clears accessed bits.
    fn note_others(&mut self, targets: &[TargetHeat]) {
        let Some(target) = targets.iter().find(|t| t.facts.cleared_by_others_pages > 0) else { return };
        if !std::mem::replace(&mut self.reported_others, true) {
            self.news.push(format!(
                "accessed bits of process {} ({}) are cleared by something else as well (another monitor, the kernel's DAMON, reclaim, or the \
                 program's own MADV_FREE): less access is found than there is",
                target.id.pid, target.comm
            ));
        }
    }

    fn forget_ended(&mut self, now: Ns) {
        let ended: Vec<u32> = self.watched.iter().filter(|(_, w)| w.exited).map(|(pid, _)| *pid).collect();
        for pid in ended {
            if let Some(watched) = self.watched.remove(&pid) {
                self.ended.add(&watched, now);
            }
        }
    }

    /// What watching has cost so far. The slow-down is that of the target that suffered most.
    pub fn cost(&self, now: Ns) -> Cost {
        let tallies = || self.watched.values().map(Watched::tally);
        let reports = self.source.0.reports();
        let worst = self.watched.values().map(|w| w.slowdown_pct(now)).fold(self.ended.slowdown_pct, f64::max);
        Cost {
            elapsed_ns: now.saturating_sub(self.started),
            monitor_cpu_ns: self.clock.cpu().saturating_sub(self.cpu_from),
            pages_read: self.spent.pages_read,
            pages_cleared: self.ended.cleared + tallies().map(|t| t.cleared).sum::<u64>(),
            pages_retouched: self.ended.retouched + tallies().map(|t| t.retouched).sum::<u64>(),
            slowdown_pct: worst,
            longest_hold_ns: self.spent.longest_hold_ns,
            read_errors: self.spent.read_errors,
            samples: reports.samples,
            samples_lost: reports.lost,
            events: reports.events,
        }
    }
}

/// The CPU budget after the source was opened for so much CPU time, and what of that is still to be paid back.
fn opened(settings: &Settings, opening: Ns, now: Ns) -> (Bucket, f64) {
    let mut cpu = Bucket::new(settings.max_cpu_pct, CPU_CREDIT_S, now);
    let at_once = (opening as f64).min(cpu.share() * OPENING_CREDIT_S * 1e9);
    cpu.spend(at_once);
    (cpu, opening as f64 - at_once)
}

impl<C: Clock> Drop for Monitor<C> {
    fn drop(&mut self) {
        self.watched.values().filter(|w| !w.exited).for_each(|w| self.release(w.id));
    }
}

fn target_heat(watched: &mut Watched, now: Ns, elapsed: Ns, settings: &Settings) -> TargetHeat {
    let sum = watched.summarize(now, settings.max_regions, elapsed);
    watched.regions.clone_from(&sum.regions);
    TargetHeat {
        id: watched.id,
        comm: watched.comm.clone(),
        cgroup: watched.cgroup.clone(),
        exited: watched.exited,
        granularity: watched.heat.granularity(),
        mappings: shown_mappings(watched, &sum.regions),
        regions: sum.regions,
        temperature: sum.temperature,
        idle: sum.idle,
        counted_elsewhere_pages: watched.counted_elsewhere_pages,
        maybe_shared_pages: watched.maybe_shared_pages,
        unclearable_pages: sum.unclearable_pages,
        facts: TargetFacts::default(),
    }
}

/// The mappings for a snapshot: those of the last one, if they are the same.
fn shown_mappings(watched: &mut Watched, regions: &[isotherm_heat::Region]) -> Arc<[Mapping]> {
    let mappings = mappings_with_regions(watched, regions);
    if *watched.shown_mappings != *mappings {
        watched.shown_mappings = mappings.into();
    }
    Arc::clone(&watched.shown_mappings)
}

/// Mappings that hold part of a region: both lists are sorted. Where a few regions span thousands of mappings, only those in
/// which a region begins: nobody reads the others, and every snapshot would carry them.
fn mappings_with_regions(watched: &Watched, regions: &[isotherm_heat::Region]) -> Vec<isotherm_heat::Mapping> {
    let mut at = 0;
    let holds = |m: &&isotherm_heat::Mapping| {
        at += regions[at..].partition_point(|r| r.range.end <= m.range.start);
        regions.get(at).is_some_and(|r| r.range.start < m.range.end)
    };
    if watched.mappings.len() > MAPPINGS_PER_REGION * regions.len() {
        let holding = |start| {
            let after = watched.mappings.partition_point(|m| m.range.start <= start);
            watched.mappings[..after].last().filter(|m| m.range.contains(start)).cloned()
        };
        let mut named: Vec<_> = regions.iter().filter_map(|r| holding(r.range.start)).collect();
        named.dedup();
        return named;
    }
    watched.mappings.iter().filter(holds).cloned().collect()
}

/// The same process, as locks name it.
fn identity(id: TargetId) -> Identity {
    Identity { pid: id.pid, start_ticks: id.start_ticks }
}

fn learn(estimate: &mut f64, took: Ns, count: u64) {
    *estimate = *estimate * 0.8 + (took as f64 / count as f64) * 0.2;
}
