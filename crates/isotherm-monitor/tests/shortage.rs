//! A source that fails for a moment, as one does that finds no descriptor: nothing is lost for good. Time is virtual.

mod support;

use isotherm_heat::source::{
    Asked, BitsSink, Cleared, ClearedProcess, ClearedSink, PageSource, Progress, SourceError, SourceErrorKind,
};
use isotherm_heat::{BlockBits, Clock, Mask, Ns, VirtualClock};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sys::proc::Proc;
use isotherm_units::BlockNo;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use support::MadeUp;

const S: Ns = 1_000_000_000;
const BLOCKS: u64 = 64;
/// Between these times there is no descriptor.
const SHORT: std::ops::Range<Ns> = S / 2..10 * S;

struct Short {
    clock: VirtualClock,
    young: BTreeSet<BlockNo>,
}

impl Short {
    fn check(&self) -> Asked<()> {
        if SHORT.contains(&self.clock.now()) {
            return Err(SourceError::new(SourceErrorKind::Shortage, "read the page tables: no descriptor"));
        }
        Ok(())
    }
}

impl PageSource for Short {
    fn read(&mut self, _: u32, blocks: &[BlockNo], sink: &mut BitsSink<'_>) -> Asked<Progress> {
        self.check()?;
        // Every second block is accessed all the time.
        for block in blocks {
            let young = if block.0 % 2 == 0 || self.young.contains(block) { Mask::ALL } else { Mask::NONE };
            sink(self.clock.now(), *block, Some(BlockBits::Pages { young, present: Mask::ALL }));
        }
        Ok(Progress { answered: blocks.len(), ..Progress::default() })
    }

    fn clear(&mut self, _: u32, blocks: &[BlockNo], sink: &mut ClearedSink<'_>) -> Asked<Progress> {
        self.check()?;
        for block in blocks {
            self.young.remove(block);
            sink(self.clock.now(), *block, Cleared::Except(Mask::NONE));
        }
        Ok(Progress { answered: blocks.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, _: u32, _: &[BlockNo], _: &[BlockNo]) -> Asked<ClearedProcess> {
        Ok(support::nothing_cleared(self.clock.now()))
    }
}

#[test]
fn what_fails_for_a_while_is_done_afterwards() {
    let clock = VirtualClock::default();
    let young = (1000..1000 + BLOCKS).map(BlockNo).collect();
    let source = MadeUp::of(Short { clock: clock.clone(), young }, BLOCKS);
    let follower = Follower::new(&Selection::OfSource(vec![7]), Proc::default()).unwrap();
    let mut monitor = Monitor::new(Box::new(source), follower, clock.clone(), Settings::default());
    monitor.watch(9 * S, &AtomicBool::new(false)).unwrap();
    let (unchecked, _) = monitor.unchecked();
    assert!(unchecked > 0 && monitor.is_watching(), "not gone, and not all was checked: {unchecked}");
    assert!(monitor.news().iter().any(|sentence| sentence.contains("not all processes are watched yet")));
    monitor.watch(30 * S, &AtomicBool::new(false)).unwrap();
    let (unchecked, all) = monitor.unchecked();
    assert_eq!((unchecked, all as u64), (0, BLOCKS));
    let snapshot = monitor.snapshot(0);
    let target = &snapshot.targets[0];
    assert_eq!(target.temperature.resident() - target.temperature.measured(), 0, "every page has its heat");
    assert!(monitor.refused().is_empty(), "{:?}", monitor.refused());
}
