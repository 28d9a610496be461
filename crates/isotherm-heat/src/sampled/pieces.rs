//! The regions of a sampled target: the heat of each, where it ends, and which ends are worth checking.
//!
//! Regions tile what is populated, bridged where there are too many gaps. A check that disagrees with its region cuts
//! it at once. Ends move as checks come in. [`super::tidy`] makes few regions of many. An end is *open* while there are
//! huge ranges between the last check below it and the first above it. [`super::choose`] decides which of those to check.

use super::mix::{Finding, Mix, Reach};
use super::piece::{Mark, Piece, middle};
use super::tidy::{self, Limits};
use crate::Ns;
use crate::cover::cover;
use crate::tiles::{Tile, Tiles};
use isotherm_units::{AddrRange, Bytes, PAGES_PER_PMD, PMD_SIZE, PmdNo};
use std::collections::{BTreeMap, BTreeSet};

/// A mark older than this next to a change is checked again.
const STALE: Ns = 20_000_000_000;

/// All regions, by where they start.
#[derive(Debug)]
pub(crate) struct Pieces {
    max_regions: usize,
    max_region: Option<Bytes>,
    pieces: BTreeMap<PmdNo, Piece>,
    /// What was populated at the last refit, in ranges of whole huge ranges.
    ranges: Vec<AddrRange>,
    pmds: u64,
    /// Ends between regions that differ, with huge ranges between their marks.
    open: BTreeSet<PmdNo>,
    stale: BTreeSet<PmdNo>,
    /// Checks taken in since the last tidying.
    settled: usize,
}

impl Pieces {
    /// No regions yet. At most `max_regions` (at least 2), none of them larger than `max_region` where that allows.
    pub fn new(max_regions: usize, max_region: Option<Bytes>) -> Pieces {
        Pieces {
            max_regions: max_regions.max(2),
            max_region,
            pieces: BTreeMap::new(),
            ranges: Vec::new(),
            pmds: 0,
            open: BTreeSet::new(),
            stale: BTreeSet::new(),
            settled: 0,
        }
    }

    pub fn set_max_regions(&mut self, max_regions: usize) {
        let max_regions = max_regions.max(2);
        if max_regions != self.max_regions {
            self.max_regions = max_regions;
            self.tidy();
        }
    }

    /// Takes in which huge ranges are populated now (sorted).
    pub fn refit(&mut self, populated: &[PmdNo]) {
        let ranges = cover(&ranges_of(populated), (self.max_regions / 2).max(1));
        if ranges == self.ranges {
            return;
        }
        self.pmds = ranges.iter().map(|r| r.len().0 / PMD_SIZE).sum();
        let tile = |(start, piece): (&PmdNo, &Piece)| Tile {
            range: AddrRange::new(start.addr(), piece.end.addr()),
            of: *piece,
        };
        let mut tiles = Tiles::from_sorted(self.pieces.iter().map(tile));
        tiles.refit(&ranges, Bytes(PMD_SIZE), |_| Piece::default());
        self.pieces.clear();
        for tile in tiles.iter() {
            let (start, end) = (tile.range.start.pmd(), tile.range.end.pmd());
            self.pieces.insert(start, tile.of.part(start, end));
        }
        self.ranges = ranges;
        self.tidy();
    }

    /// All, in address order.
    pub fn iter(&self) -> impl Iterator<Item = (PmdNo, &Piece)> {
        self.pieces.iter().map(|(start, piece)| (*start, piece))
    }

    /// The first region that starts at `from` or after it.
    pub fn from(&self, from: PmdNo) -> Option<(PmdNo, &Piece)> {
        self.pieces.range(from..).next().map(|(start, piece)| (*start, piece))
    }

    /// The region that `pmd` is in.
    pub fn at(&self, pmd: PmdNo) -> Option<(PmdNo, &Piece)> {
        let (start, piece) = self.pieces.range(..=pmd).next_back()?;
        (pmd < piece.end).then_some((*start, piece))
    }

    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Huge ranges in all regions.
    pub fn pmds(&self) -> u64 {
        self.pmds
    }

    /// What was populated at the last refit.
    #[cfg(test)]
    pub fn ranges(&self) -> &[AddrRange] {
        &self.ranges
    }

