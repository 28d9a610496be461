//! `isotherm demo`: watches a child with known hot memory like any other process, and compares the result with the truth.
//!
//! The monitor reads nothing from the child that it would not read from any process. What the child does is only used for the
//! score ([`Truth`]): it is known beforehand ([`known`]), or counted by the child ([`busy`]). The child runs unwatched for a
//! while before and after. So the printed slow-down is measured, on its CPU time per access, and not estimated.

mod busy;
mod known;
mod report;

use crate::args::color::ColorArgs;
use crate::args::source::ClearArg;
use crate::args::source::SourceArg;
use crate::args::usage::Usage;
use crate::args::values::{percent, positive_duration_ns, size};
use crate::args::watching::MAX_CPU;
use crate::commands::plan::Plan;
use crate::output;
use crate::picture::{self, Picture};
use crate::privileges::Needs;
use crate::request;
use crate::sandbox::Uses;
use crate::service::own_program;
use crate::watch::{Stop, alone, default_max_cpu, run_info};
use anyhow::{Context, Result, bail};
use busy::Busy;
use clap::Args;
use isotherm_heat::{Beside, Cost, Ns, Score, Snapshot, Target};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sources::RealClock;
use isotherm_sources::choose;
use isotherm_sys::proc::Proc;
use isotherm_sys::{clock, free, random};
use isotherm_units::Bytes;
use isotherm_view::heatmap::Scale;
use isotherm_workload::{Child, GoodSince, unknown_pages};
use known::Known;
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A page is called hot if it is accessed at least this often. The plain workload touches its hot pages every 10 to 100 ms.
const HOT_NS: u64 = 1_000_000_000;
/// The usual size of a workload, and at most of one of `--busy`.
const USUAL: u64 = 2 << 30;
const SMALLEST: u64 = 16 << 20;

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Memory of the workload [default: 2GiB, with --busy 256MiB for each CPU up to that; at most a quarter of what is available]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<Bytes>,
    /// How long to watch
    #[arg(short, long, value_name = "TIME", default_value = "15s", value_parser = positive_duration_ns)]
    pub duration: u64,
    /// How long the workload runs unwatched before and after, for the figure by which watching slows it down
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = positive_duration_ns, hide = true)]
    pub unwatched: u64,
    /// Put the workload on huge pages
    #[arg(long)]
    pub huge: bool,
    /// Keep every CPU busy: a key-value store whose hot memory has no sharp edge and moves; it counts its accesses by page
    #[arg(long, conflicts_with = "huge")]
    pub busy: bool,
    /// Where access reports come from
    #[arg(long, value_enum, default_value_t)]
    pub source: SourceArg,
    /// Allowed CPU of the monitor, percent of one core; over 100 lifts the limit [default: 1, with `referenced` 5]
    #[arg(long, env = MAX_CPU, hide_env_values = true, value_name = "PERCENT", value_parser = percent)]
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

/// A workload that runs, and what it does, to compare with what was found.
trait Truth {
    fn child(&self) -> &Child;

    /// Called when the child has started, and before each comparison.
    fn note(&mut self, _now: Ns) {}

    /// Compares what is reported at this moment.
    fn found(&self, seen: &Seen<'_>) -> Found;

    /// How many threads keep CPUs busy, if that is what the workload is for.
    fn threads(&self) -> Option<usize>;
}

/// What a monitor reports at some moment.
struct Seen<'a> {
    now: Ns,
    /// `None` if the source does not report single pages.
    pages: Option<&'a Target>,
    /// Pages accessed within [`HOT_NS`], wherever they are.
    hot_amount: u64,
}

/// What is reported, compared with the truth.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Of the pages that count.
    score: Score,
    /// Of all pages.
    size_error_pct: f64,
    reported_hot_pages: u64,
    hot_pages: u64,
    /// Pages that do not count in `score`, because they are accessed about as often as the threshold.
    near_pages: Option<u64>,
    unmeasured_pages: u64,
}

fn run(DemoPlan { args, picture }: &DemoPlan) -> Result<()> {
    picture.as_ref().map_or(Ok(()), |picture| output::can_write(picture.path()))?;
    let stop = Stop::on_signals()?;
    let stop = if picture.is_none() { stop.or_on_closed_output()? } else { stop };
    let source = choose::open(request::wanted(args.source))?;
    let settings = Settings {
        max_cpu_pct: args.max_cpu.unwrap_or_else(|| default_max_cpu(&*source)),
        seed: random::seed(),
        ..Settings::default()
    };
    let window_ns = (args.duration / 20).max(500_000_000);
    let run = run_info(&*source, settings, window_ns);
    let mut truth = start(args, &stop)?;
    truth.note(clock::monotonic_ns());
    stop.sleep(Duration::from_nanos(args.unwatched));
    output::note(&run.source_note);
    let selection = Selection::Pids { pids: vec![truth.child().pid()], children: false };
    let uses = Uses::of_source(source.describe().name, ClearArg::Auto).ending_a_command();
    let uses = picture.iter().fold(uses, |uses, picture| uses.writing(picture.path()));
    let clock = Beside::<RealClock>::default();
    let follower = Follower::new(&selection, Proc::default())?;
    let mut monitor = alone(Monitor::new(source, follower, clock.clone(), settings));
    uses.enter();
    let mut comparing = Comparing { clock, truth: &mut *truth, since: GoodSince::default() };
    let watched = watch(&mut monitor, &mut comparing, (args.duration, window_ns), &stop)?;
    monitor.news().iter().for_each(output::note);
    drop(monitor);
    stop.sleep(Duration::from_nanos(args.unwatched));
    if stop.is_set() {
        return Err(stopped());
    }
    let report = report::report(&*truth, &watched, run);
    // Before a reader of the report may have gone; and the report is printed where the disk is full.
    let pictured = picture.as_ref().map_or(Ok(()), |picture| picture.write(&watched.snapshots, None, Scale::default()));
    if args.json {
        output::json(&report)?;
    } else {
        let mut out = output::stdout();
        picture::draw(&watched.snapshots, None, (args.color, Scale::default()), &mut out)?;
        report::write_text(&report, &mut out)?;
        out.flush()?;
    }
    pictured
}

