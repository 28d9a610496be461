//! How much memory the contents of a file may take. Recordings come from anyone, and run-length encoding, dictionaries
//! and zlib let a few KiB stand for any amount.
//!
//! Used by `reader` and [`crate::damo`]. Each charges what it is about to build, so that nothing large was built when
//! the charge fails.
//!
//! The limit grows with the file, because honest contents do. An honest recording takes 5 to 20 times the size of its
//! files, as long as it has few mappings. Mappings are stored in the files once, but in memory with each snapshot. So a
//! process with 2,000 mappings that hardly changes for hours takes 200 times. Hence the factor. The minimum exists
//! because a small file has few bytes to multiply: 100 KiB may take 49 MiB, which stays below 64 MiB together with what
//! reports add.

use crate::{Error, Result};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Any file may take this much.
const MIN_LIMIT: u64 = 24 << 20;
/// Bytes of memory for each byte of file.
const FACTOR: u64 = 256;

/// Memory that may be taken, and what is left of it.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    path: PathBuf,
    limit: u64,
    left: u64,
}

impl Allowance {
    /// For a file of `size` bytes, unless the user set a limit.
    pub(crate) fn new(path: &Path, size: u64, asked: Option<u64>) -> Allowance {
        let limit = asked.unwrap_or_else(|| size.saturating_mul(FACTOR).saturating_add(MIN_LIMIT));
        Allowance { path: path.to_owned(), limit, left: limit }
    }

    /// Takes `bytes`. Call this before they are built.
    pub(crate) fn charge(&mut self, bytes: u64) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.exceeded()),
        }
    }

    /// Resets the allowance: nothing of what was charged is in memory any more.
    pub(crate) fn release(&mut self) {
        self.left = self.limit;
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(crate) fn exceeded(&self) -> Error {
        Error::TooMuchMemory { path: self.path.clone(), limit: isotherm_units::Bytes(self.limit) }
    }
}

/// Bytes of a file that count: without holes, which take nothing and would raise the limit by 256 times as much. Leaves the file at its begin.
pub(crate) fn size_of_data(file: &File) -> u64 {
    // A file in more pieces was made to be so.
    const MAX_PIECES: usize = 1 << 16;
    let (mut at, mut bytes) = (0, 0_u64);
    for _ in 0..MAX_PIECES {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // A file system that does not know.
            Err(_) => {
                bytes = file.metadata().map_or(0, |there| there.len());
                break;
            }
        };
        at = seek(file, SeekFrom::Hole(start)).unwrap_or(start);
        bytes = bytes.saturating_add(at.saturating_sub(start));
    }
    let _ = seek(file, SeekFrom::Start(0));
    bytes
}

/// Bytes of `n` values of type `T`.
pub(crate) fn bytes_of<T>(n: usize) -> u64 {
    (size_of::<T>() as u64).saturating_mul(n as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_charged_is_gone_until_it_is_released() {
        let mut allowance = Allowance::new(Path::new("f"), 0, Some(100));
        allowance.charge(60).unwrap();
        let error = allowance.charge(41).unwrap_err().to_string();
        assert!(error.contains("100 B") && error.contains("ISOTHERM_MAX_MEMORY"), "{error}");
        allowance.charge(40).unwrap();
        allowance.release();
        allowance.charge(100).unwrap();
    }

    #[test]
    fn a_length_without_contents_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 100_000]).unwrap();
        let mut file = File::options().read(true).write(true).open(&path).unwrap();
        assert_eq!(size_of_data(&file), 100_000);
        file.set_len(1 << 40).unwrap();
        let size = size_of_data(&file);
        assert!((100_000..1 << 20).contains(&size), "{size}");
        let mut begin = [0; 10];
        file.read_exact(&mut begin).unwrap();
        assert_eq!(begin, [1; 10]);
    }

    #[test]
    fn a_file_of_100_kib_may_take_less_than_64_mib() {
        assert!(Allowance::new(Path::new("f"), 100 << 10, None).left() < 50 << 20);
    }
}
