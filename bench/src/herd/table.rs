//! Runs the rows under several seeds, prints medians, and computes the figures of RESULT.

use super::rows::{self, Row, Which};
use anyhow::{Context, Result};
use isotherm_bench::{Log, median};
use isotherm_frames::housekeep::Interval;
use isotherm_sim::cpus::{Extent, Holds, Outcome};
use std::io::{IsTerminal, Write};
use std::ops::Range;

/// CPUs of the modelled machines.
pub const SIZES: [u32; 5] = [8, 72, 192, 512, 1024];
/// CPUs of the proposal, and of RESULT.
pub const PROPOSAL_CPUS: u32 = 72;

/// Hold times of the lock.
#[derive(Debug)]
pub struct Setting {
    pub name: String,
    pub holds: Holds,
    /// Whether RESULT uses this setting.
    pub is_result: bool,
}

/// A row and its outcome under each seed.
struct Ran {
    row: Row,
    outcomes: Vec<Outcome>,
}

impl Ran {
    fn medians(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        median(&self.outcomes.iter().map(of).collect::<Vec<_>>())
    }

    fn extent(&self, of: impl Fn(&Outcome) -> f64) -> (f64, f64) {
        let values = || self.outcomes.iter().map(&of);
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    }

    /// The sum over all seeds.
    fn sum(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        self.outcomes.iter().map(of).sum()
    }

    fn line(&self) -> String {
        let contended = self.medians(contended);
        let (least, most) = self.extent(self::contended);
        let foreground = self.medians(|outcome| outcome.foreground.contended as f64);
        let total_ms = self.medians(wait_ms);
        let mean_us = self.medians(|outcome| outcome.all().mean_wait_ns() / 1e3);
        let max_us = self.medians(|outcome| outcome.all().max_wait_ns as f64 / 1e3);
        let max_holds = self.medians(Outcome::max_wait_holds);
        let defers = self.medians(|outcome| outcome.defers as f64);
        let due = self.longest_s(|outcome| outcome.due_intervals);
        let start = self.longest_s(|outcome| outcome.start_intervals);
        let range = format!("({least:.0} to {most:.0})");
        format!(
            "{:<28} {contended:>8.0} {range:<19} {foreground:>6.0} {total_ms:>11.3} {mean_us:>9.2} {max_us:>9.1} {max_holds:>7.1} \
             {defers:>7.0} {due:>7} {start:>7}",
            self.row.name
        )
    }

    /// The longest over all CPUs and seeds.
    fn longest_s(&self, of: impl Fn(&Outcome) -> Option<Extent>) -> String {
        match self.outcomes.iter().filter_map(of).map(|extent| extent.longest_ns).max() {
            Some(ns) if self.row.which != Which::Floor => format!("{:.4}", ns as f64 / 1e9),
            _ => "-".to_owned(),
        }
    }
}

fn contended(outcome: &Outcome) -> f64 {
    outcome.all().contended as f64
}

fn wait_ms(outcome: &Outcome) -> f64 {
    outcome.all().wait_ns as f64 / 1e6
}

/// All sizes in one setting.
pub fn print(log: &mut Log, setting: &Setting, seeds: &Range<u64>) -> Result<()> {
    for cpus in SIZES {
        log.line(format!("\n{cpus} CPUs, one node; {}", setting.name));
        log.line(format!(
            "{:<28} {:>8} {:<19} {:>6} {:>11} {:>9} {:>9} {:>7} {:>7} {:>7} {:>7}",
            "",
            "waited",
            "(least to most)",
            "of fg",
            "total ms",
            "mean us",
            "max us",
            "holds",
            "defers",
            "due s",
            "start s"
        ));
        let ran = run(cpus, setting, seeds)?;
        ran.iter().for_each(|ran| log.line(ran.line()));
        if cpus == PROPOSAL_CPUS {
            tell(log, setting, &ran)?;
        }
    }
    Ok(())
}

fn run(cpus: u32, setting: &Setting, seeds: &Range<u64>) -> Result<Vec<Ran>> {
    let mut ran = Vec::new();
    for row in rows::all(cpus) {
        progress(&format!("{cpus} CPUs, {}: {}", setting.name, row.name));
        let outcomes: Result<Vec<Outcome>, _> =
            seeds.clone().map(|seed| row.model.run(row.schedule, &setting.holds, seed)).collect();
        ran.push(Ran { outcomes: outcomes.with_context(|| row.name)?, row });
    }
    progress("");
    Ok(ran)
}

/// A line that the next one overwrites.
fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // An error does not matter: the terminal may be gone.
        let _ = write!(stderr, "\r\x1b[K{text}");
    }
}

/// The figures of RESULT, and the same figures for the other settings.
fn tell(log: &mut Log, setting: &Setting, ran: &[Ran]) -> Result<()> {
    let of = |which| ran.iter().find(|ran| ran.row.which == which).context("a row of each kind");
    let (kernel, kernel50) = (of(Which::Kernel20)?, of(Which::Kernel50)?);
    let (ours, ours50, offline) = (of(Which::Ours)?, of(Which::Ours50)?, of(Which::OursOddOffline)?);
    let floor = of(Which::Floor)?;
    let ratio = |over: &Ran, under: &Ran, of: fn(&Outcome) -> f64| over.sum(of) / under.sum(of);
    let errors = [ours, ours50, offline].into_iter().flat_map(|ran| &ran.outcomes);
    let errors = errors.filter_map(|outcome| outcome.due_intervals);
    let worst = errors.map(|extent| extent.worst_error(Interval::SECOND.ns()) * 100.0).fold(f64::NAN, f64::max);
    let figures = [
        ("contentions_ratio_72", ratio(kernel, ours, contended)),
        ("total_wait_ratio_72", ratio(kernel, ours, wait_ms)),
        ("max_wait_holds_72", ours.medians(Outcome::max_wait_holds)),
        ("interval_error_pct", worst),
        ("offline_contentions_ratio", ratio(offline, ours, contended)),
        ("floor_ratio", ratio(ours, floor, contended)),
        ("shepherd50_ratio", ratio(kernel50, ours50, contended)),
    ];
    let text: Vec<String> = figures.iter().map(|(key, value)| format!("{key} {value:.2}")).collect();
    log.line(format!("figures: {}", text.join(", ")));
    if setting.is_result {
        figures.into_iter().for_each(|(key, value)| log.result(key, value));
    }
    Ok(())
}
