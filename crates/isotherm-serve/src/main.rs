//! `isotherm-serve`: see `isotherm_serve`. Exit codes: 0 a signal or the end of its parent has ended it, 1 failed, 2 wrong
//! usage.

#![forbid(unsafe_code)]

use clap::Parser;
use isotherm_serve::args::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(what) = args.check() {
        eprintln!("isotherm-serve: {what}");
        return ExitCode::from(2);
    }
    match isotherm_serve::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("isotherm-serve: {error:#}");
            ExitCode::FAILURE
        }
    }
}
