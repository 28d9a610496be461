//! The benefit of collapsing a huge range, from its heat. Fed by `isotherm-heat`, read by [`crate::plan`].
//!
//! A huge page saves TLB misses. How many depends on how many different 4 KiB pages of the huge range are accessed, because
//! each needs its own TLB entry, and on how often. So the benefit is the sum of the access rates of the pages, each
//! page counted at no more than [`MAX_HZ`]. One page that is accessed all the time scores low, because its entry stays
//! in the TLB; 512 pages that are accessed now and then score high. The unit is accesses per second (Hz), as far as
//! accessed bits show them.
//!
//! A huge page has one accessed bit for all its pages, so the number of accessed pages is unknown: a huge range that is
//! already huge counts as if all were accessed. A caller that observed the huge range while it was small knows better and
//! can overwrite [`PmdFacts::benefit_hz`].

use crate::facts::PmdFacts;
use crate::queue::Level;
use isotherm_heat::{Interval, Ns, Region, Target};
use isotherm_units::{Addr, AddrRange, PAGES_PER_PMD, PMD_SIZE, PmdNo};

/// The highest rate at which a page counts. Access checks cannot distinguish shorter intervals.
pub const MAX_HZ: f64 = 100.0;
/// Levels per doubling of the benefit: level 31 is 512 pages at the highest rate, level 0 is one access per second.
const LEVELS_PER_OCTAVE: f64 = 2.0;

/// Accesses per second of one page.
fn rate_hz(interval: Interval) -> Option<f64> {
    interval.ns().map(|ns| (1e9 / ns.max(1) as f64).min(MAX_HZ))
}

/// The level of a hint for a huge range of this benefit; `None` below one access per second, which is not worth a huge page.
pub fn level_of(benefit_hz: f64) -> Option<Level> {
    let octaves = benefit_hz.log2();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 62; the level is clamped")]
    (octaves >= 0.0).then(|| Level::new((octaves * LEVELS_PER_OCTAVE).min(62.0) as u8))
}

/// Pages of a huge range by MGLRU generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The huge range.
    pub pmd: PmdNo,
    /// Pages present, of 512.
    pub present: u16,
    /// Whether it is one huge page.
    pub huge: bool,
    /// Pages whose generation is known.
    pub known: u16,
    /// Pages of those that were accessed between the last two agings.
    pub young: u16,
}

/// Facts of a huge range by MGLRU generation. The last two agings were `interval_ns` apart. Young pages were accessed at
/// least once in that time, so the benefit is a lower bound. It has the same unit as that of a heat map.
pub fn of_generation(pages: Generation, interval_ns: Ns) -> PmdFacts {
    let Generation { pmd, present, huge, known, young } = pages;
    let hz = (1e9 / interval_ns.max(1) as f64).min(MAX_HZ);
    PmdFacts { pmd, present, measured: known, huge, benefit_hz: hz * f64::from(young) }
}

/// Facts of every huge range of a target that is watched page by page, in address order. Costs the same as
/// [`Target::for_each_pmd`].
pub fn of_pages(target: &Target, now: Ns) -> Vec<PmdFacts> {
    let mut facts = Vec::with_capacity(target.len());
    target.for_each_pmd(now, |pmd, view| {
        let mut known = PmdFacts { pmd, present: 0, measured: 0, huge: false, benefit_hz: 0.0 };
        for run in view.runs {
            known.present += run.pages;
            known.huge |= run.huge;
            // What is only assumed is no reason to act.
            if let Some(hz) = rate_hz(run.interval).filter(|_| !run.estimated) {
                known.measured += run.pages;
                // The interval of a page that was never seen accessed is only a guess from its idle time. 512 pages
                // that were idle for a second must not add up to something worth a huge page.
                known.benefit_hz += if run.is_extrapolated() { 0.0 } else { hz * f64::from(run.pages) };
            }
        }
        facts.push(known);
    });
    facts
}

/// Neighbouring huge ranges of which the same is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Of the first.
    pub facts: PmdFacts,
    /// How many there are.
    pub pmds: u64,
}

/// Facts of the huge ranges that `regions` (sorted, disjoint) cover, as in a recording. A page counts at the mean rate of
/// its region, and as present by the region's share of present pages.
pub fn of_regions(regions: &[Region]) -> Vec<PmdFacts> {
    of_warm_regions(regions, 0.0)
}

/// The same without huge ranges of a lower benefit than this: a cold region may hold a million of them.
pub fn of_warm_regions(regions: &[Region], min_benefit_hz: f64) -> Vec<PmdFacts> {
    let each = |run: Run| (0..run.pmds).map(move |n| PmdFacts { pmd: PmdNo(run.facts.pmd.0 + n), ..run.facts });
    let runs = runs_of_regions(regions).into_iter().filter(|run| run.facts.benefit_hz >= min_benefit_hz);
    runs.flat_map(each).collect()
}

