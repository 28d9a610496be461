//! The huge pages of one mapping, of which some are split as probes: what is found in them, and what follows for the others.
//!
//! `isotherm split` does this once for each mapping, and a scheme ([`super::splitter`]) again and again. Who splits, watches and collapses
//! is the caller's business.

use super::probe::{Judged, Probed, judge};
use crate::facts::is_programs_own;
use crate::page_out::{Rules, idle_pages_in};
use isotherm_heat::{Interval, Mapping, Mask, Ns, Run, Target};
use isotherm_units::{Addr, PAGES_PER_PMD, PmdNo};
use std::collections::{BTreeMap, BTreeSet};

/// Of how many pages of a probe may not be known whether they were accessed.
const MAX_UNKNOWN: u32 = 16;

/// The huge pages of each private mapping without a file, by its start, in address order.
pub fn huge_by_mapping(pages: &Target, mappings: &[Mapping], now: Ns) -> BTreeMap<Addr, Vec<PmdNo>> {
    let mut huge: BTreeMap<Addr, Vec<PmdNo>> = BTreeMap::new();
    pages.for_each_pmd(now, |pmd, view| {
        let mapping = Mapping::first_in(mappings, pmd.range()).filter(|mapping| is_programs_own(mapping));
        if let Some(mapping) = mapping.filter(|_| view.runs.iter().all(|run| run.huge)) {
            huge.entry(mapping.range.start).or_default().push(pmd);
        }
    });
    huge
}

/// What is known of the huge pages of a mapping, and for which of them splitting pays.
#[derive(Clone, Debug, Default)]
pub struct Probes {
    /// All of them, and those to be split as probes. Both are sorted.
    huge: Vec<PmdNo>,
    drawn: Vec<PmdNo>,
    probed: BTreeMap<PmdNo, Probed>,
    /// Pages that the kernel gave back with the split of each.
    gave_back: BTreeMap<PmdNo, u16>,
    /// Others that are idle as a whole.
    idle: BTreeSet<PmdNo>,
    /// Probes of which too little was known in the end. They show nothing.
    unknown: BTreeSet<PmdNo>,
    /// Those of them that are huge again.
    huge_again: BTreeSet<PmdNo>,
    judged: Judged,
    splits_used: bool,
    splits_idle: bool,
}

impl Probes {
    /// Of these huge pages, and these of them as probes. Both are sorted.
    pub fn new(huge: Vec<PmdNo>, drawn: Vec<PmdNo>) -> Probes {
        Probes { huge, drawn, ..Probes::default() }
    }

    /// All huge pages.
    pub fn huge(&self) -> &[PmdNo] {
        &self.huge
    }

    /// Those to be split as probes.
    pub fn drawn(&self) -> &[PmdNo] {
        &self.drawn
    }

    /// Whether this is one of the huge pages.
    pub fn has(&self, pmd: PmdNo) -> bool {
        self.huge.binary_search(&pmd).is_ok()
    }

    /// Notes that a probe was split.
    pub fn split(&mut self, pmd: PmdNo) {
        self.probed.insert(pmd, Probed::default());
    }

    /// Notes how many pages the kernel gave back when a probe was split.
    pub fn gave_back(&mut self, pmd: PmdNo, pages: u16) {
        self.gave_back.insert(pmd, pages);
    }

