//! What a monitor reports about a workload, compared with the truth page by page.
//!
//! The truth is a list of hot pages ([`score_pages`], for a [`crate::Pattern`]) or counted accesses ([`score_rates`], for a
//! [`crate::Store`]). Counted rates have no gap between hot and cold: where pages become gradually colder, thousands of them are
//! accessed about as often as the threshold. Whether these are reported as hot says nothing about a monitor, because a second
//! later the truth itself may differ. So pages within a factor of [`NEAR`] of the threshold count neither way in precision and
//! recall, and are counted beside. The size of the hot set includes them: there, errors in both directions cancel.

use crate::pattern::count;
use isotherm_heat::{Histogram, Interval, Ns, Run, Score, Target};
use isotherm_units::{AddrRange, PMD_SIZE, PmdNo};
use std::ops::Range;

/// Pages accessed up to this many times more or less often than the threshold count neither way.
pub const NEAR: f64 = 2.0;

/// What is reported about the pages of some memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Pages reported as hot.
    pub hot_pages: u64,
    /// How many are hot, by the observations of all of them ([`Histogram::expected_within_ns`]).
    pub working_set: u64,
    /// The same if pages on huge pages count as they did before those were made.
    pub working_set_by_estimate: u64,
    /// Pages about which nothing is known yet.
    pub unmeasured_pages: u64,
}

impl Reported {
    /// Counts the pages of `memory` by their interval; one of at most `hot_ns` is hot. Without a target, nothing is known.
    pub fn of(target: Option<&Target>, memory: AddrRange, now: Ns, hot_ns: Ns) -> Reported {
        let Some(target) = target else {
            return Reported { unmeasured_pages: memory.len().pages(), ..Reported::default() };
        };
        let (mut by_bits, mut by_estimate) = (Histogram::default(), Histogram::default());
        let whole = PmdNo(memory.start.0.div_ceil(PMD_SIZE))..memory.end.pmd();
        target.for_pmds_in(pmds_of(memory), now, |pmd, view| {
            let behind = match (view.behind, view.runs) {
                (Some(behind), [run]) if whole.contains(&pmd) => Some((behind, run.interval)),
                _ => None,
            };
            for (interval, pages) in behind.iter().flat_map(|(behind, huge)| behind.estimated(now, *huge)) {
                by_estimate.add(interval, u64::from(pages));
            }
            for (_, interval) in pages_in(memory, pmd, view.runs) {
                by_bits.add(interval, 1);
                by_estimate.add(interval, u64::from(behind.is_none()));
            }
        });
        Reported {
            hot_pages: by_bits.within_ns(hot_ns),
            working_set: by_bits.expected_within_ns(hot_ns),
            working_set_by_estimate: by_estimate.expected_within_ns(hot_ns),
            unmeasured_pages: by_bits.at(Interval::UNMEASURED),
        }
    }
}

/// What is reported, compared with counted accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateScore {
    /// Of the pages whose rate is clearly above or below the threshold.
    pub clear: Score,
    /// Of all pages.
    pub reported: Reported,
    /// Pages accessed as often as the threshold, or more often.
    pub hot_pages: u64,
    /// Pages within a factor of [`NEAR`] of the threshold.
    pub near_pages: u64,
}

impl RateScore {
    /// By how much the reported working set is too large or too small, in percent of the true one.
    pub fn size_error_pct(&self) -> f64 {
        score_amount(self.hot_pages as f64, self.reported.working_set).size_error_pct()
    }
}

/// Compares what `target` reports with `rates_hz`, which has a value for each page of `memory`. A page is hot if it is accessed
/// every `hot_ns` or more often.
pub fn score_rates(rates_hz: &[f64], memory: AddrRange, target: &Target, now: Ns, hot_ns: Ns) -> RateScore {
    let threshold_hz = 1e9 / hot_ns as f64;
    let is_near = |hz: f64| hz > threshold_hz / NEAR && hz < threshold_hz * NEAR;
    let count = |is: &dyn Fn(f64) -> bool| rates_hz.iter().filter(|hz| is(**hz)).count();
    let mut score = RateScore {
        clear: Score::of(count(&|hz| hz >= threshold_hz * NEAR) as f64),
        hot_pages: count(&|hz| hz >= threshold_hz) as u64,
        near_pages: count(&is_near) as u64,
        reported: Reported::of(Some(target), memory, now, hot_ns),
    };
    for_each_page(target, memory, now, |index, found| {
        let Some(hz) = rates_hz.get(index) else { return };
        if !is_near(*hz) {
            score.clear.add_page(*hz >= threshold_hz, found, hot_ns);
        }
    });
    score
}