fn stopped() -> anyhow::Error {
    anyhow::anyhow!("stopped before the end")
}

fn start(args: &DemoArgs, stop: &Stop) -> Result<Box<dyn Truth>> {
    let started: Result<Box<dyn Truth>> = if args.busy {
        Busy::start(args).map(|b| Box::new(b) as _)
    } else {
        Known::start(args).map(|k| Box::new(k) as _)
    };
    // Ctrl-C ends the child as well, which is no failure of the child.
    if stop.is_set() { Err(stopped()) } else { started }
}

fn start_child<T>(pages: usize, start: impl FnOnce(Command) -> io::Result<T>) -> Result<T> {
    start(child_command()?).with_context(|| {
        let size = Bytes::of_pages(pages as u64);
        format!("start a workload of {size}; if it was killed, memory has run out: choose a smaller --size")
    })
}

/// Bytes for a workload: as given, or up to `usual`. `overhead` is what it uses besides, for each byte.
fn size_of_workload(args: &DemoArgs, usual: u64, overhead: f64) -> Result<u64> {
    let available =
        free::available(Path::new("/proc")).context("read /proc/meminfo: no MemAvailable in it")?.available.0;
    let bytes = args.size.map_or(usual.min(available / 4), |s| s.0);
    if bytes < SMALLEST {
        bail!("a workload of {} is too small to measure anything: --size 16MiB or more", Bytes(bytes));
    }
    if bytes as f64 * (1.0 + overhead) > available as f64 {
        bail!(
            "a workload of {} does not fit: {} of memory are available. Choose a smaller --size, or end other programs",
            Bytes(bytes),
            Bytes(available)
        );
    }
    Ok(bytes)
}

fn child_command() -> Result<Command> {
    let mut command = Command::new(own_program()?);
    command.arg("demo-workload");
    Ok(command)
}

/// The snapshots, the cost and the times of watching, and what was found in the end.
struct Watched {
    snapshots: Vec<Snapshot>,
    found: Found,
    cost: Cost,
    cpu_ns: u64,
    since: GoodSince,
    began: u64,
    ended: u64,
}

fn watch(
    monitor: &mut Monitor<Beside<RealClock>>,
    comparing: &mut Comparing<'_>,
    (duration_ns, window_ns): (u64, u64),
    stop: &Stop,
) -> Result<Watched> {
    let bar = output::progress(Some(duration_ns), "watching");
    let (began, cpu_began) = (monitor.now(), clock::process_cpu_ns());
    let (mut snapshots, mut found) = (Vec::new(), None);
    while monitor.now() < began + duration_ns {
        let until = (monitor.now() + window_ns).min(began + duration_ns);
        monitor.watch(until, &stop.0)?;
        if stop.is_set() {
            return Err(stopped());
        }
        let snapshot = monitor.snapshot(clock::unix_ns());
        found = Some(comparing.compare(monitor, &snapshot, monitor.now() - began));
        snapshots.push(snapshot);
        bar.set_position((monitor.now() - began) / 1_000_000);
        if !monitor.is_watching() {
            bail!("the workload ended before it was asked to");
        }
    }
    bar.finish_and_clear();
    let ended = monitor.now();
    let cpu_ns = (clock::process_cpu_ns() - cpu_began).saturating_sub(comparing.clock.beside_ns());
    let (cost, since) = (monitor.cost(ended), comparing.since);
    let found = found.context("watch for some time: --duration is too short")?;
    Ok(Watched { snapshots, found, cost, cpu_ns, since, began, ended })
}

/// Compares snapshot by snapshot. That is not the monitor's work, and not charged to it.
struct Comparing<'a> {
    clock: Beside<RealClock>,
    truth: &'a mut dyn Truth,
    since: GoodSince,
}

impl Comparing<'_> {
    fn compare(&mut self, monitor: &Monitor<Beside<RealClock>>, snapshot: &Snapshot, after_ns: u64) -> Found {
        let Comparing { clock, truth, since } = self;
        clock.beside(|| {
            let (now, pages) = (monitor.now(), monitor.pages_of(truth.child().pid()));
            truth.note(now);
            let hot_amount = snapshot.targets.first().map_or(0, |t| t.temperature.within_ns(HOT_NS));
            let found = truth.found(&Seen { now, pages, hot_amount });
            if let Some(pages) = pages {
                let is_complete = unknown_pages(pages, truth.child().memory(), now) == 0;
                since.note(after_ns as f64 / 1e9, &found.score, is_complete);
            }
            found
        })
    }
}
