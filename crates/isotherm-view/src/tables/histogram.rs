//! How much memory has which temperature, and how much has been idle for how long.
//!
//! The scale of a snapshot has eight steps per octave. Rows here are octaves, because an access check bounds an
//! interval only to about an octave. A row `16 ms  32 ms` holds the steps from 16 ms up to, but not including, 32 ms.
//! Memory without a known interval has its own row and is never spread over the others.

use super::cost::CostSummary;
use super::target::{may_be_shared, title};
use crate::human;
use crate::math;
use crate::text::{Column, Table, TextStyle, write_wrapped};
use isotherm_heat::{Histogram, Interval, STEPS_PER_OCTAVE, Snapshot, TargetHeat};
use isotherm_units::Bytes;
use serde::Serialize;
use std::io::{self, Write};

/// What the histogram report shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistogramOptions {
    /// One histogram for each target, instead of one for all.
    pub per_target: bool,
}

/// One octave of the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// Shortest time in it.
    pub from_ns: u64,
    /// End of it, not included.
    pub to_ns: u64,
    /// Pages in it.
    pub pages: u64,
    /// The same in bytes.
    pub bytes: Bytes,
    /// The bytes if pages on huge pages count as they did before those were made. `None` if none was known, and for idle time.
    pub by_estimate_bytes: Option<Bytes>,
}

/// The histograms of one target, or of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistogramGroup {
    /// Process id; none for all targets together.
    pub pid: Option<u32>,
    /// Command name; empty for all targets together.
    pub comm: String,
    /// Resident memory.
    pub resident_bytes: Bytes,
    /// Part of it without a known interval.
    pub unmeasured_bytes: Bytes,
    /// Part of it that was not checked yet, and counts as checked memory around it.
    pub estimated_bytes: Bytes,
    /// Whether pages that several targets map are counted for each of them, or may be.
    pub approximate: bool,
    /// Memory by access interval.
    pub temperature: Vec<Bin>,
    /// Memory by time since the last access found.
    pub idle: Vec<Bin>,
}

/// The histogram report of one snapshot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistogramReport {
    /// When the snapshot was taken.
    pub end_unix_ns: u64,
    /// The targets by pid, or one group for all.
    pub groups: Vec<HistogramGroup>,
    /// The cost of monitoring.
    pub cost: CostSummary,
}

impl HistogramReport {
    /// Builds the report. Targets that have ended are included only if each target is shown separately.
    pub fn build(snapshot: &Snapshot, options: &HistogramOptions) -> HistogramReport {
        let groups = if options.per_target {
            snapshot.targets.iter().map(|t| HistogramGroup::of(Some(t.id.pid), &t.comm, [t])).collect()
        } else {
            vec![HistogramGroup::of(None, "", snapshot.alive())]
        };
        HistogramReport { end_unix_ns: snapshot.end_unix_ns, groups, cost: CostSummary::of(&snapshot.cost) }
    }

    /// Writes the report as text.
    pub fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        write_wrapped(out, &format!("memory by heat at {} UTC", human::utc(self.end_unix_ns)), style)?;
        for group in &self.groups {
            writeln!(out)?;
            group.write_text(out, style)?;
        }
        writeln!(out)?;
        self.cost.write_text(out, style)
    }
}

impl HistogramGroup {
    fn of<'a>(pid: Option<u32>, comm: &str, targets: impl IntoIterator<Item = &'a TargetHeat>) -> HistogramGroup {
        let (mut temperature, mut idle) = (Histogram::default(), Histogram::default());
        let (mut by_estimate, mut is_estimated) = (Histogram::default(), false);
        let (mut is_shared, mut unchecked) = (false, 0_u64);
        for target in targets {
            unchecked = unchecked.saturating_add(target.estimated().0);
            is_shared |= may_be_shared(target);
            temperature.merge(&target.temperature);
            idle.merge(&target.idle);
            by_estimate.merge(target.by_estimate());
            is_estimated |= target.behind_huge.is_some();
        }
        HistogramGroup {
            pid,
            comm: comm.to_owned(),
            resident_bytes: Bytes::of_pages(temperature.resident()),
            unmeasured_bytes: Bytes::of_pages(temperature.at(Interval::UNMEASURED)),
            estimated_bytes: Bytes(unchecked),
            // Of one process it is what that has mapped.
            approximate: pid.is_none() && is_shared,
            temperature: octaves(&temperature, is_estimated.then_some(&by_estimate)),
            idle: octaves(&idle, None),
        }
    }

    fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        let name = title(self.pid, &self.comm, false);
        let mark = if self.approximate { "~" } else { "" };
        let mut line = format!("{name}: resident {mark}{}, unmeasured {}", self.resident_bytes, self.unmeasured_bytes);
        if self.estimated_bytes.0 > 0 {
            line += &format!(", {mark}{} not checked yet and estimated from memory around it", self.estimated_bytes);
        }
        write_wrapped(out, &line, style)?;
        self.table("INTERVAL", &self.temperature).write(out, style)?;
        self.table("IDLE FOR", &self.idle).write(out, style)
    }

    fn table(&self, head: &'static str, bins: &[Bin]) -> Table {
        let mut columns = Column::numbers(&[(head, 0), ("TO", 2), ("SIZE", 0), ("SHARE %", 1)]);
        let is_estimated = bins.iter().any(|bin| bin.by_estimate_bytes.is_some());
        columns.extend(is_estimated.then_some(Column::number("BY ESTIMATE", 3)));
        let most = bins.iter().map(|b| b.bytes.0).max().unwrap_or(0);
        let row = |bin: &Bin| {
            let (from, to) = (human::duration(bin.from_ns), human::duration(bin.to_ns));
            let percent = human::percent(math::share(bin.bytes.0, self.resident_bytes.0) * 100.0);
            let mut cells = vec![from, to, bin.bytes.to_string(), percent];
            cells.extend(bin.by_estimate_bytes.map(|bytes| bytes.to_string()));
            (cells, math::share(bin.bytes.0, most))
        };
        Table::with_bars(&columns, bins.iter().map(row))
    }
}

