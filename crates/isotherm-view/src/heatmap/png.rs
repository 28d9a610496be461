//! A heat map as a PNG: the grid with addresses and mapping names at its sides, times below it, and the legend.
//!
//! Pixels are plain RGB on a dark background, so that the picture looks the same in every document. A cell is a
//! rectangle of whole pixels, so every pixel of the grid has the colour of one cell and is never a blend.

use super::color::Rgb;
use super::font;
use super::model::{Axis, HeatMap};
use super::scale::Scale;
use crate::human::{self, Keep};
use crate::math;
use std::io::{self, Write};

const GROUND: Rgb = Rgb(16, 16, 20);
const TEXT: Rgb = Rgb(214, 214, 220);
const FAINT: Rgb = Rgb(70, 70, 80);
/// Glyphs are drawn at twice their size, to be readable on any screen.
const TEXT_SCALE: usize = 2;
const LINE: usize = (font::HEIGHT + 4) * TEXT_SCALE;
const LETTER: usize = font::ADVANCE * TEXT_SCALE;
const MARGIN: usize = 12;
const ADDRESS_LETTERS: usize = 15;
const NAME_LETTERS: usize = 28;
const LEGEND_WIDTH: usize = 480;
/// Maximum number of pixels of a picture. Larger requests are a mistake of the caller.
const MAX_PIXELS: usize = 1 << 27;

/// The size of the cells of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PngOptions {
    /// Width of a cell in pixels.
    pub cell_width: usize,
    /// Height of a cell in pixels.
    pub cell_height: usize,
    /// What the colours show.
    pub scale: Scale,
}

impl Default for PngOptions {
    fn default() -> PngOptions {
        PngOptions { cell_width: 6, cell_height: 6, scale: Scale::default() }
    }
}

impl PngOptions {
    /// Position of the upper left pixel of a cell in the picture.
    pub fn cell_origin(&self, column: usize, row: usize) -> (usize, usize) {
        let left = MARGIN + ADDRESS_LETTERS * LETTER;
        let top = MARGIN + LINE + LINE / 2;
        (left + column * self.cell_width, top + row * self.cell_height)
    }
}

/// Draws the map as a PNG.
///
/// # Errors
///
/// If the writer fails, or if the picture would have more than 2^27 pixels.
pub fn write_png(map: &HeatMap, out: &mut dyn Write, options: &PngOptions) -> io::Result<()> {
    let options =
        &PngOptions { cell_width: options.cell_width.max(1), cell_height: options.cell_height.max(1), ..*options };
    let mut canvas = Canvas::for_map(map, options)?;
    draw_title(&mut canvas, map);
    draw_cells(&mut canvas, map, options);
    draw_labels(&mut canvas, map, options);
    draw_times(&mut canvas, map, options);
    draw_legend(&mut canvas, map, options);
    canvas.encode(out)
}

fn draw_title(canvas: &mut Canvas, map: &HeatMap) {
    let title = match map.axis {
        _ if map.is_empty() => format!("{}: nothing to draw", map.title()),
        Axis::Strip { at_unix_ns } => format!("{} at {} UTC, by address", map.title(), human::utc(at_unix_ns)),
        Axis::Time { start_unix_ns, .. } => format!("{} from {} UTC", map.title(), human::utc(start_unix_ns)),
    };
    canvas.text(MARGIN, MARGIN, &title, TEXT);
}

fn draw_cells(canvas: &mut Canvas, map: &HeatMap, options: &PngOptions) {
    for (row, this) in map.rows.iter().enumerate() {
        if this.is_break {
            let (x, y) = options.cell_origin(0, row);
            for dash in (0..map.columns * options.cell_width).step_by(8) {
                canvas.fill((x + dash, y + options.cell_height / 2), (4, 1), FAINT);
            }
            continue;
        }
        for (column, cell) in map.cells(row).iter().enumerate() {
            if let Some(color) = options.scale.color(*cell) {
                canvas.fill(options.cell_origin(column, row), (options.cell_width, options.cell_height), color);
            }
        }
    }
}

