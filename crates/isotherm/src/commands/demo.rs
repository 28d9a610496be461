//! `isotherm demo`: watches a child with known hot memory like any other process, and compares the result with the truth.
//!
//! The monitor reads nothing from the child that it would not read from any process. The child's pattern is only used for the score. The
//! child runs unwatched for a while before and after. So the printed slow-down is measured, on its CPU time per access, and not estimated.

use crate::args::color::ColorArgs;
use crate::args::source::ClearArg;
use crate::args::source::SourceArg;
use crate::args::usage::Usage;
use crate::args::values::{percent, positive_duration_ns, size};
use crate::commands::plan::Plan;
use crate::output;
use crate::picture::{self, Picture};
use crate::privileges::Needs;
use crate::request;
use crate::sandbox::Uses;
use crate::watch::{Stop, alone, default_max_cpu, run_info};
use anyhow::{Context, Result, bail};
use clap::Args;
use isotherm_heat::{Beside, Cost, Granularity, RunInfo, Score, Snapshot};
use isotherm_host::{HostFacts, HostRoots};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sources::RealClock;
use isotherm_sources::choose;
use isotherm_sys::proc::Proc;
use isotherm_sys::{clock, random};
use isotherm_units::{AddrRange, Bytes};
use isotherm_view::human;
use isotherm_workload::{Child, GoodSince, Layout, Pattern};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A page is called hot if it is accessed at least this often. The workload touches its hot pages every 10 to 100 ms.
const HOT_NS: u64 = 1_000_000_000;
/// How long the child runs unwatched before and after.
const UNWATCHED: Duration = Duration::from_secs(3);
const LARGEST: u64 = 2 << 30;
const SMALLEST: u64 = 16 << 20;

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Memory of the workload [default: 2GiB, or a quarter of what is available]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<Bytes>,
    /// How long to watch
    #[arg(short, long, value_name = "TIME", default_value = "15s", value_parser = positive_duration_ns)]
    pub duration: u64,
    /// Put the workload on huge pages
    #[arg(long)]
    pub huge: bool,
    /// Where access reports come from
    #[arg(long, value_enum, default_value_t)]
    pub source: SourceArg,
    /// Allowed CPU of the monitor, percent of one core; over 100 lifts the limit [default: 1, with `referenced` 5]
    #[arg(long, env = "ISOTHERM_MAX_CPU", hide_env_values = true, value_name = "PERCENT", value_parser = percent)]
    pub max_cpu: Option<f64>,
    /// Print one JSON object instead of text and picture
    #[arg(long)]
    pub json: bool,
    /// Also write the heat map to this file (.png or .html)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub color: ColorArgs,
}

/// A demo with its picture, if one is to be written.
pub struct DemoPlan {
    args: DemoArgs,
    picture: Option<Picture>,
}

impl DemoArgs {
    /// Checks the name of the picture before anything is started.
    pub fn plan(mut self) -> Result<DemoPlan, Usage> {
        let picture = self.output.take().map(Picture::named).transpose()?;
        Ok(DemoPlan { args: self, picture })
    }
}

