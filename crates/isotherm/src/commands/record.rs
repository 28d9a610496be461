//! `isotherm record`: writes snapshots into a directory until it is stopped.

use crate::args::targets::TargetArgs;
use crate::args::values::positive_duration_ns;
use crate::args::watching::WatchArgs;
use crate::commands::plan::Plan;
use crate::input::DEFAULT_RECORDING;
use crate::output;
use crate::privileges::Needs;
use crate::privileges::as_user;
use crate::sandbox::Uses;
use crate::watch::{Prepared, Stop};
use anyhow::Result;
use clap::Args;
use isotherm_heat::Cost;
use isotherm_record::{Options, Summary, Writer, is_recording};
use isotherm_view::tables::CostSummary;
use std::ops::ControlFlow;
use std::path::PathBuf;

const WINDOW_NS: u64 = 2_000_000_000;

#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Directory to record into
    #[arg(short, long, value_name = "DIR", default_value = DEFAULT_RECORDING)]
    pub output: PathBuf,
    /// Replace a recording that is already there
    #[arg(long)]
    pub overwrite: bool,
    /// Stop after this time [default: until Ctrl-C, or the targets end]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub duration: Option<u64>,
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
}

impl Plan for RecordArgs {
    fn needs(&self) -> Needs {
        self.targets.needs()
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(args: &RecordArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let prepared = Prepared::new(&args.targets, &args.watch, WINDOW_NS)?;
    let (run, options) = (prepared.run.clone(), Options { overwrite: args.overwrite, ..Options::default() });
    let create = || as_user(|| Ok(Writer::create(&args.output, &run, options)?));
    // A recording that is there is replaced by the first snapshot, and not by a mistyped pid.
    let replaces = args.overwrite && is_recording(&args.output);
    // Before it is made: what is made here stays a part of the folder around it, and can be removed again.
    let uses = Uses::nothing().writing(&args.output);
    let mut writer = if replaces { None } else { Some(create()?) };
    let mut watching = match prepared.start(uses) {
        Ok(watching) => watching,
        Err(error) => {
            discard(writer);
            return Err(error);
        }
    };
    output::note(format_args!("{}; into {}/", watching.run.source_note, args.output.display()));
    let bar = output::progress(args.duration, "recording");
    let mut count = 0;
    let mut cost = None;
    let watched = watching.snapshots(args.duration, &stop, &bar, |snapshot| {
        let writer = match &mut writer {
            Some(writer) => writer,
            None => writer.insert(create()?),
        };
        let regions: usize = snapshot.targets.iter().map(|t| t.regions.len()).sum();
        bar.set_message(format!(
            "snapshot {}, {} processes, {regions} regions; Ctrl-C ends",
            count + 1,
            snapshot.targets.len()
        ));
        cost = Some(snapshot.cost);
        as_user(|| Ok(writer.push(&snapshot)?))?;
        count += 1;
        Ok(ControlFlow::Continue(()))
    });
    bar.finish_and_clear();
    if count == 0 && watched.is_err() {
        discard(writer);
        return watched;
    }
    watching.report_refused();
    // The recording is completed even if watching failed.
    let summary = writer.map(|writer| as_user(|| Ok(writer.finish()?))).transpose();
    watched?;
    if let Some(summary) = summary? {
        report(summary, cost);
    }
    Ok(())
}

/// Nothing was recorded, and an empty recording would only block the next attempt. What stays of it must not hide why.
fn discard(writer: Option<Writer>) {
    if let Some(Err(error)) = writer.map(Writer::discard) {
        output::warn(error);
    }
}

/// Prints what was recorded, and what it has cost, if that is not reported elsewhere.
pub fn report(summary: Summary, cost: Option<Cost>) {
    let plural = if summary.snapshots == 1 { "" } else { "s" };
    output::note(format_args!(
        "{} snapshot{plural}, {} in {}/",
        summary.snapshots,
        isotherm_units::Bytes(summary.bytes),
        summary.path.display()
    ));
    if let Some(note) = summary.note {
        output::note(note);
    }
    if let Some(cost) = cost {
        let cost = CostSummary::of(&cost);
        output::note(cost.line());
        if let Some(warning) = cost.warning() {
            output::note(warning);
        }
    }
}
