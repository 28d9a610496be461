//! Regions that tile a target: sorted, disjoint, never empty. What is stored for each is up to the caller.
//!
//! `sampled` fits its regions with them, and DAMON's algorithm (in the benches) stores its counters in them. They lie
//! in one flat list, and every change is one pass over it, so 200,000 regions are no problem. A list of separately
//! allocated nodes would spend its time on cache misses. A tree answers queries by address, which no pass needs.
//! [`Tiles::merge`] and [`Tiles::split`] undo each other: a wrong merge or split is corrected one round later.

use isotherm_units::{Addr, AddrRange, Bytes};

/// One region and what is known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tile<P> {
    /// Its addresses.
    pub range: AddrRange,
    /// What is known of them.
    pub of: P,
}

/// The regions of a target, in address order. They may touch; they never overlap.
#[derive(Clone, Debug)]
pub struct Tiles<P> {
    tiles: Vec<Tile<P>>,
    /// Where the next split or refit writes. Its allocation is reused.
    spare: Vec<Tile<P>>,
    cuts: Vec<Addr>,
}

impl<P> Default for Tiles<P> {
    fn default() -> Tiles<P> {
        Tiles::new()
    }
}

impl<P: PartialEq> PartialEq for Tiles<P> {
    fn eq(&self, other: &Tiles<P>) -> bool {
        self.tiles == other.tiles
    }
}

impl<P> Tiles<P> {
    /// None yet.
    pub const fn new() -> Tiles<P> {
        Tiles { tiles: Vec::new(), spare: Vec::new(), cuts: Vec::new() }
    }

    /// These regions, which have to be sorted and disjoint.
    pub fn from_sorted(tiles: impl IntoIterator<Item = Tile<P>>) -> Tiles<P> {
        Tiles { tiles: tiles.into_iter().collect(), ..Tiles::new() }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.tiles.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tiles.is_empty()
    }

    /// All, in address order.
    pub fn iter(&self) -> std::slice::Iter<'_, Tile<P>> {
        self.tiles.iter()
    }

    /// The range of each, with its data to change. Only refit, merge and split change the ranges themselves.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (AddrRange, &mut P)> {
        self.tiles.iter_mut().map(|tile| (tile.range, &mut tile.of))
    }

    /// All, in address order.
    pub fn as_slice(&self) -> &[Tile<P>] {
        &self.tiles
    }

    /// The sum of their lengths.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.tiles.iter().map(|tile| tile.range.len().0).sum())
    }

    /// The index in [`Tiles::as_slice`] of the region that holds `addr`.
    pub fn at(&self, addr: Addr) -> Option<usize> {
        let after = self.tiles.partition_point(|tile| tile.range.start <= addr);
        let last = after.checked_sub(1)?;
        self.tiles[last].range.contains(addr).then_some(last)
    }

    /// Merges neighbours in one pass, in place. Calls `join` for tiles that touch, in address order. If `join` returns
    /// true, it has joined the data of the right tile into the left. The left tile then spans both and is the left one
    /// of the next call. A wrong merge is undone by [`Tiles::split`].
    pub fn merge(&mut self, mut join: impl FnMut(&mut Tile<P>, &Tile<P>) -> bool) {
        self.tiles.dedup_by(|right, left| {
            let joined = left.range.end == right.range.start && join(left, right);
            if joined {
                left.range.end = right.range.end;
            }
            joined
        });
    }

    /// Checks the invariants, for tests that apply a sequence of changes.
    pub fn check(&self) -> Result<(), String> {
        let empty = self.tiles.iter().find(|tile| tile.range.is_empty());
        if let Some(tile) = empty {
            return Err(format!("an empty region at {:?}", tile.range));
        }
        match self.tiles.windows(2).find(|two| two[0].range.end > two[1].range.start) {
            Some(two) => Err(format!("{:?} is not before {:?}", two[0].range, two[1].range)),
            None => Ok(()),
        }
    }
}

impl<P: Clone> Tiles<P> {
    /// Cuts regions in one pass. `cuts` gets each region and pushes the addresses to cut it at, ascending and strictly
    /// inside. Other addresses are ignored. All pieces get a copy of the data. A useless split is undone by
    /// [`Tiles::merge`].
    pub fn split(&mut self, mut cuts: impl FnMut(&Tile<P>, &mut Vec<Addr>)) {
        self.spare.clear();
        for tile in &self.tiles {
            self.cuts.clear();
            cuts(tile, &mut self.cuts);
            let mut start = tile.range.start;
            for &cut in &self.cuts {
                if start < cut && cut < tile.range.end {
                    self.spare.push(Tile { range: AddrRange::new(start, cut), of: tile.of.clone() });
                    start = cut;
                }
            }
            self.spare.push(Tile { range: AddrRange::new(start, tile.range.end), of: tile.of.clone() });
        }
        std::mem::swap(&mut self.tiles, &mut self.spare);
    }

