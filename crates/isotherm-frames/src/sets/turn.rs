//! One turn of housekeeping over one set: what is above its `high` goes back to the zone, the coldest first.
//!
//! [`Tuner::decay`] says how much, as the kernel's `decay_pcp_high` does at every tick. It goes back a chunk at a time, a chunk of each
//! list in turn: of a batch at the most, under one hold of the zone's lock, which is let go in between. (A block of order 9 is a chunk,
//! and one entry of a list as any other.) The lock is tried. Whoever finds it taken leaves the rest for later, since nobody waits for
//! housekeeping, and queues are what housekeeping is disliked for; but after some turns in a row that met someone there, one waits
//! as anyone does, or a busy zone would never get anything back.
//!
//! An idle set goes back as a whole. Idle is one that shows no trace of use for [`Pace::idle_after`] turns: nobody came from it to the
//! zone, and every list is as long as the last turn left it. A CPU that takes and returns the same few blocks leaves no trace
//! either: it refills once for each time that it is mistaken for idle, which is no cost next to so many intervals. Sets above their
//! low mark are never taken for idle; they shrink by the eighth first. (The kernel does the same, for sets of other nodes only: `expire`.)
//!
//! Works on the set of any CPU, from any: a set is held, by its lock or by stopping its CPU, for eight chunks at the most, and its
//! threads go to the zone meanwhile. Blocks are taken out of a list before it is let go, so that nobody finds what the zone has by then.

use super::lists::{frames_in, order_of};
use super::stock::Stock;
use crate::Zone;
use crate::percpu::LISTS;
use crate::tune::{Decay, Tuner};
use crate::zone::CHUNK;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Chunks for which a set is held at a time.
const CHUNKS_A_HOLD: u32 = 8;

/// How patient housekeeping is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Turns without a trace of use after which a set is emptied, if it is at its low mark or below. 0: it stays there.
    pub idle_after: u32,
    /// Turns in a row that leave the rest for later because someone has the zone's lock. 0: the first waits.
    pub most_deferrals: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { idle_after: 3, most_deferrals: 8 }
    }
}

/// What a turn has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tidied {
    /// Frames that went back to the zone.
    pub drained: u64,
    /// Holds of the zone's lock that it took.
    pub chunks: u32,
    /// How often the lock was found taken: to be waited for, or as the end of this turn.
    pub contended: u32,
    /// Frames that are left for [`Sets::tidy_rest`](super::Sets::tidy_rest), because someone had the zone's lock.
    pub left: u32,
    /// The set could not be had: someone drains it, or has died in it. Nothing was done.
    pub missed: bool,
    /// Whether the next turn will have something to do, so far as is known now.
    pub again: bool,
}

impl Tidied {
    pub(super) const NO_REST: Tidied =
        Tidied { drained: 0, chunks: 0, contended: 0, left: 0, missed: false, again: true };
    pub(super) const MISSED: Tidied =
        Tidied { drained: 0, chunks: 0, contended: 0, left: 0, missed: true, again: true };

    /// Whether the rest was put off.
    pub const fn is_deferred(&self) -> bool {
        self.left > 0
    }

    /// Both together, as for a CPU's sets of two zones.
    pub const fn and(self, other: Tidied) -> Tidied {
        Tidied {
            drained: self.drained + other.drained,
            chunks: self.chunks + other.chunks,
            contended: self.contended + other.contended,
            left: self.left.saturating_add(other.left),
            missed: self.missed || other.missed,
            again: self.again || other.again,
        }
    }
}

/// What is remembered of a set from turn to turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// Visits to the zone so far, which wrap around.
    visits: u32,
    /// Those that the last turn knew of, and what the lists were like after it.
    seen: (u32, u32),
    /// Turns without a trace of use.
    quiet_turns: u32,
    /// Frames down to which the last turn wanted to go.
    keep: u32,
    /// Turns in a row that were put off.
    deferrals: u32,
    /// The list whose turn it is.
    list: u32,
    /// Frames that the last turn, or its rest, put off.
    left: u32,
}

