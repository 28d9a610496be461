//! When to end: on signals, when the terminal has gone, and when nobody reads the output any more.
//!
//! All of these set one flag. Every loop and every wait of a command checks it at least ten times a second. SIGHUP ends a command, because
//! its terminal has hung up. A daemon also gets SIGHUP as the request to read its settings again; [`handle_hangups`] distinguishes the two.
//! A command that was started with SIGHUP ignored (`nohup`) keeps ignoring it.

use crate::output;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{self, OpenOptions};
use std::io;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a wait checks the flag.
const TICK: Duration = Duration::from_millis(50);

/// How long after SIGHUP the terminal may still seem to exist.
const GONE_TIMEOUT: Duration = Duration::from_millis(500);
/// How often to check whether the terminal has gone without SIGHUP, and how long to wait for that SIGHUP.
const CHECK_EVERY: Duration = Duration::from_secs(1);
const HANGUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether the command has ended because the reader of its standard output has gone.
static OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether a command has ended early because nobody reads its output. The error that it then returns is no failure.
pub fn output_closed() -> bool {
    OUTPUT_CLOSED.load(Ordering::Relaxed)
}

/// Set when the user or the system asks us to end.
#[derive(Clone, Debug)]
pub struct Stop(pub Arc<AtomicBool>);

impl Stop {
    /// Never set, for what has to be done to its end.
    pub fn never() -> Stop {
        Stop(Arc::new(AtomicBool::new(false)))
    }

    /// Handles SIGINT, SIGTERM and SIGHUP from now on.
    pub fn on_signals() -> Result<Stop> {
        let stop = Stop::on_end_signals()?;
        if !hangups_are_ignored() {
            // A second SIGHUP does not end us at once: a shell that ends sends one, and the kernel sends another.
            signal_hook::flag::register(SIGHUP, Arc::clone(&stop.0)).context("handle signals")?;
        }
        Ok(stop)
    }

    /// Handles SIGINT and SIGTERM only. To a daemon, SIGHUP means something else.
    pub fn on_end_signals() -> Result<Stop> {
        let (flag, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // A second signal ends us at once, in case a clean end hangs. SIGHUP does not count as the first, because the end of a session
            // sends SIGTERM with it.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&asked))
                .context("handle signals")?;
            for flag in [&asked, &flag] {
                signal_hook::flag::register(signal, Arc::clone(flag)).context("handle signals")?;
            }
        }
        Ok(Stop(flag))
    }

    /// Also ends the command when the reader of its standard output has gone. For commands that only print.
    pub fn or_on_closed_output(self) -> Result<Stop> {
        let stop = self.clone();
        let wait = move || {
            isotherm_sandbox::drop_capabilities();
            // No events are requested: poll always reports errors and hang-ups. Files have neither, so this then waits until we end.
            if wait_for_end_of(rustix::stdio::stdout()) {
                OUTPUT_CLOSED.store(true, Ordering::Relaxed);
                stop.set();
            }
        };
        thread::Builder::new().name("isotherm-output".into()).spawn(wait).context("start a thread")?;
        Ok(self)
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Sleeps for `time`, or until the flag is set.
    pub fn sleep(&self, time: Duration) {
        let began = Instant::now();
        while !self.is_set() {
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(TICK));
        }
    }
}

/// For a daemon: SIGHUP sets `stop` if it comes because the terminal has gone, and `reload` otherwise.
pub fn handle_hangups(stop: &Stop, reload: &Arc<AtomicBool>) -> Result<()> {
    let mut terminal = if hangups_are_ignored() { Terminal::default() } else { Terminal::of_this_process() };
    let mut signals = Signals::new([SIGHUP]).context("handle signals")?;
    let (stop, reload) = (stop.clone(), Arc::clone(reload));
    let hear = move || {
        isotherm_sandbox::drop_capabilities();
        let mut looked = Instant::now();
        loop {
            if signals.pending().count() > 0 {
                if terminal.is_gone_soon() { stop.set() } else { reload.store(true, Ordering::Relaxed) }
            } else if looked.elapsed() >= CHECK_EVERY {
                looked = Instant::now();
                // Gone without SIGHUP: a later SIGHUP has another reason.
                if terminal.is_gone() && !terminal.is_followed_by_a_hangup(&mut signals, &stop) {
                    terminal = Terminal::default();
                }
            }
            thread::sleep(TICK);
        }
    };
    thread::Builder::new().name("isotherm-hangup".into()).spawn(hear).context("start a thread")?;
    Ok(())
}

