//! Whether it is a herd, why, and what to do.
//!
//! A herd is several CPUs that want one lock at once, so it takes three: of two, one waits for the other once, as any two
//! allocations might. Beyond that the threshold is an argument and not a number of CPUs:
//!
//! 1. More CPUs start within a millisecond than random phases would bring about in one observation of a hundred
//!    ([`Together::most_by_chance`](super::Together)): with few CPUs that is three, with hundreds five or more, for hundreds
//!    of runs a second meet now and then whatever their phases.
//! 2. And it is no single event: at least a tenth of all runs start in such company, or at least a tenth of the waits for zone locks
//!    are housekeeping's own. CPUs that met once in the period are told, as no herd.
//!
//! What is not asked for is a wait that was seen: which waiters the kernel tells of depends on its locks, and whether CPUs have
//! something to give back when they run depends on the load. So a herd is told by when CPUs run, and what it costs beside.

use super::phases::LEAST_CPUS;
use super::{HerdReport, Told};
use crate::human;
use serde::Serialize;

/// Share of runs in a herd; and housekeeping's share of all waits, percent.
const NOTABLE_PCT: f64 = 10.0;
/// Fewer say nothing.
const LEAST_RUNS: u64 = 6;
/// Fewer intervals say nothing of what repeats.
const LEAST_INTERVALS: u64 = 2;

/// What follows from the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// CPUs do not come together, or no more than by chance.
    NoHerd,
    /// They do.
    Herd,
    /// Too little was seen.
    #[default]
    NotEnoughRuns,
}

/// What follows, why, and what to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Which.
    pub kind: VerdictKind,
    /// The most CPUs that started within a millisecond.
    pub cpus_at_once: u64,
    /// In a line.
    pub summary: String,
    /// The numbers it rests on: a sentence each.
    pub reasons: Vec<String>,
    /// What to do: a sentence each; empty if nothing has to be done.
    pub advice: Vec<String>,
}

pub(super) fn judge(report: &HerdReport) -> Verdict {
    let kind = kind(report);
    let cpus_at_once = report.together.most_in_a_ms;
    let summary = match kind {
        VerdictKind::NoHerd => "no herd".to_owned(),
        VerdictKind::Herd => {
            format!("herd: {cpus_at_once} of {} CPUs at once; {}", report.cpus_online, harm(report))
        }
        VerdictKind::NotEnoughRuns => "not enough runs".to_owned(),
    };
    let advice = match kind {
        VerdictKind::NoHerd => Vec::new(),
        VerdictKind::Herd => against_a_herd(report),
        VerdictKind::NotEnoughRuns => vec![format!(
            "watch for longer (--duration), {} or more, and under load: an idle CPU folds its counters as it goes idle and \
             is not woken for them",
            human::duration(report.interval_ns.saturating_mul(5))
        )],
    };
    Verdict { kind, cpus_at_once, summary, reasons: reasons(report, kind), advice }
}

fn kind(report: &HerdReport) -> VerdictKind {
    let together = &report.together;
    // Whatever the machine: nobody can tell a watch that was too short from one that saw nothing.
    if report.period_ns < LEAST_INTERVALS * report.interval_ns {
        return VerdictKind::NotEnoughRuns;
    }
    if report.cpus_online < LEAST_CPUS {
        return VerdictKind::NoHerd;
    }
    if report.runs < LEAST_RUNS {
        return VerdictKind::NotEnoughRuns;
    }
    let by_number = together.most_in_a_ms >= LEAST_CPUS && together.most_in_a_ms > together.most_by_chance;
    let repeats = together.in_herd_pct >= NOTABLE_PCT;
    if by_number && (repeats || housekeeping_pct(report) >= NOTABLE_PCT) {
        VerdictKind::Herd
    } else {
        VerdictKind::NoHerd
    }
}

/// Waits that are housekeeping's own, percent of all.
fn housekeeping_pct(report: &HerdReport) -> f64 {
    let (own, all) = (report.contention.housekeeping.count, report.contention.all.count);
    if all == 0 { 0.0 } else { own as f64 / all as f64 * 100.0 }
}

