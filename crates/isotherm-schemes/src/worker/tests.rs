//! Storms and bad luck, played on a made-up machine and clock.

use super::*;
use crate::collapse::{COLLAPSE, COLLAPSED, Collapse, CollapseMachine, PmdCheck};
use crate::machine::{CgroupState, HostState, Unfit};
use crate::queue::{HintQueue, Level, Origin};
use crate::retry::{RetryScheduler, Step};
use isotherm_sys::proc::MemoryUse;
use isotherm_units::PmdNo;
use std::collections::BTreeSet;

const A: TargetId = TargetId { pid: 1, start_ticks: 10 };
const B: TargetId = TargetId { pid: 2, start_ticks: 20 };

/// What a made-up machine does; by default all is well and a collapse takes a millisecond.
#[derive(Debug, Default)]
struct Fake {
    looks: BTreeMap<PmdNo, PmdCheck>,
    gone: BTreeSet<TargetId>,
    /// Have switched huge pages off for themselves.
    disabled: BTreeSet<TargetId>,
    failures: BTreeMap<PmdNo, Vec<Failure>>,
    fork: Option<u32>,
    host: HostState,
    /// Of all processes.
    cgroup: Option<CgroupState>,
    took_ns: Option<Ns>,
    /// CPU time of one [`CollapseMachine::check`].
    look_ns: Ns,
    cpu_ns: Ns,
    collapsed: Vec<(TargetId, PmdNo)>,
}

impl Machine for Fake {
    fn admit(&mut self, process: TargetId, unfit: &Unfit<'_>) -> Result<Process, Refusal> {
        if self.gone.contains(&process) {
            return Err(Refusal::Gone);
        }
        let takes_huge_pages = !self.disabled.contains(&process);
        let found = Process { resident: Bytes::of_pages(100_000), takes_huge_pages, must_stay: None };
        unfit(&found).map_or(Ok(found), Err)
    }

    fn dismiss(&mut self, _: TargetId) {}

    fn fork_of(&mut self, _: TargetId) -> Option<u32> {
        self.fork
    }

    fn host(&mut self) -> HostState {
        self.host
    }

    fn cgroup(&mut self, _: TargetId) -> Option<CgroupState> {
        self.cgroup.clone()
    }

    fn cpu_ns(&mut self) -> Ns {
        self.cpu_ns
    }
}

impl CollapseMachine for Fake {
    fn check_pmd(&mut self, process: TargetId, pmd: PmdNo, _: bool) -> Result<PmdCheck, Refusal> {
        self.cpu_ns += self.look_ns;
        if self.gone.contains(&process) {
            return Err(Refusal::Gone);
        }
        Ok(self.looks.get(&pmd).copied().unwrap_or(PmdCheck { present: 512, exclusive: 512, refusal: None }))
    }

    fn collapse(&mut self, process: TargetId, pmd: PmdNo) -> Performed {
        let failure = self.failures.get_mut(&pmd).and_then(Vec::pop);
        let took = self.took_ns.unwrap_or(MS);
        self.cpu_ns += took;
        if failure.is_none() {
            self.collapsed.push((process, pmd));
        }
        Performed { result: failure.map_or(Ok(()), Err), pages: 0, took_ns: took, cpu_ns: took }
    }
}

struct Scene {
    queue: HintQueue,
    retry: RetryScheduler,
    worker: Worker<Fake>,
    now: Ns,
    waits: BTreeMap<Wait, u32>,
}

impl Scene {
    fn new(fake: Fake, budgets: Budgets) -> Scene {
        let mut worker = Worker::new(fake, vec![Box::new(Collapse::default())], budgets, S);
        for process in [A, B] {
            let _ = worker.admit(process, S);
        }
        Scene { queue: HintQueue::new(1000), retry: RetryScheduler::new(1000), worker, now: S, waits: BTreeMap::new() }
    }

    fn with_long_retries(self) -> Scene {
        Scene { worker: self.worker.with_long_retries(), ..self }
    }

