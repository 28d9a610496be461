//! `isotherm demo-workload`, hidden: memory with a known pattern of accesses, for `demo` and for tests to watch.

use crate::commands::plan::Plan;
use crate::privileges::Needs;
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
        Ok(isotherm_workload::run_json(&self.pattern)?)
    }
}
