//! `isotherm-kube`: see `isotherm_kube`. Exit codes: 0 ended by a signal, 1 failed, 2 wrong usage.

#![forbid(unsafe_code)]

use clap::Parser;
use isotherm_kube::args::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    match isotherm_kube::run::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("isotherm-kube: {error:#}");
            ExitCode::FAILURE
        }
    }
}
