//! How much memory a scheme may take in an interval, and what that is tuned to: DAMON's quotas and their goals. What it takes is collapsed,
//! moves between memory tiers, or leaves.
//!
//! [`Spending`] keeps the accounts of one scheme, over all its processes and cgroups. What is hinted is reserved, so that a queue full of hints
//! does not exceed the quota; what was done is spent, as it was read back. A huge range is taken as a whole, so an interval may exceed its
//! quota by one, and the next ones have that much less: the mean is kept.
//!
//! A goal lowers the quota, which is the ceiling:
//! - `pressure`: the share of time in which something on the host waited for memory (PSI, `some`). The quota of the next interval is the last
//!   one times (2 - measured / goal): doubled at most, and a page at least. It begins with a huge range, and grows only while it is made use of.
//!   Senpai and DAMON act by the same measure.
//! - `free`: the share of memory that is free. From there on nothing leaves.

use isotherm_heat::{Ns, TargetId};
use isotherm_units::{Bytes, PAGES_PER_PMD, PmdNo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_hours(24);
/// The smallest quota in force under a goal, in pages.
const LEAST: f64 = 1.0;
/// Hints are given once a window, which may be longer than an interval: then those of so much time at most are served at once.
const AT_ONCE: Ns = 30_000_000_000;

/// A quota as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenQuota {
    /// How much, as "64MiB".
    pub size: String,
    /// In which time, as "1s".
    #[serde(default = "a_second")]
    pub every: String,
}

fn a_second() -> String {
    "1s".to_owned()
}

/// What the quota is tuned to. With both, both hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Percent of the time in which something on the host waits for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<f64>,
    /// Percent of all memory that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<f64>,
}

/// A quota in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// How much may be taken.
    pub size: Bytes,
    /// In which time.
    pub every_ns: Ns,
    /// What it is tuned to.
    pub goal: Goal,
}

impl Quota {
    /// Checks what is written. The error says what has to hold.
    pub fn new(quota: Option<&WrittenQuota>, goal: Option<Goal>) -> Result<Option<Quota>, String> {
        let Some(quota) = quota else {
            return if goal.is_none() { Ok(None) } else { Err("a goal tunes a quota: give the scheme one".to_owned()) };
        };
        let size: bytesize::ByteSize =
            quota.size.parse().map_err(|_| format!("quota: size = {:?} is no size as \"64MiB\"", quota.size))?;
        if Bytes(size.0).pages() == 0 {
            return Err("quota: size has to be a page or more".to_owned());
        }
        let every = humantime::parse_duration(&quota.every)
            .map_err(|error| format!("quota: every = {:?}: {error}", quota.every))?;
        if !(SHORTEST..=LONGEST).contains(&every) {
            return Err("quota: every has to be 1s to 24h".to_owned());
        }
        let goal = goal.unwrap_or_default();
        let is_share = |pct: Option<f64>, least: f64| pct.is_none_or(|pct| pct > least && pct <= 100.0);
        if !is_share(goal.pressure, 0.0) || !is_share(goal.free, 0.0) {
            return Err("goal: pressure and free have to be above 0, and 100 at most: percent".to_owned());
        }
        Ok(Some(Quota { size: Bytes(size.0), every_ns: Ns::try_from(every.as_nanos()).unwrap_or(Ns::MAX), goal }))
    }

    fn pages(&self) -> f64 {
        self.size.pages() as f64
    }
}

/// What the host says of its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostMemory {
    /// Percent that is free; `None` if unknown.
    pub free_pct: Option<f64>,
    /// For how long something has waited for memory since the start of the machine, in microseconds; `None` if the kernel does not count that.
    pub stalled_us: Option<u64>,
}

/// What is reported of the quota of a scheme.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaStatus {
    /// The scheme, from 1 on.
    pub scheme: usize,
    /// How much may be collapsed, move or leave in an interval at most.
    pub size_bytes: u64,
    /// The interval.
    pub every_ns: u64,
    /// How much of it in the present window, which may be several intervals long, as the goal has it.
    pub allowed_bytes: u64,
    /// How much was done in it, with what earlier ones had too much.
    pub spent_bytes: u64,
    /// Intervals in which it was used up.
    pub used_up: u64,
    /// The goal, and what was measured in the last interval, in percent.
    pub pressure_goal_pct: Option<f64>,
    /// See above.
    pub pressure_pct: Option<f64>,
    /// See above.
    pub free_goal_pct: Option<f64>,
    /// See above.
    pub free_pct: Option<f64>,
}

