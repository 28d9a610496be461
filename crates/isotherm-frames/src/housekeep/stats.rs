//! What housekeeping has done, counted for each CPU by whoever works on it and added up when someone asks.

use crate::sets::Tidied;

/// Counts of one CPU, or of all, since the housekeeper was made. They wrap around.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HousekeepingStats {
    /// Turns, those that went on with what was put off not included.
    pub turns: u64,
    /// Turns that went on with what was put off.
    pub rests: u64,
    /// Frames that went back to zones, those of CPUs that went offline included.
    pub drained: u64,
    /// Holds of zones' locks that turns took.
    pub chunks: u64,
    /// How often turns found a zone's lock taken.
    pub contended: u64,
    /// Turns that put the rest off for that.
    pub deferred: u64,
    /// Turns that could not have a set, since someone drained it, or has died in it.
    pub missed: u64,
    /// Times that a CPU was overdue by more than its share of the interval.
    pub late: u64,
    /// How often it went to its next phase for that.
    pub put_off: u64,
    /// How often the shepherd found a CPU with work that had none before.
    pub kicked: u64,
}

impl HousekeepingStats {
    /// A turn was made.
    pub(super) fn count(&mut self, tidied: &Tidied, is_rest: bool) {
        if is_rest {
            self.rests += 1;
        } else {
            self.turns += 1;
        }
        self.drained += tidied.drained;
        self.chunks += u64::from(tidied.chunks);
        self.contended += u64::from(tidied.contended);
        self.deferred += u64::from(tidied.is_deferred());
        self.missed += u64::from(tidied.missed);
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: HousekeepingStats) -> HousekeepingStats {
        HousekeepingStats {
            turns: self.turns.wrapping_add(other.turns),
            rests: self.rests.wrapping_add(other.rests),
            drained: self.drained.wrapping_add(other.drained),
            chunks: self.chunks.wrapping_add(other.chunks),
            contended: self.contended.wrapping_add(other.contended),
            deferred: self.deferred.wrapping_add(other.deferred),
            missed: self.missed.wrapping_add(other.missed),
            late: self.late.wrapping_add(other.late),
            put_off: self.put_off.wrapping_add(other.put_off),
            kicked: self.kicked.wrapping_add(other.kicked),
        }
    }
}
