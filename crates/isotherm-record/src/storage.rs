//! The few things the writer does to a directory, behind a trait so that tests can stop it between any two of them.
//!
//! Used by `writer` and `compact`; [`Disk`] is the real one. Reading goes to the file system directly: it changes nothing, so
//! there is nothing to stop it at. What is created is for its owner only.

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Recordings name addresses, mappings and files of processes. The kernel shows these to the owner of a process only
/// (`/proc/PID/maps` asks for ptrace rights), so a recording is for its owner only.
const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// Makes a directory that only its owner may enter.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(PRIVATE_DIR).create(path)
}

/// Makes a file anew that only its owner may read. The mode is given when it is created: a `chmod` afterwards would leave a
/// moment in which others can open it.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    // Not truncated but made anew: a link under this name is not followed, and the mode of an old file does not stay.
    remove(path)?;
    OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path)
}

/// Takes the rights of group and others from the directory `path`, if it is ours.
pub(crate) fn tighten_dir(path: &Path) -> io::Result<()> {
    // By the descriptor: whatever the name stands for a moment later is not touched.
    let dir = File::open(path)?;
    let there = dir.metadata()?;
    let ours = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == there.uid());
    if !(ours && there.is_dir() && there.mode() & 0o077 != 0) {
        return Ok(());
    }
    match dir.set_permissions(fs::Permissions::from_mode(there.mode() & PRIVATE_DIR)) {
        // A file system without modes, or a process that is not what /proc shows: the files are private all the same.
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

/// What the writer needs of a file system.
pub(crate) trait Storage: Debug + Send {
    /// A new empty file; what was there under that name before is gone.
    fn create(&self, path: &Path) -> io::Result<Box<dyn StorageFile>>;
    /// Gives a file another name in the same directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. It is no error if there is none.
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
