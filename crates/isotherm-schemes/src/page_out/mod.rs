//! The action that pages idle memory out: pages of private memory that nobody has accessed for an age leave for swap.
//!
//! [`rules`] decides which pages those are, from what is known of each page; [`kernel`] asks the kernel to page them out
//! (`MADV_PAGEOUT`) and reads back which of them have left. The kernel returns success whatever it has moved, even nothing, so its
//! answer is never counted.
//!
//! A hint names a huge range. Which of its pages to page out changes with every window, so it is not part of the hint: planner and
//! action share [`IdlePages`]. A page that was accessed in the meantime is taken out of it, and stays.
//!
//! `isotherm reclaim` does this once. `isotherm run` keeps at it: [`keeper`] chooses what leaves next, [`refaults`] counts what comes
//! back, and [`brake`] stops it when that is too much. With [`watermarks`] it does so only while memory is short.

pub mod brake;
pub mod keeper;
mod kernel;
pub mod refaults;
mod rules;
pub mod watermarks;

pub(crate) use kernel::pages_that;
pub use kernel::{PageOutMachine, PagedOut, PagesToLeave};
pub use rules::{IdlePmd, IdleWindow, Rules, idle_pages, idle_pages_in, idle_pages_within, plan};

use crate::action::{Action, Failure, Guard, Performed, Price};
use crate::budgets::Budgets;
use crate::machine::Process;
use crate::outcome::Refusal;
use crate::queue::{ActionId, Hint};
use isotherm_heat::{Mask, Ns, TargetId};
use isotherm_units::PmdNo;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The id by which hints name it.
pub const PAGE_OUT: ActionId = ActionId(1);
/// What counters call huge ranges of which pages have left.
pub const PAGED_OUT: &str = "paged_out";

/// It takes swap instead of memory. Pages that a copy of the process shares do not leave, and pressure is a reason to leave the
/// host and the cgroup alone: writing to swap adds to it, and so does what comes back. Where others wait for I/O, swap would be one more.
const GUARDS: &[Guard] =
    &[Guard::Swap, Guard::Pressure, Guard::Io, Guard::Fork, Guard::CgroupPressure, Guard::CgroupSwap];

/// The idle pages of each huge range by the last window, and those that have left since, shared by the planner and the action.
#[derive(Clone, Debug, Default)]
pub struct IdlePages(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    idle: HashMap<TargetId, Idle>,
    left: HashMap<(TargetId, PmdNo), Mask>,
}

/// What is idle in one process, and when that was read.
#[derive(Debug)]
struct Idle {
    at: Ns,
    pages: HashMap<PmdNo, Mask>,
}

impl IdlePages {
    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces what is known to be idle in a process. It was read at `now`, on the clock of the machine that acts.
    pub fn replace(&self, process: TargetId, idle: impl IntoIterator<Item = (PmdNo, Mask)>, now: Ns) {
        let pages: HashMap<PmdNo, Mask> = idle.into_iter().collect();
        if pages.is_empty() {
            self.forget(process);
        } else {
            self.lock().idle.insert(process, Idle { at: now, pages });
        }
    }

    /// Forgets what is known to be idle in a process: none of it may leave.
    pub fn forget(&self, process: TargetId) {
        self.lock().idle.remove(&process);
    }

    /// The idle pages of a huge range, and when they were read.
    pub(crate) fn of(&self, process: TargetId, pmd: PmdNo) -> (Mask, Ns) {
        let known = |idle: &Idle| (idle.pages.get(&pmd).copied().unwrap_or(Mask::NONE), idle.at);
        self.lock().idle.get(&process).map_or((Mask::NONE, 0), known)
    }

    /// Takes which pages have left since the last call, for the count of what comes back.
    pub fn take_left(&self) -> Vec<(TargetId, PmdNo, Mask)> {
        let left = std::mem::take(&mut self.lock().left);
        left.into_iter().map(|((process, pmd), pages)| (process, pmd, pages)).collect()
    }

    pub(crate) fn leave(&self, process: TargetId, pmd: PmdNo, left: Mask) {
        let mut pages = self.lock();
        let all = pages.left.entry((process, pmd)).or_default();
        *all = *all | left;
    }
}

