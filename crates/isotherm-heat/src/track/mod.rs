//! What is kept of a target while it is watched, whichever way that is: one type for each way, behind [`Tracker`].
//!
//! A tracker puts a store of heat ([`crate::Target`], [`crate::SampledTarget`], ...) and a source together: it asks for what is due,
//! hands the answers to the store, and sums it up. The monitor, which has the time and the budgets, knows no kinds: it gives each
//! tracker its [`Turn`]s. A new way to watch is a module here.
//!
//! | module | watches by | asks |
//! |---|---|---|
//! | [`pages`] | every page | [`PageSource`], and reports beside it |
//! | [`sampled`] | a block here and there | the same |
//! | [`mappings`] | how much of a mapping | [`MappingSource`] |
//! | [`regions`] | the regions of a monitor of the kernel's | [`RegionSource`] |
//! | [`reports`] | accesses that are reported | [`ReportSource`] |

mod mappings;
mod pages;
mod regions;
mod reports;
mod sampled;
mod tracker;

pub use tracker::{Allotment, CLEAR_BATCH, ClearQuota, Extent, SampledExtent, Spent, Tracker, Tracking, Turn};

use crate::source::{Accesses, Description};
use crate::{Granularity, Ns, ReportedTarget};

/// The tracker for a target that `source` has just begun to watch, of which nothing is known.
pub fn begin(source: &Description, now: Ns, tracking: Tracking) -> Box<dyn Tracker> {
    if let Accesses::Only(silence) = source.accesses {
        return Box::new(reports::ReportTracker::new(now, silence));
    }
    match source.granularity {
        Granularity::Page => {
            let beside = source.accesses.silence().map(|silence| Box::new(ReportedTarget::new(now, silence)));
            Box::new(pages::PageTracker::new(now, tracking, beside))
        }
        Granularity::Mapping => Box::new(mappings::MappingTracker::new(now, tracking.sampling.max_slowdown_pct)),
        Granularity::Region => Box::new(regions::RegionTracker::default()),
    }
}

#[cfg(test)]
mod tests;
