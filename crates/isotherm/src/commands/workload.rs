//! `isotherm demo-workload`, hidden: memory with a known pattern of accesses, for `demo` and for tests to watch.

use crate::commands::plan::Plan;
use crate::privileges::Needs;
use anyhow::{Context, Result};
use clap::Args;
use isotherm_workload::{Index, Pattern};

#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// The pattern as JSON
    pub pattern: String,
}

impl Plan for WorkloadArgs {
    fn needs(&self) -> Needs {
        // It is watched, so its privileges must not differ from those of any other program.
        Needs::Everything
    }

    fn run(&self) -> Result<()> {
        if let Ok(index) = serde_json::from_str::<Index>(&self.pattern) {
            return Ok(index.run()?);
        }
        let pattern: Pattern = serde_json::from_str(&self.pattern).context("the pattern is no JSON of a pattern")?;
        Ok(isotherm_workload::run(&pattern)?)
    }
}
