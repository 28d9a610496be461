//! What is known of one sampled region: the mix of its pages, and where it was checked.

use super::mix::{Finding, Kinds, Mix, Reach, Shares};
use crate::Ns;
use isotherm_units::PmdNo;

/// Checked huge ranges remembered for a region.
const MARKS: usize = 6;
/// Number of checks that a region's mix is averaged over. Further checks are blended in as if there had been this many.
const MEMORY: u16 = 8;
/// A huge range does not belong to a region if its mix differs by more than this many octaves a page.
const TOLERANCE: f32 = 1.5;
/// A huge page has one bit. If it is touched now and then, its residual scatters by this much more.
const HUGE_TOLERANCE: f32 = 3.0;
/// If checks are stuck in one place and not in the other, or in so many more of ten, these are no one region.
const REACH_TOLERANCE: f32 = 0.75;
/// A region is cleared with the process if more than this share of its checks was stuck. In others the few stuck ones do not
/// count.
const STUCK: f32 = 0.25;
/// How long heat is kept of memory that has become stuck: longer than from one clear of the process to the next.
const KEPT_FOR: Ns = 180_000_000_000;
/// Octaves a page between a region that is known and a stuck one that is not: joined, it would seem to be known.
const UNMEASURED: f32 = 16.0;
/// Where checks scatter by themselves (hot and cold huge ranges mixed), this many times the usual scatter is tolerated.
const SCATTER: f32 = 2.0;

/// A huge range that was checked and found to belong to its region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub pmd: PmdNo,
    pub at: Ns,
    /// What was found there.
    pub mix: Shares,
}

/// Up to six checked huge ranges of a region, in order: the first and the last of all, and some between.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    marks: [Mark; MARKS],
    len: u8,
}

impl Marks {
    pub fn as_slice(&self) -> &[Mark] {
        &self.marks[..usize::from(self.len)]
    }

    pub fn first(&self) -> Option<Mark> {
        self.as_slice().first().copied()
    }

    pub fn last(&self) -> Option<Mark> {
        self.as_slice().last().copied()
    }

    /// The nearest marks below and above `pmd`.
    pub fn around(&self, pmd: PmdNo) -> (Option<Mark>, Option<Mark>) {
        let below = self.as_slice().iter().rev().find(|m| m.pmd < pmd);
        let above = self.as_slice().iter().find(|m| m.pmd > pmd);
        (below.copied(), above.copied())
    }

    pub fn forget(&mut self, pmd: PmdNo) {
        self.retain(|m| m.pmd != pmd);
    }

    /// Keeps only marks in `start..end`.
    pub fn clip(&mut self, start: PmdNo, end: PmdNo) {
        self.retain(|m| start <= m.pmd && m.pmd < end);
    }

    fn retain(&mut self, keep: impl Fn(&Mark) -> bool) {
        let kept: Marks = self.as_slice().iter().copied().filter(keep).collect();
        *self = kept;
    }

    pub fn add(&mut self, mark: Mark) {
        self.forget(mark.pmd);
        let mut all = [Mark::default(); MARKS + 1];
        let len = self.as_slice().len();
        all[..len].copy_from_slice(self.as_slice());
        all[len] = mark;
        let all = &mut all[..=len];
        all.sort_unstable_by_key(|m| m.pmd);
        *self = thinned(all).collect();
    }

    pub fn join(&mut self, other: &Marks) {
        for mark in other.as_slice() {
            self.add(*mark);
        }
    }
}

impl FromIterator<Mark> for Marks {
    fn from_iter<T: IntoIterator<Item = Mark>>(all: T) -> Marks {
        let mut marks = Marks::default();
        for mark in all.into_iter().take(MARKS) {
            marks.marks[usize::from(marks.len)] = mark;
            marks.len += 1;
        }
        marks
    }
}

/// `all`, which is at most one too many. If so, drops the mark missed least: the one between the first and the last
/// with the least room around it.
fn thinned(all: &[Mark]) -> impl Iterator<Item = Mark> {
    let room = |no: &usize| all[no + 1].pmd.0 - all[no - 1].pmd.0;
    let left_out = if all.len() > MARKS { (1..all.len() - 1).min_by_key(room) } else { None };
    all.iter().enumerate().filter(move |(no, _)| Some(*no) != left_out).map(|(_, mark)| *mark)
}

