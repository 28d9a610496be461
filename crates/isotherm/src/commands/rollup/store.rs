//! Puts an object at its path if nothing is there.
//!
//! A reader sees an object whole or not at all: it is written under another name, synced, and linked to its path. A link fails if the path is
//! taken, in one step, so of two writers at once one stores the object and the other finds it there.

use anyhow::{Context, Result};
use isotherm_rollup::Object;
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stored {
    /// It was written.
    Written,
    /// It was there already.
    Present,
    /// Another one of its name is there, and stays.
    Differs,
}

/// Puts an object below a directory.
pub fn put(dir: &Path, object: &Object) -> Result<Stored> {
    let path = dir.join(&object.path);
    let put = || -> io::Result<Stored> {
        if path.try_exists()? {
            return found(&path, object);
        }
        let folder = path.parent().unwrap_or(dir);
        fs::create_dir_all(folder)?;
        // Readers take what ends in `.parquet`.
        let unfinished = path.with_extension(format!("{}.unfinished", std::process::id()));
        let linked = write(&unfinished, &object.bytes).and_then(|()| fs::hard_link(&unfinished, &path));
        let removed = fs::remove_file(&unfinished);
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return found(&path, object),
            linked => linked.and(removed)?,
        }
        File::open(folder)?.sync_all()?;
        Ok(Stored::Written)
    };
    put().with_context(|| format!("store {}", path.display()))
}

/// What is there, compared with what was to be put: an object of the same name can be of a recording that had not ended, or by other rules.
fn found(path: &Path, object: &Object) -> io::Result<Stored> {
    Ok(if fs::read(path)? == object.bytes { Stored::Present } else { Stored::Differs })
}

/// Others may read it: it has no addresses, no command lines and no paths of files.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // What a process of this number has left behind.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_rollup::Table;

    #[test]
    fn what_is_there_stays_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let object = |bytes: &[u8]| Object {
            table: Table::Heat,
            hour_s: 0,
            path: "v1/heat/date=1970-01-01/hour=00/x.parquet".into(),
            rows: 1,
            bytes: bytes.to_vec(),
        };
        assert_eq!(put(dir.path(), &object(b"one")).unwrap(), Stored::Written);
        assert_eq!(put(dir.path(), &object(b"one")).unwrap(), Stored::Present);
        assert_eq!(put(dir.path(), &object(b"two")).unwrap(), Stored::Differs);
        let folder = dir.path().join("v1/heat/date=1970-01-01/hour=00");
        assert_eq!(fs::read(folder.join("x.parquet")).unwrap(), b"one");
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
        fs::write(dir.path().join("file"), "").unwrap();
        let error = put(&dir.path().join("file"), &object(b"")).unwrap_err().to_string();
        assert!(error.starts_with("store ") && error.contains("x.parquet"), "{error}");
    }
}
