//! The order in which hints are tried and retried: the highest in the queue first, deferred ones when they are due.
//!
//! [`RetryScheduler`] takes hints from a [`HintQueue`] and passes them to a [`Consumer`], of which [`crate::worker`] is
//! the only one. It does not know what a consumer does. A hint is dropped once it is handled, whatever the result. If
//! the obstacle is temporary, it returns to the queue later. There is no clock: time is an argument.
//!
//! Most obstacles are not of a huge range but of its process, of its memory cgroup or of an action: a forked copy, a stall budget, a limit.
//! Hints that wait for one of these form a group by process and action; those that wait for a quota form another. One hint of a group comes
//! back at a time and shows whether the wait is over. If so, one more comes back at once, then two, then four, the hottest first. If all came
//! back each time, a queue of a hundred thousand hints would be taken and deferred twice a second while a copy lives, and colder hints, of other
//! processes too, would hardly be served.
//!
//! What the kernel refuses without a reason comes back at the lowest level: it is tried for an hour, and must not use up the rate of what is
//! tried for the first time.

use crate::budgets::Wait;
use crate::outcome::Outcome;
use crate::queue::{ActionId, Added, Hint, HintQueue, Level, Origin};
use isotherm_heat::{Ns, TargetId};
use isotherm_units::PmdNo;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

/// How long after one hint of a group has come back the next does, whatever became of the first.
const PROBE_EVERY: Ns = 500_000_000;

/// Entries of the list of times that may be out of date, beside as many as there are others.
const MAX_STALE: usize = 1024;

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

/// Process, action, and whether its hints wait for a quota. A quota may last for a day, so other hints do not wait behind it.
type GroupId = (TargetId, ActionId, bool);
/// When a deferred hint is due, and its number; or a number of its own, and the group of which the first hint is due.
type Entry = (Ns, u64, Option<GroupId>);

/// Deferred hints of a process and an action that wait for something that is not their own.
#[derive(Debug, Default)]
struct Group {
    /// Their numbers, the hottest first, and those of one level by age.
    waiting: BTreeSet<(Reverse<Level>, u64)>,
    /// The number of the entry in the list of times at which the first comes back. Other entries of the group do not count.
    due: Option<u64>,
    /// Those that are back in the queue. Where one is deferred again it has its old place.
    back: HashMap<PmdNo, u64>,
    /// How many come back after the next success.
    batch: usize,
}

