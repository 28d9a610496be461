//! A source that fails for a moment, as one does that finds no descriptor: nothing is lost for good. Time is virtual.

mod support;

use isotherm_heat::source::{
    BitsSink, Cleared, ClearedProcess, ClearedSink, PageSource, Progress, SourceError, SourceErrorKind, SourceResult,
};
use isotherm_heat::{Clock, Mask, Ns, PmdBits, VirtualClock};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sys::proc::Proc;
use isotherm_units::PmdNo;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use support::MadeUp;

const S: Ns = 1_000_000_000;
const PMDS: u64 = 64;
/// Until then there is no descriptor: from the start for clears, and after the first read of all for reads.
const SHORT_UNTIL: Ns = 10 * S;

struct Short {
    clock: VirtualClock,
    young: BTreeSet<PmdNo>,
}

impl Short {
    fn check(&self, from: Ns) -> SourceResult<()> {
        if (from..SHORT_UNTIL).contains(&self.clock.now()) {
            return Err(SourceError::new(SourceErrorKind::Shortage, "read the page tables: no descriptor"));
        }
        Ok(())
    }
}

impl PageSource for Short {
    fn read(&mut self, _: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        self.check(1)?;
        // Every second huge range is accessed all the time.
        for pmd in pmds {
            let young = if pmd.0 % 2 == 0 || self.young.contains(pmd) { Mask::ALL } else { Mask::NONE };
            sink(self.clock.now(), *pmd, Some(PmdBits::Pages { young, present: Mask::ALL }));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, _: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        self.check(0)?;
        for pmd in pmds {
            self.young.remove(pmd);
            sink(self.clock.now(), *pmd, Cleared::Except(Mask::NONE));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, _: u32, _: &[PmdNo], _: &[PmdNo]) -> SourceResult<ClearedProcess> {
        Ok(support::nothing_cleared(self.clock.now()))
    }
}

#[test]
fn what_fails_for_a_while_is_done_afterwards() {
    let clock = VirtualClock::default();
    let young = (1000..1000 + PMDS).map(PmdNo).collect();
    let source = MadeUp::of(Short { clock: clock.clone(), young }, PMDS);
    let follower = Follower::new(&Selection::OfSource(vec![7]), Proc::default()).unwrap();
    let mut monitor = Monitor::new(Box::new(source), follower, clock.clone(), Settings::default());
    monitor.watch(9 * S, &AtomicBool::new(false)).unwrap();
    let (unchecked, _) = monitor.unchecked();
    assert!(unchecked as u64 == PMDS && monitor.is_watching(), "not gone, and nothing was checked: {unchecked}");
    assert!(monitor.news().iter().any(|sentence| sentence.contains("not all processes are watched yet")));
    monitor.watch(30 * S, &AtomicBool::new(false)).unwrap();
    let (unchecked, all) = monitor.unchecked();
    assert_eq!((unchecked, all as u64), (0, PMDS));
    let snapshot = monitor.snapshot(0);
    let target = &snapshot.targets[0];
    assert_eq!(target.temperature.resident() - target.temperature.measured(), 0, "every page has its heat");
    assert!(monitor.refused().is_empty(), "{:?}", monitor.refused());
}
