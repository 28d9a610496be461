//! Whether it is a herd, why, and what to do.
//!
//! A herd is several CPUs that want one lock at once, so it takes three: of two, one waits for the other once, as any two
//! allocations might. Beyond that the threshold is an argument and not a number of CPUs:
//!
//! 1. More CPUs start within a millisecond than random phases would bring about in one observation of a hundred
//!    ([`Together::most_by_chance`]): with few CPUs that is three, with hundreds five or more, for hundreds
//!    of runs a second meet now and then whatever their phases.
//! 2. And it is no single event: at least a tenth of all runs start in such company, or at least a tenth of the waits for zone locks
//!    are housekeeping's own. CPUs that met once in the period are told, as no herd.
//!
//! What is not asked for is a wait that was seen: which waiters the kernel tells of depends on its locks, and whether CPUs have
//! something to give back when they run depends on the load. So a herd is told by when CPUs run, and what it costs beside.

use crate::callers::Contention;
use crate::observed::SeenWaiters;
use crate::phases::{MIN_CPUS, SECOND, Schedule, Together};
use isotherm_units::human;
use serde::Serialize;

/// Share of runs in a herd; and housekeeping's share of all waits, percent.
const NOTABLE_PCT: f64 = 10.0;
/// Fewer say nothing.
const MIN_RUNS: u64 = 6;
/// Fewer intervals say nothing of what repeats.
const MIN_INTERVALS: u64 = 2;

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

/// The verdict as a word, for who reads the first column only.
impl std::fmt::Display for VerdictKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            VerdictKind::NoHerd => "no herd",
            VerdictKind::Herd => "herd",
            VerdictKind::NotEnoughRuns => "not enough runs",
        })
    }
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

/// What the verdict rests on: the figures of a report that it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    pub period_ns: u64,
    pub interval_ns: u64,
    pub cpus_online: u64,
    /// Of `vmstat_update`.
    pub runs: u64,
    pub together: &'a Together,
    pub schedule: Option<&'a Schedule>,
    pub contention: &'a Contention,
}

pub(crate) fn judge(evidence: &Evidence<'_>) -> Verdict {
    let kind = kind(evidence);
    let cpus_at_once = evidence.together.most_in_a_ms;
    let summary = match kind {
        VerdictKind::NoHerd => "no herd".to_owned(),
        VerdictKind::Herd => {
            format!("herd: {cpus_at_once} of {} CPUs at once; {}", evidence.cpus_online, harm(evidence))
        }
        VerdictKind::NotEnoughRuns => "not enough runs".to_owned(),
    };
    let advice = match kind {
        VerdictKind::NoHerd => Vec::new(),
        VerdictKind::Herd => against_a_herd(evidence),
        VerdictKind::NotEnoughRuns => vec![format!(
            "watch for longer (--duration), {} or more, and under load: an idle CPU folds its counters as it goes idle and \
             is not woken for them",
            human::duration(evidence.interval_ns.saturating_mul(5))
        )],
    };
    Verdict { kind, cpus_at_once, summary, reasons: reasons(evidence, kind), advice }
}

fn kind(evidence: &Evidence<'_>) -> VerdictKind {
    let together = evidence.together;
    // Whatever the machine: nobody can tell a watch that was too short from one that saw nothing.
    if evidence.period_ns < MIN_INTERVALS * evidence.interval_ns {
        return VerdictKind::NotEnoughRuns;
    }
    if evidence.cpus_online < MIN_CPUS {
        return VerdictKind::NoHerd;
    }
    if evidence.runs < MIN_RUNS {
        return VerdictKind::NotEnoughRuns;
    }
    let by_number = together.most_in_a_ms >= MIN_CPUS && together.most_in_a_ms > together.most_by_chance;
    let repeats = together.in_herd_pct >= NOTABLE_PCT;
    if by_number && (repeats || housekeeping_pct(evidence) >= NOTABLE_PCT) {
        VerdictKind::Herd
    } else {
        VerdictKind::NoHerd
    }
}

