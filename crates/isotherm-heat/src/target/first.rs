//! First checks: what the survey moves forward, and their queue: by rank, then by listing, then in random order, mixed ranges and the
//! rest by stretches.
//!
//! Within a rank the ranges of one listing are all before those of the next. By the random order alone, the same few ranges would be last
//! for as long as new ones come faster than they are checked. Entries of ranges that have gone since, or that were checked in another way,
//! are skipped when their turn comes; those that nothing skips are dropped before they are most of the queue.

use super::{Flags, Target};
use crate::due::Queue;
use crate::survey::{Rank, STRETCH, Sooner, cut};
use crate::{Ns, Rng};
use isotherm_units::PmdNo;

/// Stale entries that are kept in any case.
const FEW: usize = 4096;

/// Waits for its first check. In 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    rank: Rank,
    listing: u32,
    order: u16,
    pmd: PmdNo,
}

#[derive(Debug)]
pub(super) struct FirstChecks {
    queue: Queue<Waiting>,
    listing: u32,
    seed: u64,
}

impl FirstChecks {
    pub fn new(seed: u64) -> FirstChecks {
        FirstChecks { queue: Queue::new(), listing: 0, seed }
    }

    /// What is pushed from now on is behind what was, in its rank.
    pub fn begin_listing(&mut self) {
        self.listing = self.listing.saturating_add(1);
    }

    pub fn push(&mut self, rank: Rank, pmd: PmdNo) {
        // All of these are checked, one after the other, and neighbours are cleared in one piece. The others each show what is around them.
        let by_stretches = matches!(rank, Rank::Mixed | Rank::Rest);
        let drawn_for = if by_stretches { pmd.0 / STRETCH as u64 } else { pmd.0 };
        #[expect(clippy::cast_possible_truncation, reason = "below 2^16")]
        let order = Rng::new(self.seed ^ drawn_for).below(1 << 16) as u16;
        self.queue.push(Waiting { rank, listing: self.listing, order, pmd });
    }

    pub fn peek(&self) -> Option<(Rank, PmdNo)> {
        self.queue.peek().map(|first| (first.rank, first.pmd))
    }

    pub fn pop(&mut self) {
        self.queue.pop();
    }

    /// Keeps those that wait, of which there are `waiting`, once the others are as many. O(1) for each that was pushed.
    pub fn drop_stale(&mut self, waiting: usize, mut waits: impl FnMut(Rank, PmdNo) -> bool) {
        if self.queue.len() > 2 * waiting + FEW {
            self.queue.retain(|entry| waits(entry.rank, entry.pmd));
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.queue.len()
    }
}

impl Target {
    /// Queues a first check, or moves it forward.
    pub(super) fn check_first(&mut self, pmd: PmdNo, rank: Rank) {
        let Some(entry) = self.pmds.get_mut(pmd) else { return };
        if !entry.timing.is_unchecked() || entry.timing.rank().is_some_and(|waits| waits <= rank) {
            return;
        }
        entry.timing.set_rank(Some(rank));
        self.first.push(rank, pmd);
    }

    /// Queues a first check between mixed ranges. If it is of the second part of the survey, it is no longer.
    fn check_with_the_rest(&mut self, pmd: PmdNo) {
        let Some(entry) = self.pmds.get_mut(pmd) else { return };
        if entry.timing.rank() == Some(Rank::Finer) {
            entry.timing.set_rank(None);
            entry.timing.flags.remove(Flags::SURVEYED);
        }
        self.check_first(pmd, Rank::Mixed);
    }

