//! Sampled targets with memory that other processes map as well, on a modelled process: a clear of one huge range leaves
//! shared pages that were accessed, a clear of the whole process does not.

use super::sampled::SampledTracker;
use super::tracker::*;
use crate::source::{
    AccessSource, Accesses, Attached, BitsSink, Clear, Cleared, ClearedProcess, ClearedSink, Description, Layout,
    PageSource, Progress, SourceError, SourceResult,
};
use crate::view::Since;
use crate::{Granularity, Mask, Ns, PmdBits, RETOUCH_NS, Region, Rng, Sampling};
use isotherm_units::{PAGES_PER_PMD, PmdNo};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const MS: Ns = 1_000_000;
const S: Ns = 1000 * MS;
const PID: u32 = 7;
const STEP: Ns = 10 * MS;

/// Huge ranges whose pages are accessed at this interval, or never.
type Area = (Range<u64>, Option<Ns>);

struct Process {
    now: Ns,
    areas: Vec<Area>,
    /// Huge ranges that another process maps.
    shared: Vec<Range<u64>>,
    cleared: BTreeMap<PmdNo, Ns>,
    process_cleared: Vec<Ns>,
    /// Those that another process has ever mapped.
    was_shared: Vec<Range<u64>>,
    cleared_by_itself: BTreeSet<PmdNo>,
    /// Huge ranges of which all pages are accessed once, at this time.
    once: Option<(Range<u64>, Ns)>,
}

fn is_in(ranges: &[Range<u64>], pmd: PmdNo) -> bool {
    ranges.iter().any(|range| range.contains(&pmd.0))
}

impl Process {
    fn new(areas: &[Area], shared: Option<Range<u64>>) -> Process {
        Process {
            now: 0,
            areas: areas.to_vec(),
            shared: shared.clone().into_iter().collect(),
            cleared: BTreeMap::new(),
            process_cleared: Vec::new(),
            was_shared: shared.into_iter().collect(),
            cleared_by_itself: BTreeSet::new(),
            once: None,
        }
    }

    fn pmds(&self) -> Vec<PmdNo> {
        self.areas.iter().flat_map(|(range, _)| range.clone()).map(PmdNo).collect()
    }

    fn is_shared(&self, pmd: PmdNo) -> bool {
        is_in(&self.shared, pmd)
    }

    fn is_hot(&self, pmd: PmdNo) -> bool {
        self.areas.iter().any(|(range, interval)| range.contains(&pmd.0) && interval.is_some())
    }

    /// All pages were accessed when the process began.
    fn young(&self, pmd: PmdNo) -> Mask {
        let by_itself = self.cleared.get(&pmd).copied();
        let Some(since) = by_itself.max(self.process_cleared.last().copied()) else { return Mask::ALL };
        if self.once.as_ref().is_some_and(|(pmds, at)| pmds.contains(&pmd.0) && (since..self.now).contains(at)) {
            return Mask::ALL;
        }
        let Some((_, Some(interval))) = self.areas.iter().find(|(range, _)| range.contains(&pmd.0)) else {
            return Mask::NONE;
        };
        let is_young = |page: &usize| {
            let phase = pmd.page(*page).0.wrapping_mul(0xbf58_476d_1ce4_e5b9) % interval;
            (self.now + interval - phase) / interval > (since + interval - phase) / interval
        };
        (0..PAGES_PER_PMD).filter(is_young).collect()
    }

    /// Lets the tracker do what is due until `end`, with `batch` huge ranges cleared at most every 200 ms.
    fn watch(&mut self, tracker: &mut SampledTracker, end: Ns, batch: usize) -> Spent {
        let mut spent = Spent::default();
        while self.now < end {
            let now = self.now;
            let mut turn = Turn { source: self, pid: PID, now, spent: &mut spent };
            tracker.read_due(&mut turn).unwrap();
            if now.is_multiple_of(200 * MS) {
                tracker.clear_process(&mut turn).unwrap();
                tracker.clear_due(ClearQuota::each(batch), &mut turn).unwrap();
            }
            self.now += STEP;
        }
        spent
    }
}

