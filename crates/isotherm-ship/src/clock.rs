//! Both clocks, and where they disagree.
//!
//! Waits are measured by a clock that only advances, also while the machine sleeps. Rows and phases have the time of the wall clock. When
//! that is set, or runs wrong, the two drift apart: rows may be of the wrong hour, and requests may be refused as too old. So it is
//! counted and reported.

use crate::plan::Moment;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What is a step and no drift: clocks that are disciplined drift by less than 0.05 s in a minute.
const STEP_NS: u64 = 1_000_000_000;

/// The present.
pub fn now() -> Moment {
    Moment { mono_ns: read(ClockId::Boottime), wall_ns: read(ClockId::Realtime) }
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither is negative on a machine that has a date.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// How the wall clock went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skew {
    /// How often it was set, or jumped.
    pub steps: u64,
    /// The last step; forward is positive.
    pub last_step_ns: i64,
    /// When that was, by the clock after it.
    pub last_step_unix_ns: u64,
    /// All of it since the start, steps and drift: by how much the wall clock has advanced more than the other.
    pub total_ns: i64,
    #[serde(skip)]
    last: Option<Moment>,
}

impl Skew {
    /// Compares the clocks with those of the last call. Returns a step.
    pub fn observe(&mut self, now: Moment) -> Option<i64> {
        let last = self.last.replace(now)?;
        let difference = signed(now.wall_ns, last.wall_ns).saturating_sub(signed(now.mono_ns, last.mono_ns));
        self.total_ns = self.total_ns.saturating_add(difference);
        if difference.unsigned_abs() < STEP_NS {
            return None;
        }
        self.steps += 1;
        self.last_step_ns = difference;
        self.last_step_unix_ns = now.wall_ns;
        Some(difference)
    }
}

fn signed(later: u64, earlier: u64) -> i64 {
    let magnitude = i64::try_from(later.abs_diff(earlier)).unwrap_or(i64::MAX);
    if later >= earlier { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn at(mono_ns: u64, wall_ns: u64) -> Moment {
        Moment { mono_ns, wall_ns }
    }

    #[test]
    fn a_step_differs_from_drift() {
        let mut skew = Skew::default();
        assert_eq!(skew.observe(at(10 * S, 1000 * S)), None, "the first has nothing to compare with");
        assert_eq!(skew.observe(at(70 * S, 1060 * S + 30_000_000)), None, "30 ms in a minute are drift");
        assert_eq!(skew.observe(at(71 * S, 1000 * S)), Some(-61 * 1_000_000_000 - 30_000_000));
        assert_eq!(skew.observe(at(72 * S, 1004 * S)), Some(3 * 1_000_000_000));
        assert_eq!((skew.steps, skew.last_step_ns, skew.last_step_unix_ns), (2, 3_000_000_000, 1004 * S));
        // 62 s by the one clock, and 4 s by the other.
        assert_eq!(skew.total_ns, -58_000_000_000);
    }

    #[test]
    fn the_clocks_of_this_machine_advance() {
        let (first, second) = (now(), now());
        assert!(second.mono_ns >= first.mono_ns && first.wall_ns > 1_700_000_000 * S);
    }
}
