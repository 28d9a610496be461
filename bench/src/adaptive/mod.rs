//! DAMON's algorithm in user space, for comparison: adaptive regions, which give the access rate of memory that is too
//! large to check page by page.
//!
//! `bench-scale` and `bench-sampling` run it. It is here and not in `isotherm-heat`, because the product samples in
//! another way (its `sampled`), and only benches called it.
//!
//! A [`Context`] checks one page per region and sample, and treats it as representative of the region. It corrects its
//! own errors: after each aggregation, neighbours with similar rates merge, and the remaining regions are cut in two or
//! three at random. So a region that hid a difference is found out, and one that did not is merged again a round later.
//! The cost grows with the number of regions, which has a limit, and not with the size of memory.
//!
//! The vocabulary and the rules are those of DAMON (sample, aggregation, nr_accesses, age, min and max regions, an
//! intervals goal), which its users know. The numbers that its tests assert are tests here. These differences are
//! deliberate:
//!
//! - A sample may count for more than one access: a source that reports 512 pages at once has an [`Attrs::weight`] of
//!   512.
//! - The minimum and maximum numbers of regions are kept at all times, not only after an aggregation. The limit on the
//!   size of a region follows the current memory, not that of one aggregation ago. If both limits cannot be kept, the
//!   maximum wins. Only a larger number of separate ranges leads to more regions.
//! - Each context has its own number of regions at the last split, which decides between cutting in two and in three.
//! - Intervals are tuned by all aggregations since the last tuning, not only by the last one.
//! - A region that is cut apart by several ranges keeps its counters in each of them.
//! - The moving sum of accesses is computed on request, so it adds no cost to a sample.
//!
//! Nothing here depends on page tables or on the time. The caller asks a source about the pages that [`Context::draw`]
//! returns, passes the answers to [`Context::check`], and sleeps a sampling interval in between.

mod attrs;
mod context;
mod counters;
#[cfg(test)]
mod invariants;
mod merge;
mod split;
mod tune;

pub use attrs::{Attrs, AttrsError, Goal};
pub use context::{Aggregated, Context, Due, Sample};
pub use counters::{Counters, accesses_bp, moving_sum_bp};
