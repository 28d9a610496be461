//! mimalloc, by `mi_malloc_aligned` and `mi_free`. (`mi_malloc` of a frame takes about a seventh less for a pair.)
//!
//! Blocks aligned to 2 MiB it takes from the kernel each time and gives back to it: beyond 64 KiB or so its pages cannot be placed
//! as asked. Unaligned blocks of that size it keeps, and takes 0.2 us for a pair of them.
//!
//! It is told to keep what is freed, as jemalloc is, for the same reason.

use super::{FRAME_SIZE, Frames, Peer};
use libmimalloc_sys::{mi_free, mi_malloc_aligned, mi_option_set, mi_option_t, mi_version};
use std::ptr;

/// Milliseconds until freed memory is given back; below 0 for never. The number is from version 3's mimalloc.h: the bindings do
/// not name it.
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
        // SAFETY: from mi_malloc_aligned and not freed since: the caller's word.
        unsafe { mi_free(ptr::with_exposed_provenance_mut(block)) };
    }
}

/// Its version.
pub fn version() -> String {
    // SAFETY: takes nothing.
    let number = unsafe { mi_version() };
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}
