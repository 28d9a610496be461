//! Pages that a clear of their huge range did not reach: several processes map them, or they are locked. They wait for a clear of the whole
//! process, which `track::process_clears` plans.
//!
//! A clear may reach some pages of a huge range, at each of its checks, and never the others: where code that only this process runs lies
//! beside code that several run. So these pages count as well as those of huge ranges of which nothing was reached. The latter are marked; of
//! the others the pages are kept, where they are so many of the huge range that they are not estimated from the rest.

use super::Target;
use crate::Mask;
use crate::pmd::{Flags, is_much};
use isotherm_units::PmdNo;

impl Target {
    /// Notes that the last clear of `pmd` did not reach the pages in `stuck`, and has newly cleared `learned` pages.
    pub(super) fn note_stuck(&mut self, pmd: PmdNo, learned: u64, stuck: Mask) {
        let Some(entry) = self.pmds.get_mut(pmd) else { return };
        // A clear reaches all others, so these are what it has left.
        let left = entry.heat.uncleared();
        // A few are estimated from the rest, which may turn hot and is checked as any other memory.
        let is_stuck = !stuck.is_empty() && is_much(u64::from(left.count()), entry.heat.resident());
        entry.timing.flags.set(Flags::STUCK, is_stuck && learned == 0);
        if is_stuck && learned > 0 {
            self.partly_stuck.insert(pmd, left);
        } else {
            self.partly_stuck.remove(pmd);
        }
    }

