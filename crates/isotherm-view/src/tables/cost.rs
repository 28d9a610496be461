//! The cost of monitoring, in one line, with a warning if the figures cannot be trusted.

use crate::human;
use crate::math;
use crate::text::{TextStyle, write_wrapped};
use isotherm_heat::Cost;
use serde::Serialize;
use std::io::{self, Write};

/// The cost of monitoring since the monitor started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CostSummary {
    /// Time monitored.
    pub elapsed_ns: u64,
    /// CPU time of the monitor in percent of one core. `None` where no cost is known, as in files of damo: nobody watches for nothing.
    pub monitor_cpu_pct: Option<f64>,
    /// Estimated slow-down of the targets, in percent of one core. `None` as above.
    pub slowdown_pct: Option<f64>,
    /// The longest time for which the memory map of a target was locked. `None` as above.
    pub longest_hold_ns: Option<u64>,
    /// Page-table reads that failed.
    pub read_errors: u64,
    /// Accesses that the kernel reported.
    pub samples: u64,
    /// Reported accesses that were lost.
    pub samples_lost: u64,
}

impl CostSummary {
    /// Summarises a snapshot's cost.
    pub fn of(cost: &Cost) -> CostSummary {
        let is_known = cost.elapsed_ns > 0 && cost.monitor_cpu_ns > 0;
        CostSummary {
            elapsed_ns: cost.elapsed_ns,
            // Not capped: a monitor with several threads may use more than one core.
            monitor_cpu_pct: is_known.then(|| cost.monitor_cpu_ns as f64 / cost.elapsed_ns as f64 * 100.0),
            slowdown_pct: is_known.then_some(cost.slowdown_pct),
            longest_hold_ns: is_known.then_some(cost.longest_hold_ns),
            read_errors: cost.read_errors,
            samples: cost.samples,
            samples_lost: cost.samples_lost,
        }
    }

    /// The summary as a sentence.
    pub fn line(&self) -> String {
        let samples = match (self.samples, self.samples_lost) {
            (0, 0) => String::new(),
            (samples, 0) => format!(", {samples} samples"),
            (samples, lost) => format!(", {samples} samples and {lost} lost"),
        };
        let elapsed = human::duration(self.elapsed_ns);
        let (Some(cpu), Some(slowdown), Some(hold)) = (self.monitor_cpu_pct, self.slowdown_pct, self.longest_hold_ns)
        else {
            return format!("watched for {elapsed}; what that cost was not recorded{samples}");
        };
        format!(
            "cost over {elapsed}: monitor {}% of a core, slow-down {}%, longest hold {}{samples}",
            human::percent(cpu),
            human::percent(slowdown),
            human::duration(hold),
        )
    }

    /// A warning sentence, if there is a reason for one.
    pub fn warning(&self) -> Option<String> {
        let reads = if self.read_errors == 1 { "read" } else { "reads" };
        (self.read_errors > 0)
            .then(|| format!("warning: {} {reads} of page tables failed; these figures are suspect", self.read_errors))
    }

    /// Writes the line and, if there is a reason, the warning.
    pub fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        write_wrapped(out, &self.line(), style)?;
        self.warning().map_or(Ok(()), |warning| write_wrapped(out, &warning, style))
    }
}

/// `part` of `whole` in percent.
pub(super) fn percent_of(part: u64, whole: u64) -> f64 {
    math::share(part, whole) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_one_line_and_errors_are_a_warning() {
        let mut cost = Cost {
            elapsed_ns: 10_000_000_000,
            monitor_cpu_ns: 40_000_000,
            slowdown_pct: 0.12,
            longest_hold_ns: 350_000,
            ..Cost::default()
        };
        let summary = CostSummary::of(&cost);
        let text = "cost over 10 s: monitor 0.40% of a core, slow-down 0.12%, longest hold 350 us";
        assert_eq!((summary.line().as_str(), summary.warning()), (text, None));
        cost.samples = 1234;
        assert!(CostSummary::of(&cost).line().ends_with(", longest hold 350 us, 1234 samples"));
        cost.samples_lost = 5;
        assert!(CostSummary::of(&cost).line().ends_with(", 1234 samples and 5 lost"));
        cost.read_errors = 3;
        assert!(CostSummary::of(&cost).warning().unwrap().starts_with("warning: 3 reads"));
    }

    #[test]
    fn a_cost_that_is_not_known_is_not_told_as_none() {
        let of_damo = CostSummary::of(&Cost { elapsed_ns: 5_000_000_000, ..Cost::default() });
        assert_eq!(of_damo.line(), "watched for 5 s; what that cost was not recorded");
        let none = (None, None, None);
        assert_eq!((of_damo.monitor_cpu_pct, of_damo.slowdown_pct, of_damo.longest_hold_ns), none);
        assert_eq!(CostSummary::of(&Cost::default()).monitor_cpu_pct, None);
    }
}
