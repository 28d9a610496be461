//! The few things the writer does to a directory, behind a trait so that tests can stop it between any two of them.
//!
//! Used by `writer` and `compact`. [`Disk`] is the real one. Reads go to the file system directly: they change nothing,
//! so a test has no reason to stop them. Only their owner can access the files and directories created here.

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Recordings contain addresses, mappings and file names of processes. The kernel shows these only to the owner of a
/// process (`/proc/PID/maps` needs ptrace rights). So only its owner may read a recording.
const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// Creates a directory that only its owner may enter.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(PRIVATE_DIR).create(path)
}

/// Creates a file that only its owner may read. The mode is given at creation: a `chmod` afterwards would leave a
/// moment in which others can open the file.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    // Not truncated but created again. So a link under this name is not followed, and the mode of an old file is
    // dropped.
    remove(path)?;
    OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path)
}

/// Removes the rights of group and others from the directory `path`, if it is ours.
pub(crate) fn tighten_dir(path: &Path) -> io::Result<()> {
    // Uses the descriptor, so that nothing else is changed if the name points elsewhere a moment later.
    let dir = File::open(path)?;
    let there = dir.metadata()?;
    let ours = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == there.uid());
    if !(ours && there.is_dir() && there.mode() & 0o077 != 0) {
        return Ok(());
    }
    match dir.set_permissions(fs::Permissions::from_mode(there.mode() & PRIVATE_DIR)) {
        // A file system without modes, or a process whose uid differs from what /proc shows. The files are private
        // anyway.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A file that is being written.
pub(crate) trait StorageFile: Write + Send {
    /// Waits until what was written is on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file-system operations that the writer needs.
pub(crate) trait Storage: Debug + Send {
    /// Creates an empty file. A file that had that name before is gone.
    fn create(&self, path: &Path) -> io::Result<Box<dyn StorageFile>>;
    /// Gives a file another name in the same directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. No error if there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Waits until the names in a directory are on the disk.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// The file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk;

impl StorageFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Storage for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(create_private(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}
