//! How well frames are placed for a direct-mapped memory-side cache: rates, colours, and a picture of the colours.
//!
//! Filled in by `isotherm placement` with what it read and computed; here it is only shown, as text or as data. Rates are shares of all
//! accesses in percent. In the picture a cell is a run of neighbouring colours, row after row from colour 0 on, and its shade how much lies
//! on them: like a heat map it is drawn in half blocks of colour, or in digits.

use crate::heatmap::{ColorMode, Rgb, TerminalStyle, escape, heat_color};
use crate::human::{self, Keep};
use crate::math;
use crate::text::{Column, Table, TextStyle, write_wrapped};
use isotherm_units::Bytes;
use serde::Serialize;
use std::io::{self, Write};

/// Processes that the text names; the rest is counted.
const NAMED: usize = 5;

/// The cache that frames are held against.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementCache {
    /// Its size.
    pub size_bytes: Bytes,
    /// How many colours it has: one a frame that it holds.
    pub colours: u64,
    /// Whether it is only assumed: the machine may have none, or another.
    pub modelled: bool,
    /// Where its size comes from: a few words.
    pub source: String,
}

/// One process whose frames were read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementTarget {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: String,
    /// Pages that have a frame.
    pub resident_pages: u64,
    /// Pages that are swapped out (or just being moved), which have none.
    pub swapped_pages: u64,
    /// Pages of its mappings that were never touched, or given back.
    pub absent_pages: u64,
    /// Resident pages of which no heat is known, counted as never accessed; `None` if heat was not asked for.
    pub unknown_heat_pages: Option<u64>,
}

/// A process that was asked for and is not in the figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// Process id.
    pub pid: u32,
    /// The reason.
    pub why: String,
}

/// A rate that was drawn several times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DrawnRate {
    /// Mean over the draws.
    pub mean_pct: f64,
    /// The lowest draw.
    pub min_pct: f64,
    /// The highest draw.
    pub max_pct: f64,
    /// How many draws.
    pub draws: u32,
}

/// Shares of accesses that miss, in each placement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlacementRates {
    /// Where the frames lie.
    pub placed_pct: f64,
    /// With their blocks of 4 MiB at random places.
    pub shuffled: DrawnRate,
    /// Spread evenly over the colours.
    pub coloured: DrawnRate,
    /// Spread evenly, the hottest beside the coldest.
    pub coloured_by_heat_pct: f64,
    /// Footprint beyond the cache: in any placement.
    pub unavoidable_pct: f64,
    /// Accesses to colours that hold more than one frame, where the frames lie.
    pub crowded_pct: f64,
}

/// How many colours hold so many frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ColoursByFrames {
    /// So many frames, or more if it is the last.
    pub frames: u64,
    /// So many colours.
    pub colours: u64,
}

/// A colour with much on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadedColour {
    /// Which.
    pub colour: u64,
    /// Frames on it.
    pub frames: u64,
    /// Its share of all accesses; `None` if there are none.
    pub accesses_pct: Option<f64>,
}

/// A run of neighbouring colours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ColourCell {
    /// The first of them.
    pub first_colour: u64,
    /// How many.
    pub colours: u64,
    /// Frames on them.
    pub frames: u64,
    /// Their share of all accesses; `None` if there are none.
    pub accesses_pct: Option<f64>,
}

/// What is known of where frames lie.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementReport {
    /// The cache.
    pub cache: PlacementCache,
    /// Where heat comes from; `None` if every resident page weighs the same.
    pub heat: Option<String>,
    /// Whose frames these are, by pid.
    pub targets: Vec<PlacementTarget>,
    /// Who was left out.
    pub left_out: Vec<LeftOut>,
    /// Frames, each once.
    pub frames: u64,
    /// Their bytes.
    pub footprint_bytes: Bytes,
    /// Blocks of 4 MiB that they lie in.
    pub blocks: u64,
    /// Pages that share a frame with a page counted already.
    pub shared_pages: u64,
    /// Miss rates; `None` if nothing is accessed.
    pub rates: Option<PlacementRates>,
    /// Colours with a frame on them.
    pub colours_used: u64,
    /// Those by how many; none for 0.
    pub colours_by_frames: Vec<ColoursByFrames>,
    /// Those with most accesses beside each other, most first.
    pub most_loaded: Vec<LoadedColour>,
    /// Whether the kernel shuffles its free lists; `None` if that is unknown.
    pub shuffle_on: Option<bool>,
    /// Memory in which shuffled blocks were placed.
    pub memory_bytes: Bytes,
    /// What draws began with.
    pub seed: u64,
    /// Colours in a row of the picture are so many cells.
    pub picture_columns: usize,
    /// The picture, from colour 0 on.
    pub picture: Vec<ColourCell>,
}

