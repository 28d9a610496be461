//! `isotherm-kube`: see `isotherm_kube`. Exit codes: 0 ended by a signal, 1 failed, 2 wrong usage.

#![forbid(unsafe_code)]

use anyhow::{Context as _, Result};
use clap::Parser;
use isotherm_kube::args::{Args, Print};
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.print {
        Some(what) => printed(what),
        None => isotherm_kube::run::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("isotherm-kube: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a file made from the options. A reader that has seen enough is no failure.
fn printed(what: Print) -> Result<()> {
    let bytes = what.bytes().context("make the file")?;
    match std::io::stdout().write_all(&bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("print the file"),
        _ => Ok(()),
    }
}
