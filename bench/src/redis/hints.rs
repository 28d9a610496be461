//! The daemon, `isotherm run`, which gives hints for one of the servers.

use anyhow::{Context, Result, ensure};
use isotherm_bench::cpu::Cpu;
use isotherm_bench::program::Program;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The daemon for one server.
pub struct Hints {
    program: Program,
    isotherm: PathBuf,
    socket: PathBuf,
    pid: u32,
}

/// The status that the daemon reports.
pub struct HintsStatus {
    pub collapsed: u64,
    pub paused: Option<String>,
    pub heat_on_huge: Option<f64>,
}

impl Hints {
    pub fn start(pid: u32, dir: &Path) -> Result<Hints> {
        let own = std::env::current_exe().context("find isotherm next to this program")?;
        let (isotherm, socket) = (own.with_file_name("isotherm"), dir.join("socket"));
        let mut command = Command::new(&isotherm);
        command.args(["run", "-p", &pid.to_string(), "--no-children", "--socket"]).arg(&socket);
        let mut program = Program::start(command, dir.join("daemon.log")).context("has `make build` been run?")?;
        program.until_ready("isotherm run", || socket.exists())?;
        Ok(Hints { program, isotherm, socket, pid })
    }

    pub fn status(&self) -> Result<HintsStatus> {
        let asking = || format!("ask the daemon for its status; it said:\n{}", self.program.said());
        let mut command = Command::new(&self.isotherm);
        command.arg("status").arg("--socket").arg(&self.socket).arg("--json");
        let output = command.output().with_context(asking)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} ended with {}: {error}\n{}", output.status, asking());
        let status: Value = serde_json::from_slice(&output.stdout).with_context(asking)?;
        let target = status["targets"].as_array().and_then(|t| t.iter().find(|t| t["pid"] == self.pid));
        Ok(HintsStatus {
            collapsed: status["collapsed"].as_u64().with_context(|| format!("no `collapsed` in {status}"))?,
            paused: status["paused"].as_str().map(str::to_owned),
            heat_on_huge: target.and_then(|t| t["heat_on_huge_share"].as_f64()),
        })
    }
}

pub fn daemon_cpu_ns(hints: Option<&Hints>) -> Result<f64> {
    hints.map_or(Ok(0.0), |h| Ok(Cpu::of(h.program.pid()).with_context(|| h.program.said())?.total_ns))
}
