//! `isotherm split`: finds out how much of the memory behind huge pages is in use, and splits them where little is.
//!
//! A huge page has one accessed bit, so a few of each mapping are split as probes and watched. Where they show that splitting pays, the
//! mapping's other huge pages are split too; elsewhere the probes are collapsed again, and in a dry run all of them are. All of it is in
//! the journal, so `isotherm undo` brings it back.

use crate::args::idle::IdleArgs;
use crate::args::targets::TargetArgs;
use crate::args::usage::Usage;
use crate::args::values::{percent, positive};
use crate::args::watching::WatchArgs;
use crate::commands::plan::Plan;
use crate::journal::journaled;
use crate::left_alone;
use crate::output;
use crate::privileges::Needs;
use crate::rounds::skipped;
use crate::sandbox::Uses;
use crate::serving::{Answer, serve};
use crate::watch::{Prepared, Stop};
use anyhow::{Result, bail};
use clap::Args;
use isotherm_heat::{Clock, Mapping, Rng, Snapshot, TargetId};
use isotherm_monitor::Monitor;
use isotherm_schemes::collapse::{COLLAPSE, Collapse};
use isotherm_schemes::machine::Live;
use isotherm_schemes::page_out::Rules;
use isotherm_schemes::split::probe::{Judged, ShareEstimate, choose};
use isotherm_schemes::split::probes::{Probes, huge_by_mapping};
use isotherm_schemes::split::{self, Split, SplitMachine, Splits};
use isotherm_schemes::{Action, Budgets, Hint, Outcome, Refusal, Worker};
use isotherm_sys::clock;
use isotherm_units::{Bytes, PMD_SIZE, PmdNo};
use isotherm_view::human;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

const SECOND: u64 = 1_000_000_000;
const WINDOW_NS: u64 = SECOND;

#[derive(Debug, Args)]
pub struct SplitArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    #[command(flatten)]
    pub idle: IdleArgs,
    /// Huge pages to split as probes, of each process; at least four of each mapping
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub probes: usize,
    /// Split the others of a mapping if at least this share of those in use is unused, at the lower end of the estimate; idle ones if so
    /// much of them is zeros
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = percent)]
    pub pays_from: f64,
    /// Split probes only, and collapse them again
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Where to note what is done, for `isotherm undo` [default: /run/isotherm/isotherm.journal of root, $XDG_RUNTIME_DIR/isotherm.journal of others]
    #[arg(long, value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Huge pages per second [default: 20]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Budgets")]
    pub per_second: Option<f64>,
}

impl SplitArgs {
    fn budgets(&self) -> Budgets {
        let usual = Budgets::default();
        // Pages that the kernel gave back come back when a probe is collapsed again, so nothing has to be present.
        Budgets { per_second: self.per_second.unwrap_or(usual.per_second), min_present: 0, growth_pct: 1e6, ..usual }
    }
}

impl Plan for SplitArgs {
    fn needs(&self) -> Needs {
        self.targets.needs()
    }

    fn run(&self) -> Result<()> {
        if self.watch.is_played() || self.targets.all {
            let what = "split acts on processes of this machine that are named: give -p PID or --cgroup PATH, without --replay and --model";
            return Err(Usage(what.to_owned()).into());
        }
        if let Some(why) = self.watch.unfit_for_idle() {
            return Err(Usage(why.to_owned()).into());
        }
        let report = split(self, &Stop::on_signals()?)?;
        output::report(self.json, &report, |out| report.write_text(out))?;
        left_alone::check(self.dry_run, report.skipped())
    }
}

type Watched = Monitor<Box<dyn Clock>>;

/// What the probes of a mapping have shown, and what came of it.
#[derive(Clone, Debug, Default, Serialize)]
struct Shown {
    judged: Judged,
    /// Whether splitting others pays: those in use, those that are idle as a whole.
    splits_used: bool,
    splits_idle: bool,
    /// Huge pages that are split in the end, and memory that was given back with them.
    split: u64,
    returned_bytes: Bytes,
}

/// The huge pages of one mapping, and what its probes have shown.
struct Probing {
    comm: String,
    mapping: String,
    process: TargetId,
    probes: Probes,
    shown: Shown,
}

/// What is reported of one mapping.
#[derive(Debug, Serialize)]
struct Row {
    pid: u32,
    comm: String,
    mapping: String,
    huge_bytes: Bytes,
    /// Huge pages that were split as probes, and have shown something.
    probes: usize,
    /// Others that were huge again before they had shown anything: khugepaged collapses this memory.
    remade: usize,
    #[serde(flatten)]
    shown: Shown,
}