    /// The probes that were split.
    pub fn split_ones(&self) -> impl Iterator<Item = PmdNo> + '_ {
        self.probed.keys().copied()
    }

    /// Takes in what is known of the pages at `now`, right after all were read. `given_back` counts the pages of a probe that hold nothing
    /// but zeros and are given back at this moment: they may have been written to since the split. A live copy of the process makes all pages look so:
    /// more than were given back with the split do not count.
    pub fn read(&mut self, rules: Rules, pages: &Target, now: Ns, given_back: impl Fn(PmdNo) -> u16) {
        for (pmd, probed) in &mut self.probed {
            probed.returned = given_back(*pmd).min(self.gave_back.get(pmd).copied().unwrap_or(0));
            if is_huge(pages, *pmd, now) {
                self.huge_again.insert(*pmd);
            }
            if unknown_in(rules, pages, *pmd, now) > MAX_UNKNOWN {
                self.unknown.insert(*pmd);
            }
        }
        for found in idle_pages_in(rules, pages, &self.huge, now) {
            match self.probed.get_mut(&found.pmd) {
                Some(probed) => {
                    // Pages that were given back are not present by themselves, and their bit may count as idle.
                    let rest = PAGES_PER_PMD.saturating_sub(usize::from(probed.returned));
                    let idle = usize::try_from(found.pages.count()).unwrap_or(rest).min(rest);
                    probed.idle = u16::try_from(idle).unwrap_or(u16::MAX);
                }
                None if found.pages == Mask::ALL => drop(self.idle.insert(found.pmd)),
                None => {}
            }
        }
    }

    /// Nothing is known: something else has cleared accessed bits, so what looks unused may not be.
    pub fn distrust(&mut self) {
        self.unknown.extend(self.probed.keys());
    }

    /// Decides whether splitting the others pays: if at least this share of those in use is unused, and if this share of the idle ones
    /// holds nothing but zeros, both at the lower end of the estimate.
    pub fn judge(&mut self, pays_from: f64) {
        self.judged = judge(&self.known(), self.idle.len(), self.huge.len());
        self.splits_used = self.judged.unused_of_used.lower_end() >= pays_from;
        self.splits_idle = self.judged.zeros_of_idle.lower_end() >= pays_from;
    }

    /// What the probes have shown.
    pub fn judged(&self) -> Judged {
        self.judged
    }

    /// Whether splitting pays for those in use, and for those that are idle as a whole.
    pub fn pays(&self) -> (bool, bool) {
        (self.splits_used, self.splits_idle)
    }

    /// The probes that have shown something.
    pub fn known(&self) -> Vec<Probed> {
        let is_known = |(pmd, _): &(&PmdNo, &Probed)| !self.unknown.contains(pmd);
        self.probed.iter().filter(is_known).map(|(_, probed)| *probed).collect()
    }

    /// Probes that were huge again before they had shown anything.
    pub fn remade(&self) -> &BTreeSet<PmdNo> {
        &self.huge_again
    }

    /// Huge pages that are no probes and for which splitting pays.
    pub fn others_to_split(&self) -> impl Iterator<Item = PmdNo> + '_ {
        let wanted = |pmd: &PmdNo| if self.idle.contains(pmd) { self.splits_idle } else { self.splits_used };
        self.huge.iter().copied().filter(move |pmd| !self.probed.contains_key(pmd) && wanted(pmd))
    }

    /// Whether a probe is one of those for which splitting pays.
    fn stays_split(&self, pmd: PmdNo, probed: Probed) -> bool {
        if self.unknown.contains(&pmd) {
            return false;
        }
        if probed.is_idle() { self.splits_idle } else { self.splits_used }
    }

    /// The probes for which splitting pays: how many, and pages that were given back with them.
    pub fn staying(&self) -> (u64, u64) {
        let stay = self.probed.iter().filter(|(pmd, probed)| self.stays_split(**pmd, **probed));
        stay.fold((0, 0), |(n, pages), (_, probed)| (n + 1, pages + u64::from(probed.returned)))
    }

    /// Probes to collapse again: those for which splitting does not pay, or all of them.
    pub fn to_collapse(&self, all: bool) -> impl Iterator<Item = PmdNo> + '_ {
        let small = self.probed.iter().filter(|(pmd, _)| !self.huge_again.contains(pmd));
        small.filter(move |(pmd, probed)| all || !self.stays_split(**pmd, **probed)).map(|(pmd, _)| *pmd)
    }
}

/// Whether it is one huge page.
fn is_huge(pages: &Target, pmd: PmdNo, now: Ns) -> bool {
    let mut is_huge = false;
    pages.for_pmds_in(pmd..pmd.next(), now, |_, view| is_huge = view.runs.iter().any(|run| run.huge));
    is_huge
}

/// Of how many pages of a huge range it is not known whether they have been accessed for the age: those not measured, and those cleared
/// too late; all of one that is huge again. Pages that were given back are not present, and not among them.
fn unknown_in(rules: Rules, pages: &Target, pmd: PmdNo, now: Ns) -> u32 {
    let age = Interval::from_ns(rules.min_idle_ns);
    let is_late = |run: &Run| run.cleared && run.is_extrapolated() && run.idle < age;
    let is_unknown = |run: &&Run| run.huge || !run.interval.is_measured() || run.estimated || is_late(run);
    let mut unknown = 0;
    pages.for_pmds_in(pmd..pmd.next(), now, |_, view| {
        unknown += view.runs.iter().filter(is_unknown).map(|run| u32::from(run.pages)).sum::<u32>();
    });
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::{PmdBits, Watch};

    const SECOND: Ns = 1_000_000_000;

    #[test]
    fn a_probe_says_something_if_its_pages_were_cleared_for_the_age_and_it_is_still_small() {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: SECOND }, 1);
        let rules = Rules { min_idle_ns: 4 * SECOND };
        let unknown = |target: &Target, now| unknown_in(rules, target, PmdNo(1), now);
        let small = |young| PmdBits::Pages { young, present: Mask::ALL };
        target.read(0, PmdNo(1), small(Mask::ALL));
        assert_eq!(unknown(&target, 9 * SECOND), 512, "not cleared");
        // 300 pages were given back, and the others were not cleared in time: nothing is known of this probe.
        let mut returned = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: SECOND }, 1);
        returned.read(0, PmdNo(1), PmdBits::Pages { young: Mask::ALL, present: (300..512).collect() });
        assert!(unknown(&returned, 9 * SECOND) == 212 && 212 > MAX_UNKNOWN);
        target.cleared(10 * SECOND, PmdNo(1), Mask::NONE);
        let few: Mask = (0..100).collect();
        target.read(12 * SECOND, PmdNo(1), small(few));
        assert_eq!(unknown(&target, 12 * SECOND), 412, "for two seconds");
        target.read(15 * SECOND, PmdNo(1), small(Mask::NONE));
        assert_eq!(unknown(&target, 15 * SECOND), 0);
        // khugepaged has collapsed it, and its one bit is set all the time.
        for second in 16..30 {
            target.read(second * SECOND, PmdNo(1), PmdBits::Huge { young: true });
            target.cleared(second * SECOND, PmdNo(1), Mask::NONE);
        }
        assert_eq!(unknown(&target, 30 * SECOND), 512);
        assert!(is_huge(&target, PmdNo(1), 30 * SECOND));
    }
}
