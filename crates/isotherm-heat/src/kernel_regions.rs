//! Heat by region, for sources that find regions by themselves (the kernel's DAMON) and report how often each was
//! accessed.
//!
//! A report says: in `nr_accesses` of `max_nr_accesses` samples, a page of the region was found accessed within the
//! sampling interval `s`. Each sample takes another page. So `p = nr / max` is the probability that a page is accessed
//! within `s`. Independent accesses at a rate of `r` miss a page during `s` with probability `exp(-r s)`, hence
//!
//! ```text
//!   r = -ln(1 - p) / s          and the mean interval is 1 / r
//! ```
//!
//! Where every sample hits, only a high rate is known. Half a miss is assumed, so the shortest interval that can be
//! reported is a bit below a third of `s` for the usual 20 samples. Where no sample hits, the region has been idle for
//! as long as its age says. Its interval is extrapolated from that, as for a page that was not seen accessed. The next
//! aggregation may differ: one of 100 ms mostly misses a page that is touched once a second.
//!
//! The report does not say which pages of a region are hot. A region that mixes a few hot pages with many cold ones is
//! reported as lukewarm until the source splits it.

use crate::pmd::{MIN_IDLE, Ns};
use crate::regions::RegionBuilder;
use crate::view::Summary;
use crate::{Interval, Region, Tally};
use isotherm_units::AddrRange;

/// How often reports are read. Sources buffer what comes in between.
const READ_EVERY: Ns = 500_000_000;
/// The same until the first report.
const READ_EVERY_AT_FIRST: Ns = 100_000_000;

/// One region as its source reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRegion {
    /// Its addresses.
    pub range: AddrRange,
    /// Pages present in it. 0 for a hole.
    pub resident_pages: u64,
    /// Those of them on huge pages.
    pub huge_pages: u64,
    /// Samples that found it accessed.
    pub nr_accesses: u64,
    /// Samples taken.
    pub max_nr_accesses: u64,
    /// For how many aggregations it has been about this hot.
    pub age_aggregations: u64,
    /// Total time of the samples: one aggregation interval.
    pub aggregation_ns: Ns,
}

impl KernelRegion {
    fn sample_ns(&self) -> f64 {
        self.aggregation_ns as f64 / self.max_nr_accesses.max(1) as f64
    }

    /// Accesses a second to each page, by the formula above. 0 if none was found.
    pub fn rate_hz(&self) -> f64 {
        let max = self.max_nr_accesses.max(1) as f64;
        let hits = (self.nr_accesses as f64).min(max - 0.5);
        -(1.0 - hits / max).ln() / (self.sample_ns() / 1e9).max(1e-9)
    }

    /// How long it has been about this hot.
    pub fn age_ns(&self) -> Ns {
        self.age_aggregations.saturating_mul(self.aggregation_ns)
    }

    /// Time since it was last seen accessed. The current aggregation counts, since it found no access.
    pub fn idle_ns(&self) -> Ns {
        if self.nr_accesses > 0 { 0 } else { self.age_ns().saturating_add(self.aggregation_ns) }
    }

    /// The mean time between accesses to a page.
    pub fn interval(&self) -> Interval {
        if self.nr_accesses > 0 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; the scale clamps")]
            return Interval::from_ns((1e9 / self.rate_hz()) as u64);
        }
        match self.idle_ns() {
            idle if idle >= MIN_IDLE => Interval::from_ns(idle).extrapolated(),
            _ => Interval::UNMEASURED,
        }
    }

    fn region(&self) -> Region {
        let interval = self.interval();
        #[expect(clippy::cast_possible_truncation, reason = "thousands a second at most")]
        let rate_hz = if self.nr_accesses > 0 { self.rate_hz() } else { interval.rate_hz() } as f32;
        Region {
            range: self.range,
            resident_pages: self.resident_pages,
            measured_pages: if interval.is_measured() { self.resident_pages } else { 0 },
            huge_pages: self.huge_pages,
            interval,
            rate_hz,
            age_ns: self.age_ns(),
            idle_ns: self.idle_ns(),
            sampled_pages: 0,
            estimated_pages: 0,
            hot_pages: None,
        }
    }
}