#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    idle_ns: u64,
    mappings: Vec<Row>,
    refused_processes: BTreeMap<u32, Refusal>,
    /// Pids of those whose pages are not known one by one.
    sampled_processes: BTreeSet<u32>,
    /// Pids of those of which huge pages may be split, if they have any.
    #[serde(skip)]
    admitted: BTreeSet<u32>,
    /// Huge pages that stayed, by reason.
    stayed: BTreeMap<Refusal, u64>,
    /// Hints that were not served in the end.
    unserved: usize,
}

/// The work, phase by phase.
struct Work<'a> {
    args: &'a SplitArgs,
    worker: Worker<Live>,
    splits: Splits,
    mappings: Vec<Probing>,
    refused_processes: BTreeMap<u32, Refusal>,
    /// Processes whose pages are not known one by one.
    sampled: BTreeSet<u32>,
    admitted: BTreeSet<u32>,
    stayed: BTreeMap<Refusal, u64>,
    unserved: usize,
}

fn split(args: &SplitArgs, stop: &Stop) -> Result<Report> {
    let duration_ns = args.idle.duration_ns()?;
    let machine = journaled(args.journal.as_deref())?;
    let prepared = Prepared::new(&args.targets, &args.watch, WINDOW_NS)?.for_report();
    prepared.need_idle_pages("split")?;
    let mut watching = prepared.start(Uses::nothing().paging_out().collapsing())?;
    let splits = Splits::default();
    let actions: Vec<Box<dyn Action<Live> + Send>> =
        vec![Box::new(Split::noting(splits.clone())), Box::new(Collapse { files: false })];
    let worker = Worker::new(machine, actions, args.budgets(), clock::monotonic_ns());
    let mut work = Work::new(args, worker, splits);
    let began = watching.monitor.now();
    let bar = output::progress(Some(duration_ns), "watching");
    let (mut probed_at, mut others_clear) = (None, BTreeSet::new());
    let watched = watching.windows(None, stop, &bar, |monitor, snapshot| {
        let others = snapshot.targets.iter().filter(|target| target.facts.cleared_by_others_pages > 0);
        others_clear.extend(others.map(|target| target.id));
        let Some(since) = probed_at else {
            let may_come = work.find(monitor, &snapshot);
            if work.mappings.is_empty() {
                // A program that was just started has no huge pages yet.
                let waits = may_come && monitor.now().saturating_sub(began) < duration_ns;
                return Ok(if waits { ControlFlow::Continue(()) } else { ControlFlow::Break(()) });
            }
            work.probe(monitor, stop);
            probed_at = Some(monitor.now());
            return Ok(ControlFlow::Continue(()));
        };
        if monitor.now().saturating_sub(since) < duration_ns {
            return Ok(ControlFlow::Continue(()));
        }
        work.judge(monitor, &others_clear);
        Ok(ControlFlow::Break(()))
    });
    watching.report_refused();
    if work.has_met_nobody() && watched.is_ok() && !args.dry_run && !stop.is_set() && !watching.refused().is_empty() {
        bail!("nothing was done: none of the processes can be watched");
    }
    if stop.is_set() && watched.is_ok() && work.mappings.is_empty() {
        bail!("stopped before anything was done");
    }
    if work.mappings.is_empty() && work.refused_processes.is_empty() && work.sampled.is_empty() {
        output::note("there is nothing to split: no process has private memory on huge pages");
    }
    work.finish(stop);
    watched?;
    Ok(work.report())
}

impl<'a> Work<'a> {
    fn new(args: &'a SplitArgs, worker: Worker<Live>, splits: Splits) -> Work<'a> {
        Work {
            args,
            worker,
            splits,
            mappings: Vec::new(),
            refused_processes: BTreeMap::new(),
            sampled: BTreeSet::new(),
            admitted: BTreeSet::new(),
            stayed: BTreeMap::new(),
            unserved: 0,
        }
    }

    fn has_met_nobody(&self) -> bool {
        self.admitted.is_empty() && self.refused_processes.is_empty() && self.sampled.is_empty()
    }
}

impl Work<'_> {
    /// Finds the huge pages of each mapping, and draws probes. Returns whether there may be some later, if there are none.
    fn find(&mut self, monitor: &Watched, snapshot: &Snapshot) -> bool {
        let mut may_come = false;
        for target in snapshot.alive() {
            let id = target.id;
            let (Some(pages), Some(mappings)) = (monitor.pages_of(id.pid), monitor.mappings_of(id.pid)) else {
                if self.sampled.insert(id.pid) {
                    output::note(format_args!(
                        "process {} is sampled, so its pages are not known one by one (--mode whole)",
                        id.pid
                    ));
                }
                continue;
            };
            if let Err(refusal) = self.worker.admit(id, clock::monotonic_ns()) {
                self.refused_processes.insert(id.pid, refusal);
                continue;
            }
            self.refused_processes.remove(&id.pid);
            self.sampled.remove(&id.pid);
            self.admitted.insert(id.pid);
            may_come = true;
            let huge = huge_by_mapping(pages, mappings, monitor.now());
            // Which ones does not matter, as long as nothing depends on it.
            let mut rng = Rng::new(clock::monotonic_ns());
            let mut drawn = choose(&huge, self.args.probes, &mut rng);
            for (start, huge) in huge {
                let name = Mapping::first_in(mappings, huge[0].range()).map(|m| m.name.clone()).unwrap_or_default();
                self.mappings.push(Probing {
                    comm: target.comm.clone(),
                    mapping: if name.is_empty() { format!("[anon {:x}]", start.0) } else { name },
                    process: id,
                    probes: Probes::new(huge, drawn.remove(&start).unwrap_or_default()),
                    shown: Shown::default(),
                });
            }
        }
        may_come
    }

