//! The frames in use with their weights, grouped by block so that blocks can be moved.
//!
//! A frame takes two bytes for its place in its block, and four for its weight unless all weights are equal.
//! [`Footprint::misses_at`] computes rates at other places. It goes over the colours from 0 up with a window of a few
//! thousand, which stays in the processor's cache whatever the size of the modelled cache.

use super::conflict::{Conflict, Load, Misses};
use super::geometry::DirectMapped;
use isotherm_units::FrameNo;
use std::collections::BTreeMap;

/// The order of the blocks by which the kernel shuffles its free lists: 4 MiB.
pub const SHUFFLE_ORDER: u32 = 10;
/// Frames in such a block.
pub(super) const BLOCK_FRAMES: u64 = 1 << SHUFFLE_ORDER;
/// Colours processed together.
const WINDOW: usize = 8192;

/// Frames in use, each once, and how often each is accessed.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    /// Each block in use, in order: its number, and the index of its first frame in `places`.
    blocks: Vec<(u64, usize)>,
    /// The place of each frame in its block, 0 to 1,023.
    places: Vec<u16>,
    /// The weight of each frame; empty if all weigh 1.
    weights: Vec<f32>,
}

/// Frames as they are found, once per mapping. [`Gather::finish`] makes a [`Footprint`] of them.
///
/// Takes 16 bytes a frame. Frames that are found again take as much until the next merge, which happens from time to
/// time. So many processes that share their memory take no more than one of them. Sorting takes about two seconds for
/// 16 million frames.
#[derive(Clone, Debug)]
pub struct Gather {
    weighted: bool,
    found: Vec<(FrameNo, f32)>,
    pages: u64,
    sort_at: usize,
}

impl Gather {
    /// Frames that all have the same weight, however often each is mapped.
    pub const fn uniform() -> Gather {
        Gather { weighted: false, found: Vec::new(), pages: 0, sort_at: 1 << 20 }
    }

    /// Frames with their accesses, summed over all mappings of a frame.
    pub const fn weighted() -> Gather {
        Gather { weighted: true, found: Vec::new(), pages: 0, sort_at: 1 << 20 }
    }

    /// Adds a page that is mapped to `frame`. `weight` is ignored unless frames are weighted. A weight that is NaN,
    /// infinite or below 0 counts as 0.
    pub fn add(&mut self, frame: FrameNo, weight: f32) {
        let weight = if weight.is_finite() { weight.max(0.0) } else { 0.0 };
        self.found.push((frame, if self.weighted { weight } else { 1.0 }));
        self.pages += 1;
        self.keep_short();
    }

    /// Adds everything that `other` has found, as if each frame had been added here. Both have to be of one kind,
    /// uniform or weighted. Costs nothing if nothing was added here yet. Until it returns, it takes the memory of both.
    pub fn absorb(&mut self, other: Gather) {
        debug_assert_eq!(self.weighted, other.weighted, "one kind");
        self.pages += other.pages;
        if self.found.is_empty() {
            (self.found, self.sort_at) = (other.found, other.sort_at);
        } else {
            self.found.extend(other.found);
            self.keep_short();
        }
    }

    fn keep_short(&mut self) {
        if self.found.len() >= self.sort_at {
            self.bring_together();
            self.sort_at = (self.found.len() * 2).max(1 << 20);
        }
    }

    /// Pages added so far. Every mapping of a frame counts.
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    fn bring_together(&mut self) {
        self.found.sort_unstable_by_key(|(frame, _)| *frame);
        let weighted = self.weighted;
        self.found.dedup_by(|again, kept| {
            let same = again.0 == kept.0;
            kept.1 += if same && weighted { again.1 } else { 0.0 };
            same
        });
    }

    /// All frames found, each once.
    pub fn finish(mut self) -> Footprint {
        self.bring_together();
        let mut footprint = Footprint { places: Vec::with_capacity(self.found.len()), ..Footprint::default() };
        for (frame, weight) in self.found {
            footprint.push(frame);
            if self.weighted {
                footprint.weights.push(weight);
            }
        }
        footprint
    }
}

/// Frames of a block that lie in neighbouring colours, from `colour` up.
struct Piece {
    colour: u64,
    /// Place in the block of the frame at `colour`.
    place: u16,
    /// Its frames, as a range of indexes into all frames.
    from: usize,
    to: usize,
}

impl Footprint {
    /// Frames that are all accessed equally often; see [`Gather::uniform`].
    pub fn uniform(frames: impl IntoIterator<Item = FrameNo>) -> Footprint {
        let mut gather = Gather::uniform();
        frames.into_iter().for_each(|frame| gather.add(frame, 1.0));
        gather.finish()
    }

    /// Frames with their accesses, in any unit; see [`Gather::weighted`].
    pub fn weighted(frames: impl IntoIterator<Item = (FrameNo, f32)>) -> Footprint {
        let mut gather = Gather::weighted();
        frames.into_iter().for_each(|(frame, weight)| gather.add(frame, weight));
        gather.finish()
    }

