//! The input of a report: a recording, or what is watched now.

use crate::args::targets::TargetArgs;
use crate::args::usage::Usage;
use crate::args::values::positive_duration_ns;
use crate::args::watching::WatchArgs;
use crate::privileges::Needs;
use clap::Args;
use std::path::PathBuf;

const DURATION_NS: u64 = 10_000_000_000;

/// From a recording, or live.
#[derive(Clone, Debug, Args)]
pub struct InputArgs {
    /// Recording to read, or a file of damo [default: heat.isotherm if no target is given]
    #[arg(value_name = "RECORDING", conflicts_with_all = ["pids", "cgroup", "all", "command"])]
    pub recording: Option<PathBuf>,
    /// Watch live for this long [default: 10s]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub duration: Option<u64>,
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

    /// For how long to watch live.
    pub fn duration_ns(&self) -> u64 {
        self.duration.unwrap_or(DURATION_NS)
    }

    /// Fails if a duration is given and nothing to watch: a recording would be read, of another time than its user thinks of.
    pub fn check(&self) -> Result<(), Usage> {
        if self.is_recorded() && self.duration.is_some() {
            let text = "--duration is for watching live, and a recording would be read here: name what to watch (-p PID, --cgroup PATH, --all, or -- COMMAND), or leave it out";
            return Err(Usage(text.to_owned()));
        }
        Ok(())
    }

    /// The privileges that reading or watching it needs.
    pub fn needs(&self) -> Needs {
        if self.is_recorded() { Needs::Files } else { self.targets.needs() }
    }
}
