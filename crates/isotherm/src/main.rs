//! `isotherm`: see the heat of real memory.
//!
//! This file is the table of contents: one match on the command, one place that prints an error. Each command is a module in
//! [`commands`]; what they share is arguments ([`cli`]), a monitor made from them ([`watch`]), recordings ([`input`]) and output
//! ([`output`]).
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage. A reader that closes the pipe early is no failure.

#![forbid(unsafe_code)]
// Messages go through `output::note`, which writes out what a terminal would act on.
#![warn(clippy::print_stderr)]

mod cli;
mod commands;
mod daemon;
mod gain;
mod generations;
mod input;
mod output;
mod played;
mod privileges;
mod request;
mod stop;
mod watch;
mod work;

use clap::Parser;
use cli::{Cli, Command};
use isotherm_view::human;
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| usage(&error));
    privileges::drop_unused(&cli.command);
    let done = match cli.command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Events(args) => commands::events::run(&args),
        Command::Record(args) => commands::record::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Convert(args) => commands::convert::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Placement(args) => commands::placement::run(&args),
        Command::Herd(args) => commands::herd::run(&args),
        Command::Collapse(args) => commands::collapse::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Hint(args) => commands::hint::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Workload(args) => commands::demo::workload(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) || stop::ended_unread() => ExitCode::SUCCESS,
        Err(error) => {
            output::note(format_args!("{error:#}"));
            ExitCode::from(if error.is::<cli::Usage>() { 2 } else { 1 })
        }
    }
}

/// Shows help, or what is wrong with the arguments, as clap would have it; without colours if an argument, which is quoted, may
/// bring its own.
fn usage(error: &clap::Error) -> ! {
    let is_plain = |arg: std::ffi::OsString| !arg.to_string_lossy().contains(human::is_deceptive);
    if !error.use_stderr() || std::env::args_os().all(is_plain) {
        error.exit();
    }
    output::note(error.render().to_string().trim_end());
    std::process::exit(error.exit_code())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}
