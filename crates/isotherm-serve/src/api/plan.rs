//! `api/plan`: what actions would do to memory, as the monitor has planned it. Nothing is done by HTTP.

use super::{apart, id_text, view};
use crate::app::App;
use crate::moment::Process;
use crate::reply::{Answer, json_text};
use crate::state::View;
use axum::extract::State;
use isotherm_heat::Mapping;
use isotherm_stream::PlanRow;
use isotherm_units::{Addr, AddrRange};
use serde_json::{Value, json as object};
use std::cmp::Reverse;
use std::sync::Arc;

/// Rows of an answer. Further ones, which are of the least memory, are left out and counted.
const MAX_ROWS: usize = 2000;

pub async fn plan(State(app): State<Arc<App>>) -> Answer {
    let view = view(&app)?;
    let text = apart(move || of(&view).to_string()).await?;
    let reserved = app.bodies.reserve(text.len())?;
    Ok(json_text(reserved.body(text.into_bytes())))
}

fn of(view: &View) -> Value {
    let newest = view.newest();
    let mut rows: Vec<&PlanRow> = view.plan.iter().collect();
    rows.sort_by_key(|row| Reverse((row.bytes, row.huge_ranges)));
    let left_out = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    let shown = rows.into_iter().filter_map(|row| Some(fields(row, newest.process(row.id())?)));
    object!({
        "at_ms": newest.at_ms,
        "mode": if view.is_recording { "recording" } else { "live" },
        "left_out": left_out,
        "rows": shown.collect::<Vec<Value>>(),
    })
}

fn fields(row: &PlanRow, process: &Process) -> Value {
    let mapping = row.mapping_start_addr.map(|start| {
        let first = AddrRange::new(Addr(start), Addr(start.saturating_add(1)));
        let name = Mapping::first_in(&process.mappings, first).map_or("", |mapping| &mapping.name);
        object!({ "start": format!("{start:x}"), "name": name })
    });
    object!({
        "id": id_text(process.id), "pid": process.id.pid, "comm": *process.comm, "cgroup": *process.cgroup,
        "action": row.action, "mapping": mapping, "huge_ranges": row.huge_ranges, "bytes": row.bytes,
        "why_not": row.why_not,
    })
}
