//! Records what `isotherm run` sees and does (`--record`), as `isotherm record` does, with what was done to each process beside its heat.
//!
//! A recording that can be written no longer is no reason to stop the work: the daemon says so, once, and goes on. Its snapshots have the
//! times of the clock, which may be set back; those of the recording are in order.

use super::args::RunArgs;
use crate::commands::record;
use crate::output;
use crate::privileges::as_user;
use crate::wall_time::WallTime;
use crate::watch::warn_set_back;
use anyhow::{Context, Result};
use isotherm_heat::{RunInfo, Snapshot};
use isotherm_record::{Options, Writer};

/// Records, if the user has asked for it.
#[derive(Debug)]
pub struct Recorder(Option<Recording>);

#[derive(Debug)]
struct Recording {
    writer: Writer,
    in_order: WallTime,
}

impl Recording {
    /// Adds a snapshot. It may have been taken a while ago, so its own time since the start counts, and not a clock that is read now.
    fn push(&mut self, snapshot: &mut Snapshot) -> Result<(), isotherm_record::Error> {
        let (end, set_back) = self.in_order.at(snapshot.end_unix_ns, snapshot.cost.elapsed_ns);
        if let Some(by_ns) = set_back {
            warn_set_back(by_ns);
        }
        let shown = (snapshot.start_unix_ns, snapshot.end_unix_ns);
        let ahead = end - snapshot.end_unix_ns;
        (snapshot.start_unix_ns, snapshot.end_unix_ns) = (snapshot.start_unix_ns.saturating_add(ahead), end);
        let written = self.writer.push(snapshot);
        (snapshot.start_unix_ns, snapshot.end_unix_ns) = shown;
        written
    }
}

impl Recorder {
    /// Begins a recording, or none.
    pub fn begin(args: &RunArgs, run: &RunInfo) -> Result<Recorder> {
        let options = Options { overwrite: args.overwrite, ..Options::default() };
        let create = |dir| as_user(|| Writer::create(dir, run, options).context("record what is done"));
        let writer = args.record.as_ref().map(create).transpose()?;
        Ok(Recorder(writer.map(|writer| Recording { writer, in_order: WallTime::default() })))
    }

    /// Whether there is anything to do.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a snapshot.
    pub fn push(&mut self, snapshot: &mut Snapshot) {
        let pushed = self.0.as_mut().map(|recording| as_user(|| Ok(recording.push(snapshot)?)));
        if let Some(Err(error)) = pushed {
            output::warn(format_args!("nothing is recorded from now on: {error:#}"));
            self.0 = None;
        }
    }

    /// Completes it.
    pub fn finish(self) -> Result<()> {
        let Some(recording) = self.0 else { return Ok(()) };
        let summary = as_user(|| recording.writer.finish().context("complete the recording"))?;
        record::report(summary, None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Cost;
    use isotherm_record::Recording as Read;

    const S: u64 = 1_000_000_000;

    /// A window of a second that ends then, so long after the start.
    fn window(end_s: u64, elapsed_s: u64) -> Snapshot {
        let cost = Cost { elapsed_ns: elapsed_s * S, ..Cost::default() };
        Snapshot { start_unix_ns: (end_s - 1) * S, end_unix_ns: end_s * S, targets: vec![], cost }
    }

    #[test]
    fn a_recording_goes_on_in_order_where_the_clock_is_set_back_and_what_is_published_follows_the_clock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let writer = Writer::create(&path, &RunInfo::default(), Options::default()).unwrap();
        let mut recording = Recording { writer, in_order: WallTime::default() };
        // A minute back after the second one.
        for (elapsed_s, shown_s) in [(1, 1000), (2, 1001), (3, 942), (4, 943)] {
            let mut snapshot = window(shown_s, elapsed_s);
            recording.push(&mut snapshot).unwrap();
            assert_eq!(snapshot, window(shown_s, elapsed_s));
        }
        recording.writer.finish().unwrap();
        let read = Read::open(&path).unwrap();
        let times: Vec<_> = read.snapshots().map(|s| s.map(|s| (s.start_unix_ns, s.end_unix_ns)).unwrap()).collect();
        assert_eq!(times, [1000, 1001, 1002, 1003].map(|end_s| ((end_s - 1) * S, end_s * S)));
    }
}