impl Plan for DemoPlan {
    fn needs(&self) -> Needs {
        Needs::Starting
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    /// `page`: compared page by page. `amount`: by the size of the hot set, for a source that does not report single pages.
    scored_by: &'static str,
    /// The share of the pages reported as hot that are hot.
    precision: f64,
    /// The share of the hot pages that are reported as hot.
    recall: f64,
    /// The error of the reported size of the hot set.
    hot_bytes_error_pct: f64,
    /// Pages about which nothing is known yet.
    unmeasured_pages: u64,
    /// Seconds until precision and recall were 0.95 or better and stayed so. `None` if they were not, or were not compared
    /// page by page.
    good_s: Option<f64>,
    /// The same for 0.99, with nothing unmeasured.
    exact_s: Option<f64>,
    /// CPU of the monitor while watching, percent of one core.
    monitor_cpu_pct: f64,
    /// Measured on the child: CPU time per access while watched, compared with unwatched. Noise can make it negative.
    slowdown_pct: f64,
    /// Estimated from the pages that were accessed again after a clear. The budget limits this figure.
    slowdown_estimated_pct: f64,
    /// The longest time that 1,024 accesses of the child took, watched and unwatched.
    stall_ms: f64,
    stall_unwatched_ms: f64,
    /// The longest time for which the child's memory map was locked.
    longest_hold_ms: f64,
    read_errors: u64,
    source: String,
    source_note: String,
    granularity: Granularity,
    memory_bytes: u64,
    hot_bytes: u64,
    seconds: f64,
}

fn run(DemoPlan { args, picture }: &DemoPlan) -> Result<()> {
    let stop = Stop::on_signals()?;
    let stop = if picture.is_none() { stop.or_on_closed_output()? } else { stop };
    let pattern = pattern(args)?;
    let source = choose::open(request::wanted(args.source))?;
    let settings = Settings {
        max_cpu_pct: args.max_cpu.unwrap_or_else(|| default_max_cpu(&*source)),
        seed: random::seed(),
        ..Settings::default()
    };
    let window_ns = (args.duration / 20).max(500_000_000);
    let run = run_info(&*source, settings, window_ns);
    output::note(format_args!(
        "starting a workload of {} with {} hot, in one span, in spans, and page by page",
        Bytes::of_pages(pattern.pages as u64),
        Bytes::of_pages(pattern.hot_pages as u64)
    ));
    let child = Child::start(child_command()?, &pattern).context("start the workload")?;
    stop.sleep(UNWATCHED);
    output::note(&run.source_note);
    let selection = Selection::Pids { pids: vec![child.pid()], children: false };
    let uses = Uses::of_source(source.describe().name, ClearArg::Auto).ending_a_command();
    let uses = picture.iter().fold(uses, |uses, picture| uses.writing(picture.path()));
    let clock = Beside::<RealClock>::default();
    let follower = Follower::new(&selection, Proc::default())?;
    let mut monitor = alone(Monitor::new(source, follower, clock.clone(), settings));
    uses.enter();
    let mut truth =
        Truth { clock, pattern: &pattern, memory: child.memory(), pid: child.pid(), since: GoodSince::default() };
    let watched = watch(&mut monitor, &mut truth, (args.duration, window_ns), &stop)?;
    let score = truth.score(&monitor, watched.snapshots.last());
    drop(monitor);
    stop.sleep(UNWATCHED);
    if stop.is_set() {
        bail!("stopped before the end");
    }
    let report = report(&score, &watched, &child, &pattern, run);
    if let Some(picture) = picture {
        picture.write(&watched.snapshots, None)?;
    }
    if args.json { output::json(&report) } else { print(&report, &watched.snapshots, args.color) }
}

fn print(report: &Report, snapshots: &[Snapshot], color: ColorArgs) -> Result<()> {
    let mut out = output::stdout();
    picture::draw(snapshots, None, color, &mut out)?;
    write_text(report, &mut out)?;
    out.flush()?;
    Ok(())
}

fn pattern(args: &DemoArgs) -> Result<Pattern> {
    let available = available_memory();
    let bytes = args.size.map_or(LARGEST.min(available / 4), |s| s.0);
    if bytes < SMALLEST {
        bail!("a workload of {} is too small to measure anything: --size 16MiB or more", Bytes(bytes));
    }
    if bytes > available {
        bail!("a workload of {} does not fit: {} of memory are available", Bytes(bytes), Bytes(available));
    }
    let pages = usize::try_from(Bytes(bytes).pages())?;
    Ok(Pattern {
        pages,
        hot_pages: pages / 10,
        layout: Layout::Mixed,
        interval_ns: 0,
        huge: args.huge,
        shared: None,
        faults: false,
        seed: random::seed(),
    })
}

fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.trim().strip_suffix("kB")).and_then(|n| n.trim().parse::<u64>().ok());
    kib.map_or_else(|| HostFacts::read(&HostRoots::default(), 4096).memory.unwrap_or_default().0 / 2, |k| k * 1024)
}

fn child_command() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("find our own program")?);
    command.arg("demo-workload");
    Ok(command)
}

/// The snapshots, the cost and the times of watching.
struct Watched {
    snapshots: Vec<Snapshot>,
    cost: Cost,
    cpu_ns: u64,
    since: GoodSince,
    began: u64,
    ended: u64,
}

fn watch(
    monitor: &mut Monitor<Beside<RealClock>>,
    truth: &mut Truth<'_>,
    (duration_ns, window_ns): (u64, u64),
    stop: &Stop,
) -> Result<Watched> {
    let bar = output::progress(Some(duration_ns), "watching");
    let (began, cpu_began) = (monitor.now(), clock::process_cpu_ns());
    let mut snapshots = Vec::new();
    while monitor.now() < began + duration_ns && !stop.is_set() {
        let until = (monitor.now() + window_ns).min(began + duration_ns);
        monitor.watch(until, &stop.0)?;
        let snapshot = monitor.snapshot(clock::unix_ns());
        truth.compare(monitor, &snapshot, monitor.now() - began);
        snapshots.push(snapshot);
        bar.set_position((monitor.now() - began) / 1_000_000);
        if !monitor.is_watching() {
            bail!("the workload ended before it was asked to");
        }
    }
    bar.finish_and_clear();
    let ended = monitor.now();
    let cpu_ns = (clock::process_cpu_ns() - cpu_began).saturating_sub(truth.clock.beside_ns());
    Ok(Watched { snapshots, cost: monitor.cost(ended), cpu_ns, since: truth.since, began, ended })
}

/// What the workload does, to compare with what was found.
struct Truth<'a> {
    clock: Beside<RealClock>,
    pattern: &'a Pattern,
    memory: AddrRange,
    pid: u32,
    since: GoodSince,
}

