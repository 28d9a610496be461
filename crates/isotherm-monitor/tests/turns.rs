//! Targets take turns at a budget that is too small for all of them. Time is virtual, and a clear takes CPU time.

#[path = "support/costing.rs"]
mod costing;
mod support;

use costing::Costing;
use isotherm_heat::source::{BitsSink, Cleared, ClearedProcess, ClearedSink, PageSource, Progress, SourceResult};
use isotherm_heat::{Clock, Mask, Ns, PmdBits};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sys::proc::Proc;
use isotherm_units::PmdNo;
use std::cell::RefCell;
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
}

impl PageSource for Counting {
    fn read(&mut self, _: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        let bits = PmdBits::Pages { young: Mask::NONE, present: Mask::ALL };
        pmds.iter().for_each(|pmd| sink(self.clock.now(), *pmd, Some(bits)));
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
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
    let (clock, cleared) = (Costing::default(), Rc::<RefCell<BTreeMap<u32, u64>>>::default());
    let source = Counting { clock: clock.clone(), cleared: cleared.clone() };
    let source = MadeUp { pmds: Box::new(pmds), ..MadeUp::of(source, 0) };
    let follower = Follower::new(&Selection::OfSource((1..=pids).collect()), Proc::default()).unwrap();
    let settings = Settings { max_cpu_pct, ..Settings::default() };
    (Monitor::new(Box::new(source), follower, clock, settings), cleared)
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
