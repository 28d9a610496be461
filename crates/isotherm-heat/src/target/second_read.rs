//! The read of a first check between the one that shows what is accessed all the time and the one that shows what is idle.
//!
//! It tells intervals of tens of milliseconds from those of hundreds. Where the first read has found nothing, hardly any page has such an interval, and one
//! that has is still found by the last read, with an interval that is off by up to a factor of eight until the next check. Where reads like it have found
//! nothing in other huge ranges, there is memory that is accessed all the time and memory that is not. So it is left out there: a read takes a tenth of
//! what a first check costs.

use isotherm_units::PmdNo;

/// So many of them are done before any is left out, and then one in so many huge ranges, or it would not be seen that they find something again.
const KNOWN_FROM: u32 = 64;
const ONE_IN: u64 = 8;
/// They are worth it where they find a page in this many huge ranges.
const WORTH_PMDS: u32 = 2;
/// The older half counts half after so many.
const REMEMBERED: u32 = 1024;

/// What these reads have found.
#[derive(Debug, Default)]
pub(super) struct SecondReads {
    pmds: u32,
    pages: u32,
}

impl SecondReads {
    /// One of them has found accesses to so many pages.
    pub fn note(&mut self, pages: u32) {
        self.pmds += 1;
        self.pages += pages;
        if self.pmds > REMEMBERED {
            self.pmds /= 2;
            self.pages /= 2;
        }
    }

    /// Whether `pmd` is not read, of which the read before has found accesses to so many pages.
    pub fn is_left_out(&self, pmd: PmdNo, found: u32) -> bool {
        let find_nothing = self.pmds >= KNOWN_FROM && self.pages < self.pmds / WORTH_PMDS;
        (found == 0 || find_nothing) && !pmd.0.is_multiple_of(ONE_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_left_out_where_nothing_is_accessed_and_where_it_finds_nothing() {
        let mut reads = SecondReads::default();
        let left_out = |reads: &SecondReads, found| (0..64).filter(|n| reads.is_left_out(PmdNo(*n), found)).count();
        assert_eq!((left_out(&reads, 0), left_out(&reads, 1)), (56, 0), "nothing is known yet");
        (0..64).for_each(|_| reads.note(0));
        assert_eq!(left_out(&reads, 100), 56);
        (0..64).for_each(|_| reads.note(1));
        assert_eq!(left_out(&reads, 100), 0, "a page in two of them");
        (0..5000).for_each(|_| reads.note(0));
        assert_eq!(left_out(&reads, 100), 56, "what they found long ago counts less");
    }
}
