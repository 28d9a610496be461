//! Text in columns: the layout of the tables and the live view.
//!
//! A table gets more than may fit and decides itself what to show. Names are cut first, down to a minimum. Then whole
//! columns are dropped, by rank. Then names are cut further. A bar takes the remaining width. So a narrow terminal
//! loses detail in a known order and never wraps a line.

use crate::human::{Keep, fit};
use crate::math;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

const GAP: usize = 2;
/// Minimum width of a name when no more columns can be dropped.
const MIN_NAME: usize = 4;
const MIN_BAR: usize = 6;
const MAX_BAR: usize = 40;

/// Limits of text output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Columns of the terminal, or `usize::MAX` for no limit.
    pub width: usize,
    /// Draw only ASCII characters. Names keep their letters.
    pub ascii: bool,
}

impl Default for TextStyle {
    fn default() -> TextStyle {
        TextStyle { width: 80, ascii: false }
    }
}

impl TextStyle {
    /// The character at the place where text was cut.
    pub(crate) fn mark(self) -> char {
        if self.ascii { '.' } else { '…' }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// One column: its format, and what happens if the terminal is too narrow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    head: &'static str,
    align: Align,
    keep: Keep,
    /// Width down to which it may be cut before columns are dropped; 0 if it must not be cut.
    least: usize,
    /// Columns of higher rank are dropped first. Columns of rank 0 are never dropped.
    rank: u8,
}

impl Column {
    /// A column of numbers: right-aligned, never cut.
    pub(crate) const fn number(head: &'static str, rank: u8) -> Column {
        Column { head, align: Align::Right, keep: Keep::Start, least: 0, rank }
    }

    /// Columns of numbers, from their headings and ranks.
    pub(crate) fn numbers(heads: &[(&'static str, u8)]) -> Vec<Column> {
        heads.iter().map(|(head, rank)| Column::number(head, *rank)).collect()
    }

    /// A column of names: left-aligned, cut before any column is dropped.
    pub(crate) const fn name(head: &'static str, keep: Keep, least: usize, rank: u8) -> Column {
        Column { head, align: Align::Left, keep, least, rank }
    }

    /// A column of fixed text, such as addresses.
    pub(crate) const fn fixed(head: &'static str, rank: u8) -> Column {
        Column { head, align: Align::Left, keep: Keep::Start, least: 0, rank }
    }
}

/// Rows of text under headings, with an optional bar at the end of each row.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    bars: Vec<f64>,
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new(), bars: Vec::new() }
    }

    /// A table with all its rows and no bars.
    pub(crate) fn of(columns: &[Column], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
        let mut table = Table::new(columns);
        rows.into_iter().for_each(|cells| table.row(cells));
        table
    }

    /// A table with all its rows, each with a bar of a share (0 to 1) at its end.
    pub(crate) fn with_bars(columns: &[Column], rows: impl IntoIterator<Item = (Vec<String>, f64)>) -> Table {
        let mut table = Table::new(columns);
        rows.into_iter().for_each(|(cells, share)| table.row_with_bar(cells, share));
        table
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Adds a row with a bar of `share` (0 to 1) at its end. In one table, either all rows have a bar or none has.
    pub(crate) fn row_with_bar(&mut self, cells: Vec<String>, share: f64) {
        self.row(cells);
        self.bars.push(share);
    }

    /// The heading and the rows. None is wider than `style.width` or ends in a space.
    pub(crate) fn lines(&self, style: TextStyle) -> Vec<String> {
        let shown = self.layout(style.width);
        let used: usize = shown.iter().map(|(_, w)| w + GAP).sum::<usize>();
        let bar = style.width.saturating_sub(used).min(MAX_BAR);
        let heads: Vec<&str> = self.columns.iter().map(|c| c.head).collect();
        let mut lines = vec![self.line(&shown, &heads, style)];
        for (index, row) in self.rows.iter().enumerate() {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            let mut line = self.line(&shown, &cells, style);
            if let Some(share) = self.bars.get(index).filter(|_| bar >= MIN_BAR) {
                line = pad(&line, used, Align::Left) + &draw_bar(*share, bar, style.ascii);
                line.truncate(line.trim_end().len());
            }
            lines.push(line);
        }
        lines
    }

    pub(crate) fn write(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        self.lines(style).iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    /// The visible columns and their widths.
    fn layout(&self, width: usize) -> Vec<(usize, usize)> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        loop {
            let mut widths: Vec<(usize, usize)> = shown.iter().map(|c| (*c, self.natural(*c))).collect();
            let total = widths.iter().map(|(_, w)| w + GAP).sum::<usize>().saturating_sub(GAP);
            let missing = self.shrink(&mut widths, total.saturating_sub(width), usize::MAX);
            let droppable = shown.iter().copied().filter(|c| self.columns[*c].rank > 0);
            match droppable.max_by_key(|c| self.columns[*c].rank) {
                _ if missing == 0 => return widths,
                Some(column) => shown.retain(|c| *c != column),
                None => {
                    self.shrink(&mut widths, missing, MIN_NAME);
                    return widths;
                }
            }
        }
    }

    fn natural(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].width());
        cells.chain([self.columns[column].head.width()]).max().unwrap_or(0)
    }

    /// Takes `missing` columns of text from the names, each down to its minimum width or `bound`, whichever is smaller.
    /// Returns the part that could not be taken.
    fn shrink(&self, widths: &mut [(usize, usize)], mut missing: usize, bound: usize) -> usize {
        for (column, width) in widths {
            let least = self.columns[*column].least.min(bound);
            if least > 0 {
                let taken = missing.min(width.saturating_sub(least));
                *width -= taken;
                missing -= taken;
            }
        }
        missing
    }

    fn line(&self, shown: &[(usize, usize)], cells: &[&str], style: TextStyle) -> String {
        let mut line = String::new();
        for (at, (column, width)) in shown.iter().enumerate() {
            let spec = self.columns[*column];
            let cell = fit(cells[*column], *width, spec.keep, style.mark());
            line += if at > 0 { "  " } else { "" };
            line += &pad(&cell, *width, spec.align);
        }
        fit(line.trim_end(), style.width, Keep::Start, style.mark()).trim_end().to_owned()
    }
}