/// Deferred hints, and the order in which hints are served.
#[derive(Debug)]
pub struct RetryScheduler {
    /// The list of times.
    later: BinaryHeap<Reverse<Entry>>,
    deferred: HashMap<u64, (Hint, u8, Wait)>,
    /// Deferred huge ranges, by number. Further hints at them change nothing.
    waiting: HashMap<(TargetId, PmdNo), u64>,
    groups: HashMap<GroupId, Group>,
    /// Groups of which more comes back, because one hint could be served.
    eased: Vec<GroupId>,
    /// Hints for which there was no room.
    lost: Vec<Hint>,
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
            waiting: HashMap::new(),
            groups: HashMap::new(),
            eased: Vec::new(),
            lost: Vec::new(),
            tries: HashMap::new(),
            next: 0,
            most,
        }
    }

    /// Whether a huge range is deferred.
    pub fn is_deferred(&self, process: TargetId, pmd: PmdNo) -> bool {
        self.waiting.contains_key(&(process, pmd))
    }

    /// Whether it is, by a hint for this action.
    pub fn is_deferred_for(&self, process: TargetId, pmd: PmdNo, action: ActionId) -> bool {
        self.waits_for(process, pmd, action).is_some()
    }

    /// What the deferred hint of a huge range for this action waits for.
    pub fn waits_for(&self, process: TargetId, pmd: PmdNo, action: ActionId) -> Option<Wait> {
        let (hint, _, why) = self.deferred.get(self.waiting.get(&(process, pmd))?)?;
        (hint.action == action).then_some(*why)
    }

    /// Whether a hint that is back in the queue was tried before.
    pub fn was_tried(&self, process: TargetId, pmd: PmdNo) -> bool {
        self.tries.contains_key(&(process, pmd))
    }

    /// Whether hints of a process wait for something that is neither their own nor a quota, or are back to show whether that is over. O(processes).
    pub fn waits_with_others(&self, process: TargetId) -> bool {
        self.groups.keys().any(|(of, _, of_quota)| *of == process && !of_quota)
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
        let known = self.later.iter().filter_map(|Reverse(entry)| Some((entry, self.comes_back(entry)?)));
        let (_, first) = known.min()?;
        self.deferred.get(&first).map(|(.., why)| *why)
    }

    /// The hint that comes back by an entry of the list of times. `None` if it was dropped, or the entry does not count any more.
    fn comes_back(&self, (_, number, group): &Entry) -> Option<u64> {
        let Some(id) = group else { return self.deferred.contains_key(number).then_some(*number) };
        let group = self.groups.get(id).filter(|group| group.due == Some(*number))?;
        group.waiting.first().map(|(_, first)| *first)
    }

    /// Drops the deferred hint of a huge range, if it is for this action and not from outside.
    pub fn drop_deferred(&mut self, process: TargetId, pmd: PmdNo, action: ActionId) {
        let Some(&number) = self.waiting.get(&(process, pmd)) else { return };
        let Some(&(hint, _, why)) = self.deferred.get(&number) else { return };
        if hint.action != action || hint.origin == Origin::External {
            return;
        }
        self.waiting.remove(&(process, pmd));
        self.deferred.remove(&number);
        let id = group_of(&hint, why);
        if let Some(group) = self.groups.get_mut(&id) {
            group.waiting.remove(&(Reverse(hint.level), number));
            group.due.take_if(|_| group.waiting.is_empty());
        }
        self.forget_if_empty(id);
    }

    /// Drops the deferred hint of a huge range that waits for a quota, which may last for a day, if `hint` is for another action, or from outside and
    /// so exempt from quotas. Returns whether it was dropped. Hints from outside stay.
    pub fn give_way(&mut self, hint: &Hint) -> bool {
        let deferred = self.waiting.get(&(hint.process, hint.pmd)).and_then(|number| self.deferred.get(number));
        let Some(&(waiting, _, why)) = deferred else { return false };
        let would_wait = waiting.action == hint.action && hint.origin != Origin::External;
        if why != Wait::Quota || would_wait || waiting.origin == Origin::External {
            return false;
        }
        self.drop_deferred(hint.process, hint.pmd, waiting.action);
        true
    }

    /// A deferred huge range has become hotter or colder, or another program asks for it, which heat does not undo. Returns whether its level has
    /// changed. O(log n).
    pub fn relevel(&mut self, hint: &Hint) -> bool {
        let Some(&number) = self.waiting.get(&(hint.process, hint.pmd)) else { return false };
        let Some((deferred, _, why)) = self.deferred.get_mut(&number) else { return false };
        let is_undone = deferred.origin == Origin::External && hint.origin != Origin::External;
        if deferred.action != hint.action || is_undone || is_own(*why) || deferred.level == hint.level {
            return false;
        }
        let before = std::mem::replace(&mut deferred.level, hint.level);
        deferred.origin = hint.origin;
        if let Some(group) = self.groups.get_mut(&group_of(hint, *why)) {
            group.waiting.remove(&(Reverse(before), number));
            group.waiting.insert((Reverse(hint.level), number));
        }
        true
    }

    /// A hint was taken from the queue and is not served: nobody asks for it any more. If it was to show whether a wait is over, the next one does.
    pub fn dropped(&mut self, hint: &Hint) {
        self.tries.remove(&(hint.process, hint.pmd));
        for id in groups_of(hint) {
            if self.groups.get_mut(&id).is_some_and(|group| group.back.remove(&hint.pmd).is_some()) {
                self.lead(id, 0);
                self.forget_if_empty(id);
            }
        }
    }

    /// Takes the hints for which there was no room in the queue or here.
    pub fn take_lost(&mut self) -> Vec<Hint> {
        std::mem::take(&mut self.lost)
    }

    /// Drops all deferred hints. Returns them in the order in which they would come back, with what each waits for.
    pub fn give_up(&mut self) -> Vec<(Hint, Wait)> {
        self.waiting.clear();
        self.eased.clear();
        let groups = std::mem::take(&mut self.groups);
        let order = std::mem::take(&mut self.later).into_sorted_vec();
        // The times are wrapped in `Reverse`, so the last one comes back first.
        let mut given_up = Vec::new();
        for Reverse((_, number, id)) in order.into_iter().rev() {
            let group = id.and_then(|id| groups.get(&id)).filter(|group| group.due == Some(number));
            let of_group = group.into_iter().flat_map(|group| group.waiting.iter().map(|(_, number)| *number));
            let hints = std::iter::once(number).chain(of_group).filter_map(|number| self.deferred.remove(&number));
            given_up.extend(hints.map(|(hint, _, why)| (hint, why)));
        }
        given_up
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
        if !queue.is_empty() {
            return Ok(());
        }
        while let Some(Reverse(entry)) = self.later.peek() {
            if self.comes_back(entry).is_some() {
                return Err(Some(entry.0));
            }
            self.later.pop();
        }
        Err(None)
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
        let waits_alone = match handled {
            Handled::Done(_) => true,
            Handled::Later(_, why) => is_own(why),
        };
        for id in groups_of(&hint) {
            if let Some(group) = self.groups.get_mut(&id).filter(|_| waits_alone) {
                group.back.remove(&hint.pmd);
                self.eased.push(id);
            }
        }
        match handled {
            Handled::Done(outcome) => Step::Did(hint, outcome),
            Handled::Later(at, why) => {
                // A pause of the whole process or of its cgroup does not count as a failed try of this huge range.
                let counts = is_own(why) || why == Wait::NoCharge;
                let tries = if counts { tries.saturating_add(1) } else { tries };
                self.put(at, hint, tries, why);
                Step::Deferred(hint, why)
            }
        }
    }

    fn put(&mut self, at: Ns, hint: Hint, tries: u8, why: Wait) {
        let key = (hint.process, hint.pmd);
        if self.deferred.len() >= self.most || self.waiting.contains_key(&key) {
            self.lost.push(hint);
            return;
        }
        let number = if is_own(why) {
            let number = self.number();
            self.later.push(Reverse((at, number, None)));
            number
        } else {
            self.join_group(at, &hint, why)
        };
        self.waiting.insert(key, number);
        self.deferred.insert(number, (hint, tries, why));
    }

    /// Adds a hint that waits until `at` to its group, at its old place if it has come back from one. Returns its number.
    fn join_group(&mut self, at: Ns, hint: &Hint, why: Wait) -> u64 {
        let new = self.number();
        let mut before = None;
        for id in groups_of(hint) {
            before = before.or(self.groups.get_mut(&id).and_then(|group| group.back.remove(&hint.pmd)));
        }
        let number = before.unwrap_or(new);
        let id = group_of(hint, why);
        let group = self.groups.entry(id).or_default();
        group.batch = 1;
        group.waiting.insert((Reverse(hint.level), number));
        // The time of a group is that of its first hint. Hints behind it may wait for a day.
        let is_first = group.waiting.first() == Some(&(Reverse(hint.level), number));
        if is_first || group.due.is_none() {
            self.lead(id, at);
        }
        // It may have been the last of the other.
        groups_of(hint).into_iter().for_each(|id| self.forget_if_empty(id));
        number
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Gives the first of a group this time.
    fn lead(&mut self, id: GroupId, at: Ns) {
        let number = self.number();
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.due = (!group.waiting.is_empty()).then_some(number);
        self.later.extend(group.due.map(|number| Reverse((at, number, Some(id)))));
        // Entries that do not count any more would stay until their time, which may be a day away. O(1) amortized.
        if self.later.len() > 2 * (self.deferred.len() + self.groups.len()) + MAX_STALE {
            let all = std::mem::take(&mut self.later).into_vec();
            self.later = all.into_iter().filter(|Reverse(entry)| self.comes_back(entry).is_some()).collect();
        }
    }

    /// Tries again what waits for quotas of a process: they may be others now. O(processes).
    pub fn retry_quotas(&mut self, process: TargetId) {
        let waits = |(of, _, of_quota): &&GroupId| *of == process && *of_quota;
        let ids: Vec<GroupId> = self.groups.keys().filter(waits).copied().collect();
        ids.into_iter().for_each(|id| self.lead(id, 0));
    }

    fn forget_if_empty(&mut self, id: GroupId) {
        if self.groups.get(&id).is_some_and(|group| group.waiting.is_empty() && group.back.is_empty()) {
            self.groups.remove(&id);
        }
    }

    fn bring_back(&mut self, now: Ns, queue: &mut HintQueue) {
        for id in std::mem::take(&mut self.eased) {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let batch = group.batch.max(1);
            group.batch = batch.saturating_mul(2);
            self.leave_group(id, batch, now, queue);
        }
        while let Some(&Reverse(entry)) = self.later.peek().filter(|Reverse((at, ..))| *at <= now) {
            self.later.pop();
            let Some(number) = self.comes_back(&entry) else { continue };
            match entry.2 {
                None => self.queue_again(number, queue),
                Some(id) => self.leave_group(id, 1, now, queue),
            }
        }
    }

    /// Puts so many of a group back into the queue, from the first on.
    fn leave_group(&mut self, id: GroupId, most: usize, now: Ns, queue: &mut HintQueue) {
        for _ in 0..most {
            let Some(group) = self.groups.get_mut(&id) else { return };
            let Some((_, number)) = group.waiting.pop_first() else { break };
            if let Some((hint, ..)) = self.deferred.get(&number) {
                group.back.insert(hint.pmd, number);
            }
            self.queue_again(number, queue);
        }
        self.lead(id, now.saturating_add(PROBE_EVERY));
        self.forget_if_empty(id);
    }

    /// Puts a deferred hint back into the queue.
    fn queue_again(&mut self, number: u64, queue: &mut HintQueue) {
        let Some((hint, tries, why)) = self.deferred.remove(&number) else { return };
        self.waiting.remove(&(hint.process, hint.pmd));
        if tries > 0 && self.tries.len() < self.most {
            self.tries.insert((hint.process, hint.pmd), (hint.action, tries));
        }
        match queue.add(if why == Wait::Unwritable { Hint { level: Level::new(0), ..hint } } else { hint }) {
            Added::Refused => self.lost.push(hint),
            Added::NewInsteadOf(evicted) => self.lost.push(evicted),
            Added::New | Added::Raised | Added::Known => {}
        }
    }

    /// Drops the deferred hints of a process that has ended.
    pub fn forget(&mut self, process: TargetId) {
        self.deferred.retain(|_, (hint, ..)| hint.process != process);
        self.waiting.retain(|(of, _), _| *of != process);
        self.tries.retain(|(of, _), _| *of != process);
        self.groups.retain(|(of, ..), _| *of != process);
    }
}

