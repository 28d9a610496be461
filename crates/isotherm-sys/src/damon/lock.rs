//! A lock that the kernel releases when its holder ends for any reason.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Held until dropped. The file is never removed: otherwise two processes could lock two different files of that name.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "open for as long as the lock is held")] File);

impl Lock {
    /// Takes the lock on `damon.lock` in `dir`, which is created if missing; `None` if another process holds it.
    pub(super) fn take(dir: &Path) -> io::Result<Option<Lock>> {
        if !dir.is_dir() {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join("damon.lock"))?;
        // SAFETY: the descriptor is open; flock takes two integers. It is closed on exec, so children do not keep the lock.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(Some(Lock(file)));
        }
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_at_a_time() {
        let dir = tempfile::TempDir::new().unwrap();
        let dir = dir.path().join("not/there/yet");
        let lock = Lock::take(&dir).unwrap().unwrap();
        assert!(Lock::take(&dir).unwrap().is_none());
        drop(lock);
        assert!(Lock::take(&dir).unwrap().is_some());
    }
}
