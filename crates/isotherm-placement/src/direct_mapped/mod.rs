//! The arithmetic of a direct-mapped memory-side cache: which frames get in each other's way, and how much that costs.
//!
//! Such a cache has one place for each frame of memory, its *colour*: the frame's number modulo the frames that the cache holds. Two
//! frames of one colour that are both in use throw each other out, however empty the rest of the cache is. Fed by `isotherm placement`
//! with the frames of real processes, and by tests with those that an allocator has handed out.
//!
//! Pure: frames and weights in, rates out; randomness is an argument. What is computed is the expected miss rate under *independent
//! references*: each access goes to a frame with a probability that is the frame's weight, whatever was accessed before. Then the frame
//! that lies in the cache is the one of its colour that was accessed last, so a frame of weight `p` hits with probability `p / P`, where
//! `P` is what all frames of the colour weigh, and a colour's share of hits is `sum p^2 / P`. Real programs access a page several times
//! in a row, which misses less than that; first accesses, which miss in any cache, are not counted. [`DirectMappedCache`] goes access by
//! access and is what the formula is checked against.
//!
//! We go by frames, not by lines of 64 bytes: frames of one colour meet in each of their lines, and meet as often if the lines of a frame
//! are accessed alike. We take the place to be the plain remainder; controllers may hash it (see `docs/guide/placement.md`).
//!
//! [`Conflict`] takes frames as they come, which is what "as placed" is computed with; a [`Footprint`] keeps them, six bytes each, to ask
//! what their rate would be elsewhere: [`Shuffle`] (as if the free lists had been shuffled), [`coloured`] and [`coloured_by_heat`].

mod cache;
mod conflict;
mod elsewhere;
mod footprint;
mod geometry;
#[cfg(test)]
mod tests;

pub use cache::DirectMappedCache;
pub use conflict::{Conflict, HISTOGRAM_MOST, Load, Misses};
pub use elsewhere::{Shuffle, Spread, coloured, coloured_by_heat, coloured_hit, shuffled_hit, unavoidable};
pub use footprint::{Footprint, Gather, SHUFFLE_ORDER};
pub use geometry::{CacheError, DirectMapped};