impl PlacementReport {
    /// Writes the report as text, with the picture in it.
    pub fn write_text(&self, out: &mut dyn Write, style: &TerminalStyle) -> io::Result<()> {
        let text = style.text;
        for sentence in self.head() {
            write_wrapped(out, &sentence, text)?;
        }
        writeln!(out)?;
        match &self.rates {
            Some(rates) => self.rate_table(rates).write(out, text)?,
            None => write_wrapped(out, "nothing was accessed, so nothing can miss", text)?,
        }
        writeln!(out)?;
        write_wrapped(out, &self.colours_line(), text)?;
        if let Some(line) = self.most_loaded_line() {
            write_wrapped(out, &line, text)?;
        }
        self.draw(out, style)?;
        writeln!(out)?;
        write_wrapped(out, &self.advice(), text)?;
        write_wrapped(out, &self.assumptions(), text)
    }

    fn head(&self) -> Vec<String> {
        let mut head = vec![format!(
            "placement of {}: {} in {} frames and {} blocks of 4 MiB",
            self.whose(),
            self.footprint_bytes,
            self.frames,
            self.blocks
        )];
        head.push(match &self.heat {
            Some(source) => format!("weighed by heat: {source}{}", self.unknown_heat()),
            None => "every resident page weighs the same; --heat weighs it by how often it is accessed".to_owned(),
        });
        let (swapped, absent) = self.targets.iter().fold((0, 0), |(swapped, absent): (u64, u64), target| {
            (swapped.saturating_add(target.swapped_pages), absent.saturating_add(target.absent_pages))
        });
        head.push(format!(
            "left out: {} swapped out, {} mapped and not there; {} shared and counted once",
            Bytes::of_pages(swapped),
            Bytes(absent.saturating_mul(4096)),
            Bytes::of_pages(self.shared_pages)
        ));
        if let Some(first) = self.left_out.first() {
            let others = if self.left_out.len() == 1 { "" } else { " and for such reasons others" };
            let processes = if self.left_out.len() == 1 { "process is" } else { "processes are" };
            head.push(format!(
                "{} {processes} not in it: {} {}{others}",
                self.left_out.len(),
                first.pid,
                human::printable(&first.why)
            ));
        }
        let kind = if self.cache.modelled { "a model, no measurement" } else { "as this machine tells" };
        head.push(format!(
            "cache: {} direct-mapped, {} colours ({}): {kind}",
            self.cache.size_bytes, self.cache.colours, self.cache.source
        ));
        head
    }

    fn whose(&self) -> String {
        let name = |t: &PlacementTarget| format!("{} {}", t.pid, human::printable(&t.comm));
        match &self.targets[..] {
            few if few.len() <= NAMED => few.iter().map(name).collect::<Vec<_>>().join(", "),
            many => format!("{} processes", many.len()),
        }
    }

    fn unknown_heat(&self) -> String {
        match self.targets.iter().filter_map(|t| t.unknown_heat_pages).sum::<u64>() {
            0 => String::new(),
            pages => format!("; {} of unknown heat counted as never accessed", Bytes::of_pages(pages)),
        }
    }

    fn rate_table(&self, rates: &PlacementRates) -> Table {
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
        if self.heat.is_some() {
            row("hot beside cold", rates.coloured_by_heat_pct, None);
        }
        row("unavoidable", rates.unavoidable_pct, None);
        table
    }

    fn colours_line(&self) -> String {
        let last = self.colours_by_frames.last().map(|b| b.frames);
        let entry = |b: &ColoursByFrames| {
            let more = if Some(b.frames) == last && b.frames > 1 && self.is_open_ended() { " or more" } else { "" };
            format!("{} with {}{more}", b.colours, b.frames)
        };
        let entries: Vec<String> = self.colours_by_frames.iter().map(entry).collect();
        let crowded = self
            .rates
            .map(|r| format!("; {}% of accesses go to colours with more than one", tenths(r.crowded_pct)))
            .unwrap_or_default();
        format!(
            "colours in use: {} of {}; by frames on them: {}{crowded}",
            self.colours_used,
            self.cache.colours,
            if entries.is_empty() { "none".to_owned() } else { entries.join(", ") }
        )
    }

    /// Whether the last number of frames stands for more as well.
    fn is_open_ended(&self) -> bool {
        let told: u64 = self.colours_by_frames.iter().map(|b| b.frames * b.colours).sum();
        told < self.frames
    }

