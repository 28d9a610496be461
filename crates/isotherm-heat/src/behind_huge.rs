//! What was known of small pages before a huge page replaced them.
//!
//! A huge page has one accessed bit, so by its bits all of it is as hot as its hottest part. If it was made while this target was
//! monitored, by a collapse of ours or the kernel's own, its small pages were known until then. [`BehindHuge`] keeps that beside the
//! entry of the huge range (`target`), as pages by interval, until the range is split, unmapped or replaced. It is an estimate, and it
//! gets older: reports print both, what the bits show and what follows from the estimate, with its age.
//!
//! No page is accessed more often than the huge page that it lies on. So an estimate is never hotter than the huge page's own interval,
//! and cools with it.

use crate::pmd::{MIN_IDLE, Ns, Run};
use crate::snapshot::PagesBehindHuge;
use crate::view::Summary;
use crate::{Histogram, Interval};

/// Small pages of a huge range.
const PAGES: u16 = 512;

/// Small pages of one huge range, by interval, at the moment when they were last known.
#[derive(Clone, Debug)]
pub struct BehindHuge {
    since: Ns,
    /// Measured pages only, in no order.
    pages: Box<[(Interval, u16)]>,
    /// Pages that were not present, and hold zeros since the collapse.
    absent: u16,
}

impl BehindHuge {
    /// Of the runs of a huge range of small pages at `now`. `None` if nothing was measured: then there is nothing to keep.
    pub(crate) fn of(runs: &[Run], now: Ns) -> Option<BehindHuge> {
        let mut pages: Vec<(Interval, u16)> = Vec::new();
        for run in runs.iter().filter(|run| run.interval.is_measured() && !run.estimated) {
            match pages.iter_mut().find(|(interval, _)| *interval == run.interval) {
                Some((_, count)) => *count += run.pages,
                None => pages.push((run.interval, run.pages)),
            }
        }
        let present: u16 = runs.iter().map(|run| run.pages).sum();
        let absent = PAGES.saturating_sub(present);
        (!pages.is_empty()).then(|| BehindHuge { since: now, pages: pages.into(), absent })
    }

    /// When its pages were last known.
    pub fn since(&self) -> Ns {
        self.since
    }

    /// Its 512 pages by interval, as estimated at `now` of those on a huge page whose own interval is `huge`. Pages that were never
    /// measured have that interval too.
    pub fn estimated(&self, now: Ns, huge: Interval) -> impl Iterator<Item = (Interval, u16)> {
        let known: u16 = self.pages.iter().map(|(_, pages)| pages).sum::<u16>() + self.absent;
        let unknown = PAGES.saturating_sub(known);
        let measured = self.pages.iter().map(move |(interval, pages)| (huge.max(*interval), *pages));
        let rest = [(self.of_absent(now).max(huge), self.absent), (huge, unknown)];
        measured.chain(rest).filter(|(_, pages)| *pages > 0)
    }

    /// Nothing was there to access before the collapse, and zeros since.
    fn of_absent(&self, now: Ns) -> Interval {
        match now.saturating_sub(self.since) {
            idle if idle >= MIN_IDLE => Interval::from_ns(idle).extrapolated(),
            _ => Interval::UNMEASURED,
        }
    }
}

/// Sums up the estimates of a target beside its histogram by bits.
#[derive(Debug, Default)]
pub(crate) struct EstimatedSum {
    /// By bits, of huge pages that have an estimate.
    by_bits: Histogram,
    /// The same pages by estimate.
    by_estimate: Histogram,
    pages: u64,
    ages_ns: f64,
}

