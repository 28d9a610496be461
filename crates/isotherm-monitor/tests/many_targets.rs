//! What watching many processes costs, and that none of them waits for the others. Time is virtual, and each call has its price.

mod support;

use isotherm_heat::source::{
    Accesses, BitsSink, Cleared, ClearedProcess, ClearedSink, EnabledTime, PageSource, Progress, ReportSource, Reports,
    SourceResult,
};
use isotherm_heat::{Access, Clock, Mask, Ns, PmdBits, Silence, VirtualClock};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sys::proc::Proc;
use isotherm_units::PmdNo;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use support::MadeUp;

const MS: Ns = 1_000_000;
const S: Ns = 1000 * MS;
/// What clearing a huge range takes.
const CLEAR: Ns = MS / 10;
const PMDS: u64 = 32;

/// A clock that counts how often it is read: once for each target at each step.
#[derive(Clone, Debug, Default)]
struct CountingClock {
    time: VirtualClock,
    readings: Rc<Cell<u64>>,
}

impl Clock for CountingClock {
    fn now(&self) -> Ns {
        self.readings.set(self.readings.get() + 1);
        self.time.now()
    }

    fn cpu(&self) -> Ns {
        0
    }

    fn sleep_until(&self, at: Ns) {
        self.time.sleep_until(at);
    }
}

/// Processes with some huge pages each, none of which is ever accessed.
struct Idle {
    time: VirtualClock,
    cleared: BTreeMap<(u32, PmdNo), Ns>,
    clears: Rc<Cell<u64>>,
    /// From a clear to the first read.
    longest: Rc<Cell<Ns>>,
}

impl PageSource for Idle {
    fn read(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        for pmd in pmds {
            let now = self.time.now();
            if let Some(at) = self.cleared.remove(&(pid, *pmd)) {
                self.longest.set(self.longest.get().max(now - at));
            }
            sink(now, *pmd, Some(PmdBits::Huge { young: false }));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        for pmd in pmds {
            self.time.sleep_until(self.time.now() + CLEAR);
            self.clears.set(self.clears.get() + 1);
            self.cleared.insert((pid, *pmd), self.time.now());
            sink(self.time.now(), *pmd, Cleared::Except(Mask::NONE));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, _: u32, _: &[PmdNo], _: &[PmdNo]) -> SourceResult<ClearedProcess> {
        Ok(support::nothing_cleared(self.time.now()))
    }
}

/// Reports nothing, and counts how often it is asked.
struct Quiet {
    time: VirtualClock,
    asked: Rc<Cell<u64>>,
}

impl ReportSource for Quiet {
    fn accesses(&mut self, _: u32, _: &mut dyn FnMut(Access)) -> SourceResult<EnabledTime> {
        self.asked.set(self.asked.get() + 1);
        Ok(EnabledTime { until: self.time.now(), share: 1.0, weight: Some(1000), interrupts_ns: 0.0 })
    }

    fn reports(&mut self) -> Reports {
        Reports::default()
    }
}

struct Scene {
    monitor: Monitor<CountingClock>,
    clock: CountingClock,
    clears: Rc<Cell<u64>>,
    longest: Rc<Cell<Ns>>,
    asked: Rc<Cell<u64>>,
}

impl Scene {
    fn of(targets: u32, accesses: Accesses) -> Scene {
        let clock = CountingClock::default();
        let (clears, longest, asked) =
            (Rc::<Cell<u64>>::default(), Rc::<Cell<Ns>>::default(), Rc::<Cell<u64>>::default());
        let time = clock.time.clone();
        let quiet = Quiet { time: time.clone(), asked: asked.clone() };
        let idle = Idle { time, cleared: BTreeMap::new(), clears: clears.clone(), longest: longest.clone() };
        let reports: Option<Box<dyn ReportSource>> = Some(Box::new(quiet));
        let source = MadeUp { accesses, reports, ..MadeUp::of(idle, PMDS) };
        let selection = Selection::OfSource((1..=targets).collect());
        let follower = Follower::new(&selection, Proc::default()).unwrap();
        let settings = Settings { max_cpu_pct: 1000.0, max_slowdown_pct: 1000.0, ..Settings::default() };
        let monitor = Monitor::new(Box::new(source), follower, clock.clone(), settings);
        Scene { monitor, clock, clears, longest, asked }
    }

    fn until(&mut self, time: Ns) {
        self.monitor.watch(time, &AtomicBool::new(false)).unwrap();
    }

    /// Steps for each target in a second, while nothing is due to be cleared.
    fn steps_each_s(&mut self, targets: u64) -> f64 {
        let now = self.clock.time.now();
        let (readings, clears) = (self.clock.readings.get(), self.clears.get());
        self.until(now + 10 * S);
        assert_eq!(self.clears.get(), clears, "nothing is due");
        (self.clock.readings.get() - readings) as f64 / (10 * targets) as f64
    }
}

#[test]
fn what_targets_without_anything_to_clear_cost_is_in_proportion_to_their_number() {
    for targets in [50, 500] {
        let mut scene = Scene::of(targets, Accesses::Only(Silence::Cold));
        scene.until(2 * S);
        let asked = scene.asked.get();
        let steps = scene.steps_each_s(u64::from(targets));
        // Accesses are asked for ten times a second; the monitor wakes up as often, and for clears and listing.
        let asked = (scene.asked.get() - asked) as f64 / f64::from(10 * targets);
        println!("{targets} targets: {steps:.1} steps and {asked:.1} questions for each in a second");
        assert!((9.0..=11.0).contains(&asked), "{asked}");
        assert!(steps < 30.0, "{steps}");
    }
}

#[test]
fn reads_that_fall_due_while_many_are_cleared_are_not_late() {
    let mut scene = Scene::of(100, Accesses::None);
    scene.until(20 * S);
    assert!(scene.clears.get() >= 100 * PMDS, "{}", scene.clears.get());
    // 10 ms is when the first read is due; 3.2 ms a batch takes.
    println!("{} clears, first read after {} us at the latest", scene.clears.get(), scene.longest.get() / 1000);
    assert!(scene.longest.get() <= 10 * MS + PMDS * CLEAR, "{}", scene.longest.get());
}
