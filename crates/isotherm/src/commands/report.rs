//! `isotherm report`: tables and pictures of a recording, or of what is watched now.
//!
//! Arguments become options of `isotherm_view` ([`Shown`]) before anything is read. [`input`] provides the snapshots.

mod input;

use crate::args::color::ColorArgs;
use crate::args::input::InputArgs;
use crate::args::thresholds::ThresholdArgs;
use crate::args::usage::Usage;
use crate::args::values::{percent, positive_duration_ns, size};
use crate::commands::plan::Plan;
use crate::output;
use crate::picture::{self, Picture};
use crate::privileges::Needs;
use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use input::{Input, Takes};
use isotherm_heat::{RunInfo, Snapshot, TargetId, Thresholds};
use isotherm_units::Bytes;
use isotherm_view::TextStyle;
use isotherm_view::heatmap::Scale;
use isotherm_view::tables::{
    AccessOptions, AccessReport, Caveats, CgroupReport, ColdBy, ColdReport, CostSummary, HistogramOptions,
    HistogramReport, ProcessReport, RefaultOptions, RefaultReport, SortBy, WssOptions, WssReport,
};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(subcommand)]
    pub kind: ReportKind,
}

/// Which report.
#[derive(Debug, Subcommand)]
pub enum ReportKind {
    /// Regions: size, access interval and rate, age, mapping
    Access(AccessArgs),
    /// Time by address as a picture: terminal, PNG or HTML
    Heatmap(HeatmapArgs),
    /// Working set size: percentiles, and over time
    Wss(WssArgs),
    /// Memory by temperature and by idle time
    Histogram(HistogramArgs),
    /// Hot, warm, cold and idle bytes of each process
    Processes(ClassArgs),
    /// Hot, warm, cold and idle bytes of each cgroup
    Cgroups(ClassArgs),
    /// Memory that is idle for 10 s, 1 min, 10 min, 1 h
    Cold(ColdArgs),
    /// What would come back if idle memory left, for each age at which it could
    Refaults(RefaultArgs),
}

#[derive(Debug, Args)]
pub struct AccessArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Order of regions
    #[arg(long, value_enum, default_value_t)]
    pub sort: SortArg,
    /// Skip smaller regions
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size)]
    pub min_size: Bytes,
    /// Skip regions accessed less often than this
    #[arg(long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub max_interval: Option<u64>,
    /// Only so many of each process: those with most accesses, by rate and size. Live, they are taken from all regions, and not from
    /// those that --max-regions leaves
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub hottest: Option<u32>,
}

/// Order of regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortArg {
    /// By address
    #[default]
    Address,
    /// Hottest first
    Heat,
    /// Largest first
    Size,
    /// Longest unchanged first
    Age,
}

#[derive(Debug, Args)]
pub struct HeatmapArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Write to this file instead: .png or .html, by its name
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Which process, if several were watched [default: the one with most resident memory; HTML has the 32 largest, JSON all]
    #[arg(long, value_name = "PID")]
    pub only: Option<u32>,
    /// What the colours and digits show; an HTML page can switch
    #[arg(long, value_enum, default_value_t)]
    pub show: ShowArg,
    #[command(flatten)]
    pub color: ColorArgs,
}

/// What a heat map shows of each cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ShowArg {
    /// Which share of it is hot: accessed at least once a second
    #[default]
    Share,
    /// Its mean access interval
    Interval,
    /// For how long it has been idle at least: mean time since an access was found
    Idle,
}

#[derive(Debug, Args)]
pub struct WssArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Count pages accessed at least this often
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration_ns)]
    pub interval: u64,
}

#[derive(Debug, Args)]
pub struct HistogramArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// One histogram for each process
    #[arg(long)]
    pub per_process: bool,
}

#[derive(Debug, Args)]
pub struct ClassArgs {
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub thresholds: ThresholdArgs,
}

#[derive(Debug, Args)]
pub struct ColdArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// What a row stands for
    #[arg(long, value_enum, default_value_t)]
    pub by: ColdByArg,
}

/// What a row of cold memory stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColdByArg {
    /// A process
    #[default]
    Process,
    /// A cgroup with those below it
    Cgroup,
    /// A mapping of a process
    Mapping,
}

