//! For how long the memory of each mapping is idle, and which accesses have ended that.
//!
//! Two counts by idle time: pages that are idle now, and pages that were found accessed since the last report, by the time for which
//! they were known to be idle before. If all pages left that are idle for longer than some age, the first says how much memory that
//! would be, and the second how much of it would have come back. Nothing has to leave to learn that. It is the curve from which far
//! memory at warehouse scale chooses an age (Lagar-Cavilla et al., ASPLOS 2019), by single pages.
//!
//! Idle time is what was known at the last read before the access, because that is all that anybody who acts on it can know. A page
//! whose accessed bit was not cleared again yet is not known to be idle, however long nobody has accessed it.
//!
//! A huge page has one accessed bit. If it is idle, so are its 512 pages. If it is accessed, it is not known how many of them were, so
//! pages on huge pages are counted by themselves.

use crate::pmd::{AccessesFound, MIN_IDLE, Ns, Run};
use crate::{Interval, Mapping};
use isotherm_units::{Addr, PAGES_PER_PMD, PageNo, PmdNo};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// [`MIN_IDLE`] on the scale.
const SHORTEST: Interval = Interval::HOT;
/// Different idle times that an access check finds in one huge range.
const TIMES: usize = 8;
/// Mappings that are looked through one by one before a search.
const NEAR: usize = 4;

/// Pages of one mapping by idle time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingIdle {
    /// Where the mapping begins. `None` for memory of which no mapping is known any more, and for all small mappings where there are
    /// too many.
    pub start: Option<Addr>,
    /// By idle time, each once, the shortest first. At least [`MIN_IDLE`].
    pub steps: Vec<IdleStep>,
}

/// Pages of like idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleStep {
    /// The idle time.
    pub idle: Interval,
    /// Small pages that are idle for so long now.
    pub pages: u64,
    /// The same on huge pages.
    pub huge_pages: u64,
    /// Small pages that were found accessed since the last report, and were idle for so long before. A page may count twice.
    pub accessed_pages: u64,
    /// The same on huge pages: at least one page of each 512.
    pub accessed_huge_pages: u64,
}

impl IdleStep {
    fn new(idle: Interval) -> IdleStep {
        IdleStep { idle, pages: 0, huge_pages: 0, accessed_pages: 0, accessed_huge_pages: 0 }
    }

    fn add(&mut self, other: &IdleStep) {
        self.pages += other.pages;
        self.huge_pages += other.huge_pages;
        self.accessed_pages += other.accessed_pages;
        self.accessed_huge_pages += other.accessed_huge_pages;
    }
}

impl MappingIdle {
    fn add(&mut self, step: &IdleStep) {
        match self.steps.binary_search_by_key(&step.idle, |s| s.idle) {
            Ok(at) => self.steps[at].add(step),
            Err(at) => self.steps.insert(at, *step),
        }
    }

    fn pages(&self) -> u64 {
        let of = |s: &IdleStep| s.pages + s.huge_pages + s.accessed_pages + s.accessed_huge_pages;
        self.steps.iter().map(of).sum()
    }
}

/// For how long the pages that a read found accessed were known to be idle before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleBefore([(Interval, u16); TIMES]);

impl Default for IdleBefore {
    fn default() -> IdleBefore {
        IdleBefore([(Interval::ABSENT, 0); TIMES])
    }
}

impl IdleBefore {
    /// Of so many pages for each idle time. What is too short to count as idle is left out.
    pub(crate) fn of(times: impl IntoIterator<Item = (Ns, u16)>) -> IdleBefore {
        let mut known = IdleBefore::default();
        let long = times.into_iter().filter(|(idle, pages)| *idle >= MIN_IDLE && *pages > 0);
        for (slot, (idle, pages)) in known.0.iter_mut().zip(long) {
            *slot = (Interval::from_ns(idle), pages);
        }
        known
    }

