//! Processes that map one piece of shared memory. Where they are sampled, clears of huge ranges leave its pages, and clears of whole processes
//! do not. Where they are watched whole, each page counts once. Time is virtual.

mod support;

use isotherm_heat::source::{BitsSink, Cleared, ClearedProcess, ClearedSink, PageSource, Progress, SourceResult};
use isotherm_heat::{Clock, Mask, Ns, PmdBits, TargetHeat, VirtualClock};
use isotherm_monitor::{Follower, Mode, Monitor, Selection, Settings};
use isotherm_sys::proc::Proc;
use isotherm_units::{Perms, PmdNo};
use std::cell::{Cell, RefCell};
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

/// The same frames in every process.
struct OneFile(VirtualClock);

impl PageSource for OneFile {
    fn read(&mut self, _: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        let bits = PmdBits::Pages { young: Mask::NONE, present: Mask::ALL };
        pmds.iter().for_each(|pmd| sink(self.0.now(), *pmd, Some(bits)));
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, _: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        pmds.iter().for_each(|pmd| sink(self.0.now(), *pmd, Cleared::Except(Mask::NONE)));
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, _: u32, _: &[PmdNo], all: &[PmdNo]) -> SourceResult<ClearedProcess> {
        Ok(ClearedProcess { pmds: all.to_vec(), ..nothing_cleared(self.0.now()) })
    }

    fn shared_frames(&mut self, _: u32, pmds: &[PmdNo], each: &mut dyn FnMut(Option<u64>)) -> SourceResult<bool> {
        pmds.iter().flat_map(|pmd| (0..512).map(|page| pmd.0 << 9 | page)).for_each(|frame| each(Some(frame)));
        Ok(true)
    }
}

/// Three processes of the file, of which the last has started first, watched whole.
fn three_of_a_file(time: &VirtualClock, oldest_has_ended: &Rc<Cell<bool>>) -> Monitor<VirtualClock> {
    let has_ended = Rc::clone(oldest_has_ended);
    let source = MadeUp {
        perms: Perms::READ.union(Perms::SHARED),
        start_ticks: |pid| 10 - u64::from(pid),
        has_ended: Box::new(move |pid| pid == 3 && has_ended.get()),
        ..MadeUp::of(OneFile(time.clone()), PMDS)
    };
    let follower = Follower::new(&Selection::OfSource(vec![1, 2, 3]), Proc::default()).unwrap();
    let settings = Settings { mode: Mode::Whole, max_cpu_pct: 100.0, ..Settings::default() };
    Monitor::new(Box::new(source), follower, time.clone(), settings)
}

#[test]
fn shared_pages_count_for_the_oldest_and_are_doubtful_once_it_has_ended() {
    let (time, has_ended) = (VirtualClock::default(), Rc::new(Cell::new(false)));
    let mut monitor = three_of_a_file(&time, &has_ended);
    let never = AtomicBool::new(false);
    let mut counts = |until: Ns| {
        monitor.watch(until, &never).unwrap();
        let snapshot = monitor.snapshot(0);
        snapshot.alive().map(|t| (t.id.pid, t.counted_elsewhere_pages, t.maybe_shared_pages)).collect::<Vec<_>>()
    };
    let all = PMDS * 512;
    assert_eq!(counts(5 * S), [(1, all, 0), (2, all, 0), (3, 0, 0)]);
    has_ended.set(true);
    assert_eq!(counts(8 * S), [(1, 0, all), (2, 0, all)], "nobody knows what the two share");
    assert_eq!(counts(30 * S), [(1, all, 0), (2, 0, 0)]);
}
