//! One pass over named processes: makes a plan from what is known about them, serves every hint, and ends.
//!
//! It reads no clock and does not sleep. The caller passes the time of each step and waits, or advances a simulated
//! clock in a dry run. So a dry run runs the same code to the end, except for the machine.

use crate::budgets::Wait;
use crate::collapse::Rules;
use crate::facts::TargetWindow;
use crate::machine::Machine;
use crate::outcome::{Counters, Outcome, Refusal};
use crate::plan::{self, HintSource};
use crate::queue::{Added, Hint, HintQueue};
use crate::retry::{RetryScheduler, Step};
use crate::worker::Worker;
use isotherm_heat::{Ns, TargetId};
use isotherm_units::PmdNo;
use std::collections::{BTreeMap, BTreeSet};

/// Most huge ranges in one pass: 2 TiB.
pub const MAX_HINTS: usize = 1 << 20;
/// How long to wait for huge ranges whose memory cgroup has no room, or of whose process a forked copy is alive, once nothing else is left to
/// do. Either may last for ever.
const MAX_LAST_WAIT: Ns = 5_000_000_000;

/// The plan has more than [`MAX_HINTS`] huge ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_HINTS} huge ranges to act on")]
pub struct TooManyHints;

/// Which huge ranges come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Those with the highest benefit.
    Worth(HintSource),
    /// By address, whatever their benefit.
    Address,
}

/// The result of one hint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// The hint.
    pub hint: Hint,
    /// Benefit of its huge range in accesses per second, when the plan was made.
    pub benefit_hz: f64,
    /// The result.
    pub outcome: Outcome,
}

/// What a step of a pass did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PassStep {
    /// A hint was handled.
    Did,
    /// A hint was deferred.
    Deferred,
    /// Nothing can be done before this time, for this reason.
    Wait(Ns, Option<Wait>),
    /// No hint is left.
    Over,
}

/// The result for one process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessResult {
    /// The process.
    pub id: TargetId,
    /// Its command name.
    pub comm: String,
    /// Huge ranges about which something was known.
    pub pmds: usize,
    /// Huge ranges on which the action succeeded.
    pub done: u64,
    /// Why the whole process was refused, if it was.
    pub refused: Option<Refusal>,
}

/// The result of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct PassResult {
    /// By process, in the order in which they were named.
    pub processes: Vec<ProcessResult>,
    /// Hints, in the order in which they were handled.
    pub served: Vec<Served>,
    /// Huge ranges that got no hint, by reason.
    pub left_out: BTreeMap<Refusal, u64>,
    /// Counters of the worker.
    pub counters: Counters,
    /// The share of the heat on huge pages before and after; `None` if nothing is hot.
    pub heat_on_huge: (Option<f64>, Option<f64>),
}

/// A pass in progress.
#[derive(Debug)]
pub struct Pass<M> {
    windows: Vec<TargetWindow<'static>>,
    queue: HintQueue,
    retry: RetryScheduler,
    worker: Worker<M>,
    benefits: BTreeMap<(TargetId, PmdNo), f64>,
    left_out: BTreeMap<Refusal, u64>,
    refused: BTreeMap<TargetId, Refusal>,
    served: Vec<Served>,
    done: BTreeMap<TargetId, BTreeSet<PmdNo>>,
    /// The time since which only hints are left that wait for what may last for ever.
    stuck_since: Option<Ns>,
}

impl<M: Machine> Pass<M> {
    /// Plans, and admits the processes.
    pub fn new(
        windows: Vec<TargetWindow<'static>>,
        worker: Worker<M>,
        (order, rules): (Order, &Rules),
        now: Ns,
    ) -> Result<Pass<M>, TooManyHints> {
        let mut pass = Pass {
            windows: Vec::new(),
            queue: HintQueue::new(MAX_HINTS),
            retry: RetryScheduler::new(MAX_HINTS),
            worker,
            benefits: BTreeMap::new(),
            left_out: BTreeMap::new(),
            refused: BTreeMap::new(),
            served: Vec::new(),
            done: BTreeMap::new(),
            stuck_since: None,
        };
        for window in &windows {
            pass.plan(window, order, rules, now)?;
        }
        for window in &windows {
            pass.admit(window.id, now);
        }
        pass.windows = windows;
        Ok(pass)
    }

    fn plan(&mut self, window: &TargetWindow<'_>, order: Order, rules: &Rules, now: Ns) -> Result<(), TooManyHints> {
        let planned = match order {
            Order::Worth(source) => plan::plan(source, rules, window, now),
            Order::Address => plan::round_robin(rules, window, now),
        };
        for (refusal, pmds) in planned.left_out {
            *self.left_out.entry(refusal).or_default() += pmds;
        }
        let by_heat = order != Order::Worth(HintSource::Mglru);
        for fact in window.facts.iter().filter(|_| by_heat).chain(&window.generations) {
            let benefit = self.benefits.entry((window.id, fact.pmd)).or_default();
            *benefit = benefit.max(fact.benefit_hz);
        }
        for hint in planned.hints {
            if matches!(self.queue.add(hint), Added::Refused | Added::NewInsteadOf(_)) {
                return Err(TooManyHints);
            }
        }
        Ok(())
    }

