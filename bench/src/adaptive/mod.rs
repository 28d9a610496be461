//! DAMON's algorithm in user space, to be compared with: adaptive regions, the access rate of memory too large to look at page by page.
//!
//! `bench-scale` and `bench-sampling` run it. It stands here and not in `isotherm-heat`, since the product samples otherwise (its
//! `sampled`), and nothing but benches called it.
//!
//! A [`Context`] looks at one page of each region and sample, and takes it for the region. What that gets wrong it puts right
//! itself: after each aggregation neighbours of like rate merge, and what is left is cut in two or three at random, so that a
//! region that hid a difference is found out and one that hid none is whole again a round later. The cost follows the
//! number of regions, which has a bound, and not the size of memory.
//!
//! The vocabulary and the rules are those of DAMON (sample, aggregation, nr_accesses, age, min and max regions, an intervals
//! goal), which its users know; the numbers that its tests assert are tests here. What differs, on purpose:
//!
//! - A sample may count for more than one access: a source that answers for 512 pages at once has a [`Attrs::weight`] of 512.
//! - The least number of regions and the greatest are kept at every moment, not only after an aggregation, and the limit on
//!   the size of a region is that of the memory as it is now, not as it was an aggregation ago. Where both cannot be kept the
//!   greatest wins; only more separate ranges than that make more regions.
//! - The number of regions at the last split, which decides between cutting in two and in three, is each context's own.
//! - Intervals are tuned by all aggregations since the last tuning, not by the last one.
//! - A region that several ranges cut apart is remembered in each of them.
//! - The moving sum of accesses is computed when it is asked for: it costs a sample nothing.
//!
//! Nothing here knows page tables or the time. Whoever calls asks a source about the pages that [`Context::draw`] names, hands
//! the answers to [`Context::check`], and sleeps a sampling interval in between.

mod attrs;
mod context;
mod counters;
mod merge;
mod split;
mod tune;

pub use attrs::{Attrs, AttrsError, Goal};
pub use context::{Aggregated, Context, Due, Sample};
pub use counters::{Counters, accesses_bp, moving_sum_bp};
