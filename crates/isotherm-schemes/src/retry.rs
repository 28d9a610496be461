//! The order in which hints are tried and retried: the highest in the queue first, deferred ones when they are due.
//!
//! [`RetryScheduler`] takes hints from a [`HintQueue`] and passes them to a [`Consumer`], of which [`crate::worker`] is
//! the only one. It does not know what a consumer does. A hint is dropped once it is handled, whatever the result. If
//! the obstacle is temporary, it returns to the queue later. There is no clock: time is an argument.

use crate::budgets::Wait;
use crate::outcome::Outcome;
use crate::queue::{ActionId, Hint, HintQueue};
use isotherm_heat::{Ns, TargetId};
use isotherm_units::PmdNo;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// A consumer's answer to a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Handled, with any result.
    Done(Outcome),
    /// Not now: offer it again at this time.
    Later(Ns, Wait),
}

/// Something that acts on hints.
pub trait Consumer {
    /// Whether anything at all may be done at `now`; otherwise when to ask again, and what it waits for.
    fn ready(&mut self, now: Ns) -> Result<(), (Ns, Wait)>;
    /// Handles one hint. It was tried `tries` times before.
    fn consume(&mut self, now: Ns, hint: &Hint, tries: u8) -> Handled;
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A hint was handled.
    Did(Hint, Outcome),
    /// A hint was deferred.
    Deferred(Hint, Wait),
    /// Nothing may be done before this time.
    Wait(Ns, Wait),
    /// There is no hint. If there are deferred ones, the first comes back at this time.
    Idle(Option<Ns>),
}

/// Deferred hints, and the order in which hints are served.
#[derive(Debug)]
pub struct RetryScheduler {
    /// When each deferred hint is due, and its number.
    later: BinaryHeap<Reverse<(Ns, u64)>>,
    deferred: HashMap<u64, (Hint, u8, Wait)>,
    /// Deferred huge ranges. Further hints at them change nothing.
    waiting: HashSet<(TargetId, PmdNo)>,
    /// Number of tries, for hints that are back in the queue, with their action: another may take the place of one.
    tries: HashMap<(TargetId, PmdNo), (ActionId, u8)>,
    next: u64,
    most: usize,
}

impl RetryScheduler {
    /// A scheduler that holds at most `most` deferred hints; beyond that, the newest is dropped.
    pub fn new(most: usize) -> RetryScheduler {
        RetryScheduler {
            later: BinaryHeap::new(),
            deferred: HashMap::new(),
            waiting: HashSet::new(),
            tries: HashMap::new(),
            next: 0,
            most,
        }
    }

    /// Whether a huge range is deferred.
    pub fn is_deferred(&self, process: TargetId, pmd: PmdNo) -> bool {
        self.waiting.contains(&(process, pmd))
    }

    /// Number of deferred hints.
    pub fn deferred(&self) -> usize {
        self.deferred.len()
    }

    /// Number of deferred hints that wait for one of these.
    pub fn deferred_for(&self, wanted: &[Wait]) -> usize {
        self.deferred.values().filter(|(_, _, why)| wanted.contains(why)).count()
    }

    /// What the deferred hint waits for that comes back first. O(n).
    pub fn first_wait(&self) -> Option<Wait> {
        // What was dropped is still in the list of times.
        let known =
            self.later.iter().filter_map(|Reverse((at, number))| Some((at, number, self.deferred.get(number)?)));
        known.min_by_key(|(at, number, _)| (*at, *number)).map(|(.., (_, _, why))| *why)
    }

    /// Drops the deferred hint of a huge range, if it is for this action. O(n).
    pub fn drop_deferred(&mut self, process: TargetId, pmd: PmdNo, action: ActionId) {
        let is_it = |hint: &Hint| (hint.process, hint.pmd, hint.action) == (process, pmd, action);
        let number = self.deferred.iter().find(|(_, (hint, ..))| is_it(hint)).map(|(number, _)| *number);
        if number.and_then(|number| self.deferred.remove(&number)).is_some() {
            self.waiting.remove(&(process, pmd));
        }
    }

    /// Drops all deferred hints. Returns them in the order in which they would come back, with what each waits for.
    pub fn give_up(&mut self) -> Vec<(Hint, Wait)> {
        self.waiting.clear();
        let order = std::mem::take(&mut self.later).into_sorted_vec();
        // The times are wrapped in `Reverse`, so the last one comes back first.
        let numbers = order.into_iter().rev().map(|Reverse((_, number))| number);
        numbers.filter_map(|number| self.deferred.remove(&number)).map(|(hint, _, why)| (hint, why)).collect()
    }

    /// Handles at most one hint.
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

    /// The first part of a step: whether there is a hint to serve. Otherwise returns when the first deferred hint comes
    /// back, if there is one. The parts are for callers that share the queue and must not lock it while the consumer works.
    pub fn due(&mut self, now: Ns, queue: &mut HintQueue) -> Result<(), Option<Ns>> {
        self.bring_back(now, queue);
        if queue.is_empty() { Err(self.later.peek().map(|Reverse((at, _))| *at)) } else { Ok(()) }
    }

    /// The second part: the hint to serve, and how many times it was tried before.
    pub fn take(&mut self, queue: &mut HintQueue) -> Option<(Hint, u8)> {
        let hint = queue.take()?;
        let tries = self.tries.remove(&(hint.process, hint.pmd)).filter(|(of, _)| *of == hint.action);
        let tries = tries.map_or(0, |(_, tries)| tries);
        Some((hint, tries))
    }

    /// The last part: records the answer of the consumer.
    pub fn settle(&mut self, hint: Hint, tries: u8, handled: Handled) -> Step {
        match handled {
            Handled::Done(outcome) => Step::Did(hint, outcome),
            Handled::Later(at, why) => {
                // A pause of the whole process or of its cgroup does not count as a failed try of this huge range.
                let own = matches!(why, Wait::Busy | Wait::Unwritable | Wait::NoCharge);
                let tries = if own { tries.saturating_add(1) } else { tries };
                self.put(at, hint, tries, why);
                Step::Deferred(hint, why)
            }
        }
    }

    fn put(&mut self, at: Ns, hint: Hint, tries: u8, why: Wait) {
        if self.deferred.len() < self.most && self.waiting.insert((hint.process, hint.pmd)) {
            self.later.push(Reverse((at, self.next)));
            self.deferred.insert(self.next, (hint, tries, why));
            self.next += 1;
        }
    }

    fn bring_back(&mut self, now: Ns, queue: &mut HintQueue) {
        while let Some(&Reverse((at, number))) = self.later.peek() {
            if at > now {
                return;
            }
            self.later.pop();
            if let Some((hint, tries, _)) = self.deferred.remove(&number) {
                self.waiting.remove(&(hint.process, hint.pmd));
                if tries > 0 && self.tries.len() < self.most {
                    self.tries.insert((hint.process, hint.pmd), (hint.action, tries));
                }
                queue.add(hint);
            }
        }
    }

    /// Drops the deferred hints of a process that has ended.
    pub fn forget(&mut self, process: TargetId) {
        self.deferred.retain(|_, (hint, ..)| hint.process != process);
        self.waiting.retain(|(of, _)| *of != process);
        self.tries.retain(|(of, _), _| *of != process);
    }
}
