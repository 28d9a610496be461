//! `isotherm migrate`: moves pages of named processes between memory tiers, once. Watches until it is known what is hot and what is idle; then
//! hot pages move to fast memory, and idle ones to slow memory while too little of the fast is free.
//!
//! It goes on watching meanwhile ([`crate::rounds`]). A dry run takes the same path on a machine that moves nothing, for one round.

use crate::args::idle::IdleArgs;
use crate::args::targets::TargetArgs;
use crate::args::usage::Usage;
use crate::args::values::{percent, positive};
use crate::args::watching::WatchArgs;
use crate::commands::plan::Plan;
use crate::left_alone;
use crate::output;
use crate::privileges::Needs;
use crate::rounds::{Rounds, Served, Stayed, WINDOW_NS, budgets, skipped, watch_and_act};
use crate::sandbox::Uses;
use crate::watch::{Prepared, Stop};
use anyhow::{Result, bail};
use clap::Args;
use isotherm_heat::{Clock, Snapshot, TargetHeat, TargetId};
use isotherm_monitor::Monitor;
use isotherm_schemes::machine::{DryRun, Live};
use isotherm_schemes::migrate::{Limits, Migrate, MigrateMachine, Movable, Wanted, hints, wanted_in};
use isotherm_schemes::scheme::{DEFAULT_HOT_HZ, DEFAULT_KEEP_FREE_PCT, ns_between};
use isotherm_schemes::{Counters, Outcome, Refusal};
use isotherm_sys::clock;
use isotherm_sys::tiers::Tiers;
use isotherm_units::{Bytes, PmdNo};
use isotherm_view::human;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

/// There is nothing to move to.
const ONE_TIER: &str = "all memory of this machine is in one tier: see /sys/devices/virtual/memory_tiering";

/// What is missing for pages to move, if anything: several tiers, and a call that is permitted.
pub fn missing() -> Option<&'static str> {
    if let Some(why) = one_tier() {
        return Some(why);
    }
    // Of our own process no capability is needed, so a refusal is a filter's.
    let asked = isotherm_sys::move_pages::places(std::process::id(), &[]);
    asked.is_err().then_some(
        "move_pages is refused even for our own memory: a filter of system calls, such as the default seccomp profile of a container (see docs/guide/kubernetes.md)",
    )
}

/// That there is nothing to move to, if so.
pub fn one_tier() -> Option<&'static str> {
    (!Tiers::read(Path::new("/sys")).are_several()).then_some(ONE_TIER)
}

#[derive(Debug, Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    #[command(flatten)]
    pub idle: IdleArgs,
    /// Pages that are accessed this often a second, or more often, are hot and move to fast memory
    #[arg(long, value_name = "HZ", default_value_t = DEFAULT_HOT_HZ, value_parser = positive)]
    pub min_rate: f64,
    /// Idle pages move to slow memory while less than this is free of fast memory, percent
    #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT_KEEP_FREE_PCT, value_parser = percent)]
    pub keep_free: f64,
    /// Only move hot pages to fast memory
    #[arg(long, conflicts_with = "demote_only")]
    pub promote_only: bool,
    /// Only move idle pages to slow memory
    #[arg(long)]
    pub demote_only: bool,
    /// Only print what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Huge ranges per second [default: 20]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Budgets")]
    pub per_second: Option<f64>,
    /// CPU for moving pages, percent of one core; over 100 lifts the limit [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Budgets")]
    pub max_migrate_cpu: Option<f64>,
}

impl MigrateArgs {
    fn limits(&self) -> Limits {
        Limits {
            hot_ns: (!self.demote_only).then(|| ns_between(self.min_rate)),
            idle_ns: (!self.promote_only).then_some(self.idle.idle),
            keep_free_pct: self.keep_free,
        }
    }
}

impl Plan for MigrateArgs {
    fn needs(&self) -> Needs {
        self.targets.needs()
    }