    /// Takes in what the first check of `pmd` has shown once it has lasted long enough, and moves forward what follows from
    /// it.
    pub(super) fn note_first_check(&mut self, now: Ns, pmd: PmdNo) {
        let Some(entry) = self.pmds.get(pmd) else { return };
        if self.survey.knows(pmd) {
            return;
        }
        let Some(sketch) = entry.heat.sketch(now) else { return };
        let sooner = self.survey.note(pmd, sketch);
        if self.unchecked == 0 {
            return;
        }
        for Sooner { between: (after, before), rank } in sooner.into_iter().flatten() {
            let stretch = self.pmds.range(after.next()..before).filter(|(_, e)| !e.timing.is(Flags::CHECKED));
            let stretch: Vec<PmdNo> = stretch.map(|(pmd, _)| pmd).collect();
            match rank {
                // Nothing is assumed between mixed ranges, so all have to be checked, those of the survey's second part among them, in one piece: to clear
                // one by itself takes a third longer where every CPU is busy, which a flush of the TLB interrupts.
                Rank::Mixed => stretch.into_iter().for_each(|pmd| self.check_with_the_rest(pmd)),
                _ => cut(&stretch).for_each(|pmd| self.check_first(pmd, rank)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Watch;
    use super::*;
    use crate::track::ClearQuota;
    use crate::{Mask, PmdBits};

    /// Which of 64 stretches the checks of one rank go to, one after the other, each time it is another one.
    fn stretches_in_order(rank: Rank) -> Vec<u64> {
        let mut first = FirstChecks::new(11);
        // Backwards: the order is not that in which they came.
        (0..64 * STRETCH as u64).rev().for_each(|pmd| first.push(rank, PmdNo(pmd)));
        let popped = std::iter::from_fn(|| {
            let (_, pmd) = first.peek()?;
            first.pop();
            Some(pmd.0 / STRETCH as u64)
        });
        let mut stretches: Vec<u64> = popped.collect();
        stretches.dedup();
        stretches
    }

    #[test]
    fn mixed_ranges_and_the_rest_come_by_stretches_of_neighbours_in_random_order() {
        for rank in [Rank::Mixed, Rank::Rest] {
            let mut stretches = stretches_in_order(rank);
            assert_eq!(stretches.len(), 64, "{rank:?}: one after the other");
            assert!(!stretches.is_sorted(), "{rank:?}: an order by address looks at one end for minutes");
            stretches.sort_unstable();
            assert!(stretches.into_iter().eq(0..64), "{rank:?}");
        }
        for rank in [Rank::Survey, Rank::Edge] {
            assert!(
                stretches_in_order(rank).len() > 400,
                "{rank:?}: any part of them shows something of all the memory"
            );
        }
    }

    /// A fifth of each huge range is accessed all the time, in 10 GiB. How many neighbours are cleared in one piece, on average, after the survey?
    #[test]
    fn what_is_mixed_all_over_is_cleared_in_pieces_of_several_neighbours() {
        const MS: Ns = 1_000_000;
        let hot: Mask = (0..100).collect();
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: 60_000 * MS }, 3);
        for pmd in target.refit(&(0..5120).map(PmdNo).collect::<Vec<_>>()) {
            target.read(0, pmd, PmdBits::Pages { young: Mask::ALL, present: Mask::ALL });
        }
        let mut pieces = Vec::new();
        // The credit of a small budget pays for the first seconds.
        for now in (1..200).map(|turn| turn * 500 * MS) {
            for pmd in target.due_reads(now) {
                target.read_due(now, pmd, PmdBits::Pages { young: hot, present: Mask::ALL });
            }
            let first = if target.unchecked() > 3600 { 400 } else { 32 };
            let mut due = target.due_clears(now, ClearQuota { urgent: 0, first, routine: 0 });
            due.sort_unstable();
            due.iter().for_each(|pmd| target.cleared(now, *pmd, Mask::NONE));
            if target.unchecked() < 3600 {
                pieces.extend(due.chunk_by(|a, b| a.next() == *b && b.0 % STRETCH as u64 != 0).map(<[_]>::len));
            }
        }
        assert_eq!(target.unchecked(), 0);
        let mean = pieces.iter().sum::<usize>() as f64 / pieces.len() as f64;
        assert!(mean > 5.5, "{mean:.2} of at most {STRETCH}");
    }
}
