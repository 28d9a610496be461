//! How well frames are placed for a direct-mapped memory-side cache: rates, colours, and a picture of the colours.
//!
//! Draws the results of `isotherm_placement` as text. That crate owns the data and defines its meaning. In the picture,
//! a cell is a range of neighbouring colours, row by row from colour 0 on, and its shade is their load. Like a heat
//! map, it is drawn in coloured half blocks or in digits.

use crate::heatmap::{ColorMode, Rgb, TerminalStyle, escape, heat_color};
use crate::human::{self, Keep};
use crate::math;
use crate::text::{Column, Table, TextStyle, write_wrapped};
use isotherm_placement::report::{
    ColourCell, ColoursByFrames, DrawnRate, PlacementCache, PlacementNode, PlacementRates, PlacementReport,
    PlacementTarget,
};
use isotherm_units::Bytes;
use std::io::{self, Write};

/// Processes that the text names; the others are counted.
const NAMED: usize = 5;

/// Writes a report as text, with a picture for each node that has a cache.
pub fn write_text(report: &PlacementReport, out: &mut dyn Write, style: &TerminalStyle) -> io::Result<()> {
    Text(report).write(out, style)
}

/// The sentences and tables of a report.
struct Text<'a>(&'a PlacementReport);

impl Text<'_> {
    fn write(&self, out: &mut dyn Write, style: &TerminalStyle) -> io::Result<()> {
        let text = style.text;
        for sentence in self.head() {
            write_wrapped(out, &sentence, text)?;
        }
        let sections: Vec<Section<'_>> = self.sections().collect();
        for section in &sections {
            section.write(out, style)?;
        }
        writeln!(out)?;
        if self.0.unknown_node_frames > 0 {
            let frames = counted(self.0.unknown_node_frames, "frame");
            let line = format!("{frames} in no zone, or in zones of several nodes: node unknown, not in any rate");
            write_wrapped(out, &line, text)?;
        }
        match &self.0.rates {
            Some(rates) if sections.iter().filter(|s| s.node.cache.is_some()).count() > 1 => {
                write_wrapped(out, &self.total_line(), text)?;
                rate_table(rates, self.0.heat.is_some()).write(out, text)?;
                writeln!(out)?;
            }
            Some(_) if self.0.nodes.len() > 1 || self.0.unknown_node_frames > 0 => {
                write_wrapped(out, &self.total_line(), text)?;
            }
            _ => {}
        }
        write_wrapped(out, &self.advice(), text)?;
        match self.assumptions() {
            Some(line) => write_wrapped(out, &line, text),
            None => Ok(()),
        }
    }

    /// The nodes that have something to report.
    fn sections(&self) -> impl Iterator<Item = Section<'_>> {
        let shown = |node: &&PlacementNode| node.frames > 0 || node.cache.is_some() || node.unclear.is_some();
        let (alone, by_heat) = (self.0.nodes.len() == 1 && self.0.unknown_node_frames == 0, self.0.heat.is_some());
        self.0.nodes.iter().filter(shown).map(move |node| Section {
            node,
            alone,
            by_heat,
            columns: self.0.picture_columns,
        })
    }

    fn head(&self) -> Vec<String> {
        let mut head = vec![format!(
            "placement of {}: {} in {} frames and {} blocks of 4 MiB",
            self.whose(),
            self.0.footprint_bytes,
            self.0.frames,
            self.0.blocks
        )];
        head.push(match &self.0.heat {
            Some(source) => format!("weighted by heat: {source}{}", self.unknown_heat()),
            None => "every resident page has the same weight; --heat weights pages by access rate".to_owned(),
        });
        let sum = |pages: fn(&PlacementTarget) -> u64| {
            let all = self.0.targets.iter().fold(0, |sum: u64, target| sum.saturating_add(pages(target)));
            Bytes(all.saturating_mul(4096))
        };
        let zeros = match sum(|t| t.zero_pages) {
            Bytes(0) => String::new(),
            zeros => format!(", {zeros} of zero pages"),
        };
        head.push(format!(
            "not counted: {} swapped out, {} mapped but not populated{zeros}; {} shared and counted once",
            sum(|t| t.swapped_pages),
            sum(|t| t.absent_pages),
            Bytes::of_pages(self.0.shared_pages)
        ));
        if let Some(first) = self.0.left_out.first() {
            let others = if self.0.left_out.len() == 1 { "" } else { " and others for similar reasons" };
            let processes = if self.0.left_out.len() == 1 { "process" } else { "processes" };
            head.push(format!(
                "skipped: {} {processes}: {} {}{others}",
                self.0.left_out.len(),
                first.pid,
                human::printable(&first.why)
            ));
        }
        head
    }

    fn whose(&self) -> String {
        let name = |t: &PlacementTarget| format!("{} {}", t.pid, human::printable(&t.comm));
        match &self.0.targets[..] {
            few if few.len() <= NAMED => few.iter().map(name).collect::<Vec<_>>().join(", "),
            many => format!("{} processes", many.len()),
        }
    }

    fn unknown_heat(&self) -> String {
        match self.0.targets.iter().filter_map(|t| t.unknown_heat_pages).sum::<u64>() {
            0 => String::new(),
            pages => format!("; {} of unknown heat counted as never accessed", Bytes::of_pages(pages)),
        }
    }

    fn total_line(&self) -> String {
        let behind = tenths(self.0.behind_cache_pct.unwrap_or_default());
        let placed =
            self.0.rates.map_or(String::new(), |r| format!("; {}% of those miss as placed", tenths(r.placed_pct)));
        format!("all nodes: {behind}% of all accesses go to memory behind a cache{placed}")
    }

    /// Whether the kernel shuffles its free lists, and what shuffling would change.
    fn advice(&self) -> String {
        let state = match self.0.shuffle_on {
            Some(true) => "page_alloc.shuffle is on",
            Some(false) => "page_alloc.shuffle is off",
            None => {
                "whether page_alloc.shuffle is on is unknown (/sys/module/page_alloc/parameters/shuffle cannot be read)"
            }
        };
        let Some(rates) = self.0.rates else { return state.to_owned() };
        let (placed, shuffled) = (rates.placed_pct, rates.shuffled);
        let of = tenths;
        let points = of((placed - shuffled.mean_pct).abs());
        let range = format!("{}% ({} to {})", of(shuffled.mean_pct), of(shuffled.min_pct), of(shuffled.max_pct));
        let draws = counted(u64::from(shuffled.draws), "draw");
        let below = format!("{:.0}% of draws below as placed", rates.shuffled_below_placed_pct);
        let gain = if placed > shuffled.max_pct || placed < shuffled.min_pct {
            let change = if placed > shuffled.max_pct { "less" } else { "more" };
            format!(
                "in {draws} a shuffle misses {range} instead of {}%: {points} points {change} on average, {below}",
                of(placed)
            )
        } else {
            format!("as placed, {}% is within the range of {draws} of a shuffle: {range}, {below}", of(placed))
        };
        let when = match self.0.shuffle_on {
            Some(true) => "the current placement is one such shuffle, changed by allocations and frees since",
            _ => "to turn it on, boot with page_alloc.shuffle=1; it affects memory allocated after that",
        };
        let coloured = rates.coloured.mean_pct;
        let more = if placed.min(shuffled.mean_pct) - coloured >= 0.05 {
            format!("; spread evenly over colours the same frames would miss {}%", of(coloured))
        } else {
            String::new()
        };
        format!("{state}: {gain}; {when}{more}")
    }

    /// The assumptions behind the rates; `None` if there are no rates.
    fn assumptions(&self) -> Option<String> {
        let behind: Vec<(&PlacementNode, u64)> =
            self.0.nodes.iter().filter_map(|node| Some((node, node.cache.as_ref()?.colours))).collect();
        let (modulo, memory) = match &behind[..] {
            [] => return None,
            [(node, colours)] => (colours.to_string(), node.memory_bytes.to_string()),
            _ => ("the colours of its node's cache".to_owned(), "its node's".to_owned()),
        };
        Some(format!(
            "assumed: a frame's colour is its number modulo {modulo}; references are independent of each other; shuffled blocks lie \
             anywhere in {memory}{} memory",
            if behind.len() == 1 { " of" } else { "" }
        ))
    }
}

