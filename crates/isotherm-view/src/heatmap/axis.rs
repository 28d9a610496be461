//! The address axis: the addresses that each row of a heat map shows.
//!
//! A process uses kilobytes in one place and gigabytes in another, with unmapped terabytes between. So rows are cut
//! from the mapped ranges, laid end to end, and the gaps between them are folded:
//!
//! ```text
//! addresses   [heap]......................[pool........]...............[stack]
//! rows        | h | h | fold | p | p | p | p | p | fold | s |
//! ```
//!
//! 1. Small gaps stay on the axis. Together they are at most half as large as the mapped memory, so they take few rows
//!    and avoid many breaks.
//! 2. The largest of the other gaps get a row each, so that the break is visible: at most a quarter of all rows.
//! 3. The rest are folded without a row. The addresses of the rows around them show the gap.
//!
//! Each stretch between two breaks has at least one row, so that a small stack is visible next to a large heap.

use isotherm_units::{Addr, AddrRange, PAGE_SIZE};

/// One row of the axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AxisRow {
    /// The addresses on the axis; empty in a break.
    pub pieces: Vec<AddrRange>,
    /// From the first to the last address. For a break: the addresses that it omits.
    pub range: AddrRange,
}

/// Cuts the addresses in `spans` into at most `rows` rows.
pub(super) fn build(spans: Vec<AddrRange>, rows: usize) -> Vec<AxisRow> {
    let spans = close_small_gaps(join(spans), rows);
    if spans.is_empty() || rows == 0 {
        return Vec::new();
    }
    let stretches = split_at_largest_gaps(&spans, rows / 4);
    let counts = share_rows(&stretches, rows - (stretches.len() - 1));
    let mut axis: Vec<AxisRow> = Vec::new();
    for (stretch, count) in stretches.iter().zip(counts) {
        if let Some(before) = axis.last() {
            let gap = AddrRange::new(before.range.end, stretch[0].start);
            axis.push(AxisRow { pieces: Vec::new(), range: gap });
        }
        axis.extend(cut(stretch, count, PAGE_SIZE).into_iter().filter_map(row_of));
    }
    axis
}

fn row_of(pieces: Vec<AddrRange>) -> Option<AxisRow> {
    let range = AddrRange::new(pieces.first()?.start, pieces.last()?.end);
    Some(AxisRow { pieces, range })
}

/// Sorts the ranges, and merges overlapping and adjacent ones.
fn join(mut spans: Vec<AddrRange>) -> Vec<AddrRange> {
    spans.retain(|s| !s.is_empty());
    spans.sort_unstable();
    join_within(&spans, 0)
}

/// Merges neighbours that are at most `gap` bytes apart.
fn join_within(sorted: &[AddrRange], gap: u64) -> Vec<AddrRange> {
    let mut joined: Vec<AddrRange> = Vec::new();
    for span in sorted {
        match joined.last_mut() {
            Some(last) if span.start.0 <= last.end.0.saturating_add(gap) => last.end = last.end.max(span.end),
            _ => joined.push(*span),
        }
    }
    joined
}

fn close_small_gaps(spans: Vec<AddrRange>, rows: usize) -> Vec<AddrRange> {
    let parts = spans.len().max(rows).max(1) as u64;
    join_within(&spans, total(&spans) / parts / 2)
}

fn total(pieces: &[AddrRange]) -> u64 {
    pieces.iter().map(|p| p.len().0).fold(0, u64::saturating_add)
}

fn split_at_largest_gaps(spans: &[AddrRange], breaks: usize) -> Vec<&[AddrRange]> {
    let mut gaps: Vec<usize> = (1..spans.len()).collect();
    gaps.sort_by_key(|at| std::cmp::Reverse(spans[*at].start.0 - spans[*at - 1].end.0));
    gaps.truncate(breaks);
    gaps.sort_unstable();
    let ends = gaps.iter().copied().chain([spans.len()]);
    let mut from = 0;
    ends.map(|end| &spans[std::mem::replace(&mut from, end)..end]).collect()
}

