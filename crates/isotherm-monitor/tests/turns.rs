//! Targets take turns at a budget that is too small for all of them. Time is virtual, and a clear takes CPU time.

#[path = "support/costing.rs"]
mod costing;
mod support;

use costing::Costing;
use isotherm_heat::source::{
    BitsSink, Cleared, ClearedProcess, ClearedSink, PageSource, Progress, SourceError, SourceErrorKind, SourceResult,
};
use isotherm_heat::{Clock, Mask, Ns, PmdBits};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sys::proc::Proc;
use isotherm_units::PmdNo;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use support::MadeUp;

const S: Ns = 1_000_000_000;
/// What a clear takes.
const CLEAR: Ns = 35_000;

/// Counts clears by process. Nothing is ever accessed.
struct Counting {
    clock: Costing,
    cleared: Rc<RefCell<BTreeMap<u32, u64>>>,
    /// Whenever it is to be cleared, it has executed another program.
    executes: Option<u32>,
}

impl PageSource for Counting {
    fn read(&mut self, _: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        let bits = PmdBits::Pages { young: Mask::NONE, present: Mask::ALL };
        pmds.iter().for_each(|pmd| sink(self.clock.now(), *pmd, Some(bits)));
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        if self.executes == Some(pid) {
            return Err(SourceError::new(SourceErrorKind::Replaced, "clear accessed bits: another program"));
        }
        for pmd in pmds {
            self.clock.spend(CLEAR);
            *self.cleared.borrow_mut().entry(pid).or_default() += 1;
            sink(self.clock.now(), *pmd, Cleared::Except(Mask::NONE));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, _: u32, _: &[PmdNo], _: &[PmdNo]) -> SourceResult<ClearedProcess> {
        Ok(support::nothing_cleared(self.clock.now()))
    }
}

/// Watches processes with so many huge ranges at such a share of a CPU. Returns a way to see how many were cleared of each.
fn watch(max_cpu_pct: f64, pids: u32, pmds: fn(u32) -> u64) -> (Monitor<Costing>, Rc<RefCell<BTreeMap<u32, u64>>>) {
    let clock = Costing::default();
    let (source, cleared) = counting(&clock);
    let source = MadeUp { pmds: Box::new(pmds), ..MadeUp::of(source, 0) };
    (monitor(source, &clock, max_cpu_pct, pids), cleared)
}

fn counting(clock: &Costing) -> (Counting, Rc<RefCell<BTreeMap<u32, u64>>>) {
    let cleared = Rc::<RefCell<BTreeMap<u32, u64>>>::default();
    (Counting { clock: clock.clone(), cleared: cleared.clone(), executes: None }, cleared)
}

fn monitor(source: MadeUp<Counting>, clock: &Costing, max_cpu_pct: f64, pids: u32) -> Monitor<Costing> {
    let follower = Follower::new(&Selection::OfSource((1..=pids).collect()), Proc::default()).unwrap();
    let settings = Settings { max_cpu_pct, ..Settings::default() };
    Monitor::new(Box::new(source), follower, clock.clone(), settings)
}

/// Huge ranges of a process.
type Pmds = Box<dyn Fn(u32) -> u64>;

/// So many, which take so long to list. Counts listings of the second process.
fn listed_in(clock: &Costing, took: Ns, pmds: u64) -> (Pmds, Rc<Cell<u64>>) {
    let (clock, listings) = (clock.clone(), Rc::<Cell<u64>>::default());
    let counted = listings.clone();
    let pmds = move |pid| {
        clock.spend(took);
        counted.set(counted.get() + u64::from(pid == 2));
        pmds
    };
    (Box::new(pmds), listings)
}

/// With a budget of several cores, a listing of three hundred processes takes longer than the time between two.
#[test]
fn where_a_listing_takes_long_checks_are_made_in_between() {
    let clock = Costing::default();
    let (source, cleared) = counting(&clock);
    let (pmds, _) = listed_in(&clock, S / 200, 8);
    let mut monitor = monitor(MadeUp { pmds, ..MadeUp::of(source, 0) }, &clock, 1000.0, 300);
    monitor.watch(30 * S, &AtomicBool::new(false)).unwrap();
    assert_eq!(cleared.borrow().len(), 300);
}

#[test]
fn a_program_that_executes_others_again_and_again_does_not_have_all_targets_listed_each_time() {
    let clock = Costing::default();
    let (source, _) = counting(&clock);
    let (pmds, listings) = listed_in(&clock, 300_000, 8);
    let source = Counting { executes: Some(1), ..source };
    let mut monitor = monitor(MadeUp { pmds, ..MadeUp::of(source, 0) }, &clock, 1.0, 200);
    monitor.watch(120 * S, &AtomicBool::new(false)).unwrap();
    // 60 ms each: 40 s apart at a seventh of the budget, and 12 s at most. As many again may be moved forward.
    let listings = listings.get();
    assert!((10..=24).contains(&listings), "{listings} listings");
}

/// Clears of 400 GiB take seven seconds, for which a budget without limit is enough.
#[test]
fn clears_end_when_the_window_does() {
    let (mut monitor, _) = watch(1000.0, 1, |_| 200_000);
    monitor.watch(6 * S, &AtomicBool::new(false)).unwrap();
    assert!(monitor.now() < 6 * S + S / 2, "{} ms", monitor.now() / 1_000_000);
}

#[test]
fn what_has_ended_does_not_count_as_unchecked() {
    let clock = Costing::default();
    let (source, _) = counting(&clock);
    let (time, pmds) = (clock.clone(), |pid| if pid == 1 { 50_000 } else { 64 });
    let has_ended = Box::new(move |pid| pid == 1 && time.now() >= 20 * S);
    let source = MadeUp { pmds: Box::new(pmds), has_ended, ..MadeUp::of(source, 0) };
    let mut monitor = monitor(source, &clock, 1.0, 2);
    monitor.watch(19 * S, &AtomicBool::new(false)).unwrap();
    assert!(monitor.unchecked().0 > 40_000 && monitor.unchecked().1 == 50_064);
    monitor.watch(40 * S, &AtomicBool::new(false)).unwrap();
    assert_eq!(monitor.unchecked(), (0, 64), "before the next snapshot");
}

/// Of three hundred, two neighbours have memory. What is saved up is less than a batch, so one of them uses it up.
#[test]
fn neighbours_are_checked_alike_however_many_idle_processes_are_beside_them() {
    let (mut monitor, cleared) = watch(0.1, 300, |pid| if pid == 10 || pid == 11 { 2900 } else { 0 });
    monitor.watch(60 * S, &AtomicBool::new(false)).unwrap();
    let (first, second) = (cleared.borrow()[&10], cleared.borrow()[&11]);
    println!("{first} and {second} huge ranges were checked");
    assert!(first + second < 2 * 2900, "there is work left");
    assert!(first.abs_diff(second) * 5 < first, "{first} and {second}");
}

/// A store of 1.2 GiB on a machine with every CPU busy: any of its pages is accessed every four seconds, and everything takes two or three
/// times as long as in quiet.
struct BusyStore {
    clock: Costing,
    /// When pages were cleared last, by huge range.
    cleared: BTreeMap<PmdNo, Ns>,
}

impl BusyStore {
    const PMDS: u64 = 600;
    const EVERY: Ns = 4 * S;

