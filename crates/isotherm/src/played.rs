//! What is watched instead of the machine: a recording being played back, or a modelled host. Both on clocks that jump.

use crate::cli::{TargetArgs, Usage, WatchArgs};
use crate::input::{self, Recorded};
use anyhow::{Context, Result};
use isotherm_sim::{Host, ModelClock, ModelSource};
use isotherm_sources::replay::Replay;
use isotherm_sources::{AccessSource, Clock, VirtualClock};
use isotherm_sys::clock;
use isotherm_units::Bytes;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The modelled host that comes with us.
const TWO_TIB: &str = "2tib";
/// The longest description of a host that is read.
const LONGEST_HOST: Bytes = Bytes(1 << 20);

/// A source with a clock of its own.
pub struct Played {
    pub source: Box<dyn AccessSource>,
    pub clock: Box<dyn Clock>,
    /// The processes to watch.
    pub pids: Vec<u32>,
    /// What the wall clock is taken to show when it begins.
    pub begin_unix_ns: u64,
}

impl Played {
    /// What was asked for; `None` if that is the machine.
    pub fn open(targets: &TargetArgs, args: &WatchArgs) -> Result<Option<Played>> {
        match (&args.replay, &args.model) {
            (Some(path), _) => recording(targets, path).map(Some),
            (None, Some(path)) => model(targets, path).map(Some),
            (None, None) => Ok(None),
        }
    }
}

fn recording(targets: &TargetArgs, path: &Path) -> Result<Played> {
    let Recorded { snapshots, .. } = Recorded::read(path)?;
    input::check_playable(path, &snapshots)?;
    let begin = snapshots.first().with_context(|| format!("{}: nothing is recorded in it", path.display()))?;
    let clock = VirtualClock::default();
    let source = Box::new(Replay::of_recording(clock.clone(), &snapshots));
    let all = || source.targets().map(|(id, _)| id.pid).collect();
    let pids = if targets.pids.is_empty() { all() } else { targets.pids.clone() };
    Ok(Played { source, clock: Box::new(clock), pids, begin_unix_ns: begin.start_unix_ns })
}

fn model(targets: &TargetArgs, path: &Path) -> Result<Played> {
    let host = if path.as_os_str() == TWO_TIB {
        Host::two_tib()
    } else {
        let file = File::open(path).with_context(|| format!("read {}", path.display()))?;
        let text = input::short_text(file, path, LONGEST_HOST)?;
        let host = Host::from_toml_within(&text, input::max_memory()?);
        host.with_context(|| format!("{}: not the description of a host", path.display()))?
    };
    let pids = processes(&host, targets)?;
    let clock = ModelClock::default();
    let source = Box::new(ModelSource::new(Arc::new(host), clock.clone()));
    Ok(Played { source, clock: Box::new(clock), pids, begin_unix_ns: clock::unix_ns() })
}

/// Those that were named, those of a cgroup, or all.
fn processes(host: &Host, targets: &TargetArgs) -> Result<Vec<u32>> {
    if !targets.pids.is_empty() {
        return Ok(targets.pids.clone());
    }
    let cgroup = targets.cgroup.as_deref().unwrap_or("/");
    let pids: Vec<u32> = host.processes().iter().filter(|p| p.is_within(cgroup)).map(|p| p.pid).collect();
    if pids.is_empty() {
        return Err(Usage(format!("no process of the modelled host is in the cgroup {cgroup}")).into());
    }
    Ok(pids)
}
