//! Frames: their heads, the tables in a snapshot, and what a received snapshot has to fulfil as a whole.

use crate::columns::{Row, from_arrow, to_arrow};
use crate::error::{Error, Result};
use crate::rows::{HostRow, ProcessRow, Snapshot};
use crate::tables::{HeatRow, Which};
use isotherm_heat::TargetId;
use std::collections::HashMap;

/// The version that is written, and the only major version that is read.
pub const MAJOR: u16 = 1;
/// Raised when tables, columns or kinds of frames are added. 1: the tables of idle pages found accessed, and of plans.
pub const MINOR: u16 = 1;
/// The largest frame: a million regions take about 110 MB.
pub const MAX_FRAME_BYTES: usize = 256 << 20;
/// The most rows of a table.
pub const MAX_ROWS: usize = 1 << 20;
/// The most rows of histograms. A process has some tens.
const MAX_HEAT_ROWS: usize = 4 * MAX_ROWS;
/// The most pages of anything: 2^57 bytes is the largest address space. Sums over a snapshot have the same limit, so that
/// no later sum can overflow.
pub const MAX_PAGES: u64 = 1 << 45;

pub(crate) const MAGIC: [u8; 8] = *b"isotherm";
/// Magic and two versions.
pub(crate) const HEADER: usize = 12;
/// Kind and length.
pub(crate) const FRAME_HEAD: usize = 5;
pub(crate) const SNAPSHOT: u8 = 1;
pub(crate) const LOST: u8 = 2;

const HOST: u16 = 1;
const PROCESSES: u16 = 2;
const HEAT: u16 = 3;
const REGIONS: u16 = 4;
const MAPPINGS: u16 = 5;
const ACTIONS: u16 = 6;
const EVENTS: u16 = 7;
const IDLE: u16 = 8;
const PLAN: u16 = 9;
/// Number and length.
const TABLE_HEAD: usize = 6;

/// What a stream begins with.
pub fn header() -> [u8; 12] {
    header_of(MAJOR, MINOR)
}

pub(crate) fn header_of(major: u16, minor: u16) -> [u8; 12] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&major.to_le_bytes());
    header[10..].copy_from_slice(&minor.to_le_bytes());
    header
}

/// The frame that reports lost snapshots.
pub(crate) fn lost(snapshots: u64) -> Vec<u8> {
    let mut frame = vec![LOST, 8, 0, 0, 0];
    frame.extend(snapshots.to_le_bytes());
    frame
}

/// A snapshot as a frame.
pub fn encode(snapshot: &Snapshot) -> Result<Vec<u8>> {
    let heat: Vec<HeatRow> = snapshot.processes.iter().flat_map(HeatRow::of).collect();
    let mut frame = vec![SNAPSHOT, 0, 0, 0, 0];
    table(HOST, std::slice::from_ref(&snapshot.host), &mut frame)?;
    table(PROCESSES, &snapshot.processes, &mut frame)?;
    table(HEAT, &heat, &mut frame)?;
    table(REGIONS, &snapshot.regions, &mut frame)?;
    table(MAPPINGS, &snapshot.mappings, &mut frame)?;
    table(ACTIONS, &snapshot.actions, &mut frame)?;
    table(EVENTS, &snapshot.events, &mut frame)?;
    table(IDLE, &snapshot.idle, &mut frame)?;
    table(PLAN, &snapshot.plan, &mut frame)?;
    let bytes = frame.len() - FRAME_HEAD;
    let too_large = Error::TooLarge { bytes, limit: MAX_FRAME_BYTES };
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= MAX_FRAME_BYTES).ok_or(too_large)?;
    frame[1..FRAME_HEAD].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

