//! The results of the batches, and their tables.

use super::shape::{Sample, Shape};
use isotherm_bench::{Log, median, spread};
use std::collections::BTreeMap;

/// What is timed: a shape, and one of its parts.
pub type Measure = (Shape, usize);

/// A figure with fewer undisturbed values than this gets a star.
const ENOUGH: usize = 7;

/// Values. Those of batches in which a thread was preempted are stored separately.
#[derive(Debug, Default)]
struct Values {
    clean: Vec<f64>,
    all: Vec<f64>,
}

impl Values {
    fn push(&mut self, value: f64, disturbed: bool) {
        self.all.push(value);
        if !disturbed {
            self.clean.push(value);
        }
    }

    fn are_enough(&self) -> bool {
        self.clean.len() >= ENOUGH
    }

    /// The undisturbed values; all values if there are none.
    fn get(&self) -> &[f64] {
        if self.clean.is_empty() { &self.all } else { &self.clean }
    }

    fn median(&self) -> f64 {
        median(self.get())
    }
}

/// Figures of an allocator in a measure: one per batch or per thread of it; ns per operation.
#[derive(Debug, Default)]
struct Figures {
    wall: Values,
    cpu: Values,
}

#[derive(Debug, Default)]
struct Entry {
    alone: Figures,
    together: Figures,
    /// For each round: the time of a thread among several, divided by that of one alone.
    ratios: Values,
}

/// All measurements.
#[derive(Debug, Default)]
pub struct Tables(BTreeMap<Measure, Vec<(&'static str, Entry)>>);

impl Tables {
    /// Adds the result of a round for an allocator in a shape: the sample of one thread, and those of threads together
    /// (none if there is only one CPU).
    pub fn add(&mut self, name: &'static str, shape: Shape, alone: &Sample, together: &[Sample]) {
        for part in 0..shape.parts().len() {
            let rows = self.0.entry((shape, part)).or_default();
            let place = rows.iter().position(|(n, _)| *n == name).unwrap_or_else(|| {
                rows.push((name, Entry::default()));
                rows.len() - 1
            });
            rows[place].1.add(part, alone, together);
        }
    }

    fn entry(&self, name: &str, measure: Measure) -> Option<&Entry> {
        self.0.get(&measure)?.iter().find(|(n, _)| *n == name).map(|(_, entry)| entry)
    }

    /// Nanoseconds per operation with one thread, the median.
    pub fn ns(&self, name: &str, measure: Measure) -> Option<f64> {
        Some(self.entry(name, measure)?.alone.wall.median())
    }

    /// How many times as long it took with more threads, the median.
    pub fn ratio(&self, name: &str, measure: Measure) -> Option<f64> {
        let ratios = &self.entry(name, measure)?.ratios;
        (!ratios.all.is_empty()).then(|| ratios.median())
    }

    /// Adds the figure to the RESULT line, if it was measured.
    pub fn result(&self, log: &mut Log, key: &'static str, name: &str, measure: Measure) {
        if let Some(ns) = self.ns(name, measure) {
            log.result(key, ns);
        }
    }

    /// Prints a table for each measure.
    pub fn print(&self, log: &mut Log) {
        for ((shape, part), rows) in &self.0 {
            let title = shape.parts()[*part];
            log.line(format!(
                "\n{title:<48} {:<17} {:>7}   {:<30} {:>7} {:>6}",
                "one thread", "CPU", "two threads", "CPU", "ratio"
            ));
            rows.iter().for_each(|(name, entry)| log.line(entry.line(name)));
        }
    }
}

impl Entry {
    fn add(&mut self, part: usize, alone: &Sample, together: &[Sample]) {
        self.alone.add(part, alone, alone.disturbed);
        let disturbed = together.iter().any(|sample| sample.disturbed);
        together.iter().for_each(|sample| self.together.add(part, sample, disturbed));
        if !together.is_empty() {
            let mean = together.iter().map(|sample| sample.costs[part].wall()).sum::<f64>() / together.len() as f64;
            self.ratios.push(mean / alone.costs[part].wall(), disturbed || alone.disturbed);
        }
    }

    fn line(&self, name: &str) -> String {
        let one = format!("{name:<26} {}", self.alone.columns(38));
        if self.ratios.all.is_empty() {
            return one;
        }
        let mark = if self.ratios.are_enough() { "" } else { " *" };
        format!("{one}   {} {:>6.2}{mark}", self.together.columns(30), self.ratios.median())
    }
}

impl Figures {
    fn add(&mut self, part: usize, sample: &Sample, disturbed: bool) {
        self.wall.push(sample.costs[part].wall(), disturbed);
        self.cpu.push(sample.costs[part].cpu(), disturbed);
    }

    fn columns(&self, width: usize) -> String {
        let mark = if self.wall.are_enough() { ' ' } else { '*' };
        format!("{:<width$}{mark}{:>7.2}", spread(self.wall.get()), self.cpu.median())
    }
}

#[cfg(test)]
mod tests {
    use super::Values;

    #[test]
    fn disturbed_values_count_only_while_there_are_no_others() {
        let mut values = Values::default();
        values.push(90.0, true);
        assert_eq!((values.median(), values.are_enough()), (90.0, false));
        (1..=6).for_each(|n| values.push(f64::from(n), false));
        assert_eq!((values.median(), values.are_enough()), (3.5, false));
        values.push(80.0, true);
        values.push(7.0, false);
        assert_eq!((values.median(), values.are_enough()), (4.0, true));
    }
}
