//! The survey: which huge ranges are checked first, and what is assumed of those in between.
//!
//! A first check takes 50 us of CPU and more than a second: that long a page has to be idle before it counts as idle. So
//! a large target cannot be known in its first seconds, but it can be *surveyed*: one huge range of each stretch is
//! checked first. Memory is used in spans, so where two neighbours of the survey are alike, what lies between them is
//! most probably like them ([`Survey::between`]); accessed ones only where the survey shows accessed memory to be in long
//! spans (`clustering`). Where they differ, there is an edge between them: the stretch is cut until the edge is found.
//! Everything else is checked afterwards, as the budgets allow. `target` owns the queue.
//!
//! What is assumed is never stored: it follows from what is known at the moment, and ends when a check has
//! shown what is true.

mod clustering;

use crate::Interval;
use crate::pmd::Ns;
use crate::pmd_map::PmdMap;
use clustering::Clustering;
use isotherm_units::PmdNo;
use std::iter::Peekable;

/// Huge ranges of a survey, at most. At 50 us they take 50 ms of CPU, and three times that on a busy guest.
const MOST: usize = 1024;
/// The shortest stretch: this many huge ranges are cleared in one piece.
pub(crate) const STRETCH: usize = 8;
/// In a large target, one in so many of the survey goes before the edges, the others after them.
const COARSE: usize = 4;
/// A stretch with an edge in it is cut into this many parts, until they are that short.
const CUTS: usize = 8;
/// Fewer accessed pages than this part of a huge range, or more than all but this part, count as none and as all.
const FEW: u32 = 16;
/// Pages accessed at intervals within this many octaves are alike.
const LIKE_OCTAVES: f64 = 2.5;

/// With more unchecked huge ranges than this, the survey has two parts, and all others wait for it: 4 GiB, which the credit of a small
/// budget covers.
const LARGE: usize = 2048;
/// Until the first check of a huge range of the survey, or at an edge, shows whether it is idle.
const SETTLES: Ns = 1_300_000_000;
/// In this time a first check shows all that it can, on a busy machine, too: what is assumed to be idle is read after 1,280 ms.
const SHOWS_ALL: Ns = 2_500_000_000;
/// The others wait no longer than this after the first of the survey.
const LONGEST_WAIT: Ns = 5_000_000_000;

/// In which order first checks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// It was checked before, and is mapped in another way now: collapsed, or split.
    Changed,
    /// A part of the survey.
    Survey,
    /// Near an edge; or it could not be cleared in its turn.
    Edge,
    /// The second part of the survey.
    Finer,
    /// Near a huge range with accessed and idle pages.
    Mixed,
    /// Anything else.
    Rest,
}

impl Rank {
    /// All of them, the most urgent first.
    pub const ALL: [Rank; 6] = [Rank::Changed, Rank::Survey, Rank::Edge, Rank::Finer, Rank::Mixed, Rank::Rest];
}

/// What the first check of a huge range has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sketch {
    /// Hardly any page was accessed.
    Idle,
    /// Nearly all pages were, at this interval on average.
    Active(Interval),
    /// Some were.
    Mixed,
    /// It is of the first part of the survey, or was cleared, and its check has not lasted long enough. Accessed pages are known at once
    /// and idle ones after a second, so without this, all memory between two hot spans would be taken for hot at first.
    Pending,
}

impl Sketch {
    /// From the pages present, how many of them were seen accessed, and the sum of their intervals in octaves.
    pub fn new(present: u32, accessed: u32, octaves: f64) -> Sketch {
        let few = present / FEW;
        if accessed <= few {
            Sketch::Idle
        } else if accessed >= present - few {
            Sketch::Active(Interval::from_octaves(octaves / f64::from(accessed)))
        } else {
            Sketch::Mixed
        }
    }

    /// Whether memory between the two is most probably like both.
    fn is_like(self, other: Sketch) -> bool {
        match (self, other) {
            (Sketch::Idle, Sketch::Idle) => true,
            (Sketch::Active(a), Sketch::Active(b)) => {
                a.octaves().zip(b.octaves()).is_some_and(|(a, b)| (a - b).abs() <= LIKE_OCTAVES)
            }
            _ => false,
        }
    }
}

