//! Performs the actions that hints ask for, within budgets, and checks the guards right before each try.
//!
//! [`Worker`] is the [`Consumer`] of hints for all actions ([`crate::action`]); it names one action: bringing back succeeds whatever was
//! read, so it says nothing of the room in the cgroup. All actions share the budgets of CPU, of tries per second and of stalls of a target. Each action says which
//! other guards apply. The worker reads no clock: time is an argument, so that tests can simulate any load.
//!
//! A hint is dropped once it is handled, whatever the result. Only temporary obstacles (busy pages, no free huge page,
//! a live fork, a used-up budget) are retried, at growing intervals, and at most [`MAX_TRIES`] times if the reason is
//! the huge range's own. A process whose memory cgroup has no room waits with the whole cgroup ([`crate::guards`]). After a
//! refusal without a reason, the huge range may need an access before a retry can succeed; a caller that runs on retries for
//! longer: [`Worker::with_long_retries`].

use crate::action::{Action, Failure, Guard, Performed, Price};
use crate::bring_back::BRING_BACK;
use crate::budgets::{Budgets, Wait};
use crate::guards::cgroups::{self, Pauses};
use crate::guards::{HostGuard, RECHECK_INTERVAL};
use crate::machine::{CgroupState, Machine, Process};
use crate::outcome::{Counters, Outcome, Refusal};
use crate::queue::Hint;
use crate::retry::{Consumer, Handled};
use isotherm_heat::{Bucket, Ns, TargetId};
use isotherm_units::{Bytes, PAGE_SIZE};
use std::collections::BTreeMap;

const MS: Ns = 1_000_000;
const S: Ns = 1_000_000_000;
/// Tries of a huge range whose pages are busy.
pub const MAX_TRIES: u8 = 5;
/// Tries of a huge range that the kernel refuses without a reason, for a worker that runs on: an hour's worth, most of them
/// a minute apart.
const MAX_LONG_TRIES: u8 = 68;
/// Wait before the second try. Doubled each time, up to a minute.
const FIRST_WAIT: Ns = 200 * MS;
const LONGEST_WAIT: Ns = 60 * S;
/// How long an action waits after the kernel had no page for it. Doubled up to a minute, as khugepaged waits.
const NO_PAGE_FIRST: Ns = S;
const NO_PAGE_LONGEST: Ns = 60 * S;
/// After a try with an elapsed time above this, the process rests for this many times as long.
const LONG_STALL: Ns = 50 * MS;
const REST_FACTOR: u64 = 20;
/// Tries that may come at once, as seconds of the rate.
const BURST_S: f64 = 0.25;

/// What is known about a process that is acted on.
#[derive(Debug)]
struct Member {
    process: Process,
    grown_pages: u64,
    stall: Bucket,
    paused: Option<u32>,
    pause_until: Ns,
    /// A rest after a long try.
    rest_until: Ns,
    /// Path of its memory cgroup; empty until it was read for the first time.
    cgroup: String,
}

/// An action, and what it waits for as a whole.
#[derive(Debug)]
struct Registered<M> {
    action: Box<dyn Action<M> + Send>,
    /// When to try again after the kernel had no page for it.
    no_page_until: Ns,
    no_page_wait: Ns,
}

impl<M> Registered<M> {
    fn has_page(&mut self) {
        self.no_page_wait = NO_PAGE_FIRST;
    }

    fn had_no_page(&mut self, now: Ns) {
        self.no_page_until = now + self.no_page_wait;
        self.no_page_wait = (self.no_page_wait * 2).min(NO_PAGE_LONGEST);
    }

    fn without_page(&self, now: Ns) -> Option<(Ns, Wait)> {
        (now < self.no_page_until).then_some((self.no_page_until, Wait::NoHugePage))
    }
}

/// Why every action refuses a process, if so: the reason of the first action.
fn refused_by_all<M>(actions: &[Registered<M>], process: &Process) -> Option<Refusal> {
    let refusals: Option<Vec<Refusal>> = actions.iter().map(|r| r.action.refuses(process)).collect();
    refusals.and_then(|all| all.first().copied())
}