    /// Splits the probes.
    fn probe(&mut self, monitor: &mut Watched, stop: &Stop) {
        let drawn = self.mappings.iter().flat_map(|row| row.probes.drawn().iter().map(|pmd| (row.process, *pmd)));
        let hints = drawn.map(|(process, pmd)| split::hint(process, pmd, 0)).collect();
        for answer in self.serve(hints, "splitting probes", stop) {
            if let Some(row) = self.row_of(answer.hint.process, answer.hint.pmd) {
                row.probes.split(answer.hint.pmd);
            }
        }
        for (process, pmd, pages) in self.splits.take() {
            if let Some(row) = self.row_of(process, pmd) {
                row.probes.gave_back(pmd, pages);
            }
        }
        for row in &self.mappings {
            // They are checked before all others once they are known to be small.
            let probes: Vec<PmdNo> = row.probes.split_ones().collect();
            monitor.read_now(row.process.pid, &probes);
        }
    }

    /// Serves hints. Returns those that were done, and counts the others.
    fn serve(&mut self, hints: Vec<Hint>, doing: &'static str, stop: &Stop) -> Vec<Answer> {
        let served = serve(&mut self.worker, hints, doing, stop);
        self.unserved += served.unserved;
        let (done, refused): (Vec<Answer>, Vec<Answer>) =
            served.answers.into_iter().partition(|answer| matches!(answer.outcome, Outcome::Done { .. }));
        for answer in refused {
            if let Outcome::Refused(refusal) = answer.outcome {
                *self.stayed.entry(refusal).or_default() += 1;
            }
        }
        done
    }

    fn row_of(&mut self, process: TargetId, pmd: PmdNo) -> Option<&mut Probing> {
        self.mappings.iter_mut().find(|row| row.process == process && row.probes.has(pmd))
    }

    /// What the probes have shown. Nothing, where something else has cleared the accessed bits.
    fn judge(&mut self, monitor: &mut Watched, others_clear: &BTreeSet<TargetId>) {
        let rules = Rules { min_idle_ns: self.args.idle.idle };
        for row in &mut self.mappings {
            if others_clear.contains(&row.process) {
                self.refused_processes.insert(row.process.pid, Refusal::ClearedByOthers);
                row.probes.distrust();
                continue;
            }
            // The last background read may be a minute old.
            monitor.read_now(row.process.pid, row.probes.huge());
            let Some(pages) = monitor.pages_of(row.process.pid) else { continue };
            let machine = self.worker.machine();
            let given_back: BTreeMap<PmdNo, u16> =
                row.probes.split_ones().map(|pmd| (pmd, machine.given_back(row.process, pmd))).collect();
            row.probes.read(rules, pages, monitor.now(), |pmd| given_back.get(&pmd).copied().unwrap_or(0));
            row.probes.judge(self.args.pays_from / 100.0);
        }
    }

    /// Splits the others where that pays, and collapses the probes again where it does not.
    fn finish(&mut self, stop: &Stop) {
        let dry_run = self.args.dry_run;
        let to_split: Vec<Hint> = match dry_run {
            true => Vec::new(),
            false => self.mappings.iter().flat_map(Probing::others_to_split).collect(),
        };
        self.serve(to_split, "splitting", stop);
        for (process, pmd, returned) in self.splits.take() {
            if let Some(row) = self.row_of(process, pmd) {
                row.shown.split += 1;
                row.shown.returned_bytes.0 += Bytes::of_pages(returned.into()).0;
            }
        }
        let again: Vec<Hint> = self.mappings.iter().flat_map(|row| row.probes_to_collapse(dry_run)).collect();
        let wanted = again.len();
        // Also when it was interrupted: it leaves memory as it has found it.
        let collapsed = self.serve(again, "collapsing the probes again", &Stop::never()).len();
        if collapsed < wanted {
            let left = wanted - collapsed;
            output::note(format_args!(
                "{left} of {wanted} probes could not be collapsed again: `isotherm undo` tries it once more"
            ));
        }
        for row in &mut self.mappings {
            let (count, returned) = if dry_run { (0, 0) } else { row.probes.staying() };
            row.shown.split += count;
            row.shown.returned_bytes.0 += Bytes::of_pages(returned).0;
        }
    }

