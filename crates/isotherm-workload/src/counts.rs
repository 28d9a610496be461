//! How often a workload has accessed each of its pages, in a file that the workload and its parent map.

use isotherm_heat::Ns;
use isotherm_sys::memory::Memory;
use isotherm_units::PMD_SIZE;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// A count for each page.
#[derive(Debug)]
pub struct PageCounts {
    counts: Memory,
    pages: usize,
    /// Removed on drop by the one that has made it.
    made: Option<PathBuf>,
    before: Vec<u64>,
    at: Ns,
}

impl PageCounts {
    /// Makes the file, with no accesses.
    pub fn create(path: &Path, pages: usize) -> io::Result<PageCounts> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        // A mapping is aligned to a huge range within the file.
        file.set_len((pages as u64 * 8).next_multiple_of(PMD_SIZE) + PMD_SIZE)?;
        PageCounts::map(path, pages, Some(path.to_owned()))
    }

    /// Opens the file that the parent has made.
    pub fn open(path: &Path, pages: usize) -> io::Result<PageCounts> {
        PageCounts::map(path, pages, None)
    }

    fn map(path: &Path, pages: usize, made: Option<PathBuf>) -> io::Result<PageCounts> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let counts = Memory::shared(&file, pages as u64 * 8)?;
        Ok(PageCounts { counts, pages, made, before: vec![0; pages], at: 0 })
    }

    /// Counts an access.
    pub fn add(&self, page: usize) {
        self.counts.words()[page].fetch_add(1, Ordering::Relaxed);
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

impl Drop for PageCounts {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_count_the_same_and_the_file_goes_with_its_maker() {
        let path = std::env::temp_dir().join(format!("isotherm-counts-{}", std::process::id()));
        let mut made = PageCounts::create(&path, 3).unwrap();
        let opened = PageCounts::open(&path, 3).unwrap();
        (0..10).for_each(|_| opened.add(1));
        opened.add(2);
        assert_eq!(made.rates_hz(2_000_000_000), [0.0, 5.0, 0.5]);
        opened.add(2);
        assert_eq!(made.rates_hz(3_000_000_000), [0.0, 0.0, 1.0]);
        assert!(PageCounts::create(&path, 3).is_err(), "it is not taken over");
        drop(opened);
        assert!(path.exists());
        drop(made);
        assert!(!path.exists());
    }
}
