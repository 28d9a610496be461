//! What `isotherm run` does with one process, for benches of what it does: a monitor whose heat is planned once a second, and
//! a worker that collapses. The order of collapses is recorded.

use crate::monitor_of;
use anyhow::{Result, ensure};
use isotherm_heat::{Cost, Mapping, Ns, TargetId};
use isotherm_monitor::{Monitor, Settings};
use isotherm_schemes::collapse::{Collapse, Rules, benefit};
use isotherm_schemes::machine::Live;
use isotherm_schemes::plan;
use isotherm_schemes::{Budgets, Counters, HintQueue, Outcome, PmdFacts, RetryScheduler, Step, TargetWindow, Worker};
use isotherm_sources::RealClock;
use isotherm_sys::clock;
use isotherm_sys::proc::Proc;
use isotherm_units::PmdNo;
use isotherm_workload::Child;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const S: Ns = 1_000_000_000;
const NAP: Duration = Duration::from_millis(5);

/// A worker that can collapse, and nothing else.
pub fn collapser(budgets: Budgets, now: Ns) -> Worker<Live> {
    Worker::new(Live::new(), vec![Box::new(Collapse::default())], budgets, now)
}

/// The identity of a child.
pub fn id_of(child: &Child) -> Result<TargetId> {
    let stat = Proc::default().stat(child.pid())?;
    Ok(TargetId { pid: child.pid(), start_ticks: stat.start_ticks })
}

/// A monitor of a child, and the worker that collapses what it plans. Both run until [`Collapsing::stop`].
#[expect(missing_debug_implementations, reason = "the worker has none")]
pub struct Collapsing {
    pid: u32,
    process: TargetId,
    stop: AtomicBool,
    state: Mutex<State>,
}

struct State {
    queue: HintQueue,
    retry: RetryScheduler,
    worker: Worker<Live>,
    order: Vec<PmdNo>,
    /// How many of these the monitor has read since.
    checked: usize,
    handled: BTreeSet<PmdNo>,
}

impl Collapsing {
    /// For a child that runs, with the default rules.
    pub fn new(child: &Child, budgets: Budgets) -> Result<Collapsing> {
        let process = id_of(child)?;
        let now = clock::monotonic_ns();
        let mut worker = collapser(budgets, now);
        ensure!(worker.admit(process, now).is_ok(), "the workload cannot be collapsed");
        let state = State {
            queue: HintQueue::new(1 << 16),
            retry: RetryScheduler::new(1 << 16),
            worker,
            order: Vec::new(),
            checked: 0,
            handled: BTreeSet::new(),
        };
        Ok(Collapsing { pid: child.pid(), process, stop: AtomicBool::new(false), state: Mutex::new(state) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The huge ranges collapsed so far, in order.
    pub fn order(&self) -> Vec<PmdNo> {
        self.lock().order.clone()
    }

    /// What the worker has counted.
    pub fn counters(&self) -> Counters {
        self.lock().worker.counters().clone()
    }

    /// Ends both.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Watches at the default settings, and makes a snapshot and plans once a second; `each` sees every window. Returns the cost.
    pub fn watch(&self, mut each: impl FnMut(&Monitor<RealClock>)) -> Result<Cost> {
        let mut monitor = monitor_of(vec![self.pid], RealClock, Settings::default())?;
        while !self.stop.load(Ordering::Relaxed) {
            monitor.watch(monitor.now() + S, &self.stop)?;
            drop(monitor.snapshot(monitor.now()));
            monitor.read_now(self.pid, &self.collapsed_since());
            each(&monitor);
            let (Some(pages), Some(mappings)) = (monitor.pages_of(self.pid), monitor.mappings_of(self.pid)) else {
                break;
            };
            let (unchecked, pmds) = monitor.unchecked();
            if !plan::is_ready(unchecked, pmds, monitor.elapsed_ns()) {
                continue;
            }
            self.feed(mappings, benefit::of_pages(pages, monitor.now()));
        }
        Ok(monitor.cost(monitor.now()))
    }

    /// What was collapsed since the last call, sorted.
    fn collapsed_since(&self) -> Vec<PmdNo> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let checked = std::mem::replace(&mut state.checked, state.order.len());
        let mut collapsed = state.order[checked..].to_vec();
        collapsed.sort_unstable();
        collapsed
    }

    fn feed(&self, mappings: &[Mapping], facts: Vec<PmdFacts>) {
        let (comm, mappings) = ("workload".into(), mappings.into());
        let window = TargetWindow { id: self.process, comm, mappings, facts, generations: Vec::new() };
        let planned = plan::by_heat(&Rules::default(), &window, clock::monotonic_ns());
        let mut state = self.lock();
        for hint in planned.hints {
            if !state.handled.contains(&hint.pmd) {
                state.queue.add(hint);
            }
        }
    }

    /// Collapses what was planned.
    pub fn work(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut guard = self.lock();
            let state = &mut *guard;
            match state.retry.step(clock::monotonic_ns(), &mut state.queue, &mut state.worker) {
                Step::Did(hint, outcome) => {
                    state.handled.insert(hint.pmd);
                    if matches!(outcome, Outcome::Done { .. }) {
                        state.order.push(hint.pmd);
                    }
                }
                Step::Deferred(..) => {}
                Step::Wait(..) | Step::Idle(_) => {
                    drop(guard);
                    std::thread::sleep(NAP);
                }
            }
        }
    }
}
