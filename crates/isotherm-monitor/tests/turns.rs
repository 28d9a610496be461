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