    fn hint(&mut self, process: TargetId, pmd: u64) -> &mut Scene {
        let level = Level::new(20);
        self.queue.add(Hint {
            process,
            pmd: PmdNo(pmd),
            action: COLLAPSE,
            level,
            origin: Origin::Heat,
            since: self.now,
        });
        self
    }

    /// Until nothing is left, or `seconds` have passed. Returns what was done.
    fn play(&mut self, seconds: u64) -> Vec<(u64, Outcome)> {
        let end = self.now + seconds * S;
        let mut did = Vec::new();
        while self.now < end {
            match self.retry.step(self.now, &mut self.queue, &mut self.worker) {
                Step::Did(hint, outcome) => did.push((hint.pmd.0, outcome)),
                Step::Deferred(_, why) => *self.waits.entry(why).or_default() += 1,
                Step::Wait(until, why) => {
                    *self.waits.entry(why).or_default() += 1;
                    assert!(until > self.now, "{why:?} has to let time pass");
                    self.now = until;
                }
                Step::Idle(None) => break,
                Step::Idle(Some(at)) => self.now = self.now.max(at),
            }
        }
        did
    }
}

const DONE: Outcome = Outcome::Done { grown: 0 };

fn unlimited() -> Budgets {
    Budgets { per_second: 1e6, cpu_pct: 1000.0, stall_pct: 1000.0, ..Budgets::default() }
}

#[test]
fn what_is_hinted_is_collapsed_and_counted_by_origin() {
    let mut scene = Scene::new(Fake::default(), unlimited());
    scene.hint(A, 1).hint(B, 2);
    scene.queue.add(Hint {
        process: A,
        pmd: PmdNo(3),
        action: COLLAPSE,
        level: Level::new(1),
        origin: Origin::External,
        since: 0,
    });
    assert_eq!(scene.play(1), [(1, DONE), (2, DONE), (3, DONE)]);
    let counters = scene.worker.counters();
    assert_eq!(counters.of(COLLAPSED), [(Origin::Heat, 2), (Origin::External, 1)].into());
    assert_eq!((counters.stall_ns, counters.all_done()), (3 * MS, 3));
}

#[test]
fn nothing_is_collapsed_that_was_not_named() {
    let stranger = TargetId { pid: 3, start_ticks: 30 };
    let mut scene = Scene::new(Fake::default(), unlimited());
    scene.hint(stranger, 1);
    // The pid of A, but another process.
    scene.hint(TargetId { pid: 1, start_ticks: 99 }, 2);
    let no = Outcome::Refused(Refusal::NotNamed);
    assert_eq!(scene.play(1), [(1, no), (2, no)]);
    assert!(scene.worker.machine().collapsed.is_empty());
}

#[test]
fn a_process_that_ends_takes_its_hints_with_it() {
    let mut scene = Scene::new(Fake::default(), unlimited());
    scene.hint(A, 1).hint(B, 2);
    scene.worker.machine().gone.insert(A);
    assert_eq!(scene.play(1), [(1, Outcome::Refused(Refusal::Gone)), (2, DONE)]);
    scene.hint(B, 5);
    scene.worker.dismiss(B);
    assert_eq!(scene.play(1), [(5, Outcome::Refused(Refusal::NotNamed))]);
}

#[test]
fn sparse_shared_and_refusing_huge_ranges_are_left_alone() {
    let mut fake = Fake::default();
    fake.looks.insert(PmdNo(1), PmdCheck { present: 51, exclusive: 51, refusal: None });
    fake.looks.insert(PmdNo(2), PmdCheck { present: 512, exclusive: 100, refusal: None });
    fake.looks.insert(PmdNo(3), PmdCheck { refusal: Some(Refusal::NoHugeAdvice), ..PmdCheck::default() });
    fake.looks.insert(PmdNo(4), PmdCheck::default());
    let mut scene = Scene::new(fake, unlimited());
    scene.hint(A, 1).hint(A, 2).hint(A, 3).hint(A, 4);
    let reasons = [Refusal::Sparse, Refusal::Shared, Refusal::NoHugeAdvice, Refusal::Unmapped];
    assert_eq!(scene.play(1), std::iter::zip(1.., reasons).map(|(n, r)| (n, Outcome::Refused(r))).collect::<Vec<_>>());
    assert!(scene.worker.machine().collapsed.is_empty(), "none of them was tried");
}

