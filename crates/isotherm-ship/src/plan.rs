//! What is sent when. Pure: clocks and randomness are arguments, and an object is whatever the caller names it by.
//!
//! All hosts of a fleet close their hours at the same instant, and after an update all start at the same instant. So each host has a
//! *phase* within an interval, made of its key, as CPUs have theirs in `isotherm_frames::housekeep`: the same interval for all, with only
//! the phase different. Whatever makes an object ready, it is sent at the next time that has the phase. Objects of a host follow each other
//! by small offsets, so that one connection serves them.
//!
//! A failed try closes the *gate* for all objects: it is the store that fails, most of the time. The gate opens after a random time up to a
//! limit that doubles (exponential backoff with full jitter), and lets one object through, until one succeeds. The object that failed goes
//! behind the others, so one that the store refuses for good holds up nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The part of the interval over which the objects of one host are spread.
const OFFSETS: u64 = 16;

/// How objects are sent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The interval over which hosts are spread. Zero: everything is due at once.
    pub spread: Duration,
    /// Objects that are sent at a time.
    pub concurrency: usize,
    /// The limit of the wait after the first failure.
    pub backoff: Duration,
    /// The limit of any wait.
    pub max_backoff: Duration,
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By a clock that only advances, from any start.
    pub mono_ns: u64,
    /// Since the epoch.
    pub wall_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    due_ns: u64,
    failures: u32,
}

/// Plans what is sent. `K` names an object; objects that are due at the same time are sent in its order.
#[derive(Clone, Debug)]
pub struct Planner<K> {
    settings: Settings,
    host: u64,
    waiting: BTreeMap<K, Waiting>,
    /// Those that wait, by when they are due.
    queue: BTreeSet<(u64, K)>,
    flying: BTreeMap<K, u32>,
    /// Failures since the last success.
    failures: u32,
    gate_ns: u64,
}

impl<K: Ord + Clone> Planner<K> {
    /// A planner of a host. `host` is a hash of its key: all bits count.
    pub fn new(settings: Settings, host: u64) -> Planner<K> {
        Planner {
            settings,
            host,
            waiting: BTreeMap::new(),
            queue: BTreeSet::new(),
            flying: BTreeMap::new(),
            failures: 0,
            gate_ns: 0,
        }
    }

    /// An object is ready. `hash` is one of its own. An object that is known already stays as it is.
    pub fn add(&mut self, object: K, hash: u64, now: Moment) {
        if self.waiting.contains_key(&object) || self.flying.contains_key(&object) {
            return;
        }
        let due_ns = now.mono_ns.saturating_add(self.until_phase(hash, now.wall_ns));
        self.queue.insert((due_ns, object.clone()));
        self.waiting.insert(object, Waiting { due_ns, failures: 0 });
    }

    /// From `wall_ns` to the next time that has the phase of this object.
    fn until_phase(&self, hash: u64, wall_ns: u64) -> u64 {
        let spread = nanos(self.settings.spread);
        if spread == 0 {
            return 0;
        }
        let phase = (part(self.host, spread) + part(hash, spread / OFFSETS)) % spread;
        (phase + spread - wall_ns % spread) % spread
    }

    /// An object is no longer there. One that is being sent is left alone.
    pub fn remove(&mut self, object: &K) {
        if let Some(waiting) = self.waiting.remove(object) {
            self.queue.remove(&(waiting.due_ns, object.clone()));
        }
    }

    /// What to send now. It counts as being sent until [`Planner::done`] or [`Planner::failed`].
    pub fn take(&mut self, mono_ns: u64) -> Vec<K> {
        let limit = if self.failures > 0 { 1 } else { self.settings.concurrency };
        let mut taken = Vec::new();
        while mono_ns >= self.gate_ns && self.flying.len() < limit {
            let Some((due_ns, object)) = self.queue.first().filter(|(due_ns, _)| *due_ns <= mono_ns).cloned() else {
                break;
            };
            self.queue.remove(&(due_ns, object.clone()));
            let failures = self.waiting.remove(&object).map_or(0, |waiting| waiting.failures);
            self.flying.insert(object.clone(), failures);
            taken.push(object);
        }
        taken
    }

    /// An object is in the store.
    pub fn done(&mut self, object: &K) {
        self.flying.remove(object);
        self.failures = 0;
        self.gate_ns = 0;
    }

    /// An object could not be sent. `random` gives a number below its argument, which is not 0.
    pub fn failed(&mut self, object: &K, mono_ns: u64, mut random: impl FnMut(u64) -> u64) {
        let Some(failures) = self.flying.remove(object) else { return };
        self.failures = self.failures.saturating_add(1);
        let mut wait = |failures| random(self.settings.limit_ns(failures).max(1));
        self.gate_ns = mono_ns.saturating_add(wait(self.failures));
        let due_ns = self.gate_ns.max(mono_ns.saturating_add(wait(failures + 1)));
        self.queue.insert((due_ns, object.clone()));
        self.waiting.insert(object.clone(), Waiting { due_ns, failures: failures.saturating_add(1) });
    }

    /// When [`Planner::take`] would return something, if nothing else happens until then. It may be in the past.
    pub fn wake_ns(&self) -> Option<u64> {
        let limit = if self.failures > 0 { 1 } else { self.settings.concurrency };
        let (due_ns, _) = self.queue.first().filter(|_| self.flying.len() < limit)?;
        Some(self.gate_ns.max(*due_ns))
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether nothing waits and nothing is being sent.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.flying.is_empty()
    }
}

impl Settings {
    /// The limit of the wait after so many failures in a row.
    fn limit_ns(&self, failures: u32) -> u64 {
        let doubled =
            nanos(self.backoff).saturating_mul(1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX));
        doubled.min(nanos(self.max_backoff))
    }
}

/// The place of a hash in an interval.
fn part(hash: u64, interval: u64) -> u64 {
    ((u128::from(hash) * u128::from(interval)) >> 64) as u64
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