/// Compares the pages found hot with `hot`, which has a value for each page of `memory`.
pub fn score_pages(hot: &[bool], memory: AddrRange, target: &Target, now: Ns, hot_ns: Ns) -> Score {
    let mut score = Score::of(count(hot));
    for_each_page(target, memory, now, |index, found| {
        if let Some(is_hot) = hot.get(index) {
            score.add_page(*is_hot, found, hot_ns);
        }
    });
    score
}

/// Pages of `memory` that the target has and whose heat was not measured: nothing is known of them, or it is estimated. A picture with such pages
/// is not exact.
pub fn unknown_pages(target: &Target, memory: AddrRange, now: Ns) -> u64 {
    let mut pages = 0;
    target.for_pmds_in(pmds_of(memory), now, |pmd, view| {
        let unknown = view.runs.iter().filter(|run| !run.interval.is_measured() || run.estimated);
        pages += unknown.map(|run| pages_in(memory, pmd, std::slice::from_ref(run)).count() as u64).sum::<u64>();
    });
    pages
}

/// Compares amounts: as many of the `reported` hot pages are right as can be.
pub fn score_amount(hot_pages: f64, reported: u64) -> Score {
    let mut score = Score::of(hot_pages);
    score.say_hot(reported as f64, hot_pages.min(reported as f64));
    score
}

/// Calls `each` with the index of every page of `memory` that the target has, and its interval.
fn for_each_page(target: &Target, memory: AddrRange, now: Ns, mut each: impl FnMut(usize, Interval)) {
    target.for_pmds_in(pmds_of(memory), now, |pmd, view| {
        pages_in(memory, pmd, view.runs).for_each(|(index, interval)| each(index, interval));
    });
}

/// Huge ranges that contain a part of `memory`.
fn pmds_of(memory: AddrRange) -> Range<PmdNo> {
    memory.start.pmd()..PmdNo(memory.end.0.div_ceil(PMD_SIZE))
}

