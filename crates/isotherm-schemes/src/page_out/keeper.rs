//! Keeps at paging out of one process: chooses what leaves next, remembers what has left, and stops when too much comes back.
//!
//! Every window the caller takes in which pages are present ([`Keeper::come_back`]) and asks what to read anew ([`Keeper::choose`]).
//! What is still idle then is hinted. Looking for idle pages costs as much as a snapshot, so it is done every [`SEARCH`], and what it
//! finds is served from a list, the longest idle first.

use super::brake::{Brake, Limits};
use super::refaults::{Found, LeftPages};
use super::watermarks::Watermarks;
use isotherm_heat::{Mask, Ns};
use isotherm_units::{Bytes, PmdNo};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most huge ranges with pages that are out which are read in a window: half a millisecond.
pub const MAX_READ: usize = 1024;
/// Between two searches for idle pages.
pub const SEARCH: Ns = 5_000_000_000;

/// Why nothing leaves at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stays {
    /// More has come back than the ceiling allows.
    Refaults,
    /// The machine has no swap.
    NoSwap,
    /// Free memory is above or below the watermarks of its scheme.
    Watermarks,
    /// As much memory is free as the goal of its scheme says.
    EnoughFree,
    /// Something else clears its accessed bits, so what looks idle may not be.
    ClearedByOthers,
    /// It is sampled: its pages are not known one by one.
    Sampled,
    /// No scheme pages it out any more. What is out is still counted when it comes back.
    NoScheme,
    /// All of its memory has to stay: it runs a guest, has an io_uring, is traced and the like.
    MustStay,
    /// Of a cgroup: not all of its processes are watched, so somebody else's memory might leave.
    Unwatched,
    /// Of a cgroup: the kernel cannot be asked.
    CannotBeAsked,
}

impl Stays {
    /// A short description.
    pub fn text(self) -> &'static str {
        match self {
            Stays::Refaults => "too much has come back",
            Stays::NoSwap => "no swap",
            Stays::Watermarks => "free memory is not between the watermarks",
            Stays::EnoughFree => "as much memory is free as its scheme wants",
            Stays::ClearedByOthers => "something else clears its accessed bits",
            Stays::NoScheme => "no scheme pages it out any more",
            Stays::MustStay => {
                "all of its memory has to stay (guest, io_uring, userfaultfd, pinned memory, traced, core dump)"
            }
            Stays::Sampled => "sampled, so its pages are not known one by one (--mode whole)",
            Stays::Unwatched => "not all processes of the cgroup are watched page by page",
            Stays::CannotBeAsked => "memory.reclaim of the cgroup cannot be written, or takes no swappiness",
        }
    }
}

/// What `status` reports of paging out of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageOutStatus {
    /// The age at which its pages leave at present.
    pub min_idle_ns: u64,
    /// Memory that is out.
    pub out_bytes: u64,
    /// Memory that has left so far.
    pub left_bytes: u64,
    /// Memory that has come back so far.
    pub refaulted_bytes: u64,
    /// Refaults of the last minute, in percent of the working set of a minute.
    pub refaults_pct_minute: f64,
    /// Why nothing leaves at the moment.
    #[serde(deserialize_with = "crate::named::if_known")]
    pub stays: Option<Stays>,
}

/// Paging out of one process.
#[derive(Clone, Debug)]
pub struct Keeper {
    brake: Brake,
    left: LeftPages,
    /// Huge ranges with idle pages that were found last, the longest idle first.
    found: VecDeque<PmdNo>,
    searched_at: Ns,
    /// Huge ranges that are hinted and not handled yet.
    hinted: BTreeSet<PmdNo>,
    working_set_pages: u64,
    stays: Option<Stays>,
    /// By the watermarks of its scheme; active if it has none.
    is_active: bool,
    /// Until when all of its memory has to stay, as was found last.
    must_stay_until: Ns,
    /// Where reading what is out goes on.
    cursor: PmdNo,
    /// Pages that have left since it was asked what to read: the read may have come before, and found them present.
    left_since: BTreeMap<PmdNo, Mask>,
}

