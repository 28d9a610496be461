//! Records what `isotherm run` sees and does (`--record`), as `isotherm record` does, with what was done to each process beside its heat.
//!
//! A recording that can be written no longer is no reason to stop the work: the daemon says so, once, and goes on.

use super::args::RunArgs;
use crate::commands::record;
use crate::output;
use anyhow::{Context, Result};
use isotherm_heat::{RunInfo, Snapshot};
use isotherm_record::{Options, Writer};

/// Records, if the user has asked for it.
#[derive(Debug)]
pub struct Recorder(Option<Writer>);

impl Recorder {
    /// Begins a recording, or none.
    pub fn begin(args: &RunArgs, run: &RunInfo) -> Result<Recorder> {
        let options = Options { overwrite: args.overwrite, ..Options::default() };
        let create = |dir| Writer::create(dir, run, options).context("record what is done");
        Ok(Recorder(args.record.as_ref().map(create).transpose()?))
    }

    /// Whether there is anything to do.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a snapshot.
    pub fn push(&mut self, snapshot: &Snapshot) {
        if let Some(Err(error)) = self.0.as_mut().map(|writer| writer.push(snapshot)) {
            output::warn(format_args!("nothing is recorded from now on: {error}"));
            self.0 = None;
        }
    }

    /// Completes it.
    pub fn finish(self) -> Result<()> {
        let Some(writer) = self.0 else { return Ok(()) };
        record::report(writer.finish().context("complete the recording")?, None);
        Ok(())
    }
}
