//! The worker thread: takes a hint under the lock of the state, works on it without the lock, and records the result
//! under the lock.
//!
//! Checking a huge range, acting on it and finding out why it was refused are system calls of unbounded duration. So the
//! worker and its machine belong to this thread alone. A thread that needs something from them leaves an [`Order`].

use super::{Order, Report, Shared, lock};
use crate::machine::Machine;
use crate::retry::Consumer;
use crate::worker::Worker;
use isotherm_heat::Ns;

/// The worker of a shared state, in its own thread.
#[derive(Debug)]
pub struct SharedWorker<M> {
    worker: Worker<M>,
}

impl<M: Machine> SharedWorker<M> {
    /// A worker that runs on, so `worker` may retry unexplained refusals for longer.
    pub fn new(worker: Worker<M>) -> SharedWorker<M> {
        SharedWorker { worker: worker.with_long_retries() }
    }

    /// Serves one hint, if there is one. If there is nothing to do now, returns when to come again.
    pub fn turn(&mut self, shared: &Shared, now: Ns) -> Option<Ns> {
        let orders = lock(shared).take_orders();
        orders.into_iter().for_each(|order| self.carry_out(order, shared, now));
        // Each lock is released at the end of its line.
        if let Err(until) = lock(shared).due(now) {
            return Some(until);
        }
        if let Err((until, why)) = self.worker.ready(now) {
            lock(shared).waits(why);
            return Some(until);
        }
        let (hint, tries) = lock(shared).take(now)?;
        let handled = self.worker.consume(now, &hint, tries);
        let report = Report {
            handled,
            counters: self.worker.counters().clone(),
            paused_for: self.worker.paused_for(hint.process),
            cgroup_wait: self.worker.cgroup_wait(hint.process),
        };
        lock(shared).settle(hint, tries, report, now);
        None
    }

