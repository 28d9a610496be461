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

/// Bytes of `n` values of type `T`.
pub(crate) fn bytes_of<T>(n: usize) -> u64 {
    (size_of::<T>() as u64).saturating_mul(n as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_file_of_100_kib_may_take_less_than_64_mib() {
        assert!(Allowance::new(Path::new("f"), 100 << 10, None).left() < 50 << 20);
    }
}
