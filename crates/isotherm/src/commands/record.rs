//! `isotherm record`: snapshots into a directory until told to stop.

use crate::cli::RecordArgs;
use crate::output;
use crate::watch::{Stop, Watching};
use anyhow::Result;
use isotherm_record::{Options, Writer};
use isotherm_view::tables::CostSummary;
use std::ops::ControlFlow;

const WINDOW_NS: u64 = 2_000_000_000;

pub fn run(args: &RecordArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let mut watching = Watching::begin(&args.targets, &args.watch, WINDOW_NS)?;
    let options = Options { overwrite: args.overwrite, ..Options::default() };
    let mut writer = Writer::create(&args.output, &watching.run, options)?;
    eprintln!("isotherm: {}; into {}/", watching.run.source_note, args.output.display());
    let bar = output::progress(args.duration, "recording");
    let mut count = 0;
    let mut cost = None;
    let watched = watching.snapshots(args.duration, &stop, &bar, |snapshot| {
        let regions: usize = snapshot.targets.iter().map(|t| t.regions.len()).sum();
        count += 1;
        bar.set_message(format!(
            "{count} snapshots, {} processes, {regions} regions; Ctrl-C ends",
            snapshot.targets.len()
        ));
        cost = Some(snapshot.cost);
        writer.push(&snapshot)?;
        Ok(ControlFlow::Continue(()))
    });
    bar.finish_and_clear();
    watching.tell_refused();
    // What is recorded is kept whole, also if watching failed.
    let summary = writer.finish();
    watched?;
    let summary = summary?;
    eprintln!(
        "isotherm: {} snapshots, {} in {}/",
        summary.snapshots,
        isotherm_units::Bytes(summary.bytes),
        summary.path.display()
    );
    if let Some(note) = summary.note {
        eprintln!("isotherm: {note}");
    }
    if let Some(cost) = cost {
        let cost = CostSummary::of(&cost);
        eprintln!("isotherm: {}", cost.line());
        if let Some(warning) = cost.warning() {
            eprintln!("isotherm: {warning}");
        }
    }
    Ok(())
}
