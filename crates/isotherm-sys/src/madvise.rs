//! Acting on another process by its pidfd: clearing accessed bits with `process_madvise(MADV_COLD)`.
//!
//! A pidfd names one process for good, so nothing here can hit a program that inherited the pid.

use isotherm_units::AddrRange;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The most ranges the kernel takes in one call (UIO_MAXIOV).
pub const MAX_RANGES: usize = 1024;

/// A process that cannot be mistaken for another.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: u32,
}

impl PidFd {
    /// Opens process `pid`. Fails with `ESRCH` if there is none.
    pub fn open(pid: u32) -> io::Result<PidFd> {
        let pid_t = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid_t, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: `fd` was returned by the kernel just now and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(PidFd { fd, pid })
    }

    /// The pid it was opened with.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has ended (also as a zombie that nobody has waited for).
    pub fn has_exited(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd, no waiting.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }

    /// Clears the accessed bits of `ranges` with `MADV_COLD`, at most [`MAX_RANGES`] of them.
    ///
    /// Takes the mmap read lock, flushes the TLB, and deactivates pages. Ranges have to be 2 MiB-aligned, or large folios are
    /// split. Pages that several processes map are skipped in silence by the kernel. Returns the bytes advised: less than
    /// asked if a later range was refused (locked, hugetlb, unmapped), an error if the first was.
    pub fn advise_cold(&self, ranges: &[AddrRange]) -> io::Result<u64> {
        let vectors: Vec<libc::iovec> = ranges
            .iter()
            .take(MAX_RANGES)
            .map(|r| libc::iovec {
                iov_base: std::ptr::without_provenance_mut(usize::try_from(r.start.0).unwrap_or(usize::MAX)),
                iov_len: usize::try_from(r.len().0).unwrap_or(usize::MAX),
            })
            .collect();
        // SAFETY: the vectors outlive the call; the addresses in them are the other process's and only the kernel uses them.
        let advised = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                self.fd.as_raw_fd(),
                vectors.as_ptr(),
                vectors.len(),
                libc::MADV_COLD,
                0,
            )
        };
        u64::try_from(advised).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::Addr;

    #[test]
    fn a_pid_that_is_not_there_is_esrch() {
        for pid in [u32::MAX, 4_194_304] {
            assert_eq!(PidFd::open(pid).unwrap_err().raw_os_error(), Some(libc::ESRCH), "pid {pid}");
        }
    }

    #[test]
    fn a_zombie_counts_as_exited_and_a_live_child_does_not() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let fd = PidFd::open(child.id()).unwrap();
        assert!(!fd.has_exited());
        child.kill().unwrap();
        for _ in 0..200 {
            if fd.has_exited() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(fd.has_exited(), "killed, not yet waited for");
        child.wait().unwrap();
    }

    #[test]
    fn unmapped_ranges_are_refused() {
        let me = PidFd::open(std::process::id()).unwrap();
        let nowhere = AddrRange::new(Addr(0x20_0000), Addr(0x40_0000));
        assert!(me.advise_cold(&[nowhere]).is_err());
    }
}
