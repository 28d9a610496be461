//! Which processes: named, of a cgroup, all, or a command to start.

use crate::privileges::Needs;
use clap::Args;
use std::ffi::OsString;

/// Which processes.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Targets")]
pub struct TargetArgs {
    /// Process to watch; may be given several times or as a list
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// Watch the processes of this cgroup and those below it: a path below /sys/fs/cgroup, or as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH", conflicts_with_all = ["pids", "all"])]
    pub cgroup: Option<String>,
    /// Watch all processes
    #[arg(short, long, conflicts_with = "pids")]
    pub all: bool,
    /// Do not follow children of the named processes
    #[arg(long)]
    pub no_children: bool,
    /// Command to start and watch. It is ended when watching ends; beside a report, what it prints goes to standard error
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "all", "cgroup"])]
    pub command: Vec<OsString>,
}

impl TargetArgs {
    /// Whether nothing was named.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.cgroup.is_none() && !self.all && self.command.is_empty()
    }

    /// What it takes to watch them.
    pub fn needs(&self) -> Needs {
        if self.command.is_empty() { Needs::Watching } else { Needs::Starting }
    }
}
