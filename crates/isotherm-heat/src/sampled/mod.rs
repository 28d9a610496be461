//! A target too large to look at whole: regions, known by looks at one block here and there.
//!
//! Cost follows the number of regions, not the size of memory. In each interval one random block of every region is cleared and
//! read back, and tells of 512 pages at once (`mix`). Where DAMON cuts regions at random places and sees later whether the
//! parts differ, we cut where looks have differed: between two blocks that disagree there is a place where heat changes, and
//! looking at the middle finds it in as many steps as the distance has bits. What stays undecided is the gap between the last look that
//! agreed and the first that did not, and half of all looks go there.
//!
//! - Regions are never larger than twice their fair share (`cap`), so that looks at one random block of each are spread over
//!   all of memory, and what is small and hot is found in the end.
//! - What DAMON's merging does is done in [`SampledTarget::tidy`]: neighbours that are alike become one; when there are too many, the most
//!   alike first, with a bound that doubles.
//! - Looks at the ends of regions are no fair sample of what is between. Those drawn at random are: the mean of what they found,
//!   less what their regions let expect, is what all regions are off by on the whole, and put right in the histograms.
//! - A place that was looked at long ago and borders on news is looked at again at once, so that a large region that turns
//!   hot or cold as a whole is relabelled in a few steps.
//!
//! Uses `tiles` to follow changes of what is mapped. Times come from the caller; randomness is a seeded generator.

mod mix;
mod piece;

use crate::Rng;
use crate::block::{BlockBits, Ns};
use crate::budget::{Bucket, RETOUCH_NS};
use crate::cover::cover;
use crate::due::{Reads, claim, take_due};
use crate::regions::{RegionBuilder, carry_ages};
use crate::target::{CREDIT_S, Tally};
use crate::tiles::{Tile, Tiles};
use crate::view::Summary;
use crate::{Interval, Mask, Region};
use isotherm_units::{AddrRange, BLOCK_SIZE, BlockNo, Bytes, PAGES_PER_BLOCK};
use mix::{EARLY, Finding, Kinds, Look, distance};
use piece::{Mark, Piece, middle};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Reads this far from the clear are due at multiples of [`GRID`].
const COARSE: Ns = 600_000_000;
const GRID: Ns = 200_000_000;
/// A mark this old next to news is looked at again.
const STALE: Ns = 20_000_000_000;
/// Small regions come round at least in this share of the intervals.
const LEAST_TURNS: f64 = 0.2;
/// A gap of more blocks than this is cut in four at once, not in two.
const WIDE_GAP: u64 = 16;
/// Random looks that a mean is taken over at the least, and, besides two for each region, at the most.
const LEAST_SAMPLE: f64 = 50.0;
const ENOUGH_SAMPLE: f64 = 3000.0;
/// After this many, half of what they say is believed.
const ENOUGH_TO_TRUST: f64 = 500.0;
/// Boundaries visited for each look that may be spent on them.
const VISITS: usize = 4;

/// What may be changed about sampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The bound on regions. At least 2.
    pub max_regions: usize,
    /// No region is larger than this, where the bound on their number allows.
    pub max_region: Option<Bytes>,
    /// Every region has its turn once in this time, if the budgets allow.
    pub interval_ns: Ns,
    /// Slow-down allowed, in percent of one core. Over 100: no limit.
    pub max_slowdown_pct: f64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { max_regions: 1000, max_region: None, interval_ns: 1_000_000_000, max_slowdown_pct: 1.0 }
    }
}

/// The heat of one process known by samples, and which block to look at next.
#[derive(Debug)]
pub struct SampledTarget {
    sampling: Sampling,
    pieces: BTreeMap<BlockNo, Piece>,
    /// What was populated when last fitted, in ranges of whole blocks.
    ranges: Vec<AddrRange>,
    blocks: u64,
    looks: BTreeMap<BlockNo, Look>,
    /// Those of the looks that have not yet said to which region their block belongs.
    undecided: BTreeSet<BlockNo>,
    reads: Reads,
    /// Ends of regions that differ and between whose marks there is room.
    open: BTreeSet<BlockNo>,
    open_from: BlockNo,
    doubted: BTreeSet<BlockNo>,
    turn: BlockNo,
    interval_began: Option<Ns>,
    settled: usize,
    slowdown: Bucket,
    reserved: f64,
    tally: Tally,
    /// What random looks found less what was expected, and the blocks that they stood for. Older ones fade.
    surplus: Kinds,
    stood_for: f64,
    compared: f64,
    /// Blocks drawn at random that are about to be cleared, with the blocks that each stands for.
    drawn: BTreeMap<BlockNo, f64>,
    rng: Rng,
}

