//! A process that runs the command of `--work` for us: ourselves, started before the sandbox, with the caller's privileges.
//!
//! A monitor in its sandbox can start no program. It asks this process, by a line on a pipe, and gets an answer of one line. It cannot ask
//! for another command: the runner has the command from the same arguments and the same settings file, which it checks and reads itself.
//! The runner ends when the pipe does.

use crate::commands::plan::Plan;
use crate::commands::run::config;
use crate::privileges::Needs;
use crate::service::own_program;
use crate::work::{TICK, TIME_LIMIT, units};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use isotherm_sys::descriptors;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Asks for the work done so far.
const RUN: &str = "run";
/// The settings file is to be read again.
const RELOAD: &str = "reload";
/// How much longer than the command's own limit an answer may take, on a busy machine.
const GRACE: Duration = Duration::from_secs(10);

/// Where the command comes from.
#[derive(Clone, Debug, Args)]
pub struct WorkArgs {
    /// The command
    #[arg(long)]
    pub work: Option<String>,
    /// The settings file that has it
    #[arg(long)]
    pub config: Option<PathBuf>,
}

impl WorkArgs {
    fn command(&self) -> Result<Option<String>> {
        match (&self.work, &self.config) {
            (Some(work), _) => Ok(Some(work.clone())),
            (None, Some(path)) => config::work_of(path),
            (None, None) => Ok(None),
        }
    }
}

impl Plan for WorkArgs {
    fn needs(&self) -> Needs {
        Needs::Everything
    }

    /// Answers until standard input ends.
    fn run(&self) -> Result<()> {
        let mut command = self.command()?;
        for line in io::stdin().lock().lines() {
            match line?.as_str() {
                RUN => answer(&done(command.as_deref()))?,
                RELOAD => command = self.command().unwrap_or(command),
                other => bail!("{other:?} is no request"),
            }
        }
        Ok(())
    }
}

/// What a run of the command came to.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Units(f64),
    Failed(String),
}

fn done(command: Option<&str>) -> Answer {
    let Some(command) = command else { return Answer::Failed("no --work command is set".into()) };
    match units(command, TIME_LIMIT, has_no_reader) {
        Ok(Some(done)) => Answer::Units(done),
        Ok(None) => Answer::Failed("ended".into()),
        Err(error) => Answer::Failed(format!("{error:#}")),
    }
}

/// Whether the process that asks has gone.
fn has_no_reader() -> bool {
    let stdout = rustix::stdio::stdout();
    let mut fds = [PollFd::from_borrowed_fd(stdout, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && !fds[0].revents().is_empty()
}

fn answer(answer: &Answer) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// The other side: the process, and its pipes.
#[derive(Debug)]
pub struct Runner {
    child: Child,
    /// `None` once it is to end.
    pipes: Option<Pipes>,
}

#[derive(Debug)]
struct Pipes {
    requests: ChildStdin,
    answers: ChildStdout,
}

impl Runner {
    /// Starts it. `None` if no command is given, and none can come from a settings file.
    pub fn start(args: &WorkArgs) -> Result<Option<Runner>> {
        if args.work.is_none() && args.config.is_none() {
            return Ok(None);
        }
        let mut command = Command::new(own_program()?);
        command.arg("internal-work-runner");
        if let Some(work) = &args.work {
            command.arg("--work").arg(work);
        }
        if let Some(path) = &args.config {
            command.arg("--config").arg(path);
        }
        // Of a group of its own, so that Ctrl-C does not end it before the last reading.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = descriptors::restore_limit(&mut command).spawn().context("start the process for --work")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (requests, answers) = pipes.context("the process for --work has no pipes")?;
        rustix::io::ioctl_fionbio(&answers, true)?;
        Ok(Some(Runner { child, pipes: Some(Pipes { requests, answers }) }))
    }

    /// Reads the settings file again, before the next run.
    pub fn reload(&mut self) -> Result<()> {
        self.ask(RELOAD)
    }

    /// The last number that the command prints. `None` if `is_over` returns true before it has ended.
    pub fn units(&mut self, is_over: impl Fn() -> bool) -> Result<Option<f64>> {
        self.ask(RUN)?;
        let Some(line) = self.pipes()?.line(is_over)? else { return Ok(None) };
        match serde_json::from_slice(&line).context("read the answer of the process for --work")? {
            Answer::Units(done) => Ok(Some(done)),
            Answer::Failed(why) => Err(anyhow!(why)),
        }
    }

    fn ask(&mut self, request: &str) -> Result<()> {
        writeln!(self.pipes()?.requests, "{request}").context("ask the process for --work")
    }

    fn pipes(&mut self) -> Result<&mut Pipes> {
        self.pipes.as_mut().context("the process for --work has ended")
    }
}

impl Pipes {
    /// The next line of answers.
    fn line(&mut self, is_over: impl Fn() -> bool) -> Result<Option<Vec<u8>>> {
        let began = Instant::now();
        let mut line = Vec::new();
        loop {
            if is_over() {
                return Ok(None);
            }
            if began.elapsed() > TIME_LIMIT + GRACE {
                bail!("the process for --work does not answer");
            }
            let mut fds = [PollFd::new(&self.answers, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() }));
            let mut bytes = [0; 4096];
            match self.answers.read(&mut bytes) {
                Ok(0) => bail!("the process for --work has ended"),
                Ok(count) => line.extend_from_slice(&bytes[..count]),
                Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind()) => {}
                Err(error) => return Err(error).context("read the answer of the process for --work"),
            }
            if line.last() == Some(&b'\n') {
                return Ok(Some(line));
            }
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // It ends the command, and then itself, when its pipes are closed. If it were killed, the command would go on.
        self.pipes = None;
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if began.elapsed() > GRACE {
                let _ = self.child.kill();
            }
            std::thread::sleep(TICK);
        }
    }
}
