//! On a made-up process: 200 ms at a time, huge ranges are cleared and read as asked, and answer from a list of ranges.

use super::*;
use crate::Rng;
use crate::tune::IntervalGoal;
use isotherm_units::{Addr, AddrRange, PAGES_PER_PMD, PMD_SIZE};
use std::collections::BTreeMap;

const S: Ns = 1_000_000_000;
const MS: Ns = 1_000_000;

/// Ranges of huge ranges with the interval of their pages, and how many of 16 pages have it; the others are never touched.
type Area = (u64, u64, Option<Ns>, u64);

struct Process {
    areas: Vec<Area>,
    cleared: BTreeMap<PmdNo, Ns>,
    now: Ns,
    checks: usize,
}

impl Process {
    fn new(areas: &[Area]) -> Process {
        Process { areas: areas.to_vec(), cleared: BTreeMap::new(), now: S, checks: 0 }
    }

    fn populated(&self) -> Vec<PmdNo> {
        self.areas.iter().flat_map(|(start, end, ..)| (*start..*end).map(PmdNo)).collect()
    }

    fn bits(&self, pmd: PmdNo) -> PmdBits {
        let Some(area) = self.areas.iter().find(|a| (a.0..a.1).contains(&pmd.0)) else { return PmdBits::Gone };
        let since = self.cleared[&pmd];
        let touched = |page: usize| {
            let at = pmd.page(page).0;
            let has = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 < area.3;
            has && area.2.is_some_and(|interval| {
                let phase = at.wrapping_mul(0xbf58_476d_1ce4_e5b9) % interval;
                (self.now + interval - phase) / interval > (since + interval - phase) / interval
            })
        };
        PmdBits::Pages { young: (0..PAGES_PER_PMD).filter(|p| touched(*p)).collect(), present: Mask::ALL }
    }

    /// Lets `seconds` pass, with `a_second` looks in each.
    fn watch(&mut self, target: &mut SampledTarget, seconds: u64, a_second: usize) {
        let end = self.now + seconds * S;
        let mut next_clear = self.now;
        while self.now < end {
            for pmd in target.due_reads(self.now) {
                target.read(self.now, pmd, self.bits(pmd));
            }
            if self.now >= next_clear {
                next_clear += 200 * MS;
                for pmd in target.due_clears(self.now, a_second / 5) {
                    self.cleared.insert(pmd, self.now);
                    target.cleared(self.now, pmd, Mask::NONE);
                    self.checks += 1;
                }
                check(target);
            }
            self.now = target.next_read().unwrap_or(next_clear).min(next_clear).max(self.now + MS);
        }
    }
}

/// The regions tile what was fitted, know where they were looked at, and keep their bound.
fn check(target: &SampledTarget) {
    let mut tiles: Vec<AddrRange> = Vec::new();
    for (start, piece) in target.pieces.iter() {
        assert!(start < piece.end, "an empty region at {start:?}");
        assert!(piece.marks.as_slice().iter().all(|m| start <= m.pmd && m.pmd < piece.end), "a mark outside");
        match tiles.last_mut() {
            Some(last) if last.end == start.addr() => last.end = piece.end.addr(),
            _ => tiles.push(AddrRange::new(start.addr(), piece.end.addr())),
        }
    }
    let mut ranges = target.pieces.ranges().to_vec();
    ranges.dedup_by(|next, kept| {
        let touch = kept.end == next.start;
        if touch {
            kept.end = next.end;
        }
        touch
    });
    assert_eq!(tiles, ranges);
    assert!(target.len() <= target.pieces.max_regions(), "{} regions", target.len());
}

/// Huge ranges that are told as hot (touched every second or oftener on average).
fn hot(target: &SampledTarget) -> Vec<(u64, u64)> {
    let mut hot: Vec<(u64, u64)> = Vec::new();
    for region in target.summarize(10_000, &[], 0).regions {
        if region.interval.ns().is_some_and(|ns| ns <= S) {
            let (start, end) = (region.range.start.pmd().0, region.range.end.pmd().0);
            match hot.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => hot.push((start, end)),
            }
        }
    }
    hot
}