#[test]
fn a_process_grows_by_its_share_and_no_more() {
    let mut fake = Fake::default();
    for pmd in 1..=100 {
        fake.looks.insert(PmdNo(pmd), PmdCheck { present: 462, exclusive: 462, refusal: None });
    }
    // 2% of 100,000 pages are 2,000: forty huge ranges of 50 missing pages each.
    let mut scene = Scene::new(fake, unlimited());
    for pmd in 1..=100 {
        scene.hint(A, pmd);
    }
    let did = scene.play(10);
    assert_eq!(did.iter().filter(|(_, o)| *o == Outcome::Done { grown: 50 }).count(), 40);
    assert_eq!(did.iter().filter(|(_, o)| *o == Outcome::Refused(Refusal::Growth)).count(), 60);
    assert_eq!(scene.worker.counters().grown_pages, 2000);
}

#[test]
fn a_process_that_was_found_at_its_start_may_grow_when_it_is_large() {
    let mut fake = Fake::default();
    for pmd in 1..=100 {
        fake.looks.insert(PmdNo(pmd), PmdCheck { present: 462, exclusive: 462, refusal: None });
    }
    let mut scene = Scene::new(fake, unlimited());
    scene.worker.note_resident(A, Bytes::of_pages(1000));
    (1..=60).for_each(|pmd| _ = scene.hint(A, pmd));
    let grown = |did: &[(u64, Outcome)]| did.iter().filter(|(_, o)| *o == Outcome::Done { grown: 50 }).count();
    assert_eq!(grown(&scene.play(10)), 40, "what it had at its largest counts");
    // 150,000 pages and those that were added, of which 2% are not allowed once more.
    scene.worker.note_resident(A, Bytes::of_pages(152_000));
    (61..=100).for_each(|pmd| _ = scene.hint(A, pmd));
    assert_eq!(grown(&scene.play(10)), 20);
}

#[test]
fn free_blocks_are_left_alone_also_between_two_looks_at_them() {
    let host = HostState { free_blocks: Some(100), ..HostState::default() };
    let mut scene = Scene::new(Fake { host, ..Fake::default() }, Budgets { free_blocks: 64, ..unlimited() });
    (1..=60).for_each(|pmd| _ = scene.hint(A, pmd));
    scene.worker.ready(scene.now).unwrap();
    let mut done = 0;
    // All within the time of one look.
    while let Step::Did(..) = scene.retry.step(scene.now, &mut scene.queue, &mut scene.worker) {
        done += 1;
        scene.now += MS;
    }
    assert_eq!(done, 36);
}

#[test]
fn busy_pages_are_tried_again_later_and_later_and_given_up() {
    let mut fake = Fake::default();
    fake.failures.insert(PmdNo(1), vec![Failure::Busy; 3]);
    fake.failures.insert(PmdNo(2), vec![Failure::Busy; 100]);
    let mut scene = Scene::new(fake, unlimited());
    scene.hint(A, 1).hint(A, 2);
    let began = scene.now;
    assert_eq!(scene.play(60), [(1, DONE), (2, Outcome::Refused(Refusal::Busy))]);
    assert_eq!(scene.worker.machine().failures[&PmdNo(2)].len(), 95, "five tries");
    // 200, 400, 800 and 1,600 ms.
    assert!((3 * S..4 * S).contains(&(scene.now - began)), "{} ms", (scene.now - began) / MS);
}