/// The group in which a hint waits.
fn group_of(hint: &Hint, why: Wait) -> GroupId {
    (hint.process, hint.action, why == Wait::Quota)
}

/// Both groups that may hold it.
fn groups_of(hint: &Hint) -> [GroupId; 2] {
    [false, true].map(|of_quota| (hint.process, hint.action, of_quota))
}

/// Whether the cause is the huge range itself, and not its process, its cgroup or the action.
fn is_own(why: Wait) -> bool {
    matches!(why, Wait::Busy | Wait::Unwritable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Rng;

    const MS: Ns = 1_000_000;
    const S: Ns = 1_000_000_000;
    const ACTION: ActionId = ActionId(1);
    const DONE: Handled = Handled::Done(Outcome::Done { grown: 0 });

    fn hint(pid: u32, pmd: u64, level: u8) -> Hint {
        let process = TargetId { pid, start_ticks: 1 };
        Hint { process, pmd: PmdNo(pmd), action: ACTION, level: Level::new(level), origin: Origin::Heat, since: 0 }
    }

    /// Answers by a function, and notes what it was asked.
    struct Answering<F> {
        answer: F,
        asked: Vec<(u32, u64)>,
    }

    impl<F: FnMut(Ns, &Hint) -> Handled> Consumer for Answering<F> {
        fn ready(&mut self, _: Ns) -> Result<(), (Ns, Wait)> {
            Ok(())
        }

        fn consume(&mut self, now: Ns, hint: &Hint, _: u8) -> Handled {
            self.asked.push((hint.process.pid, hint.pmd.0));
            (self.answer)(now, hint)
        }
    }

    /// A scheduler, and a queue with these hints.
    fn scene(hints: impl IntoIterator<Item = Hint>) -> (RetryScheduler, HintQueue) {
        let mut queue = HintQueue::new(1 << 20);
        hints.into_iter().for_each(|hint| _ = queue.add(hint));
        (RetryScheduler::new(1 << 20), queue)
    }

    /// Serves until only what is later than `until` is left. Returns what was asked, in order.
    fn serve(
        (retry, queue): (&mut RetryScheduler, &mut HintQueue),
        until: Ns,
        answer: impl FnMut(Ns, &Hint) -> Handled,
    ) -> Vec<(u32, u64)> {
        let mut consumer = Answering { answer, asked: Vec::new() };
        let mut now = 0;
        while now <= until {
            match retry.step(now, queue, &mut consumer) {
                Step::Idle(Some(at)) => now = now.max(at),
                Step::Idle(None) => break,
                _ => {}
            }
        }
        consumer.asked
    }

    #[test]
    fn while_a_process_waits_one_of_its_hints_shows_whether_it_still_does() {
        let (mut retry, mut queue) = scene((0..1000).map(|pmd| hint(1, pmd, 9)).chain([hint(2, 7, 3)]));
        let copy_ends = 10 * S;
        let asked = serve((&mut retry, &mut queue), 60 * S, |now, hint| {
            let is_paused = hint.process.pid == 1 && now < copy_ends;
            if is_paused { Handled::Later(now + 500 * MS, Wait::Fork) } else { DONE }
        });
        // Each once when it begins, one every half second, and each once when it has ended.
        assert!((2015..2030).contains(&asked.len()), "{}", asked.len());
        assert_eq!(asked[1000], (2, 7), "the other process does not wait");
        let order: Vec<u64> = asked[asked.len() - 1000..].iter().map(|(_, pmd)| *pmd).collect();
        assert_eq!(order, (0..1000).collect::<Vec<_>>(), "in the order in which they were");
        assert_eq!((retry.deferred(), queue.len(), retry.groups.len()), (0, 0, 0));
    }

    #[test]
    fn a_wait_after_each_success_neither_sweeps_all_hints_nor_changes_their_order() {
        let (mut retry, mut queue) = scene((0..1000).map(|pmd| hint(1, pmd, 9)));
        let (mut free_at, mut served) = (0, Vec::new());
        let asked = serve((&mut retry, &mut queue), 3600 * S, |now, hint| {
            if now < free_at {
                return Handled::Later(free_at, Wait::Stall);
            }
            free_at = now + S;
            served.push(hint.pmd.0);
            DONE
        });
        assert!(asked.len() < 4000, "{} takes for 1000 hints", asked.len());
        assert_eq!(served, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn what_waits_for_something_else_does_not_wait_behind_what_waits_for_a_quota() {
        let (mut retry, mut queue) = scene([hint(1, 1, 20)]);
        serve((&mut retry, &mut queue), 0, |_, _| Handled::Later(86_400 * S, Wait::Quota));
        [2, 3].into_iter().for_each(|pmd| _ = queue.add(hint(1, pmd, 3)));
        serve((&mut retry, &mut queue), 0, |_, _| Handled::Later(S / 2, Wait::Fork));
        let asked = serve((&mut retry, &mut queue), 9 * S, |_, hint| match hint.pmd.0 {
            1 => Handled::Later(86_400 * S, Wait::Quota),
            _ => DONE,
        });
        assert!(asked.contains(&(1, 2)) && asked.contains(&(1, 3)) && asked.len() < 6, "{asked:?}");
        assert_eq!((retry.deferred(), retry.groups.len()), (1, 1));
        // One that has waited for the first waits for the other now, in its old place.
        queue.add(hint(1, 4, 3));
        serve((&mut retry, &mut queue), 0, |_, _| Handled::Later(S, Wait::Fork));
        serve((&mut retry, &mut queue), 2 * S, |_, _| Handled::Later(86_400 * S, Wait::Quota));
        assert_eq!((retry.deferred_for(&[Wait::Quota]), retry.groups.len()), (2, 1));
        queue.add(hint(1, 5, 3));
        serve((&mut retry, &mut queue), 2 * S, |_, _| Handled::Later(86_400 * S, Wait::Quota));
        let order: Vec<u64> = retry.give_up().iter().map(|(hint, _)| hint.pmd.0).collect();
        assert_eq!(order, [1, 4, 5]);
    }

    #[test]
    fn what_comes_back_from_a_quota_again_and_again_leaves_nothing_behind() {
        let (mut retry, mut queue) = scene([hint(1, 1, 20)]);
        let day = 86_400 * S;
        serve((&mut retry, &mut queue), 0, |_, _| Handled::Later(day, Wait::Quota));
        for turn in 0..20_000 {
            queue.add(hint(1, 2 + turn, 3));
            serve(
                (&mut retry, &mut queue),
                0,
                |_, hint| if hint.pmd.0 == 1 { Handled::Later(day, Wait::Quota) } else { DONE },
            );
        }
        assert!(retry.later.len() < 2 * MAX_STALE, "{}", retry.later.len());
        retry.retry_quotas(hint(1, 1, 0).process);
        assert_eq!(serve((&mut retry, &mut queue), 0, |_, _| DONE), [(1, 1)], "at once, since the quotas are others");
    }

    #[test]
    fn what_is_first_does_not_wait_for_as_long_as_what_is_behind_it() {
        let (mut retry, mut queue) = scene([hint(1, 1, 3)]);
        serve((&mut retry, &mut queue), 0, |_, _| Handled::Later(86_400 * S, Wait::Quota));
        queue.add(Hint { origin: Origin::External, ..hint(1, 2, 31) });
        serve((&mut retry, &mut queue), 0, |now, _| Handled::Later(now + S, Wait::Stall));
        let asked = serve((&mut retry, &mut queue), 9 * S, |_, hint| match hint.pmd.0 {
            2 => DONE,
            _ => Handled::Later(86_400 * S, Wait::Quota),
        });
        assert_eq!(asked, [(1, 2), (1, 1)]);
    }

    #[test]
    fn what_becomes_hotter_while_it_waits_comes_back_first() {
        let (mut retry, mut queue) = scene((0..9).map(|pmd| hint(1, pmd, 9)));
        let later = |now: Ns, _: &Hint| Handled::Later(now + S, Wait::Fork);
        serve((&mut retry, &mut queue), 0, later);
        assert!(retry.relevel(&Hint { origin: Origin::External, ..hint(1, 5, 30) }));
        assert!(!retry.relevel(&hint(1, 5, 1)), "what another program asks for is not lowered");
        assert!(retry.relevel(&hint(1, 0, 1)) && !retry.relevel(&hint(1, 99, 1)));
        // What is given now is hotter than all that waits but one.
        queue.add(hint(1, 77, 20));
        serve((&mut retry, &mut queue), 0, later);
        assert_eq!(retry.first_wait(), Some(Wait::Fork));
        let order: Vec<u64> = serve((&mut retry, &mut queue), 9 * S, |_, _| DONE).iter().map(|(_, pmd)| *pmd).collect();
        assert_eq!(order, [5, 77, 1, 2, 3, 4, 6, 7, 8, 0]);
    }

    #[test]
    fn what_is_not_asked_for_any_more_does_not_hold_up_what_waits_behind_it() {
        let (mut retry, mut queue) = scene((0..1000).map(|pmd| hint(1, pmd, 9)).chain([hint(1, 2000, 3)]));
        serve((&mut retry, &mut queue), 0, |now, _| Handled::Later(now + S, Wait::Fork));
        let mut turns = 0;
        loop {
            turns += 1;
            retry.due(S, &mut queue).unwrap();
            let (taken, tries) = retry.take(&mut queue).unwrap();
            if taken.pmd == PmdNo(2000) {
                retry.settle(taken, tries, DONE);
                break;
            }
            retry.dropped(&taken);
        }
        assert_eq!((turns, retry.due(S, &mut queue), retry.groups.len()), (1001, Err(None), 0), "all at once");
    }

    #[test]
    fn what_finds_no_room_is_named() {
        let mut queue = HintQueue::new(2);
        [hint(1, 1, 9), hint(1, 2, 9)].into_iter().for_each(|hint| _ = queue.add(hint));
        let mut retry = RetryScheduler::new(1);
        let later = |now: Ns, _: &Hint| Handled::Later(now + S, Wait::Fork);
        serve((&mut retry, &mut queue), 0, later);
        assert_eq!(retry.take_lost(), [hint(1, 2, 9)], "one waits at most");
        [hint(1, 3, 9), hint(1, 4, 20)].into_iter().for_each(|hint| _ = queue.add(hint));
        assert_eq!(retry.due(S, &mut queue), Ok(()));
        assert_eq!((retry.take_lost(), retry.deferred()), (vec![hint(1, 1, 9)], 0));
    }

    #[test]
    fn what_waits_for_others_does_not_wait_for_a_hint_that_was_dropped() {
        let later = |now: Ns, _: &Hint| Handled::Later(now + S, Wait::Fork);
        let (mut retry, mut queue) = scene((0..4).map(|pmd| hint(1, pmd, 9)));
        serve((&mut retry, &mut queue), 0, later);
        assert_eq!(retry.deferred(), 4);
        // The first of the group, and one behind it.
        [0, 2].into_iter().for_each(|pmd| retry.drop_deferred(hint(1, 0, 9).process, PmdNo(pmd), ACTION));
        assert_eq!(serve((&mut retry, &mut queue), 2 * S, |_, _| DONE), [(1, 1), (1, 3)]);
        // The same if the queue has lost the one that has come back.
        let (mut retry, mut queue) = scene((0..3).map(|pmd| hint(1, pmd, 9)));
        serve((&mut retry, &mut queue), 0, later);
        assert_eq!(retry.due(S, &mut queue), Ok(()));
        assert!(queue.remove(hint(1, 0, 9).process, PmdNo(0)).is_some());
        assert_eq!(serve((&mut retry, &mut queue), 3 * S, |_, _| DONE), [(1, 1), (1, 2)]);
    }

    #[test]
    fn what_is_refused_without_a_reason_comes_back_at_the_lowest_level() {
        let (mut retry, mut queue) = scene([hint(1, 5, 30), hint(1, 6, 1)]);
        let asked = serve((&mut retry, &mut queue), 0, |_, hint| match hint.pmd.0 {
            5 => Handled::Later(S, Wait::Unwritable),
            _ => DONE,
        });
        assert_eq!(asked, [(1, 5), (1, 6)]);
        assert_eq!(retry.due(S, &mut queue), Ok(()));
        assert_eq!(queue.contains(hint(1, 5, 0).process, PmdNo(5)), Some(Level::new(0)));
        assert!(retry.was_tried(hint(1, 5, 0).process, PmdNo(5)));
    }

    /// Whatever is answered and dropped: each hint is served once in the end, or was dropped.
    #[test]
    fn no_hint_is_lost_and_none_is_served_twice() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let hints = 1 + rng.below(60);
            let of = |pmd: u64| hint(if pmd.is_multiple_of(3) { 2 } else { 1 }, pmd, u8::try_from(pmd % 5).unwrap());
            let (mut retry, mut queue) = scene((0..hints).map(of));
            let (mut now, mut served, mut dropped) = (0, BTreeSet::new(), BTreeSet::new());
            for _ in 0..20_000 {
                now += rng.below(300 * MS);
                if retry.due(now, &mut queue).is_err() {
                    if retry.deferred() == 0 {
                        break;
                    }
                    continue;
                }
                let Some((taken, tries)) = retry.take(&mut queue) else { continue };
                let handled = match rng.below(8) {
                    0 => Handled::Later(now + rng.below(2 * S), Wait::Busy),
                    1..4 => Handled::Later(now + rng.below(2 * S), Wait::Fork),
                    4 => Handled::Later(now + rng.below(2 * S), Wait::CgroupLimit),
                    5 => Handled::Later(now + rng.below(9 * S), Wait::Quota),
                    _ => DONE,
                };
                if rng.below(9) == 0 {
                    retry.dropped(&taken);
                    dropped.insert(taken.pmd);
                    continue;
                }
                if handled == DONE {
                    assert!(served.insert(taken.pmd), "seed {seed}: {taken:?} is served twice");
                }
                retry.settle(taken, tries, handled);
                let victim = of(rng.below(hints * 20));
                if retry.is_deferred(victim.process, victim.pmd) {
                    retry.drop_deferred(victim.process, victim.pmd, ACTION);
                    dropped.insert(victim.pmd);
                }
            }
            assert!(served.is_disjoint(&dropped), "seed {seed}");
            assert_eq!((served.len() + dropped.len()) as u64, hints, "seed {seed}");
            let left = (retry.deferred(), queue.len(), retry.groups.len(), retry.take_lost().len());
            assert_eq!(left, (0, 0, 0, 0), "seed {seed}");
            assert!(now < 3600 * S, "seed {seed}: {now}");
        }
    }
}