    fn run(&self) -> Result<()> {
        // What is hot is hot beside another monitor as well; but not as a recording has it.
        if let Some(why) = self.watch.unfit_for_idle().filter(|_| !self.promote_only || self.watch.is_played()) {
            return Err(Usage(format!("migrate: {why}")).into());
        }
        if self.targets.all {
            return Err(
                Usage("pages move of processes that are named only: give -p PID or --cgroup PATH".to_owned()).into()
            );
        }
        let duration_ns = if self.promote_only { self.idle.any_duration_ns() } else { self.idle.duration_ns()? };
        if let Some(why) = missing() {
            bail!(why);
        }
        let report = migrate(self, duration_ns, &Stop::on_signals()?)?;
        output::report(self.json, &report, |out| report.write_text(out))?;
        left_alone::check(self.dry_run, report.processes.iter().map(Row::skipped))
    }
}

fn migrate(args: &MigrateArgs, duration_ns: u64, stop: &Stop) -> Result<Report> {
    let prepared = Prepared::new(&args.targets, &args.watch, WINDOW_NS)?.for_report();
    prepared.need_idle_pages("migrate")?;
    let watching = prepared.start(Uses::nothing().migrating())?;
    let mut work = Work::new(args);
    watch_and_act(watching, (duration_ns, "moving"), stop, |monitor, snapshot, others_clear| {
        work.round(monitor, (snapshot, others_clear), stop)
    })?;
    work.rounds.note_waits();
    Ok(work.report())
}

type Machines = Box<dyn MigrateMachine + Send>;

/// The work of all rounds.
struct Work<'a> {
    args: &'a MigrateArgs,
    movable: Movable,
    rounds: Rounds<Machines>,
    rows: BTreeMap<TargetId, Row>,
    stayed: Stayed,
    /// In the last round hot pages found no room.
    is_full: bool,
}

/// One process.
#[derive(Clone, Debug, Default, Serialize)]
struct Row {
    pid: u32,
    comm: String,
    resident_bytes: Bytes,
    /// Memory that was hot, and idle for long enough, when moving began, wherever it was.
    hot_bytes: Bytes,
    idle_bytes: Bytes,
    /// Memory that has moved to fast memory, and to slow memory, or would.
    promoted_bytes: Bytes,
    demoted_bytes: Bytes,
    /// It is sampled: its pages are not known one by one.
    sampled: bool,
    refused: Option<Refusal>,
}

impl Row {
    /// What has moved of it, or would.
    fn moved(&self) -> u64 {
        self.promoted_bytes.0 + self.demoted_bytes.0
    }

    /// Why nothing has moved of it, if that is because it was skipped.
    fn skipped(&self) -> Option<&'static str> {
        skipped(self.refused, self.sampled).filter(|_| self.moved() == 0)
    }
}

#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    min_idle_ns: u64,
    min_rate_hz: f64,
    processes: Vec<Row>,
    /// Huge ranges that stayed, by the reason that was found last.
    stayed: BTreeMap<Refusal, u64>,
    counters: Counters,
}