    fn push(&mut self, frame: FrameNo) {
        let block = frame.0 >> SHUFFLE_ORDER;
        if self.blocks.last().is_none_or(|(last, _)| *last != block) {
            self.blocks.push((block, self.places.len()));
        }
        // Masked to ten bits.
        self.places.push(u16::try_from(frame.0 & (BLOCK_FRAMES - 1)).unwrap_or_default());
    }

    /// Number of frames.
    pub fn frames(&self) -> u64 {
        self.places.len() as u64
    }

    /// Number of 4 MiB blocks with a frame in use.
    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Whether all frames have the same weight.
    pub fn is_uniform(&self) -> bool {
        self.weights.is_empty()
    }

    /// The weights of the frames, in no particular order.
    pub fn weights(&self) -> impl ExactSizeIterator<Item = f32> + '_ {
        (0..self.places.len()).map(|index| self.weight(index))
    }

    /// Each frame with its weight, in order.
    pub fn iter(&self) -> impl Iterator<Item = (FrameNo, f32)> + '_ {
        (0..self.blocks.len()).flat_map(move |index| {
            let first = self.blocks[index].0 << SHUFFLE_ORDER;
            let (from, to) = self.frames_of(index);
            (from..to).map(move |i| (FrameNo(first + u64::from(self.places[i])), self.weight(i)))
        })
    }

    /// Splits it by a key of each frame, such as its node. All parts are in order and of the same kind, weighted or
    /// not. Calls `key_of` for every frame, in order. Takes as much memory again.
    pub fn split<K: Ord>(&self, mut key_of: impl FnMut(FrameNo) -> K) -> BTreeMap<K, Footprint> {
        let mut parts: BTreeMap<K, Footprint> = BTreeMap::new();
        for (frame, weight) in self.iter() {
            let part = parts.entry(key_of(frame)).or_default();
            part.push(frame);
            if !self.is_uniform() {
                part.weights.push(weight);
            }
        }
        parts
    }

    /// Total weight of all frames.
    pub fn weight_of_all(&self) -> f64 {
        self.weights().map(f64::from).sum()
    }

    /// The misses with the frames where they are.
    pub fn conflict(&self, cache: DirectMapped) -> Conflict {
        let mut conflict = Conflict::new(cache);
        self.iter().for_each(|(frame, weight)| conflict.add(frame, f64::from(weight)));
        conflict
    }

    /// The misses with each block at another place: `place_of` returns the new block number of the n-th block in use.
    ///
    /// Sorts the blocks by colour and goes over the frames once. Takes 40 bytes a block, and about 100 ms for 16
    /// million frames.
    pub(super) fn misses_at(&self, cache: DirectMapped, place_of: impl Fn(usize) -> u64) -> Misses {
        let mut pieces = Vec::with_capacity(self.blocks.len());
        (0..self.blocks.len()).for_each(|index| self.cut(index, place_of(index), cache, &mut pieces));
        pieces.sort_unstable_by_key(|piece| piece.colour);
        let mut misses = Misses::default();
        // Colours from `base` on. A piece that begins in the first WINDOW of them ends before the end of `loads`.
        let mut loads = vec![Load::default(); WINDOW + (1 << SHUFFLE_ORDER)];
        let mut base = 0;
        for piece in &pieces {
            if piece.colour >= base + WINDOW as u64 {
                loads[..WINDOW].iter().for_each(|load| misses.add(load));
                // The part that reached beyond the window is now at the front.
                loads.copy_within(WINDOW.., 0);
                loads[1 << SHUFFLE_ORDER..].fill(Load::default());
                let next = base + WINDOW as u64;
                if piece.colour >= next + WINDOW as u64 {
                    // No piece begins in between: only the part that reached beyond the window is left.
                    loads.iter().for_each(|load| misses.add(load));
                    loads.fill(Load::default());
                    base = piece.colour;
                } else {
                    base = next;
                }
            }
            let first = usize::try_from(piece.colour - base).expect("within the window");
            for index in piece.from..piece.to {
                loads[first + usize::from(self.places[index] - piece.place)].add(f64::from(self.weight(index)));
            }
        }
        loads.iter().for_each(|load| misses.add(load));
        misses
    }

    /// Cuts a block at `place` into pieces where its colours wrap around to 0.
    fn cut(&self, index: usize, place: u64, cache: DirectMapped, pieces: &mut Vec<Piece>) {
        let (mut from, to) = self.frames_of(index);
        while from < to {
            // From the first remaining frame to the highest colour.
            let first = self.places[from];
            let colour = cache.colour_of(FrameNo((place << SHUFFLE_ORDER) + u64::from(first)));
            let room = cache.frames() - colour;
            let len = self.places[from..to].partition_point(|place| u64::from(place - first) < room);
            pieces.push(Piece { colour, place: first, from, to: from + len });
            from += len;
        }
    }

    fn frames_of(&self, index: usize) -> (usize, usize) {
        (self.blocks[index].1, self.blocks.get(index + 1).map_or(self.places.len(), |next| next.1))
    }

    #[inline]
    fn weight(&self, index: usize) -> f32 {
        self.weights.get(index).copied().unwrap_or(1.0)
    }
}