/// The accounts of one scheme.
#[derive(Clone, Debug)]
pub struct Spending {
    quota: Quota,
    /// Pages that may be taken in this interval.
    allowed: f64,
    /// Pages that were taken in this one, with what earlier ones had too much.
    spent: f64,
    /// Pages of huge ranges that are hinted.
    reserved: BTreeMap<(TargetId, PmdNo), u32>,
    began: Ns,
    /// Intervals that this one stands for.
    at_once: u64,
    host: HostMemory,
    /// For how long something had waited for memory when this interval began, in microseconds, and when that was read.
    stalled_then: Option<(u64, Ns)>,
    pressure_pct: Option<f64>,
    was_used_up: bool,
    used_up: u64,
}

impl Spending {
    /// Nothing is spent.
    pub fn new(quota: Quota, now: Ns) -> Spending {
        let first = if quota.goal.pressure.is_some() { PAGES_PER_PMD as f64 } else { f64::INFINITY };
        Spending {
            quota,
            allowed: quota.pages().min(first),
            spent: 0.0,
            reserved: BTreeMap::new(),
            began: now,
            at_once: 1,
            host: HostMemory::default(),
            stalled_then: None,
            pressure_pct: None,
            was_used_up: false,
            used_up: 0,
        }
    }

    /// Takes in the state of the host. Begins a new interval when it is time.
    pub fn note(&mut self, host: HostMemory, now: Ns) {
        self.host = host;
        let stalled = host.stalled_us.map(|stalled_us| (stalled_us, now));
        self.stalled_then = self.stalled_then.or(stalled);
        let intervals = now.saturating_sub(self.began) / self.quota.every_ns.max(1);
        if intervals == 0 {
            return;
        }
        let is_used = self.was_used_up || self.taken() * 2.0 >= self.limit();
        // What was granted for this interval, and what passed without a grant.
        let most = (AT_ONCE / self.quota.every_ns.max(1)).max(1);
        let granted = self.at_once + intervals.saturating_sub(most);
        self.spent = (self.spent - self.allowed * granted as f64).max(0.0);
        self.used_up += u64::from(std::mem::replace(&mut self.was_used_up, false));
        self.at_once = intervals.min(most);
        self.began += intervals * self.quota.every_ns;
        let before = std::mem::replace(&mut self.stalled_then, stalled);
        self.pressure_pct = before.zip(stalled).map(|((before_us, at), (after_us, now))| {
            let waited_ns = after_us.saturating_sub(before_us) as f64 * 1e3;
            (waited_ns / now.saturating_sub(at).max(1) as f64 * 100.0).min(100.0)
        });
        self.tune(is_used);
    }

    /// Pages that may be taken in this interval.
    fn limit(&self) -> f64 {
        self.allowed * self.at_once as f64
    }

    /// The quota of the next interval. What was not made use of does not grow.
    fn tune(&mut self, is_used: bool) {
        let Some(goal) = self.quota.goal.pressure else { return };
        // Without a measure it stays as it is, which is a huge range if there was never one.
        let Some(measured) = self.pressure_pct else { return };
        let factor = 2.0 - measured / goal;
        let factor = if is_used { factor } else { factor.min(1.0) };
        self.allowed = (self.allowed * factor).clamp(LEAST, self.quota.pages().max(LEAST));
    }

    /// Pages that are spent or reserved.
    fn taken(&self) -> f64 {
        let reserved: f64 = self.reserved.values().map(|pages| f64::from(*pages)).sum();
        self.spent + reserved
    }

    /// Whether as much memory is free as is wanted.
    pub fn is_enough_free(&self) -> bool {
        self.quota.goal.free.zip(self.host.free_pct).is_some_and(|(goal, free)| free >= goal)
    }

    /// When the next interval begins.
    pub fn ends(&self) -> Ns {
        self.began.saturating_add(self.quota.every_ns)
    }

