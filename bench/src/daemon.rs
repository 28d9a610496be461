//! `isotherm run` beside a benchmark, and what it reports.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// `isotherm run` in the background. It ends when this value is dropped.
#[derive(Debug)]
pub struct Daemon {
    process: Child,
    socket: PathBuf,
    settings: PathBuf,
}

impl Daemon {
    /// Starts it on these processes, and waits until it answers.
    pub fn start(pids: &[u32], settings: &str) -> Result<Daemon> {
        let at = std::env::temp_dir().join(format!("isotherm-bench-{}", std::process::id()));
        let (path, socket) = (at.with_extension("toml"), at.with_extension("sock"));
        fs::write(&path, settings).with_context(|| format!("write {}", path.display()))?;
        let mut command = isotherm();
        command.arg("run").args(["--socket".as_ref(), socket.as_os_str(), "--config".as_ref(), path.as_os_str()]);
        for pid in pids {
            command.args(["-p", &pid.to_string()]);
        }
        let process = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("run isotherm: has `make build` been run?")?;
        let daemon = Daemon { process, socket, settings: path };
        for _ in 0..100 {
            if daemon.status().is_ok() {
                return Ok(daemon);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        daemon.status().map(|_| daemon)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What `isotherm status --json` prints.
    pub fn status(&self) -> Result<Value> {
        let socket = self.socket.as_os_str();
        let output = isotherm().args(["status".as_ref(), "--json".as_ref(), "--socket".as_ref(), socket]).output()?;
        ensure!(output.status.success(), "isotherm status: {}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// What it says of one process.
    pub fn target(&self, pid: u32) -> Result<Value> {
        let status = self.status()?;
        let targets = status["targets"].as_array().context("no targets in the status")?;
        targets.iter().find(|target| target["pid"] == pid).cloned().context("no such target in the status")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.settings);
    }
}

/// The program beside this one, at its defaults: the lab raises a budget for its tests.
pub fn isotherm() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_default().with_file_name("isotherm"));
    command.env_remove("ISOTHERM_MAX_CPU");
    command
}