impl AccessSource for Process {
    fn describe(&self) -> Description {
        let (granularity, note) = (Granularity::Page, String::new());
        Description { name: "modelled", granularity, accesses: Accesses::None, clears_others: false, note }
    }

    fn attach(&mut self, _: u32) -> SourceResult<Attached> {
        Err(SourceError::cannot("processes to attach"))
    }

    fn detach(&mut self, _: u32) {}

    fn layout(&mut self, _: u32) -> SourceResult<Layout> {
        Ok(Layout { pmds: self.pmds(), ..Layout::default() })
    }

    fn as_pages(&mut self) -> Option<&mut dyn PageSource> {
        Some(self)
    }
}

impl PageSource for Process {
    fn read(&mut self, _: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        for pmd in pmds {
            sink(self.now, *pmd, Some(PmdBits::Pages { young: self.young(*pmd), present: Mask::ALL }));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, _: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        for pmd in pmds {
            let stuck = if self.is_shared(*pmd) { self.young(*pmd) } else { Mask::NONE };
            if !self.is_shared(*pmd) {
                self.cleared.insert(*pmd, self.now);
                self.cleared_by_itself.insert(*pmd);
            }
            sink(self.now, *pmd, Cleared::Except(stuck));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, _: u32, stuck: &[PmdNo], all: &[PmdNo]) -> SourceResult<ClearedProcess> {
        let never: Vec<&PmdNo> = stuck.iter().filter(|pmd| !is_in(&self.was_shared, **pmd)).collect();
        assert!(never.is_empty(), "never stuck: {never:?}");
        self.process_cleared.push(self.now);
        let clear = Clear { at: self.now, stall_ns: 0, flushed: true };
        Ok(ClearedProcess { clear, pmds: all.to_vec(), partly: Vec::new() })
    }
}

fn tracker(process: &mut Process, max_regions: usize, seed: u64, max_slowdown_pct: f64) -> SampledTracker {
    let sampling = Sampling { max_regions, max_slowdown_pct, ..Sampling::default() };
    let mut tracker = SampledTracker::new(0, Tracking { sampling, seed }, None);
    let layout = process.layout(PID).unwrap();
    let mut spent = Spent::default();
    let mut turn = Turn { source: process, pid: PID, now: 0, spent: &mut spent };
    tracker.refit(layout, &mut turn).unwrap();
    tracker
}

fn regions(tracker: &mut SampledTracker) -> Vec<Region> {
    tracker.summarize(0, 10_000, Since::default()).regions
}

fn unmeasured(tracker: &mut SampledTracker) -> u64 {
    let sum = tracker.summarize(0, 10_000, Since::default());
    sum.temperature.resident() - sum.temperature.measured()
}

/// The shares of huge ranges reported as hot (accessed every second) that are, and of those that are which are reported.
fn precision_and_recall(process: &Process, tracker: &mut SampledTracker) -> (f64, f64) {
    let (mut right, mut reported) = (0.0, 0.0);
    for region in regions(tracker).iter().filter(|r| r.interval.ns().is_some_and(|ns| ns <= S)) {
        for no in region.range.start.pmd().0..region.range.end.pmd().0 {
            reported += 1.0;
            right += f64::from(u8::from(process.is_hot(PmdNo(no))));
        }
    }
    let hot = process.pmds().iter().filter(|pmd| process.is_hot(**pmd)).count() as f64;
    (right / f64::max(reported, 1.0), right / hot)
}

#[test]
fn shared_memory_is_measured_to_the_huge_range() {
    for seed in 1..=5 {
        // 256 MiB of which the third quarter is hot, beside as much private memory.
        let areas = [(1000..1064, None), (1064..1096, Some(50 * MS)), (1096..1128, None), (2000..2128, None)];
        let mut process = Process::new(&areas, Some(1000..1128));
        let mut tracker = tracker(&mut process, 1000, seed, 1.0);
        process.watch(&mut tracker, S, 64);
        assert!(unmeasured(&mut tracker) >= 128 * 512, "seed {seed}: nothing has cleared it yet");
        process.watch(&mut tracker, 12 * S, 64);
        assert_eq!(precision_and_recall(&process, &mut tracker), (1.0, 1.0), "seed {seed}");
        assert_eq!(unmeasured(&mut tracker), 0, "seed {seed}");
        assert_eq!(tracker.tally().lost, 0, "seed {seed}: no access is lost to a clear of the whole process");
    }
}

#[test]
fn in_large_shared_memory_samples_find_the_hot_span() {
    for seed in 1..=3 {
        let mut rng = Rng::new(seed);
        // 32 GiB, of which 4 GiB are hot.
        let hot = 10_000 + rng.below(14_000);
        let areas = [(10_000..hot, None), (hot..hot + 2048, Some(50 * MS)), (hot + 2048..26_384, None)];
        let mut process = Process::new(&areas, Some(10_000..26_384));
        let mut tracker = tracker(&mut process, 200, seed, 100.0);
        process.watch(&mut tracker, 60 * S, 16);
        let (precision, recall) = precision_and_recall(&process, &mut tracker);
        assert!(precision > 0.98 && recall > 0.98, "seed {seed}: {precision} {recall}");
        assert!(unmeasured(&mut tracker) < 26_384 * 512 / 100, "seed {seed}");
    }
}

/// Private checks go on across clears of the process: what they have found until then is read first.
#[test]
fn checks_in_progress_outlive_a_clear_of_the_process() {
    for seed in 1..=5 {
        let private = [(5000..5100, Some(20 * MS)), (6000..6200, Some(20 * S)), (7000..7100, None)];
        let shared = (1000..1064, Some(100 * MS));
        let areas = [&[shared], &private[..]].concat();
        let mut process = Process::new(&areas, Some(1000..1064));
        let mut tracker = tracker(&mut process, 100, seed, 100.0);
        process.watch(&mut tracker, 90 * S, 64);
        assert!(process.process_cleared.len() >= 4, "seed {seed}: {:?}", process.process_cleared);
        assert_eq!(tracker.tally().lost, 0, "seed {seed}");
        let at = |tracker: &mut SampledTracker, pmd: u64| {
            let found = regions(tracker).into_iter().find(|r| r.range.contains(PmdNo(pmd).addr()));
            found.and_then(|r| r.interval.ns()).unwrap_or(0) as f64 / 1e9
        };
        let (hot, warm, idle) = (at(&mut tracker, 5050), at(&mut tracker, 6100), at(&mut tracker, 7050));
        assert!(hot < 0.06 && (2.0..80.0).contains(&warm) && idle > 100.0, "seed {seed}: {hot} {warm} {idle}");
    }
}

/// The check of private memory begins at once and has reads at 800 ms and 2.6 s. The process is cleared at 1 s.
#[test]
fn what_was_accessed_shortly_before_a_clear_of_the_process_is_found() {
    let areas = [(1000..1032, Some(100 * MS)), (5000..5004, None), (6000..6004, None)];
    let mut process = Process::new(&areas, Some(1000..1032));
    process.once = Some((5000..5004, 900 * MS));
    let mut tracker = tracker(&mut process, 1000, 1, 1000.0);
    process.watch(&mut tracker, 3400 * MS, 64);
    assert_eq!(process.process_cleared, [S]);
    for (pmd, is_found) in [(5000, true), (5003, true), (6000, false)] {
        let region = regions(&mut tracker).into_iter().find(|r| r.range.contains(PmdNo(pmd).addr())).unwrap();
        assert_eq!(region.interval.ns().unwrap() < 4 * S, is_found, "{region:?}");
    }
}

/// A fork shares all private memory for half a minute. What is known stays known, and once it is exclusive again it is
/// reached huge range by huge range.
#[test]
fn memory_that_a_fork_shares_stays_measured() {
    for seed in 1..=5 {
        let areas = [(1000..1100, Some(50 * MS)), (1100..1400, None)];
        let mut process = Process::new(&areas, None);
        let mut tracker = tracker(&mut process, 40, seed, 100.0);
        process.watch(&mut tracker, 20 * S, 64);
        assert!(process.process_cleared.is_empty());
        assert_eq!(precision_and_recall(&process, &mut tracker), (1.0, 1.0), "seed {seed}");
        process.shared.push(1000..1400);
        process.was_shared.push(1000..1400);
        for until in 21..50 {
            process.watch(&mut tracker, until * S, 64);
            assert_eq!(unmeasured(&mut tracker), 0, "seed {seed}: after {until} s");
            let (precision, recall) = precision_and_recall(&process, &mut tracker);
            assert!(precision > 0.9 && recall > 0.9, "seed {seed}: after {until} s {precision} {recall}");
        }
        assert!(!process.process_cleared.is_empty(), "seed {seed}");
        process.shared.clear();
        process.cleared_by_itself.clear();
        process.watch(&mut tracker, 150 * S, 64);
        let clears = process.process_cleared.len();
        let hot = process.cleared_by_itself.iter().filter(|pmd| process.is_hot(**pmd)).count();
        assert!(hot > 20, "seed {seed}: {hot} hot huge ranges were cleared by themselves");
        process.watch(&mut tracker, 400 * S, 64);
        assert_eq!(process.process_cleared.len(), clears, "seed {seed}: none is needed any more");
        assert_eq!(precision_and_recall(&process, &mut tracker), (1.0, 1.0), "seed {seed}");
    }
}

#[test]
fn what_is_too_little_or_too_much_is_not_cleared_with_the_process() {
    // A thousandth is not reached: one of 2000 huge ranges.
    let mut process = Process::new(&[(1000..1001, Some(50 * MS)), (2000..4000, None)], Some(1000..1001));
    let mut little = tracker(&mut process, 1000, 1, 100.0);
    process.watch(&mut little, 10 * S, 64);
    assert!(process.process_cleared.is_empty() && unmeasured(&mut little) >= 512);
    // 44 GiB would stall for more than half a second.
    let mut process = Process::new(&[(10_000..32_528, Some(50 * MS))], Some(10_000..32_528));
    let mut large = tracker(&mut process, 50, 1, 100.0);
    process.watch(&mut large, 10 * S, 64);
    assert!(process.process_cleared.is_empty());
    assert_eq!(unmeasured(&mut large), 22_528 * 512);
}

/// 1 GiB of shared memory that is always hot: a clear of the process costs the target 110 ms. Half of a budget of 1% pays for
/// that in 22 s, and the other half goes to private memory.
#[test]
fn clears_of_the_process_and_checks_share_the_slow_down_budget() {
    let areas = [(1000..1512, Some(20 * MS)), (5000..5512, Some(20 * MS))];
    let mut process = Process::new(&areas, Some(1000..1512));
    let mut tracker = tracker(&mut process, 100, 3, 1.0);
    process.watch(&mut tracker, 200 * S, 64);
    let cost = tracker.tally().retouched as f64 * RETOUCH_NS;
    assert!(cost < 0.011 * 200e9, "{} ms in 200 s", cost / 1e6);
    let clears: Vec<Ns> = process.process_cleared.iter().map(|at| at / S).collect();
    assert!(clears.windows(2).all(|pair| pair[1] - pair[0] >= 22), "{clears:?}");
    assert!((3..=9).contains(&clears.len()), "{clears:?}");
    process.cleared_by_itself.clear();
    process.watch(&mut tracker, 230 * S, 64);
    assert!(
        process.cleared_by_itself.len() > 10,
        "{} checks of private memory in 30 s",
        process.cleared_by_itself.len()
    );
}
