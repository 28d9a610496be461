//! Whether frames at a distance compete for lines of a memory-side cache, found out by timing: for machines whose
//! firmware does not tell, and for those on which it is wrong.
//!
//! Two pages whose frames are exactly the size in question apart are read in turn, around the processor's own caches.
//! If they share lines of a direct-mapped cache, each reading evicts what the other has brought in, and all of it comes
//! from the slow memory; otherwise both stay. What is slow and what fast differs from machine to machine and from
//! minute to minute, so times are only ever compared with those of a *control*: the same first page with one that lies
//! near the second, and thus on the same node and in the same kind of memory, and surely does not share a line with the
//! first. Both are timed next to each other, in an order that is drawn for each sample. [`judge`] looks at the ratios
//! of pairs and not at sums.
//!
//! What else could tell the two apart is kept small: half of the lines of a page are read in one go, in an order that
//! no prefetcher follows, so that two pages in one bank of memory, which would cost more for each *change* between
//! them, count little.
//!
//! A size of which the cache's is a part competes too: of several sizes in conflict the smallest is the cache's. In a
//! virtual machine frames are the guest's, and their distance says something only if the host backs the guest by large
//! pieces.
//!
//! Nothing is pinned: pages that were moved meanwhile are found by asking for their frames again, and left out.

mod judge;
mod measure;
#[cfg(test)]
mod tests;

pub use judge::{Evidence, Sample, Unsure, Verdict, judge};
pub use measure::{Limits, PagesByFrame, Probed, probe};

use isotherm_units::Bytes;

/// Sizes worth a try on a machine with so much memory: powers of two and their one and a half times, from 1 GiB up to
/// all of it.
pub fn candidates(memory: Bytes) -> Vec<Bytes> {
    let powers = (30..62).map(|shift| 1_u64 << shift);
    powers.flat_map(|size| [size, size + size / 2]).take_while(|size| *size <= memory.0).map(Bytes).collect()
}
