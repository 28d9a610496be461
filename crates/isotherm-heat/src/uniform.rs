//! Huge ranges with one state for all their pages, in 12 or 14 bytes instead of the 1,000 of a [`PageHeat`].
//!
//! A huge page has one accessed bit ([`HugeHeat`]). Of small pages that were never seen accessed nothing differs
//! ([`UntouchedHeat`]): they are most of a large memory.

use crate::idle::IdleBefore;
use crate::moment::Moment;
use crate::pmd::{
    AccessesFound, MIN_IDLE, Ns, PageHeat, Run, effective, estimate_octaves, idle_code, unexpected, updated,
};
use crate::survey::Sketch;
use crate::{Interval, Mask};

/// A huge range of 512 present small pages, of which none was seen accessed since it is known, and which are all cleared or
/// all not. Says the same as the [`PageHeat`] that [`UntouchedHeat::spread`] makes of it.
#[derive(Clone, Copy, Debug)]
pub struct UntouchedHeat {
    /// [`Moment::NEVER`] while its pages are not cleared.
    cleared_at: Moment,
    last_read: Moment,
}

impl Default for UntouchedHeat {
    fn default() -> UntouchedHeat {
        UntouchedHeat { cleared_at: Moment::NEVER, last_read: Moment::default() }
    }
}

impl UntouchedHeat {
    /// Takes in a read at `now`. `None` if it has shown a difference between pages or an access: [`UntouchedHeat::spread`]
    /// it, and read that.
    pub fn read(&mut self, now: Ns, young: Mask, present: Mask) -> Option<AccessesFound> {
        if present != Mask::ALL || self.is_cleared() && !young.is_empty() {
            return None;
        }
        self.last_read = Moment::of(now);
        Some(AccessesFound { still_set: young.count(), ..AccessesFound::default() })
    }

    /// Notes that the accessed bits of all pages were cleared at `now`. If they were cleared before, they are idle since
    /// then.
    pub fn set_cleared(&mut self, now: Ns) {
        if !self.is_cleared() {
            self.cleared_at = Moment::of(now);
        }
        self.last_read = Moment::of(now);
    }

    /// Whether its pages are cleared.
    pub fn is_cleared(&self) -> bool {
        self.cleared_at != Moment::NEVER
    }

    /// The same, with each page kept by itself.
    pub fn spread(&self) -> PageHeat {
        let mut pages = PageHeat::new(Mask::ALL);
        if self.is_cleared() {
            pages.set_cleared(self.cleared_at.ns(), Mask::ALL);
        }
        pages.read_at(self.last_read.ns());
        pages
    }

    /// Its single run.
    pub fn run(&self, now: Ns) -> Run {
        let idle = self.idle_ns(now).map_or(Interval::UNMEASURED, idle_code);
        let interval = effective(Interval::UNMEASURED, idle);
        Run { first: 0, pages: 512, interval, idle, huge: false, cleared: self.is_cleared(), estimated: false }
    }

    /// How long it is known to have been idle. `None` if it is not cleared.
    fn idle_ns(&self, now: Ns) -> Option<Ns> {
        self.is_cleared().then(|| now.min(self.last_read.ns()).saturating_sub(self.cleared_at.ns()))
    }

    /// As [`PageHeat::sketch`].
    pub(crate) fn sketch(&self) -> Option<Sketch> {
        (self.idle_ns(Ns::MAX)? >= MIN_IDLE).then_some(Sketch::Idle)
    }
}

/// A huge range on one huge page.
#[derive(Clone, Copy, Debug)]
pub struct HugeHeat {
    interval: Interval,
    cleared: bool,
    cleared_at: Moment,
    last_read: Moment,
}

impl HugeHeat {
    /// A huge page of which nothing is known.
    pub fn new() -> HugeHeat {
        HugeHeat {
            interval: Interval::UNMEASURED,
            cleared: false,
            cleared_at: Moment::default(),
            last_read: Moment::default(),
        }
    }

    /// Takes in a read at `now`.
    pub fn read(&mut self, now: Ns, young: bool) -> AccessesFound {
        let accessed = young && self.cleared;
        let mut found = AccessesFound { retouched: u32::from(accessed), ..AccessesFound::default() };
        let still_set = !self.cleared && self.interval.is_measured();
        found.still_set = 512 * u32::from(still_set);
        found.lost = 512 * u32::from(still_set && !young);
        if accessed {
            let since_clear = |at: Ns| at.saturating_sub(self.cleared_at.ns());
            let (idle, hi) = (since_clear(self.last_read.ns()), since_clear(now));
            let observed = estimate_octaves(idle, hi);
            found.idle_before = IdleBefore::of([(idle, 1)]);
            found.note(512, unexpected(hi, self.interval, observed));
            self.interval = updated(self.interval, observed);
            self.cleared = false;
        }
        self.last_read = Moment::of(now);
        if found.lost > 0 {
            self.set_cleared(now);
        }
        found
    }