    #[cfg(test)]
    pub fn max_regions(&self) -> usize {
        self.max_regions
    }

    /// Twice the fair share of a region, in huge ranges.
    pub fn cap(&self) -> u64 {
        let fair = (self.pmds * 2).div_ceil(self.max_regions as u64);
        let most = self.max_region.map_or(u64::MAX, |b| b.0 / PMD_SIZE);
        fair.min(most).max(1)
    }

    /// Retouches to expect of a check of `pmd`.
    pub fn expected(&self, pmd: PmdNo) -> f64 {
        let Some((_, piece)) = self.at(pmd) else { return 0.0 };
        if piece.huge > 0.5 {
            return 1.0;
        }
        let known = if piece.early.is_known() { piece.early.touched_early() } else { 0.1 };
        known * PAGES_PER_PMD as f64
    }

    /// The early mix of the region that `pmd` is in, if it is known.
    pub fn early_of(&self, pmd: PmdNo) -> Option<Mix> {
        self.at(pmd).map(|(_, piece)| piece.early).filter(Mix::is_known)
    }

    /// Takes a huge range that was checked long ago and borders on a change, if there is one.
    pub fn next_stale(&mut self) -> Option<PmdNo> {
        self.stale.pop_first()
    }

    /// Number of open ends, as far as is known.
    pub fn open_ends(&self) -> usize {
        self.open.len()
    }

    /// The next open end from `from` on, wrapping around.
    pub fn next_open(&self, from: PmdNo) -> Option<PmdNo> {
        self.open.range(from..).next().or_else(|| self.open.first()).copied()
    }

    /// Like [`Pieces::gap_at`]. If there are no undecided huge ranges, the end is no longer open.
    pub fn open_gap(&mut self, cut: PmdNo) -> Option<(PmdNo, PmdNo)> {
        let gap = self.gap_at(cut);
        if gap.is_none() {
            self.open.remove(&cut);
        }
        gap
    }

    /// Whether the regions on both sides of `cut` wait for a clear of the whole process: checks between them would be stuck.
    pub fn is_within_stuck(&self, cut: PmdNo) -> bool {
        let left = self.pieces.range(..cut).next_back();
        self.pieces.get(&cut).is_some_and(Piece::is_stuck) && left.is_some_and(|(_, left)| left.is_stuck())
    }

    /// The open ends between regions that wait for a clear of the whole process, with the huge ranges on both sides that are
    /// decided.
    pub fn stuck_gaps(&self) -> impl Iterator<Item = (PmdNo, PmdNo)> {
        self.open.iter().filter(|cut| self.is_within_stuck(**cut)).filter_map(|cut| self.gap_at(*cut))
    }

    /// The undecided huge ranges between two regions that differ: those strictly between the two huge ranges returned. `None` if
    /// there are none.
    fn gap_at(&self, cut: PmdNo) -> Option<(PmdNo, PmdNo)> {
        let right = self.pieces.get(&cut)?;
        let (start, left) = self.pieces.range(..cut).next_back().filter(|(_, p)| p.end == cut)?;
        if left.is_like(right) {
            return None;
        }
        // A region without marks may be anything, so its middle is checked.
        let below = left.marks.last().map_or(*start, |m| m.pmd);
        let above = right.marks.first().map_or(right.end, |m| m.pmd);
        (above.0 - below.0 > 1).then_some((below, above))
    }

    /// Assigns what was found in `pmd` to a region: its own, a neighbour, or a new one.
    pub fn settle(&mut self, now: Ns, pmd: PmdNo, found: &Finding) {
        let Some((start, piece)) = self.at(pmd) else { return };
        // A stuck check shows no heat: what its region is like holds for it, if it is part of the region.
        let mix = if found.reach == Reach::Stuck { piece.early } else { found.mix };
        let mark = Mark { pmd, at: now, mix: mix.into() };
        if piece.agrees(found) {
            self.pieces.get_mut(&start).expect("just found").learn(mark, found);
            self.redraw_ends(start);
        } else {
            self.contradict(start, mark, found);
        }
        self.settled += 1;
        if self.settled > self.pieces.len() / 2 + 64 || self.pieces.len() > self.max_regions {
            self.tidy();
        }
    }

