//! Serves hints: the queue's highest first, within budgets, each guarded by what is so at the moment.
//!
//! [`Server`] takes hints from a [`HintQueue`] and hands them to a [`Consumer`]; what a consumer does is its own affair, so the
//! same queue can feed others (splitting, allocation). [`Collapser`] is the consumer that makes huge pages, through a
//! [`Machine`]. Neither reads a clock: time is an argument, so that every storm can be played in a test.
//!
//! A hint is dropped once it is handled, whatever came of it. Only what passes (busy pages, no free huge page, a fork alive, a
//! budget used up) is retried, at growing intervals, at most [`MAX_TRIES`] times where the reason is the block's own. A process
//! whose memory cgroup has no room for a huge page waits with all of that cgroup ([`crate::guards`]). A refusal without a reason may take
//! an access to pass; a caller that runs on retries it for longer: [`Collapser::patient`].

use crate::budgets::{Budgets, Wait};
use crate::guards::cgroups::{self, Pauses};
use crate::machine::{CollapseFailure, Collapsed, Look, Machine, Process};
use crate::outcome::{Counters, Outcome, Refusal};
use crate::queue::{Hint, HintQueue};
use isotherm_heat::{Bucket, Ns, TargetId};
use isotherm_units::{BlockNo, Bytes, PAGES_PER_BLOCK};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

const MS: Ns = 1_000_000;
const S: Ns = 1_000_000_000;
/// Tries at a block whose pages are busy.
pub const MAX_TRIES: u8 = 5;
/// Tries of a patient collapser at a block that the kernel refuses without a reason: an hour's worth, most of it a minute apart.
const PATIENT_TRIES: u8 = 68;
/// Wait before the second try; doubled each time, up to a minute.
const FIRST_WAIT: Ns = 200 * MS;
const LONGEST_WAIT: Ns = 60 * S;
/// How long nothing is tried after the kernel had no huge page: doubled up to a minute, as khugepaged waits.
const NO_PAGE_FIRST: Ns = S;
const NO_PAGE_LONGEST: Ns = 60 * S;
/// How often a paused process, or a host short of memory, is looked at again.
const LOOK_AGAIN: Ns = 500 * MS;
/// A collapse that took longer than this on the wall is followed by a rest of so many times as long.
const LONG_STALL: Ns = 50 * MS;
const REST_FACTOR: u64 = 20;
/// Collapses that may come at once.
const BURST_S: f64 = 0.25;

/// What a consumer says to a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Done with, one way or the other.
    Done(Outcome),
    /// Not now: offer it again then.
    Later(Ns, Wait),
}

/// Something that acts on hints.
pub trait Consumer {
    /// Whether anything at all may be done at `now`; otherwise when to ask again, and what for.
    fn ready(&mut self, now: Ns) -> Result<(), (Ns, Wait)>;
    /// Acts on one hint, offered for the `tries`th time (from 0).
    fn consume(&mut self, now: Ns, hint: &Hint, tries: u8) -> Handled;
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A hint was done with.
    Did(Hint, Outcome),
    /// A hint was put off.
    PutOff(Hint, Wait),
    /// Nothing may be done before then.
    Wait(Ns, Wait),
    /// There is no hint. Those put off come back then, if there are any.
    Idle(Option<Ns>),
}

/// Hints put off, and the order in which they are served.
#[derive(Debug)]
pub struct Server {
    /// When, a running number, and how often it was tried.
    later: BinaryHeap<Reverse<(Ns, u64)>>,
    put_off: HashMap<u64, (Hint, u8, Wait)>,
    /// Blocks put off: a source that goes on hinting at them changes nothing.
    waiting: HashSet<(TargetId, BlockNo)>,
    /// Tries of hints that are back in the queue.
    tries: HashMap<(TargetId, BlockNo), u8>,
    next: u64,
    most: usize,
}

impl Server {
    /// A server that keeps at most `most` hints put off; beyond, the newest is dropped.
    pub fn new(most: usize) -> Server {
        Server {
            later: BinaryHeap::new(),
            put_off: HashMap::new(),
            waiting: HashSet::new(),
            tries: HashMap::new(),
            next: 0,
            most,
        }
    }

