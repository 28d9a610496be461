//! Signals to processes that we started.

use std::io;

fn send(pid: u32, signal: libc::c_int) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: kill takes two integers. `pid` is positive, so it names one process and no group.
    if pid > 0 && unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks `pid` to end: SIGTERM.
pub fn terminate(pid: u32) -> io::Result<()> {
    send(pid, libc::SIGTERM)
}

/// Stops `pid` until [`resume`]: SIGSTOP.
pub fn pause(pid: u32) -> io::Result<()> {
    send(pid, libc::SIGSTOP)
}

/// Lets `pid` go on after [`pause`]: SIGCONT.
pub fn resume(pid: u32) -> io::Result<()> {
    send(pid, libc::SIGCONT)
}
