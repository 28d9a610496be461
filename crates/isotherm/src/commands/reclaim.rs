//! `isotherm reclaim`: pages out what named processes leave idle, once. Watches until it is known what is idle, then pages out, the longest
//! idle first, and reads back what has left.
//!
//! It goes on watching meanwhile. Each round acts on what the last window has shown, so a page that is accessed stays. A dry run takes the
//! same path on a machine that moves nothing, for one round.

use crate::args::idle::IdleArgs;
use crate::args::targets::TargetArgs;
use crate::args::usage::Usage;
use crate::args::values::{percent, positive, size};
use crate::args::watching::WatchArgs;
use crate::commands::plan::Plan;
use crate::output;
use crate::privileges::Needs;
use crate::sandbox::Uses;
use crate::swap;
use crate::watch::{Prepared, Stop, idle_window_of};
use anyhow::{Result, bail};
use clap::Args;
use isotherm_heat::{Clock, Snapshot, TargetHeat, TargetId};
use isotherm_monitor::Monitor;
use isotherm_schemes::machine::{DryRun, Live};
use isotherm_schemes::page_out::{self, IdlePages, PageOut, PageOutMachine, Rules};
use isotherm_schemes::pass::MAX_HINTS;
use isotherm_schemes::{Budgets, Counters, Hint, HintQueue, Outcome, Refusal, RetryScheduler, Step, Wait, Worker};
use isotherm_sys::clock;
use isotherm_units::{Bytes, PmdNo};
use isotherm_view::human;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
/// A window, and the part of it that may be spent on paging out. Reads wait for that.
const WINDOW_NS: u64 = SECOND;
const ROUND_NS: u64 = SECOND / 4;
/// Ends if nothing could be done for so long.
const PATIENCE_NS: u64 = 10 * SECOND;
/// Most that are read anew for a round, and then paged out as far as the budgets allow: 2 GiB.
const MAX_IN_A_ROUND: usize = 1024;

#[derive(Debug, Args)]
pub struct ReclaimArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    #[command(flatten)]
    pub idle: IdleArgs,
    /// Stop after this much memory
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub most: Option<Bytes>,
    /// Only print what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Huge ranges per second [default: 20]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Budgets")]
    pub per_second: Option<f64>,
    /// CPU for paging out, percent of one core; over 100 lifts the limit [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Budgets")]
    pub max_reclaim_cpu: Option<f64>,
    /// Memory pressure of the host (PSI some, ten seconds) above which to wait, percent [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Budgets")]
    pub max_pressure: Option<f64>,
}

impl ReclaimArgs {
    fn rules(&self) -> Rules {
        Rules { min_idle_ns: self.idle.idle }
    }

    fn budgets(&self) -> Budgets {
        let usual = Budgets::default();
        if self.dry_run {
            // It does not wait.
            return Budgets { per_second: 1e9, cpu_pct: 1000.0, stall_pct: 1000.0, pressure_pct: 1000.0, ..usual };
        }
        Budgets {
            per_second: self.per_second.unwrap_or(usual.per_second),
            cpu_pct: self.max_reclaim_cpu.unwrap_or(usual.cpu_pct),
            // A page-out holds the memory map for reading only, so it may take as long as its CPU time allows.
            stall_pct: self.max_reclaim_cpu.unwrap_or(usual.cpu_pct),
            pressure_pct: self.max_pressure.unwrap_or(usual.pressure_pct),
            ..usual
        }
    }
}

impl Plan for ReclaimArgs {
    fn needs(&self) -> Needs {
        self.targets.needs()
    }

    fn run(&self) -> Result<()> {
        if let Some(why) = self.watch.unfit_for_idle() {
            return Err(Usage(format!("reclaim: {why}")).into());
        }
        if self.targets.all {
            return Err(
                Usage("memory leaves processes that are named only: give -p PID or --cgroup PATH".to_owned()).into()
            );
        }
        let duration_ns = self.idle.duration_ns()?;
        if !swap::is_there() {
            if !self.dry_run {
                bail!(swap::MISSING);
            }
            output::note(swap::MISSING);
        }
        let report = reclaim(self, duration_ns, &Stop::on_signals()?)?;
        if self.json {
            return output::json(&report);
        }
        let mut out = output::stdout();
        report.write_text(&mut out)?;
        out.flush()?;
        Ok(())
    }
}