/// What was read longer ago than this does not count: it may be in use by now.
const FRESH: Ns = 3_000_000_000;

/// The action.
#[derive(Clone, Debug)]
pub struct PageOut {
    idle: IdlePages,
    /// It goes on for hours: what holds for a process when it is admitted says little.
    is_kept_at: bool,
    /// The pages of the last huge range that was checked, which is the next to be paged out.
    checked: Mask,
}

impl PageOut {
    /// Of the pages that a planner keeps up to date.
    pub fn new(idle: IdlePages) -> PageOut {
        PageOut { idle, is_kept_at: false, checked: Mask::NONE }
    }

    /// The same for a worker that runs on: whether a process's memory has to stay is looked up before each huge range, and not when
    /// the process is admitted.
    pub fn kept_at(idle: IdlePages) -> PageOut {
        PageOut { is_kept_at: true, ..PageOut::new(idle) }
    }
}

impl<M: PageOutMachine> Action<M> for PageOut {
    fn id(&self) -> ActionId {
        PAGE_OUT
    }

    fn done(&self) -> &'static str {
        PAGED_OUT
    }

    fn guards(&self) -> &'static [Guard] {
        GUARDS
    }

    fn refuses(&self, process: &Process) -> Option<Refusal> {
        process.must_stay.filter(|_| !self.is_kept_at)
    }

    fn check(&mut self, machine: &mut M, hint: &Hint, _: &Budgets) -> Result<Price, Refusal> {
        let (idle, read_at) = self.idle.of(hint.process, hint.pmd);
        if idle.is_empty() {
            return Err(Refusal::Accessed);
        }
        if machine.now_ns().saturating_sub(read_at) > FRESH {
            return Err(Refusal::Unmeasured);
        }
        let found = machine.pages_to_leave(hint.process, hint.pmd, idle)?;
        self.checked = found.private;
        if !found.private.is_empty() {
            return Ok(Price::default());
        }
        Err(if found.present == 0 { Refusal::Unmapped } else { Refusal::Shared })
    }

    fn perform(&mut self, machine: &mut M, hint: &Hint) -> Performed {
        let pages = std::mem::replace(&mut self.checked, Mask::NONE);
        let PagedOut { performed: done, left } = machine.page_out(hint.process, hint.pmd, pages);
        if !left.is_empty() {
            self.idle.leave(hint.process, hint.pmd, left);
        }
        // Locked, being written, or isolated by something else: another try may find them free.
        let result = if done.pages == 0 { done.result.and(Err(Failure::Busy)) } else { done.result };
        Performed { result, ..done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budgets::Wait;
    use crate::machine::{CgroupState, HostState, Machine, Unfit};
    use crate::outcome::Outcome;
    use crate::queue::{HintQueue, Level, Origin};
    use crate::retry::{RetryScheduler, Step};
    use crate::worker::Worker;
    use isotherm_sys::free::Swap;
    use isotherm_sys::proc::MemoryUse;
    use isotherm_units::Bytes;
    use std::collections::BTreeMap;

    const S: Ns = 1_000_000_000;
    const A: TargetId = TargetId { pid: 1, start_ticks: 10 };

    /// Huge ranges with so many private pages each, of which so many leave when they are asked to.
    #[derive(Debug, Default)]
    struct Fake {
        private: BTreeMap<PmdNo, Mask>,
        stay: bool,
        swap: Option<Swap>,
        must_stay: Option<Refusal>,
        now: Ns,
        cgroup: Option<CgroupState>,
        io_pressure_pct: Option<f64>,
    }

    impl Machine for Fake {
        fn admit(&mut self, _: TargetId, unfit: &Unfit<'_>) -> Result<Process, Refusal> {
            let found = Process { resident: Bytes(1 << 30), takes_huge_pages: true, must_stay: self.must_stay };
            unfit(&found).map_or(Ok(found), Err)
        }

        fn dismiss(&mut self, _: TargetId) {}

        fn fork_of(&mut self, _: TargetId) -> Option<u32> {
            None
        }

        fn host(&mut self) -> HostState {
            HostState { swap: self.swap, io_pressure_pct: self.io_pressure_pct, ..HostState::default() }
        }

        fn cgroup(&mut self, _: TargetId) -> Option<CgroupState> {
            self.cgroup.clone()
        }

        fn cpu_ns(&mut self) -> Ns {
            0
        }
    }

    impl PageOutMachine for Fake {
        fn now_ns(&self) -> Ns {
            self.now
        }

        fn pages_to_leave(&mut self, _: TargetId, pmd: PmdNo, idle: Mask) -> Result<PagesToLeave, Refusal> {
            let private = self.private.get(&pmd).copied().unwrap_or(Mask::NONE);
            Ok(PagesToLeave { present: if pmd.0 == 9 { 0 } else { 512 }, private: idle & private })
        }

        fn page_out(&mut self, _: TargetId, _: PmdNo, pages: Mask) -> PagedOut {
            let left = if self.stay { Mask::NONE } else { pages };
            let pages = u16::try_from(left.count()).unwrap();
            PagedOut { performed: Performed { result: Ok(()), pages, took_ns: 1, cpu_ns: 1 }, left }
        }
    }

    struct Scene {
        idle: IdlePages,
        worker: Worker<Fake>,
        retry: RetryScheduler,
        queue: HintQueue,
    }

    impl Scene {
        fn new(fake: Fake) -> Scene {
            let idle = IdlePages::default();
            let budgets = Budgets { per_second: 1e9, cpu_pct: 1000.0, stall_pct: 1000.0, ..Budgets::default() };
            let action: Vec<Box<dyn Action<Fake> + Send>> = vec![Box::new(PageOut::new(idle.clone()))];
            let worker = Worker::new(fake, action, budgets, S);
            Scene { idle, worker, retry: RetryScheduler::new(10), queue: HintQueue::new(10) }
        }

        fn step(&mut self, pmd: u64, now: Ns) -> Step {
            let pmd = PmdNo(pmd);
            let _ = self.worker.admit(A, now);
            self.queue.add(Hint {
                process: A,
                pmd,
                action: PAGE_OUT,
                level: Level::new(3),
                origin: Origin::Heat,
                since: 0,
            });
            self.retry.step(now, &mut self.queue, &mut self.worker)
        }
    }

    fn outcome(step: Step) -> Outcome {
        match step {
            Step::Did(_, outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_pages_that_are_idle_and_private_leave_and_are_counted() {
        let few: Mask = (0..100).collect();
        let mut scene = Scene::new(Fake { private: [(PmdNo(1), few)].into(), ..Fake::default() });
        let idle: Mask = (90..300).collect();
        scene.idle.replace(A, [1, 2, 9].map(|pmd| (PmdNo(pmd), idle)), 0);
        let refused = |refusal| Outcome::Refused(refusal);
        assert_eq!(outcome(scene.step(1, S)), Outcome::Done { grown: 0 });
        assert_eq!((scene.worker.counters().left_pages, scene.worker.counters().all(PAGED_OUT)), (10, 1));
        let left = (90..100).collect();
        assert_eq!((scene.idle.take_left(), scene.idle.take_left()), (vec![(A, PmdNo(1), left)], vec![]), "each once");
        assert_eq!(outcome(scene.step(2, 2 * S)), refused(Refusal::Shared));
        assert_eq!(outcome(scene.step(9, 3 * S)), refused(Refusal::Unmapped));
        assert_eq!(outcome(scene.step(3, 4 * S)), refused(Refusal::Accessed), "the planner does not know it as idle");
        scene.worker.machine().now = FRESH + 1;
        assert_eq!(outcome(scene.step(1, 5 * S)), refused(Refusal::Unmeasured), "that was read too long ago");
        scene.idle.replace(A, [], 5 * S);
        assert_eq!(outcome(scene.step(1, 6 * S)), refused(Refusal::Accessed), "not any more");
    }

    #[test]
    fn what_does_not_leave_is_tried_again_and_given_up() {
        let mut scene = Scene::new(Fake { private: [(PmdNo(1), Mask::ALL)].into(), stay: true, ..Fake::default() });
        scene.idle.replace(A, [(PmdNo(1), Mask::ALL)], 0);
        let mut now = S;
        let mut waits = 0;
        while let Step::Deferred(_, why) = scene.step(1, now) {
            assert_eq!(why, Wait::Busy);
            waits += 1;
            now += 10 * S;
        }
        assert_eq!((waits, scene.worker.counters().left_pages), (4, 0));
        assert_eq!(scene.worker.counters().refused, [(Refusal::Busy, 1)].into());
    }

    #[test]
    fn without_room_in_swap_nothing_is_tried() {
        let full = Swap { free: Bytes(9), total: Bytes(100) };
        for swap in [Swap::default(), full] {
            let fake = Fake { private: [(PmdNo(1), Mask::ALL)].into(), swap: Some(swap), ..Fake::default() };
            let mut scene = Scene::new(fake);
            scene.idle.replace(A, [(PmdNo(1), Mask::ALL)], 0);
            assert!(matches!(scene.step(1, S), Step::Wait(_, Wait::Swap)), "{swap:?}");
            scene.worker.machine().swap = Some(Swap { free: Bytes(11), total: Bytes(100) });
            assert_eq!(outcome(scene.step(1, 2 * S)), Outcome::Done { grown: 0 });
        }
    }

    #[test]
    fn while_others_wait_for_io_nothing_is_written_to_swap() {
        let fake = Fake { private: [(PmdNo(1), Mask::ALL)].into(), io_pressure_pct: Some(30.1), ..Fake::default() };
        let mut scene = Scene::new(fake);
        scene.idle.replace(A, [(PmdNo(1), Mask::ALL)], 0);
        assert!(matches!(scene.step(1, S), Step::Wait(_, Wait::IoPressure)));
        scene.worker.machine().io_pressure_pct = Some(29.9);
        assert_eq!(outcome(scene.step(1, 2 * S)), Outcome::Done { grown: 0 });
    }

    #[test]
    fn pressure_of_the_cgroup_holds_it_up_and_its_limit_does_not() {
        let full = MemoryUse { current: Bytes(1 << 30), limit: Some(Bytes(1 << 30)), high: None, with_swap: None };
        let cgroup = |pressure| CgroupState {
            path: "/a".into(),
            limited: vec![full],
            pressure_pct: Some(pressure),
            swap_room: None,
        };
        let fake = Fake { private: [(PmdNo(1), Mask::ALL)].into(), cgroup: Some(cgroup(11.0)), ..Fake::default() };
        let mut scene = Scene::new(fake);
        scene.idle.replace(A, [(PmdNo(1), Mask::ALL)], 0);
        assert!(matches!(scene.step(1, S), Step::Deferred(_, Wait::CgroupPressure)));
        scene.worker.machine().cgroup = Some(cgroup(9.0));
        assert_eq!(outcome(scene.step(1, 9 * S)), Outcome::Done { grown: 0 }, "it has no room, and needs none");
    }

    #[test]
    fn a_cgroup_that_may_not_swap_waits_and_is_not_taken_for_busy() {
        let cgroup = |room| CgroupState { path: "/pod".into(), swap_room: Some(Bytes(room)), ..CgroupState::default() };
        let fake = Fake { private: [(PmdNo(1), Mask::ALL)].into(), cgroup: Some(cgroup(0)), ..Fake::default() };
        let mut scene = Scene::new(fake);
        scene.idle.replace(A, [(PmdNo(1), Mask::ALL)], 0);
        assert!(matches!(scene.step(1, S), Step::Deferred(_, Wait::CgroupSwap)));
        assert_eq!(scene.worker.counters().left_pages, 0);
        scene.worker.machine().cgroup = Some(cgroup(2 << 20));
        assert_eq!(outcome(scene.step(1, 9 * S)), Outcome::Done { grown: 0 });
    }

    #[test]
    fn a_process_whose_memory_must_stay_is_not_admitted() {
        let mut scene = Scene::new(Fake { must_stay: Some(Refusal::IoUring), ..Fake::default() });
        assert_eq!(scene.worker.admit(A, S), Err(Refusal::IoUring));
        // A worker that runs on looks again before each huge range.
        let must_stay = Process { resident: Bytes(1), takes_huge_pages: true, must_stay: Some(Refusal::Traced) };
        let kept = PageOut::kept_at(IdlePages::default());
        assert_eq!(Action::<Fake>::refuses(&kept, &must_stay), None);
    }
}