/// The octaves from the first to the last that holds pages, including empty ones between them.
fn octaves(histogram: &Histogram, by_estimate: Option<&Histogram>) -> Vec<Bin> {
    let (pages, estimated) = (by_octave(histogram), by_estimate.map(by_octave));
    let is_used = |octave: &usize| pages[*octave] > 0 || estimated.is_some_and(|of| of[*octave] > 0);
    let mut used = (0..OCTAVES).filter(is_used);
    let Some(first) = used.next() else { return Vec::new() };
    (first..=used.next_back().unwrap_or(first))
        .map(|octave| Bin {
            from_ns: 1_000_000 << octave,
            to_ns: 1_000_000 << (octave + 1),
            pages: pages[octave],
            bytes: Bytes::of_pages(pages[octave]),
            by_estimate_bytes: estimated.map(|of| Bytes::of_pages(of[octave])),
        })
        .collect()
}

/// Octaves of the scale.
const OCTAVES: usize = 32;

/// Measured pages.
fn by_octave(histogram: &Histogram) -> [u64; OCTAVES] {
    let mut pages = [0_u64; OCTAVES];
    for (interval, count) in histogram.iter() {
        if let Some(step) = interval.step() {
            pages[usize::from(step / STEPS_PER_OCTAVE)] += count;
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{MIB, MS, region, snapshot, target};
    use isotherm_heat::Region;

    #[test]
    fn what_was_not_checked_is_named() {
        let unchecked = Region { estimated_pages: 512, ..region(0, 8 * MIB, MS) };
        let shot = snapshot(1, vec![target(1, "t", "", vec![], vec![unchecked])]);
        let report = HistogramReport::build(&shot, &HistogramOptions::default());
        let mut text = Vec::new();
        report.write_text(&mut text, TextStyle::default()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("unmeasured 0 B, 2.0 MiB not checked yet and"), "{text}");
        assert_eq!(report.groups[0].estimated_bytes, Bytes(2 * MIB));
    }

    #[test]
    fn octaves_run_from_the_first_used_to_the_last() {
        let mut h = Histogram::default();
        for (ms, pages) in [(16, 1), (31, 2), (64, 4), (u64::MAX / 1_000_000, 8)] {
            h.add(Interval::from_ns(ms * 1_000_000), pages);
        }
        h.add(Interval::UNMEASURED, 100);
        let bins = octaves(&h, None);
        let of = |b: &Bin| (b.from_ns / 1_000_000, b.to_ns / 1_000_000, b.pages);
        // 31 ms lies nearest to the step of 32 ms, so it counts from there.
        assert_eq!([of(&bins[0]), of(&bins[1]), of(&bins[2])], [(16, 32, 1), (32, 64, 2), (64, 128, 4)]);
        assert_eq!(bins.last().map(|b| b.pages), Some(8));
        assert!(octaves(&Histogram::default(), None).is_empty());
        let mut estimated = Histogram::default();
        estimated.add(Interval::from_ns(128_000_000), 15);
        let h: Histogram = vec![(Interval::from_ns(16_000_000).code(), 15)].into();
        let of = |b: &Bin| (b.from_ns / 1_000_000, b.pages, b.by_estimate_bytes.map(Bytes::pages));
        let bins: Vec<_> = octaves(&h, Some(&estimated)).iter().map(of).collect();
        assert_eq!((bins[0], bins[3], bins.len()), ((16, 15, Some(0)), (128, 0, Some(15)), 4));
    }
}
