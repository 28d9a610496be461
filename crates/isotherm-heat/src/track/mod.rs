//! What is stored for a target while it is monitored: one type for each method, behind [`Tracker`].
//!
//! A tracker combines a store of heat ([`crate::Target`], [`crate::SampledTarget`], ...) with a source. It asks for
//! what is due, passes the answers to the store, and sums it up. The monitor, which has the time and the budgets, does
//! not know the kinds of trackers: it gives each tracker its [`Turn`]s. A new method is a module here.
//!
//! | module | monitors by | asks |
//! |---|---|---|
//! | [`pages`] | every page | [`PageSource`](crate::source::PageSource), and reports in addition |
//! | [`sampled`] | single huge ranges | the same |
//! | [`mappings`] | how much of a mapping | [`MappingSource`](crate::source::MappingSource) |
//! | [`regions`] | the regions of a monitor in the kernel | [`RegionSource`](crate::source::RegionSource) |
//! | [`reports`] | accesses that are reported | [`ReportSource`](crate::source::ReportSource) |
//!
//! [`process_clears`] is the schedule by which the first two clear whole processes. [`freed`] reads pages of which no read is due when the
//! target has given memory back.

mod empty;
mod freed;
mod mappings;
mod pages;
mod process_clears;
mod regions;
mod reports;
mod sampled;
mod tracker;

pub use process_clears::is_worth_a_stall;
pub use tracker::{Allotment, CLEAR_BATCH, ClearQuota, Extent, Room, SampledExtent, Spent, Tracker, Tracking, Turn};

use crate::source::{Accesses, Description};
use crate::{Granularity, Ns, ReportedTarget};

/// The tracker for a target that `source` has just begun to monitor, of which nothing is known.
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
mod shared_tests;
#[cfg(test)]
mod tests;
