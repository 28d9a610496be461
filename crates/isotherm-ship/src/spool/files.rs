//! Files that are there as a whole or not at all, after a crash of the process and after a loss of power.
//!
//! Contents reach the disk before the name does (`fsync` of the file, then `rename`), and the name before anybody relies on it (`fsync` of
//! the folder).

use crate::fault;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Only the owner reads what waits.
pub const FILE_MODE: u32 = 0o600;
/// Likewise.
pub const FOLDER_MODE: u32 = 0o700;

/// Creates a folder if there is none, and those above it.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)
}

/// Makes the names in a folder last.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// A new file that is open for writing. One that is there is emptied.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)
}

/// Writes a new file. Its name may not last yet.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Replaces a file: a reader finds the old one or the new one.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    write(&beside, bytes)?;
    fault::point("file.written");
    fs::rename(&beside, path)?;
    fault::point("file.renamed");
    path.parent().map_or(Ok(()), sync_folder)
}

/// Removes a file or does nothing if there is none.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