    fn report(self) -> Report {
        Report {
            dry_run: self.args.dry_run,
            idle_ns: self.args.idle.idle,
            mappings: self.mappings.into_iter().map(Probing::row).collect(),
            refused_processes: self.refused_processes,
            sampled_processes: self.sampled,
            admitted: self.admitted,
            stayed: self.stayed,
            unserved: self.unserved,
        }
    }
}

impl Probing {
    fn row(self) -> Row {
        let (splits_used, splits_idle) = self.probes.pays();
        Row {
            pid: self.process.pid,
            huge_bytes: Bytes(self.probes.huge().len() as u64 * PMD_SIZE),
            probes: self.probes.known().len(),
            remade: self.probes.remade().len(),
            comm: self.comm,
            mapping: self.mapping,
            shown: Shown { judged: self.probes.judged(), splits_used, splits_idle, ..self.shown },
        }
    }

    fn others_to_split(&self) -> impl Iterator<Item = Hint> + '_ {
        self.probes.others_to_split().map(|pmd| split::hint(self.process, pmd, 0))
    }

    fn probes_to_collapse(&self, all: bool) -> impl Iterator<Item = Hint> + '_ {
        let hint = |pmd| Hint { action: COLLAPSE, ..split::hint(self.process, pmd, 0) };
        self.probes.to_collapse(all).map(hint)
    }
}

impl Report {
    /// One entry for each process, with the reason if it was skipped.
    fn skipped(&self) -> impl Iterator<Item = Option<&'static str>> + '_ {
        let refused = self.refused_processes.keys();
        let all: BTreeSet<u32> = refused.chain(&self.sampled_processes).chain(&self.admitted).copied().collect();
        all.into_iter().map(|pid| skipped(self.refused_processes.get(&pid).copied(), !self.admitted.contains(&pid)))
    }

    fn write_text(&self, out: &mut dyn Write) -> Result<()> {
        for (pid, refusal) in &self.refused_processes {
            writeln!(out, "{pid}: skipped: {}", refusal.text())?;
        }
        for row in &self.mappings {
            let Row { pid, huge_bytes, probes, shown: Shown { judged, split, returned_bytes, .. }, .. } = row;
            let share = |of: ShareEstimate| format!("{:.0}% +- {:.0}%", of.mean * 100.0, of.half_interval * 100.0);
            writeln!(
                out,
                "{pid} ({}) {}: {huge_bytes} on huge pages, {} of it unused for {}, by {probes} probes",
                human::printable(&row.comm),
                human::printable(&row.mapping),
                share(judged.unused),
                human::duration(self.idle_ns),
            )?;
            writeln!(
                out,
                "  {} are idle as a whole; of those in use {} is unused, of the idle ones {} holds nothing but zeros",
                Bytes(judged.idle as u64 * PMD_SIZE),
                share(judged.unused_of_used),
                share(judged.zeros_of_idle),
            )?;
            if row.remade > 0 {
                writeln!(out, "  {} more were huge again soon: khugepaged collapses this memory", row.remade)?;
            }
            let pays = match (row.shown.splits_used, row.shown.splits_idle) {
                (true, true) => "all of them",
                (true, false) => "those in use",
                (false, true) => "the idle ones",
                (false, false) => "none of them",
            };
            if row.probes == 0 {
                writeln!(out, "  no probe was watched for long enough, and nothing stays split")?;
            } else if self.dry_run {
                writeln!(out, "  splitting pays for {pays}")?;
            } else {
                writeln!(out, "  splitting pays for {pays}: {split} huge pages split, {returned_bytes} given back")?;
            }
        }
        for (refusal, count) in &self.stayed {
            writeln!(out, "  stayed: {count:>7} huge ranges  {}", refusal.text())?;
        }
        if self.unserved > 0 {
            writeln!(out, "  {} huge ranges were not tried: something held them up", self.unserved)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_huge_pages_was_not_skipped() {
        let report = |refused: &[u32], sampled: &[u32], admitted: &[u32]| Report {
            dry_run: false,
            idle_ns: 0,
            mappings: Vec::new(),
            refused_processes: refused.iter().map(|pid| (*pid, Refusal::Disabled)).collect(),
            sampled_processes: sampled.iter().copied().collect(),
            admitted: admitted.iter().copied().collect(),
            stayed: BTreeMap::new(),
            unserved: 0,
        };
        let all_skipped = |report: Report| report.skipped().all(|why| why.is_some());
        assert!(!all_skipped(report(&[1], &[2], &[3])), "what was admitted has no huge pages");
        assert!(all_skipped(report(&[1], &[2], &[])));
        assert!(all_skipped(report(&[1], &[], &[1])), "something else clears its accessed bits");
    }
}
