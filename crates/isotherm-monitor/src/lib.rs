//! Drives heat with a source: follows targets, keeps the budgets, makes snapshots.
//!
//! This is the one place where time passes. A source answers (`isotherm-sources` has those of this machine), and
//! `isotherm-heat` decides. This crate gives each target its turns, sleeps in between, and returns
//! [`Snapshot`](isotherm_heat::Snapshot)s. It runs on any [`Clock`], so a replayed history of an hour takes a moment.
//! It knows neither kinds of sources nor kinds of targets: trackers handle those ([`isotherm_heat::track`]).
//!
//! | module | job |
//! |---|---|
//! | `follow` | which processes were asked for |
//! | `targets` | which of them are watched; distribution of what all share |
//! | `watched` | one watched target |
//! | `turns` | reads and clears |
//! | `cpu` | the CPU budget of the monitor |
//! | `shared`, `cgroups`, `swapped` | pages that targets share; what is charged to their cgroups, and its limit; what is swapped out |
//! | `report` | snapshots and cost |

#![forbid(unsafe_code)]

mod cgroups;
mod cpu;
mod declined;
mod ended;
mod error;
mod follow;
mod report;
mod settings;
mod shared;
mod swapped;
mod targets;
mod turns;
mod watched;

pub use error::Error;
pub use follow::{Follower, Selection};
pub use settings::{INTERVALS_GOAL, Mode, Settings};

use cgroups::CgroupReader;
use cpu::CpuBudget;
use declined::Declined;
use ended::Ended;
use isotherm_heat::source::AccessSource;
use isotherm_heat::track::{SampledExtent, Spent};
use isotherm_heat::{Clock, Mapping, Ns, Region, Target};
use isotherm_sys::heap;
use isotherm_sys::proc::Proc;
use isotherm_sys::target_lock::TargetLocks;
use isotherm_units::{Bytes, PMD_SIZE};
use shared::Comparison;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use watched::TargetMonitor;

/// How often clears are considered, and so the shortest interval between two samples of a region, and the longest sleep. To wake up takes 20 to
/// 60 us.
pub const CLEAR_TICK: Ns = 200_000_000;
/// How often the frames of shared pages are compared.
const SHARED_TICK: Ns = 10_000_000_000;
/// The share of time that this may take.
const SHARED_SHARE: u64 = 1000;
/// The same while a comparison goes on, and for how long it does at once, or a piece longer: to wake up for each process takes longer than most of them.
const SHARED_PIECES_SHARE: u64 = 4;
const SHARED_AT_ONCE: Ns = 5_000_000;

/// A target is sampled if at the allowed CPU it would take longer than this to check all of its huge ranges once.
pub const FIRST_PICTURE: Ns = 300_000_000_000;

/// Watches processes through one source.
#[derive(Debug)]
pub struct Monitor<C: Clock> {
    source: SourceBox,
    follower: Follower,
    proc: Proc,
    clock: C,
    settings: Settings,
    watched: BTreeMap<u32, TargetMonitor>,
    /// Processes that cannot be watched, or have no memory of their own.
    declined: Declined,
    /// Locks on targets, if other monitors must not watch them.
    locks: Option<TargetLocks>,
    /// Messages for the user that were not reported yet.
    news: Vec<String>,
    reported_shortage: bool,
    reported_others: bool,
    cgroups: CgroupReader,
    cpu: CpuBudget,
    spent: Spent,
    /// The process whose turn was the first in which anything was cleared, last time.
    served_first: u32,
    /// When free memory is given back.
    next_give_back: Ns,
    ended: Ended,
    ever_watched: bool,
    /// A process could not be attached at the moment.
    try_again: bool,
    started: Ns,
    next_refit: Ns,
    /// No listing is moved forward to a moment before this.
    next_hurried_refit: Ns,
    /// What the last listing took.
    listing_took: Ns,
    next_clear: Ns,
    next_shared: Ns,
    /// A comparison that goes on.
    comparison: Option<Comparison>,
    last_snapshot: Ns,
}

