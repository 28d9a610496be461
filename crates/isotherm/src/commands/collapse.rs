//! `isotherm collapse`: one pass over named targets. Watches (or reads a recording), plans, collapses, says what was gained.
//!
//! A dry run goes the same way to the end, but for the machine, on which nothing is done and no budget has to be waited for; so it
//! prints what the real run does.

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
use crate::output;
use crate::privileges::Needs;
use crate::watch::{Stop, Watching, facts_of};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use isotherm_heat::{Granularity, Mapping, TargetHeat, TargetId};
use isotherm_record::Recording;
use isotherm_schemes::collapse::benefit::{self, BlockFacts};
use isotherm_schemes::gain::{Gain, Measured};
use isotherm_schemes::machine::{DryRun, Live, Machine};
use isotherm_schemes::plan::{self, Rules};
use isotherm_schemes::queue::Added;
use isotherm_schemes::{Budgets, Collapser, Counters, Hint, HintQueue, Outcome, Refusal, Server, Step, Wait};
use isotherm_sys::clock;
use isotherm_units::{BlockNo, Bytes};
use isotherm_view::human;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

const WINDOW_NS: u64 = 2_000_000_000;
/// Most blocks in one pass: 2 TiB.
const MOST_HINTS: usize = 1 << 20;
/// How long work and TLB misses are measured before and after.
const MEASURED_FOR: Duration = Duration::from_secs(5);

/// What is known of one process when the plan is made.
struct Known {
    id: TargetId,
    comm: String,
    mappings: Vec<Mapping>,
    facts: Vec<BlockFacts>,
    /// By the kernel's generations, if hints come from there.
    generations: Vec<BlockFacts>,
}

/// One block with what came of it.
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
    blocks: Vec<Line>,
    left_out: BTreeMap<Refusal, u64>,
    counters: Counters,
    gain: Gain,
}

/// One process in the summary.
#[derive(Debug, Serialize)]
struct Row {
    pid: u32,
    comm: String,
    blocks: usize,
    collapsed: u64,
    refused: Option<Refusal>,
}

/// Which blocks first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OrderArg {
    /// What gains most first
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
    /// Which blocks first
    #[arg(long, value_enum, default_value_t)]
    pub order: OrderArg,
    /// Where hints come from
    #[arg(long, value_enum, default_value_t, value_name = "ORIGIN", conflicts_with_all = ["from", "replay"])]
    pub hints: HintsArg,
    /// Stop after this many blocks
    #[arg(long, value_name = "N")]
    pub most: Option<u64>,
    /// A command that prints how much work the targets have done so far: CPU for each unit is measured before and after
    #[arg(long, value_name = "COMMAND")]
    pub work: Option<String>,
    /// Print every block with what came of it
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
    let (rules, budgets) = args.budgets.over(Rules::default(), Budgets::default());
    let (known, source, _watching) = match &args.from {
        Some(path) => (recorded(path, &args.targets.pids)?, format!("recording {}", path.display()), None),
        None => watched(args, &stop)?,
    };
    if stop.is_set() {
        bail!("stopped before anything was collapsed");
    }
    let mut pass = Pass::new(args, known, rules, budgets)?;
    let probe = Probe::start(pass.known.iter().map(|k| k.id.pid), args.work.as_deref());
    let before = if args.dry_run { None } else { Some(probe.measure(measured_for(args, &probe), &stop)?) };
    pass.serve(args, &stop)?;
    let after = if args.dry_run { None } else { Some(probe.measure(measured_for(args, &probe), &stop)?) };
    let report = pass.report(args.dry_run, source, before.zip(after), &probe);
    if args.json {
        return output::json(&report);
    }
    let mut out = output::stdout();
    tell(&report, args.verbose || args.dry_run, &mut out)?;
    out.flush()?;
    Ok(())
}

/// Rates take time to measure; amounts do not.
fn measured_for(args: &CollapseArgs, probe: &Probe) -> Duration {
    if args.work.is_some() || probe.counts_misses() { MEASURED_FOR } else { Duration::ZERO }
}

