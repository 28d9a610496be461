//! What falls due: queues that skip stale entries instead of removing them.
//!
//! [`Reads`] is shared by `target` and `sampled`, the queues of clears are of `target`. The huge range stores its planned read (0: none).
//! A new plan pushes another entry, and the old entry is dropped when its time comes. At the start a queue has an entry for each huge range
//! and later a few, so it gives memory back, and grows by a quarter where a heap doubles.
//!
//! Reads are kept as runs of neighbours that are due at one time. Most of a large memory is idle, is read in address order by the
//! background scan, and is due again one period later: a few runs, where an entry for each huge range takes 20 bytes.

use crate::pmd::Ns;
use isotherm_units::PmdNo;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Reads that fall due within this much of each other are done in one pass.
const SLACK: Ns = 4_000_000;

/// Entries that a queue keeps room for.
const MIN_ROOM: usize = 64;

/// Entries in order, the least first.
#[derive(Debug)]
pub(crate) struct Queue<T>(BinaryHeap<Reverse<T>>);

impl<T: Ord> Queue<T> {
    /// An empty one.
    pub fn new() -> Queue<T> {
        Queue(BinaryHeap::new())
    }

    pub fn push(&mut self, entry: T) {
        let room = self.0.capacity();
        if self.0.len() == room {
            self.0.reserve_exact((room / 4).max(MIN_ROOM));
        }
        self.0.push(Reverse(entry));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Drops the others, and their room.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.0.retain(|Reverse(entry)| keep(entry));
        self.0.shrink_to_fit();
    }

    pub fn peek(&self) -> Option<&T> {
        self.0.peek().map(|Reverse(entry)| entry)
    }

    /// The first entry, if it is as asked for.
    pub fn pop_if(&mut self, wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        if self.peek().is_some_and(wanted) { self.pop() } else { None }
    }

    pub fn pop(&mut self) -> Option<T> {
        let entry = self.0.pop().map(|Reverse(entry)| entry);
        let (len, room) = (self.0.len(), self.0.capacity());
        // Each entry is moved a few times at most, however long the queue was.
        if len.max(MIN_ROOM) * 2 < room {
            self.0.shrink_to(len + len / 4);
        }
        entry
    }
}

/// When to read which huge range, earliest first.
#[derive(Debug)]
pub(crate) struct Reads {
    /// All runs but the newest. They may overlap.
    runs: Queue<Run>,
    /// The one that grows: plans are made in address order.
    newest: Option<Run>,
}

/// Neighbours that are due at the same time, in 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    at: Ns,
    /// The number of the first one, which has 36 bits at most, and below it how many they are.
    pmds: u64,
}

/// Bits of the length of a run: 2 TiB.
const RUN_BITS: u32 = 20;

impl Run {
    fn of(at: Ns, pmd: PmdNo) -> Run {
        debug_assert!(pmd.0 >> (64 - RUN_BITS) == 0, "no address of a program is so high");
        Run { at, pmds: pmd.0 << RUN_BITS | 1 }
    }

    fn pmds(self) -> Range<u64> {
        let first = self.pmds >> RUN_BITS;
        first..first + (self.pmds & ((1 << RUN_BITS) - 1))
    }

    /// Whether it continues with `pmd`. It is lengthened if so.
    fn takes(&mut self, at: Ns, pmd: PmdNo) -> bool {
        let Range { start, end } = self.pmds();
        let takes = self.at == at && end == pmd.0 && end - start < (1 << RUN_BITS) - 1;
        self.pmds += u64::from(takes);
        takes
    }
}

impl Reads {
    /// Nothing is planned.
    pub fn new() -> Reads {
        Reads { runs: Queue::new(), newest: None }
    }

    /// Plans a read of `pmd` at `at`. O(log runs).
    pub fn push(&mut self, at: Ns, pmd: PmdNo) {
        if self.newest.as_mut().is_some_and(|run| run.takes(at, pmd)) {
            return;
        }
        let before = self.newest.replace(Run::of(at, pmd));
        before.into_iter().for_each(|run| self.runs.push(run));
    }

    /// When the next read is due.
    pub fn next_at(&self) -> Option<Ns> {
        self.runs.peek().into_iter().chain(&self.newest).map(|run| run.at).min()
    }

    /// Takes the huge ranges whose read is due, in address order. `claim` says whether an entry is still the huge range's plan.
    pub fn take_due(&mut self, now: Ns, mut claim: impl FnMut(PmdNo, Ns) -> bool) -> Vec<PmdNo> {
        let mut due = Vec::new();
        let is_due = |run: &Run| run.at <= now + SLACK;
        let mut newest = self.newest.take_if(|run| is_due(run));
        while let Some(run) = newest.take().or_else(|| self.runs.pop_if(is_due)) {
            due.extend(run.pmds().map(PmdNo).filter(|pmd| claim(*pmd, run.at)));
        }
        due.sort_unstable();
        due
    }
}