fn table<R: Row>(number: u16, rows: &[R], frame: &mut Vec<u8>) -> Result<()> {
    let limit = if number == HEAT { MAX_HEAT_ROWS } else { MAX_ROWS };
    if rows.len() > limit {
        return Err(Error::TooManyRows { table: R::NAME, rows: rows.len(), limit });
    }
    if rows.is_empty() {
        return Ok(());
    }
    let start = frame.len();
    frame.extend(number.to_le_bytes());
    frame.extend([0; 4]);
    to_arrow(rows, frame)?;
    let bytes = frame.len() - start - TABLE_HEAD;
    let length = u32::try_from(bytes).map_err(|_| Error::TooLarge { bytes, limit: MAX_FRAME_BYTES })?;
    frame[start + 2..start + TABLE_HEAD].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// The snapshot in the body of a frame.
pub(crate) fn decode(mut body: &[u8]) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let (mut hosts, mut heat) = (Vec::<HostRow>::new(), Vec::<HeatRow>::new());
    let mut seen = 0_u32;
    while !body.is_empty() {
        let (number, table, rest) = next_table(body)?;
        body = rest;
        let bit = 1_u32.checked_shl(number.into()).unwrap_or(0);
        if seen & bit != 0 {
            return Err(Error::damaged(format!("table {number} occurs twice in a snapshot")));
        }
        seen |= bit;
        match number {
            HOST => hosts = from_arrow(table, 1)?,
            PROCESSES => snapshot.processes = from_arrow(table, MAX_ROWS)?,
            HEAT => heat = from_arrow(table, MAX_HEAT_ROWS)?,
            REGIONS => snapshot.regions = from_arrow(table, MAX_ROWS)?,
            MAPPINGS => snapshot.mappings = from_arrow(table, MAX_ROWS)?,
            ACTIONS => snapshot.actions = from_arrow(table, MAX_ROWS)?,
            EVENTS => snapshot.events = from_arrow(table, MAX_ROWS)?,
            IDLE => snapshot.idle = from_arrow(table, MAX_ROWS)?,
            PLAN => snapshot.plan = from_arrow(table, MAX_ROWS)?,
            _ => {}
        }
    }
    snapshot.host = hosts.pop().ok_or_else(|| Error::damaged("a snapshot without its host"))?;
    join(&mut snapshot.processes, &heat)?;
    let accessed = snapshot.idle.iter().try_fold(0_u64, |sum, row| sum.checked_add(row.pages));
    if accessed.is_none_or(|pages| pages > MAX_PAGES) {
        return Err(Error::damaged(format!("more than {MAX_PAGES} idle pages accessed in a snapshot")));
    }
    Ok(snapshot)
}

/// The number and the bytes of the first table, and what follows it.
fn next_table(body: &[u8]) -> Result<(u16, &[u8], &[u8])> {
    let short = || Error::damaged("a table is longer than its frame");
    let ([n0, n1, a, b, c, d], rest) = body.split_first_chunk::<TABLE_HEAD>().ok_or_else(short)?;
    let length = usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).map_err(|_| short())?;
    let (table, rest) = rest.split_at_checked(length).ok_or_else(short)?;
    Ok((u16::from_le_bytes([*n0, *n1]), table, rest))
}

/// Puts the histograms into their processes.
fn join(processes: &mut [ProcessRow], heat: &[HeatRow]) -> Result<()> {
    let mut places: HashMap<TargetId, usize> = HashMap::with_capacity(processes.len());
    for (place, process) in processes.iter().enumerate() {
        if places.insert(process.id(), place).is_some() {
            return Err(Error::damaged(format!("process {} occurs twice in a snapshot", process.pid)));
        }
    }
    let mut sums = [0_u64; 3];
    for row in heat {
        let Some(which) = row.which else { continue };
        let id = TargetId { pid: row.pid, start_ticks: row.start_ticks };
        let place = places.get(&id).ok_or_else(|| Error::damaged(format!("heat of an unknown process {}", row.pid)))?;
        let process = &mut processes[*place];
        let (histogram, sum) = match which {
            Which::Heat => (&mut process.heat, &mut sums[0]),
            Which::Huge => (&mut process.heat_huge, &mut sums[1]),
            Which::Idle => (&mut process.idle, &mut sums[2]),
        };
        *sum += row.pages;
        if *sum > MAX_PAGES {
            return Err(Error::damaged(format!("more than {MAX_PAGES} pages in a snapshot")));
        }
        histogram.add(row.interval, row.pages);
    }
    Ok(())
}
