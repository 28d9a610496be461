//! `isotherm report`: the same faces over a recording or over what is watched now.

use crate::cli::{
    AccessArgs, ClassArgs, DEFAULT_RECORDING, HeatmapArgs, HistogramArgs, InputArgs, ReportArgs, ReportKind, SortArg,
    Usage, WssArgs,
};
use crate::input::Recorded;
use crate::output;
use crate::watch::{Stop, Watching};
use anyhow::{Context, Result};
use isotherm_heat::{RunInfo, Snapshot, TargetId, Thresholds};
use isotherm_view::TextStyle;
use isotherm_view::heatmap::{self, HeatMap, HtmlOptions, PngOptions, Select};
use isotherm_view::tables::{
    AccessOptions, AccessReport, Caveats, CgroupReport, CostSummary, HistogramOptions, HistogramReport, ProcessReport,
    SortBy, WssOptions, WssReport,
};
use serde::Serialize;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

pub fn run(args: &ReportArgs) -> Result<()> {
    match &args.kind {
        ReportKind::Access(args) => access(args),
        ReportKind::Heatmap(args) => heat_map(args),
        ReportKind::Wss(args) => wss(args),
        ReportKind::Histogram(args) => histogram(args),
        ReportKind::Processes(args) => classes(args, |s, t| Report::Processes(ProcessReport::build(s, t))),
        ReportKind::Cgroups(args) => classes(args, |s, t| Report::Cgroups(CgroupReport::build(s, t))),
    }
}

/// Snapshots and how they came about.
struct Input {
    snapshots: Vec<Snapshot>,
    run: RunInfo,
}

impl Input {
    /// Reads the recording, or watches as long as there is somebody to read what is printed at the end.
    fn get(args: &InputArgs) -> Result<Input> {
        Input::get_for(args, true)
    }

    fn get_for(args: &InputArgs, printed: bool) -> Result<Input> {
        let input =
            if args.is_recorded() { Input::recorded(args.recording.as_deref()) } else { Input::live(args, printed) }?;
        if input.snapshots.iter().all(|s| s.targets.is_empty()) {
            anyhow::bail!("nothing was watched: no process with memory of its own was found");
        }
        Ok(input)
    }

    fn recorded(path: Option<&Path>) -> Result<Input> {
        let default = Path::new(DEFAULT_RECORDING);
        if path.is_none() && !default.exists() {
            let usage = format!(
                "nothing to report: there is no {DEFAULT_RECORDING}/ here; name a recording, or what to watch: -p PID, --cgroup \
                 PATH, --all, or -- COMMAND"
            );
            return Err(Usage(usage).into());
        }
        let Recorded { run, snapshots } = Recorded::read(path.unwrap_or(default))?;
        Ok(Input { snapshots, run })
    }

    fn live(args: &InputArgs, printed: bool) -> Result<Input> {
        let stop = Stop::on_signals()?;
        let stop = if printed { stop.or_when_unread()? } else { stop };
        // Twenty columns for a heat map, and never so short that a snapshot costs more than the looks between two.
        let window = (args.duration / 20).clamp(500_000_000, 5_000_000_000);
        let mut watching = Watching::begin(&args.targets, &args.watch, window)?;
        output::note(&watching.run.source_note);
        let bar = output::progress(Some(args.duration), "watching");
        let mut snapshots = Vec::new();
        // A replay goes on to its end.
        let duration = args.watch.replay.is_none().then_some(args.duration);
        watching.snapshots(duration, &stop, &bar, |snapshot| {
            snapshots.push(snapshot);
            Ok(ControlFlow::Continue(()))
        })?;
        watching.tell_refused();
        Ok(Input { snapshots, run: watching.run })
    }

    /// The last snapshot in which something was alive.
    fn last(&self) -> &Snapshot {
        let alive = |s: &&Snapshot| s.targets.iter().any(|t| !t.exited);
        self.snapshots.iter().rev().find(alive).or(self.snapshots.last()).expect("checked when made")
    }

