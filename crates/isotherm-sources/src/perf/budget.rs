//! How often to sample: as often as asked for, as long as interrupts stay within their budget and nothing is lost.
//!
//! Each sample costs the sampled program 200 to 300 ns (Akiyama and Hirofuchi, ROSS 2017, for PEBS; a page fault costs
//! about as much), and some of our time to read it. So a share of a core is a number of samples per second. An event
//! that comes more often than that is sampled less often: a period is lengthened, a frequency lowered. The same is done
//! when the kernel throttles the event, and when records are lost because they were not read in time. Every change is
//! reported.
//!
//! Pure: counts go in, changes come out. [`super::Perf`] applies them.

use isotherm_heat::Ns;
use isotherm_sys::perf::Rate;
use std::fmt;

/// The cost of one sample to the task that it interrupts.
pub const SAMPLE_NS: f64 = 250.0;
/// The rate is checked no more often than this: a burst is no rate.
const MIN_CHECK_PAUSE: Ns = 150_000_000;
/// This much beyond the budget is tolerated: the kernel's own control of a frequency is no better.
const SLACK: f64 = 1.25;
/// A rate that was lowered is raised again when so little of the budget was used for this long. The time doubles after
/// each raise that was too early.
const ROOM: f64 = 0.25;
const ROOM_FOR: Ns = 5_000_000_000;
const MAX_BACKOFF: u64 = 64;
const LARGEST_RAISE: f64 = 1.0 / 16.0;
/// Sampling is never made rarer than this.
const LONGEST_PERIOD: u64 = 1 << 40;

/// Counts since the event was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Samples read, from any process.
    pub samples: u64,
    /// Samples that had no room.
    pub lost: u64,
    /// Times that the kernel has throttled the event because it came too often.
    pub throttles: u64,
}

impl Seen {
    fn since(self, before: Seen) -> Seen {
        Seen {
            samples: self.samples - before.samples.min(self.samples),
            lost: self.lost - before.lost.min(self.lost),
            throttles: self.throttles - before.throttles.min(self.throttles),
        }
    }
}

/// Why the rate was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// More samples than the budget allows.
    Budget,
    /// The kernel has throttled the event.
    Throttled,
    /// Samples were lost.
    Lost,
    /// There is room again.
    Room,
}

/// A change of the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The new rate.
    pub to: Rate,
    /// Why.
    pub why: Why,
    /// Samples per second as observed.
    pub seen_hz: f64,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Why::Budget => write!(f, "{:.0} samples a second are more than the budget allows", self.seen_hz)?,
            Why::Throttled => f.write_str("the kernel throttles the event (kernel.perf_cpu_time_max_percent)")?,
            Why::Lost => f.write_str("samples were lost: they came faster than they were read")?,
            Why::Room => write!(f, "only {:.0} samples a second: there is room again", self.seen_hz)?,
        }
        match self.to {
            Rate::Period(1) => f.write_str("; each event is sampled from here on"),
            Rate::Period(n) => write!(f, "; one in {n} events is sampled from here on"),
            Rate::Frequency(hz) => write!(f, "; {hz} samples a second and processor from here on"),
        }
    }
}

/// Keeps the rate within a budget.
#[derive(Clone, Debug)]
pub struct Budget {
    asked: Rate,
    rate: Rate,
    /// Maximum number of samples per second, over all CPUs.
    max_hz: f64,
    checked_at: Ns,
    before: Seen,
    room_since: Option<Ns>,
    backoff: u64,
    raised: bool,
    /// The last change is too recent: not all samples are at the new rate.
    settling: bool,
    step: u64,
}

impl Budget {
    /// Samples at `rate` as long as interrupts take at most `pct` percent of one core. Over 100: no limit, except for
    /// losses and throttling. Periods are multiples of `step`, or odd if that is 1.
    pub fn new(now: Ns, rate: Rate, pct: f64, step: u64) -> Budget {
        let max_hz = if pct > 100.0 { f64::INFINITY } else { pct / 100.0 * 1e9 / SAMPLE_NS };
        Budget {
            asked: rate,
            rate,
            max_hz,
            checked_at: now,
            before: Seen::default(),
            room_since: None,
            backoff: 1,
            raised: false,
            settling: false,
            step: step.max(1),
        }
    }

