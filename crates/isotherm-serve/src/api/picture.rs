//! `api/picture/ID`: the heat map of a process as one HTML file that makes no requests, for those who have no server. The same file as
//! that of `isotherm report map -o map.html`, made by the same code.

use super::{apart, no_process, parameters, parse_id, view};
use crate::app::App;
use crate::moment::{Moment, Process};
use crate::reply::{Answer, Problem};
use crate::state::View;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use isotherm_heat::{Cost, Granularity, Histogram, Mapping, Region, Snapshot, TargetFacts, TargetHeat, TargetId};
use isotherm_units::{Addr, AddrRange};
use isotherm_view::heatmap::{HtmlOptions, Scale, Select, write_html};
use serde::Deserialize;
use std::sync::Arc;

/// Snapshots of a picture. Of more, some are left out, evenly: a picture has no more columns.
const MAX_SNAPSHOTS: usize = 600;
/// The memory that a picture takes while it is made: its snapshots, and the file.
const RESERVED_BYTES: usize = 16 << 20;
const NS_PER_MS: u64 = 1_000_000;

/// Which part of it.
#[derive(Debug, Deserialize)]
pub struct PictureQuery {
    from: Option<u64>,
    to: Option<u64>,
    lo: Option<String>,
    hi: Option<String>,
    show: Option<String>,
}

/// A part of the heat map.
#[derive(Debug)]
struct Part {
    time_ms: [u64; 2],
    range: Option<AddrRange>,
    scale: Scale,
}

impl PictureQuery {
    fn part(&self) -> Result<Part, Problem> {
        let addr = |text: &Option<String>| {
            let addr = text.as_deref().map(|text| u64::from_str_radix(text, 16)).transpose();
            addr.map_err(|_| Problem::bad("make a picture: lo and hi are addresses in hexadecimal digits"))
        };
        let range = addr(&self.lo)?.zip(addr(&self.hi)?).map(|(lo, hi)| AddrRange::new(Addr(lo), Addr(hi.max(lo))));
        let scale = match self.show.as_deref() {
            Some("interval") => Scale::Interval,
            Some("idle") => Scale::Idle,
            _ => Scale::Share,
        };
        Ok(Part { time_ms: [self.from.unwrap_or(0), self.to.unwrap_or(u64::MAX)], range, scale })
    }
}

pub async fn picture(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    query: Result<Query<PictureQuery>, QueryRejection>,
) -> Answer {
    let id = parse_id(&id)?;
    let part = parameters(query)?.part()?;
    let view = view(&app)?;
    let reserved = app.bodies.reserve(RESERVED_BYTES)?;
    let html = apart(move || page(&view, id, &part)).await??;
    let disposition = format!("attachment; filename=\"isotherm-{}.html\"", id.pid);
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()), (header::CONTENT_DISPOSITION, disposition)];
    Ok((headers, reserved.body(html)).into_response())
}

fn page(view: &View, id: TargetId, part: &Part) -> Result<Vec<u8>, Problem> {
    let snapshots = snapshots(&view.moments, id, part.time_ms);
    if snapshots.is_empty() {
        return Err(no_process(id));
    }
    let usual = HtmlOptions::default();
    let select = Select { target: Some(id), range: part.range, ..usual.select };
    let mut html = Vec::new();
    write_html(&snapshots, &mut html, &HtmlOptions { select, scale: part.scale, ..usual }).map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("make a picture: {error}; please report this"))
    })?;
    Ok(html)
}

/// The process in the moments of a time, at most [`MAX_SNAPSHOTS`] of them, without gaps where some were left out.
fn snapshots(moments: &[Arc<Moment>], id: TargetId, [from, to]: [u64; 2]) -> Vec<Snapshot> {
    let with_it: Vec<(&Moment, &Process)> = moments
        .iter()
        .filter(|moment| moment.at_ms > from && moment.start_ms < to)
        .filter_map(|moment| Some((&**moment, &**moment.process(id)?)))
        .collect();
    let step = with_it.len().div_ceil(MAX_SNAPSHOTS).max(1);
    let of_step = with_it.chunks(step).filter_map(|few| Some((few.first()?.0.start_ms, few.last()?)));
    of_step.map(|(start_ms, (moment, process))| snapshot([start_ms, moment.at_ms], process)).collect()
}

fn snapshot([start_ms, end_ms]: [u64; 2], process: &Process) -> Snapshot {
    Snapshot {
        start_unix_ns: start_ms * NS_PER_MS,
        end_unix_ns: end_ms * NS_PER_MS,
        targets: vec![target(process)],
        cost: Cost::default(),
    }
}

fn target(process: &Process) -> TargetHeat {
    let regions: Vec<Region> = process.regions.iter().map(Region::from).collect();
    let mut temperature = Histogram::default();
    regions.iter().for_each(|region| temperature.add(region.interval, region.resident_pages));
    TargetHeat {
        id: process.id,
        comm: process.comm.to_string(),
        cgroup: process.cgroup.to_string(),
        exited: process.exited,
        granularity: Granularity::Page,
        regions,
        mappings: Arc::<[Mapping]>::clone(&process.mappings),
        temperature,
        idle: Histogram::default(),
        counted_elsewhere_pages: 0,
        maybe_shared_pages: 0,
        unclearable_pages: 0,
        behind_huge: None,
        idle_by_mapping: Vec::new(),
        facts: TargetFacts::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_moments_few_are_shown_and_no_time_is_missing() {
        let id = TargetId { pid: 1, start_ticks: 2 };
        let sent = |n: u64| isotherm_stream::Snapshot {
            host: isotherm_stream::HostRow {
                start_unix_ns: n * 1_000_000_000,
                end_unix_ns: (n + 1) * 1_000_000_000,
                ..isotherm_stream::HostRow::default()
            },
            processes: vec![isotherm_stream::ProcessRow { pid: 1, start_ticks: 2, ..Default::default() }],
            ..isotherm_stream::Snapshot::default()
        };
        let moments: Vec<Arc<Moment>> = (0..1501).map(|n| Arc::new(Moment::of(&sent(n), None))).collect();
        let shown = snapshots(&moments, id, [0, u64::MAX]);
        assert_eq!(shown.len(), 501);
        assert_eq!((shown[0].start_unix_ns, shown[500].end_unix_ns), (0, 1501 * 1_000_000_000));
        assert!(shown.windows(2).all(|two| two[0].end_unix_ns == two[1].start_unix_ns));
        let part = snapshots(&moments, id, [10_000, 20_000]);
        assert_eq!((part.len(), part[0].start_unix_ns, part[9].end_unix_ns), (10, 10_000_000_000, 20_000_000_000));
        assert_eq!(snapshots(&moments, TargetId { pid: 9, ..id }, [0, u64::MAX]), []);
    }
}