#[derive(Debug, Args)]
pub struct RefaultArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Refaults a minute that are acceptable, in percent of the working set
    #[arg(long, value_name = "PERCENT", default_value = "0.2", value_parser = percent)]
    pub max_refaults: f64,
}

/// A report to make: of what, and which.
pub struct ReportPlan {
    input: InputArgs,
    shown: Shown,
}

/// The kind of report, with its options.
enum Shown {
    Access(AccessOptions),
    Heatmap(HeatmapPlan),
    Wss(WssOptions),
    Histogram(HistogramOptions),
    Processes(Thresholds),
    Cgroups(Thresholds),
    Cold(ColdBy),
    Refaults(RefaultOptions),
}

impl Shown {
    fn takes(&self) -> Takes {
        match self {
            Shown::Heatmap(_) | Shown::Wss(_) | Shown::Refaults(_) => Takes::All,
            Shown::Access(options) if options.hottest.is_some() => Takes::LastWithAllRegions,
            Shown::Access(_) | Shown::Histogram(_) | Shown::Processes(_) | Shown::Cgroups(_) | Shown::Cold(_) => {
                Takes::Last
            }
        }
    }
}

/// A heat map, in the terminal or as a picture.
struct HeatmapPlan {
    picture: Option<Picture>,
    only: Option<u32>,
    scale: Scale,
    color: ColorArgs,
}

impl ReportArgs {
    /// Turns the arguments into a plan. Fails if thresholds are out of order, or if the name of a picture does not show its kind.
    pub fn plan(self) -> Result<ReportPlan, Usage> {
        let (input, shown) = match self.kind {
            ReportKind::Access(args) => args.plan(),
            ReportKind::Heatmap(args) => args.plan()?,
            ReportKind::Wss(args) => {
                (args.input, Shown::Wss(WssOptions { interval_ns: args.interval, ..WssOptions::default() }))
            }
            ReportKind::Histogram(args) => {
                (args.input, Shown::Histogram(HistogramOptions { per_target: args.per_process }))
            }
            ReportKind::Processes(args) => (args.input, Shown::Processes(args.thresholds.bounds()?)),
            ReportKind::Cgroups(args) => (args.input, Shown::Cgroups(args.thresholds.bounds()?)),
            ReportKind::Cold(args) => (args.input.of_idle_memory(), Shown::Cold(args.by.into())),
            ReportKind::Refaults(args) => {
                (args.input.of_idle_memory(), Shown::Refaults(RefaultOptions { max_pct: args.max_refaults }))
            }
        };
        input.check()?;
        Ok(ReportPlan { input, shown })
    }
}

impl From<ColdByArg> for ColdBy {
    fn from(by: ColdByArg) -> ColdBy {
        match by {
            ColdByArg::Process => ColdBy::Process,
            ColdByArg::Cgroup => ColdBy::Cgroup,
            ColdByArg::Mapping => ColdBy::Mapping,
        }
    }
}

impl AccessArgs {
    fn plan(self) -> (InputArgs, Shown) {
        let sort = match self.sort {
            SortArg::Address => SortBy::Address,
            SortArg::Heat => SortBy::Heat,
            SortArg::Size => SortBy::Size,
            SortArg::Age => SortBy::Age,
        };
        let options = AccessOptions {
            sort,
            min_size: self.min_size,
            max_interval_ns: self.max_interval,
            hottest: self.hottest.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            ..AccessOptions::default()
        };
        (self.input, Shown::Access(options))
    }
}

impl HeatmapArgs {
    fn plan(self) -> Result<(InputArgs, Shown), Usage> {
        let picture = self.output.map(Picture::named).transpose()?;
        let scale = match self.show {
            ShowArg::Share => Scale::Share,
            ShowArg::Interval => Scale::Interval,
            ShowArg::Idle => Scale::Idle,
        };
        Ok((self.input, Shown::Heatmap(HeatmapPlan { picture, only: self.only, scale, color: self.color })))
    }
}

impl Plan for ReportPlan {
    fn needs(&self) -> Needs {
        self.input.needs()
    }

