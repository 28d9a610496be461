//! The heat of a huge range, by what maps it, and what is assumed of one that was not checked.

use crate::behind_huge::BehindHuge;
use crate::pmd::{AccessesFound, Ns, PackedHeat, PageHeat, PmdBits, Run, is_much};
use crate::survey::Sketch;
use crate::target::HORIZON;
use crate::uniform::{HugeHeat, UntouchedHeat};
use crate::{Histogram, Interval, Mask};
use isotherm_units::PAGES_PER_PMD;

/// The heat of a huge range, by what maps it.
#[derive(Clone, Debug)]
pub enum PmdHeat {
    /// Small pages, in the middle of a check.
    Pages(Box<PageHeat>),
    /// Small pages between two checks.
    Packed(Box<PackedHeat>),
    /// Small pages, all of them present and none seen accessed.
    Untouched(UntouchedHeat),
    /// One huge page.
    Huge(HugeHeat),
}

impl PmdHeat {
    /// Of what a first read has found; `None` if nothing is mapped.
    pub(crate) fn new(bits: PmdBits) -> Option<PmdHeat> {
        match bits {
            PmdBits::Pages { present: Mask::ALL, .. } => Some(PmdHeat::Untouched(UntouchedHeat::default())),
            PmdBits::Pages { present, .. } => {
                let mut heat = PmdHeat::Pages(Box::new(PageHeat::new(present)));
                heat.pack();
                Some(heat)
            }
            PmdBits::Huge { .. } => Some(PmdHeat::Huge(HugeHeat::new())),
            PmdBits::Gone => None,
        }
    }

    /// Makes it small until its next check. Nothing is lost.
    pub(crate) fn pack(&mut self) {
        if let PmdHeat::Pages(pages) = self
            && let Some(packed) = PackedHeat::of(pages)
        {
            *self = PmdHeat::Packed(Box::new(packed));
        }
    }

    /// Its pages, each kept by itself from now on; `None` if it is a huge page.
    fn unpacked(&mut self) -> Option<&mut PageHeat> {
        let unpacked = match self {
            PmdHeat::Packed(packed) => Some(packed.unpack()),
            PmdHeat::Untouched(untouched) => Some(untouched.spread()),
            PmdHeat::Pages(_) | PmdHeat::Huge(_) => None,
        };
        if let Some(pages) = unpacked {
            *self = PmdHeat::Pages(Box::new(pages));
        }
        match self {
            PmdHeat::Pages(pages) => Some(pages),
            _ => None,
        }
    }

    /// Appends what is known at `now` of its present pages.
    pub(crate) fn runs(&self, now: Ns, out: &mut Vec<Run>) {
        match self {
            PmdHeat::Huge(h) => out.push(h.run(now)),
            PmdHeat::Pages(p) => p.runs(now, out),
            PmdHeat::Packed(p) => p.runs(now, out),
            PmdHeat::Untouched(u) => out.push(u.run(now)),
        }
    }

    /// Appends as many pages as there are of each kind, if it has all of its pages and they make one region whose parts nobody tells apart.
    /// Costs O(kinds) where [`PmdHeat::runs`] costs O(runs). Returns whether it has appended any.
    pub(crate) fn gathered(&self, now: Ns, out: &mut Vec<Run>) -> bool {
        matches!(self, PmdHeat::Packed(packed) if packed.gathered(now, out))
    }

    /// Whether a read can show accesses.
    pub(crate) fn has_cleared(&self) -> bool {
        match self {
            PmdHeat::Pages(p) => !p.cleared().is_empty(),
            PmdHeat::Packed(p) => p.has_cleared(),
            PmdHeat::Untouched(u) => u.is_cleared(),
            PmdHeat::Huge(h) => h.is_cleared(),
        }
    }

    /// Whether a clear can.
    pub(crate) fn has_uncleared(&self) -> bool {
        match self {
            PmdHeat::Pages(p) => !p.uncleared().is_empty(),
            PmdHeat::Packed(p) => p.has_uncleared(),
            PmdHeat::Untouched(u) => !u.is_cleared(),
            PmdHeat::Huge(h) => !h.is_cleared(),
        }
    }

