//! A few ranges around many mappings: one region in each of ten thousand mappings would exceed the limit on regions.
//!
//! `sampled` fits its regions to them. `isotherm-bench` uses them as what DAMON monitors of a process. Gaps are
//! bridged, smallest first, rather than mappings skipped: hot memory has to be found wherever it is.

use isotherm_units::AddrRange;

/// At most `most` (at least one) ranges that cover all `mappings`, separated at the largest gaps between them, in
/// address order.
///
/// With `most` = 3 this is what DAMON monitors of a process: heap, mapped files and stack lie far apart, and what is in
/// between is included. Mappings may come in any order and may overlap. Of gaps of the same size, the lowest separate
/// first.
pub fn cover(mappings: &[AddrRange], most: usize) -> Vec<AddrRange> {
    let mut covered: Vec<AddrRange> = mappings.iter().copied().filter(|m| !m.is_empty()).collect();
    covered.sort_unstable();
    covered.dedup_by(|next, kept| {
        let touch = next.start <= kept.end;
        if touch {
            kept.end = kept.end.max(next.end);
        }
        touch
    });
    let mut bridged: Vec<(u64, usize)> =
        covered.windows(2).enumerate().map(|(no, two)| (two[1].start.0 - two[0].end.0, no + 1)).collect();
    let parts = most.max(1) - 1;
    if parts >= bridged.len() {
        return covered;
    }
    bridged.select_nth_unstable_by_key(parts, |&(gap, no)| (std::cmp::Reverse(gap), no));
    let mut joins = vec![false; covered.len()];
    bridged[parts..].iter().for_each(|&(_, no)| joins[no] = true);
    let mut join = joins.into_iter().skip(1);
    covered.dedup_by(|next, kept| {
        let joined = join.next() == Some(true);
        if joined {
            kept.end = next.end;
        }
        joined
    });
    covered
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::Addr;

    fn ranges(of: &[(u64, u64)]) -> Vec<AddrRange> {
        of.iter().map(|&(start, end)| AddrRange::new(Addr(start), Addr(end))).collect()
    }

    #[test]
    fn three_ranges_are_damons_three_regions() {
        let mappings = ranges(&[(10, 20), (20, 25), (200, 210), (210, 220), (300, 305), (307, 330)]);
        assert_eq!(cover(&mappings, 3), ranges(&[(10, 25), (200, 220), (300, 330)]));
        assert_eq!(cover(&mappings, 2), ranges(&[(10, 25), (200, 330)]));
        assert_eq!(cover(&mappings, 1), ranges(&[(10, 330)]));
        assert_eq!(cover(&mappings, 0), cover(&mappings, 1));
        assert_eq!(cover(&mappings, 9), ranges(&[(10, 25), (200, 220), (300, 305), (307, 330)]));
    }

    #[test]
    fn any_mappings_are_covered() {
        assert_eq!(cover(&[], 3), []);
        assert_eq!(cover(&ranges(&[(5, 5)]), 3), []);
        let odd = ranges(&[(50, 60), (0, 10), (5, 30), (55, 56), (90, 90), (80, 90)]);
        assert_eq!(cover(&odd, 2), ranges(&[(0, 30), (50, 90)]), "the lower of two gaps of 20");
    }
}
