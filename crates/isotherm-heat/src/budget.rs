//! The two budgets: CPU of the monitor, and slow-down of the target.
//!
//! Both are token buckets. They fill with time and hold a few seconds' worth, so that a new target gets a quick first
//! answer. What that takes beyond the allowed share is paid back: until the average is within the share, the bucket
//! fills at three quarters of its rate. So the share holds for the whole run from four times the credit on. The monitor's
//! CPU is paid back a little later, with more: as long as there is no picture, each second counts. The caller reports what
//! was spent (CPU time measured, pages seen touched again). A wrong estimate is therefore paid back before anything more
//! is done.

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
    pay_back: PayBack,
}

/// When what was spent beyond the share is paid back.
#[derive(Clone, Copy, Debug)]
enum PayBack {
    AtOnce,
    /// The first picture comes first. Paying back begins at `from`, and should be done by `until`. What is left then is paid back at [`LATER_RATE`].
    Later {
        from: Ns,
        until: Ns,
    },
}

/// The rates at which a bucket fills while it pays back.
const AT_ONCE_RATE: f64 = 0.75;
const LATER_RATE: f64 = 0.7;
/// The same where more has to be paid back by a certain time, at least: something is checked in any case.
const MIN_RATE: f64 = 0.4;
/// The part of the credit that may be owed when all is paid back: two seconds' worth of twelve. Without it a busy store took 1.5% too much by the end
/// of its first minute.
const STILL_OWED: f64 = 1.0 / 6.0;
/// All is paid back when so many times the time has passed that the credit is worth.
const PAID_BACK_AFTER: f64 = 4.6;

impl Bucket {
    /// A bucket for `percent` of one core that holds `credit_s` seconds' worth, full at `now`. Above 100 percent nothing is
    /// limited.
    pub fn new(percent: f64, credit_s: f64, now: Ns) -> Bucket {
        let share = percent / 100.0;
        let credit_ns = share * credit_s * 1e9;
        Bucket { share, credit_ns, tokens_ns: credit_ns, filled_at: now, over_ns: 0.0, pay_back: PayBack::AtOnce }
    }

    /// The same, empty at `now`.
    fn empty(percent: f64, credit_s: f64, now: Ns) -> Bucket {
        Bucket { tokens_ns: 0.0, ..Bucket::new(percent, credit_s, now) }
    }

    /// The same, which fills at its whole rate for as long as its credit is worth, and pays back afterwards. All should be paid back
    /// [`PAID_BACK_AFTER`] times that after the start, or `longer` after that.
    fn paying_back_later(self, longer: Ns) -> Bucket {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "seconds; without a share any time will do"
        )]
        let after = |times: f64| self.filled_at.saturating_add((self.credit_ns / self.share * times).round() as Ns);
        let (from, until) = (after(1.0), after(PAID_BACK_AFTER).saturating_add(longer));
        Bucket { pay_back: PayBack::Later { from, until }, ..self }
    }

    /// Whether it limits anything.
    pub fn is_limited(&self) -> bool {
        self.share <= 1.0
    }

    /// Fills the bucket up to `now` and returns what there is to spend. Negative if more was spent than allowed.
    pub fn available_ns(&mut self, now: Ns) -> f64 {
        self.filled(now, self.rate())
    }

    /// Fills the bucket up to `now` at this part of its rate, and returns what there is to spend.
    fn filled(&mut self, now: Ns, rate: f64) -> f64 {
        let passed = now.saturating_sub(self.filled_at) as f64 * self.share;
        self.filled_at = self.filled_at.max(now);
        let was_over = self.over_ns > 0.0;
        self.over_ns -= passed;
        self.tokens_ns = (self.tokens_ns + passed * rate).min(self.credit_ns);
        if matches!(self.pay_back, PayBack::Later { .. }) && was_over && self.over_ns <= 0.0 {
            // The average is within the share again. What it filled less by meanwhile is forgiven, but for a little: snapshots come in lumps.
            self.tokens_ns = self.tokens_ns.max(-self.credit_ns * STILL_OWED);
        }
        if self.is_limited() { self.tokens_ns } else { f64::INFINITY }
    }

    /// The part of its share at which it fills: less than 1 while it pays back what was spent beyond that on average.
    fn rate(&self) -> f64 {
        match self.pay_back {
            _ if self.over_ns <= 0.0 => 1.0,
            PayBack::AtOnce => AT_ONCE_RATE,
            PayBack::Later { from, .. } if self.filled_at < from => 1.0,
            PayBack::Later { until, .. } if self.filled_at < until => {
                let earned_until_then = (until - self.filled_at) as f64 * self.share;
                (1.0 - self.over_ns / earned_until_then).clamp(MIN_RATE, LATER_RATE)
            }
            PayBack::Later { .. } => LATER_RATE,
        }
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

/// Why a huge range is cleared. Each class has a share of both budgets that the others cannot use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Its pages were accessed unexpectedly.
    Urgent,
    /// It was not checked yet.
    First,
    /// Its time has come.
    Routine,
}

