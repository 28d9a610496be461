//! Reads of huge ranges of which no page is cleared, to find out what of them was freed or collapsed. They are due every few seconds; where much was
//! freed, `track::freed` has them read before.

use super::Target;
use crate::pmd::{Ns, PmdBits};
use isotherm_units::PmdNo;

impl Target {
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
