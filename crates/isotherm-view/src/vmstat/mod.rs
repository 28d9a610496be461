//! The report as text: a picture of phases by CPU, tables, the verdict.
//!
//! Time in the interval runs to the right, a row is a CPU, or several neighbouring ones where there are more than fit. Below is how
//! many CPUs started at once at each place: a herd is a high number there, whatever the rows show.

use super::phases::{TOGETHER_NS, cpus_within};
use super::{Cause, Contention, CpuPhase, HerdReport, Mark, Sum, Told, VerdictKind};
use crate::heatmap::{ColorMode, TerminalStyle, escape, heat_color};
use crate::human;
use crate::math;
use crate::text::{Column, Table, TextStyle, wrap, write_wrapped};
use std::io::{self, Write};

/// Rows of the picture.
const MOST_ROWS: usize = 32;
/// CPUs and callers that are listed.
const LISTED: usize = 16;
/// Before the place of a wait.
const WHERE_INDENT: &str = "       ";

/// What is in one cell of the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    timer: u32,
    kicked: u32,
}

impl HerdReport {
    /// Writes the report as text. `style` has the width and what may be used of colours and signs.
    pub fn write_text(&self, out: &mut dyn Write, style: &TerminalStyle) -> io::Result<()> {
        for sentence in self.head() {
            write_wrapped(out, &sentence, style.text)?;
        }
        if !self.marks.is_empty() {
            writeln!(out)?;
            self.write_picture(out, style)?;
            writeln!(out)?;
            self.write_cpus(out, style.text)?;
        }
        writeln!(out)?;
        self.contention.write(out, style.text)?;
        writeln!(out)?;
        write_wrapped(out, &format!("verdict: {}", self.verdict.summary), style.text)?;
        let lines = self.verdict.reasons.iter().map(|reason| format!("- {reason}"));
        for line in lines.chain(self.verdict.advice.iter().map(|advice| format!("-> {advice}"))) {
            write_wrapped(out, &line, style.text)?;
        }
        Ok(())
    }

    fn head(&self) -> Vec<String> {
        let mut head = vec![format!(
            "housekeeping of per-CPU page sets (vmstat_update), every {} on {} for {}: {} on {}",
            human::duration(self.interval_ns),
            counted(self.cpus_online, "CPU"),
            human::duration(self.period_ns),
            counted(self.runs, "run"),
            counted(self.cpus_seen, "CPU")
        )];
        let silent = self.cpus_online.saturating_sub(self.cpus_seen);
        if silent > 0 {
            let isolated = match self.cpus_isolated {
                0 => String::new(),
                n => format!(" ({n} isolated)"),
            };
            head.push(format!("{} had none{isolated}: idle, or nothing to fold", counted(silent, "CPU")));
        }
        if self.runs > 0 {
            head.push(format!(
                "started by the shepherd: {} of {}; off their phase: {}; the longest took {}{}",
                self.kicked_runs,
                self.runs,
                self.off_phase_runs,
                human::duration(self.longest_run_ns),
                if self.lost_runs > 0 {
                    format!("; {} not told, for there were too many", self.lost_runs)
                } else {
                    String::new()
                }
            ));
            let tick = match (self.together.most_in_a_tick, self.hz) {
                (Some(n), Some(hz)) => {
                    format!(", {n} started within a tick of {}", human::duration(super::SECOND / u64::from(hz)))
                }
                _ => String::new(),
            };
            head.push(format!(
                "at the most {} ran at one instant, {} started within 1 ms{tick}",
                counted(self.together.most_overlapping, "CPU"),
                self.together.most_in_a_ms
            ));
        }
        if let Some(schedule) = &self.schedule
            && let Some(pct) = schedule.on_schedule_pct
        {
            let late = if pct < 99.5 {
                "; the others came later, as they do where a CPU was idle, for they do not wake it, or had no time"
            } else {
                ""
            };
            head.push(format!(
                "on the kernel's schedule, 3 ticks a CPU rounded up to {} by its timer wheel: {}% of {}{late}",
                schedule.wheel_ticks,
                human::percent(pct),
                counted(schedule.timer_runs, "run by timer")
            ));
        }
        head
    }

    fn write_picture(&self, out: &mut dyn Write, style: &TerminalStyle) -> io::Result<()> {
        let rows = Rows::new(self.cpus.iter().map(|c| c.cpu).max().unwrap_or(0));
        let gutter = rows.label(rows.count() - 1).len().max("at once".len()) + 1;
        let width = style.text.width.min(160);
        if width < gutter + 10 {
            return write_wrapped(out, "too narrow for the picture", style.text);
        }
        let columns = width - gutter;
        let column = |mark: &Mark| self.column(mark.phase_ns, columns);
        let mut cells = vec![vec![Cell::default(); columns]; rows.count()];
        for mark in &self.marks {
            let cell = &mut cells[rows.of(mark.cpu)][column(mark)];
            let count = if mark.cause == Cause::Shepherd { &mut cell.kicked } else { &mut cell.timer };
            *count += 1;
        }
        for (index, row) in cells.iter().enumerate() {
            // Rows of CPUs that are not online, or never ran, between those that do.
            let drawn: String = row.iter().map(|cell| draw(*cell, rows.each, style)).collect();
            writeln!(out, "{}", format!("{:<gutter$}{drawn}", rows.label(index)).trim_end())?;
        }
        let at_once: String = self.at_once(columns).into_iter().map(|n| draw_count(n, style)).collect();
        writeln!(out, "{}", format!("{:<gutter$}{at_once}", "at once").trim_end())?;
        writeln!(out, "{:<gutter$}{}", "", axis(self.interval_ns, columns))?;
        write_wrapped(out, &legend(rows.each, style.text.ascii), style.text)
    }