impl Class {
    /// In this order they are served.
    pub const ALL: [Class; 3] = [Class::Urgent, Class::First, Class::Routine];
}

/// A budget of which each class has a guaranteed share.
///
/// As long as there is anything to spend, every class may spend it. When all is spent, each may still spend its own
/// share, so that none waits for the others for ever. The shares add up to less than the budget. The rest pays back what
/// was overspent.
#[derive(Clone, Debug)]
pub struct Shares {
    all: Bucket,
    own: [Bucket; 3],
    /// Shares fill no faster than the whole while that pays back.
    together: bool,
}

/// Seconds' worth of its share that a class may save up.
const OWN_CREDIT_S: f64 = 2.5;

impl Shares {
    /// A budget of `percent` of one core that holds `credit_s` seconds' worth. `shares` are the guaranteed parts of it, of
    /// the classes in their order.
    pub fn new(percent: f64, credit_s: f64, shares: [f64; 3], now: Ns) -> Shares {
        let own = shares.map(|share| Bucket::empty(percent * share, OWN_CREDIT_S, now));
        Shares { all: Bucket::new(percent, credit_s, now), own, together: false }
    }

    /// The same for a budget from which more is spent than what the classes plan, with a credit for the first picture. What that overspends is
    /// paid back between once and [`PAID_BACK_AFTER`] times the `credit_s` of [`Shares::new`]: with three tenths of the budget, or with more where
    /// that does not do. A cost that is charged bit by bit meanwhile makes that `longer`. The shares of the classes fill at that rate, too. That of
    /// first checks fills at seven tenths at least. What else is spent leaves no room for paying back.
    #[must_use]
    pub fn paying_back_together(self, longer: Ns) -> Shares {
        Shares { all: self.all.paying_back_later(longer), together: true, ..self }
    }

    /// What a class may spend at `now`, if `reserved_ns` are spent already that will be noted later.
    pub fn available_ns(&mut self, class: Class, now: Ns, reserved_ns: f64) -> f64 {
        (self.all.available_ns(now) - reserved_ns).max(self.own_ns(class, now))
    }

    /// Notes that a class is about to spend `ns`. From the whole, they are spent by [`Shares::spend`].
    pub fn plan(&mut self, class: Class, ns: f64) {
        let own = &mut self.own[class as usize];
        own.tokens_ns = (own.tokens_ns - ns).max(-own.credit_ns);
    }

    /// Notes `ns` as spent.
    pub fn spend(&mut self, ns: f64) {
        self.all.spend(ns);
    }

    /// What is left of the whole at `now`. Negative if more was spent than allowed.
    pub fn whole_ns(&mut self, now: Ns) -> f64 {
        self.all.available_ns(now)
    }

    /// Whether half of the credit is there at `now`: less than the share is being spent.
    pub fn is_ample(&mut self, now: Ns) -> bool {
        self.all.available_ns(now) * 2.0 >= self.all.capacity_ns()
    }

    /// What is left of the share of a class at `now`. First checks give three tenths of theirs to paying back at most: new memory is unmeasured until
    /// its check. (All checks of sampled targets are first checks.)
    pub fn own_ns(&mut self, class: Class, now: Ns) -> f64 {
        let rate = match (self.together, class) {
            (true, Class::First) => self.rate(now).max(LATER_RATE),
            (true, _) => self.rate(now),
            (false, _) => 1.0,
        };
        self.own[class as usize].filled(now, rate)
    }

    /// The most that a class can save up of its share.
    pub fn own_capacity_ns(&self, class: Class) -> f64 {
        self.own[class as usize].capacity_ns()
    }

    /// The share of one core that the whole grants.
    pub fn share(&self) -> f64 {
        self.all.share()
    }

    /// The part of the share that may be planned with at `now`: less than 1 while more was spent on average than granted.
    pub fn rate(&mut self, now: Ns) -> f64 {
        self.all.available_ns(now);
        self.all.rate()
    }

