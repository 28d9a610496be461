//! The size of a cache, and the place of a frame in it.

use isotherm_units::{Bytes, FrameNo, PAGE_SIZE};

/// Why a cache of that size is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Smaller than a frame.
    #[error("a cache of {} bytes: give it at least one page, 4096 bytes", .0.0)]
    TooSmall(Bytes),
    /// Not a whole number of pages.
    #[error("a cache of {} bytes is not a whole number of pages of 4 KiB", .0.0)]
    NotPages(Bytes),
}

/// A direct-mapped cache in front of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectMapped {
    frames: u64,
}

impl DirectMapped {
    /// A cache of that size: whole pages, not only powers of two (a machine's caches add up to any number).
    pub const fn new(cache: Bytes) -> Result<DirectMapped, CacheError> {
        match cache.0 {
            0..PAGE_SIZE => Err(CacheError::TooSmall(cache)),
            bytes if bytes % PAGE_SIZE != 0 => Err(CacheError::NotPages(cache)),
            _ => Ok(DirectMapped { frames: cache.pages() }),
        }
    }

    /// The number of frames that it holds, which is also the number of colours.
    pub const fn frames(self) -> u64 {
        self.frames
    }

    /// Its size in bytes.
    pub const fn size(self) -> Bytes {
        Bytes::of_pages(self.frames)
    }

    /// The colour of a frame, from 0: the only place in the cache that can hold it.
    pub const fn colour_of(self, frame: FrameNo) -> u64 {
        frame.0 % self.frames
    }
}
