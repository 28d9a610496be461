//! The plan of a command, made from its arguments.

use crate::privileges::Needs;
use anyhow::Result;

/// What to do, checked as far as possible without opening anything. The arguments of a command with nothing to check are its plan.
pub trait Plan {
    /// The privileges that it needs. All others are dropped before it runs.
    fn needs(&self) -> Needs;

    /// Runs the command.
    fn run(&self) -> Result<()>;
}