impl SampledTarget {
    /// A target of which nothing is known.
    pub fn new(now: Ns, sampling: Sampling, seed: u64) -> SampledTarget {
        SampledTarget {
            sampling: Sampling { max_regions: sampling.max_regions.max(2), ..sampling },
            pieces: BTreeMap::new(),
            ranges: Vec::new(),
            blocks: 0,
            looks: BTreeMap::new(),
            undecided: BTreeSet::new(),
            reads: Reads::new(),
            open: BTreeSet::new(),
            open_from: BlockNo(0),
            doubted: BTreeSet::new(),
            turn: BlockNo(0),
            interval_began: None,
            settled: 0,
            slowdown: Bucket::new(sampling.max_slowdown_pct, CREDIT_S, now),
            reserved: 0.0,
            tally: Tally::default(),
            surplus: Kinds::default(),
            stood_for: 0.0,
            compared: 0.0,
            drawn: BTreeMap::new(),
            rng: Rng::new(seed),
        }
    }

    /// Changes the bound on regions; it holds from the next [`SampledTarget::refit`] on.
    pub fn set_max_regions(&mut self, max_regions: usize) {
        let max_regions = max_regions.max(2);
        if max_regions != self.sampling.max_regions {
            self.sampling.max_regions = max_regions;
            self.tidy();
        }
    }

    /// Takes in which blocks are populated now (sorted). O(blocks), and O(regions) if that has changed.
    pub fn refit(&mut self, populated: &[BlockNo]) {
        let ranges = cover(&ranges_of(populated), (self.sampling.max_regions / 2).max(1));
        if ranges == self.ranges {
            return;
        }
        self.blocks = ranges.iter().map(|r| r.len().0 / BLOCK_SIZE).sum();
        let tile = |(start, piece): (&BlockNo, &Piece)| Tile {
            range: AddrRange::new(start.addr(), piece.end.addr()),
            of: *piece,
        };
        let mut tiles = Tiles::from_sorted(self.pieces.iter().map(tile));
        tiles.refit(&ranges, Bytes(BLOCK_SIZE), |_| Piece::default());
        self.pieces.clear();
        for tile in tiles.iter() {
            let (start, end) = (tile.range.start.block(), tile.range.end.block());
            self.pieces.insert(start, tile.of.part(start, end));
        }
        self.ranges = ranges;
        self.tidy();
    }

    /// Up to `most` blocks to clear now, in address order, as the slow-down budget allows. The caller clears each and reports it to
    /// [`SampledTarget::cleared`] or [`SampledTarget::refused`].
    pub fn due_clears(&mut self, now: Ns, most: usize) -> Vec<BlockNo> {
        let mut allowed = self.slowdown.available_ns(now) / RETOUCH_NS - self.reserved;
        let mut chosen = BTreeSet::new();
        self.drawn.clear();
        self.choose_at_open_ends(most.div_ceil(2), &mut allowed, &mut chosen);
        self.choose_in_turn(now, most, &mut allowed, &mut chosen);
        // What turns left over.
        self.choose_at_open_ends(most, &mut allowed, &mut chosen);
        chosen.into_iter().collect()
    }

    fn choose(&self, block: BlockNo, allowed: &mut f64, chosen: &mut BTreeSet<BlockNo>) {
        if !self.looks.contains_key(&block) && chosen.insert(block) {
            *allowed -= self.expected(block);
        }
    }

