//! What every command comes to once its arguments are understood.

use crate::privileges::Needs;
use anyhow::Result;

/// What is to be done, checked as far as that goes with nothing opened. A command with nothing to check is its own plan.
pub trait Plan {
    /// What it takes: the rest is given up before it runs.
    fn needs(&self) -> Needs;

    /// Does it.
    fn run(&self) -> Result<()>;
}
