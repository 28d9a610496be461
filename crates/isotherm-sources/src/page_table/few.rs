//! Which pages to advise where few were accessed.
//!
//! Advice for a huge range costs 50 us or more, since the kernel looks at each of its pages. Bits that are not set need no clear. So where few
//! pages were accessed, only those are advised.
//!
//! Not where folios may be larger than a page: advice for a part of one splits it. And not where there is swap: advice moves a page on the
//! kernel's lists, of private memory from the youngest to the second youngest generation of MGLRU, or from the active list to the inactive one. Pages
//! that were accessed would then leave sooner than their neighbours that were not. Of a store in a cgroup with a limit, refaults
//! rose by two thirds in one run (`bench-cold`, evict), and by 4 to 26% in three with advice for whole ranges.

use isotherm_heat::{Ns, PmdBits};
use isotherm_sys::folio_sizes;
use isotherm_sys::free::Swap;
use isotherm_units::{Addr, AddrRange, PAGE_SIZE, PAGES_PER_PMD, PmdNo};
use std::path::Path;

/// What this machine allows is looked up at most this often: a dozen small files.
const LOOK_UP_EVERY: Ns = 60_000_000_000;
/// What a further range of a call takes, in pages: the kernel looks it up, and flushes the TLB of each processor that runs the target.
const RANGE_COST: usize = 12;
/// A gap of so many pages that were not accessed is advised, too.
const MAX_GAP: usize = 8;

/// Whether single pages may be advised on this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageAdvice {
    has_folio_sizes: bool,
    has_swap: bool,
    looked_up: Ns,
}

impl PageAdvice {
    pub fn look_up(now: Ns) -> PageAdvice {
        PageAdvice {
            has_folio_sizes: folio_sizes::are_several(Path::new("/sys")),
            has_swap: Swap::read(Path::new("/proc")).is_none_or(|swap| swap.total.0 > 0),
            looked_up: now,
        }
    }

    /// Whether it is, as of `now` or a minute before at most.
    pub fn is_allowed(&mut self, now: Ns) -> bool {
        !self.has_swap(now) && !self.has_folio_sizes
    }

    /// Whether the machine has swap, as of `now` or a minute before at most.
    pub fn has_swap(&mut self, now: Ns) -> bool {
        if now.saturating_sub(self.looked_up) >= LOOK_UP_EVERY {
            let had_folio_sizes = self.has_folio_sizes;
            *self = PageAdvice::look_up(now);
            // Folios stay when no more of their size are made.
            self.has_folio_sizes |= had_folio_sizes;
        }
        self.has_swap
    }
}

/// Whether it is worth reading what is to be cleared of one process. Before a first check all bits are set, and where such checks follow each other, to read
/// them took a twelfth of the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Luck {
    in_vain: u32,
}

/// So many batches in a row without a range of which few pages were accessed show that more of them are to come.
const IN_VAIN: u32 = 2;
/// Then one in so many is read, to find out when that ends.
const THEN_ONE_IN: u32 = 4;

impl Luck {
    /// Whether the next batch is worth it. `note` follows.
    pub fn looks(self) -> bool {
        self.in_vain < IN_VAIN || (self.in_vain - IN_VAIN + 1).is_multiple_of(THEN_ONE_IN)
    }

    /// Takes in whether few pages were accessed of any range of a batch.
    pub fn note(&mut self, found: bool) {
        self.in_vain = if found { 0 } else { self.in_vain.wrapping_add(1) };
    }
}

/// The ranges to advise in place of `run`, neighbouring huge ranges of which `bits` were found. None at all if no page was accessed. `None` if
/// the whole run costs about as much, or if not all of it is small pages that could be read.
pub(super) fn accessed_ranges(run: &[PmdNo], bits: impl Fn(PmdNo) -> Option<PmdBits>) -> Option<Vec<AddrRange>> {
    let mut ranges: Vec<AddrRange> = Vec::new();
    let (mut advised, most) = (0, run.len() * PAGES_PER_PMD / 2);
    for pmd in run {
        let young = match bits(*pmd)? {
            PmdBits::Pages { young, .. } => young,
            PmdBits::Gone => continue,
            PmdBits::Huge { .. } => return None,
        };
        for index in young.iter() {
            let start = pmd.page(index).addr();
            let end = Addr(start.0 + PAGE_SIZE);
            match ranges.last_mut() {
                Some(last) if start.page().0 - last.end.page().0 <= MAX_GAP as u64 => last.end = end,
                _ => ranges.push(AddrRange::new(start, end)),
            }
            advised += 1;
        }
        if advised + ranges.len() * RANGE_COST > most {
            return None;
        }
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Mask;

    fn of_pages(pages: impl IntoIterator<Item = usize>) -> PmdBits {
        PmdBits::Pages { young: pages.into_iter().collect(), present: Mask::ALL }
    }

    #[test]
    fn what_was_in_vain_twice_is_tried_once_in_four_times_until_it_is_not() {
        let mut luck = Luck::default();
        let mut looked = |found: bool| {
            let looks = luck.looks();
            luck.note(looks && found);
            looks
        };
        let of_first_checks: Vec<bool> = (0..12).map(|_| looked(false)).collect();
        let at: Vec<usize> = (0..12).filter(|at| of_first_checks[*at]).collect();
        assert_eq!(at, [0, 1, 5, 9]);
        let of_others: Vec<bool> = (0..4).map(|_| looked(true)).collect();
        assert_eq!(of_others, [false, true, true, true]);
    }

    /// Pages of each range, counted from the start of the first of `pmds`, huge ranges 4 and after.
    fn ranges(pmds: &[Option<PmdBits>]) -> Option<Vec<(u64, u64)>> {
        let run: Vec<PmdNo> = (4..4 + pmds.len() as u64).map(PmdNo).collect();
        let found = accessed_ranges(&run, |pmd| pmds[run.iter().position(|of| *of == pmd)?])?;
        let index = |addr: Addr| (addr.0 - run[0].addr().0) / PAGE_SIZE;
        Some(found.into_iter().map(|range| (index(range.start), index(range.end))).collect())
    }

    #[test]
    fn pages_that_were_accessed_are_advised_with_small_gaps() {
        assert_eq!(ranges(&[Some(of_pages([]))]), Some(vec![]));
        assert_eq!(ranges(&[Some(of_pages([0, 1, 2, 10, 400]))]), Some(vec![(0, 11), (400, 401)]), "7 pages between");
        assert_eq!(ranges(&[Some(of_pages([0, 8, 18]))]), Some(vec![(0, 9), (18, 19)]), "9 pages between");
        let two = [Some(of_pages([511])), Some(of_pages([0, 100]))];
        assert_eq!(ranges(&two), Some(vec![(511, 513), (612, 613)]), "over the bound of two huge ranges");
        assert_eq!(ranges(&[Some(PmdBits::Gone), Some(of_pages([3]))]), Some(vec![(515, 516)]));
    }

    #[test]
    fn all_is_advised_where_that_costs_no_more_or_where_it_has_to_be() {
        assert_eq!(ranges(&[Some(of_pages(0..244))]), Some(vec![(0, 244)]));
        assert_eq!(ranges(&[Some(of_pages(0..245))]), None, "half of it, with the range");
        let scattered = |n: usize| ranges(&[Some(of_pages((0..n).map(|i| i * 25)))]);
        assert_eq!((scattered(19).unwrap().len(), scattered(20)), (19, None));
        assert_eq!(ranges(&[Some(of_pages([1])), Some(PmdBits::Huge { young: false })]), None, "a part would split it");
        assert_eq!(ranges(&[Some(of_pages([1])), None]), None, "could not be read");
    }
}