    fn run(&self) -> Result<()> {
        let file = match &self.shown {
            Shown::Heatmap(plan) => plan.picture.as_ref().map(Picture::path),
            _ => None,
        };
        let input = Input::get(&self.input, file, self.shown.takes())?;
        let report = match &self.shown {
            Shown::Access(options) => Report::Access(AccessReport::build(input.last(), options)),
            Shown::Heatmap(plan) => return heat_map(plan, &input, self.input.json),
            Shown::Wss(options) => Report::Wss(WssReport::build(&input.snapshots, options)),
            Shown::Histogram(options) => Report::Histogram(HistogramReport::build(input.last(), options)),
            Shown::Processes(bounds) => Report::Processes(ProcessReport::build(input.last(), *bounds)),
            Shown::Cgroups(bounds) => Report::Cgroups(CgroupReport::build(input.last(), *bounds)),
            Shown::Cold(by) => Report::Cold(ColdReport::build(input.last(), *by)),
            Shown::Refaults(options) => Report::Refaults(RefaultReport::build(&input.snapshots, *options)),
        };
        print(&input, &report, self.input.json)
    }
}

fn print(input: &Input, report: &Report, json: bool) -> Result<()> {
    let caveats = &input.caveats;
    if json {
        return output::json(&Document { run: &input.run, report, caveats });
    }
    let mut out = output::stdout();
    report.write_text(&mut out, output::text_style(false))?;
    caveats.write_text(&mut out, output::text_style(false))?;
    input.write_source(&mut out, output::text_style(false))?;
    out.flush()?;
    Ok(())
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    run: &'a RunInfo,
    report: &'a Report,
    /// What the figures do not show.
    caveats: &'a Caveats,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Report {
    Access(AccessReport),
    Wss(WssReport),
    Histogram(HistogramReport),
    Processes(ProcessReport),
    Cgroups(CgroupReport),
    Cold(ColdReport),
    Refaults(RefaultReport),
}

impl Report {
    fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        match self {
            Report::Access(r) => r.write_text(out, style),
            Report::Wss(r) => r.write_text(out, style),
            Report::Histogram(r) => r.write_text(out, style),
            Report::Processes(r) => r.write_text(out, style),
            Report::Cgroups(r) => r.write_text(out, style),
            Report::Cold(r) => r.write_text(out, style),
            Report::Refaults(r) => r.write_text(out, style),
        }
    }
}

fn heat_map(plan: &HeatmapPlan, input: &Input, json: bool) -> Result<()> {
    let target = plan.only.map(|pid| find_target(&input.snapshots, pid)).transpose()?;
    if json {
        return match target {
            Some(only) => output::json(&of_target(&input.snapshots, only)),
            None => output::json(&input.snapshots),
        };
    }
    let caveats = &input.caveats;
    if let Some(picture) = &plan.picture {
        picture.write(&input.snapshots, target, plan.scale)?;
        caveats.lines().iter().chain(input.source_line().as_ref()).for_each(output::note);
        return Ok(());
    }
    let mut out = output::stdout();
    picture::draw(&input.snapshots, target, (plan.color, plan.scale), &mut out)?;
    let style = output::text_style(plan.color.ascii);
    CostSummary::of(&input.last().cost).write_text(&mut out, style)?;
    caveats.write_text(&mut out, style)?;
    input.write_source(&mut out, style)?;
    out.flush()?;
    Ok(())
}

/// The snapshots with this target alone.
fn of_target(snapshots: &[Snapshot], only: TargetId) -> Vec<Snapshot> {
    let alone = |snapshot: &Snapshot| Snapshot {
        start_unix_ns: snapshot.start_unix_ns,
        end_unix_ns: snapshot.end_unix_ns,
        targets: snapshot.targets.iter().filter(|target| target.id == only).cloned().collect(),
        cost: snapshot.cost,
    };
    snapshots.iter().map(alone).collect()
}

fn find_target(snapshots: &[Snapshot], pid: u32) -> Result<TargetId> {
    let mut ids = snapshots.iter().rev().flat_map(|s| &s.targets).map(|t| t.id);
    ids.find(|id| id.pid == pid).with_context(|| format!("process {pid} was not watched"))
}
