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
use crate::left_alone;
use crate::output;
use crate::privileges::Needs;
use crate::rounds::{Rounds, Served, Stayed, WINDOW_NS, budgets, skipped, watch_and_act};
use crate::sandbox::Uses;
use crate::swap;
use crate::watch::{Prepared, Stop, idle_window_of};
use anyhow::{Result, bail};
use clap::Args;
use isotherm_heat::{Clock, Ns, Snapshot, TargetHeat, TargetId};
use isotherm_monitor::Monitor;
use isotherm_schemes::machine::{DryRun, Live};
use isotherm_schemes::page_out::{self, IdlePages, PageOut, PageOutMachine, Rules};
use isotherm_schemes::{Budgets, Counters, Outcome, Refusal};
use isotherm_sys::clock;
use isotherm_units::{Bytes, PmdNo};
use isotherm_view::human;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::ControlFlow;

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
    /// Memory pressure of the host or the cgroup (PSI some, ten seconds) above which to wait, percent [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Budgets")]
    pub max_pressure: Option<f64>,
    /// Pressure on I/O of the host (PSI some, ten seconds) above which to wait, percent [default: 30]
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Budgets")]
    pub max_io_pressure: Option<f64>,
}

impl ReclaimArgs {
    fn rules(&self) -> Rules {
        Rules { min_idle_ns: self.idle.idle }
    }

    fn budgets(&self) -> Budgets {
        let budgets = budgets(self.dry_run, self.per_second, self.max_reclaim_cpu);
        if self.dry_run {
            return budgets;
        }
        Budgets {
            pressure_pct: self.max_pressure.unwrap_or(budgets.pressure_pct),
            io_pressure_pct: self.max_io_pressure.unwrap_or(budgets.io_pressure_pct),
            ..budgets
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
        output::report(self.json, &report, |out| report.write_text(out))?;
        left_alone::check(self.dry_run, report.processes.iter().map(Row::skipped))
    }
}

fn reclaim(args: &ReclaimArgs, duration_ns: u64, stop: &Stop) -> Result<Report> {
    let prepared = Prepared::new(&args.targets, &args.watch, WINDOW_NS)?.for_report();
    prepared.need_idle_pages("reclaim")?;
    let watching = prepared.start(Uses::nothing().paging_out())?;
    let mut work = Work::new(args);
    watch_and_act(watching, (duration_ns, "paging out"), stop, |monitor, snapshot, others_clear| {
        work.round(monitor, (snapshot, others_clear), stop)
    })?;
    work.rounds.note_waits();
    Ok(work.report())
}

type Machines = Box<dyn PageOutMachine + Send>;

/// The work of all rounds.
struct Work<'a> {
    args: &'a ReclaimArgs,
    idle: IdlePages,
    rounds: Rounds<Machines>,
    rows: BTreeMap<TargetId, Row>,
    left_out: BTreeMap<Refusal, u64>,
    stayed: Stayed,
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

impl Row {
    /// Why nothing has left of it, if that is because it was skipped.
    fn skipped(&self) -> Option<&'static str> {
        skipped(self.refused, self.sampled).filter(|_| self.left_bytes == Bytes(0))
    }
}

