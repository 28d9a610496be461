//! Draws every face from synthetic snapshots: tables and a heat map to the terminal, `heat.png` and `heat.html` to the folder
//! given as the argument.

use isotherm_heat::Thresholds;
use isotherm_view::TextStyle;
use isotherm_view::heatmap::{
    HeatMap, HtmlOptions, PngOptions, Select, TerminalStyle, terminal_grid, write_html, write_png, write_terminal,
};
use isotherm_view::tables::{
    AccessOptions, AccessReport, CgroupReport, HistogramOptions, HistogramReport, ProcessReport, WssOptions, WssReport,
};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

#[path = "support/sample.rs"]
#[allow(dead_code, missing_docs, reason = "shared with tests, which use other parts")]
mod sample;

fn main() -> io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    let series = sample::series(120);
    let last = &series[series.len() - 1];
    let mut out = io::stdout().lock();
    let text = TextStyle { width: 110, ascii: false };

    AccessReport::build(last, &AccessOptions::default()).write_text(&mut out, text)?;
    writeln!(out)?;
    let options = WssOptions { over_time: false, ..WssOptions::default() };
    WssReport::build(&series, &options).write_text(&mut out, text)?;
    writeln!(out)?;
    HistogramReport::build(last, &HistogramOptions::default()).write_text(&mut out, text)?;
    writeln!(out)?;
    ProcessReport::build(last, Thresholds::default()).write_text(&mut out, text)?;
    writeln!(out)?;
    CgroupReport::build(last, Thresholds::default()).write_text(&mut out, text)?;
    writeln!(out)?;

    let style = TerminalStyle { text, ..TerminalStyle::default() };
    let (columns, rows) = terminal_grid(&style, 30);
    let select = Select { columns, rows, ..Select::default() };
    write_terminal(&HeatMap::build(&series, &select), &mut out, &style)?;

    let map = HeatMap::build(&series, &Select { columns: 120, rows: 100, ..Select::default() });
    write_png(&map, &mut BufWriter::new(File::create(folder.join("heat.png"))?), &PngOptions::default())?;
    let strip = HeatMap::build(&series[119..], &Select { columns: 120, rows: 100, ..Select::default() });
    write_png(&strip, &mut BufWriter::new(File::create(folder.join("strip.png"))?), &PngOptions::default())?;
    write_html(&series, &mut BufWriter::new(File::create(folder.join("heat.html"))?), &HtmlOptions::default())
}
