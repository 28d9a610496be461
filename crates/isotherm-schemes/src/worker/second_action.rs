//! The seam holds a second action: a made-up one shares plan, queue, budgets and guards with collapsing, without a line of theirs.

use super::*;
use crate::collapse::{COLLAPSE, COLLAPSED, Collapse, CollapseMachine, PmdCheck, Rules};
use crate::facts::{PmdFacts, TargetWindow};
use crate::machine::{CgroupState, HostState, Unfit};
use crate::plan::{HintSource, Planner, Worth, plan};
use crate::queue::{ActionId, HintQueue, Level, Origin};
use crate::retry::{RetryScheduler, Step};
use isotherm_heat::Mapping;
use isotherm_units::{AddrRange, PmdNo};

const A: TargetId = TargetId { pid: 1, start_ticks: 10 };
/// Its own name for itself; no list of actions knows it.
const FADE: ActionId = ActionId(200);

/// Lets go of cold huge ranges, whatever that may be. It takes no memory, so it is held up by copies and pressure only.
#[derive(Debug)]
struct Fade;

/// What it wants of a machine.
trait FadeMachine: Machine {
    fn fade(&mut self, hint: &Hint);
}

impl<M: FadeMachine> Action<M> for Fade {
    fn id(&self) -> ActionId {
        FADE
    }

    fn done(&self) -> &'static str {
        "faded"
    }

    fn guards(&self) -> &'static [Guard] {
        &[Guard::Pressure, Guard::Fork]
    }

    fn refuses(&self, _: &Process) -> Option<Refusal> {
        None
    }

    fn check(&mut self, _: &mut M, _: &Hint, _: &Budgets) -> Result<Price, Refusal> {
        Ok(Price::default())
    }

    fn perform(&mut self, machine: &mut M, hint: &Hint) -> Performed {
        machine.fade(hint);
        Performed { result: Ok(()), pages: 3, took_ns: MS, cpu_ns: MS }
    }
}

/// Its planner: the colder the better.
impl Planner for Fade {
    fn action(&self) -> ActionId {
        FADE
    }

    fn unfit(&self, _: &[Mapping], _: &PmdFacts) -> Option<Refusal> {
        None
    }

    fn worth(&self, known: &PmdFacts) -> Result<Worth, Refusal> {
        // That it is too hot is no reason that collapsing knows; what matters here is that it gets no hint.
        let cold = known.benefit_hz < 1.0;
        if cold { Ok(Worth { level: Level::new(3), order: -known.benefit_hz }) } else { Err(Refusal::Error) }
    }
}

#[derive(Debug, Default)]
struct Fake {
    host: HostState,
    fork: Option<u32>,
    has_no_huge_page: bool,
    /// The cgroup has no room for a huge page, and its limit is not to be seen.
    has_no_charge: bool,
    disabled: bool,
    /// Collapses that were tried.
    tried: u32,
    done: Vec<(&'static str, u64)>,
}

impl Machine for Fake {
    fn admit(&mut self, _: TargetId, _: &Unfit<'_>) -> Result<Process, Refusal> {
        Ok(Process { resident: Bytes::of_pages(100_000), takes_huge_pages: !self.disabled, must_stay: None })
    }

    fn dismiss(&mut self, _: TargetId) {}

    fn fork_of(&mut self, _: TargetId) -> Option<u32> {
        self.fork
    }

    fn host(&mut self) -> HostState {
        self.host
    }

    fn cgroup(&mut self, _: TargetId) -> Option<CgroupState> {
        None
    }

    fn cpu_ns(&mut self) -> Ns {
        0
    }
}

impl CollapseMachine for Fake {
    fn check_pmd(&mut self, _: TargetId, _: PmdNo, _: bool) -> Result<PmdCheck, Refusal> {
        Ok(PmdCheck { present: 512, exclusive: 512, refusal: None })
    }

    fn collapse(&mut self, _: TargetId, pmd: PmdNo) -> Performed {
        let result = match (self.has_no_huge_page, self.has_no_charge) {
            (true, _) => Err(Failure::NoHugePage),
            (_, true) => Err(Failure::NoCharge),
            _ => Ok(()),
        };
        self.tried += 1;
        if result.is_ok() {
            self.done.push(("collapse", pmd.0));
        }
        Performed { result, pages: 0, took_ns: MS, cpu_ns: MS }
    }
}

impl FadeMachine for Fake {
    fn fade(&mut self, hint: &Hint) {
        self.done.push(("fade", hint.pmd.0));
    }
}

struct Scene {
    queue: HintQueue,
    retry: RetryScheduler,
    worker: Worker<Fake>,
    now: Ns,
}

impl Scene {
    /// Huge ranges 1 and 2 are cold, 11 and 12 hot; both planners have seen them.
    fn new(fake: Fake, budgets: Budgets) -> Scene {
        let actions: Vec<Box<dyn Action<Fake> + Send>> = vec![Box::new(Collapse::default()), Box::new(Fade)];
        let mut worker = Worker::new(fake, actions, budgets, S);
        assert_eq!(worker.admit(A, S), Ok(()));
        let facts =
            |pmd, benefit_hz| PmdFacts { pmd: PmdNo(pmd), present: 512, measured: 512, huge: false, benefit_hz };
        let range = AddrRange::new(PmdNo(0).addr(), PmdNo(20).addr());
        let window = TargetWindow {
            id: A,
            comm: "a".into(),
            mappings: vec![Mapping { range, name: String::new(), perms: "rw-p".parse().unwrap() }].into(),
            facts: vec![facts(1, 0.5), facts(2, 0.1), facts(11, 2000.0), facts(12, 9000.0)],
            generations: Vec::new(),
        };
        let mut queue = HintQueue::new(100);
        let planned = [
            plan(HintSource::Heat, &Fade, &window, S).hints,
            plan(HintSource::Heat, &Rules::default(), &window, S).hints,
        ];
        planned.into_iter().flatten().for_each(|hint| _ = queue.add(hint));
        Scene { queue, retry: RetryScheduler::new(100), worker, now: S }
    }