#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    min_idle_ns: u64,
    processes: Vec<Row>,
    left_out: BTreeMap<Refusal, u64>,
    /// Huge ranges that were tried and stayed, by the reason that was found last.
    stayed: BTreeMap<Refusal, u64>,
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
            rounds: Rounds::new(machine, action, args.budgets(), args.dry_run),
            rows: BTreeMap::new(),
            left_out: BTreeMap::new(),
            stayed: Stayed::default(),
        }
    }

    /// Plans by the last window and pages out for a part of the next.
    fn round(
        &mut self,
        monitor: &mut Monitor<Box<dyn Clock>>,
        (snapshot, others_clear): (&Snapshot, &BTreeSet<TargetId>),
        stop: &Stop,
    ) -> ControlFlow<()> {
        self.rounds.begin();
        self.left_out.clear();
        self.drop_others(monitor, snapshot);
        for target in snapshot.alive() {
            self.plan(monitor, target, others_clear.contains(&target.id));
        }
        let planned = self.rounds.planned();
        let before = self.rounds.worker.counters().left_pages;
        if !self.is_enough() {
            self.serve(stop);
        }
        let has_moved = self.rounds.worker.counters().left_pages > before;
        if self.is_enough() { ControlFlow::Break(()) } else { self.rounds.go_on(planned, has_moved) }
    }

    /// Forgets what was planned for processes that have ended, are not named any more, or are sampled by now.
    fn drop_others(&mut self, monitor: &Monitor<Box<dyn Clock>>, snapshot: &Snapshot) {
        let is_known = |id: &TargetId| snapshot.alive().any(|t| t.id == *id) && monitor.pages_of(id.pid).is_some();
        for id in self.rows.keys().filter(|id| !is_known(id)) {
            self.idle.forget(*id);
            self.rounds.forget(*id);
        }
    }

    fn plan(&mut self, monitor: &mut Monitor<Box<dyn Clock>>, target: &TargetHeat, others_clear: bool) {
        let id = target.id;
        let Some(pages) = monitor.pages_of(id.pid) else {
            self.row(target).sampled = true;
            return;
        };
        let idle = page_out::idle_pages(self.args.rules(), pages, monitor.now());
        let refused = others_clear.then_some(Refusal::ClearedByOthers);
        let refused = refused.or_else(|| self.rounds.worker.admit(id, clock::monotonic_ns()).err());
        let (planned, pages) = page_out::plan(&idle_window_of(monitor, target, idle), clock::monotonic_ns());
        if !self.rows.contains_key(&id) {
            let idle = pages.iter().map(|(_, pages)| u64::from(pages.count())).sum();
            self.row(target).idle_bytes = Bytes::of_pages(idle);
        }
        let row = self.row(target);
        (row.refused, row.sampled) = (refused, false);
        for (refusal, pmds) in planned.left_out {
            *self.left_out.entry(refusal).or_default() += pmds;
        }
        if refused.is_some() {
            // Those that wait, too: something else may have cleared their accessed bits since they were found idle.
            self.idle.forget(id);
            self.rounds.withdraw(id);
            return;
        }
        let chosen = self.rounds.choose(&planned.hints);
        let waiting = pages.iter().map(|(pmd, _)| *pmd).filter(|pmd| self.rounds.waits(id, *pmd));
        let mut wanted: Vec<PmdNo> = chosen.iter().map(|hint| hint.pmd).chain(waiting).collect();
        wanted.sort_unstable();
        // The last background read may be a minute old. What was accessed since then shows now, and stays.
        let read = monitor.read_now(id.pid, &wanted);
        let pages = monitor.pages_of(id.pid);
        let idle = pages.map(|pages| page_out::idle_pages_in(self.args.rules(), pages, &read, monitor.now()));
        let fresh = page_out::plan(&idle_window_of(monitor, target, idle.unwrap_or_default()), 0).1;
        // The one round of a dry run may be longer than what was read stays fresh, and nothing leaves in it.
        let read_at = if self.args.dry_run { Ns::MAX } else { clock::monotonic_ns() };
        self.idle.replace(id, fresh, read_at);
        self.rounds.add(chosen);
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
        self.args.most.is_some_and(|most| Bytes::of_pages(self.rounds.worker.counters().left_pages) >= most)
    }

    /// Pages out until the round is over, nothing is left, or enough has left.
    fn serve(&mut self, stop: &Stop) {
        let (rows, stayed, most) = (&mut self.rows, &mut self.stayed, self.args.most);
        let mut all = self.rounds.worker.counters().left_pages;
        self.rounds.serve(stop, |hint, outcome, left| {
            all += left;
            if let Some(row) = rows.get_mut(&hint.process) {
                row.left_bytes.0 += Bytes::of_pages(left).0;
            }
            stayed.note(hint, outcome);
            // What was accessed meanwhile may be idle again later, and what was read too long ago is read again. All others are served once, or
            // memory that comes and goes would keep this running for ever.
            let for_good = !matches!(outcome, Outcome::Refused(Refusal::Accessed | Refusal::Unmeasured));
            Served { for_good, is_enough: most.is_some_and(|most| Bytes::of_pages(all) >= most) }
        });
    }

    fn report(self) -> Report {
        Report {
            dry_run: self.args.dry_run,
            min_idle_ns: self.args.idle.idle,
            processes: self.rows.into_values().collect(),
            left_out: self.left_out,
            stayed: self.stayed.counts(),
            counters: self.rounds.worker.counters().clone(),
        }
    }
}

impl Report {
    fn write_text(&self, out: &mut dyn Write) -> Result<()> {
        let idle_for = human::duration(self.min_idle_ns);
        let verb = if self.dry_run { "would leave" } else { "left" };
        for row in &self.processes {
            let what = match row.skipped() {
                Some(why) => format!("skipped: {why}"),
                None => format!(
                    "{} of {} idle for {idle_for} or longer; {} {verb} memory{}",
                    row.idle_bytes,
                    row.resident_bytes,
                    row.left_bytes,
                    skipped(row.refused, row.sampled).map_or(String::new(), |why| format!("; then skipped: {why}"))
                ),
            };
            writeln!(out, "{} ({}): {what}", row.pid, human::printable(&row.comm))?;
        }
        let mut reasons = self.left_out.clone();
        for (refusal, count) in &self.stayed {
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
