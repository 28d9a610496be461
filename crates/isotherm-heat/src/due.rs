//! Reads that fall due: a queue that skips stale entries instead of removing them.
//!
//! Shared by `target` and `sampled`. The huge range stores its planned read (0: none). A new plan pushes another entry, and
//! the old entry is dropped when its time comes.

use crate::pmd::Ns;
use isotherm_units::PmdNo;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Reads that fall due within this much of each other are done in one pass.
const SLACK: Ns = 4_000_000;

/// When to read which huge range, earliest first.
pub(crate) type Reads = BinaryHeap<Reverse<(Ns, PmdNo)>>;

/// Takes the huge ranges whose read is due, in address order. `claim` says whether an entry is still the huge range's plan.
pub(crate) fn take_due(reads: &mut Reads, now: Ns, mut claim: impl FnMut(PmdNo, Ns) -> bool) -> Vec<PmdNo> {
    let mut due = Vec::new();
    while let Some(&Reverse((at, pmd))) = reads.peek() {
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
        let mut reads =
            Reads::from([(5, 9), (5, 9), (5, 1), (7, 2), (SLACK * 9, 3)].map(|(at, b)| Reverse((at, PmdNo(b)))));
        let mut plans: BTreeMap<PmdNo, Ns> =
            [(9, 5), (1, 5), (2, 8), (3, SLACK * 9)].map(|(b, at)| (PmdNo(b), at)).into();
        let due = take_due(&mut reads, 7, |pmd, at| plans.get_mut(&pmd).is_some_and(|plan| claim(plan, at)));
        assert_eq!(due, [PmdNo(1), PmdNo(9)]);
        assert_eq!((plans[&PmdNo(9)], plans[&PmdNo(2)], reads.len()), (0, 8, 1));
    }
}