    /// Huge ranges with pages that the last clear did not reach, in address order, and how many pages these are: without those that went or
    /// were cleared with the process since. O(huge ranges).
    pub fn stuck(&self) -> (Vec<PmdNo>, u64) {
        let uncleared = |pmd: PmdNo| self.pmds.get(pmd).map_or(Mask::NONE, |entry| entry.heat.uncleared());
        let wholly = self.pmds.iter().filter(|(_, entry)| entry.timing.is(Flags::STUCK));
        let wholly = wholly.map(|(pmd, entry)| (pmd, entry.heat.uncleared()));
        // Others that were accessed since are cleared when their time comes.
        let partly = self.partly_stuck.iter().map(|(pmd, left)| (pmd, uncleared(pmd) & *left));
        let pages = wholly.chain(partly).map(|(pmd, pages)| (pmd, u64::from(pages.count())));
        let mut left: Vec<(PmdNo, u64)> = pages.filter(|(_, pages)| *pages > 0).collect();
        left.sort_unstable();
        let pages = left.iter().map(|(_, pages)| pages).sum();
        (left.into_iter().map(|(pmd, _)| pmd).collect(), pages)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Watch;
    use super::*;
    use crate::PmdBits;

    const S: u64 = 1_000_000_000;

    fn accessed(target: &mut Target, now: u64, young: Mask) {
        target.read(now, PmdNo(1), PmdBits::Pages { young, present: Mask::ALL });
    }

    fn target() -> Target {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        accessed(&mut target, 0, Mask::ALL);
        target
    }

    /// Cleared, and read when it is due for a minute, in which nothing is accessed. Returns the time.
    fn idle_for_a_minute(target: &mut Target) -> u64 {
        target.cleared(S, PmdNo(1), Mask::NONE);
        let mut now = S;
        while now < 60 * S {
            now = target.next_read().unwrap();
            target.due_reads(now);
            accessed(target, now, Mask::NONE);
        }
        now
    }

    /// 40 pages are the process's own, and 4 of these are accessed all the time.
    #[test]
    fn pages_that_several_processes_map_count_beside_those_that_are_cleared_at_each_check() {
        let own: Mask = (0..40).collect();
        let mut target = target();
        for check in 1..5 {
            target.cleared(check * 8 * S, PmdNo(1), !own);
            assert_eq!(target.stuck(), (vec![PmdNo(1)], 512 - 40), "check {check}");
            accessed(&mut target, check * 8 * S + 10_000_000, !own | (0..4).collect());
        }
        target.process_cleared(40 * S, PmdNo(1), Mask::ALL);
        assert_eq!(target.stuck(), (vec![], 0), "all of it is measured");
        // 150 of the shared ones are accessed again, which is much of the range. Then 100, which is not.
        for (at, again, left) in [(41, 20..190, (vec![PmdNo(1)], 150)), (51, 20..140, (vec![], 0))] {
            accessed(&mut target, at * S, again.collect());
            target.cleared((at + 1) * S, PmdNo(1), !own);
            assert_eq!(target.stuck(), left, "at {at} s");
            target.process_cleared((at + 2) * S, PmdNo(1), Mask::ALL);
        }
    }

    #[test]
    fn what_was_freed_or_is_cleared_by_nothing_does_not_wait() {
        let own: Mask = (0..40).collect();
        let stuck = || {
            let mut target = target();
            target.cleared(S, PmdNo(1), !own);
            assert_eq!(target.stuck(), (vec![PmdNo(1)], 512 - 40));
            target
        };
        let mut target = stuck();
        target.read(2 * S, PmdNo(1), PmdBits::Pages { young: Mask::NONE, present: (0..60).collect() });
        assert_eq!(target.stuck(), (vec![PmdNo(1)], 20), "the others were unmapped");
        target.gone(PmdNo(1));
        assert_eq!((target.stuck(), target.partly_stuck.len()), ((vec![], 0), 0));
        target = stuck();
        target.refused(2 * S, PmdNo(1));
        assert_eq!(target.stuck(), (vec![], 0));
        target = stuck();
        target.cleared(70 * S, PmdNo(1), Mask::ALL);
        assert_eq!(target.stuck(), (vec![PmdNo(1)], 512 - 40), "nothing was left that the clear could reach");
        target.refused(140 * S, PmdNo(1));
        assert_eq!(target.stuck(), (vec![], 0), "hugetlb memory lies there now");
    }

    /// Of a clear of all of it only the shared pages were measured anew, and stay so.
    #[test]
    fn own_pages_that_are_hot_again_after_a_clear_of_the_process_are_not_stuck() {
        let own: Mask = (0..40).collect();
        let mut target = target();
        target.cleared(S, PmdNo(1), !own);
        target.process_cleared(2 * S, PmdNo(1), Mask::ALL);
        accessed(&mut target, 2 * S + 10_000_000, own);
        assert_eq!(target.stuck(), (vec![], 0));
    }

    #[test]
    fn a_few_stuck_pages_do_not_keep_the_rest_from_being_checked_at_once() {
        let shared: Mask = (0..12).collect();
        let mut target = target();
        target.cleared(S, PmdNo(1), shared);
        accessed(&mut target, 3 * S, shared);
        target.cleared(3 * S, PmdNo(1), shared);
        accessed(&mut target, 20 * S, Mask::ALL);
        assert_eq!(
            target.due_clears(20 * S, crate::track::ClearQuota { urgent: 64, first: 0, routine: 0 }),
            [PmdNo(1)]
        );
    }

    /// A clear of files does not reach the process's own pages.
    #[test]
    fn a_clear_of_files_leaves_the_check_of_cleared_file_pages_alone() {
        let files: Mask = (0..40).collect();
        let mut target = target();
        let now = idle_for_a_minute(&mut target);
        accessed(&mut target, now + 1, !files);
        let next = |target: &Target| target.pmds.get(PmdNo(1)).map(|entry| entry.timing.next_read());
        let before = next(&target);
        target.process_cleared(now + 2, PmdNo(1), files);
        assert_eq!(next(&target), before);
    }

    /// It was read just before. What it knows of its pages would be that of a clear a moment ago.
    #[test]
    fn a_clear_of_the_process_does_not_begin_a_check_of_what_it_finds_cleared() {
        let mut target = target();
        let now = idle_for_a_minute(&mut target);
        let next = target.next_read();
        target.process_cleared(now + 1, PmdNo(1), Mask::ALL);
        assert_eq!(target.next_read(), next, "read as before");
        accessed(&mut target, now + 2, (0..1).collect());
        target.process_cleared(now + 3, PmdNo(1), Mask::ALL);
        assert!(target.next_read() < next, "a check began: {:?}", target.next_read());
    }
}
