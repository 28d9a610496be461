//! The arithmetic of a direct-mapped memory-side cache: which frames compete for one place, and how much that costs.
//!
//! Such a cache has one place for each frame of memory, its *colour*: the frame's number modulo the number of frames
//! that the cache holds. Two frames of one colour that are both in use evict each other, even if the rest of the cache
//! is empty. `isotherm placement` feeds this module with the frames of real processes, and tests feed it with frames
//! from an allocator.
//!
//! Pure: frames and weights go in, rates come out, and randomness is an argument. The result is the expected miss rate
//! under *independent references*: each access goes to a frame with a probability equal to the frame's weight, whatever
//! was accessed before. The frame in the cache is then the one of its colour that was accessed last. So a frame of
//! weight `p` hits with probability `p / P`, where `P` is the total weight of all frames of the colour, and a colour's
//! share of hits is `sum p^2 / P`. Real programs access a page several times in a row and miss less than that. First
//! accesses, which miss in any cache, are not counted. [`DirectMappedCache`] simulates each access, and the formula is
//! checked against it.
//!
//! The unit is the frame, not the line of 64 bytes. Frames of one colour compete in each of their lines, and equally
//! often if the lines of a frame are accessed equally. The place is assumed to be the plain remainder, but controllers
//! may hash it (see `docs/guide/placement.md`).
//!
//! [`Conflict`] takes frames as they come and computes the rate as placed. A [`Footprint`] stores them, in six bytes
//! each, to compute their rate elsewhere: [`Shuffle`] (as if the free lists had been shuffled), [`coloured`] and
//! [`coloured_by_heat`].

mod cache;
mod conflict;
mod elsewhere;
mod footprint;
mod geometry;
#[cfg(test)]
mod tests;

pub use cache::DirectMappedCache;
pub use conflict::{Conflict, Load, MAX_HISTOGRAM, Misses};
pub use elsewhere::{Shuffle, Spread, coloured, coloured_by_heat, coloured_hit, shuffled_hit, unavoidable};
pub use footprint::{Footprint, Gather, SHUFFLE_ORDER};
pub use geometry::{CacheError, DirectMapped};