    /// Makes the regions cover exactly `ranges`. These may come in any order, be empty or overlap. Overlapping ones are
    /// joined; ranges that only touch stay separate.
    ///
    /// A region that overlaps a range stays, cut to it, once for each such range. The first region of a range is
    /// stretched down to its start, and the last up to its end. A hole between two regions becomes a `fresh` one, and
    /// so does a range without any region. Regions outside all ranges are dropped. Bounds inside a range are rounded
    /// down to `granule`; a region that becomes empty by that is dropped too. The bounds of the ranges are not rounded:
    /// nothing outside them may be checked.
    pub fn refit(&mut self, ranges: &[AddrRange], granule: Bytes, mut fresh: impl FnMut(AddrRange) -> P) {
        self.spare.clear();
        let mut left = self.tiles.as_slice();
        for range in joined(ranges) {
            let gone = left.iter().take_while(|tile| tile.range.end <= range.start).count();
            left = &left[gone..];
            let meet = left.iter().take_while(|tile| tile.range.start < range.end).count();
            let mut fit = Fit { out: &mut self.spare, range, granule: granule.0.max(1), first: true };
            for (no, tile) in left[..meet].iter().enumerate() {
                if no > 0 && left[no - 1].range.end < tile.range.start {
                    fit.hole(left[no - 1].range.end, tile.range.start, &mut fresh);
                }
                fit.push(tile.range.start, tile.of.clone());
            }
            if meet == 0 {
                fit.push(range.start, fresh(range));
            }
            // The last one may reach into the next range as well.
            left = &left[meet.saturating_sub(1)..];
        }
        std::mem::swap(&mut self.tiles, &mut self.spare);
    }
}

/// One range while it is filled. The last tile pushed reaches to the range's end until another one is pushed.
struct Fit<'a, P> {
    out: &'a mut Vec<Tile<P>>,
    range: AddrRange,
    granule: u64,
    first: bool,
}

impl<P> Fit<'_, P> {
    fn round(&self, addr: Addr) -> Addr {
        Addr(addr.0 - addr.0 % self.granule)
    }

    fn push(&mut self, start: Addr, of: P) {
        let mut start = self.round(start);
        if std::mem::take(&mut self.first) {
            start = self.range.start;
        } else if let Some(last) = self.out.last_mut() {
            if start <= last.range.start {
                // Nothing is left of the last one.
                start = last.range.start;
                self.out.pop();
            } else {
                last.range.end = start;
            }
        }
        self.out.push(Tile { range: AddrRange::new(start, self.range.end), of });
    }

    fn hole(&mut self, start: Addr, end: Addr, fresh: &mut impl FnMut(AddrRange) -> P) {
        let hole = AddrRange::new(self.round(start).max(self.range.start), self.round(end));
        if !hole.is_empty() {
            self.push(start, fresh(hole));
        }
    }
}