impl Keeper {
    /// Of a process of which nothing has left.
    pub fn new(limits: Limits, now: Ns) -> Keeper {
        Keeper {
            brake: Brake::new(limits, now),
            left: LeftPages::default(),
            found: VecDeque::new(),
            searched_at: 0,
            hinted: BTreeSet::new(),
            working_set_pages: 0,
            stays: None,
            is_active: false,
            must_stay_until: 0,
            cursor: PmdNo(0),
            left_since: BTreeMap::new(),
        }
    }

    /// Huge ranges to read before [`Keeper::come_back`], in address order: some of those that are out, in turn.
    pub fn out_in(&mut self) -> Vec<PmdNo> {
        self.left_since.clear();
        let after = self.left.pmds_from(self.cursor).take(MAX_READ);
        let mut some: Vec<PmdNo> = after.collect();
        if some.len() < MAX_READ {
            some.extend(self.left.pmds().take_while(|pmd| *pmd < self.cursor).take(MAX_READ - some.len()));
        }
        self.cursor = some.last().map_or(PmdNo(0), |last| last.next());
        some.sort_unstable();
        some
    }

    /// Notes that all of its memory has to stay for now.
    pub fn must_stay(&mut self, until: Ns) {
        self.must_stay_until = until;
    }

    /// Notes that a huge range was brought back, and not by the process: that is no refault.
    pub fn brought_back(&mut self, pmd: PmdNo) {
        self.left.forget(pmd);
    }

    /// Notes that these pages have left.
    pub fn leave(&mut self, pmd: PmdNo, pages: Mask, now: Ns) {
        let unseen = self.left.came_back_unseen(pmd, pages, now);
        if unseen > 0 {
            self.brake.note(unseen, self.working_set_pages, now);
        }
        let since = self.left_since.entry(pmd).or_insert(Mask::NONE);
        *since = *since | pages;
        self.left.leave(pmd, pages, self.brake.next_age_ns(), now);
    }

    /// Takes in what was found in huge ranges that are out, and the working set of a minute. What has left since [`Keeper::out_in`] counts with the next
    /// read.
    pub fn come_back(&mut self, working_set_pages: u64, now: Ns, found: impl Fn(PmdNo) -> Found) {
        let left_since = |pmd| self.left_since.get(&pmd).copied().unwrap_or(Mask::NONE);
        let refaults = self.left.come_back(now, |pmd| match found(pmd) {
            Found::Present(present) => Found::Present(present & !left_since(pmd)),
            other => other,
        });
        self.working_set_pages = working_set_pages;
        self.brake.note(refaults, working_set_pages, now);
    }

    /// Takes the huge ranges of which so much has come back that the rest is likely to follow.
    pub fn take_following(&mut self) -> Vec<PmdNo> {
        self.left.take_following()
    }

    /// Whether its scheme is active with so much memory free, in percent.
    pub fn is_active(&mut self, marks: Option<Watermarks>, free_pct: f64) -> bool {
        self.is_active = marks.is_none_or(|marks| marks.is_active(self.is_active, free_pct));
        self.is_active
    }

    /// The age to search with. `None` if nothing may leave, for that reason or because too much has come back.
    pub fn age_ns(&mut self, other: Option<Stays>, now: Ns) -> Option<Ns> {
        let must_stay = (now < self.must_stay_until).then_some(Stays::MustStay);
        self.stays = other.or(must_stay).or(self.brake.age_ns().is_none().then_some(Stays::Refaults));
        if self.stays.is_some() {
            self.found.clear();
            return None;
        }
        self.brake.age_ns()
    }

    /// Whether it is time to search.
    pub fn is_search_due(&self, now: Ns) -> bool {
        self.searched_at == 0 || now.saturating_sub(self.searched_at) >= SEARCH
    }

    /// Takes in what a search at `now` has found, the longest idle first.
    pub fn found(&mut self, pmds: impl IntoIterator<Item = PmdNo>, now: Ns) {
        self.searched_at = now;
        self.found = pmds.into_iter().collect();
    }

