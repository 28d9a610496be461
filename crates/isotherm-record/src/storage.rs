//! The few things the writer does to a directory, behind a trait so that tests can stop it between any two of them.
//!
//! Used by `writer` and `compact`; [`Disk`] is the real one. Reading goes to the file system directly: it changes nothing, so
//! there is nothing to stop it at.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

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
        // Not truncated but made anew, so that a link left under this name is not followed.
        self.remove(path)?;
        Ok(Box::new(File::create_new(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}
