//! How well frames are placed for a direct-mapped memory-side cache.

#![forbid(unsafe_code)]

pub mod direct_mapped;