/// The huge ranges of `fresh` (sorted) that are checked first: the first and the last, and one of each stretch, at a place
/// in it that `draw` chooses (a number below its argument). Sorted, each with the part of the survey to which it belongs.
pub(crate) fn choose(fresh: &[PmdNo], mut draw: impl FnMut(u64) -> u64) -> Vec<(PmdNo, Rank)> {
    let stretch = fresh.len().div_ceil(MOST).max(STRETCH);
    let mut chosen: Vec<PmdNo> = Vec::with_capacity(fresh.len() / stretch + 2);
    chosen.extend(fresh.first());
    for part in fresh.chunks(stretch) {
        let at = usize::try_from(draw(part.len() as u64)).unwrap_or(0);
        chosen.push(part[at]);
    }
    chosen.extend(fresh.last());
    chosen.dedup();
    let (last, has_parts) = (chosen.len().saturating_sub(1), fresh.len() > LARGE);
    let is_finer = |index: usize| has_parts && !index.is_multiple_of(COARSE) && index != last;
    let ranks = (0..).map(|index| if is_finer(index) { Rank::Finer } else { Rank::Survey });
    chosen.into_iter().zip(ranks).collect()
}

/// What is assumed of the huge ranges from one up to, and without, `until`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Between {
    /// They are like this one, which was checked; `None`: nothing is assumed.
    pub like: Option<PmdNo>,
    pub until: PmdNo,
}

/// What first checks have shown so far.
#[derive(Debug)]
pub(crate) struct Survey {
    known: PmdMap<Sketch>,
    clustering: Clustering,
    /// `None` before the survey of a large target begins.
    waits: Option<Waits>,
    /// When the last first check began of memory of which something was assumed.
    last_assumed: Option<Ns>,
    /// Everything was checked, and what is assumed holds until then. A little new memory does not move it: where it came all the time, the survey
    /// would never end.
    open_until: Option<Ns>,
}

/// Until when first checks wait that are neither of the first part of the survey nor at an edge.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// [`Rank::Finer`] and [`Rank::Mixed`].
    finer: Ns,
    /// [`Rank::Rest`].
    rest: Ns,
    /// All of them, at the latest.
    latest: Ns,
}

/// Huge ranges to check sooner than others, because of what was just found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sooner {
    /// Those between these two, without them.
    pub between: (PmdNo, PmdNo),
    pub rank: Rank,
}

impl Survey {
    /// Nothing is known yet.
    pub fn new() -> Survey {
        Survey {
            known: PmdMap::new(),
            clustering: Clustering::new(),
            waits: None,
            last_assumed: None,
            open_until: None,
        }
    }

    /// Adds a huge range of the survey: one of its first part whose check is to come, or one whose check has begun.
    pub fn add_point(&mut self, pmd: PmdNo) {
        self.clustering.expect(pmd);
    }

    /// A huge range of the survey cannot be checked.
    pub fn drop_point(&mut self, pmd: PmdNo) {
        self.clustering.forget(pmd);
    }

    /// Takes in the first check of `pmd`. Returns the stretches beside it that should be checked sooner than others.
    /// O(log n).
    pub fn note(&mut self, pmd: PmdNo, sketch: Sketch) -> [Option<Sooner>; 2] {
        self.known.insert(pmd, sketch);
        self.clustering.note(pmd, sketch);
        let left = self.known.last_before(pmd).map(|(at, other)| ((at, pmd), *other));
        let right = self.known.first_from(pmd.next()).map(|(at, other)| ((pmd, at), *other));
        [left, right].map(|side| {
            let (between, other) = side?;
            let rank = match (sketch, other) {
                (_, Sketch::Pending) => return None,
                (Sketch::Mixed, Sketch::Mixed) => Rank::Mixed,
                _ if sketch.is_like(other) => return None,
                _ => Rank::Edge,
            };
            (between.0.next() < between.1).then_some(Sooner { between, rank })
        })
    }

    /// Notes that a check of `pmd` is about to begin. Where something is assumed of it, that goes on until the check has shown what is true:
    /// otherwise a clear would take the estimate from it, and from all up to the next checked ones.
    pub fn expect(&mut self, pmd: PmdNo) {
        if !self.assumes(pmd) && self.known.get(pmd).is_none() {
            self.known.insert(pmd, Sketch::Pending);
        }
    }

