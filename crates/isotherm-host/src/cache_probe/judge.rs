//! From pairs of times to a verdict. Pure.

use std::fmt;

/// Times of the two pairs of a sample, in any unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Of two pages at the distance in question.
    pub apart: u64,
    /// Of two pages that certainly do not compete.
    pub control: u64,
}

/// What samples show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// Number of samples that count.
    pub samples: usize,
    /// Median of apart / control.
    pub ratio: f64,
    /// Lower bound of the median. The median is outside of `low` to `high` in one probe of a thousand. Computed by
    /// ranks, so the distribution of times does not matter.
    pub low: f64,
    /// Upper bound of the median.
    pub high: f64,
    /// Probability of at least as many samples as here in which `apart` was slower, if both pairs were equally likely
    /// to be slower (sign test).
    pub p: f64,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Evidence { samples, ratio, low, high, p } = self;
        write!(f, "{ratio:.2} times the control ({low:.2} to {high:.2}, p {p:.1e}, {samples} samples)")
    }
}

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unsure {
    /// There are fewer samples than needed.
    TooFew(usize),
    /// The clock is too coarse: it showed no time at all for this many samples.
    NoTime(usize),
    /// The samples fit a conflict as well as none.
    Noise(Evidence),
    /// The mapping has fewer pairs of frames at that distance than needed: this many.
    NoPairs(usize),
    /// Too many pages were moved to other frames meanwhile: this many samples.
    Moved(usize),
}

impl fmt::Display for Unsure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsure::TooFew(samples) => write!(f, "{samples} samples in the time given; it takes {MIN_SAMPLES}"),
            Unsure::NoTime(samples) => write!(f, "the clock is too coarse: {samples} samples took no time"),
            Unsure::Noise(evidence) => write!(f, "too noisy: {evidence}"),
            Unsure::NoPairs(0) => f.write_str("no two frames of our memory are that far apart"),
            Unsure::NoPairs(pairs) => write!(f, "only {pairs} pairs of frames of our memory are that far apart"),
            Unsure::Moved(samples) => write!(f, "pages were moved to other frames meanwhile, in {samples} samples"),
        }
    }
}

/// Whether frames at a distance compete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// They do.
    Conflict(Evidence),
    /// They do not.
    NoConflict(Evidence),
    /// Undecided.
    Unsure(Unsure),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Conflict(evidence) => write!(f, "conflict: {evidence}"),
            Verdict::NoConflict(evidence) => write!(f, "no conflict: {evidence}"),
            Verdict::Unsure(why) => write!(f, "unsure: {why}"),
        }
    }
}

/// Fewer samples decide nothing.
pub(super) const MIN_SAMPLES: usize = 64;

/// The lowest cost of a conflict. A line from slow memory, after a lookup in the cache, takes longer than a line from
/// the cache by more than this, on any machine with a useful memory-side cache. Two pages in one bank cost less, since
/// each is read in one go.
const MIN_RATIO: f64 = 1.10;

/// Probability of an error of the sign test; several sizes are tried in one go.
const MIN_P: f64 = 1e-4;

/// Half the width of the interval around the median, in standard deviations of a rank: one in a thousand lies outside.
const WIDTH: f64 = 3.29;

/// Judges samples that were taken in pairs.
///
/// The verdict is a conflict if the median ratio is certainly above 1.1, and no conflict if it is certainly below. Only
/// ranks count, so a few extreme times decide nothing. Drift that is slower than a sample is in both of its times.
pub fn judge(samples: &[Sample]) -> Verdict {
    if samples.len() < MIN_SAMPLES {
        return Verdict::Unsure(Unsure::TooFew(samples.len()));
    }
    let timed: Vec<Sample> = samples.iter().copied().filter(|s| s.apart > 0 && s.control > 0).collect();
    let untimed = samples.len() - timed.len();
    if untimed * 10 > samples.len() || timed.len() < MIN_SAMPLES {
        return Verdict::Unsure(Unsure::NoTime(untimed));
    }
    let evidence = weigh(&timed);
    if evidence.low > MIN_RATIO && evidence.p < MIN_P {
        Verdict::Conflict(evidence)
    } else if evidence.high < MIN_RATIO {
        Verdict::NoConflict(evidence)
    } else {
        Verdict::Unsure(Unsure::Noise(evidence))
    }
}

/// Takes at least [`MIN_SAMPLES`] samples, none with a time of zero.
fn weigh(samples: &[Sample]) -> Evidence {
    #[expect(clippy::cast_precision_loss, reason = "times of microseconds")]
    let mut ratios: Vec<f64> = samples.iter().map(|s| s.apart as f64 / s.control as f64).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let n = ratios.len();
    let below = lower_rank(n);
    let slower = samples.iter().filter(|s| s.apart > s.control).count();
    let faster = samples.iter().filter(|s| s.apart < s.control).count();
    Evidence {
        samples: n,
        ratio: f64::midpoint(ratios[(n - 1) / 2], ratios[n / 2]),
        low: ratios[below],
        high: ratios[n - 1 - below],
        p: at_least(slower, slower + faster),
    }
}

/// The index of the sorted value that is a lower bound of the median of what `n` values were drawn from, with the
/// certainty of [`WIDTH`].
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank below n, and n is far below 2^52"
)]
fn lower_rank(n: usize) -> usize {
    let n = n as f64;
    (n / 2.0 - WIDTH * n.sqrt() / 2.0).floor().max(0.0) as usize
}

/// The probability of `wins` or more heads in `n` throws of a coin.
#[expect(clippy::cast_precision_loss, reason = "numbers of samples")]
fn at_least(wins: usize, n: usize) -> f64 {
    // Terms of the binomial distribution by their logarithms: 2^-n alone would be zero from n = 1,075 on.
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for k in 0..=n {
        if k >= wins {
            sum += log_term.exp();
        }
        log_term += ((n - k) as f64).ln() - ((k + 1) as f64).ln();
    }
    f64::min(sum, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coins_are_counted() {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
        assert!(close(at_least(0, 10), 1.0) && close(at_least(10, 10), 1.0 / 1024.0));
        assert!(close(at_least(8, 10), 56.0 / 1024.0));
        assert!(close(at_least(0, 0), 1.0), "nothing but ties");
        let half = at_least(2500, 5000);
        assert!((0.5..0.51).contains(&half), "{half}");
        assert!(at_least(5000, 5000) >= 0.0 && at_least(400, 400) < 1e-100);
    }

    #[test]
    fn ranks_hold_the_median_of_a_thousand_and_one() {
        // 64 / 2 - 3.29 * 8 / 2 = 18.84.
        assert_eq!((lower_rank(64), lower_rank(10_000), lower_rank(4)), (18, 4_835, 0));
    }
}
