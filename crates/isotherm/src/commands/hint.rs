//! `isotherm hint`: tells a running `isotherm run` which memory is hot, from arguments, a file or standard input.

use crate::cli::HintArgs;
use crate::daemon::config::default_socket;
use crate::daemon::socket::{Client, ExternalHint, parse_range};
use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

pub fn run(args: &HintArgs) -> Result<()> {
    let socket = args.socket.clone().map_or_else(default_socket, Ok)?;
    if let Some(pid) = args.pid.filter(|_| !args.ranges.is_empty()) {
        let mut lines = Vec::new();
        for range in &args.ranges {
            let range = parse_range(range).map_err(|why| anyhow!(why))?;
            lines.push(format!("{pid} {:x}-{:x} {}", range.start.0, range.end.0, args.level));
        }
        return send(&mut Client::connect(&socket)?, lines.into_iter().map(Ok));
    }
    let mut client = Client::connect(&socket)?;
    match args.file.as_deref().filter(|f| *f != Path::new("-")) {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
            send(&mut client, BufReader::new(file).lines())
        }
        None => send(&mut client, io::stdin().lock().lines()),
    }
}

/// Sends line by line as they come. A line that is refused is told, and the others are sent all the same.
fn send(client: &mut Client, lines: impl Iterator<Item = io::Result<String>>) -> Result<()> {
    let (mut blocks, mut refused) = (0_u64, 0_u64);
    for (number, line) in lines.enumerate() {
        let line = line.context("read hints")?;
        let hint = line.split('#').next().unwrap_or_default().trim();
        if hint.is_empty() {
            continue;
        }
        // Checked here first: a malformed line is the sender's, whoever answers.
        let answer = match ExternalHint::parse(hint) {
            Ok(_) => client.ask(&format!("hint {hint}"))?,
            Err(why) => format!("error: {why}"),
        };
        match answer.strip_prefix("ok ").and_then(|n| n.parse::<u64>().ok()) {
            Some(added) => blocks += added,
            None => {
                refused += 1;
                output::note(format_args!("hint {}: {}", number + 1, answer.trim_start_matches("error: ")));
            }
        }
    }
    output::note(format_args!("{blocks} blocks hinted at"));
    if refused > 0 {
        bail!("{refused} hints were refused");
    }
    Ok(())
}
