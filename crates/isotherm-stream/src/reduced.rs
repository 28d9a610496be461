//! Parts of a whole that shrinks.
//!
//! A page that several processes map is counted for one of them ([`ProcessRow::counted_elsewhere_pages`]), so that sums over
//! processes count it once. Its heat is not known apart: each step of a histogram is reduced in proportion.
//!
//! [`ProcessRow::counted_elsewhere_pages`]: crate::ProcessRow::counted_elsewhere_pages

/// Reduces parts of a whole in proportion. The running sum is rounded, so that the parts add up exactly.
#[derive(Clone, Copy, Debug)]
pub struct Reduced {
    whole: u64,
    kept: u64,
    before: u64,
    given: u64,
}

impl Reduced {
    /// Of `whole`, so much is kept.
    pub fn new(whole: u64, kept: u64) -> Reduced {
        Reduced { whole: whole.max(1), kept, before: 0, given: 0 }
    }

    /// What is kept of the next part. Over all parts, exactly what is kept of the whole.
    pub fn reduce(&mut self, part: u64) -> u64 {
        self.before = self.before.saturating_add(part);
        let until = u128::from(self.before) * u128::from(self.kept) / u128::from(self.whole);
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        until - std::mem::replace(&mut self.given, until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_what_is_kept() {
        let mut reduce = Reduced::new(9, 5);
        // 5/9 of 1, 3 and 9, rounded down: 0, 1 and 5.
        assert_eq!([1, 2, 6].map(|part| reduce.reduce(part)), [0, 1, 4]);
        let mut none = Reduced::new(0, 0);
        assert_eq!(none.reduce(0), 0);
    }
}