/// The last snapshot of a recording.
fn recorded(path: &Path, pids: &[u32]) -> Result<Vec<Known>> {
    let mut snapshots = Recording::open(path)?.read_all()?;
    let last = snapshots.pop().with_context(|| format!("{}: nothing is recorded in it", path.display()))?;
    let wanted = |t: &TargetHeat| !t.exited && (pids.is_empty() || pids.contains(&t.id.pid));
    let known = last.targets.into_iter().filter(wanted).map(|t| Known {
        id: t.id,
        comm: t.comm,
        facts: benefit::of_regions(&t.regions),
        generations: Vec::new(),
        mappings: t.mappings.to_vec(),
    });
    let known: Vec<Known> = known.collect();
    if known.is_empty() {
        bail!("{}: none of the processes named is in its last snapshot", path.display());
    }
    Ok(known)
}

/// Watches for a while. A command that was started stays alive as long as what is returned.
fn watched(args: &CollapseArgs, stop: &Stop) -> Result<(Vec<Known>, String, Option<Watching>)> {
    let mut kernels = Generations::open(args.hints.into())?;
    let mut watching = Watching::begin(&args.targets, &args.watch, WINDOW_NS)?;
    let bar = output::progress(Some(args.duration), "watching");
    let mut known = Vec::new();
    watching.windows(Some(args.duration), stop, &bar, |monitor, snapshot| {
        known.clear();
        let alive = || snapshot.targets.iter().filter(|t| !t.exited);
        kernels.age(&alive().map(|t| t.id.pid).collect::<Vec<_>>())?;
        for target in alive() {
            let facts = facts_of(monitor, target);
            let generations = kernels.facts(target.id.pid, facts.iter().map(|f| f.block))?;
            known.push(Known {
                id: target.id,
                comm: target.comm.clone(),
                mappings: monitor.mappings_of(target.id.pid).unwrap_or_default().to_vec(),
                facts,
                generations,
            });
        }
        Ok(ControlFlow::Continue(()))
    })?;
    watching.tell_refused();
    if watching.monitor.source().describe().granularity != Granularity::Page {
        return Err(Usage(format!("collapse has to know which pages are hot, and the source `{}` does not: see `isotherm doctor` for what page-table needs, or give a recording with --from", watching.run.source)).into());
    }
    if known.is_empty() {
        bail!("nothing is left to collapse: the processes have ended");
    }
    let (unlooked, all) = watching.monitor.unlooked();
    if unlooked * 20 > all {
        output::note(format_args!(
            "{unlooked} of {all} blocks were not checked for accesses yet, and get no hint; a longer --duration, or more --max-cpu, reaches them"
        ));
    }
    Ok((known, watching.run.source.clone(), Some(watching)))
}

/// How long blocks are waited for whose memory cgroup has no room, once nothing else is left to do.
const CGROUP_PATIENCE_NS: u64 = 5_000_000_000;

/// The plan and its execution.
struct Pass {
    known: Vec<Known>,
    queue: HintQueue,
    benefits: BTreeMap<(TargetId, BlockNo), f64>,
    left_out: BTreeMap<Refusal, u64>,
    collapser: Collapser<Box<dyn Machine>>,
    refused: BTreeMap<TargetId, Refusal>,
    lines: Vec<Line>,
    collapsed: BTreeMap<TargetId, Vec<BlockNo>>,
    began: u64,
}

