//! Output: text for standard output in the terminal's width and colours, files, and messages and progress on standard error.

use crate::args::color::{ColorArg, ColorArgs};
use crate::privileges::as_user;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use isotherm_systemd::{Priority, messages};
use isotherm_view::heatmap::{ColorMode, TerminalStyle};
use isotherm_view::{TextStyle, human};
use rustix::fs::{Access, AtFlags, CWD};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The width of the terminal on standard output. A pipe has no limit, so that nothing is cut that another program reads.
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

/// Height of the terminal, or 40 lines.
pub fn height() -> usize {
    terminal_size::terminal_size_of(io::stdout()).map_or(40, |(_, h)| usize::from(h.0))
}

/// Buffered standard output.
pub fn stdout() -> BufWriter<io::StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

/// The name of this program in its messages.
const PROGRAM: &str = "isotherm";

/// From here on, messages go to the journal if standard error leads there. Call it before the sandbox, which opens no sockets.
pub fn connect_to_journal(command: &str) {
    messages::connect(PROGRAM, &[("ISOTHERM_COMMAND", command), ("ISOTHERM_VERSION", env!("CARGO_PKG_VERSION"))]);
}

/// Prints `isotherm: MESSAGE` on standard error.
pub fn note(message: impl Display) {
    print(Priority::Notice, &message.to_string());
}

/// The same, for what is not as it should be while the work goes on.
pub fn warn(message: impl Display) {
    print(Priority::Warning, &message.to_string());
}

/// The same, for what was asked for and is not done.
pub fn error(message: impl Display) {
    print(Priority::Error, &message.to_string());
}

/// Every message goes through here, because names of processes and files, and text quoted from files, may hold terminal escape sequences.
/// This function escapes them.
fn print(priority: Priority, message: &str) {
    messages::print(PROGRAM, priority, &human::escaped(message));
}

/// Prints `value` as one JSON document.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut out = stdout();
    value
        .serialize(&mut Serializer::with_formatter(&mut out, Ascii(PrettyFormatter::new())))
        .map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// `value` as JSON in one line.
pub fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    let mut line = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut line, Ascii(CompactFormatter)))?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Formats JSON and escapes what a terminal would act on, in keys and values. serde_json escapes only what JSON demands. That leaves
/// DEL, C1 control characters and characters that reorder text.
struct Ascii<F>(F);

/// Forwards calls to the inner formatter.
macro_rules! hand_on {
    ($($name:ident($($arg:ident: $of:ty),*);)*) => {
        $(fn $name<W: ?Sized + Write>(&mut self, writer: &mut W $(, $arg: $of)*) -> io::Result<()> {
            self.0.$name(writer $(, $arg)*)
        })*
    };
}

impl<F: Formatter> Formatter for Ascii<F> {
    hand_on! {
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| human::is_deceptive(*c)) {
            self.0.write_string_fragment(writer, &rest[..at])?;
            write!(writer, "\\u{:04x}", u32::from(c))?;
            rest = &rest[at + c.len_utf8()..];
        }
        self.0.write_string_fragment(writer, rest)
    }
}

/// Writes a file through `write`. On failure the error names the file, and the half-written file is removed.
///
/// Only the owner can read a new file, because it shows what `/proc/PID/maps` shows, which is not public either. An existing file keeps
/// its mode, which the user chose.
pub fn file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let made = as_user(|| options.open(path).with_context(|| format!("create {}", path.display())))?;
    let owner = rustix::process::geteuid().as_raw();
    let readable = made.metadata().is_ok_and(|m| m.is_file() && (m.mode() & 0o044 != 0 || m.uid() != owner));
    let mut out = BufWriter::new(made);
    let written = write(&mut out).and_then(|()| out.flush());
    if written.is_err() && path.is_file() {
        let _ = as_user(|| Ok(std::fs::remove_file(path)?));
    }
    written.with_context(|| format!("write {}", path.display()))?;
    if readable {
        note(format_args!("{} was there before, and others can read it; `chmod 600` keeps it to you", path.display()));
    }
    Ok(())
}

/// Fails if a file could not be written. For work that takes a while before its result is written.
pub fn can_write(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let changed = if path.exists() { path } else { folder };
    if path.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory)).with_context(|| format!("create {}", path.display()));
    }
    let wanted = if changed == folder { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK };
    as_user(|| {
        let is_possible = rustix::fs::accessat(CWD, changed, wanted, AtFlags::EACCESS).map_err(io::Error::from);
        is_possible.with_context(|| format!("create {}", path.display()))
    })
}

/// The name that a value has in JSON; empty if it is no text there.
pub fn json_name(of: &impl Serialize) -> String {
    serde_json::to_value(of).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Prints a report on standard output, as JSON or as `write_text` writes it.
pub fn report(
    as_json: bool,
    report: &impl Serialize,
    write_text: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    if as_json {
        return json(report);
    }
    let mut out = stdout();
    write_text(&mut out)?;
    Ok(out.flush()?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whether_a_file_can_be_written_is_known_without_making_it() {
        let folder = std::env::temp_dir().join(format!("isotherm-writable-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("heat.png");
        assert!(can_write(&file).is_ok() && !file.exists());
        std::fs::write(&file, "was there").unwrap();
        assert!(can_write(&file).is_ok());
        assert_eq!(std::fs::read(&file).unwrap(), b"was there");
        for (wrong, why) in [(folder.clone(), "directory"), (folder.join("none/heat.png"), "No such file")] {
            let error = format!("{:#}", can_write(&wrong).unwrap_err());
            assert!(error.starts_with(&format!("create {}", wrong.display())) && error.contains(why), "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn json_holds_nothing_that_a_terminal_acts_on_and_reads_back_the_same() {
        let evil = "a\u{9b}2J\x7f\u{202e}\x1b\u{85}\u{2028}\u{e9}\u{1f600}\"\\\n";
        let value = json!({ evil: [evil, { "k": evil }, [], {}, 1.5, null, true], "plain": "x" });
        let mut pretty = Vec::new();
        value.serialize(&mut Serializer::with_formatter(&mut pretty, Ascii(PrettyFormatter::new()))).unwrap();
        let pretty = String::from_utf8(pretty).unwrap();
        for text in [json_line(&value).unwrap(), pretty] {
            assert!(!text.chars().any(|c| c != '\n' && human::is_deceptive(c)), "{text:?}");
            assert!(text.contains("\\u009b2J\\u007f\\u202e"), "{text}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        }
        let plain = json!({"a": [1, {"b": "c"}], "d": []});
        let mut same = Vec::new();
        plain.serialize(&mut Serializer::with_formatter(&mut same, Ascii(PrettyFormatter::new()))).unwrap();
        assert_eq!(
            String::from_utf8(same).unwrap(),
            serde_json::to_string_pretty(&plain).unwrap(),
            "otherwise as before"
        );
    }
}
