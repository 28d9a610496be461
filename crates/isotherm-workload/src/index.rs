//! A workload bound by TLB misses: dependent reads at keys with a normal distribution, as in an index lookup.
//!
//! Most of its heat is in few huge ranges, in the middle of much memory that is touched now and then. With a larger
//! [`Index::stride`] it is a sparse heap: every huge range has some pages, and none has many.

use crate::Progress;
use crate::draw::normal;
use crate::run::{Orders, REPORT_EVERY, begin};
use isotherm_heat::Rng;
use isotherm_sys::clock;
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_units::PAGES_PER_PMD;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::sync::atomic::Ordering;

/// What the workload does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// Pages of memory.
    pub pages: usize,
    /// The position of the hottest key, as a share of the memory.
    pub centre: f64,
    /// The standard deviation of keys, as a share of the memory.
    pub deviation: f64,
    /// One page in every `stride` is populated; 1: all pages.
    pub stride: usize,
    /// Seed of the keys.
    pub seed: u64,
}

/// Number of keys drawn in advance, 64 Ki: drawing one takes longer than the read that uses it.
const DRAWN: usize = 1 << 16;
/// Each read moves by up to half of this many pages from the key drawn, so that all pages are reached.
const JITTER: u64 = 64;
const HALF_JITTER: usize = 32;
/// Words in a page, and in a cache line.
const PAGE_WORDS: usize = 512;
const LINE_WORDS: usize = 8;
/// One read in this many goes to memory heated later.
const LATER: u64 = 8;

impl Index {
    /// The share of the reads that go to each huge range.
    pub fn weights(&self) -> Vec<f64> {
        let mut weights = vec![0.0; self.pages.div_ceil(PAGES_PER_PMD)];
        for page in self.drawn() {
            for side in 0..JITTER {
                weights[self.page(page, side) / PAGES_PER_PMD] += 1.0 / (DRAWN as f64 * JITTER as f64);
            }
        }
        weights
    }

    /// Pages with a normal distribution, reflected at the ends.
    fn drawn(&self) -> Vec<u32> {
        let mut rng = Rng::new(self.seed);
        let span = self.pages as f64;
        let mut draw = || {
            let at = (self.centre + normal(rng.unit(), rng.unit()) * self.deviation).abs();
            let within = if at < 1.0 { at } else { 2.0 - at };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the pages")]
            let page = (within * span).clamp(0.0, span - 1.0) as u32;
            page
        };
        (0..DRAWN).map(|_| draw()).collect()
    }

    /// The page read for a draw and a jitter below [`JITTER`].
    fn page(&self, drawn: u32, side: u64) -> usize {
        let beside = drawn as usize + usize::try_from(side).unwrap_or(0);
        let page = beside.saturating_sub(HALF_JITTER).min(self.pages - 1);
        page / self.stride * self.stride
    }

    /// Reads until standard input is closed. Prints the same lines as [`fn@crate::run`].
    pub fn run(&self) -> io::Result<()> {
        let memory = Memory::anonymous(self.pages as u64 * 4096, PageSize::Default)?;
        for page in (0..self.pages).step_by(self.stride) {
            memory.write(page);
        }
        let mut out = io::stdout().lock();
        let orders = begin(&memory, &mut out)?;
        self.read(&memory, &orders, &mut out)
    }

    fn read(&self, memory: &Memory, orders: &Orders, out: &mut impl Write) -> io::Result<()> {
        let drawn = self.drawn();
        let words = memory.words();
        let mut rng = Rng::new(self.seed ^ 0x1dec5);
        let (mut done, mut found, mut report_at) = (0_u64, 0_u64, 0);
        while !orders.end.load(Ordering::Relaxed) {
            let heated = orders.heat.get().unwrap_or_default();
            for _ in 0..4096 {
                // The next place depends on the value found at this one, so that no two misses overlap.
                let bits = rng.next_u64().wrapping_add(found);
                let page = if !heated.is_empty() && bits >> 8 & (LATER - 1) == 0 {
                    heated.start + usize::try_from((bits >> 16) % heated.len() as u64).unwrap_or(0)
                } else {
                    let draw = drawn[(bits >> 32) as usize & (DRAWN - 1)];
                    self.page(draw, bits >> 48 & (JITTER - 1))
                };
                let line = (bits & 63) as usize * LINE_WORDS;
                found = words[page.min(self.pages - 1) * PAGE_WORDS + line].load(Ordering::Relaxed);
            }
            done += 4096;
            let now = clock::monotonic_ns();
            if now >= report_at {
                let cpu_ns = clock::thread_cpu_ns();
                Progress { accesses: done, cpu_ns, at: now, ..Progress::default() }.write(out)?;
                report_at = now + REPORT_EVERY;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_add_up_and_most_of_them_lie_around_the_centre() {
        let index = Index { pages: 2048 * 512, centre: 0.66, deviation: 1.0 / 32.0, stride: 1, seed: 3 };
        let weights = index.weights();
        assert_eq!(weights.len(), 2048);
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        // 1.645 deviations on each side hold 90%.
        let (centre, around) = (1351, 105);
        let share: f64 = weights[centre - around..=centre + around].iter().sum();
        assert!((0.89..0.91).contains(&share), "{share}");
    }

    #[test]
    fn a_sparse_heap_touches_one_page_in_ten() {
        let index = Index { pages: 10_240, centre: 0.5, deviation: 0.2, stride: 10, seed: 3 };
        assert!((0..64).all(|side| index.page(7777, side).is_multiple_of(10)));
    }
}
