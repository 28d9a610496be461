//! Measures whether frames at a distance compete for lines of a memory-side cache, for machines whose firmware does not
//! report it, or reports it wrongly.
//!
//! Two pages whose frames are exactly that distance apart are read in turn, past the CPU's own caches. If they share
//! lines of a direct-mapped cache, each read evicts what the other has fetched, and everything comes from the slow
//! memory. Otherwise both stay in the cache. Absolute times differ from machine to machine and from minute to minute,
//! so they are only compared with those of a *control*: the same first page with a page near the second. The control is
//! on the same node, in the same kind of memory, and certainly shares no line with the first page. Both pairs are timed
//! right after each other, in random order for each sample. [`mod@judge`] uses the ratios of pairs and not sums.
//!
//! Other differences between the pairs are kept small: half of the lines of a page are read in one go, in an order that
//! no prefetcher follows. So two pages in one memory bank, which cost more for each *change* between them, matter
//! little.
//!
//! A multiple of the cache's size competes too: of several sizes in conflict the smallest is the cache's. In a virtual
//! machine frames are the guest's, and their distance is meaningful only if the host backs the guest by large
//! contiguous pieces.
//!
//! Nothing is pinned. The frames are read again after each sample, and samples of pages that have moved are discarded.

mod judge;
mod measure;
#[cfg(test)]
mod tests;

pub use judge::{Evidence, Sample, Unsure, Verdict, judge};
pub use measure::{Limits, PagesByFrame, Probed, probe};

use isotherm_units::Bytes;

/// Sizes worth a try on a machine with this much memory: powers of two and their one and a half times, from 1 GiB up to
/// all of it.
pub fn candidates(memory: Bytes) -> Vec<Bytes> {
    let powers = (30..62).map(|shift| 1_u64 << shift);
    powers.flat_map(|size| [size, size + size / 2]).take_while(|size| *size <= memory.0).map(Bytes).collect()
}
