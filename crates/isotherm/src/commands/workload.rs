//! `isotherm demo-workload`, hidden: memory with a known pattern of accesses, for `demo` and for tests to watch.

use crate::commands::plan::Plan;
use crate::privileges::{Needs, as_user};
use anyhow::Result;
use clap::Args;

#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// The workload as JSON
    pub pattern: String,
}

impl Plan for WorkloadArgs {
    fn needs(&self) -> Needs {
        // It is watched, so its privileges must not differ from those of any other program.
        Needs::Everything
    }

    fn run(&self) -> Result<()> {
        // It maps a file that its pattern may name.
        as_user(|| Ok(isotherm_workload::run_json(&self.pattern)?))
    }
}
