//! The state that the threads of `isotherm run` share: hints, orders for the worker, and what is known about each target.
//!
//! Nothing here makes a system call. The worker ([`SharedWorker`]) makes them, owns what they need, and copies here
//! what is reported. So the lock is held only briefly, and `status` is answered while a collapse is in progress.

mod bring_back;
mod hints;
mod migrate;
mod page_out;
mod quota;
mod readings;
mod reclaim;
mod resting;
mod schemes;
mod split;
mod status;
mod worker;

pub use status::{HintStatus, SampledStatus, SandboxStatus, Status, TargetStatus, Totals};
pub use worker::SharedWorker;

use crate::bring_back::{BRING_BACK, BroughtBack};
use crate::budgets::{Budgets, Wait};
use crate::collapse::{COLLAPSE, COLLAPSED, HeatOnHuge, Rules};
use crate::facts::TargetWindow;
use crate::gain::{Gain, Measured, Reading};
use crate::migrate::mover::Mover;
use crate::migrate::{MIGRATE, Movable};
use crate::named::Named;
use crate::outcome::{Counters, Outcome, Refusal};
use crate::page_out::keeper::Keeper;
use crate::page_out::{IdlePages, PAGE_OUT};
use crate::plan::{self, HintSource};
use crate::queue::{ActionId, Hint, HintQueue};
use crate::retry::{Handled, RetryScheduler, Step};
use crate::scheme::{Actions, Scheme};
use crate::split::rejoin::REJOIN;
use crate::split::splitter::Splitter;
use crate::split::{SPLIT, Splits};
use isotherm_heat::tune::Tuning;
use isotherm_heat::{Ns, TargetId};
use isotherm_units::{Bytes, PmdNo};
use resting::Resting;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most hints in the queue: a TiB of hot memory.
const MAX_HINTS: usize = 1 << 19;
/// A huge range that was handled gets no new hint for this long. The cause of a refusal seldom passes sooner.
const REST: Ns = 60_000_000_000;

/// One target.
#[derive(Debug, Default)]
struct Target {
    comm: String,
    rss: Bytes,
    rss_at_first: Bytes,
    on_huge: HeatOnHuge,
    left_out: BTreeMap<Refusal, u64>,
    refused: Option<Refusal>,
    /// Pid of a live forked copy, as last reported by the worker.
    paused_for: Option<u32>,
    /// What its memory cgroup waits for, as last reported by the worker.
    cgroup_wait: Option<Wait>,
    /// How it is sampled, if it is.
    sampled: Option<SampledStatus>,
    /// When its first window ended.
    began: Ns,
    /// Where the round robin continues.
    cursor: PmdNo,
    /// What leaves of it and comes back, if a scheme pages it out.
    keeper: Option<Keeper>,
    /// What moves of it between memory tiers, if a scheme moves it.
    mover: Option<Mover>,
    /// What of it is split, if a scheme splits it.
    splitter: Option<Splitter>,
    /// Hot pages of it had found no room when it was last searched.
    was_full: bool,
    /// Huge ranges that were worth a collapse in the last window, in address order.
    worth_collapsing: Vec<PmdNo>,
    /// Those that were collapsed since [`State::take_collapsed`].
    collapsed: Vec<PmdNo>,
    /// A process that was refused is admitted anew from this time on, or when another program runs in it.
    ask_again: Ns,
}

/// What the worker must do before it serves the next hint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Admit a process, unless it is admitted already. It has this much resident memory.
    Admit(TargetId, Bytes),
    /// Dismiss a process.
    Dismiss(TargetId),
    /// Use these budgets from now on.
    Keep(Budgets),
}

impl Order {
    /// Whether only the later one counts.
    fn is_replaced_by(&self, later: &Order) -> bool {
        match (self, later) {
            (Order::Admit(before, _), Order::Admit(process, _)) => before == process,
            _ => self == later,
        }
    }
}

