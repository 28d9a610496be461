//! How often a workload has accessed each of its pages, in memory that the workload and its parent map.
//!
//! The memory is a memfd, which the workload inherits. It has no name in any file system, so nothing stays behind if the parent
//! is killed.

use isotherm_heat::Ns;
use isotherm_sys::memory::Memory;
use isotherm_units::PMD_SIZE;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// A count for each page.
#[derive(Debug)]
pub struct PageCounts {
    counts: Memory,
    pages: usize,
    /// Kept open by its maker, so that children inherit it.
    made: Option<File>,
    before: Vec<u64>,
    at: Ns,
}

impl PageCounts {
    /// Makes the memory, with no accesses. Processes that are started from now on inherit it.
    pub fn create(pages: usize) -> io::Result<PageCounts> {
        let file = inherited_memfd()?;
        // As much as is mapped.
        file.set_len((pages as u64 * 8).next_multiple_of(PMD_SIZE))?;
        PageCounts::map(file, pages).map(|(counts, file)| PageCounts { made: Some(file), ..counts })
    }

    /// Opens what this process, or the one that has started it, has made. `path` is from [`PageCounts::path`].
    pub fn open(path: &Path, pages: usize) -> io::Result<PageCounts> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        PageCounts::map(file, pages).map(|(counts, _)| counts)
    }

    /// What its maker and the maker's children open. `None` where it was opened and not made.
    pub fn path(&self) -> Option<PathBuf> {
        self.made.as_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()).into())
    }

    fn map(file: File, pages: usize) -> io::Result<(PageCounts, File)> {
        let counts = Memory::shared(&file, pages as u64 * 8)?;
        Ok((PageCounts { counts, pages, made: None, before: vec![0; pages], at: 0 }, file))
    }

    /// Counts an access.
    pub fn add(&self, page: usize) {
        self.counts.words()[page].fetch_add(1, Ordering::Relaxed);
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Accesses to a page so far.
    pub fn of(&self, page: usize) -> u64 {
        self.counts.words()[page].load(Ordering::Relaxed)
    }

    /// Accesses a second of each page since the last call, or since the start; none if no time has passed.
    pub fn rates_hz(&mut self, now: Ns) -> Vec<f64> {
        let seconds = now.saturating_sub(self.at) as f64 / 1e9;
        self.at = now;
        let mut rates = Vec::with_capacity(self.pages);
        for page in 0..self.pages {
            let count = self.of(page);
            let before = std::mem::replace(&mut self.before[page], count);
            rates.push(if seconds > 0.0 { (count - before) as f64 / seconds } else { 0.0 });
        }
        rates
    }
}

/// Not closed when another program is executed.
fn inherited_memfd() -> io::Result<File> {
    let made = match memfd_create(c"isotherm-counts", MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know this flag. Later ones may be set to refuse a memfd without it.
        Err(Errno::INVAL) => memfd_create(c"isotherm-counts", MemfdFlags::empty()),
        made => made,
    };
    Ok(made?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn both_sides_count_the_same() {
        let mut made = PageCounts::create(3).unwrap();
        let opened = PageCounts::open(&made.path().unwrap(), 3).unwrap();
        assert_eq!(opened.path(), None);
        (0..10).for_each(|_| opened.add(1));
        opened.add(2);
        assert_eq!(made.rates_hz(2_000_000_000), [0.0, 5.0, 0.5]);
        opened.add(2);
        assert_eq!(made.rates_hz(3_000_000_000), [0.0, 0.0, 1.0]);
    }

    #[test]
    fn children_inherit_it() {
        let made = PageCounts::create(2).unwrap();
        made.add(1);
        // A count is 8 bytes.
        let read = Command::new("od").args(["-An", "-td8", "-N16"]).arg(made.path().unwrap()).output().unwrap();
        let words = String::from_utf8(read.stdout).unwrap();
        let words: Vec<&str> = words.split_whitespace().collect();
        assert!(read.status.success() && words == ["0", "1"], "{words:?}");
    }
}