/// What is known of a region.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece {
    /// The huge range after its last.
    pub end: PmdNo,
    pub marks: Marks,
    /// By the reads that decide where regions end.
    pub early: Mix,
    /// What became of the untouched pages, from complete checks.
    pub late: Mix,
    /// Share of pages present, and share on huge pages.
    pub resident: f32,
    pub huge: f32,
    /// Mean difference between its mix and the checks of it.
    scatter: f32,
    checks: u16,
    /// The share of its checks that were stuck.
    stuck: f32,
    /// When a clear of one of its huge ranges by itself was last found to leave pages, and the last huge range that had such pages.
    stuck_at: Ns,
    stuck_pmd: Option<PmdNo>,
    /// Its heat is that of before it became stuck, at this time.
    kept_since: Option<Ns>,
}

impl Piece {
    pub fn new(end: PmdNo) -> Piece {
        Piece { end, ..Piece::default() }
    }

    /// A region in the place of a part of this one, up to `end`, in which a check at `now` was stuck. A fork makes memory
    /// stuck and changes nothing else, so heat that many checks have shown is kept for some time.
    pub fn became_stuck(&self, end: PmdNo, now: Ns) -> Piece {
        let mut part = Piece::new(end);
        if self.checks >= MEMORY && self.early.is_known() {
            (part.early, part.late, part.scatter, part.kept_since) = (self.early, self.late, self.scatter, Some(now));
        }
        part
    }

    /// Whether it was checked.
    pub fn is_known(&self) -> bool {
        self.checks > 0
    }

    /// Its heat by all that is known. `None` if nothing is.
    pub fn kinds(&self) -> Option<Kinds> {
        self.early.is_known().then(|| self.early.kinds().with_untouched(&self.late))
    }

    /// Whether clears of its huge ranges by themselves leave pages, so that it waits for clears of the whole process.
    pub fn is_stuck(&self) -> bool {
        self.stuck > STUCK
    }

    /// When a clear of one of its huge ranges by itself was last found to leave pages.
    pub fn stuck_at(&self) -> Ns {
        self.stuck_at
    }

    /// A huge range in it that was stuck, if one is known.
    pub fn stuck_pmd(&self) -> Option<PmdNo> {
        self.stuck_pmd
    }

    /// Whether what was found in a huge range fits the region.
    pub fn agrees(&self, found: &Finding) -> bool {
        self.is_reached_as(found) && self.is_as_hot_as(found)
    }

    fn is_reached_as(&self, found: &Finding) -> bool {
        match found.reach {
            // It was not tried.
            Reach::Process(_) => true,
            // Nothing there, or nothing that can ever be cleared.
            Reach::Itself if !found.mix.is_known() => true,
            reach => !self.is_known() || (self.stuck - share_of(reach)).abs() <= REACH_TOLERANCE,
        }
    }

    fn is_as_hot_as(&self, found: &Finding) -> bool {
        // Nothing there, or nothing that could be cleared: that is no difference in heat.
        if !self.early.is_known() || !found.mix.is_known() {
            return true;
        }
        let least = if found.huge { HUGE_TOLERANCE } else { TOLERANCE };
        self.early.unlike(&found.mix.early()) <= least.max(SCATTER * self.scatter)
    }

    /// Takes in a check of one of its huge ranges.
    pub fn learn(&mut self, mark: Mark, found: &Finding) {
        let weight = 1.0 / f32::from(self.checks.min(MEMORY) + 1);
        self.learn_reach(&mark, found, weight);
        if self.early.is_known() && found.mix.is_known() {
            let unlike = self.early.unlike(&found.mix.early());
            self.scatter += (unlike - self.scatter) * weight;
        }
        self.early.blend(&found.mix.early(), weight);
        self.resident += (found.resident - self.resident) * weight;
        self.huge += (f32::from(u8::from(found.huge)) - self.huge) * weight;
        self.checks = self.checks.saturating_add(1);
        self.marks.add(mark);
    }