    fn choose_at_open_ends(&mut self, most: usize, allowed: &mut f64, chosen: &mut BTreeSet<BlockNo>) {
        while chosen.len() < most && *allowed > 0.0 {
            let Some(block) = self.doubted.pop_first() else { break };
            // A look that only waits for its late reads makes room for a new one.
            if !self.undecided.contains(&block) {
                self.drop_look(block);
            }
            self.choose(block, allowed, chosen);
        }
        for _ in 0..self.open.len().min(VISITS * most) {
            if chosen.len() >= most || *allowed <= 0.0 {
                return;
            }
            let next = self.open.range(self.open_from..).next().or_else(|| self.open.first());
            let Some(&cut) = next else { return };
            self.open_from = cut.next();
            match self.gap_at(cut) {
                Some((below, above)) if self.is_being_looked_at(below, above) => {}
                Some((below, above)) => self.choose_within(below, above, most, allowed, chosen),
                None => {
                    self.open.remove(&cut);
                }
            }
        }
    }

    /// The undecided blocks between two regions that differ: those strictly between the two returned. `None` if there are none.
    fn gap_at(&self, cut: BlockNo) -> Option<(BlockNo, BlockNo)> {
        let right = self.pieces.get(&cut)?;
        let (start, left) = self.pieces.range(..cut).next_back().filter(|(_, p)| p.end == cut)?;
        if left.is_like(right) {
            return None;
        }
        // A region without marks may be anything: its middle is looked at.
        let below = left.marks.last().map_or(*start, |m| m.block);
        let above = right.marks.first().map_or(right.end, |m| m.block);
        (above.0 - below.0 > 1).then_some((below, above))
    }

    fn is_being_looked_at(&self, below: BlockNo, above: BlockNo) -> bool {
        self.undecided.range(below.next()..above).next().is_some()
    }

    fn choose_within(
        &self,
        below: BlockNo,
        above: BlockNo,
        most: usize,
        allowed: &mut f64,
        chosen: &mut BTreeSet<BlockNo>,
    ) {
        let blocks = above.0 - below.0;
        self.choose(BlockNo(below.0 + blocks / 2), allowed, chosen);
        if blocks > WIDE_GAP {
            for quarter in [1, 3] {
                if chosen.len() < most {
                    self.choose(BlockNo(below.0 + blocks * quarter / 4), allowed, chosen);
                }
            }
        }
    }

    /// One random block of each region in turn. Larger than its share: every time; small ones: less often.
    fn choose_in_turn(&mut self, now: Ns, most: usize, allowed: &mut f64, chosen: &mut BTreeSet<BlockNo>) {
        let cap = self.cap();
        while chosen.len() < most && *allowed > 0.0 {
            let Some((start, end, is_marked)) = self.next_turn(now) else { return };
            let blocks = end.0 - start.0;
            let wanted = if is_marked { (blocks as f64 / cap as f64).clamp(LEAST_TURNS, 1.0) } else { 1.0 };
            if self.rng.below(1000) as f64 >= wanted * 1000.0 {
                continue;
            }
            let block = BlockNo(start.0 + self.rng.below(blocks));
            let stands_for = blocks as f64 / wanted;
            if self.undecided.contains(&block) {
                self.let_stand(block, stands_for);
                continue;
            }
            // Passing over a block because it is looked at for its late reads would pass over cold ones mostly.
            self.drop_look(block);
            self.choose(block, allowed, chosen);
            self.drawn.insert(block, stands_for);
        }
    }

    /// The next region in turn: start, end, and whether it has marks. `None` if all had their turn in this interval.
    fn next_turn(&mut self, now: Ns) -> Option<(BlockNo, BlockNo, bool)> {
        let began = *self.interval_began.get_or_insert(now);
        if let Some((start, piece)) = self.pieces.range(self.turn..).next() {
            self.turn = piece.end;
            return Some((*start, piece.end, piece.marks.last().is_some()));
        }
        if now < began.saturating_add(self.sampling.interval_ns) {
            return None;
        }
        self.interval_began = Some(now);
        self.turn = BlockNo(0);
        let (start, piece) = self.pieces.iter().next()?;
        self.turn = piece.end;
        Some((*start, piece.end, piece.marks.last().is_some()))
    }

    /// Retouches to expect of a look at `block`.
    fn expected(&self, block: BlockNo) -> f64 {
        let Some((_, piece)) = self.piece_at(block) else { return 0.0 };
        if piece.huge > 0.5 {
            return 1.0;
        }
        let known = if piece.early.is_known() { piece.early.touched_early() } else { 0.1 };
        known * PAGES_PER_BLOCK as f64
    }

