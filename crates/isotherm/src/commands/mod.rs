//! The list of commands, in the order of the help. Each command is a file with its arguments, its plan and the code that runs it. A new
//! command takes a line in [`Command`], a line in [`Command::plan`], and its file.

mod advise;
mod collapse;
mod convert;
mod demo;
mod doctor;
mod events;
mod generate;
mod hint;
mod migrate;
mod placement;
pub mod plan;
mod reclaim;
mod record;
#[cfg(test)]
mod reference;
mod report;
mod rollup;
pub mod run;
mod sandbox_check;
mod serve;
mod split;
mod status;
mod top;
mod undo;
mod workload;
mod zone_lock;

use crate::work::runner::WorkArgs;
use anyhow::Result;
use clap::{Parser, Subcommand};
use plan::Plan;

/// See the heat of real memory: which pages of a process are accessed, how often, and which lie idle. On stock kernels, for
/// unmodified programs.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, infer_subcommands = true)]
#[command(after_help = "Examples:
  isotherm demo                            watch a built-in workload and compare the result with the truth
  isotherm doctor                          what this machine offers, and how to get what is missing
  sudo isotherm top                        processes by hot memory, live
  sudo isotherm record -p 812 -d 1m        record the heat of process 812 for a minute, into heat.isotherm/
  sudo isotherm report heatmap -o heat.html  that recording as a picture
  sudo isotherm report wss -- ./server     the working set of a command, live
  sudo isotherm placement -p 812 --cache-size 16GiB  how much it would miss in such a memory-side cache
  sudo isotherm zone-lock                  when each CPU drains its pcp lists, and who waits for zone locks
  sudo isotherm collapse -p 812 --dry-run  which memory would become huge pages, in which order
  sudo isotherm reclaim -p 812 --dry-run   how much of process 812 is idle and would leave for swap
  sudo isotherm split -p 812 --dry-run     how much of its huge pages is idle, by a few that are split and collapsed again
  sudo isotherm run -p 812                 keep the hot memory of process 812 on huge pages")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Keep all privileges and system calls after opening what is needed, for debugging
    #[arg(long, global = true)]
    pub no_sandbox: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch a built-in workload with known hot memory, and print the accuracy and the cost
    Demo(demo::DemoArgs),
    /// Show what this machine offers: sources, ways to clear, huge pages, NUMA, PMU, privileges
    Doctor(doctor::DoctorArgs),
    /// Find and try events that report accesses
    Events(events::EventsArgs),
    /// Record the heat of processes
    Record(record::RecordArgs),
    /// Show heat, from a recording or live
    Report(report::ReportArgs),
    /// Make what a fleet keeps of a recording: rows of five minutes by service, as Parquet objects
    Rollup(rollup::RollupArgs),
    /// Limits, requests, huge pages and cold memory for the services of one host, from a recording or rollups
    Advise(advise::AdviseArgs),
    /// Convert a recording to a file for damo, or a file of damo to a recording
    Convert(convert::ConvertArgs),
    /// Processes and cgroups by hot memory, live in the terminal
    Top(top::TopArgs),
    /// Metrics for Prometheus and a web page of heat, live or from a recording
    Serve(serve::ServeArgs),
    /// How well the frames of processes are placed for a direct-mapped memory-side cache
    Placement(placement::args::PlacementArgs),
    /// When vmstat_update drains the pcp lists of each CPU, and who waits for zone locks
    #[command(visible_alias = "herd")]
    ZoneLock(zone_lock::ZoneLockArgs),
    /// Put the hot memory of processes on huge pages, once
    Collapse(collapse::CollapseArgs),
    /// Page out memory that processes leave idle, once
    Reclaim(reclaim::ReclaimArgs),
    /// Find out what is idle behind huge pages, and split those of which little is in use
    Split(split::SplitArgs),
    /// Move hot pages of processes to fast memory and idle ones to slow memory, once
    Migrate(migrate::MigrateArgs),
    /// Bring back what was collapsed and split
    Undo(undo::UndoArgs),
    /// Keep hot memory of processes on huge pages, and with schemes page out, split and migrate
    Run(run::args::RunArgs),
    /// Send a running `isotherm run` hints about hot memory
    Hint(hint::HintArgs),
    /// What a running `isotherm run` does
    Status(status::StatusArgs),
    /// Manual pages and completions of shells
    Generate(generate::GenerateArgs),
    /// The workload that `demo` starts
    #[command(name = "demo-workload", hide = true)]
    Workload(workload::WorkloadArgs),
    /// Tries the sandbox of a monitor, for `doctor`
    #[command(name = "internal-sandbox-check", hide = true)]
    SandboxCheck(sandbox_check::SandboxCheckArgs),
    /// The process that runs the command of `--work`
    #[command(name = "internal-work-runner", hide = true)]
    WorkRunner(WorkArgs),
}