    /// Takes in the late reads of a check of `pmd`.
    pub fn learn_late(&mut self, pmd: PmdNo, found: &Finding) {
        if let Some((start, _)) = self.at(pmd) {
            self.pieces.get_mut(&start).expect("just found").learn_late(found);
        }
    }

    /// Moves the ends of the region at `start` to the middle between its marks and those of neighbours that differ.
    fn redraw_ends(&mut self, start: PmdNo) {
        let start = self.redraw(start);
        let Some(end) = self.pieces.get(&start).map(|p| p.end) else { return };
        if self.pieces.contains_key(&end) {
            self.redraw(end);
        }
    }

    /// The same for one end, given as the start of a region. Returns its new place.
    fn redraw(&mut self, cut: PmdNo) -> PmdNo {
        let Some(right) = self.pieces.get(&cut).copied() else { return cut };
        let Some((&start, left)) = self.pieces.range(..cut).next_back().filter(|(_, p)| p.end == cut) else {
            return cut;
        };
        if left.is_like(&right) {
            self.open.remove(&cut);
            return cut;
        }
        let (Some(below), Some(above)) = (left.marks.last(), right.marks.first()) else { return self.opened(cut) };
        let middle = middle(below.pmd, above.pmd);
        if middle != cut {
            self.open.remove(&cut);
            self.pieces.remove(&cut);
            self.pieces.get_mut(&start).expect("just found").end = middle;
            self.pieces.insert(middle, right);
        }
        self.opened(middle)
    }

    fn opened(&mut self, cut: PmdNo) -> PmdNo {
        if self.gap_at(cut).is_some() {
            self.open.insert(cut);
        } else {
            self.open.remove(&cut);
        }
        cut
    }

    /// A check has found in the region at `start` something that does not fit.
    fn contradict(&mut self, start: PmdNo, mark: Mark, found: &Finding) {
        let mut old = self.pieces.remove(&start).expect("the caller found it");
        old.marks.forget(mark.pmd);
        let (below, above) = old.marks.around(mark.pmd);
        self.mark_stale(below, mark.at);
        self.mark_stale(above, mark.at);
        let hole = Hole {
            from: below.map_or(start, |m| middle(m.pmd, mark.pmd)),
            to: above.map_or(old.end, |m| middle(mark.pmd, m.pmd)),
            reaches_start: below.is_none(),
            reaches_end: above.is_none(),
        };
        if below.is_some() {
            self.pieces.insert(start, old.part(start, hole.from));
        }
        if above.is_some() {
            self.pieces.insert(hole.to, old.part(hole.to, old.end));
        }
        let start = self.grow_neighbour(hole, found).unwrap_or_else(|| {
            let is_stuck = found.reach == Reach::Stuck;
            let new = if is_stuck { old.became_stuck(hole.to, mark.at) } else { Piece::new(hole.to) };
            self.pieces.insert(hole.from, new);
            hole.from
        });
        self.pieces.get_mut(&start).expect("just made").learn(mark, found);
        self.redraw_ends(start);
    }

    /// Gives a hole to a neighbour that fits what was `found` there, if there is one. Returns where that neighbour
    /// starts.
    fn grow_neighbour(&mut self, hole: Hole, found: &Finding) -> Option<PmdNo> {
        let is_stuck = found.reach.is_stuck();
        let is_measured = |p: &Piece| p.early.is_known() || found.reach == Reach::Stuck;
        let fits = |p: &Piece| p.is_known() && is_measured(p) && p.is_stuck() == is_stuck && p.agrees(found);
        let before = self.pieces.range_mut(..hole.from).next_back();
        if let Some((start, piece)) = before.filter(|(_, p)| hole.reaches_start && p.end == hole.from && fits(p)) {
            piece.end = hole.to;
            return Some(*start);
        }
        let after = self.pieces.get(&hole.to).copied().filter(|p| hole.reaches_end && fits(p))?;
        self.pieces.remove(&hole.to);
        self.pieces.insert(hole.from, after);
        Some(hole.from)
    }

