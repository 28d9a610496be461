//! Where the heat of pages comes from: watching for a while, or a recording.

use super::args::PlacementArgs;
use crate::input::Recorded;
use crate::output;
use crate::sandbox::Uses;
use crate::watch::{Stop, Watching};
use anyhow::{Result, bail};
use isotherm_heat::Snapshot;
use isotherm_placement::heat::{PageRates, Process, last_alive};
use isotherm_placement::read::fill_in_names;
use isotherm_sys::proc::Proc;
use isotherm_view::human;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

const WINDOW_NS: u64 = 2_000_000_000;

/// Watches for a while. Returns the processes, a description of how they were watched, and the `Watching`. A command that was started
/// lives as long as the latter.
pub fn watched(args: &PlacementArgs, ns: u64, stop: &Stop) -> Result<(Vec<Process>, String, Watching)> {
    let mut watching = Watching::begin(&args.targets, &args.watch, WINDOW_NS, Uses::frames())?;
    output::note(&watching.run.source_note);
    let bar = output::progress(Some(ns), "watching");
    let mut known: BTreeMap<u32, Process> = BTreeMap::new();
    watching.windows(Some(ns), stop, &bar, |monitor, snapshot| {
        known.clear();
        for target in snapshot.alive() {
            let rates = match monitor.pages_of(target.id.pid) {
                Some(pages) => PageRates::of_pages(pages, monitor.now()),
                None => PageRates::of_regions(&target.regions),
            };
            let named = args.targets.pids.contains(&target.id.pid);
            known.insert(target.id.pid, Process::watched(target, rates, named));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    watching.report_refused();
    if stop.is_set() {
        bail!("stopped before frames were read");
    }
    if known.is_empty() {
        bail!("nothing was watched to the end: no process with memory of its own is left");
    }
    let weighted_by = format!("watched for {}, {}", human::duration(ns), watching.run.source);
    Ok((known.into_values().collect(), weighted_by, watching))
}

/// Reads the last snapshot of a recording in which a process was alive, and returns its processes and a description of it. The processes
/// must still be running.
pub fn recorded(path: &Path, pids: &[u32]) -> Result<(Vec<Process>, String)> {
    let has_one = |snapshot: &Snapshot| snapshot.alive().any(|t| pids.is_empty() || pids.contains(&t.id.pid));
    let recorded = Recorded::read_last(path, has_one, |_| {})?;
    let Some((mut processes, end_unix_ns)) = last_alive(&recorded.snapshots, pids) else {
        bail!("{}: none of the processes named is in it", path.display());
    };
    fill_in_names(&mut processes, &Proc::default());
    Ok((processes, format!("{}, snapshot of {} UTC", path.display(), human::utc(end_unix_ns))))
}