fn sampled(areas: &[Area], max_regions: usize, seed: u64) -> (Process, SampledTarget) {
    let process = Process::new(areas);
    let mut target = SampledTarget::new(S, Sampling { max_regions, ..Sampling::default() }, seed);
    target.refit(&process.populated());
    (process, target)
}

#[test]
fn the_ends_of_a_hot_span_are_found_to_the_huge_range() {
    // 200 GiB of which 10 GiB are hot, somewhere.
    let areas = [(1000, 50_321, None, 16), (50_321, 55_441, Some(20 * MS), 16), (55_441, 103_400, None, 16)];
    let (mut process, mut target) = sampled(&areas, 100, 7);
    process.watch(&mut target, 60, 100);
    assert_eq!(hot(&target), [(50_321, 55_441)]);
    assert!(process.checks <= 6000, "{}", process.checks);
}

#[test]
fn small_spans_are_found_by_and_by() {
    let mut areas = vec![(0, 20_000, None, 16)];
    let spans = [(3011, 3100), (7200, 7600), (12_345, 12_400), (19_000, 19_990)];
    let mut at = 0;
    areas.clear();
    for (start, end) in spans {
        areas.extend([(at, start, None, 16), (start, end, Some(50 * MS), 16)]);
        at = end;
    }
    areas.push((at, 20_000, None, 16));
    let (mut process, mut target) = sampled(&areas, 200, 3);
    process.watch(&mut target, 240, 100);
    assert_eq!(hot(&target), spans);
}

#[test]
fn what_turns_hot_or_cold_is_told_so_again() {
    let areas = [(0, 5000, None, 16), (5000, 8000, Some(20 * MS), 16), (8000, 20_000, None, 16)];
    let (mut process, mut target) = sampled(&areas, 100, 11);
    process.watch(&mut target, 60, 100);
    assert_eq!(hot(&target), [(5000, 8000)]);
    process.areas = vec![(0, 12_000, None, 16), (12_000, 15_000, Some(20 * MS), 16), (15_000, 20_000, None, 16)];
    process.watch(&mut target, 120, 100);
    let told: Vec<_> = hot(&target);
    let right: u64 = told.iter().map(|(s, e)| e.min(&15_000).saturating_sub(*s.max(&12_000))).sum();
    let all: u64 = told.iter().map(|(s, e)| e - s).sum();
    assert!(right >= 2990 && all <= 3010, "{told:?}");
}

#[test]
fn hot_and_cold_pages_side_by_side_stay_one_region_with_the_right_shares() {
    let (mut process, mut target) = sampled(&[(0, 40_000, Some(20 * MS), 4)], 100, 5);
    process.watch(&mut target, 90, 100);
    let sum = target.summarize(100, &[], 0);
    assert_eq!(sum.regions.len(), 1, "{:?}", sum.regions.len());
    let share = sum.temperature.within_ns(S) as f64 / sum.temperature.resident() as f64;
    assert!((share - 0.25).abs() < 0.02, "{share}");
    assert_eq!(sum.temperature.resident(), 40_000 * 512);
    let idle = sum.temperature.measured() - sum.temperature.within_ns(60 * S);
    assert!(idle as f64 > 0.7 * sum.temperature.resident() as f64, "untouched for 41 s is colder than a minute");
}