    fn mark_stale(&mut self, mark: Option<Mark>, now: Ns) {
        if let Some(mark) = mark.filter(|m| now.saturating_sub(m.at) > STALE) {
            self.stale.insert(mark.pmd);
        }
    }

    fn tidy(&mut self) {
        self.settled = 0;
        let list = std::mem::take(&mut self.pieces).into_iter().collect();
        let tidied = tidy::tidied(list, Limits { max_regions: self.max_regions, cap: self.cap() });
        self.pieces = tidied.pieces.into_iter().collect();
        self.open.extend(tidied.seams);
        self.open = std::mem::take(&mut self.open).into_iter().filter(|cut| self.gap_at(*cut).is_some()).collect();
    }
}

/// The part cut out of a region around a check that contradicts it.
#[derive(Clone, Copy, Debug)]
struct Hole {
    from: PmdNo,
    to: PmdNo,
    /// No check on that side agreed with the region, so the neighbour there may get the part.
    reaches_start: bool,
    reaches_end: bool,
}

/// Runs of neighbouring huge ranges.
fn ranges_of(pmds: &[PmdNo]) -> Vec<AddrRange> {
    let mut ranges: Vec<AddrRange> = Vec::new();
    for pmd in pmds {
        match ranges.last_mut() {
            Some(last) if last.end == pmd.addr() => last.end = pmd.next().addr(),
            _ => ranges.push(pmd.range()),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::super::mix::OUTCOMES;
    use super::*;

    fn found(outcome: usize) -> Finding {
        let mut counts = [0; OUTCOMES];
        counts[outcome] = 512;
        Finding { mix: Mix::of_counts(counts), resident: 1.0, huge: false, reach: Reach::Itself }
    }

    fn bounds(pieces: &Pieces) -> Vec<(u64, u64)> {
        pieces.iter().map(|(start, piece)| (start.0, piece.end.0)).collect()
    }

    /// One region of 100 huge ranges, known to be untouched by looks at huge ranges 10 and 90.
    fn cold() -> Pieces {
        let mut pieces = Pieces::new(2, None);
        pieces.refit(&(0..100).map(PmdNo).collect::<Vec<_>>());
        pieces.max_regions = 20;
        for pmd in [10, 90] {
            pieces.settle(0, PmdNo(pmd), &found(OUTCOMES - 1));
        }
        pieces
    }

    #[test]
    fn a_look_that_disagrees_cuts_its_region_midway_to_the_looks_that_agreed() {
        let mut pieces = cold();
        pieces.settle(0, PmdNo(50), &found(0));
        assert_eq!(bounds(&pieces), [(0, 30), (30, 70), (70, 100)]);
        assert_eq!(pieces.open_gap(PmdNo(30)), Some((PmdNo(10), PmdNo(50))));
        pieces.settle(0, PmdNo(30), &found(0));
        assert_eq!(bounds(&pieces), [(0, 20), (20, 70), (70, 100)], "the end moves midway again");
    }

    #[test]
    fn at_an_end_the_neighbour_that_is_like_it_grows() {
        let mut pieces = cold();
        pieces.settle(0, PmdNo(50), &found(0));
        // No look below 10 agreed with the first region: huge range 5 hot cuts a region of its own, as there is no neighbour.
        pieces.settle(0, PmdNo(5), &found(0));
        assert_eq!(bounds(&pieces), [(0, 8), (8, 30), (30, 70), (70, 100)]);
        // Above 10 the neighbour is hot, and gets what is found so.
        pieces.settle(0, PmdNo(28), &found(0));
        assert_eq!(bounds(&pieces), [(0, 8), (8, 19), (19, 70), (70, 100)]);
    }

    #[test]
    fn old_looks_beside_news_are_doubted() {
        let mut pieces = cold();
        pieces.settle(STALE, PmdNo(50), &found(0));
        assert_eq!(pieces.next_stale(), None, "just that old");
        let mut pieces = cold();
        pieces.settle(STALE + 1, PmdNo(50), &found(0));
        assert_eq!([(); 3].map(|()| pieces.next_stale()), [Some(PmdNo(10)), Some(PmdNo(90)), None]);
    }
}