/// What the worker reports after a hint.
#[derive(Debug)]
pub struct Report {
    /// What to do with the hint.
    pub handled: Handled,
    /// Counters so far.
    pub counters: Counters,
    /// Pid of a live forked copy of the process.
    pub paused_for: Option<u32>,
    /// What its memory cgroup waits for.
    pub cgroup_wait: Option<Wait>,
}

/// The state.
#[derive(Debug)]
pub struct State {
    queue: HintQueue,
    retry: RetryScheduler,
    orders: Vec<Order>,
    /// The hint that the worker is working on.
    in_hand: Option<(TargetId, PmdNo)>,
    counters: Counters,
    targets: BTreeMap<TargetId, Target>,
    /// Huge ranges that get no hint until this time.
    resting: Resting,
    /// Huge ranges that get no hint to move pages until this time. What moves says nothing of other actions, nor they of it.
    resting_moves: Resting,
    waiting: Option<Wait>,
    schemes: Vec<Scheme>,
    /// What is left of the quotas of those that have one.
    quotas: quota::Quotas,
    /// Cgroups of which idle files leave.
    reclaims: reclaim::Reclaims,
    /// What they say about each target.
    actions: BTreeMap<TargetId, Actions>,
    /// Idle pages, shared with the worker.
    idle: IdlePages,
    /// Pages that should be in another tier, shared with the worker.
    movable: Movable,
    /// What was brought back, shared with the worker.
    brought_back: BroughtBack,
    /// What was split, shared with the worker.
    splits: Splits,
    /// What was moved, brought back and given back of processes that have ended.
    of_ended: Totals,
    rules: Rules,
    budgets: Budgets,
    round_robin: bool,
    hints: HintSource,
    dry_run: bool,
    source: String,
    readings: VecDeque<Reading>,
    first_rates: Option<Measured>,
    dtlb_note: Option<String>,
    unchecked_of_all: (usize, usize),
    /// Percent of memory that is free.
    free_pct: f64,
    sandbox: SandboxStatus,
    intervals_goal: Option<Tuning>,
}

/// The state, shared by all threads.
pub type Shared = Arc<Mutex<State>>;