    /// What a first check has shown by `now`. `None` while it is too short for a page to count as idle.
    pub(crate) fn sketch(&self, now: Ns) -> Option<Sketch> {
        match self {
            PmdHeat::Pages(p) => p.sketch(),
            PmdHeat::Packed(p) => p.unpack().sketch(),
            PmdHeat::Untouched(u) => u.sketch(),
            PmdHeat::Huge(h) => h.sketch(now),
        }
    }

    /// Whether its first check has begun and is too short for a page to count as idle. Accessed pages are known by then, and the others are no
    /// more like them than any.
    pub(crate) fn is_in_first_second(&self) -> bool {
        match self {
            PmdHeat::Pages(p) => p.is_in_first_second(),
            PmdHeat::Packed(p) => p.is_in_first_second(),
            PmdHeat::Untouched(_) | PmdHeat::Huge(_) => false,
        }
    }

    /// The pages that are present.
    pub fn present(&self) -> Mask {
        match self {
            PmdHeat::Pages(p) => p.present(),
            PmdHeat::Packed(p) => p.present(),
            PmdHeat::Untouched(_) | PmdHeat::Huge(_) => Mask::ALL,
        }
    }

    /// How many they are.
    pub fn resident(&self) -> u64 {
        u64::from(self.present().count())
    }

    /// Takes in a read. `None` if it is mapped in another way now.
    pub(crate) fn read(&mut self, now: Ns, bits: PmdBits) -> Option<AccessesFound> {
        match (&mut *self, bits) {
            (PmdHeat::Huge(huge), PmdBits::Huge { young }) => Some(huge.read(now, young)),
            (_, PmdBits::Pages { young, present }) => self.read_pages(now, young, present),
            _ => None,
        }
    }

    /// The same of small pages.
    fn read_pages(&mut self, now: Ns, young: Mask, present: Mask) -> Option<AccessesFound> {
        let same = match self {
            PmdHeat::Untouched(untouched) => untouched.read(now, young, present),
            PmdHeat::Packed(packed) => packed.read(now, young, present),
            PmdHeat::Pages(_) | PmdHeat::Huge(_) => None,
        };
        same.or_else(|| self.unpacked().map(|pages| pages.read(now, young, present)))
    }

    /// What to keep of its small pages if `bits` show a huge page in their place.
    pub(crate) fn behind(&self, now: Ns, bits: PmdBits) -> Option<BehindHuge> {
        if !matches!(bits, PmdBits::Huge { .. }) {
            return None;
        }
        let mut runs = Vec::new();
        self.runs(now, &mut runs);
        BehindHuge::of(&runs, now)
    }

    /// Notes a clear at `now` that did not reach the pages in `stuck`. Returns how many pages (or huge pages) it has newly
    /// cleared.
    pub(crate) fn set_cleared(&mut self, now: Ns, stuck: Mask) -> u64 {
        match self {
            PmdHeat::Huge(huge) if stuck.is_empty() => {
                huge.set_cleared(now);
                1
            }
            PmdHeat::Untouched(untouched) if stuck.is_empty() => {
                let fresh = if untouched.is_cleared() { 0 } else { PAGES_PER_PMD as u64 };
                untouched.set_cleared(now);
                fresh
            }
            _ => self.unpacked().map_or(0, |pages| {
                let fresh = pages.uncleared() & !stuck;
                pages.set_cleared(now, fresh);
                u64::from(fresh.count())
            }),
        }
    }

    /// Pages that are not cleared.
    pub(crate) fn uncleared(&self) -> Mask {
        match self {
            PmdHeat::Pages(pages) => pages.uncleared(),
            PmdHeat::Packed(packed) => packed.uncleared(),
            other if other.has_uncleared() => Mask::ALL,
            _ => Mask::NONE,
        }
    }

    /// The same in page walks of the target: a huge page takes one.
    pub(crate) fn uncleared_walks(&self) -> u64 {
        match self {
            PmdHeat::Huge(_) => u64::from(self.has_uncleared()),
            small => u64::from(small.uncleared().count()),
        }
    }

