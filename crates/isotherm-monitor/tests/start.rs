//! What the first picture waits for when the start was expensive. Time is virtual, and each call has its price in CPU time.

#[path = "support/costing.rs"]
mod costing;
mod support;

use costing::Costing;
use isotherm_heat::source::{BitsSink, Cleared, ClearedProcess, ClearedSink, PageSource, Progress, SourceResult};
use isotherm_heat::{Clock, Mask, Ns, PmdBits};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sys::proc::Proc;
use isotherm_units::PmdNo;
use std::sync::atomic::AtomicBool;
use support::MadeUp;

const MS: Ns = 1_000_000;
const S: Ns = 1000 * MS;
/// 1 GiB.
const PMDS: u64 = 512;
/// What a clear takes on a busy machine, and a read.
const CLEAR: Ns = 120_000;
const READ: Ns = 2_000;

/// A process with small pages that nobody accesses.
struct Idle(Costing);

impl PageSource for Idle {
    fn read(&mut self, _: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        self.0.spend(READ * pmds.len() as u64);
        let bits = PmdBits::Pages { young: Mask::NONE, present: Mask::ALL };
        pmds.iter().for_each(|pmd| sink(self.0.now(), *pmd, Some(bits)));
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, _: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        for pmd in pmds {
            self.0.spend(CLEAR);
            sink(self.0.now(), *pmd, Cleared::Except(Mask::NONE));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, _: u32, _: &[PmdNo], _: &[PmdNo]) -> SourceResult<ClearedProcess> {
        Ok(support::nothing_cleared(self.0.now()))
    }
}

fn monitor_of_one(clock: &Costing) -> Monitor<Costing> {
    let follower = Follower::new(&Selection::OfSource(vec![7]), Proc::default()).unwrap();
    let source = MadeUp::of(Idle(clock.clone()), PMDS);
    Monitor::new(Box::new(source), follower, clock.clone(), Settings::default())
}

/// A monitor at its defaults, of which opening the source took so long.
fn opened_in(opening: Ns) -> (Monitor<Costing>, Costing) {
    let clock = Costing::default();
    clock.spend(opening);
    (monitor_of_one(&clock), clock)
}

#[test]
fn an_expensive_start_does_not_keep_the_first_checks_waiting() {
    // By how much a first picture may lack after nine seconds, in percent.
    for (opening, lacks) in [(50 * MS, 1), (250 * MS, 5), (600 * MS, 25)] {
        let (mut monitor, clock) = opened_in(opening);
        let began = clock.now();
        monitor.watch(began + 9 * S, &AtomicBool::new(false)).unwrap();
        let (unchecked, all) = monitor.unchecked();
        assert_eq!(all as u64, PMDS);
        assert!(
            unchecked * 100 <= all * lacks,
            "opened in {} ms: {unchecked} of {all} not checked after 9 s",
            opening / MS
        );
    }
}

/// CPU time used by a minute of watching, by the clock and by the monitor's own word.
fn used_in_a_minute(mut monitor: Monitor<Costing>, clock: &Costing, before: Ns) -> (Ns, Ns) {
    let began = clock.now();
    monitor.watch(began + 60 * S, &AtomicBool::new(false)).unwrap();
    (clock.cpu() - before, monitor.cost(clock.now()).monitor_cpu_ns)
}

#[test]
fn a_second_watch_in_one_thread_does_not_pay_for_the_first() {
    let (first, clock) = opened_in(50 * MS);
    let fresh = used_in_a_minute(first, &clock, 0);
    // Ten hours of watching at 1%.
    clock.spend(360 * S);
    let before = clock.cpu();
    clock.spend(50 * MS);
    let used = used_in_a_minute(monitor_of_one(&clock).counting_from(before), &clock, before);
    assert_eq!(used.0, used.1, "what was before is not counted");
    assert!(used.0.abs_diff(fresh.0) < 10 * MS, "{} ms, and {} ms the first time", used.0 / MS, fresh.0 / MS);
}

#[test]
fn what_the_start_took_is_paid_back_within_two_minutes() {
    for opening in [50 * MS, 250 * MS, 600 * MS] {
        let (mut monitor, clock) = opened_in(opening);
        let began = clock.now();
        monitor.watch(began + 120 * S, &AtomicBool::new(false)).unwrap();
        let share = clock.cpu() as f64 / (clock.now() - began) as f64;
        assert!(share <= 0.0105, "opened in {} ms: {:.2}% of a CPU", opening / MS, share * 100.0);
    }
}

/// 14 GiB, of which eight spans are hot, a tenth in all. Calls cost what they do in quiet.
struct Spans(Costing);

impl Spans {
    const PMDS: u64 = 7168;
    const CLEAR: Ns = 25_000;
    const READ: Ns = 850;

    fn is_hot(pmd: PmdNo) -> bool {
        let (span, within) = (Spans::PMDS / 8, 50..140);
        within.contains(&((pmd.0 - 1000) % span))
    }
}

impl PageSource for Spans {
    fn read(&mut self, _: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        // A pass costs as much as reading forty huge ranges.
        self.0.spend(Spans::READ * (40 + pmds.len() as u64));
        for pmd in pmds {
            let young = if Spans::is_hot(*pmd) { Mask::ALL } else { Mask::NONE };
            sink(self.0.now(), *pmd, Some(PmdBits::Pages { young, present: Mask::ALL }));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, _: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        for pmd in pmds {
            self.0.spend(Spans::CLEAR);
            sink(self.0.now(), *pmd, Cleared::Except(Mask::NONE));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, _: u32, _: &[PmdNo], _: &[PmdNo]) -> SourceResult<ClearedProcess> {
        Ok(support::nothing_cleared(self.0.now()))
    }
}

/// A snapshot twice a second costs 1.5 ms, as it does for a target of this size.
const SNAPSHOT: Ns = 1_500_000;

#[test]
fn a_large_target_with_many_hot_spans_is_checked_within_a_minute_and_the_budget_is_kept() {
    let clock = Costing::default();
    clock.spend(12 * MS);
    let follower = Follower::new(&Selection::OfSource(vec![7]), Proc::default()).unwrap();
    let source = MadeUp::of(Spans(clock.clone()), Spans::PMDS);
    let mut monitor = Monitor::new(Box::new(source), follower, clock.clone(), Settings::default());
    let began = clock.now();
    let mut done_after = None;
    for half in 1..=240 {
        monitor.watch(began + half * S / 2, &AtomicBool::new(false)).unwrap();
        clock.spend(SNAPSHOT);
        monitor.snapshot(0);
        if monitor.unchecked().0 == 0 {
            done_after.get_or_insert(half as f64 / 2.0);
        }
    }
    let share = clock.cpu() as f64 / (clock.now() - began) as f64;
    assert!(
        done_after.is_some_and(|s| s <= 60.0),
        "all was checked after {done_after:?} s, at {:.2}% of a CPU",
        share * 100.0
    );
    assert!(share <= 0.0105, "{:.2}% of a CPU over two minutes", share * 100.0);
}
