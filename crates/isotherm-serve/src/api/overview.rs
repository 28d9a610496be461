//! `api/overview`: all processes and cgroups, as of the newest snapshot. The same for all who ask, so it is written once.

use super::{apart, id_text, view};
use crate::app::App;
use crate::groups::Group;
use crate::moment::{Moment, Process};
use crate::reply::{Answer, json_text};
use crate::state::View;
use crate::sums::{MINUTE, Sum, as_f64};
use axum::body::Bytes;
use axum::extract::State;
use isotherm_heat::CgroupMemory;
use serde::Serialize;
use serde_json::{Value, json as object};
use std::sync::Arc;

/// Points of a history.
const POINTS: usize = 60;

pub async fn overview(State(app): State<Arc<App>>) -> Answer {
    let view = view(&app)?;
    if let Some(text) = view.overview.get() {
        return Ok(json_text(text.clone()));
    }
    apart(move || text(&view)).await.map(json_text)
}

/// The text, which the first who asks for it makes. The others wait.
fn text(view: &View) -> Bytes {
    view.overview.get_or_init(|| of(view).to_string().into()).clone()
}

/// A row, with the working set of a minute over what is kept.
#[derive(Debug, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    sum: &'a Sum,
    wss_history: Vec<u64>,
}

fn of(view: &View) -> Value {
    let newest = view.newest();
    let thinned = thin(&view.moments);
    let row = |sum, wss: &dyn Fn(&Moment) -> Option<u64>| Row {
        sum,
        wss_history: thinned.iter().filter_map(|moment| wss(moment)).collect(),
    };
    let processes = newest.processes.iter().map(|process| {
        let wss = |moment: &Moment| moment.process(process.id).map(|process| process.sum.wss[MINUTE]);
        with(&row(&process.sum, &wss), process_fields(process))
    });
    let groups = view.groups.iter().map(|group| {
        let wss = |moment: &Moment| moment.cgroup_wss(&group.path);
        with(&row(&group.sum, &wss), group_fields(group))
    });
    object!({
        "at_ms": newest.at_ms,
        "window_ms": newest.at_ms - newest.start_ms,
        "lost_snapshots": view.lost,
        "mode": if view.is_recording { "recording" } else { "live" },
        "range_ms": [view.moments.first().map_or(0, |moment| moment.start_ms), newest.at_ms],
        "host": host(view),
        "totals": row(&newest.total, &|moment| Some(moment.total.wss[MINUTE])),
        "processes": processes.collect::<Vec<Value>>(),
        "cgroups": groups.collect::<Vec<Value>>(),
        "actions": view.actions.iter().map(|action| object!({
            "action": action.action, "result": action.result, "huge_ranges": action.huge_ranges, "bytes": action.bytes,
        })).collect::<Vec<Value>>(),
        "events": view.events.iter().map(|event| object!({
            "at_ms": event.at_unix_ns / 1_000_000, "text": event.text,
        })).collect::<Vec<Value>>(),
    })
}

/// At most [`POINTS`] moments, evenly spread, with the newest.
fn thin(moments: &[Arc<Moment>]) -> Vec<&Moment> {
    let step = moments.len().div_ceil(POINTS).max(1);
    let mut thinned: Vec<&Moment> = moments.iter().rev().step_by(step).map(|moment| &**moment).collect();
    thinned.reverse();
    thinned
}

fn with(row: &Row<'_>, fields: Value) -> Value {
    let mut value = serde_json::to_value(row).unwrap_or_default();
    if let (Value::Object(row), Value::Object(fields)) = (&mut value, fields) {
        row.extend(fields);
    }
    value
}

fn process_fields(process: &Process) -> Value {
    object!({
        "id": id_text(process.id), "pid": process.id.pid, "comm": *process.comm, "cgroup": *process.cgroup,
        "sampled": process.sampled, "exited": process.exited,
    })
}

fn group_fields(group: &Group) -> Value {
    let memory = group.memory.map(|CgroupMemory { anon, file, slab, swap }| {
        object!({ "anon": anon, "file": file, "slab": slab, "swap": swap, "limit": group.limit })
    });
    object!({
        "path": group.path, "processes": group.processes, "pod_uid": group.names.pod_uid,
        "container_id": group.names.container_id, "unit": group.names.unit, "memory": memory,
    })
}

fn host(view: &View) -> Value {
    let host = &view.host;
    let cpu_share = as_f64(host.monitor_cpu_ns) / as_f64(host.elapsed_ns.max(1));
    object!({
        "name": host.hostname, "kernel": host.kernel, "cpu": host.cpu, "cpus": host.cpus,
        "memory_bytes": host.memory_bytes, "version": host.version, "source": host.source,
        "source_note": host.source_note, "monitor_cpu_pct": 100.0 * cpu_share, "slowdown_pct": host.slowdown_pct,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::render::Extent;
    use crate::state::Builder;
    use isotherm_stream::{ProcessRow, Snapshot};
    use std::sync::Barrier;

    #[test]
    fn many_who_ask_at_once_share_one_text() {
        let extent = Extent { top: 1, processes: false };
        let processes = (1..500).map(|pid| ProcessRow { pid, ..ProcessRow::default() }).collect();
        let snapshot = Snapshot { processes, ..Snapshot::default() };
        let view = Builder::new(1 << 20, extent, false).view(snapshot);
        let barrier = Barrier::new(8);
        let ask = || {
            barrier.wait();
            text(&view)
        };
        let texts: Vec<Bytes> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(texts.iter().all(|text| text.as_ptr() == texts[0].as_ptr() && text.len() > 499));
    }
}