/// Waits that are housekeeping's own, percent of all.
fn housekeeping_pct(evidence: &Evidence<'_>) -> f64 {
    let (own, all) = (evidence.contention.housekeeping.count, evidence.contention.all.count);
    if all == 0 { 0.0 } else { own as f64 / all as f64 * 100.0 }
}

/// What the herd was seen to cost.
fn harm(evidence: &Evidence<'_>) -> String {
    let own = evidence.contention.housekeeping;
    match evidence.contention.seen {
        None => "what it costs was not seen".to_owned(),
        Some(SeenWaiters::Nobody) => "what it costs cannot be seen on this kernel".to_owned(),
        Some(_) if own.count == 0 => "it was not seen to wait for a zone's lock".to_owned(),
        Some(_) => format!(
            "it waited {} times for a zone's lock, {} in all, {} at most",
            own.count,
            human::duration(own.total_ns),
            human::duration(own.max_ns)
        ),
    }
}

fn reasons(evidence: &Evidence<'_>, kind: VerdictKind) -> Vec<String> {
    let together = evidence.together;
    let mut reasons = Vec::new();
    if evidence.cpus_online < MIN_CPUS && kind == VerdictKind::NoHerd {
        reasons.push(format!(
            "{} online: of two CPUs at most one waits, for one hold of the lock, and fewer have nobody to wait for",
            match evidence.cpus_online {
                1 => "1 CPU".to_owned(),
                n => format!("{n} CPUs"),
            }
        ));
    }
    if kind == VerdictKind::NotEnoughRuns {
        reasons.push(format!(
            "{} runs in {}; it takes {MIN_RUNS} in {MIN_INTERVALS} intervals of {}",
            evidence.runs,
            human::duration(evidence.period_ns),
            human::duration(evidence.interval_ns)
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
    if together.most_in_a_ms >= MIN_CPUS {
        reasons.push(format!(
            "{}% of runs started in a company of {} CPUs or more; it takes {NOTABLE_PCT}%",
            human::percent(together.in_herd_pct),
            MIN_CPUS.max(together.most_by_chance + 1)
        ));
    }
    if evidence.contention.all.count > 0 {
        reasons.push(format!(
            "{}% of the waits for zone locks were housekeeping's own",
            human::percent(housekeeping_pct(evidence))
        ));
    }
    if kind == VerdictKind::Herd {
        reasons.push(cause(evidence));
    }
    reasons
}

/// What brought the most CPUs together.
fn cause(evidence: &Evidence<'_>) -> String {
    let cpus = evidence.together.most_in_a_ms;
    let kicked = evidence.together.most_kicked_pct;
    if kicked >= 50.0 {
        return format!(
            "of those {cpus}, {}% were started by the shepherd, which queues every CPU with something to fold at once",
            human::percent(kicked)
        );
    }
    let timers = format!("of those {cpus}, {}% were started by their timers", human::percent(100.0 - kicked));
    match evidence.schedule {
        Some(schedule) if schedule.wheel_ticks > 3 => format!(
            "{timers}: the kernel puts CPUs 3 ticks apart, but keeps timers due this far ahead at multiples of {} ticks, so that up \
             to {} CPUs share a tick",
            schedule.wheel_ticks, schedule.cpus_on_a_tick
        ),
        _ => timers,
    }
}

fn against_a_herd(evidence: &Evidence<'_>) -> Vec<String> {
    let own = evidence.contention.housekeeping;
    let mut advice = Vec::new();
    if evidence.contention.seen.is_some_and(|seen| seen != SeenWaiters::Nobody) && own.count == 0 {
        advice.push(
            "nothing has to be done as long as nobody waits for it; look again under your heaviest load".to_owned(),
        );
    }
    let interval = evidence.interval_ns / SECOND;
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
