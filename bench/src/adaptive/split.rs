//! Splitting: regions are cut at random, since the counts do not show where a difference is, and if they are too large.
//! A useless split is undone by the next merge (`merge.rs`).

use super::{Attrs, Counters};
use isotherm_heat::{Rng, Tile};
use isotherm_units::{Addr, Bytes};

/// The maximum size of a region so that `total` bytes make `min_regions` regions: a multiple of `min_region`.
pub(super) fn size_limit(total: u128, min_regions: usize, min_region: Bytes) -> u64 {
    let least = u128::from(min_region.0);
    let limit = (total / min_regions.max(1) as u128).max(least).next_multiple_of(least);
    u64::try_from(limit).unwrap_or(down(u64::MAX, min_region))
}

/// Limits of a context's regions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    /// Maximum size of a region. A multiple of the smallest region, or no limit at all.
    pub size: u64,
    /// Maximum number of regions.
    pub regions: usize,
}

impl Limits {
    /// The limits of `attrs`, as far as they are possible for `runs`: the runs of adjacent regions, across which
    /// nothing merges.
    pub(super) fn of<I: Iterator<Item = (Addr, Addr)>>(attrs: &Attrs, runs: impl Fn() -> I) -> Limits {
        let granule = attrs.min_region;
        let total: u128 = runs().map(|(start, end)| u128::from(end.0 - start.0)).sum();
        let cap = attrs.max_region.map_or(u64::MAX, |cap| down(cap.0, granule));
        let wanted = size_limit(total, attrs.min_regions, granule).min(cap);
        let regions = attrs.max_regions.max(runs().count());
        // The number of regions if all runs are cut to `size`, starting at a multiple of the smallest region.
        let fits = |size: u64| {
            let pieces = |(start, end): (Addr, Addr)| u128::from((end.0 - down(start.0, granule)).div_ceil(size));
            runs().map(pieces).sum::<u128>() <= regions as u128
        };
        if fits(wanted) {
            return Limits { size: wanted, regions };
        }
        // The maximum number of regions wins over the minimum and over a maximum size: this finds the smallest size
        // that fits, in units of the smallest region.
        let (mut low, mut high) = (wanted / granule.0, u64::MAX / granule.0);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if fits(middle * granule.0) { high = middle } else { low = middle }
        }
        let size = high * granule.0;
        Limits { size: if fits(size) { size } else { u64::MAX }, regions }
    }
}

fn down(value: u64, granule: Bytes) -> u64 {
    value & !(granule.0 - 1)
}

/// Cuts a region larger than `limit`, a multiple of `granule`, into pieces of that size.
pub(super) fn cut_to(tile: &Tile<Counters>, limit: u64, granule: Bytes, cuts: &mut Vec<Addr>) {
    if tile.range.len().0 > limit {
        cut_on_grid(tile, down(tile.range.start.0, granule), limit, cuts);
    }
}

/// Cuts at every multiple of `step` from `origin` on.
pub(super) fn cut_on_grid(tile: &Tile<Counters>, origin: u64, step: u64, cuts: &mut Vec<Addr>) {
    let (start, end) = (tile.range.start.0, tile.range.end.0);
    let mut cut = origin + (start - origin) / step * step;
    while end - cut > step {
        cut += step;
        cuts.push(Addr(cut));
    }
}

/// Cuts into up to `pieces` pieces at random tenths, unless the region is too small. After the first cut, the left part
/// is cut again, so that over time there are many ways to cut at one address.
pub(super) fn cut_randomly(tile: &Tile<Counters>, pieces: usize, granule: Bytes, rng: &mut Rng, cuts: &mut Vec<Addr>) {
    let (start, mut end) = (tile.range.start.0, tile.range.end.0);
    for _ in 1..pieces {
        let bytes = end - start;
        if bytes / 2 <= granule.0 && bytes <= granule.0.saturating_mul(2) {
            break;
        }
        let tenths = 1 + rng.below(9);
        let left = bytes / 10 * tenths + bytes % 10 * tenths / 10;
        let cut = down(start + left, granule);
        if cut > start {
            cuts.push(Addr(cut));
            end = cut;
        }
    }
    cuts.reverse();
}

