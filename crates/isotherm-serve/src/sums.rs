//! Sums over pages: classes, huge pages, working sets. What a row of the overview shows, and what most metrics are made of.
//!
//! A row of a process shows all memory that it has mapped. A sum over processes counts each page once: pages that are also
//! counted for another process are subtracted. Their heat is not known apart, so each step is reduced in proportion, and
//! rounded so that the steps still add up. All figures of a sum come from the same reduced steps and agree with each other.

use isotherm_heat::{Histogram, Interval, Thresholds};
use isotherm_stream::{ProcessRow, Reduced};
use isotherm_units::Bytes;
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// Names of the classes, hot to cold.
pub const CLASSES: [&str; 5] = ["hot", "warm", "cold", "idle", "unmeasured"];
/// Names of the windows of a working set.
pub const WINDOWS: [&str; 4] = ["10s", "1m", "10m", "1h"];
/// Their lengths.
const WINDOWS_NS: [u64; 4] = [10_000_000_000, 60_000_000_000, 600_000_000_000, 3_600_000_000_000];
/// The index of the window that histories show.
pub const MINUTE: usize = 1;
const UNMEASURED: usize = 4;

/// Bytes of one process, or of several with each page counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// By class, on small pages.
    pub small: [u64; 5],
    /// By class, on huge pages.
    pub huge: [u64; 5],
    /// Accessed at least once in a window.
    pub wss: [u64; 4],
    /// Of the classes, what was not checked itself yet and is assumed to be like checked memory around it.
    pub estimated: u64,
    /// Swapped out, if it is known of any process.
    pub swapped: Option<u64>,
}

impl Sum {
    /// All memory that a process has mapped.
    pub fn of(process: &ProcessRow) -> Sum {
        Sum::of_steps(process, |pages| pages)
    }

    /// Its contribution to a sum.
    pub fn counted_once(process: &ProcessRow) -> Sum {
        let whole = process.heat.resident();
        let kept = whole.saturating_sub(process.counted_elsewhere_pages);
        let mut reduce = Reduced::new(whole, kept);
        let sum = Sum::of_steps(process, |pages| reduce.reduce(pages));
        // The steps do not say which of their pages are estimated.
        let estimated = Reduced::new(whole, kept).reduce(process.estimated_pages.min(whole));
        Sum { estimated: Bytes::of_pages(estimated).0, ..sum }
    }

    fn of_steps(process: &ProcessRow, mut kept: impl FnMut(u64) -> u64) -> Sum {
        let estimated = Bytes::of_pages(process.estimated_pages).0;
        let mut sum = Sum { swapped: process.swapped_bytes, estimated, ..Sum::default() };
        for (interval, pages) in process.heat.iter() {
            let huge = process.heat_huge.at(interval).min(pages);
            let huge_bytes = Bytes::of_pages(kept(huge)).0;
            let small_bytes = Bytes::of_pages(kept(pages - huge)).0;
            let class = class_of(interval);
            sum.huge[class] += huge_bytes;
            sum.small[class] += small_bytes;
            if interval.is_measured() {
                for (wss, window_ns) in sum.wss.iter_mut().zip(WINDOWS_NS) {
                    *wss += if interval <= Interval::from_ns(window_ns) { huge_bytes + small_bytes } else { 0 };
                }
            }
        }
        sum
    }