    /// Notes that the first check of `pmd` has begun.
    pub fn note_first_begun(&mut self, now: Ns, pmd: PmdNo) {
        if self.assumes(pmd) {
            self.last_assumed = Some(now);
        } else {
            self.expect(pmd);
        }
    }

    /// Whether anything is assumed of `pmd`. O(log n).
    fn assumes(&self, pmd: PmdNo) -> bool {
        self.between(pmd).like.is_some()
    }

    /// Notes that a huge range of this rank is about to be cleared, one of so many unchecked ones.
    pub fn begin(&mut self, now: Ns, rank: Rank, unchecked: usize) {
        if self.waits.is_none() && rank == Rank::Survey && unchecked > LARGE {
            self.waits = Some(Waits { finer: now, rest: now, latest: now + LONGEST_WAIT });
        }
        let Some(Waits { finer, rest, latest }) = &mut self.waits else { return };
        let settled = now.saturating_add(SETTLES).min(*latest);
        match rank {
            Rank::Survey | Rank::Edge => (*finer, *rest) = (settled, settled),
            Rank::Finer => *rest = settled,
            _ => {}
        }
    }

    /// Whether the target is a large one, whose survey has not ended.
    pub fn is_large(&self) -> bool {
        self.waits.is_some()
    }

    /// Whether a huge range of this rank waits for the survey. What the survey shows to be idle needs two reads instead of eight,
    /// and edges need the budget first.
    pub fn defers(&self, now: Ns, rank: Rank) -> bool {
        self.waits.is_some_and(|Waits { finer, rest, .. }| match rank {
            Rank::Changed | Rank::Survey | Rank::Edge => false,
            Rank::Finer | Rank::Mixed => now < finer,
            Rank::Rest => now < rest,
        })
    }

    /// Whether the first check of `pmd` is done.
    pub fn knows(&self, pmd: PmdNo) -> bool {
        self.known.get(pmd).is_some_and(|sketch| *sketch != Sketch::Pending)
    }

    /// Whether `pmd`, whose check has not begun, is assumed to be idle. O(log n).
    pub fn assumes_idle(&self, pmd: PmdNo) -> bool {
        self.between(pmd).like.is_some_and(|like| self.known.get(like) == Some(&Sketch::Idle))
    }

    /// Whether what is assumed holds at `now` although everything was checked: the last checks may not have shown what is true.
    pub fn is_held_open(&self, now: Ns) -> bool {
        self.held_until().is_some_and(|until| now < until)
    }

    fn held_until(&self) -> Option<Ns> {
        self.open_until.or(self.last_assumed.map(|at| at + SHOWS_ALL))
    }

    /// Takes in that everything was checked. Ends it, unless what is assumed has to hold for a while.
    pub fn close(&mut self, now: Ns) {
        if self.known.is_empty() && self.waits.is_none() && self.open_until.is_none() {
            return;
        }
        if self.is_held_open(now) {
            self.open_until = self.held_until();
        } else {
            *self = Survey::new();
        }
    }

    /// Much memory has come. If everything was checked before, that has a survey of its own, beside what is known of the rest.
    pub fn begin_anew(&mut self) {
        if self.open_until.is_some() {
            (self.waits, self.last_assumed, self.open_until) = (None, None, None);
        }
    }

    /// Forgets a huge range.
    pub fn forget(&mut self, pmd: PmdNo) {
        self.known.remove(pmd);
        self.clustering.forget(pmd);
    }

    /// What is assumed of `pmd`. If its check has not begun: it is like the nearest checked huge range, if those on both sides are
    /// alike, and idle or in a target whose accessed memory is in long spans. O(log n): who goes through all has [`Survey::gaps`].
    pub fn between(&self, pmd: PmdNo) -> Between {
        self.gaps(pmd).at(pmd)
    }

    /// The same for huge ranges from `first` on, in order. O(1) for each of them.
    pub fn gaps(&self, first: PmdNo) -> Gaps<'_, impl Iterator<Item = (PmdNo, &Sketch)>> {
        Gaps {
            left: self.known.last_before(first),
            from: self.known.range(first..PmdNo(u64::MAX)).peekable(),
            fills_accessed: self.clustering.fills_gaps(),
        }
    }
}

