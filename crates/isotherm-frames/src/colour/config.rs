//! Configuration of colouring: the cache to place for, and the metadata that this needs.

use super::bytes;
use super::tree::Shape;
use crate::Order;
use crate::memory::bytes_for;
use core::sync::atomic::AtomicU64;

/// A load is one byte, so memory of more layers (multiples of the cache) than this is not coloured.
const MAX_LAYERS: u64 = 250;
/// Most granules that are compared for one allocation. More would hold the zone lock longer for little gain.
const MAX_CANDIDATES: u32 = 64;

/// How frames are chosen by colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// A granule of a colour with the smallest load.
    Exact,
    /// Draws this many free granules at random, 1 to 64, and takes the one whose colour has the smallest load. 1 is
    /// random placement.
    BestOf(u32),
}

/// A direct-mapped cache to place for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colouring {
    /// The size of the cache in frames, a multiple of 1,024. Frames this far apart compete. If the cache is larger than
    /// the zone's span, no two frames compete, and there are as many colours as granules.
    pub cache_frames: u64,
    /// The order of a granule, the block by which colours are counted: the order that most allocations have.
    pub granule: Order,
    /// How to choose.
    pub choice: Choice,
}

/// Sizes that follow from the colouring and the span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) granules: usize,
    pub(super) colours: usize,
    pub(super) levels: usize,
}

impl Colouring {
    /// Exact placement of single frames for a cache of `cache_frames` frames.
    pub const fn exact(cache_frames: u64) -> Colouring {
        Colouring { cache_frames, granule: Order::FRAME, choice: Choice::Exact }
    }

    /// Checks the configuration for `frames` frames of memory. The error says what is wrong.
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
