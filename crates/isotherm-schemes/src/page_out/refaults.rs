//! Which pages have left, and which of them have come back: *refaults*.
//!
//! A page that left is remembered by a bit. When a later read of its huge range finds it present, it has come back. A page whose memory
//! the process gave back meanwhile, and that is touched again, counts too. One that came back and was given back between two reads does
//! not count. One that came back and leaves again before it was read counts when it leaves.

use isotherm_heat::{Histogram, Interval, Mask, Ns};
use isotherm_units::PmdNo;
use std::collections::{BTreeMap, VecDeque};

/// The time over which refaults are counted.
const MINUTE: Ns = 60_000_000_000;
/// Steps in which counts of the last minute are kept.
const STEP: Ns = 1_000_000_000;

/// What a read of a huge range has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// These pages are present.
    Present(Mask),
    /// Nothing is mapped there any more.
    Unmapped,
    /// It was not read.
    NotRead,
}

/// Of the pages of a huge range that were out, this part (one in so many), and so many at least, have to come back for the others to be
/// likely to follow.
const PART_BACK: u32 = 16;
const MIN_BACK: u32 = 8;

/// Pages of one process that are out. 88 bytes for each huge range with such pages, and the map around them.
#[derive(Clone, Debug, Default)]
pub struct LeftPages {
    pmds: BTreeMap<PmdNo, LeftPmd>,
    /// Huge ranges of which so much has come back that the rest is likely to follow, since they were last taken.
    following: Vec<PmdNo>,
    left: u64,
    /// Refaults, by the time for which the page was not accessed.
    refaulted: Histogram,
    /// Refaults of the last minute, by when they were found.
    recent: VecDeque<(Ns, u64)>,
}

/// Pages of one huge range that are out.
#[derive(Clone, Copy, Debug)]
struct LeftPmd {
    pages: Mask,
    /// When the last of them left, and for how long they had been idle then at least.
    at: Ns,
    idle_ns: Ns,
    /// Pages of it that have come back since.
    back: u16,
}

impl LeftPmd {
    /// Notes that so many of its pages have come back. Returns whether that makes the others likely to follow: once.
    fn comes_back(&mut self, pages: u32) -> bool {
        let before = u32::from(self.back);
        self.back = self.back.saturating_add(u16::try_from(pages).unwrap_or(u16::MAX));
        let were_out = self.pages.count() + before + pages;
        let least = MIN_BACK.max(were_out / PART_BACK);
        before < least && before + pages >= least && !self.pages.is_empty()
    }

    /// Takes in which of its pages are present. Returns how many have come back, and whether that makes the others likely to follow.
    fn find(&mut self, present: Mask, now: Ns, refaulted: &mut Histogram) -> (u32, bool) {
        let back = (self.pages & present).count();
        if back == 0 {
            return (0, false);
        }
        refaulted.add(Interval::from_ns(now.saturating_sub(self.at) + self.idle_ns), u64::from(back));
        self.pages = self.pages & !present;
        (back, self.comes_back(back))
    }
}

impl LeftPages {
    /// Notes that these pages left at `now`, idle for `idle_ns` at least.
    pub fn leave(&mut self, pmd: PmdNo, pages: Mask, idle_ns: Ns, now: Ns) {
        if pages.is_empty() {
            return;
        }
        self.left += u64::from(pages.count());
        let of = self.pmds.entry(pmd).or_insert(LeftPmd { pages: Mask::NONE, at: now, idle_ns, back: 0 });
        *of = LeftPmd { pages: of.pages | pages, at: now, idle_ns: of.idle_ns.min(idle_ns), back: 0 };
    }

    /// Takes in what was found, huge range by huge range. Those not mapped any more are forgotten. Returns how many pages have come
    /// back.
    pub fn come_back(&mut self, now: Ns, found: impl Fn(PmdNo) -> Found) -> u64 {
        let mut all = 0;
        let (refaulted, following) = (&mut self.refaulted, &mut self.following);
        self.pmds.retain(|pmd, left| {
            let (back, follow) = match found(*pmd) {
                Found::Present(present) => left.find(present, now, refaulted),
                Found::Unmapped => return false,
                Found::NotRead => return true,
            };
            all += u64::from(back);
            following.extend(follow.then_some(*pmd));
            !left.pages.is_empty()
        });
        self.note_recent(all, now);
        all
    }