/// Goes through what lies between checked huge ranges.
pub(crate) struct Gaps<'a, I: Iterator<Item = (PmdNo, &'a Sketch)>> {
    /// The last checked one so far.
    left: Option<(PmdNo, &'a Sketch)>,
    /// Those from there on.
    from: Peekable<I>,
    /// Whether what lies between two accessed ones is estimated to be like them.
    fills_accessed: bool,
}

impl<'a, I: Iterator<Item = (PmdNo, &'a Sketch)>> Gaps<'a, I> {
    /// What is assumed of `pmd` and of those after it. It is not before the one that was asked for last.
    pub fn at(&mut self, pmd: PmdNo) -> Between {
        while let Some(known) = self.from.next_if(|(known, _)| *known < pmd) {
            self.left = Some(known);
        }
        let Some((right, b)) = self.from.peek().copied() else {
            return Between { like: None, until: PmdNo(u64::MAX) };
        };
        match self.left {
            _ if right == pmd => Between { like: None, until: pmd.next() },
            Some((left, a)) if a.is_like(*b) && (*a == Sketch::Idle || self.fills_accessed) => {
                let middle = PmdNo(left.0.midpoint(right.0));
                match pmd <= middle {
                    true => Between { like: Some(left), until: middle.next() },
                    false => Between { like: Some(right), until: right },
                }
            }
            _ => Between { like: None, until: right },
        }
    }
}