/// Whether one of the guards holds for a wait of a memory cgroup.
fn holds_up(guards: &[Guard], waiting: &Handled) -> bool {
    matches!(waiting, Handled::Later(_, why) if guards.iter().any(|guard| guard.is_of_cgroup(*why)))
}

/// The consumer that performs actions.
#[derive(Debug)]
pub struct Worker<M> {
    machine: M,
    actions: Vec<Registered<M>>,
    budgets: Budgets,
    members: BTreeMap<TargetId, Member>,
    cpu: Bucket,
    rate_from: Ns,
    host: HostGuard,
    cgroups: Pauses,
    tries_unwritable: u8,
    counters: Counters,
}

impl<M: Machine> Worker<M> {
    /// A worker that has done nothing yet. If actions have the same id, the first one counts.
    pub fn new(machine: M, actions: Vec<Box<dyn Action<M> + Send>>, budgets: Budgets, now: Ns) -> Worker<M> {
        let counters = Counters::of_actions(actions.iter().map(|action| action.done()));
        let registered = |action| Registered { action, no_page_until: 0, no_page_wait: NO_PAGE_FIRST };
        Worker {
            machine,
            actions: actions.into_iter().map(registered).collect(),
            cpu: Bucket::new(budgets.cpu_pct, 1.0, now),
            budgets,
            members: BTreeMap::new(),
            rate_from: now,
            host: HostGuard::default(),
            cgroups: Pauses::default(),
            tries_unwritable: MAX_TRIES,
            counters,
        }
    }

    /// Retries huge ranges that the kernel refuses without a reason for longer, at long intervals. For callers that run on
    /// anyway; a caller that ends when all hints are served would wait for an hour.
    pub fn with_long_retries(self) -> Worker<M> {
        Worker { tries_unwritable: MAX_LONG_TRIES, ..self }
    }

    /// Allows actions on `process`; no others are acted on. Fails if the process is not there or if every action
    /// refuses it.
    pub fn admit(&mut self, process: TargetId, now: Ns) -> Result<(), Refusal> {
        if self.members.contains_key(&process) {
            return Ok(());
        }
        let admitted = self.charge_cpu(|Worker { machine, actions, .. }| {
            machine.admit(process, &|found| refused_by_all(actions, found))
        })?;
        let stall = Bucket::new(self.budgets.stall_pct, 2.0, now);
        let member = Member {
            process: admitted,
            grown_pages: 0,
            stall,
            paused: None,
            pause_until: 0,
            rest_until: 0,
            cgroup: String::new(),
        };
        self.members.insert(process, member);
        Ok(())
    }

    /// Takes in the resident memory of a process. The largest, without what actions have added, is what its growth is a share of: a server that was
    /// found at its start would never be allowed any.
    pub fn note_resident(&mut self, process: TargetId, resident: Bytes) {
        let Some(member) = self.members.get_mut(&process) else { return };
        let own = resident.0.saturating_sub(member.grown_pages * PAGE_SIZE);
        member.process.resident = member.process.resident.max(Bytes(own));
    }

    /// Stops acting on `process`: it has ended, or is no longer named.
    pub fn dismiss(&mut self, process: TargetId) {
        self.machine.dismiss(process);
        let Some(gone) = self.members.remove(&process) else { return };
        if self.members.values().all(|member| member.cgroup != gone.cgroup) {
            self.cgroups.forget(&gone.cgroup);
        }
    }

    /// Applies new budgets.
    pub fn set_budgets(&mut self, budgets: Budgets, now: Ns) {
        self.cpu = Bucket::new(budgets.cpu_pct, 1.0, now);
        // Do not wait for what the old rate required.
        self.rate_from = self.rate_from.min(now);
        for member in self.members.values_mut() {
            member.stall = Bucket::new(budgets.stall_pct, 2.0, now);
        }
        self.budgets = budgets;
    }

