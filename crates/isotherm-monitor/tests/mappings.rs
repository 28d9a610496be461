//! What is counted by mapping keeps the budgets, too: a check walks the whole process eleven times. Time is virtual, and walks take CPU time.

#[path = "support/costing.rs"]
mod costing;

use costing::Costing;
use isotherm_heat::source::{
    AccessSource, Accesses, Attached, Clear, Counted, Description, Layout, MappingSource, Progress, SourceResult,
};
use isotherm_heat::{Clock, Granularity, Interval, Mapping, MappingBits, Ns, TargetId};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sys::proc::Proc;
use isotherm_units::{Addr, AddrRange, Perms};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

const MS: Ns = 1_000_000;
const S: Ns = 1000 * MS;
const RANGE: AddrRange = AddrRange { start: Addr(1 << 30), end: Addr(2 << 30) };

/// When each process was cleared.
type Clears = Rc<RefCell<Vec<(u32, Ns)>>>;

/// Processes of one mapping of which a walk takes so long. A half of it is accessed once, if at all.
struct Idle {
    clock: Costing,
    walk_ns: Ns,
    clears: Clears,
    accessed_at: Ns,
}

impl AccessSource for Idle {
    fn describe(&self) -> Description {
        let (granularity, accesses, note) = (Granularity::Mapping, Accesses::None, String::new());
        Description { name: "made-up", granularity, accesses, clears_others: false, note }
    }

    fn attach(&mut self, pid: u32) -> SourceResult<Attached> {
        Ok(Attached::here(TargetId { pid, start_ticks: 1 }, "made-up".into()))
    }

    fn detach(&mut self, _: u32) {}

    fn layout(&mut self, _: u32) -> SourceResult<Layout> {
        let mapping = Mapping { range: RANGE, name: String::new(), perms: Perms::UNKNOWN };
        Ok(Layout { mappings: vec![mapping], ..Layout::default() })
    }

    fn as_mappings(&mut self) -> Option<&mut dyn MappingSource> {
        Some(self)
    }
}

impl MappingSource for Idle {
    fn count(&mut self, _: u32) -> SourceResult<Counted> {
        let at = self.clock.now();
        self.clock.spend(self.walk_ns);
        let cleared_at = self.clears.borrow().last().map_or(0, |(_, at)| *at);
        let young_pages = if (cleared_at..=at).contains(&self.accessed_at) { 1 << 17 } else { 0 };
        let bits = MappingBits { range: RANGE, resident_pages: 1 << 18, young_pages, huge_pages: 0 };
        Ok(Counted { at, mappings: vec![bits], progress: Progress::default() })
    }

    fn clear(&mut self, pid: u32) -> SourceResult<Clear> {
        self.clock.spend(self.walk_ns);
        let at = self.clock.now();
        self.clears.borrow_mut().push((pid, at));
        Ok(Clear { at, stall_ns: self.walk_ns, flushed: true })
    }
}

const TIME: Ns = 600 * S;

fn monitor(pids: u32, walk_ns: Ns, max_cpu_pct: f64, accessed_at: Ns) -> (Monitor<Costing>, Clears) {
    let (clock, clears) = (Costing::default(), Clears::default());
    let source = Idle { clock: clock.clone(), walk_ns, clears: Rc::clone(&clears), accessed_at };
    let follower = Follower::new(&Selection::OfSource((1..=pids).collect()), Proc::default()).unwrap();
    let settings = Settings { max_cpu_pct, ..Settings::default() };
    (Monitor::new(Box::new(source), follower, clock, settings), clears)
}

/// The CPU time in percent of ten minutes, and the clears in them.
fn watched(pids: u32, walk_ns: Ns, max_cpu_pct: f64) -> (f64, Vec<(u32, Ns)>) {
    let (mut monitor, clears) = monitor(pids, walk_ns, max_cpu_pct, Ns::MAX);
    while monitor.now() < TIME {
        let next = monitor.now() + S;
        monitor.watch(next, &AtomicBool::new(false)).unwrap();
        drop(monitor.snapshot(next));
    }
    let now = monitor.now();
    let cpu_pct = 100.0 * monitor.cost(now).monitor_cpu_ns as f64 / now as f64;
    let clears = clears.take();
    println!("{pids} processes, {walk_ns} ns a walk: {cpu_pct:.2}% of a CPU, cleared at {clears:?}");
    (cpu_pct, clears)
}

/// 20 GiB at 50 ns a page are 260 ms for each walk: 2.6 s for a check, every 12.8 s if nothing limits it.
#[test]
fn checks_of_large_processes_wait_for_the_cpu_budget() {
    // One check may have begun just before the end.
    let (cpu_pct, clears) = watched(1, 260 * MS, 5.0);
    assert!(cpu_pct <= 5.5, "{cpu_pct}");
    assert!(clears.len() >= 8, "one in a minute: {clears:?}");
    let (cpu_pct, clears) = watched(4, 65 * MS, 5.0);
    assert!(cpu_pct <= 5.5, "{cpu_pct}");
    for pid in 1..=4 {
        assert!(clears.iter().filter(|(of, _)| *of == pid).count() >= 6, "all take turns: {clears:?}");
    }
}

#[test]
fn a_process_that_was_held_up_for_long_is_cleared_again_later() {
    // Half a second is a two hundredth of 100 s.
    let (_, clears) = watched(1, 500 * MS, 1000.0);
    let apart: Vec<Ns> = clears.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    assert!(!apart.is_empty() && apart.iter().all(|ns| *ns >= 100 * S), "{apart:?}");
    // A small one is checked as often as a check lasts.
    let (cpu_pct, clears) = watched(1, MS, 5.0);
    assert!(clears.len() >= 40, "{clears:?}");
    assert!(cpu_pct < 0.5, "{cpu_pct}");
}

/// The check ends with its read after 12.8 s, and the next waits for the budget.
#[test]
fn an_access_while_a_check_waits_for_the_budget_is_not_lost() {
    let (mut monitor, clears) = monitor(1, 260 * MS, 5.0, 30 * S);
    while clears.borrow().len() < 2 {
        let next = monitor.now() + S;
        monitor.watch(next, &AtomicBool::new(false)).unwrap();
    }
    let second = clears.borrow()[1].1;
    assert!(second > 35 * S, "{second}");
    monitor.watch(second + 14 * S, &AtomicBool::new(false)).unwrap();
    let now = monitor.now();
    let snapshot = monitor.snapshot(now);
    let idle = snapshot.targets[0].idle.quantile(1.0);
    assert!(idle.is_some_and(|idle| idle <= Interval::from_ns(now - 30 * S)), "{idle:?} at {now}");
}

#[test]
fn a_check_comes_now_and_then_though_the_budget_is_always_used_up() {
    // Of 0.01% of a CPU a check takes ten hours.
    let (mut monitor, clears) = monitor(1, 260 * MS, 0.01, Ns::MAX);
    while monitor.now() < 3600 * S {
        let next = monitor.now() + 10 * S;
        monitor.watch(next, &AtomicBool::new(false)).unwrap();
    }
    assert!((5..=7).contains(&clears.borrow().len()), "every ten minutes: {clears:?}");
}
