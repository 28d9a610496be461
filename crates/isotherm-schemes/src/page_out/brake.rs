//! How much may come back, and the age that follows from it.
//!
//! The ceiling is a share of the working set a minute. It fills a bucket that holds one minute's worth, and each refault takes from it.
//! Once the bucket is empty nothing more leaves, and the age doubles: pages of that age were wanted. When it is half full again, paging out
//! goes on at the new age. After a time of twice the age without that, ten minutes at least, the age halves, down to the one that was asked
//! for. So a steady process spends most of the time at an age that keeps below the ceiling, and tries a shorter one now and then; one whose
//! cold memory turns hot is left alone within a window.

use isotherm_heat::Ns;

const MINUTE: Ns = 60_000_000_000;
/// Refaults a minute that are always allowed: they cost less than a millisecond, and of a small working set any ceiling would be a page
/// or two.
const MIN_REFAULTS: f64 = 64.0;
/// The age grows to this many times the one asked for at most.
const MAX_GROWTH: u64 = 64;
/// The age halves after so long below the ceiling, at least.
const CALM: Ns = 10 * MINUTE;
/// Minutes' worth of the ceiling that are owed at most, or a process that has become hot all over would never be served again.
const MAX_OWED_MIN: f64 = 5.0;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The shortest age at which a page leaves.
    pub min_idle_ns: Ns,
    /// Refaults allowed in a minute, in percent of the working set.
    pub max_refaults_pct: f64,
}

/// The brake of one process.
#[derive(Clone, Debug)]
pub struct Brake {
    limits: Limits,
    age_ns: Ns,
    /// Pages that may come back before paging out stops.
    allowed: f64,
    filled_at: Ns,
    /// Since when pages have left at this age.
    since: Ns,
    is_on: bool,
}

impl Brake {
    /// A brake that is off.
    pub fn new(limits: Limits, now: Ns) -> Brake {
        Brake { limits, age_ns: limits.min_idle_ns, allowed: 0.0, filled_at: now, since: now, is_on: false }
    }

    /// Takes in `refaults` since the last call, for a working set of so many pages.
    pub fn note(&mut self, refaults: u64, working_set_pages: u64, now: Ns) {
        let a_minute = (working_set_pages as f64 * self.limits.max_refaults_pct / 100.0).max(MIN_REFAULTS);
        let passed = now.saturating_sub(self.filled_at) as f64 / MINUTE as f64;
        self.filled_at = now;
        self.allowed = (self.allowed + passed * a_minute).min(a_minute) - refaults as f64;
        self.allowed = self.allowed.max(-MAX_OWED_MIN * a_minute);
        if self.allowed < 0.0 && refaults > 0 && !self.is_on {
            self.is_on = true;
            self.set_age(self.age_ns.saturating_mul(2), now);
        } else if self.is_on && self.allowed >= a_minute / 2.0 {
            (self.is_on, self.since) = (false, now);
        }
        // What leaves at an age comes back later than that, so only a time that is longer shows that the age is right.
        let calm = CALM.max(self.age_ns.saturating_mul(2));
        if !self.is_on && now.saturating_sub(self.since) >= calm {
            self.set_age(self.age_ns / 2, now);
        }
    }

    fn set_age(&mut self, age_ns: Ns, now: Ns) {
        let most = self.limits.min_idle_ns.saturating_mul(MAX_GROWTH);
        self.age_ns = age_ns.clamp(self.limits.min_idle_ns, most);
        self.since = now;
    }

    /// What is asked for.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The age at which pages leave at present; `None` if none may leave.
    pub fn age_ns(&self) -> Option<Ns> {
        (!self.is_on).then_some(self.age_ns)
    }