    /// The same for one huge range, of which these pages are present. O(log n).
    pub fn come_back_in(&mut self, pmd: PmdNo, present: Mask, now: Ns) -> u64 {
        let mut all = 0;
        if let Some(left) = self.pmds.get_mut(&pmd) {
            let (back, follow) = left.find(present, now, &mut self.refaulted);
            all = u64::from(back);
            self.following.extend(follow.then_some(pmd));
            if left.pages.is_empty() {
                self.pmds.remove(&pmd);
            }
        }
        self.note_recent(all, now);
        all
    }

    /// Takes in that these pages are about to leave: those of them that were out have come back and been idle since, without a read between. Returns
    /// how many.
    pub fn came_back_unseen(&mut self, pmd: PmdNo, pages: Mask, now: Ns) -> u64 {
        let Some(of) = self.pmds.get(&pmd) else { return 0 };
        let back = u64::from((of.pages & pages).count());
        if back > 0 {
            // For how long they were idle is known to be no longer than that.
            self.refaulted.add(Interval::from_ns(now.saturating_sub(of.at) + of.idle_ns), back);
            self.note_recent(back, now);
        }
        back
    }

    fn note_recent(&mut self, refaults: u64, now: Ns) {
        self.recent.retain(|(at, _)| now.saturating_sub(*at) < MINUTE);
        match self.recent.back_mut() {
            Some((at, count)) if now.saturating_sub(*at) < STEP => *count += refaults,
            _ if refaults > 0 => self.recent.push_back((now, refaults)),
            _ => {}
        }
    }

    /// Takes the huge ranges of which so much has come back that the rest of what is out is likely to follow. Each once, until pages of it
    /// leave again.
    pub fn take_following(&mut self) -> Vec<PmdNo> {
        std::mem::take(&mut self.following)
    }

    /// Huge ranges with pages that are out, in address order.
    pub fn pmds(&self) -> impl Iterator<Item = PmdNo> {
        self.pmds.keys().copied()
    }

    /// Forgets a huge range: its pages were brought back, and not by the process.
    pub fn forget(&mut self, pmd: PmdNo) {
        self.pmds.remove(&pmd);
    }

    /// Huge ranges with pages that are out, from `first` on, in address order.
    pub fn pmds_from(&self, first: PmdNo) -> impl Iterator<Item = PmdNo> {
        self.pmds.range(first..).map(|(pmd, _)| *pmd)
    }

    /// Whether pages of a huge range are out.
    pub fn is_out(&self, pmd: PmdNo) -> bool {
        self.pmds.contains_key(&pmd)
    }

    /// Pages that are out.
    pub fn out(&self) -> u64 {
        self.pmds.values().map(|left| u64::from(left.pages.count())).sum()
    }

    /// Pages that have left so far, those included that came back.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Refaults so far, by the time for which the page was not accessed.
    pub fn refaulted(&self) -> &Histogram {
        &self.refaulted
    }