    fn play(&mut self, seconds: u64) -> &[(&'static str, u64)] {
        let end = self.now + seconds * S;
        while self.now < end {
            match self.retry.step(self.now, &mut self.queue, &mut self.worker) {
                Step::Did(..) | Step::Deferred(..) => {}
                Step::Wait(until, _) | Step::Idle(Some(until)) => self.now = self.now.max(until),
                Step::Idle(None) => break,
            }
        }
        &self.worker.machine().done
    }
}

fn unlimited() -> Budgets {
    Budgets { per_second: 1e6, cpu_pct: 1000.0, stall_pct: 1000.0, ..Budgets::default() }
}

const ALL: [(&str, u64); 4] = [("collapse", 12), ("collapse", 11), ("fade", 2), ("fade", 1)];

#[test]
fn both_are_planned_queued_performed_and_counted_by_name() {
    let mut scene = Scene::new(Fake::default(), unlimited());
    assert_eq!(scene.play(1), ALL);
    let counters = scene.worker.counters();
    assert_eq!((counters.all(COLLAPSED), counters.all("faded"), counters.all_done()), (2, 2, 4));
    let json = serde_json::to_value(counters).unwrap();
    assert_eq!((&json["collapsed"]["heat"], &json["faded"]["heat"]), (&2.into(), &2.into()), "{json:#}");
}

#[test]
fn they_share_one_rate() {
    let mut scene = Scene::new(Fake::default(), Budgets { per_second: 1.0, ..unlimited() });
    assert_eq!(scene.play(2).len(), 2);
    assert_eq!(scene.play(10), ALL);
}

#[test]
fn a_guard_of_one_does_not_hold_up_the_other() {
    // No free blocks: a huge page waits, what takes no memory goes on.
    let few = HostState { free_blocks: Some(0), ..HostState::default() };
    let mut scene = Scene::new(Fake { host: few, ..Fake::default() }, unlimited());
    assert_eq!(scene.play(5), &ALL[2..]);
    scene.worker.machine().host = HostState::default();
    assert_eq!(scene.play(5).len(), 4, "no hint is lost");
    // The same with a kernel that has no huge page to give.
    let mut scene = Scene::new(Fake { has_no_huge_page: true, ..Fake::default() }, unlimited());
    assert_eq!(scene.play(5), &ALL[2..]);
    // Pressure is a guard of both.
    let pressed = HostState { pressure_pct: Some(50.0), ..HostState::default() };
    let mut scene = Scene::new(Fake { host: pressed, ..Fake::default() }, unlimited());
    assert_eq!(scene.play(5), []);
    assert_eq!(scene.queue.len(), 4, "and nothing is deferred for it");
}

#[test]
fn a_copy_of_the_process_pauses_both() {
    let mut scene = Scene::new(Fake { fork: Some(77), ..Fake::default() }, unlimited());
    assert_eq!(scene.play(5), []);
    scene.worker.machine().fork = None;
    assert_eq!(scene.play(5).len(), 4);
}

#[test]
fn what_takes_no_memory_does_not_end_the_wait_after_a_refused_charge() {
    let mut scene = Scene::new(Fake { has_no_charge: true, ..Fake::default() }, unlimited());
    // One is tried and refused, then the cold ones are served, and the other hot one waits with its cgroup.
    let end = scene.now + MS;
    while scene.now < end {
        match scene.retry.step(scene.now, &mut scene.queue, &mut scene.worker) {
            Step::Did(..) | Step::Deferred(..) => {}
            Step::Wait(until, _) | Step::Idle(Some(until)) => scene.now = until,
            Step::Idle(None) => break,
        }
    }
    let fake = scene.worker.machine();
    assert_eq!((fake.tried, fake.done.as_slice()), (1, &ALL[2..]));
    assert_eq!(scene.worker.cgroup_wait(A), Some(Wait::NoCharge), "still");
}

#[test]
fn a_process_may_refuse_one_of_them() {
    let mut scene = Scene::new(Fake { disabled: true, ..Fake::default() }, unlimited());
    assert_eq!(scene.play(5), &ALL[2..]);
    assert_eq!(scene.worker.counters().refused, [(Refusal::Disabled, 2)].into());
}

#[test]
fn a_huge_range_is_queued_once_for_the_more_urgent_action() {
    let mut queue = HintQueue::new(10);
    let hint = |action, level| Hint {
        process: A,
        pmd: PmdNo(1),
        action,
        level: Level::new(level),
        origin: Origin::Heat,
        since: 0,
    };
    queue.add(hint(FADE, 3));
    queue.add(hint(COLLAPSE, 9));
    queue.add(hint(FADE, 5));
    assert_eq!((queue.len(), queue.take()), (1, Some(hint(COLLAPSE, 9))));
}
