//! How soon a picture is as good as it stays.

use isotherm_heat::Score;

/// Precision and recall of a picture that is good, and of one that is exact.
const GOOD: f64 = 0.95;
const EXACT: f64 = 0.99;

/// Since when a picture has been good, and exact: seconds from its start, `None` while it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GoodSince {
    /// Precision and recall have been 0.95 or better.
    pub good_s: Option<f64>,
    /// They have been 0.99 or better, of a complete picture.
    pub exact_s: Option<f64>,
}

impl GoodSince {
    /// Takes in how good the picture is after so many seconds, and whether everything in it is known. What does not stay
    /// good begins again.
    pub fn note(&mut self, after_s: f64, score: &Score, is_complete: bool) {
        let reaches = |bound: f64| score.precision() >= bound && score.recall() >= bound;
        let since = |so_far: Option<f64>, is_so: bool| is_so.then(|| so_far.unwrap_or(after_s));
        self.good_s = since(self.good_s, reaches(GOOD));
        self.exact_s = since(self.exact_s, reaches(EXACT) && is_complete);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Interval;

    /// A picture of ten hot pages that finds so many of them.
    fn found(hot: usize) -> Score {
        let mut score = Score::of(10.0);
        (0..hot).for_each(|_| score.add_page(true, Interval::SHORTEST, 1_000_000_000));
        score
    }

    #[test]
    fn a_picture_is_good_from_when_it_stays_good() {
        let after = |pictures: &[(usize, u64)]| {
            let mut since = GoodSince::default();
            for (second, (hot, unmeasured)) in pictures.iter().enumerate() {
                since.note(second as f64, &found(*hot), *unmeasured == 0);
            }
            (since.good_s, since.exact_s)
        };
        assert_eq!(after(&[(9, 5), (10, 5), (10, 0), (10, 0)]), (Some(1.0), Some(2.0)));
        assert_eq!(after(&[(10, 0), (9, 0), (10, 0)]), (Some(2.0), Some(2.0)));
        assert_eq!(after(&[(10, 1), (9, 0)]), (None, None));
    }
}