    /// Refaults that were found within the last minute, as of the last call of [`LeftPages::come_back`].
    pub fn in_last_minute(&self) -> u64 {
        self.recent.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Rng;
    use std::collections::BTreeSet;

    const S: Ns = 1_000_000_000;

    #[test]
    fn a_page_comes_back_once_with_the_time_for_which_it_was_idle() {
        let mut left = LeftPages::default();
        let few: Mask = (0..10).collect();
        left.leave(PmdNo(1), few, 600 * S, 100 * S);
        left.leave(PmdNo(2), Mask::ALL, 600 * S, 100 * S);
        left.leave(PmdNo(3), Mask::NONE, 600 * S, 100 * S);
        assert_eq!((left.out(), left.left(), left.pmds().count()), (522, 522, 2));
        let half: Mask = (5..300).collect();
        let present = |pmd: PmdNo| if pmd.0 == 1 { Found::Present(half) } else { Found::Unmapped };
        assert_eq!(left.come_back(150 * S, |_| Found::NotRead), 0);
        assert_eq!(left.out(), 522, "nothing is known of them");
        assert_eq!(left.come_back(160 * S, present), 5);
        assert_eq!(left.come_back(161 * S, present), 0, "once");
        assert_eq!(left.out(), 5, "the other range is not mapped any more");
        assert_eq!((left.refaulted().at(Interval::from_ns(660 * S)), left.refaulted().measured()), (5, 5));
        assert_eq!(left.in_last_minute(), 5);
        left.come_back(220 * S, present);
        assert_eq!(left.in_last_minute(), 0);
        // It leaves again, and comes back again.
        left.leave(PmdNo(1), few, 600 * S, 900 * S);
        assert_eq!((left.out(), left.left()), (10, 532));
        assert_eq!(left.come_back(900 * S, |_| Found::Present(Mask::ALL)), 10);
        assert_eq!((left.out(), left.pmds().count()), (0, 0));
    }

    #[test]
    fn one_huge_range_comes_back_as_it_does_among_all() {
        let mut rng = Rng::new(12);
        let (mut one, mut all) = (LeftPages::default(), LeftPages::default());
        for step in 0..3000_u64 {
            let (pmd, first) = (PmdNo(rng.below(6)), usize::try_from(rng.below(500)).unwrap());
            let pages: Mask = (first..first + 12).collect();
            if rng.below(2) == 0 {
                [&mut one, &mut all].into_iter().for_each(|left| left.leave(pmd, pages, S, step * S));
            } else {
                let found = |of| if of == pmd { Found::Present(pages) } else { Found::NotRead };
                assert_eq!(one.come_back_in(pmd, pages, step * S), all.come_back(step * S, found));
            }
            assert_eq!((one.out(), one.take_following()), (all.out(), all.take_following()), "step {step}");
            let of = |left: &LeftPages| (left.in_last_minute(), left.pmds().count(), left.refaulted().measured());
            assert_eq!(of(&one), of(&all), "step {step}");
        }
    }

    #[test]
    fn what_is_likely_to_follow_is_named_once() {
        let mut left = LeftPages::default();
        [1, 2, 3].into_iter().for_each(|pmd| left.leave(PmdNo(pmd), Mask::ALL, S, S));
        let few: Mask = (0..9).collect();
        left.leave(PmdNo(4), few, S, S);
        let mut come_back = |of: u64, pages: std::ops::Range<usize>| {
            let pages: Mask = pages.collect();
            left.come_back(2 * S, |pmd| if pmd.0 == of { Found::Present(pages) } else { Found::NotRead });
            left.take_following()
        };
        assert_eq!(come_back(1, 0..31), [], "a sixteenth are 32");
        assert_eq!((come_back(1, 0..32), come_back(1, 0..64)), (vec![PmdNo(1)], vec![]));
        assert_eq!(come_back(2, 0..512), [], "none is left to follow");
        assert_eq!((come_back(4, 0..7), come_back(4, 0..8)), (vec![], vec![PmdNo(4)]));
        left.leave(PmdNo(1), few, S, 3 * S);
        left.come_back(4 * S, |pmd| if pmd.0 == 1 { Found::Present((0..64).collect()) } else { Found::NotRead });
        assert_eq!(left.take_following(), [], "nine are out, of which all came back");
        left.leave(PmdNo(3), Mask::NONE, S, 3 * S);
        left.come_back(4 * S, |_| Found::Present((0..64).collect()));
        assert_eq!(left.take_following(), [PmdNo(3)]);
    }

    #[test]
    fn it_is_a_set_of_pages() {
        let seed = 11;
        let mut rng = Rng::new(seed);
        let (mut left, mut naive) = (LeftPages::default(), BTreeSet::new());
        let mut came_back = 0;
        for step in 0..3000_u64 {
            let pmd = PmdNo(rng.below(6));
            let first = usize::try_from(rng.below(500)).unwrap();
            let pages: Mask = (first..first + 12).collect();
            if rng.below(2) == 0 {
                left.leave(pmd, pages, S, step * S);
                naive.extend(pages.iter().map(|page| (pmd, page)));
            } else {
                let gone = PmdNo(rng.below(40));
                let present = |of: PmdNo| match of {
                    of if of == gone => Found::Unmapped,
                    of if of == pmd => Found::Present(pages),
                    _ => Found::NotRead,
                };
                came_back += left.come_back(step * S, present);
                let before = naive.len();
                naive.retain(|(of, _)| *of != gone);
                let forgotten = before - naive.len();
                naive.retain(|(of, page)| *of != pmd || !pages.has(*page));
                let back = before - forgotten - naive.len();
                came_back -= back as u64;
            }
            assert_eq!((left.out(), came_back), (naive.len() as u64, 0), "seed {seed}, step {step}");
        }
    }
}
