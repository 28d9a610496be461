//! What the rate would be had the frames been placed in another way, and the best that any way can do.
//!
//! - *Shuffled*: as a kernel does with `page_alloc.shuffle=Y`. It shuffles its free lists by blocks of 4 MiB, so what lies together in a
//!   block stays together, and the block is at a random place among all of memory's.
//! - *Coloured*: an allocator that fills all colours evenly and knows nothing of heat.
//! - *Coloured by heat*: the same with the hottest frames beside the coldest, for which it would have to know heat beforehand.
//! - *Unavoidable*: what misses in any cache of that size, whatever it holds.

use super::conflict::{Load, Misses};
use super::footprint::{BLOCK_FRAMES, Footprint};
use super::geometry::DirectMapped;
use isotherm_rng::Rng;
use isotherm_units::Bytes;
use std::cmp::Reverse;

/// The hit rate, 0 to 1, of a share `f` (above 0, to 1) of all memory, accessed evenly and scattered at random frame by frame, behind a
/// direct-mapped cache of a part of memory of 1 / `memory_per_cache`.
///
/// A colour has R frames of memory, each in use with probability f, and hits once for all that it holds: it holds any with
/// probability 1 - (1 - f)^R, and f R in the mean.
pub fn shuffled_hit(f: f64, memory_per_cache: f64) -> f64 {
    if f <= 0.0 || memory_per_cache <= 0.0 {
        return 1.0;
    }
    ((1.0 - (1.0 - f.min(1.0)).powf(memory_per_cache)) / (memory_per_cache * f)).min(1.0)
}

/// The hit rate, 0 to 1, of memory accessed evenly that is spread evenly over all colours; `footprint_per_cache` is how many times the
/// cache it is.
pub fn coloured_hit(footprint_per_cache: f64) -> f64 {
    if footprint_per_cache <= 1.0 { 1.0 } else { 1.0 / footprint_per_cache }
}

/// A rate that was drawn several times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    draws: u32,
    sum: f64,
    least: f64,
    most: f64,
}

impl Spread {
    /// Adds a draw.
    pub fn add(&mut self, rate: f64) {
        let first = self.draws == 0;
        self.least = if first { rate } else { self.least.min(rate) };
        self.most = if first { rate } else { self.most.max(rate) };
        self.draws += 1;
        self.sum += rate;
    }

    /// How many draws.
    pub const fn draws(&self) -> u32 {
        self.draws
    }

    /// Their mean; `None` before the first.
    pub fn mean(&self) -> Option<f64> {
        (self.draws > 0).then(|| (self.sum / f64::from(self.draws)).clamp(self.least, self.most))
    }

    /// The lowest; `None` before the first.
    pub fn least(&self) -> Option<f64> {
        (self.draws > 0).then_some(self.least)
    }

    /// The highest; `None` before the first.
    pub fn most(&self) -> Option<f64> {
        (self.draws > 0).then_some(self.most)
    }
}

/// Places for blocks, drawn at random.
///
/// Four bytes for each block of 4 MiB of memory: 2 MiB for 2 TiB.
#[derive(Clone, Debug)]
pub struct Shuffle {
    places: Vec<u32>,
}

impl Shuffle {
    /// All places in `memory`, which is taken as without holes and from frame 0 on; at least as many as `footprint` has blocks. A part of
    /// a block counts as one, and beyond 16 PiB there are no more.
    pub fn new(memory: Bytes, footprint: &Footprint) -> Shuffle {
        let blocks = memory.pages().div_ceil(BLOCK_FRAMES).max(footprint.blocks());
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Shuffle { places: (0..blocks).collect() }
    }

    /// How many places there are.
    pub fn blocks(&self) -> u64 {
        self.places.len() as u64
    }

    /// Draws a place for each block of the footprint that this was made for, each as likely as the next, and computes the misses there.
    pub fn draw(&mut self, footprint: &Footprint, cache: DirectMapped, rng: &mut Rng) -> Misses {
        let all = self.places.len();
        let wanted = usize::try_from(footprint.blocks()).map_or(all, |n| n.min(all));
        // The first steps of a Fisher-Yates shuffle. It may begin with any order: that of the draw before does.
        for at in 0..wanted {
            let other = at + usize::try_from(rng.below((all - at) as u64)).unwrap_or_default();
            self.places.swap(at, other);
        }
        footprint.misses_at(cache, |index| u64::from(self.places.get(index).copied().unwrap_or_default()))
    }
}

/// The misses of one draw with frames dealt out evenly over the colours, without regard to heat. Takes four bytes a frame and 24 a colour
/// that is used; some 20 ns a frame.
pub fn coloured(footprint: &Footprint, cache: DirectMapped, rng: &mut Rng) -> Misses {
    let mut weights: Vec<f32> = footprint.weights().collect();
    if !footprint.is_uniform() {
        for at in 0..weights.len() {
            let other = at + usize::try_from(rng.below((weights.len() - at) as u64)).unwrap_or_default();
            weights.swap(at, other);
        }
    }
    let mut loads = used(cache, weights.len());
    let colours = loads.len().max(1);
    for layer in weights.chunks(colours) {
        loads.iter_mut().zip(layer).for_each(|(load, weight)| load.add(f64::from(*weight)));
    }
    sum(&loads)
}

/// The misses with frames dealt out evenly over the colours, the hottest beside the coldest: layer by layer, the hottest frame that is
/// left goes to the colour that weighs least so far. For up to two frames a colour no even placement has fewer misses: of two frames
/// `a` and `b` together `2 a b / (a + b)` misses, the sum of which is least if one is sorted upwards and the other down. Beyond two
/// it is a good one, not shown to be the best.
///
/// Takes four bytes a frame and 24 a colour that is used; sorts all frames, and the colours once a layer.
pub fn coloured_by_heat(footprint: &Footprint, cache: DirectMapped) -> Misses {
    let mut weights: Vec<f32> = footprint.weights().collect();
    weights.sort_unstable_by(|a, b| b.total_cmp(a));
    let mut loads = used(cache, weights.len());
    let colours = loads.len().max(1);
    for (number, layer) in weights.chunks(colours).enumerate() {
        if number > 0 && !footprint.is_uniform() {
            loads.sort_unstable_by(|a, b| a.weight.total_cmp(&b.weight));
        }
        loads.iter_mut().zip(layer).for_each(|(load, weight)| load.add(f64::from(*weight)));
    }
    sum(&loads)
}

/// The share of accesses, 0 to 1, that goes to frames beyond those that the cache can hold if it holds the hottest; `None` if nothing is
/// accessed. Under independent references no cache of that size misses less.
pub fn unavoidable(footprint: &Footprint, cache: DirectMapped) -> Option<f64> {
    let mut weights: Vec<f32> = footprint.weights().collect();
    let room = usize::try_from(cache.frames()).unwrap_or(usize::MAX);
    let beyond: f64 = if room >= weights.len() {
        0.0
    } else {
        weights.select_nth_unstable_by_key(room, |weight| Reverse(weight.to_bits()));
        weights[room..].iter().map(|weight| f64::from(*weight)).sum()
    };
    let all: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    (all > 0.0).then_some(beyond / all)
}

/// The colours that so many frames fill if they are dealt out evenly.
fn used(cache: DirectMapped, frames: usize) -> Vec<Load> {
    let colours = usize::try_from(cache.frames()).unwrap_or(usize::MAX);
    vec![Load::default(); colours.min(frames)]
}

fn sum(loads: &[Load]) -> Misses {
    let mut misses = Misses::default();
    loads.iter().for_each(|load| misses.add(load));
    misses
}
