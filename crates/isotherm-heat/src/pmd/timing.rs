//! The schedule of one huge range, in 16 bytes. Decided in `target`, which has one for each 2 MiB of each target.

use super::Ns;
use crate::due::claim;
use crate::moment::Moment;
use crate::survey::Rank;
use bitflags::bitflags;

/// When a huge range needs its next read or clear, and how fast its clears back off, in 16 bytes. Decided in `target`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    next_read: Moment,
    next_clear: Moment,
    /// Retouches expected that were neither seen nor given up yet: the lower [`RESERVED_BITS`]. Above them the reads in which it may turn out to
    /// have cooled down, and from [`RANK_BIT`] on its rank in the queue of first checks, or 0.
    waits: u16,
    /// log2 of the time from the clear to the next read, in its first distance: the lower [`STEP_BITS`]. Above them how often the time to the next routine check has doubled.
    pace: u8,
    pub flags: Flags,
}

/// A huge range has no more pages than this.
const MAX_RESERVED: u16 = 512;
const RESERVED_BITS: u32 = 10;
const RANK_BIT: u32 = 13;
/// As many as fit between the two.
const MAX_LOOKS: u16 = 7;
const STEP_BITS: u32 = 5;
const _: () = assert!(size_of::<Timing>() == 16);

bitflags! {
    /// What holds of a huge range, in one byte: there is a [`Timing`] for each 2 MiB of each target.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Flags: u8 {
        /// A queue of clears has an entry for `next_clear`.
        const QUEUED = 1 << 0;
        /// It is checked before ranges of which nothing unexpected was seen.
        const URGENT = 1 << 1;
        /// It was assumed to be idle when it was cleared for the first time.
        const ASSUMED_IDLE = 1 << 2;
        /// Was cleared at least once.
        const CHECKED = 1 << 3;
        /// Much of it came since, and waits for its first check.
        const RENEWED = 1 << 4;
        /// Cannot be cleared: hugetlb, or shared in a way that nothing here reaches.
        const UNCLEARABLE = 1 << 5;
        /// The last clear reached none of its pages.
        const STUCK = 1 << 6;
        /// Of the survey: its check is to show what is true, so nothing is assumed of it, and at which interval.
        const SURVEYED = 1 << 7;
    }
}

impl Timing {
    /// Whether any of `flags` holds.
    pub fn is(&self, flags: Flags) -> bool {
        self.flags.intersects(flags)
    }

    /// Whether its first check is still to come, or to come again.
    pub fn is_unchecked(&self) -> bool {
        !self.is(Flags::CHECKED) || self.is(Flags::RENEWED)
    }

    /// When it is read next. 0: no read is planned.
    pub fn next_read(&self) -> Ns {
        self.next_read.ns()
    }

    /// Plans a read at `at`. Returns when that is, to the microsecond: this is what a queue has to say.
    pub fn plan_read(&mut self, at: Ns) -> Ns {
        self.next_read = Moment::of(at);
        self.next_read.ns()
    }

    /// Whether a read at `at` is what is planned. If so, it is no longer.
    pub fn claim_read(&mut self, at: Ns) -> bool {
        let mut planned = self.next_read.ns();
        let is_planned = claim(&mut planned, at);
        self.next_read = Moment::of(planned);
        is_planned
    }

    /// When it may be cleared again. 0: at any time.
    pub fn next_clear(&self) -> Ns {
        self.next_clear.ns()
    }

    /// Plans a clear at `at`, for which a queue has an entry if `queued`. Returns when that is, to the microsecond.
    pub fn plan_clear(&mut self, at: Ns, queued: bool) -> Ns {
        self.next_clear = Moment::of(at);
        self.flags.set(Flags::QUEUED, queued);
        self.next_clear.ns()
    }

    /// In which order it waits for its first check, if it does.
    pub fn rank(&self) -> Option<Rank> {
        Rank::ALL.into_iter().nth(usize::from(self.waits >> RANK_BIT).checked_sub(1)?)
    }