    /// How many times the credit was overspent at `now`. 0 while anything is left.
    pub fn overdraft(&mut self, now: Ns) -> f64 {
        let left = self.all.available_ns(now);
        if left.is_finite() { (-left / self.all.credit_ns).max(0.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;

    #[test]
    fn a_class_has_its_share_whatever_the_others_spend() {
        let mut shares = Shares::new(1.0, 10.0, [0.2, 0.3, 0.1], 0);
        let of = |shares: &mut Shares, class, now| shares.available_ns(class, now, 0.0);
        assert_eq!(of(&mut shares, Class::First, 0), 100e6, "the whole credit");
        assert_eq!(shares.available_ns(Class::First, 0, 90e6), 10e6, "but for what is reserved");
        shares.plan(Class::Urgent, 400e6);
        shares.spend(400e6);
        assert_eq!(Class::ALL.map(|class| of(&mut shares, class, 0)), [-25e6 * 0.2, 0.0, 0.0]);
        // The whole is in debt for 40 s. First checks have 3 ms a second, routine checks 1 ms. A class that has spent more
        // than its share is in debt with no more than its credit.
        assert_eq!(Class::ALL.map(|class| of(&mut shares, class, S).round()), [-3e6, 3e6, 1e6]);
        assert_eq!(Class::ALL.map(|class| of(&mut shares, class, 5 * S).round()), [5e6, 7.5e6, 2.5e6]);
        assert!((shares.overdraft(5 * S) - 2.625).abs() < 0.01, "{}", shares.overdraft(5 * S));
        assert_eq!(shares.overdraft(100 * S), 0.0);
    }

    #[test]
    fn shares_that_pay_back_together_fill_no_faster_than_the_whole() {
        let mut shares = Shares::new(1.0, 10.0, [0.2, 0.3, 0.1], 0).paying_back_together(0);
        shares.spend(250e6);
        assert_eq!(Class::ALL.map(|class| shares.own_ns(class, S).round()), [2e6, 3e6, 1e6]);
        // It pays back after 10 s: 150 of the 360 ms that are earned until second 46. The 250 ms are earned after 25, and nothing was spent since.
        let at_10 = 1.0 - 150.0 / 360.0;
        assert_eq!([9, 10, 24, 25].map(|second| shares.rate(second * S)), [1.0, at_10, LATER_RATE, 1.0]);
        let mut shares = Shares::new(1.0, 10.0, [0.2, 0.3, 0.1], 0).paying_back_together(0);
        shares.spend(250e6);
        assert_eq!(shares.own_ns(Class::First, 16 * S), 7.5e6, "full");
        shares.plan(Class::First, 7e6);
        assert_eq!(shares.own_ns(Class::First, 17 * S).round(), 2.6e6, "0.5 ms were left, and 2.1 were earned");
    }

    #[test]
    fn first_checks_have_seven_tenths_of_their_share_however_much_has_to_be_paid_back() {
        let mut shares = Shares::new(1.0, 10.0, [0.2, 0.3, 0.1], 0).paying_back_together(0);
        shares.spend(450e6);
        for (class, full) in Class::ALL.into_iter().zip([5e6, 7.5e6, 2.5e6]) {
            assert_eq!(shares.own_ns(class, 10 * S).round(), full);
            shares.plan(class, full);
        }
        // 350 of the 360 ms that are earned until second 46 have to be paid back.
        assert_eq!(Class::ALL.map(|class| shares.own_ns(class, 11 * S).round()), [0.8e6, 2.1e6, 0.4e6]);
    }

    #[test]
    fn with_more_time_less_of_the_budget_pays_back() {
        let rate_at_10s = |longer| {
            let mut shares = Shares::new(1.0, 10.0, [0.2, 0.3, 0.1], 0).paying_back_together(longer);
            shares.spend(400e6);
            shares.rate(10 * S)
        };
        // 300 of 600 ms; and of 360.
        assert!((rate_at_10s(24 * S) - 0.5).abs() < 1e-9);
        assert_eq!(rate_at_10s(0), MIN_RATE);
    }

    #[test]
    fn a_credit_that_is_paid_back_later_is_paid_back_within_four_and_a_half_times_its_length() {
        let mut b = Bucket::new(1.0, 12.0, 0).paying_back_later(0);
        let mut spent = 0.0;
        for tenth in 0..=900 {
            let now = tenth * S / 10;
            let all = b.available_ns(now).max(0.0);
            b.spend(all);
            spent += all;
            let allowed = now as f64 * 0.01;
            assert!(tenth > 120 || spent > allowed + 119e6, "the whole rate and the credit, at {tenth}: {spent}");
            assert!(tenth < 545 || spent <= allowed * 1.01, "at {tenth}: {spent} of {allowed}");
        }
        assert!(spent > 0.98 * 900e6, "and all of it is used: {spent}");
    }

    /// What classes spend of their shares, and what is no check at all, goes on while the whole is overspent.
    #[test]
    fn where_more_is_overspent_more_of_the_budget_pays_back_by_the_same_time() {
        let mut b = Bucket::new(1.0, 12.0, 0).paying_back_later(0);
        b.spend(250e6);
        let mut spent = 250e6;
        for tenth in 1..=900 {
            let now = tenth * S / 10;
            let left = b.available_ns(now);
            let all = left.max(0.95 * b.rate() * 1e6);
            b.spend(all);
            spent += all;
            let allowed = now as f64 * 0.01;
            assert!(tenth < 560 || spent <= allowed * 1.01, "at {tenth}: {spent} of {allowed}");
            assert!(tenth != 560 || left < -10e6, "a part of it is owed: {left}");
        }
        assert!(spent > 0.98 * 900e6, "and all of it is used: {spent}");
        assert!(b.available_ns(90 * S) > -10e6, "hardly anything is owed: {}", b.available_ns(90 * S));
    }

    #[test]
    fn without_a_limit_every_class_has_everything() {
        let mut shares = Shares::new(1000.0, 10.0, [0.2, 0.3, 0.1], 0);
        shares.plan(Class::Routine, 1e18);
        shares.spend(1e18);
        assert!(Class::ALL.iter().all(|class| shares.available_ns(*class, S, 1e18) == f64::INFINITY));
        assert_eq!(shares.overdraft(S), 0.0);
    }

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
