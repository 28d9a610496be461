//! The analysis of an observation, as one value that is shown as text or as data.
//!
//! This file only sets the order of the steps. [`phases`], [`callers`] and [`verdict`] each compute their part, and
//! none of them knows the report.

use crate::callers::{self, Contention};
use crate::observed::{Cause, Observed};
use crate::phases::{self, CpuPhase, Mark, SECOND, Schedule, Together};
use crate::verdict::{self, Evidence, Verdict};
use serde::Serialize;
use std::collections::BTreeSet;

/// The analysis of one observation of a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VmstatReport {
    /// How long the machine was observed.
    pub period_ns: u64,
    /// The interval of `vmstat_update`: `vm.stat_interval`.
    pub interval_ns: u64,
    /// Ticks per second, as measured; `None` if there were too few runs.
    pub hz: Option<u32>,
    /// CPUs online.
    pub cpus_online: u64,
    /// CPUs that `vmstat_shepherd` skips.
    pub cpus_isolated: u64,
    /// CPUs on which `vmstat_update` ran.
    pub cpus_seen: u64,
    /// Runs of `vmstat_update`.
    pub runs: u64,
    /// Runs that are in no figure.
    pub lost_runs: u64,
    /// Runs of the shepherd.
    pub shepherd_runs: u64,
    /// Runs that the shepherd started.
    pub kicked_runs: u64,
    /// Runs that did not start one interval after their CPU's previous run. A CPU's first run never counts.
    pub off_phase_runs: u64,
    /// The longest run.
    pub longest_run_ns: u64,
    /// By CPU.
    pub cpus: Vec<CpuPhase>,
    /// All CPUs together.
    pub together: Together,
    /// How the kernel's own schedule explains the phases; `None` without ticks.
    pub schedule: Option<Schedule>,
    /// Waits for zone locks.
    pub contention: Contention,
    /// The conclusion.
    pub verdict: Verdict,
    /// Every run, by time.
    pub marks: Vec<Mark>,
}

impl VmstatReport {
    /// Analyses an observation. Takes a few ms for 100,000 runs.
    pub fn of(seen: &Observed) -> VmstatReport {
        let mut runs = seen.runs.updates.clone();
        runs.sort_unstable_by_key(|r| (r.start_ns, r.cpu));
        let interval_ns = u64::from(seen.interval_s.max(1)) * SECOND;
        let period_ns = seen.to_ns.saturating_sub(seen.from_ns);
        let hz = phases::ticks_a_second(&runs);
        let clock = phases::Clock::new(&runs, hz, interval_ns);
        let marks = phases::marks(&runs, &clock, seen.from_ns);
        let cpus = phases::by_cpu(&marks, interval_ns);
        let together = phases::together(&runs, period_ns, hz);
        // One that ran is online, whatever the list says: it may be missing, of a container, or from before.
        let online: BTreeSet<u32> = seen.online.iter().copied().chain(runs.iter().map(|run| run.cpu)).collect();
        let schedule = hz.map(|hz| phases::schedule(&runs, hz, interval_ns, online.len()));
        let contention = callers::contention(&seen.waits);
        let cpus_online = online.len() as u64;
        let verdict = verdict::judge(&Evidence {
            period_ns,
            interval_ns,
            cpus_online,
            runs: runs.len() as u64,
            together: &together,
            schedule: schedule.as_ref(),
            contention: &contention,
        });
        let count = |wanted: &dyn Fn(&Mark) -> bool| marks.iter().filter(|m| wanted(m)).count() as u64;
        VmstatReport {
            period_ns,
            interval_ns,
            hz,
            cpus_online,
            cpus_isolated: seen.isolated.len() as u64,
            cpus_seen: cpus.len() as u64,
            runs: runs.len() as u64,
            lost_runs: seen.lost_runs,
            shepherd_runs: seen.runs.shepherds.len() as u64,
            kicked_runs: count(&|m| m.cause == Cause::Shepherd),
            off_phase_runs: count(&|m| m.off_phase),
            longest_run_ns: marks.iter().map(|m| m.took_ns).max().unwrap_or(0),
            cpus,
            together,
            schedule,
            contention,
            verdict,
            marks,
        }
    }
}
