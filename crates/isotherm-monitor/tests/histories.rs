//! The schedule on replayed histories: what it finds, how soon, and at what cost to the target. Time is virtual and nothing is
//! random but by a fixed seed, so every figure here is exact and the same on any machine.

use isotherm_heat::{Interval, Ns, RETOUCH_NS, TargetId, VirtualClock};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sources::replay::{History, Replay, Span};
use isotherm_sys::proc::Proc;
use isotherm_units::{Addr, AddrRange, PMD_SIZE, PageNo, PmdNo};
use std::sync::atomic::AtomicBool;

const MS: Ns = 1_000_000;
const S: Ns = 1_000_000_000;
const MIB: u64 = 1 << 20;
const BASE: u64 = 1 << 40;
const PID: u32 = 7;

type Ranges = Vec<(AddrRange, Option<Ns>)>;

/// From MiB to MiB, accessed every `interval`.
fn at(from_mib: u64, to_mib: u64, interval: Option<Ns>) -> (AddrRange, Option<Ns>) {
    (AddrRange::new(Addr(BASE + from_mib * MIB), Addr(BASE + to_mib * MIB)), interval)
}

struct Story {
    monitor: Monitor<VirtualClock>,
}

impl Story {
    fn of(spans: Vec<(Ns, Ranges)>) -> Story {
        Story::with(spans, Settings::default())
    }

    fn with(spans: Vec<(Ns, Ranges)>, settings: Settings) -> Story {
        let clock = VirtualClock::default();
        let spans = spans.into_iter().map(|(end, ranges)| Span { end, ranges }).collect();
        let history = History { comm: "story".into(), mappings: Vec::new(), spans };
        let replay = Replay::new(clock.clone(), [(TargetId { pid: PID, start_ticks: 1 }, history)]);
        let selection = Selection::OfSource(vec![PID]);
        let follower = Follower::new(&selection, Proc::default()).unwrap();
        Story { monitor: Monitor::new(Box::new(replay), follower, clock, settings) }
    }

    fn until(&mut self, time: Ns) -> &mut Story {
        self.monitor.watch(time, &AtomicBool::new(false)).unwrap();
        self
    }

    /// The interval of the page at an offset in pages.
    fn interval(&self, page: u64) -> Interval {
        let wanted = PageNo(Addr(BASE).page().0 + page);
        let mut found = Interval::ABSENT;
        self.monitor.pages_of(PID).unwrap().for_each_pmd(self.monitor.now(), |pmd, view| {
            for run in view.runs {
                if pmd == wanted.pmd() && run.indices().contains(&wanted.index_in_pmd()) {
                    found = run.interval;
                }
            }
        });
        found
    }

    /// Pages within [from, to) MiB whose interval is at most `ns`.
    fn hot_within(&self, from_mib: u64, to_mib: u64, ns: Ns) -> u64 {
        let range = at(from_mib, to_mib, None).0;
        let mut hot = 0;
        self.monitor.pages_of(PID).unwrap().for_each_pmd(self.monitor.now(), |pmd, view| {
            if range.contains(pmd.addr()) {
                let is_hot = |i: Interval| i.ns().is_some_and(|i| i <= ns);
                hot += view.runs.iter().filter(|r| is_hot(r.interval)).map(|r| u64::from(r.pages)).sum::<u64>();
            }
        });
        hot
    }
}

#[test]
fn hot_and_cold_are_told_apart_exactly() {
    let mut story = Story::of(vec![(60 * S, vec![at(0, 100, None), at(100, 110, Some(20 * MS)), at(110, 128, None)])]);
    story.until(10 * S);
    assert_eq!(story.hot_within(100, 110, S), 2560, "all of the hot");
    assert_eq!(story.hot_within(0, 100, S) + story.hot_within(110, 128, S), 0, "nothing else");
    let snapshot = story.monitor.snapshot(0);
    let target = &snapshot.targets[0];
    assert_eq!(target.temperature.resident(), 128 * 256);
    assert_eq!(target.temperature.measured(), 128 * 256);
    assert_eq!(target.comm, "story");
    let hottest = target.regions.iter().min_by_key(|r| r.interval).unwrap();
    assert_eq!(hottest.range, at(100, 110, None).0);
}

