//! Schemes: files of damo to settings of `isotherm run`, and back.

use super::ConvertArgs;
use crate::input::short_text;
use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use isotherm_schemes::settings::{self, File as Settings, Rules, Targets};
use isotherm_schemes::{Budgets, damo};
use isotherm_units::Bytes;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};

/// Files of schemes take some hundred bytes. A recording of damo is longer, or no list of schemes.
const MAX_FILE: Bytes = Bytes(1 << 18);

/// Converts schemes, if the input has any. Returns whether it has.
pub fn converted(args: &ConvertArgs) -> Result<bool> {
    let is_settings = args.input.extension().is_some_and(|extension| extension == "toml");
    let meta = args.input.metadata();
    if !meta.is_ok_and(|meta| meta.is_file() && (is_settings || meta.len() <= MAX_FILE.0)) {
        return Ok(false);
    }
    let reading = || format!("read {}", args.input.display());
    let file = File::open(&args.input).with_context(reading)?;
    if is_settings {
        let read = Settings::parse(&short_text(file, &args.input, MAX_FILE)?).with_context(reading)?;
        let (text, notes) = damo::write(&read.scheme).with_context(reading)?;
        if read.scheme.is_empty() {
            bail!("{}: it has no [[scheme]]", args.input.display());
        }
        tell(notes);
        tell(lost_of(&read));
        return write(args, &text).map(|()| true);
    }
    // A compressed recording is no text.
    let Ok(text) = short_text(file, &args.input, MAX_FILE) else { return Ok(false) };
    let read = if damo::is_schemes(&text) {
        damo::read(&text).with_context(reading)?
    } else if damo::are_arguments(&text) {
        damo::read_arguments(&text).with_context(reading)?
    } else {
        return Ok(false);
    };
    tell(read.notes);
    write(args, &settings::text_of(&read.schemes)?).map(|()| true)
}

/// What else the settings say, and damo has elsewhere.
fn lost_of(settings: &Settings) -> Vec<String> {
    let lost = [
        (settings.targets != Targets::default(), "[targets] is lost: damo has them on its command line"),
        (settings.budgets != Budgets::default(), "[budgets] is lost: DAMON has quotas, for each scheme"),
        (settings.rules != Rules::default(), "[rules] is lost: DAMON collapses what its pattern says"),
    ];
    lost.into_iter().filter(|(is_there, _)| *is_there).map(|(_, what)| what.to_owned()).collect()
}

fn tell(notes: Vec<String>) {
    notes.into_iter().for_each(output::note);
}

fn write(args: &ConvertArgs, text: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(!args.overwrite).create(true).truncate(true);
    let writing = || format!("write {}", args.output.display());
    let mut file = options.open(&args.output).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => anyhow!(error).context(format!("{} (--overwrite replaces it)", writing())),
        _ => anyhow!(error).context(writing()),
    })?;
    let written = file.write_all(text.as_bytes());
    if written.is_err() {
        // Half of it would only block the next attempt.
        let _ = fs::remove_file(&args.output);
    }
    written.with_context(writing)
}
