//! Which addresses of a process are shown, one after the other: its spans.
//!
//! A process uses a few gigabytes of 128 TiB, so a heat map omits what was never used. Spans are whole huge ranges and are
//! not removed while moments are kept that may have used them. After that they go when a layout has to change anyway, at most
//! once in ten minutes. So a layout changes seldom, and an address keeps its place while it does not. *Packed bytes* count the
//! bytes of the spans before an address.

use isotherm_units::{Addr, AddrRange, PMD_SIZE};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::size_of;
use std::sync::Arc;

/// The most spans of a process. Beyond it, those with the smallest gaps between them are joined.
const MAX_SPANS: usize = 4096;

/// The spans of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// In address order; they do not touch.
    pub spans: Vec<AddrRange>,
    /// Packed bytes before each span.
    before: Vec<u64>,
    /// Its name, which follows from the spans.
    pub name: String,
}

impl Layout {
    /// The layout of these spans, which are sorted and disjoint.
    fn of(spans: Vec<AddrRange>) -> Layout {
        let mut sum = 0_u64;
        let before = spans.iter().map(|span| {
            let before = sum;
            sum = sum.saturating_add(span.len().0);
            before
        });
        let before = before.collect();
        let mut hasher = DefaultHasher::new();
        spans.hash(&mut hasher);
        Layout { name: format!("{:016x}", hasher.finish()), spans, before }
    }

    /// The layout of a process that uses `used` (in address order): the one before, if that serves.
    pub fn with(before: Option<&Arc<Layout>>, used: impl Iterator<Item = AddrRange> + Clone) -> Arc<Layout> {
        if let Some(before) = before.filter(|layout| layout.has(used.clone())) {
            return Arc::clone(before);
        }
        let known = before.map_or(&[][..], |layout| layout.spans.as_slice());
        let mut spans: Vec<AddrRange> = known.iter().copied().chain(used.map(rounded)).collect();
        spans.sort_unstable();
        join(&mut spans, 0);
        let mut gap = PMD_SIZE;
        while spans.len() > MAX_SPANS {
            join(&mut spans, gap);
            gap = gap.saturating_mul(2);
        }
        Arc::new(Layout::of(spans))
    }

    /// The address at a number of packed bytes; the last one beyond the end.
    pub fn addr(&self, packed: u64) -> Addr {
        let place = self.before.partition_point(|before| *before <= packed).saturating_sub(1);
        match (self.spans.get(place), self.before.get(place)) {
            (Some(span), Some(before)) if packed - before < span.len().0 => Addr(span.start.0 + (packed - before)),
            _ => Addr(u64::MAX),
        }
    }

    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        let span = size_of::<AddrRange>() + size_of::<u64>();
        size_of::<Layout>() + self.name.len() + self.spans.len() * span
    }

    /// Whether its spans cover what is used, in address order.
    pub fn has(&self, mut used: impl Iterator<Item = AddrRange>) -> bool {
        let mut spans = self.spans.as_slice();
        used.all(|range| {
            while let [first, rest @ ..] = spans
                && first.end <= range.start
            {
                spans = rest;
            }
            spans.first().is_some_and(|span| span.start <= range.start && range.end <= span.end)
        })
    }

    /// Packed bytes before an address.
    pub fn packed(&self, addr: Addr) -> u64 {
        let place = self.spans.partition_point(|span| span.end <= addr);
        match self.spans.get(place) {
            Some(span) => self.before[place] + addr.0.saturating_sub(span.start.0),
            None => self.spans.last().zip(self.before.last()).map_or(0, |(span, before)| before + span.len().0),
        }
    }
}

fn rounded(range: AddrRange) -> AddrRange {
    let start = range.start.0 / PMD_SIZE * PMD_SIZE;
    AddrRange::new(Addr(start), Addr(range.end.0.checked_next_multiple_of(PMD_SIZE).unwrap_or(u64::MAX)))
}

/// Joins spans with gaps of at most `gap` bytes.
fn join(spans: &mut Vec<AddrRange>, gap: u64) {
    spans.dedup_by(|next, kept| {
        let is_joined = next.start.0.saturating_sub(kept.end.0) <= gap;
        if is_joined {
            kept.end = kept.end.max(next.end);
        }
        is_joined
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(Addr(start), Addr(end))
    }

    const M: u64 = PMD_SIZE;

    #[test]
    fn spans_are_huge_ranges_and_gaps_take_no_place() {
        let used = [range(M + 4096, M + 8192), range(2 * M, 2 * M + 1), range(10 * M, 11 * M)];
        let layout = Layout::with(None, used.into_iter());
        assert_eq!(layout.spans, [range(M, 3 * M), range(10 * M, 11 * M)]);
        let packed =
            [0, M, M + 5, 3 * M, 5 * M, 10 * M, 10 * M + 7, 11 * M, u64::MAX].map(|at| layout.packed(Addr(at)));
        assert_eq!(packed, [0, 0, 5, 2 * M, 2 * M, 2 * M, 2 * M + 7, 3 * M, 3 * M]);
        let addrs = [0, 5, 2 * M, 2 * M + 7, 3 * M].map(|packed| layout.addr(packed).0);
        assert_eq!(addrs, [M, M + 5, 10 * M, 10 * M + 7, u64::MAX]);
        assert_eq!(layout.packed(Addr(u64::MAX)), 3 * M);
    }

    #[test]
    fn a_layout_stays_until_other_memory_is_used() {
        let first = Layout::with(None, [range(0, M), range(4 * M, 5 * M)].into_iter());
        let same = Layout::with(Some(&first), [range(4 * M + 1, 5 * M - 1)].into_iter());
        assert!(Arc::ptr_eq(&first, &same));
        let second = Layout::with(Some(&first), [range(4 * M, 6 * M)].into_iter());
        assert_ne!(first.name, second.name);
        assert_eq!(second.spans, [range(0, M), range(4 * M, 6 * M)], "what was used before stays");
        assert!(Arc::ptr_eq(&first, &Layout::with(Some(&first), [].into_iter())));
        assert_eq!(Layout::with(None, [].into_iter()).packed(Addr(u64::MAX)), 0);
    }

    #[test]
    fn the_last_address_and_too_many_spans_are_survived() {
        let top = Layout::with(None, [range(u64::MAX - 5, u64::MAX)].into_iter());
        assert_eq!(top.spans[0].end, Addr(u64::MAX));
        let many = (0..20_000_u64).map(|n| range(n * 2 * M, n * 2 * M + 1));
        let joined = Layout::with(None, many);
        assert!(joined.spans.len() <= MAX_SPANS && joined.packed(Addr(u64::MAX)) >= 20_000 * M);
    }
}