impl Command {
    /// Turns the arguments into a plan. Fails if they contradict each other.
    pub fn plan(self) -> Result<Box<dyn Plan>> {
        Ok(match self {
            Command::Demo(args) => Box::new(args.plan()?),
            Command::Doctor(args) => Box::new(args),
            Command::Events(args) => Box::new(args.plan()?),
            Command::Record(args) => Box::new(args),
            Command::Report(args) => Box::new(args.plan()?),
            Command::Rollup(args) => Box::new(args),
            Command::Advise(args) => Box::new(args),
            Command::Convert(args) => Box::new(args.plan()?),
            Command::Top(args) => Box::new(args.plan()?),
            Command::Serve(args) => Box::new(args.plan()?),
            Command::Placement(args) => Box::new(args.plan()?),
            Command::ZoneLock(args) => Box::new(args),
            Command::Collapse(args) => Box::new(args),
            Command::Reclaim(args) => Box::new(args),
            Command::Split(args) => Box::new(args),
            Command::Migrate(args) => Box::new(args),
            Command::Undo(args) => Box::new(args),
            Command::Run(args) => Box::new(args),
            Command::Hint(args) => Box::new(args.plan()?),
            Command::Status(args) => Box::new(args),
            Command::Generate(args) => Box::new(args),
            Command::Workload(args) => Box::new(args),
            Command::SandboxCheck(args) => Box::new(args),
            Command::WorkRunner(args) => Box::new(args),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileges::Needs;
    use clap::CommandFactory;
    use std::fmt::Write;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The help of a command and of those below it, hidden ones too; but for those of `help`, which has all of them again.
    fn render(command: &mut clap::Command, path: &str, out: &mut String) {
        writeln!(out, "$ {path} --help\n{}", command.render_long_help()).unwrap();
        for below in command.get_subcommands_mut().filter(|below| below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name());
            render(below, &path, out);
        }
    }

    #[test]
    #[cfg_attr(not(feature = "model"), ignore = "what is kept is the help with the feature `model`")]
    fn help_is_as_it_was() {
        let mut command = Cli::command().term_width(100);
        command.build();
        let mut help = String::new();
        render(&mut command, "isotherm", &mut help);
        is_kept(&help, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help.txt"));
    }

    #[test]
    #[cfg_attr(not(feature = "model"), ignore = "what is kept is the reference with the feature `model`")]
    fn the_reference_has_every_command_and_option() {
        let mut command = Cli::command();
        command.build();
        is_kept(&reference::page(&command), concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/commands.md"));
    }

    fn is_kept(made: &str, kept: &str) {
        if std::env::var_os("UPDATE_HELP").is_some() {
            std::fs::write(kept, made).unwrap();
        }
        let before = std::fs::read_to_string(kept).unwrap();
        for (number, (now, before)) in (1..).zip(made.lines().zip(before.lines())) {
            assert_eq!(now, before, "line {number} of {kept}; UPDATE_HELP=1 writes it anew");
        }
        assert_eq!(made.len(), before.len(), "{kept} has another end; UPDATE_HELP=1 writes it anew");
    }

    fn needs_of(line: &str) -> Needs {
        let cli = Cli::parse_from(["isotherm"].into_iter().chain(line.split_whitespace()));
        cli.command.plan().unwrap().needs()
    }

    #[test]
    fn a_command_that_starts_no_program_is_known_as_such() {
        for line in [
            "report wss",
            "report access rec",
            "convert a b",
            "rollup rec --to d",
            "advise rec",
            "generate man d",
            "status",
            "hint -p 1 1-2",
        ] {
            assert_eq!(needs_of(line), Needs::Files, "{line}");
        }
        for line in [
            "report wss -p 1",
            "record -a",
            "top",
            "run -p 1",
            "collapse -p 1",
            "zone-lock",
            "herd",
            "events try faults -p 1",
        ] {
            assert_eq!(needs_of(line), Needs::Watching, "{line}");
        }
        for line in
            ["report wss -- x", "record -- x", "run -p 1 --work x", "run -c x", "collapse -p 1 --work x", "demo"]
        {
            assert_eq!(needs_of(line), Needs::Starting, "{line}");
        }
        assert_eq!(needs_of("doctor"), Needs::Everything);
    }
}
