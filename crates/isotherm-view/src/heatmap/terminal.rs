//! A heat map in a terminal: colours in half huge ranges, or digits.
//!
//! In colour, a line of text is two rows of the map. It is drawn as upper half huge ranges: the foreground is the upper row
//! and the background is the lower row. A break always has its own line. Without colour, a line is one row and heat is
//! a digit, 9 for the hottest, as in other memory monitors.

use super::color::Rgb;
use super::model::{Axis, Cell, HeatMap};
use super::scale::{Scale, Step};
use crate::human::{self, Keep};
use crate::text::TextStyle;
use std::fmt::Write as _;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// The colours of the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorMode {
    /// Any colour.
    #[default]
    True,
    /// The 256 colours of the cube.
    Ansi256,
    /// No colours: digits.
    None,
}

/// How to draw a map as text.
#[derive(Clone, Copy, Debug, Default)]
pub struct TerminalStyle {
    /// Width of the terminal, and whether characters beyond ASCII may be used. If not, heat is drawn as digits.
    pub text: TextStyle,
    /// Its colours.
    pub color: ColorMode,
    /// What the colours show.
    pub scale: Scale,
}

impl TerminalStyle {
    /// Whether heat is drawn as digits.
    pub(crate) fn in_digits(&self) -> bool {
        self.color == ColorMode::None || self.text.ascii
    }
}

/// The rows shown in one line of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// An upper row, and a lower one if half huge ranges are drawn and it exists.
    Cells(usize, Option<usize>),
    /// A break.
    Break(usize),
}

/// Assigns rows to lines: in pairs if `halves`, but never across a break.
pub fn lines(map: &HeatMap, halves: bool) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut row = 0;
    while row < map.rows.len() {
        let lower = (row + 1 < map.rows.len() && halves && !map.rows[row + 1].is_break).then_some(row + 1);
        let line = if map.rows[row].is_break { Line::Break(row) } else { Line::Cells(row, lower) };
        row += if matches!(line, Line::Cells(_, Some(_))) { 2 } else { 1 };
        lines.push(line);
    }
    lines
}

/// Width of the addresses and the names at the sides of the map.
fn gutters(width: usize) -> (usize, usize) {
    let addresses = if width >= 48 { 15 } else { 0 };
    let names = if width >= 64 { (width / 4).min(36) } else { 0 };
    (addresses, names)
}

/// The columns and rows that make a map fill `height` lines of a terminal, frame included.
pub fn terminal_grid(style: &TerminalStyle, height: usize) -> (usize, usize) {
    let width = style.text.width.min(4096);
    let (addresses, names) = gutters(width);
    let lines = height.saturating_sub(5).max(1);
    ((width - addresses - names).max(1), if style.in_digits() { lines } else { lines * 2 })
}

/// Draws the map with a title, axes and a legend.
pub fn write_terminal(map: &HeatMap, out: &mut dyn Write, style: &TerminalStyle) -> io::Result<()> {
    let put = |out: &mut dyn Write, text: &str| {
        let line = human::fit(text.trim_end(), style.text.width, Keep::Start, style.text.mark());
        writeln!(out, "{}", line.trim_end())
    };
    put(out, &title_line(map))?;
    if map.is_empty() {
        return put(out, "nothing to draw");
    }
    for line in lines(map, !style.in_digits()) {
        writeln!(out, "{}", draw_line(map, line, style))?;
    }
    put(out, &time_line(map, style.text.width))?;
    writeln!(out, "{}", legend(style))?;
    let note = if map.has_estimates() { Scale::note_of_estimates(style.in_digits()) } else { "" };
    put(out, &format!("{}{note}", style.scale.title()))
}

fn title_line(map: &HeatMap) -> String {
    match map.axis {
        _ if map.target.is_none() => map.title(),
        Axis::Strip { at_unix_ns } => format!("{} at {} UTC, by address", map.title(), human::utc(at_unix_ns)),
        Axis::Time { start_unix_ns, end_unix_ns } => {
            let span = human::duration(end_unix_ns - start_unix_ns);
            format!("{} from {} UTC, {span}", map.title(), human::utc(start_unix_ns))
        }
    }
}

