//! Small files of `/proc` and `/sys`. The results keep "unknown" and "absent" apart.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A kernel file system at some root. If nothing is mounted there, everything about it is unknown.
#[derive(Debug)]
pub struct Tree<'a> {
    root: &'a Path,
    mounted: bool,
}

impl<'a> Tree<'a> {
    /// The file system at `root`.
    pub fn at(root: &'a Path) -> Tree<'a> {
        let mounted = fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_some());
        Tree { root, mounted }
    }

    /// Where a file of it is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Whether there is such a file; `None` if we may not check, or if nothing is mounted here.
    pub fn exists(&self, name: &str) -> Option<bool> {
        if !self.mounted {
            return None;
        }
        match fs::metadata(self.path(name)) {
            Ok(_) => Some(true),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Some(false),
            Err(_) => None,
        }
    }

    /// The text of a file, without space around it.
    pub fn text(&self, name: &str) -> Option<String> {
        let bytes = fs::read(self.path(name)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file that holds one number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    /// A file that holds `Y` or `N`, or 1 or 0.
    pub fn yes(&self, name: &str) -> Option<bool> {
        match self.text(name)?.as_str() {
            "Y" | "y" | "1" => Some(true),
            "N" | "n" | "0" => Some(false),
            _ => None,
        }
    }

    /// A file that lists choices with the chosen one in brackets: `always [madvise] never`.
    pub fn choice(&self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    }

    /// The names in a directory, sorted; `None` if it cannot be read.
    pub fn names(&self, name: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.path(name)).ok()?;
        let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Some(names)
    }

    /// The numbers of the entries whose names are `prefix` and a number, sorted.
    pub fn numbered(&self, name: &str, prefix: &str) -> Option<Vec<u32>> {
        let names = self.names(name)?;
        let mut found: Vec<u32> = names.iter().filter_map(|n| n.strip_prefix(prefix)?.parse().ok()).collect();
        found.sort_unstable();
        Some(found)
    }
}