    fn admit(&mut self, process: TargetId, now: Ns) {
        if let Err(refusal) = self.worker.admit(process, now) {
            self.refused.insert(process, refusal);
            let dropped = self.queue.forget(process) as u64;
            *self.left_out.entry(refusal).or_default() += dropped;
        }
    }

    /// Hints that are left, queued and deferred.
    pub fn hints_left(&self) -> usize {
        self.queue.len() + self.retry.deferred()
    }

    /// What the deferred hint waits for that comes back first.
    pub fn waits_for(&self) -> Option<Wait> {
        self.retry.first_wait()
    }

    /// Huge ranges on which the action has succeeded so far.
    pub fn pmds_done(&self) -> u64 {
        self.worker.counters().all_done()
    }

    /// Serves at most one hint.
    pub fn step(&mut self, now: Ns) -> PassStep {
        match self.retry.step(now, &mut self.queue, &mut self.worker) {
            Step::Did(hint, outcome) => {
                self.note(hint, outcome);
                self.stuck_since = None;
                PassStep::Did
            }
            Step::Deferred(..) => PassStep::Deferred,
            Step::Idle(None) => PassStep::Over,
            Step::Wait(until, why) => PassStep::Wait(until, Some(why)),
            Step::Idle(Some(until)) => self.idle(until, now),
        }
    }

    /// Only deferred hints are left. Gives up on those that wait for their memory cgroup or for a copy of their process after a while.
    fn idle(&mut self, until: Ns, now: Ns) -> PassStep {
        let lasting = self.retry.deferred_for(&Wait::OF_CGROUPS) + self.retry.deferred_for(&[Wait::Fork]);
        self.stuck_since = if lasting == self.retry.deferred() { self.stuck_since.or(Some(now)) } else { None };
        if self.stuck_since.is_none_or(|since| now - since <= MAX_LAST_WAIT) {
            return PassStep::Wait(until, self.retry.first_wait());
        }
        for (hint, why) in self.retry.give_up() {
            let outcome = self.worker.give_up(&hint, still_waiting(why));
            self.note(hint, outcome);
        }
        PassStep::Over
    }

    fn note(&mut self, hint: Hint, outcome: Outcome) {
        if matches!(outcome, Outcome::Done { .. }) {
            self.done.entry(hint.process).or_default().insert(hint.pmd);
        }
        let benefit_hz = self.benefits.get(&(hint.process, hint.pmd)).copied().unwrap_or_default();
        self.served.push(Served { hint, benefit_hz, outcome });
    }

    /// The result of the pass.
    pub fn finish(self) -> PassResult {
        let processes = self.windows.iter().map(|window| ProcessResult {
            id: window.id,
            comm: window.comm.clone().into_owned(),
            pmds: window.facts.len(),
            done: self.done.get(&window.id).map_or(0, |pmds| pmds.len() as u64),
            refused: self.refused.get(&window.id).copied(),
        });
        PassResult {
            processes: processes.collect(),
            heat_on_huge: (self.heat_on_huge(false), self.heat_on_huge(true)),
            served: self.served,
            left_out: self.left_out,
            counters: self.worker.counters().clone(),
        }
    }

    /// The share of the heat on huge pages when the plan was made, or with the huge ranges that were collapsed since.
    fn heat_on_huge(&self, with_done: bool) -> Option<f64> {
        let (mut all, mut huge) = (0.0, 0.0);
        for window in &self.windows {
            let done = self.done.get(&window.id).filter(|_| with_done);
            for fact in &window.facts {
                let is_huge = fact.huge || done.is_some_and(|pmds| pmds.contains(&fact.pmd));
                all += fact.benefit_hz;
                huge += if is_huge { fact.benefit_hz } else { 0.0 };
            }
        }
        (all > 0.0).then(|| huge / all)
    }
}

