//! Merging: neighbours with similar access rates become one region. A wrong merge is undone by a later split
//! (`split.rs`).

use super::Counters;
use isotherm_heat::Tile;

/// Joins `right` into `left` if their counts differ by at most `bound` and both together have at most `limit` bytes.
pub(super) fn join(left: &mut Tile<Counters>, right: &Tile<Counters>, bound: u32, limit: u64) -> bool {
    let bytes = right.range.end.0 - left.range.start.0;
    let alike = left.of.nr_accesses.abs_diff(right.of.nr_accesses) <= bound && bytes <= limit;
    if alike {
        let weights = (left.range.len().0, right.range.len().0);
        left.of.nr_accesses = mean(left.of.nr_accesses, right.of.nr_accesses, weights);
        left.of.age = mean(left.of.age, right.of.age, weights);
    }
    alike
}

/// The mean weighted by size, rounded down, so never above the larger of the two.
fn mean(left: u32, right: u32, (of_left, of_right): (u64, u64)) -> u32 {
    if left == right {
        return left;
    }
    let bytes = of_left + of_right;
    let (left, right) = (u64::from(left), u64::from(right));
    let mean = if u32::try_from(bytes).is_ok() {
        (left * of_left + right * of_right) / bytes
    } else {
        let sum = u128::from(left) * u128::from(of_left) + u128::from(right) * u128::from(of_right);
        u64::try_from(sum / u128::from(bytes)).unwrap_or(u64::MAX)
    };
    u32::try_from(mean).unwrap_or(u32::MAX)
}

/// The bound to try after `bound`, up to the largest count, at which all regions merge.
pub(super) fn next_bound(bound: u32, greatest: u32) -> u32 {
    if bound < greatest / 2 { (bound * 2).max(1) } else { greatest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Tiles;
    use isotherm_units::{Addr, AddrRange, Bytes};

    fn tiles(of: &[(u64, u64, u32, u32)]) -> Tiles<Counters> {
        let ranges: Vec<AddrRange> = of.iter().map(|t| AddrRange::new(Addr(t.0), Addr(t.1))).collect();
        let mut each = of.iter();
        let mut tiles = Tiles::new();
        tiles.refit(&ranges, Bytes(1), |_| {
            let tile = each.next().unwrap();
            Counters { nr_accesses: tile.2, age: tile.3, last_nr_accesses: 15 }
        });
        tiles
    }

    #[test]
    fn two_regions_merge_to_the_mean_by_size() {
        let mut two = tiles(&[(0, 100, 10, 9), (100, 300, 20, 21)]);
        two.merge(|left, right| join(left, right, 10, 300));
        let merged = two.as_slice()[0];
        assert_eq!((two.len(), merged.range.start, merged.range.end), (1, Addr(0), Addr(300)));
        assert_eq!((merged.of.nr_accesses, merged.of.age), (16, 17));
    }

    #[test]
    fn those_merge_that_damons_merge_merges() {
        let starts = [0, 100, 114, 122, 130, 156, 170, 184, 230];
        let ends = [100, 112, 122, 130, 156, 170, 184, 230, 10_170];
        let counts = [0, 0, 10, 10, 20, 30, 1, 2, 5];
        let all: Vec<_> = (0..9).map(|i| (starts[i], ends[i], counts[i], 0)).collect();
        let mut all = tiles(&all);
        all.merge(|left, right| join(left, right, 9, 9_999));
        let left: Vec<_> = all.iter().map(|t| (t.range.start.0, t.range.end.0)).collect();
        assert_eq!(left, [(0, 112), (114, 130), (130, 156), (156, 170), (170, 230), (230, 10_170)]);
    }

    #[test]
    fn means_of_the_largest_regions_fit() {
        assert_eq!(mean(u32::MAX, u32::MAX - 1, (1 << 63, (1 << 63) - 1)), u32::MAX - 1);
        assert_eq!(mean(u32::MAX, 0, (u64::MAX - 1, 1)), u32::MAX - 1);
        assert_eq!(mean(u32::MAX, 0, (1 << 31, (1 << 31) - 1)), 1 << 31);
    }

    #[test]
    fn the_bound_doubles_up_to_the_greatest_count() {
        let bounds = |greatest| -> Vec<u32> {
            std::iter::successors(Some(0), |&b| (b < greatest).then(|| next_bound(b, greatest))).collect()
        };
        assert_eq!(bounds(20), [0, 1, 2, 4, 8, 16, 20]);
        assert_eq!(bounds(1), [0, 1]);
        assert_eq!(bounds(u32::MAX).len(), 34);
    }
}