impl Memory {
    pub(super) const WORDS: usize = 8;

    pub(super) fn to_words(self) -> [u32; Memory::WORDS] {
        [self.visits, self.seen.0, self.seen.1, self.quiet_turns, self.keep, self.deferrals, self.list, self.left]
    }

    pub(super) fn from_words(
        [visits, seen_visits, seen_counts, quiet_turns, keep, deferrals, list, left]: [u32; Memory::WORDS],
    ) -> Memory {
        Memory { visits, seen: (seen_visits, seen_counts), quiet_turns, keep, deferrals, list, left }
    }

    /// Someone came from the set to the zone: for words in place, where nothing else is needed.
    #[inline]
    pub(super) fn visited_in(words: &[AtomicU32]) {
        words[0].store(words[0].load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The same.
    #[inline]
    pub(super) fn visited(&mut self) {
        self.visits = self.visits.wrapping_add(1);
    }

    fn is_used(&self, counts: &[u32; LISTS]) -> bool {
        self.seen != (self.visits, digest(counts))
    }

    /// A turn begins: how many frames are to go, and whether the next will have something to do after that.
    pub(super) fn begin(&mut self, tuner: &mut Tuner, counts: &[u32; LISTS], pace: &Pace) -> Decay {
        let count = frames_in(counts);
        self.quiet_turns = if self.is_used(counts) { 0 } else { self.quiet_turns.saturating_add(1) };
        let mut decay = tuner.decay(count);
        let is_idle = pace.idle_after > 0 && self.quiet_turns >= pace.idle_after && count <= tuner.marks().high_min;
        if is_idle {
            tuner.forget();
            decay = Decay { drain: count, again: false };
        }
        self.keep = count - decay.drain;
        // Known when it ends.
        self.left = 0;
        Decay { again: decay.again || (pace.idle_after > 0 && self.keep > 0), ..decay }
    }

    /// What the last turn left, less what was used since. `None` if it left nothing. What came since is for the next turn, by its
    /// formula.
    pub(super) fn rest(&mut self, tuner: &Tuner, counts: &[u32; LISTS]) -> Option<u32> {
        // Left again if this does not come to it either. Should nobody be able to note that, the next turn has it.
        let left = Some(core::mem::take(&mut self.left)).filter(|&left| left > 0)?;
        // Not idle after all.
        let low = if self.is_used(counts) { tuner.marks().high_min } else { 0 };
        Some(left.min(frames_in(counts).saturating_sub(self.keep.max(low))))
    }

    /// Whether this turn waits for the zone's lock.
    fn waits(&self, pace: &Pace) -> bool {
        self.deferrals >= pace.most_deferrals
    }

    /// A turn ends. Whoever came to the zone meanwhile is seen by the next one.
    pub(super) fn end(&mut self, began: &Memory, counts: &[u32; LISTS], tidied: &Tidied, list: u32) {
        self.seen = (began.visits, digest(counts));
        self.deferrals = if tidied.is_deferred() { self.deferrals.saturating_add(1) } else { 0 };
        self.list = list;
        self.left = tidied.left;
    }
}

/// Of all counts; other ones have another, as a rule.
fn digest(counts: &[u32; LISTS]) -> u32 {
    counts.iter().fold(0, |digest: u32, &count| digest.wrapping_mul(0x9e37_79b1).rotate_left(5) ^ count)
}

/// The lists of a set, while nobody else can change them.
pub(super) trait HeldLists {
    fn count(&self, list: usize) -> u32;

    /// Copies the oldest, but `skip` of them; how many.
    fn copy_oldest(&self, list: usize, skip: u32, into: &mut [u32]) -> usize;

    /// Takes so many of the oldest away.
    fn forget_oldest(&mut self, list: usize, blocks: u32);
}

impl HeldLists for Stock<'_, '_> {
    fn count(&self, list: usize) -> u32 {
        Stock::count(self, list)
    }

    fn copy_oldest(&self, list: usize, skip: u32, into: &mut [u32]) -> usize {
        Stock::copy_oldest(self, list, skip, into)
    }

    fn forget_oldest(&mut self, list: usize, blocks: u32) {
        Stock::forget_oldest(self, list, blocks);
    }
}

/// The way of a set's coldest blocks to the zone.
pub(super) struct Course<'z, 'm> {
    zone: &'z Zone<'m>,
    /// Frames of a chunk.
    batch: u32,
    waits: bool,
    /// Frames still to go.
    pub(super) left: u32,
    /// The list whose turn it is.
    list: usize,
    pub(super) tidied: Tidied,
}

impl<'z, 'm> Course<'z, 'm> {
    /// For a turn that has begun.
    pub(super) fn new(zone: &'z Zone<'m>, batch: u32, memory: &Memory, pace: &Pace, decay: Decay) -> Course<'z, 'm> {
        Course {
            zone,
            batch,
            waits: memory.waits(pace),
            left: decay.drain,
            list: memory.list as usize % LISTS,
            tidied: Tidied { again: decay.again, ..Tidied::default() },
        }
    }

    /// The list whose turn it is the next time.
    pub(super) fn next(&self) -> u32 {
        u32::try_from(self.list).unwrap_or(0)
    }

    /// Gives some chunks; whether there is any sense in going on.
    pub(super) fn go(&mut self, lists: &mut impl HeldLists) -> bool {
        let mut given = [0; LISTS];
        let goes_on = self.some_chunks(lists, &mut given);
        // At once, since what is left has to move.
        for (list, &blocks) in given.iter().enumerate().filter(|&(_, &blocks)| blocks > 0) {
            lists.forget_oldest(list, blocks);
        }
        goes_on
    }

    fn some_chunks(&mut self, lists: &impl HeldLists, given: &mut [u32; LISTS]) -> bool {
        let mut buffer = [0; CHUNK];
        for _ in 0..CHUNKS_A_HOLD {
            let Some(list) = self.next_list(|list| lists.count(list) > given[list]) else { return false };
            let order = order_of(list);
            let most = (self.batch.min(self.left) >> order.get()).max(1) as usize;
            let got = lists.copy_oldest(list, given[list], &mut buffer[..most.min(CHUNK)]);
            if !self.give(&buffer[..got], list) {
                return false;
            }
            let blocks = u32::try_from(got).unwrap_or(0);
            given[list] += blocks;
            self.left = self.left.saturating_sub(blocks << order.get());
            self.tidied.drained += u64::from(blocks) << order.get();
            self.list = (list + 1) % LISTS;
        }
        self.left > 0
    }

    /// The next in turn of those that have something, with blocks that are not too large for what is to go. If there are only such,
    /// of the smallest: as in the kernel, or what is above the mark by less than a block would be there for ever.
    fn next_list(&self, has_some: impl Fn(usize) -> bool) -> Option<usize> {
        let fits = |&list: &usize| has_some(list) && order_of(list).frames() <= self.left;
        let in_turn = (0..LISTS).map(|n| (self.list + n) % LISTS);
        let any = || (0..LISTS).find(|&list| has_some(list));
        (self.left > 0).then(|| in_turn.clone().find(fits).or_else(any)).flatten()
    }

    /// A chunk; false if someone has the lock and it is not to be waited for.
    fn give(&mut self, chunk: &[u32], list: usize) -> bool {
        let order = order_of(list);
        if !self.zone.try_give_back(chunk, order) {
            self.tidied.contended += 1;
            if !self.waits {
                self.tidied.left = self.left;
                return false;
            }
            self.zone.give_back(chunk, order);
        }
        self.tidied.chunks += 1;
        true
    }
}
