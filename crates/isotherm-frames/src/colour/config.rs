//! A direct-mapped cache to place for, and what that takes in memory.

use super::bytes;
use super::tree::Shape;
use crate::Order;
use crate::memory::bytes_for;
use core::sync::atomic::AtomicU64;

/// Loads are bytes: memory of more caches than this is not coloured.
const MAX_LAYERS: u64 = 250;
/// Granules that may be compared for one allocation: more would hold the zone's lock for longer than they improve anything.
const MAX_CANDIDATES: u32 = 64;

/// How frames are chosen by colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Of a colour with the smallest load.
    Exact,
    /// Of the colour with the smallest load among this many free granules drawn at random, 1 to 64; 1 is random placement.
    BestOf(u32),
}

/// A direct-mapped cache to place for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colouring {
    /// Its size in frames: frames this far apart compete. A multiple of 1,024. In one that is larger than the zone's span no two
    /// frames compete: then there are as many colours as granules.
    pub cache_frames: u64,
    /// The blocks that are counted by colour: the order that most allocations have.
    pub granule: Order,
    /// How to choose.
    pub choice: Choice,
}

/// Sizes that follow from a colouring and a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) granules: usize,
    pub(super) colours: usize,
    pub(super) levels: usize,
}

impl Colouring {
    /// A cache of `cache_frames`, exactly, for single frames.
    pub const fn exact(cache_frames: u64) -> Colouring {
        Colouring { cache_frames, granule: Order::FRAME, choice: Choice::Exact }
    }

    /// What is wrong with it, for `frames` frames of memory.
    pub(crate) fn check(&self, frames: u64) -> Result<(), &'static str> {
        let largest = u64::from(Order::MAX.frames());
        if self.cache_frames == 0 || !self.cache_frames.is_multiple_of(largest) {
            return Err("the cache must be a multiple of 1,024 frames (4 MiB)");
        }
        if frames / self.cache_frames >= MAX_LAYERS {
            return Err(
                "the memory is more than 250 times the cache: give a larger cache, or colour a part of the memory",
            );
        }
        match self.choice {
            Choice::BestOf(0) => Err("the best of 0 candidates: give at least 1"),
            Choice::BestOf(k) if k > MAX_CANDIDATES => Err("the best of more than 64 candidates: give fewer, or Exact"),
            _ => Ok(()),
        }
    }

    pub(super) fn sizes(&self, frames: usize) -> Sizes {
        let shift = self.granule.get();
        let granules = frames >> shift;
        let colours = usize::try_from(self.cache_frames >> shift).map_or(granules, |colours| colours.min(granules));
        let levels = match self.choice {
            Choice::Exact => granules.div_ceil(colours) + 1,
            Choice::BestOf(_) => 0,
        };
        Sizes { granules, colours: colours.max(1), levels }
    }

    /// Bytes of metadata for `frames` frames.
    pub(crate) fn metadata_bytes(&self, frames: usize) -> usize {
        let Sizes { granules, colours, levels } = self.sizes(frames);
        bytes_for::<AtomicU64>(granules.div_ceil(64) + 1)
            + 2 * bytes_for::<AtomicU64>(bytes::words(colours))
            + bytes_for::<AtomicU64>(levels * Shape::new(colours).map_or(0, |shape| shape.words()))
    }
}
