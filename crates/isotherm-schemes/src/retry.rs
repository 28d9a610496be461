//! In which order hints are tried and tried again: the queue's highest first, deferred ones when their time has come.
//!
//! [`RetryScheduler`] takes hints from a [`HintQueue`] and hands them to a [`Consumer`] ([`crate::worker`] is the one there is); what a
//! consumer does is its own affair. A hint is dropped once it is handled, whatever came of it; what passes comes back to the queue
//! later. No clock: time is an argument.

use crate::budgets::Wait;
use crate::outcome::Outcome;
use crate::queue::{Hint, HintQueue};
use isotherm_heat::{Ns, TargetId};
use isotherm_units::BlockNo;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

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
pub struct RetryScheduler {
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

impl RetryScheduler {
    /// A scheduler that keeps at most `most` hints put off; beyond, the newest is dropped.
    pub fn new(most: usize) -> RetryScheduler {
        RetryScheduler {
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
