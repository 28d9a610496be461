//! Which pages are hot.

use crate::score::{score_amount, score_pages};
use isotherm_heat::{Ns, Region, Rng, Score, Target};
use isotherm_units::{Addr, AddrRange, PAGE_SIZE, PAGES_PER_PMD};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How hot pages are distributed among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One span.
    Span,
    /// Eight spans of equal size, one in each eighth.
    Areas,
    /// Spans of 1 to 4 MiB, all over the memory.
    Spans,
    /// Single pages at random.
    Scattered,
    /// A third each of one span, spans and single pages.
    Mixed,
}

/// Describes what a workload does with its memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pattern {
    /// Pages of memory, all of them populated at the start.
    pub pages: usize,
    /// Number of hot pages.
    pub hot_pages: usize,
    /// Where the hot ones are.
    pub layout: Layout,
    /// Each hot page is accessed once in this time, in random order; 0: as fast as possible.
    pub interval_ns: Ns,
    /// Use huge pages.
    pub huge: bool,
    /// Shared memory in this file, instead of private memory.
    pub shared: Option<PathBuf>,
    /// A second thread faults its own pages all the time and reports how long that takes. This shows the cost of locks
    /// on the memory map.
    #[serde(default)]
    pub faults: bool,
    /// Seed of the layout and of the order of accesses.
    pub seed: u64,
}

impl Pattern {
    /// For each page, whether it is hot.
    pub fn hot(&self) -> Vec<bool> {
        let mut hot = vec![false; self.pages];
        let want = self.hot_pages.min(self.pages);
        let mut rng = Rng::new(self.seed);
        match self.layout {
            Layout::Span => span(&mut hot, &mut rng, want),
            Layout::Spans => spans(&mut hot, &mut rng, want),
            Layout::Areas => areas(&mut hot, &mut rng, want),
            Layout::Scattered => scattered(&mut hot, &mut rng, want),
            Layout::Mixed => {
                // Each kind gets a third of the memory, so that a picture shows which is which.
                let third = self.pages / 3;
                let (one, rest) = hot.split_at_mut(third);
                let (two, three) = rest.split_at_mut(third);
                span(one, &mut rng, (want / 3).min(one.len()));
                spans(two, &mut rng, (want / 3).min(two.len()));
                scattered(three, &mut rng, (want - 2 * (want / 3)).min(three.len()));
            }
        }
        hot
    }

    /// Compares the pages found hot with the truth, page by page. Pages of `target` outside `memory` are ignored.
    ///
    /// On huge pages, a page counts as truly hot if any page of its huge range is: the hardware has one accessed bit for all
    /// of them.
    pub fn score_pages(&self, memory: AddrRange, target: &Target, now: Ns, hot_ns: Ns) -> Score {
        score_pages(&self.hot_as_seen(), memory, target, now, hot_ns)
    }

    /// The same for regions: all pages of a hot region count as hot.
    pub fn score_regions(&self, memory: AddrRange, regions: &[Region], hot_ns: Ns) -> Score {
        let hot = self.hot_as_seen();
        let mut score = Score::of(count(&hot));
        for region in regions {
            let Some(range) = region.range.intersect(memory) else { continue };
            let index = |addr: Addr| usize::try_from((addr.0 - memory.start.0) / PAGE_SIZE).unwrap_or(usize::MAX);
            let (from, to) = (index(range.start).min(hot.len()), index(range.end).min(hot.len()));
            for is_hot in &hot[from..to] {
                score.add_page(*is_hot, region.interval, hot_ns);
            }
        }
        score
    }

    /// Compares amounts, for sources that do not know pages: the highest possible number of correct pages if `said_hot`
    /// are reported hot.
    pub fn score_amount(&self, said_hot: u64) -> Score {
        score_amount(count(&self.hot_as_seen()), said_hot)
    }

    fn hot_as_seen(&self) -> Vec<bool> {
        let mut hot = self.hot();
        if self.huge {
            for pmd in hot.chunks_mut(PAGES_PER_PMD) {
                let any = pmd.iter().any(|h| *h);
                pmd.fill(any);
            }
        }
        hot
    }
}

pub(crate) fn count(hot: &[bool]) -> f64 {
    hot.iter().filter(|h| **h).count() as f64
}

