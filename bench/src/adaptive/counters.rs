//! The counters of a region, in 12 bytes, and the values computed from them.

use super::Attrs;
use isotherm_heat::Tile;

/// The counters of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Accesses counted since the last aggregation.
    pub nr_accesses: u32,
    /// Accesses counted in the last aggregation.
    pub last_nr_accesses: u32,
    /// Aggregations since the count last changed.
    pub age: u32,
}

// Two fit into a cache line: with many regions, the cost of a sample is the cost of reading them.
const _: () = assert!(size_of::<Tile<Counters>>() == 32);

impl Counters {
    /// Increases the age by one aggregation. Resets it if the count changed by more than `bound`, or from or to zero.
    pub(super) fn grow_older(&mut self, bound: u32) {
        let (now, last) = (self.nr_accesses, self.last_nr_accesses);
        let changed = now.abs_diff(last) > bound || (now == 0) != (last == 0);
        self.age = if changed { 0 } else { self.age.saturating_add(1) };
    }

    /// Starts the next aggregation.
    pub(super) fn reset(&mut self) {
        self.last_nr_accesses = self.nr_accesses;
        self.nr_accesses = 0;
    }

    /// Converts counts made under `old` attributes to `new` ones: the same share of all samples, and the same age in
    /// time.
    pub(super) fn rescale(&mut self, old: &Attrs, new: &Attrs) {
        let (from, to) = (old.max_nr_accesses(), new.max_nr_accesses());
        self.nr_accesses = scaled(self.nr_accesses, to.into(), from.into());
        self.last_nr_accesses = scaled(self.last_nr_accesses, to.into(), from.into());
        self.age = scaled(self.age, old.aggregation_ns, new.aggregation_ns);
    }
}

/// `value` * `times` / `by`, saturating.
fn scaled(value: u32, times: u64, by: u64) -> u32 {
    let product = u128::from(value) * u128::from(times) / u128::from(by.max(1));
    u32::try_from(product).unwrap_or(u32::MAX)
}

/// `nr_accesses` as ten-thousandths of `max`.
pub fn accesses_bp(nr_accesses: u32, max: u32) -> u32 {
    scaled(nr_accesses, 10_000, max.into())
}

/// Accesses over the last aggregation interval at any time, in ten-thousandths of an access. The last aggregation's
/// count fades with each of the `passed` of `samples` samples. The accesses that these samples counted are included in
/// full.
///
/// The result equals that of a sum that is updated at each sample. Such a sum is off by the remainder of its division
/// in between. As there, the difference is gone at the end of the interval.
pub fn moving_sum_bp(counters: &Counters, passed: u64, samples: u64) -> u64 {
    let (now, last) = (u64::from(counters.nr_accesses) * 10_000, u64::from(counters.last_nr_accesses) * 10_000);
    if passed >= samples {
        return now;
    }
    now + last - last / samples * passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_attributes_keep_rates_and_times() {
        let attrs = |sample_ns, aggregation_ns| Attrs { sample_ns, aggregation_ns, ..Attrs::default() };
        let mut region = Counters { nr_accesses: 15, age: 20, ..Counters::default() };
        let mut converted = |to: &Attrs| {
            region.rescale(&attrs(10, 1_000), to);
            (region.nr_accesses, region.age)
        };
        assert_eq!(converted(&attrs(100, 10_000)), (15, 2));
        assert_eq!(converted(&attrs(1, 1_000)), (150, 2));
        assert_eq!(converted(&attrs(1, 100)), (150, 20));
    }

    #[test]
    fn a_share_of_the_greatest_maximum_is_nothing() {
        assert_eq!(accesses_bp(123, u32::MAX), 0);
        assert_eq!(accesses_bp(123, 0), 1_230_000, "and no maximum is no division by zero");
        assert_eq!(accesses_bp(u32::MAX, u32::MAX), 10_000);
        assert_eq!(accesses_bp(u32::MAX, 1), u32::MAX);
    }

    #[test]
    fn the_moving_sum_is_what_adding_up_at_each_sample_gives() {
        let hits = [1, 0, 1, 0, 0, 0, 1, 0, 0, 0];
        let expected = [55_000, 50_000, 55_000, 50_000, 45_000, 40_000, 45_000, 40_000, 35_000, 30_000];
        let mut region = Counters { last_nr_accesses: 5, ..Counters::default() };
        assert_eq!(moving_sum_bp(&region, 0, 10), 50_000);
        for (passed, (hit, sum)) in (1..).zip(hits.into_iter().zip(expected)) {
            region.nr_accesses += hit;
            assert_eq!(moving_sum_bp(&region, passed, 10), sum);
        }
    }

    #[test]
    fn and_so_it_is_for_any_counts() {
        let mut rng = isotherm_heat::Rng::new(5);
        for samples in [1, 2, 3, 7, 20, 999] {
            let last = u32::try_from(rng.below(samples + 1)).unwrap();
            let mut region = Counters { last_nr_accesses: last, ..Counters::default() };
            let step = u64::from(last) * 10_000 / samples;
            let mut kept = u64::from(last) * 10_000;
            for passed in 1..samples {
                let hit = rng.below(2);
                region.nr_accesses += u32::try_from(hit).unwrap();
                kept = kept - step + hit * 10_000;
                assert_eq!(moving_sum_bp(&region, passed, samples), kept);
            }
            assert_eq!(moving_sum_bp(&region, samples, samples), u64::from(region.nr_accesses) * 10_000);
        }
    }

    #[test]
    fn age_grows_while_the_count_stays_like_it_was() {
        let aged = |nr_accesses, last_nr_accesses, bound| {
            let mut region = Counters { nr_accesses, last_nr_accesses, age: 7 };
            region.grow_older(bound);
            region.age
        };
        assert_eq!([aged(5, 5, 0), aged(5, 6, 1), aged(0, 0, 0)], [8, 8, 8]);
        assert_eq!([aged(5, 7, 1), aged(0, 1, 1), aged(1, 0, 5)], [0, 0, 0]);
    }
}
