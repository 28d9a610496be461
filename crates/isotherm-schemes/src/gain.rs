//! The gain from acting on heat, before and after: heat on huge pages, resident memory, TLB misses, CPU for each unit
//! of work.
//!
//! This is only arithmetic. The caller takes the readings: the binary reads `/proc`, counts TLB misses and runs the
//! user's command.

use isotherm_heat::Ns;
use isotherm_units::Bytes;
use serde::{Deserialize, Serialize};

/// Amounts and rates over all measured processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Resident memory.
    pub rss: Bytes,
    /// dTLB misses per second; `None` if they are not counted.
    pub misses_per_s: Option<f64>,
    /// CPU time for each unit of work; `None` if no work was done or there is no command.
    pub cpu_us_per_unit: Option<f64>,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// When it was taken, on the monotonic clock.
    pub at: Ns,
    /// Resident memory of all processes.
    pub rss: Bytes,
    /// Their CPU time so far, in clock ticks of `/proc/PID/stat`.
    pub cpu_ticks: u64,
    /// Their dTLB misses so far, if they are counted.
    pub misses: Option<u64>,
    /// Units of work so far, if there is a command that prints them.
    pub work: Option<f64>,
}

/// Clock ticks in `/proc/PID/stat` are 100 per second on every Linux.
const TICK_US: f64 = 10_000.0;

impl Measured {
    /// Rates between two readings, and amounts at the second.
    pub fn between(begin: &Reading, end: &Reading) -> Measured {
        let seconds = end.at.saturating_sub(begin.at) as f64 / 1e9;
        let misses =
            end.misses.zip(begin.misses).filter(|_| seconds > 0.1).map(|(e, b)| e.saturating_sub(b) as f64 / seconds);
        let units = end.work.zip(begin.work).map(|(e, b)| e - b).filter(|units| *units > 0.0);
        // Less than before is not known, not nothing.
        let cpu_us = end.cpu_ticks.checked_sub(begin.cpu_ticks).map(|ticks| ticks as f64 * TICK_US);
        Measured {
            rss: end.rss,
            misses_per_s: misses,
            cpu_us_per_unit: units.zip(cpu_us).map(|(units, us)| us / units),
        }
    }
}

/// Before and after, as in reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Share of the heat that was on huge pages at first.
    pub heat_on_huge_before: Option<f64>,
    /// The same at the end.
    pub heat_on_huge_after: Option<f64>,
    /// Resident memory at first.
    pub rss_bytes_before: Option<u64>,
    /// Resident memory at the end.
    pub rss_bytes_after: Option<u64>,
    /// dTLB misses per second at first.
    pub dtlb_misses_per_s_before: Option<f64>,
    /// dTLB misses per second at the end.
    pub dtlb_misses_per_s_after: Option<f64>,
    /// Why TLB misses are not counted.
    pub dtlb_note: Option<String>,
    /// CPU time for each unit of work at first.
    pub cpu_us_per_unit_before: Option<f64>,
    /// CPU time for each unit of work at the end.
    pub cpu_us_per_unit_after: Option<f64>,
}

impl Gain {
    /// From shares of heat and, except in a dry run, measurements.
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
        let less = Reading { cpu_ticks: 20, ..end };
        assert_eq!(Measured::between(&begin, &less).cpu_us_per_unit, None, "less than before is not known");
    }
}
