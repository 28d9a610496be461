//! Places the pages of a host in physical memory, for monitors that check frames instead of processes.
//!
//! All areas are laid out one after another and cut into chunks, and the chunks are permuted. The permutation of chunk
//! numbers is a Feistel network, repeated until the result is in range. It is computed in both directions and not
//! stored. So a terabyte needs the same memory as a page: one entry for each area. The chunk size sets how fragmented
//! memory is: pages that are contiguous in a process are contiguous in physical memory only within a chunk.

use crate::error::Error;
use crate::host::Host;
use crate::mix::mix;
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE, PAGES_PER_PMD, PMD_SIZE, PageNo};
use std::ops::Range;

/// The frame of each page of a host. Frames are physical page numbers, from 0.
#[derive(Clone, Debug)]
pub struct Physical {
    chunk_pages: u64,
    order: Permutation,
    /// Areas in order of pid and address, which is also the order of `first`.
    placed: Vec<Placed>,
}

#[derive(Clone, Debug)]
struct Placed {
    pid: u32,
    pages: Range<u64>,
    /// Its first page before chunks are permuted.
    first: u64,
}

impl Host {
    /// Lays out all memory in chunks of `chunk` bytes. The order of chunks follows from `seed`.
    ///
    /// The chunk size is a power of two, at least a page, and at least 2 MiB if there are huge pages. Memory after the
    /// last whole chunk is not used.
    pub fn physical(&self, chunk: Bytes, seed: u64) -> Result<Physical, Error> {
        let any_huge = self.processes().iter().flat_map(|p| &p.areas).any(|a| a.huge);
        let least = Bytes(if any_huge { PMD_SIZE } else { PAGE_SIZE });
        if !chunk.0.is_power_of_two() || chunk < least || chunk > self.memory() {
            return Err(Error::Chunk { chunk, least, memory: self.memory() });
        }
        let (placed, used) = place(self);
        let chunks = self.memory().0 / chunk.0;
        let (used, memory) = (Bytes::of_pages(used), Bytes(chunks * chunk.0));
        if used > memory {
            return Err(Error::TooLittleMemory { used, memory });
        }
        Ok(Physical { chunk_pages: chunk.pages(), order: Permutation::new(chunks, seed), placed })
    }
}

/// Lays out areas one after another, huge ones aligned to huge ranges. Returns them and the number of pages used.
fn place(host: &Host) -> (Vec<Placed>, u64) {
    let mut placed = Vec::new();
    let mut next: u64 = 0;
    for view in host.views() {
        for (pages, huge) in view.areas() {
            let first = if huge { next.next_multiple_of(PAGES_PER_PMD as u64) } else { next };
            next = first + (pages.end - pages.start);
            placed.push(Placed { pid: view.process.pid, pages, first });
        }
    }
    (placed, next)
}

impl Physical {
    /// Physical memory: from 0 to the end of the last chunk.
    pub fn range(&self) -> AddrRange {
        AddrRange::new(Addr(0), PageNo(self.order.len * self.chunk_pages).addr())
    }

    /// The frame that holds a page; `None` if there is no such page.
    pub fn frame_of(&self, pid: u32, page: PageNo) -> Option<u64> {
        let index = self.placed.partition_point(|p| (p.pid, p.pages.end) <= (pid, page.0));
        let placed = self.placed.get(index).filter(|p| p.pid == pid && p.pages.contains(&page.0))?;
        let logical = placed.first + (page.0 - placed.pages.start);
        Some(self.order.forward(logical / self.chunk_pages) * self.chunk_pages + logical % self.chunk_pages)
    }

    /// The page in a frame; `None` if no process uses it.
    pub fn page_of(&self, frame: u64) -> Option<(u32, PageNo)> {
        let chunk = frame / self.chunk_pages;
        if chunk >= self.order.len {
            return None;
        }
        let logical = self.order.backward(chunk) * self.chunk_pages + frame % self.chunk_pages;
        let placed = &self.placed[self.placed.partition_point(|p| p.first <= logical).checked_sub(1)?];
        let page = placed.pages.start + (logical - placed.first);
        (page < placed.pages.end).then_some((placed.pid, PageNo(page)))
    }

