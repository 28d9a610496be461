//! One process: what is known of it, its heat map, and a region of it.

use super::{apart, id_text, no_process, parameters, parse_id, view};
use crate::app::App;
use crate::history::moment_at;
use crate::layout::Layout;
use crate::moment::{Moment, Piece, Process};
use crate::reply::{Answer, Problem, json_text};
use crate::state::View;
use crate::tile::{MAX_SIDE, Show, Tile};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use isotherm_heat::{Mapping, TargetId};
use isotherm_units::{Addr, AddrRange};
use serde::Deserialize;
use serde_json::{Value, json as object};
use std::sync::Arc;

/// Points of the lines over time.
const POINTS: usize = 600;
const PAGE: u64 = isotherm_units::PAGE_SIZE;

/// When.
#[derive(Debug, Deserialize)]
pub struct At {
    at: Option<u64>,
}

pub async fn process(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    query: Result<Query<At>, QueryRejection>,
) -> Answer {
    let (id, At { at }) = (parse_id(&id)?, parameters(query)?);
    let view = view(&app)?;
    let text = apart(move || detail(&view, id, at).map(|value| value.to_string())).await??;
    let reserved = app.bodies.reserve(text.len())?;
    Ok(json_text(reserved.body(text.into_bytes())))
}

fn detail(view: &View, id: TargetId, at: Option<u64>) -> Result<Value, Problem> {
    let layout = layout(view, id)?;
    let with_it: Vec<(&Moment, &Process)> =
        view.moments.iter().filter_map(|moment| Some((&**moment, &**moment.process(id)?))).collect();
    let (first, last) = with_it.first().zip(with_it.last()).ok_or_else(|| no_process(id))?;
    let at = at.unwrap_or(u64::MAX);
    let shown = with_it.iter().find(|(moment, _)| moment.at_ms > at).unwrap_or(last).1;
    let is_in_newest = view.moments.last().is_none_or(|newest| newest.at_ms == last.0.at_ms);
    Ok(object!({
        "id": id_text(id),
        "pid": id.pid,
        "comm": *shown.comm,
        "cgroup": *shown.cgroup,
        "range_ms": [first.0.start_ms, last.0.at_ms],
        "ended": last.1.exited || !is_in_newest,
        "layout": layout.name,
        "spans": layout.spans.iter().map(|span| range(*span)).collect::<Vec<Value>>(),
        "mappings": shown.mappings.iter().map(mapping).collect::<Vec<Value>>(),
        "temperature": octaves(&shown.temperature, "interval_ms"),
        "idle": octaves(&shown.idle, "idle_ms"),
        "history": history(&with_it),
    }))
}

fn layout(view: &View, id: TargetId) -> Result<&Layout, Problem> {
    view.layouts.get(&id).map(|layout| &**layout).ok_or_else(|| no_process(id))
}

fn range(range: AddrRange) -> Value {
    object!({ "start": hex(range.start), "end": hex(range.end) })
}

fn hex(addr: Addr) -> String {
    format!("{:x}", addr.0)
}

fn mapping(mapping: &Mapping) -> Value {
    object!({
        "start": hex(mapping.range.start), "end": hex(mapping.range.end), "name": mapping.name,
        "perms": mapping.perms.to_string(),
    })
}

/// Bytes by octave, and of unknown heat, whose time is null.
fn octaves((octaves, unknown): &(Vec<(u8, u64)>, u64), name: &str) -> Vec<Value> {
    let known =
        octaves.iter().map(|(octave, pages)| object!({ name: f64::from(*octave).exp2(), "bytes": pages * PAGE }));
    known.chain([object!({ name: null, "bytes": unknown * PAGE })]).collect()
}

fn history(of: &[(&Moment, &Process)]) -> Vec<Value> {
    let step = of.len().div_ceil(POINTS).max(1);
    let point = |(moment, process): &(&Moment, &Process)| {
        let [s10, m1, m10, h1] = process.sum.wss;
        object!({
            "at_ms": moment.at_ms, "wss_10s": s10, "wss_1m": m1, "wss_10m": m10, "wss_1h": h1,
            "resident": process.sum.resident(),
        })
    };
    let mut points: Vec<Value> = of.iter().rev().step_by(step).map(point).collect();
    points.reverse();
    points
}

