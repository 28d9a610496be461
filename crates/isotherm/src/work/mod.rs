//! Runs the command of `--work` in a shell, with limits on its time and on the output that is kept.
//!
//! The command is the user's. It may hang, print without end, or leave processes behind. It runs in a separate process group, which is
//! killed when the command has ended, when its time is up, and when we end. Its pipes are read without blocking, so one thread can
//! watch the command, the clock and the caller. [`runner`] is the process that does all this, because a monitor in its sandbox starts nothing.

pub mod runner;

use crate::service::for_program;
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit of the command.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// How many bytes of its output are kept. The end is kept, because the number is there.
const MAX_OUTPUT: usize = 64 << 10;
/// How often the clock and the caller are checked.
const TICK: Duration = Duration::from_millis(20);

/// Runs `command` and returns the last number that it prints. Returns `None` if `is_over` returns true before it has ended.
pub fn units(command: &str, longest: Duration, is_over: impl Fn() -> bool) -> Result<Option<f64>> {
    let mut group = Group::start(command).with_context(|| format!("run --work {command:?}"))?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while !group.has_ended()? {
        if is_over() {
            return Ok(None);
        }
        if began.elapsed() > longest {
            bail!("--work {command:?} took longer than {longest:?} and was stopped");
        }
        group.read(&mut out, &mut err, TICK)?;
    }
    group.read(&mut out, &mut err, Duration::ZERO)?;
    let status = group.reap().with_context(|| format!("wait for --work {command:?}"))?;
    if !status.success() {
        bail!("--work {command:?} failed: {status}: {}", String::from_utf8_lossy(&err).trim());
    }
    number(&out).map(Some).with_context(|| {
        // Of a pipeline the last program counts, and an earlier one may have said why there is nothing.
        let (text, said) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
        let said = said.trim().lines().last().map(|line| format!("; it said {line:?}")).unwrap_or_default();
        format!("--work {command:?} printed no number: {:?}{said}", text.trim())
    })
}

fn number(output: &[u8]) -> Option<f64> {
    let text = String::from_utf8_lossy(output);
    text.split(|c: char| c.is_whitespace() || c == ':' || c == '=').rev().find_map(|w| w.parse::<f64>().ok())
}

/// The shell and its process group. Killed when dropped.
struct Group {
    shell: Child,
    id: Pid,
}

impl Group {
    fn start(command: &str) -> Result<Group> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).process_group(0);
        for_program(&mut shell);
        let shell = shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let id = Pid::from_child(&shell);
        for pipe in [shell.stdout.as_ref().map(AsFd::as_fd), shell.stderr.as_ref().map(AsFd::as_fd)] {
            rustix::io::ioctl_fionbio(pipe.context("no pipe")?, true)?;
        }
        Ok(Group { shell, id })
    }

    /// Whether the shell has ended. It stays a zombie, so that its id, which is also the id of its group, is not reused.
    fn has_ended(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.id), options)?.is_some())
    }

    /// Reads available output. Waits for it for at most `time`.
    fn read(&mut self, out: &mut Vec<u8>, err: &mut Vec<u8>, time: Duration) -> Result<()> {
        let began = Instant::now();
        if let (Some(a), Some(b)) = (&self.shell.stdout, &self.shell.stderr) {
            let mut fds = [PollFd::new(a, PollFlags::IN), PollFd::new(b, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() }));
        }
        let out_ended = take(self.shell.stdout.as_mut(), out)?;
        let err_ended = take(self.shell.stderr.as_mut(), err)?;
        if out_ended || err_ended {
            // A pipe at its end is always ready: polling it would not wait.
            std::thread::sleep(time.saturating_sub(began.elapsed()));
        }
        Ok(())
    }

    fn reap(mut self) -> Result<std::process::ExitStatus> {
        self.kill();
        Ok(self.shell.wait()?)
    }

    fn kill(&self) {
        let _ = kill_process_group(self.id, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Once the shell is reaped, its id may belong to another process.
        if matches!(self.shell.try_wait(), Ok(None)) {
            self.kill();
            let _ = self.shell.wait();
        }
    }
}

/// Reads available output, up to [`MAX_OUTPUT`] at a time, and keeps its end. Returns whether the pipe is at its end.
fn take(pipe: Option<&mut impl Read>, kept: &mut Vec<u8>) -> Result<bool> {
    let Some(pipe) = pipe else { return Ok(true) };
    let mut bytes = [0; 4096];
    for _ in 0..MAX_OUTPUT / bytes.len() {
        match pipe.read(&mut bytes) {
            Ok(0) => return Ok(true),
            Ok(count) => kept.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("read what --work prints"),
        }
        kept.drain(..kept.len().saturating_sub(MAX_OUTPUT));
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const NEVER: fn() -> bool = || false;

    fn units_of(command: &str) -> Result<f64> {
        Ok(units(command, Duration::from_secs(20), NEVER)?.expect("not over"))
    }

    #[test]
    fn work_is_the_last_number_printed() {
        assert_eq!(units_of("echo total_commands_processed:4711").unwrap(), 4711.0);
        assert_eq!(units_of("echo 1; echo done=2.5").unwrap(), 2.5);
        let none = units_of("echo because >&2; echo none").unwrap_err().to_string();
        assert!(none.contains("no number") && none.contains("it said \"because\""), "{none}");
        let failed = units_of("echo because >&2; exit 3").unwrap_err().to_string();
        assert!(failed.contains("exit status: 3") && failed.contains("because"), "{failed}");
    }

    #[test]
    fn the_end_of_a_long_output_is_kept_and_no_more() {
        assert_eq!(units_of("seq 1 300000; seq 1 300000 >&2; echo 17").unwrap(), 17.0);
        let mut kept = Vec::new();
        let lines = "1234567\n".repeat(40_000);
        take(Some(&mut lines.as_bytes()), &mut kept).unwrap();
        assert_eq!(kept.len(), MAX_OUTPUT);
    }

    /// Whether process `pid`, which wrote its id to a file, has ended.
    fn has_ended(file: &std::path::Path) -> bool {
        let pid = fs::read_to_string(file).unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    }

    #[test]
    fn what_takes_too_long_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let command = format!("echo 1; sleep 600 & echo $! > {}; yes | cat > /dev/null", file.display());
        let began = Instant::now();
        let error = units(&command, Duration::from_millis(700), NEVER).unwrap_err().to_string();
        assert!(error.contains("took longer than 700ms and was stopped"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(20));
        while !has_ended(&file) {
            assert!(began.elapsed() < Duration::from_secs(20), "it lives on");
            std::thread::sleep(TICK);
        }
    }

    #[test]
    fn what_is_left_behind_ends_with_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let began = Instant::now();
        assert_eq!(units_of(&format!("sleep 600 & echo $! > {}; echo 5", file.display())).unwrap(), 5.0);
        while !has_ended(&file) {
            assert!(began.elapsed() < Duration::from_secs(20), "it lives on");
            std::thread::sleep(TICK);
        }
    }

    #[test]
    fn it_is_not_waited_for_when_all_is_over() {
        let began = Instant::now();
        assert_eq!(units("sleep 600", Duration::from_secs(600), || true).unwrap(), None);
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
