//! Where output goes: standard output with the width and colours it can take, files, progress on standard error.

use crate::cli::{ColorArg, ColorArgs};
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use isotherm_view::TextStyle;
use isotherm_view::heatmap::{ColorMode, TerminalStyle};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Width of a terminal on standard output; no bound on a pipe, so that nothing is cut that another program reads.
pub fn text_style(ascii: bool) -> TextStyle {
    let width = terminal_size::terminal_size_of(io::stdout()).map(|(w, _)| usize::from(w.0));
    TextStyle { width: width.unwrap_or(usize::MAX), ascii }
}

/// The style of pictures in the terminal.
pub fn terminal_style(color: ColorArgs) -> TerminalStyle {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()) || !io::stdout().is_terminal();
    let truecolor = std::env::var("COLORTERM").is_ok_and(|v| v == "truecolor" || v == "24bit");
    let mode = match color.color {
        ColorArg::Auto if plain || color.ascii => ColorMode::None,
        ColorArg::Auto if truecolor => ColorMode::True,
        ColorArg::Auto | ColorArg::Ansi256 => ColorMode::Ansi256,
        ColorArg::Always => ColorMode::True,
        ColorArg::Never => ColorMode::None,
    };
    let mut text = text_style(color.ascii);
    if text.width == usize::MAX {
        text.width = 100;
    }
    TerminalStyle { text, color: mode, ..TerminalStyle::default() }
}

/// Height of the terminal, or a page's worth.
pub fn height() -> usize {
    terminal_size::terminal_size_of(io::stdout()).map_or(40, |(_, h)| usize::from(h.0))
}

/// Buffered standard output.
pub fn stdout() -> BufWriter<io::StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

/// Prints `value` as one JSON document.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut out = stdout();
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Writes a file through `write`; on failure it says which and removes what is half written. A new file is for its owner only,
/// as what is shown in it is: `/proc/PID/maps` is not for everybody. One that was there keeps its mode, which the user chose.
pub fn file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let made = made.with_context(|| format!("create {}", path.display()))?;
    let readable = made.metadata().is_ok_and(|m| m.is_file() && m.mode() & 0o044 != 0);
    let mut out = BufWriter::new(made);
    let written = write(&mut out).and_then(|()| out.flush());
    if written.is_err() && path.is_file() {
        let _ = std::fs::remove_file(path);
    }
    written.with_context(|| format!("write {}", path.display()))?;
    if readable {
        eprintln!("isotherm: {} was there before, and others can read it; `chmod 600` keeps it to you", path.display());
    }
    Ok(())
}

/// A bar for something that takes `total_ns` (or has no end), on a terminal only.
pub fn progress(total_ns: Option<u64>, what: &str) -> ProgressBar {
    let bar = match total_ns {
        Some(ns) => ProgressBar::new(ns / 1_000_000).with_style(
            ProgressStyle::with_template("{msg} {wide_bar} {elapsed}").unwrap_or_else(|_| ProgressStyle::default_bar()),
        ),
        None => ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        ),
    };
    let shown = io::stderr().is_terminal() && total_ns.is_none_or(|ns| ns > 2_000_000_000);
    bar.set_draw_target(if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() });
    bar.set_message(what.to_owned());
    bar
}

/// A bar for a number of things to do, on a terminal only.
pub fn counting(things: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}");
    let bar = ProgressBar::new(things).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let shown = io::stderr().is_terminal();
    bar.set_draw_target(if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() });
    bar.set_message(what.to_owned());
    bar
}