    fn column(&self, phase_ns: u64, columns: usize) -> usize {
        let at = math::scale(columns as u64, phase_ns, self.interval_ns);
        usize::try_from(at).unwrap_or(0).min(columns - 1)
    }

    /// For each column the most CPUs that started within a millisecond of one that started there, itself included.
    fn at_once(&self, columns: usize) -> Vec<u64> {
        let starts: Vec<(u32, u64)> = self.marks.iter().map(|m| (m.cpu, m.start_ns)).collect();
        let mut most = vec![0; columns];
        for (mark, cpus) in self.marks.iter().zip(cpus_within(&starts, TOGETHER_NS)) {
            let column = self.column(mark.phase_ns, columns);
            most[column] = cpus.max(most[column]);
        }
        most
    }

    fn write_cpus(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        let mut table = Table::new(&[
            Column::number("CPU", 0),
            Column::number("runs", 0),
            Column::number("kicked", 1),
            Column::number("off phase", 2),
            Column::number("interval", 0),
            Column::number("least", 3),
            Column::number("most", 3),
            Column::number("phase", 0),
            Column::number("spread", 1),
        ]);
        // Those that say most: all if they are few, or those kicked most.
        let mut shown: Vec<&CpuPhase> = self.cpus.iter().collect();
        shown.sort_by_key(|c| std::cmp::Reverse((c.kicked_runs, c.off_phase_runs)));
        shown.truncate(LISTED);
        shown.sort_by_key(|c| c.cpu);
        for cpu in &shown {
            let (median, least, most) = match cpu.spacing {
                Some(s) => (milliseconds(s.median_ns), milliseconds(s.least_ns), milliseconds(s.most_ns)),
                None => ("-".to_owned(), "-".to_owned(), "-".to_owned()),
            };
            table.row(vec![
                cpu.cpu.to_string(),
                cpu.runs.to_string(),
                cpu.kicked_runs.to_string(),
                cpu.off_phase_runs.to_string(),
                median,
                least,
                most,
                cpu.phase_ns.map_or("-".to_owned(), milliseconds),
                milliseconds(cpu.phase_spread_ns),
            ]);
        }
        table.write(out, style)?;
        match self.cpus.len() - shown.len() {
            0 => Ok(()),
            more => {
                let most = if self.kicked_runs > 0 { ", kicked less often" } else { "" };
                write_wrapped(out, &format!("and {}{most}; --json has all", counted(more as u64, "CPU")), style)
            }
        }
    }
}

impl Contention {
    fn write(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        if let Some(why) = &self.unseen {
            return write_wrapped(out, &format!("waits for zone locks: not seen: {}", human::printable(why)), style);
        }
        let part = |sum: Sum| format!("{} ({})", sum.count, human::duration(sum.total_ns));
        let all = if self.all.count == 0 {
            "waits for zone locks: none".to_owned()
        } else {
            format!(
                "waits for zone locks: {} ({} in all, {} at most): housekeeping's own {}, others' while it ran {}, others' at other times {}",
                self.all.count,
                human::duration(self.all.total_ns),
                human::duration(self.all.max_ns),
                part(self.housekeeping),
                part(self.beside),
                part(self.foreground)
            )
        };
        write_wrapped(out, &all, style)?;
        let spins = match self.spins {
            0 => "none was told for any lock".to_owned(),
            n => format!("{n} were told for locks of all kinds"),
        };
        write_wrapped(out, &format!("which waits are told here: {}; {spins}", which(self.told)), style)?;
        if self.lost > 0 {
            write_wrapped(out, &format!("{} more came from too many places to be told", self.lost), style)?;
        }
        if self.by_caller.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(&[
            Column::number("waits", 0),
            Column::number("total", 0),
            Column::number("mean", 2),
            Column::number("longest", 1),
            Column::fixed("who", 0),
        ]);
        let listed = || self.by_caller.iter().take(LISTED);
        for row in listed() {
            table.row(vec![
                row.waits.count.to_string(),
                human::duration(row.waits.total_ns),
                human::duration(row.waits.total_ns / row.waits.count.max(1)),
                human::duration(row.waits.max_ns),
                if row.housekeeping { "housekeeping" } else { "others" }.to_owned(),
            ]);
        }
        // Where has a line of its own: it is the longest, and what is asked first.
        let lines = table.lines(style);
        let (head, rows) = lines.split_at(1);
        writeln!(out, "{}", head[0])?;
        let inner = TextStyle { width: style.width.saturating_sub(WHERE_INDENT.len()).max(1), ..style };
        for (line, row) in rows.iter().zip(listed()) {
            writeln!(out, "{line}")?;
            let place = human::printable(&row.functions.join(" <- "));
            wrap(&place, inner).iter().try_for_each(|part| writeln!(out, "{WHERE_INDENT}{part}"))?;
        }
        if self.by_caller.len() > LISTED {
            write_wrapped(out, &format!("and {} places more; --json has all", self.by_caller.len() - LISTED), style)?;
        }
        let zone = |row: &super::ZoneRow| {
            format!(
                "node {} {}: {} ({})",
                row.node,
                human::printable(&row.zone),
                row.waits.count,
                human::duration(row.waits.total_ns)
            )
        };
        write_wrapped(out, &self.by_zone.iter().map(zone).collect::<Vec<_>>().join(", "), style)
    }
}