/// The reason reported for a huge range that was still waiting when the pass ended.
fn still_waiting(why: Wait) -> Refusal {
    match why {
        Wait::CgroupPressure => Refusal::CgroupPressure,
        Wait::NoCharge => Refusal::NoCharge,
        Wait::Fork => Refusal::Fork,
        _ => Refusal::CgroupLimit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Performed;
    use crate::budgets::Budgets;
    use crate::collapse::{Collapse, CollapseMachine, PmdCheck};
    use crate::facts::PmdFacts;
    use crate::machine::{CgroupState, DryRun, HostState, Process, Unfit};
    use isotherm_heat::Mapping;
    use isotherm_units::AddrRange;

    /// No process has this pid: what was recorded of it is believed.
    const ENDED: TargetId = TargetId { pid: u32::MAX >> 1, start_ticks: 1 };
    const GONE: TargetId = TargetId { pid: (u32::MAX >> 1) - 1, start_ticks: 1 };

    fn window(id: TargetId, pmds: &[(u64, f64)]) -> TargetWindow<'static> {
        let range = AddrRange::new(PmdNo(0).addr(), PmdNo(100).addr());
        let facts = |&(pmd, benefit_hz): &(u64, f64)| PmdFacts {
            pmd: PmdNo(pmd),
            present: 512,
            measured: 512,
            huge: false,
            benefit_hz,
        };
        TargetWindow {
            id,
            comm: "a".into(),
            mappings: vec![Mapping { range, name: String::new(), perms: "rw-p".parse().unwrap() }].into(),
            facts: pmds.iter().map(facts).collect(),
            generations: Vec::new(),
        }
    }

    fn played(order: Order) -> PassResult {
        let windows = vec![window(ENDED, &[(1, 300.0), (2, 600.0), (3, 10.0)]), window(GONE, &[(1, 90.0)])];
        let recorded = windows[0].facts.iter().map(|f| ((ENDED, f.pmd), f.present)).collect();
        let budgets = Budgets { headroom_pct: 0.0, free_blocks: 0, pressure_pct: 100.0, ..Budgets::default() };
        let worker = Worker::new(DryRun::new(recorded), vec![Box::new(Collapse::default())], budgets, 1);
        let mut pass = Pass::new(windows, worker, (order, &Rules::default()), 1).unwrap();
        let mut now = 1;
        loop {
            match pass.step(now) {
                PassStep::Did | PassStep::Deferred => {}
                PassStep::Wait(until, _) => now = now.max(until),
                PassStep::Over => return pass.finish(),
            }
            assert!(now < 60_000_000_000, "{pass:?}");
        }
    }

    #[test]
    fn a_pass_serves_what_is_worth_it_and_says_what_it_left() {
        let result = played(Order::Worth(HintSource::Heat));
        let served: Vec<_> = result.served.iter().map(|s| (s.hint.pmd.0, s.benefit_hz, s.outcome)).collect();
        let done = Outcome::Done { grown: 0 };
        assert_eq!(served, [(2, 600.0, done), (1, 300.0, done)]);
        assert_eq!(result.left_out, [(Refusal::Cold, 1), (Refusal::Gone, 1)].into());
        let told: Vec<_> = result.processes.iter().map(|p| (p.pmds, p.done, p.refused)).collect();
        assert_eq!(told, [(3, 2, None), (1, 0, Some(Refusal::Gone))]);
        assert_eq!(result.heat_on_huge, (Some(0.0), Some(0.9)), "900 of 1,000 touches a second");
    }

    /// Its fork is alive all the time.
    #[derive(Debug)]
    struct Forked(DryRun);

    impl Machine for Forked {
        fn admit(&mut self, process: TargetId, unfit: &Unfit<'_>) -> Result<Process, Refusal> {
            self.0.admit(process, unfit)
        }

        fn dismiss(&mut self, process: TargetId) {
            self.0.dismiss(process);
        }

        fn fork_of(&mut self, _: TargetId) -> Option<u32> {
            Some(7)
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

    impl CollapseMachine for Forked {
        fn check_pmd(&mut self, process: TargetId, pmd: PmdNo, files: bool) -> Result<PmdCheck, Refusal> {
            self.0.check_pmd(process, pmd, files)
        }

        fn collapse(&mut self, process: TargetId, pmd: PmdNo) -> Performed {
            self.0.collapse(process, pmd)
        }
    }

    #[test]
    fn a_copy_that_does_not_end_is_not_waited_for_for_ever() {
        let pmds: Vec<(u64, f64)> = (0..50).map(|pmd| (pmd, 600.0)).collect();
        let recorded = pmds.iter().map(|(pmd, _)| ((ENDED, PmdNo(*pmd)), 512)).collect();
        let actions: Vec<Box<dyn crate::action::Action<Forked> + Send>> = vec![Box::new(Collapse::default())];
        let worker = Worker::new(Forked(DryRun::new(recorded)), actions, Budgets::default(), 1);
        let order = (Order::Worth(HintSource::Heat), &Rules::default());
        let mut pass = Pass::new(vec![window(ENDED, &pmds)], worker, order, 1).unwrap();
        let (mut now, mut steps) = (1, 0);
        loop {
            match pass.step(now) {
                PassStep::Did | PassStep::Deferred => {}
                PassStep::Wait(until, why) => {
                    assert_eq!(why, Some(Wait::Fork));
                    now = now.max(until);
                }
                PassStep::Over => break,
            }
            steps += 1;
            assert!(steps < 200, "{steps} steps for 50 hints");
        }
        assert!((5_000_000_000..8_000_000_000).contains(&now), "{now}");
        let result = pass.finish();
        assert_eq!(result.served.len(), 50);
        assert!(result.served.iter().all(|served| served.outcome == Outcome::Refused(Refusal::Fork)));
        assert_eq!(result.counters.refused, [(Refusal::Fork, 50)].into());
    }

    #[test]
    fn by_address_heat_does_not_matter() {
        let pmds: Vec<u64> = played(Order::Address).served.iter().map(|s| s.hint.pmd.0).collect();
        assert_eq!(pmds, [1, 2, 3]);
    }
}