    /// Counters so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The live forked copy for which a process is paused.
    pub fn paused_for(&self, process: TargetId) -> Option<u32> {
        self.members.get(&process)?.paused
    }

    /// What the memory cgroup of a process waits for.
    pub fn cgroup_wait(&self, process: TargetId) -> Option<Wait> {
        self.cgroups.why(&self.members.get(&process)?.cgroup)
    }

    /// Counts a hint that is no longer waited for.
    pub fn give_up(&mut self, hint: &Hint, refusal: Refusal) -> Outcome {
        let outcome = Outcome::Refused(refusal);
        self.count(hint, outcome);
        outcome
    }

    /// The machine.
    pub fn machine(&mut self) -> &mut M {
        &mut self.machine
    }

    /// The index of a hint's action.
    fn action_of(&self, hint: &Hint) -> Option<usize> {
        self.actions.iter().position(|registered| registered.action.id() == hint.action)
    }

    fn count(&mut self, hint: &Hint, outcome: Outcome) {
        let name = self.action_of(hint).map_or("", |at| self.actions[at].action.done());
        self.counters.note(name, hint.origin, outcome);
    }

    /// Until when all actions wait for this; `None` if one does not. Reports the wait that ends first.
    fn all_wait(&self, wait: impl Fn(&Registered<M>) -> Option<(Ns, Wait)>) -> Option<(Ns, Wait)> {
        let waits: Option<Vec<(Ns, Wait)>> = self.actions.iter().map(wait).collect();
        waits?.into_iter().min_by_key(|(until, _)| *until)
    }

    /// Checks what the host has to spare, twice per second.
    fn check_host(&mut self, now: Ns) {
        if self.host.is_due(now) {
            let state = self.charge_cpu(|this| this.machine.host());
            self.host.note(state, now);
        }
    }

    /// What the action as a whole waits for. If it applies to all actions, the whole worker waits.
    fn action_waits(&self, registered: &Registered<M>, now: Ns) -> Option<(Ns, Wait)> {
        registered.without_page(now).or_else(|| self.host.wait(registered.action.guards(), &self.budgets))
    }

    /// Whether the process as a whole can be served; otherwise the answer to the hint.
    fn member(&mut self, now: Ns, process: TargetId, action: usize) -> Result<(), Handled> {
        let Some(member) = self.members.get_mut(&process) else {
            return Err(Handled::Done(Outcome::Refused(Refusal::NotNamed)));
        };
        let guards = self.actions[action].action.guards();
        if now < member.pause_until && guards.contains(&Guard::Fork) {
            return Err(Handled::Later(member.pause_until, Wait::Fork));
        }
        if now < member.rest_until {
            return Err(Handled::Later(member.rest_until, Wait::Stall));
        }
        if let Some(paused) = self.cgroups.at(&member.cgroup, now).filter(|paused| holds_up(guards, paused)) {
            return Err(paused);
        }
        let spent = -member.stall.available_ns(now);
        if spent >= 0.0 {
            let share = (self.budgets.stall_pct / 100.0).max(1e-6);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
            return Err(Handled::Later(now + (spent / share) as Ns + MS, Wait::Stall));
        }
        self.actions[action].action.refuses(&member.process).map_or(Ok(()), |r| Err(Handled::Done(Outcome::Refused(r))))
    }

    /// Checks whether a forked copy of the process is alive. If so, pauses the process.
    fn forked(&mut self, now: Ns, process: TargetId) -> Option<Handled> {
        let fork = self.machine.fork_of(process);
        let member = self.members.get_mut(&process)?;
        member.paused = fork;
        fork?;
        member.pause_until = now + RECHECK_INTERVAL;
        Some(Handled::Later(member.pause_until, Wait::Fork))
    }