fn pad(text: &str, width: usize, align: Align) -> String {
    let spaces = " ".repeat(width.saturating_sub(text.width()).min(1 << 16));
    match align {
        Align::Left => text.to_owned() + &spaces,
        Align::Right => spaces + text,
    }
}

/// A bar of at most `width` columns, filled to `share`, in eighths of a column if those can be drawn.
pub(crate) fn draw_bar(share: f64, width: usize, ascii: bool) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = share.clamp(0.0, 1.0);
    if ascii {
        return "#".repeat(math::floor(share * width as f64 + 0.5));
    }
    let eighths = math::floor(share * width as f64 * 8.0 + 0.5);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Writes a sentence, wrapped between words so that no line exceeds the style's width.
pub fn write_wrapped(out: &mut dyn Write, text: &str, style: TextStyle) -> io::Result<()> {
    wrap(text, style).iter().try_for_each(|line| writeln!(out, "{line}"))
}

pub(crate) fn wrap(text: &str, style: TextStyle) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let word = fit(word, style.width, Keep::Start, style.mark());
        let line = lines.last_mut().expect("begins with one line");
        if line.is_empty() {
            *line = word;
        } else if line.width() + 1 + word.width() <= style.width {
            *line += " ";
            *line += &word;
        } else {
            lines.push(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut t =
            Table::new(&[Column::number("PID", 0), Column::name("NAME", Keep::Start, 6, 1), Column::number("SIZE", 2)]);
        t.row_with_bar(vec!["7".into(), "a-long-command".into(), "1.5 GiB".into()], 0.5);
        t
    }

    fn lines(width: usize) -> Vec<String> {
        table().lines(TextStyle { width, ascii: true })
    }

    #[test]
    fn names_are_cut_first_then_columns_dropped_then_lines_cut() {
        assert_eq!(lines(28), ["PID  NAME               SIZE", "  7  a-long-command  1.5 GiB"]);
        assert_eq!(lines(20), ["PID  NAME       SIZE", "  7  a-lon.  1.5 GiB"]);
        assert_eq!(lines(19), ["PID  NAME", "  7  a-long-command"]);
        assert_eq!(lines(10), ["PID", "  7"]);
        assert_eq!(lines(2), ["P.", " ."]);
        assert_eq!(lines(0), ["", ""]);
    }

    #[test]
    fn a_bar_takes_the_room_that_is_left() {
        assert_eq!(lines(40)[1], "  7  a-long-command  1.5 GiB  #####");
        assert_eq!(draw_bar(0.5, 5, false), "██▌");
        assert_eq!(draw_bar(2.0, 3, true), "###");
    }

    #[test]
    fn sentences_break_between_words() {
        let style = TextStyle { width: 9, ascii: true };
        assert_eq!(wrap("one two three unbelievable", style), ["one two", "three", "unbeliev."]);
    }
}
