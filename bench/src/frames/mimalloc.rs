//! mimalloc, by `mi_malloc_aligned` and `mi_free`. (`mi_malloc` of a frame takes about a seventh less for a pair.)
//!
//! Blocks aligned to 2 MiB are taken from the kernel and returned to it each time: above about 64 KiB, its pages cannot
//! be aligned as requested. Unaligned blocks of that size are kept, and a pair of them takes 0.2 us.
//!
//! It is configured to keep freed memory, for the same reason as jemalloc.

use super::{FRAME_SIZE, Frames, Peer};
use libmimalloc_sys::{mi_free, mi_malloc_aligned, mi_option_set, mi_option_t, mi_version};
use std::ptr;

/// Milliseconds until freed memory is returned; below 0 for never. The number is from version 3's mimalloc.h, because
/// the bindings do not define it.
const PURGE_DELAY: mi_option_t = 15;

/// The row.
pub struct Mimalloc;

impl Peer for Mimalloc {
    const NAME: &'static str = "mimalloc";
    type Handle<'a> = Mimalloc;

    fn new() -> Mimalloc {
        // SAFETY: sets a number that is read when memory is freed.
        unsafe { mi_option_set(PURGE_DELAY, -1) };
        Mimalloc
    }

    fn handle(&self) -> Mimalloc {
        Mimalloc
    }
}

impl Frames for Mimalloc {
    #[inline]
    fn get(&mut self, order: u32) -> usize {
        let size = FRAME_SIZE << order;
        // SAFETY: the alignment is a power of two.
        let block = unsafe { mi_malloc_aligned(size, size) };
        assert!(!block.is_null(), "mimalloc has no block of order {order}");
        block.expose_provenance()
    }

    #[inline]
    unsafe fn put(&mut self, block: usize, _: u32) {
        // SAFETY: from mi_malloc_aligned and not freed since; the caller guarantees this.
        unsafe { mi_free(ptr::with_exposed_provenance_mut(block)) };
    }
}

/// Its version.
pub fn version() -> String {
    // SAFETY: takes nothing.
    let number = unsafe { mi_version() };
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}
