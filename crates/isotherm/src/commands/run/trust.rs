//! Decides whether a settings file may name a command that root runs, and sockets that it opens.
//!
//! Used by `config`. A user who can change such a file can become root. So it must belong to root or to the real user, and nobody else may
//! be able to write to it or to replace it. Without root's rights any file is accepted, because the command has no more rights than the
//! user. `sudo` is no exception: its rules may allow one command line and not any command.

use anyhow::{Context, Result, bail};
use isotherm_sys::proc::Proc;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const ROOT: u32 = 0;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const WRITABLE_BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Checks whether root may run what `file` names, which was opened as `path`.
pub fn check(file: &File, path: &Path) -> Result<()> {
    check_owner(file, path)?;
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    match open_parent(file, path) {
        Some(dir) => bail!("anyone can exchange files in {}; `chmod o-w` it, or move the file", dir.display()),
        None => Ok(()),
    }
}

/// Checks only who can change it, not who can exchange it: enough for what shows something and runs nothing. The folder of a volume of Kubernetes may
/// be written to by everyone.
pub fn check_owner(file: &File, path: &Path) -> Result<()> {
    let [real, effective, ..] = Proc::default().status(std::process::id()).context("read our own user id")?.uids;
    if effective != ROOT {
        return Ok(());
    }
    let found = file.metadata().context("read its owner and mode")?;
    let (owner, mode) = (found.uid(), found.mode());
    if owner != ROOT && owner != real {
        bail!("it belongs to user {owner}; `chown root {}`", path.display());
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        let mode = mode & 0o7777;
        bail!("others can write to it (mode {mode:04o}); `chmod go-w {}`", path.display());
    }
    Ok(())
}

/// Returns a directory above the file in which any user can replace entries. Checks the path that was given, and the path that it
/// resolves to.
fn open_parent(file: &File, path: &Path) -> Option<PathBuf> {
    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok();
    let paths = [std::path::absolute(path).ok(), real];
    let is_open =
        |dir: &&Path| fs::metadata(dir).is_ok_and(|m| m.mode() & WRITABLE_BY_ALL != 0 && m.mode() & STICKY == 0);
    paths.iter().flatten().find_map(|path| path.ancestors().skip(1).find(is_open)).map(Path::to_owned)
}