impl Truth<'_> {
    fn score(&self, monitor: &Monitor<Beside<RealClock>>, last: Option<&Snapshot>) -> Score {
        match monitor.pages_of(self.pid) {
            Some(pages) => self.pattern.score_pages(self.memory, pages, monitor.now(), HOT_NS),
            None => {
                let target = last.and_then(|snapshot| snapshot.targets.first());
                self.pattern.score_amount(target.map_or(0, |t| t.temperature.within_ns(HOT_NS)))
            }
        }
    }

    /// Compares page by page, if the source shows pages. That is not the monitor's work, and not charged to it.
    fn compare(&mut self, monitor: &Monitor<Beside<RealClock>>, snapshot: &Snapshot, after_ns: u64) {
        if monitor.pages_of(self.pid).is_some() {
            let score = self.clock.beside(|| self.score(monitor, Some(snapshot)));
            self.since.note(after_ns as f64 / 1e9, &score, score.unmeasured_pages == 0);
        }
    }
}

fn report(score: &Score, watched: &Watched, child: &Child, pattern: &Pattern, run: RunInfo) -> Report {
    let cost_of = |from, to| child.cpu_ns_per_access(from, to);
    let before = cost_of(0, watched.began);
    let after = cost_of(watched.ended, u64::MAX);
    let during = cost_of(watched.began, watched.ended).unwrap_or(f64::NAN);
    let unwatched = match (before, after) {
        (Some(a), Some(b)) => f64::midpoint(a, b),
        (a, b) => a.or(b).unwrap_or(f64::NAN),
    };
    let slowest = |from: u64, to: u64| {
        let heard = child.progress();
        let within = heard.iter().filter(|p| from < p.at && p.at <= to).map(|p| p.slowest_ns);
        within.max().unwrap_or(0) as f64 / 1e6
    };
    let seconds = (watched.ended - watched.began) as f64 / 1e9;
    let by_page = child_granularity(watched) == Granularity::Page;
    Report {
        scored_by: if by_page { "page" } else { "amount" },
        precision: score.precision(),
        recall: score.recall(),
        hot_bytes_error_pct: score.size_error_pct(),
        unmeasured_pages: score.unmeasured_pages,
        good_s: watched.since.good_s,
        exact_s: watched.since.exact_s,
        monitor_cpu_pct: watched.cpu_ns as f64 / 1e7 / seconds,
        slowdown_pct: 100.0 * (during / unwatched - 1.0),
        slowdown_estimated_pct: watched.cost.slowdown_pct,
        stall_ms: slowest(watched.began, watched.ended),
        stall_unwatched_ms: slowest(0, watched.began),
        longest_hold_ms: watched.cost.longest_hold_ns as f64 / 1e6,
        read_errors: watched.cost.read_errors,
        source: run.source,
        source_note: run.source_note,
        granularity: child_granularity(watched),
        memory_bytes: child.memory().len().0,
        hot_bytes: Bytes::of_pages(pattern.hot().iter().filter(|h| **h).count() as u64).0,
        seconds,
    }
}

fn child_granularity(watched: &Watched) -> Granularity {
    watched.snapshots.last().and_then(|s| s.targets.first()).map_or(Granularity::Page, |t| t.granularity)
}

fn write_text(r: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    writeln!(
        out,
        "source      {}, {} of {} hot, watched for {:.0} s",
        r.source,
        Bytes(r.hot_bytes),
        Bytes(r.memory_bytes),
        r.seconds
    )?;
    let unknown = if r.unmeasured_pages > 0 {
        format!(", {} not measured yet", Bytes::of_pages(r.unmeasured_pages))
    } else {
        String::new()
    };
    writeln!(
        out,
        "accuracy    precision {:.4}, recall {:.4} by {}, size of the hot set off by {:.1}%{unknown}",
        r.precision, r.recall, r.scored_by, r.hot_bytes_error_pct
    )?;
    match (r.good_s, r.exact_s) {
        (Some(good), Some(exact)) => writeln!(out, "            good after {good:.1} s, exact after {exact:.1} s")?,
        (Some(good), None) => writeln!(out, "            good after {good:.1} s")?,
        _ => {}
    }
    if r.granularity != Granularity::Page {
        writeln!(
            out,
            "            this source reports how much of a mapping or region is hot, not which pages: see `isotherm doctor` for a better one"
        )?;
    }
    writeln!(
        out,
        "cost        monitor {} of a core; workload slowed by {} (estimated {}); longest hold of its memory map {}",
        human::percent(r.monitor_cpu_pct) + "%",
        signed_percent(r.slowdown_pct),
        human::percent(r.slowdown_estimated_pct) + "%",
        milliseconds(r.longest_hold_ms)
    )?;
    writeln!(
        out,
        "            longest 1,024 accesses: {} watched, {} unwatched",
        milliseconds(r.stall_ms),
        milliseconds(r.stall_unwatched_ms)
    )?;
    if r.read_errors > 0 {
        writeln!(out, "warning     {} reads of page tables failed: the result is suspect", r.read_errors)?;
    }
    Ok(())
}

fn milliseconds(ms: f64) -> String {
    format!("{ms:.1} ms")
}

fn signed_percent(percent: f64) -> String {
    format!("{percent:+.1}%")
}