fn index(rng: &mut Rng, below: usize) -> usize {
    usize::try_from(rng.below(below as u64)).expect("below a usize")
}

fn span(hot: &mut [bool], rng: &mut Rng, want: usize) {
    let start = index(rng, hot.len() - want + 1);
    hot[start..start + want].fill(true);
}

/// One span in each eighth of the memory.
fn areas(hot: &mut [bool], rng: &mut Rng, want: usize) {
    let (eighth, part) = (hot.len() / 8, want / 8);
    for (no, area) in hot.chunks_exact_mut(eighth.max(1)).take(8).enumerate() {
        let part = if no == 7 { want - 7 * part } else { part };
        span(area, rng, part.min(area.len()));
    }
}

fn spans(hot: &mut [bool], rng: &mut Rng, want: usize) {
    let mut left = want;
    while left > 0 {
        let len = (PAGES_PER_PMD / 2 * (1 + index(rng, 4))).min(left).min(hot.len());
        let start = index(rng, hot.len() - len + 1);
        // Pages that an earlier span already covers do not count, so the next span makes up for them.
        for slot in &mut hot[start..start + len] {
            left -= usize::from(!*slot && left > 0);
            *slot = true;
        }
    }
}

fn scattered(hot: &mut [bool], rng: &mut Rng, want: usize) {
    let mut left = want;
    while left > 0 {
        let slot = &mut hot[index(rng, hot.len())];
        left -= usize::from(!*slot);
        *slot = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Interval;

    fn pattern(layout: Layout) -> Pattern {
        Pattern {
            pages: 30_000,
            hot_pages: 3000,
            layout,
            interval_ns: 0,
            huge: false,
            shared: None,
            faults: false,
            seed: 5,
        }
    }

    #[test]
    fn every_layout_has_as_many_hot_pages_as_asked() {
        for layout in [Layout::Span, Layout::Areas, Layout::Spans, Layout::Scattered, Layout::Mixed] {
            let hot = pattern(layout).hot();
            let count = hot.iter().filter(|h| **h).count();
            // A last span may run over slots that were still free when the count was reached: at most one span's length.
            assert!((3000..=3000 + 1024).contains(&count), "{layout:?}: {count}");
            assert_eq!(hot, pattern(layout).hot(), "the same seed, the same pages");
        }
    }

    #[test]
    fn regions_are_scored_by_the_pages_that_they_cover() {
        let pattern = pattern(Layout::Span);
        let first = pattern.hot().iter().position(|h| *h).unwrap() as u64;
        let memory = AddrRange::new(Addr(1 << 30), Addr((1 << 30) + 30_000 * PAGE_SIZE));
        let region = |from: u64, to: u64, ms: u64| Region {
            range: AddrRange::new(Addr(memory.start.0 + from * PAGE_SIZE), Addr(memory.start.0 + to * PAGE_SIZE)),
            resident_pages: to - from,
            measured_pages: to - from,
            huge_pages: 0,
            interval: Interval::from_ns(ms * 1_000_000),
            rate_hz: 0.0,
            age_ns: 0,
            idle_ns: 0,
            sampled_pages: 0,
            estimated_pages: 0,
            hot_pages: None,
        };
        let regions = [region(first - 100, first + 2000, 10), region(first + 2000, 40_000, 60_000)];
        let score = pattern.score_regions(memory, &regions, 1_000_000_000);
        let expected = Score { true_hot_pages: 2000.0, false_hot_pages: 100.0, hot_pages: 3000.0, unmeasured_pages: 0 };
        assert_eq!(score, expected);
    }

    #[test]
    fn of_an_amount_as_much_as_can_be_is_right() {
        let hot = pattern(Layout::Span).hot().iter().filter(|h| **h).count() as u64;
        let too_many = pattern(Layout::Span).score_amount(hot + 1000);
        assert_eq!((too_many.true_hot_pages, too_many.false_hot_pages, too_many.recall()), (hot as f64, 1000.0, 1.0));
        let too_few = pattern(Layout::Span).score_amount(hot / 2);
        assert_eq!((too_few.precision(), too_few.recall()), (1.0, 0.5));
    }
}