    fn learn_reach(&mut self, mark: &Mark, found: &Finding, weight: f32) {
        let is_first_heat = found.mix.is_known() && !self.early.is_known();
        if is_first_heat && self.is_stuck() {
            // They show no heat, and would hide where it differs.
            self.marks = Marks::default();
        }
        if found.mix.is_known() {
            self.kept_since = None;
        }
        if found.mix.is_known() || found.reach.is_stuck() {
            let weight = if is_first_heat { 1.0 } else { weight };
            self.stuck += (share_of(found.reach) - self.stuck) * weight;
        }
        match found.reach {
            Reach::Stuck => {
                (self.stuck_at, self.stuck_pmd) = (mark.at, Some(mark.pmd));
                if self.kept_since.is_some_and(|since| mark.at >= since + KEPT_FOR) {
                    (self.early, self.late, self.kept_since) = (Mix::default(), Mix::default(), None);
                }
            }
            Reach::Process(true) => self.stuck_pmd = self.stuck_pmd.or(Some(mark.pmd)),
            Reach::Itself | Reach::Process(false) => {}
        }
    }

    /// Takes in the late reads of a check.
    pub fn learn_late(&mut self, found: &Finding) {
        self.late.blend(&found.mix.untouched(), 1.0 / f32::from(self.checks.clamp(1, MEMORY)));
    }

    /// How different two regions are, in octaves a page. The maximum if only one of them is known.
    pub fn unlike(&self, other: &Piece) -> f32 {
        let by_reach = if self.is_known() && other.is_known() { self.reached_unlike(other) * TOLERANCE } else { 0.0 };
        self.hot_unlike(other).max(by_reach)
    }

    fn reached_unlike(&self, other: &Piece) -> f32 {
        (self.stuck - other.stuck).abs()
    }

    fn hot_unlike(&self, other: &Piece) -> f32 {
        let is_unmeasured = |piece: &Piece| piece.is_stuck() && !piece.early.is_known();
        match (self.is_known(), other.is_known()) {
            (true, true) if self.early.is_known() && other.early.is_known() => self.early.unlike(&other.early),
            (true, true) if is_unmeasured(self) != is_unmeasured(other) => UNMEASURED,
            (true, true) => {
                // One of them is a hole, or cannot be cleared.
                if self.early.is_known() == other.early.is_known() { 0.0 } else { TOLERANCE }
            }
            (false, false) => 0.0,
            _ => 64.0,
        }
    }

    /// Whether they could be one region.
    pub fn is_like(&self, other: &Piece) -> bool {
        // A mean over several checks is more certain than one check.
        let tolerated = (TOLERANCE / 2.0).max(self.scatter.max(other.scatter) / 2.0);
        self.hot_unlike(other) <= tolerated && self.reached_unlike(other) <= REACH_TOLERANCE
    }

    /// Joins `other`, the region after it. Lengths are in huge ranges.
    pub fn join(&mut self, other: &Piece, my_pmds: u64, its_pmds: u64) {
        let weight = its_pmds as f32 / (my_pmds + its_pmds) as f32;
        let apart = if self.is_known() && other.is_known() {
            self.hot_unlike(other) * weight * (1.0 - weight) * 2.0
        } else {
            0.0
        };
        self.scatter += (other.scatter - self.scatter) * weight + apart;
        self.early.blend(&other.early, weight);
        self.late.blend(&other.late, weight);
        self.resident += (other.resident - self.resident) * weight;
        self.huge += (other.huge - self.huge) * weight;
        self.stuck += (other.stuck - self.stuck) * weight;
        self.stuck_at = self.stuck_at.max(other.stuck_at);
        self.stuck_pmd = self.stuck_pmd.or(other.stuck_pmd);
        self.kept_since = self.kept_since.max(other.kept_since);
        self.checks = self.checks.saturating_add(other.checks).min(MEMORY);
        self.marks.join(&other.marks);
        self.end = other.end;
    }

    /// Where the region should be cut, if its marks show two parts of one kind each. Regions get mixed when there are
    /// too many, or when what they hold changes. Where hot and cold huge ranges alternate, there is no such place.
    pub fn seam(&self) -> Option<PmdNo> {
        if self.scatter < TOLERANCE / 2.0 {
            return None;
        }
        let marks = self.marks.as_slice();
        let is_seam = |no: &usize| {
            let (left, right) = marks.split_at(*no);
            let (left, right) = (mean(left), mean(right));
            let is_like = |marks: &[Mark], mean: &Mix| marks.iter().all(|m| mean.unlike(&m.mix.into()) <= TOLERANCE);
            left.unlike(&right) > TOLERANCE && is_like(&marks[..*no], &left) && is_like(&marks[*no..], &right)
        };
        let no = (2..marks.len().saturating_sub(1)).find(is_seam)?;
        Some(middle(marks[no - 1].pmd, marks[no].pmd))
    }

