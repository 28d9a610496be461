//! What falls due: queues that skip stale entries instead of removing them.
//!
//! Shared by `target` and `sampled`. The huge range stores its planned read (0: none). A new plan pushes another entry, and
//! the old entry is dropped when its time comes. At the start a queue has an entry for each huge range and later a few, so it
//! gives memory back, and grows by a quarter where a heap doubles.

use crate::pmd::Ns;
use isotherm_units::PmdNo;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

    pub fn peek(&self) -> Option<&T> {
        self.0.peek().map(|Reverse(entry)| entry)
    }

    pub fn pop(&mut self) -> Option<T> {
        let entry = self.0.pop().map(|Reverse(entry)| entry);
        if self.0.len().max(MIN_ROOM) * 4 < self.0.capacity() {
            self.0.shrink_to(self.0.len() * 2);
        }
        entry
    }
}

/// When to read which huge range, earliest first.
pub(crate) type Reads = Queue<(Ns, PmdNo)>;

/// Takes the huge ranges whose read is due, in address order. `claim` says whether an entry is still the huge range's plan.
pub(crate) fn take_due(reads: &mut Reads, now: Ns, mut claim: impl FnMut(PmdNo, Ns) -> bool) -> Vec<PmdNo> {
    let mut due = Vec::new();
    while let Some(&(at, pmd)) = reads.peek() {
        if at > now + SLACK {
            break;
        }
        reads.pop();
        if claim(pmd, at) {
            due.push(pmd);
        }
    }
    due.sort_unstable();
    due
}

/// Whether a read at `at` is what is planned. If so, clears the plan.
pub(crate) fn claim(planned: &mut Ns, at: Ns) -> bool {
    *planned == at && std::mem::take(planned) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn only_what_is_still_planned_is_due_and_only_once() {
        let mut reads = Reads::new();
        [(5, 9), (5, 9), (5, 1), (7, 2), (SLACK * 9, 3)].into_iter().for_each(|(at, b)| reads.push((at, PmdNo(b))));
        let mut plans: BTreeMap<PmdNo, Ns> =
            [(9, 5), (1, 5), (2, 8), (3, SLACK * 9)].map(|(b, at)| (PmdNo(b), at)).into();
        let due = take_due(&mut reads, 7, |pmd, at| plans.get_mut(&pmd).is_some_and(|plan| claim(plan, at)));
        assert_eq!(due, [PmdNo(1), PmdNo(9)]);
        assert_eq!((plans[&PmdNo(9)], plans[&PmdNo(2)], reads.0.len()), (0, 8, 1));
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
                assert!(room <= (4 * len).max(4 * MIN_ROOM), "{room} for {len}");
            }
            let len: usize = naive.values().sum();
            assert_eq!(queue.0.len(), len);
        }
        (0..10_000).for_each(|n| queue.push((n, 0)));
        assert!(queue.0.capacity() < 12_600, "{}", queue.0.capacity());
    }
}