#[test]
fn a_refusal_that_nothing_explains_may_pass() {
    // A huge range that can never be huge is given up.
    let mut fake = Fake::default();
    fake.failures.insert(PmdNo(1), vec![Failure::Unexplained; 4]);
    fake.failures.insert(PmdNo(2), vec![Failure::Unexplained; 5]);
    let mut scene = Scene::new(fake, unlimited());
    scene.hint(A, 1).hint(A, 2);
    assert_eq!(scene.play(60), [(1, DONE), (2, Outcome::Refused(Refusal::Ineligible))]);
}

#[test]
fn a_huge_range_that_has_to_be_written_first_is_tried_for_as_long_as_there_is_patience() {
    let scene = || {
        let mut fake = Fake::default();
        fake.failures.insert(PmdNo(1), vec![Failure::Unexplained; 1000]);
        let mut scene = Scene::new(fake, unlimited());
        scene.hint(A, 1).hint(A, 2);
        scene
    };
    let given_up = (1, Outcome::Refused(Refusal::Ineligible));
    assert_eq!(scene().play(60), [(2, DONE), given_up], "as any other");

    let mut scene = scene().with_long_retries();
    assert_eq!(scene.play(600), [(2, DONE)]);
    let left = scene.worker.machine().failures[&PmdNo(1)].len();
    assert!((980..990).contains(&left), "{} tries in ten minutes", 1000 - left);
    assert!(scene.retry.is_deferred(A, PmdNo(1)), "what goes on hinting at it changes nothing");
    assert_eq!((scene.retry.deferred_for(&[Wait::Unwritable]), scene.retry.deferred_for(&[Wait::Busy])), (1, 0));
    scene.worker.machine().failures.clear();
    assert_eq!(scene.play(61), [(1, DONE)], "written: collapsed within a minute");
    scene.worker.machine().failures.insert(PmdNo(3), vec![Failure::Unexplained; 1000]);
    assert_eq!(scene.hint(A, 3).play(3 * 3600), [(3, Outcome::Refused(Refusal::Ineligible))], "not for ever");
}

#[test]
fn without_free_huge_pages_everything_waits_and_then_goes_on() {
    let mut fake = Fake::default();
    fake.failures.insert(PmdNo(1), vec![Failure::NoHugePage; 4]);
    let mut scene = Scene::new(fake, unlimited());
    scene.hint(A, 1).hint(A, 2);
    let mut did = scene.play(60);
    did.sort_unstable();
    assert_eq!(did, [(1, DONE), (2, DONE)]);
    assert!(scene.waits[&Wait::NoHugePage] >= 3, "{:?}", scene.waits);
}

#[test]
fn an_endless_shortage_backs_off_to_a_minute() {
    let mut fake = Fake::default();
    for pmd in 0..500 {
        fake.failures.insert(PmdNo(pmd), vec![Failure::NoHugePage; 1000]);
    }
    let mut scene = Scene::new(fake, unlimited());
    for pmd in 0..500 {
        scene.hint(A, pmd);
    }
    scene.play(600);
    let left: usize = scene.worker.machine().failures.values().map(Vec::len).sum();
    assert!(500_000 - left < 20, "{} tries in ten minutes", 500_000 - left);
}

#[test]
fn while_a_forked_copy_lives_nothing_is_collapsed_and_nothing_is_lost() {
    let mut scene = Scene::new(Fake { fork: Some(77), ..Fake::default() }, unlimited());
    scene.hint(A, 1).hint(A, 2);
    assert_eq!(scene.play(10), []);
    assert_eq!([A, B].map(|process| scene.worker.paused_for(process)), [Some(77), None]);
    assert!(scene.waits[&Wait::Fork] < 100, "looked at now and then: {:?}", scene.waits);
    scene.worker.machine().fork = None;
    assert_eq!(scene.play(10), [(1, DONE), (2, DONE)]);
    assert_eq!(scene.worker.paused_for(A), None);
}

