//! Combines lines of the `damon_aggregated` tracepoint into whole aggregations.
//!
//! At the end of an aggregation the kernel emits one line per region, target by target. Each line has the number of
//! regions of its target, so a target is complete after that many lines in a row. If one of them is lost, none is used.
//! The lines do not show how long the aggregation was. The time between two aggregations is used instead. It is right
//! even if the kernel tunes its intervals, or if its thread was delayed and sampled more slowly than set.

use isotherm_heat::Ns;
use isotherm_sys::tracepoint::{Field, Tracepoint, TracepointError};
use isotherm_units::{Addr, AddrRange};

/// Offsets of the fields of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    target: Field,
    nr_regions: Field,
    start: Field,
    end: Field,
    nr_accesses: Field,
    age: Field,
}

impl Fields {
    pub(super) fn of(tracepoint: &Tracepoint) -> Result<Fields, TracepointError> {
        Ok(Fields {
            target: tracepoint.field("target_id")?,
            nr_regions: tracepoint.field("nr_regions")?,
            start: tracepoint.field("start")?,
            end: tracepoint.field("end")?,
            nr_accesses: tracepoint.field("nr_accesses")?,
            age: tracepoint.field("age")?,
        })
    }
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The target's index in the list that the kernel was given.
    pub target: usize,
    pub nr_regions: usize,
    pub region: Found,
}

impl Line {
    /// Parses a record; `None` if it is too short.
    pub(super) fn parse(fields: &Fields, record: &[u8]) -> Option<Line> {
        let index = |field: Field| usize::try_from(field.get(record)?).ok();
        Some(Line {
            target: index(fields.target)?,
            nr_regions: index(fields.nr_regions)?,
            region: Found {
                range: AddrRange::new(Addr(fields.start.get(record)?), Addr(fields.end.get(record)?)),
                nr_accesses: fields.nr_accesses.get(record)?,
                age: fields.age.get(record)?,
            },
        })
    }
}

/// One region as reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub range: AddrRange,
    pub nr_accesses: u64,
    /// Number of aggregations.
    pub age: u64,
}

/// The regions of one target at the end of one aggregation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Aggregation {
    /// Its end.
    pub at: Ns,
    /// Its length.
    pub length: Ns,
    pub regions: Vec<Found>,
}

/// The latest aggregation of each target.
#[derive(Debug)]
pub(super) struct Aggregates {
    /// The assumed length of an aggregation until two were seen.
    nominal: Ns,
    /// By the target's index.
    latest: Vec<Option<Aggregation>>,
    partial: Vec<Found>,
    /// Target and number of regions of the lines in `partial`.
    of: (usize, usize),
    /// Lines were lost, so the time to the next aggregation is not its length.
    gap: Vec<bool>,
    broken: u64,
}

impl Aggregates {
    /// For `targets` targets.
    pub(super) fn new(targets: usize, nominal: Ns) -> Aggregates {
        let (latest, gap) = (vec![None; targets], vec![false; targets]);
        Aggregates { nominal, latest, partial: Vec::new(), of: (0, 0), gap, broken: 0 }
    }

    /// Adds targets after the known ones.
    pub(super) fn extend(&mut self, targets: usize) {
        self.latest.resize(targets, None);
        self.gap.resize(targets, false);
    }

    /// The latest aggregation of the target at that index.
    pub(super) fn latest(&self, target: usize) -> Option<&Aggregation> {
        self.latest.get(target)?.as_ref()
    }

    /// Aggregations with missing lines.
    pub(super) fn broken(&self) -> u64 {
        self.broken
    }

    /// Processes the next line, emitted at `at`.
    pub(super) fn line(&mut self, at: Ns, line: Line) {
        if self.of != (line.target, line.nr_regions) {
            self.drop_partial();
            self.of = (line.target, line.nr_regions);
        }
        self.partial.push(line.region);
        if self.partial.len() == line.nr_regions {
            self.complete(at, line.target);
        }
    }

    /// Lines were lost here.
    pub(super) fn lost(&mut self) {
        self.drop_partial();
        self.gap.fill(true);
    }

    fn drop_partial(&mut self) {
        if !self.partial.is_empty() {
            self.broken += 1;
            self.partial.clear();
            if let Some(gap) = self.gap.get_mut(self.of.0) {
                *gap = true;
            }
        }
    }

