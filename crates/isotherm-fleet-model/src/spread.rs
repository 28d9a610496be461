//! Pages spread over the scale of codes, as measured intervals are: evenly around a middle, on a log scale.

use isotherm_heat::{Histogram, Interval, STEPS_PER_OCTAVE};
use std::sync::LazyLock;

const TABLE_STEPS: usize = 1024;
const MAX_Z: f64 = 3.0;

/// The normal distribution from -3 to 3, scaled so that it ends at 0 and 1.
static NORMAL: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let width = 2.0 * MAX_Z / TABLE_STEPS as f64;
    let density = |step: usize| (-(-MAX_Z + (step as f64 + 0.5) * width).powi(2) / 2.0).exp();
    let mut sum = 0.0;
    let mut table = vec![0.0];
    table.extend((0..TABLE_STEPS).map(|step| {
        sum += density(step);
        sum
    }));
    table.iter().map(|value| value / sum).collect()
});

/// The share of a normal distribution below `z`.
fn below(z: f64) -> f64 {
    let at = (z + MAX_Z) / (2.0 * MAX_Z) * TABLE_STEPS as f64;
    if at <= 0.0 {
        return 0.0;
    }
    if at >= TABLE_STEPS as f64 {
        return 1.0;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the length of the table"
    )]
    let place = at as usize;
    let (low, high) = (NORMAL[place], NORMAL[place + 1]);
    low + (high - low) * at.fract()
}

/// Pages whose intervals lie around a middle.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// How many.
    pub pages: f64,
    /// The middle, seconds.
    pub middle_s: f64,
    /// The standard deviation, in octaves.
    pub octaves: f64,
}

impl Spread {
    fn middle(&self) -> f64 {
        (self.middle_s * 1000.0).max(1.0).log2()
    }

    /// Pages with an interval of at most `seconds`.
    pub fn within(&self, seconds: f64) -> f64 {
        self.pages * below(((seconds * 1000.0).log2() - self.middle()) / self.octaves)
    }

    /// Adds its pages to a histogram, as whole pages: all of them, at the steps around the middle.
    pub fn add_to(&self, histogram: &mut Histogram) {
        self.for_each(|at, pages| histogram.add(at, pages));
    }

    /// Calls `each` with the steps that have pages.
    pub fn for_each(&self, mut each: impl FnMut(Interval, u64)) {
        let (middle, step) = (self.middle(), 1.0 / f64::from(STEPS_PER_OCTAVE));
        let reach = MAX_Z * self.octaves;
        let (first, last) = (Interval::from_octaves(middle - reach), Interval::from_octaves(middle + reach));
        let mut given = 0;
        for code in first.code()..=last.code() {
            let at = Interval::from_code(code);
            let upper = at.octaves().unwrap_or_default() + step / 2.0;
            let share = if code == last.code() { 1.0 } else { below((upper - middle) / self.octaves) };
            let until = whole(self.pages * share);
            if until > given {
                each(at, until - given);
                given = until;
            }
        }
    }
}

/// The nearest whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no negative numbers; saturates")]
pub fn whole(number: f64) -> u64 {
    number.max(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_are_spread_around_the_middle() {
        let spread = Spread { pages: 10_000.0, middle_s: 8.0, octaves: 0.5 };
        let mut histogram = Histogram::default();
        spread.add_to(&mut histogram);
        assert_eq!(histogram.resident(), 10_000);
        assert_eq!(histogram.quantile(0.5).unwrap(), Interval::from_ns(8_000_000_000));
        // One standard deviation is half an octave: 84.1% lie below 8 s * sqrt(2), less what is beyond three deviations.
        assert!((spread.within(8.0 * std::f64::consts::SQRT_2) - 8_413.0).abs() < 10.0);
        assert_eq!(
            (whole(spread.within(8.0)), whole(spread.within(1.0)), whole(spread.within(99.0))),
            (5000, 0, 10_000)
        );
    }
}
