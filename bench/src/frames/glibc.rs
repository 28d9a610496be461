//! The C library's `aligned_alloc`: the default allocator.

use super::{FRAME_SIZE, Frames, Peer};
use std::ffi::CStr;

/// The row.
pub struct Glibc;

impl Peer for Glibc {
    const NAME: &'static str = "glibc";
    type Handle<'a> = Glibc;

    fn new() -> Glibc {
        Glibc
    }

    fn handle(&self) -> Glibc {
        Glibc
    }
}

impl Frames for Glibc {
    #[inline]
    fn get(&mut self, order: u32) -> usize {
        let size = FRAME_SIZE << order;
        // SAFETY: the alignment is a power of two, and the size a multiple of it.
        let block = unsafe { libc::aligned_alloc(size, size) };
        assert!(!block.is_null(), "glibc has no block of order {order}");
        block.expose_provenance()
    }

    #[inline]
    unsafe fn put(&mut self, block: usize, _: u32) {
        // SAFETY: from aligned_alloc and not freed since; the caller guarantees this.
        unsafe { libc::free(std::ptr::with_exposed_provenance_mut(block)) };
    }
}

/// Its version.
pub fn version() -> String {
    // SAFETY: takes nothing.
    let text = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: it returns a string that lives as long as the process.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