impl Pass {
    fn new(args: &CollapseArgs, known: Vec<Known>, rules: Rules, budgets: Budgets) -> Result<Pass> {
        let now = clock::monotonic_ns();
        let mut queue = HintQueue::new(MOST_HINTS);
        let mut left_out = BTreeMap::new();
        let mut benefits = BTreeMap::new();
        for process in &known {
            let planned = if args.order == OrderArg::Heat {
                let known = (process.facts.as_slice(), process.generations.as_slice());
                plan::plan(args.hints.into(), process.id, &process.mappings, known, rules, now)
            } else {
                plan::round_robin(process.id, &process.mappings, &process.facts, rules, now)
            };
            for (refusal, blocks) in planned.left_out {
                *left_out.entry(refusal).or_default() += blocks;
            }
            let heat = if args.hints == HintsArg::Mglru { &[] } else { process.facts.as_slice() };
            for fact in heat.iter().chain(&process.generations) {
                let benefit: &mut f64 = benefits.entry((process.id, fact.block)).or_default();
                *benefit = benefit.max(fact.benefit_hz);
            }
            for hint in planned.hints {
                if matches!(queue.add(hint), Added::Refused | Added::NewInsteadOf(_)) {
                    bail!("more than {MOST_HINTS} blocks to collapse: name fewer processes, or raise --min-benefit");
                }
            }
        }
        let files = rules.files;
        let machine: Box<dyn Machine> = if args.dry_run {
            let of = |k: &Known| k.facts.iter().map(|f| ((k.id, f.block), f.present)).collect::<Vec<_>>();
            Box::new(DryRun::new(files, known.iter().flat_map(of).collect()))
        } else {
            Box::new(Live::new(files))
        };
        let mut collapser = Collapser::new(machine, budgets, now);
        let mut refused = BTreeMap::new();
        for process in &known {
            if let Err(refusal) = collapser.admit(process.id, now) {
                refused.insert(process.id, refusal);
                let dropped = queue.forget(process.id) as u64;
                *left_out.entry(refusal).or_default() += dropped;
            }
        }
        Ok(Pass {
            known,
            queue,
            benefits,
            left_out,
            collapser,
            refused,
            lines: Vec::new(),
            collapsed: BTreeMap::new(),
            began: now,
        })
    }

