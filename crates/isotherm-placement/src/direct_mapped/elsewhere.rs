//! Miss rates of other placements of the same frames, and the lowest rate that any placement can reach.
//!
//! - *Shuffled*: as the kernel does with `page_alloc.shuffle=Y`. It shuffles its free lists by blocks of 4 MiB. Frames
//!   of one block stay together, and the block gets a random place among all blocks of memory.
//! - *Coloured*: an allocator that fills all colours evenly and does not know heat.
//! - *Coloured by heat*: the same, with the hottest frames next to the coldest. The allocator would have to know heat
//!   in advance.
//! - *Unavoidable*: what misses in any cache of that size, whatever it holds.

use super::conflict::{Load, Misses};
use super::footprint::{BLOCK_FRAMES, Footprint};
use super::geometry::DirectMapped;
use isotherm_rng::Rng;
use isotherm_units::Bytes;
use std::cmp::Reverse;

/// The hit rate, 0 to 1, of randomly scattered frames. A share `f` (above 0, to 1) of all memory is in use and accessed
/// evenly. It lies behind a direct-mapped cache that is 1 / `memory_per_cache` of memory.
///
/// A colour has R frames of memory, each in use with probability f. It gets one hit for all the frames that it holds.
/// It holds at least one with probability 1 - (1 - f)^R, and f R on average.
pub fn shuffled_hit(f: f64, memory_per_cache: f64) -> f64 {
    if f <= 0.0 || memory_per_cache <= 0.0 {
        return 1.0;
    }
    ((1.0 - (1.0 - f.min(1.0)).powf(memory_per_cache)) / (memory_per_cache * f)).min(1.0)
}

/// The hit rate, 0 to 1, of evenly accessed memory that is spread evenly over all colours. `footprint_per_cache` is the
/// size of that memory divided by the size of the cache.
pub fn coloured_hit(footprint_per_cache: f64) -> f64 {
    if footprint_per_cache <= 1.0 { 1.0 } else { 1.0 / footprint_per_cache }
}

/// Mean, minimum and maximum of a rate over several draws.
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

    /// Number of draws.
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

/// Random places for blocks.
///
/// Takes four bytes for each block of 4 MiB of memory: 2 MiB for 2 TiB.
#[derive(Clone, Debug)]
pub struct Shuffle {
    places: Vec<u32>,
}

impl Shuffle {
    /// All places in `memory`, which is assumed to start at frame 0 and to have no holes. There are at least as many
    /// places as `footprint` has blocks. A partial block counts as one. Memory beyond 16 PiB is ignored.
    pub fn new(memory: Bytes, footprint: &Footprint) -> Shuffle {
        let blocks = memory.pages().div_ceil(BLOCK_FRAMES).max(footprint.blocks());
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Shuffle { places: (0..blocks).collect() }
    }

    /// Number of places.
    pub fn blocks(&self) -> u64 {
        self.places.len() as u64
    }

    /// Draws a place for each block of the footprint that this was made for, all places equally likely, and computes
    /// the misses there.
    pub fn draw(&mut self, footprint: &Footprint, cache: DirectMapped, rng: &mut Rng) -> Misses {
        let all = self.places.len();
        let wanted = usize::try_from(footprint.blocks()).map_or(all, |n| n.min(all));
        // The first steps of a Fisher-Yates shuffle. It may start from any order, so the order of the previous draw is
        // reused.
        for at in 0..wanted {
            let other = at + usize::try_from(rng.below((all - at) as u64)).unwrap_or_default();
            self.places.swap(at, other);
        }
        footprint.misses_at(cache, |index| u64::from(self.places.get(index).copied().unwrap_or_default()))
    }
}

/// The misses of one draw that spreads frames evenly over the colours, without regard to heat. Takes four bytes a frame
/// and 24 bytes a used colour, and about 20 ns a frame.
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

/// The misses with frames spread evenly over the colours, the hottest next to the coldest. Frames are assigned layer by
/// layer: the hottest remaining frame goes to the colour with the lowest weight so far. For up to two frames a colour,
/// no even placement has fewer misses: two frames `a` and `b` in one colour cause `2 a b / (a + b)` misses, and the sum
/// of that is lowest if one is sorted upwards and the other downwards. Beyond two frames a colour the placement is
/// good, but not proven to be the best.
///
/// Takes four bytes a frame and 24 bytes a used colour. Sorts all frames once, and the colours once a layer.
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

/// The share of accesses, 0 to 1, that goes to frames beyond those that the cache can hold if it holds the hottest;
/// `None` if nothing is accessed. Under independent references, no cache of that size has fewer misses.
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

/// The colours that `frames` frames fill if they are spread evenly.
fn used(cache: DirectMapped, frames: usize) -> Vec<Load> {
    let colours = usize::try_from(cache.frames()).unwrap_or(usize::MAX);
    vec![Load::default(); colours.min(frames)]
}

fn sum(loads: &[Load]) -> Misses {
    let mut misses = Misses::default();
    loads.iter().for_each(|load| misses.add(load));
    misses
}