/// Whether a read at `at` is what is planned. If so, clears the plan.
pub(crate) fn claim(planned: &mut Ns, at: Ns) -> bool {
    *planned == at && std::mem::take(planned) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    impl Reads {
        fn len(&self) -> usize {
            self.runs.0.len() + usize::from(self.newest.is_some())
        }
    }

    #[test]
    fn only_what_is_still_planned_is_due_and_only_once() {
        let mut reads = Reads::new();
        [(5, 9), (5, 9), (5, 1), (7, 2), (SLACK * 9, 3)].into_iter().for_each(|(at, b)| reads.push(at, PmdNo(b)));
        let mut plans: BTreeMap<PmdNo, Ns> =
            [(9, 5), (1, 5), (2, 8), (3, SLACK * 9)].map(|(b, at)| (PmdNo(b), at)).into();
        let due = reads.take_due(7, |pmd, at| plans.get_mut(&pmd).is_some_and(|plan| claim(plan, at)));
        assert_eq!(due, [PmdNo(1), PmdNo(9)]);
        assert_eq!((plans[&PmdNo(9)], plans[&PmdNo(2)], reads.len()), (0, 8, 1));
    }

    /// Runs that grow, overlap, have gaps and are planned anew, against a plan by huge range.
    #[test]
    fn reads_are_those_of_a_plan_for_each_huge_range() {
        for seed in 0..40 {
            let mut rng = isotherm_rng::Rng::new(seed);
            let (mut reads, mut plans, mut naive) = (Reads::new(), BTreeMap::new(), BTreeMap::new());
            for step in 0..400 {
                let (at, first) = (1 + rng.below(40) * SLACK, rng.below(300));
                for pmd in first..first + rng.below(50) {
                    if rng.below(8) > 0 {
                        reads.push(at, PmdNo(pmd));
                        plans.insert(PmdNo(pmd), at);
                        naive.insert(PmdNo(pmd), at);
                    }
                }
                assert_eq!(reads.next_at().is_none(), reads.len() == 0);
                if step % 5 == 0 {
                    let now = rng.below(40) * SLACK;
                    let due = reads.take_due(now, |pmd, at| plans.get_mut(&pmd).is_some_and(|plan| claim(plan, at)));
                    let expected: Vec<PmdNo> =
                        naive.extract_if(.., |_, at| *at <= now + SLACK).map(|(pmd, _)| pmd).collect();
                    assert_eq!(due, expected, "seed {seed}, step {step}");
                    assert!(reads.next_at().is_none_or(|at| at > now + SLACK));
                }
            }
        }
    }

    #[test]
    fn neighbours_that_are_due_together_are_one_run() {
        let mut reads = Reads::new();
        (0..100_000).for_each(|pmd| reads.push(7, PmdNo(pmd)));
        assert_eq!(reads.len(), 1);
        (50..60).for_each(|pmd| reads.push(7, PmdNo(pmd)));
        assert_eq!(reads.len(), 2);
        assert_eq!(reads.take_due(7, |_, _| true).len(), 100_010, "it is for the caller to see what is planned");
        assert_eq!(reads.len(), 0);
        // One huge range more than a run has room for, at the end of the largest address space.
        let first = (1 << 36) - (1 << RUN_BITS);
        (first..1 << 36).for_each(|pmd| reads.push(7, PmdNo(pmd)));
        assert_eq!(reads.len(), 2);
        let due = reads.take_due(7, |_, _| true);
        assert!(due.into_iter().map(|pmd| pmd.0).eq(first..1 << 36));
    }

    #[test]
    fn a_queue_is_in_order_and_holds_little_more_than_its_entries() {
        let seed = 5;
        let mut rng = isotherm_rng::Rng::new(seed);
        let (mut queue, mut naive) = (Queue::new(), BTreeMap::new());
        for (filling, steps) in [(4, 4000), (1, 6000), (3, 2000), (0, 9000)] {
            for step in 0..steps {
                if rng.below(4) < filling {
                    let entry = (rng.below(1000), step);
                    queue.push(entry);
                    *naive.entry(entry).or_insert(0) += 1;
                } else {
                    let least = naive.first_entry().map(|mut entry| {
                        *entry.get_mut() -= 1;
                        if *entry.get() == 0 { entry.remove_entry().0 } else { *entry.key() }
                    });
                    assert_eq!((queue.peek().copied(), queue.pop()), (least, least), "seed {seed}");
                }
                let (room, len) = (queue.0.capacity(), queue.0.len());
                assert!(room <= (2 * len).max(2 * MIN_ROOM), "{room} for {len}");
            }
            let len: usize = naive.values().sum();
            assert_eq!(queue.0.len(), len);
        }
        (0..10_000).for_each(|n| queue.push((n, 0)));
        assert!(queue.0.capacity() < 12_600, "{}", queue.0.capacity());
    }
}
