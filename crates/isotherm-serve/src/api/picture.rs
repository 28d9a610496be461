//! `api/picture/ID`: the heat map of a process as one HTML file that makes no requests, for those who have no server. The same file as
//! that of `isotherm report map -o map.html`, made by the same code.

use super::{apart, no_process, parameters, parse_id, view};
use crate::app::App;
use crate::moment::{Moment, Piece, Process};
use crate::reply::{Answer, Problem};
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
/// Regions of all its snapshots together, in the mean. Of more, snapshots are left out as well.
const MAX_REGIONS: usize = 400_000;
/// The memory that a region takes while a picture is made: its copy, and its place on the axis, in a vector that grows.
const REGION_BYTES: usize = size_of::<Region>() + 2 * size_of::<AddrRange>();
/// The memory of the cells and of the file.
const FILE_BYTES: usize = 8 << 20;
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
    let body = apart(move || {
        let shown = shown(&view.moments, id, &part);
        let regions: usize = shown.iter().map(|shown| shown.pieces.len()).sum();
        // Held until it is done, whether or not the client still waits.
        let mut reserved = app.bodies.reserve(regions * REGION_BYTES + FILE_BYTES)?;
        let html = page(&shown, id, &part)?;
        reserved.shrink_to(html.len());
        Ok::<_, Problem>(reserved.body(html))
    });
    let body = body.await??;
    let disposition = format!("attachment; filename=\"isotherm-{}.html\"", id.pid);
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()), (header::CONTENT_DISPOSITION, disposition)];
    Ok((headers, body).into_response())
}

fn page(shown: &[Shown], id: TargetId, part: &Part) -> Result<Vec<u8>, Problem> {
    if shown.is_empty() {
        return Err(no_process(id));
    }
    let snapshots: Vec<Snapshot> = shown.iter().map(snapshot).collect();
    let usual = HtmlOptions::default();
    let select = Select { target: Some(id), range: part.range, ..usual.select };
    let mut html = Vec::new();
    write_html(&snapshots, &mut html, &HtmlOptions { select, scale: part.scale, ..usual }).map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("make a picture: {error}; please report this"))
    })?;
    Ok(html)
}

/// The process in a moment, or in the last one of several.
#[derive(Debug)]
struct Shown<'a> {
    time_ms: [u64; 2],
    process: &'a Process,
    /// Its regions in the part that is shown.
    pieces: &'a [Piece],
}

impl<'a> Shown<'a> {
    fn of(moment: &Moment, process: &'a Process, range: Option<AddrRange>) -> Shown<'a> {
        let pieces: &[Piece] = &process.regions;
        let pieces = range.map_or(pieces, |range| {
            let first = pieces.partition_point(|piece| piece.range.end <= range.start);
            let end = pieces.partition_point(|piece| piece.range.start < range.end);
            pieces.get(first..end).unwrap_or_default()
        });
        Shown { time_ms: [moment.start_ms, moment.at_ms], process, pieces }
    }
}

/// The process in the moments of a time, at most [`MAX_SNAPSHOTS`] of them, without gaps where some were left out.
fn shown<'a>(moments: &'a [Arc<Moment>], id: TargetId, part: &Part) -> Vec<Shown<'a>> {
    let [from, to] = part.time_ms;
    let with_it: Vec<Shown> = moments
        .iter()
        .filter(|moment| moment.at_ms > from && moment.start_ms < to)
        .filter_map(|moment| Some(Shown::of(moment, moment.process(id)?, part.range)))
        .collect();
    let regions: usize = with_it.iter().map(|shown| shown.pieces.len()).sum();
    let step = with_it.len().div_ceil(MAX_SNAPSHOTS).max(regions.div_ceil(MAX_REGIONS)).max(1);
    let of_step = with_it.chunks(step).filter_map(|few| Some((few.first()?.time_ms[0], few.last()?)));
    of_step.map(|(start_ms, last)| Shown { time_ms: [start_ms, last.time_ms[1]], ..*last }).collect()
}

