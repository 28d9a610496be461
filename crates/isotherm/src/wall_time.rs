//! The times of snapshots: wall time, in order.
//!
//! Reports take the snapshots of a recording for a timeline. If the clock of the machine is set back, by hand or by NTP, times go on
//! as before, so they are ahead of the clock from then on. A clock that is set forward is followed. Nothing here reads a clock.

/// How far the clock may be behind without having been set back. NTP slows it down by at most 0.5 ms a second.
const MAX_BEHIND_NS: u64 = 10_000_000;

/// Wall time that does not go back. Unix nanoseconds.
#[derive(Debug, Default)]
pub struct WallTime {
    last_ns: u64,
    /// By the monotonic clock, when it was `last_ns`.
    at_ns: u64,
    /// How far these times are ahead of the clock.
    ahead_ns: u64,
}

impl WallTime {
    /// The time at which the clock showed `unix_ns`, and the monotonic clock `monotonic_ns`. The second value is by how many
    /// nanoseconds the clock was set back since the last call, if it was.
    pub fn at(&mut self, unix_ns: u64, monotonic_ns: u64) -> (u64, Option<u64>) {
        let shown = unix_ns.saturating_add(self.ahead_ns);
        let expected = self.last_ns.saturating_add(monotonic_ns.saturating_sub(self.at_ns));
        let behind = expected.saturating_sub(shown);
        let set_back = (self.last_ns > 0 && behind > MAX_BEHIND_NS).then_some(behind);
        if set_back.is_some() {
            self.ahead_ns = self.ahead_ns.saturating_add(behind);
        }
        self.last_ns = unix_ns.saturating_add(self.ahead_ns).max(self.last_ns);
        self.at_ns = monotonic_ns;
        (self.last_ns, set_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const NOON: u64 = 1_700_000_000 * S;

    #[test]
    fn times_go_on_when_the_clock_is_set_back_and_follow_it_forward() {
        let mut time = WallTime::default();
        assert_eq!(time.at(NOON, 5 * S), (NOON, None));
        assert_eq!(time.at(NOON + S, 6 * S), (NOON + S, None));
        // An hour back, then on from there.
        assert_eq!(time.at(NOON + 2 * S - 3600 * S, 7 * S), (NOON + 2 * S, Some(3600 * S)));
        assert_eq!(time.at(NOON + 3 * S - 3600 * S, 8 * S), (NOON + 3 * S, None));
        // Half a second back, which is less than a window.
        let (at, back) = time.at(NOON + 4 * S - 3600 * S - S / 2, 9 * S);
        assert_eq!((at, back), (NOON + 4 * S, Some(S / 2)));
        // A day forward.
        let forward = time.at(NOON + 5 * S - 3600 * S - S / 2 + 86_400 * S, 10 * S);
        assert_eq!(forward, (NOON + 5 * S + 86_400 * S, None));
    }

    #[test]
    fn a_clock_that_is_slowed_down_has_not_been_set_back() {
        let mut time = WallTime::default();
        for second in 0..1000 {
            let shown = NOON + second * (S - 500_000);
            assert_eq!(time.at(shown, second * S), (shown, None));
        }
    }
}