fn reclaim(args: &ReclaimArgs, duration_ns: u64, stop: &Stop) -> Result<Report> {
    let prepared = Prepared::new(&args.targets, &args.watch, WINDOW_NS)?;
    prepared.need_idle_pages("reclaim")?;
    let mut watching = prepared.start(Uses::nothing().paging_out())?;
    let began = watching.monitor.now();
    let mut work = Work::new(args);
    let bar = output::progress(Some(duration_ns), "watching");
    watching.windows(None, stop, &bar, |monitor, snapshot| {
        let others = snapshot.targets.iter().filter(|t| t.facts.cleared_by_others_pages > 0);
        work.others_clear.extend(others.map(|t| t.id));
        if monitor.now().saturating_sub(began) < duration_ns {
            return Ok(ControlFlow::Continue(()));
        }
        if work.rows.is_empty() {
            note_unchecked(monitor);
        }
        bar.set_message("paging out");
        Ok(work.round(monitor, &snapshot, stop))
    })?;
    watching.report_refused();
    if work.rows.is_empty() {
        bail!(if stop.is_set() {
            "stopped before anything was paged out"
        } else {
            "nothing is left to page out: the processes have ended"
        });
    }
    let waiting = work.retry.deferred();
    if args.dry_run && waiting > 0 {
        let why = work.waits_for.map_or("", Wait::text);
        output::note(format_args!("{waiting} huge ranges would have to wait: {why}"));
    }
    if let Some(why) = work.gave_up {
        output::note(format_args!("stopped waiting after {}: {}", human::duration(PATIENCE_NS), why.text()));
    }
    Ok(work.report())
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

type Machines = Box<dyn PageOutMachine + Send>;

/// The work of all rounds.
struct Work<'a> {
    args: &'a ReclaimArgs,
    idle: IdlePages,
    queue: HintQueue,
    retry: RetryScheduler,
    worker: Worker<Machines>,
    /// Processes whose accessed bits something else has cleared, too.
    others_clear: BTreeSet<TargetId>,
    /// Huge ranges that are not tried again.
    over: BTreeSet<(TargetId, PmdNo)>,
    rows: BTreeMap<TargetId, Row>,
    left_out: BTreeMap<Refusal, u64>,
    /// What the last hint waits for, and since when nothing has moved.
    waits_for: Option<Wait>,
    stuck_since: Option<u64>,
    /// What was no longer waited for.
    gave_up: Option<Wait>,
}

/// One process.
#[derive(Clone, Debug, Default, Serialize)]
struct Row {
    pid: u32,
    comm: String,
    /// Memory when paging out began: resident, and idle for long enough.
    resident_bytes: Bytes,
    idle_bytes: Bytes,
    /// Memory that has left, or would.
    left_bytes: Bytes,
    /// It is sampled: its pages are not known one by one.
    sampled: bool,
    refused: Option<Refusal>,
}

#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    min_idle_ns: u64,
    processes: Vec<Row>,
    left_out: BTreeMap<Refusal, u64>,
    counters: Counters,
}

