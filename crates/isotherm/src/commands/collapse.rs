//! `isotherm collapse`: one pass over named targets. Watches (or reads a recording), plans, collapses and reports the gain.
//!
//! A dry run takes the same path, but on a machine that does nothing, and it does not wait for budgets. So it prints what the real run
//! does.

use crate::args::budgets::BudgetArgs;
use crate::args::hints::HintsArg;
use crate::args::targets::TargetArgs;
use crate::args::usage::Usage;
use crate::args::values::positive_duration_ns;
use crate::args::watching::WatchArgs;
use crate::commands::plan::Plan;
use crate::daemon::need_collapse;
use crate::gain::{self, Probe};
use crate::generations::Generations;
use crate::input::Recorded;
use crate::journal::journaled;
use crate::left_alone;
use crate::output;
use crate::privileges::Needs;
use crate::sandbox::Uses;
use crate::serving::Patience;
use crate::watch::{Prepared, Stop, Watching, window_of};
use crate::work::runner::{Runner, WorkArgs};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use isotherm_heat::{Ns, TargetHeat};
use isotherm_schemes::collapse::{Collapse, CollapseMachine, Rules, benefit};
use isotherm_schemes::gain::Gain;
use isotherm_schemes::machine::{DryRun, Live};
use isotherm_schemes::pass::{MAX_HINTS, Order, Pass, PassResult, PassStep, ProcessResult, Served};
use isotherm_schemes::plan::HintSource;
use isotherm_schemes::{Budgets, Counters, Outcome, Refusal, TargetWindow, Wait, Worker};
use isotherm_sys::clock;
use isotherm_units::Bytes;
use isotherm_view::human;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

const WINDOW_NS: u64 = 2_000_000_000;
/// How long work and TLB misses are measured before and after.
const MEASURED_FOR: Duration = Duration::from_secs(5);

/// One huge range and its outcome.
#[derive(Debug, Serialize)]
struct Line {
    pid: u32,
    address: String,
    level: u8,
    benefit_hz: f64,
    outcome: String,
}

#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    source: String,
    processes: Vec<Row>,
    #[serde(rename = "blocks")]
    pmds: Vec<Line>,
    left_out: BTreeMap<Refusal, u64>,
    counters: Counters,
    gain: Gain,
}

/// One process in the summary.
#[derive(Debug, Serialize)]
struct Row {
    pid: u32,
    comm: String,
    #[serde(rename = "blocks")]
    pmds: usize,
    collapsed: u64,
    refused: Option<Refusal>,
}

/// Order of huge ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OrderArg {
    /// Largest gain first
    #[default]
    Heat,
    /// By address, all there is, as khugepaged does
    Address,
}

#[derive(Debug, Args)]
pub struct CollapseArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// How long to watch first
    #[arg(short, long, value_name = "TIME", default_value = "15s", value_parser = positive_duration_ns)]
    pub duration: u64,
    /// Take the heat from this recording instead of watching; its processes, or those named
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["all", "cgroup", "command", "replay", "source"])]
    pub from: Option<PathBuf>,
    /// Only print what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Order of huge ranges
    #[arg(long, value_enum, default_value_t)]
    pub order: OrderArg,
    /// Where hints come from
    #[arg(long, value_enum, default_value_t, value_name = "ORIGIN", conflicts_with_all = ["from", "replay"])]
    pub hints: HintsArg,
    /// Stop after this many huge ranges
    #[arg(long, value_name = "N")]
    pub most: Option<u64>,
    /// A command that prints how much work the targets have done so far: CPU per unit is measured before and after
    #[arg(long, value_name = "COMMAND")]
    pub work: Option<String>,
    /// Where to note what is done, for `isotherm undo` [default: /run/isotherm/isotherm.journal of root, $XDG_RUNTIME_DIR/isotherm.journal of others]
    #[arg(long, value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// Print every huge range with its outcome
    #[arg(short, long)]
    pub verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub budgets: BudgetArgs,
}