/// What the herd was seen to cost.
fn harm(report: &HerdReport) -> String {
    let own = report.contention.housekeeping;
    match report.contention.told {
        None => "what it costs was not seen".to_owned(),
        Some(Told::Nobody) => "what it costs cannot be seen on this kernel".to_owned(),
        Some(_) if own.count == 0 => "it was not seen to wait for a zone's lock".to_owned(),
        Some(_) => format!(
            "it waited {} times for a zone's lock, {} in all, {} at most",
            own.count,
            human::duration(own.total_ns),
            human::duration(own.max_ns)
        ),
    }
}

fn reasons(report: &HerdReport, kind: VerdictKind) -> Vec<String> {
    let together = &report.together;
    let mut reasons = Vec::new();
    if report.cpus_online < LEAST_CPUS && kind == VerdictKind::NoHerd {
        reasons.push(format!(
            "{} online: of two CPUs at most one waits, for one hold of the lock, and fewer have nobody to wait for",
            match report.cpus_online {
                1 => "1 CPU".to_owned(),
                n => format!("{n} CPUs"),
            }
        ));
    }
    if kind == VerdictKind::NotEnoughRuns {
        reasons.push(format!(
            "{} runs in {}; it takes {LEAST_RUNS} in {LEAST_INTERVALS} intervals of {}",
            report.runs,
            human::duration(report.period_ns),
            human::duration(report.interval_ns)
        ));
        return reasons;
    }
    reasons.push(format!(
        "{} started within 1 ms at the most; random phases would bring together up to {}",
        match together.most_in_a_ms {
            1 => "1 CPU".to_owned(),
            n => format!("{n} CPUs"),
        },
        together.most_by_chance
    ));
    reasons.push(format!(
        "{}% of runs started within 1 ms of another CPU's; with random phases {}% would",
        human::percent(together.in_company_pct),
        human::percent(together.in_company_by_chance_pct)
    ));
    if together.most_in_a_ms >= LEAST_CPUS {
        reasons.push(format!(
            "{}% of runs started in a company of {} CPUs or more; it takes {NOTABLE_PCT}%",
            human::percent(together.in_herd_pct),
            LEAST_CPUS.max(together.most_by_chance + 1)
        ));
    }
    if report.contention.all.count > 0 {
        reasons.push(format!(
            "{}% of the waits for zone locks were housekeeping's own",
            human::percent(housekeeping_pct(report))
        ));
    }
    if kind == VerdictKind::Herd {
        reasons.push(cause(report));
    }
    reasons
}

/// What brought the most CPUs together.
fn cause(report: &HerdReport) -> String {
    let cpus = report.together.most_in_a_ms;
    let kicked = report.together.most_kicked_pct;
    if kicked >= 50.0 {
        return format!(
            "of those {cpus}, {}% were started by the shepherd, which queues every CPU with something to fold at once",
            human::percent(kicked)
        );
    }
    let timers = format!("of those {cpus}, {}% were started by their timers", human::percent(100.0 - kicked));
    match report.schedule {
        Some(schedule) if schedule.wheel_ticks > 3 => format!(
            "{timers}: the kernel puts CPUs 3 ticks apart, but keeps timers due this far ahead at multiples of {} ticks, so that up \
             to {} CPUs share a tick",
            schedule.wheel_ticks, schedule.cpus_on_a_tick
        ),
        _ => timers,
    }
}

fn against_a_herd(report: &HerdReport) -> Vec<String> {
    let own = report.contention.housekeeping;
    let mut advice = Vec::new();
    if report.contention.told.is_some_and(|told| told != Told::Nobody) && own.count == 0 {
        advice.push(
            "nothing has to be done as long as nobody waits for it; look again under your heaviest load".to_owned(),
        );
    }
    let interval = report.interval_ns / super::SECOND;
    advice.push(format!(
        "a longer interval (vm.stat_interval, now {interval} s) makes it rarer, not smaller; counters in /proc/vmstat are then as old"
    ));
    advice.push(
        "smaller per-CPU sets have less to give back at once: vm.percpu_pagelist_high_fraction, at the cost of more refills"
            .to_owned(),
    );
    advice.push("CPUs isolated at boot (nohz_full=, isolcpus=) are left out by the shepherd".to_owned());
    advice.push(
        "no kernel up to 7.2 spreads it over the interval; vmstat_spread_delay is a proposal, and leaves the shepherd as it is"
            .to_owned(),
    );
    advice.push("programs that hand out frames of their own can: isotherm-frames spreads its housekeeping".to_owned());
    advice
}
