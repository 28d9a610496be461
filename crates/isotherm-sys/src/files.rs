//! Small files of `/proc` and `/sys`. The results keep "unknown" and "absent" apart.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// A kernel file system at some root. If nothing is mounted there, everything about it is unknown.
#[derive(Debug)]
pub struct Tree<'a> {
    root: &'a Path,
    /// Found out when it is asked for: `/proc` looks up a thousand processes before it names the first entry.
    mounted: OnceCell<bool>,
}

impl<'a> Tree<'a> {
    /// The file system at `root`.
    pub fn at(root: &'a Path) -> Tree<'a> {
        Tree { root, mounted: OnceCell::new() }
    }

    fn is_mounted(&self) -> bool {
        *self.mounted.get_or_init(|| fs::read_dir(self.root).is_ok_and(|mut entries| entries.next().is_some()))
    }

    /// Where a file of it is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Whether there is such a file; `None` if we may not check, or if nothing is mounted here.
    pub fn exists(&self, name: &str) -> Option<bool> {
        if !self.is_mounted() {
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

    /// What `find` makes of the first line for which it finds anything. Nothing is read behind that: the kernel makes the text as it
    /// is read, and `cpuinfo` of a large machine takes it milliseconds.
    pub fn find_line<T>(&self, name: &str, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        let lines = BufReader::new(File::open(self.path(name)).ok()?).split(b'\n');
        lines.map_while(io::Result::ok).find_map(|line| find(&String::from_utf8_lossy(&line)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_for_which_anything_is_found() {
        let root = tempfile::TempDir::new().unwrap();
        fs::write(root.path().join("cpuinfo"), b"processor : 0\nmodel : \xff A\nmodel : B").unwrap();
        let tree = Tree::at(root.path());
        let value = |key: &str| {
            tree.find_line("cpuinfo", |line| {
                line.split_once(" : ").filter(|(k, _)| *k == key).map(|(_, v)| v.to_owned())
            })
        };
        assert_eq!(value("model").as_deref(), Some("\u{fffd} A"));
        assert_eq!(value("flags"), None);
        assert_eq!(tree.find_line("none", |_| Some(())), None);
    }
}