/// Rows for each stretch: one each. Every further row goes to the stretch with the most bytes per row.
fn share_rows(stretches: &[&[AddrRange]], rows: usize) -> Vec<usize> {
    let sizes: Vec<u64> = stretches.iter().map(|s| total(s)).collect();
    let mut counts = vec![1; sizes.len()];
    for _ in sizes.len()..rows {
        let fullest = (0..sizes.len()).max_by_key(|at| sizes[*at] / counts[*at] as u64);
        fullest.into_iter().for_each(|at| counts[at] += 1);
    }
    counts
}

/// Cuts `pieces` into `count` parts of equal length, at multiples of `unit`. Empty parts are dropped.
pub(super) fn cut(pieces: &[AddrRange], count: usize, unit: u64) -> Vec<Vec<AddrRange>> {
    let whole = total(pieces);
    let ends = (1..=count as u64).map(|n| {
        let end = crate::math::scale(whole, n, count as u64);
        if n == count as u64 { whole } else { end / unit * unit }
    });
    let mut from = 0;
    let parts = ends.map(|end| part(pieces, std::mem::replace(&mut from, end), end));
    parts.filter(|p| !p.is_empty()).collect()
}

/// The part from `from` to `to` when the pieces are laid end to end.
fn part(pieces: &[AddrRange], from: u64, to: u64) -> Vec<AddrRange> {
    let mut offset = 0;
    let mut found = Vec::new();
    for piece in pieces {
        let len = piece.len().0;
        let (start, end) = (from.max(offset), to.min(offset + len));
        if start < end {
            let at = |position: u64| Addr(piece.start.0 + (position - offset));
            found.push(AddrRange::new(at(start), at(end)));
        }
        offset += len;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start_page: u64, pages: u64) -> AddrRange {
        AddrRange::new(Addr(start_page * PAGE_SIZE), Addr((start_page + pages) * PAGE_SIZE))
    }

    fn pages(axis: &[AxisRow]) -> Vec<(u64, u64, bool)> {
        axis.iter().map(|r| (r.range.start.0 / PAGE_SIZE, r.range.len().pages(), r.pieces.is_empty())).collect()
    }

    #[test]
    fn one_mapping_is_cut_into_equal_rows() {
        let axis = build(vec![range(10, 4), range(14, 4)], 4);
        assert_eq!(pages(&axis), [(10, 2, false), (12, 2, false), (14, 2, false), (16, 2, false)]);
    }

    #[test]
    fn a_large_gap_is_folded_into_one_row() {
        let axis = build(vec![range(1_000_000, 1), range(0, 6)], 8);
        // Eight rows less one break: one page a row.
        let expected = [
            (0, 1, false),
            (1, 1, false),
            (2, 1, false),
            (3, 1, false),
            (4, 1, false),
            (5, 1, false),
            (6, 999_994, true),
        ];
        assert_eq!(pages(&axis)[..7], expected);
        assert_eq!(pages(&axis)[7..], [(1_000_000, 1, false)]);
    }

    #[test]
    fn a_small_gap_stays_on_the_axis() {
        let axis = build(vec![range(0, 100), range(102, 98)], 4);
        assert_eq!(pages(&axis), [(0, 50, false), (50, 50, false), (100, 50, false), (150, 50, false)]);
    }

    #[test]
    fn more_gaps_than_rows_are_folded_without_a_row() {
        let axis = build((0..1000).map(|i| range(i * 1_000_000, 1)).collect(), 20);
        assert_eq!(axis.len(), 20);
        assert_eq!(axis.iter().filter(|r| r.pieces.is_empty()).count(), 5);
        assert_eq!(axis.iter().flat_map(|r| &r.pieces).map(|p| p.len().pages()).sum::<u64>(), 1000);
    }

    #[test]
    fn no_rows_and_no_memory_make_no_axis() {
        assert!(build(vec![], 10).is_empty());
        assert!(build(vec![range(0, 1)], 0).is_empty());
        assert_eq!(build(vec![range(0, 1), range(99, 1)], 1).len(), 1);
        let all = AddrRange::new(Addr(0), Addr(u64::MAX));
        assert_eq!(build(vec![all, all], 3).len(), 3);
    }

    #[test]
    fn cuts_may_be_finer_than_a_page() {
        let parts = cut(&[range(0, 1)], 4, 1);
        assert_eq!(parts.iter().map(|p| p[0].len().0).collect::<Vec<_>>(), [1024; 4]);
    }
}