#[test]
fn intervals_are_right_within_a_factor_of_two_over_three_decades() {
    let levels = [50 * MS, 200 * MS, 800 * MS, 3 * S, 12 * S];
    let ranges: Ranges = levels.iter().enumerate().map(|(i, t)| at(i as u64 * 4, i as u64 * 4 + 4, Some(*t))).collect();
    let mut story = Story::of(vec![(600 * S, ranges)]);
    story.until(300 * S);
    for (i, truth) in levels.iter().enumerate() {
        let pages = (0..1024).map(|p| story.interval(i as u64 * 1024 + p).octaves().unwrap());
        let mean = pages.sum::<f64>() / 1024.0;
        let truth_octaves = (*truth as f64 / 1e6).log2();
        assert!((mean - truth_octaves).abs() < 1.0, "{} ms: off by {:.2} octaves", truth / MS, mean - truth_octaves);
    }
}

#[test]
fn accesses_to_idle_memory_are_counted_by_idle_time() {
    let spans = vec![at(0, 4, Some(40 * S)), at(4, 8, Some(20 * MS)), at(8, 64, None)];
    let mut story = Story::of(vec![(600 * S, spans)]);
    let (mut shorter, mut longer) = (0, 0);
    for window in 1..=60 {
        story.until(window * 10 * S);
        let target = &story.monitor.snapshot(0).targets[0];
        for step in target.idle_by_mapping.iter().flat_map(|m| &m.steps) {
            let counted = if step.idle >= Interval::from_ns(10 * S) { &mut longer } else { &mut shorter };
            *counted += step.accessed_pages;
            assert_eq!((step.huge_pages, step.accessed_huge_pages), (0, 0));
        }
    }
    // Each of 1,024 pages is accessed 15 times, and leaves each time if it leaves after 10 s.
    let times = longer as f64 / 1024.0;
    assert!((12.0..=15.0).contains(&times), "{times} times each, and {shorter} pages after less than 10 s");
    let snapshot = story.monitor.snapshot(0);
    let steps = snapshot.targets[0].idle_by_mapping.iter().flat_map(|m| &m.steps);
    let idle: u64 = steps.filter(|s| s.idle >= Interval::from_ns(500 * S)).map(|s| s.pages).sum();
    assert_eq!(idle, 56 * 256, "all that is never accessed, and nothing else");
}

#[test]
fn a_read_on_demand_shows_what_was_accessed_since_the_last_scan() {
    let hot = vec![at(0, 4, Some(10 * MS)), at(4, 64, None)];
    let mut story = Story::of(vec![(100 * S, vec![at(0, 64, None)]), (200 * S, hot)]);
    story.until(100 * S + 50 * MS);
    let idle = |story: &Story| {
        let mut pages = 0;
        story.monitor.pages_of(PID).unwrap().for_each_pmd(story.monitor.now(), |_, view| {
            pages += view.runs.iter().filter(|r| r.cleared).map(|r| u64::from(r.pages)).sum::<u64>();
        });
        pages
    };
    assert_eq!(idle(&story), 64 * 256, "the last scan was before");
    let pmds: Vec<PmdNo> = at(0, 64, None).0.pmds().collect();
    story.monitor.read_now(PID, &pmds);
    assert_eq!(idle(&story), 60 * 256);
    // Neither a process that is not watched nor memory that it does not have is an error.
    story.monitor.read_now(PID + 1, &pmds);
    story.monitor.read_now(PID, &[PmdNo(1)]);
}

