//! From heat to DAMON's counts, and back. The parent module explains these formulas.

use super::model::{Age, RegionRecord};
use isotherm_heat::{Interval, Region};
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

const SECOND_NS: f64 = 1e9;

/// The two intervals that give a count its meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counting {
    /// Time between two checks of a region. `None` if unknown: then a count has no known maximum.
    pub sample_ns: Option<u64>,
    /// Time over which the checks are counted. Above 0.
    pub aggregation_ns: u64,
}

/// A region as reported by a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Checks that found an access.
    pub samples: u64,
    /// How long it has had this count.
    pub age_ns: u64,
    /// Whether it is accessed more often than a count can express.
    pub saturated: bool,
}

impl Counting {
    /// The greatest possible count.
    pub fn max(self) -> Option<u64> {
        self.sample_ns.map(|sample| (self.aggregation_ns / sample.max(1)).max(1))
    }

    /// What DAMON would have counted.
    pub fn count(self, region: &Region) -> Counted {
        let max = self.max().unwrap_or(u64::MAX);
        let expected = (f64::from(region.rate_hz) * self.aggregation_ns as f64 / SECOND_NS).round().max(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
        let samples = (expected as u64).min(max);
        // damo adds an aggregation interval to the age of idle regions.
        let idle_age = region.idle_ns.saturating_sub(self.aggregation_ns);
        let age_ns = if samples == 0 { idle_age } else { region.age_ns };
        Counted { samples, age_ns, saturated: expected > max as f64 }
    }

    /// The heat that a count shows. The second value is whether the count was above the maximum; the maximum is used
    /// then.
    pub fn region(self, record: &RegionRecord, resident: Option<Bytes>) -> (Region, bool) {
        let range = AddrRange::new(Addr(record.start), Addr(record.end));
        let pages = range.len().0.div_ceil(PAGE_SIZE);
        let resident_pages = resident.map_or(pages, |bytes| bytes.0.div_ceil(PAGE_SIZE).min(pages));
        let age_ns = self.age_ns(&record.age);
        let mut region = Region {
            range,
            resident_pages,
            measured_pages: 0,
            huge_pages: 0,
            interval: Interval::UNMEASURED,
            rate_hz: 0.0,
            age_ns,
            idle_ns: 0,
            sampled_pages: 0,
            estimated_pages: 0,
            hot_pages: None,
        };
        let Some(hits) = self.hits(record) else { return (region, false) };
        let max = self.max().map_or(f64::INFINITY, |m| m as f64);
        self.set_heat(&mut region, hits.min(max));
        region.measured_pages = resident_pages;
        (region, hits > max)
    }

    fn set_heat(self, region: &mut Region, hits: f64) {
        let aggregation_ns = self.aggregation_ns;
        if hits > 0.0 {
            let interval_ns = aggregation_ns as f64 / hits;
            region.interval = Interval::from_octaves((interval_ns / 1e6).log2());
            // On average the last access was half an interval ago.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "saturates, and is not negative"
            )]
            let idle_ns = (interval_ns / 2.0) as u64;
            region.idle_ns = idle_ns;
            #[expect(clippy::cast_possible_truncation, reason = "a rate with seven digits")]
            let rate_hz = (SECOND_NS / interval_ns) as f32;
            region.rate_hz = rate_hz;
        } else {
            region.idle_ns = region.age_ns.saturating_add(aggregation_ns);
            region.interval = Interval::from_ns(region.idle_ns).extrapolated();
            #[expect(clippy::cast_possible_truncation, reason = "a rate with seven digits")]
            let rate_hz = region.interval.rate_hz() as f32;
            region.rate_hz = rate_hz;
        }
    }

    /// Checks that found an access. Computed from a percentage if only that is given.
    fn hits(self, record: &RegionRecord) -> Option<f64> {
        let counts = record.nr_accesses.as_ref()?;
        let of_share = || Some(counts.percent? / 100.0 * self.max()? as f64);
        counts.samples.map(|samples| samples as f64).or_else(of_share)
    }

    fn age_ns(self, age: &Age) -> u64 {
        let of_intervals = || u64::try_from(age.aggr_intervals?).ok()?.checked_mul(self.aggregation_ns);
        age.usec.or_else(of_intervals).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damo::model::NrAccesses;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;
    const EXPORT: Counting = Counting { sample_ns: Some(5 * MS), aggregation_ns: 10 * SECOND };

    fn hot(rate_hz: f32, age_ns: u64, idle_ns: u64) -> Region {
        let range = AddrRange::new(Addr(0x1000), Addr(0x9000));
        let interval = Interval::from_octaves((1000.0 / f64::from(rate_hz)).log2());
        Region {
            range,
            resident_pages: 5,
            measured_pages: 5,
            huge_pages: 0,
            interval,
            rate_hz,
            age_ns,
            idle_ns,
            sampled_pages: 0,
            estimated_pages: 0,
            hot_pages: None,
        }
    }

    fn record(counted: Counted) -> RegionRecord {
        RegionRecord {
            start: 0x1000,
            end: 0x9000,
            nr_accesses: Some(NrAccesses { samples: i64::try_from(counted.samples).ok(), percent: None }),
            age: Age { usec: Some(counted.age_ns), aggr_intervals: None },
            sz_filter_passed: None,
        }
    }

    #[test]
    fn a_rate_is_as_many_hits_as_accesses_in_the_aggregation_interval() {
        let count = |counting: Counting, rate| counting.count(&hot(rate, 0, 0)).samples;
        assert_eq!([62.5, 1.0, 0.1, 0.05, 0.04].map(|r| count(EXPORT, r)), [625, 10, 1, 1, 0]);
        let kernel = Counting { sample_ns: Some(5 * MS), aggregation_ns: 100 * MS };
        assert_eq!((kernel.max(), EXPORT.max()), (Some(20), Some(2000)));
        // What DAMON's own intervals can tell: the demo's hot pages, and nothing that is accessed once a second.
        assert_eq!([62.5, 25.0, 1.0].map(|r| count(kernel, r)), [6, 3, 0]);
    }

    #[test]
    fn more_than_one_access_a_look_cannot_be_told() {
        let counted = EXPORT.count(&hot(300.0, 0, 0));
        assert_eq!((counted.samples, counted.saturated), (2000, true));
        assert!(!EXPORT.count(&hot(200.0, 0, 0)).saturated);
        let (back, beyond) = EXPORT.region(&record(counted), None);
        assert_eq!((back.rate_hz, beyond), (200.0, false));
        let (back, beyond) = EXPORT.region(&record(Counted { samples: 2100, ..counted }), None);
        assert_eq!((back.rate_hz, beyond), (200.0, true), "as far as a count goes");
    }

    #[test]
    fn what_is_idle_is_so_for_as_long_again() {
        let idle = hot(0.01, 7, 100 * SECOND);
        let counted = EXPORT.count(&idle);
        assert_eq!((counted.samples, counted.age_ns), (0, 90 * SECOND), "damo adds 10 s");
        let (back, _) = EXPORT.region(&record(counted), None);
        assert_eq!(back.idle_ns, 100 * SECOND);
        assert_eq!(back.interval, Interval::from_ns(800 * SECOND));
    }

    #[test]
    fn ages_are_in_either_unit() {
        let mut of_kernel = record(Counted { samples: 3, age_ns: 0, saturated: false });
        of_kernel.age = Age { usec: None, aggr_intervals: Some(7) };
        assert_eq!(EXPORT.region(&of_kernel, None).0.age_ns, 70 * SECOND);
        of_kernel.age = Age { usec: None, aggr_intervals: None };
        assert_eq!(EXPORT.region(&of_kernel, None).0.age_ns, 0);
    }

    #[test]
    fn a_share_counts_if_there_is_no_count_and_nothing_is_unknown() {
        let mut region = record(Counted { samples: 0, age_ns: 0, saturated: false });
        region.nr_accesses = Some(NrAccesses { samples: None, percent: Some(50.0) });
        let (half, _) = EXPORT.region(&region, Some(Bytes(8192)));
        assert_eq!((half.rate_hz, half.resident_pages, half.measured_pages), (100.0, 2, 2));
        region.nr_accesses = None;
        let (unknown, _) = EXPORT.region(&region, None);
        assert_eq!((unknown.interval, unknown.resident_pages, unknown.measured_pages), (Interval::UNMEASURED, 8, 0));
    }

    proptest! {
        #[test]
        fn a_rate_comes_back_to_within_half_a_count(
            rate in 0.0_f32..200.0, age in 0..1_u64 << 50, idle in 0..1_u64 << 50, sample in 1..100_u64, levels in 1..5000_u64,
        ) {
            let counting = Counting { sample_ns: Some(sample * MS), aggregation_ns: sample * levels * MS };
            let counted = counting.count(&hot(rate, age, idle));
            let (back, beyond) = counting.region(&record(counted), None);
            let one_count = SECOND_NS / counting.aggregation_ns as f64;
            let counted_hz = f64::from(rate).min(SECOND_NS / (sample * MS) as f64);
            prop_assert!(!beyond);
            prop_assert!((f64::from(back.rate_hz) - counted_hz).abs() <= one_count / 2.0 * 1.0001 + 1e-5, "{back:?} {counted:?}");
            if counted.samples > 0 {
                prop_assert_eq!(back.age_ns, age);
            } else {
                prop_assert_eq!(back.idle_ns, idle.max(counting.aggregation_ns));
            }
        }
    }
}