    fn print(&self, json: bool, report: &Report) -> Result<()> {
        let caveats = Caveats::of(&self.snapshots);
        if json {
            return output::json(&Document { run: &self.run, report, caveats });
        }
        let mut out = output::stdout();
        report.write_text(&mut out, output::text_style(false))?;
        caveats.write_text(&mut out, output::text_style(false))?;
        out.flush()?;
        Ok(())
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    run: &'a RunInfo,
    report: &'a Report,
    /// What the figures do not show.
    caveats: Caveats,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Report {
    Access(AccessReport),
    Wss(WssReport),
    Histogram(HistogramReport),
    Processes(ProcessReport),
    Cgroups(CgroupReport),
}

impl Report {
    fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        match self {
            Report::Access(r) => r.write_text(out, style),
            Report::Wss(r) => r.write_text(out, style),
            Report::Histogram(r) => r.write_text(out, style),
            Report::Processes(r) => r.write_text(out, style),
            Report::Cgroups(r) => r.write_text(out, style),
        }
    }
}

fn access(args: &AccessArgs) -> Result<()> {
    let input = Input::get(&args.input)?;
    let sort = match args.sort {
        SortArg::Address => SortBy::Address,
        SortArg::Heat => SortBy::Heat,
        SortArg::Size => SortBy::Size,
        SortArg::Age => SortBy::Age,
    };
    let options =
        AccessOptions { sort, min_size: args.min_size, max_interval_ns: args.max_interval, ..AccessOptions::default() };
    input.print(args.input.json, &Report::Access(AccessReport::build(input.last(), &options)))
}

fn wss(args: &WssArgs) -> Result<()> {
    let input = Input::get(&args.input)?;
    let options = WssOptions { interval_ns: args.interval, ..WssOptions::default() };
    input.print(args.input.json, &Report::Wss(WssReport::build(&input.snapshots, &options)))
}

fn histogram(args: &HistogramArgs) -> Result<()> {
    let input = Input::get(&args.input)?;
    let options = HistogramOptions { per_target: args.per_process };
    input.print(args.input.json, &Report::Histogram(HistogramReport::build(input.last(), &options)))
}

fn classes(args: &ClassArgs, build: fn(&Snapshot, Thresholds) -> Report) -> Result<()> {
    let bounds = args.thresholds.bounds()?;
    let input = Input::get(&args.input)?;
    input.print(args.input.json, &build(input.last(), bounds))
}

fn heat_map(args: &HeatmapArgs) -> Result<()> {
    let kind = args.output.as_deref().map(picture_kind).transpose()?;
    let input = Input::get_for(&args.input, kind.is_none())?;
    let target = args.only.map(|pid| find_target(&input.snapshots, pid)).transpose()?;
    if args.input.json {
        return output::json(&input.snapshots);
    }
    match (kind, &args.output) {
        (Some(kind), Some(path)) => {
            write_picture(&input.snapshots, target, kind, path)?;
            Caveats::of(&input.snapshots).lines().iter().for_each(output::note);
            Ok(())
        }
        _ => {
            let mut out = output::stdout();
            write_terminal(&input.snapshots, target, args.color, output::height(), &mut out)?;
            let style = output::text_style(args.color.ascii);
            CostSummary::of(&input.last().cost).write_text(&mut out, style)?;
            Caveats::of(&input.snapshots).write_text(&mut out, style)?;
            out.flush()?;
            Ok(())
        }
    }
}

fn find_target(snapshots: &[Snapshot], pid: u32) -> Result<TargetId> {
    let mut ids = snapshots.iter().rev().flat_map(|s| &s.targets).map(|t| t.id);
    ids.find(|id| id.pid == pid).with_context(|| format!("process {pid} was not watched"))
}

/// What a picture file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureKind {
    Png,
    Html,
}

/// By the name of the file.
pub fn picture_kind(path: &Path) -> Result<PictureKind> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("png") => Ok(PictureKind::Png),
        Some("html" | "htm") => Ok(PictureKind::Html),
        _ => Err(Usage(format!("{}: a picture's name has to end in .png or .html", path.display())).into()),
    }
}

/// Writes a heat map to a file.
pub fn write_picture(snapshots: &[Snapshot], target: Option<TargetId>, kind: PictureKind, path: &Path) -> Result<()> {
    let select = Select { target, columns: 160, rows: 90, ..Select::default() };
    output::file(path, |out| match kind {
        PictureKind::Png => heatmap::write_png(&HeatMap::build(snapshots, &select), out, &PngOptions::default()),
        PictureKind::Html => heatmap::write_html(snapshots, out, &HtmlOptions::default()),
    })?;
    output::note(format_args!("wrote {}", path.display()));
    Ok(())
}

/// Draws a heat map in the terminal.
pub fn write_terminal(
    snapshots: &[Snapshot],
    target: Option<TargetId>,
    color: crate::cli::ColorArgs,
    height: usize,
    out: &mut dyn Write,
) -> Result<()> {
    let style = output::terminal_style(color);
    let (columns, rows) = heatmap::terminal_grid(&style, height);
    let map = HeatMap::build(snapshots, &Select { target, columns, rows, ..Select::default() });
    heatmap::write_terminal(&map, out, &style)?;
    Ok(())
}