#[test]
fn each_budget_is_kept() {
    let play = |budgets: Budgets, seconds: u64| {
        let mut scene = Scene::new(Fake::default(), budgets);
        for pmd in 0..1000 {
            scene.hint(A, pmd);
        }
        (scene.play(seconds).len(), scene.waits)
    };
    let (done, waits) = play(Budgets { per_second: 20.0, ..unlimited() }, 10);
    assert!((200..=206).contains(&done) && waits.contains_key(&Wait::Rate), "{done}: 20 a second and a burst of 5");
    let (done, waits) = play(Budgets { cpu_pct: 5.0, ..unlimited() }, 10);
    assert!((400..=560).contains(&done) && waits.contains_key(&Wait::Cpu), "{done}: 50 ms a second and the credit");
    let (done, waits) = play(Budgets { stall_pct: 2.0, ..unlimited() }, 10);
    assert!((150..=250).contains(&done) && waits.contains_key(&Wait::Stall), "{done}: 20 ms a second and the credit");
}

#[test]
fn a_flood_of_hints_that_are_refused_keeps_to_the_cpu_budget() {
    // As many as the daemon queues; each is checked for 20 us, and refused.
    let fake = Fake { look_ns: 20_000, gone: [A].into(), ..Fake::default() };
    let mut scene = Scene::new(Fake::default(), Budgets { cpu_pct: 10.0, ..unlimited() });
    *scene.worker.machine() = fake;
    scene.queue = HintQueue::new(1 << 19);
    for pmd in 0..1 << 19 {
        scene.hint(A, pmd);
    }
    let refused = scene.play(10).len();
    // A second of ten, and the tenth of a second that may be saved up.
    assert!((45_000..56_000).contains(&refused), "{refused}");
    assert!(scene.waits.contains_key(&Wait::Cpu));
    let spent = scene.worker.counters().cpu_ns;
    assert!((S - S / 10..S + S / 10 + MS).contains(&spent), "{} ms", spent / MS);
}

#[test]
fn one_slow_target_does_not_hold_up_another() {
    // A's collapses use up its stall budget; B goes on.
    let mut scene =
        Scene::new(Fake { took_ns: Some(30 * MS), ..Fake::default() }, Budgets { stall_pct: 2.0, ..unlimited() });
    for pmd in 0..50 {
        scene.hint(A, pmd);
    }
    scene.play(2);
    scene.hint(B, 1000);
    let now = scene.now;
    let did = scene.play(1);
    assert!(did.contains(&(1000, DONE)), "{did:?} at {} ms", (scene.now - now) / MS);
}

#[test]
fn a_host_short_of_memory_is_left_alone_until_it_is_not() {
    let all = Some(Bytes(100 << 30));
    let low = HostState { available: Some(Bytes(4 << 30)), memory: all, ..HostState::default() };
    let few = HostState { free_blocks: Some(64), ..HostState::default() };
    let pressed = HostState { pressure_pct: Some(10.1), ..HostState::default() };
    for (host, wait) in [(low, Wait::Headroom), (few, Wait::FreeBlocks), (pressed, Wait::Pressure)] {
        let mut scene = Scene::new(Fake { host, ..Fake::default() }, unlimited());
        scene.hint(A, 1);
        assert_eq!(scene.play(5), [], "{wait:?}");
        assert_eq!(scene.waits[&wait], 10, "looked at twice a second");
        scene.worker.machine().host = HostState::default();
        assert_eq!(scene.play(5), [(1, DONE)]);
    }
}

const MIB: u64 = 1 << 20;

/// A cgroup that holds `current` of its limit, and one above it that holds `above` of its own; in MiB.
fn limits(current: (u64, u64), above: (u64, u64)) -> CgroupState {
    let held = |(current, limit)| MemoryUse {
        current: Bytes(current * MIB),
        limit: Some(Bytes(limit * MIB)),
        ..MemoryUse::default()
    };
    CgroupState { path: "/pod/app".into(), limited: vec![held(current), held(above)], ..CgroupState::default() }
}