    /// Checks whether the memory cgroup of the process has room for this charge, and is not under pressure, as far as the guards ask. If not,
    /// the cgroup waits, and with it all its processes.
    fn crowded(&mut self, now: Ns, process: TargetId, charge: Bytes, guards: &[Guard]) -> Option<Handled> {
        let state = self.machine.cgroup(process);
        let member = self.members.get_mut(&process)?;
        // If no cgroup can be read, the process waits by itself after a refused charge.
        member.cgroup = state.as_ref().map_or_else(|| format!("process {}", process.pid), |s| s.path.clone());
        if let Some(paused) = self.cgroups.at(&member.cgroup, now).filter(|paused| holds_up(guards, paused)) {
            return Some(paused);
        }
        let short = |state: CgroupState| {
            let asks_for_swap = guards.contains(&Guard::CgroupSwap);
            let no_swap = (asks_for_swap && cgroups::lacks_swap(&state)).then_some(Wait::CgroupSwap);
            no_swap.or_else(|| cgroups::shortage(&state, charge, &self.budgets))
        };
        match state.and_then(short) {
            Some(why) if guards.iter().any(|guard| guard.is_of_cgroup(why)) => {
                Some(self.cgroups.pause(&member.cgroup, now, why))
            }
            // What it waits for does not concern this action.
            Some(_) => None,
            None => {
                self.cgroups.has_room(&member.cgroup);
                None
            }
        }
    }

    /// Whether the process would grow by more than its share. What does not make it grow may go on when it has: the share may have been lessened.
    fn outgrows(&self, process: TargetId, price: Price) -> bool {
        let Some(member) = self.members.get(&process) else { return false };
        let grown = (member.grown_pages + u64::from(price.grows)) as f64;
        price.grows > 0 && grown > member.process.resident.pages() as f64 * self.budgets.growth_pct / 100.0
    }

    /// Runs `act` and charges its CPU time to the budget, whatever the result: refusals cost CPU too.
    fn charge_cpu<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.machine.cpu_ns();
        let done = act(self);
        let spent = self.machine.cpu_ns().saturating_sub(before);
        self.cpu.spend(spent as f64);
        self.counters.cpu_ns += spent;
        done
    }

    fn account(&mut self, now: Ns, process: TargetId, done: &Performed) {
        self.counters.left_pages += u64::from(done.pages);
        self.counters.stall_ns += done.took_ns;
        self.counters.longest_stall_ns = self.counters.longest_stall_ns.max(done.took_ns);
        if let Some(member) = self.members.get_mut(&process) {
            // Not the elapsed time: on a busy machine, the worker spends most of that waiting for a CPU, without
            // holding locks.
            member.stall.spend(done.cpu_ns as f64);
            if done.took_ns > LONG_STALL {
                member.rest_until = member.rest_until.max(now + done.took_ns * REST_FACTOR);
            }
        }
    }
}

impl<M: Machine> Consumer for Worker<M> {
    fn ready(&mut self, now: Ns) -> Result<(), (Ns, Wait)> {
        if let Some(wait) = self.all_wait(|registered| registered.without_page(now)) {
            return Err(wait);
        }
        // Credit for a burst, and never more: what was not used in an idle hour must not come at once.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a quarter of a second")]
        let burst = (BURST_S * 1e9) as Ns;
        self.rate_from = self.rate_from.max(now.saturating_sub(burst));
        if self.rate_from > now {
            return Err((self.rate_from, Wait::Rate));
        }
        if self.cpu.available_ns(now) <= 0.0 {
            return Err((now + 20 * MS, Wait::Cpu));
        }
        self.check_host(now);
        self.all_wait(|registered| self.action_waits(registered, now)).map_or(Ok(()), Err)
    }

    fn consume(&mut self, now: Ns, hint: &Hint, tries: u8) -> Handled {
        let handled = self.charge_cpu(|this| this.try_one(now, hint, tries));
        match handled {
            Handled::Done(outcome) => self.count(hint, outcome),
            Handled::Later(..) => self.counters.put_off += 1,
        }
        handled
    }
}

