//! The picture of a report: when runs start within the interval, by CPU.
//!
//! Time in the interval runs to the right. A row is a CPU, or several neighbouring CPUs if they do not all fit. A line
//! below the rows shows how many CPUs started at once at each place. A high number there means contention, whatever the
//! rows show.

use crate::heatmap::{ColorMode, TerminalStyle, escape, heat_color};
use crate::human;
use crate::math;
use crate::text::write_wrapped;
use isotherm_vmstat::phases::{Mark, TOGETHER_NS, cpus_within};
use isotherm_vmstat::{Cause, VmstatReport};
use std::io::{self, Write};

/// Maximum number of rows of the picture.
const MAX_ROWS: usize = 32;
/// Maximum number of columns of the picture, with the labels in front of it.
const MAX_WIDTH: usize = 160;

/// The runs in one cell of the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    timer: u32,
    kicked: u32,
}

pub(super) fn write(report: &VmstatReport, out: &mut dyn Write, style: &TerminalStyle) -> io::Result<()> {
    let rows = Rows::new(report.cpus.iter().map(|c| c.cpu).max().unwrap_or(0));
    let gutter = rows.label(rows.count() - 1).len().max("at once".len()) + 1;
    let width = style.text.width.min(MAX_WIDTH);
    if width < gutter + 10 {
        return write_wrapped(out, "too narrow for the picture", style.text);
    }
    let columns = width - gutter;
    let column = |mark: &Mark| column_of(report, mark.phase_ns, columns);
    let mut cells = vec![vec![Cell::default(); columns]; rows.count()];
    for mark in &report.marks {
        let cell = &mut cells[rows.of(mark.cpu)][column(mark)];
        let count = if mark.cause == Cause::Shepherd { &mut cell.kicked } else { &mut cell.timer };
        *count += 1;
    }
    for (index, row) in cells.iter().enumerate() {
        // Includes rows of CPUs that are offline or never ran, between those that did.
        let drawn: String = row.iter().map(|cell| draw(*cell, rows.each, style)).collect();
        writeln!(out, "{}", format!("{:<gutter$}{drawn}", rows.label(index)).trim_end())?;
    }
    let at_once: String = at_once(report, columns).into_iter().map(|n| draw_count(n, style)).collect();
    writeln!(out, "{}", format!("{:<gutter$}{at_once}", "at once").trim_end())?;
    writeln!(out, "{:<gutter$}{}", "", axis(report.interval_ns, columns))?;
    write_wrapped(out, &legend(rows.each, style.text.ascii), style.text)
}

fn column_of(report: &VmstatReport, phase_ns: u64, columns: usize) -> usize {
    let at = math::scale(columns as u64, phase_ns, report.interval_ns);
    usize::try_from(at).unwrap_or(0).min(columns - 1)
}

/// For each column, the maximum number of CPUs that started within a millisecond of one that started there, itself
/// included.
fn at_once(report: &VmstatReport, columns: usize) -> Vec<u64> {
    let starts: Vec<(u32, u64)> = report.marks.iter().map(|m| (m.cpu, m.start_ns)).collect();
    let mut most = vec![0; columns];
    for (mark, cpus) in report.marks.iter().zip(cpus_within(&starts, TOGETHER_NS)) {
        let column = column_of(report, mark.phase_ns, columns);
        most[column] = cpus.max(most[column]);
    }
    most
}

/// Groups neighbouring CPUs into rows.
struct Rows {
    last_cpu: usize,
    /// CPUs in a row.
    each: usize,
}

impl Rows {
    fn new(last_cpu: u32) -> Rows {
        let last_cpu = last_cpu as usize;
        Rows { last_cpu, each: (last_cpu + 1).div_ceil(MAX_ROWS).next_power_of_two() }
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

/// Draws a cell: by the cause of most of its runs, and larger if there are more runs.
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

/// A digit, or `+` from ten on; a space where no CPU started.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_a_power_of_two_of_cpus_and_end_with_the_last() {
        let labels = |last: u32| {
            let rows = Rows::new(last);
            (rows.count(), rows.label(0), rows.label(rows.count() - 1), rows.of(last))
        };
        assert_eq!(labels(0), (1, "CPU 0".to_owned(), "CPU 0".to_owned(), 0));
        assert_eq!(labels(31), (32, "CPU 0".to_owned(), "CPU 31".to_owned(), 31));
        assert_eq!(labels(71), (18, "0-3".to_owned(), "68-71".to_owned(), 17));
        assert_eq!(labels(1022), (32, "0-31".to_owned(), "992-1022".to_owned(), 31));
    }

    #[test]
    fn the_axis_ends_where_the_picture_does() {
        assert_eq!(axis(1_000_000_000, 20), "0                1 s");
        assert_eq!(axis(1_000_000_000, 40), "0                   500 ms           1 s");
    }
}