    /// Notes that `block` was cleared at `now`, but for the pages in `stuck`.
    pub fn cleared(&mut self, now: Ns, block: BlockNo, stuck: Mask) {
        self.drop_look(block);
        let mut look = Look::new(now, stuck, self.expected(block));
        look.stands_for = self.drawn.get(&block).copied().zip(self.early_of(block));
        self.reserved += look.reserved;
        self.reads.push(Reverse((look.next_read, block)));
        self.looks.insert(block, look);
        self.undecided.insert(block);
    }

    /// A block drawn at random that is being looked at anyway stands for others as well.
    fn let_stand(&mut self, block: BlockNo, blocks: f64) {
        let expected = self.early_of(block);
        if let Some(look) = self.looks.get_mut(&block) {
            look.stands_for = match (look.stands_for, expected) {
                (Some((before, mut mean)), Some(expected)) => {
                    #[expect(clippy::cast_possible_truncation, reason = "0 to 1")]
                    mean.blend(&expected, (blocks / (before + blocks)) as f32);
                    Some((before + blocks, mean))
                }
                (before, expected) => before.or(Some(blocks).zip(expected)),
            };
        }
    }

    /// The early mix of the region that `block` is in, if it is known.
    fn early_of(&self, block: BlockNo) -> Option<mix::Mix> {
        self.piece_at(block).map(|(_, piece)| piece.early).filter(mix::Mix::is_known)
    }

    /// Notes that there is no way to clear `block`: nothing is to be known of its heat.
    pub fn refused(&mut self, now: Ns, block: BlockNo) {
        self.settle(now, block, &Finding { mix: mix::Mix::default(), resident: 1.0, huge: false });
    }

    /// Blocks whose read is due, in address order.
    pub fn due_reads(&mut self, now: Ns) -> Vec<BlockNo> {
        let looks = &mut self.looks;
        take_due(&mut self.reads, now, |block, at| looks.get_mut(&block).is_some_and(|l| claim(&mut l.next_read, at)))
    }

    /// When a read is due.
    pub fn next_read(&self) -> Option<Ns> {
        self.reads.peek().map(|Reverse((at, _))| *at)
    }

    /// A due read could not be done: it is due again shortly.
    pub fn postpone(&mut self, now: Ns, block: BlockNo) {
        if let Some(look) = self.looks.get_mut(&block) {
            look.next_read = now + mix::FIRST;
            self.reads.push(Reverse((look.next_read, block)));
        }
    }

    /// Takes in a read of one block. Blocks that are not being looked at are ignored.
    pub fn read(&mut self, now: Ns, block: BlockNo, bits: BlockBits) {
        let Some(look) = self.looks.get_mut(&block) else { return };
        let is_first = look.reads == 0;
        let Some(seen) = look.read(now, bits) else {
            return self.drop_look(block);
        };
        let (finding, is_done, reads, reserved) = (look.finding(), look.is_done(), look.reads, look.reserved);
        if is_first {
            self.tally.cleared += look.units();
        }
        self.tally.retouched += u64::from(seen.units);
        self.tally.left_set += u64::from(seen.left_set);
        self.tally.lost += u64::from(seen.lost);
        self.slowdown.spend(f64::from(seen.units) * RETOUCH_NS);
        if (is_done || reads >= EARLY) && self.undecided.remove(&block) {
            self.reserved -= reserved;
            self.compare(block, &finding);
            self.settle(now, block, &finding);
        }
        if is_done {
            self.looks.remove(&block);
            if let Some(start) = self.start_of(block) {
                self.pieces.get_mut(&start).expect("just found").learn_late(&finding);
            }
            return;
        }
        let look = self.looks.get_mut(&block).expect("not done");
        let at = look.cleared_at + distance(look.reads);
        look.next_read = if distance(look.reads) >= COARSE { at.next_multiple_of(GRID) } else { at };
        self.reads.push(Reverse((look.next_read, block)));
    }

