//! What something costs a busy target: windows with it and without, by turns, so that what the machine does besides falls on both.

use crate::median;
use anyhow::Result;
use std::time::Duration;

/// Windows of each kind.
const PAIRS: usize = 10;
/// Before each window: the caches of the target are as they were.
const SETTLED: Duration = Duration::from_millis(300);

/// By how much the first is above the second, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Above {
    /// The median of the pairs.
    pub median: f64,
    /// The lower end of its 95% interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// Measures `with` and `without` ten times each, a different one first each time.
pub fn by_turns(mut with: impl FnMut() -> Result<f64>, mut without: impl FnMut() -> Result<f64>) -> Result<Above> {
    let mut ratios = Vec::new();
    for pair in 0..PAIRS {
        let (mut one, mut other) = (0.0, 0.0);
        for turn in [pair % 2, 1 - pair % 2] {
            std::thread::sleep(SETTLED);
            if turn == 0 {
                one = with()?;
            } else {
                other = without()?;
            }
        }
        ratios.push(100.0 * (one / other - 1.0));
    }
    ratios.sort_by(f64::total_cmp);
    // Of ten values, the second and the ninth hold the median with a probability of 97.9%.
    Ok(Above { median: median(&ratios), low: ratios[1], high: ratios[PAIRS - 2] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_two_take_turns_and_the_interval_leaves_out_an_outlier_on_each_side() {
        let order = RefCell::new(String::new());
        let mut costs = [110.0, 111.0, 109.0, 500.0, 112.0, 108.0, 1.0, 110.0, 113.0, 107.0].into_iter();
        let with = || {
            order.borrow_mut().push('w');
            Ok(costs.next().unwrap())
        };
        let without = || {
            order.borrow_mut().push('o');
            Ok(100.0)
        };
        let above = by_turns(with, without).unwrap();
        assert_eq!(order.into_inner(), "woow".repeat(5));
        let rounded = [above.median, above.low, above.high].map(f64::round);
        assert_eq!(rounded, [10.0, 7.0, 13.0]);
    }
}