    /// Adds another sum.
    pub fn add(&mut self, other: &Sum) {
        let pairs = self.small.iter_mut().zip(other.small).chain(self.huge.iter_mut().zip(other.huge));
        for (mine, theirs) in pairs.chain(self.wss.iter_mut().zip(other.wss)) {
            *mine = mine.saturating_add(theirs);
        }
        self.estimated = self.estimated.saturating_add(other.estimated);
        self.swapped = match (self.swapped, other.swapped) {
            (Some(mine), Some(theirs)) => Some(mine.saturating_add(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
    }

    /// The mean of several.
    pub fn mean<'a>(sums: impl Iterator<Item = &'a Sum>) -> Sum {
        let (mut total, mut count) = (Sum::default(), 0);
        for sum in sums {
            total.add(sum);
            count += 1;
        }
        let count = std::cmp::max(count, 1);
        total.small.iter_mut().chain(&mut total.huge).chain(&mut total.wss).for_each(|bytes| *bytes /= count);
        total.estimated /= count;
        total.swapped = total.swapped.map(|bytes| bytes / count);
        total
    }

    /// All classes.
    pub fn resident(&self) -> u64 {
        self.small.iter().chain(&self.huge).sum()
    }

    /// On huge pages.
    pub fn on_huge(&self) -> u64 {
        self.huge.iter().sum()
    }

    /// Hot and on small pages.
    pub fn hot_small(&self) -> u64 {
        self.small[0]
    }

    /// Of unknown heat.
    pub fn unmeasured(&self) -> u64 {
        self.class(UNMEASURED)
    }

    fn class(&self, class: usize) -> u64 {
        self.small[class] + self.huge[class]
    }
}

/// The fields of a row of the overview.
impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("Sum", 7)?;
        row.serialize_field("resident_bytes", &self.resident())?;
        row.serialize_field("huge_bytes", &self.on_huge())?;
        row.serialize_field("hot_small_bytes", &self.hot_small())?;
        row.serialize_field("estimated_bytes", &self.estimated)?;
        row.serialize_field("swapped_bytes", &self.swapped)?;
        row.serialize_field("classes", &Named(CLASSES, std::array::from_fn(|class| self.class(class))))?;
        row.serialize_field("wss", &Named(WINDOWS, self.wss))?;
        row.end()
    }
}

/// Numbers with names, as a JSON object.
struct Named<const N: usize>([&'static str; N], [u64; N]);

impl<const N: usize> Serialize for Named<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().zip(self.1))
    }
}

fn class_of(interval: Interval) -> usize {
    let bounds = Thresholds::default();
    // On the scale, as histograms count, so that a row agrees with the reports of the command line.
    let within = |ns| interval <= Interval::from_ns(ns);
    match () {
        () if !interval.is_measured() => UNMEASURED,
        () if within(bounds.hot_ns) => 0,
        () if within(bounds.warm_ns) => 1,
        () if within(bounds.cold_ns) => 2,
        () => 3,
    }
}

/// Upper bounds of the buckets of idle times, in seconds. The last bucket has none.
pub const AGES_S: [u64; 7] = [1, 10, 60, 600, 3600, 21_600, 86_400];

/// Bytes by the time since they were last seen accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ages {
    /// By bucket, each without those before it.
    pub buckets: [u64; 8],
    /// The sum of bytes times seconds.
    pub byte_seconds: f64,
}

impl Ages {
    /// Of one process, with pages that are counted for another one taken away in proportion. Pages whose idle time is not known
    /// are in no bucket.
    pub fn counted_once(process: &ProcessRow) -> Ages {
        let whole = process.heat.resident();
        let mut reduce = Reduced::new(whole, whole.saturating_sub(process.counted_elsewhere_pages));
        let mut ages = Ages::default();
        for (idle, pages) in process.idle.iter() {
            let Some(ns) = idle.ns() else { continue };
            let bytes = Bytes::of_pages(reduce.reduce(pages)).0;
            let bucket = AGES_S.iter().position(|seconds| ns <= seconds * 1_000_000_000).unwrap_or(AGES_S.len());
            ages.buckets[bucket] += bytes;
            ages.byte_seconds += as_f64(bytes) * as_f64(ns) / 1e9;
        }
        ages
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Ages) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine = mine.saturating_add(theirs);
        }
        self.byte_seconds += other.byte_seconds;
    }
}

/// A number of bytes or nanoseconds for arithmetic in which the last digits do not count.
#[expect(clippy::cast_precision_loss, reason = "that is its purpose")]
pub fn as_f64(number: u64) -> f64 {
    number as f64
}

