//! A lock that the kernel releases when its holder ends for any reason.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Held until dropped. The file is never removed: otherwise two processes could lock two different files of that name.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// Takes the lock on `damon.lock` in `dir`, which is created if missing; `None` if another process holds it.
    pub(super) fn take(dir: &Path) -> io::Result<Option<Lock>> {
        if !dir.is_dir() {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join("damon.lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a child that another thread forks has a copy of the descriptor until it executes its program.
    fn drop(&mut self) {
        let _ = self.0.unlock();
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

    #[test]
    fn it_is_released_though_a_forked_child_has_a_copy_of_the_descriptor() {
        let dir = tempfile::TempDir::new().unwrap();
        let lock = Lock::take(dir.path()).unwrap().unwrap();
        let copy = lock.0.try_clone().unwrap();
        drop(lock);
        assert!(Lock::take(dir.path()).unwrap().is_some());
        drop(copy);
    }
}
