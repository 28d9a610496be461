//! `isotherm status`: what a running `isotherm run` does.

use crate::args::socket::default_socket;
use crate::commands::plan::Plan;
use crate::daemon::socket::Client;
use crate::output;
use crate::privileges::Needs;
use anyhow::{Context, Result, bail};
use clap::Args;
use isotherm_schemes::Wait;
use isotherm_units::Bytes;
use isotherm_view::human;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Socket of the `isotherm run` to ask
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Plan for StatusArgs {
    fn needs(&self) -> Needs {
        Needs::Files
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(args: &StatusArgs) -> Result<()> {
    let socket = args.socket.clone().map_or_else(default_socket, Ok)?;
    let answer = Client::connect(&socket)?.ask("status")?;
    let Ok(status) = serde_json::from_str::<Value>(&answer) else {
        bail!("{} answered {answer:?}: is that an isotherm run of this version?", socket.display());
    };
    if args.json {
        return output::json(&status);
    }
    let mut out = output::stdout();
    tell(&status, &mut out)?;
    out.flush()?;
    Ok(())
}

/// What a memory cgroup waits for, in words; `why` is as in JSON.
fn cgroup_text(why: &str) -> &str {
    let known = |wait: &&Wait| serde_json::to_value(wait).is_ok_and(|name| name == why);
    Wait::OF_CGROUPS.iter().find(known).map_or(why, |wait| wait.text())
}

/// For people: what it does, what it waits for, what was gained.
pub fn tell(status: &Value, out: &mut dyn Write) -> Result<()> {
    let number = |v: &Value| v.as_u64().unwrap_or_default();
    let doing = match (&status["paused"], &status["waiting"]) {
        (Value::String(why), _) => format!("paused: {}", human::printable(why)),
        (_, Value::String(why)) => format!("waiting: {}", human::printable(why)),
        _ => "running".to_owned(),
    };
    let dry = if status["dry_run"] == true { " (dry run)" } else { "" };
    writeln!(
        out,
        "process {}{dry}, {doing}; {} blocks collapsed, {} hints queued, {} put off",
        number(&status["pid"]),
        number(&status["collapsed"]),
        number(&status["hints"]["queued"]),
        number(&status["hints"]["put_off"])
    )?;
    if number(&status["hints"]["unwritable"]) > 0 {
        writeln!(out, "{} of those put off: {}", number(&status["hints"]["unwritable"]), Wait::Unwritable.text())?;
    }
    if number(&status["hints"]["cgroup"]) > 0 {
        writeln!(
            out,
            "{} of those put off: their memory cgroup has no room to spare",
            number(&status["hints"]["cgroup"])
        )?;
    }
    if number(&status["blocks_not_looked_at"]) > 0 {
        writeln!(out, "{} of {} blocks not looked at yet", status["blocks_not_looked_at"], status["blocks"])?;
    }
    for target in status["targets"].as_array().context("no targets in the answer")? {
        let share =
            target["heat_on_huge_share"].as_f64().map_or("unknown".to_owned(), |s| format!("{:.1}%", s * 100.0));
        write!(
            out,
            "{:>8} {:<16} {:>10} resident, {:>10} huge, {share} of the heat on huge pages",
            number(&target["pid"]),
            human::printable(target["comm"].as_str().unwrap_or_default()),
            Bytes(number(&target["rss_bytes"])).to_string(),
            Bytes(number(&target["huge_bytes"])).to_string(),
        )?;
        match (&target["left_alone"], &target["paused_for"], &target["cgroup_wait"]) {
            (Value::String(why), ..) => writeln!(out, "; left alone: {}", human::printable(why))?,
            (_, Value::Number(pid), _) => writeln!(out, "; paused for its fork {pid}")?,
            (.., Value::String(why)) => writeln!(out, "; waiting: {}", human::printable(cgroup_text(why)))?,
            _ => writeln!(out)?,
        }
    }
    let counters = &status["counters"];
    for (origin, count) in counters["collapsed"].as_object().into_iter().flatten() {
        writeln!(out, "  collapsed on hints from {}: {count}", human::printable(origin))?;
    }
    for (reason, count) in counters["refused"].as_object().into_iter().flatten() {
        writeln!(out, "  not collapsed, {}: {count}", human::printable(reason))?;
    }
    Ok(())
}