/// The same as [`of_regions`], with the huge ranges within one region as a run. Its cost is by regions, not by their size.
pub fn runs_of_regions(regions: &[Region]) -> Vec<Run> {
    let mut sums: Vec<(Sum, u64)> = Vec::new();
    for region in regions.iter().filter(|r| !r.range.is_empty()) {
        let PartsOf { first, whole, last } = PartsOf::split(region.range);
        for (range, pmds) in [(first, 1), (whole, whole.len().0 / PMD_SIZE), (last, 1)] {
            if range.is_empty() {
                continue;
            }
            let pmd = range.start.pmd();
            // Huge ranges that lie in one region as a whole have nothing of another.
            if sums.last().is_none_or(|(sum, _)| sum.pmd != pmd) {
                sums.push((Sum { pmd, ..Sum::default() }, pmds));
            }
            if let Some((sum, _)) = sums.last_mut() {
                sum.add(region, (range.len().pages() / pmds) as f64);
            }
        }
    }
    sums.into_iter().map(|(sum, pmds)| Run { facts: sum.finish(), pmds }).collect()
}

/// A range as the huge ranges in it, and what lies before and after them. Each may be empty.
struct PartsOf {
    first: AddrRange,
    whole: AddrRange,
    last: AddrRange,
}

impl PartsOf {
    fn split(range: AddrRange) -> PartsOf {
        let AddrRange { start, end } = range;
        let begins = Addr(start.0.div_ceil(PMD_SIZE) * PMD_SIZE).min(end);
        let ends = end.pmd().addr().max(begins);
        let [first, whole, last] = [(start, begins), (begins, ends), (ends, end)].map(|(a, b)| AddrRange::new(a, b));
        PartsOf { first, whole, last }
    }
}

/// A huge range while regions are added up.
#[derive(Default)]
struct Sum {
    pmd: PmdNo,
    present: f64,
    measured: f64,
    huge: f64,
    benefit_hz: f64,
}

impl Sum {
    /// Adds so many pages of a region.
    fn add(&mut self, region: &Region, pages: f64) {
        let all = region.range.len().pages().max(1) as f64;
        let of = |part: u64| pages * (part as f64 / all);
        let measured = of(region.measured_pages.saturating_sub(region.estimated_pages));
        self.present += of(region.resident_pages);
        self.huge += of(region.huge_pages);
        self.measured += measured;
        let hz = f64::from(region.rate_hz).min(MAX_HZ);
        self.benefit_hz += if region.is_extrapolated() { 0.0 } else { measured * hz };
    }