    /// Notes that the accessed bit was cleared at `now`.
    pub fn set_cleared(&mut self, now: Ns) {
        if !self.cleared {
            self.cleared = true;
            self.cleared_at = Moment::of(now);
            self.last_read = self.cleared_at;
        }
    }

    /// Whether it is cleared.
    pub fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// When it was cleared last.
    pub(crate) fn cleared_at(&self) -> Ns {
        self.cleared_at.ns()
    }

    /// Whether it was hot when it was last seen accessed.
    pub(crate) fn was_hot(&self) -> bool {
        self.interval.is_hot()
    }

    /// Whether it was hot, is cleared, and has been idle for so long that it is not any more.
    pub(crate) fn has_cooled(&self) -> bool {
        let idle = self.idle_ns(self.last_read.ns()).filter(|idle| *idle >= MIN_IDLE);
        self.was_hot() && idle.is_some_and(|idle| Interval::from_ns(idle) >= self.interval.extrapolated())
    }

    /// Its single run.
    pub fn run(&self, now: Ns) -> Run {
        let interval = self.effective(now);
        let idle = self.idle_ns(now).map_or(interval, Interval::from_ns);
        Run { first: 0, pages: 512, interval, idle, huge: true, cleared: self.cleared, estimated: false }
    }

    /// The effective interval, as in [`PageHeat::runs`].
    pub fn effective(&self, now: Ns) -> Interval {
        match self.idle_ns(now) {
            Some(idle) if idle >= MIN_IDLE => effective(self.interval, Interval::from_ns(idle)),
            _ => self.interval,
        }
    }

    /// As [`PageHeat::sketch`].
    pub(crate) fn sketch(&self, now: Ns) -> Option<Sketch> {
        let interval = self.effective(now);
        interval.is_measured().then_some(if self.cleared { Sketch::Idle } else { Sketch::Active(interval) })
    }

    /// How long it is known to have been idle. `None` if it is not cleared.
    pub fn idle_ns(&self, now: Ns) -> Option<Ns> {
        self.cleared.then(|| now.min(self.last_read.ns()).saturating_sub(self.cleared_at.ns()))
    }
}

impl Default for HugeHeat {
    fn default() -> HugeHeat {
        HugeHeat::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmd::EPOCH_UNIT;

    const MS: Ns = 1_000_000;
    const S: Ns = 1000 * MS;

    fn only(pages: &[usize]) -> Mask {
        pages.iter().copied().collect()
    }

    /// Random histories, with each page kept by itself and not.
    #[test]
    fn an_untouched_huge_range_says_what_its_pages_say() {
        let mut rng = crate::Rng::new(7);
        for history in 0..200 {
            let (mut alike, mut pages) = (UntouchedHeat::default(), PageHeat::new(Mask::ALL));
            let mut now = 0;
            for _ in 0..40 {
                // Clear times of pages are stored in this unit, once there is a later one.
                now += EPOCH_UNIT * (1 + rng.below(3 * S / EPOCH_UNIT));
                let seen = now + rng.below(S);
                let mut runs = Vec::new();
                pages.runs(seen, &mut runs);
                assert_eq!((runs, pages.sketch()), (vec![alike.run(seen)], alike.sketch()), "history {history}");
                assert_eq!(pages.uncleared().is_empty(), alike.is_cleared());
                if rng.below(4) == 0 {
                    pages.set_cleared(now, Mask::ALL);
                    alike.set_cleared(now);
                    continue;
                }
                let young: Mask = (0..512).filter(|_| rng.below(40) < history % 3).collect();
                let mut spread = alike.spread();
                let found = pages.read(now, young, Mask::ALL);
                assert_eq!(found, spread.read(now, young, Mask::ALL), "history {history}");
                match alike.read(now, young, Mask::ALL) {
                    Some(same) => assert_eq!(same, found, "history {history}"),
                    None => break,
                }
            }
        }
        assert_eq!(UntouchedHeat::default().read(S, Mask::NONE, only(&[1])), None, "a page is gone");
    }

    #[test]
    fn a_huge_page_is_one_unit() {
        let mut h = HugeHeat::new();
        h.set_cleared(0);
        assert_eq!(h.read(10 * MS, false).retouched, 0);
        assert_eq!(h.read(20 * MS, true).retouched, 1);
        assert!(h.effective(10 * S).ns().unwrap() < 40 * MS);
        h.set_cleared(10 * S);
        h.read(30 * S, false);
        assert_eq!(h.effective(30 * S), Interval::from_ns(160 * S));
    }
}