fn which(told: Option<Told>) -> &'static str {
    match told {
        Some(Told::Every) => "all, for the hypervisor helps those who wait",
        Some(Told::NotTheFirst) => "the second waiter of a lock and those after; not the first, so none of two CPUs",
        Some(Told::Nobody) => "none, for this hypervisor does not help and the kernel uses locks without a queue",
        Some(Told::Unknown) | None => {
            "not known for this processor or hypervisor: all, all but the first of each lock, or none"
        }
    }
}

/// Neighbouring CPUs in rows.
struct Rows {
    last_cpu: usize,
    /// CPUs in a row.
    each: usize,
}

impl Rows {
    fn new(last_cpu: u32) -> Rows {
        let last_cpu = last_cpu as usize;
        Rows { last_cpu, each: (last_cpu + 1).div_ceil(MOST_ROWS).next_power_of_two() }
    }

    fn count(&self) -> usize {
        self.last_cpu / self.each + 1
    }

    fn of(&self, cpu: u32) -> usize {
        cpu as usize / self.each
    }

    fn label(&self, row: usize) -> String {
        let first = row * self.each;
        if self.each == 1 {
            format!("CPU {first}")
        } else {
            format!("{first}-{}", (first + self.each - 1).min(self.last_cpu))
        }
    }
}

/// A cell: by the cause of most of its runs, and larger where there are more.
fn draw(cell: Cell, each: usize, style: &TerminalStyle) -> String {
    let ascii = style.text.ascii;
    let runs = (cell.timer + cell.kicked) as usize;
    if runs == 0 {
        return " ".to_owned();
    }
    let kicked = cell.kicked > cell.timer;
    let sign = match (kicked, runs >= each.div_ceil(2), ascii) {
        (true, false, false) => '×',
        (true, true, false) => '╳',
        (true, false, true) => 'x',
        (true, true, true) => 'X',
        (false, false, false) => '·',
        (false, true, false) => '●',
        (false, false, true) => '.',
        (false, true, true) => 'o',
    };
    paint(sign, if kicked { 0.75 } else { 0.4 }, style)
}

/// A digit, or `+` from ten on; nothing where nobody started.
fn draw_count(count: u64, style: &TerminalStyle) -> String {
    let sign = match count {
        0 => return " ".to_owned(),
        1..=9 => char::from(b'0' + u8::try_from(count).unwrap_or(9)),
        _ => '+',
    };
    paint(sign, if count > 2 { 0.85 } else { 0.4 }, style)
}

fn paint(sign: char, heat: f64, style: &TerminalStyle) -> String {
    match style.color {
        ColorMode::None => sign.to_string(),
        mode => format!("{}{sign}\x1b[0m", escape(Some(heat_color(heat)), None, mode)),
    }
}

fn axis(interval_ns: u64, columns: usize) -> String {
    let end = human::duration(interval_ns);
    let middle = human::duration(interval_ns / 2);
    let mut line = format!("{:<at$}", "0", at = columns / 2);
    if columns > 30 {
        line += &middle;
    }
    let room = columns.saturating_sub(line.chars().count());
    line + &format!("{end:>room$}")
}

fn legend(each: usize, ascii: bool) -> String {
    let (one, many, kick, kicks) = if ascii { ('.', 'o', 'x', 'X') } else { ('·', '●', '×', '╳') };
    if each == 1 {
        format!("{many} a run by the CPU's own timer, {kicks} by the shepherd; at once: CPUs that started within 1 ms")
    } else {
        format!(
            "{one} {many} few and many runs by timers, {kick} {kicks} by the shepherd, in rows of {each} CPUs; at once: CPUs that started within 1 ms"
        )
    }
}

fn milliseconds(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / super::MS as f64)
}

fn counted(n: u64, what: &str) -> String {
    let plural = match what.split_once(' ') {
        Some((first, rest)) => format!("{first}s {rest}"),
        None => format!("{what}s"),
    };
    if n == 1 { format!("1 {what}") } else { format!("{n} {plural}") }
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