    /// Serves every hint. A dry run does not wait for budgets, it only lets their time pass.
    fn serve(&mut self, args: &CollapseArgs, stop: &Stop) -> Result<()> {
        let most = args.most.unwrap_or(u64::MAX);
        let bar = bar(args.dry_run, (self.queue.len() as u64).min(most));
        let mut server = Server::new(MOST_HINTS);
        let mut now = self.began;
        let mut crowded_since = None;
        while !stop.is_set() && self.collapser.counters().all_collapsed() < most {
            if !args.dry_run {
                now = clock::monotonic_ns();
            }
            let until = match server.step(now, &mut self.queue, &mut self.collapser) {
                Step::Did(hint, outcome) => {
                    self.note(hint, outcome);
                    bar.inc(1);
                    crowded_since = None;
                    continue;
                }
                Step::PutOff(..) => continue,
                Step::Idle(None) => break,
                Step::Wait(until, why) => {
                    bar.set_message(format!("waiting: {}", why.text()));
                    until
                }
                Step::Idle(Some(until)) => {
                    let only_crowded = server.put_off_for(&Wait::OF_CGROUPS) == server.put_off();
                    crowded_since = if only_crowded { crowded_since.or(Some(now)) } else { None };
                    if crowded_since.is_some_and(|since| now - since > CGROUP_PATIENCE_NS) {
                        self.give_up(&mut server);
                        break;
                    }
                    until
                }
            };
            if args.dry_run {
                if until.saturating_sub(self.began) > GIVE_UP_NS {
                    bail!("nothing could be collapsed now: {} hints wait", self.queue.len() + server.put_off());
                }
                now = now.max(until);
            } else {
                let wait = Duration::from_nanos(until.saturating_sub(now)).min(Duration::from_millis(100));
                std::thread::sleep(wait);
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Ends the pass for what waits for its memory cgroup: that may take for ever.
    fn give_up(&mut self, server: &mut Server) {
        for (hint, why) in server.give_up() {
            let outcome = self.collapser.give_up(&hint, still_waiting(why));
            self.note(hint, outcome);
        }
    }

    fn note(&mut self, hint: Hint, outcome: Outcome) {
        let text = match outcome {
            Outcome::Collapsed { .. } => {
                self.collapsed.entry(hint.process).or_default().push(hint.block);
                "collapse".to_owned()
            }
            Outcome::Refused(refusal) => format!("leave: {}", refusal.text()),
        };
        self.lines.push(Line {
            pid: hint.process.pid,
            address: format!("{:#x}", hint.block.addr().0),
            level: hint.level.get(),
            benefit_hz: self.benefits.get(&(hint.process, hint.block)).copied().unwrap_or_default(),
            outcome: text,
        });
    }

    /// The share of the heat on huge pages, as it was and as it is with what was collapsed.
    fn shares(&self) -> (Option<f64>, Option<f64>) {
        let share = |with_collapsed: bool| {
            let (mut all, mut huge) = (0.0, 0.0);
            for process in &self.known {
                let done = self.collapsed.get(&process.id);
                for fact in &process.facts {
                    let now_huge = with_collapsed && done.is_some_and(|d| d.contains(&fact.block));
                    all += fact.benefit_hz;
                    huge += if fact.huge || now_huge { fact.benefit_hz } else { 0.0 };
                }
            }
            (all > 0.0).then(|| huge / all)
        };
        (share(false), share(true))
    }

    fn report(
        mut self,
        dry_run: bool,
        source: String,
        measured: Option<(Measured, Measured)>,
        probe: &Probe,
    ) -> Report {
        for blocks in self.collapsed.values_mut() {
            blocks.sort_unstable();
        }
        let (before, after) = self.shares();
        let processes = self.known.iter().map(|k| Row {
            pid: k.id.pid,
            comm: k.comm.clone(),
            blocks: k.facts.len(),
            collapsed: self.collapsed.get(&k.id).map_or(0, |b| b.len() as u64),
            refused: self.refused.get(&k.id).copied(),
        });
        Report {
            dry_run,
            source,
            processes: processes.collect(),
            left_out: self.left_out,
            counters: self.collapser.counters().clone(),
            gain: Gain::between((before, after), measured, probe.misses_note()),
            blocks: self.lines,
        }
    }
}

/// What is said of a block that was still waited for when the pass ended.
fn still_waiting(why: Wait) -> Refusal {
    match why {
        Wait::CgroupPressure => Refusal::CgroupPressure,
        Wait::NoCharge => Refusal::NoCharge,
        _ => Refusal::CgroupLimit,
    }
}

/// A dry run lets this much time pass for budgets, which a real run would have to wait for.
const GIVE_UP_NS: u64 = 24 * 3600 * 1_000_000_000;

fn bar(dry_run: bool, blocks: u64) -> ProgressBar {
    if dry_run {
        return ProgressBar::hidden();
    }
    output::counting(blocks, "collapsing")
}

fn tell(report: &Report, every_block: bool, out: &mut dyn Write) -> Result<()> {
    if every_block {
        for line in &report.blocks {
            writeln!(
                out,
                "{:>8} {:>16} level {:>2} {:>9.0} Hz  {}",
                line.pid, line.address, line.level, line.benefit_hz, line.outcome
            )?;
        }
    }
    for row in &report.processes {
        let why = row.refused.map(|r| format!("; left alone: {}", r.text())).unwrap_or_default();
        let verb = if report.dry_run { "would be collapsed" } else { "collapsed" };
        writeln!(
            out,
            "{} ({}): {} of {} blocks {verb}{why}",
            row.pid,
            human::printable(&row.comm),
            row.collapsed,
            row.blocks
        )?;
    }
    let mut reasons: BTreeMap<Refusal, u64> = report.left_out.clone();
    for (refusal, count) in &report.counters.refused {
        *reasons.entry(*refusal).or_default() += count;
    }
    for (refusal, count) in reasons {
        writeln!(out, "  left as they are: {count:>7}  {}", refusal.text())?;
    }
    let grown = Bytes::of_pages(report.counters.grown_pages);
    if !report.dry_run {
        writeln!(
            out,
            "cost: {} of CPU, targets held up for {} in all, {} at the longest; grown by {grown}",
            human::duration(report.counters.cpu_ns),
            human::duration(report.counters.stall_ns),
            human::duration(report.counters.longest_stall_ns)
        )?;
    }
    gain::tell(&report.gain, out)?;
    Ok(())
}