    /// The huge ranges to read anew and to hint, in address order: those that are hinted already, and the next that were found, `most`
    /// in all.
    pub fn choose(&mut self, most: usize) -> Vec<PmdNo> {
        let mut chosen = self.hinted.clone();
        while chosen.len() < most {
            let Some(pmd) = self.found.pop_front() else { break };
            chosen.insert(pmd);
        }
        chosen.into_iter().collect()
    }

    /// These were chosen, and there was no room for them. They come first next time.
    pub fn put_back(&mut self, pmds: &[PmdNo]) {
        for pmd in pmds.iter().rev().filter(|pmd| !self.hinted.contains(pmd)) {
            self.found.push_front(*pmd);
        }
    }

    /// Notes that a huge range is hinted.
    pub fn hint(&mut self, pmd: PmdNo) {
        self.hinted.insert(pmd);
    }

    /// Notes that its hint was handled.
    pub fn handled(&mut self, pmd: PmdNo) {
        self.hinted.remove(&pmd);
    }

    /// Takes the huge ranges that are hinted. Nothing is chosen before the next search.
    pub fn take_hinted(&mut self) -> BTreeSet<PmdNo> {
        self.found.clear();
        std::mem::take(&mut self.hinted)
    }

    /// How many huge ranges are hinted.
    pub fn hinted(&self) -> usize {
        self.hinted.len()
    }

    /// Whether a huge range is hinted.
    pub fn is_hinted(&self, pmd: PmdNo) -> bool {
        self.hinted.contains(&pmd)
    }

    /// Whether pages of a huge range are about to leave, or are out.
    pub fn is_after(&self, pmd: PmdNo) -> bool {
        self.hinted.contains(&pmd) || self.left.is_out(pmd)
    }

    /// Whether nothing has ever left.
    pub fn is_unused(&self) -> bool {
        self.left.left() == 0
    }

    /// Nothing leaves any more.
    pub fn stop(&mut self) {
        self.stays = Some(Stays::NoScheme);
    }

    /// Sets other limits. What is out is still counted when it comes back.
    pub fn set_limits(&mut self, limits: Limits, now: Ns) {
        if self.brake.limits() != limits {
            self.brake = Brake::new(limits, now);
        }
    }

