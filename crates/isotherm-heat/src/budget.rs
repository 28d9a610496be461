//! The two budgets: CPU of the monitor, and slow-down of the target.
//!
//! Both are token buckets that fill with time and may hold a few seconds' worth, so that a new target gets a quick first answer
//! and the average is kept all the same. What was spent is told by the caller (CPU time measured; pages seen touched again),
//! so an estimate that was wrong is paid back before anything more is done.

use crate::block::Ns;

/// What a page costs the target when it is touched for the first time after its accessed bit was cleared: the processor sets
/// the bit in a slow walk. Measured on a virtual machine with nested paging; bare metal pays less.
pub const RETOUCH_NS: f64 = 420.0;

/// Seconds' worth a bucket may hold, and starts with.
const CREDIT_S: f64 = 5.0;

/// Tokens in nanoseconds of one core.
#[derive(Clone, Debug)]
pub struct Bucket {
    share: f64,
    tokens_ns: f64,
    filled_at: Ns,
}

impl Bucket {
    /// A bucket for `percent` of one core, full at `now`. Above 100 percent nothing is limited.
    pub fn new(percent: f64, now: Ns) -> Bucket {
        let share = percent / 100.0;
        Bucket { share, tokens_ns: share * CREDIT_S * 1e9, filled_at: now }
    }

    /// Whether it limits anything.
    pub fn is_limited(&self) -> bool {
        self.share <= 1.0
    }

    /// Fills up to `now` and tells what there is to spend; negative if more was spent than allowed.
    pub fn available_ns(&mut self, now: Ns) -> f64 {
        let passed = now.saturating_sub(self.filled_at) as f64;
        self.filled_at = self.filled_at.max(now);
        self.tokens_ns = (self.tokens_ns + passed * self.share).min(self.share * CREDIT_S * 1e9);
        if self.is_limited() { self.tokens_ns } else { f64::INFINITY }
    }

    /// Notes `ns` as spent.
    pub fn spend(&mut self, ns: f64) {
        self.tokens_ns -= ns;
    }

    /// Nanoseconds from now until there are tokens again; 0 if there are.
    pub fn wait_ns(&self) -> Ns {
        if self.tokens_ns >= 0.0 || !self.is_limited() {
            return 0;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive; a wait of centuries saturates"
        )]
        let wait = (-self.tokens_ns / self.share.max(1e-9)) as Ns;
        wait
    }

    /// The share of one core it grants.
    pub fn share(&self) -> f64 {
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;

    #[test]
    fn one_percent_is_ten_milliseconds_a_second_after_the_credit() {
        let mut b = Bucket::new(1.0, 0);
        assert_eq!(b.available_ns(0), 50e6);
        b.spend(60e6);
        assert_eq!(b.wait_ns(), S);
        assert_eq!(b.available_ns(S), 0.0);
        assert_eq!(b.available_ns(3 * S), 20e6);
        assert_eq!(b.available_ns(100 * S), 50e6, "no more than the credit is saved up");
    }

    #[test]
    fn over_a_hundred_percent_nothing_is_limited() {
        let mut b = Bucket::new(1000.0, 0);
        b.spend(1e18);
        assert!(b.available_ns(S) > 0.0 && b.wait_ns() == 0);
    }
}
