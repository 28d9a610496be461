//! The input of a report: a recording, or what is watched now.

use crate::args::targets::TargetArgs;
use crate::args::values::positive_duration_ns;
use crate::args::watching::WatchArgs;
use crate::privileges::Needs;
use clap::Args;
use std::path::PathBuf;

/// From a recording, or live.
#[derive(Clone, Debug, Args)]
pub struct InputArgs {
    /// Recording to read, or a file of damo [default: heat.isotherm if no target is given]
    #[arg(value_name = "RECORDING", conflicts_with_all = ["pids", "cgroup", "all", "command"])]
    pub recording: Option<PathBuf>,
    /// Watch live for this long
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = positive_duration_ns)]
    pub duration: u64,
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl InputArgs {
    /// Whether a recording is read, and nothing is watched.
    pub fn is_recorded(&self) -> bool {
        self.targets.is_empty() && !self.watch.is_played() && !self.watch.is_of_machine()
    }

    /// The privileges that reading or watching it needs.
    pub fn needs(&self) -> Needs {
        if self.is_recorded() { Needs::Files } else { self.targets.needs() }
    }
}