fn draw_line(map: &HeatMap, line: Line, style: &TerminalStyle) -> String {
    let width = style.text.width;
    let (addresses, names) = gutters(width);
    let (row, mut text) = match line {
        Line::Break(row) => (row, String::new()),
        Line::Cells(row, _) => (row, format!("{:>14x} ", map.rows[row].range.start.0)),
    };
    if addresses == 0 {
        text.clear();
    }
    if let Line::Break(_) = line {
        let label = format!(" {} ", map.row_label(row));
        let dash = if style.text.ascii { "-" } else { "╌" };
        let room = width.min(4096).saturating_sub(addresses + names);
        let dashes = dash.repeat(room.saturating_sub(label.width()) / 2);
        let indent = " ".repeat(addresses);
        let line = format!("{indent}{}", human::fit(&format!("{dashes}{label}{dashes}"), room, Keep::Start, ' '));
        return line.trim_end().to_owned();
    }
    let room = width.saturating_sub(addresses + names);
    draw_cells(map, line, room, style, &mut text);
    let label = labels_of(map, line);
    if names > 1 && !label.is_empty() {
        text.push(' ');
        text += &human::fit(&label, names - 1, Keep::End, style.text.mark());
    }
    text.truncate(text.trim_end().len());
    text
}

/// The name of the first row of a line that has one.
fn labels_of(map: &HeatMap, line: Line) -> String {
    match line {
        Line::Break(row) => map.row_label(row),
        Line::Cells(row, lower) => {
            let upper = map.row_label(row);
            if upper.is_empty() { lower.map_or_else(String::new, |r| map.row_label(r)) } else { upper }
        }
    }
}

fn draw_cells(map: &HeatMap, line: Line, room: usize, style: &TerminalStyle, text: &mut String) {
    let Line::Cells(row, lower) = line else { return };
    let upper = &map.cells(row)[..map.columns.min(room)];
    if style.in_digits() {
        text.extend(upper.iter().map(|c| style.scale.digit(*c)));
        return;
    }
    let mut last = None;
    for (column, cell) in upper.iter().enumerate() {
        let below = lower.map_or(Cell::Absent, |r| map.cells(r)[column]);
        let colors = (style.scale.color(*cell), style.scale.color(below));
        let (sign, foreground, background) = match colors {
            (None, None) => (' ', None, None),
            (Some(up), down) => ('▀', Some(up), down),
            (None, Some(down)) => ('▄', Some(down), None),
        };
        if last != Some((foreground, background)) {
            *text += &escape(foreground, background, style.color);
            last = Some((foreground, background));
        }
        text.push(sign);
    }
    *text += "\x1b[0m";
}

/// The sequence that sets both colours. It starts with a reset, so that no colour means the terminal's default.
pub(crate) fn escape(foreground: Option<Rgb>, background: Option<Rgb>, mode: ColorMode) -> String {
    let mut text = "\x1b[0".to_owned();
    for (color, kind) in [(foreground, 38), (background, 48)] {
        let Some(color) = color else { continue };
        let written = match mode {
            ColorMode::True => write!(text, ";{kind};2;{};{};{}", color.0, color.1, color.2),
            ColorMode::Ansi256 => write!(text, ";{kind};5;{}", color.ansi256()),
            ColorMode::None => Ok(()),
        };
        written.expect("a String takes all that is written");
    }
    text + "m"
}

/// Time labels under the columns; nothing under a strip.
fn time_line(map: &HeatMap, width: usize) -> String {
    const APART: usize = 20;
    let Axis::Time { start_unix_ns, .. } = map.axis else { return String::new() };
    let mut line = " ".repeat(gutters(width).0);
    let from = line.len();
    for column in (0..map.columns).step_by(APART) {
        let after = map.column_unix_ns(column) - start_unix_ns;
        let label = if column == 0 { human::clock(start_unix_ns) } else { format!("+{}", human::duration(after)) };
        line += &" ".repeat((from + column).saturating_sub(line.len()));
        line += "|";
        line += &label;
    }
    line
}

fn sign_of(step: Step, style: &TerminalStyle) -> String {
    if style.in_digits() { style.scale.digit_of(step).to_string() } else { "██".to_owned() }
}