    /// Idle times, and how many pages had each.
    pub fn iter(&self) -> impl Iterator<Item = (Interval, u16)> {
        self.0.into_iter().filter(|(_, pages)| *pages > 0)
    }
}

/// Accesses to idle pages since they were last taken: small pages, and pages on huge pages.
#[derive(Debug, Default)]
pub(crate) struct Accessed(BTreeMap<(PmdNo, Interval), [u64; 2]>);

impl Accessed {
    /// Takes in what a read has found.
    pub fn add(&mut self, pmd: PmdNo, is_huge: bool, found: &AccessesFound) {
        for (idle, pages) in found.idle_before.iter() {
            let [small, huge] = self.0.entry((pmd, idle)).or_default();
            let (count, pages) = if is_huge { (huge, PAGES_PER_PMD as u64) } else { (small, u64::from(pages)) };
            *count += pages;
        }
    }

    /// Adds them to the mappings in which their huge ranges begin.
    pub fn add_to(self, idle: &mut Vec<MappingIdle>, mappings: &[Mapping]) {
        for ((pmd, idle_time), [accessed_pages, accessed_huge_pages]) in self.0 {
            let start = Mapping::first_in(mappings, pmd.range()).map(|m| m.range.start);
            let step = IdleStep { accessed_pages, accessed_huge_pages, ..IdleStep::new(idle_time) };
            entry_of(idle, start).add(&step);
        }
    }
}

/// The entry of a mapping, in order. O(1) if it is the last one or comes after that.
fn entry_of(idle: &mut Vec<MappingIdle>, start: Option<Addr>) -> &mut MappingIdle {
    let from = idle.len().saturating_sub(1);
    let first = idle.last().filter(|m| m.start <= start).map_or(0, |_| from);
    let found = idle[first..].binary_search_by_key(&start, |m| m.start);
    let at = found.map(|at| first + at).unwrap_or_else(|at| {
        let at = first + at;
        idle.insert(at, MappingIdle { start, steps: Vec::new() });
        at
    });
    &mut idle[at]
}

/// Keeps the `most` mappings with most pages, and joins the others into one without a start.
pub(crate) fn limit(idle: &mut Vec<MappingIdle>, most: usize) {
    if idle.len() <= most {
        return;
    }
    let mut all = std::mem::take(idle);
    all.sort_by_key(|m| Reverse(m.pages()));
    let (kept, small) = all.split_at(most.saturating_sub(1));
    idle.extend_from_slice(kept);
    idle.sort_by_key(|m| m.start);
    let others = entry_of(idle, None);
    small.iter().flat_map(|m| &m.steps).for_each(|step| others.add(step));
}

/// Sums up pages by idle time for each mapping, from huge ranges in address order.
pub(crate) struct IdleSum<'a> {
    /// Those that were not passed yet.
    mappings: &'a [Mapping],
    /// The mapping of the pages that are summed up, and up to where it goes.
    start: Option<Addr>,
    until: PageNo,
    /// Small pages and pages on huge pages, by code of the idle time.
    pages: Box<[[u64; 2]; 256]>,
    /// A bit for each code that has pages: most mappings have a few, and there may be 65,000 mappings in a snapshot.
    codes: [u64; 4],
    done: Vec<MappingIdle>,
}

