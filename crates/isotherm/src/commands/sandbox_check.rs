//! `isotherm internal-sandbox-check`, hidden: enters the sandbox of a monitor and tries what must fail in it, for `doctor`.
//!
//! It is a process of its own, because a sandbox cannot be left.

use crate::args::source::ClearArg;
use crate::commands::plan::Plan;
use crate::output;
use crate::privileges::Needs;
use crate::sandbox::{self, Uses};
use crate::service::own_program;
use anyhow::{Context, Result};
use clap::Args;
use isotherm_host::{Area, Finding, State};
use isotherm_sandbox::{InForce, Part};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{self, Command, Stdio};

#[derive(Debug, Args)]
pub struct SandboxCheckArgs {}

/// What is in force, and what works nevertheless.
#[derive(Debug, Serialize, Deserialize)]
struct Checked {
    in_force: InForce,
    works: Vec<String>,
}

impl Plan for SandboxCheckArgs {
    fn needs(&self) -> Needs {
        Needs::Watching
    }

    fn run(&self) -> Result<()> {
        Uses::of_source("page-table", ClearArg::Auto).enter();
        let attempts = [("starting a program", starts()), ("a connection", connects()), ("a file elsewhere", writes())];
        let works = attempts.into_iter().filter(|(_, works)| *works).map(|(what, _)| what.to_owned()).collect();
        output::json(&Checked { in_force: sandbox::in_force(), works })
    }
}

fn starts() -> bool {
    Command::new("true").stdin(Stdio::null()).status().is_ok()
}

/// Whether a socket can be made. A connection to nobody is refused by its peer, and that is no refusal of ours.
fn connects() -> bool {
    match TcpStream::connect((Ipv4Addr::LOCALHOST, 9)) {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::PermissionDenied,
    }
}

fn writes() -> bool {
    let path = std::env::temp_dir().join(format!("isotherm-sandbox-check-{}", process::id()));
    let made = File::create_new(&path).is_ok();
    if made {
        let _ = fs::remove_file(&path);
    }
    made
}

/// The sandbox of a monitor on this machine, with these privileges. Tries it.
pub fn finding() -> Finding {
    let (state, detail) = match checked() {
        Ok(checked) => (if checked.works.is_empty() { State::Present } else { State::Unknown }, text(&checked)),
        Err(error) => (State::Unknown, format!("could not be tried: {error:#}")),
    };
    Finding { area: Area::Privilege, name: "sandbox", state, detail, advice: String::new() }
}

fn checked() -> Result<Checked> {
    let program = own_program()?;
    let ran = Command::new(program)
        .arg("internal-sandbox-check")
        .output()
        .context("start isotherm internal-sandbox-check")?;
    serde_json::from_slice(&ran.stdout).with_context(|| String::from_utf8_lossy(&ran.stderr).trim().to_owned())
}

fn text(checked: &Checked) -> String {
    let InForce { capabilities, system_calls, mounts, .. } = &checked.in_force;
    let kept = if capabilities.is_empty() { "none".to_owned() } else { capabilities.join(" ") };
    let part = |name: &str, part: &Part| match part {
        Part::On => name.to_owned(),
        Part::Off => format!("no {name}"),
        Part::NoPrivilege(_) => format!("no {name} (needs CAP_SYS_ADMIN)"),
        Part::Unsupported(why) => format!("no {name} ({why})"),
    };
    let mut text = format!(
        "once a monitor has opened its source: {}, {}; capabilities kept: {kept}",
        part("filter of system calls", system_calls),
        part("read-only mounts", mounts)
    );
    if !checked.works.is_empty() {
        text.push_str("; still possible: ");
        text.push_str(&checked.works.join(", "));
    }
    text
}
