//! The process that is watched, and the truth about it.

use crate::start;
use anyhow::{Context, Result};
use isotherm_units::{Addr, AddrRange, PAGE_SIZE, PAGES_PER_PMD};
use isotherm_workload::{Child, Pattern};

/// Pages of the span that turns hot or cold: 64 MiB.
const TURNED_PAGES: usize = 64 << 8;

/// A span whose pages turn hot or cold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    first: usize,
    /// Its addresses.
    pub range: AddrRange,
}

impl Span {
    /// The pages of which 99% have to be known to have turned.
    pub fn enough_pages(&self) -> u64 {
        self.range.len().pages() * 99 / 100
    }
}

/// A running process and its pattern.
#[derive(Debug)]
pub struct Workload {
    child: Child,
    pattern: Pattern,
    hot: Vec<bool>,
    /// The page from which the next cold and the next hot span are taken. None is taken twice: the process ignores a command for
    /// the same pages.
    next: [usize; 2],
}

impl Workload {
    /// Starts a process. Returns when all its memory is populated.
    pub fn start(pattern: Pattern) -> Result<Workload> {
        Ok(Workload { child: start(&pattern)?, hot: pattern.hot(), pattern, next: [0; 2] })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Its memory.
    pub fn memory(&self) -> AddrRange {
        self.child.memory()
    }

    /// What it does, but for the spans that have turned.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// For each page of its memory, whether the pattern makes it hot.
    pub fn hot(&self) -> &[bool] {
        &self.hot
    }

    /// The next span in which all pages are hot, or none is, that is `wanted`.
    pub fn take_span(&mut self, is_hot: bool, wanted: impl Fn(Span) -> bool) -> Result<Span> {
        let start = self.memory().start;
        let found = spans(&self.hot, self.next[usize::from(is_hot)], is_hot)
            .map(|first| span_at(start, first))
            .find(|span| wanted(*span));
        let span =
            found.with_context(|| format!("find 64 MiB of {} pages in which nothing turned yet", self.hot.len()))?;
        self.next[usize::from(is_hot)] = span.first + TURNED_PAGES;
        Ok(span)
    }

    /// Accesses all pages of `span` as well, from now on.
    pub fn heat(&mut self, span: Span) -> Result<()> {
        self.child.heat(span.first, TURNED_PAGES).context("send the workload a command")
    }

    /// Does not access them any more.
    pub fn cool(&mut self, span: Span) -> Result<()> {
        self.child.cool(span.first, TURNED_PAGES).context("send the workload a command")
    }
}

fn span_at(start: Addr, first: usize) -> Span {
    let at = |page: usize| Addr(start.0 + page as u64 * PAGE_SIZE);
    Span { first, range: AddrRange::new(at(first), at(first + TURNED_PAGES)) }
}

/// The first page of each span from `next` on, at steps of a huge range, in which all pages are hot or none is.
fn spans(hot: &[bool], next: usize, is_hot: bool) -> impl Iterator<Item = usize> {
    let last = (hot.len() + 1).saturating_sub(TURNED_PAGES);
    let is_span = move |first: &usize| hot[*first..*first + TURNED_PAGES].iter().all(|hot| *hot == is_hot);
    (next.next_multiple_of(PAGES_PER_PMD)..last).step_by(PAGES_PER_PMD).filter(is_span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_all_hot_or_all_cold_and_lie_in_the_memory() {
        let mut hot = vec![false; 3 * TURNED_PAGES];
        hot[10..TURNED_PAGES + 600].fill(true);
        let found = |next, is_hot| spans(&hot, next, is_hot).collect::<Vec<_>>();
        assert_eq!(found(0, true), [512], "whole huge ranges");
        let cold = found(0, false);
        assert_eq!((cold[0], cold[cold.len() - 1]), (TURNED_PAGES + 1024, 2 * TURNED_PAGES));
        assert_eq!(found(2 * TURNED_PAGES, false), [2 * TURNED_PAGES]);
        assert_eq!(found(2 * TURNED_PAGES + 1, false), Vec::<usize>::new());
        assert_eq!(spans(&hot[..100], 0, true).count(), 0);
    }

    #[test]
    fn a_span_has_the_addresses_of_its_pages() {
        let span = span_at(Addr(1 << 30), 512);
        assert_eq!((span.range.start.0, span.range.len().pages()), ((1 << 30) + (2 << 20), TURNED_PAGES as u64));
        assert_eq!(span.enough_pages(), 16_220);
    }
}
