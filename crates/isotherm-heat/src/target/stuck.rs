//! Pages that a clear of their huge range did not reach: several processes map them, or they are locked. They wait for a clear of the whole
//! process, which `track::process_clears` plans.
//!
//! A clear may reach some pages of a huge range, at each of its checks, and never the others: where code that only this process runs lies
//! beside code that several run. So pages are counted, and not only huge ranges of which nothing was reached. These are marked; of the
//! others, which are few, the number of pages is kept.

use super::Target;
use crate::Mask;
use crate::pmd::Flags;
use isotherm_units::PmdNo;

impl Target {
    /// Notes that the last clear of `pmd` did not reach the pages in `stuck`, and has newly cleared `learned` pages.
    pub(super) fn note_stuck(&mut self, pmd: PmdNo, learned: u64, stuck: Mask) {
        let Some(entry) = self.pmds.get_mut(pmd) else { return };
        let is_stuck = !stuck.is_empty();
        entry.timing.flags.set(Flags::STUCK, is_stuck && learned == 0);
        if is_stuck && learned > 0 && entry.heat.has_uncleared() {
            self.partly_stuck.insert(pmd, entry.heat.uncleared());
        } else {
            self.partly_stuck.remove(pmd);
        }
    }

    /// Huge ranges of which the last clear did not reach all pages, in address order, and how many pages that leaves. O(huge ranges).
    pub fn stuck(&self) -> (Vec<PmdNo>, u64) {
        let of = |pmd: PmdNo| self.partly_stuck.get(pmd).copied();
        let left = self.pmds.iter().filter_map(|(pmd, entry)| match entry.timing.is(Flags::STUCK) {
            true => Some((pmd, entry.heat.uncleared())),
            false => of(pmd).map(|pages| (pmd, pages)),
        });
        let (pmds, pages): (Vec<PmdNo>, Vec<u64>) = left.unzip();
        (pmds, pages.iter().sum())
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

    /// 40 pages are the process's own, and 4 of these are accessed all the time.
    #[test]
    fn pages_that_several_processes_map_count_beside_those_that_are_cleared_at_each_check() {
        let own: Mask = (0..40).collect();
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        accessed(&mut target, 0, Mask::ALL);
        for check in 1..5 {
            target.cleared(check * 8 * S, PmdNo(1), !own);
            assert_eq!(target.stuck(), (vec![PmdNo(1)], 512 - 40), "check {check}");
            accessed(&mut target, check * 8 * S + 10_000_000, !own | (0..4).collect());
        }
        target.process_cleared(40 * S, PmdNo(1), Mask::ALL);
        assert_eq!(target.stuck(), (vec![], 0), "all of it is measured");
        // 30 of the shared ones are accessed again.
        accessed(&mut target, 41 * S, (20..70).collect());
        target.cleared(42 * S, PmdNo(1), !own);
        assert_eq!(target.stuck(), (vec![PmdNo(1)], 30));
        target.gone(PmdNo(1));
        assert_eq!((target.stuck(), target.partly_stuck.len()), ((vec![], 0), 0));
    }
}
