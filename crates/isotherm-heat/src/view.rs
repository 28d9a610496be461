//! From a target to its report: regions and histograms at one moment.

use crate::behind_huge::EstimatedSum;
use crate::idle::{IdleSum, MappingIdle};
use crate::pmd::Ns;
use crate::regions::{PastRegion, RegionBuilder, carry_ages};
use crate::snapshot::PagesBehindHuge;
use crate::target::Target;
use crate::{Histogram, Mapping, Region};

/// The pages of one target, summed up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// At most `max_regions`, in address order.
    pub regions: Vec<Region>,
    /// Pages by interval.
    pub temperature: Histogram,
    /// Pages by idle time.
    pub idle: Histogram,
    /// Resident pages in huge ranges that cannot be cleared.
    pub unclearable_pages: u64,
    /// By estimate, where huge pages have replaced pages whose heat was known.
    pub behind_huge: Option<PagesBehindHuge>,
    /// Idle pages by mapping, in address order. Empty where a source does not show pages one by one.
    pub idle_by_mapping: Vec<MappingIdle>,
}

/// Sums up `target` at `now`. Cost follows the runs of like pages.
pub fn summarize(target: &Target, now: Ns, max_regions: usize) -> Summary {
    sum_up(target, now, max_regions, &[])
}

fn sum_up(target: &Target, now: Ns, max_regions: usize, mappings: &[Mapping]) -> Summary {
    let mut idle = IdleSum::new(mappings);
    let mut builder = RegionBuilder::new(max_regions);
    let mut sum = Summary::default();
    let mut estimated = EstimatedSum::default();
    target.for_each_pmd(now, |pmd, view| {
        for run in view.runs {
            sum.temperature.add(run.interval, u64::from(run.pages));
            sum.idle.add(run.idle, u64::from(run.pages));
            sum.unclearable_pages += if view.unclearable { u64::from(run.pages) } else { 0 };
        }
        estimated.add(view.behind, view.runs, now);
        idle.add(pmd, view.runs);
        builder.pmd(pmd, view.runs);
    });
    estimated.finish(&mut sum);
    sum.regions = builder.finish();
    sum.idle_by_mapping = idle.finish();
    sum
}

/// What a report on a target is made after: its last one, since regions that have not changed since then have grown older, and its
/// mappings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Since<'a> {
    /// Its regions at that time. Empty if there was no report yet.
    pub regions: &'a [PastRegion],
    /// Time since that report.
    pub elapsed_ns: Ns,
    /// Its mappings, in address order.
    pub mappings: &'a [Mapping],
}

impl Since<'_> {
    /// Carries the ages of unchanged regions forward.
    pub fn carry_ages(&self, regions: &mut [Region]) {
        carry_ages(regions, self.regions, self.elapsed_ns);
    }
}

/// Like [`summarize`], with the ages of regions carried on from the last report.
pub fn summarize_after(target: &Target, now: Ns, max_regions: usize, last: Since<'_>) -> Summary {
    let mut sum = sum_up(target, now, max_regions, last.mappings);
    last.carry_ages(&mut sum.regions);
    sum
}