    /// The rate now.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes what was `seen` until `now`; returns what to change, if anything.
    pub fn update(&mut self, now: Ns, seen: Seen) -> Option<Change> {
        let passed = now.saturating_sub(self.checked_at);
        if passed < MIN_CHECK_PAUSE {
            return None;
        }
        let new = seen.since(self.before);
        (self.checked_at, self.before) = (now, seen);
        // The rings still held samples of the old rate.
        if std::mem::take(&mut self.settling) {
            return None;
        }
        let seen_hz = (new.samples + new.lost) as f64 / (passed as f64 / 1e9);
        let (why, factor) = self.judge(now, new, seen_hz)?;
        let to = scaled(self.rate, factor, self.asked, self.step);
        (to != self.rate).then_some(Change { to, why, seen_hz })
    }

    /// Records that the change was made.
    pub fn made(&mut self, change: Change) {
        if change.why != Why::Room && std::mem::take(&mut self.raised) {
            self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        }
        self.raised |= change.why == Why::Room;
        (self.rate, self.room_since, self.settling) = (change.to, None, true);
    }

    /// Samples from here on cannot be compared with earlier ones: the rate stays, unless it has to be lowered further.
    pub fn stay(&mut self) {
        self.asked = self.rate;
    }

    /// Why sampling should become rarer (a factor above 1) or more frequent (below 1).
    fn judge(&mut self, now: Ns, new: Seen, seen_hz: f64) -> Option<(Why, f64)> {
        let over = seen_hz / self.max_hz;
        if over > SLACK {
            return Some((Why::Budget, over.max(2.0)));
        }
        if new.throttles > 0 {
            return Some((Why::Throttled, 2.0));
        }
        if new.lost > 0 {
            return Some((Why::Lost, 2.0));
        }
        // Without a limit, a rate that was lowered for losses is tried again at growing intervals.
        if over >= ROOM || self.rate == self.asked {
            self.room_since = None;
            return None;
        }
        let since = *self.room_since.get_or_insert(now);
        // To half of the limit, if there is one, but not all at once.
        let factor = if self.max_hz.is_finite() { (over / 0.5).clamp(LARGEST_RAISE, 0.5) } else { 0.5 };
        (now - since >= ROOM_FOR * self.backoff).then_some((Why::Room, factor))
    }
}

