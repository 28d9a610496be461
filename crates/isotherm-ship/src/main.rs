//! `isotherm-ship`: see `isotherm_ship`. Exit codes: 0 done, or ended by a signal, 1 failed, 2 wrong usage.

#![forbid(unsafe_code)]

use clap::Parser;
use isotherm_ship::args::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    match isotherm_ship::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("isotherm-ship: {error:#}");
            ExitCode::FAILURE
        }
    }
}