    /// Whether a block is put off.
    pub fn is_put_off(&self, process: TargetId, block: BlockNo) -> bool {
        self.waiting.contains(&(process, block))
    }

    /// Hints put off.
    pub fn put_off(&self) -> usize {
        self.put_off.len()
    }

    /// Those of them that wait for one of these.
    pub fn put_off_for(&self, wanted: &[Wait]) -> usize {
        self.put_off.values().filter(|(_, _, why)| wanted.contains(why)).count()
    }

    /// Gives up all deferred hints, in the order in which they would come back, with what each waits for.
    pub fn give_up(&mut self) -> Vec<(Hint, Wait)> {
        self.waiting.clear();
        let order = std::mem::take(&mut self.later).into_sorted_vec();
        // Wrapped in `Reverse`, so the last comes back first.
        let numbers = order.into_iter().rev().map(|Reverse((_, number))| number);
        numbers.filter_map(|number| self.put_off.remove(&number)).map(|(hint, _, why)| (hint, why)).collect()
    }

    /// Does at most one thing.
    pub fn step(&mut self, now: Ns, queue: &mut HintQueue, consumer: &mut impl Consumer) -> Step {
        if let Err(until) = self.due(now, queue) {
            return Step::Idle(until);
        }
        if let Err((until, why)) = consumer.ready(now) {
            return Step::Wait(until, why);
        }
        let Some((hint, tries)) = self.take(queue) else { return Step::Idle(None) };
        let handled = consumer.consume(now, &hint, tries);
        self.settle(hint, tries, handled)
    }

    /// The first part of a step: whether there is a hint to serve. Otherwise when the deferred ones come back, if there are any. The
    /// parts are for callers that share the queue with others and must not keep it while the consumer works.
    pub fn due(&mut self, now: Ns, queue: &mut HintQueue) -> Result<(), Option<Ns>> {
        self.bring_back(now, queue);
        if queue.is_empty() { Err(self.later.peek().map(|Reverse((at, _))| *at)) } else { Ok(()) }
    }

    /// The second: the hint to serve, and how often it was tried before.
    pub fn take(&mut self, queue: &mut HintQueue) -> Option<(Hint, u8)> {
        let hint = queue.take()?;
        let tries = self.tries.remove(&(hint.process, hint.block)).unwrap_or(0);
        Some((hint, tries))
    }

    /// The last: notes what the consumer said.
    pub fn settle(&mut self, hint: Hint, tries: u8, handled: Handled) -> Step {
        match handled {
            Handled::Done(outcome) => Step::Did(hint, outcome),
            Handled::Later(at, why) => {
                // A pause of the whole process, or of its cgroup, is no failed try at this block.
                let own = matches!(why, Wait::Busy | Wait::Unwritable | Wait::NoCharge);
                let tries = if own { tries.saturating_add(1) } else { tries };
                self.put(at, hint, tries, why);
                Step::PutOff(hint, why)
            }
        }
    }

    fn put(&mut self, at: Ns, hint: Hint, tries: u8, why: Wait) {
        if self.put_off.len() < self.most && self.waiting.insert((hint.process, hint.block)) {
            self.later.push(Reverse((at, self.next)));
            self.put_off.insert(self.next, (hint, tries, why));
            self.next += 1;
        }
    }

    fn bring_back(&mut self, now: Ns, queue: &mut HintQueue) {
        while let Some(&Reverse((at, number))) = self.later.peek() {
            if at > now {
                return;
            }
            self.later.pop();
            if let Some((hint, tries, _)) = self.put_off.remove(&number) {
                self.waiting.remove(&(hint.process, hint.block));
                if tries > 0 && self.tries.len() < self.most {
                    self.tries.insert((hint.process, hint.block), tries);
                }
                queue.add(hint);
            }
        }
    }

    /// Drops what was put off for a process that has ended.
    pub fn forget(&mut self, process: TargetId) {
        self.put_off.retain(|_, (hint, ..)| hint.process != process);
        self.waiting.retain(|(of, _)| *of != process);
        self.tries.retain(|(of, _), _| *of != process);
    }
}