fn snapshot(shown: &Shown) -> Snapshot {
    let [start_ms, end_ms] = shown.time_ms;
    Snapshot {
        start_unix_ns: start_ms * NS_PER_MS,
        end_unix_ns: end_ms * NS_PER_MS,
        targets: vec![target(shown.process, shown.pieces)],
        cost: Cost::default(),
    }
}

fn target(process: &Process, pieces: &[Piece]) -> TargetHeat {
    let regions: Vec<Region> = pieces.iter().map(Region::from).collect();
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

    /// A second of one process.
    fn sent(n: u64, regions: Vec<isotherm_stream::RegionRow>) -> isotherm_stream::Snapshot {
        isotherm_stream::Snapshot {
            host: isotherm_stream::HostRow {
                start_unix_ns: n * 1_000_000_000,
                end_unix_ns: (n + 1) * 1_000_000_000,
                ..isotherm_stream::HostRow::default()
            },
            processes: vec![isotherm_stream::ProcessRow { pid: 1, start_ticks: 2, ..Default::default() }],
            regions,
            ..isotherm_stream::Snapshot::default()
        }
    }

    #[test]
    fn of_many_moments_few_are_shown_and_no_time_is_missing() {
        let id = TargetId { pid: 1, start_ticks: 2 };
        let moments: Vec<Arc<Moment>> = (0..1501).map(|n| Arc::new(Moment::of(&sent(n, Vec::new()), None))).collect();
        let part = |time_ms| Part { time_ms, range: None, scale: Scale::Share };
        let shown_ms = |id, time_ms| -> Vec<[u64; 2]> {
            shown(&moments, id, &part(time_ms)).iter().map(|shown| shown.time_ms).collect()
        };
        let all = shown_ms(id, [0, u64::MAX]);
        assert_eq!((all.len(), all[0][0], all[500][1]), (501, 0, 1_501_000));
        assert!(all.windows(2).all(|two| two[0][1] == two[1][0]));
        let some = shown_ms(id, [10_000, 20_000]);
        assert_eq!((some.len(), some[0][0], some[9][1]), (10, 10_000, 20_000));
        assert_eq!(shown_ms(TargetId { pid: 9, ..id }, [0, u64::MAX]), [[0; 2]; 0]);
    }

    #[test]
    fn of_many_regions_few_moments_are_shown_and_none_outside_of_the_part() {
        let id = TargetId { pid: 1, start_ticks: 2 };
        let region = |n: u64| isotherm_stream::RegionRow {
            pid: 1,
            start_ticks: 2,
            region: Region {
                range: AddrRange::new(Addr(n * 4096), Addr((n + 1) * 4096)),
                resident_pages: 1,
                measured_pages: 1,
                huge_pages: 0,
                interval: isotherm_heat::Interval::from_ns(1_000_000_000),
                rate_hz: 1.0,
                age_ns: 0,
                idle_ns: 0,
                sampled_pages: 0,
                estimated_pages: 0,
                hot_pages: Some(1),
            },
        };
        // A million regions.
        let moments: Vec<Arc<Moment>> =
            (0..20).map(|n| Arc::new(Moment::of(&sent(n, (0..50_000).map(region).collect()), None))).collect();
        let mut part = Part { time_ms: [0, u64::MAX], range: None, scale: Scale::Share };
        let all = shown(&moments, id, &part);
        assert_eq!((all.len(), all[0].time_ms), (7, [0, 3000]));
        part.range = Some(AddrRange::new(Addr(4096 + 1), Addr(3 * 4096)));
        let few = shown(&moments, id, &part);
        assert_eq!((few.len(), few[0].pieces.len()), (20, 2));
        assert_eq!(snapshot(&few[0]).targets[0].regions.len(), 2);
        part.range = Some(AddrRange::new(Addr(1 << 40), Addr(1 << 41)));
        assert!(shown(&moments, id, &part).iter().all(|shown| shown.pieces.is_empty()));
    }
}
