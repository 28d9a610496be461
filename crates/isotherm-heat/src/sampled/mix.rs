//! The result of checks: which share of the pages was first seen touched at which read.
//!
//! A check clears a huge range and reads it 10, 40, 160, 640 ms, 2.6, 10 and 41 s later. The outcome of a page is the first
//! read that found it young, or none. Each read is at four times the distance of the previous one; for targets
//! monitored as a whole the factor is two. A check has to be cheap here, since most huge ranges are checked once and then
//! not again for a long time.

use crate::pmd::Ns;
use crate::{Interval, Mask};

/// Reads of a check, and one more outcome: untouched to the end.
pub(crate) const OUTCOMES: usize = READS + 1;
pub(crate) const READS: usize = 7;
/// Distance of the first read from the clear. Each further read is four times as far.
pub(crate) const FIRST: Ns = 10_000_000;
/// What is known after this many reads (2.6 s) decides where regions end. The rest only separates warm from cold.
pub(crate) const EARLY: usize = 5;
/// A huge range is stuck if a clear has left at least one in this many of its present pages.
const MAX_UNREACHED: u32 = 32;
/// Octaves between two outcomes, and between the last read and the interval assumed for a page untouched until then.
const STEP_OCTAVES: f32 = 2.0;
const UNTOUCHED_OCTAVES: f32 = 3.0;

/// Distance of read `no` from the clear.
pub(crate) const fn distance(no: usize) -> Ns {
    FIRST << (2 * no)
}

/// The outcome of a page first seen `elapsed` after the clear. Reads may come late, by up to half of their distance.
pub(crate) fn outcome_at(elapsed: Ns) -> usize {
    (0..READS).find(|no| elapsed <= distance(*no) / 2 * 3).unwrap_or(READS - 1)
}

/// Shares of pages by outcome. They add up to 1, or to 0 if nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mix([f32; OUTCOMES]);

impl Mix {
    /// The shares of these counts.
    pub fn of_counts(counts: [u32; OUTCOMES]) -> Mix {
        let all: u32 = counts.iter().sum();
        if all == 0 {
            return Mix::default();
        }
        Mix(counts.map(|n| n as f32 / all as f32))
    }

    /// The same mix, with pages seen only after the [`EARLY`] reads counted as untouched.
    pub fn early(mut self) -> Mix {
        for late in EARLY..READS {
            self.0[READS] += std::mem::take(&mut self.0[late]);
        }
        self
    }

    /// Whether anything is known.
    pub fn is_known(&self) -> bool {
        self.0.iter().any(|share| *share > 0.0)
    }

    /// How different two early mixes are: the mean number of octaves that a page has to change by to turn one into the
    /// other.
    pub fn unlike(&self, other: &Mix) -> f32 {
        let mut ahead = 0.0;
        let mut moved = 0.0;
        for no in 0..EARLY {
            ahead += self.0[no] - other.0[no];
            moved += f32::abs(ahead) * if no + 1 == EARLY { UNTOUCHED_OCTAVES } else { STEP_OCTAVES };
        }
        moved
    }

    /// Moves towards `other` by `weight` (0 to 1).
    pub fn blend(&mut self, other: &Mix, weight: f32) {
        if !self.is_known() {
            *self = *other;
        } else if other.is_known() {
            for (mine, theirs) in self.0.iter_mut().zip(other.0) {
                *mine += (theirs - *mine) * weight;
            }
        }
    }

    /// What became of the pages that the early reads did not see touched, as shares of those pages. Unknown if there
    /// were none.
    pub fn untouched(&self) -> Mix {
        let mut later = *self;
        later.0[..EARLY].fill(0.0);
        let all: f32 = later.0.iter().sum();
        if all > 0.0 { Mix(later.0.map(|share| share / all)) } else { Mix::default() }
    }

    /// An early mix by kind.
    pub fn kinds(&self) -> Kinds {
        let mut kinds = [0.0; KINDS];
        for (kind, share) in kinds.iter_mut().zip(self.0) {
            *kind = f64::from(share);
        }
        kinds.swap(READS, KINDS - 1);
        Kinds(kinds)
    }