/// What is known of a process that is collapsed.
#[derive(Debug)]
struct Member {
    resident: Bytes,
    grown_pages: u64,
    stall: Bucket,
    paused: Option<u32>,
    pause_until: Ns,
    /// After a long collapse.
    rest_until: Ns,
    /// Path of its memory cgroup; empty until it was first asked for.
    cgroup: String,
}

/// The consumer that makes huge pages.
#[derive(Debug)]
pub struct Collapser<M> {
    machine: M,
    budgets: Budgets,
    members: BTreeMap<TargetId, Member>,
    cpu: Bucket,
    rate_from: Ns,
    no_page_until: Ns,
    no_page_wait: Ns,
    host_until: Ns,
    host_says: Option<Wait>,
    cgroups: Pauses,
    tries_unwritable: u8,
    counters: Counters,
}

impl<M: Machine> Collapser<M> {
    /// A collapser that has done nothing yet.
    pub fn new(machine: M, budgets: Budgets, now: Ns) -> Collapser<M> {
        Collapser {
            machine,
            cpu: Bucket::new(budgets.cpu_pct, 1.0, now),
            budgets,
            members: BTreeMap::new(),
            rate_from: now,
            no_page_until: 0,
            no_page_wait: NO_PAGE_FIRST,
            host_until: 0,
            host_says: None,
            cgroups: Pauses::default(),
            tries_unwritable: MAX_TRIES,
            counters: Counters::default(),
        }
    }

    /// Goes on trying, at long intervals, at blocks that the kernel refuses without a reason. For whoever runs on anyway: those
    /// that end when all hints are served would wait for an hour.
    pub fn patient(self) -> Collapser<M> {
        Collapser { tries_unwritable: PATIENT_TRIES, ..self }
    }

