//! Sampled processes that map one piece of shared memory: clears of huge ranges leave its pages, and clears of whole processes
//! do not. Time is virtual.

mod support;

use isotherm_heat::source::{BitsSink, Cleared, ClearedProcess, ClearedSink, PageSource, Progress, SourceResult};
use isotherm_heat::{Clock, Mask, Ns, PmdBits, TargetHeat, VirtualClock};
use isotherm_monitor::{Follower, Mode, Monitor, Selection, Settings};
use isotherm_sys::proc::Proc;
use isotherm_units::PmdNo;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use support::{MadeUp, nothing_cleared};

const S: Ns = 1_000_000_000;
/// 256 MiB from huge range 1000 on, of which process 1 accesses the second quarter all the time. Process 2 has only mapped it.
const PMDS: u64 = 128;
const HOT: std::ops::Range<u64> = 1032..1064;

type Clears = Rc<RefCell<Vec<(u32, Ns)>>>;

struct Shared {
    time: VirtualClock,
    /// Clears of whole processes. Nothing else clears anything here.
    clears: Clears,
}

impl Shared {
    fn young(&self, pid: u32, pmd: PmdNo) -> Mask {
        let was_cleared = self.clears.borrow().iter().any(|(of, _)| *of == pid);
        let is_hot = pid == 1 && HOT.contains(&pmd.0);
        if is_hot || !was_cleared { Mask::ALL } else { Mask::NONE }
    }
}

impl PageSource for Shared {
    fn read(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        for pmd in pmds {
            let bits = PmdBits::Pages { young: self.young(pid, *pmd), present: Mask::ALL };
            sink(self.time.now(), *pmd, Some(bits));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        pmds.iter().for_each(|pmd| sink(self.time.now(), *pmd, Cleared::Except(self.young(pid, *pmd))));
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, pid: u32, stuck: &[PmdNo], all: &[PmdNo]) -> SourceResult<ClearedProcess> {
        assert!(!stuck.is_empty());
        let at = self.time.now();
        self.clears.borrow_mut().push((pid, at));
        let mut cleared = nothing_cleared(at);
        (cleared.pmds, cleared.clear.stall_ns) = (all.to_vec(), S / 100);
        Ok(cleared)
    }
}

/// Huge ranges reported as accessed every second or oftener.
fn hot(target: &TargetHeat) -> Vec<u64> {
    let hot = target.regions.iter().filter(|r| r.interval.ns().is_some_and(|ns| ns <= S));
    hot.flat_map(|r| r.range.start.pmd().0..r.range.end.pmd().0).collect()
}

#[test]
fn what_two_sampled_processes_share_is_measured_in_each() {
    for seed in 1..=3 {
        let (time, clears) = (VirtualClock::default(), Clears::default());
        let shared = Shared { time: time.clone(), clears: clears.clone() };
        let follower = Follower::new(&Selection::OfSource(vec![1, 2]), Proc::default()).unwrap();
        let settings = Settings { mode: Mode::Sampled, max_regions: 100, seed, ..Settings::default() };
        let mut monitor = Monitor::new(Box::new(MadeUp::of(shared, PMDS)), follower, time, settings);
        monitor.watch(15 * S, &AtomicBool::new(false)).unwrap();
        let snapshot = monitor.snapshot(0);
        for (target, is_hot) in snapshot.targets.iter().zip([true, false]) {
            let measured = target.temperature.measured();
            assert_eq!((measured, target.temperature.resident()), (PMDS * 512, PMDS * 512), "seed {seed}");
            let expected: Vec<u64> = if is_hot { HOT.collect() } else { Vec::new() };
            assert_eq!(hot(target), expected, "seed {seed}: process {}", target.id.pid);
        }
        // Nothing is left to clear in process 2. A stall of 10 ms allows two seconds later at the earliest, and intervals double.
        let of = |pid| clears.borrow().iter().filter(|(of, _)| *of == pid).map(|(_, at)| *at).collect::<Vec<Ns>>();
        assert_eq!(of(2).len(), 1, "seed {seed}: {:?}", of(2));
        assert!((2..=4).contains(&of(1).len()), "seed {seed}: {:?}", of(1));
        assert!(of(1).windows(2).all(|pair| pair[1] - pair[0] >= 2 * S), "seed {seed}: {:?}", of(1));
    }
}
