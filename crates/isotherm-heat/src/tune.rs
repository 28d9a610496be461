//! Intervals that follow the accesses: shorter where many are observed, longer where few are, towards a goal.
//!
//! As with DAMON's intervals goal, the question is: what share of the accesses that could be counted at this interval
//! was counted? If it is hardly any, the checks come too often and are wasted. If it is nearly all, the interval is too
//! long to separate hot from hotter. So the interval changes in proportion to the distance from the wanted share. It
//! changes to no less than half and no more than twice its old value, since one count is no proof. The caller decides
//! who counts, over how long, and what else depends on the interval. This module has only numbers, so every step can be
//! worked by hand.
//!
//! Sampled targets tune by it, and DAMON's algorithm in `isotherm-bench` (`adaptive`).

use crate::Ns;
use serde::{Deserialize, Serialize};

/// All of something, in ten-thousandths.
const WHOLE: u64 = 10_000;
/// The scale that the loop works on. Its result divided by `WHOLE` is the interval's change in ten-thousandths.
const LOOP_SCALE: u64 = 100_000_000;

/// Which share of the possible accesses to observe, and the bounds of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalGoal {
    /// The wanted share, in ten-thousandths. DAMON's users set 400.
    pub observed_bp: u32,
    /// The shortest interval.
    pub min_interval_ns: Ns,
    /// The longest interval. If it is below the minimum, the minimum holds.
    pub max_interval_ns: Ns,
}

/// A goal for the interval of a sampled target, and when the interval changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Which share of the memory to find accessed within an interval, and the bounds of the interval.
    #[serde(flatten)]
    pub goal: IntervalGoal,
    /// The interval changes once in this many aggregations. An aggregation ends when each region was checked once.
    pub aggregations: u32,
}

/// What was counted at an interval, and what could have been. Both have the same unit: accesses, or accesses times the
/// bytes that each stands for, up to 2^114.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Accesses that were counted.
    pub counted: u128,
    /// Accesses that would have been counted if every check had found one.
    pub possible: u128,
}

impl IntervalGoal {
    /// The next interval, after `observed` was counted at `interval_ns`. It is within the goal's bounds and, as far as
    /// they allow, between half and twice the current one. If nothing could have been counted, the interval doubles.
    pub fn next_interval(&self, interval_ns: Ns, observed: Observed) -> Ns {
        let change_bp = match feed_loop(LOOP_SCALE, self.met_bp(observed)) / WHOLE {
            shorter @ ..=WHOLE => WHOLE / 2 + shorter / 2,
            longer => longer,
        };
        let wanted = u128::from(interval_ns) * u128::from(change_bp) / u128::from(WHOLE);
        u64::try_from(wanted).unwrap_or(u64::MAX).min(self.max_interval_ns).max(self.min_interval_ns)
    }

    /// The share that was counted, in ten-thousandths of the wanted one.
    fn met_bp(&self, observed: Observed) -> u64 {
        let wanted = observed.possible.saturating_mul(self.observed_bp.into()) / u128::from(WHOLE);
        u64::try_from(observed.counted.saturating_mul(WHOLE.into()) / wanted.max(1)).unwrap_or(u64::MAX)
    }
}

/// The next input of a loop that met `met_bp` of its goal for the input `last`. It is larger below [`WHOLE`] and
/// smaller above, in proportion to the distance. From twice the goal on it is the minimum.
fn feed_loop(last: u64, met_bp: u64) -> u64 {
    const LEAST: u64 = 10_000;
    let change = |by: u64| u64::try_from(u128::from(last) * u128::from(by) / u128::from(WHOLE)).unwrap_or(u64::MAX);
    match met_bp {
        WHOLE => last,
        below if below < WHOLE => last.saturating_add(change(WHOLE - below)),
        above if above < 2 * WHOLE => last.saturating_sub(change(above - WHOLE)).max(LEAST),
        _ => LEAST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;
    const GOAL: IntervalGoal = IntervalGoal { observed_bp: 400, min_interval_ns: MS, max_interval_ns: 1000 * MS };

    fn next(interval_ns: Ns, counted: u128, possible: u128) -> Ns {
        GOAL.next_interval(interval_ns, Observed { counted, possible })
    }

    #[test]
    fn the_loop_goes_the_right_way() {
        let last = 900_000;
        assert!(feed_loop(last, 200) > last);
        assert!(feed_loop(last, 250_000_000) < last);
        assert!(feed_loop(last, 200) > feed_loop(last, 2_000));
        assert_eq!(feed_loop(last, 10_000), last);
        assert_eq!(feed_loop(last, 5_000), 1_350_000);
        assert_eq!(feed_loop(last, 15_000), 450_000);
        assert_eq!([feed_loop(last, 20_000), feed_loop(last, u64::MAX)], [10_000; 2]);
        assert_eq!(feed_loop(u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn intervals_double_halve_or_stay() {
        // Wanted: 4% of 1,000, which is 40. None, half of it, and just that.
        assert_eq!(
            [next(5 * MS, 0, 1000), next(5 * MS, 20, 1000), next(5 * MS, 40, 1000)],
            [10 * MS, 7_500_000, 5 * MS]
        );
        // One and a half, twice, and twenty-five times as much: a quarter less, then half, and never less than that.
        // (From twice on the loop is at its floor, 10,000 of 100,000,000: 1 in ten-thousandths, of which the half is nothing.)
        assert_eq!(
            [next(5 * MS, 60, 1000), next(5 * MS, 80, 1000), next(5 * MS, 1000, 1000)],
            [3_750_000, 2_500_000, 2_500_000]
        );
    }

    #[test]
    fn the_bounds_hold() {
        assert_eq!(next(800 * MS, 0, 1000), 1000 * MS);
        assert_eq!(next(1_500_000, 1000, 1000), MS);
        assert_eq!(next(5000 * MS, 40, 1000), 1000 * MS, "the goal is met, but by what may not be");
        let crossed = IntervalGoal { min_interval_ns: 9 * MS, max_interval_ns: 3 * MS, ..GOAL };
        assert_eq!(crossed.next_interval(5 * MS, Observed::default()), 9 * MS);
    }

    #[test]
    fn nothing_to_observe_is_nothing_observed() {
        assert_eq!(GOAL.met_bp(Observed::default()), 0);
        assert_eq!(next(5 * MS, 0, 0), 10 * MS);
    }

    #[test]
    fn the_largest_counts_fit() {
        // 2^16 aggregations of 2^64 bytes with 2^32 accesses each, less a bit: all of it, and then the wanted share.
        let (all, part) = (10_000 << 98, 400 << 98);
        assert_eq!([next(5 * MS, all, all), next(5 * MS, part, all)], [2_500_000, 5 * MS]);
        let unbounded = IntervalGoal { max_interval_ns: Ns::MAX, ..GOAL };
        assert_eq!(unbounded.next_interval(Ns::MAX, Observed::default()), Ns::MAX);
    }
}
