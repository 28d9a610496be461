//! Counters of the periodic drain: kept for each CPU by the thread that works on it, and added up on request.

use crate::pcp::Decayed;

/// Counters of one CPU or of all CPUs since the housekeeper was created. They wrap around.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HousekeepingStats {
    /// Runs, without those that continued a deferred one.
    pub runs: u64,
    /// Runs that continued a deferred one.
    pub rests: u64,
    /// Frames that went back to the zones, those of CPUs that went offline included.
    pub drained: u64,
    /// How many times runs took a zone lock.
    pub chunks: u64,
    /// How many times runs found a zone lock taken.
    pub contended: u64,
    /// Runs that deferred the rest because of that.
    pub deferred: u64,
    /// Runs that could not hold the lists, because another thread drained them or died in them.
    pub missed: u64,
    /// How many times a CPU was overdue by more than its share of the interval.
    pub late: u64,
    /// How many times a CPU skipped to its next phase because of that.
    pub skipped: u64,
    /// How many times the shepherd found work on a CPU that had no due time.
    pub kicked: u64,
}

impl HousekeepingStats {
    /// Counts a run.
    pub(super) fn count(&mut self, decayed: &Decayed, is_rest: bool) {
        if is_rest {
            self.rests += 1;
        } else {
            self.runs += 1;
        }
        self.drained += decayed.drained;
        self.chunks += u64::from(decayed.chunks);
        self.contended += u64::from(decayed.contended);
        self.deferred += u64::from(decayed.is_deferred());
        self.missed += u64::from(decayed.missed);
    }

    /// Adds two sets of counters.
    #[must_use]
    pub const fn and(self, other: HousekeepingStats) -> HousekeepingStats {
        HousekeepingStats {
            runs: self.runs.wrapping_add(other.runs),
            rests: self.rests.wrapping_add(other.rests),
            drained: self.drained.wrapping_add(other.drained),
            chunks: self.chunks.wrapping_add(other.chunks),
            contended: self.contended.wrapping_add(other.contended),
            deferred: self.deferred.wrapping_add(other.deferred),
            missed: self.missed.wrapping_add(other.missed),
            late: self.late.wrapping_add(other.late),
            skipped: self.skipped.wrapping_add(other.skipped),
            kicked: self.kicked.wrapping_add(other.kicked),
        }
    }
}