    /// The share of pages touched before the last of the early reads.
    pub fn touched_early(&self) -> f64 {
        f64::from(self.0[..EARLY - 1].iter().sum::<f32>())
    }
}

/// An outcome, or untouched in checks of which only the early reads are known.
const KINDS: usize = OUTCOMES + 1;

/// Shares, or numbers of pages, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Kinds([f64; KINDS]);

impl Kinds {
    /// Adds `other`, `times` times.
    pub fn add(&mut self, other: &Kinds, times: f64) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs * times;
        }
    }

    /// An early mix. Its untouched pages are divided up as `later` says.
    #[must_use]
    pub fn with_untouched(mut self, later: &Mix) -> Kinds {
        if later.is_known() {
            let untouched = std::mem::take(&mut self.0[KINDS - 1]);
            for (kind, share) in self.0.iter_mut().zip(later.0).skip(EARLY) {
                *kind = untouched * f64::from(share);
            }
        }
        self
    }

    /// Adds `surplus`, `times` times. `surplus` has no kinds of untouched pages. Values below zero become zero. The sum
    /// stays the same.
    pub fn correct(&mut self, surplus: &Kinds, times: f64) {
        let all: f64 = self.0.iter().sum();
        let untouched: f64 = self.0[EARLY..].iter().sum();
        let wanted = (untouched + surplus.0[KINDS - 1] * times).max(0.0);
        for (kind, more) in self.0[..EARLY].iter_mut().zip(surplus.0) {
            *kind = (*kind + more * times).max(0.0);
        }
        for kind in &mut self.0[EARLY..] {
            *kind *= if untouched > 0.0 { wanted / untouched } else { 0.0 };
        }
        let now: f64 = self.0.iter().sum();
        if now > 0.0 {
            self.0 = self.0.map(|n| n * all / now);
        }
    }

    /// The number accessed within `ns` of a clear. Between two reads it is taken to grow evenly with time. Those of which
    /// only the early reads are known were not accessed within them.
    pub fn within(&self, ns: Ns) -> f64 {
        let reads = self.0.iter().take(READS).enumerate();
        let part = |(no, n): (usize, &f64)| {
            let from = if no == 0 { 0 } else { distance(no - 1) };
            n * (ns.saturating_sub(from) as f64 / (distance(no) - from) as f64).min(1.0)
        };
        reads.map(part).sum()
    }

    /// Interval, idle time and number of each kind. The interval of untouched pages is eight times the time for which
    /// they were monitored.
    pub fn intervals(&self) -> impl Iterator<Item = (Interval, Interval, f64)> {
        self.0.iter().enumerate().filter(|(_, n)| **n > 0.0).map(|(kind, n)| {
            let idle = Interval::from_ns(match kind {
                READS => distance(READS - 1),
                OUTCOMES => distance(EARLY - 1),
                seen => distance(seen),
            });
            (if kind >= READS { idle.extrapolated() } else { idle }, idle, *n)
        })
    }
}

/// An early mix with one byte a share, as stored for single huge ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares([u8; EARLY + 1]);

impl From<Mix> for Shares {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shares are 0 to 1")]
    fn from(mix: Mix) -> Shares {
        let mix = mix.early();
        Shares(std::array::from_fn(|no| (mix.0[if no == EARLY { READS } else { no }] * 255.0).round() as u8))
    }
}

impl From<Shares> for Mix {
    fn from(shares: Shares) -> Mix {
        let mut counts = [0; OUTCOMES];
        for (no, share) in shares.0.into_iter().enumerate() {
            counts[if no == EARLY { READS } else { no }] = u32::from(share);
        }
        Mix::of_counts(counts)
    }
}