#[test]
fn a_cold_span_that_turns_hot_is_found_within_two_seconds() {
    for turns_hot in [20 * S, 100 * S, 500 * S] {
        let cold = vec![at(0, 256, None)];
        let hot = vec![at(0, 64, None), at(64, 128, Some(10 * MS)), at(128, 256, None)];
        let mut story = Story::of(vec![(turns_hot, cold), (turns_hot + 60 * S, hot)]);
        story.until(turns_hot + 2 * S);
        let found = story.hot_within(64, 128, S);
        assert!(found >= 64 * 256 * 99 / 100, "after {} s cold: {found} of {} pages", turns_hot / S, 64 * 256);
        assert_eq!(story.hot_within(0, 64, S) + story.hot_within(128, 256, S), 0);
    }
}

#[test]
fn a_span_that_cools_down_is_seen_to() {
    let hot = vec![at(0, 8, Some(10 * MS)), at(8, 64, None)];
    let mut story = Story::of(vec![(100 * S, hot), (900 * S, vec![at(0, 64, None)])]);
    story.until(99 * S);
    assert_eq!(story.hot_within(0, 8, S), 2048);
    story.until(100 * S + 260 * S);
    assert_eq!(story.hot_within(0, 8, S), 0, "the longest back-off is four minutes");
}

#[test]
fn a_hot_span_of_64_mib_that_cools_down_is_known_to_within_six_seconds_whenever_that_happens() {
    for cools in [62, 75, 80, 100, 200, 400, 500].map(|second| second * S) {
        let hot = vec![at(0, 64, None), at(64, 192, Some(50 * MS)), at(192, 2048, None)];
        let half = vec![at(0, 64, None), at(64, 128, Some(50 * MS)), at(128, 2048, None)];
        let mut story = Story::of(vec![(cools, hot), (cools + 60 * S, half)]);
        story.until(cools);
        assert_eq!(story.hot_within(64, 192, S), 128 * 256, "MiB by MiB");
        story.until(cools + 6 * S);
        let left = story.hot_within(128, 192, S);
        assert!(left <= 64 * 256 / 100, "{left} pages are taken for hot that cooled down at {} s", cools / S);
        assert_eq!(story.hot_within(64, 128, S), 64 * 256);
    }
}

#[test]
fn memory_of_which_a_part_has_cooled_down_is_not_checked_more_often_for_ever() {
    // Of each huge range, a quarter cools down one by one, as the hot set of a store wanders, and the rest stays hot.
    let quarter = |pmd: u64, cooled: bool| {
        let hot = Some(50 * MS);
        let range =
            |from: u64, to: u64| AddrRange::new(Addr(BASE + pmd * PMD_SIZE + from), Addr(BASE + pmd * PMD_SIZE + to));
        [(range(0, MIB / 2), if cooled { None } else { hot }), (range(MIB / 2, PMD_SIZE), hot)]
    };
    let layout = |cooled: bool| (0..64).flat_map(|pmd| quarter(pmd, cooled)).collect::<Vec<_>>();
    let mut story = Story::of(vec![(100 * S, layout(false)), (900 * S, layout(true))]);
    story.until(200 * S);
    let cleared = |story: &Story| story.monitor.pages_of(PID).unwrap().tally().cleared;
    let before = cleared(&story);
    story.until(328 * S);
    // Two turns of 64 s: 384 pages of each of 64 ranges.
    let checks = (cleared(&story) - before) as f64 / (64.0 * 384.0);
    assert!((1.5..=3.0).contains(&checks), "{checks} checks of each range in 128 s");
}

#[test]
fn a_second_span_that_cools_down_is_found_as_the_first() {
    let hot = |to: u64| vec![at(0, 64, None), at(64, to, Some(50 * MS)), at(to, 2048, None)];
    let mut story = Story::of(vec![(100 * S, hot(256)), (170 * S, hot(192)), (230 * S, hot(128))]);
    for (cools, left) in [(100, 192), (170, 128)] {
        story.until((cools + 8) * S);
        assert!(story.hot_within(left, 256, S) <= 64 * 256 / 100, "at {cools} s");
        assert_eq!(story.hot_within(64, left, S), (left - 64) * 256);
    }
}

