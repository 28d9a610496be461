//! Reads of huge ranges of which no page is cleared, to find out what of them was freed or collapsed. They are due every few seconds; where much was
//! freed, `track::freed` has them read before.

use super::Target;
use super::moments::scan_turn;
use crate::pmd::{Flags, Ns, PmdBits};
use crate::pmd_heat::PmdHeat;
use isotherm_units::PmdNo;

/// How often a huge range without cleared pages is read at most. The first such read comes half to one and a half times so long after its check, so
/// one that khugepaged collapses is found and checked again within 5 s.
const UNCLEARED_READ: Ns = 2_500_000_000;

impl Target {
    /// Plans the next read of a huge range of which no page is cleared. None of one on a huge page, nor of one whose first check waits or that
    /// cannot be cleared.
    pub(super) fn plan_presence_read(&mut self, now: Ns, pmd: PmdNo) {
        let at = scan_turn(self.seed, pmd, now, self.scan_period_ns.max(UNCLEARED_READ));
        let Some(entry) = self.pmds.get_mut(pmd) else { return };
        let t = &mut entry.timing;
        let may_change = t.rank().is_none() && !t.is(Flags::UNCLEARABLE | Flags::STUCK);
        let planned = t.next_read();
        t.plan_read(if may_change && !matches!(entry.heat, PmdHeat::Huge(_)) { at } else { 0 });
        if t.next_read() != 0 && t.next_read() != planned {
            self.reads.push(t.next_read(), pmd);
        }
    }

    /// The first huge ranges from `from` on of which no page is cleared: they are read seldom. O(huge ranges).
    pub(crate) fn not_cleared_from(&self, from: PmdNo, most: usize) -> Vec<PmdNo> {
        let all = self.pmds.range(from..PmdNo(u64::MAX));
        all.filter(|(_, entry)| !entry.heat.has_cleared()).map(|(pmd, _)| pmd).take(most).collect()
    }

    /// Takes in a read that was due.
    pub(crate) fn read_due(&mut self, now: Ns, pmd: PmdNo, bits: PmdBits) {
        match self.pmds.get(pmd) {
            Some(entry) if !entry.heat.has_cleared() => self.read_present(now, pmd, bits),
            _ if bits == PmdBits::Gone => self.gone(pmd),
            _ => self.read(now, pmd, bits),
        }
    }

    /// Takes in which pages of a huge range are still there, if none of them is cleared. The bits say nothing then, and who has cleared
    /// them does not matter: when much memory is freed, reclaim most probably has.
    pub(crate) fn read_present(&mut self, now: Ns, pmd: PmdNo, bits: PmdBits) {
        let still_set = self.tally.still_set;
        let bits = match bits {
            PmdBits::Pages { present, .. } => PmdBits::Pages { young: present, present },
            PmdBits::Huge { .. } => PmdBits::Huge { young: true },
            PmdBits::Gone => return self.gone(pmd),
        };
        self.read(now, pmd, bits);
        self.tally.still_set = still_set;
    }
}