/// What ties this process to a terminal.
#[derive(Debug, Default)]
struct Terminal {
    /// There is a controlling terminal.
    controls: bool,
    /// Standard streams that are terminals.
    streams: Vec<BorrowedFd<'static>>,
}

impl Terminal {
    fn of_this_process() -> Terminal {
        let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        Terminal {
            controls: open_controlling().is_ok(),
            streams: streams.into_iter().filter(|fd| rustix::termios::isatty(fd)).collect(),
        }
    }

    fn is_gone(&self) -> bool {
        let uncontrolled = || match open_controlling() {
            Err(error) => [Errno::NXIO, Errno::IO].contains(&Errno::from_io_error(&error).unwrap_or(Errno::INVAL)),
            Ok(()) => false,
        };
        (self.controls && uncontrolled()) || self.streams.iter().any(|fd| has_ended(*fd))
    }

    /// Whether the terminal has gone, or goes within [`GONE_TIMEOUT`]. The kernel signals the first process of a session before it takes
    /// the terminal from all of them, one after the other.
    fn is_gone_soon(&self) -> bool {
        (0..GONE_TIMEOUT.as_millis() / TICK.as_millis()).any(|look| {
            if look > 0 {
                thread::sleep(TICK);
            }
            self.is_gone()
        })
    }

    /// Called when the terminal has gone. Sets `stop` and returns true if SIGHUP follows within [`HANGUP_TIMEOUT`].
    fn is_followed_by_a_hangup(&self, signals: &mut Signals, stop: &Stop) -> bool {
        let began = Instant::now();
        while began.elapsed() < HANGUP_TIMEOUT {
            if signals.pending().count() > 0 {
                stop.set();
                return true;
            }
            thread::sleep(TICK);
        }
        false
    }
}

fn open_controlling() -> io::Result<()> {
    OpenOptions::new().read(true).open("/dev/tty").map(drop)
}

/// Whether a stream has hung up, or its reader has gone.
fn has_ended(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && !fds[0].revents().is_empty()
}

fn wait_for_end_of(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    loop {
        match poll(&mut fds, None) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

/// Whether we were started with SIGHUP ignored, in order to outlive the terminal. Call it before a handler is set.
fn hangups_are_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (SIGHUP - 1)) != 0
}

/// How long a program of ours may take to end when asked to; and one of the user's, which may have much to save: as long as `docker stop` waits.
pub const OURS_MAY_TAKE: Duration = Duration::from_secs(2);
pub const USERS_MAY_TAKE: Duration = Duration::from_secs(10);
/// A wait is reported from then on.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// Ends a program that we started: SIGTERM lets it end cleanly, and if it has not after this time, it is killed.
pub fn end_child(child: &mut Child, what: &str, may_take: Duration) {
    if ends_within(child, Duration::ZERO) {
        return;
    }
    // Its pid is not reused until we wait for it.
    let _ = isotherm_sys::signal::terminate(child.id());
    let later = may_take.saturating_sub(SILENT_FOR);
    if ends_within(child, may_take.min(SILENT_FOR)) {
        return;
    }
    let seconds = may_take.as_secs();
    if !later.is_zero() {
        output::note(format_args!(
            "waiting up to {seconds} s for {what} to end; a second signal in all ends only this wait"
        ));
        if ends_within(child, later) {
            return;
        }
    }
    output::note(format_args!("{what} did not end within {seconds} s of SIGTERM and is killed"));
    let _ = child.kill();
    let _ = child.wait();
}

fn ends_within(child: &mut Child, time: Duration) -> bool {
    let began = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if began.elapsed() >= time {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    #[test]
    fn a_sleep_ends_with_the_flag() {
        let stop = Stop(Arc::default());
        let began = Instant::now();
        stop.sleep(Duration::from_millis(1));
        assert!(began.elapsed() >= Duration::from_millis(1));
        stop.set();
        stop.sleep(Duration::from_secs(600));
    }

    #[test]
    fn a_pipe_has_ended_once_its_reader_is_gone_and_a_file_never() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!has_ended(writer.as_fd()));
        drop(reader);
        assert!(has_ended(writer.as_fd()) && wait_for_end_of(writer.as_fd()));
        assert!(!has_ended(tempfile::tempfile().unwrap().as_fd()));
        assert!(!has_ended(fs::File::open("/dev/null").unwrap().as_fd()));
    }
}
