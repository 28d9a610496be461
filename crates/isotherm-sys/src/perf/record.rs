//! Records of a ring, parsed in two steps: where each begins and ends ([`Raws`]), and its contents ([`Record`]).
//!
//! Each is walked once. No length in the bytes is trusted. A record that is shorter than its header ends the walk,
//! since the start of the next one is then unknown. A record that is shorter than its fields is reported as malformed.

use super::sample::{Fields, Sample};

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// This many samples had no room, or were lost in the CPU's own buffer.
    Lost(u64),
    /// Samples came too fast. There are none until [`Record::Unthrottle`] or the next tick of the timer.
    Throttle,
    /// Samples are delivered again.
    Unthrottle,
    /// Another record, by its type.
    Other(u32),
    /// It cannot be parsed: shorter than its fields, or without an end. In the latter case nothing after it is read.
    Malformed,
}

const MISC: usize = 2;
/// Type (4 bytes), misc (2), size of the whole record (2).
pub(super) const HEADER: usize = 4 + MISC + 2;

// PERF_RECORD_*.
pub(super) const LOST: u32 = 2;
pub(super) const THROTTLE: u32 = 5;
pub(super) const UNTHROTTLE: u32 = 6;
pub(super) const FORK: u32 = 7;
pub(super) const SAMPLE: u32 = 9;
pub(super) const LOST_SAMPLES: u32 = 13;

/// A record that is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raw<'a> {
    Record {
        kind: u32,
        body: &'a [u8],
    },
    /// There should be a record here, but there is none.
    Broken,
}

impl<'a> Raw<'a> {
    #[inline]
    pub(super) fn record(self, fields: Fields) -> Record<'a> {
        let Raw::Record { kind, body } = self else { return Record::Malformed };
        match kind {
            SAMPLE => Sample::parse(fields, body).map_or(Record::Malformed, Record::Sample),
            // After the event's id.
            LOST => word(body, 8).map_or(Record::Malformed, Record::Lost),
            LOST_SAMPLES => word(body, 0).map_or(Record::Malformed, Record::Lost),
            THROTTLE => Record::Throttle,
            UNTHROTTLE => Record::Unthrottle,
            other => Record::Other(other),
        }
    }

    /// The thread start that it reports, if it reports one.
    pub(super) fn started(self) -> Option<Start> {
        match self {
            // Process, its parent, thread, its parent, time.
            Raw::Record { kind: FORK, body } => {
                Some(Start { pid: half(body, 0)?, tid: half(body, 8)?, parent: half(body, 12)?, at: word(body, 16)? })
            }
            _ => None,
        }
    }
}

/// A thread was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The process it belongs to.
    pub pid: u32,
    pub tid: u32,
    /// The thread that started it.
    pub parent: u32,
    /// Time of the report, by the clock of the reporting event. The report is the last step before the new thread may
    /// run.
    pub at: u64,
}

fn word(body: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*body.get(at..)?.first_chunk()?))
}

fn half(body: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?))
}

/// Walks whole records. What is left at the end is the start of a record that continues elsewhere, or nothing.
#[derive(Clone, Debug)]
pub(super) struct Raws<'a> {
    rest: &'a [u8],
    broken: bool,
}

impl<'a> Raws<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Raws<'a> {
        Raws { rest: bytes, broken: false }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether the walk ended at an impossible record.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }
}

impl<'a> Iterator for Raws<'a> {
    type Item = Raw<'a>;

    #[inline]
    fn next(&mut self) -> Option<Raw<'a>> {
        let (header, _) = self.rest.split_first_chunk::<HEADER>()?;
        let [a, b, c, d, _, _, lo, hi] = *header;
        let kind = u32::from_ne_bytes([a, b, c, d]);
        let size = usize::from(u16::from_ne_bytes([lo, hi]));
        if size < HEADER {
            (self.rest, self.broken) = (&[], true);
            return None;
        }
        let (record, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(Raw::Record { kind, body: &record[HEADER..] })
    }
}

/// Decodes bytes as if they had come out of a ring whose samples have these fields.
///
/// For recordings, and for callers that read rings in other ways. Any bytes may be given. Bytes that cannot be parsed
/// give [`Record::Malformed`]. Where the start of the next record is unknown, it is the last item.
pub fn decode(fields: Fields, bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut raws = Raws::new(bytes);
    let mut ended = false;
    std::iter::from_fn(move || {
        if let Some(raw) = raws.next() {
            return Some(raw.record(fields));
        }
        let whole = raws.rest().is_empty() && !raws.is_broken();
        (!whole && !std::mem::replace(&mut ended, true)).then_some(Record::Malformed)
    })
}

/// Counts of the records that pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub samples: u64,
    pub lost: u64,
    pub throttles: u64,
    pub malformed: u64,
}

impl Tally {
    #[inline]
    pub(super) fn count(&mut self, record: &Record<'_>) {
        match record {
            Record::Sample(_) => self.samples += 1,
            // The numbers are not trusted to stay below 2^64.
            Record::Lost(n) => self.lost = self.lost.saturating_add(*n),
            Record::Throttle => self.throttles += 1,
            Record::Malformed => self.malformed += 1,
            Record::Unthrottle | Record::Other(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
