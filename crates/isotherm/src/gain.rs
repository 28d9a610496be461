//! What collapsing has gained: heat on huge pages, resident memory, TLB misses, CPU for each unit of work; before and after.

use crate::stop::Stop;
use crate::work;
use anyhow::Result;
use isotherm_host::tlb::DtlbCounter;
use isotherm_sys::clock;
use isotherm_sys::proc::Proc;
use isotherm_units::Bytes;
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;

/// Measures processes that were named once.
pub struct Probe {
    pids: Vec<u32>,
    proc: Proc,
    work: Option<String>,
    misses: Vec<DtlbCounter>,
    misses_note: Option<String>,
}

/// Sums over all processes of a [`Probe`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    rss: Bytes,
    misses_per_s: Option<f64>,
    cpu_us_per_unit: Option<f64>,
}

impl Probe {
    /// Counts from now on. `work` is a shell command that prints how much was done so far.
    pub fn start(pids: impl Iterator<Item = u32>, work: Option<&str>) -> Probe {
        let pids: Vec<u32> = pids.collect();
        let (mut misses, mut misses_note) = (Vec::new(), None);
        for pid in &pids {
            match DtlbCounter::open(*pid) {
                Ok(counter) => misses.push(counter),
                Err(error) => misses_note = Some(error.to_string()),
            }
        }
        Probe { pids, proc: Proc::default(), work: work.map(str::to_owned), misses, misses_note }
    }

    /// Whether TLB misses can be counted.
    pub fn counts_misses(&self) -> bool {
        !self.misses.is_empty()
    }

    /// Why they cannot.
    pub fn misses_note(&self) -> Option<String> {
        self.misses_note.clone()
    }

    /// Amounts now, and rates over `time`, for which this waits unless it is stopped.
    pub fn measure(&self, time: Duration, stop: &Stop) -> Result<Measured> {
        let begin = self.reading(|| stop.is_set())?;
        stop.sleep(time);
        let end = self.reading(|| stop.is_set())?;
        Ok(Measured::between(&begin, &end))
    }

    /// Counters now, without work done if `is_over` before its command has ended.
    pub fn reading(&self, is_over: impl Fn() -> bool) -> Result<Reading> {
        let mut reading = Reading { at: clock::monotonic_ns(), ..Reading::default() };
        for pid in &self.pids {
            reading.rss.0 += self.proc.status(*pid).ok().and_then(|s| s.rss).unwrap_or_default().0;
            reading.cpu_ticks += self.proc.stat(*pid).map_or(0, |s| s.utime + s.stime);
        }
        if self.counts_misses() {
            reading.misses = Some(self.misses.iter().filter_map(|c| c.read().ok()?.events()).sum());
        }
        if let Some(command) = &self.work {
            reading.work = work::units(command, work::LONGEST, is_over)?;
        }
        Ok(reading)
    }
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    at: u64,
    rss: Bytes,
    cpu_ticks: u64,
    misses: Option<u64>,
    work: Option<f64>,
}

/// Clock ticks a second in `/proc/PID/stat`: 100 on every Linux.
const TICK_US: f64 = 10_000.0;

impl Measured {
    /// Rates between two readings, amounts at the second.
    pub fn between(begin: &Reading, end: &Reading) -> Measured {
        let seconds = end.at.saturating_sub(begin.at) as f64 / 1e9;
        let misses =
            end.misses.zip(begin.misses).filter(|_| seconds > 0.1).map(|(e, b)| e.saturating_sub(b) as f64 / seconds);
        let units = end.work.zip(begin.work).map(|(e, b)| e - b).filter(|units| *units > 0.0);
        let cpu_us = end.cpu_ticks.saturating_sub(begin.cpu_ticks) as f64 * TICK_US;
        Measured { rss: end.rss, misses_per_s: misses, cpu_us_per_unit: units.map(|units| cpu_us / units) }
    }
}

/// Before and after.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Gain {
    pub heat_on_huge_before: Option<f64>,
    pub heat_on_huge_after: Option<f64>,
    pub rss_bytes_before: Option<u64>,
    pub rss_bytes_after: Option<u64>,
    pub dtlb_misses_per_s_before: Option<f64>,
    pub dtlb_misses_per_s_after: Option<f64>,
    /// Why TLB misses are not told.
    pub dtlb_note: Option<String>,
    pub cpu_us_per_unit_before: Option<f64>,
    pub cpu_us_per_unit_after: Option<f64>,
}

impl Gain {
    /// From shares of heat and, but for a dry run, what was measured.
    pub fn between(
        (before, after): (Option<f64>, Option<f64>),
        measured: Option<(Measured, Measured)>,
        dtlb_note: Option<String>,
    ) -> Gain {
        let mut gain = Gain { heat_on_huge_before: before, heat_on_huge_after: after, dtlb_note, ..Gain::default() };
        if let Some((before, after)) = measured {
            gain.rss_bytes_before = Some(before.rss.0);
            gain.rss_bytes_after = Some(after.rss.0);
            gain.dtlb_misses_per_s_before = before.misses_per_s;
            gain.dtlb_misses_per_s_after = after.misses_per_s;
            gain.cpu_us_per_unit_before = before.cpu_us_per_unit;
            gain.cpu_us_per_unit_after = after.cpu_us_per_unit;
        }
        gain
    }

    /// A few lines for people.
    pub fn tell(&self, out: &mut dyn Write) -> io::Result<()> {
        let share = |s: Option<f64>| s.map_or("unknown".to_owned(), |s| format!("{:.1}%", s * 100.0));
        writeln!(out, "heat on huge pages: {} -> {}", share(self.heat_on_huge_before), share(self.heat_on_huge_after))?;
        if let (Some(before), Some(after)) = (self.rss_bytes_before, self.rss_bytes_after) {
            writeln!(out, "resident memory: {} -> {}", Bytes(before), Bytes(after))?;
        }
        match (self.dtlb_misses_per_s_before, self.dtlb_misses_per_s_after, &self.dtlb_note) {
            (Some(before), Some(after), _) => {
                writeln!(out, "dTLB misses: {:.3} M/s -> {:.3} M/s", before / 1e6, after / 1e6)?;
            }
            (_, _, Some(note)) => writeln!(out, "dTLB misses: not measured: {note}")?,
            _ => {}
        }
        if let (Some(before), Some(after)) = (self.cpu_us_per_unit_before, self.cpu_us_per_unit_after) {
            writeln!(
                out,
                "CPU for each unit of work: {before:.3} us -> {after:.3} us ({:+.1}%)",
                100.0 * (after / before - 1.0)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_the_time_between() {
        let begin = Reading { at: 1_000_000_000, rss: Bytes(100), cpu_ticks: 50, misses: Some(10), work: Some(1000.0) };
        let end = Reading { at: 3_000_000_000, rss: Bytes(120), cpu_ticks: 250, misses: Some(30), work: Some(3000.0) };
        let measured = Measured::between(&begin, &end);
        assert_eq!(measured, Measured { rss: Bytes(120), misses_per_s: Some(10.0), cpu_us_per_unit: Some(1000.0) });
        assert_eq!(Measured::between(&end, &end).cpu_us_per_unit, None, "nothing was done");
    }
}