    /// The status to report.
    pub fn status(&self) -> PageOutStatus {
        let working_set = self.working_set_pages.max(1) as f64;
        PageOutStatus {
            min_idle_ns: self.brake.next_age_ns(),
            out_bytes: Bytes::of_pages(self.left.out()).0,
            left_bytes: Bytes::of_pages(self.left.left()).0,
            refaulted_bytes: Bytes::of_pages(self.left.refaulted().measured()).0,
            refaults_pct_minute: self.left.in_last_minute() as f64 / working_set * 100.0,
            stays: self.stays,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;

    fn keeper() -> Keeper {
        let mut keeper = Keeper::new(Limits { min_idle_ns: 60 * S, max_refaults_pct: 0.2 }, 0);
        keeper.come_back(100_000, 60 * S, |_| Found::Unmapped);
        keeper
    }

    #[test]
    fn what_is_hinted_is_read_again_until_it_is_handled() {
        let mut keeper = keeper();
        assert!(keeper.is_search_due(60 * S));
        keeper.found([9, 3, 5, 1].map(PmdNo), 60 * S);
        assert!(!keeper.is_search_due(64 * S) && keeper.is_search_due(65 * S));
        assert_eq!(keeper.choose(2), [PmdNo(3), PmdNo(9)], "the longest idle, by address");
        [3, 9].into_iter().for_each(|pmd| keeper.hint(PmdNo(pmd)));
        assert_eq!(keeper.choose(2), [PmdNo(3), PmdNo(9)]);
        keeper.handled(PmdNo(9));
        assert_eq!(keeper.choose(2), [PmdNo(3), PmdNo(5)]);
        assert!(keeper.is_after(PmdNo(3)) && !keeper.is_after(PmdNo(9)));
        assert_eq!(keeper.take_hinted(), [PmdNo(3)].into());
        assert_eq!(keeper.choose(2), [] as [PmdNo; 0]);
    }

    #[test]
    fn it_stops_when_too_much_comes_back_and_says_why() {
        let mut keeper = keeper();
        assert_eq!(keeper.age_ns(None, 62 * S), Some(60 * S));
        keeper.leave(PmdNo(1), Mask::ALL, 61 * S);
        assert_eq!(keeper.out_in(), [PmdNo(1)]);
        keeper.found([PmdNo(2)], 61 * S);
        keeper.come_back(100_000, 62 * S, |_| Found::Present(Mask::ALL));
        assert_eq!((keeper.age_ns(None, 62 * S), keeper.choose(9)), (None, vec![]));
        let status = keeper.status();
        assert_eq!((status.left_bytes, status.refaulted_bytes, status.out_bytes), (2 << 20, 2 << 20, 0));
        assert_eq!((status.stays, status.min_idle_ns), (Some(Stays::Refaults), 120 * S));
        assert!((status.refaults_pct_minute - 0.512).abs() < 1e-9, "{status:?}");
        // Another reason goes first, and passes.
        let mut keeper = super::tests::keeper();
        assert_eq!((keeper.age_ns(Some(Stays::NoSwap), 62 * S), keeper.status().stays), (None, Some(Stays::NoSwap)));
        assert_eq!((keeper.age_ns(None, 62 * S), keeper.status().stays), (Some(60 * S), None));
        keeper.must_stay(70 * S);
        assert_eq!((keeper.age_ns(None, 69 * S), keeper.status().stays), (None, Some(Stays::MustStay)));
        assert_eq!(keeper.age_ns(None, 70 * S), Some(60 * S));
    }

    /// Reading all that is out takes longer than a page is idle.
    #[test]
    fn a_page_that_leaves_again_before_its_range_is_read_has_come_back() {
        let mut keeper = keeper();
        keeper.leave(PmdNo(1), (0..100).collect(), 61 * S);
        keeper.leave(PmdNo(2), (0..100).collect(), 61 * S);
        assert_eq!(keeper.age_ns(None, 150 * S), Some(60 * S));
        keeper.leave(PmdNo(1), (50..400).collect(), 150 * S);
        let status = keeper.status();
        assert_eq!([status.left_bytes, status.refaulted_bytes, status.out_bytes].map(|b| b >> 12), [550, 50, 500]);
        assert_eq!(keeper.take_following(), [] as [PmdNo; 0], "they are out, and nobody asks for the rest");
        // 0.2% of 100,000 pages in a minute.
        keeper.leave(PmdNo(1), (50..400).collect(), 151 * S);
        assert_eq!((keeper.age_ns(None, 151 * S), keeper.status().stays), (None, Some(Stays::Refaults)));
    }

    #[test]
    fn what_leaves_while_a_huge_range_is_read_has_not_come_back() {
        let mut keeper = keeper();
        keeper.leave(PmdNo(1), (0..10).collect(), 61 * S);
        assert_eq!(keeper.out_in(), [PmdNo(1)]);
        // The worker is done with these after they were read.
        keeper.leave(PmdNo(1), (100..400).collect(), 62 * S);
        let read = |keeper: &mut Keeper, now| {
            keeper.come_back(100_000, now, |_| Found::Present((100..400).collect()));
            (keeper.status().refaulted_bytes >> 12, keeper.status().out_bytes >> 12)
        };
        assert_eq!(read(&mut keeper, 62 * S), (0, 310));
        assert_eq!(keeper.out_in(), [PmdNo(1)]);
        assert_eq!(read(&mut keeper, 63 * S), (300, 10), "what is found with the next read has");
    }

    #[test]
    fn what_is_out_is_read_in_turn() {
        let mut keeper = keeper();
        (0..2500).for_each(|pmd| keeper.leave(PmdNo(pmd), Mask::ALL, 61 * S));
        let mut read = vec![0; 2500];
        for _ in 0..5 {
            let some = keeper.out_in();
            assert!(some.len() == MAX_READ && some.is_sorted());
            some.iter().for_each(|pmd| read[usize::try_from(pmd.0).unwrap()] += 1);
        }
        assert!(read.iter().all(|times| (1..=3).contains(times)), "{read:?}");
        keeper.brought_back(PmdNo(7));
        assert!(!keeper.is_after(PmdNo(7)));
    }
}