/// Those of `stretch` to check so that an edge in it is found: all, if it is short; otherwise some at equal distances.
pub(crate) fn cut(stretch: &[PmdNo]) -> impl Iterator<Item = PmdNo> {
    let step = if stretch.len() < 2 * CUTS { 1 } else { stretch.len().div_ceil(CUTS) };
    stretch.iter().copied().skip(step / 2).step_by(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn pmds(numbers: impl IntoIterator<Item = u64>) -> Vec<PmdNo> {
        numbers.into_iter().map(PmdNo).collect()
    }

    fn active(ms: u64) -> Sketch {
        Sketch::Active(Interval::from_ns(ms * 1_000_000))
    }

    /// Of a target whose accessed memory is in long spans: a survey elsewhere has shown so.
    fn of_long_spans() -> Survey {
        let mut survey = Survey::new();
        for pmd in (0..8).map(|n| PmdNo(100_000 + 8 * n)) {
            survey.clustering.expect(pmd);
            survey.clustering.note(pmd, active(50));
        }
        survey
    }

    #[test]
    fn a_survey_has_one_of_each_stretch_and_both_ends() {
        let mut rng = Rng::new(3);
        for len in [0_u64, 1, 2, 8, 9, 64, 7168, 1 << 19] {
            let fresh = pmds((0..len).map(|n| 3 * n));
            let ranked = choose(&fresh, |n| rng.below(n));
            let chosen: Vec<PmdNo> = ranked.iter().map(|(pmd, _)| *pmd).collect();
            assert!(chosen.is_sorted_by(|a, b| a < b) && chosen.iter().all(|p| p.0 % 3 == 0));
            assert_eq!((chosen.first(), chosen.last()), (fresh.first(), fresh.last()));
            let stretch = len.div_ceil(1024).max(8);
            assert!(chosen.len() as u64 <= len.div_ceil(stretch) + 2, "{len}: {}", chosen.len());
            // One of each stretch, so that two neighbours are less than two stretches apart.
            assert!(chosen.windows(2).all(|two| two[1].0 - two[0].0 < 6 * stretch), "{len}");
            // Of a large target, a quarter of them first, and both ends are among them.
            let coarse: Vec<PmdNo> =
                ranked.iter().filter(|(_, rank)| *rank == Rank::Survey).map(|(pmd, _)| *pmd).collect();
            let expected = if len > LARGE as u64 { (chosen.len() - 1).div_ceil(COARSE) + 1 } else { chosen.len() };
            assert_eq!(coarse.len(), expected, "{len}");
            assert_eq!((coarse.first(), coarse.last()), (fresh.first(), fresh.last()));
            assert!(coarse.windows(2).all(|two| two[1].0 - two[0].0 < 3 * 5 * stretch), "{len}");
        }
    }

    #[test]
    fn a_huge_range_is_idle_active_or_mixed() {
        let hot = Interval::from_ns(64_000_000);
        let of = |accessed| Sketch::new(512, accessed, f64::from(accessed) * hot.octaves().unwrap());
        assert_eq!([of(0), of(32)], [Sketch::Idle, Sketch::Idle]);
        assert_eq!([of(33), of(479)], [Sketch::Mixed, Sketch::Mixed]);
        assert_eq!([of(480), of(512)], [Sketch::Active(hot), Sketch::Active(hot)]);
        assert_eq!((Sketch::new(0, 0, 0.0), Sketch::new(1, 1, 6.0)), (Sketch::Idle, Sketch::Active(hot)));
    }

    #[test]
    fn what_lies_between_two_that_are_alike_is_like_the_nearer_one() {
        let mut survey = of_long_spans();
        assert_eq!(survey.note(PmdNo(10), Sketch::Idle), [None, None]);
        assert_eq!(survey.note(PmdNo(20), Sketch::Idle), [None, None]);
        assert_eq!([14, 15, 16].map(|n| survey.between(PmdNo(n)).like), [10, 10, 20].map(|n| Some(PmdNo(n))));
        assert!(survey.assumes_idle(PmdNo(14)) && !survey.assumes_idle(PmdNo(9)));
        assert_eq!([9, 21].map(|n| survey.between(PmdNo(n)).like), [None, None], "beyond the last nothing is assumed");
        let edge = Sooner { between: (PmdNo(20), PmdNo(30)), rank: Rank::Edge };
        assert_eq!(survey.note(PmdNo(30), active(100)), [Some(edge), None]);
        assert_eq!(survey.between(PmdNo(25)).like, None);
        assert_eq!(survey.note(PmdNo(40), active(400)), [None, None], "two octaves apart");
        assert_eq!((survey.between(PmdNo(35)).like, survey.assumes_idle(PmdNo(35))), (Some(PmdNo(30)), false));
        assert_eq!(survey.note(PmdNo(50), active(1)), [Some(Sooner { between: (PmdNo(40), PmdNo(50)), ..edge }), None]);
        assert_eq!(survey.note(PmdNo(51), Sketch::Idle), [None, None], "an edge with nothing in between");
        survey.forget(PmdNo(20));
        assert_eq!((survey.knows(PmdNo(20)), survey.between(PmdNo(15)).like), (false, None));
    }

    #[test]
    fn between_accessed_memory_nothing_is_assumed_where_spans_are_short() {
        let mut survey = Survey::new();
        let kinds = [active(50), active(50), Sketch::Idle, active(50), Sketch::Idle, Sketch::Idle];
        for (sketch, pmd) in kinds.into_iter().zip((0..).map(|n| PmdNo(10 * n))) {
            survey.add_point(pmd);
            survey.note(pmd, sketch);
        }
        assert_eq!([5, 45].map(|n| survey.between(PmdNo(n)).like), [None, Some(PmdNo(40))]);
        let more = || (6..60).map(|n| PmdNo(10 * n));
        more().for_each(|pmd| survey.add_point(pmd));
        more().for_each(|pmd| assert_eq!(survey.note(pmd, active(50))[1], None));
        assert_eq!(survey.between(PmdNo(5)).like, Some(PmdNo(0)), "most neighbours are accessed");
        more().for_each(|pmd| survey.drop_point(pmd));
        assert_eq!(survey.between(PmdNo(5)).like, None);
    }

    #[test]
    fn one_answer_holds_for_all_up_to_the_next() {
        let mut rng = Rng::new(9);
        let mut survey = of_long_spans();
        for _ in 0..60 {
            let sketch =
                [Sketch::Idle, active(50), Sketch::Mixed, Sketch::Pending][usize::try_from(rng.below(4)).unwrap()];
            survey.note(PmdNo(rng.below(300)), sketch);
            let mut last = survey.between(PmdNo(0));
            for pmd in (1..400).map(PmdNo) {
                let this = survey.between(pmd);
                assert!(pmd == last.until || pmd < last.until && this == last, "{pmd:?}: {this:?} after {last:?}");
                last = this;
            }
            // Going along says the same, also where some are passed over.
            let mut gaps = survey.gaps(PmdNo(0));
            let mut pmd = PmdNo(rng.below(3));
            while pmd.0 < 400 {
                assert_eq!(gaps.at(pmd), survey.between(pmd), "{pmd:?}");
                pmd.0 += rng.below(40) * rng.below(2) + 1;
            }
        }
    }

    #[test]
    fn nothing_is_assumed_beyond_what_is_being_checked() {
        let mut survey = of_long_spans();
        survey.expect(PmdNo(20));
        assert_eq!((survey.note(PmdNo(10), active(50)), survey.note(PmdNo(30), active(50))), ([None; 2], [None; 2]));
        assert_eq!([11, 20, 29].map(|n| survey.between(PmdNo(n)).like), [None; 3]);
        assert!(!survey.knows(PmdNo(20)) && survey.knows(PmdNo(10)));
        let sides = survey.note(PmdNo(20), Sketch::Idle).map(|side| side.map(|s| s.between));
        assert_eq!(sides, [Some((PmdNo(10), PmdNo(20))), Some((PmdNo(20), PmdNo(30)))]);
        survey.expect(PmdNo(20));
        assert!(survey.knows(PmdNo(20)), "what is known stays known");
    }

    #[test]
    fn what_is_assumed_holds_until_the_check_has_shown_what_is_true() {
        let mut survey = of_long_spans();
        survey.note(PmdNo(10), active(50));
        survey.note(PmdNo(30), active(50));
        survey.expect(PmdNo(20));
        assert_eq!([11, 20, 29].map(|n| survey.between(PmdNo(n)).like), [10, 10, 30].map(|n| Some(PmdNo(n))));
        assert!(!survey.knows(PmdNo(20)));
        survey.note(PmdNo(20), Sketch::Idle);
        assert_eq!([11, 20, 29].map(|n| survey.between(PmdNo(n)).like), [None; 3]);
        survey.expect(PmdNo(15));
        survey.note(PmdNo(20), active(50));
        assert_eq!([14, 15, 16].map(|n| survey.between(PmdNo(n)).like), [None; 3], "nothing was assumed when it began");
    }

    #[test]
    fn the_rest_of_a_large_target_waits_for_the_survey_and_for_edges_and_not_for_ever() {
        const MS: Ns = 1_000_000;
        let mut survey = Survey::new();
        survey.begin(0, Rank::Survey, LARGE);
        assert!(!survey.defers(0, Rank::Rest), "a small one is checked at once");
        survey.begin(0, Rank::Survey, LARGE + 1);
        survey.begin(30 * MS, Rank::Survey, LARGE);
        assert_eq!([0, 1329, 1330].map(|ms| survey.defers(ms * MS, Rank::Rest)), [true, true, false]);
        assert_eq!(Rank::ALL.map(|rank| survey.defers(0, rank)), [false, false, false, true, true, true]);
        survey.begin(1400 * MS, Rank::Edge, LARGE);
        survey.begin(1500 * MS, Rank::Rest, LARGE);
        assert_eq!([2699, 2700].map(|ms| survey.defers(ms * MS, Rank::Rest)), [true, false]);
        // As of a target that grows all the time.
        (0..100).for_each(|n| survey.begin(100 * n * MS, Rank::Survey, 2 * LARGE));
        assert_eq!([4999, 5000].map(|ms| survey.defers(ms * MS, Rank::Rest)), [true, false]);
    }

    #[test]
    fn the_second_part_holds_up_only_the_rest_and_a_target_that_grows_later_has_a_survey_too() {
        const MS: Ns = 1_000_000;
        let mut survey = Survey::new();
        survey.begin(0, Rank::Survey, LARGE + 1);
        survey.begin(1300 * MS, Rank::Finer, LARGE);
        let waits = |survey: &Survey, ms| [Rank::Finer, Rank::Mixed, Rank::Rest].map(|r| survey.defers(ms * MS, r));
        assert_eq!(waits(&survey, 1300), [false, false, true], "what it shows at edges has the budget first");
        assert_eq!(waits(&survey, 2600), [false; 3]);
        survey.close(2600 * MS);
        let later = 60_000;
        survey.begin(later * MS, Rank::Survey, LARGE + 1);
        assert_eq!((waits(&survey, later), waits(&survey, later + 1300)), ([true; 3], [false; 3]));
    }

    #[test]
    fn what_is_assumed_holds_for_a_while_after_the_last_first_check_and_not_for_ever() {
        const S: Ns = 1_000_000_000;
        let idle = || {
            let mut survey = Survey::new();
            for pmd in [10, 20] {
                survey.note(PmdNo(pmd), Sketch::Idle);
            }
            survey
        };
        let mut survey = idle();
        survey.note_first_begun(S, PmdNo(15));
        survey.close(S);
        let is_held_open =
            |survey: &Survey, at: &[Ns]| at.iter().map(|at| survey.is_held_open(*at)).collect::<Vec<_>>();
        assert_eq!(is_held_open(&survey, &[S, S + SHOWS_ALL - 1, S + SHOWS_ALL]), [true, true, false]);
        // Memory that comes meanwhile neither ends it nor makes it longer.
        survey.note_first_begun(2 * S, PmdNo(16));
        survey.close(2 * S);
        assert_eq!(is_held_open(&survey, &[2 * S, S + SHOWS_ALL]), [true, false]);
        survey.close(S + SHOWS_ALL);
        assert!(survey.known.is_empty() && survey.open_until.is_none());
        // Much memory comes meanwhile: its last checks, too, have time to show what is true.
        let mut survey = idle();
        survey.begin(0, Rank::Survey, LARGE + 1);
        survey.note_first_begun(S, PmdNo(15));
        survey.close(S);
        survey.begin_anew();
        survey.begin(2 * S, Rank::Survey, LARGE + 1);
        assert!(survey.defers(2 * S, Rank::Rest), "as at the start");
        survey.note_first_begun(7 * S, PmdNo(16));
        survey.close(7 * S);
        assert_eq!(is_held_open(&survey, &[7 * S, 7 * S + SHOWS_ALL]), [true, false]);
        // The last ones that wait are given back, and not checked.
        let mut survey = idle();
        survey.note_first_begun(S, PmdNo(15));
        assert_eq!(is_held_open(&survey, &[S, S + SHOWS_ALL]), [true, false]);
        // Nothing was assumed of what was checked last: it ends at once.
        let mut survey = idle();
        survey.note_first_begun(S, PmdNo(30));
        survey.close(S);
        assert!(survey.known.is_empty() && !survey.is_held_open(S));
    }

    #[test]
    fn mixed_memory_is_checked_and_nothing_is_assumed_of_it() {
        let mut survey = Survey::new();
        survey.note(PmdNo(0), Sketch::Mixed);
        let [left, right] = survey.note(PmdNo(9), Sketch::Mixed);
        assert_eq!((left.map(|s| s.rank), right), (Some(Rank::Mixed), None));
        assert_eq!(survey.between(PmdNo(4)).like, None);
        assert_eq!(survey.note(PmdNo(20), Sketch::Idle)[0].map(|s| s.rank), Some(Rank::Edge));
    }

    /// Whatever the length, an edge is found in a few rounds, each of a few checks.
    #[test]
    fn an_edge_is_found_in_a_few_cuts() {
        for (len, rounds) in [(7_u64, 1), (15, 1), (64, 2), (500, 3)] {
            for edge in 0..=len {
                let mut stretch = pmds(0..len);
                let mut checks = 0;
                for round in 0.. {
                    assert!(round < rounds, "{len}: {stretch:?} left");
                    let checked: Vec<_> = cut(&stretch).collect();
                    checks += checked.len();
                    let left = checked.iter().rev().find(|p| p.0 < edge).map_or(0, |p| p.0 + 1);
                    let right = checked.iter().find(|p| p.0 >= edge).map_or(len, |p| p.0);
                    stretch.retain(|p| p.0 >= left && p.0 < right && !checked.contains(p));
                    if stretch.is_empty() {
                        break;
                    }
                }
                assert!(checks <= 15 + 9 * rounds, "{len}: {checks}");
            }
        }
    }
}