/// Draws addresses and gap sizes on the left and names on the right, each where the previous one leaves room.
///
/// A name whose line is taken moves down a little: the row of a stack is only a pixel or two high and still gets a
/// name.
fn draw_labels(canvas: &mut Canvas, map: &HeatMap, options: &PngOptions) {
    let (mut left_free, mut right_free) = (0, 0);
    for (row, this) in map.rows.iter().enumerate() {
        let (right, y) = options.cell_origin(map.columns, row);
        let (left, apart) = match this.is_break {
            true => (format!("{} gap", this.range.len()), 0),
            false => (format!("{:x}", this.range.start.0), if row == 0 { 0 } else { 2 * LINE }),
        };
        let begins = row > 0 && map.rows[row - 1].is_break;
        if y >= left_free + if begins { 0 } else { apart } {
            canvas.text(MARGIN, y, &format!("{left:>14}"), TEXT);
            left_free = y + LINE;
        }
        let name = if this.is_break { String::new() } else { map.row_label(row) };
        let at = y.max(right_free);
        if !name.is_empty() && at < y + 2 * LINE {
            canvas.text(right + LETTER, at, &human::fit(&name, NAME_LETTERS, Keep::End, '~'), TEXT);
            right_free = at + LINE;
        }
    }
}

fn draw_times(canvas: &mut Canvas, map: &HeatMap, options: &PngOptions) {
    let Axis::Time { start_unix_ns, .. } = map.axis else { return };
    if map.is_empty() {
        return;
    }
    let every = (LETTER * 12).div_ceil(options.cell_width);
    for column in (0..map.columns).step_by(every) {
        let (x, y) = options.cell_origin(column, map.rows.len());
        let after = map.column_unix_ns(column) - start_unix_ns;
        let label = if column == 0 { human::clock(start_unix_ns) } else { format!("+{}", human::duration(after)) };
        canvas.fill((x, y), (1, 6), TEXT);
        canvas.text(x, y + 8, &label, TEXT);
    }
}

/// What the colours show.
fn title_of(map: &HeatMap, scale: Scale) -> String {
    scale.title() + if map.has_estimates() { Scale::note_of_estimates(false) } else { "" }
}

fn draw_legend(canvas: &mut Canvas, map: &HeatMap, options: &PngOptions) {
    let scale = options.scale;
    let (left, y) = options.cell_origin(0, map.rows.len());
    let y = y + 2 * LINE;
    canvas.text(left, y, &title_of(map, scale), TEXT);
    let y = y + LINE + LINE / 2;
    let (bar, label) = ((y, LINE / 2), y + LINE / 2 + 6);
    for pixel in 0..LEGEND_WIDTH {
        canvas.fill((left + pixel, bar.0), (1, bar.1), scale.ramp(pixel as f64 / (LEGEND_WIDTH - 1) as f64));
    }
    for tick in scale.ticks(5) {
        let x = left + math::floor(tick.at * (LEGEND_WIDTH - 1) as f64);
        canvas.fill((x, y + LINE / 2), (1, 4), TEXT);
        canvas.text(x, label, &tick.label, TEXT);
    }
    let mut x = left + LEGEND_WIDTH + 6 * LETTER;
    for tick in scale.extra_ticks() {
        if let Some(color) = scale.color_of(tick.step) {
            canvas.fill((x, bar.0), (LETTER * 2, bar.1), color);
        }
        canvas.text(x, label, &tick.label, TEXT);
        x += (tick.label.len() + 2) * LETTER;
    }
}