/// Locks the state. If a thread panicked while it held the lock, the state is still consistent.
pub fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// A state without targets.
    pub fn new(rules: Rules, budgets: Budgets) -> State {
        State {
            queue: HintQueue::new(MAX_HINTS),
            retry: RetryScheduler::new(MAX_HINTS),
            orders: Vec::new(),
            in_hand: None,
            // Reported from the start, before the worker has reported anything.
            counters: Counters::of_actions([COLLAPSED]),
            targets: BTreeMap::new(),
            resting: Resting::default(),
            resting_moves: Resting::default(),
            waiting: None,
            schemes: vec![Scheme::collapse_all()],
            quotas: quota::Quotas::new(),
            reclaims: reclaim::Reclaims::default(),
            actions: BTreeMap::new(),
            idle: IdlePages::default(),
            movable: Movable::default(),
            brought_back: BroughtBack::default(),
            splits: Splits::default(),
            of_ended: Totals::default(),
            rules,
            budgets,
            round_robin: false,
            hints: HintSource::default(),
            dry_run: false,
            source: String::new(),
            readings: VecDeque::new(),
            first_rates: None,
            dtlb_note: None,
            unchecked_of_all: (0, 0),
            free_pct: 100.0,
            sandbox: SandboxStatus::default(),
            intervals_goal: None,
        }
    }

    /// The same with the pages that the worker moves.
    pub fn with_movable(self, movable: Movable) -> State {
        State { movable, ..self }
    }

    /// Sets what is watched, and what to do with it.
    pub fn describe(&mut self, source: &str, dry_run: bool, round_robin: bool, hints: HintSource) {
        (self.source, self.dry_run, self.round_robin, self.hints) = (source.to_owned(), dry_run, round_robin, hints);
    }

    /// What this process may still do.
    pub fn set_sandbox(&mut self, sandbox: SandboxStatus) {
        self.sandbox = sandbox;
    }

    /// Why TLB misses are not reported.
    pub fn note_misses(&mut self, note: Option<String>) {
        self.dtlb_note = note;
    }

    /// Begins to watch, for the first time or in another way: no target is checked yet, and which of them are still targets is known after the
    /// first window. Until then nothing is done by the heat of before.
    pub fn begin(&mut self) {
        for (process, target) in &mut self.targets {
            (target.began, target.worth_collapsing) = (0, Vec::new());
            self.idle.forget(*process);
            self.movable.forget(*process);
        }
    }

    /// The lowest benefit that windows have to include. Where heat does not decide, all ranges may be hinted.
    pub fn min_benefit_hz(&self) -> f64 {
        if self.hints == HintSource::Heat && !self.round_robin { self.rules.min_benefit_hz } else { 0.0 }
    }

    /// Applies new settings.
    pub fn reload(&mut self, rules: Rules, budgets: Budgets, round_robin: bool) {
        self.order(Order::Keep(budgets));
        (self.rules, self.budgets, self.round_robin) = (rules, budgets, round_robin);
    }

    /// Sets the goal that the intervals of sampled targets tune themselves to.
    pub fn set_intervals_goal(&mut self, goal: Option<Tuning>) {
        self.intervals_goal = goal;
    }

    /// Sets how a target is sampled, if it is. Ignores a target without a window.
    pub fn set_sampled(&mut self, id: TargetId, sampled: Option<SampledStatus>) {
        if let Some(target) = self.targets.get_mut(&id) {
            target.sampled = sampled;
        }
    }

    /// Sets the number of huge ranges not checked yet, and of all huge ranges.
    pub fn set_unchecked(&mut self, unchecked: (usize, usize)) {
        self.unchecked_of_all = unchecked;
    }

    /// Adds a window of one target with this much resident memory: gives hints for what is hot in it.
    pub fn feed(&mut self, window: &TargetWindow<'_>, rss: Bytes, now: Ns) {
        self.ask_to_admit(window, rss, now);
        let of_comm = || Actions::of(&self.schemes, &window.comm, "");
        let actions = *self.actions.entry(window.id).or_insert_with(of_comm);
        let target = self.targets.entry(window.id).or_default();
        target.note(window, rss, now);
        let watched_ns = now - target.began;
        let (unchecked, pmds) = self.unchecked_of_all;
        // The MGLRU generations know all huge ranges from the first window on.
        let is_ready = self.hints == HintSource::Mglru || plan::is_ready(unchecked, pmds, watched_ns);
        if (target.paused_for, target.cgroup_wait) != (None, None) && !self.retry.waits_with_others(window.id) {
            // What had to wait has cooled, and no hint is left that would show when the pause is over.
            (target.paused_for, target.cgroup_wait) = (None, None);
        }
        self.resting.sweep(now);
        if target.refused.is_some() || !is_ready || !actions.collapses {
            return;
        }
        let planned = plan::plan(self.hints, &self.rules, window, now);
        target.left_out = planned.left_out;
        target.worth_collapsing = planned.hints.iter().map(|hint| hint.pmd).collect();
        target.worth_collapsing.sort_unstable();
        for hint in planned.hints {
            let hint = self.as_queued(hint);
            if !self.is_kept_small(hint.process, hint.pmd, now) {
                self.make_way(hint.process, hint.pmd);
            }
            if self.may_collapse(hint.process, hint.pmd, now) {
                self.add(hint);
            }
        }
        if self.round_robin && self.queue.has_lowest_only() && self.queue.len_of(window.id) == 0 {
            self.add_round_robin(window, now);
        }
    }

    /// Orders a process to be admitted. It may have become another program, so one that was refused is asked for again; not in each window,
    /// because it may take as long as a collapse to find out why it is refused.
    fn ask_to_admit(&mut self, window: &TargetWindow<'_>, rss: Bytes, now: Ns) {
        let target = self.targets.entry(window.id).or_default();
        let is_another = target.comm != window.comm;
        if target.refused.is_none() || is_another || now >= target.ask_again {
            target.ask_again = now + REST;
            self.order(Order::Admit(window.id, rss));
        }
    }

    /// Forgets processes that are not in `alive`.
    pub fn keep(&mut self, alive: &[TargetId]) {
        let ended: Vec<TargetId> = self.targets.keys().filter(|id| !alive.contains(id)).copied().collect();
        for process in ended {
            self.dismiss(process);
            self.of_ended = self.of_ended.and(self.totals_of(process));
            self.brought_back.forget(process);
            self.targets.remove(&process);
            self.actions.remove(&process);
        }
    }

    fn dismiss(&mut self, process: TargetId) {
        self.order(Order::Dismiss(process));
        self.forget_hints(process);
        // Another program may be there in its place.
        self.forget_split(process);
    }

    fn order(&mut self, order: Order) {
        // The worker may be busy for longer than a window. A repeated order replaces the earlier one and comes after
        // what was ordered in between.
        self.orders.retain(|before| !before.is_replaced_by(&order));
        self.orders.push(order);
    }

    fn forget_hints(&mut self, process: TargetId) {
        self.queue.forget(process);
        self.retry.forget(process);
        self.idle.forget(process);
        self.movable.forget(process);
        self.release_all(process);
        if let Some(keeper) = self.targets.get_mut(&process).and_then(|target| target.keeper.as_mut()) {
            keeper.take_hinted();
        }
    }

    /// For the worker: its orders, in this sequence.
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// For the worker: reports the result of admitting a process.
    pub fn admitted(&mut self, process: TargetId, admitted: Result<(), Refusal>) {
        if let Some(target) = self.targets.get_mut(&process) {
            target.refused = admitted.err();
        }
        if admitted.is_err() {
            self.forget_hints(process);
        }
    }

    /// For the worker: whether there is a hint to serve; otherwise when to come again.
    pub fn due(&mut self, now: Ns) -> Result<(), Ns> {
        self.waiting = None;
        let due = self.retry.due(now, &mut self.queue).map_err(|until| until.unwrap_or(Ns::MAX));
        for lost in self.retry.take_lost() {
            self.no_longer_hinted(lost.process, lost.pmd);
        }
        due
    }

    /// For the worker: reports what it waits for.
    pub fn waits(&mut self, why: Wait) {
        self.waiting = Some(why);
    }

    /// For the worker: reports the result of the hint.
    pub fn settle(&mut self, hint: Hint, tries: u8, report: Report, now: Ns) {
        self.in_hand = None;
        self.counters = report.counters;
        // If the process is gone meanwhile, nothing is kept for it.
        let Some(target) = self.targets.get_mut(&hint.process) else { return };
        (target.paused_for, target.cgroup_wait) = (report.paused_for, report.cgroup_wait);
        match self.retry.settle(hint, tries, report.handled) {
            Step::Did(hint, outcome) => self.done(hint, outcome, now),
            Step::Deferred(hint, why) => {
                self.release(hint.process, hint.pmd);
                self.waiting = Some(why);
            }
            Step::Wait(..) | Step::Idle(_) => {}
        }
    }

    fn done(&mut self, hint: Hint, outcome: Outcome, now: Ns) {
        self.take_in_left(now);
        self.take_in_moved(now);
        self.quota_handled(&hint, outcome);
        self.page_out_handled(&hint, outcome, now);
        self.migrate_handled(hint.process, outcome);
        self.split_handled(&hint, outcome, now);
        match outcome {
            Outcome::Done { .. } => {
                if let Some(target) =
                    self.targets.get_mut(&hint.process).filter(|_| matches!(hint.action, COLLAPSE | REJOIN))
                {
                    target.on_huge.collapsed(hint.pmd);
                    target.collapsed.push(hint.pmd);
                }
            }
            // Another program runs in its place: it is admitted anew with the next window, if it is still there.
            Outcome::Refused(Refusal::Gone) => self.dismiss(hint.process),
            Outcome::Refused(_) => {}
        }
        // Whatever the result, the huge range has been handled; the heat map needs a moment to show the effect.
        let rest = match hint.action {
            PAGE_OUT => page_out::rest_after(outcome),
            MIGRATE => migrate::rest_after(outcome),
            _ => REST,
        };
        if let Some(resting) = self.resting_of(hint.action) {
            resting.insert(hint.process, hint.pmd, now + rest);
        }
    }

    /// Huge ranges that rest from an action. None rest from being brought back: one is hinted once for each time that pages of it leave. None
    /// rest from being split or collapsed again: who hints it has rounds for that.
    fn resting_of(&mut self, action: ActionId) -> Option<&mut Resting> {
        match action {
            MIGRATE => Some(&mut self.resting_moves),
            BRING_BACK | SPLIT | REJOIN => None,
            _ => Some(&mut self.resting),
        }
    }

    /// Huge ranges of a process that were collapsed since the last call, sorted. What was known of their pages is an estimate now, so a monitor
    /// reads and checks them again.
    pub fn take_collapsed(&mut self, process: TargetId) -> Vec<PmdNo> {
        let mut collapsed =
            self.targets.get_mut(&process).map(|t| std::mem::take(&mut t.collapsed)).unwrap_or_default();
        collapsed.sort_unstable();
        collapsed.dedup();
        collapsed
    }

    /// What was moved, brought back and given back of a process so far.
    fn totals_of(&self, process: TargetId) -> Totals {
        let target = self.targets.get(&process);
        let moved = target.and_then(|target| target.mover.as_ref()).map(Mover::status);
        let split = target.and_then(|target| target.splitter.as_ref()).map(Splitter::status);
        Totals {
            returned_bytes: split.map_or(0, |split| split.returned_bytes),
            moved_bytes: moved.map_or(0, |moved| moved.promoted_bytes + moved.demoted_bytes),
            asked_back_bytes: self.brought_back.of(process).asked_bytes,
            // Counted as it leaves: it is of no process.
            reclaimed_bytes: 0,
        }
    }

    /// The status to report.
    pub fn status(&self) -> Status {
        let status = |(id, target): (&TargetId, &Target)| TargetStatus {
            bring_back: self.bring_back_status(*id),
            ..target.status(*id)
        };
        let targets: Vec<TargetStatus> = self.targets.iter().map(status).collect();
        let paused_for = targets.iter().find_map(|t| t.paused_for);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            dry_run: self.dry_run,
            source: self.source.clone(),
            collapsed: self.counters.all(COLLAPSED),
            paused: paused_for.map(|pid| format!("{} (process {pid})", Wait::Fork.text())),
            waiting: self.waits_for().map(Named::Known),
            hints: HintStatus {
                queued: self.queue.len(),
                put_off: self.retry.deferred(),
                unwritable: self.retry.deferred_for(&[Wait::Unwritable]),
                cgroup: self.retry.deferred_for(&Wait::OF_CGROUPS),
                capacity: self.queue.capacity(),
            },
            counters: self.counters.clone(),
            totals: self.targets.keys().fold(self.of_ended, |sum, id| sum.and(self.totals_of(*id))),
            pmds: self.unchecked_of_all.1,
            blocks_not_looked_at: self.unchecked_of_all.0,
            budgets: Some(self.budgets),
            gain: self.gain(&targets),
            intervals_goal: self.intervals_goal,
            sandbox: self.sandbox.clone(),
            left_out: self.schemes.iter().filter_map(|scheme| scheme.left_out.clone()).collect(),
            quotas: self.quota_status(),
            cgroups: self.reclaims.status(),
            targets,
        }
    }

    /// What the worker waits for: as a whole, or with all hints that are left.
    fn waits_for(&self) -> Option<Wait> {
        self.waiting.or_else(|| if self.queue.is_empty() { self.retry.first_wait() } else { None })
    }

    /// The gain over all targets. Shares of heat are means weighted by resident memory.
    fn gain(&self, targets: &[TargetStatus]) -> Gain {
        let sum = |of: fn(&TargetStatus) -> u64| targets.iter().map(of).sum::<u64>();
        let mean = |of: fn(&TargetStatus) -> Option<f64>| {
            let known: Vec<(f64, f64)> = targets.iter().filter_map(|t| Some((of(t)?, t.rss_bytes as f64))).collect();
            let weight: f64 = known.iter().map(|(_, w)| w).sum();
            (weight > 0.0).then(|| known.iter().map(|(s, w)| s * w).sum::<f64>() / weight)
        };
        let shares = (mean(|t| t.heat_on_huge_share_at_first), mean(|t| t.heat_on_huge_share));
        let mut gain = Gain::between(shares, self.first_rates.zip(self.rates()), self.dtlb_note.clone());
        gain.rss_bytes_before = Some(sum(|t| t.rss_bytes_at_first));
        gain.rss_bytes_after = Some(sum(|t| t.rss_bytes));
        gain
    }
}

