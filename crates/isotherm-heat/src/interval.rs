//! Access intervals on a logarithmic scale of one byte, and histograms over them.
//!
//! A page's heat is the time between its accesses. Heat spans ten milliseconds to days. An access check bounds it to a
//! factor of two, so eight steps to an octave are finer than any measurement, and one byte a page is enough.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::LazyLock;

/// Steps of the scale to a doubling of the interval.
pub const STEPS_PER_OCTAVE: u8 = 8;
const FIRST: u8 = 2;
const UNIT_NS: f64 = 1e6;

/// Nanoseconds and rate of every step. Snapshots look them up once a page.
static TABLE: LazyLock<[(u64, f64); 256]> = LazyLock::new(|| {
    std::array::from_fn(|code| {
        if code < usize::from(FIRST) {
            return (0, 0.0);
        }
        let ms = ((code - usize::from(FIRST)) as f64 / f64::from(STEPS_PER_OCTAVE)).exp2();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^32 ms, 4e15 ns")]
        let ns = (ms * UNIT_NS).round() as u64;
        (ns, 1000.0 / ms)
    })
});

/// The time between accesses to a page: 1 ms to 38 days in steps of 9%, or one of two special values.
///
/// Ordered from hot (short) to cold (long). `ABSENT` and `UNMEASURED` sort before all of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Interval(u8);

impl Interval {
    /// No page is there.
    pub const ABSENT: Interval = Interval(0);
    /// A page is there and nothing is known of its accesses yet.
    pub const UNMEASURED: Interval = Interval(1);
    /// The shortest interval on the scale: 1 ms or less.
    pub const SHORTEST: Interval = Interval(FIRST);
    /// The longest interval on the scale: 38 days or more.
    pub const LONGEST: Interval = Interval(u8::MAX);
    /// One access a second: the step of the default `hot_ns` of [`Thresholds`](crate::Thresholds). Regions count their
    /// pages of this interval or less.
    pub const HOT: Interval = Interval(FIRST + 10 * STEPS_PER_OCTAVE);

    /// The step nearest to `ns`, clamped to the ends of the scale.
    pub fn from_ns(ns: u64) -> Interval {
        Interval::from_octaves((ns as f64 / UNIT_NS).max(1e-9).log2())
    }

    /// The step nearest to 1 ms times two to the power of `octaves`, clamped.
    pub fn from_octaves(octaves: f64) -> Interval {
        Interval::nearest_step(octaves * f64::from(STEPS_PER_OCTAVE))
    }

    /// The step of the scale nearest to `step`, clamped. Use it with [`Interval::step`] to take means on the scale
    /// itself.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the scale before the cast")]
    pub fn nearest_step(step: f64) -> Interval {
        // Rounded by the cast: without SSE 4.1, which not all builds have, `round` is a call.
        Interval(FIRST + (step + 0.5).clamp(0.0, f64::from(u8::MAX - FIRST)) as u8)
    }

    /// The step on the scale, 0 for the shortest; `None` for the two special values.
    pub fn step(self) -> Option<u8> {
        self.0.checked_sub(FIRST)
    }

    /// log2 of the interval in milliseconds; `None` for the two special values.
    pub fn octaves(self) -> Option<f64> {
        self.step().map(|step| f64::from(step) / f64::from(STEPS_PER_OCTAVE))
    }

    /// The interval in nanoseconds; `None` for the two special values. A table look-up.
    pub fn ns(self) -> Option<u64> {
        self.is_measured().then(|| TABLE[usize::from(self.0)].0)
    }

    /// Accesses a second that this interval stands for; 0 for the two special values. A table look-up.
    pub fn rate_hz(self) -> f64 {
        TABLE[usize::from(self.0)].1
    }

    /// Eight times as long: how cold a page is assumed to be that was not seen accessed for this long and is not
    /// expected to be.
    ///
    /// Suppose nothing else is known, and every order of magnitude of the interval is equally likely. Then the interval
    /// is longer than this with a probability of four fifths or more, so the figure is cautious. Three octaves is also
    /// how far off an observation has to be to count as a change.
    #[must_use]
    pub const fn extrapolated(self) -> Interval {
        Interval(self.0.saturating_add(3 * STEPS_PER_OCTAVE))
    }

    /// Whether the interval was measured.
    pub const fn is_measured(self) -> bool {
        self.0 >= FIRST
    }

    /// Whether it is known to be [`Interval::HOT`] or shorter.
    pub const fn is_hot(self) -> bool {
        self.is_measured() && self.0 <= Interval::HOT.0
    }

    /// The byte itself: 0 absent, 1 unmeasured, from 2 on the scale. This is what recordings store.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The interval of a stored byte.
    pub const fn from_code(code: u8) -> Interval {
        Interval(code)
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ns() {
            Some(ns) => write!(f, "I{:.1}ms", ns as f64 / 1e6),
            None if *self == Interval::ABSENT => f.write_str("I-"),
            None => f.write_str("I?"),
        }
    }
}

/// Pages counted by interval. 256 counters; adding is O(1), queries O(256).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u8, u64)>", into = "Vec<(u8, u64)>")]
pub struct Histogram {
    pages: Box<[u64; 256]>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { pages: Box::new([0; 256]) }
    }
}

impl Histogram {
    /// Count `pages` more at `interval`.
    pub fn add(&mut self, interval: Interval, pages: u64) {
        self.pages[usize::from(interval.0)] += pages;
    }

