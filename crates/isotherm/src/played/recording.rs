//! A recording, played back.

use super::source::Played;
use crate::args::targets::TargetArgs;
use crate::input::{self, Recorded};
use anyhow::{Context, Result};
use isotherm_heat::VirtualClock;
use isotherm_sources::replay::Replay;
use std::path::Path;

/// Plays back all processes of the recording at `path`, or those named.
pub fn open(targets: &TargetArgs, path: &Path) -> Result<Played> {
    let Recorded { snapshots, .. } = Recorded::read(path)?;
    input::check_playable(path, &snapshots)?;
    let begin = snapshots.first().with_context(|| format!("{}: nothing is recorded in it", path.display()))?;
    let clock = VirtualClock::default();
    let source = Box::new(Replay::of_recording(clock.clone(), &snapshots));
    let all = || source.targets().map(|(id, _)| id.pid).collect();
    let pids = if targets.pids.is_empty() { all() } else { targets.pids.clone() };
    Ok(Played { source, clock: Box::new(clock), pids, begin_unix_ns: begin.start_unix_ns })
}