    pub fn set_rank(&mut self, rank: Option<Rank>) {
        let rank = rank.map_or(0, |rank| 1 + rank as u16);
        self.waits = rank << RANK_BIT | self.waits & ((1 << RANK_BIT) - 1);
    }

    /// Retouches expected that were neither seen nor given up yet.
    pub fn reserved(&self) -> u16 {
        self.waits & ((1 << RESERVED_BITS) - 1)
    }

    /// At most so many can be reserved as a huge range has pages. Returns how many are.
    pub fn set_reserved(&mut self, retouches: u64) -> u16 {
        let reserved = u16::try_from(retouches).map_or(MAX_RESERVED, |retouches| retouches.min(MAX_RESERVED));
        self.waits = self.waits >> RESERVED_BITS << RESERVED_BITS | reserved;
        reserved
    }

    /// Whether it may turn out in this read that it has cooled down. It counts as one of [`MAX_LOOKS`].
    pub fn looks(&mut self) -> bool {
        let left = self.waits >> RESERVED_BITS & MAX_LOOKS;
        self.set_looks(left.saturating_sub(1));
        left > 0
    }

    /// From now on it may turn out to have cooled down, or it is known that it has not.
    pub fn set_hot(&mut self, is_hot: bool) {
        self.set_looks(if is_hot { MAX_LOOKS } else { 0 });
    }

    fn set_looks(&mut self, looks: u16) {
        self.waits = self.waits & !(MAX_LOOKS << RESERVED_BITS) | looks << RESERVED_BITS;
    }

    /// log2 of the time from the clear to the next read, in its first distance.
    pub fn step(&self) -> u8 {
        self.pace & ((1 << STEP_BITS) - 1)
    }

    /// Sets it. Beyond 31 it is 31.
    pub fn set_step(&mut self, step: u8) {
        self.pace = self.pace >> STEP_BITS << STEP_BITS | step.min((1 << STEP_BITS) - 1);
    }

    /// How often the time to the next routine check has doubled: at most [`crate::target::MAX_BACKOFF`] times.
    pub fn backoff(&self) -> u8 {
        self.pace >> STEP_BITS
    }

    pub fn set_backoff(&mut self, backoff: u8) {
        self.pace = backoff << STEP_BITS | self.step();
    }

    /// Whether it was not checked before. It is now.
    pub fn first_checked(&mut self) -> bool {
        let first = !self.is(Flags::CHECKED);
        self.flags.insert(Flags::CHECKED);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shares_a_word_does_not_change_its_neighbours() {
        let mut timing = Timing::default();
        let of = |t: &Timing| (t.rank(), t.reserved(), t.step(), t.backoff());
        assert_eq!(of(&timing), (None, 0, 0, 0));
        for (rank, reserved, step, backoff) in
            [(4, 512, 31, 7), (0, 1, 16, 4), (2, 511, 1, 1), (5, 0, 0, 7), (1, 0, 0, 7), (3, 512, 31, 0)]
        {
            let rank = Some(Rank::ALL[rank]);
            timing.set_rank(rank);
            timing.set_step(step);
            timing.set_backoff(backoff);
            assert_eq!(u64::from(timing.set_reserved(reserved)), reserved);
            assert_eq!(of(&timing), (rank, u16::try_from(reserved).unwrap(), step, backoff));
        }
        timing.set_hot(true);
        assert_eq!(of(&timing), (Some(Rank::ALL[3]), 512, 31, 0));
        assert_eq!((0..9).map(|_| timing.looks()).collect::<Vec<_>>(), [[true; 7].as_slice(), &[false; 2]].concat());
        timing.set_rank(None);
        timing.set_step(200);
        assert_eq!((timing.set_reserved(70_000), of(&timing)), (512, (None, 512, 31, 0)));
        assert!(Rank::ALL.is_sorted());
    }
}