fn legend(style: &TerminalStyle) -> String {
    let count = (style.text.width.saturating_sub(24) / 10).clamp(2, 7);
    let mut text = String::new();
    let mut used = 0;
    for tick in style.scale.legend(count) {
        let (sign, label) = (sign_of(tick.step, style), tick.label);
        let width = sign.width() + label.width() + 2;
        if used + width > style.text.width.saturating_add(1) {
            continue;
        }
        used += width;
        if style.in_digits() {
            text += &format!("{sign} {label} ");
        } else {
            text += &format!("{}{sign}\x1b[0m {label} ", escape(style.scale.color_of(tick.step), None, style.color));
        }
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::model::{Arrangement, Select};
    use super::*;
    use crate::sample::{MIB, MS, SECOND, mapping, region, series, snapshot, target};
    use isotherm_heat::Region;

    fn style(width: usize, color: ColorMode) -> TerminalStyle {
        TerminalStyle { text: TextStyle { width, ascii: color == ColorMode::None }, color, scale: Scale::default() }
    }

    fn draw(map: &HeatMap, style: &TerminalStyle) -> String {
        let mut out = Vec::new();
        write_terminal(map, &mut out, style).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn small(arrangement: Arrangement) -> HeatMap {
        let regions = vec![
            region(0, MIB, 8 * MS),
            region(MIB, MIB, 600 * SECOND),
            region(2 * MIB, MIB, 0),
            region(1 << 40, MIB, SECOND),
        ];
        let maps = vec![mapping(0, 3 * MIB, "[heap]"), mapping(1 << 40, MIB, "evil\x1b[2Jname")];
        let snapshots = [snapshot(1, vec![target(1, "t", "", maps, regions)])];
        HeatMap::build(&snapshots, &Select { columns: 3, rows: 5, arrangement, ..Select::default() })
    }

    const LEGEND: &str =
        ". none 1 0.1% 4 1% 7 10% 9 100% ? unmeasured\nshare of each cell that is hot: accessed at least every 1 s\n";

    #[test]
    fn digits_show_heat_breaks_and_names() {
        let map = small(Arrangement::Time);
        let text = draw(&map, &style(80, ColorMode::None));
        assert!(text.contains("             0 999 [heap]\n        100000 ...\n        200000 ???\n"), "{text}");
        assert!(
            text.contains("1.0 TiB not mapped") && text.contains(" 10000000000 999 evil\u{fffd}[2Jname\n"),
            "{text}"
        );
        assert!(text.contains("|12:00:00") && text.ends_with(LEGEND), "{text}");
        let style = TerminalStyle { scale: Scale::Interval, ..style(80, ColorMode::None) };
        let text = draw(&map, &style);
        assert!(text.contains("             0 999 [heap]\n        100000 000\n        200000 ???\n"), "{text}");
        assert!(text.contains(" 10000000000 555 evil") && text.contains("9 8 ms ? unmeasured\nmean access"), "{text}");
    }

    #[test]
    fn the_title_says_how_estimates_are_drawn() {
        let regions = vec![
            Region { estimated_pages: 200, ..region(0, MIB, 8 * MS) },
            Region { estimated_pages: 100, ..region(MIB, MIB, 8 * MS) },
        ];
        let map = HeatMap::build(
            &[snapshot(1, vec![target(1, "t", "", vec![], regions)])],
            &Select { columns: 3, rows: 2, arrangement: Arrangement::Time, ..Select::default() },
        );
        let text = draw(&map, &style(100, ColorMode::None));
        assert!(text.contains(" 0 jjj (anon)\n") && text.contains(" 100000 999\n"), "{text}");
        assert!(text.ends_with("every 1 s; ~ and a to j where it is estimated\n"), "{text}");
        assert!(draw(&map, &style(100, ColorMode::True)).ends_with("every 1 s; paler where it is estimated\n"));
    }

    #[test]
    fn half_huge_ranges_hold_two_rows() {
        let map = small(Arrangement::Strip);
        assert_eq!(
            lines(&map, true),
            [Line::Cells(0, Some(1)), Line::Cells(2, None), Line::Break(3), Line::Cells(4, None)]
        );
        let text = draw(&map, &style(40, ColorMode::True));
        assert!(text.contains("\x1b[0;38;2;252;250;176;48;2;44;20;84m▀▀▀\x1b[0m"), "{text:?}");
        let text = draw(&map, &style(40, ColorMode::Ansi256));
        assert!(text.contains("\x1b[0;38;5;229;48;5;17m▀▀▀"), "{text:?}");
    }

    #[test]
    fn no_width_panics_and_no_line_is_too_wide() {
        for width in [0, 1, 5, 20, 47, 48, 63, 64, 80, 200] {
            let style = style(width, ColorMode::None);
            let (columns, rows) = terminal_grid(&style, 24);
            let map = HeatMap::build(&series(30), &Select { columns, rows, ..Select::default() });
            for line in draw(&map, &style).lines() {
                assert!(line.width() <= width.max(2), "{width}: {line}");
                assert_eq!(line, line.trim_end());
            }
        }
    }

    #[test]
    fn an_empty_map_says_so() {
        let map = HeatMap::build(&[snapshot(1, vec![])], &Select::default());
        assert_eq!(draw(&map, &style(80, ColorMode::True)), "no target\nnothing to draw\n");
    }
}