    /// Notes by how much a look drawn at random was off what its region let expect.
    fn compare(&mut self, block: BlockNo, found: &Finding) {
        let stands_for = self.looks.get(&block).and_then(|l| l.stands_for);
        let Some((blocks, expected)) = stands_for.filter(|_| found.mix.is_known()) else { return };
        self.compared += 1.0;
        // What was expected at first was mostly wrong and is known better by now: only the last quarter counts.
        let sample = (self.compared / 4.0).clamp(LEAST_SAMPLE, 2.0 * self.pieces.len() as f64 + ENOUGH_SAMPLE);
        let fading = 1.0 - 1.0 / sample;
        let old = std::mem::take(&mut self.surplus);
        self.surplus.add(&old, fading);
        self.surplus.add(&found.mix.early().kinds(), blocks);
        self.surplus.add(&expected.kinds(), -blocks);
        self.stood_for = self.stood_for * fading + blocks;
    }

    fn drop_look(&mut self, block: BlockNo) {
        if let Some(look) = self.looks.remove(&block)
            && self.undecided.remove(&block)
        {
            self.reserved -= look.reserved;
        }
    }

    fn start_of(&self, block: BlockNo) -> Option<BlockNo> {
        self.piece_at(block).map(|(start, _)| start)
    }

    fn piece_at(&self, block: BlockNo) -> Option<(BlockNo, &Piece)> {
        let (start, piece) = self.pieces.range(..=block).next_back()?;
        (block < piece.end).then_some((*start, piece))
    }

    /// Gives what was found in `block` to a region: its own, a neighbour, or a new one.
    fn settle(&mut self, now: Ns, block: BlockNo, found: &Finding) {
        let Some((start, piece)) = self.piece_at(block) else { return };
        let mark = Mark { block, at: now, mix: found.mix.into() };
        if piece.agrees(found) {
            self.pieces.get_mut(&start).expect("just found").learn(mark, found);
            self.redraw_ends(start);
        } else {
            self.contradict(start, mark, found);
        }
        self.settled += 1;
        if self.settled > self.pieces.len() / 2 + 64 || self.pieces.len() > self.sampling.max_regions {
            self.tidy();
        }
    }

    /// Puts the ends of the region at `start` midway between its marks and those of neighbours that differ.
    fn redraw_ends(&mut self, start: BlockNo) {
        let start = self.redraw(start);
        let Some(end) = self.pieces.get(&start).map(|p| p.end) else { return };
        if self.pieces.contains_key(&end) {
            self.redraw(end);
        }
    }

    /// The same for one end, which is where a region starts. Returns where it starts now.
    fn redraw(&mut self, cut: BlockNo) -> BlockNo {
        let Some(right) = self.pieces.get(&cut).copied() else { return cut };
        let Some((&start, left)) = self.pieces.range(..cut).next_back().filter(|(_, p)| p.end == cut) else {
            return cut;
        };
        if left.is_like(&right) {
            self.open.remove(&cut);
            return cut;
        }
        let (Some(below), Some(above)) = (left.marks.last(), right.marks.first()) else { return self.opened(cut) };
        let middle = middle(below.block, above.block);
        if middle != cut {
            self.open.remove(&cut);
            self.pieces.remove(&cut);
            self.pieces.get_mut(&start).expect("just found").end = middle;
            self.pieces.insert(middle, right);
        }
        self.opened(middle)
    }

    fn opened(&mut self, cut: BlockNo) -> BlockNo {
        if self.gap_at(cut).is_some() {
            self.open.insert(cut);
        } else {
            self.open.remove(&cut);
        }
        cut
    }

    /// A look has found in the region at `start` what it is not like.
    fn contradict(&mut self, start: BlockNo, mark: Mark, found: &Finding) {
        let mut old = self.pieces.remove(&start).expect("the caller found it");
        old.marks.forget(mark.block);
        let (below, above) = old.marks.around(mark.block);
        self.doubt(below, mark.at);
        self.doubt(above, mark.at);
        let from = below.map_or(start, |m| middle(m.block, mark.block));
        let to = above.map_or(old.end, |m| middle(mark.block, m.block));
        if below.is_some() {
            self.pieces.insert(start, old.part(start, from));
        }
        if above.is_some() {
            self.pieces.insert(to, old.part(to, old.end));
        }
        let grown = self.grow_neighbour(from, to, below.is_none(), above.is_none(), found);
        let start = grown.unwrap_or_else(|| {
            self.pieces.insert(from, Piece::new(to));
            from
        });
        self.pieces.get_mut(&start).expect("just made").learn(mark, found);
        self.redraw_ends(start);
    }