/// Pixels in rows. Drawing outside the canvas does nothing.
struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn for_map(map: &HeatMap, options: &PngOptions) -> io::Result<Canvas> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "the picture would be too large");
        let columns = map.columns.checked_mul(options.cell_width).ok_or_else(too_large)?;
        let rows = map.rows.len().checked_mul(options.cell_height).ok_or_else(too_large)?;
        let (left, top) = options.cell_origin(0, 0);
        let right = (NAME_LETTERS + 2) * LETTER + MARGIN;
        let legend = (LEGEND_WIDTH + 24 * LETTER).max(title_of(map, options.scale).len() * LETTER);
        let width = columns.max(legend.saturating_sub(right)).saturating_add(left + right);
        let height = rows.saturating_add(top + 5 * LINE + LINE / 2 + MARGIN);
        let pixels = width.checked_mul(height).filter(|n| *n <= MAX_PIXELS).ok_or_else(too_large)?;
        let pixels = [GROUND.0, GROUND.1, GROUND.2].repeat(pixels);
        Ok(Canvas { width, height, pixels })
    }

    fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), color: Rgb) {
        let (right, bottom) = ((x + width).min(self.width), (y + height).min(self.height));
        for line in y..bottom {
            for column in x..right {
                let at = (line * self.width + column) * 3;
                self.pixels[at..at + 3].copy_from_slice(&[color.0, color.1, color.2]);
            }
        }
    }

    fn text(&mut self, x: usize, y: usize, text: &str, color: Rgb) {
        for (index, c) in text.chars().enumerate() {
            for (column, bits) in font::glyph(c).into_iter().enumerate() {
                for line in (0..font::HEIGHT).filter(|line| bits >> line & 1 == 1) {
                    let at = (x + index * LETTER + column * TEXT_SCALE, y + line * TEXT_SCALE);
                    self.fill(at, (TEXT_SCALE, TEXT_SCALE), color);
                }
            }
        }
    }

    fn encode(&self, out: &mut dyn Write) -> io::Result<()> {
        let side = |n: usize| u32::try_from(n).map_err(io::Error::other);
        let mut encoder = ::png::Encoder::new(out, side(self.width)?, side(self.height)?);
        encoder.set_color(::png::ColorType::Rgb);
        encoder.set_depth(::png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        Ok(writer.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::color::{UNMEASURED_COLOR, heat_color};
    use super::super::model::Select;
    use super::*;
    use crate::sample::{MIB, MS, SECOND, mapping, region, snapshot, target};

    fn decode(bytes: &[u8]) -> (usize, Vec<u8>) {
        let mut reader = ::png::Decoder::new(io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (usize::try_from(info.width).unwrap(), pixels)
    }

    #[test]
    fn known_cells_have_known_pixels() {
        let options = PngOptions { cell_width: 5, cell_height: 3, ..PngOptions::default() };
        let first = target(1, "t", "", vec![mapping(0, MIB, "m")], vec![region(0, MIB, 8 * MS), region(MIB, MIB, 0)]);
        let second = target(1, "t", "", vec![], vec![region(0, MIB, 600 * SECOND)]);
        let snapshots = [snapshot(1, vec![first]), snapshot(2, vec![second])];
        let map = HeatMap::build(&snapshots, &Select { columns: 2, rows: 2, ..Select::default() });
        let mut out = Vec::new();
        write_png(&map, &mut out, &options).unwrap();
        let (width, pixels) = decode(&out);
        let at = |column, row, dx, dy| {
            let (x, y) = options.cell_origin(column, row);
            let at = ((y + dy) * width + x + dx) * 3;
            Rgb(pixels[at], pixels[at + 1], pixels[at + 2])
        };
        assert_eq!((at(0, 0, 0, 0), at(0, 0, 4, 2)), (heat_color(1.0), heat_color(1.0)));
        assert_eq!(at(1, 0, 0, 0), heat_color(0.0), "none is hot");
        assert_eq!((at(0, 1, 2, 1), at(1, 1, 2, 1)), (UNMEASURED_COLOR, GROUND));
    }

    #[test]
    fn an_empty_map_is_a_picture_and_a_monstrous_one_an_error() {
        let map = HeatMap::build(&[snapshot(1, vec![])], &Select::default());
        let mut out = Vec::new();
        write_png(&map, &mut out, &PngOptions::default()).unwrap();
        assert!(decode(&out).0 > 0);
        let huge = PngOptions { cell_width: usize::MAX, ..PngOptions::default() };
        assert_eq!(write_png(&map, &mut out, &huge).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