/// `rate` made rarer by `factor`, but not more frequent than `asked`. Periods are odd, since accesses come in even
/// rhythms, unless the event source requires otherwise.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and clamped")]
fn scaled(rate: Rate, factor: f64, asked: Rate, step: u64) -> Rate {
    match (rate, asked) {
        (Rate::Period(n), Rate::Period(least)) => {
            let n = (n as f64 * factor) as u64;
            let n = if step == 1 { n | 1 } else { n.next_multiple_of(step) };
            Rate::Period(n.clamp(least, LONGEST_PERIOD.max(least)))
        }
        (Rate::Frequency(hz), Rate::Frequency(most)) => {
            Rate::Frequency(((hz as f64 / factor) as u64).clamp(1.min(most), most))
        }
        (rate, _) => rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;

    /// A budget of 40,000 samples a second.
    fn budget(rate: Rate) -> Budget {
        Budget::new(0, rate, 1.0, 1)
    }

    #[test]
    fn what_is_within_the_budget_stays() {
        let mut b = budget(Rate::Period(1));
        for second in 1..100 {
            assert_eq!(b.update(second * S, Seen { samples: second * 40_000, ..Seen::default() }), None);
        }
        assert_eq!(b.rate(), Rate::Period(1));
    }

    #[test]
    fn too_many_are_made_as_many_as_may_be_and_it_is_told() {
        let mut b = budget(Rate::Period(1));
        let change = b.update(S, Seen { samples: 400_000, ..Seen::default() }).unwrap();
        assert_eq!((change.to, change.why), (Rate::Period(11), Why::Budget));
        assert_eq!(
            change.to_string(),
            "400000 samples a second are more than the budget allows; one in 11 events is sampled from here on"
        );
        let mut b = budget(Rate::Frequency(50_000));
        let change = b.update(2 * S, Seen { samples: 400_000, ..Seen::default() }).unwrap();
        assert_eq!((change.to, change.why), (Rate::Frequency(10_000), Why::Budget));
        assert!(change.to_string().ends_with("; 10000 samples a second and processor from here on"));
    }

    /// Looks, and makes the change.
    fn update(b: &mut Budget, now: Ns, seen: Seen) -> Option<Change> {
        let change = b.update(now, seen)?;
        b.made(change);
        Some(change)
    }

    #[test]
    fn losses_and_throttling_halve_it() {
        let mut b = Budget::new(0, Rate::Frequency(10_000), 200.0, 1);
        let seen = Seen { samples: 1000, lost: 1, throttles: 0 };
        assert_eq!(update(&mut b, S, seen).unwrap().to, Rate::Frequency(5000));
        let seen = Seen { samples: 2000, lost: 1, throttles: 3 };
        assert_eq!(update(&mut b, 2 * S, seen), None, "it may have been at the old rate");
        let seen = Seen { throttles: 4, ..seen };
        let change = update(&mut b, 3 * S, seen).unwrap();
        assert_eq!((change.to, change.why), (Rate::Frequency(2500), Why::Throttled));
        assert_eq!(update(&mut b, 4 * S, seen), None);
        assert_eq!(update(&mut b, 5 * S, seen), None, "nothing new");
    }

    #[test]
    fn it_comes_back_when_there_is_room() {
        let mut b = budget(Rate::Period(7));
        let quiet = Seen { samples: 160_000, ..Seen::default() };
        assert_eq!(update(&mut b, S, quiet).unwrap().to, Rate::Period(29));
        // 4,000 a second of 40,000 that may be.
        let seen = |s: u64| Seen { samples: 160_000 + s * 4_000, ..Seen::default() };
        let changes: Vec<_> =
            (2..20).filter_map(|s| update(&mut b, s * S, seen(s)).map(|c| (s, c.to, c.why))).collect();
        assert_eq!(changes, [(8, Rate::Period(7), Why::Room)]);
    }

    #[test]
    fn what_was_raised_too_early_waits_for_longer() {
        let mut b = Budget::new(0, Rate::Frequency(1000), 200.0, 1);
        let mut lost = 0;
        let mut raised = Vec::new();
        for s in 1..60 {
            // At more than 500 a second something is lost, at once.
            lost += u64::from(b.rate() == Rate::Frequency(1000));
            let change = update(&mut b, s * S, Seen { samples: s * 500, lost, throttles: 0 });
            raised.extend(change.filter(|c| c.why == Why::Room).map(|_| s));
        }
        assert_eq!(raised, [8, 22, 46], "after 5, 10 and 20 seconds");
    }

    #[test]
    fn after_a_change_of_whom_is_listened_to_it_does_not_come_back() {
        let mut b = budget(Rate::Period(1));
        update(&mut b, S, Seen { samples: 400_000, ..Seen::default() });
        b.stay();
        let quiet = Seen { samples: 400_000, ..Seen::default() };
        assert!((2..60).all(|s| update(&mut b, s * S, quiet).is_none()));
    }

    #[test]
    fn a_change_that_could_not_be_made_is_asked_for_again() {
        let mut b = budget(Rate::Period(1));
        assert!(b.update(S, Seen { samples: 400_000, ..Seen::default() }).is_some());
        assert_eq!(b.rate(), Rate::Period(1));
        assert!(b.update(2 * S, Seen { samples: 800_000, ..Seen::default() }).is_some());
    }

    #[test]
    fn periods_are_multiples_of_what_the_source_wants() {
        let mut b = Budget::new(0, Rate::Period(65_536), 1.0, 16);
        let change = b.update(S, Seen { samples: 130_001, ..Seen::default() }).unwrap();
        assert_eq!(change.to, Rate::Period(213_008));
    }

    #[test]
    fn a_burst_is_no_rate_and_nothing_goes_beyond_its_ends() {
        let mut b = budget(Rate::Period(1));
        assert_eq!(update(&mut b, S / 10, Seen { samples: 1 << 30, ..Seen::default() }), None);
        let mut b = budget(Rate::Frequency(2));
        for s in 1..5 {
            update(&mut b, s * S, Seen { samples: s << 40, ..Seen::default() });
        }
        assert_eq!(b.rate(), Rate::Frequency(1));
        let mut b = budget(Rate::Period(1));
        for s in 1..9 {
            update(&mut b, s * S, Seen { samples: s << 50, ..Seen::default() });
        }
        assert_eq!(b.rate(), Rate::Period(LONGEST_PERIOD));
        // Counters that went back are no samples.
        assert_eq!(update(&mut b, 99 * S, Seen::default()), None);
    }
}
