//! The limit on file descriptors: raised, with a reserve, and restored for programs that we start.
//!
//! A monitor of thousands of processes needs a few descriptors for each. The soft limit that a shell or a unit grants,
//! usually 1,024, is a default for programs that use `select`. The hard limit is what the administrator allows. So the
//! soft limit is raised to the hard one at the start. A program that we start for the user gets the limit that we were
//! given.

use crate::rlimit;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

/// Descriptors that targets may not use: for recordings, sockets, and files that are open for a moment. Of a low limit,
/// a quarter.
const RESERVE: u64 = 64;
const RESERVE_SHARE: u64 = 4;

/// The soft limit that this process was started with, once it was raised.
static GIVEN: OnceLock<libc::rlimit> = OnceLock::new();

/// The soft limit on descriptors of this process; `u64::MAX` if there is none.
pub fn limit() -> u64 {
    rlimit::read(libc::RLIMIT_NOFILE).map_or(u64::MAX, |l| l.rlim_cur)
}

/// Raises the soft limit to the hard one, if it is below. Returns whether there was anything to raise.
pub fn raise_limit() -> bool {
    let Some(given) = rlimit::read(libc::RLIMIT_NOFILE).filter(|l| l.rlim_cur < l.rlim_max) else { return false };
    let raised = libc::rlimit { rlim_cur: given.rlim_max, rlim_max: given.rlim_max };
    let done = set(&raised).is_ok();
    if done {
        let _ = GIVEN.set(given);
    }
    done
}

/// Makes `command` start with the limit that we were started with.
pub fn restore_limit(command: &mut Command) -> &mut Command {
    let Some(given) = GIVEN.get().copied() else { return command };
    // SAFETY: between fork and exec only setrlimit is called, which is async-signal-safe and allocates nothing.
    unsafe { command.pre_exec(move || set(&given)) }
}

/// Whether `opened`, the newest descriptor, leaves the reserve free. The kernel hands out the lowest free number.
pub fn leaves_reserve(opened: &impl AsFd) -> bool {
    let limit = limit();
    u64::try_from(opened.as_fd().as_raw_fd()).unwrap_or(0) < limit - RESERVE.min(limit / RESERVE_SHARE)
}

/// Whether this error means that the process or the system has no descriptor left.
pub fn are_short(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// A copy of a descriptor that the program which started this process has opened for it. The original stays open until the process ends.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: fcntl takes three integers here. It fails for a number that is not open, and changes nothing of one that is.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this call, and nothing else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

fn set(limits: &libc::rlimit) -> io::Result<()> {
    // SAFETY: reads the two numbers of `limits`, which outlives the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limits) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_is_distinguished_from_other_errors() {
        let is_short = |errno| are_short(&io::Error::from_raw_os_error(errno));
        assert!(is_short(libc::EMFILE) && is_short(libc::ENFILE) && !is_short(libc::ENOENT));
    }

    #[test]
    fn an_inherited_descriptor_is_copied_and_a_closed_one_refused() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let copy = inherited(writer.as_raw_fd()).unwrap();
        io::Write::write_all(&mut writer, b"one ").unwrap();
        io::Write::write_all(&mut std::fs::File::from(copy), b"two").unwrap();
        drop(writer);
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "one two");
        assert_eq!(inherited(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn a_command_starts_with_the_limit_that_we_had() {
        let before = limit();
        raise_limit();
        let mut command = Command::new("sh");
        let output = restore_limit(command.args(["-c", "ulimit -n"])).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let printed = printed.trim();
        let expected = GIVEN.get().map_or(before, |given| given.rlim_cur);
        assert!(printed == expected.to_string() || printed == "unlimited", "{printed}, not {expected}");
        assert!(leaves_reserve(&io::stderr()));
    }
}
