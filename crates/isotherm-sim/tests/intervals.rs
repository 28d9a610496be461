//! Intervals of sampled targets that tune themselves, on modelled hosts: what becomes hot is found no later than at the
//! interval that stays, and the budgets hold.

use isotherm_heat::Clock;
use isotherm_monitor::{CLEAR_TICK, Follower, INTERVALS_GOAL, Mode, Monitor, Selection, Settings};
use isotherm_sim::{Area, Heat, Host, ModelClock, ModelSource, Phase, Process};
use isotherm_sys::proc::Proc;
use isotherm_units::{Addr, AddrRange, Bytes};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const PID: u32 = 5;
const START: u64 = 64 << 30;
const TOTAL: u64 = 32 << 30;
/// This span becomes hot at [`CHANGE`].
const NEW: AddrRange = AddrRange { start: Addr(START + (22 << 30)), end: Addr(START + (22 << 30) + (160 << 20)) };
const CHANGE: u64 = 60 * S;
/// About a tenth of the memory.
const HOT: u64 = 3 << 30;
const SEEDS: u64 = 8;

/// A process of 32 GiB whose first `hot` bytes are accessed every 50 ms, and another like it, without the change.
fn host(hot: u64, other: Option<u64>) -> Arc<Host> {
    let becomes_hot = Heat::Phases(vec![
        Phase { until: CHANGE, heat: Heat::never() },
        Phase { until: u64::MAX, heat: Heat::poisson(50 * MS) },
    ]);
    let end = Addr(START + TOTAL);
    let process = |pid: u32, hot: u64, new: Heat| {
        let areas = [
            (Addr(START), Addr(START + hot), Heat::poisson(50 * MS)),
            (Addr(START + hot), NEW.start, Heat::never()),
            (NEW.start, NEW.end, new),
            (NEW.end, end, Heat::never()),
        ];
        let areas = areas.into_iter().filter(|(start, end, _)| start < end);
        areas.fold(Process::new(pid, "db"), |p, (start, end, heat)| p.area(Area::new(AddrRange::new(start, end), heat)))
    };
    let mut processes = vec![process(PID, hot, becomes_hot)];
    processes.extend(other.map(|hot| process(PID + 1, hot, Heat::never())));
    Arc::new(Host::new(Bytes(4 * TOTAL), processes).unwrap())
}

#[derive(Debug)]
struct Found {
    /// Time until nine tenths of the new span were reported hot.
    after: u64,
    /// The interval before the change, and the time in which each region was checked.
    interval_ns: u64,
    aggregated_in: u64,
    cpu_pct: f64,
    slowdown_pct: f64,
}

fn watch(host: &Arc<Host>, settings: Settings) -> Found {
    let clock = ModelClock::default();
    let source = ModelSource::new(host.clone(), clock.clone());
    let follower =
        Follower::new(&Selection::OfSource(host.processes().iter().map(|p| p.pid).collect()), Proc::default()).unwrap();
    let mut monitor = Monitor::new(Box::new(source), follower, clock.clone(), settings);
    let stop = AtomicBool::new(false);
    monitor.watch(CHANGE, &stop).unwrap();
    let extent = monitor.sampled_extent_of(PID).expect("it is sampled");
    let cost = monitor.cost(clock.now());
    let mut at = CHANGE;
    let wanted = NEW.len().0 / 10 * 9;
    loop {
        at += S / 2;
        monitor.watch(at, &stop).unwrap();
        let snapshot = monitor.snapshot(0);
        let hot = snapshot.targets[0].regions.iter().filter(|r| r.interval.ns().is_some_and(|ns| ns <= S));
        let right: u64 =
            hot.map(|r| r.range.end.0.min(NEW.end.0).saturating_sub(r.range.start.0.max(NEW.start.0))).sum();
        if right >= wanted {
            break;
        }
        assert!(at < CHANGE + 600 * S, "not found with {settings:?}");
    }
    Found {
        after: at - CHANGE,
        interval_ns: extent.interval_ns,
        aggregated_in: extent.aggregated_in.expect("rounds are over"),
        cpu_pct: cost.monitor_cpu_ns as f64 / cost.elapsed_ns as f64 * 100.0,
        slowdown_pct: cost.slowdown_pct,
    }
}

/// With these regions of all processes, tuned by default and at the fixed interval, for each seed.
fn both(host: &Arc<Host>, max_regions: usize) -> Vec<(Found, Found)> {
    let one = |seed| {
        let tuned = Settings { mode: Mode::Sampled, max_regions, seed, ..Settings::default() };
        let found = (watch(host, tuned), watch(host, Settings { intervals_goal: None, ..tuned }));
        assert_eq!(found.1.interval_ns, S);
        assert!(found.0.cpu_pct < 1.05 && found.0.slowdown_pct < 1.05, "{:?}", found.0);
        found
    };
    (1..=SEEDS).map(one).collect()
}

fn total(found: &[(Found, Found)], of: impl Fn(&(Found, Found)) -> u64) -> u64 {
    found.iter().map(of).sum()
}

#[test]
fn a_hot_target_is_checked_more_often_as_far_as_the_cpu_budget_affords() {
    let min = INTERVALS_GOAL.goal.min_interval_ns;
    for (max_regions, shortest, longest) in [(20, min, min), (100, 2 * min, 4 * min), (1000, S, S)] {
        for (tuned, _) in both(&host(HOT, None), max_regions) {
            assert!((shortest..=longest).contains(&tuned.interval_ns), "{max_regions} regions: {tuned:?}");
            // At 1 s and 1,000 regions, which is where tuning begins, the budgets do not even afford that.
            let is_affordable = tuned.aggregated_in <= tuned.interval_ns + CLEAR_TICK;
            assert!(is_affordable || tuned.interval_ns == S, "{max_regions} regions: {tuned:?}");
        }
    }
}

#[test]
fn what_changes_in_a_hot_target_is_found_sooner() {
    let found = both(&host(HOT, None), 20);
    let (tuned, fixed) = (total(&found, |f| f.0.after), total(&found, |f| f.1.after));
    let means = [tuned, fixed].map(|all| all / SEEDS / MS);
    assert!(2 * tuned < fixed, "found after {means:?} ms on average");
}

#[test]
fn what_becomes_hot_in_an_idle_target_is_found_no_later() {
    for max_regions in [100, 1000] {
        for (tuned, fixed) in both(&host(0, None), max_regions) {
            // The interval to begin with is the longest one of the default goal, so nothing at all differs.
            assert_eq!((tuned.interval_ns, tuned.after), (S, fixed.after), "{max_regions} regions");
        }
    }
}

/// When a hot process took all that the budget allowed, it was found 45% later on average (120 seeds).
#[test]
fn a_hot_process_takes_no_checks_from_an_idle_one() {
    for (tuned, fixed) in both(&host(0, Some(3 * HOT)), 200) {
        // Together they have 100 regions: the budget affords no less than a second.
        assert_eq!((tuned.after, tuned.aggregated_in), (fixed.after, fixed.aggregated_in), "{tuned:?}");
    }
}
