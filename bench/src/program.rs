//! Programs that are started and ended. All their output goes to files in a directory that is deleted with them.

use anyhow::{Context, Result, bail, ensure};
use isotherm_sys::signal;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A started program has to answer within this time, and a terminated one has to exit.
const PROMPT: Duration = Duration::from_secs(15);

/// A directory for all output of the programs. Deleted when this value is dropped.
#[derive(Debug)]
pub struct Dir(pub PathBuf);

impl Dir {
    /// A new one.
    pub fn new() -> Result<Dir> {
        let path = std::env::temp_dir().join(format!("isotherm-bench-programs-{}", std::process::id()));
        // Neither creates parents nor accepts an existing directory, so that a link placed there by another user is not
        // followed.
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Dir(path))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until `done` returns true. Returns false if the time was up first.
pub fn until(time: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let end = Instant::now() + time;
    while !done()? {
        if Instant::now() >= end {
            return Ok(false);
        }
        sleep(Duration::from_millis(50));
    }
    Ok(true)
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr().context("look for a free port")?.port())
}

/// Starts a Redis server on a port of this machine only, with `more` settings. It writes nothing to disk unless asked to save.
pub fn start_redis(port: u16, more: &[&str], dir: &Path, log: PathBuf) -> Result<Program> {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.args(["--daemonize", "no", "--protected-mode", "no"]).args(more).arg("--dir").arg(dir);
    let mut server = Program::start(command, log).context("is the package redis-server installed?")?;
    server.until_ready("redis-server", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())?;
    Ok(server)
}

/// A program whose output goes to a file. It ends when this value is dropped.
#[derive(Debug)]
pub struct Program {
    process: Child,
    log: PathBuf,
}

impl Program {
    /// Starts it; what it writes goes to `log`.
    pub fn start(mut command: Command, log: PathBuf) -> Result<Program> {
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let twin = file.try_clone().with_context(|| format!("open {} twice", log.display()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(twin);
        let process = command.spawn().with_context(|| format!("start {command:?}"))?;
        Ok(Program { process, log })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it is `ready`; an error if it has ended or takes too long.
    pub fn until_ready(&mut self, what: &str, ready: impl Fn() -> bool) -> Result<()> {
        let process = &mut self.process;
        let mut ended = None;
        let answered = until(PROMPT, || {
            ended = process.try_wait().with_context(|| format!("wait for {what}"))?;
            Ok(ended.is_some() || ready())
        })?;
        match ended {
            Some(status) => bail!("{what} has ended with {status} and said:\n{}", self.said()),
            None => ensure!(answered, "{what} does not answer after {PROMPT:?} and said:\n{}", self.said()),
        }
        Ok(())
    }

    /// Whether it has ended. Its pid may be that of another process from then on.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.process.try_wait().with_context(|| format!("wait for process {}", self.pid()))?.is_some())
    }

    /// The last lines of its output.
    pub fn said(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.has_ended(), Ok(true)) {
            return;
        }
        // SIGTERM first: the daemon has to undo changes in other processes, and Redis has to end a child that saves.
        let _ = signal::terminate(self.pid());
        let ended = until(PROMPT, || self.has_ended());
        if !matches!(ended, Ok(true)) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, dir: &Dir) -> Result<Program> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program::start(command, dir.0.join("said"))
    }

    #[test]
    fn a_program_is_asked_whether_it_has_ended_and_is_terminated_if_not() -> Result<()> {
        let dir = Dir::new()?;
        let mut asked = shell("echo started; read line", &dir)?;
        assert!(until(PROMPT, || asked.has_ended())?, "its input is empty, so that it ends by itself");
        assert!(asked.has_ended()?, "and it is said again");
        assert_eq!(asked.said(), "started");
        drop(asked);
        let mut goes_on = shell("exec sleep 60", &dir)?;
        assert!(!goes_on.has_ended()?);
        let (pid, began) = (goes_on.pid(), Instant::now());
        drop(goes_on);
        assert!(began.elapsed() < PROMPT && !Path::new(&format!("/proc/{pid}")).exists());
        Ok(())
    }
}