    fn carry_out(&mut self, order: Order, shared: &Shared, now: Ns) {
        match order {
            Order::Admit(process, resident) => {
                let admitted = self.worker.admit(process, now);
                self.worker.note_resident(process, resident);
                lock(shared).admitted(process, admitted);
            }
            Order::Dismiss(process) => self.worker.dismiss(process),
            Order::Keep(budgets) => self.worker.set_budgets(budgets, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Performed;
    use crate::collapse::{Collapse, CollapseMachine, PmdCheck, Rules};
    use crate::machine::{CgroupState, HostState, Process, Unfit};
    use crate::state::State;
    use crate::{Budgets, Level, PmdFacts, Refusal, TargetWindow};
    use isotherm_heat::{Mapping, TargetId};
    use isotherm_units::{AddrRange, Bytes, PmdNo};
    use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    const A: TargetId = TargetId { pid: 1, start_ticks: 10 };
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A machine whose collapses last until they are let go; or that admits nobody.
    #[derive(Debug)]
    struct Slow {
        began: SyncSender<()>,
        let_go: Receiver<()>,
        admits: bool,
    }

    impl Machine for Slow {
        fn admit(&mut self, _: TargetId, _: &Unfit<'_>) -> Result<Process, Refusal> {
            if self.admits {
                Ok(Process { resident: Bytes(1 << 30), takes_huge_pages: true, must_stay: None })
            } else {
                Err(Refusal::Disabled)
            }
        }

        fn dismiss(&mut self, _: TargetId) {}

        fn fork_of(&mut self, _: TargetId) -> Option<u32> {
            None
        }

        fn host(&mut self) -> HostState {
            HostState::default()
        }

        fn cgroup(&mut self, _: TargetId) -> Option<CgroupState> {
            None
        }

        fn cpu_ns(&mut self) -> Ns {
            0
        }
    }

    impl CollapseMachine for Slow {
        fn check_pmd(&mut self, _: TargetId, _: PmdNo, _: bool) -> Result<PmdCheck, Refusal> {
            Ok(PmdCheck { present: 512, exclusive: 512, refusal: None })
        }

        fn collapse(&mut self, _: TargetId, _: PmdNo) -> Performed {
            self.began.send(()).unwrap();
            self.let_go.recv_timeout(PATIENCE).unwrap();
            Performed { result: Ok(()), pages: 0, took_ns: 1, cpu_ns: 1 }
        }
    }

    /// A worker with its state, the sign that a collapse has begun, and the word that ends it.
    fn scene(admits: bool) -> (SharedWorker<Slow>, Shared, Receiver<()>, SyncSender<()>) {
        let ((began, has_begun), (go, let_go)) = (sync_channel(1), sync_channel(1));
        let worker = SharedWorker::new(Worker::new(
            Slow { began, let_go, admits },
            vec![Box::new(Collapse::default())],
            Budgets::default(),
            1,
        ));
        let state = State::new(Rules::default(), Budgets::default());
        (worker, Arc::new(Mutex::new(state)), has_begun, go)
    }

    /// A window in which huge range 5 is hot.
    fn feed(shared: &Shared) {
        let range = AddrRange::new(PmdNo(0).addr(), PmdNo(10).addr());
        let mappings = [Mapping { range, name: String::new(), perms: "rw-p".parse().unwrap() }];
        let facts = [PmdFacts { pmd: PmdNo(5), present: 512, measured: 512, huge: false, benefit_hz: 9000.0 }];
        let window = TargetWindow {
            id: A,
            comm: "a".into(),
            mappings: mappings.to_vec().into(),
            facts: facts.to_vec(),
            generations: Vec::new(),
        };
        lock(shared).feed(&window, Bytes(1 << 30), 1_000_000);
    }

    fn status(shared: &Shared) -> serde_json::Value {
        serde_json::to_value(lock(shared).status()).unwrap()
    }

    #[test]
    fn status_hints_and_windows_do_not_wait_for_a_collapse() {
        let (mut worker, shared, has_begun, go) = scene(true);
        feed(&shared);
        std::thread::scope(|scope| {
            let working = scope.spawn(|| worker.turn(&shared, 2_000_000));
            has_begun.recv_timeout(PATIENCE).unwrap();
            // In a thread of its own, or a lock that is not let go would hang this test.
            let (answered, answers) = channel();
            let asked = Arc::clone(&shared);
            std::thread::spawn(move || {
                feed(&asked);
                let before = status(&asked);
                let same = lock(&asked).hint(1, PmdNo(5).range(), Level::new(31), 3_000_000);
                let other = lock(&asked).hint(1, PmdNo(6).range(), Level::new(31), 3_000_000);
                let _ = answered.send((before, same, other));
            });
            let answer = answers.recv_timeout(Duration::from_secs(10));
            go.send(()).unwrap();
            let (before, same, other) = answer.expect("an answer while the collapse is under way");
            assert_eq!((&before["collapsed"], &before["hints"]["queued"]), (&0.into(), &0.into()), "{before:#}");
            assert_eq!((same, other), (Ok(0), Ok(1)), "the huge range in hand is not queued again");
            assert_eq!(working.join().unwrap(), None);
        });
        let after = status(&shared);
        assert_eq!((&after["collapsed"], &after["hints"]["queued"]), (&1.into(), &1.into()), "{after:#}");
    }

    #[test]
    fn a_process_that_is_not_admitted_has_no_hints_and_a_reason() {
        let (mut worker, shared, ..) = scene(false);
        feed(&shared);
        assert_eq!(status(&shared)["hints"]["queued"], 1);
        assert_eq!(worker.turn(&shared, 2_000_000), Some(Ns::MAX));
        feed(&shared);
        let refused = status(&shared);
        assert_eq!(
            (&refused["hints"]["queued"], &refused["targets"][0]["left_alone"]),
            (&0.into(), &"disabled".into())
        );
    }

    #[test]
    fn nothing_is_kept_of_a_process_that_ends_during_its_collapse() {
        let (mut worker, shared, has_begun, go) = scene(true);
        feed(&shared);
        std::thread::scope(|scope| {
            let working = scope.spawn(|| worker.turn(&shared, 2_000_000));
            has_begun.recv_timeout(PATIENCE).unwrap();
            lock(&shared).keep(&[]);
            go.send(()).unwrap();
            working.join().unwrap();
        });
        let after = status(&shared);
        assert_eq!((&after["collapsed"], after["targets"].as_array().map(Vec::len)), (&1.into(), Some(0)), "{after:#}");
        assert_eq!(worker.turn(&shared, 3_000_000), Some(Ns::MAX));
    }
}