/// Which tile.
#[derive(Debug, Deserialize)]
pub struct TileQuery {
    layout: String,
    from: u64,
    to: u64,
    lo: u64,
    hi: u64,
    w: usize,
    h: usize,
    show: Show,
}

impl TileQuery {
    fn tile(&self) -> Result<Tile, Problem> {
        let is_side = |side| (1..=MAX_SIDE).contains(&side);
        // Times and bytes are computed with as floats.
        let is_range = |from: u64, to: u64| from < to && to <= 1 << 53;
        if !(is_side(self.w) && is_side(self.h) && is_range(self.from, self.to) && is_range(self.lo, self.hi)) {
            let what = format!(
                "read a tile: it needs from < to, lo < hi, and 1 to {MAX_SIDE} for w and h; all are whole numbers up to 2^53"
            );
            return Err(Problem::bad(what));
        }
        Ok(Tile {
            time_ms: [self.from, self.to],
            packed: [self.lo, self.hi],
            width: self.w,
            height: self.h,
            show: self.show,
        })
    }
}

pub async fn tile(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    query: Result<Query<TileQuery>, QueryRejection>,
) -> Answer {
    let (id, query) = (parse_id(&id)?, parameters(query)?);
    let tile = query.tile()?;
    let view = view(&app)?;
    let current = layout(&view, id)?;
    if current.name != query.layout {
        return Err(Problem::stale(&current.name));
    }
    let busy = || Problem::new(StatusCode::TOO_MANY_REQUESTS, "read a tile: too many are read; try again in a second");
    let permit = Arc::clone(&app.tiles).acquire_owned().await.map_err(|_| busy())?;
    let reserved = app.bodies.reserve(tile.width * tile.height)?;
    let rendered = apart(move || {
        // Held until it is done, whether or not the client still waits.
        let _permit = permit;
        view.layouts.get(&id).map(|layout| tile.render(&view.moments, id, layout)).unwrap_or_default()
    });
    let (bytes, newest_ms) = rendered.await?;
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, [("x-tile-newest-ms", newest_ms.to_string())], reserved.body(bytes)).into_response())
}

/// Which cell.
#[derive(Debug, Deserialize)]
pub struct CellQuery {
    at: u64,
    addr: String,
}

pub async fn cell(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    query: Result<Query<CellQuery>, QueryRejection>,
) -> Answer {
    let (id, CellQuery { at, addr }) = (parse_id(&id)?, parameters(query)?);
    let addr = u64::from_str_radix(&addr, 16).map(Addr);
    let addr = addr.map_err(|_| Problem::bad("read a cell: addr is an address in hexadecimal digits"))?;
    let view = view(&app)?;
    layout(&view, id)?;
    let moment = moment_at(&view.moments, at).ok_or_else(|| no_process(id))?;
    let process = moment.process(id);
    let place = |process: &Process| process.regions.partition_point(|region| region.range.end <= addr);
    let region = process.and_then(|process| process.regions.get(place(process)).filter(|r| r.range.contains(addr)));
    let mapped = process
        .and_then(|process| Mapping::first_in(&process.mappings, AddrRange::new(addr, Addr(addr.0.saturating_add(1)))));
    let found = object!({ "at_ms": moment.at_ms, "region": region.map(piece), "mapping": mapped.map(mapping) });
    Ok(json_text(found.to_string().into()))
}

fn piece(piece: &Piece) -> Value {
    let bytes = |pages: u32| u64::from(pages) * PAGE;
    let interval_ms = piece.interval.ns().map(|ns| crate::sums::as_f64(ns) / 1e6);
    object!({
        "start": hex(piece.range.start),
        "end": hex(piece.range.end),
        "resident_bytes": bytes(piece.resident),
        "huge_bytes": bytes(piece.huge),
        "hot_bytes": bytes(piece.hot),
        "peak_hot_bytes": bytes(piece.peak_hot),
        "unmeasured_bytes": bytes(piece.resident.saturating_sub(piece.measured)),
        "estimated_bytes": bytes(piece.estimated),
        "interval_ms": interval_ms,
        "rate_hz": piece.rate_hz,
        "idle_ms": piece.idle_ms,
        "age_ms": piece.age_ms,
    })
}
