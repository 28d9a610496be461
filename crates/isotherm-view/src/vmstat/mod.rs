//! The report on zone-lock contention as text: which runs there were, a picture of phases by CPU, tables, the verdict.
//!
//! Draws [`VmstatReport`], which contains all numbers. [`picture`] shows when CPUs run, and [`tables`] shows runs by
//! CPU and waits by caller. The sentences around them are here. The JSON is the report itself, so no part of it is
//! here.

mod picture;
mod tables;

use crate::heatmap::TerminalStyle;
use crate::human::{self, counted};
use crate::text::{TextStyle, write_wrapped};
use isotherm_vmstat::callers::{Contention, Sum, ZoneRow};
use isotherm_vmstat::phases::Schedule;
use isotherm_vmstat::{SeenWaiters, VmstatReport};
use std::io::{self, Write};

const SECOND: u64 = 1_000_000_000;

/// Writes the report as text. `style` sets the width and the allowed colours and characters.
pub fn write_text(report: &VmstatReport, out: &mut dyn Write, style: &TerminalStyle) -> io::Result<()> {
    for sentence in head(report) {
        write_wrapped(out, &sentence, style.text)?;
    }
    if !report.marks.is_empty() {
        writeln!(out)?;
        picture::write(report, out, style)?;
        writeln!(out)?;
        tables::write_cpus(report, out, style.text)?;
    }
    writeln!(out)?;
    write_contention(&report.contention, out, style.text)?;
    writeln!(out)?;
    write_wrapped(out, &format!("verdict: {}", report.verdict.summary), style.text)?;
    let lines = report.verdict.reasons.iter().map(|reason| format!("- {reason}"));
    for line in lines.chain(report.verdict.advice.iter().map(|advice| format!("-> {advice}"))) {
        write_wrapped(out, &line, style.text)?;
    }
    Ok(())
}

/// What ran and where, one sentence each.
fn head(report: &VmstatReport) -> Vec<String> {
    let mut head = vec![format!(
        "periodic drain of per-CPU page lists (vmstat_update), every {} on {} for {}: {} on {}",
        human::duration(report.interval_ns),
        counted(report.cpus_online, "CPU"),
        human::duration(report.period_ns),
        counted(report.runs, "run"),
        counted(report.cpus_seen, "CPU")
    )];
    let silent = report.cpus_online.saturating_sub(report.cpus_seen);
    if silent > 0 {
        let isolated = match report.cpus_isolated {
            0 => String::new(),
            n => format!(" ({n} isolated)"),
        };
        head.push(format!("{} had none{isolated}: idle, or nothing to fold", counted(silent, "CPU")));
    }
    if report.runs > 0 {
        head.push(causes(report));
        head.push(at_once(report));
    }
    head.extend(report.schedule.as_ref().and_then(on_schedule));
    head
}

fn causes(report: &VmstatReport) -> String {
    let lost = match report.lost_runs {
        0 => String::new(),
        n => format!("; {n} lost, because there were too many"),
    };
    format!(
        "started by vmstat_shepherd: {} of {}; off phase: {}; the longest took {}{lost}",
        report.kicked_runs,
        report.runs,
        report.off_phase_runs,
        human::duration(report.longest_run_ns)
    )
}

fn at_once(report: &VmstatReport) -> String {
    let tick = match (report.together.most_in_a_tick, report.hz) {
        (Some(n), Some(hz)) => format!(", {n} started within a tick of {}", human::duration(SECOND / u64::from(hz))),
        _ => String::new(),
    };
    format!(
        "at most {} ran at one instant, {} started within 1 ms{tick}",
        counted(report.together.most_overlapping, "CPU"),
        report.together.most_in_a_ms
    )
}

fn on_schedule(schedule: &Schedule) -> Option<String> {
    let pct = schedule.on_schedule_pct?;
    let late = if pct < 99.5 {
        "; the others came later: their CPU was idle (these timers do not wake it) or busy"
    } else {
        ""
    };
    Some(format!(
        "on the kernel's schedule (3 ticks per CPU, rounded up to {} ticks by the timer wheel): {}% of {}{late}",
        schedule.wheel_ticks,
        human::percent(pct),
        counted(schedule.timer_runs, "run by timer")
    ))
}

fn write_contention(contention: &Contention, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
    if let Some(why) = &contention.unseen {
        return write_wrapped(out, &format!("waits for zone locks: not observed: {}", human::printable(why)), style);
    }
    write_wrapped(out, &all_waits(contention), style)?;
    let spins = match contention.spins {
        0 => "the kernel reported none for any lock".to_owned(),
        n => format!("the kernel reported {n} for locks of all kinds"),
    };
    write_wrapped(out, &format!("waiters that this kernel reports: {}; {spins}", which(contention.seen)), style)?;
    if contention.lost > 0 {
        write_wrapped(out, &format!("{} more did not fit into the table of places", contention.lost), style)?;
    }
    if contention.by_caller.is_empty() {
        return Ok(());
    }
    tables::write_callers(contention, out, style)?;
    write_wrapped(out, &contention.by_zone.iter().map(zone).collect::<Vec<_>>().join(", "), style)
}

fn all_waits(contention: &Contention) -> String {
    if contention.all.count == 0 {
        return "waits for zone locks: none".to_owned();
    }
    let part = |sum: Sum| format!("{} ({})", sum.count, human::duration(sum.total_ns));
    format!(
        "waits for zone locks: {} ({} in all, {} at most): {} by vmstat_update, {} by others while it ran, {} by others at other times",
        contention.all.count,
        human::duration(contention.all.total_ns),
        human::duration(contention.all.max_ns),
        part(contention.housekeeping),
        part(contention.beside),
        part(contention.foreground)
    )
}

fn zone(row: &ZoneRow) -> String {
    format!(
        "node {} {}: {} ({})",
        row.node,
        human::printable(&row.zone),
        row.waits.count,
        human::duration(row.waits.total_ns)
    )
}

fn which(seen: Option<SeenWaiters>) -> &'static str {
    match seen {
        Some(SeenWaiters::Every) => "all, because the hypervisor wakes waiters (paravirtual spinlocks)",
        Some(SeenWaiters::NotTheFirst) => {
            "every waiter except the first of each lock, because queued spinlocks report no event for it; with two CPUs, none"
        }
        Some(SeenWaiters::Nobody) => {
            "none, because this hypervisor does not wake waiters and the kernel uses locks without a queue"
        }
        Some(SeenWaiters::Unknown) | None => {
            "unknown for this processor or hypervisor: all, all except the first of each lock, or none"
        }
    }
}
