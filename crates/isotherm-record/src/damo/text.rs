//! The text of `perf script`: a line for each region, as the kernel traces it and old tools keep it.
//!
//! ```text
//!   kdamond.0  4452 [000] 82877.315633: damon:damon_aggregated: target_id=0 nr_regions=17 140731667070976-140731668037632: 0 3
//! ```
//!
//! The last numbers are the count and the age (early kernels have no age). Every `nr_regions` lines of a target are one
//! snapshot. Only its end is given. It starts where the previous one ended, and the first is as long as the others on
//! average.

use super::charged::Charged;
use super::model::{Age, NrAccesses, Record, RegionRecord, SnapshotRecord};
use crate::Error;
use crate::allowance::Allowance;
use std::collections::HashMap;
use std::io::{self, BufRead, Read};

/// Lines of the event contain this.
pub const EVENT: &str = "damon:damon_aggregated:";

/// A line with all its regions is far shorter than this.
const MAX_LINE: u64 = 1 << 16;

/// Why text could not be read.
#[derive(Debug)]
pub enum Failed {
    Io(io::Error),
    /// Its records would take more memory than they may.
    Memory(Error),
    /// The number of a line, and what is wrong with it.
    Line(u64, String),
}

/// A record that is still being read.
#[derive(Debug, Default)]
pub struct Reading {
    pub record: Record,
    /// Regions of the last snapshot that are still missing.
    missing: u64,
    /// Regions of a snapshot that was never completed.
    cut: u64,
}

/// Records by the order of their targets in the text.
#[derive(Debug, Default)]
struct Records {
    all: Vec<Reading>,
    by_target: HashMap<u64, usize>,
}

/// Reads the lines of the event, and skips all others. Takes from `allowance` what they come to.
pub fn read(mut from: impl BufRead, allowance: &mut Allowance) -> Result<Vec<Reading>, Failed> {
    let mut records = Records::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let length = from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(Failed::Io)?;
        if length == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let Some((before, after)) = text.split_once(EVENT) else { continue };
        let event = Event::parse(before, after)
            .ok_or_else(|| Failed::Line(number, "not as DAMON writes it: END: damon:damon_aggregated: ...".into()))?;
        allowance.charge(RegionRecord::BYTES).map_err(Failed::Memory)?;
        records.of(&event, allowance)?.add(event).map_err(|what| Failed::Line(number, what))?;
    }
    records.all.iter_mut().for_each(Reading::finish);
    Ok(records.all)
}

/// Regions of snapshots that are cut off at the end of the text.
pub fn incomplete(records: &[Reading]) -> Option<u64> {
    let cut = records.iter().map(|r| r.cut).sum();
    (cut > 0).then_some(cut)
}

/// One line.
#[derive(Debug)]
struct Event {
    end_ns: u64,
    target_id: u64,
    regions: u64,
    region: RegionRecord,
}

impl Event {
    fn parse(before: &str, after: &str) -> Option<Event> {
        let end_ns = nanoseconds(before.split_whitespace().next_back()?.strip_suffix(':')?)?;
        let mut words = after.split_whitespace();
        let target_id = words.next()?.strip_prefix("target_id=")?;
        let regions = words.next()?.strip_prefix("nr_regions=")?.parse().ok()?;
        let (start, end) = words.next()?.strip_suffix(':')?.split_once('-')?;
        let samples = words.next()?.parse().ok()?;
        // damo writes `None` for an unknown age.
        let age = words.next().and_then(|age| age.parse().ok());
        let region = RegionRecord {
            start: start.parse().ok()?,
            end: end.parse().ok()?,
            nr_accesses: Some(NrAccesses { samples: Some(samples), percent: None }),
            age: Age { usec: None, aggr_intervals: age },
            sz_filter_passed: None,
        };
        // The record of a target without a number, such as physical memory, has `None` here.
        let target_id = if target_id == "None" { 0 } else { target_id.parse().ok()? };
        Some(Event { end_ns, target_id, regions, region })
    }
}

/// Parses seconds with a fraction, exactly.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = fraction.get(..fraction.len().min(9))?;
    let power = 9_u32.checked_sub(u32::try_from(digits.len()).ok()?)?;
    let part = digits.parse::<u64>().ok()? * 10_u64.pow(power);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part)
}

impl Records {
    /// The record that takes `event`.
    fn of(&mut self, event: &Event, allowance: &mut Allowance) -> Result<&mut Reading, Failed> {
        let index = *self.by_target.entry(event.target_id).or_insert(self.all.len());
        if index == self.all.len() {
            allowance.charge(Record::BYTES).map_err(Failed::Memory)?;
            let record = Record { target_id: Some(event.target_id), ..Record::default() };
            self.all.push(Reading { record, ..Reading::default() });
        }
        let reading = &mut self.all[index];
        if reading.missing == 0 {
            allowance.charge(SnapshotRecord::BYTES).map_err(Failed::Memory)?;
        }
        Ok(reading)
    }
}

impl Reading {
    fn add(&mut self, event: Event) -> Result<(), String> {
        if self.missing == 0 {
            let start_ns = self.record.snapshots.last().map(|s| s.end_ns);
            if start_ns.is_some_and(|start| start > event.end_ns) {
                return Err("it is of an earlier time than the lines before".into());
            }
            let (start_ns, end_ns) = (start_ns.unwrap_or(0), event.end_ns);
            self.record.snapshots.push(SnapshotRecord { start_ns, end_ns, ..SnapshotRecord::default() });
            self.missing = event.regions.max(1);
        }
        self.missing -= 1;
        if let Some(snapshot) = self.record.snapshots.last_mut() {
            snapshot.regions.push(event.region);
        }
        Ok(())
    }

    /// Drops a snapshot that was cut off, and gives the first snapshot a start.
    fn finish(&mut self) {
        let snapshots = &mut self.record.snapshots;
        if self.missing > 0 {
            self.cut = snapshots.pop().map_or(0, |s| s.regions.len() as u64);
        }
        let others = snapshots.len().saturating_sub(1) as u64;
        if let [first, .., last] = snapshots.as_mut_slice() {
            first.start_ns = first.end_ns.saturating_sub((last.end_ns - first.end_ns) / others);
        } else if let [only] = snapshots.as_mut_slice() {
            // Its length cannot be known.
            only.start_ns = only.end_ns;
        }
    }
}