#[test]
fn how_much_is_hot_is_right_where_regions_cannot_say_what() {
    // A tenth of 40,000 huge ranges is hot, in spans of one to three that are more than there may be regions.
    let mut errors = Vec::new();
    for seed in 1..=6 {
        let mut rng = Rng::new(seed);
        let mut areas: Vec<Area> = Vec::new();
        let (mut at, mut hot_pmds) = (0, 0);
        while at < 40_000 {
            let (cold, hot) = (5 + rng.below(27), 1 + rng.below(3));
            areas.extend([(at, at + cold, None, 16), (at + cold, at + cold + hot, Some(50 * MS), 16)]);
            at += cold + hot;
            hot_pmds += hot;
        }
        let (mut process, mut target) = sampled(&areas, 300, seed);
        process.watch(&mut target, 120, 150);
        let told = target.summarize(300, &[], 0).temperature;
        assert_eq!(told.resident(), at * 512);
        errors.push(told.within_ns(S) as f64 / (hot_pmds * 512) as f64 - 1.0);
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    // Regions alone are off by 40 to 50%.
    assert!(mean.abs() < 0.12 && errors.iter().all(|e| e.abs() < 0.25), "{errors:.2?}");
}

#[test]
fn more_looks_than_a_turn_for_each_region_are_not_asked_for() {
    let (mut process, mut target) = sampled(&[(0, 40_000, None, 16)], 100, 5);
    process.watch(&mut target, 10, 100_000);
    // 50 regions of a hundredth of it, doubled, and a look a second for each.
    assert!(process.checks <= 50 * 10, "{}", process.checks);
}

#[test]
fn holes_and_small_mappings_do_no_harm() {
    let areas: Vec<Area> = (0..500).map(|i| (i * 100, i * 100 + 1 + i % 7, Some((1 + i) * 10 * MS), 16)).collect();
    let (mut process, mut target) = sampled(&areas, 50, 5);
    process.watch(&mut target, 60, 200);
    assert!(target.pieces.ranges().len() <= 25, "bridged");
    let resident = target.summarize(50, &[], 0).temperature.resident() as f64 / 512.0;
    let truth = process.populated().len() as f64;
    assert!((0.5..2.0).contains(&(resident / truth)), "{resident} of {truth}");
    process.areas.truncate(10);
    target.refit(&process.populated());
    check(&target);
    target.refit(&[]);
    assert!(target.len() == 0 && target.due_clears(process.now, 10).is_empty());
    process.watch(&mut target, 60, 10);
    assert!(target.next_read().is_none(), "looks at what is gone come to an end");
}

#[test]
fn the_slow_down_is_kept() {
    let (mut process, mut target) = sampled(&[(0, 40_000, Some(10 * MS), 16)], 1000, 5);
    process.watch(&mut target, 60, 2000);
    let spent = target.tally().retouched as f64 * RETOUCH_NS / (60.0 * S as f64);
    assert!((0.005..0.0125).contains(&spent), "{spent}");
}

#[test]
fn a_hint_of_size_bounds_regions() {
    let sampling = Sampling { max_regions: 10_000, max_region: Some(Bytes::of_mib(64)), ..Sampling::default() };
    let mut target = SampledTarget::new(S, sampling, 1);
    target.refit(&(0..3200).map(PmdNo).collect::<Vec<_>>());
    assert_eq!(target.len(), 3200, "a huge range is a fair share here");
    assert!(target.pieces.iter().all(|(start, piece)| piece.end.0 - start.0 <= 32));
    let sparse = SampledTarget::new(S, Sampling::default(), 1);
    assert!(sparse.len() == 0 && sparse.unchecked() == 0);
    let one = AddrRange::new(Addr(0), Addr(PMD_SIZE));
    let mut tiny = SampledTarget::new(S, Sampling { max_regions: 0, ..Sampling::default() }, 1);
    tiny.refit(&[one.start.pmd()]);
    assert_eq!((tiny.len(), tiny.pmds()), (1, 1));
}

/// 4% of the memory, in an interval of 200 ms to 10 s that changes every three aggregations.
const GOAL: Tuning = Tuning {
    goal: IntervalGoal { observed_bp: 400, min_interval_ns: 200 * MS, max_interval_ns: 10 * S },
    aggregations: 3,
};

fn tuned(areas: &[Area], interval_ns: Ns, seed: u64) -> (Process, SampledTarget) {
    let process = Process::new(areas);
    let sampling = Sampling { max_regions: 100, interval_ns, tuning: Some(GOAL), ..Sampling::default() };
    let mut target = SampledTarget::new(S, sampling, seed);
    target.set_affordable_interval(0);
    target.refit(&process.populated());
    (process, target)
}

/// The intervals that a target has had, in their order, `seconds` long. All huge ranges of a round are checked at once.
fn intervals(process: &mut Process, target: &mut SampledTarget, seconds: u64) -> Vec<Ns> {
    let mut had = vec![target.interval_ns()];
    for _ in 0..seconds * 5 {
        let end = process.now + 200 * MS;
        while process.now < end {
            for pmd in target.due_reads(process.now) {
                target.read(process.now, pmd, process.bits(pmd));
            }
            process.now = target.next_read().unwrap_or(end).clamp(process.now + MS, end);
        }
        for pmd in target.due_clears(process.now, 1000) {
            process.cleared.insert(pmd, process.now);
            target.cleared(process.now, pmd, Mask::NONE);
            process.checks += 1;
        }
        if had.last() != Some(&target.interval_ns()) {
            had.push(target.interval_ns());
        }
    }
    had
}

#[test]
fn the_interval_of_an_idle_target_doubles_up_to_the_maximum_and_that_of_a_hot_one_halves_down_to_the_minimum() {
    for seed in 1..=3 {
        let (mut process, mut target) = tuned(&[(0, 10_000, None, 16)], S, seed);
        let had = intervals(&mut process, &mut target, 120);
        assert_eq!(had, [S, 2 * S, 4 * S, 8 * S, 10 * S], "seed {seed}");
        // 50 regions: 3 rounds of each interval, and of 10 s as many as there is time for. All of them at one a second: 6,000.
        assert!(process.checks <= 50 * (3 * 4 + 8 + 1), "seed {seed}: {} checks", process.checks);

        let (mut process, mut target) = tuned(&[(0, 10_000, Some(20 * MS), 16)], S, seed);
        let had = intervals(&mut process, &mut target, 30);
        assert_eq!(had, [S, 500 * MS, 250 * MS, 200 * MS], "seed {seed}");
    }
}

#[test]
fn the_interval_settles_where_the_wanted_share_is_accessed_within_it() {
    // Every page once in 50 s: 4% of them within 2 s. From both ends, and from where it begins by default.
    for (seed, began) in [(1, 200 * MS), (2, S), (3, 10 * S), (4, 10 * S)] {
        let (mut process, mut target) = tuned(&[(0, 10_000, Some(50 * S), 16)], began, seed);
        intervals(&mut process, &mut target, 300);
        let settled = intervals(&mut process, &mut target, 300);
        assert!(settled.iter().all(|ns| (1500 * MS..2500 * MS).contains(ns)), "seed {seed}: {settled:?}");
    }
}

#[test]
fn heat_is_the_same_at_any_interval_and_while_it_changes() {
    let areas = [(0, 4000, None, 16), (4000, 5000, Some(20 * MS), 16), (5000, 10_000, None, 16)];
    let found = |interval_ns: Ns, tuning: Option<Tuning>| {
        let mut process = Process::new(&areas);
        let sampling = Sampling { max_regions: 100, interval_ns, tuning, ..Sampling::default() };
        let mut target = SampledTarget::new(S, sampling, 1);
        target.set_affordable_interval(0);
        target.refit(&process.populated());
        let had = intervals(&mut process, &mut target, 300);
        assert_eq!(had.len(), if tuning.is_some() { 7 } else { 1 }, "{had:?}");
        let sum = target.summarize(10, &[], 0);
        assert_eq!(sum.temperature.within_ns(S), 1000 * 512);
        sum.regions
    };
    let fixed = found(S, None);
    assert_eq!(fixed.len(), 3);
    for other in [found(200 * MS, None), found(10 * S, None), found(10 * S, Some(GOAL))] {
        assert_eq!(other.len(), 3);
        for (a, b) in fixed.iter().zip(&other) {
            assert_eq!((a.range, a.interval), (b.range, b.interval));
            assert!((a.rate_hz / b.rate_hz - 1.0).abs() < 0.01, "{} and {} a second", a.rate_hz, b.rate_hz);
        }
    }
}

#[test]
fn where_nothing_can_be_known_the_interval_stays() {
    let (process, mut target) = tuned(&[(0, 10_000, None, 16)], S, 1);
    let mut rounds = 0;
    for tick in 0..100 {
        let now = process.now + tick * 200 * MS;
        let due = target.due_clears(now, 1000);
        rounds += u32::from(!due.is_empty());
        due.into_iter().for_each(|pmd| target.refused(now, pmd));
    }
    assert!(rounds > 2 * GOAL.aggregations, "{rounds} rounds");
    assert_eq!(target.interval_ns(), S);
}
