//! From a target to what is shown of it: regions and histograms at one moment.

use crate::block::Ns;
use crate::regions::{RegionBuilder, carry_ages};
use crate::target::{Pages, Target};
use crate::{Histogram, Interval, Region};
use isotherm_units::PAGES_PER_BLOCK;

/// The pages of one target summed up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// At most `max_regions`, in address order.
    pub regions: Vec<Region>,
    /// Pages by interval.
    pub temperature: Histogram,
    /// Pages by idle time.
    pub idle: Histogram,
    /// Resident pages in blocks that cannot be cleared.
    pub unclearable_pages: u64,
}

/// Sums up `target` at `now`. About 1 us a block of small pages.
pub fn summarize(target: &Target, now: Ns, max_regions: usize) -> Summary {
    let mut builder = RegionBuilder::new();
    let mut sum = Summary::default();
    target.for_each_block(now, |block, view| {
        let pages = match view.pages {
            Pages::Huge { interval, idle } => {
                sum.temperature.add(interval, PAGES_PER_BLOCK as u64);
                sum.idle.add(idle, PAGES_PER_BLOCK as u64);
                builder.huge(block, interval, idle);
                PAGES_PER_BLOCK as u64
            }
            Pages::Small(pages) => {
                let present = |code: &&Interval| **code != Interval::ABSENT;
                pages.interval.iter().filter(present).for_each(|i| sum.temperature.add(*i, 1));
                pages.idle.iter().filter(present).for_each(|i| sum.idle.add(*i, 1));
                builder.pages(block, pages);
                pages.interval.iter().filter(present).count() as u64
            }
        };
        if view.unclearable {
            sum.unclearable_pages += pages;
        }
    });
    sum.regions = builder.finish(max_regions);
    sum
}

/// The same, with the ages of regions carried on from the summary `elapsed` ago.
pub fn summarize_after(target: &Target, now: Ns, max_regions: usize, before: &[Region], elapsed: Ns) -> Summary {
    let mut sum = summarize(target, now, max_regions);
    carry_ages(&mut sum.regions, before, elapsed);
    sum
}