    /// How many pages may be taken yet in this interval, what is reserved aside.
    pub fn left_pages(&self) -> u64 {
        let left = if self.is_enough_free() { 0.0 } else { self.limit() - self.taken() };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a page is one; saturates at both ends"
        )]
        let pages = left.ceil() as u64;
        pages
    }

    /// Sets pages of a huge range aside that is hinted. False if nothing is left for it; what was set aside for it before stays.
    pub fn reserve(&mut self, process: TargetId, pmd: PmdNo, pages: u32) -> bool {
        let is_known = self.reserved.contains_key(&(process, pmd));
        if !is_known && self.left_pages() == 0 {
            self.hold_up();
            return false;
        }
        self.reserved.insert((process, pmd), pages);
        true
    }

    /// The hint was handled, or there is none any more. Returns the pages that were set aside for it.
    pub fn release(&mut self, process: TargetId, pmd: PmdNo) -> u32 {
        self.reserved.remove(&(process, pmd)).unwrap_or_default()
    }

    /// Of a process, only these huge ranges are hinted.
    pub fn keep(&mut self, process: TargetId, is_hinted: impl Fn(PmdNo) -> bool) {
        self.reserved.retain(|(of, pmd), _| *of != process || is_hinted(*pmd));
    }

    /// Whether pages of a huge range are set aside.
    pub fn has_reserved(&self, process: TargetId, pmd: PmdNo) -> bool {
        self.reserved.contains_key(&(process, pmd))
    }

    /// Pages were collapsed, have moved or have left.
    pub fn spend(&mut self, pages: u64) {
        self.spent += pages as f64;
    }

    /// Notes that something waits for the next interval, if it is not for less free memory.
    pub fn hold_up(&mut self) {
        self.was_used_up |= !self.is_enough_free();
    }

    /// What is reported of it, as that of scheme `scheme`, from 1 on.
    pub fn status(&self, scheme: usize) -> QuotaStatus {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
        let bytes = |pages: f64| Bytes::of_pages(pages as u64).0;
        let Goal { pressure, free } = self.quota.goal;
        QuotaStatus {
            scheme,
            size_bytes: self.quota.size.0,
            every_ns: self.quota.every_ns,
            allowed_bytes: bytes(self.limit()),
            spent_bytes: bytes(self.spent),
            used_up: self.used_up + u64::from(self.was_used_up),
            pressure_goal_pct: pressure,
            pressure_pct: self.pressure_pct.filter(|_| pressure.is_some()),
            free_goal_pct: free,
            free_pct: self.host.free_pct.filter(|_| free.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;
    const A: TargetId = TargetId { pid: 1, start_ticks: 10 };

    fn quota(size: &str, every: &str, goal: Option<Goal>) -> Result<Option<Quota>, String> {
        Quota::new(Some(&WrittenQuota { size: size.into(), every: every.into() }), goal)
    }

    fn spending(size: &str, goal: Option<Goal>) -> Spending {
        Spending::new(quota(size, "1s", goal).unwrap().unwrap(), 0)
    }

    fn host(free_pct: f64, stalled_us: u64) -> HostMemory {
        HostMemory { free_pct: Some(free_pct), stalled_us: Some(stalled_us) }
    }

    #[test]
    fn a_quota_means_something() {
        let one = quota("64MiB", "2s", None).unwrap().unwrap();
        assert_eq!((one.size, one.every_ns), (Bytes(64 << 20), 2 * S));
        let written: WrittenQuota = toml::from_str("size = \"1GiB\"").unwrap();
        assert_eq!(Quota::new(Some(&written), None).unwrap().unwrap().every_ns, S);
        assert_eq!(Quota::new(None, None), Ok(None));
        let goal = |pressure, free| Some(Goal { pressure, free });
        for (quota, why) in [
            (Quota::new(None, goal(Some(1.0), None)), "give the scheme one"),
            (quota("much", "1s", None), "\"much\" is no size"),
            (quota("4095", "1s", None), "a page or more"),
            (quota("1MiB", "999ms", None), "1s to 24h"),
            (quota("1MiB", "soon", None), "every = \"soon\""),
            (quota("1MiB", "1s", goal(Some(0.0), None)), "above 0"),
            (quota("1MiB", "1s", goal(None, Some(101.0))), "100 at most"),
            (quota("1MiB", "1s", goal(Some(f64::NAN), None)), "above 0"),
        ] {
            let error = quota.unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_is_hinted_counts_and_what_is_too_much_is_made_up_for() {
        // 1,000 pages a second, in huge ranges of 512.
        let mut spending = spending("4000KiB", None);
        let of = |spending: &mut Spending, pmd| spending.reserve(A, PmdNo(pmd), 512);
        assert!(of(&mut spending, 1) && of(&mut spending, 2) && !of(&mut spending, 3));
        assert!(of(&mut spending, 1), "it is hinted already");
        // Half of the first stays.
        spending.release(A, PmdNo(1));
        spending.spend(256);
        assert!(of(&mut spending, 3) && !of(&mut spending, 4));
        for pmd in [2, 3] {
            spending.release(A, PmdNo(pmd));
            spending.spend(512);
        }
        let status = spending.status(1);
        assert_eq!((status.spent_bytes, status.allowed_bytes, status.used_up), (1280 << 12, 4_096_000, 1));
        spending.note(HostMemory::default(), S - 1);
        assert_eq!(spending.left_pages(), 0);
        spending.note(HostMemory::default(), S);
        assert_eq!(spending.left_pages(), 720, "280 were too much");
        // What was not used is gone.
        (2..=60).for_each(|second| spending.note(HostMemory::default(), second * S));
        assert_eq!((spending.left_pages(), spending.status(1).used_up), (1000, 1));
        assert!(of(&mut spending, 7) && of(&mut spending, 8) && !of(&mut spending, 9));
        spending.keep(A, |pmd| pmd.0 == 8);
        assert!(of(&mut spending, 9) && spending.has_reserved(A, PmdNo(8)) && !spending.has_reserved(A, PmdNo(7)));
    }

    #[test]
    fn over_hours_the_mean_is_the_quota_though_a_huge_range_is_more() {
        let mut spending = spending("400KiB", None);
        let mut left = 0_u64;
        for second in 1..=3600 {
            spending.note(HostMemory::default(), second * S);
            if spending.reserve(A, PmdNo(second), 512) {
                spending.release(A, PmdNo(second));
                spending.spend(512);
                left += 512;
            }
        }
        assert!((3600 * 100..=3600 * 100 + 512).contains(&left), "{left}");
    }

    #[test]
    fn windows_that_are_longer_than_an_interval_do_not_lower_the_rate() {
        let mut spending = spending("4MiB", None);
        let mut left = 0;
        for window in 1..=100 {
            spending.note(HostMemory::default(), window * 2 * S + window % 3);
            let pages = spending.left_pages();
            spending.spend(pages);
            left += pages;
        }
        assert!((195 * 1024..=205 * 1024).contains(&left), "{left}");
        // After a pause, half a minute's worth at most.
        spending.note(HostMemory::default(), 1000 * S);
        assert_eq!(spending.left_pages(), 30 * 1024);
        // Windows of one and a half intervals, in huge ranges.
        let mut spending = super::tests::spending("400KiB", None);
        let mut left = 0;
        for window in 1..=2000 {
            spending.note(HostMemory::default(), window * 3 * S / 2);
            if spending.reserve(A, PmdNo(window), 512) {
                spending.release(A, PmdNo(window));
                spending.spend(512);
                left += 512;
            }
        }
        assert!((3000 * 100..3000 * 102).contains(&left), "{left}");
    }

    #[test]
    fn pressure_settles_at_its_goal() {
        // Each page that leaves makes something wait for 0.4 us: at 2,500 pages a second that is 0.1% of the time.
        let goal = Goal { pressure: Some(0.1), free: None };
        let mut spending = spending("1GiB", Some(goal));
        assert_eq!(spending.left_pages(), 512, "a huge range at first");
        let (mut stalled_us, mut pages) = (0, Vec::new());
        for second in 1..200 {
            spending.note(host(50.0, stalled_us), second * S);
            let left = spending.left_pages();
            spending.spend(left);
            stalled_us += left * 2 / 5;
            pages.push(left);
        }
        let late = &pages[100..];
        assert!(late.iter().all(|pages| (2000..=3000).contains(pages)), "{pages:?}");
        // Somebody else makes it wait all the time: next to nothing leaves, and it recovers within seconds.
        for second in 200..210 {
            stalled_us += 1_000_000;
            spending.note(host(50.0, stalled_us), second * S);
        }
        assert_eq!((spending.left_pages(), spending.status(3).pressure_pct), (1, Some(100.0)));
        spending.note(host(50.0, stalled_us), 210 * S);
        assert_eq!(spending.left_pages(), 1, "nothing has asked for more");
        for second in 211..224 {
            spending.spend(spending.left_pages());
            spending.note(host(50.0, stalled_us), second * S);
        }
        assert!(spending.left_pages() > 2000, "{spending:?}");
        // Without a measure it goes on as before.
        let before = spending.left_pages();
        spending.note(HostMemory::default(), 224 * S);
        assert_eq!(spending.left_pages(), before);
    }

    #[test]
    fn from_the_free_memory_that_is_wanted_on_nothing_leaves() {
        let mut spending = spending("1GiB", Some(Goal { pressure: None, free: Some(20.0) }));
        spending.note(host(19.9, 0), S);
        assert!(spending.left_pages() > 0);
        spending.note(host(20.0, 0), 2 * S);
        assert!(spending.is_enough_free() && spending.left_pages() == 0);
        assert_eq!((spending.status(1).free_pct, spending.status(1).pressure_pct), (Some(20.0), None));
    }
}
