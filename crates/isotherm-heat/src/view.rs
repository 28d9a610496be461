//! From a target to its report: regions and histograms at one moment.

use crate::behind_huge::EstimatedSum;
use crate::idle::{IdleSum, MappingIdle};
use crate::pmd::Ns;
use crate::regions::{PastRegion, RegionBuilder, carry_ages};
use crate::snapshot::PagesBehindHuge;
use crate::target::{Target, View, Visit};
use crate::{Histogram, Mapping, Region};
use isotherm_units::PmdNo;

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

/// Sums up `target` at `now`. Cost follows the huge ranges, and the runs of like pages in those that are no single region.
pub fn summarize(target: &Target, now: Ns, max_regions: usize) -> Summary {
    sum_up(target, now, max_regions, &[])
}

fn sum_up(target: &Target, now: Ns, max_regions: usize, mappings: &[Mapping]) -> Summary {
    let mut sums = Sums {
        now,
        idle: IdleSum::new(mappings),
        builder: RegionBuilder::new(max_regions),
        sum: Summary::default(),
        estimated: EstimatedSum::default(),
    };
    target.show(PmdNo(0)..PmdNo(u64::MAX), now, &mut sums);
    let Sums { idle, builder, mut sum, estimated, .. } = sums;
    estimated.finish(&mut sum);
    sum.regions = builder.finish();
    sum.idle_by_mapping = idle.finish();
    sum
}

/// A summary in the making.
struct Sums<'a> {
    now: Ns,
    idle: IdleSum<'a>,
    builder: RegionBuilder,
    sum: Summary,
    estimated: EstimatedSum,
}

impl Visit for Sums<'_> {
    fn may_gather(&mut self, pmd: PmdNo) -> bool {
        // Otherwise it has to be known which pages are idle.
        self.idle.is_within_one(pmd)
    }

    fn visit(&mut self, pmd: PmdNo, view: View<'_>) {
        for run in view.runs {
            self.sum.temperature.add(run.interval, u64::from(run.pages));
            self.sum.idle.add(run.idle, u64::from(run.pages));
            self.sum.unclearable_pages += if view.unclearable { u64::from(run.pages) } else { 0 };
        }
        self.estimated.add(view.behind, view.runs, self.now);
        self.idle.add(pmd, view.runs);
        if view.is_gathered {
            self.builder.gathered(pmd, view.runs);
        } else {
            self.builder.pmd(pmd, view.runs);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::ClearQuota;
    use crate::{Mask, PmdBits, Rng, Watch};
    use isotherm_units::{AddrRange, PageNo};

    const MS: Ns = 1_000_000;
    const S: Ns = 1000 * MS;
    const PMDS: u64 = 40;

    /// Pages that are accessed between two reads of a check: of a huge range of the first kind none, and then all in any order, some at
    /// random, in stripes, half of them.
    fn accessed(pmd: PmdNo, step: u64, rng: &mut Rng) -> Mask {
        let share = (8 << step).min(512);
        match pmd.0 % 5 {
            0 => Mask::NONE,
            1 => (0..512).filter(|_| rng.below(512) < share).collect(),
            2 => (0..512).filter(|_| rng.below(512) < 20).collect(),
            3 => (0..512).filter(|page| page / 40 % 3 == 0).collect(),
            _ => Mask::of_range(0..256),
        }
    }

    /// A target after a few checks of each huge range, some of which lack a few pages.
    fn checked(rng: &mut Rng) -> (Target, Ns) {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: 60 * S }, rng.next_u64());
        let pmds: Vec<PmdNo> = (0..PMDS).map(PmdNo).collect();
        let lacking = Mask::of_range(100..100 + usize::try_from(rng.below(9)).unwrap());
        let present = |pmd: PmdNo| if pmd.0 % 7 == 6 { !lacking } else { Mask::ALL };
        for pmd in target.refit(&pmds) {
            target.read(0, pmd, PmdBits::Pages { young: present(pmd), present: present(pmd) });
        }
        let mut now = S;
        for _ in 0..12 {
            for pmd in target.due_clears(now, ClearQuota::each(100)) {
                target.cleared(now, pmd, Mask::NONE);
            }
            for step in 0..8 {
                let at = now + ((10 * MS) << step);
                for pmd in target.due_reads(at) {
                    let young = accessed(pmd, step, rng) & present(pmd);
                    target.read(at, pmd, PmdBits::Pages { young, present: present(pmd) });
                }
            }
            now += 5 * S;
        }
        (target, now)
    }

    /// From all runs, in their order.
    fn in_order(target: &Target, now: Ns, max_regions: usize, mappings: &[Mapping]) -> Summary {
        let (mut idle, mut builder) = (IdleSum::new(mappings), RegionBuilder::new(max_regions));
        let mut sum = Summary::default();
        target.for_each_pmd(now, |pmd, view| {
            for run in view.runs {
                sum.temperature.add(run.interval, u64::from(run.pages));
                sum.idle.add(run.idle, u64::from(run.pages));
            }
            idle.add(pmd, view.runs);
            builder.pmd(pmd, view.runs);
        });
        (sum.regions, sum.idle_by_mapping) = (builder.finish(), idle.finish());
        sum
    }

    #[test]
    fn a_summary_by_kinds_of_pages_is_that_of_all_runs_in_order() {
        let mut gathered = 0;
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let (target, now) = checked(&mut rng);
            let cut = PageNo(512 * 12 + rng.below(512)).addr();
            let ends = [PmdNo(0).addr(), cut, PmdNo(25).addr(), PmdNo(PMDS).addr()];
            let mapping = |ends: &[_]| Mapping {
                range: AddrRange::new(ends[0], ends[1]),
                name: String::new(),
                perms: "rw-p".parse().unwrap(),
            };
            let mappings: Vec<Mapping> = ends.windows(2).map(mapping).collect();
            let max_regions = if seed % 2 == 0 { 1000 } else { 12 };
            let found = sum_up(&target, now, max_regions, &mappings);
            let expected = in_order(&target, now, max_regions, &mappings);
            assert_eq!(found.temperature, expected.temperature, "seed {seed}");
            assert_eq!(
                (&found.idle, &found.idle_by_mapping),
                (&expected.idle, &expected.idle_by_mapping),
                "seed {seed}"
            );
            assert_eq!(found.regions.len(), expected.regions.len(), "seed {seed}");
            for (found, expected) in found.regions.iter().zip(&expected.regions) {
                // Sums of the same numbers in another order.
                assert!((found.rate_hz - expected.rate_hz).abs() <= 1e-4 * expected.rate_hz, "seed {seed}");
                assert!(found.idle_ns.abs_diff(expected.idle_ns) < 1000, "seed {seed}");
                let same = Region { rate_hz: expected.rate_hz, idle_ns: expected.idle_ns, ..*found };
                assert_eq!(same, *expected, "seed {seed}");
            }
            gathered += Counting::of(&target, now);
        }
        assert!(gathered > 10, "{gathered} huge ranges were summed up by kinds");
    }

    /// Counts huge ranges whose pages are shown by kind.
    struct Counting(usize);

    impl Counting {
        fn of(target: &Target, now: Ns) -> usize {
            let mut count = Counting(0);
            target.show(PmdNo(0)..PmdNo(PMDS), now, &mut count);
            count.0
        }
    }

    impl Visit for Counting {
        fn may_gather(&mut self, _: PmdNo) -> bool {
            true
        }

        fn visit(&mut self, _: PmdNo, view: View<'_>) {
            self.0 += usize::from(view.is_gathered);
        }
    }
}