    /// How many of the pages that are not cleared are hot.
    pub(crate) fn hot(&self) -> u32 {
        match self {
            PmdHeat::Huge(huge) => 512 * u32::from(!huge.is_cleared() && huge.was_hot()),
            PmdHeat::Untouched(_) => 0,
            PmdHeat::Pages(pages) => pages.expected_retouches(Interval::HOT).0,
            PmdHeat::Packed(packed) => packed.expected_retouches(Interval::HOT).0,
        }
    }

    /// Whether much of it was hot when it was cleared, and has been idle for so long since that it is not any more.
    pub(crate) fn has_cooled(&self) -> bool {
        let cooled = match self {
            PmdHeat::Huge(huge) => 512 * u32::from(huge.has_cooled()),
            PmdHeat::Untouched(_) => 0,
            PmdHeat::Pages(pages) => pages.cooled(),
            PmdHeat::Packed(packed) => packed.unpack().cooled(),
        };
        is_much(u64::from(cooled), self.resident())
    }

    /// When it was cleared last. 0: never.
    pub(crate) fn cleared_at(&self) -> Ns {
        match self {
            PmdHeat::Huge(huge) => huge.cleared_at(),
            // Of no use: none of it was seen accessed.
            PmdHeat::Untouched(_) => 0,
            PmdHeat::Pages(pages) => pages.cleared_at(),
            PmdHeat::Packed(packed) => packed.cleared_at(),
        }
    }

    /// Of the pages that are not cleared: how many are expected to be touched again within [`HORIZON`], and of how many
    /// nothing is known.
    pub(crate) fn expected(&self) -> (u32, u32) {
        let bound = Interval::from_ns(HORIZON);
        match self {
            PmdHeat::Huge(_) => (1, 0),
            PmdHeat::Untouched(untouched) => (0, if untouched.is_cleared() { 0 } else { 512 }),
            PmdHeat::Pages(pages) => pages.expected_retouches(bound),
            PmdHeat::Packed(packed) => packed.expected_retouches(bound),
        }
    }
}

/// Replaces what is not measured in `runs` by what is assumed of it.
pub(crate) fn estimate(runs: &mut [Run], interval: Interval, idle: Interval) {
    for run in runs.iter_mut().filter(|run| !run.interval.is_measured()) {
        (run.interval, run.idle, run.estimated) = (interval, idle, true);
    }
}

/// The median interval of the measured pages in `runs`, if some pages are not measured and these are not much of it.
pub(crate) fn interval_around_unmeasured(runs: &[Run]) -> Option<Interval> {
    if runs.iter().all(|run| run.interval.is_measured()) {
        return None;
    }
    let mut pages = Histogram::default();
    runs.iter().for_each(|run| pages.add(run.interval, u64::from(run.pages)));
    if is_much(pages.at(Interval::UNMEASURED), pages.resident()) { None } else { pages.quantile(0.5) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pages: u16, interval: Interval) -> Run {
        let idle = Interval::UNMEASURED;
        Run { first: 0, pages, interval, idle, huge: false, cleared: false, estimated: false }
    }

    #[test]
    fn a_few_unmeasured_pages_are_like_the_median_of_the_others_and_many_are_not() {
        let [hot, warm, cold] = [20, 60, 120].map(Interval::from_code);
        let new = Interval::UNMEASURED;
        let of = |runs: &[(u16, Interval)]| {
            interval_around_unmeasured(&runs.iter().map(|(pages, interval)| run(*pages, *interval)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[(100, cold), (9, new), (90, hot), (30, warm)]), Some(warm));
        assert_eq!(of(&[(100, cold), (9, new), (90, hot)]), Some(cold));
        assert_eq!(of(&[(90, cold), (9, new), (100, hot)]), Some(hot));
        assert_eq!(of(&[(3, cold), (1, new)]), None, "a quarter is too many");
        assert_eq!(of(&[(4, cold), (1, new)]), Some(cold));
        assert_eq!(of(&[(4, cold)]), None, "there is nothing to estimate");
        assert_eq!(of(&[(4, new)]), None);
        assert_eq!(of(&[]), None);
    }
}
