//! One monitor per process: locks on target processes, which the kernel releases when the holder ends for any reason.
//!
//! If two monitors clear the accessed bits of the same process, each misses the accesses that the other has cleared. So
//! a monitor locks its targets, and a second monitor gets the holder's pid. A lock is one byte of an empty file, locked
//! with `fcntl`. The byte's offset is made of the process id and the start time, so a lock never applies to a later
//! process with the same id. One descriptor serves all targets. The kernel drops the locks of a process that ends, and
//! reports the holder of a lock. `flock`, or one file per target, would take a descriptor per target.
//!
//! Such locks belong to the process. They are lost when it closes *any* descriptor of the file, so each file is opened
//! once and stays open.

use crate::proc::Identity;
use crate::runtime_dir;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bits of the byte's offset that hold the start time: ticks of 10 ms for 348 years.
const START_BITS: u32 = 40;

/// The process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id; 0 if it is in a pid namespace that is not visible to us.
    pub pid: u32,
    /// Its command line; empty if that cannot be read.
    pub command: String,
}

/// Locks on the processes that this process monitors.
#[derive(Clone, Copy, Debug)]
pub struct TargetLocks {
    file: &'static File,
}

/// Files that were opened, by path.
static OPENED: Mutex<Option<HashMap<PathBuf, &'static File>>> = Mutex::new(None);

impl TargetLocks {
    /// The locks that all monitors of this user share. Their directory is the one that `ISOTHERM_RUNTIME_DIR` names,
    /// else `/run/isotherm` for root, else the user's own runtime directory. `None` if there is none.
    pub fn shared() -> Option<io::Result<TargetLocks>> {
        // SAFETY: takes nothing and always succeeds.
        let uid = unsafe { libc::geteuid() };
        let usual = || runtime_dir::of_user(uid, runtime_dir::named(), || None);
        let dir = runtime_dir::variable("ISOTHERM_RUNTIME_DIR").or_else(|| Some(usual()?.join("isotherm")));
        dir.map(|dir| TargetLocks::in_dir(&dir))
    }

    /// Locks in `targets.lock` in `dir`. The file and the directory are created if they are missing.
    pub fn in_dir(dir: &Path) -> io::Result<TargetLocks> {
        let path = dir.join("targets.lock");
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.get_or_insert_default();
        if let Some(file) = opened.get(&path) {
            return Ok(TargetLocks { file });
        }
        if !dir.is_dir() {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).read(true).write(true).mode(0o600).open(&path)?;
        let file: &'static File = Box::leak(Box::new(file));
        opened.insert(path, file);
        Ok(TargetLocks { file })
    }

    /// Locks a process for us; the inner error is the holder. Locking it again has no effect.
    pub fn claim(&self, target: Identity) -> io::Result<Result<(), Holder>> {
        // The holder may end between the two calls. Then the lock is free, and we try again.
        for _ in 0..3 {
            let mut lock = byte_of(target, libc::F_WRLCK);
            match self.ask(libc::F_SETLK, &mut lock) {
                Ok(()) => return Ok(Ok(())),
                Err(e) if !matches!(e.raw_os_error(), Some(libc::EACCES | libc::EAGAIN)) => return Err(e),
                Err(_) => self.ask(libc::F_GETLK, &mut lock)?,
            }
            if i32::from(lock.l_type) != libc::F_UNLCK {
                return Ok(Err(Holder::of(u32::try_from(lock.l_pid).unwrap_or(0))));
            }
        }
        Ok(Err(Holder::of(0)))
    }

    /// Unlocks a process.
    pub fn release(&self, target: Identity) {
        // Unlocking a byte that is not locked is no error. No error of this call could be acted on.
        let _ = self.ask(libc::F_SETLK, &mut byte_of(target, libc::F_UNLCK));
    }

    fn ask(&self, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
        // SAFETY: the descriptor is never closed; the kernel reads and writes `lock` during the call only.
        match unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut *lock) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Holder {
    fn of(pid: u32) -> Holder {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|b| *b == 0).filter(|w| !w.is_empty()).map(String::from_utf8_lossy).collect();
        Holder { pid, command: words.join(" ").chars().take(200).collect() }
    }
}

/// The byte's offset for a process. Process ids have 22 bits, so no two processes share one, and all are positive.
fn byte_of(target: Identity, kind: libc::c_int) -> libc::flock {
    let place = u64::from(target.pid) << START_BITS | target.start_ticks & ((1 << START_BITS) - 1);
    libc::flock {
        l_type: libc::c_short::try_from(kind).unwrap_or(0),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or(0),
        l_start: i64::try_from(place).unwrap_or(i64::MAX - 1),
        l_len: 1,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn skip(why: &str) {
        use std::io::Write;
        let _ = io::stderr().write_all(format!("skipped: needs {why}\n").as_bytes());
    }

    fn id(pid: u32, start_ticks: u64) -> Identity {
        Identity { pid, start_ticks }
    }

    /// Whether another process finds `target` locked: by python, which has fcntl.
    fn asked_by_another(dir: &Path, target: Identity) -> String {
        let place = byte_of(target, libc::F_WRLCK).l_start;
        let script = "import fcntl, os, sys\nf = open(sys.argv[1], 'r+')\n\
            try:\n fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))\n print('free')\n\
            except OSError: print('held')";
        let file = dir.join("targets.lock");
        let output = Command::new("python3").args(["-c", script]).arg(file).arg(place.to_string()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    #[test]
    fn a_process_is_locked_against_others_by_id_and_start_time_until_it_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("not/there/yet");
        let locks = TargetLocks::in_dir(&dir).unwrap();
        let (mine, later) = (id(4_194_304, 77), id(4_194_304, 78));
        assert_eq!(locks.claim(mine).unwrap(), Ok(()));
        assert_eq!(locks.claim(mine).unwrap(), Ok(()), "ours already");
        // Another handle that goes takes no lock with it.
        let _ = TargetLocks::in_dir(&dir).unwrap();
        if Command::new("python3").arg("-V").output().is_err() {
            return skip("python3");
        }
        assert_eq!((asked_by_another(&dir, mine).as_str(), asked_by_another(&dir, later).as_str()), ("held", "free"));
        locks.release(mine);
        assert_eq!(asked_by_another(&dir, mine), "free");
    }

    #[test]
    fn who_comes_second_learns_who_was_first_and_has_it_once_that_one_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (locks, target) = (TargetLocks::in_dir(dir.path()).unwrap(), id(1, 5));
        let script = "import fcntl, os, sys, time\nf = open(sys.argv[1], 'r+')\n\
            fcntl.lockf(f, fcntl.LOCK_EX, 1, int(sys.argv[2]))\nprint('locked', flush=True)\ntime.sleep(60)";
        let place = byte_of(target, libc::F_WRLCK).l_start.to_string();
        let mut first = Command::new("python3");
        first.args(["-c", script]).arg(dir.path().join("targets.lock")).arg(place).stdout(std::process::Stdio::piped());
        let Ok(mut first) = first.spawn() else { return skip("python3") };
        let mut line = String::new();
        let mut output = std::io::BufReader::new(first.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        assert_eq!(line, "locked\n");
        let holder = locks.claim(target).unwrap().unwrap_err();
        assert_eq!(holder.pid, first.id());
        assert!(holder.command.contains("python3 -c import fcntl"), "{}", holder.command);
        first.kill().unwrap();
        first.wait().unwrap();
        assert_eq!(locks.claim(target).unwrap(), Ok(()));
    }
}