    /// The part of it in `start..end`, by its marks there only. Nothing else is carried over.
    pub fn part_by_marks(&self, start: PmdNo, end: PmdNo) -> Piece {
        let mut part = self.part(start, end);
        (part.early, part.late, part.scatter) = (mean(part.marks.as_slice()), Mix::default(), 0.0);
        part.checks = part.marks.as_slice().len().try_into().unwrap_or(MEMORY);
        part
    }

    /// The part of it in `start..end`, with everything that is known.
    pub fn part(&self, start: PmdNo, end: PmdNo) -> Piece {
        let mut part = *self;
        part.end = end;
        part.marks.clip(start, end);
        part.stuck_pmd = part.stuck_pmd.filter(|pmd| start <= *pmd && *pmd < end);
        part
    }
}

fn share_of(reach: Reach) -> f32 {
    f32::from(u8::from(reach.is_stuck()))
}

fn mean(marks: &[Mark]) -> Mix {
    let mut all = Mix::default();
    for (no, mark) in marks.iter().enumerate() {
        all.blend(&mark.mix.into(), 1.0 / (no + 1) as f32);
    }
    all
}

/// Where to put the end between two huge ranges of different regions: after `below`, at `above` at the latest.
pub(crate) fn middle(below: PmdNo, above: PmdNo) -> PmdNo {
    PmdNo(below.0 + (above.0 - below.0).div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(pmd: u64) -> Mark {
        Mark { pmd: PmdNo(pmd), at: pmd, mix: Shares::default() }
    }

    fn pmds(marks: &Marks) -> Vec<u64> {
        marks.as_slice().iter().map(|m| m.pmd.0).collect()
    }

    #[test]
    fn marks_keep_both_ends_and_spread_the_rest() {
        let mut marks = Marks::default();
        for pmd in [50, 10, 90, 51, 30, 70, 52, 90, 10] {
            marks.add(mark(pmd));
        }
        assert_eq!(pmds(&marks), [10, 30, 50, 52, 70, 90]);
        marks.add(mark(5));
        assert_eq!((pmds(&marks)[0], *pmds(&marks).last().unwrap()), (5, 90));
        assert_eq!(marks.around(PmdNo(60)), (Some(mark(50)), Some(mark(70))));
        assert_eq!(marks.around(PmdNo(5)).0, None);
        marks.clip(PmdNo(30), PmdNo(70));
        assert_eq!(pmds(&marks), [30, 50]);
    }

    #[test]
    fn what_scatters_by_itself_tolerates_more() {
        use super::super::mix::{OUTCOMES, READS};
        let found = |hot: u32| {
            let mut counts = [0; OUTCOMES];
            (counts[0], counts[READS]) = (hot, 512 - hot);
            Finding { mix: Mix::of_counts(counts), resident: 1.0, huge: false, reach: Reach::Itself }
        };
        let mut calm = Piece::new(PmdNo(100));
        let mut mixed = Piece::new(PmdNo(100));
        for no in 0..20 {
            calm.learn(mark(no), &found(0));
            mixed.learn(mark(no), &found(if no % 2 == 0 { 0 } else { 250 }));
        }
        assert!(!calm.agrees(&found(250)) && mixed.agrees(&found(250)) && !mixed.agrees(&found(512)));
        assert!(!calm.is_like(&mixed));
        let hole = Finding { mix: Mix::default(), resident: 0.0, huge: false, reach: Reach::Itself };
        assert!(calm.agrees(&hole), "a hole is no difference in heat");
        calm.learn(mark(20), &hole);
        assert!((calm.resident - 8.0 / 9.0).abs() < 0.01 && !calm.agrees(&found(250)));
    }

    fn stuck() -> Finding {
        Finding { mix: Mix::default(), resident: 1.0, huge: false, reach: Reach::Stuck }
    }

    fn hot(reach: Reach) -> Finding {
        let mut counts = [0; 8];
        counts[0] = 512;
        Finding { mix: Mix::of_counts(counts), resident: 1.0, huge: false, reach }
    }

    #[test]
    fn stuck_memory_is_a_region_of_its_own_and_what_was_known_is_kept_for_three_minutes() {
        let mut piece = Piece::new(PmdNo(100));
        piece.learn(mark(1), &hot(Reach::Itself));
        assert!(!piece.agrees(&stuck()) && !piece.is_stuck());
        assert!(!piece.became_stuck(PmdNo(100), 0).early.is_known(), "one check may have been of other memory");
        for no in 2..20 {
            piece.learn(mark(no), &hot(Reach::Itself));
        }
        let mut kept = piece.became_stuck(PmdNo(100), 1000);
        let at = |at| Mark { at, ..mark(30) };
        kept.learn(at(1000), &stuck());
        assert!(
            kept.is_stuck() && kept.early == piece.early && !kept.is_like(&piece) && !kept.agrees(&hot(Reach::Itself))
        );
        assert_eq!(
            (kept.stuck_at(), kept.stuck_pmd(), kept.part(PmdNo(0), PmdNo(30)).stuck_pmd()),
            (1000, Some(PmdNo(30)), None)
        );
        let mut measured = kept;
        measured.learn(at(2000), &hot(Reach::Process(true)));
        for piece in [&mut kept, &mut measured] {
            piece.learn(at(1000 + KEPT_FOR - 1), &stuck());
            assert!(piece.early.is_known());
            piece.learn(at(1000 + KEPT_FOR), &stuck());
        }
        assert_eq!((kept.early.is_known(), measured.early.is_known()), (false, true));
        assert!(kept.unlike(&measured) >= UNMEASURED, "joined late, since it would seem to be known");
    }

    #[test]
    fn a_clear_of_the_process_shows_whether_a_region_is_still_stuck() {
        let mut piece = Piece::new(PmdNo(100));
        for no in 0..5 {
            piece.learn(mark(no), &stuck());
        }
        let idle = Finding { mix: Mix::of_counts([0, 0, 0, 0, 0, 0, 0, 512]), reach: Reach::Process(false), ..stuck() };
        assert!(piece.agrees(&idle) && piece.agrees(&hot(Reach::Process(true))), "no heat is known");
        let mut accessed = piece;
        accessed.learn(mark(9), &hot(Reach::Process(true)));
        piece.learn(mark(9), &idle);
        assert!(accessed.is_stuck() && !piece.is_stuck(), "where nothing was accessed a clear leaves nothing");
        assert_eq!(pmds(&piece.marks), [9], "what was stuck does not show where heat ends");
        assert!(!piece.agrees(&stuck()) && accessed.agrees(&stuck()));
    }

    #[test]
    fn a_seam_is_where_marks_differ_in_order() {
        let found = |is_hot: bool| {
            let mut counts = [0; 8];
            counts[if is_hot { 0 } else { 7 }] = 512;
            Finding { mix: Mix::of_counts(counts), resident: 1.0, huge: false, reach: Reach::Itself }
        };
        let of = |hot: [bool; 6]| {
            let mut piece = Piece::new(PmdNo(100));
            for (no, is_hot) in (0..).zip(hot) {
                let mix = found(is_hot).mix.into();
                piece.learn(Mark { pmd: PmdNo(no * 10), at: 0, mix }, &found(is_hot));
            }
            piece
        };
        let two = of([true, true, false, false, false, false]);
        assert_eq!(two.seam(), Some(PmdNo(15)));
        assert_eq!(of([true, false, true, false, true, false]).seam(), None);
        assert_eq!(of([false; 6]).seam(), None);
        let hot = two.part_by_marks(PmdNo(0), PmdNo(15));
        assert_eq!((hot.early, hot.scatter, hot.checks), (found(true).mix, 0.0, 2));
    }

    #[test]
    fn joined_regions_weigh_by_their_size() {
        let mut counts = [0; 8];
        counts[0] = 512;
        let hot = Finding { mix: Mix::of_counts(counts), resident: 1.0, huge: false, reach: Reach::Itself };
        let empty = Finding { mix: Mix::default(), resident: 0.0, huge: false, reach: Reach::Itself };
        let mut a = Piece::new(PmdNo(30));
        a.learn(mark(1), &hot);
        let mut b = Piece::new(PmdNo(40));
        b.learn(mark(35), &empty);
        a.join(&b, 30, 10);
        assert!((a.resident - 0.75).abs() < 1e-6);
        assert_eq!((a.early, a.end, pmds(&a.marks)), (Mix::of_counts(counts), PmdNo(40), vec![1, 35]));
    }
}