/// The last reported regions of one process, or of physical memory.
#[derive(Clone, Debug, Default)]
pub struct KernelRegions {
    /// Regions with memory in them, in address order.
    regions: Vec<KernelRegion>,
    /// End of their aggregation. `None` before the first report.
    ended_at: Option<Ns>,
    read_at: Option<Ns>,
    tally: Tally,
}

impl KernelRegions {
    /// When to read next.
    pub fn next_read(&self) -> Ns {
        let pause = if self.ended_at.is_some() { READ_EVERY } else { READ_EVERY_AT_FIRST };
        self.read_at.map_or(0, |at| at + pause)
    }

    /// Takes in a read at `now`. It has all regions of the aggregation that ended at `ended_at`, the same as before, or
    /// none.
    pub fn read(&mut self, now: Ns, ended_at: Ns, mut regions: Vec<KernelRegion>) {
        self.read_at = Some(now);
        if regions.is_empty() || self.ended_at.is_some_and(|before| ended_at <= before) {
            return;
        }
        self.count(ended_at, &regions);
        regions.retain(|r| r.resident_pages > 0);
        regions.sort_unstable_by_key(|r| r.range.start);
        self.regions = regions;
        self.ended_at = Some(ended_at);
    }

    /// Each sample has cleared one accessed bit, and each hit is a page that was touched again. Aggregations that were
    /// not read are assumed to have been like this one.
    fn count(&mut self, ended_at: Ns, regions: &[KernelRegion]) {
        let aggregation = regions.first().map_or(1, |r| r.aggregation_ns.max(1));
        let passed = self.ended_at.map_or(1, |before| ((ended_at - before + aggregation / 2) / aggregation).max(1));
        self.tally.cleared += passed * regions.iter().map(|r| r.max_nr_accesses).sum::<u64>();
        self.tally.retouched += passed * regions.iter().map(|r| r.nr_accesses).sum::<u64>();
    }

    /// Accessed bits cleared and found set again since the start, as far as reports show.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Sums up the last report in at most `max_regions` (at least 1).
    pub fn summarize(&self, max_regions: usize) -> Summary {
        let mut sum = Summary::default();
        for region_of in &self.regions {
            let region = region_of.region();
            let idle = if region_of.idle_ns() == 0 { region.interval } else { Interval::from_ns(region_of.idle_ns()) };
            let known = region.interval.is_measured();
            sum.temperature.add(region.interval, region_of.resident_pages);
            sum.idle.add(if known { idle } else { Interval::UNMEASURED }, region_of.resident_pages);
        }
        sum.regions = if self.regions.len() <= max_regions.max(1) {
            self.regions.iter().map(KernelRegion::region).collect()
        } else {
            self.merged(max_regions)
        };
        sum
    }