impl Work<'_> {
    fn new(args: &ReclaimArgs) -> Work<'_> {
        let idle = IdlePages::default();
        let machine: Machines =
            if args.dry_run { Box::new(DryRun::new(BTreeMap::new())) } else { Box::new(Live::new()) };
        let action = Box::new(PageOut::new(idle.clone()));
        Work {
            args,
            idle,
            queue: HintQueue::new(MAX_HINTS),
            retry: RetryScheduler::new(MAX_HINTS),
            worker: Worker::new(machine, vec![action], args.budgets(), clock::monotonic_ns()),
            others_clear: BTreeSet::new(),
            over: BTreeSet::new(),
            rows: BTreeMap::new(),
            left_out: BTreeMap::new(),
            waits_for: None,
            stuck_since: None,
            gave_up: None,
        }
    }

    /// Plans by the last window and pages out for a part of the next.
    fn round(&mut self, monitor: &mut Monitor<Box<dyn Clock>>, snapshot: &Snapshot, stop: &Stop) -> ControlFlow<()> {
        self.queue = HintQueue::new(MAX_HINTS);
        self.left_out.clear();
        self.drop_others(monitor, snapshot);
        for target in snapshot.targets.iter().filter(|t| !t.exited) {
            self.plan(monitor, target);
        }
        let planned = self.queue.len() + self.retry.deferred();
        let before = self.worker.counters().left_pages;
        self.serve(stop);
        let has_moved = self.worker.counters().left_pages > before;
        let goes_on = planned > 0 && !self.args.dry_run && !self.is_enough() && self.has_patience(has_moved);
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Forgets what was planned for processes that have ended, are not named any more, or are sampled by now.
    fn drop_others(&mut self, monitor: &Monitor<Box<dyn Clock>>, snapshot: &Snapshot) {
        let is_known = |id: &TargetId| {
            let mut alive = snapshot.targets.iter().filter(|t| !t.exited);
            alive.any(|t| t.id == *id) && monitor.pages_of(id.pid).is_some()
        };
        for id in self.rows.keys().filter(|id| !is_known(id)) {
            self.idle.forget(*id);
            self.retry.forget(*id);
            self.worker.dismiss(*id);
        }
    }

    fn plan(&mut self, monitor: &mut Monitor<Box<dyn Clock>>, target: &TargetHeat) {
        let id = target.id;
        let Some(pages) = monitor.pages_of(id.pid) else {
            self.row(target).sampled = true;
            return;
        };
        let idle = page_out::idle_pages(self.args.rules(), pages, monitor.now());
        let refused = self.others_clear.contains(&id).then_some(Refusal::ClearedByOthers);
        let refused = refused.or_else(|| self.worker.admit(id, clock::monotonic_ns()).err());
        let (planned, pages) = page_out::plan(&idle_window_of(monitor, target, idle), clock::monotonic_ns());
        if !self.rows.contains_key(&id) {
            let idle = pages.iter().map(|(_, pages)| u64::from(pages.count())).sum();
            self.row(target).idle_bytes = Bytes::of_pages(idle);
        }
        self.row(target).refused = refused;
        for (refusal, pmds) in planned.left_out {
            *self.left_out.entry(refusal).or_default() += pmds;
        }
        let is_new = |hint: &&Hint| !self.over.contains(&(id, hint.pmd)) && !self.retry.is_deferred(id, hint.pmd);
        let most = if refused.is_some() { 0 } else { self.max_in_this_round() };
        let chosen: Vec<Hint> = planned.hints.iter().filter(is_new).take(most).copied().collect();
        let waiting = pages.iter().map(|(pmd, _)| *pmd).filter(|pmd| self.retry.is_deferred(id, *pmd));
        let mut wanted: Vec<PmdNo> = chosen.iter().map(|hint| hint.pmd).chain(waiting).collect();
        wanted.sort_unstable();
        // The last background read may be a minute old. What was accessed since then shows now, and stays.
        let read = monitor.read_now(id.pid, &wanted);
        let pages = monitor.pages_of(id.pid);
        let idle = pages.map(|pages| page_out::idle_pages_in(self.args.rules(), pages, &read, monitor.now()));
        let fresh = page_out::plan(&idle_window_of(monitor, target, idle.unwrap_or_default()), 0).1;
        self.idle.replace(id, fresh, clock::monotonic_ns());
        chosen.into_iter().for_each(|hint| _ = self.queue.add(hint));
    }

    /// More huge ranges than can be served in one.
    fn max_in_this_round(&self) -> usize {
        if self.args.dry_run { MAX_HINTS } else { MAX_IN_A_ROUND }
    }

    /// Whether to go on after a round in which something has moved, or nothing has.
    fn has_patience(&mut self, has_moved: bool) -> bool {
        let now = clock::monotonic_ns();
        let since = if has_moved { now } else { self.stuck_since.unwrap_or(now) };
        self.stuck_since = Some(since);
        let is_patient = now - since < PATIENCE_NS;
        self.gave_up = self.waits_for.filter(|_| !is_patient);
        is_patient
    }

    fn row(&mut self, target: &TargetHeat) -> &mut Row {
        self.rows.entry(target.id).or_insert_with(|| Row {
            pid: target.id.pid,
            comm: target.comm.clone(),
            resident_bytes: Bytes::of_pages(target.temperature.resident()),
            ..Row::default()
        })
    }

    fn is_enough(&self) -> bool {
        self.args.most.is_some_and(|most| Bytes::of_pages(self.worker.counters().left_pages) >= most)
    }

    /// Pages out until the round is over, nothing is left, or enough has left.
    fn serve(&mut self, stop: &Stop) {
        let end = clock::monotonic_ns() + if self.args.dry_run { PATIENCE_NS } else { ROUND_NS };
        self.waits_for = None;
        while !stop.is_set() && !self.is_enough() {
            let now = clock::monotonic_ns();
            if now >= end {
                return;
            }
            let before = self.worker.counters().left_pages;
            match self.retry.step(now, &mut self.queue, &mut self.worker) {
                Step::Did(hint, outcome) => {
                    let left = self.worker.counters().left_pages - before;
                    if let Some(row) = self.rows.get_mut(&hint.process) {
                        row.left_bytes.0 += Bytes::of_pages(left).0;
                    }
                    // What was accessed meanwhile may be idle again later. All others are served once, or memory that comes and
                    // goes would keep this running for ever.
                    if outcome != Outcome::Refused(Refusal::Accessed) || self.args.dry_run {
                        self.over.insert((hint.process, hint.pmd));
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

    fn report(self) -> Report {
        Report {
            dry_run: self.args.dry_run,
            min_idle_ns: self.args.idle.idle,
            processes: self.rows.into_values().collect(),
            left_out: self.left_out,
            counters: self.worker.counters().clone(),
        }
    }
}

impl Report {
    fn write_text(&self, out: &mut dyn Write) -> Result<()> {
        let idle_for = human::duration(self.min_idle_ns);
        let verb = if self.dry_run { "would leave" } else { "left" };
        for row in &self.processes {
            let what = match row.refused {
                Some(refusal) => format!("skipped: {}", refusal.text()),
                None if row.sampled => {
                    "skipped: sampled, so its pages are not known one by one (--mode whole)".to_owned()
                }
                None => format!(
                    "{} of {} idle for {idle_for} or longer; {} {verb} memory",
                    row.idle_bytes, row.resident_bytes, row.left_bytes
                ),
            };
            writeln!(out, "{} ({}): {what}", row.pid, human::printable(&row.comm))?;
        }
        let mut reasons = self.left_out.clone();
        for (refusal, count) in &self.counters.refused {
            *reasons.entry(*refusal).or_default() += count;
        }
        for (refusal, count) in reasons {
            writeln!(out, "  stayed: {count:>7} huge ranges  {}", refusal.text())?;
        }
        if !self.dry_run {
            writeln!(out, "cost: {} of CPU; it comes back when it is accessed", human::duration(self.counters.cpu_ns))?;
        }
        Ok(())
    }
}