    fn most_loaded_line(&self) -> Option<String> {
        let crowded: Vec<String> = self
            .most_loaded
            .iter()
            .filter(|c| c.frames > 1)
            .take(NAMED)
            .map(|c| match c.accesses_pct {
                Some(pct) if self.heat.is_some() => {
                    format!("{} ({} frames, {}% of accesses)", c.colour, c.frames, human::percent(pct))
                }
                _ => format!("{} ({} frames)", c.colour, c.frames),
            })
            .collect();
        (!crowded.is_empty()).then(|| format!("most loaded: {}", crowded.join(", ")))
    }

    /// What lies on a colour of the cell in the mean, over what lies on a colour in the mean: 1 is even.
    fn load(&self, cells: &[ColourCell]) -> f64 {
        let colours: u64 = cells.iter().map(|c| c.colours).sum();
        let part = if self.heat.is_some() {
            cells.iter().filter_map(|c| c.accesses_pct).sum::<f64>() / 100.0
        } else {
            math::share(cells.iter().map(|c| c.frames).sum(), self.frames)
        };
        let even = math::share(colours, self.cache.colours);
        if even > 0.0 { part / even } else { 0.0 }
    }

    fn draw(&self, out: &mut dyn Write, style: &TerminalStyle) -> io::Result<()> {
        let columns = self.picture_columns.max(1);
        // Neighbours are joined if the picture was made for a wider terminal.
        let joined = columns.div_ceil(style.text.width.max(1));
        let rows: Vec<Vec<f64>> = self
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
        let per_cell = self.picture.iter().map(|c| c.colours).max().unwrap_or(1);
        let cell =
            if per_cell == 1 { "a cell is a colour".to_owned() } else { format!("a cell is {per_cell} colours") };
        let (what, unit) = if self.heat.is_some() {
            ("accesses".to_owned(), "times the mean".to_owned())
        } else {
            (String::from("frames"), "frames a colour".to_owned())
        };
        let mean = if self.heat.is_some() { 1.0 } else { self.frames as f64 / self.cache.colours.max(1) as f64 };
        let brightest = if style.in_digits() { "9" } else { "the brightest" };
        format!(
            "{what} by colour, from 0 on, row by row; {cell}; {brightest} is {} {unit}, the most here is {}",
            human::rate(scale * mean),
            human::rate(most * mean)
        )
    }

    /// Whether the kernel shuffles, and what it would give.
    fn advice(&self) -> String {
        let state = match self.shuffle_on {
            Some(true) => "page_alloc.shuffle is on",
            Some(false) => "page_alloc.shuffle is off",
            None => {
                "whether page_alloc.shuffle is on is unknown (/sys/module/page_alloc/parameters/shuffle cannot be read)"
            }
        };
        let Some(rates) = self.rates else { return state.to_owned() };
        let (placed, shuffled) = (rates.placed_pct, rates.shuffled);
        let of = tenths;
        let points = of((placed - shuffled.mean_pct).abs());
        let range = format!("{}% ({} to {})", of(shuffled.mean_pct), of(shuffled.min_pct), of(shuffled.max_pct));
        let gain = if placed > shuffled.max_pct {
            format!("a shuffle would miss {range} instead of {}%: {points} points less", of(placed))
        } else if placed < shuffled.min_pct {
            format!("a shuffle would miss {range} instead of {}%: {points} points more", of(placed))
        } else {
            format!("as placed, {}%, is within what shuffles give: {range}", of(placed))
        };
        let when = match self.shuffle_on {
            Some(true) => "what is placed is one such draw, with what has been allocated and freed since",
            _ => "turning it on takes page_alloc.shuffle=1 at boot, and holds for what is allocated after",
        };
        let coloured = rates.coloured.mean_pct;
        let more = if placed.min(shuffled.mean_pct) - coloured >= 0.05 {
            format!("; spread evenly over colours the same frames would miss {}%", of(coloured))
        } else {
            String::new()
        };
        format!("{state}: {gain}; {when}{more}")
    }

    fn assumptions(&self) -> String {
        format!(
            "assumed: a frame's colour is its number modulo {}; references are independent of each other; shuffled blocks lie anywhere in \
             {} of memory",
            self.cache.colours, self.memory_bytes
        )
    }
}

/// Rates beside each other want as many digits each.
fn tenths(pct: f64) -> String {
    format!("{pct:.1}")
}

/// 9 most, 0 least, a space where nothing is.
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

/// The most cells that a picture takes in a style: columns, and rows of them.
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