    /// Add all counts of another.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.pages.iter_mut().zip(other.pages.iter()) {
            *mine += theirs;
        }
    }

    /// Pages at exactly `interval`.
    pub fn at(&self, interval: Interval) -> u64 {
        self.pages[usize::from(interval.0)]
    }

    /// Pages counted, unmeasured ones included, absent ones not.
    pub fn resident(&self) -> u64 {
        self.pages[1..].iter().sum()
    }

    /// Pages of which the interval is known.
    pub fn measured(&self) -> u64 {
        self.pages[usize::from(FIRST)..].iter().sum()
    }

    /// Measured pages whose interval is `ns` or less: the working set of a window of that length.
    pub fn within_ns(&self, ns: u64) -> u64 {
        let last = usize::from(Interval::from_ns(ns).0);
        self.pages[usize::from(FIRST)..=last].iter().sum()
    }

    /// The interval below which `share` (0 to 1) of the measured pages lie. `None` if nothing is measured.
    #[expect(clippy::cast_precision_loss, reason = "page counts are far below 2^52")]
    pub fn quantile(&self, share: f64) -> Option<Interval> {
        let wanted = share.clamp(0.0, 1.0) * self.measured() as f64;
        let mut seen = 0;
        for (interval, pages) in self.iter() {
            seen += pages;
            if interval.is_measured() && pages > 0 && seen as f64 - self.at(Interval::UNMEASURED) as f64 >= wanted {
                return Some(interval);
            }
        }
        None
    }

    /// The steps that hold pages, hot to cold, without absent pages.
    #[expect(clippy::cast_possible_truncation, reason = "indices of an array of 256")]
    pub fn iter(&self) -> impl Iterator<Item = (Interval, u64)> + '_ {
        self.pages.iter().enumerate().skip(1).filter(|(_, n)| **n > 0).map(|(code, n)| (Interval(code as u8), *n))
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl From<Vec<(u8, u64)>> for Histogram {
    fn from(pairs: Vec<(u8, u64)>) -> Histogram {
        let mut histogram = Histogram::default();
        for (code, pages) in pairs {
            histogram.add(Interval(code), pages);
        }
        histogram
    }
}

impl From<Histogram> for Vec<(u8, u64)> {
    fn from(histogram: Histogram) -> Vec<(u8, u64)> {
        histogram.iter().map(|(interval, pages)| (interval.0, pages)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_go_there_and_back_and_special_values_have_none() {
        for code in 2..=u8::MAX {
            let interval = Interval::from_code(code);
            assert_eq!(Interval::nearest_step(f64::from(interval.step().unwrap())), interval);
            assert_eq!(Interval::from_octaves(interval.octaves().unwrap()), interval);
        }
        assert_eq!([Interval::ABSENT.step(), Interval::UNMEASURED.step()], [None, None]);
        assert_eq!(Interval::nearest_step(1.5), Interval::from_code(4));
        assert_eq!([-3.0, 1e9].map(Interval::nearest_step), [Interval::SHORTEST, Interval::LONGEST]);
    }

    #[test]
    fn the_scale_is_exact_at_powers_of_two_and_within_a_step_between() {
        for ms in [1_u64, 2, 4, 1024, 1 << 20] {
            assert_eq!(Interval::from_ns(ms * 1_000_000).ns(), Some(ms * 1_000_000));
        }
        for ns in [3_000_000_u64, 77_000_000, 12_345_678_901] {
            let back = Interval::from_ns(ns).ns().unwrap();
            let ratio = back as f64 / ns as f64;
            assert!((0.957..1.045).contains(&ratio), "{ns} -> {back}");
        }
        assert_eq!(Interval::from_ns(0), Interval::SHORTEST);
        assert_eq!(Interval::from_ns(u64::MAX), Interval::LONGEST);
    }

    #[test]
    fn special_values_have_no_interval_and_no_rate() {
        for special in [Interval::ABSENT, Interval::UNMEASURED] {
            assert_eq!(special.ns(), None);
            assert_eq!(special.rate_hz(), 0.0);
        }
        assert_eq!(Interval::from_ns(16_000_000).rate_hz(), 62.5);
    }

    #[test]
    fn hot_is_the_same_for_a_page_as_for_a_histogram() {
        assert_eq!(Interval::HOT, Interval::from_ns(crate::Thresholds::default().hot_ns));
    }

    #[test]
    fn a_histogram_answers_working_set_and_quantiles() {
        let mut h = Histogram::default();
        h.add(Interval::ABSENT, 7);
        h.add(Interval::UNMEASURED, 5);
        h.add(Interval::from_ns(16_000_000), 30);
        h.add(Interval::from_ns(4_096_000_000), 70);
        assert_eq!((h.resident(), h.measured()), (105, 100));
        assert_eq!(h.within_ns(1_000_000_000), 30);
        assert_eq!(h.within_ns(5_000_000_000), 100);
        assert_eq!(h.quantile(0.3), Some(Interval::from_ns(16_000_000)));
        assert_eq!(h.quantile(0.31), Some(Interval::from_ns(4_096_000_000)));
        let json: Vec<(u8, u64)> = h.clone().into();
        assert_eq!(Histogram::from(json).iter().collect::<Vec<_>>(), h.iter().collect::<Vec<_>>());
    }
}
