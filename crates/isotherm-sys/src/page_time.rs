//! Measures how long a page of our own takes to read from memory, past the CPU's caches.
//!
//! Half of the lines of a page are read in one pass, in an order that no prefetcher follows.
//! `isotherm_host::cache_probe` decides what the times mean for a memory-side cache.

use crate::memory::Memory;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads page `index` of `memory` and returns the time in ticks of the CPU's clock; 0 if there is no way to flush
/// lines. The contents of the page do not change.
pub fn read_around_caches(memory: &Memory, index: usize) -> u64 {
    let words = memory.words().len() / memory.pages();
    let page = &memory.words()[index * words..(index + 1) * words];
    flush_page(page);
    let time = time_page(page);
    // Flushed, so that none of it is cached at the next read, prefetched lines included.
    flush_page(page);
    time
}

/// Words in two lines of 64 bytes. CPUs fetch the neighbour of a line with it, so every other line is read.
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
    // One line is read before the clock starts, so that the address translation is cached. Two pages a power of two
    // apart may share a place in a TLB. An emulator's TLB has one place for each page, and would show a conflict of its
    // own.
    std::hint::black_box(page[STRIDE / 2].load(Ordering::Relaxed));
    let begin = cpu::clock();
    for i in 0..lines {
        // An odd factor visits each of the 32 lines once.
        let line = (i * 13 + 5) % lines;
        std::hint::black_box(page[line * STRIDE].load(Ordering::Relaxed));
        cpu::fence_loads();
    }
    cpu::clock().saturating_sub(begin)
}

/// Code that needs instructions of one kind of CPU: a module for each kind on which it can be tested.
#[cfg(target_arch = "x86_64")]
mod cpu {
    use std::arch::x86_64::{_mm_clflush, _mm_lfence, _mm_mfence, _rdtsc};
    use std::sync::atomic::AtomicU64;

    /// Flushes the line of `word` from all caches of the CPU with `clflush`, which every x86-64 has. Its cost is not
    /// timed.
    pub fn flush(word: &AtomicU64) {
        // SAFETY: the reference points to readable memory, which is all it needs; contents stay.
        unsafe { _mm_clflush(std::ptr::from_ref(word).cast()) };
    }

    /// Everything before it is complete before anything after it.
    pub fn fence() {
        // SAFETY: SSE2, which every x86-64 has; no memory is touched.
        unsafe { _mm_mfence() };
    }

    /// Loads before it are complete before anything after it begins.
    pub fn fence_loads() {
        // SAFETY: SSE2, which every x86-64 has; no memory is touched.
        unsafe { _mm_lfence() };
    }

    /// Ticks of the time-stamp counter, read after all earlier loads and before everything that follows.
    pub fn clock() -> u64 {
        fence_loads();
        // SAFETY: Linux lets programs read the counter unless one forbids it for itself; no memory is touched.
        let ticks = unsafe { _rdtsc() };
        fence_loads();
        ticks
    }
}

/// Without a way to flush lines nothing can be timed: all times are 0, and the verdict is that there is no clock.
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