    /// The contents of a range of physical addresses: process and virtual range, one piece for each area in each chunk.
    /// Pages that are partly in `range` count as in it. Unused memory is skipped. Cost is proportional to the number of
    /// chunks in `range`.
    pub fn pages_in(&self, range: AddrRange) -> impl Iterator<Item = (u32, AddrRange)> {
        let end = range.end.0.div_ceil(PAGE_SIZE).min(self.order.len * self.chunk_pages);
        let first = range.start.page().0.min(end);
        (first / self.chunk_pages..end.div_ceil(self.chunk_pages)).flat_map(move |chunk| {
            let start = chunk * self.chunk_pages;
            let logical = self.order.backward(chunk) * self.chunk_pages;
            let from = logical + first.saturating_sub(start);
            let to = logical + (end - start).min(self.chunk_pages);
            self.placed_in(from..to)
        })
    }

    fn placed_in(&self, logical: Range<u64>) -> impl Iterator<Item = (u32, AddrRange)> {
        let Range { start, end } = logical;
        let index = self.placed.partition_point(|p| p.first + (p.pages.end - p.pages.start) <= start);
        let begins_before = move |p: &&Placed| p.first < end;
        self.placed[index..].iter().take_while(begins_before).filter_map(move |p| {
            let at = |l: u64| PageNo(p.pages.start + l.saturating_sub(p.first)).addr();
            let all = AddrRange::new(PageNo(p.pages.start).addr(), PageNo(p.pages.end).addr());
            Some((p.pid, all.intersect(AddrRange::new(at(start), at(end)))?))
        })
    }
}

/// A permutation of the numbers below `len`.
#[derive(Clone, Debug)]
struct Permutation {
    len: u64,
    /// Bits of the low and the high part of a number. Together they are the minimum that holds all numbers, so that
    /// less than half of the network's results are beyond `len` and have to be put through it again.
    low_bits: u32,
    high_bits: u32,
    seed: u64,
}

const ROUNDS: u64 = 4;

impl Permutation {
    fn new(len: u64, seed: u64) -> Permutation {
        let bits = (u64::BITS - (len - 1).leading_zeros()).max(2);
        Permutation { len, low_bits: bits / 2, high_bits: bits - bits / 2, seed: mix(seed) }
    }

    fn forward(&self, n: u64) -> u64 {
        self.walk(n, |mut n| {
            (0..ROUNDS).for_each(|round| n = self.round(n, round));
            n
        })
    }

    fn backward(&self, n: u64) -> u64 {
        self.walk(n, |mut n| {
            (0..ROUNDS).rev().for_each(|round| n = self.round(n, round));
            n
        })
    }

    /// Repeats a step that leaves the range until the result is in it again. The cycle through `n` returns to the
    /// range.
    fn walk(&self, n: u64, step: impl Fn(u64) -> u64) -> u64 {
        let mut n = step(n);
        while n >= self.len {
            n = step(n);
        }
        n
    }

    /// Changes one part by a hash of the other. Applied twice, it changes nothing.
    fn round(&self, n: u64, round: u64) -> u64 {
        let (low, high) = (n & ((1 << self.low_bits) - 1), n >> self.low_bits);
        if round.is_multiple_of(2) {
            n ^ (mix(low ^ self.seed.wrapping_add(round)) & ((1 << self.high_bits) - 1)) << self.low_bits
        } else {
            n ^ (mix(high ^ self.seed.wrapping_add(round)) & ((1 << self.low_bits) - 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_place_and_finds_back() {
        for len in [1, 2, 3, 4, 5, 100, 1023, 1024, 1025] {
            let order = Permutation::new(len, 5);
            let mut places: Vec<u64> = (0..len).map(|n| order.forward(n)).collect();
            assert!((0..len).all(|n| order.backward(order.forward(n)) == n), "{len}");
            places.sort_unstable();
            assert!(places.into_iter().eq(0..len), "{len}");
        }
    }

    #[test]
    fn neighbours_are_scattered_and_seeds_differ() {
        let order = Permutation::new(1 << 20, 5);
        let together = (0..100_000_u64).filter(|n| order.forward(*n).abs_diff(order.forward(n + 1)) < 1024).count();
        assert!((100..300).contains(&together), "by chance, 2 x 1024 of a million: {together} of 100,000");
        let other = Permutation::new(1 << 20, 6);
        assert!((0..1000).filter(|n| order.forward(*n) == other.forward(*n)).count() < 3);
    }
}