    fn complete(&mut self, at: Ns, target: usize) {
        let regions = std::mem::take(&mut self.partial);
        // A target that the kernel still reports although it is no longer in our list.
        let (Some(latest), Some(gap)) = (self.latest.get_mut(target), self.gap.get_mut(target)) else { return };
        let gap = std::mem::take(gap);
        let length = match latest {
            Some(before) if gap => before.length,
            Some(before) => at.saturating_sub(before.at).max(1),
            None => self.nominal,
        };
        // Reuses the memory of the previous one.
        if let Some(before) = latest.replace(Aggregation { at, length, regions }) {
            self.partial = before.regions;
            self.partial.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MS: Ns = 1_000_000;

    /// As Linux 6.12 has it.
    const FORMAT: &str = "name: damon_aggregated
ID: 734
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;
\tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;
\tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;

print fmt: \"target_id=%lu nr_regions=%u %lu-%lu: %u %u\", REC->target_id, REC->nr_regions, REC->start, REC->end, \
REC->nr_accesses, REC->age
";

    fn found(page: u64, nr_accesses: u64) -> Found {
        Found { range: AddrRange::new(Addr(page << 12), Addr((page + 1) << 12)), nr_accesses, age: 3 }
    }

    fn line(target: usize, nr_regions: usize, page: u64) -> Line {
        Line { target, nr_regions, region: found(page, page) }
    }

    #[test]
    fn a_record_is_taken_apart_by_the_kernels_own_description() {
        let dir = tempfile::TempDir::new().unwrap();
        let event = dir.path().join("events/damon/damon_aggregated");
        fs::create_dir_all(&event).unwrap();
        fs::write(event.join("id"), "734\n").unwrap();
        fs::write(event.join("format"), FORMAT).unwrap();
        let tracepoint = Tracepoint::read(dir.path(), "damon", "damon_aggregated").unwrap();
        let fields = Fields::of(&tracepoint).unwrap();
        let mut record = vec![0_u8; 52];
        record[8..16].copy_from_slice(&2_u64.to_ne_bytes());
        record[16..20].copy_from_slice(&8_u32.to_ne_bytes());
        record[24..32].copy_from_slice(&0x7f00_0000_1000_u64.to_ne_bytes());
        record[32..40].copy_from_slice(&0x7f00_0000_9000_u64.to_ne_bytes());
        record[40..44].copy_from_slice(&17_u32.to_ne_bytes());
        record[44..48].copy_from_slice(&130_u32.to_ne_bytes());
        let range = AddrRange::new(Addr(0x7f00_0000_1000), Addr(0x7f00_0000_9000));
        let region = Found { range, nr_accesses: 17, age: 130 };
        assert_eq!(Line::parse(&fields, &record), Some(Line { target: 2, nr_regions: 8, region }));
        assert_eq!(Line::parse(&fields, &record[..47]), None);
    }

    #[test]
    fn a_target_is_complete_with_as_many_lines_as_it_says() {
        let mut a = Aggregates::new(2, 100 * MS);
        for (i, l) in [line(0, 2, 1), line(0, 2, 2), line(1, 1, 9), line(0, 2, 3)].into_iter().enumerate() {
            a.line(MS * (100 + i as u64), l);
        }
        let first = Aggregation { at: 101 * MS, length: 100 * MS, regions: vec![found(1, 1), found(2, 2)] };
        assert_eq!(a.latest(0), Some(&first), "the second is not complete");
        assert_eq!(a.latest(1).unwrap().regions, [found(9, 9)]);
        a.line(231 * MS, line(0, 2, 4));
        let second = Aggregation { at: 231 * MS, length: 130 * MS, regions: vec![found(3, 3), found(4, 4)] };
        assert_eq!(a.latest(0), Some(&second), "as long as it took");
        assert_eq!((a.latest(2), a.broken()), (None, 0));
    }

    #[test]
    fn what_lacks_a_line_is_not_used() {
        let mut a = Aggregates::new(1, 100 * MS);
        a.line(100 * MS, line(0, 1, 1));
        a.line(200 * MS, line(0, 3, 2));
        a.lost();
        a.line(300 * MS, line(0, 3, 5));
        a.line(400 * MS, line(0, 2, 6));
        a.line(400 * MS, line(0, 2, 7));
        let whole = Aggregation { at: 400 * MS, length: 100 * MS, regions: vec![found(6, 6), found(7, 7)] };
        assert_eq!((a.latest(0), a.broken()), (Some(&whole), 2), "the gap is no length");
        a.line(500 * MS, line(7, 1, 1));
        assert_eq!(a.latest(7), None, "a target that we do not know");
    }
}