/// The number of pieces to cut each region into. Three if cutting in two did not change the number of regions: the same
/// merge followed the same split, and a difference in the middle may have been missed.
pub(super) fn pieces(regions: usize, at_last_split: usize, max_regions: usize) -> usize {
    if regions > max_regions / 2 {
        1
    } else if regions == at_last_split && regions < max_regions / 3 {
        3
    } else {
        2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Tiles;
    use isotherm_units::AddrRange;

    fn tiles(of: &[(u64, u64)], counters: Counters) -> Tiles<Counters> {
        let ranges: Vec<AddrRange> = of.iter().map(|t| AddrRange::new(Addr(t.0), Addr(t.1))).collect();
        let mut tiles = Tiles::new();
        tiles.refit(&ranges, Bytes(1), |_| counters);
        tiles
    }

    #[test]
    fn both_parts_of_a_split_know_what_the_whole_knew() {
        let known = Counters { nr_accesses: 42, last_nr_accesses: 15, age: 10 };
        let mut whole = tiles(&[(0, 100)], known);
        whole.split(|_, cuts| cuts.push(Addr(25)));
        let parts: Vec<_> = whole.iter().map(|t| (t.range.start.0, t.range.end.0, t.of)).collect();
        assert_eq!(parts, [(0, 25, known), (25, 100, known)]);
    }

    #[test]
    fn random_splits_make_no_more_pieces_than_asked_for() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let mut split = |of: &[(u64, u64)], pieces, granule| {
                let mut some = tiles(of, Counters::default());
                some.split(|tile, cuts| cut_randomly(tile, pieces, Bytes(granule), &mut rng, cuts));
                some.check().unwrap();
                assert!(some.iter().skip(1).all(|t| t.range.start.0 % granule == 0), "{some:?}");
                some.len()
            };
            assert!(split(&[(0, 22)], 2, 1) <= 2);
            assert!(split(&[(0, 220)], 4, 1) <= 4);
            // 5 in DAMON's test; a power of two here, as attributes have to have.
            assert!(split(&[(0, 220), (300, 400), (500, 700)], 4, 4) <= 12);
            assert_eq!(split(&[(0, 8192)], 3, 4096), 1, "two pages are not split");
            assert_eq!(split(&[(0, 4096)], 3, 4096), 1);
            assert!(split(&[(0, u64::MAX)], 3, 4096) >= 2);
        }
    }

    #[test]
    fn every_tenth_is_cut_at() {
        let mut rng = Rng::new(1);
        let whole = Tile { range: AddrRange::new(Addr(0), Addr(100)), of: Counters::default() };
        let mut seen = [0; 10];
        for _ in 0..900 {
            let mut cuts = Vec::new();
            cut_randomly(&whole, 2, Bytes(1), &mut rng, &mut cuts);
            seen[usize::try_from(cuts[0].0 / 10).unwrap()] += 1;
        }
        assert!(seen[0] == 0 && seen[1..].iter().all(|n| (60..150).contains(n)), "{seen:?}");
    }

    #[test]
    fn the_least_number_of_regions_is_kept_as_damon_keeps_it() {
        for (size, min_region, min_regions, limit, count) in
            [(10, 1, 10, 1, 10), (10, 1, 15, 1, 10), (10, 2, 2, 6, 2), (10, 2, 10, 2, 5)]
        {
            assert_eq!(size_limit(size.into(), min_regions, Bytes(min_region)), limit);
            let mut one = tiles(&[(0, size)], Counters::default());
            one.split(|tile, cuts| cut_to(tile, limit, Bytes(min_region), cuts));
            assert_eq!(one.len(), count);
        }
    }

    #[test]
    fn limits_of_all_that_can_be_addressed_fit() {
        assert_eq!(size_limit(1 << 64, 1, Bytes(4096)), u64::MAX - 4095);
        let attrs = Attrs { min_regions: 3, max_regions: 3, ..Attrs::default() };
        let whole = || [(Addr(0), Addr(u64::MAX)), (Addr(0), Addr(u64::MAX)), (Addr(1), Addr(u64::MAX))].into_iter();
        assert_eq!(Limits::of(&attrs, whole), Limits { size: u64::MAX, regions: 3 }, "one each");
        let mut cuts = Vec::new();
        let tile = Tile { range: AddrRange::new(Addr(1), Addr(u64::MAX)), of: Counters::default() };
        cut_to(&tile, 1 << 62, Bytes(4096), &mut cuts);
        assert_eq!(cuts, [Addr(1 << 62), Addr(1 << 63), Addr(3 << 62)]);
    }

    #[test]
    fn the_most_regions_win_over_the_least_and_over_a_cap() {
        let limits = |min_regions, max_regions, max_region: Option<u64>, runs: &'static [(u64, u64)]| {
            let attrs = Attrs {
                min_regions,
                max_regions,
                max_region: max_region.map(Bytes),
                min_region: Bytes(1),
                ..Attrs::default()
            };
            Limits::of(&attrs, || runs.iter().map(|r| (Addr(r.0), Addr(r.1))))
        };
        assert_eq!(limits(10, 100, None, &[(0, 1000)]), Limits { size: 100, regions: 100 });
        assert_eq!(limits(10, 100, Some(20), &[(0, 1000)]), Limits { size: 20, regions: 100 });
        assert_eq!(limits(10, 41, Some(20), &[(0, 1000)]), Limits { size: 25, regions: 41 });
        assert_eq!(limits(10, 10, None, &[(0, 1000)]), Limits { size: 100, regions: 10 });
        assert_eq!(limits(3, 3, None, &[(0, 5), (6, 10), (20, 30), (40, 50)]).regions, 4);
    }

    #[test]
    fn three_pieces_when_two_changed_nothing() {
        assert_eq!([pieces(10, 9, 100), pieces(10, 10, 100), pieces(33, 33, 100), pieces(32, 32, 100)], [2, 3, 2, 3]);
        assert_eq!([pieces(50, 50, 100), pieces(51, 51, 100)], [2, 1]);
    }
}
