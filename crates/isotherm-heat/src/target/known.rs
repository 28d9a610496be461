//! What is known of the huge ranges of a target at one moment: measured, estimated from memory around it, or known of small pages
//! before a huge page replaced them.
//!
//! Memory is estimated in two cases: a huge range whose first check has not shown yet how it is used, from those on both sides; and the few
//! pages that came to a huge range after its check, as when an allocator gives pages back and gets others in their place. These
//! wait for the range's next check, up to four minutes: a check for each of them would cost the target several times its
//! slow-down budget, and clearing them alone would split the large folios that they may be parts of.
//!
//! Read by summaries, planners and tests. Changes nothing.

use super::Target;
use crate::behind_huge::BehindHuge;
use crate::pmd::{Flags, Ns, Run};
use crate::pmd_heat::{PmdHeat, estimate, interval_around_unmeasured};
use crate::survey::Between;
use crate::{Interval, Mask};
use isotherm_units::PmdNo;
use std::ops::Range;

/// What is known of a huge range at one moment.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The huge range cannot be cleared here.
    pub unclearable: bool,
    /// Its present pages.
    pub runs: &'a [Run],
    /// It is a huge page, and this was known of its pages before.
    pub behind: Option<&'a BehindHuge>,
    /// The runs have as many pages as there are of each kind, and say nothing of where these are: all of them are present, and one region.
    pub(crate) is_gathered: bool,
}

/// Is shown what is known of huge ranges.
pub(crate) trait Visit {
    /// Whether pages of `pmd` may be shown by kind. A hot huge range may have 500 runs of ten kinds.
    fn may_gather(&mut self, pmd: PmdNo) -> bool;

    /// Is shown a huge range.
    fn visit(&mut self, pmd: PmdNo, view: View<'_>);
}

impl<F: FnMut(PmdNo, View<'_>)> Visit for F {
    fn may_gather(&mut self, _: PmdNo) -> bool {
        false
    }

    fn visit(&mut self, pmd: PmdNo, view: View<'_>) {
        self(pmd, view);
    }
}

impl Target {
    /// The pages of a huge range that the last read has found.
    pub fn present_in(&self, pmd: PmdNo) -> Mask {
        self.pmds.get(pmd).map_or(Mask::NONE, |entry| entry.heat.present())
    }

    /// Calls `each` with what is known of every huge range at `now`, in address order.
    pub fn for_each_pmd(&self, now: Ns, each: impl FnMut(PmdNo, View<'_>)) {
        self.for_pmds_in(PmdNo(0)..PmdNo(u64::MAX), now, each);
    }

    /// Like [`Target::for_each_pmd`], for some huge ranges only.
    pub fn for_pmds_in(&self, pmds: Range<PmdNo>, now: Ns, mut each: impl FnMut(PmdNo, View<'_>)) {
        self.show(pmds, now, &mut each);
    }

    /// Shows what is known of some huge ranges at `now`, in address order.
    pub(crate) fn show(&self, pmds: Range<PmdNo>, now: Ns, to: &mut impl Visit) {
        let mut runs = Vec::new();
        let mut gaps = self.survey.gaps(pmds.start);
        let (mut until, mut assumed) = (PmdNo(0), None);
        let is_survey_open = self.is_survey_open(now);
        for (pmd, entry) in self.pmds.range(pmds) {
            if is_survey_open && pmd >= until {
                let Between { like, until: end } = gaps.at(pmd);
                (until, assumed) = (end, like.and_then(|like| self.middle_of(like, now, &mut runs)));
            }
            runs.clear();
            let is_gathered = to.may_gather(pmd) && entry.heat.gathered(now, &mut runs);
            if !is_gathered {
                entry.heat.runs(now, &mut runs);
            }
            let unclearable = entry.timing.is(Flags::UNCLEARABLE);
            // Nobody can tell whether it is accessed, so it is like none of its neighbours.
            if let Some(run) = assumed.filter(|_| !unclearable) {
                estimate(&mut runs, run.interval, run.idle);
            }
            if entry.timing.is(Flags::CHECKED)
                && !unclearable
                && let Some(interval) = interval_around_unmeasured(&runs)
                && !entry.heat.is_in_first_second()
            {
                // For how long they have been idle is not known: they came after the pages around them were checked.
                estimate(&mut runs, interval, Interval::UNMEASURED);
            }
            let behind = if matches!(entry.heat, PmdHeat::Huge(_)) { self.behind.get(pmd) } else { None };
            to.visit(pmd, View { unclearable, runs: &runs, behind, is_gathered });
        }
    }

    /// What is known at `now` of the measured page of a huge range in the middle between hot and cold. Uses `runs` for its runs.
    fn middle_of(&self, pmd: PmdNo, now: Ns, runs: &mut Vec<Run>) -> Option<Run> {
        runs.clear();
        let heat = &self.pmds.get(pmd)?.heat;
        if !heat.gathered(now, runs) {
            heat.runs(now, runs);
        }
        runs.retain(|run| run.interval.is_measured());
        runs.sort_unstable_by_key(|run| run.interval);
        let half = runs.iter().map(|run| u32::from(run.pages)).sum::<u32>() / 2;
        let mut before = 0;
        runs.iter()
            .find(|run| {
                before += u32::from(run.pages);
                before > half
            })
            .copied()
    }
}