    /// Lets `process` be collapsed: the only ones that are. Fails if it is not there or refuses on the whole.
    pub fn admit(&mut self, process: TargetId, now: Ns) -> Result<(), Refusal> {
        if self.members.contains_key(&process) {
            return Ok(());
        }
        let Process { resident } = self.at_our_expense(|this| this.machine.admit(process))?;
        let stall = Bucket::new(self.budgets.stall_pct, 2.0, now);
        let member = Member {
            resident,
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

    /// Leaves `process` alone from here on: it has ended, or is not named any more.
    pub fn dismiss(&mut self, process: TargetId) {
        self.machine.dismiss(process);
        let Some(gone) = self.members.remove(&process) else { return };
        if self.members.values().all(|member| member.cgroup != gone.cgroup) {
            self.cgroups.forget(&gone.cgroup);
        }
    }

    /// Other budgets from here on.
    pub fn set_budgets(&mut self, budgets: Budgets, now: Ns) {
        self.cpu = Bucket::new(budgets.cpu_pct, 1.0, now);
        // What the old rate made it wait for is not waited for.
        self.rate_from = self.rate_from.min(now);
        for member in self.members.values_mut() {
            member.stall = Bucket::new(budgets.stall_pct, 2.0, now);
        }
        self.budgets = budgets;
    }

    /// Counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The live copy for which a process is paused.
    pub fn paused_for(&self, process: TargetId) -> Option<u32> {
        self.members.get(&process)?.paused
    }

    /// What the memory cgroup of a process waits for.
    pub fn cgroup_wait(&self, process: TargetId) -> Option<Wait> {
        self.cgroups.why(&self.members.get(&process)?.cgroup)
    }

    /// Counts a hint that is not waited for any longer.
    pub fn give_up(&mut self, hint: &Hint, refusal: Refusal) -> Outcome {
        let outcome = Outcome::Refused(refusal);
        self.counters.note(hint.origin, outcome);
        outcome
    }

    /// The machine.
    pub fn machine(&mut self) -> &mut M {
        &mut self.machine
    }

    /// What the host has to spare, looked at twice a second.
    fn host(&mut self, now: Ns) -> Option<Wait> {
        if now >= self.host_until {
            let host = self.at_our_expense(|this| this.machine.host());
            let short = |free: Option<Bytes>, all: Option<Bytes>| match (free, all) {
                (Some(free), Some(all)) => (free.0 as f64) < all.0 as f64 * self.budgets.headroom_pct / 100.0,
                _ => false,
            };
            self.host_says = if host.pressure_pct.is_some_and(|p| p > self.budgets.pressure_pct) {
                Some(Wait::Pressure)
            } else if short(host.available, host.memory) {
                Some(Wait::Headroom)
            } else if host.free_blocks.is_some_and(|n| n <= self.budgets.free_blocks) {
                Some(Wait::FreeBlocks)
            } else {
                None
            };
            self.host_until = now + LOOK_AGAIN;
        }
        self.host_says
    }

    /// Whether the process as a whole can be served; else what to say to the hint.
    fn member(&mut self, now: Ns, process: TargetId) -> Result<(), Handled> {
        let Some(member) = self.members.get_mut(&process) else {
            return Err(Handled::Done(Outcome::Refused(Refusal::NotNamed)));
        };
        if now < member.pause_until {
            return Err(Handled::Later(member.pause_until, Wait::Fork));
        }
        if now < member.rest_until {
            return Err(Handled::Later(member.rest_until, Wait::Stall));
        }
        if let Some(paused) = self.cgroups.at(&member.cgroup, now) {
            return Err(paused);
        }
        let spent = -member.stall.available_ns(now);
        if spent >= 0.0 {
            let share = (self.budgets.stall_pct / 100.0).max(1e-6);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
            return Err(Handled::Later(now + (spent / share) as Ns + MS, Wait::Stall));
        }
        Ok(())
    }

    /// Looks whether a copy of the process is alive. If so, pauses it.
    fn forked(&mut self, now: Ns, process: TargetId) -> Option<Handled> {
        let fork = self.machine.fork_of(process);
        let member = self.members.get_mut(&process)?;
        member.paused = fork;
        fork?;
        member.pause_until = now + LOOK_AGAIN;
        Some(Handled::Later(member.pause_until, Wait::Fork))
    }

    /// Whether the memory cgroup of the process has room for a block that adds `grows` pages. If not, the cgroup waits, and with it
    /// all its processes.
    fn crowded(&mut self, now: Ns, process: TargetId, grows: u16) -> Option<Handled> {
        let state = self.machine.cgroup(process);
        let member = self.members.get_mut(&process)?;
        // Without a cgroup that can be read, the process waits by itself after a refused charge.
        member.cgroup = state.as_ref().map_or_else(|| format!("process {}", process.pid), |s| s.path.clone());
        if let Some(paused) = self.cgroups.at(&member.cgroup, now) {
            return Some(paused);
        }
        match state.and_then(|state| cgroups::shortage(&state, grows, &self.budgets)) {
            Some(why) => Some(self.cgroups.pause(&member.cgroup, now, why)),
            None => {
                self.cgroups.has_room(&member.cgroup);
                None
            }
        }
    }

    /// What speaks against collapsing a block that looks like this.
    fn unfit(&self, process: TargetId, look: &Look) -> Option<Refusal> {
        if let Some(refusal) = look.refusal {
            return Some(refusal);
        }
        if look.present == 0 {
            return Some(Refusal::Unmapped);
        }
        if look.present < self.budgets.min_present {
            return Some(Refusal::Sparse);
        }
        if look.exclusive < self.budgets.min_present {
            return Some(Refusal::Shared);
        }
        let member = self.members.get(&process)?;
        let grown = (member.grown_pages + u64::from(grows(look))) as f64;
        (grown > member.resident.pages() as f64 * self.budgets.growth_pct / 100.0).then_some(Refusal::Growth)
    }

    /// Does something and charges its CPU time to the budget, whatever comes of it: a refusal has its cost too.
    fn at_our_expense<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.machine.cpu_ns();
        let done = act(self);
        let spent = self.machine.cpu_ns().saturating_sub(before);
        self.cpu.spend(spent as f64);
        self.counters.cpu_ns += spent;
        done
    }

    fn account(&mut self, now: Ns, process: TargetId, done: &Collapsed) {
        self.counters.stall_ns += done.took_ns;
        self.counters.longest_stall_ns = self.counters.longest_stall_ns.max(done.took_ns);
        if let Some(member) = self.members.get_mut(&process) {
            // Not the time on the wall: on a busy machine most of that is the worker waiting for a CPU, locks not held.
            member.stall.spend(done.cpu_ns as f64);
            if done.took_ns > LONG_STALL {
                member.rest_until = member.rest_until.max(now + done.took_ns * REST_FACTOR);
            }
        }
    }

    fn failed(&mut self, now: Ns, process: TargetId, failure: CollapseFailure, tries: u8) -> Handled {
        let mut most = MAX_TRIES;
        let transient = match failure {
            CollapseFailure::Refused(refusal) => return Handled::Done(Outcome::Refused(refusal)),
            CollapseFailure::Busy => Refusal::Busy,
            CollapseFailure::NoCharge => {
                // Where one charge is refused, the next would be, and for each the kernel reclaims from the cgroup first.
                let cgroup = self.members.get(&process).map_or("", |member| member.cgroup.as_str());
                let paused = self.cgroups.pause(cgroup, now, Wait::NoCharge);
                let given_up = tries.saturating_add(1) >= most;
                return if given_up { Handled::Done(Outcome::Refused(Refusal::NoCharge)) } else { paused };
            }
            CollapseFailure::Unexplained => {
                most = self.tries_unwritable;
                Refusal::Ineligible
            }
            CollapseFailure::NoHugePage => {
                self.no_page_until = now + self.no_page_wait;
                self.no_page_wait = (self.no_page_wait * 2).min(NO_PAGE_LONGEST);
                Refusal::NoHugePage
            }
        };
        if tries.saturating_add(1) >= most {
            return Handled::Done(Outcome::Refused(transient));
        }
        let why = if transient == Refusal::Ineligible { Wait::Unwritable } else { Wait::Busy };
        // Nine doublings are beyond the longest.
        Handled::Later(now + (FIRST_WAIT << tries.min(9)).min(LONGEST_WAIT), why)
    }
}

/// Pages that a collapse adds: those missing, and those that are copied because others have them too.
fn grows(look: &Look) -> u16 {
    let pages = u16::try_from(PAGES_PER_BLOCK).unwrap_or(u16::MAX);
    pages.saturating_sub(look.exclusive)
}

impl<M: Machine> Consumer for Collapser<M> {
    fn ready(&mut self, now: Ns) -> Result<(), (Ns, Wait)> {
        if now < self.no_page_until {
            return Err((self.no_page_until, Wait::NoHugePage));
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
        match self.host(now) {
            Some(why) => Err((self.host_until, why)),
            None => Ok(()),
        }
    }

    fn consume(&mut self, now: Ns, hint: &Hint, tries: u8) -> Handled {
        let process = hint.process;
        let handled = self.at_our_expense(|this| this.try_one(now, process, hint.block, tries));
        match handled {
            Handled::Done(outcome) => self.counters.note(hint.origin, outcome),
            Handled::Later(..) => self.counters.put_off += 1,
        }
        handled
    }
}

impl<M: Machine> Collapser<M> {
    fn try_one(&mut self, now: Ns, process: TargetId, block: BlockNo, tries: u8) -> Handled {
        if let Err(handled) = self.member(now, process) {
            return handled;
        }
        if let Some(paused) = self.forked(now, process) {
            return paused;
        }
        let look = match self.machine.look(process, block) {
            Ok(look) => look,
            Err(refusal) => return Handled::Done(Outcome::Refused(refusal)),
        };
        if let Some(refusal) = self.unfit(process, &look) {
            return Handled::Done(Outcome::Refused(refusal));
        }
        if let Some(paused) = self.crowded(now, process, grows(&look)) {
            return paused;
        }
        // Only what is tried counts against the rate.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
        let gap = (1e9 / self.budgets.per_second.max(1e-9)) as Ns;
        self.rate_from = self.rate_from.saturating_add(gap);
        let done = self.machine.collapse(process, block);
        self.account(now, process, &done);
        match done.result {
            Ok(()) => {
                self.no_page_wait = NO_PAGE_FIRST;
                let grown = grows(&look);
                if let Some(member) = self.members.get_mut(&process) {
                    member.grown_pages += u64::from(grown);
                    self.cgroups.forget(&member.cgroup);
                }
                Handled::Done(Outcome::Collapsed { grown })
            }
            Err(failure) => self.failed(now, process, failure, tries),
        }
    }
}

#[cfg(test)]
mod tests;
