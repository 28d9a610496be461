//! How long a page of our own takes to read from memory, around the processor's caches.
//!
//! Half of the lines of a page are read in one go, in an order that no prefetcher follows. What times say about a memory-side cache is
//! the business of `isotherm_host::cache_probe`.

use crate::memory::Memory;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads page `index` of `memory` and returns the time that took, in ticks of the processor's clock; 0 where there is no way to flush
/// lines. What the page holds stays.
pub fn read_around_caches(memory: &Memory, index: usize) -> u64 {
    let words = memory.words().len() / memory.pages();
    let page = &memory.words()[index * words..(index + 1) * words];
    flush_page(page);
    let time = time_page(page);
    // So that nothing of it is in the caches when it is read around them the next time, prefetched lines included.
    flush_page(page);
    time
}

/// Words in two lines of 64 bytes. Processors bring in the neighbour of a line with it, so every other line is read.
const STRIDE: usize = 16;

fn flush_page(page: &[AtomicU64]) {
    for line in page.chunks(STRIDE / 2) {
        cpu::flush(&line[0]);
    }
    cpu::fence();
}

/// Reads every other line, one after the other, in an order without a stride.
fn time_page(page: &[AtomicU64]) -> u64 {
    let lines = page.len() / STRIDE;
    // A line that is not timed, so that the translation of the address is there. Two pages a power of two apart may
    // share their place in a TLB; an emulator's has one place for each page, and would show a conflict of its own.
    std::hint::black_box(page[STRIDE / 2].load(Ordering::Relaxed));
    let begin = cpu::clock();
    for i in 0..lines {
        // An odd factor gives each of the 32 lines once.
        let line = (i * 13 + 5) % lines;
        std::hint::black_box(page[line * STRIDE].load(Ordering::Relaxed));
        cpu::fence_loads();
    }
    cpu::clock().saturating_sub(begin)
}

/// What takes instructions of the processor's own: a module for each kind of processor, and only of those that it can be tried on.
#[cfg(target_arch = "x86_64")]
mod cpu {
    use std::arch::x86_64::{_mm_clflush, _mm_lfence, _mm_mfence, _rdtsc};
    use std::sync::atomic::AtomicU64;

    /// Puts the line of `word` out of all caches of the processor. `clflush`, which every x86-64 has: what it takes is
    /// not timed.
    pub fn flush(word: &AtomicU64) {
        // SAFETY: the reference points to memory that can be read, which is all it takes; contents stay.
        unsafe { _mm_clflush(std::ptr::from_ref(word).cast()) };
    }

    /// All that is before is done before anything that is after.
    pub fn fence() {
        // SAFETY: SSE2, which every x86-64 has; no memory is touched.
        unsafe { _mm_mfence() };
    }

    /// Loads that are before are done before anything that is after begins.
    pub fn fence_loads() {
        // SAFETY: SSE2, which every x86-64 has; no memory is touched.
        unsafe { _mm_lfence() };
    }

    /// Ticks of the time-stamp counter, read after all loads before and before all that is after.
    pub fn clock() -> u64 {
        fence_loads();
        // SAFETY: Linux lets programs read the counter unless one asks otherwise for itself; no memory is touched.
        let ticks = unsafe { _rdtsc() };
        fence_loads();
        ticks
    }
}

/// Without a way to flush lines nothing can be timed: all times are zero, and the verdict is that the clock shows none.
#[cfg(not(target_arch = "x86_64"))]
mod cpu {
    use std::sync::atomic::AtomicU64;

    pub fn flush(_: &AtomicU64) {}
    pub fn fence() {}
    pub fn fence_loads() {}
    pub fn clock() -> u64 {
        0
    }
}