/// The text about one node.
struct Section<'a> {
    node: &'a PlacementNode,
    /// Whether it holds all frames, so that it does not need to be named.
    alone: bool,
    by_heat: bool,
    columns: usize,
}

impl Section<'_> {
    fn write(&self, out: &mut dyn Write, style: &TerminalStyle) -> io::Result<()> {
        let text = style.text;
        if !self.alone {
            writeln!(out)?;
            write_wrapped(out, &self.heading(), text)?;
        }
        let Some(cache) = &self.node.cache else { return Ok(()) };
        write_wrapped(out, &cache_line(cache), text)?;
        if self.node.frames == 0 {
            return Ok(());
        }
        writeln!(out)?;
        match &self.node.rates {
            Some(rates) => rate_table(rates, self.by_heat).write(out, text)?,
            None => write_wrapped(out, "nothing was accessed, so nothing can miss", text)?,
        }
        writeln!(out)?;
        write_wrapped(out, &self.colours_line(cache), text)?;
        if let Some(line) = self.most_loaded_line() {
            write_wrapped(out, &line, text)?;
        }
        self.draw(out, style)
    }

    fn heading(&self) -> String {
        let node = self.node;
        let mut line = format!("node {}, {}: ", node.node, node.memory_bytes);
        line += &match (node.frames, node.accesses_pct) {
            (0, _) => "none of these frames".to_owned(),
            (frames, pct) => {
                let accesses = match pct {
                    Some(pct) if self.by_heat => format!(", {}% of accesses", tenths(pct)),
                    _ => String::new(),
                };
                let (frames, blocks) = (counted(frames, "frame"), counted(node.blocks, "block"));
                format!("{} in {frames} and {blocks} of 4 MiB{accesses}", node.footprint_bytes)
            }
        };
        match (&node.cache, &node.unclear) {
            (Some(_), _) => {}
            (None, Some(unclear)) => line += &format!("; not taken as behind a cache: {}", human::printable(unclear)),
            (None, None) => line += "; not behind a cache",
        }
        line
    }

    fn colours(&self) -> u64 {
        self.node.cache.as_ref().map_or(0, |cache| cache.colours)
    }

    fn colours_line(&self, cache: &PlacementCache) -> String {
        let last = self.node.colours_by_frames.last().map(|b| b.frames);
        let entry = |b: &ColoursByFrames| {
            let more = if Some(b.frames) == last && b.frames > 1 && self.is_open_ended() { " or more" } else { "" };
            format!("{} with {}{more}", b.colours, b.frames)
        };
        let entries: Vec<String> = self.node.colours_by_frames.iter().map(entry).collect();
        let crowded = self
            .node
            .rates
            .map(|r| format!("; {}% of accesses go to colours with more than one", tenths(r.crowded_pct)))
            .unwrap_or_default();
        format!(
            "colours in use: {} of {}; by frames on them: {}{crowded}",
            self.node.colours_used,
            cache.colours,
            if entries.is_empty() { "none".to_owned() } else { entries.join(", ") }
        )
    }

    /// Whether the last number of frames includes larger numbers.
    fn is_open_ended(&self) -> bool {
        let listed: u64 = self.node.colours_by_frames.iter().map(|b| b.frames * b.colours).sum();
        listed < self.node.frames
    }

    fn most_loaded_line(&self) -> Option<String> {
        let crowded: Vec<String> = self
            .node
            .most_loaded
            .iter()
            .filter(|c| c.frames > 1)
            .take(NAMED)
            .map(|c| match c.accesses_pct {
                Some(pct) if self.by_heat => {
                    format!("{} ({} frames, {}% of accesses)", c.colour, c.frames, human::percent(pct))
                }
                _ => format!("{} ({} frames)", c.colour, c.frames),
            })
            .collect();
        (!crowded.is_empty()).then(|| format!("most loaded: {}", crowded.join(", ")))
    }

    /// The mean load of a colour in the cells, divided by the mean load of all colours: 1 is even.
    fn load(&self, cells: &[ColourCell]) -> f64 {
        let colours: u64 = cells.iter().map(|c| c.colours).sum();
        let part = if self.by_heat {
            cells.iter().filter_map(|c| c.accesses_pct).sum::<f64>() / 100.0
        } else {
            math::share(cells.iter().map(|c| c.frames).sum(), self.node.frames)
        };
        let even = math::share(colours, self.colours());
        if even > 0.0 { part / even } else { 0.0 }
    }

    fn draw(&self, out: &mut dyn Write, style: &TerminalStyle) -> io::Result<()> {
        let columns = self.columns.max(1);
        // Neighbouring cells are joined if the picture was made for a wider terminal.
        let joined = columns.div_ceil(style.text.width.max(1));
        let rows: Vec<Vec<f64>> = self
            .node
            .picture
            .chunks(columns)
            .map(|row| row.chunks(joined).map(|cells| self.load(cells)).collect())
            .collect();
        let most = rows.iter().flatten().copied().fold(0.0, f64::max);
        if most <= 0.0 {
            return Ok(());
        }
        // An even load is never drawn as the hottest.
        let scale = most.max(2.0);
        if style.in_digits() {
            for row in &rows {
                let line: String = row.iter().map(|load| digit(*load / scale)).collect();
                writeln!(out, "{}", line.trim_end())?;
            }
        } else {
            for pair in rows.chunks(2) {
                writeln!(out, "{}", half_blocks(&pair[0], pair.get(1), scale, style.color))?;
            }
        }
        write_wrapped(out, &self.legend(most, scale, style), style.text)
    }

    fn legend(&self, most: f64, scale: f64, style: &TerminalStyle) -> String {
        let sizes = || self.node.picture.iter().map(|c| c.colours);
        let cell = match (sizes().min().unwrap_or(1), sizes().max().unwrap_or(1)) {
            (_, 1) => "a cell is a colour".to_owned(),
            (least, most) if least == most => format!("a cell is {most} colours"),
            (_, most) => format!("a cell is up to {most} colours"),
        };
        let (what, unit) = if self.by_heat {
            ("accesses".to_owned(), "times the mean".to_owned())
        } else {
            (String::from("frames"), "frames a colour".to_owned())
        };
        let mean = if self.by_heat { 1.0 } else { self.node.frames as f64 / self.colours().max(1) as f64 };
        let brightest = if style.in_digits() { "9" } else { "the brightest" };
        format!(
            "{what} by colour, from 0 on, row by row; {cell}; {brightest} is {} {unit}, the most here is {}",
            human::rate(scale * mean),
            human::rate(most * mean)
        )
    }
}

