//! `isotherm`: see the heat of real memory.
//!
//! `main` turns a command line into a plan, and the plan into an exit code. It is the only place that prints errors. Each command is a
//! module in [`commands`], with its arguments and its plan. Commands share groups of arguments ([`args`]), the monitor that is built from
//! them ([`watch`]), recordings ([`input`]) and output ([`output`]).
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage. A reader that closes the pipe early is no failure.

#![forbid(unsafe_code)]
// Messages go through `output::note`, which escapes what a terminal would act on.
#![warn(clippy::print_stderr)]

mod acted;
mod args;
mod commands;
mod daemon;
mod gain;
mod generations;
mod input;
mod journal;
mod left_alone;
mod output;
mod picture;
mod played;
mod privileges;
mod request;
mod rounds;
#[cfg(test)]
mod sample;
mod sandbox;
mod service;
mod serving;
mod stop;
mod stream;
mod swap;
mod wall_time;
mod watch;
mod work;

use clap::{CommandFactory, FromArgMatches};
use commands::Cli;
use isotherm_view::human;
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = Cli::command().try_get_matches().unwrap_or_else(|error| usage(&error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| usage(&error));
    output::connect_to_journal(matches.subcommand_name().unwrap_or_default());
    if cli.no_sandbox {
        sandbox::switch_off();
    }
    let done = cli.command.plan().and_then(|plan| {
        privileges::drop_unused(plan.needs());
        plan.run()
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) || stop::output_closed() => ExitCode::SUCCESS,
        Err(error) => {
            output::error(format_args!("{error:#}"));
            ExitCode::from(if error.is::<args::usage::Usage>() { 2 } else { 1 })
        }
    }
}

/// Prints help or the usage error as clap formats it. Drops colours and escapes the text if an argument, which the error quotes, holds
/// characters that a terminal acts on.
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
