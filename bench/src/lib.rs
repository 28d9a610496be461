//! The common parts of the benchmark programs: workloads as children, medians, the RESULT line, and results stored with
//! a description of their machine.
//!
//! Each program alternates between what it measures and what that is compared with, in one run. It ends with one line
//! `RESULT key=value ...`, with only numbers and with units in the keys. Development machines are shared and noisy:
//! ratios and medians are worth quoting, single times are not.

#![deny(unsafe_code)]

pub mod adaptive;
pub mod collapsing;
pub mod cpu;
pub mod daemon;
pub mod first;
pub mod memory;
pub mod neighbours;
mod options;
#[allow(unsafe_code, reason = "system calls that no library here wraps")]
pub mod own_thread;
pub mod page;
pub mod program;
pub mod reading;
pub mod regions;
pub mod serving;
pub mod turns;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_heat::{Beside, Clock, Ns};
use isotherm_host::{HostFacts, HostRoots};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sources::RealClock;
use isotherm_sources::choose::{self, Wanted};
use isotherm_sys::{free, proc::Proc};
use isotherm_units::{AddrRange, PAGE_SIZE};
use isotherm_workload::{Child, Keys, Layout, Pattern, Reuse, Server, Store};
use options::Options;
pub use options::take_no_options;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Memory left to the machine.
const ROOM: u64 = 3 << 30;
const WORKLOAD: &str = "--workload";

/// Runs as a workload and exits, if this process was started as one, as a neighbour of one, as one that measures itself, or as a monitor whose
/// memory is measured. Has to be the first thing a program does. In a program that measures, refuses options that nothing reads.
pub fn become_workload() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let role = args.next();
    if role.as_deref() == Some(memory::MONITOR) {
        memory::run(args)?;
        std::process::exit(0);
    }
    if role.as_deref() == Some(neighbours::NEIGHBOUR) {
        neighbours::be(args.next().as_deref());
    }
    if role.as_deref() == Some(serving::target::TARGET) {
        serving::target::run(args)?;
        std::process::exit(0);
    }
    if role.as_deref() == Some(WORKLOAD) {
        let json = args.next().context("no pattern")?;
        isotherm_workload::run_json(&json)?;
        std::process::exit(0);
    }
    Options::parse();
    Ok(())
}

/// Fails outside of a guest of the lab: `name` does what no real machine should have done to it.
pub fn need_lab(name: &str, does: &str) -> Result<()> {
    let is_lab = std::env::var("ISOTHERM_LAB").as_deref() == Ok("1");
    ensure!(is_lab, "this {does}, and is for a guest of the lab: make {name}");
    Ok(())
}

/// The text after `--only`, which the names of workloads have to contain; empty without that option.
pub fn only() -> String {
    Options::parse().only
}

/// Starts this program again as a workload: a [`Pattern`], or an [`isotherm_workload::Index`].
pub fn start(workload: &impl Serialize) -> Result<Child> {
    Ok(Child::start(workload_command(WORKLOAD)?, workload)?)
}

/// Starts this program again as a store.
pub fn start_server(store: &Store) -> Result<Server> {
    Ok(Server::start(workload_command(WORKLOAD)?, store)?)
}

/// This program, in a role of [`become_workload`].
fn workload_command(role: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(role);
    Ok(command)
}

/// A store of which 18% of the keys are asked for, a sixth of its pages and what is free of them; the hottest key wanders, and half of the
/// operations move their item. One thread, `per_s` operations a second.
pub fn store_with_cold_keys(pages: usize, per_s: Option<f64>, seed: u64) -> Store {
    Store {
        pages,
        keys: Keys::Normal { deviation: 0.03 },
        centre: 0.6,
        drift_per_s: 0.000_001,
        sets: 0.5,
        reuse: Reuse::Oldest,
        asked: 0.18,
        per_s,
        threads: 1,
        work: 300,
        small_pages: true,
        counts: PathBuf::new(),
        seed,
    }
}

/// A heap of which almost nothing is in use.
pub fn idle_heap(pages: usize, seed: u64) -> Pattern {
    Pattern {
        pages,
        hot_pages: 16,
        layout: Layout::Span,
        interval_ns: 1_000_000_000,
        huge: false,
        shared: None,
        faults: false,
        seed,
    }
}

/// A workload of `mib` MiB that touches all its pages as fast as possible.
pub fn busy(mib: usize, huge: bool) -> Pattern {
    Pattern {
        pages: mib * 256,
        hot_pages: mib * 256,
        layout: Layout::Span,
        interval_ns: 0,
        huge,
        shared: None,
        faults: false,
        seed: 42,
    }
}

/// The real clock, without the CPU time of scoring, which is not part of the monitor. Clones share it.
pub type BenchClock = Beside<RealClock>;

/// Runs `what` in a thread of its own, so that the CPU time counted is only that of its monitor.
pub fn in_own_thread<T: Send>(what: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| scope.spawn(what).join().expect("no panic"))
}

/// A monitor of processes by their page tables. The CPU time of its thread so far is charged to it, opening the source
/// included.
pub fn monitor_of<C: Clock>(pids: Vec<u32>, clock: C, settings: Settings) -> Result<Monitor<C>> {
    let source = choose::open(Wanted::PageTable)?;
    let follower = Follower::new(&Selection::Pids { pids, children: false }, Proc::default())?;
    Ok(Monitor::new(source, follower, clock, settings))
}