impl EstimatedSum {
    /// Adds a huge range with `runs` by bits, and what was known before of its small pages.
    pub fn add<'a>(&mut self, behind: Option<&BehindHuge>, runs: impl IntoIterator<Item = &'a Run>, now: Ns) {
        let mut runs = runs.into_iter();
        // Where samples tell its pages apart, they are newer than the estimate.
        let (Some(behind), Some(run), None) = (behind, runs.next(), runs.next()) else { return };
        self.by_bits.add(run.interval, u64::from(run.pages));
        for (interval, pages) in behind.estimated(now, run.interval) {
            self.by_estimate.add(interval, u64::from(pages));
        }
        self.pages += u64::from(run.pages);
        self.ages_ns += now.saturating_sub(behind.since) as f64;
    }

    /// Puts the sum into `summary`, whose histogram by bits is complete.
    pub fn finish(self, summary: &mut Summary) {
        if self.pages == 0 {
            return;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of times since the start")]
        let age_ns = (self.ages_ns * f64::from(PAGES) / self.pages as f64) as u64;
        let mut temperature = Histogram::default();
        for (interval, pages) in summary.temperature.iter() {
            temperature.add(interval, pages.saturating_sub(self.by_bits.at(interval)));
        }
        temperature.merge(&self.by_estimate);
        summary.behind_huge = Some(PagesBehindHuge { temperature, pages: self.pages, age_ns });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mask, PmdBits, Target, Watch, summarize};
    use isotherm_units::PmdNo;

    const MS: Ns = 1_000_000;
    const S: Ns = 1000 * MS;
    const PMD: PmdNo = PmdNo(5);

    fn pages(young: impl IntoIterator<Item = usize>, present: Mask) -> PmdBits {
        PmdBits::Pages { young: young.into_iter().collect(), present }
    }

    /// Pages 0 to 31 are accessed every 100 ms and 32 to 127 every 5 s; the others are idle, and 256 to 511 are absent.
    fn known() -> Target {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let present: Mask = (0..256).collect();
        target.read(0, PMD, pages(0..256, present));
        target.cleared(0, PMD, Mask::NONE);
        for (at, young) in [(25 * MS, 0), (50 * MS, 32), (1250 * MS, 32), (2500 * MS, 128), (10 * S, 128)] {
            target.read(at, PMD, pages(0..young, present));
        }
        target
    }

    #[test]
    fn a_collapse_keeps_what_was_known_as_an_estimate_with_an_age() {
        let mut target = known();
        let before = summarize(&target, 10 * S, 10);
        assert_eq!(
            (before.temperature.within_ns(S), before.behind_huge.is_none()),
            (32, true),
            "{:?}",
            before.temperature
        );
        target.read(10 * S, PMD, PmdBits::Huge { young: true });
        target.cleared(10 * S, PMD, Mask::NONE);
        target.read(10 * S + 10 * MS, PMD, PmdBits::Huge { young: true });
        let after = summarize(&target, 14 * S, 10);
        assert_eq!(after.temperature.within_ns(S), 512, "one bit for all");
        let behind = after.behind_huge.unwrap();
        assert_eq!((behind.temperature.within_ns(S), behind.temperature.within_ns(8 * S)), (32, 128));
        assert_eq!((behind.temperature.resident(), behind.temperature.measured()), (512, 512));
        assert_eq!((behind.pages, behind.age_ns), (512, 4 * S));
    }

    #[test]
    fn an_estimate_cools_with_its_huge_page_and_ends_with_it() {
        let mut target = known();
        target.read(10 * S, PMD, PmdBits::Huge { young: true });
        target.cleared(10 * S, PMD, Mask::NONE);
        target.read(40 * S, PMD, PmdBits::Huge { young: false });
        let behind = summarize(&target, 40 * S, 10).behind_huge.unwrap().temperature;
        assert_eq!((behind.within_ns(60 * S), behind.measured()), (0, 512), "idle for 30 s as a whole");
        target.read(41 * S, PMD, pages([], Mask::ALL));
        assert_eq!(summarize(&target, 42 * S, 10).behind_huge, None, "split");
    }

    #[test]
    fn a_huge_page_of_which_nothing_else_is_known_has_no_estimate() {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        target.read(0, PMD, PmdBits::Huge { young: true });
        assert_eq!(summarize(&target, S, 10).behind_huge, None);
        let unmeasured = PmdNo(6);
        target.read(0, unmeasured, pages([], Mask::ALL));
        target.read(S, unmeasured, PmdBits::Huge { young: true });
        assert_eq!(summarize(&target, S, 10).behind_huge, None, "it was huge before its first check");
    }

    #[test]
    fn what_was_not_measured_counts_by_bits() {
        let run = |first, pages, interval| Run {
            first,
            pages,
            interval,
            idle: interval,
            huge: false,
            cleared: false,
            estimated: false,
        };
        let cold = Interval::from_ns(60 * S);
        let behind = BehindHuge::of(&[run(0, 12, cold), run(12, 100, Interval::UNMEASURED)], S).unwrap();
        let of = |now, huge| behind.estimated(now, huge).collect::<Vec<_>>();
        let hot = Interval::SHORTEST;
        let absent = Interval::from_ns(2 * S).extrapolated();
        assert_eq!(of(3 * S, hot), [(cold, 12), (absent, 400), (hot, 100)]);
        let unknown = Interval::UNMEASURED;
        assert_eq!(of(S, unknown), [(cold, 12), (unknown, 400), (unknown, 100)], "no bit was read yet");
    }
}
