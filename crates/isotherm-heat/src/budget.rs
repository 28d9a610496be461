//! The two budgets: CPU of the monitor, and slow-down of the target.
//!
//! Both are token buckets. They fill with time and hold a few seconds' worth, so that a new target gets a quick first
//! answer. What that takes beyond the allowed share is paid back: until the average is within the share, the bucket
//! fills at three quarters of its rate. So the share holds for the whole run from four times the credit on. The caller
//! reports what was spent (CPU time measured, pages seen touched again). A wrong estimate is therefore paid back before
//! anything more is done.

use crate::pmd::Ns;

/// What a page costs the target when it is touched for the first time after its accessed bit was cleared: the processor
/// sets the bit in a slow walk. Measured on a virtual machine with nested paging. Bare metal pays less.
pub const RETOUCH_NS: f64 = 420.0;

/// Tokens in nanoseconds of one core.
#[derive(Clone, Debug)]
pub struct Bucket {
    share: f64,
    credit_ns: f64,
    tokens_ns: f64,
    filled_at: Ns,
    /// Spent so far beyond what the share allowed until now.
    over_ns: f64,
}

/// How fast a bucket fills while more was spent on average than allowed.
const PAY_BACK: f64 = 0.75;

impl Bucket {
    /// A bucket for `percent` of one core that holds `credit_s` seconds' worth, full at `now`. Above 100 percent nothing is
    /// limited.
    pub fn new(percent: f64, credit_s: f64, now: Ns) -> Bucket {
        let share = percent / 100.0;
        let credit_ns = share * credit_s * 1e9;
        Bucket { share, credit_ns, tokens_ns: credit_ns, filled_at: now, over_ns: 0.0 }
    }

    /// Whether it limits anything.
    pub fn is_limited(&self) -> bool {
        self.share <= 1.0
    }

    /// Fills the bucket up to `now` and returns what there is to spend. Negative if more was spent than allowed.
    pub fn available_ns(&mut self, now: Ns) -> f64 {
        let passed = now.saturating_sub(self.filled_at) as f64;
        self.filled_at = self.filled_at.max(now);
        let rate = if self.over_ns > 0.0 { self.share * PAY_BACK } else { self.share };
        self.over_ns -= passed * self.share;
        self.tokens_ns = (self.tokens_ns + passed * rate).min(self.credit_ns);
        if self.is_limited() { self.tokens_ns } else { f64::INFINITY }
    }

    /// Notes `ns` as spent.
    pub fn spend(&mut self, ns: f64) {
        self.tokens_ns -= ns;
        self.over_ns += ns;
    }

    /// The most it ever holds.
    pub fn capacity_ns(&self) -> f64 {
        self.credit_ns
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
        let mut b = Bucket::new(1.0, 5.0, 0);
        assert_eq!(b.available_ns(0), 50e6);
        b.spend(60e6);
        assert_eq!(b.available_ns(2 * S), 5e6, "at three quarters of the rate until the 60 ms are earned");
        assert_eq!(b.available_ns(100 * S), 50e6, "no more than the credit is saved up");
    }

    #[test]
    fn whoever_spends_all_there_is_keeps_the_average_from_twenty_seconds_on() {
        let mut b = Bucket::new(1.0, 5.0, 0);
        let mut spent = 0.0;
        for tenth in 0..1000 {
            let now = tenth * S / 10;
            let all = b.available_ns(now).max(0.0);
            b.spend(all);
            spent += all;
            let allowed = now as f64 * 0.01;
            assert!(spent <= allowed + 50e6, "at {tenth}");
            assert!(tenth < 210 || spent <= allowed * 1.01, "at {tenth}: {spent} of {allowed}");
        }
        assert!(spent > 0.97 * 1e9, "and all of it is used: {spent}");
    }

    #[test]
    fn over_a_hundred_percent_nothing_is_limited() {
        let mut b = Bucket::new(1000.0, 5.0, 0);
        b.spend(1e18);
        assert!(b.available_ns(S) > 0.0);
    }
}