/// The pages of `pmd` that are in `memory`: the index of each in it, and its interval.
fn pages_in(memory: AddrRange, pmd: PmdNo, runs: &[Run]) -> impl Iterator<Item = (usize, Interval)> {
    let (first, pages) = (memory.start.page().0, memory.len().pages());
    let all = runs.iter().flat_map(move |run| run.indices().map(move |in_pmd| (pmd.page(in_pmd), run.interval)));
    all.filter_map(move |(page, interval)| {
        let index = page.0.wrapping_sub(first);
        Some((usize::try_from(index).ok().filter(|_| index < pages)?, interval))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::{Mask, PmdBits, Watch};
    use isotherm_units::{Addr, PAGE_SIZE};

    const S: Ns = 1_000_000_000;
    const NOW: Ns = 5 * S;

    /// Two huge ranges: 300 pages of the first were accessed 10 ms after a clear, and the others not for 5 s. Of the second,
    /// nothing is known.
    fn target() -> Target {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let bits = |young| PmdBits::Pages { young, present: Mask::ALL };
        target.read(0, PmdNo(8), bits(Mask::ALL));
        target.cleared(0, PmdNo(8), Mask::NONE);
        target.read(S / 100, PmdNo(8), bits((0..300).collect()));
        target.cleared(S / 100, PmdNo(8), Mask::NONE);
        target.read(S / 50, PmdNo(8), bits((0..300).collect()));
        target.read(NOW, PmdNo(8), bits((0..300).collect()));
        target.read(NOW, PmdNo(9), bits(Mask::ALL));
        target
    }

    fn memory() -> AddrRange {
        AddrRange::new(Addr(8 * PMD_SIZE), Addr(10 * PMD_SIZE))
    }

    /// Of so many hot pages, none of which is near the threshold.
    fn all_alike(hot_pages: u64, unmeasured_pages: u64) -> Reported {
        Reported { hot_pages, working_set: hot_pages, working_set_by_estimate: hot_pages, unmeasured_pages }
    }

    /// So many pages at each rate, one after the other.
    fn rates(pages: &[(usize, f64)]) -> Vec<f64> {
        let rates: Vec<f64> = pages.iter().flat_map(|(count, hz)| vec![*hz; *count]).collect();
        assert_eq!(rates.len(), 1024);
        rates
    }

    #[test]
    fn pages_near_the_threshold_count_neither_way_and_in_the_size() {
        // Reported are pages 0 to 300. Of the unmeasured second range, 12 pages are hot.
        let pages = [
            (200, 50.0),
            (30, 1.9),
            (20, 0.6),
            (10, 0.5),
            (40, 0.0),
            (20, 1.0),
            (10, 2.0),
            (182, 0.1),
            (12, 9.0),
            (500, 0.0),
        ];
        let score = score_rates(&rates(&pages), memory(), &target(), NOW, S);
        // Clearly hot: 200 + 10 + 12, of which 10 are missed and 12 unmeasured. Reported and clearly not hot: 10 + 40.
        let clear = Score { true_hot_pages: 200.0, false_hot_pages: 50.0, hot_pages: 222.0, unmeasured_pages: 512 };
        assert_eq!(score.clear, clear);
        assert_eq!((score.clear.precision(), score.clear.recall()), (0.8, 200.0 / 222.0));
        // 30 at 1.9, 20 at 0.6 and 20 at 1 a second.
        assert_eq!((score.near_pages, score.hot_pages), (70, 200 + 30 + 20 + 10 + 12));
        assert_eq!(score.reported, all_alike(300, 512));
        assert!((score.size_error_pct() - 100.0 * 28.0 / 272.0).abs() < 1e-9, "{}", score.size_error_pct());
    }

    #[test]
    fn unmeasured_pages_near_the_threshold_are_unmeasured_all_the_same() {
        let score = score_rates(&rates(&[(300, 5.0), (212, 0.0), (512, 1.1)]), memory(), &target(), NOW, S);
        assert_eq!((score.clear.unmeasured_pages, score.reported.unmeasured_pages, score.near_pages), (0, 512, 512));
        assert_eq!((score.clear.precision(), score.clear.recall()), (1.0, 1.0));
    }

    #[test]
    fn a_longer_threshold_moves_what_is_near() {
        // Hot within 10 s: from 0.1 a second on, and clearly so from 0.2.
        let score = score_rates(&rates(&[(300, 0.2), (212, 0.05), (512, 0.11)]), memory(), &target(), NOW, 10 * S);
        assert_eq!((score.clear.hot_pages, score.near_pages, score.hot_pages), (300.0, 512, 812));
    }

    #[test]
    fn pages_outside_the_memory_are_ignored_and_without_a_target_nothing_is_known() {
        let part = AddrRange::new(Addr(8 * PMD_SIZE + 100 * PAGE_SIZE), Addr(9 * PMD_SIZE + 100 * PAGE_SIZE));
        let reported = Reported::of(Some(&target()), part, NOW, S);
        assert_eq!(reported, all_alike(200, 100));
        assert_eq!(Reported::of(None, part, NOW, S), Reported { unmeasured_pages: 512, ..Reported::default() });
        let hot: Vec<bool> = (0..512).map(|page| page < 150).collect();
        let score = score_pages(&hot, part, &target(), NOW, S);
        // Pages 100 to 300 are reported, 100 to 250 are hot.
        assert_eq!((score.true_hot_pages, score.false_hot_pages, score.hot_pages), (150.0, 50.0, 150.0));
    }

    #[test]
    fn what_is_estimated_is_unknown_and_not_unmeasured() {
        assert_eq!(unknown_pages(&target(), memory(), NOW), 512);
        let part = AddrRange::new(Addr(8 * PMD_SIZE + 100 * PAGE_SIZE), Addr(9 * PMD_SIZE + 100 * PAGE_SIZE));
        assert_eq!(unknown_pages(&target(), part, NOW), 100);
        // Ten pages that came after several checks of the others are taken to be like these.
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let mut read = |at, pages: Range<usize>, young| {
            target.read(at, PmdNo(8), PmdBits::Pages { young, present: pages.collect() });
            if at == 0 {
                (0..6).for_each(|_| target.cleared(0, PmdNo(8), Mask::NONE));
            }
        };
        read(0, 0..300, Mask::ALL);
        read(20 * S, 0..300, Mask::NONE);
        read(21 * S, 0..310, (300..310).collect());
        assert_eq!(unknown_pages(&target, memory(), 21 * S), 10);
        assert_eq!(Reported::of(Some(&target), memory(), 21 * S, S).unmeasured_pages, 0);
    }

    #[test]
    fn of_an_amount_as_much_as_can_be_is_right() {
        let score = score_amount(40.0, 50);
        assert_eq!((score.precision(), score.recall(), score.size_error_pct()), (0.8, 1.0, 25.0));
    }

    #[test]
    fn pages_behind_a_huge_page_are_counted_as_they_were() {
        let mut target = target();
        target.read(NOW, PmdNo(8), PmdBits::Huge { young: true });
        target.cleared(NOW, PmdNo(8), Mask::NONE);
        target.read(NOW + S / 100, PmdNo(8), PmdBits::Huge { young: true });
        let reported = |memory| Reported::of(Some(&target), memory, NOW + S / 100, S);
        assert_eq!(reported(memory()), Reported { working_set_by_estimate: 300, ..all_alike(512, 512) });
        let part = AddrRange::new(Addr(memory().start.0 + PAGE_SIZE), memory().end);
        assert_eq!(reported(part).working_set_by_estimate, 511, "a part of it cannot be estimated");
    }
}