#[test]
fn a_cgroup_near_a_limit_waits_until_there_is_room() {
    let high = MemoryUse { current: Bytes(90 * MIB), high: Some(Bytes(96 * MIB)), ..MemoryUse::default() };
    let slow_down = CgroupState { limited: vec![high], ..limits((0, 1), (0, 1)) };
    let pressed = CgroupState { pressure_pct: Some(10.1), ..limits((10, 64), (10, 64)) };
    let cases = [
        // 6 MiB are left: enough for the 2 MiB of a collapse, and too little for what comes after it.
        (limits((58, 64), (100, 1000)), Wait::CgroupLimit),
        (limits((58, 1000), (995, 1000)), Wait::CgroupLimit),
        // 1% of 4 GiB is 41 MiB.
        (limits((4056, 4096), (0, 10_000)), Wait::CgroupLimit),
        (slow_down, Wait::CgroupLimit),
        (pressed, Wait::CgroupPressure),
    ];
    for (cgroup, wait) in cases {
        let mut scene = Scene::new(Fake { cgroup: Some(cgroup.clone()), ..Fake::default() }, unlimited());
        (1..=100).for_each(|pmd| _ = scene.hint(A, pmd).hint(B, 100 + pmd));
        assert_eq!(scene.play(60), [], "{cgroup:?}");
        assert_eq!(scene.retry.deferred_for(&[wait]), 200, "no hint is lost");
        let waits = [A, B].map(|process| scene.worker.cgroup_wait(process));
        assert_eq!(waits, [Some(wait); 2], "both are in it");
        assert!(scene.waits[&wait] < 200 * 15, "checked less and less often: {:?}", scene.waits);
        scene.worker.machine().cgroup = Some(limits((54, 64), (100, 1000)));
        assert_eq!(scene.play(10).len(), 200, "10 MiB are enough");
        assert_eq!([A, B].map(|process| scene.worker.cgroup_wait(process)), [None; 2]);
    }
}

#[test]
fn what_a_collapse_adds_counts_against_the_room() {
    let mut fake = Fake { cgroup: Some(limits((54, 64), (100, 1000))), ..Fake::default() };
    fake.looks.insert(PmdNo(1), PmdCheck { present: 462, exclusive: 462, refusal: None });
    let mut scene = Scene::new(fake, unlimited());
    assert_eq!(scene.hint(A, 1).play(10), []);
    assert_eq!(scene.waits.keys().collect::<Vec<_>>(), [&Wait::CgroupLimit]);
}

#[test]
fn a_refused_charge_pauses_the_whole_cgroup_longer_and_longer() {
    let mut fake = Fake { cgroup: Some(limits((10, 64), (10, 64))), ..Fake::default() };
    for pmd in 0..200 {
        fake.failures.insert(PmdNo(pmd), vec![Failure::NoCharge; 100]);
    }
    let mut scene = Scene::new(fake, unlimited());
    (0..100).for_each(|pmd| _ = scene.hint(A, pmd).hint(B, 100 + pmd));
    scene.play(600);
    let left: usize = scene.worker.machine().failures.values().map(Vec::len).sum();
    assert!((8..20).contains(&(20_000 - left)), "{} charges in ten minutes, by two processes", 20_000 - left);
    scene.worker.machine().failures.clear();
    let did = scene.play(61);
    assert!(did.len() >= 195 && did.iter().all(|(_, outcome)| *outcome == DONE), "{did:?}");
}

#[test]
fn a_huge_range_whose_charge_is_always_refused_is_given_up() {
    let mut fake = Fake::default();
    fake.failures.insert(PmdNo(1), vec![Failure::NoCharge; 100]);
    let mut scene = Scene::new(fake, unlimited());
    scene.hint(A, 1).hint(A, 2);
    let mut did = scene.play(120);
    did.sort_unstable();
    assert_eq!(did, [(1, Outcome::Refused(Refusal::NoCharge)), (2, DONE)]);
    assert_eq!(scene.worker.machine().failures[&PmdNo(1)].len(), 95, "five tries");
}

