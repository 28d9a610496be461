//! A recording in place of a monitor: all of its snapshots, thinned as live ones are, and then nothing more.
//!
//! A recording has no heat of huge pages apart, no swap and no limits, so these are unknown.

use crate::state::{Builder, State};
use anyhow::{Result, bail};
use isotherm_heat::{RunInfo, Snapshot, TargetHeat};
use isotherm_record::Recording;
use isotherm_stream::{HostRow, MappingRow, ProcessRow, RegionRow, Snapshot as Sent};

/// Reads a recording and publishes the view of its end.
pub fn show(recording: &Recording, builder: &mut Builder, state: &State) -> Result<()> {
    let mut last: Option<Sent> = None;
    for snapshot in recording.snapshots() {
        let next = sent(recording.run(), &snapshot?);
        if let Some(mut before) = last.replace(next) {
            builder.keep(&mut before);
        }
    }
    let Some(last) = last else {
        bail!("show {}: it has no snapshots; was it stopped before its first window?", recording.path().display());
    };
    state.publish(builder.view(last));
    Ok(())
}

/// A recorded snapshot as a monitor would have sent it.
fn sent(run: &RunInfo, snapshot: &Snapshot) -> Sent {
    let rows = |target: &TargetHeat| (target.id.pid, target.id.start_ticks);
    let regions = snapshot.targets.iter().flat_map(|target| {
        let (pid, start_ticks) = rows(target);
        target.regions.iter().map(move |region| RegionRow { pid, start_ticks, region: *region })
    });
    let mappings = snapshot.targets.iter().flat_map(|target| {
        let (pid, start_ticks) = rows(target);
        target.mappings.iter().map(move |mapping| MappingRow { pid, start_ticks, mapping: mapping.clone() })
    });
    Sent {
        host: host(run, snapshot),
        processes: snapshot.targets.iter().map(process).collect(),
        regions: regions.collect(),
        mappings: mappings.collect(),
        actions: Vec::new(),
        events: Vec::new(),
    }
}

fn host(run: &RunInfo, snapshot: &Snapshot) -> HostRow {
    let cost = &snapshot.cost;
    HostRow {
        start_unix_ns: snapshot.start_unix_ns,
        end_unix_ns: snapshot.end_unix_ns,
        version: run.version.clone(),
        source: run.source.clone(),
        source_note: run.source_note.clone(),
        kernel: run.kernel.clone(),
        cpu: run.cpu.clone(),
        cpus: run.cpus,
        memory_bytes: run.memory.0,
        elapsed_ns: cost.elapsed_ns,
        monitor_cpu_ns: cost.monitor_cpu_ns,
        slowdown_pct: cost.slowdown_pct,
        max_cpu_pct: run.max_cpu_pct,
        max_slowdown_pct: run.max_slowdown_pct,
        read_errors: cost.read_errors,
        pages_read: cost.pages_read,
        pages_cleared: cost.pages_cleared,
        pages_retouched: cost.pages_retouched,
        samples_lost: cost.samples_lost,
        ..HostRow::default()
    }
}

fn process(target: &TargetHeat) -> ProcessRow {
    ProcessRow {
        pid: target.id.pid,
        start_ticks: target.id.start_ticks,
        comm: target.comm.clone(),
        cgroup: target.cgroup.clone(),
        exited: target.exited,
        sampled: target.regions.iter().any(|region| region.sampled_pages > 0),
        heat: target.temperature.clone(),
        idle: target.idle.clone(),
        counted_elsewhere_pages: target.counted_elsewhere_pages,
        estimated_pages: target.estimated().pages(),
        unclearable_pages: target.unclearable_pages,
        cgroup_memory: target.facts.cgroup_memory,
        ..ProcessRow::default()
    }
}