/// A check in progress on one huge range.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub cleared_at: Ns,
    pub next_read: Ns,
    /// Reads done.
    pub reads: usize,
    /// Retouches expected of it. Reserved in the budget until it is decided.
    pub reserved: f64,
    /// If its huge range was drawn at random: how many huge ranges it stands for, and what its region was like then.
    pub weight: Option<(f64, Mix)>,
    /// Its huge range was cleared with the whole process: how many huge ranges of its kind it stands for.
    pub with_process: Option<f64>,
    /// Pages that the clear did not reach.
    unreached: Mask,
    /// Cleared and not seen since.
    waiting: Mask,
    /// Seen accessed, and not cleared by others since.
    touched: Mask,
    /// Present at the first read, including pages that no clear reached: nothing is known of the heat of those.
    present: Mask,
    huge: Option<bool>,
    seen: [u32; OUTCOMES],
}

/// What one read of a sampled huge range found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Units (pages, or the huge page) touched since the clear and not seen before.
    pub units: u32,
    /// Pages that an earlier read left with their accessed bit set.
    pub still_set: u32,
    /// Those of them whose bit somebody else had cleared.
    pub lost: u32,
}

/// Which clears reach the pages of a huge range, as far as a check has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// A clear of the huge range by itself.
    #[default]
    Itself,
    /// Not that one: it has left pages with their accessed bit set. Nothing is known of their heat, and the heat of the
    /// others is no fair sample.
    Stuck,
    /// The huge range was cleared with the whole process. True if pages were accessed since then: those are left again by
    /// a clear of the huge range.
    Process(bool),
}

impl Reach {
    /// Whether a clear of the huge range by itself leaves pages.
    pub fn is_stuck(self) -> bool {
        matches!(self, Reach::Stuck | Reach::Process(true))
    }
}

/// What a finished check found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finding {
    pub mix: Mix,
    /// Share of the huge range's pages that are present.
    pub resident: f32,
    /// It is one huge page. Its single bit shows little, so more tolerance is needed.
    pub huge: bool,
    pub reach: Reach,
}

impl Check {
    /// A check that begins with a clear at `now`. The clear did not reach the pages in `stuck`.
    pub fn new(now: Ns, stuck: Mask, reserved: f64) -> Check {
        Check {
            cleared_at: now,
            next_read: now + FIRST,
            reads: 0,
            reserved,
            weight: None,
            with_process: None,
            unreached: stuck,
            waiting: Mask::ALL & !stuck,
            touched: Mask::NONE,
            present: Mask::ALL,
            huge: None,
            seen: [0; OUTCOMES],
        }
    }

    /// Takes in a planned read. `None` if the huge range has changed its shape since the clear: the check is then useless.
    pub fn read(&mut self, now: Ns, bits: crate::PmdBits) -> Option<Seen> {
        let seen = self.read_between(now, bits)?;
        self.reads += 1;
        Some(seen)
    }

    /// Takes in a read that is none of the planned ones.
    pub fn read_between(&mut self, now: Ns, bits: crate::PmdBits) -> Option<Seen> {
        use crate::PmdBits;
        let (young, present, huge) = match bits {
            PmdBits::Pages { young, present } => (young, present, false),
            PmdBits::Huge { young } => (if young { Mask::ALL } else { Mask::NONE }, Mask::ALL, true),
            PmdBits::Gone => (Mask::NONE, Mask::NONE, false),
        };
        if self.huge.is_some_and(|was| was != huge) {
            return None;
        }
        if self.huge.is_none() {
            self.present = present;
        }
        self.huge = Some(huge);
        // Pages added since the clear were never cleared. Pages that are gone add nothing more.
        self.waiting = self.waiting & self.present & present;
        let still_set = self.touched & present;
        let lost = still_set & !young;
        let seen = young & self.waiting;
        self.waiting = self.waiting & !seen;
        self.touched = (still_set | seen) & !lost;
        self.seen[outcome_at(now.saturating_sub(self.cleared_at))] += seen.count();
        let units = if huge { seen.count().min(1) } else { seen.count() };
        Some(Seen { units, still_set: still_set.count(), lost: lost.count() })
    }

    /// Number of accessed bits that the clear reached, or could have reached.
    pub fn units(&self) -> u64 {
        let reached = (self.present & !self.unreached).count();
        u64::from(if self.huge == Some(true) { reached.min(1) } else { reached })
    }

