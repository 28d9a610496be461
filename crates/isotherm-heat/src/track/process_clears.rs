//! When the whole process is cleared, for pages that a clear of their huge range does not reach.
//!
//! Such a clear reaches all of the process and holds its mmap lock for writing, so it has to be worth it, and it becomes rarer.
//! Targets monitored page by page and sampled ones use the same schedule. They differ in what they read before and after.

use crate::Ns;
use crate::source::ClearedProcess;

/// A clear of the whole process is worth its stall only for this many pages, and for this share of the resident pages.
const MIN_STUCK_PAGES: u64 = 256;
const MIN_STUCK_SHARE: u64 = 1000;
/// Time to the first clear of the whole process for stuck pages, and the factor it backs off by.
const STUCK_FIRST: Ns = 1_000_000_000;
const STUCK_BACKOFF: u64 = 2;
const MAX_STUCK: Ns = 120_000_000_000;
/// The target may spend one part in this many of its time stalled by clears of the whole process.
pub(super) const STALL_SHARE: u64 = 200;

/// The schedule of one target.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessClears {
    next: Ns,
    interval: Ns,
}

impl ProcessClears {
    pub fn new(now: Ns) -> ProcessClears {
        ProcessClears { next: now + STUCK_FIRST, interval: STUCK_FIRST }
    }

    /// Whether a clear may come now. If so, and if it does not come, the next may come an interval later, or two minutes: that long was waited already.
    pub fn is_due(&mut self, now: Ns) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next = now + self.interval.min(MAX_STUCK);
        }
        is_due
    }

    /// Takes in a clear, and sets when the next one may come: after `at_least` that time. One that has cleared nothing is not
    /// permitted, and is tried again as rarely as can be: all of the process is read before it.
    pub fn cleared(&mut self, cleared: &ClearedProcess, at_least: Ns) {
        let clear = cleared.clear;
        let backed_off = if cleared.is_none() { MAX_STUCK } else { (self.interval * STUCK_BACKOFF).min(MAX_STUCK) };
        self.interval = backed_off.max(clear.stall_ns * STALL_SHARE).max(at_least);
        self.next = clear.at + self.interval;
    }
}

/// Whether a clear of the whole process is worth its stall for so many stuck pages of those that are resident, which are counted only if it may be.
pub fn is_worth_a_stall(stuck_pages: u64, resident: impl FnOnce() -> u64) -> bool {
    stuck_pages >= MIN_STUCK_PAGES && stuck_pages >= resident() / MIN_STUCK_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Clear;
    use isotherm_units::PmdNo;

    const S: Ns = 1_000_000_000;

    fn some(clear: Clear) -> ClearedProcess {
        ClearedProcess { clear, pmds: vec![PmdNo(1)], ..ClearedProcess::default() }
    }

    #[test]
    fn intervals_double_up_to_two_minutes_and_follow_the_stall() {
        let mut clears = ProcessClears::new(0);
        assert!(!clears.is_due(S - 1));
        let mut now = 0;
        let mut waited = Vec::new();
        for _ in 0..9 {
            let from = now;
            while !clears.is_due(now) {
                now += S;
            }
            waited.push((now - from) / S);
            clears.cleared(&some(Clear { at: now, ..Clear::default() }), 0);
        }
        assert_eq!(waited, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
        // Two seconds of stall are paid by 400.
        clears.cleared(&some(Clear { at: now, stall_ns: 2 * S, flushed: true }), 0);
        assert!(!clears.is_due(now + 400 * S - 1) && clears.is_due(now + 400 * S));
        clears.cleared(&some(Clear { at: now, ..Clear::default() }), 500 * S);
        assert!(!clears.is_due(now + 500 * S - 1) && clears.is_due(now + 500 * S));
        assert!(
            clears.is_due(now + 620 * S),
            "it did not come, as the map was busy: what had to be waited for is over"
        );
    }

    #[test]
    fn what_is_not_permitted_is_tried_every_two_minutes() {
        let mut clears = ProcessClears::new(0);
        clears.cleared(&ClearedProcess { clear: Clear { at: S, ..Clear::default() }, ..ClearedProcess::default() }, 0);
        assert!(!clears.is_due(121 * S - 1) && clears.is_due(121 * S));
    }

    #[test]
    fn it_takes_a_mebibyte_and_a_thousandth_of_the_memory() {
        assert!(!is_worth_a_stall(255, || unreachable!()) && is_worth_a_stall(256, || 256_999));
        assert!(!is_worth_a_stall(999, || 1_000_000) && is_worth_a_stall(1000, || 1_000_000));
    }
}
