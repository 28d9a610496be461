//! Acting once on what is watched: `isotherm reclaim` and `isotherm migrate` go on watching while they act, and act for a part of each
//! window, a *round*, on what the window before has shown.

use crate::output;
use crate::watch::{Stop, Watching};
use anyhow::{Result, bail};
use isotherm_heat::{Clock, Ns, Snapshot, TargetId};
use isotherm_monitor::Monitor;
use isotherm_schemes::machine::Machine;
use isotherm_schemes::pass::MAX_HINTS;
use isotherm_schemes::{Action, Budgets, Hint, HintQueue, Outcome, Refusal, RetryScheduler, Step, Wait, Worker};
use isotherm_sys::clock;
use isotherm_units::PmdNo;
use isotherm_view::human;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

const SECOND: Ns = 1_000_000_000;
/// A window. One that a busy or large target needs longer for is stretched.
pub const WINDOW_NS: Ns = SECOND;
/// Acting takes at most one part in this many of a window, and at most this long: reads wait meanwhile, and what was found idle is fresh for three
/// seconds.
const ROUND_PART: Ns = 4;
const LONGEST_ROUND: Ns = 5 * SECOND / 2;
/// It ends if nothing could be done for so long. A dry run has a single round, of this length.
const PATIENCE_NS: Ns = 10 * SECOND;
/// Most huge ranges that are judged anew for a round, and then acted on as far as the budgets allow: 2 GiB.
const MAX_IN_A_ROUND: usize = 1024;