    /// Merges neighbours if there are more than may be reported. A merged region is as old as its youngest part.
    fn merged(&self, max_regions: usize) -> Vec<Region> {
        let mut builder = RegionBuilder::new(max_regions);
        for region_of in &self.regions {
            builder.mixed(
                region_of.range,
                region_of.huge_pages,
                &[(region_of.interval(), region_of.interval(), region_of.resident_pages)],
            );
        }
        let mut merged = builder.finish();
        let mut parts = self.regions.iter().peekable();
        for region in &mut merged {
            let (mut age, mut idle, mut pages) = (Ns::MAX, 0.0, 0);
            while let Some(part) = parts.next_if(|p| p.range.end <= region.range.end) {
                age = age.min(part.age_ns());
                idle += part.idle_ns() as f64 * part.resident_pages as f64;
                pages += part.resident_pages;
            }
            region.age_ns = age;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of times below 2^63")]
            let mean = (idle / pages.max(1) as f64) as Ns;
            region.idle_ns = mean;
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::{Addr, PAGE_SIZE};

    const MS: Ns = 1_000_000;
    const S: Ns = 1000 * MS;

    fn region_of(page: u64, pages: u64, nr_accesses: u64, age_aggregations: u64) -> KernelRegion {
        KernelRegion {
            range: AddrRange::new(Addr(page * PAGE_SIZE), Addr((page + pages) * PAGE_SIZE)),
            resident_pages: pages,
            huge_pages: 0,
            nr_accesses,
            max_nr_accesses: 20,
            age_aggregations,
            aggregation_ns: 100 * MS,
        }
    }

    #[test]
    fn a_probability_gives_a_rate() {
        // Half of the samples of 5 ms: ln 2 / 5 ms.
        assert!((region_of(0, 1, 10, 0).rate_hz() - 138.63).abs() < 0.01);
        // One in twenty: close to one access in twenty samples.
        let once = region_of(0, 1, 1, 0);
        assert!((once.rate_hz() - 10.26).abs() < 0.01);
        assert_eq!(once.interval(), Interval::from_ns(97 * MS));
        // All of them: a high rate, and finite.
        assert_eq!(region_of(0, 1, 20, 0).interval(), Interval::from_ns(1_360_000));
        assert_eq!(region_of(0, 1, 99, 0).interval(), Interval::from_ns(1_360_000), "more than all");
        assert!((0..20).all(|n| region_of(0, 1, n, 0).rate_hz() < region_of(0, 1, n + 1, 0).rate_hz()));
    }

    #[test]
    fn a_region_without_accesses_is_idle_for_its_age() {
        assert_eq!(region_of(0, 1, 0, 99).idle_ns(), 10 * S);
        assert_eq!(region_of(0, 1, 0, 99).interval(), Interval::from_ns(80 * S));
        assert_eq!(region_of(0, 1, 0, 3).interval(), Interval::UNMEASURED, "too early to say");
        assert_eq!((region_of(0, 1, 2, 99).idle_ns(), region_of(0, 1, 2, 99).age_ns()), (0, 9_900 * MS));
    }

    #[test]
    fn a_summary_tells_regions_as_they_were_told() {
        let mut t = KernelRegions::default();
        assert_eq!(t.next_read(), 0);
        t.read(S, 0, Vec::new());
        assert_eq!((t.next_read(), t.summarize(10)), (S + READ_EVERY_AT_FIRST, Summary::default()));
        let hole = KernelRegion { resident_pages: 0, ..region_of(900, 50, 0, 40) };
        t.read(
            2 * S,
            2 * S - 1,
            vec![region_of(100, 10, 20, 7), region_of(500, 400, 0, 99), hole, region_of(0, 100, 0, 2)],
        );
        let sum = t.summarize(10);
        assert_eq!(sum.regions.iter().map(|r| r.range.start.page().0).collect::<Vec<_>>(), [0, 100, 500]);
        assert_eq!((sum.temperature.resident(), sum.temperature.measured()), (510, 410));
        assert_eq!(sum.temperature.within_ns(S), 10);
        assert_eq!(sum.idle.at(Interval::from_ns(10 * S)), 400);
        let hot = sum.regions[1];
        assert_eq!((hot.age_ns, hot.idle_ns, hot.measured_pages), (700 * MS, 0, 10));
        assert!((hot.rate_hz - 737.8).abs() < 0.1);
        assert_eq!(sum.regions[0].measured_pages, 0);
    }

    #[test]
    fn the_same_aggregation_counts_once_and_those_missed_count_too() {
        let mut t = KernelRegions::default();
        t.read(S, S, vec![region_of(0, 10, 5, 0)]);
        t.read(2 * S, S, vec![region_of(0, 10, 9, 0)]);
        assert_eq!(t.tally(), Tally { cleared: 20, retouched: 5, ..Tally::default() });
        t.read(2 * S, S + 300 * MS, vec![region_of(0, 10, 5, 0)]);
        assert_eq!(t.tally(), Tally { cleared: 80, retouched: 20, ..Tally::default() });
        assert_eq!(t.next_read(), 2 * S + READ_EVERY);
    }

    #[test]
    fn too_many_are_merged_and_nothing_is_lost() {
        let mut t = KernelRegions::default();
        let many = (0..100).map(|i| region_of(i * 10, 10, if i < 50 { 20 } else { 0 }, 100 + i)).collect();
        t.read(S, S, many);
        let sum = t.summarize(2);
        assert_eq!(sum.regions.iter().map(|r| r.resident_pages).collect::<Vec<_>>(), [500, 500]);
        assert_eq!(sum.regions[1].age_ns, 150 * 100 * MS, "the youngest part");
        assert_eq!((sum.regions[0].idle_ns, sum.temperature.resident()), (0, 1000));
        assert_eq!(t.summarize(0).regions.len(), 1);
    }
}
