//! What is known of the huge ranges of a target at one moment: measured, estimated from memory around it, or known of small pages
//! before a huge page replaced them.
//!
//! Memory is estimated in two cases: a huge range that waits for its first check, from the checked ranges on both sides; and the few
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
        let mut runs = Vec::new();
        let (mut until, mut assumed) = (PmdNo(0), None);
        for (pmd, entry) in self.pmds.range(pmds) {
            runs.clear();
            entry.heat.runs(now, &mut runs);
            if self.unchecked > 0 && pmd >= until {
                let Between { like, until: end } = self.survey.between(pmd);
                let like = like.and_then(|like| self.pmds.get(like));
                (until, assumed) = (end, like.and_then(|like| like.heat.most(now)));
            }
            if let Some(run) = assumed {
                estimate(&mut runs, run.interval, run.idle);
            }
            let unclearable = entry.timing.is(Flags::UNCLEARABLE);
            if entry.timing.is(Flags::CHECKED)
                && !unclearable
                && let Some(interval) = interval_around_unmeasured(&runs)
            {
                // For how long they have been idle is not known: they came after the pages around them were checked.
                estimate(&mut runs, interval, Interval::UNMEASURED);
            }
            let behind = if matches!(entry.heat, PmdHeat::Huge(_)) { self.behind.get(pmd) } else { None };
            each(pmd, View { unclearable, runs: &runs, behind });
        }
    }
}