#[test]
fn a_slow_page_that_becomes_fast_is_found_whenever_that_happens() {
    // Some 10 min between accesses, then every 20 ms, at several moments after the page was last armed.
    for turns_hot in [605 * S, 620 * S, 640 * S, 700 * S] {
        let slow = vec![at(0, 2, Some(300 * S)), at(2, 16, None)];
        let fast = vec![at(0, 2, Some(20 * MS)), at(2, 16, None)];
        let mut story = Story::of(vec![(turns_hot, slow), (turns_hot + 1000 * S, fast)]);
        story.until(turns_hot + 3 * S);
        assert_eq!(story.hot_within(0, 2, S), 512, "hot from {} s on", turns_hot / S);
    }
}

#[test]
fn pages_populated_later_are_measured_too() {
    let half = vec![(AddrRange::new(Addr(BASE), Addr(BASE + MIB)), None)];
    let whole = vec![at(0, 1, None), at(1, 2, Some(50 * MS))];
    let mut story = Story::of(vec![(20 * S, half), (200 * S, whole)]);
    story.until(30 * S);
    assert_eq!(story.hot_within(0, 2, S), 256, "the new half of the huge range is hot, and known to be");
    story.until(60 * S);
    assert_eq!(story.monitor.snapshot(0).targets[0].temperature.measured(), 512);
}

#[test]
fn the_slow_down_of_a_busy_target_stays_within_the_budget() {
    for budget in [0.5, 1.0, 4.0] {
        let settings = Settings { max_slowdown_pct: budget, ..Settings::default() };
        let mut story = Story::with(vec![(300 * S, vec![at(0, 512, Some(30 * MS))])], settings);
        for seconds in [20, 60, 120] {
            story.until(seconds * S);
            let cost = story.monitor.cost(seconds * S);
            let paid = cost.pages_retouched as f64 * RETOUCH_NS / (seconds * S) as f64 * 100.0;
            // What is cleared and not yet seen again is reserved in advance, so the bound is tight once the credit is repaid.
            assert!(paid <= budget * 1.05 + 2.5 / seconds as f64 * budget, "{budget}%: {paid:.2}% in {seconds} s");
            // More is not needed once looks back off; at first, all of the smallest budget is.
            assert!(
                budget > 0.5 || seconds > 20 || paid >= budget * 0.7,
                "{budget}%: only {paid:.2}% used in {seconds} s"
            );
        }
    }
}

#[test]
fn without_limits_everything_is_known_at_once() {
    let settings = Settings { max_slowdown_pct: 1000.0, max_cpu_pct: 1000.0, ..Settings::default() };
    let mut story = Story::with(vec![(60 * S, vec![at(0, 256, Some(30 * MS)), at(256, 1024, None)])], settings);
    story.until(3 * S);
    assert_eq!(story.hot_within(0, 256, S), 256 * 256);
    assert_eq!(story.hot_within(256, 1024, S), 0);
}

#[test]
fn a_process_that_ends_is_told_once_more_and_then_forgotten() {
    let mut story = Story::of(vec![(5 * S, vec![at(0, 4, Some(20 * MS))])]);
    story.until(20 * S);
    assert!(!story.monitor.is_watching());
    let last = story.monitor.snapshot(0);
    assert_eq!((last.targets.len(), last.targets[0].exited), (1, true));
    assert!(story.monitor.snapshot(0).targets.is_empty());
    assert!(story.monitor.cost(20 * S).pages_retouched > 0, "what it cost is not forgotten");
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    let selection = Selection::OfSource(vec![99]);
    let clock = VirtualClock::default();
    let replay = Replay::new(clock.clone(), []);
    let follower = Follower::new(&selection, Proc::default()).unwrap();
    let mut monitor = Monitor::new(Box::new(replay), follower, clock, Settings::default());
    let error = monitor.watch(S, &AtomicBool::new(false)).unwrap_err();
    assert_eq!(error.to_string(), "process 99 is not there, or has ended");
}
