//! `isotherm convert`: converts recordings and schemes to and from damo's formats. The kind of the input decides the direction.

mod schemes;

use crate::args::usage::Usage;
use crate::args::values::positive_duration_ns;
use crate::commands::plan::Plan;
use crate::input::{self, Recorded};
use crate::output;
use crate::privileges::Needs;
use crate::sandbox;
use anyhow::Result;
use clap::Args;
use isotherm_heat::Snapshot;
use isotherm_record::damo::{self, ExportOptions, Exported};
use isotherm_record::{Options, Writer};
use isotherm_units::Bytes;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// A recording, which is a directory, or a file of damo (json_compressed, json or perf_script); a file of schemes for damo (json), or of
    /// a command line of damo with `--damos_action`; or settings of `isotherm run` (toml)
    pub input: PathBuf,
    /// What to write: a file for damo from a recording or from settings, a recording or settings from a file of damo
    pub output: PathBuf,
    /// Replace what is already there
    #[arg(long)]
    pub overwrite: bool,
    /// Only this process
    #[arg(long, value_name = "PID")]
    pub only: Option<u32>,
    /// For damo: sampling interval; no region can be reported as accessed more often
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = positive_duration_ns)]
    pub sample: u64,
    /// For damo: aggregation interval, in which one access counts 1. A longer one resolves colder memory, and makes fewer
    /// snapshots [default: the recording's time between snapshots, at least 1s]
    #[arg(long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub aggregation: Option<u64>,
}

impl ConvertArgs {
    /// Returns the arguments if their intervals go together.
    pub fn plan(self) -> Result<ConvertArgs, Usage> {
        if self.aggregation.is_some_and(|aggregation| aggregation < self.sample) {
            return Err(Usage("--aggregation has to be as long as --sample, or longer".into()));
        }
        Ok(self)
    }
}

impl Plan for ConvertArgs {
    fn needs(&self) -> Needs {
        Needs::Files
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(args: &ConvertArgs) -> Result<()> {
    sandbox::files_only(&[&args.input], &[&args.output]);
    if schemes::converted(args)? {
        return Ok(());
    }
    let mut recorded = Recorded::read(&args.input)?;
    if let Some(pid) = args.only {
        recorded.only(pid, &args.input)?;
    }
    if input::is_damo(&args.input) { import(args, &recorded) } else { export(args, &recorded) }
}

fn export(args: &ConvertArgs, recorded: &Recorded) -> Result<()> {
    let options = ExportOptions {
        sample: Duration::from_nanos(args.sample),
        aggregation: args.aggregation.map(Duration::from_nanos),
        overwrite: args.overwrite,
    };
    let done = damo::write(&args.output, &recorded.run, &recorded.snapshots, &options)?;
    tell(args, done.snapshots, done.targets, &lost_for_damo(&done, args));
    Ok(())
}

/// What the file for damo loses.
fn lost_for_damo(done: &Exported, args: &ConvertArgs) -> String {
    let mut lost = vec!["what pages of one region differ in, mappings, huge pages, costs".to_owned()];
    let mut add = |bytes: Bytes, why: String| {
        if bytes.0 > 0 {
            lost.push(format!("up to {bytes} {why}"));
        }
    };
    let sample = Duration::from_nanos(args.sample);
    add(done.unmeasured, "not measured and omitted".into());
    add(
        done.below_one,
        format!("accessed less than every {:?} and reported as idle (see --aggregation)", 2 * done.aggregation),
    );
    add(done.saturated, format!("accessed more than every {sample:?} and reported as every {sample:?}"));
    lost.join("; ")
}

fn import(args: &ConvertArgs, recorded: &Recorded) -> Result<()> {
    let options = Options { overwrite: args.overwrite, ..Options::default() };
    let mut writer = Writer::create(&args.output, &recorded.run, options)?;
    if let Err(error) = recorded.snapshots.iter().try_for_each(|s| writer.push(s)) {
        if let Err(left) = writer.discard() {
            output::warn(left);
        }
        return Err(error.into());
    }
    if let Some(note) = writer.finish()?.note {
        output::note(note);
    }
    let lost = "schemes and their statistics, probe hits; single pages are unknown, and each whole region is taken to be \
                resident unless the file says otherwise";
    tell(args, recorded.snapshots.len(), targets(&recorded.snapshots), lost);
    Ok(())
}

fn targets(snapshots: &[Snapshot]) -> usize {
    let ids = snapshots.iter().flat_map(|s| s.targets.iter().map(|t| t.id));
    ids.collect::<std::collections::BTreeSet<_>>().len()
}

fn tell(args: &ConvertArgs, snapshots: usize, targets: usize, lost: &str) {
    let plural = |n, one, many| if n == 1 { one } else { many };
    output::note(format_args!(
        "{snapshots} snapshot{} of {targets} process{} in {}; lost: {lost}",
        plural(snapshots, "", "s"),
        plural(targets, "", "es"),
        args.output.display()
    ));
}