impl Plan for CollapseArgs {
    fn needs(&self) -> Needs {
        if self.work.is_some() { Needs::Starting } else { self.targets.needs() }
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(args: &CollapseArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    if !args.dry_run {
        need_collapse()?;
    }
    args.from.as_ref().map_or(Ok(()), |_| args.watch.check_unused("a recording is taken here"))?;
    // Before the sandbox forbids to open it.
    let live = if args.dry_run { None } else { Some(journaled(args.journal.as_deref())?) };
    let mut work = Runner::start(&WorkArgs { work: args.work.clone(), config: None })?;
    let (rules, budgets) = args.budgets.over(Rules::default(), Budgets::default());
    let (known, source, _watching) = match &args.from {
        Some(path) => {
            let known = recorded(path, &args.targets.pids)?;
            uses_of(args).enter();
            (known, format!("recording {}", path.display()), None)
        }
        None => watched(args, min_benefit_hz(args, &rules), &stop)?,
    };
    if stop.is_set() {
        bail!("stopped before anything was collapsed");
    }
    let pids: Vec<u32> = known.iter().map(|k| k.id.pid).collect();
    let mut pass = plan(args, known, live, (&rules, budgets))?;
    let mut probe = Probe::start(pids.into_iter());
    let length = measured_for(args, &probe);
    let mut measure = |probe: &mut Probe| match args.dry_run {
        true => Ok(None),
        false => probe.measure(work.as_mut(), length, &stop).map(Some),
    };
    let before = measure(&mut probe)?;
    serve(&mut pass, args, &stop)?;
    // What was collapsed is reported in any case.
    let after = measure(&mut probe).or_else(|error| {
        output::warn(format_args!("CPU per unit of work was not measured again: {error:#}"));
        probe.measure(None, length, &stop).map(Some)
    })?;
    let gain = Gain::between((None, None), before.zip(after), probe.misses_note());
    let report = report(args.dry_run, source, pass.finish(), gain);
    output::report(args.json, &report, |out| tell(&report, args.verbose || args.dry_run, out))?;
    let skipped = |row: &Row| row.refused.filter(|_| row.collapsed == 0).map(Refusal::text);
    left_alone::check(args.dry_run, report.processes.iter().map(skipped))
}

/// Rates take time to measure; amounts do not.
fn measured_for(args: &CollapseArgs, probe: &Probe) -> Duration {
    if args.work.is_some() || probe.counts_misses() { MEASURED_FOR } else { Duration::ZERO }
}

/// The last snapshot of a recording.
fn recorded(path: &Path, pids: &[u32]) -> Result<Vec<TargetWindow<'static>>> {
    let Recorded { mut snapshots, .. } = Recorded::read_last(path, |_| true, |_| {})?;
    let last = snapshots.pop().with_context(|| format!("{}: nothing is recorded in it", path.display()))?;
    let wanted = |t: &TargetHeat| !t.exited && (pids.is_empty() || pids.contains(&t.id.pid));
    let known = last.targets.into_iter().filter(wanted).map(|t| TargetWindow {
        id: t.id,
        comm: t.comm.into(),
        facts: benefit::of_regions(&t.regions),
        generations: Vec::new(),
        mappings: t.mappings.to_vec().into(),
    });
    let known: Vec<TargetWindow<'static>> = known.collect();
    if known.is_empty() {
        bail!("{}: none of the processes named is in its last snapshot", path.display());
    }
    Ok(known)
}

/// What is done besides watching.
fn uses_of(args: &CollapseArgs) -> Uses {
    let uses = Uses::nothing().collapsing();
    if HintSource::from(args.hints) == HintSource::Heat { uses } else { uses.ageing() }
}

/// The lowest benefit that windows have to include. Where heat does not decide, all ranges may be hinted.
fn min_benefit_hz(args: &CollapseArgs, rules: &Rules) -> f64 {
    let by_heat = args.order == OrderArg::Heat && HintSource::from(args.hints) == HintSource::Heat;
    if by_heat { rules.min_benefit_hz } else { 0.0 }
}

/// Watches for a while. A command that was started lives as long as the returned `Watching`.
fn watched(
    args: &CollapseArgs,
    min_benefit_hz: f64,
    stop: &Stop,
) -> Result<(Vec<TargetWindow<'static>>, String, Option<Watching>)> {
    let mut generations = Generations::open(args.hints.into())?;
    let prepared = Prepared::new(&args.targets, &args.watch, WINDOW_NS)?.for_report();
    if !prepared.knows_pages() {
        return Err(Usage(format!("collapse needs to know which pages are hot, and the source `{}` does not report that: see `isotherm doctor` for what page-table needs, or give a recording with --from", prepared.run.source)).into());
    }
    let mut watching = prepared.start(uses_of(args))?;
    let bar = output::progress(Some(args.duration), "watching");
    let mut known = Vec::new();
    watching.windows(Some(args.duration), stop, &bar, |monitor, snapshot| {
        known.clear();
        generations.age(&snapshot.alive().map(|t| t.id.pid).collect::<Vec<_>>())?;
        for target in snapshot.alive() {
            let mut window = window_of(monitor, target, min_benefit_hz);
            generations.add_to(&mut window)?;
            known.push(window.into_owned());
        }
        Ok(ControlFlow::Continue(()))
    })?;
    watching.report_refused();
    if known.is_empty() {
        bail!("nothing is left to collapse: the processes have ended");
    }
    let (unchecked, all) = watching.monitor.unchecked();
    if unchecked * 20 > all {
        output::note(format_args!(
            "{unchecked} of {all} huge ranges were not checked for accesses yet, and get no hint; a longer --duration, or more --max-cpu, reaches them"
        ));
    }
    Ok((known, watching.run.source.clone(), Some(watching)))
}

type Machines = Box<dyn CollapseMachine + Send>;

/// Plans the pass, on the real machine, or on one that only counts.
fn plan(
    args: &CollapseArgs,
    known: Vec<TargetWindow<'static>>,
    live: Option<Live>,
    (rules, budgets): (&Rules, Budgets),
) -> Result<Pass<Machines>> {
    let machine: Machines = match live {
        Some(live) => Box::new(live),
        None => {
            let of = |k: &TargetWindow<'_>| k.facts.iter().map(|f| ((k.id, f.pmd), f.present)).collect::<Vec<_>>();
            Box::new(DryRun::new(known.iter().flat_map(of).collect()))
        }
    };
    let order = if args.order == OrderArg::Heat { Order::Worth(args.hints.into()) } else { Order::Address };
    let now = clock::monotonic_ns();
    let worker = Worker::new(machine, vec![Box::new(Collapse { files: rules.files })], budgets, now);
    let Ok(pass) = Pass::new(known, worker, (order, rules), now) else {
        bail!("more than {MAX_HINTS} huge ranges to collapse: name fewer processes, or raise --min-benefit");
    };
    Ok(pass)
}

/// Serves every hint. A dry run does not wait for budgets. It advances its clock instead.
fn serve(pass: &mut Pass<Machines>, args: &CollapseArgs, stop: &Stop) -> Result<()> {
    let most = args.most.unwrap_or(u64::MAX);
    let bar = bar(args.dry_run, (pass.hints_left() as u64).min(most));
    let began = clock::monotonic_ns();
    let (mut now, mut patience) = (began, Patience::new(began, PATIENCE_NS));
    while !stop.is_set() && pass.pmds_done() < most {
        if !args.dry_run {
            now = clock::monotonic_ns();
        }
        let until = match pass.step(now) {
            PassStep::Did => {
                bar.inc(1);
                patience.moved(clock::monotonic_ns());
                continue;
            }
            PassStep::Deferred => continue,
            PassStep::Over => break,
            PassStep::Wait(until, why) => {
                why.into_iter().for_each(|why| bar.set_message(format!("waiting: {}", why.text())));
                let for_budget = why.is_none_or(|why| Wait::OF_BUDGETS.contains(&why));
                if !args.dry_run
                    && let Some(limit_ns) = patience.waited(now, for_budget)
                {
                    note_waiting(pass, limit_ns, why);
                    break;
                }
                until
            }
        };
        if !args.dry_run {
            std::thread::sleep(Duration::from_nanos(until.saturating_sub(now)).min(Duration::from_millis(100)));
        } else if until.saturating_sub(began) > MAX_DRY_RUN_NS {
            let why = pass.waits_for().map_or_else(String::new, |why| format!(" ({})", why.text()));
            bail!("the plan takes more than 24 hours: {} hints are waiting{why}", pass.hints_left());
        } else {
            now = now.max(until);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Says what was not done.
fn note_waiting(pass: &Pass<Machines>, after_ns: Ns, why: Option<Wait>) {
    let (left, after, why) = (pass.hints_left(), human::duration(after_ns), why.map_or("", Wait::text));
    output::note(format_args!("{left} huge ranges are left as they are; stopped after {after} of waiting: {why}"));
}

/// `gain` holds what was measured. The shares of heat on huge pages come from the pass.
fn report(dry_run: bool, source: String, result: PassResult, gain: Gain) -> Report {
    let (heat_on_huge_before, heat_on_huge_after) = result.heat_on_huge;
    let row = |process: ProcessResult| Row {
        pid: process.id.pid,
        comm: process.comm,
        pmds: process.pmds,
        collapsed: process.done,
        refused: process.refused,
    };
    Report {
        dry_run,
        source,
        processes: result.processes.into_iter().map(row).collect(),
        pmds: result.served.iter().map(line).collect(),
        left_out: result.left_out,
        counters: result.counters,
        gain: Gain { heat_on_huge_before, heat_on_huge_after, ..gain },
    }
}

fn line(served: &Served) -> Line {
    Line {
        pid: served.hint.process.pid,
        address: format!("{:#x}", served.hint.pmd.addr().0),
        level: served.hint.level.get(),
        benefit_hz: served.benefit_hz,
        outcome: match served.outcome {
            Outcome::Done { .. } => "collapse".to_owned(),
            Outcome::Refused(refusal) => format!("skip: {}", refusal.text()),
        },
    }
}

/// For so long it waits for the machine: memory, free huge pages, pressure. The pressure of a moment is seen for ten seconds.
const PATIENCE_NS: u64 = 30_000_000_000;

/// A dry run gives up if it would have to advance its clock further than this. A real run would have to wait for that long.
const MAX_DRY_RUN_NS: u64 = 24 * 3600 * 1_000_000_000;

fn bar(dry_run: bool, pmds: u64) -> ProgressBar {
    if dry_run {
        return ProgressBar::hidden();
    }
    output::counting(pmds, "collapsing")
}

fn tell(report: &Report, every_pmd: bool, out: &mut dyn Write) -> Result<()> {
    if every_pmd {
        for line in &report.pmds {
            writeln!(
                out,
                "{:>8} {:>16} level {:>2} {:>9.0} Hz  {}",
                line.pid, line.address, line.level, line.benefit_hz, line.outcome
            )?;
        }
    }
    for row in &report.processes {
        let why = row.refused.map(|r| format!("; skipped: {}", r.text())).unwrap_or_default();
        let verb = if report.dry_run { "would be collapsed" } else { "collapsed" };
        writeln!(
            out,
            "{} ({}): {} of {} huge ranges {verb}{why}",
            row.pid,
            human::printable(&row.comm),
            row.collapsed,
            row.pmds
        )?;
    }
    let mut reasons: BTreeMap<Refusal, u64> = report.left_out.clone();
    for (refusal, count) in &report.counters.refused {
        *reasons.entry(*refusal).or_default() += count;
    }
    for (refusal, count) in reasons {
        writeln!(out, "  not collapsed: {count:>7}  {}", refusal.text())?;
    }
    let grown = Bytes::of_pages(report.counters.grown_pages);
    if !report.dry_run {
        writeln!(
            out,
            "cost: {} of CPU; targets stalled for {} in total, {} at most; grown by {grown}",
            human::duration(report.counters.cpu_ns),
            human::duration(report.counters.stall_ns),
            human::duration(report.counters.longest_stall_ns)
        )?;
    }
    gain::tell(&report.gain, out)?;
    Ok(())
}