fn rate_table(rates: &PlacementRates, by_heat: bool) -> Table {
    let mut table = Table::new(&[
        Column::name("", Keep::Start, 6, 0),
        Column::number("MISS %", 0),
        Column::number("FROM", 2),
        Column::number("TO", 2),
        Column::number("DRAWS", 3),
    ]);
    let mut row = |name: &str, pct: f64, drawn: Option<DrawnRate>| {
        let range = drawn.filter(|d| d.draws > 1);
        let cells = vec![
            name.to_owned(),
            tenths(pct),
            range.map_or(String::new(), |d| tenths(d.min_pct)),
            range.map_or(String::new(), |d| tenths(d.max_pct)),
            range.map_or(String::new(), |d| d.draws.to_string()),
        ];
        table.row_with_bar(cells, pct / 100.0);
    };
    row("as placed", rates.placed_pct, None);
    row("as if shuffled", rates.shuffled.mean_pct, Some(rates.shuffled));
    row("as if coloured", rates.coloured.mean_pct, Some(rates.coloured));
    if by_heat {
        row("hot next to cold", rates.coloured_by_heat_pct, None);
    }
    row("unavoidable", rates.unavoidable_pct, None);
    table
}

/// The cache, the origin of its description, and the doubts about it.
fn cache_line(cache: &PlacementCache) -> String {
    let kind = if cache.extended_linear { "direct-mapped, extended-linear" } else { "direct-mapped" };
    let known = if cache.modelled { "assumed, not measured" } else { "as reported by this machine" };
    let mut line = format!("cache: {} {kind}, {} colours ({}): {known}", cache.size_bytes, cache.colours, cache.source);
    if cache.extended_linear {
        line += &format!("; it is memory too, and frames {} apart share one place in it", cache.size_bytes);
    }
    if !cache.doubts.is_empty() {
        let doubts: Vec<_> = cache.doubts.iter().map(|doubt| human::printable(doubt)).collect();
        line += &format!("; in doubt: {}", doubts.join("; "));
    }
    line
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Rates shown next to each other need the same number of digits.
fn tenths(pct: f64) -> String {
    format!("{pct:.1}")
}

/// 9 for the highest load, 0 for the lowest, a space where there are no frames.
fn digit(share: f64) -> char {
    if share <= 0.0 { ' ' } else { char::from(b'0' + math::to_byte((share * 10.0).floor().min(9.0))) }
}

fn half_blocks(upper: &[f64], lower: Option<&Vec<f64>>, scale: f64, mode: ColorMode) -> String {
    let color = |load: f64| -> Option<Rgb> { (load > 0.0).then(|| heat_color(load / scale)) };
    let (mut line, mut last) = (String::new(), None);
    for (column, load) in upper.iter().enumerate() {
        let below = lower.and_then(|row| row.get(column)).copied().unwrap_or(0.0);
        let (sign, foreground, background) = match (color(*load), color(below)) {
            (None, None) => (' ', None, None),
            (Some(up), down) => ('▀', Some(up), down),
            (None, Some(down)) => ('▄', Some(down), None),
        };
        if last != Some((foreground, background)) {
            line += &escape(foreground, background, mode);
            last = Some((foreground, background));
        }
        line.push(sign);
    }
    line + "\x1b[0m"
}

/// The maximum size of a picture in this style: columns, and rows.
pub fn picture_grid(style: TextStyle) -> (usize, usize) {
    (style.width.clamp(1, 100), 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_end_at_nine_and_nothing_is_a_space() {
        assert_eq!([0.0, 0.01, 0.5, 0.99, 1.0].map(digit), [' ', '0', '5', '9', '9']);
    }

    #[test]
    fn a_lower_row_may_be_shorter() {
        let line = half_blocks(&[1.0, 0.0, 0.0], Some(&vec![0.0, 1.0]), 2.0, ColorMode::Ansi256);
        assert_eq!(line.chars().filter(|c| ['▀', '▄', ' '].contains(c)).collect::<String>(), "▀▄ ");
        assert_eq!(picture_grid(TextStyle { width: usize::MAX, ascii: true }).0, 100);
    }
}