/// Pages of `span` in process `pid` whose interval is known and such. O(pages of the span): not for free beside the monitor.
pub fn known_pages<C: Clock>(monitor: &Monitor<C>, pid: u32, span: AddrRange, is_such: impl Fn(Ns) -> bool) -> u64 {
    let mut pages = 0;
    let Some(target) = monitor.pages_of(pid) else { return 0 };
    target.for_pmds_in(span.start.pmd()..span.end.pmd(), monitor.now(), |_, view| {
        let such = view.runs.iter().filter(|run| run.interval.ns().is_some_and(&is_such));
        pages += such.map(|run| u64::from(run.pages)).sum::<u64>();
    });
    pages
}

/// `most` pages, or as many as the machine can spare.
pub fn pages_that_fit(most: usize) -> Result<usize> {
    let free = free::available(Path::new("/proc")).context("read /proc/meminfo: no MemAvailable in it")?.available;
    Ok(most.min(usize::try_from(free.0.saturating_sub(ROOM) / PAGE_SIZE)?))
}

/// The number after `--trials`, or `usual`.
pub fn trials(usual: usize) -> usize {
    Options::parse().trials.unwrap_or(usual)
}

/// Whether `--full` was given: large cases too.
pub fn full() -> bool {
    Options::parse().full
}

/// The median; NaN if there are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Median, minimum and maximum, for tables.
pub fn spread(values: &[f64]) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.2} ({low:.2} to {high:.2})", median(values))
}

/// Lines that are printed at once and stored with the result.
#[derive(Debug)]
pub struct Log {
    name: &'static str,
    text: String,
    keys: Vec<(&'static str, f64)>,
}

impl Log {
    /// Starts with a description of the machine.
    pub fn new(name: &'static str) -> Log {
        let host = HostFacts::read(&HostRoots::default(), isotherm_units::PAGE_SIZE);
        let mut log = Log { name, text: String::new(), keys: Vec::new() };
        log.line(format!("command: make {name}"));
        log.line(format!(
            "machine: {} x {}, {}, Linux {}",
            host.cpus.unwrap_or_default(),
            host.cpu_model.unwrap_or_default(),
            host.memory.unwrap_or_default(),
            host.kernel.map(|k| k.text).unwrap_or_default()
        ));
        log
    }

    /// Prints and stores a line.
    pub fn line(&mut self, text: impl AsRef<str>) {
        println!("{}", text.as_ref());
        let _ = writeln!(self.text, "{}", text.as_ref());
    }

    /// Adds a figure to the RESULT line.
    pub fn result(&mut self, key: &'static str, value: f64) {
        self.keys.push((key, value));
    }

    /// Prints the RESULT line and writes everything to `bench/results/<date>/<name>.txt`. A run of some workloads only
    /// ([`only`]) is not written: it would replace the figures of all.
    pub fn finish(self) -> Result<()> {
        self.finish_in(Path::new("bench"), &only())
    }

    /// Prints the RESULT line of a run that lacks figures, for which something is not installed. It is not written: it would replace a whole one.
    pub fn finish_incomplete(self) -> Result<()> {
        self.finish_in(Path::new("bench"), "what is installed")
    }

    fn finish_in(mut self, bench: &Path, only: &str) -> Result<()> {
        let pairs: Vec<String> = self.keys.iter().map(|(k, v)| format!("{k}={v:.4}")).collect();
        self.line(format!("RESULT {}", pairs.join(" ")));
        if bench.is_dir() && only.is_empty() { self.store(bench) } else { Ok(()) }
    }

    /// Writes the lines so far below the folder `bench`.
    fn store(&self, bench: &Path) -> Result<()> {
        let dir = bench.join("results").join(today());
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let path = dir.join(format!("{}.txt", self.name));
        fs::write(&path, &self.text).with_context(|| format!("write {}", path.display()))
    }
}

/// The date in UTC, as in 2026-11-20.
fn today() -> String {
    let stamp = isotherm_sys::clock::unix_ns() / 1_000_000_000 / 86_400;
    // Days since 1970 to a date: Howard Hinnant's algorithm for the proleptic Gregorian calendar.
    let z = stamp + 719_468;
    let era = z / 146_097;
    let doe = z - era * 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Resident memory of this process in bytes.
pub fn own_rss() -> Result<u64> {
    let status = isotherm_sys::proc::Proc::default().status(std::process::id())?;
    Ok(status.rss.unwrap_or_default().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_run_of_some_workloads_leaves_the_results_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let log = |value| Log { name: "bench-x", text: "a table\n".to_owned(), keys: vec![("key", value)] };
        log(1.0).finish_in(dir.path(), "").unwrap();
        log(2.0).finish_in(dir.path(), "one span").unwrap();
        let stored = dir.path().join("results").join(today()).join("bench-x.txt");
        assert_eq!(fs::read_to_string(stored).unwrap(), "a table\nRESULT key=1.0000\n");
        log(3.0).finish_in(&dir.path().join("elsewhere"), "").unwrap();
        assert!(!dir.path().join("elsewhere").exists(), "outside of the repository nothing is written");
    }

    #[test]
    fn today_has_the_form_of_a_date() {
        let date = today();
        assert!(date.len() == 10 && date.starts_with("20") && date.as_bytes()[4] == b'-', "{date}");
    }
}
