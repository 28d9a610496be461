//! Whether `vmstat_update` causes zone-lock contention, why, and what to do.
//!
//! The verdict is [`VerdictKind::Herd`] if several CPUs start their drain in the same millisecond and so want one lock.
//! That takes three CPUs: of two, one waits for the other once, as in any two allocations. The threshold also depends
//! on the number of runs:
//!
//! 1. More CPUs start within a millisecond than random phases would bring together in one observation of a hundred
//!    ([`Together::most_by_chance`]). With few CPUs that is three. With hundreds of CPUs it is five or more, because
//!    hundreds of runs a second coincide now and then at any phase.
//! 2. It is not a single event: at least a tenth of all runs start in such a group, or at least a tenth of the waits
//!    for zone locks are those of `vmstat_update`. CPUs that coincide once in the period are reported, but do not
//!    change the verdict.
//!
//! The verdict does not require an observed wait. Which waiters the kernel reports depends on its locks, and whether
//! CPUs have pages to return when they run depends on the load. So the verdict rests on when CPUs run, and the observed
//! cost is reported in addition.

use crate::callers::Contention;
use crate::observed::SeenWaiters;
use crate::phases::{MIN_CPUS, SECOND, Schedule, Together};
use isotherm_units::human;
use serde::Serialize;

/// Minimum share of runs that start in a group, or of waits that are those of `vmstat_update`, percent.
const NOTABLE_PCT: f64 = 10.0;
/// Minimum number of runs for a verdict.
const MIN_RUNS: u64 = 6;
/// Minimum number of intervals: fewer do not show what repeats.
const MIN_INTERVALS: u64 = 2;

/// The conclusion from the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// CPUs do not start together, or no more than by chance.
    NoHerd,
    /// CPUs start together more than by chance.
    Herd,
    /// The observation was too short.
    #[default]
    NotEnoughRuns,
}

/// The verdict in a word, for readers of the first column only.
impl std::fmt::Display for VerdictKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            VerdictKind::NoHerd => "no contention",
            VerdictKind::Herd => "contention",
            VerdictKind::NotEnoughRuns => "not enough runs",
        })
    }
}

/// The verdict, its reasons, and advice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// The verdict in a word.
    pub kind: VerdictKind,
    /// The most CPUs that started within a millisecond.
    pub cpus_at_once: u64,
    /// The verdict in a line.
    pub summary: String,
    /// The figures it rests on, one sentence each.
    pub reasons: Vec<String>,
    /// What to do, one sentence each; empty if nothing is needed.
    pub advice: Vec<String>,
}

/// The figures of a report that the verdict rests on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    pub period_ns: u64,
    pub interval_ns: u64,
    pub cpus_online: u64,
    /// Runs of `vmstat_update`.
    pub runs: u64,
    pub together: &'a Together,
    pub schedule: Option<&'a Schedule>,
    pub contention: &'a Contention,
}

pub(crate) fn judge(evidence: &Evidence<'_>) -> Verdict {
    let kind = kind(evidence);
    let cpus_at_once = evidence.together.most_in_a_ms;
    let summary = match kind {
        VerdictKind::NoHerd => "no contention".to_owned(),
        VerdictKind::Herd => {
            format!(
                "zone-lock contention: {cpus_at_once} of {} CPUs drained at once; {}",
                evidence.cpus_online,
                harm(evidence)
            )
        }
        VerdictKind::NotEnoughRuns => "not enough runs".to_owned(),
    };
    let advice = match kind {
        VerdictKind::NoHerd => Vec::new(),
        VerdictKind::Herd => against_a_herd(evidence),
        VerdictKind::NotEnoughRuns => vec![format!(
            "observe for longer (--duration), {} or more, and under load: an idle CPU folds its counters as it goes idle and \
             is not woken for them",
            human::duration(evidence.interval_ns.saturating_mul(5))
        )],
    };
    Verdict { kind, cpus_at_once, summary, reasons: reasons(evidence, kind), advice }
}

fn kind(evidence: &Evidence<'_>) -> VerdictKind {
    let together = evidence.together;
    // On any machine: an observation that was too short looks the same as one that found nothing.
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

/// Waits of `vmstat_update`, percent of all waits.
fn housekeeping_pct(evidence: &Evidence<'_>) -> f64 {
    let (own, all) = (evidence.contention.housekeeping.count, evidence.contention.all.count);
    if all == 0 { 0.0 } else { own as f64 / all as f64 * 100.0 }
}

/// The observed cost of CPUs that start together.
fn harm(evidence: &Evidence<'_>) -> String {
    let own = evidence.contention.housekeeping;
    match evidence.contention.seen {
        None => "its cost was not observed".to_owned(),
        Some(SeenWaiters::Nobody) => "its cost cannot be observed on this kernel".to_owned(),
        Some(_) if own.count == 0 => "vmstat_update was not observed waiting for a zone's lock".to_owned(),
        Some(_) => format!(
            "vmstat_update waited {} times for a zone's lock, {} in all, {} at most",
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
            "{} online: of two CPUs at most one waits, for one hold of the lock; a single CPU never waits",
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
        "at most {} started within 1 ms; random phases would bring together up to {}",
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
            "{}% of runs started within 1 ms of {} or more CPUs; the threshold is {NOTABLE_PCT}%",
            human::percent(together.in_herd_pct),
            MIN_CPUS.max(together.most_by_chance + 1)
        ));
    }
    if evidence.contention.all.count > 0 {
        reasons.push(format!(
            "{}% of the waits for zone locks were by vmstat_update",
            human::percent(housekeeping_pct(evidence))
        ));
    }
    if kind == VerdictKind::Herd {
        reasons.push(cause(evidence));
    }
    reasons
}

/// Why the most CPUs started together.
fn cause(evidence: &Evidence<'_>) -> String {
    let cpus = evidence.together.most_in_a_ms;
    let kicked = evidence.together.most_kicked_pct;
    if kicked >= 50.0 {
        return format!(
            "of those {cpus}, {}% were started by vmstat_shepherd, which queues all CPUs with counters to fold at the same time",
            human::percent(kicked)
        );
    }
    let timers = format!("of those {cpus}, {}% were started by their timers", human::percent(100.0 - kicked));
    match evidence.schedule {
        Some(schedule) if schedule.wheel_ticks > 3 => format!(
            "{timers}: the kernel puts CPUs 3 ticks apart, but its timer wheel rounds timers due this far ahead to multiples of {} ticks, so that up \
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
            "no action is needed as long as nothing waits for it; measure again under your heaviest load".to_owned(),
        );
    }
    let interval = evidence.interval_ns / SECOND;
    advice.push(format!(
        "a longer interval (vm.stat_interval, now {interval} s) makes contention rarer, not smaller; counters in /proc/vmstat are then up to that old"
    ));
    advice.push(
        "smaller per-CPU lists (pcp->high) return fewer pages at once: vm.percpu_pagelist_high_fraction, at the cost of more refills"
            .to_owned(),
    );
    advice.push("vmstat_shepherd skips CPUs isolated at boot (nohz_full=, isolcpus=), but not that of 6.1".to_owned());
    advice.push(
        "no kernel up to 7.2 spreads vmstat_update over the interval; vmstat_spread_delay is a proposal, and does not change vmstat_shepherd"
            .to_owned(),
    );
    advice.push("programs with their own frame allocator can: isotherm-frames spreads its drains".to_owned());
    advice
}