impl Target {
    fn note(&mut self, window: &TargetWindow<'_>, rss: Bytes, now: Ns) {
        self.comm = window.comm.clone().into_owned();
        self.rss = rss;
        if self.rss_at_first.0 == 0 {
            self.rss_at_first = rss;
        }
        self.on_huge.note(&window.facts);
        if self.began == 0 {
            self.began = now;
        }
    }

    fn status(&self, id: TargetId) -> TargetStatus {
        TargetStatus {
            pid: id.pid,
            comm: self.comm.clone(),
            rss_bytes: self.rss.0,
            rss_bytes_at_first: self.rss_at_first.0,
            huge_bytes: self.on_huge.huge.0,
            heat_on_huge_share: self.on_huge.share,
            heat_on_huge_share_by_bits: self.on_huge.share_by_bits,
            heat_on_huge_share_at_first: self.on_huge.share_at_first,
            paused_for: self.paused_for,
            cgroup_wait: self.cgroup_wait.map(Named::Known),
            sampled: self.sampled.clone(),
            left_alone: self.refused.map(Named::Known),
            left_out: self.left_out.clone(),
            page_out: self.keeper.as_ref().map(Keeper::status),
            migrate: self.mover.as_ref().map(Mover::status),
            split: self.splitter.as_ref().map(Splitter::status),
            bring_back: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PmdFacts;
    use crate::queue::{Level, Origin};
    use isotherm_heat::Mapping;
    use isotherm_units::AddrRange;

    const S: Ns = 1_000_000_000;

    fn target(pid: u32) -> TargetId {
        TargetId { pid, start_ticks: u64::from(pid) }
    }

    /// A window of a process with a hundred small huge ranges of this benefit.
    fn window(pid: u32, benefit_hz: f64) -> TargetWindow<'static> {
        let range = AddrRange::new(PmdNo(0).addr(), PmdNo(100).addr());
        let mapping = Mapping { range, name: String::new(), perms: "rw-p".parse().unwrap() };
        let facts = (0..100).map(|n| PmdFacts { pmd: PmdNo(n), present: 512, measured: 512, huge: false, benefit_hz });
        TargetWindow {
            id: target(pid),
            comm: "db".into(),
            mappings: vec![mapping].into(),
            facts: facts.collect(),
            generations: Vec::new(),
        }
    }

    #[test]
    fn the_walk_by_address_goes_on_in_each_process() {
        let mut state = State::new(Rules::default(), Budgets { per_second: 8.0, ..Budgets::default() });
        state.describe("s", false, true, HintSource::Heat);
        assert_eq!(state.min_benefit_hz(), 0.0, "also what is cold");
        (1..4).for_each(|pid| state.feed(&window(pid, 0.0), Bytes(1 << 30), S));
        assert_eq!([1, 2, 3].map(|pid| state.queue.len_of(target(pid))), [8; 3]);
        // The first is served before the next window, and no other.
        state.forget_hints(target(1));
        (1..4).for_each(|pid| state.feed(&window(pid, 0.0), Bytes(1 << 30), 2 * S));
        assert_eq!([1, 2, 3].map(|pid| state.queue.len_of(target(pid))), [8; 3]);
        let of_first: Vec<u64> =
            state.queue.snapshot().iter().filter(|hint| hint.process.pid == 1).map(|hint| hint.pmd.0).collect();
        assert_eq!(of_first, (8..16).collect::<Vec<_>>());
        // What is hot goes first.
        state.forget_hints(target(3));
        state.feed(&window(2, 9000.0), Bytes(1 << 30), 3 * S);
        state.feed(&window(3, 0.0), Bytes(1 << 30), 3 * S);
        assert_eq!([2, 3].map(|pid| state.queue.len_of(target(pid))), [100, 0]);
    }

    #[test]
    fn where_heat_decides_windows_include_what_is_worth_it() {
        let mut state = State::new(Rules { min_benefit_hz: 7.0, ..Rules::default() }, Budgets::default());
        state.describe("s", false, false, HintSource::Heat);
        assert_eq!(state.min_benefit_hz(), 7.0);
        state.describe("s", false, false, HintSource::Mglru);
        assert_eq!(state.min_benefit_hz(), 0.0);
    }

    #[test]
    fn what_has_cooled_while_it_was_queued_is_not_collapsed_and_what_is_cooler_waits_longer() {
        let mut state = State::new(Rules::default(), Budgets::default());
        let level = |state: &State, pmd| state.queue.contains(target(1), PmdNo(pmd)).map(Level::get);
        state.feed(&window(1, 9000.0), Bytes(1 << 30), S);
        let hot = level(&state, 5).unwrap();
        assert_eq!(state.hint(1, PmdNo(7).range(), Level::new(31), S), Ok(1));
        // Half an octave is no cause to move, more than two are.
        state.feed(&window(1, 6000.0), Bytes(1 << 30), 2 * S);
        assert_eq!(level(&state, 5), Some(hot));
        state.feed(&window(1, 2000.0), Bytes(1 << 30), 3 * S);
        assert!(level(&state, 5).unwrap() < hot - 2);
        assert_eq!(level(&state, 7), Some(31), "from outside");
        let since = state.queue.snapshot().iter().find(|hint| hint.pmd == PmdNo(5)).unwrap().since;
        assert_eq!(since, S, "it has waited since then");
        state.feed(&window(1, 0.0), Bytes(1 << 30), 4 * S);
        assert_eq!(state.take(4 * S).map(|(hint, _)| hint.pmd), Some(PmdNo(7)));
        assert_eq!((state.take(4 * S), state.queue.len()), (None, 0));
    }

    #[test]
    fn a_hint_from_outside_that_heat_has_raised_is_still_one_from_outside() {
        let mut state = State::new(Rules::default(), Budgets::default());
        state.feed(&window(1, 0.0), Bytes(1 << 30), S);
        assert_eq!(state.hint(1, PmdNo(8).range(), Level::new(1), S), Ok(1));
        state.feed(&window(1, 9000.0), Bytes(1 << 30), 2 * S);
        let raised = state.queue.get(target(1), PmdNo(8)).unwrap();
        assert_eq!((raised.level.get(), raised.origin), (26, Origin::External));
        state.feed(&window(1, 100.0), Bytes(1 << 30), 3 * S);
        assert_eq!(state.queue.get(target(1), PmdNo(8)), Some(raised), "not lowered, and in its place");
        state.feed(&window(1, 0.0), Bytes(1 << 30), 4 * S);
        assert_eq!(state.take(4 * S).map(|(hint, _)| hint.pmd), Some(PmdNo(8)));
        assert_eq!(state.take(4 * S), None);
    }

    #[test]
    fn a_pause_is_not_reported_any_more_when_nothing_waits_for_its_end() {
        let mut state = State::new(Rules::default(), Budgets::default());
        state.feed(&window(1, 9000.0), Bytes(1 << 30), S);
        while state.due(S).is_ok() {
            let Some((hint, tries)) = state.take(S) else { continue };
            let handled = Handled::Later(2 * S, Wait::Fork);
            let report = Report { handled, counters: Counters::default(), paused_for: Some(77), cgroup_wait: None };
            state.settle(hint, tries, report, S);
        }
        state.feed(&window(1, 9000.0), Bytes(1 << 30), 2 * S);
        assert!(state.status().paused.is_some());
        // All of it has cooled, so what comes back is dropped.
        for second in 3..300 {
            state.feed(&window(1, 0.0), Bytes(1 << 30), second * S);
            while state.due(second * S).is_ok() && state.take(second * S).is_some() {}
        }
        assert_eq!((state.retry.deferred(), state.status().paused), (0, None));
    }

    #[test]
    fn what_was_collapsed_is_returned_once() {
        let mut state = State::new(Rules::default(), Budgets::default());
        state.feed(&window(1, 9000.0), Bytes(1 << 30), S);
        let mut collapsed = Vec::new();
        for no in 0..3 {
            let (hint, tries) = state.take(S).unwrap();
            let done = if no == 1 { Outcome::Refused(Refusal::Accessed) } else { Outcome::Done { grown: 0 } };
            let counters = Counters::default();
            let report = Report { handled: Handled::Done(done), counters, paused_for: None, cgroup_wait: None };
            state.settle(hint, tries, report, S);
            collapsed.extend((no != 1).then_some(hint.pmd));
        }
        collapsed.sort_unstable();
        assert_eq!(state.take_collapsed(target(2)), []);
        assert_eq!(state.take_collapsed(target(1)), collapsed);
        assert_eq!(state.take_collapsed(target(1)), []);
    }

    #[test]
    fn what_is_tried_again_is_not_raised_by_the_next_window() {
        let mut state = State::new(Rules::default(), Budgets::default());
        state.feed(&window(1, 9000.0), Bytes(1 << 30), S);
        let (hint, tries) = state.take(S).unwrap();
        let handled = Handled::Later(2 * S, Wait::Unwritable);
        let report = Report { handled, counters: Counters::default(), paused_for: None, cgroup_wait: None };
        state.settle(hint, tries, report, S);
        assert_eq!(state.due(2 * S), Ok(()));
        state.feed(&window(1, 9000.0), Bytes(1 << 30), 3 * S);
        assert_eq!(state.queue.contains(hint.process, hint.pmd), Some(Level::new(0)));
        // A hint from outside raises it.
        assert_eq!(state.hint(1, hint.pmd.range(), Level::new(30), S), Ok(1));
    }

    #[test]
    fn a_process_that_is_refused_is_asked_for_once_a_minute_and_takes_no_hints() {
        let mut state = State::new(Rules::default(), Budgets::default());
        let mut asked = |now: Ns, comm: &'static str, refused: bool| {
            state.feed(&TargetWindow { comm: comm.into(), ..window(1, 9000.0) }, Bytes(1 << 30), now);
            let orders = state.take_orders();
            if refused {
                state.admitted(target(1), Err(Refusal::Disabled));
            }
            (orders.len(), state.hint(1, PmdNo(7).range(), Level::new(31), now))
        };
        assert_eq!(asked(S, "db", false).0, 1);
        let (orders, hinted) = asked(2 * S, "db", true);
        assert_eq!(orders, 1);
        assert!(hinted.unwrap_err().contains("left alone: huge pages disabled"));
        let times = (3..180).filter(|second| asked(second * S, "db", true).0 > 0);
        assert_eq!(times.collect::<Vec<_>>(), [62, 122]);
        assert_eq!(asked(180 * S, "other", true).0, 1, "another program");
    }

    #[test]
    fn where_watching_begins_again_hints_wait_until_enough_is_known() {
        let mut state = State::new(Rules::default(), Budgets::default());
        let hints = |state: &State| state.queue.len_of(target(1));
        state.set_unchecked((50, 100));
        state.feed(&window(1, 9000.0), Bytes(1 << 30), S);
        state.feed(&window(1, 9000.0), Bytes(1 << 30), 30 * S);
        assert_eq!(hints(&state), 0);
        state.feed(&window(1, 9000.0), Bytes(1 << 30), 31 * S);
        assert_eq!(hints(&state), 100, "it has waited for long enough");
        state.forget_hints(target(1));
        state.begin();
        state.feed(&window(1, 9000.0), Bytes(1 << 30), 40 * S);
        assert_eq!(hints(&state), 0);
        state.feed(&window(1, 9000.0), Bytes(1 << 30), 70 * S);
        assert_eq!(hints(&state), 100);
    }
}