/// Watches for `duration_ns`, and then calls `round` with each window until it breaks: with the monitor, the snapshot, and the processes whose
/// accessed bits something else has cleared, too, since the start. `does` is what the rounds do, for the progress bar.
pub fn watch_and_act(
    mut watching: Watching,
    (duration_ns, does): (Ns, &'static str),
    stop: &Stop,
    mut round: impl FnMut(&mut Monitor<Box<dyn Clock>>, &Snapshot, &BTreeSet<TargetId>) -> ControlFlow<()>,
) -> Result<()> {
    let began = watching.monitor.now();
    let (mut others_clear, mut has_acted) = (BTreeSet::new(), false);
    let bar = output::progress(Some(duration_ns), "watching");
    watching.windows(None, stop, &bar, |monitor, snapshot| {
        let others = snapshot.targets.iter().filter(|t| t.facts.cleared_by_others_pages > 0);
        others_clear.extend(others.map(|t| t.id));
        let is_alive = snapshot.alive().next().is_some();
        if monitor.now().saturating_sub(began) < duration_ns {
            return Ok(ControlFlow::Continue(()));
        }
        if !(is_alive || has_acted) {
            // A cgroup is watched for as long as it may get processes, so this would never end.
            return Ok(ControlFlow::Break(()));
        }
        if !has_acted {
            note_unchecked(monitor);
        }
        has_acted = true;
        bar.set_message(does);
        Ok(round(monitor, &snapshot, &others_clear))
    })?;
    watching.report_refused();
    if !has_acted {
        bail!(if stop.is_set() {
            "stopped before anything was done"
        } else {
            "nothing is left to act on: the processes have ended, or none could be watched"
        });
    }
    Ok(())
}

/// What was not checked yet does not count as idle.
fn note_unchecked(monitor: &Monitor<Box<dyn Clock>>) {
    let (unchecked, all) = monitor.unchecked();
    if unchecked > 0 {
        output::note(format_args!(
            "{unchecked} of {all} huge ranges were not checked for accesses yet and do not count as idle; a longer --duration, or more --max-cpu, reaches them"
        ));
    }
}

/// Budgets of acting once: huge ranges a second and percent of a core, or the usual ones. The calls of page-out and of migration let the
/// process go on, so they may take as long as their CPU time allows. A dry run does not wait.
pub fn budgets(is_dry: bool, per_second: Option<f64>, cpu_pct: Option<f64>) -> Budgets {
    let usual = Budgets::default();
    if is_dry {
        return Budgets {
            per_second: 1e9,
            cpu_pct: 1000.0,
            stall_pct: 1000.0,
            pressure_pct: 1000.0,
            io_pressure_pct: 1000.0,
            ..usual
        };
    }
    let cpu_pct = cpu_pct.unwrap_or(usual.cpu_pct);
    Budgets { per_second: per_second.unwrap_or(usual.per_second), cpu_pct, stall_pct: cpu_pct, ..usual }
}

/// Hints and the worker that serves them, over all rounds.
pub struct Rounds<M> {
    queue: HintQueue,
    retry: RetryScheduler,
    pub worker: Worker<M>,
    is_dry: bool,
    /// Huge ranges that are not tried again.
    over: BTreeSet<(TargetId, PmdNo)>,
    /// What the last hint waits for, and since when nothing has been done.
    waits_for: Option<Wait>,
    stuck_since: Option<Ns>,
    /// What was no longer waited for.
    gave_up: Option<Wait>,
    /// The last round was over before all hints were served.
    is_cut_short: bool,
    /// When this round began, and how long after the one before.
    began: Option<Ns>,
    window_ns: Ns,
}

impl<M: Machine> Rounds<M> {
    pub fn new(machine: M, action: Box<dyn Action<M> + Send>, budgets: Budgets, is_dry: bool) -> Rounds<M> {
        Rounds {
            queue: HintQueue::new(MAX_HINTS),
            retry: RetryScheduler::new(MAX_HINTS),
            worker: Worker::new(machine, vec![action], budgets, clock::monotonic_ns()),
            is_dry,
            over: BTreeSet::new(),
            waits_for: None,
            stuck_since: None,
            gave_up: None,
            is_cut_short: false,
            began: None,
            window_ns: WINDOW_NS,
        }
    }

    /// Begins a round: what was queued and not served is planned anew.
    pub fn begin(&mut self) {
        self.queue = HintQueue::new(MAX_HINTS);
        let now = clock::monotonic_ns();
        let before = self.began.replace(now);
        self.window_ns = before.map_or(WINDOW_NS, |before| now.saturating_sub(before));
    }

    /// Forgets what waits of a process: nothing more is to be done to it.
    pub fn withdraw(&mut self, process: TargetId) {
        self.retry.forget(process);
    }

    /// Forgets a process.
    pub fn forget(&mut self, process: TargetId) {
        self.withdraw(process);
        self.worker.dismiss(process);
    }

    /// Chooses the hints of a round: those that were not served in an earlier one and do not wait, in order.
    pub fn choose(&self, hints: &[Hint]) -> Vec<Hint> {
        let most = if self.is_dry { MAX_HINTS } else { MAX_IN_A_ROUND };
        let is_new =
            |hint: &&Hint| !self.over.contains(&(hint.process, hint.pmd)) && !self.waits(hint.process, hint.pmd);
        hints.iter().filter(is_new).take(most).copied().collect()
    }

    /// Whether the hint for a huge range waits to be tried again.
    pub fn waits(&self, process: TargetId, pmd: PmdNo) -> bool {
        self.retry.is_deferred(process, pmd)
    }

    /// Queues hints.
    pub fn add(&mut self, hints: Vec<Hint>) {
        hints.into_iter().for_each(|hint| _ = self.queue.add(hint));
    }

    /// Hints that are queued or wait.
    pub fn planned(&self) -> usize {
        self.queue.len() + self.retry.deferred()
    }

    /// Serves hints until the round is over, none is left, or `done` says that it is enough. `done` gets each hint, its outcome and the
    /// pages that have left memory, and says whether the huge range is served for good.
    pub fn serve(&mut self, stop: &Stop, mut done: impl FnMut(&Hint, Outcome, u64) -> Served) {
        let end = clock::monotonic_ns() + if self.is_dry { PATIENCE_NS } else { round_of(self.window_ns) };
        self.waits_for = None;
        while !stop.is_set() {
            let now = clock::monotonic_ns();
            self.is_cut_short = now >= end;
            if self.is_cut_short {
                return;
            }
            let before = self.worker.counters().left_pages;
            match self.retry.step(now, &mut self.queue, &mut self.worker) {
                Step::Did(hint, outcome) => {
                    let served = done(&hint, outcome, self.worker.counters().left_pages - before);
                    if served.for_good || self.is_dry {
                        self.over.insert((hint.process, hint.pmd));
                    }
                    if served.is_enough {
                        return;
                    }
                }
                Step::Deferred(_, why) => self.waits_for = Some(why),
                Step::Wait(until, why) => {
                    self.waits_for = Some(why);
                    if until >= end {
                        return;
                    }
                    std::thread::sleep(Duration::from_nanos(until.saturating_sub(now)));
                }
                Step::Idle(_) => return,
            }
        }
    }

    /// Whether there is another round, after one in which something was done, or nothing was.
    pub fn go_on(&mut self, planned: usize, has_done: bool) -> ControlFlow<()> {
        let now = clock::monotonic_ns();
        let since = if has_done { now } else { self.stuck_since.unwrap_or(now) };
        self.stuck_since = Some(since);
        // What is read too long ago is read again with the next window, which may be longer than that.
        let is_patient = now - since < PATIENCE_NS.max(2 * self.window_ns);
        // In this round, or since an earlier one.
        let why = || self.waits_for.or_else(|| self.retry.first_wait());
        self.gave_up = if is_patient { None } else { why() };
        if planned > 0 && !self.is_dry && is_patient { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Says what was not done because it would have to wait.
    pub fn note_waits(&self) {
        if self.is_dry && self.is_cut_short && !self.queue.is_empty() {
            let (left, after) = (self.queue.len(), human::duration(PATIENCE_NS));
            output::note(format_args!("{left} huge ranges more were not checked within {after}"));
        }
        let waiting = self.retry.deferred();
        if self.is_dry && waiting > 0 {
            let why = self.waits_for.map_or("", Wait::text);
            output::note(format_args!("{waiting} huge ranges would have to wait: {why}"));
        }
        if let Some(why) = self.gave_up {
            output::note(format_args!("stopped waiting after {}: {}", human::duration(PATIENCE_NS), why.text()));
        }
    }
}

/// Why nothing is done to a process at the end, if so.
pub fn skipped(refused: Option<Refusal>, is_sampled: bool) -> Option<&'static str> {
    let sampled = "sampled, so its pages are not known one by one (--mode whole)";
    refused.map(Refusal::text).or(is_sampled.then_some(sampled))
}

/// What comes after a hint was served.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// The huge range is not tried again.
    pub for_good: bool,
    /// Nothing more is to be done.
    pub is_enough: bool,
}

/// Why huge ranges stayed that were tried, as was found last.
#[derive(Debug, Default)]
pub struct Stayed(BTreeMap<(TargetId, PmdNo), Refusal>);

impl Stayed {
    /// Takes in what became of a hint.
    pub fn note(&mut self, hint: &Hint, outcome: Outcome) {
        let key = (hint.process, hint.pmd);
        match outcome {
            Outcome::Done { .. } => self.0.remove(&key),
            Outcome::Refused(refusal) => self.0.insert(key, refusal),
        };
    }

    /// How many stayed, by reason.
    pub fn counts(&self) -> BTreeMap<Refusal, u64> {
        let mut counts = BTreeMap::new();
        self.0.values().for_each(|refusal| *counts.entry(*refusal).or_default() += 1);
        counts
    }
}

/// How long a round may take where windows take so long.
fn round_of(window_ns: Ns) -> Ns {
    (window_ns.max(WINDOW_NS) / ROUND_PART).min(LONGEST_ROUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_takes_a_quarter_of_a_window_and_no_longer_than_what_is_found_stays_fresh() {
        let rounds = [0, SECOND, 8 * SECOND, 16 * SECOND].map(round_of);
        assert_eq!(rounds, [SECOND / 4, SECOND / 4, 2 * SECOND, 5 * SECOND / 2]);
    }
}
