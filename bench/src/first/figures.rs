//! The figures of all trials, and the RESULT line in a fixed order.

use crate::{Log, median, spread};
use std::collections::BTreeMap;

/// The keys, in the order of the RESULT line: ours, then those of the peers.
const KEYS: [&str; 31] = [
    "good_s_14g_one",
    "good_s_14g_eight",
    "exact_s_4g",
    "exact_s_14g",
    "new_hot_s_4g",
    "new_hot_s_14g",
    "gone_cold_s",
    WORST_PRECISION,
    "small_spans_precision",
    "small_spans_recall",
    "cpu_ms_until_good",
    "bytes_per_page",
    "bytes_per_page_idle",
    "read_ns_per_page",
    "copy_ns_per_page",
    "read_over_copy",
    "clear_ns_per_page",
    "exact_over_clear_14g",
    "adaptive_good_s_14g_one",
    "adaptive_good_s_14g_eight",
    "adaptive_new_hot_s_14g",
    "adaptive_cpu_ms_until_good",
    "adaptive_tuned_good_s_14g_one",
    "adaptive_tuned_good_s_14g_eight",
    "adaptive_tuned_new_hot_s_14g",
    "adaptive_tuned_cpu_ms_until_good",
    "clear_refs_good_s_14g_one",
    "clear_refs_good_s_14g_eight",
    "clear_refs_new_hot_s_14g",
    "clear_refs_cpu_ms_until_good",
    "clear_refs_longest_stall_ms",
];
/// Its result is the worst of all trials, not the median.
const WORST_PRECISION: &str = "worst_precision_any_snapshot";

/// Values by key and by the case that they are of, one for each trial.
#[derive(Debug, Default)]
pub struct Figures(BTreeMap<&'static str, BTreeMap<&'static str, Vec<f64>>>);

impl Figures {
    /// Adds what a trial of `case` has measured. `key` is one of the RESULT line.
    pub fn add(&mut self, key: &'static str, case: &'static str, value: f64) {
        assert!(KEYS.contains(&key), "{key} has no place in the RESULT line");
        self.0.entry(key).or_default().entry(case).or_default().push(value);
    }

    /// Prints the spread of each figure over the trials, and passes its median to the RESULT line: of a figure of several cases,
    /// the greatest median. What was not measured is in neither.
    pub fn log(&self, log: &mut Log) {
        log.line(format!("\n{:<32} {:<22} median (least to most) of the trials", "figure", "case"));
        for (key, cases) in self.measured() {
            for (case, values) in cases {
                log.line(format!("{key:<32} {case:<22} {}", spread(values)));
            }
            log.result(key, result(key, cases));
        }
    }

    fn measured(&self) -> impl Iterator<Item = (&'static str, &BTreeMap<&'static str, Vec<f64>>)> {
        KEYS.into_iter().filter_map(|key| Some((key, self.0.get(key)?)))
    }
}

fn result(key: &str, cases: &BTreeMap<&'static str, Vec<f64>>) -> f64 {
    if key == WORST_PRECISION {
        return cases.values().flatten().copied().fold(1.0, f64::min);
    }
    cases.values().map(|values| median(values)).fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_medians_or_the_worst() {
        let mut figures = Figures::default();
        for (key, case, value) in [
            ("cpu_ms_until_good", "eight spans", 3.0),
            ("cpu_ms_until_good", "one span", 9.0),
            ("cpu_ms_until_good", "one span", 1.0),
            ("cpu_ms_until_good", "one span", 4.0),
            (WORST_PRECISION, "one span", 0.98),
            (WORST_PRECISION, "one span", 0.97),
            (WORST_PRECISION, "eight spans", 0.99),
            ("exact_s_4g", "one span", 2.0),
        ] {
            figures.add(key, case, value);
        }
        let results: Vec<_> = figures.measured().map(|(key, cases)| (key, result(key, cases))).collect();
        assert_eq!(results, [("exact_s_4g", 2.0), (WORST_PRECISION, 0.97), ("cpu_ms_until_good", 4.0)]);
    }

    #[test]
    #[should_panic(expected = "has no place in the RESULT line")]
    fn an_unknown_key_is_refused() {
        Figures::default().add("good_s_14g_two", "one span", 1.0);
    }
}
