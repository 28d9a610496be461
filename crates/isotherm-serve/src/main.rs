//! `isotherm-serve`: see `isotherm_serve`. Exit codes: 0 a signal or the end of its parent has ended it, 1 failed, 2 wrong
//! usage.

#![forbid(unsafe_code)]

use clap::Parser;
use isotherm_serve::PROGRAM;
use isotherm_serve::args::Args;
use isotherm_systemd::{Priority, messages};
use isotherm_view::human;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    messages::connect(PROGRAM, &[("ISOTHERM_VERSION", env!("CARGO_PKG_VERSION"))]);
    if let Err(what) = args.check() {
        messages::print(PROGRAM, Priority::Error, &what);
        return ExitCode::from(2);
    }
    match isotherm_serve::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // It may quote a recording.
            messages::print(PROGRAM, Priority::Error, &human::escaped(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}
