//! Reads the file of assignments ([`isotherm_schemes::assigned`]) when it changes.
//!
//! Another program writes it, without privileges, in a folder of its own. So nothing is followed, waited for or quoted: a link, a pipe, a device and
//! a file without end are refused, and errors have numbers of lines and not their text. A file that cannot be used changes nothing. One that
//! is not there assigns nothing: it was removed, or the other program has not written it yet.

use crate::privileges::as_user;
use isotherm_schemes::assigned::{Assignments, MAX_FILE};
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What changes when a file is replaced or written to.
type Stamp = (u64, u64, u64, i64, i64);

/// The file as it was seen last.
#[derive(Debug, Default)]
pub struct AssignmentsFile {
    /// `None` before the first time; `Some(None)` if it was not there.
    seen: Option<Option<Stamp>>,
    assignments: Assignments,
    note: Option<String>,
}

impl AssignmentsFile {
    /// What is assigned.
    pub fn assignments(&self) -> &Assignments {
        &self.assignments
    }

    /// What there is to report since the last time.
    pub fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Reads the file if it has changed. Returns whether other cgroups are assigned now.
    pub fn refresh(&mut self, path: &Path) -> bool {
        let stamp = fs::symlink_metadata(path).ok().map(|found| stamp_of(&found));
        if self.seen == Some(stamp) {
            return false;
        }
        self.seen = Some(stamp);
        let read = match stamp {
            None => Ok(Assignments::default()),
            Some(_) => read(path),
        };
        match read {
            Ok(new) if stamp.is_none() || new != self.assignments => {
                let there = if stamp.is_none() { " (it is not there)" } else { "" };
                self.note = Some(format!("{}: {} cgroups are assigned to schemes{there}", path.display(), new.len()));
                let changed = new != self.assignments;
                self.assignments = new;
                changed
            }
            Ok(_) => false,
            Err(why) => {
                self.note = Some(format!("{}: {why}; what is assigned is unchanged", path.display()));
                false
            }
        }
    }
}

fn stamp_of(found: &Metadata) -> Stamp {
    (found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec())
}

fn read(path: &Path) -> Result<Assignments, String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = as_user(|| Ok(open(path, flags, Mode::empty()).map_err(io::Error::from)?));
    let file = File::from(opened.map_err(|error| error.to_string())?);
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("is no regular file".to_owned());
    }
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!("is longer than {MAX_FILE} bytes"));
    }
    Assignments::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    const ONE: &str = "isotherm-assignments 1\ncold pod0f1c2d3e-4a5b-6c7d-8e9f-a0b1c2d3e4f5\n";

    /// As `isotherm-kube` writes it.
    fn put(path: &Path, text: &str) {
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }

    #[test]
    fn it_is_read_when_it_comes_changes_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("assignments");
        let mut file = AssignmentsFile::default();
        assert!(!file.refresh(&path) && file.take_note().unwrap().contains("not there"));
        assert!(!file.refresh(&path) && file.take_note().is_none(), "reported once");
        put(&path, ONE);
        assert!(file.refresh(&path) && file.assignments().of("cold").count() == 1);
        assert!(file.take_note().unwrap().contains("1 cgroups"));
        put(&path, ONE);
        assert!(!file.refresh(&path) && file.take_note().is_none(), "another file, and the same in it");
        put(&path, &format!("{ONE}hot pod0f1c2d3e-4a5b-6c7d-8e9f-a0b1c2d3e4f5\n"));
        assert!(file.refresh(&path) && file.assignments().len() == 2);
        fs::remove_file(&path).unwrap();
        assert!(file.refresh(&path) && file.assignments().is_empty());
    }

    #[test]
    fn what_cannot_be_used_changes_nothing_and_is_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("assignments");
        let mut file = AssignmentsFile::default();
        put(&path, ONE);
        assert!(file.refresh(&path));
        let secret = dir.path().join("secret");
        fs::write(&secret, "the secret").unwrap();
        let refused = |file: &mut AssignmentsFile, why: &str| {
            file.take_note();
            assert!(!file.refresh(&path), "{why}");
            let note = file.take_note().unwrap();
            assert!(note.contains("unchanged") && note.contains(why) && !note.contains("the secret"), "{note}");
            assert_eq!(file.assignments().len(), 1, "{why}");
            fs::remove_file(&path).unwrap();
        };
        put(&path, "the secret");
        refused(&mut file, "line 1");
        symlink(&secret, &path).unwrap();
        refused(&mut file, "symbolic links");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        refused(&mut file, "no regular file");
        put(&path, &"x".repeat(usize::try_from(MAX_FILE).unwrap() + 1));
        refused(&mut file, "longer than");
    }
}