    /// The age at which pages leave now or, if none may, will leave next.
    pub fn next_age_ns(&self) -> Ns {
        self.age_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;
    const LIMITS: Limits = Limits { min_idle_ns: MINUTE, max_refaults_pct: 0.2 };
    /// 0.2% of it are 200 pages.
    const SET: u64 = 100_000;

    /// A brake that has been off for a minute.
    fn rested() -> Brake {
        let mut brake = Brake::new(LIMITS, 0);
        brake.note(0, SET, MINUTE);
        brake
    }

    #[test]
    fn below_the_ceiling_nothing_changes() {
        let mut brake = rested();
        for second in 60..3600 {
            // 180 a minute.
            brake.note(3, SET, second * S);
            assert_eq!(brake.age_ns(), Some(MINUTE), "after {second} s");
        }
    }

    #[test]
    fn a_flip_to_hot_stops_it_at_once_and_the_age_doubles() {
        let mut brake = rested();
        brake.note(5000, SET, 61 * S);
        assert_eq!((brake.age_ns(), brake.next_age_ns()), (None, 2 * MINUTE));
        brake.note(5000, SET, 62 * S);
        assert_eq!(brake.next_age_ns(), 2 * MINUTE, "once for each time that it goes on");
        // It owes five minutes at most, and goes on when half a minute's worth is saved up.
        brake.note(0, SET, 62 * S + 5 * MINUTE);
        assert_eq!(brake.age_ns(), None);
        brake.note(0, SET, 62 * S + 6 * MINUTE);
        assert_eq!(brake.age_ns(), Some(2 * MINUTE));
        brake.note(0, SET, 61 * S + CALM);
        assert_eq!(brake.age_ns(), Some(2 * MINUTE), "it has been calm for four minutes");
        brake.note(0, SET, 62 * S + 6 * MINUTE + CALM);
        assert_eq!(brake.age_ns(), Some(MINUTE), "after ten minutes");
        brake.note(0, SET, 61 * S + 5 * CALM);
        assert_eq!(brake.age_ns(), Some(MINUTE), "no less than what was asked for");
    }

    #[test]
    fn an_age_settles_where_refaults_stay_below_the_ceiling() {
        // Pages come back after five minutes: at that age or longer none does.
        let mut brake = rested();
        let (mut refaults, mut minutes_off) = (0, 0);
        for minute in 2..600_u64 {
            let comes_back = brake.age_ns().is_some_and(|age| age < 5 * MINUTE);
            refaults += if comes_back { 400 } else { 0 };
            minutes_off += u32::from(brake.age_ns().is_none());
            brake.note(if comes_back { 400 } else { 0 }, SET, minute * MINUTE);
        }
        assert!(refaults <= 600 * 200, "{refaults}: at most the ceiling, over ten hours");
        assert!(minutes_off < 300, "{minutes_off}");
        let mut brake = rested();
        (0..20).for_each(|n| {
            brake.note(10_000, SET, (61 + 600 * n) * S);
            brake.note(0, SET, (61 + 600 * n + 500) * S);
        });
        assert_eq!(brake.next_age_ns(), 64 * MINUTE, "and no longer");
    }

    #[test]
    fn pages_that_come_back_much_later_than_they_left_are_not_forgotten() {
        // Pages are accessed every 25 minutes, and come back then if they left before.
        let limits = Limits { min_idle_ns: 10 * MINUTE, ..LIMITS };
        let mut brake = Brake::new(limits, 0);
        let mut comes_back = std::collections::BTreeMap::new();
        let (mut refaults, mut long_enough) = (0, 0);
        for minute in 1..1440_u64 {
            if let Some(age) = brake.age_ns().filter(|age| *age < 25 * MINUTE) {
                *comes_back.entry(minute + 25 - age / MINUTE).or_insert(0) += 400;
            }
            let back = comes_back.remove(&minute).unwrap_or(0);
            refaults += back;
            brake.note(back, SET, minute * MINUTE);
            long_enough += u32::from(minute >= 120 && brake.next_age_ns() >= 25 * MINUTE);
        }
        assert!(long_enough > 1320 * 8 / 10, "{long_enough} of 1,320 minutes at an age that keeps them");
        assert!(refaults < 1440 * 200, "{refaults}: at most the ceiling, over a day");
    }

    #[test]
    fn a_process_that_uses_nothing_may_have_some_pages_back() {
        let mut brake = Brake::new(LIMITS, 0);
        brake.note(0, 0, MINUTE);
        brake.note(64, 0, MINUTE);
        assert!(brake.age_ns().is_some());
        brake.note(1, 0, MINUTE);
        assert!(brake.age_ns().is_none());
    }
}
