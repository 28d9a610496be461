//! `isotherm hint`: sends hints about hot memory to a running `isotherm run`, from arguments, a file or standard input.

use crate::args::socket::default_socket;
use crate::args::usage::Usage;
use crate::commands::plan::Plan;
use crate::daemon::socket::Client;
use crate::output;
use crate::privileges::Needs;
use anyhow::{Context, Result, bail};
use clap::Args;
use isotherm_schemes::request::{ExternalHint, parse_range};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct HintArgs {
    /// Process to which the ranges belong
    #[arg(short, long, value_name = "PID", requires = "ranges", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Address ranges, as in 7f0000000000-7f0000200000
    #[arg(value_name = "START-END", requires = "pid")]
    pub ranges: Vec<String>,
    /// File of hints, one per line: `PID START-END [LEVEL]`; - is standard input [default: -, without ranges]
    #[arg(short, long, value_name = "FILE", conflicts_with = "ranges")]
    pub file: Option<PathBuf>,
    /// Priority of the ranges, 0 to 31
    #[arg(long, value_name = "LEVEL", default_value_t = 31, value_parser = clap::value_parser!(u8).range(0..=31))]
    pub level: u8,
    /// Socket of the `isotherm run` to send them to
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Hints, and the socket to send them to.
pub struct HintPlan {
    /// The path given with `--socket`.
    socket: Option<PathBuf>,
    from: From,
}

/// Where hints come from.
enum From {
    /// Lines made of the ranges given.
    Ranges(Vec<String>),
    File(PathBuf),
    Stdin,
}

impl HintArgs {
    /// Parses ranges, so that a malformed one is found before the daemon is contacted.
    pub fn plan(self) -> Result<HintPlan> {
        let from = match (self.pid, self.file) {
            (Some(pid), _) if !self.ranges.is_empty() => {
                let line = |range: &String| -> Result<String> {
                    let range = parse_range(range).map_err(|why| Usage(why.to_string()))?;
                    Ok(format!("{pid} {:x}-{:x} {}", range.start.0, range.end.0, self.level))
                };
                From::Ranges(self.ranges.iter().map(line).collect::<Result<_>>()?)
            }
            (_, Some(path)) if path != Path::new("-") => From::File(path),
            _ => From::Stdin,
        };
        Ok(HintPlan { socket: self.socket, from })
    }
}

impl Plan for HintPlan {
    fn needs(&self) -> Needs {
        Needs::Files
    }

    fn run(&self) -> Result<()> {
        let mut client = Client::connect(&self.socket.clone().map_or_else(default_socket, Ok)?)?;
        match &self.from {
            From::Ranges(lines) => send(&mut client, lines.iter().cloned().map(Ok)),
            From::File(path) => {
                let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
                send(&mut client, BufReader::new(file).lines())
            }
            From::Stdin => send(&mut client, io::stdin().lock().lines()),
        }
    }
}

/// Sends lines as they come. A refused line is reported, and the others are still sent.
fn send(client: &mut Client, lines: impl Iterator<Item = io::Result<String>>) -> Result<()> {
    let (mut pmds, mut refused) = (0_u64, 0_u64);
    for (number, line) in lines.enumerate() {
        let line = line.context("read hints")?;
        let hint = line.split('#').next().unwrap_or_default().trim();
        if hint.is_empty() {
            continue;
        }
        // Checked here first: a malformed line is the sender's mistake, whatever program answers.
        let answer = match ExternalHint::parse(hint) {
            Ok(_) => client.ask(&format!("hint {hint}"))?,
            Err(why) => format!("error: {why}"),
        };
        match answer.strip_prefix("ok ").and_then(|n| n.parse::<u64>().ok()) {
            Some(added) => pmds += added,
            None => {
                refused += 1;
                output::note(format_args!("hint {}: {}", number + 1, answer.trim_start_matches("error: ")));
            }
        }
    }
    output::note(format_args!("hints sent for {pmds} huge ranges"));
    if refused > 0 {
        bail!("{refused} hints were refused");
    }
    Ok(())
}