impl Work<'_> {
    fn new(args: &MigrateArgs) -> Work<'_> {
        let movable = Movable::default();
        let machine: Machines =
            if args.dry_run { Box::new(DryRun::new(BTreeMap::new())) } else { Box::new(Live::new()) };
        let action = Box::new(Migrate::new(movable.clone()));
        Work {
            args,
            movable,
            rounds: Rounds::new(
                machine,
                action,
                budgets(args.dry_run, args.per_second, args.max_migrate_cpu),
                args.dry_run,
            ),
            rows: BTreeMap::new(),
            stayed: Stayed::default(),
            is_full: false,
        }
    }

    /// Plans by the last window and moves for a part of the next.
    fn round(
        &mut self,
        monitor: &Monitor<Box<dyn Clock>>,
        (snapshot, others_clear): (&Snapshot, &BTreeSet<TargetId>),
        stop: &Stop,
    ) -> ControlFlow<()> {
        self.rounds.begin();
        let gone: Vec<TargetId> =
            self.rows.keys().filter(|id| !snapshot.alive().any(|t| t.id == **id)).copied().collect();
        for id in gone {
            self.movable.forget(id);
            self.rounds.forget(id);
        }
        snapshot.alive().for_each(|target| self.plan(monitor, target, others_clear.contains(&target.id)));
        let planned = self.rounds.planned();
        let before = self.moved();
        self.serve(stop);
        let has_moved = self.moved() != before;
        self.rounds.go_on(planned, has_moved)
    }

    /// Hints what should move of a process. What looks idle does not count if something else has cleared its accessed bits, too.
    fn plan(&mut self, monitor: &Monitor<Box<dyn Clock>>, target: &TargetHeat, others_clear: bool) {
        let id = target.id;
        let is_new = !self.rows.contains_key(&id);
        let (Some(pages), Some(mappings)) = (monitor.pages_of(id.pid), monitor.mappings_of(id.pid)) else {
            self.row(target).sampled = true;
            self.movable.forget(id);
            return;
        };
        let mut limits = self.args.limits();
        if others_clear {
            limits.idle_ns = None;
        }
        let wanted = wanted_in(limits, pages, mappings, PmdNo(0)..PmdNo(u64::MAX), monitor.now());
        let now = clock::monotonic_ns();
        let refused = self.rounds.worker.admit(id, now).err();
        let is_full = self.is_full;
        let row = self.row(target);
        (row.refused, row.sampled) = (refused, false);
        if is_new {
            let pages = |of: fn(&Wanted) -> u32| wanted.iter().map(|w| u64::from(of(w))).sum();
            row.hot_bytes = Bytes::of_pages(pages(|wanted| wanted.hot.count()));
            row.idle_bytes = Bytes::of_pages(pages(|wanted| wanted.idle.count()));
        }
        if refused.is_none() {
            let chosen = self.rounds.choose(&hints(id, &wanted, is_full, now));
            self.movable.replace(id, wanted, limits.keep_free_pct, now);
            self.rounds.add(chosen);
        }
    }

    fn row(&mut self, target: &TargetHeat) -> &mut Row {
        self.rows.entry(target.id).or_insert_with(|| Row {
            pid: target.id.pid,
            comm: target.comm.clone(),
            resident_bytes: Bytes::of_pages(target.temperature.resident()),
            ..Row::default()
        })
    }

    /// All that has moved so far, or would.
    fn moved(&self) -> u64 {
        self.rows.values().map(Row::moved).sum()
    }

    fn serve(&mut self, stop: &Stop) {
        let (movable, rows, stayed) = (&self.movable, &mut self.rows, &mut self.stayed);
        let mut is_full = false;
        self.rounds.serve(stop, |hint, outcome, _| {
            for (process, _, moves) in movable.take_moved() {
                if let Some(row) = rows.get_mut(&process) {
                    row.promoted_bytes.0 += Bytes::of_pages(u64::from(moves.promote.count())).0;
                    row.demoted_bytes.0 += Bytes::of_pages(u64::from(moves.demote.count())).0;
                }
            }
            stayed.note(hint, outcome);
            // What goes down makes room.
            let has_no_room = outcome == Outcome::Refused(Refusal::NoFastMemory);
            is_full |= has_no_room;
            Served { for_good: !has_no_room, is_enough: false }
        });
        self.is_full = is_full;
    }

    fn report(self) -> Report {
        Report {
            dry_run: self.args.dry_run,
            min_idle_ns: self.args.idle.idle,
            min_rate_hz: self.args.min_rate,
            processes: self.rows.into_values().collect(),
            stayed: self.stayed.counts(),
            counters: self.rounds.worker.counters().clone(),
        }
    }
}

impl Report {
    fn write_text(&self, out: &mut dyn Write) -> Result<()> {
        let idle_for = human::duration(self.min_idle_ns);
        let verb = if self.dry_run { "would move" } else { "moved" };
        for row in &self.processes {
            let what = match row.skipped() {
                Some(why) => format!("skipped: {why}"),
                None => format!(
                    "{} of {} hot, {} idle for {idle_for} or longer; {verb} {} to fast memory, {} to slow{}",
                    row.hot_bytes,
                    row.resident_bytes,
                    row.idle_bytes,
                    row.promoted_bytes,
                    row.demoted_bytes,
                    skipped(row.refused, row.sampled).map_or(String::new(), |why| format!("; then skipped: {why}"))
                ),
            };
            writeln!(out, "{} ({}): {what}", row.pid, human::printable(&row.comm))?;
        }
        for (refusal, count) in &self.stayed {
            writeln!(out, "  stayed: {count:>7} huge ranges  {}", refusal.text())?;
        }
        if !self.dry_run {
            writeln!(out, "cost: {} of CPU", human::duration(self.counters.cpu_ns))?;
        }
        Ok(())
    }
}