    /// Gives `from..to` to a neighbour that what was `found` there is like, if there is one. Returns where that starts.
    fn grow_neighbour(
        &mut self,
        from: BlockNo,
        to: BlockNo,
        left: bool,
        right: bool,
        found: &Finding,
    ) -> Option<BlockNo> {
        let fits = |p: &Piece| p.is_known() && p.early.is_known() && p.agrees(found);
        let before = self.pieces.range_mut(..from).next_back();
        if let Some((start, piece)) = before.filter(|(_, p)| left && p.end == from && fits(p)) {
            piece.end = to;
            return Some(*start);
        }
        let after = self.pieces.get(&to).copied().filter(|p| right && fits(p))?;
        self.pieces.remove(&to);
        self.pieces.insert(from, after);
        Some(from)
    }

    fn doubt(&mut self, mark: Option<Mark>, now: Ns) {
        if let Some(mark) = mark.filter(|m| now.saturating_sub(m.at) > STALE) {
            self.doubted.insert(mark.block);
        }
    }

    /// The fair share of a region, doubled, in blocks.
    fn cap(&self) -> u64 {
        let fair = (self.blocks * 2).div_ceil(self.sampling.max_regions as u64);
        let most = self.sampling.max_region.map_or(u64::MAX, |b| b.0 / BLOCK_SIZE);
        fair.min(most).max(1)
    }

    /// Merges regions that are alike, the most alike first if there are too many, and cuts what is larger than the cap.
    fn tidy(&mut self) {
        self.settled = 0;
        let cap = self.cap();
        let mut list: Vec<(BlockNo, Piece)> = std::mem::take(&mut self.pieces).into_iter().collect();
        merge(&mut list, |a, b| a.is_like(b), cap);
        let max = self.sampling.max_regions;
        let mut bound = 0.5;
        while list.len() > max && bound < 256.0 {
            // Once everything within the cap is one, it has to give way; separate ranges were bridged by `refit`.
            merge(&mut list, |a, b| a.unlike(b) <= bound, if bound < 64.0 { cap } else { u64::MAX });
            bound *= 2.0;
        }
        let mut room = max.saturating_sub(list.len()) as u64;
        for (start, piece) in list {
            if let Some(seam) = piece.seam().filter(|_| room > 0) {
                room -= 1;
                self.pieces.insert(start, piece.part_by_marks(start, seam));
                self.pieces.insert(seam, piece.part_by_marks(seam, piece.end));
                self.open.insert(seam);
                continue;
            }
            let cells = (piece.end.0 - start.0).div_ceil(cap).min(room + 1);
            room -= cells - 1;
            self.insert_cells(start, &piece, cells);
        }
        self.open = std::mem::take(&mut self.open).into_iter().filter(|cut| self.gap_at(*cut).is_some()).collect();
    }

    fn insert_cells(&mut self, start: BlockNo, piece: &Piece, cells: u64) {
        let blocks = piece.end.0 - start.0;
        let bound = |no: u64| BlockNo(start.0 + blocks / cells * no + blocks % cells * no / cells);
        for no in 0..cells {
            self.pieces.insert(bound(no), piece.part(bound(no), bound(no + 1)));
        }
    }

    /// Counts since the start.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Regions now.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Blocks in all regions.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Regions that were never looked at.
    pub fn unlooked(&self) -> usize {
        self.pieces.values().filter(|p| !p.is_known()).count()
    }

    /// Sums it up. Pages are counted by the shares of those looked at, so numbers of pages are estimates.
    pub fn summarize(&self, max_regions: usize, before: &[Region], elapsed: Ns) -> Summary {
        let mut sum = self.count();
        let mut builder = RegionBuilder::new();
        let mut alike: Option<(BlockNo, Piece)> = None;
        for (&start, piece) in &self.pieces {
            match &mut alike {
                Some((from, all)) if all.end == start && all.is_like(piece) => {
                    let blocks = all.end.0 - from.0;
                    all.join(piece, blocks, piece.end.0 - start.0);
                }
                other => {
                    if let Some((from, all)) = other.replace((start, *piece)) {
                        tell(&mut builder, from, &all);
                    }
                }
            }
        }
        if let Some((from, all)) = alike {
            tell(&mut builder, from, &all);
        }
        sum.regions = builder.finish(max_regions);
        carry_ages(&mut sum.regions, before, elapsed);
        sum
    }

