//! A mount namespace in which everything is read-only, except for what is written to.
//!
//! Mounts belong to a thread and to those that it starts later. Files that are open for writing stay so: they were opened through the
//! mounts of before. Later mounts of the machine still show up here, because changes are received and not sent; such mounts are not
//! read-only.

use isotherm_sys::mounts;
use std::io;
use std::path::{Path, PathBuf};

/// What is written to, besides files that are open for writing already. Devices, sockets and pipes can always be written to.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    /// Folders, with what is below them on the same mount.
    pub folders: Vec<PathBuf>,
    /// Files of other processes under `/proc`, such as `clear_refs`. Not the settings of the kernel in `/proc/sys`.
    pub processes: bool,
    /// Files and folders of the kernel that are written, such as one of `/sys`. Those that do not exist are skipped.
    pub kernel: Vec<PathBuf>,
}

/// Parts of `/proc` that are not about processes and can be written.
const OF_THE_KERNEL: [&str; 3] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq"];

/// Enters the namespace. Needs CAP_SYS_ADMIN, and Linux 5.12 for `mount_setattr`.
pub fn write_only_to(writes: &Writes) -> io::Result<()> {
    mounts::unshare()?;
    mounts::receive_only(Path::new("/"))?;
    let proc = Path::new("/proc");
    let mut writable: Vec<&Path> = writes.folders.iter().map(PathBuf::as_path).collect();
    writable.extend(writes.kernel.iter().map(PathBuf::as_path).filter(|path| path.exists()));
    let mut sealed: Vec<&Path> = Vec::new();
    if writes.processes {
        writable.push(proc);
        sealed.extend(OF_THE_KERNEL.map(Path::new).into_iter().filter(|path| path.exists()));
    }
    for path in writable.iter().chain(&sealed).filter(|path| path.parent().is_some()) {
        mounts::bind_onto_itself(path)?;
    }
    mounts::set_read_only(Path::new("/"), true, true)?;
    for path in writable {
        mounts::set_read_only(path, false, false)?;
    }
    // The working directory is still one of the mounts below.
    let here = std::env::current_dir()?;
    std::env::set_current_dir(here)
}