impl<'a> IdleSum<'a> {
    /// Of a target with these mappings, in address order. Without mappings, all counts as memory of no known one.
    pub fn new(mappings: &'a [Mapping]) -> IdleSum<'a> {
        let pages = Box::new([[0; 2]; 256]);
        IdleSum { mappings, start: None, until: PageNo(0), pages, codes: [0; 4], done: Vec::new() }
    }

    /// Adds what is known of a huge range. O(runs).
    pub fn add(&mut self, pmd: PmdNo, runs: &[Run]) {
        for run in runs.iter().filter(|run| run.cleared && !run.estimated && run.idle >= SHORTEST) {
            let (mut page, end) = (pmd.page(run.indices().start), pmd.page(run.indices().end));
            while page < end {
                if page >= self.until {
                    self.go_to(page);
                }
                let part_end = end.min(self.until);
                let code = run.idle.code();
                self.pages[usize::from(code)][usize::from(run.huge)] += part_end.0 - page.0;
                self.codes[usize::from(code / 64)] |= 1 << (code % 64);
                page = part_end;
            }
        }
    }

    /// Whether all pages of a huge range are in one mapping, or in none.
    pub fn is_within_one(&mut self, pmd: PmdNo) -> bool {
        let (first, end) = (pmd.page(0), pmd.next().page(0));
        if first >= self.until {
            self.go_to(first);
        }
        end <= self.until
    }

    /// Moves on to the mapping of `page`, or to the gap in which it lies.
    fn go_to(&mut self, page: PageNo) {
        self.flush();
        let is_passed = |m: &Mapping| m.range.end <= page.addr();
        // It is the next mapping nearly always.
        let near = self.mappings.iter().take(NEAR).take_while(|m| is_passed(m)).count();
        self.mappings = &self.mappings[near..];
        if near == NEAR {
            self.mappings = &self.mappings[self.mappings.partition_point(is_passed)..];
        }
        (self.start, self.until) = match self.mappings.first() {
            Some(m) if m.range.start <= page.addr() => (Some(m.range.start), m.range.end.page()),
            Some(m) => (None, m.range.start.page()),
            None => (None, PageNo(u64::MAX)),
        };
    }

    fn flush(&mut self) {
        if self.codes == [0; 4] {
            return;
        }
        let of_mapping = entry_of(&mut self.done, self.start);
        for (first, word) in (0..=u8::MAX).step_by(64).zip(&mut self.codes) {
            let mut left = std::mem::take(word);
            while left != 0 {
                let code = first + (left.trailing_zeros() & 63) as u8;
                left &= left - 1;
                let [pages, huge_pages] = std::mem::take(&mut self.pages[usize::from(code)]);
                of_mapping.add(&IdleStep { pages, huge_pages, ..IdleStep::new(Interval::from_code(code)) });
            }
        }
    }

    /// The sums, by mapping in address order.
    pub fn finish(mut self) -> Vec<MappingIdle> {
        self.flush();
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mask, PmdBits, Rng, Target, Watch};
    use isotherm_units::AddrRange;

    const MS: Ns = 1_000_000;
    const S: Ns = 1000 * MS;

    fn mapping(pages: std::ops::Range<u64>) -> Mapping {
        let range = AddrRange::new(PageNo(pages.start).addr(), PageNo(pages.end).addr());
        Mapping { range, name: String::new(), perms: "rw-p".parse().unwrap() }
    }

    fn step(idle: Interval, pages: u64, huge_pages: u64) -> IdleStep {
        IdleStep { pages, huge_pages, ..IdleStep::new(idle) }
    }

    /// Every page by itself, in random mappings with and without gaps.
    #[test]
    fn sums_by_mapping_are_those_of_a_count_page_by_page() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut mappings, mut at) = (Vec::new(), rng.below(600));
            // Long ones, and so short ones that many are passed at once.
            let longest = if rng.below(2) == 0 { 500 } else { 6 };
            while at < 4 * 512 {
                let end = at + 1 + rng.below(longest);
                mappings.push(mapping(at..end));
                at = end + rng.below(longest / 2) * rng.below(2);
            }
            let mut sum = IdleSum::new(&mappings);
            let mut naive: BTreeMap<(Option<Addr>, Interval), [u64; 2]> = BTreeMap::new();
            for pmd in (0..4).map(PmdNo) {
                let huge = rng.below(5) == 0;
                let pieces = if huge { 1 } else { 64 };
                let runs: Vec<Run> = (0..pieces).map(|n| random_run(n, 512 / pieces, huge, &mut rng)).collect();
                sum.add(pmd, &runs);
                for run in runs.iter().filter(|r| r.cleared && !r.estimated && r.idle >= Interval::HOT) {
                    for page in run.indices().map(|index| pmd.page(index).addr()) {
                        let of = mappings.iter().find(|m| m.range.contains(page)).map(|m| m.range.start);
                        naive.entry((of, run.idle)).or_default()[usize::from(huge)] += 1;
                    }
                }
            }
            let flat: BTreeMap<_, _> = sum.finish().into_iter().flat_map(flat).collect();
            assert_eq!(flat, naive, "seed {seed}");
        }
    }

    fn flat(of: MappingIdle) -> impl Iterator<Item = ((Option<Addr>, Interval), [u64; 2])> {
        assert!(of.steps.is_sorted_by(|a, b| a.idle < b.idle));
        of.steps.into_iter().map(move |s| ((of.start, s.idle), [s.pages, s.huge_pages]))
    }

    fn random_run(n: u16, pages: u16, huge: bool, rng: &mut Rng) -> Run {
        let idle = [Interval::UNMEASURED, Interval::from_ns(S / 2), Interval::HOT, Interval::from_ns(9 * S)];
        Run {
            first: n * pages,
            pages,
            interval: Interval::HOT,
            idle: idle[usize::try_from(rng.below(4)).unwrap()],
            huge,
            cleared: rng.below(4) > 0,
            estimated: rng.below(9) == 0,
        }
    }

    #[test]
    fn an_access_counts_by_what_was_known_of_the_page_before() {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let (small, huge) = (PmdNo(1), PmdNo(2));
        let bits = |young: &[usize]| PmdBits::Pages { young: young.iter().copied().collect(), present: Mask::ALL };
        for pmd in [small, huge] {
            target.refit(&[small, huge]);
            target.read(0, pmd, if pmd == huge { PmdBits::Huge { young: true } } else { bits(&[]) });
            target.cleared(S, pmd, Mask::NONE);
        }
        // Idle for half a second is not idle. At 9 s, 1 and 2 are known to be idle for 6 s: from the clear to the read before.
        target.read(S + S / 2, small, bits(&[]));
        target.read(2 * S, small, bits(&[7]));
        target.read(7 * S, small, bits(&[7]));
        target.read(7 * S, huge, PmdBits::Huge { young: false });
        target.read(9 * S, small, bits(&[1, 2, 7]));
        target.read(9 * S, huge, PmdBits::Huge { young: true });
        let six = Interval::from_ns(6 * S);
        let mut idle = vec![MappingIdle { start: None, steps: vec![step(six, 5, 0)] }];
        let mappings = [mapping(600..700), mapping(900..2000)];
        target.take_accessed().add_to(&mut idle, &mappings);
        let accessed = |accessed_pages, accessed_huge_pages| IdleStep {
            accessed_pages,
            accessed_huge_pages,
            ..IdleStep::new(six)
        };
        let of = |first: u64, steps| MappingIdle { start: Some(PageNo(first).addr()), steps };
        let unchanged = MappingIdle { start: None, steps: vec![step(six, 5, 0)] };
        assert_eq!(idle, [unchanged, of(600, vec![accessed(2, 0)]), of(900, vec![accessed(0, 512)])]);
        let mut none = Vec::new();
        target.take_accessed().add_to(&mut none, &mappings);
        assert_eq!(none, [], "each access once");
    }

    #[test]
    fn of_too_many_mappings_the_small_ones_are_joined() {
        let steps = |pages| vec![step(Interval::HOT, pages, 0), step(Interval::LONGEST, 0, pages)];
        let of = |start: u64, pages| MappingIdle { start: Some(Addr(start)), steps: steps(pages) };
        let mut idle = vec![of(1, 10), of(2, 3), of(3, 20), of(4, 5)];
        limit(&mut idle, 4);
        assert_eq!(idle.len(), 4);
        limit(&mut idle, 3);
        assert_eq!(idle, [MappingIdle { start: None, steps: steps(8) }, of(1, 10), of(3, 20)]);
    }
}
