//! jemalloc, with the fastest calls that guarantee the alignment: `aligned_alloc`, and `sdallocx`, which gets the size
//! and does not have to look it up. If it gets the alignment as well, it is slower, as is `mallocx`. (A pair in ns on
//! one machine: 8.4; `aligned_alloc` and `free` 11.6; `mallocx` and `sdallocx`, both with the alignment, 13.4.)
//!
//! `malloc(4096)` is faster still, and its result is aligned to a page, although that is not guaranteed: it has its own
//! row.
//!
//! It is configured to keep freed memory. By default it returns memory to the kernel some seconds later, on the thread
//! that happens to call it then, and takes page faults when it uses that memory again. Ours does neither, and the bench
//! does not measure that.

use super::{FRAME_SIZE, Frames, Peer};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use tikv_jemalloc_sys::{aligned_alloc, mallctl, malloc, sdallocx};

/// Read by the library when it starts.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static CONFIGURATION: Option<&'static c_char> = {
    const TEXT: &CStr = c"dirty_decay_ms:-1,muzzy_decay_ms:-1";
    // SAFETY: the first of the text's bytes, which live forever.
    Some(unsafe { &*TEXT.as_ptr() })
};

/// The row.
pub struct Jemalloc;

impl Peer for Jemalloc {
    const NAME: &'static str = "jemalloc";
    type Handle<'a> = Jemalloc;

    fn new() -> Jemalloc {
        Jemalloc
    }

    fn handle(&self) -> Jemalloc {
        Jemalloc
    }
}

impl Frames for Jemalloc {
    #[inline]
    fn get(&mut self, order: u32) -> usize {
        let size = FRAME_SIZE << order;
        // SAFETY: the alignment is a power of two, and the size a multiple of it.
        let block = unsafe { aligned_alloc(size, size) };
        assert!(!block.is_null(), "jemalloc has no block of order {order}");
        block.expose_provenance()
    }

    #[inline]
    unsafe fn put(&mut self, block: usize, order: u32) {
        let block: *mut c_void = ptr::with_exposed_provenance_mut(block);
        // SAFETY: from jemalloc by a request of this size and not freed since; the caller guarantees this.
        unsafe { sdallocx(block, FRAME_SIZE << order, 0) };
    }
}

/// The row of `malloc(4096)`.
pub struct Malloc;

impl Peer for Malloc {
    const NAME: &'static str = "jemalloc, malloc(4096)";
    const ORDERS: bool = false;
    type Handle<'a> = Malloc;

    fn new() -> Malloc {
        Malloc
    }

    fn handle(&self) -> Malloc {
        Malloc
    }
}

impl Frames for Malloc {
    #[inline]
    fn get(&mut self, _: u32) -> usize {
        // SAFETY: any size is valid.
        let block = unsafe { malloc(FRAME_SIZE) };
        assert!(!block.is_null(), "jemalloc has no frame");
        block.expose_provenance()
    }

    #[inline]
    unsafe fn put(&mut self, block: usize, _: u32) {
        // SAFETY: the caller guarantees it, as with the other row.
        unsafe { Jemalloc.put(block, 0) };
    }
}

/// Its version.
pub fn version() -> String {
    let mut text: *const c_char = ptr::null();
    let mut size = size_of_val(&text);
    // SAFETY: the value of this name is a pointer, for which there is room; nothing is written to the library.
    unsafe { mallctl(c"version".as_ptr(), (&raw mut text).cast(), &raw mut size, ptr::null_mut(), 0) };
    if text.is_null() {
        return "of unknown version".to_owned();
    }
    // SAFETY: a string of the library, which lives as long as the process.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    text.split('-').next().unwrap_or_default().to_owned()
}
