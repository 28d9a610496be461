//! Small files of `/proc` and `/sys`, read so that "cannot tell" stays apart from "is not there".

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file system of the kernel at some root. If nothing is mounted there, nothing is known about it.
#[derive(Debug)]
pub struct Tree<'a> {
    root: &'a Path,
    mounted: bool,
}

impl<'a> Tree<'a> {
    /// What is mounted at `root`.
    pub fn at(root: &'a Path) -> Tree<'a> {
        let mounted = fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_some());
        Tree { root, mounted }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Whether there is such a file; `None` if we may not look, or nothing is mounted here.
    pub(super) fn exists(&self, name: &str) -> Option<bool> {
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
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let bytes = fs::read(self.path(name)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file that holds one number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    /// A file that holds `Y` or `N`, or 1 or 0.
    pub(super) fn yes(&self, name: &str) -> Option<bool> {
        match self.text(name)?.as_str() {
            "Y" | "y" | "1" => Some(true),
            "N" | "n" | "0" => Some(false),
            _ => None,
        }
    }

    /// A file that lists choices with the chosen one in brackets: `always [madvise] never`.
    pub(super) fn choice(&self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    }

    /// The names in a directory, sorted; `None` if it cannot be read.
    pub(super) fn names(&self, name: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.path(name)).ok()?;
        let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Some(names)
    }

    /// The numbers of the entries called `prefix` and a number, sorted.
    pub(crate) fn numbered(&self, name: &str, prefix: &str) -> Option<Vec<u32>> {
        let names = self.names(name)?;
        let mut found: Vec<u32> = names.iter().filter_map(|n| n.strip_prefix(prefix)?.parse().ok()).collect();
        found.sort_unstable();
        Some(found)
    }
}

/// How many numbers a list such as `0-3,8` holds; `None` if it is no such list.
pub(super) fn list_len(list: &str) -> Option<u32> {
    list_ranges(list).try_fold(0u32, |sum, range| {
        let (first, last) = range?;
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The numbers themselves. More than any kernel has processors is no such list either.
pub fn list_numbers(list: &str) -> Option<Vec<u32>> {
    const MOST: u32 = 1 << 16;
    list_len(list).filter(|len| *len <= MOST)?;
    Some(list_ranges(list).flatten().flat_map(|(first, last)| first..=last).collect())
}

fn list_ranges(list: &str) -> impl Iterator<Item = Option<(u32, u32)>> {
    list.trim().split(',').filter(|part| !part.is_empty()).map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_apart() {
        assert_eq!(list_numbers("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(list_numbers("\n"), Some(vec![]));
        for none in ["3-1", "a", "1-", "0-4294967295", "0,0-65535"] {
            assert_eq!(list_numbers(none), None, "{none}");
        }
        assert_eq!((list_len("0-1,4-7"), list_len("3-1")), (Some(6), None));
    }
}
