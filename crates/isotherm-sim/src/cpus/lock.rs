//! A zone's lock: whoever comes first is served first, and nobody gives up.
//!
//! For such a queue it is enough to know when the last of those who have come so far will be done. Who comes before
//! that waits until then; who comes at that very instant does not, and has the lock. The queue itself need not be
//! kept, which the tests do to compare (`tests/naive.rs`).

/// The lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lock {
    free_at_ns: u64,
}

impl Lock {
    /// Whether someone who comes now has to wait.
    pub(super) const fn is_taken(self, now_ns: u64) -> bool {
        self.free_at_ns > now_ns
    }

    /// Someone comes now and will hold it for so long; how long they wait first.
    pub(super) fn acquire(&mut self, now_ns: u64, hold_ns: u64) -> u64 {
        let wait_ns = self.free_at_ns.saturating_sub(now_ns);
        self.free_at_ns = now_ns.saturating_add(wait_ns).saturating_add(hold_ns);
        wait_ns
    }
}