    /// Notes that the whole process was cleared since the last read. What was seen is not seen again, but no other monitor
    /// has cleared it. Returns whether that says all that a new check would: no page was left to clear.
    pub fn process_cleared(&mut self) -> bool {
        let had_none = (self.unreached & self.present).is_empty() && self.touched.is_empty();
        self.touched = Mask::NONE;
        had_none
    }

    /// Whether the clear did not reach so many pages that the others do not show what the huge range is like.
    fn is_stuck(&self) -> bool {
        self.are_many((self.unreached & self.present).count())
    }

    fn are_many(&self, pages: u32) -> bool {
        pages > 0 && pages * MAX_UNREACHED >= self.present.count()
    }

    /// Whether further reads can add nothing.
    pub fn is_done(&self) -> bool {
        self.reads >= READS || (self.reads > 0 && (self.waiting.is_empty() || self.is_stuck()))
    }

    /// What it has found so far.
    pub fn finding(&self) -> Finding {
        let (resident, huge) = (self.present.count() as f32 / 512.0, self.huge == Some(true));
        if self.is_stuck() {
            return Finding { mix: Mix::default(), resident, huge, reach: Reach::Stuck };
        }
        let accessed = self.are_many(self.seen.iter().sum());
        let reach = if self.with_process.is_some() { Reach::Process(accessed) } else { Reach::Itself };
        let mut counts = self.seen;
        counts[READS] += self.waiting.count();
        Finding { mix: Mix::of_counts(counts), resident, huge, reach }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PmdBits;

    #[test]
    fn an_outcome_is_the_first_read_that_sees_it() {
        assert_eq!(
            [10, 14, 40, 160, 700, 2560, 10_240, 40_960, 400_000].map(|ms| outcome_at(ms * 1_000_000)),
            [0, 0, 1, 2, 3, 4, 5, 6, 6]
        );
        assert_eq!(distance(EARLY - 1), 2_560_000_000);
    }

    #[test]
    fn unlikeness_is_in_octaves_a_page() {
        let of = |counts: [u32; OUTCOMES]| Mix::of_counts(counts);
        let hot = of([512, 0, 0, 0, 0, 0, 0, 0]);
        let next = of([0, 512, 0, 0, 0, 0, 0, 0]);
        let cold = of([0, 0, 0, 0, 0, 0, 0, 512]);
        assert_eq!((hot.unlike(&hot), hot.unlike(&next), next.unlike(&hot)), (0.0, 2.0, 2.0));
        assert_eq!(hot.unlike(&cold), 4.0 * 2.0 + 3.0);
        let third = of([171, 0, 0, 0, 0, 0, 0, 341]);
        assert!((third.unlike(&cold) - 11.0 / 3.0).abs() < 0.02);
        let late = of([0, 0, 0, 0, 0, 512, 0, 0]);
        assert_eq!(late.early(), cold);
    }

    #[test]
    fn a_look_counts_pages_by_the_read_that_saw_them() {
        let pages = |r: std::ops::Range<usize>| r.collect::<Mask>();
        let mut check = Check::new(0, pages(0..12), 0.0);
        let present = pages(0..412);
        let read = |check: &mut Check, no: usize, young| {
            check.read(distance(no), PmdBits::Pages { young, present }).map(|seen| seen.units)
        };
        assert_eq!(read(&mut check, 0, pages(0..112)), Some(100), "what was not cleared is young all the time");
        assert_eq!(read(&mut check, 1, pages(0..212)), Some(100));
        assert!(!check.is_done());
        let found = check.finding();
        assert_eq!(found.resident, 412.0 / 512.0);
        assert_eq!(found.mix, Mix::of_counts([100, 100, 0, 0, 0, 0, 0, 200]));
        let mean: f64 = found.mix.early().kinds().intervals().map(|(i, _, share)| share * i.octaves().unwrap()).sum();
        let untouched = f64::from(2560_f32.log2()) + 3.0;
        assert!((mean - (10_f64.log2() + 40_f64.log2() + 2.0 * untouched) / 4.0).abs() < 0.1);
        assert_eq!(read(&mut check, 2, pages(0..412)), Some(200));
        assert!(check.is_done(), "all of it was seen");
        assert_eq!(check.read(distance(3), PmdBits::Huge { young: true }), None, "collapsed meanwhile");
    }

    #[test]
    fn a_look_notices_bits_that_somebody_else_has_cleared() {
        let mut check = Check::new(0, Mask::NONE, 0.0);
        let mut read = |no: usize, pages: std::ops::Range<usize>| {
            let seen = check.read(distance(no), PmdBits::Pages { young: pages.collect(), present: Mask::ALL }).unwrap();
            (seen.still_set, seen.lost)
        };
        assert_eq!([read(0, 0..100), read(1, 0..200), read(2, 50..200)], [(0, 0), (100, 0), (200, 50)]);
        assert_eq!(read(3, 0..200), (150, 0), "once");
    }

    #[test]
    fn what_regions_are_off_by_is_put_right() {
        let mix = Mix::of_counts([10, 0, 0, 0, 0, 0, 10, 20]);
        let kinds = mix.early().kinds().with_untouched(&mix.untouched());
        assert_eq!(kinds.0.map(|share| (share * 100.0).round()), [25.0, 0.0, 0.0, 0.0, 0.0, 0.0, 25.0, 50.0, 0.0]);
        let mut more = kinds;
        more.correct(&Kinds([0.25, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.25]), 1.0);
        assert!((more.0[0] - 0.5).abs() < 1e-6 && (more.0[7] - 1.0 / 3.0).abs() < 1e-6, "{more:?}");
        let mut less = kinds;
        less.correct(&Kinds([-1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]), 1.0);
        assert!(less.0[0] == 0.0 && (less.0.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{less:?}");
        let early = mix.early().kinds().with_untouched(&Mix::default());
        assert_eq!((early.0[READS], early.0[KINDS - 1]), (0.0, 0.75), "nothing later is known");
    }

    #[test]
    fn what_is_accessed_within_a_time_grows_evenly_between_two_reads() {
        const MS: Ns = 1_000_000;
        let counts = |at: usize, n: u32| {
            let mut counts = [0; OUTCOMES];
            (counts[0], counts[at], counts[READS]) = (100, n, 300 - n);
            Mix::of_counts(counts)
        };
        let of = |mix: &Mix| mix.early().kinds().with_untouched(&mix.untouched());
        let percent = |kinds: &Kinds, ns: Ns| (kinds.within(ns) * 400.0).round();
        // 100 of 400 by the read at 10 ms, 96 by that at 640 ms: 480 ms after the one at 160.
        let early = of(&counts(3, 96));
        let at = [0, 5, 10, 160, 400, 640, 2560, 41_000].map(|ms| percent(&early, ms * MS));
        assert_eq!(at, [0.0, 50.0, 100.0, 100.0, 148.0, 196.0, 196.0, 196.0]);
        // 200 by the read at 10.24 s, 7.68 s after the last of the early ones.
        let late = of(&counts(5, 200));
        assert_eq!([2560, 6400, 10_240, 41_000].map(|ms| percent(&late, ms * MS)), [100.0, 200.0, 300.0, 300.0]);
        let unknown = counts(5, 200).early().kinds();
        assert_eq!(percent(&unknown, 41_000 * MS), 100.0, "only the early reads are known");
    }

    #[test]
    fn a_huge_page_is_one_touch_and_a_hole_is_nothing() {
        let mut check = Check::new(0, Mask::NONE, 0.0);
        assert_eq!(check.read(FIRST, PmdBits::Huge { young: true }).map(|seen| seen.units), Some(1));
        assert_eq!(
            check.finding(),
            Finding {
                mix: Mix::of_counts([512, 0, 0, 0, 0, 0, 0, 0]),
                resident: 1.0,
                huge: true,
                reach: Reach::Itself
            }
        );
        let mut hole = Check::new(0, Mask::NONE, 0.0);
        assert_eq!(hole.read(FIRST, PmdBits::Gone), Some(Seen::default()));
        assert!(hole.is_done());
        assert_eq!((hole.finding().mix.is_known(), hole.finding().resident), (false, 0.0));
    }
}