impl<M: Machine> Worker<M> {
    fn try_one(&mut self, now: Ns, hint: &Hint, tries: u8) -> Handled {
        let process = hint.process;
        let refused = |refusal| Handled::Done(Outcome::Refused(refusal));
        let Some(action) = self.action_of(hint) else { return refused(Refusal::Error) };
        if let Some((until, why)) = self.action_waits(&self.actions[action], now) {
            return Handled::Later(until, why);
        }
        if let Err(handled) = self.member(now, process, action) {
            return handled;
        }
        let price = match self.guarded_price(now, hint, action) {
            Ok(price) => price,
            Err(handled) => return handled,
        };
        // Only tries count against the rate.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
        let gap = (1e9 / self.budgets.per_second.max(1e-9)) as Ns;
        self.rate_from = self.rate_from.saturating_add(gap);
        let done = self.actions[action].action.perform(&mut self.machine, hint);
        self.account(now, process, &done);
        match done.result {
            Ok(()) => {
                self.actions[action].has_page();
                self.host.acted(self.actions[action].action.guards());
                if let Some(member) = self.members.get_mut(&process) {
                    member.grown_pages += u64::from(price.grows);
                    // What charges nothing says nothing of the room for a charge, nor does bringing back, whose call succeeds whatever was read.
                    if price.charge.0 > 0 && hint.action != BRING_BACK {
                        self.cgroups.forget(&member.cgroup);
                    }
                }
                Handled::Done(Outcome::Done { grown: price.grows })
            }
            Err(failure) => self.failed(now, hint, failure, tries),
        }
    }

    /// The price, if nothing forbids the try at this moment: a copy of the process, the huge range itself, growth, or the cgroup.
    fn guarded_price(&mut self, now: Ns, hint: &Hint, action: usize) -> Result<Price, Handled> {
        let refused = |refusal| Handled::Done(Outcome::Refused(refusal));
        let guards = self.actions[action].action.guards();
        if let Some(paused) = guards.contains(&Guard::Fork).then(|| self.forked(now, hint.process)).flatten() {
            return Err(paused);
        }
        let price = self.actions[action].action.check(&mut self.machine, hint, &self.budgets).map_err(refused)?;
        if self.outgrows(hint.process, price) {
            return Err(refused(Refusal::Growth));
        }
        let asks = guards.iter().any(|guard| guard.is_of_cgroup(Wait::CgroupPressure));
        let crowded = asks.then(|| self.crowded(now, hint.process, price.charge, guards)).flatten();
        crowded.map_or(Ok(price), Err)
    }

    fn failed(&mut self, now: Ns, hint: &Hint, failure: Failure, tries: u8) -> Handled {
        let mut max_tries = MAX_TRIES;
        let transient = match failure {
            Failure::Refused(refusal) => return Handled::Done(Outcome::Refused(refusal)),
            Failure::Busy => Refusal::Busy,
            Failure::NoCharge => {
                // If one charge is refused, so would be the next, and before each refusal the kernel reclaims from the cgroup.
                let cgroup = self.members.get(&hint.process).map_or("", |member| member.cgroup.as_str());
                let paused = self.cgroups.pause(cgroup, now, Wait::NoCharge);
                let given_up = tries.saturating_add(1) >= max_tries;
                return if given_up { Handled::Done(Outcome::Refused(Refusal::NoCharge)) } else { paused };
            }
            Failure::Unexplained => {
                max_tries = self.tries_unwritable;
                Refusal::Ineligible
            }
            Failure::NoHugePage => {
                if let Some(action) = self.action_of(hint) {
                    self.actions[action].had_no_page(now);
                }
                Refusal::NoHugePage
            }
        };
        if tries.saturating_add(1) >= max_tries {
            return Handled::Done(Outcome::Refused(transient));
        }
        let why = if transient == Refusal::Ineligible { Wait::Unwritable } else { Wait::Busy };
        // Nine doublings exceed the longest wait.
        Handled::Later(now + (FIRST_WAIT << tries.min(9)).min(LONGEST_WAIT), why)
    }
}

#[cfg(test)]
mod second_action;
#[cfg(test)]
mod tests;
