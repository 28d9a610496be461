//! The tables of a report: runs by CPU, waits by caller.

use crate::human::{self, counted};
use crate::text::{Column, Table, TextStyle, wrap, write_wrapped};
use isotherm_vmstat::VmstatReport;
use isotherm_vmstat::callers::{CallerRow, Contention};
use isotherm_vmstat::phases::CpuPhase;
use std::io::{self, Write};

/// Maximum number of CPUs and callers listed.
const LISTED: usize = 16;
/// Indentation of the place of a wait.
const WHERE_INDENT: &str = "       ";

/// Runs by CPU: all CPUs if there are few, otherwise those kicked most often.
pub(super) fn write_cpus(report: &VmstatReport, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
    let columns = Column::numbers(&[
        ("CPU", 0),
        ("runs", 0),
        ("kicked", 1),
        ("off phase", 2),
        ("interval", 0),
        ("least", 3),
        ("most", 3),
        ("phase", 0),
        ("spread", 1),
    ]);
    let mut shown: Vec<&CpuPhase> = report.cpus.iter().collect();
    shown.sort_by_key(|c| std::cmp::Reverse((c.kicked_runs, c.off_phase_runs)));
    shown.truncate(LISTED);
    shown.sort_by_key(|c| c.cpu);
    Table::of(&columns, shown.iter().map(|cpu| cpu_cells(cpu))).write(out, style)?;
    match report.cpus.len() - shown.len() {
        0 => Ok(()),
        more => {
            let most = if report.kicked_runs > 0 { ", kicked less often" } else { "" };
            write_wrapped(out, &format!("and {}{most}; --json has all", counted(more as u64, "CPU")), style)
        }
    }
}

fn cpu_cells(cpu: &CpuPhase) -> Vec<String> {
    let or_dash = |ns: Option<u64>| ns.map_or("-".to_owned(), milliseconds);
    vec![
        cpu.cpu.to_string(),
        cpu.runs.to_string(),
        cpu.kicked_runs.to_string(),
        cpu.off_phase_runs.to_string(),
        or_dash(cpu.spacing.map(|s| s.median_ns)),
        or_dash(cpu.spacing.map(|s| s.least_ns)),
        or_dash(cpu.spacing.map(|s| s.most_ns)),
        or_dash(cpu.phase_ns),
        milliseconds(cpu.phase_spread_ns),
    ]
}

/// Waits by caller. The place has its own line below the row: it is the longest text and the first thing a reader wants
/// to know.
pub(super) fn write_callers(contention: &Contention, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
    let numbers = Column::numbers(&[("waits", 0), ("total", 0), ("mean", 2), ("longest", 1)]);
    let columns = [numbers, vec![Column::fixed("who", 0)]].concat();
    let listed = &contention.by_caller[..contention.by_caller.len().min(LISTED)];
    let lines = Table::of(&columns, listed.iter().map(caller_cells)).lines(style);
    let (head, rows) = lines.split_at(1);
    writeln!(out, "{}", head[0])?;
    let inner = TextStyle { width: style.width.saturating_sub(WHERE_INDENT.len()).max(1), ..style };
    for (line, row) in rows.iter().zip(listed) {
        writeln!(out, "{line}")?;
        let place = human::printable(&row.functions.join(" <- "));
        wrap(&place, inner).iter().try_for_each(|part| writeln!(out, "{WHERE_INDENT}{part}"))?;
    }
    match contention.by_caller.len() - listed.len() {
        0 => Ok(()),
        more => write_wrapped(out, &format!("and {more} places more; --json has all"), style),
    }
}

fn caller_cells(row: &CallerRow) -> Vec<String> {
    vec![
        row.waits.count.to_string(),
        human::duration(row.waits.total_ns),
        human::duration(row.waits.total_ns / row.waits.count.max(1)),
        human::duration(row.waits.max_ns),
        if row.housekeeping { "vmstat_update" } else { "others" }.to_owned(),
    ]
}

fn milliseconds(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}
