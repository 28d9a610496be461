//! Colouring: frames that compete for a place in a direct-mapped memory-side cache are handed out evenly.
//!
//! In such a cache, frames whose numbers are equal modulo the cache's frames throw each other out; they are said to have the same
//! colour. Shuffling makes it a matter of chance how many frames of a colour are in use; counting makes it none. So: for every
//! colour, how many of its frames are taken (its load), and for every load, the set of colours that have it and a free frame. The
//! next frame is one of a colour of the smallest load. As long as the frames in use fit into the cache, no two of them share a
//! colour, whatever was freed in between. (Frames that wait in per-CPU sets count as in use, and where migrate types have page blocks of
//! their own, a type may have run out of the best colours: then it gets the best that a bounded search finds.)
//!
//! The unit is a *granule*, a block of an order of the caller's choice: 4 KiB where frames are handed out singly, 2 MiB where huge
//! pages are. Blocks of that order are placed exactly. Smaller ones come from granules already begun, then from the best new one;
//! larger ones are the best of a few candidates. The other choice, best of k random granules, is there to be compared with: it is
//! the better shuffle, at a fraction of the books, and it does not reach zero.
//!
//! Costs, for memory of R caches: a bit and 2/R bytes a granule, and R + 1 bits a colour. Time is spent where the zone's lock is
//! held, once a refill, on words of 64 colours at a time; handing out from a per-CPU set does not get here.
//!
//! A colour is a frame's number modulo the cache, as the kernel describes direct-mapped caches. What a memory controller hashes
//! on top of that is not known here.
//!
//! | file | job |
//! |---|---|
//! | `config` | the cache to place for, and how to choose |
//! | `loads` | how many granules of each colour are in use and free |
//! | `pick` | the granule to take next |
//! | `levels`, `tree`, `bytes` | sets of colours by load; small counts, eight to a word |
//!
//! Nothing here knows the free lists: the zone asks which granule, and says what was taken and given (`zone/take.rs`).

mod bytes;
mod config;
mod levels;
mod loads;
mod pick;
mod tree;

pub use config::{Choice, Colouring};
pub(crate) use loads::Colours;
pub(crate) use pick::Pick;
