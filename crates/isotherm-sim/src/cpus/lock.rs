//! A zone's lock. Waiters are served in order of arrival, and none of them gives up.
//!
//! For such a queue it is enough to know when the last waiter so far will release the lock. A CPU that arrives earlier
//! waits until then. A CPU that arrives at that instant gets the lock without waiting. The queue itself is not stored.
//! The tests store it to compare (`tests/naive.rs`).

/// The lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lock {
    free_at_ns: u64,
}

impl Lock {
    /// Whether a CPU that arrives now has to wait.
    pub(super) const fn is_taken(self, now_ns: u64) -> bool {
        self.free_at_ns > now_ns
    }

    /// Takes the lock for `hold_ns` as soon as it is free. Returns how long that waits first.
    pub(super) fn acquire(&mut self, now_ns: u64, hold_ns: u64) -> u64 {
        let wait_ns = self.free_at_ns.saturating_sub(now_ns);
        self.free_at_ns = now_ns.saturating_add(wait_ns).saturating_add(hold_ns);
        wait_ns
    }
}
