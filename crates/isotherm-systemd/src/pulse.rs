//! Whether a daemon's main loop goes on: it says by when it will be back, and is late if it is not.
//!
//! A sign of life that a thread of its own sends would say nothing about the loop that does the work. One that the loop itself sends would
//! be too rare: a loop may wait for minutes, as it was asked to.

use std::sync::atomic::{AtomicU64, Ordering};

/// How long after it was due a loop is late: longer than anything that it waits for on a machine where every CPU is busy.
const GRACE_NS: u64 = 60_000_000_000;

/// When the main loop is due. Times are nanoseconds of any one clock.
#[derive(Debug)]
pub struct Pulse {
    due_ns: AtomicU64,
    grace_ns: u64,
}

impl Default for Pulse {
    /// Not due yet, at any time.
    fn default() -> Pulse {
        Pulse::with_grace(GRACE_NS)
    }
}

impl Pulse {
    /// One that is late this long after it was due.
    pub fn with_grace(grace_ns: u64) -> Pulse {
        Pulse { due_ns: AtomicU64::new(u64::MAX), grace_ns }
    }

    /// The loop will be back at `at_ns`.
    pub fn next_due(&self, at_ns: u64) {
        self.due_ns.store(at_ns, Ordering::Relaxed);
    }

    /// Whether the loop should have been back by now.
    pub fn is_late(&self, now_ns: u64) -> bool {
        now_ns > self.due_ns.load(Ordering::Relaxed).saturating_add(self.grace_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_late_after_its_grace_and_not_before_it_has_begun() {
        let pulse = Pulse::with_grace(10);
        assert!(!pulse.is_late(u64::MAX), "it has not begun");
        pulse.next_due(100);
        assert_eq!((pulse.is_late(110), pulse.is_late(111)), (false, true));
        pulse.next_due(u64::MAX - 3);
        assert!(!pulse.is_late(u64::MAX));
    }
}
