//! The kernel's housekeeping of per-CPU page sets: when it runs on each CPU, how many at once, and who waits for zone locks.
//!
//! Filled by `isotherm herd` with what it saw ([`Observed`]); here it is worked out ([`HerdReport::of`]) and shown, as text or as data.
//! No clock and nothing read: the same observation gives the same report. [`phases`] has what is said of one CPU and of CPUs
//! together, [`callers`] what a stack is called, [`verdict`] the threshold and its arguments, [`text`] the picture and the tables.

mod callers;
mod phases;
#[cfg(test)]
mod tests;
mod text;
mod verdict;

pub use callers::{CallerRow, ZoneRow};
pub use phases::{CpuPhase, Mark, Schedule, Spacing, Together};
use serde::Serialize;
pub use verdict::{Verdict, VerdictKind};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Why a run was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Not seen.
    Unknown,
    /// By its CPU's own timer.
    Timer,
    /// By the shepherd: a kick.
    Shepherd,
}

/// One run of `vmstat_update`. Times in nanoseconds of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where.
    pub cpu: u32,
    /// From.
    pub start_ns: u64,
    /// Until.
    pub end_ns: u64,
    /// The kernel's count of ticks at the start.
    pub jiffies: u64,
    /// Why.
    pub cause: Cause,
}

/// Waits for one zone's lock from one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The zone's node.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// Functions on the stack, innermost first.
    pub functions: Vec<String>,
    /// In `vmstat_update`.
    pub updating: bool,
    /// While `vmstat_update` ran on another CPU.
    pub beside: bool,
    /// How many.
    pub count: u64,
    /// All together.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Which waiters the kernel tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// All.
    Every,
    /// The second waiter of a lock and those after: not the first.
    NotTheFirst,
    /// None.
    Nobody,
    /// Not known.
    Unknown,
}

/// What was seen of waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// By zone and place.
    pub by_place: Vec<Wait>,
    /// For any lock that spins.
    pub spins: u64,
    /// Not in any figure.
    pub lost: u64,
    /// Which waiters can be seen.
    pub told: Told,
}

/// Everything that was seen.
#[derive(Clone, Debug)]
pub struct Observed {
    /// When it began, by the clock of the runs.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// CPUs online, by number.
    pub online: Vec<u32>,
    /// Those of them that housekeeping leaves out (`nohz_full=`, `isolcpus=`).
    pub isolated: Vec<u32>,
    /// `vm.stat_interval`, in seconds; 0 is taken for 1.
    pub interval_s: u32,
    /// In any order.
    pub runs: Vec<Run>,
    /// How often the shepherd ran.
    pub shepherds: u64,
    /// Runs that are in no figure.
    pub lost_runs: u64,
    /// Waits, or why they were not seen.
    pub waits: Result<Waits, String>,
}

/// A number of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// All together.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Sum {
    fn add(&mut self, wait: &Wait) {
        self.count += wait.count;
        self.total_ns += wait.total_ns;
        self.max_ns = self.max_ns.max(wait.max_ns);
    }
}

/// What is known of waits for zone locks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contention {
    /// Why nothing is known; `None` if something is.
    pub unseen: Option<String>,
    /// Which waiters the kernel tells of; `None` if nothing is known.
    pub told: Option<Told>,
    /// All waits.
    pub all: Sum,
    /// Those of housekeeping itself.
    pub housekeeping: Sum,
    /// Those of others while housekeeping ran on another CPU. It need not have been the one that held the lock.
    pub beside: Sum,
    /// Those of others while none ran.
    pub foreground: Sum,
    /// By caller, longest in total first.
    pub by_caller: Vec<CallerRow>,
    /// By zone, longest in total first.
    pub by_zone: Vec<ZoneRow>,
    /// Waits for locks of any kind that spin: 0 where the kernel tells of none.
    pub spins: u64,
    /// Waits that are in no figure.
    pub lost: u64,
}

/// What is told of a machine's housekeeping.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HerdReport {
    /// How long it was watched.
    pub period_ns: u64,
    /// The interval of housekeeping: `vm.stat_interval`.
    pub interval_ns: u64,
    /// Ticks a second, as measured; `None` if too little was seen.
    pub hz: Option<u32>,
    /// CPUs online.
    pub cpus_online: u64,
    /// Those that housekeeping leaves out.
    pub cpus_isolated: u64,
    /// CPUs on which it ran.
    pub cpus_seen: u64,
    /// Runs.
    pub runs: u64,
    /// Runs that are in no figure.
    pub lost_runs: u64,
    /// How often the shepherd ran.
    pub shepherd_runs: u64,
    /// Runs that it started.
    pub kicked_runs: u64,
    /// Runs that came neither the interval after the one before nor as its CPU's first.
    pub off_phase_runs: u64,
    /// The longest run.
    pub longest_run_ns: u64,
    /// By CPU.
    pub cpus: Vec<CpuPhase>,
    /// Of CPUs together.
    pub together: Together,
    /// How the kernel's own schedule explains it; `None` without ticks.
    pub schedule: Option<Schedule>,
    /// Waits for zone locks.
    pub contention: Contention,
    /// What follows.
    pub verdict: Verdict,
    /// Every run, by time.
    pub marks: Vec<Mark>,
}

impl HerdReport {
    /// Works it out. Takes a few ms for 100,000 runs.
    pub fn of(seen: &Observed) -> HerdReport {
        let mut runs = seen.runs.clone();
        runs.sort_unstable_by_key(|r| (r.start_ns, r.cpu));
        let interval_ns = u64::from(seen.interval_s.max(1)) * SECOND;
        let period_ns = seen.to_ns.saturating_sub(seen.from_ns);
        let hz = phases::ticks_a_second(&runs);
        let clock = phases::Clock::new(&runs, hz, interval_ns);
        let marks = phases::marks(&runs, &clock, seen.from_ns);
        let cpus = phases::by_cpu(&marks, interval_ns);
        let together = phases::together(&runs, period_ns, hz);
        let schedule = hz.map(|hz| phases::schedule(&runs, hz, interval_ns, seen.online.len()));
        let contention = callers::contention(&seen.waits);
        let count = |wanted: &dyn Fn(&Mark) -> bool| marks.iter().filter(|m| wanted(m)).count() as u64;
        let mut report = HerdReport {
            period_ns,
            interval_ns,
            hz,
            cpus_online: seen.online.len() as u64,
            cpus_isolated: seen.isolated.len() as u64,
            cpus_seen: cpus.len() as u64,
            runs: runs.len() as u64,
            lost_runs: seen.lost_runs,
            shepherd_runs: seen.shepherds,
            kicked_runs: count(&|m| m.cause == Cause::Shepherd),
            off_phase_runs: count(&|m| m.off_phase),
            longest_run_ns: runs.iter().map(|r| r.end_ns.saturating_sub(r.start_ns)).max().unwrap_or(0),
            cpus,
            together,
            schedule,
            contention,
            verdict: Verdict::default(),
            marks,
        };
        report.verdict = verdict::judge(&report);
        report
    }
}