#[test]
fn a_smaller_share_of_growth_stops_what_grows_and_nothing_else() {
    let mut fake = Fake::default();
    fake.looks.insert(PmdNo(1), PmdCheck { present: 462, exclusive: 462, refusal: None });
    fake.looks.insert(PmdNo(3), PmdCheck { present: 462, exclusive: 462, refusal: None });
    let mut scene = Scene::new(fake, Budgets { growth_pct: 100.0, ..unlimited() });
    assert_eq!(scene.hint(A, 1).play(1), [(1, Outcome::Done { grown: 50 })]);
    scene.worker.set_budgets(Budgets { growth_pct: 0.0, ..unlimited() }, scene.now);
    assert_eq!(scene.hint(A, 2).play(1), [(2, Outcome::Done { grown: 0 })], "it adds no page");
    assert_eq!(scene.hint(A, 3).play(1), [(3, Outcome::Refused(Refusal::Growth))]);
}

#[test]
fn hints_put_off_can_be_given_up() {
    let mut scene = Scene::new(Fake { cgroup: Some(limits((58, 64), (0, 64))), ..Fake::default() }, unlimited());
    scene.hint(A, 1).hint(A, 2);
    scene.play(5);
    let given_up: Vec<_> = scene.retry.give_up().iter().map(|(hint, why)| (hint.pmd.0, *why)).collect();
    assert_eq!(given_up, [(1, Wait::CgroupLimit), (2, Wait::CgroupLimit)]);
    assert_eq!((scene.retry.deferred(), scene.retry.is_deferred(A, PmdNo(1))), (0, false));
    assert_eq!(scene.play(60), [], "they do not come back");
}

#[test]
fn an_idle_hour_saves_up_no_storm() {
    let mut scene = Scene::new(Fake::default(), Budgets { per_second: 20.0, ..unlimited() });
    scene.now += 3600 * S;
    for pmd in 0..1000 {
        scene.hint(A, pmd);
    }
    let done = scene.play(1).len();
    assert!(done <= 27, "{done}");
}

#[test]
fn other_budgets_hold_at_once() {
    let mut scene = Scene::new(Fake::default(), Budgets { per_second: 0.001, ..unlimited() });
    for pmd in 0..100 {
        scene.hint(A, pmd);
    }
    assert_eq!(scene.retry.step(scene.now, &mut scene.queue, &mut scene.worker), Step::Did(first(A), DONE));
    scene.worker.set_budgets(unlimited(), scene.now);
    assert_eq!(scene.play(5).len(), 99, "the thousand seconds of the old rate are not waited for");

    let mut sparse = Fake::default();
    sparse.looks.insert(PmdNo(1), PmdCheck { present: 462, exclusive: 462, refusal: None });
    let mut scene = Scene::new(sparse, Budgets { growth_pct: 0.0, ..unlimited() });
    assert_eq!(scene.hint(A, 1).play(5), [(1, Outcome::Refused(Refusal::Growth))]);
    scene.worker.set_budgets(unlimited(), scene.now);
    assert_eq!(scene.hint(A, 1).play(5), [(1, Outcome::Done { grown: 50 })], "also for processes admitted before");
}

/// The first hint of a scene.
fn first(process: TargetId) -> Hint {
    Hint { process, pmd: PmdNo(0), action: COLLAPSE, level: Level::new(20), origin: Origin::Heat, since: S }
}

#[test]
fn budgets_that_would_stop_everything_in_silence_are_faults() {
    assert_eq!(Budgets::default().fault(), None);
    assert!(Budgets { per_second: 0.0, ..Budgets::default() }.fault().is_some());
    assert!(Budgets { growth_pct: -1.0, ..Budgets::default() }.fault().is_some());
    assert!(Budgets { min_present: 513, ..Budgets::default() }.fault().is_some());
}

#[test]
fn a_process_that_refuses_on_the_whole_is_not_admitted() {
    let mut scene = Scene::new(Fake { disabled: [A].into(), ..Fake::default() }, unlimited());
    assert_eq!(scene.worker.admit(A, S), Err(Refusal::Disabled));
    assert_eq!(scene.hint(A, 1).hint(B, 2).play(1), [(1, Outcome::Refused(Refusal::NotNamed)), (2, DONE)]);
}
