//! Drives heat with a source: follows targets, keeps the budgets, makes snapshots.
//!
//! The one place where time passes. A source answers (`isotherm-sources` has those of this machine), `isotherm-heat` decides, this crate
//! gives each target its turns, sleeps in between, and hands out [`Snapshot`](isotherm_heat::Snapshot)s. It runs on any [`Clock`], so a
//! replayed history of an hour takes a moment. It knows neither kinds of sources nor kinds of targets: those are trackers
//! ([`isotherm_heat::track`]).
//!
//! | module | job |
//! |---|---|
//! | `follow` | which processes were asked for |
//! | `targets` | who of them is watched; what all share is dealt out |
//! | `watched` | one of them |
//! | `turns` | reads and clears |
//! | `cpu` | what of the CPU may be spent |
//! | `shared`, `cgroups` | what targets share; what their cgroups are charged for |
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
mod targets;
mod turns;
mod watched;

pub use error::Error;
pub use follow::{Follower, Selection};
pub use settings::{Mode, Settings};

use cgroups::CgroupReader;
use cpu::CpuBudget;
use declined::Declined;
use ended::Ended;
use isotherm_heat::source::AccessSource;
use isotherm_heat::track::Spent;
use isotherm_heat::{Clock, Mapping, Ns, Target};
use isotherm_sys::proc::Proc;
use isotherm_sys::target_lock::TargetLocks;
use isotherm_units::{BLOCK_SIZE, Bytes};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use watched::Watched;

/// How often clears are considered, and so the shortest interval between two samples of a region.
pub const ARM_TICK: Ns = 200_000_000;
/// How often the frames of shared pages are compared.
const SHARED_TICK: Ns = 10_000_000_000;
/// That may take this share of the time.
const SHARED_SHARE: u64 = 1000;
/// Never asleep for longer than this, so that a request to stop is heard.
const LONGEST_SLEEP: Ns = 100_000_000;

/// A target is sampled if at the allowed CPU it would take longer than this to check all of its blocks once.
pub const FIRST_PICTURE: Ns = 300_000_000_000;

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
    cpu: CpuBudget,
    spent: Spent,
    turn: usize,
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

impl<C: Clock> Monitor<C> {
    /// A monitor that has looked at nothing yet.
    pub fn new(source: Box<dyn AccessSource>, follower: Follower, clock: C, settings: Settings) -> Monitor<C> {
        let now = clock.now();
        // Opening the source counts: it was done in this thread.
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
            turn: 0,
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
        self.cpu = self.cpu.counting_from(self.settings.max_cpu_pct, cpu, self.clock.now());
        self
    }

    /// Keeps other monitors from watching what this one does, and does not watch what another does: each would take accesses from the
    /// other. Only where this one's source clears accessed bits of processes.
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

    /// The pages of one process, for faces that want more than regions; `None` if it is not watched page by page.
    pub fn pages_of(&self, pid: u32) -> Option<&Target> {
        self.watched.get(&pid)?.tracker.pages()
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
        let trackers = self.watched.values().map(|w| &w.tracker);
        trackers.fold((0, 0), |(unchecked, all), t| (unchecked + t.unchecked(), all + t.extent().checked_one_by_one()))
    }

    /// What people should know of the source and was not told yet, a sentence each.
    pub fn news(&mut self) -> Vec<String> {
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.source.0.news());
        news
    }

    /// For how long it has watched.
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
                self.cpu.pay_back_opening(now);
                self.clear_due();
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

    /// Which share of the CPU budget lately went into listing mappings and making snapshots. Above a half, snapshots should be
    /// made less often.
    pub fn bookkeeping_share(&self) -> f64 {
        self.cpu.bookkeeping_share(self.clock.now())
    }

    /// Takes CPU time used since the last call out of the budget. Returns the CPU time so far.
    fn charge_cpu(&mut self) -> Ns {
        self.cpu.charge(self.clock.cpu())
    }

    fn next_event(&self) -> Ns {
        self.next_read().min(self.next_arm).min(self.next_refit).min(self.next_shared)
    }

    /// When the first read of all is due. O(targets).
    fn next_read(&self) -> Ns {
        let reads = self.watched.values().filter(|w| !w.exited).filter_map(Watched::next_read);
        reads.min().unwrap_or(Ns::MAX)
    }

    fn compare_shared(&mut self) {
        let alive = self.alive();
        if alive.len() < 2 {
            return;
        }
        let mut frames = shared::Frames::among(self.watched.values().filter(|w| !w.exited));
        let now = self.clock.now();
        for pid in alive {
            self.step(pid, now, |w, turn| frames.count(w, turn.source));
        }
    }
}

impl<C: Clock> Drop for Monitor<C> {
    fn drop(&mut self) {
        self.watched.values().filter(|w| !w.exited).for_each(|w| self.release(w.id));
    }
}