    fn finish(self) -> PmdFacts {
        let pages = PAGES_PER_PMD as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 512")]
        let rounded = |n: f64| n.round().clamp(0.0, pages) as u16;
        PmdFacts {
            pmd: self.pmd,
            present: rounded(self.present),
            measured: rounded(self.measured),
            huge: self.huge > pages / 2.0,
            benefit_hz: self.benefit_hz,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::{Mask, PmdBits, Watch};
    use isotherm_units::PAGE_SIZE;
    use proptest::prelude::*;

    const S: Ns = 1_000_000_000;
    const MS: Ns = 1_000_000;

    fn region(first_page: u64, pages: u64, resident: u64, rate_hz: f32) -> Region {
        Region {
            range: AddrRange::new(Addr(first_page * PAGE_SIZE), Addr((first_page + pages) * PAGE_SIZE)),
            resident_pages: resident,
            measured_pages: resident,
            huge_pages: 0,
            interval: Interval::from_ns(S),
            rate_hz,
            age_ns: 0,
            idle_ns: S,
            sampled_pages: 0,
            estimated_pages: 0,
            hot_pages: None,
        }
    }

    #[test]
    fn many_pages_touched_now_and_then_beat_one_touched_all_the_time() {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let one = Mask::from_iter([7]);
        for (pmd, young) in [(PmdNo(1), one), (PmdNo(2), Mask::ALL)] {
            let bits = |young| PmdBits::Pages { young, present: Mask::ALL };
            target.read(0, pmd, bits(Mask::ALL));
            target.cleared(0, pmd, Mask::NONE);
            if pmd == PmdNo(1) {
                target.read(10 * MS, pmd, bits(young));
            } else {
                target.read(10 * MS, pmd, bits(Mask::NONE));
                target.read(400 * MS, pmd, bits(young));
            }
        }
        let facts = of_pages(&target, 400 * MS);
        assert_eq!(
            facts.iter().map(|f| (f.pmd.0, f.present, f.huge)).collect::<Vec<_>>(),
            [(1, 512, false), (2, 512, false)]
        );
        assert!((60.0..=100.0).contains(&facts[0].benefit_hz), "one page, at about the highest rate: {facts:?}");
        assert!(
            (512.0..3000.0).contains(&facts[1].benefit_hz),
            "512 pages, about two touches a second each: {facts:?}"
        );
        assert!(level_of(facts[1].benefit_hz) > level_of(facts[0].benefit_hz));
    }

    #[test]
    fn what_was_never_seen_is_worth_nothing_however_short_it_has_been_idle() {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let pmd = PmdNo(1);
        target.read(0, pmd, PmdBits::Pages { young: Mask::ALL, present: Mask::ALL });
        target.cleared(0, pmd, Mask::NONE);
        target.read(1_100 * MS, pmd, PmdBits::Pages { young: Mask::NONE, present: Mask::ALL });
        let facts = of_pages(&target, 1_200 * MS);
        assert_eq!((facts[0].measured, facts[0].benefit_hz), (512, 0.0), "{facts:?}");
        let cold = Region { interval: Interval::from_ns(9 * S), idle_ns: S, ..region(512, 512, 512, 0.1) };
        assert_eq!(of_regions(&[cold])[0].benefit_hz, 0.0);
    }

    #[test]
    fn levels_are_half_octaves_from_one_touch_a_second_on() {
        let levels = [0.9, 1.0, 1.5, 2.0, 512.0, 51_200.0, 1e9].map(|hz| level_of(hz).map(Level::get));
        assert_eq!(levels, [None, Some(0), Some(1), Some(2), Some(18), Some(31), Some(31)]);
        assert_eq!((level_of(0.0), level_of(f64::NAN)), (None, None));
    }

    #[test]
    fn regions_are_shared_out_among_their_huge_ranges() {
        // Huge ranges 2 and 3: the first half of huge range 2 and all of huge range 3 at 2 Hz, half of each present; the rest unknown.
        let regions = [region(1024, 256, 128, 2.0), region(1536, 512, 256, 2.0), region(2048, 10, 10, 1000.0)];
        let facts = of_regions(&regions);
        let told: Vec<_> = facts.iter().map(|f| (f.pmd.0, f.present, f.benefit_hz)).collect();
        assert_eq!(told, [(2, 128, 256.0), (3, 256, 512.0), (4, 10, 1000.0)], "10 pages at the most that counts");
    }

    #[test]
    fn a_region_that_begins_where_another_ended_in_the_same_huge_range_adds_to_it() {
        let facts = of_regions(&[region(512, 100, 100, 1.0), region(612, 412, 412, 3.0)]);
        assert_eq!(facts.len(), 1);
        assert_eq!((facts[0].present, facts[0].benefit_hz), (512, 100.0 + 3.0 * 412.0));
    }

    /// Huge range by huge range, page by page: what [`runs_of_regions`] has to agree with.
    fn naive(regions: &[Region]) -> Vec<PmdFacts> {
        let mut sums: Vec<Sum> = Vec::new();
        for region in regions {
            for page in region.range.start.0 / PAGE_SIZE..region.range.end.0 / PAGE_SIZE {
                let pmd = Addr(page * PAGE_SIZE).pmd();
                if sums.last().is_none_or(|sum| sum.pmd != pmd) {
                    sums.push(Sum { pmd, ..Sum::default() });
                }
                sums.last_mut().unwrap().add(region, 1.0);
            }
        }
        sums.into_iter().map(Sum::finish).collect()
    }

    proptest! {
        #[test]
        fn runs_are_what_each_page_adds(parts in prop::collection::vec((0_u64..700, 1_u64..2500, 0_u64..=100, 0.0_f32..200.0), 0..6)) {
            let mut at = 512;
            let regions: Vec<Region> = parts.into_iter().map(|(gap, pages, share, hz)| {
                let first = at + gap;
                at = first + pages;
                Region { huge_pages: pages * share / 100, ..region(first, pages, pages * (100 - share / 2) / 100, hz) }
            }).collect();
            let (runs, expected) = (of_regions(&regions), naive(&regions));
            prop_assert_eq!(runs.len(), expected.len());
            for (run, expected) in runs.iter().zip(&expected) {
                prop_assert_eq!(run.pmd, expected.pmd);
                // Halves of pages are rounded either way.
                let off = run.present.abs_diff(expected.present).max(run.measured.abs_diff(expected.measured));
                prop_assert!(off <= 1, "{:?} and not {:?}", run, expected);
                prop_assert!((run.benefit_hz - expected.benefit_hz).abs() <= 1e-9 * expected.benefit_hz.max(1.0));
            }
        }
    }
}