    /// Pages that were accessed since a clear: each at moments of its own.
    fn accessed(pmd: PmdNo, since: Ns, now: Ns) -> Mask {
        let accesses =
            |page: u64, until: Ns| (until + (pmd.0 * 512 + page) * 7_919_000_003 % Self::EVERY) / Self::EVERY;
        (0..512).filter(|page| accesses(*page as u64, now) > accesses(*page as u64, since)).collect()
    }
}

impl PageSource for BusyStore {
    fn read(&mut self, _: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        self.clock.spend(50_000);
        for pmd in pmds {
            self.clock.spend(3_500);
            let now = self.clock.now();
            let young = self.cleared.get(pmd).map_or(Mask::ALL, |since| Self::accessed(*pmd, *since, now));
            sink(now, *pmd, Some(PmdBits::Pages { young, present: Mask::ALL }));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, _: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        for pmd in pmds {
            self.clock.spend(80_000);
            self.cleared.insert(*pmd, self.clock.now());
            sink(self.clock.now(), *pmd, Cleared::Except(Mask::NONE));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, _: u32, _: &[PmdNo], _: &[PmdNo]) -> SourceResult<ClearedProcess> {
        Ok(support::nothing_cleared(self.clock.now()))
    }
}

/// The credit of the start, snapshots, the files that a command makes of them, and waking up are all inside the budget.
#[test]
fn a_busy_store_is_recorded_for_a_minute_within_the_budget() {
    let clock = Costing { wake: 25_000, ..Costing::default() };
    let source = MadeUp::of(BusyStore { clock: clock.clone(), cleared: BTreeMap::new() }, BusyStore::PMDS);
    let follower = Follower::new(&Selection::OfSource(vec![1]), Proc::default()).unwrap();
    let mut monitor = Monitor::new(Box::new(source), follower, clock.clone(), Settings::default());
    let mut unmeasured = Vec::new();
    for window in 1..=30 {
        monitor.watch(window * 2 * S, &AtomicBool::new(false)).unwrap();
        let snapshot = monitor.snapshot(window);
        let pages = |of: fn(&isotherm_heat::Region) -> u64| snapshot.targets[0].regions.iter().map(of).sum::<u64>();
        unmeasured.push(pages(|r| r.resident_pages) - pages(|r| r.measured_pages));
        // What a command makes of it, and writes.
        clock.spend(12_000_000);
    }
    monitor.watch(60 * S + 1, &AtomicBool::new(false)).unwrap();
    let used_pct = monitor.cost(60 * S).monitor_cpu_ns as f64 / (60 * S) as f64 * 100.0;
    println!("{used_pct:.3}% of a core, unmeasured pages by snapshot {unmeasured:?}");
    // All that is granted may be used, and a batch more.
    assert!(used_pct <= 1.01, "{used_pct:.3}%");
    assert!(unmeasured[4..].iter().all(|pages| *pages == 0), "after ten seconds: {unmeasured:?}");
}