/// Pages of a histogram by octave: the first has intervals from 1 ms to below 2 ms. Unmeasured pages apart.
pub fn octaves(histogram: &Histogram) -> (Vec<(u8, u64)>, u64) {
    let mut octaves: Vec<(u8, u64)> = Vec::new();
    for (interval, pages) in histogram.iter() {
        let Some(octave) = interval.step().map(|step| step / isotherm_heat::STEPS_PER_OCTAVE) else { continue };
        match octaves.last_mut() {
            Some((last, sum)) if *last == octave => *sum += pages,
            _ => octaves.push((octave, pages)),
        }
    }
    (octaves, histogram.at(Interval::UNMEASURED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: f64) -> u8 {
        Interval::from_octaves((seconds * 1000.0).log2()).code()
    }

    fn process(heat: &[(u8, u64)], huge: &[(u8, u64)], elsewhere: u64) -> ProcessRow {
        ProcessRow {
            heat: heat.to_vec().into(),
            heat_huge: huge.to_vec().into(),
            counted_elsewhere_pages: elsewhere,
            ..ProcessRow::default()
        }
    }

    #[test]
    fn pages_are_sorted_into_classes_and_windows() {
        let heat = [(1, 5), (at(0.5), 100), (at(5.0), 200), (at(30.0), 300), (at(500.0), 400)];
        let sum = Sum::of(&process(&heat, &[(at(0.5), 60), (at(30.0), 300)], 0));
        assert_eq!(sum.huge.map(|b| b / 4096), [60, 0, 300, 0, 0]);
        assert_eq!(sum.small.map(|b| b / 4096), [40, 200, 0, 400, 5]);
        // 5 s is within 10 s; 30 s within a minute; 500 s within ten minutes.
        assert_eq!(sum.wss.map(|b| b / 4096), [300, 600, 1000, 1000]);
        assert_eq!((sum.resident(), sum.on_huge(), sum.hot_small()), (1005 << 12, 360 << 12, 40 << 12));
    }

    #[test]
    fn pages_counted_elsewhere_are_taken_from_all_steps_in_proportion() {
        let sum = Sum::counted_once(&process(&[(at(0.5), 100), (at(500.0), 300)], &[], 200));
        assert_eq!((sum.small[0], sum.small[3], sum.resident()), (50 << 12, 150 << 12, 200 << 12));
        let none = Sum::counted_once(&process(&[(at(0.5), 100)], &[], 500));
        assert_eq!(none.resident(), 0);
    }

    #[test]
    fn what_is_estimated_is_counted_once_and_summed_like_the_classes() {
        let row = ProcessRow { estimated_pages: 100, ..process(&[(at(0.5), 100), (at(500.0), 300)], &[], 200) };
        assert_eq!([Sum::of(&row), Sum::counted_once(&row)].map(|sum| sum.estimated), [100 << 12, 50 << 12]);
        let mut both = Sum::of(&row);
        both.add(&Sum::counted_once(&row));
        assert_eq!([both.estimated, Sum::mean([both, Sum::default()].iter()).estimated], [150 << 12, 75 << 12]);
    }

    #[test]
    fn ages_are_weighed_by_bytes() {
        let mut row = process(&[(at(0.5), 30)], &[], 0);
        // 1.024 s is a step of the scale, and above one second; 3.6 days are beyond the last bound.
        row.idle = vec![(at(0.256), 10), (at(1.024), 15), (at(86_400.0 * 3.6), 5), (1, 99)].into();
        let ages = Ages::counted_once(&row);
        assert_eq!(ages.buckets.map(|b| b / 4096), [10, 15, 0, 0, 0, 0, 0, 5]);
        assert!(ages.byte_seconds > 4096.0 * 5.0 * 86_400.0 * 3.0);
    }

    #[test]
    fn octaves_are_sums_of_eight_steps() {
        let histogram = vec![(1, 7), (2, 1), (9, 2), (10, 4), (255, 8)].into();
        assert_eq!(octaves(&histogram), (vec![(0, 3), (1, 4), (31, 8)], 7));
    }

    proptest! {
        #[test]
        fn classes_always_add_up_to_what_is_resident(
            heat in prop::collection::vec((1_u8..=255, 0_u64..1 << 20), 0..60),
            huge in prop::collection::vec((1_u8..=255, 0_u64..1 << 20), 0..60),
            elsewhere in 0_u64..1 << 24,
        ) {
            let row = process(&heat, &huge, elsewhere);
            let resident = row.heat.resident();
            prop_assert_eq!(Sum::of(&row).resident(), resident << 12);
            let once = Sum::counted_once(&row);
            prop_assert_eq!(once.resident(), resident.saturating_sub(elsewhere) << 12);
            prop_assert!(once.wss.is_sorted() && once.wss[3] + once.unmeasured() <= once.resident());
        }
    }
}