/// `ranges` in order, without empty ones, overlapping ones joined.
fn joined(ranges: &[AddrRange]) -> Vec<AddrRange> {
    let mut all: Vec<AddrRange> = ranges.iter().copied().filter(|range| !range.is_empty()).collect();
    all.sort_unstable();
    all.dedup_by(|next, kept| {
        let overlap = next.start < kept.end;
        if overlap {
            kept.end = kept.end.max(next.end);
        }
        overlap
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(of: &[(u64, u64)]) -> Vec<AddrRange> {
        of.iter().map(|&(start, end)| AddrRange { start: Addr(start), end: Addr(end) }).collect()
    }

    /// Each knows its place; fresh ones know 99.
    fn tiles(of: &[(u64, u64)]) -> Tiles<u32> {
        let tile = |(no, range)| Tile { range, of: u32::try_from(no).unwrap() };
        Tiles { tiles: ranges(of).into_iter().enumerate().map(tile).collect(), ..Tiles::new() }
    }

    fn list(tiles: &Tiles<u32>) -> Vec<(u64, u64, u32)> {
        tiles.check().unwrap();
        tiles.iter().map(|tile| (tile.range.start.0, tile.range.end.0, tile.of)).collect()
    }

    fn refitted(before: &[(u64, u64)], to: &[(u64, u64)], granule: u64) -> Vec<(u64, u64, u32)> {
        let mut tiles = tiles(before);
        tiles.refit(&ranges(to), Bytes(granule), |_| 99);
        list(&tiles)
    }

    #[test]
    fn refitting_gives_what_damons_set_regions_gives() {
        assert_eq!(refitted(&[], &[(5, 15), (15, 25)], 1), [(5, 15, 99), (15, 25, 99)]);
        assert_eq!(refitted(&[(4, 16), (24, 32)], &[(18, 23)], 1), [(18, 23, 99)]);
        assert_eq!(refitted(&[(4, 16), (24, 32)], &[(8, 28)], 1), [(8, 16, 0), (16, 24, 99), (24, 28, 1)]);
        assert_eq!(refitted(&[(0, 4), (4, 17)], &[(0, 15), (25, 40)], 1), [(0, 4, 0), (4, 15, 1), (25, 40, 99)]);
        assert_eq!(
            refitted(&[(0, 4), (42, 52)], &[(0, 15), (25, 40), (44, 50)], 1),
            [(0, 15, 0), (25, 40, 99), (44, 50, 1)]
        );
    }

    #[test]
    fn ranges_may_be_empty_unsorted_and_overlap() {
        assert_eq!(refitted(&[], &[(30, 40), (5, 5), (9, 2), (0, 12), (10, 20)], 1), [(0, 20, 99), (30, 40, 99)]);
        assert_eq!(refitted(&[(0, 10)], &[], 1), []);
        assert_eq!(refitted(&[(0, 10)], &[(3, 3)], 1), []);
        assert_eq!(refitted(&[], &[(0, u64::MAX), (4, u64::MAX)], 4096), [(0, u64::MAX, 99)]);
    }

    #[test]
    fn a_region_that_meets_two_ranges_is_remembered_in_both() {
        assert_eq!(refitted(&[(0, 100)], &[(10, 20), (30, 40)], 1), [(10, 20, 0), (30, 40, 0)]);
        assert_eq!(refitted(&[(0, 100)], &[(10, 20), (20, 40)], 1), [(10, 20, 0), (20, 40, 0)]);
    }

    #[test]
    fn bounds_inside_a_range_are_rounded_and_what_is_too_small_goes() {
        assert_eq!(refitted(&[(0, 13), (13, 30)], &[(3, 27)], 8), [(3, 8, 0), (8, 27, 1)]);
        assert_eq!(refitted(&[(0, 7), (7, 30)], &[(2, 27)], 8), [(2, 27, 1)], "0..7 rounds to nothing");
        assert_eq!(refitted(&[(0, 17), (23, 30)], &[(0, 30)], 8), [(0, 16, 0), (16, 30, 1)], "and so does the hole");
        assert_eq!(refitted(&[(0, 15), (25, 30)], &[(0, 30)], 8), [(0, 8, 0), (8, 24, 99), (24, 30, 1)]);
        assert_eq!(refitted(&[(0, 15), (25, 30)], &[(10, 30)], 16), [(10, 16, 99), (16, 30, 1)]);
    }

    #[test]
    fn only_neighbours_that_touch_are_asked_about() {
        let mut some = tiles(&[(0, 4), (4, 8), (9, 12), (12, 13), (13, 20)]);
        let mut asked = Vec::new();
        some.merge(|left, right| {
            asked.push((left.of, right.of));
            left.of += 10;
            right.of != 4
        });
        assert_eq!(asked, [(0, 1), (2, 3), (12, 4)]);
        assert_eq!(list(&some), [(0, 8, 10), (9, 13, 22), (13, 20, 4)]);
    }

    #[test]
    fn cuts_outside_or_out_of_order_are_ignored() {
        let mut some = tiles(&[(0, 10), (10, 11)]);
        some.split(|_, cuts| cuts.extend([0, 3, 3, 2, 7, 10, 40].map(Addr)));
        assert_eq!(list(&some), [(0, 3, 0), (3, 7, 0), (7, 10, 0), (10, 11, 1)]);
    }

    #[test]
    fn an_address_is_found_in_its_region() {
        let some = tiles(&[(2, 4), (4, 8), (9, u64::MAX)]);
        let at = [1, 2, 4, 7, 8, 9, u64::MAX - 1, u64::MAX].map(|addr| some.at(Addr(addr)));
        assert_eq!(at, [None, Some(0), Some(1), Some(1), None, Some(2), Some(2), None]);
        assert_eq!(tiles(&[]).at(Addr(0)), None);
        assert_eq!((some.len(), some.is_empty(), some.bytes()), (3, false, Bytes(u64::MAX - 3)));
    }
}
