//! Colouring: spreads frames that compete for a place in a direct-mapped memory-side cache evenly.
//!
//! In such a cache, frames whose numbers are equal modulo the number of frames in the cache evict each other. They have
//! the same *colour*. Shuffling makes it random how many frames of a colour are in use; colouring counts them. For
//! every colour it counts how many of its frames are in use (the colour's *load*). For every load it keeps the set of
//! colours that have this load and a free frame. The next frame is one of a colour with the smallest load. While the
//! frames in use fit into the cache, no two of them share a colour, whatever was freed in between. There are two
//! exceptions. Frames on per-CPU lists count as in use. And if page blocks of a migrate type have no more granules of
//! the best colours, the zone takes the best that a bounded search finds.
//!
//! The unit is a *granule*, a block of an order that the caller chooses: 4 KiB if most allocations are single frames,
//! 2 MiB if most are huge pages. Blocks of that order are placed exactly. Smaller blocks come from granules that are
//! partly used, then from the best new one. Larger blocks are the best of a few candidates. The alternative, best of k
//! random granules, exists for comparison: it needs much less metadata, but it does not reach zero conflicts.
//!
//! Cost in memory that is R times the cache: a bit and 2/R bytes for each granule, and R + 1 bits for each colour. The
//! work is done under the zone lock, once per refill, on words of 64 colours at a time. Allocations from a per-CPU list
//! do not get here.
//!
//! A colour is a frame's number modulo the cache, as the kernel describes direct-mapped caches. The allocator does not
//! know how a memory controller hashes on top of that.
//!
//! | file | job |
//! |---|---|
//! | `config` | the cache to place for, and how to choose |
//! | `loads` | how many granules of each colour are in use and free |
//! | `pick` | the granule to allocate next |
//! | `levels`, `tree`, `bytes` | sets of colours by load; small counts, eight to a word |
//!
//! Nothing here knows the free lists. The zone asks for a granule, and reports what was allocated and freed
//! (`zone/take.rs`).

mod bytes;
mod config;
mod levels;
mod loads;
mod pick;
mod tree;

pub use config::{Choice, Colouring};
pub(crate) use loads::Colours;
pub(crate) use pick::Pick;