    /// The histograms: by region, and then put right by what random looks were off.
    fn count(&self) -> Summary {
        let (mut known, mut known_pages, mut unmeasured) = (Kinds::default(), 0, 0);
        for (start, piece) in &self.pieces {
            let pages = resident(*start, piece);
            match piece.told() {
                Some(kinds) => {
                    known.add(&kinds, pages as f64);
                    known_pages += pages;
                }
                None => unmeasured += pages,
            }
        }
        if self.stood_for > 0.0 {
            // A few looks drawn at random say less than what all looks together have made of the regions.
            let trust = self.compared / (self.compared + ENOUGH_TO_TRUST);
            known.put_right(&self.surplus, trust * known_pages as f64 / self.stood_for);
        }
        let mut sum = Summary::default();
        for (interval, idle, pages) in whole_pages(&known, known_pages) {
            sum.temperature.add(interval, pages);
            sum.idle.add(idle, pages);
        }
        for histogram in [&mut sum.temperature, &mut sum.idle] {
            histogram.add(Interval::UNMEASURED, unmeasured);
        }
        sum
    }
}

fn tell(builder: &mut RegionBuilder, start: BlockNo, piece: &Piece) {
    let pages = resident(start, piece);
    let counted = match piece.told() {
        Some(kinds) => {
            let mut of_pages = Kinds::default();
            of_pages.add(&kinds, pages as f64);
            whole_pages(&of_pages, pages)
        }
        None => vec![(Interval::UNMEASURED, Interval::UNMEASURED, pages)],
    };
    if pages > 0 {
        let huge = part_of(pages, f64::from(piece.huge));
        builder.mixed(AddrRange::new(start.addr(), piece.end.addr()), huge, &counted);
    }
}

/// Pages present in a region, as far as its looks tell.
fn resident(start: BlockNo, piece: &Piece) -> u64 {
    let all = (piece.end.0 - start.0) * PAGES_PER_BLOCK as u64;
    if piece.is_known() { part_of(all, f64::from(piece.resident)) } else { all }
}

/// Interval, idle time and number of pages, `all` together.
fn whole_pages(kinds: &Kinds, all: u64) -> Vec<(Interval, Interval, u64)> {
    let mut left = all;
    let mut counted: Vec<_> = kinds
        .intervals()
        .map(|(interval, idle, pages)| {
            let pages = part_of(1, pages).min(left);
            left -= pages;
            (interval, idle, pages)
        })
        .collect();
    match counted.last_mut() {
        // What rounding has left over.
        Some(last) => last.2 += left,
        None => counted.push((Interval::UNMEASURED, Interval::UNMEASURED, left)),
    }
    counted.retain(|c| c.2 > 0);
    counted
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share, 0 to 1, of a number of pages")]
fn part_of(pages: u64, share: f64) -> u64 {
    (pages as f64 * share).round() as u64
}

fn merge(list: &mut Vec<(BlockNo, Piece)>, alike: impl Fn(&Piece, &Piece) -> bool, cap: u64) {
    list.dedup_by(|(next_start, next), (start, kept)| {
        let blocks = next.end.0 - start.0;
        let joined = kept.end == *next_start && blocks <= cap && alike(kept, next);
        if joined {
            kept.join(next, next_start.0 - start.0, next.end.0 - next_start.0);
        }
        joined
    });
}

/// Runs of neighbouring blocks.
fn ranges_of(blocks: &[BlockNo]) -> Vec<AddrRange> {
    let mut ranges: Vec<AddrRange> = Vec::new();
    for block in blocks {
        match ranges.last_mut() {
            Some(last) if last.end == block.addr() => last.end = block.next().addr(),
            _ => ranges.push(block.range()),
        }
    }
    ranges
}

#[cfg(test)]
mod tests;
