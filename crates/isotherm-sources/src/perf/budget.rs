//! How often to sample: as often as was asked for, as long as interrupts stay within their budget and nothing is lost.
//!
//! Each sample costs the program that is sampled 200 to 300 ns (Akiyama and Hirofuchi, ROSS 2017, for PEBS; a page fault is of that
//! order as well) and us some more to read. So a share of a core is a number of samples a second, and an event that comes more
//! often than that is sampled less often: a period is lengthened, a frequency lowered. The same is done when the kernel throttles
//! the event, and when records are lost because nobody read them in time. Each change is told, never made silently.
//!
//! Pure: what was seen comes in, what to change comes out. [`super::Perf`] applies it.

use isotherm_heat::Ns;
use isotherm_sys::perf::Rate;
use std::fmt;

/// What one sample costs whom it interrupts.
pub const SAMPLE_NS: f64 = 250.0;
/// Looked at no more often than this: a burst is no rate.
const LEAST_LOOK: Ns = 150_000_000;
/// So far beyond the budget is still within it: the kernel's own regulation of a frequency is no better.
const SLACK: f64 = 1.25;
/// A rate that was lowered is raised again when so little of the budget is used, for so many looks in a row.
const ROOM: f64 = 0.25;
const LOOKS_WITH_ROOM: u32 = 25;
/// Sampling is never made rarer than this.
const LONGEST_PERIOD: u64 = 1 << 40;

/// What was seen since the event was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Samples read, of whatever process.
    pub samples: u64,
    /// Samples that had no room.
    pub lost: u64,
    /// Times that the kernel has stopped the event for a while because it came too often.
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
    /// Samples a second that were seen.
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
    /// Samples a second, of all processors.
    most_hz: f64,
    looked_at: Ns,
    before: Seen,
    with_room: u32,
}

impl Budget {
    /// Samples at `rate` as long as interrupts take no more than `pct` percent of one core. Over 100: no limit, but for losses and
    /// throttling.
    pub fn new(now: Ns, rate: Rate, pct: f64) -> Budget {
        let most_hz = if pct > 100.0 { f64::INFINITY } else { pct / 100.0 * 1e9 / SAMPLE_NS };
        Budget { asked: rate, rate, most_hz, looked_at: now, before: Seen::default(), with_room: 0 }
    }

    /// The rate now.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes in what was `seen` until `now`; what to change, if anything.
    pub fn look(&mut self, now: Ns, seen: Seen) -> Option<Change> {
        let passed = now.saturating_sub(self.looked_at);
        if passed < LEAST_LOOK {
            return None;
        }
        let new = seen.since(self.before);
        (self.looked_at, self.before) = (now, seen);
        let seen_hz = (new.samples + new.lost) as f64 / (passed as f64 / 1e9);
        let (why, factor) = self.judge(new, seen_hz)?;
        let to = scaled(self.rate, factor, self.asked);
        self.with_room = 0;
        (to != self.rate).then(|| {
            self.rate = to;
            Change { to, why, seen_hz }
        })
    }

    /// Why samples should become rarer (a factor above 1) or more frequent (below).
    fn judge(&mut self, new: Seen, seen_hz: f64) -> Option<(Why, f64)> {
        let over = seen_hz / self.most_hz;
        if over > SLACK {
            return Some((Why::Budget, over.max(2.0)));
        }
        if new.throttles > 0 {
            return Some((Why::Throttled, 2.0));
        }
        if new.lost > 0 {
            return Some((Why::Lost, 2.0));
        }
        // Without a limit, what was lowered for losses comes back when half of what was lost then would come now.
        let has_room = over < ROOM && self.rate != self.asked;
        self.with_room = if has_room { self.with_room + 1 } else { 0 };
        (self.with_room >= LOOKS_WITH_ROOM).then_some((Why::Room, 0.5))
    }
}

/// `rate` made rarer by `factor`, but not more frequent than what was `asked` for. Periods are odd: accesses come in even rhythms.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and clamped")]
fn scaled(rate: Rate, factor: f64, asked: Rate) -> Rate {
    match (rate, asked) {
        (Rate::Period(n), Rate::Period(least)) => {
            let n = (n as f64 * factor) as u64;
            Rate::Period((n | 1).clamp(least, LONGEST_PERIOD.max(least)))
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
        Budget::new(0, rate, 1.0)
    }

    #[test]
    fn what_is_within_the_budget_stays() {
        let mut b = budget(Rate::Period(1));
        for second in 1..100 {
            assert_eq!(b.look(second * S, Seen { samples: second * 40_000, ..Seen::default() }), None);
        }
        assert_eq!(b.rate(), Rate::Period(1));
    }

    #[test]
    fn too_many_are_made_as_many_as_may_be_and_it_is_told() {
        let mut b = budget(Rate::Period(1));
        let change = b.look(S, Seen { samples: 400_000, ..Seen::default() }).unwrap();
        assert_eq!((change.to, change.why), (Rate::Period(11), Why::Budget));
        assert_eq!(
            change.to_string(),
            "400000 samples a second are more than the budget allows; one in 11 events is sampled from here on"
        );
        let mut b = budget(Rate::Frequency(50_000));
        let change = b.look(2 * S, Seen { samples: 400_000, ..Seen::default() }).unwrap();
        assert_eq!((change.to, change.why), (Rate::Frequency(10_000), Why::Budget));
        assert!(change.to_string().ends_with("; 10000 samples a second and processor from here on"));
    }

    #[test]
    fn losses_and_throttling_halve_it() {
        let mut b = Budget::new(0, Rate::Frequency(10_000), 200.0);
        let seen = Seen { samples: 1000, lost: 1, throttles: 0 };
        assert_eq!(b.look(S, seen).unwrap().to, Rate::Frequency(5000));
        let seen = Seen { samples: 2000, lost: 1, throttles: 3 };
        let change = b.look(2 * S, seen).unwrap();
        assert_eq!((change.to, change.why), (Rate::Frequency(2500), Why::Throttled));
        assert_eq!(b.look(3 * S, seen), None, "nothing new");
    }

    #[test]
    fn it_comes_back_when_there_is_room() {
        let mut b = budget(Rate::Period(7));
        assert_eq!(b.look(S, Seen { samples: 160_000, ..Seen::default() }).unwrap().to, Rate::Period(29));
        let changes: Vec<_> =
            (2..100).filter_map(|s| b.look(s * S, Seen { samples: 160_000, ..Seen::default() })).collect();
        let rates: Vec<_> = changes.iter().map(|c| c.to).collect();
        assert_eq!(rates, [Rate::Period(15), Rate::Period(7)]);
        assert!(changes.iter().all(|c| c.why == Why::Room));
    }

    #[test]
    fn a_burst_is_no_rate_and_nothing_goes_beyond_its_ends() {
        let mut b = budget(Rate::Period(1));
        assert_eq!(b.look(S / 10, Seen { samples: 1 << 30, ..Seen::default() }), None);
        let mut b = budget(Rate::Frequency(2));
        for s in 1..5 {
            b.look(s * S, Seen { samples: s << 40, ..Seen::default() });
        }
        assert_eq!(b.rate(), Rate::Frequency(1));
        let mut b = budget(Rate::Period(1));
        for s in 1..9 {
            b.look(s * S, Seen { samples: s << 50, ..Seen::default() });
        }
        assert_eq!(b.rate(), Rate::Period(LONGEST_PERIOD));
        // Counters that went back are no samples.
        assert_eq!(b.look(99 * S, Seen::default()), None);
    }
}