struct SourceBox(Box<dyn AccessSource>);

impl std::fmt::Debug for SourceBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.describe().name)
    }
}

impl<C: Clock> Monitor<C> {
    /// A monitor that has checked nothing yet.
    pub fn new(source: Box<dyn AccessSource>, follower: Follower, clock: C, settings: Settings) -> Monitor<C> {
        // Summaries make lists of some 100 KB, and nothing here fills such lists over and over.
        heap::give_back_large_blocks();
        let now = clock.now();
        // Opening the source counts: this thread did it.
        let cpu = CpuBudget::new(settings.max_cpu_pct, (0, clock.cpu()), now);
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
            spent: Spent::default(),
            served_first: 0,
            next_give_back: now,
            ended: Ended::default(),
            ever_watched: false,
            try_again: false,
            started: now,
            next_refit: now,
            next_hurried_refit: now,
            listing_took: 0,
            next_clear: now,
            next_shared: now + SHARED_TICK / 4,
            comparison: None,
            last_snapshot: now,
            clock,
        }
    }

    /// The source.
    pub fn source(&self) -> &dyn AccessSource {
        &*self.source.0
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Counts CPU time from `cpu` on, read before the source was opened: the thread may have done other things before
    /// that.
    #[must_use]
    pub fn counting_from(mut self, cpu: Ns) -> Monitor<C> {
        self.cpu = self.cpu.counting_from(self.settings.max_cpu_pct, cpu, self.clock.now());
        self
    }

    /// Keeps other monitors from watching the same targets, and does not watch theirs: each would take accesses from
    /// the other. Only if this monitor's source clears accessed bits of processes.
    #[must_use]
    pub fn exclusive(mut self, locks: TargetLocks) -> Monitor<C> {
        let clears = self.source.0.describe().clears();
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

    /// The pages of one process, for callers that need more than regions; `None` if it is not watched page by page.
    pub fn pages_of(&self, pid: u32) -> Option<&Target> {
        self.watched.get(&pid)?.tracker.pages()
    }

    /// The regions of one process that is checked page by page, however many there are, in address order. A snapshot merges
    /// them down to the number allowed; ages are carried on from the last one. Costs as much as a snapshot.
    pub fn all_regions_of(&mut self, pid: u32) -> Option<Vec<Region>> {
        let now = self.clock.now();
        let watched = self.watched.get_mut(&pid)?;
        watched.tracker.pages()?;
        Some(watched.summarize_once(now, usize::MAX, 0).regions)
    }

    /// All mappings of one process as last listed (a snapshot has only those with regions); `None` if it is not
    /// watched.
    pub fn mappings_of(&self, pid: u32) -> Option<&[Mapping]> {
        Some(&self.watched.get(&pid)?.mappings)
    }

    /// How much memory of watched processes is known from samples only.
    pub fn sampled(&self) -> Bytes {
        let pmds: u64 = self.watched.values().filter(|w| !w.exited).map(TargetMonitor::sampled_pmds).sum();
        Bytes(pmds * PMD_SIZE)
    }

    /// The size of one process that is sampled, and the interval between checks of its regions. `None` if it is not watched, or
    /// not sampled.
    pub fn sampled_extent_of(&self, pid: u32) -> Option<SampledExtent> {
        self.watched.get(&pid)?.extent().sampled
    }

    /// Huge ranges (or regions of sampled targets) that were never checked, and the number of all. While the first are many,
    /// little is known about the heat.
    pub fn unchecked(&self) -> (usize, usize) {
        let trackers = self.watched.values().filter(|w| !w.exited).map(|w| &w.tracker);
        trackers.fold((0, 0), |(unchecked, all), t| (unchecked + t.unchecked(), all + t.extent().checked_one_by_one()))
    }

    /// Messages for users about the source that were not reported yet, one sentence each.
    pub fn news(&mut self) -> Vec<String> {
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.source.0.news());
        news
    }

    /// How long it has watched.
    pub fn elapsed_ns(&self) -> Ns {
        self.clock.now().saturating_sub(self.started)
    }

    /// Now, on the monitor's clock.
    pub fn now(&self) -> Ns {
        self.clock.now()
    }

    /// Watches until `until`, or until `stop` is set, or until there is nothing left to watch.
    ///
    /// Fails if a process that was named cannot be watched at all, or if the source itself fails.
    pub fn watch(&mut self, until: Ns, stop: &AtomicBool) -> Result<(), Error> {
        if self.ever_watched {
            // What the caller has done with the last snapshot: a file, a picture.
            self.charge_bookkeeping();
        }
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
            if now >= self.next_clear {
                self.cpu.pay_back_opening(now);
                self.clear_due();
                self.next_clear = now + CLEAR_TICK;
            }
            if now >= self.next_shared {
                let now = self.clock.now();
                self.next_shared = self.compare_shared(now);
            }
            self.charge_cpu();
            self.clock.sleep_until(self.next_event().min(until));
            self.cpu.charge_waking(self.clock.cpu(), self.clock.now());
        }
    }

    /// The recent share of the CPU budget that went into listing mappings, and into snapshots and what was done with them between two
    /// calls of [`Monitor::watch`]. Near one, snapshots should be made less often.
    pub fn bookkeeping_share(&self) -> f64 {
        self.cpu.bookkeeping_share(self.clock.now())
    }

    /// Charges the CPU time used since the last charge as bookkeeping.
    fn charge_bookkeeping(&mut self) {
        self.cpu.charge_bookkeeping(self.clock.cpu(), self.clock.now());
    }

    /// Charges the CPU time used since the last call to the budget. Returns the CPU time so far.
    fn charge_cpu(&mut self) -> Ns {
        self.cpu.charge(self.clock.cpu())
    }

    fn next_event(&self) -> Ns {
        self.next_read().min(self.next_clear).min(self.next_refit).min(self.next_shared)
    }

    /// When the first read of all is due. O(targets).
    fn next_read(&self) -> Ns {
        let reads = self.watched.values().filter(|w| !w.exited).filter_map(TargetMonitor::next_read);
        reads.min().unwrap_or(Ns::MAX)
    }

    /// Compares some of the memory that targets may share: a GiB, or that of many small processes. Returns when the next one is due, or the next comparison.
    fn compare_shared(&mut self, now: Ns) -> Ns {
        if self.alive().len() < 2 {
            self.forget_shared();
            return now + SHARED_TICK;
        }
        let alive = || Comparison::among(self.watched.values().filter(|w| !w.exited));
        let mut comparison = self.comparison.take().unwrap_or_else(alive);
        let mut took = 0;
        while took < SHARED_AT_ONCE
            && let Some((pid, current)) = comparison.turn()
        {
            self.step(pid, now, |w, turn| comparison.count(current, w, turn.source));
            took = self.clock.now().saturating_sub(now);
        }
        if self.alive().len() < 2 {
            self.forget_shared();
            return now + SHARED_TICK;
        }
        comparison.took += took;
        if comparison.is_over() {
            return now + SHARED_TICK.max(comparison.took * SHARED_SHARE);
        }
        self.comparison = Some(comparison);
        now + took * SHARED_PIECES_SHARE
    }

    /// Nobody else has what the last one shares with those that have ended.
    fn forget_shared(&mut self) {
        self.comparison = None;
        self.watched.values_mut().filter(|w| !w.exited).for_each(TargetMonitor::forget_shared);
    }
}

impl<C: Clock> Drop for Monitor<C> {
    fn drop(&mut self) {
        self.watched.values().filter(|w| !w.exited).for_each(|w| self.release(w.id));
    }
}
