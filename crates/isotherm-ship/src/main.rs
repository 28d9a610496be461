//! `isotherm-ship`: see `isotherm_ship`. Exit codes: 0 done, or ended by a signal, 1 failed, 2 wrong usage.

#![forbid(unsafe_code)]

use clap::Parser;
use isotherm_ship::PROGRAM;
use isotherm_ship::args::Args;
use isotherm_systemd::{Priority, messages};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    messages::connect(PROGRAM, &[("ISOTHERM_VERSION", env!("CARGO_PKG_VERSION"))]);
    match isotherm_ship::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            messages::print(PROGRAM, Priority::Error, &format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
