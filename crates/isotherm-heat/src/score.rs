//! How accurate a heat report is: precision and recall, defined once.
//!
//! The demonstration, the benchmarks and modelled hosts compare a monitor's report with a truth that they know. They
//! count in different ways: page by page, or expected numbers over ranges of a model. The terms mean the same
//! everywhere, so their figures can be compared. All are in pages. Expected numbers of pages may be fractions.

use crate::interval::Interval;
use crate::pmd::Ns;

/// Reported hot memory compared with the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Reported as hot, and hot.
    pub true_hot_pages: f64,
    /// Reported as hot, and not hot.
    pub false_hot_pages: f64,
    /// Hot, reported or not.
    pub hot_pages: f64,
    /// Pages of which nothing was known yet. Hot ones among them count as missed.
    pub unmeasured_pages: u64,
}

impl Score {
    /// Nothing reported yet, for memory with `hot_pages` hot pages.
    pub fn of(hot_pages: f64) -> Score {
        Score { hot_pages, ..Score::default() }
    }

    /// Adds `pages` reported as hot, of which `right` are hot.
    pub fn say_hot(&mut self, pages: f64, right: f64) {
        self.true_hot_pages += right;
        self.false_hot_pages += pages - right;
    }

    /// Adds a page that is hot or not, with the interval that was found. An interval of at most `hot_ns` is reported as
    /// hot.
    pub fn add_page(&mut self, is_hot: bool, found: Interval, hot_ns: Ns) {
        self.unmeasured_pages += u64::from(found == Interval::UNMEASURED);
        if found.ns().is_some_and(|ns| ns <= hot_ns) {
            self.say_hot(1.0, f64::from(u8::from(is_hot)));
        }
    }

    /// Pages reported as hot, rightly or not.
    pub fn said_hot_pages(&self) -> f64 {
        self.true_hot_pages + self.false_hot_pages
    }

    /// The share of the reported hot pages that are hot, 0 to 1. 1 if none was reported.
    pub fn precision(&self) -> f64 {
        ratio(self.true_hot_pages, self.said_hot_pages())
    }

    /// The share of the hot pages that were reported, 0 to 1. 1 if no page is hot.
    ///
    /// Where `hot_pages` is an expected number, more may be found than expected. The result is 1 then, too.
    pub fn recall(&self) -> f64 {
        ratio(self.true_hot_pages, self.hot_pages).min(1.0)
    }

    /// The harmonic mean of precision and recall. 0 if both are.
    pub fn f1(&self) -> f64 {
        let (p, r) = (self.precision(), self.recall());
        if p + r == 0.0 { 0.0 } else { 2.0 * p * r / (p + r) }
    }

    /// Error of the reported hot size, in percent of the truth.
    pub fn size_error_pct(&self) -> f64 {
        let is = self.hot_pages.max(1.0);
        100.0 * (self.said_hot_pages() - is).abs() / is
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 1.0 } else { part / whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_have_their_usual_meaning() {
        // 120 pages are hot. 100 were said to be, 90 of them rightly: 30 were missed, and 20 are lacking in size.
        let mut s = Score::of(120.0);
        s.say_hot(60.0, 60.0);
        s.say_hot(40.0, 30.0);
        assert_eq!((s.precision(), s.recall(), s.said_hot_pages()), (0.9, 0.75, 100.0));
        // 2 * 0.675 / 1.65, and 20 of 120.
        assert!((s.f1() - 0.818_181_8).abs() < 1e-6, "{}", s.f1());
        assert!((s.size_error_pct() - 16.666_67).abs() < 1e-4, "{}", s.size_error_pct());
    }

    #[test]
    fn nothing_said_is_precise_and_finds_nothing() {
        let s = Score::of(10.0);
        assert_eq!((s.precision(), s.recall(), s.f1(), s.size_error_pct()), (1.0, 0.0, 0.0, 100.0));
        let nothing_hot = Score::default();
        assert_eq!((nothing_hot.precision(), nothing_hot.recall(), nothing_hot.f1()), (1.0, 1.0, 1.0));
        let mut wrong = Score::of(0.0);
        wrong.say_hot(5.0, 0.0);
        // Of a hot set of one page, which is the least, 4 too many.
        assert_eq!((wrong.precision(), wrong.recall(), wrong.size_error_pct()), (0.0, 1.0, 400.0));
    }

    #[test]
    fn more_than_expected_is_all() {
        let mut s = Score::of(99.5);
        s.say_hot(100.0, 100.0);
        assert_eq!((s.precision(), s.recall()), (1.0, 1.0));
    }

    #[test]
    fn pages_count_by_the_interval_found() {
        let second = 1_000_000_000;
        let mut s = Score::of(3.0);
        // Hot and found; cold and taken for hot; hot and not known yet; hot and taken for cold; cold and found so.
        s.add_page(true, Interval::from_ns(second / 100), second);
        s.add_page(false, Interval::from_ns(second / 2), second);
        s.add_page(true, Interval::UNMEASURED, second);
        s.add_page(true, Interval::from_ns(60 * second), second);
        s.add_page(false, Interval::LONGEST, second);
        let expected = Score { true_hot_pages: 1.0, false_hot_pages: 1.0, hot_pages: 3.0, unmeasured_pages: 1 };
        assert_eq!(s, expected);
    }
}
