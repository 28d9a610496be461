//! One run of the periodic drain over the lists of one CPU: what is above `high` goes back to the zone, the coldest first.
//!
//! [`Tuner::decay`] computes how much, as the kernel's `decay_pcp_high` does at every tick. Blocks go back in chunks of
//! at most one batch, round robin over the lists. Each chunk takes the zone lock once and releases it. (A block of
//! order 9 is a chunk; it is one entry of a list like any other.) The lock is tried. If it is taken, the run defers the
//! rest: a drain is not urgent, and drains that queue on the lock delay everyone else. After some deferred runs in a
//! row, a run waits for the lock, or a busy zone would never get its frames back.
//!
//! Idle lists are emptied. Lists are idle if they show no trace of use for [`Pace::idle_after`] runs: nothing came from
//! them to the zone, and every list is as long as the last run left it. A CPU that allocates and frees the same few
//! blocks leaves no trace either. Each time it is mistaken for idle it has to refill once, which costs little compared
//! with several intervals. Lists above `high_min` never count as idle; they shrink by the eighth first. (The kernel
//! does the same, but only for lists of other nodes: `expire`.)
//!
//! A run works on the lists of any CPU, from any CPU. It holds the lists, by their lock or by stopping the CPU, for at
//! most eight chunks; meanwhile the CPU's threads go to the zone. It removes blocks from a list before it releases the
//! list, so that no one finds blocks there that are back in the zone.

use super::list_words::ListWords;
use super::lists::{frames_in, order_of};
use crate::Zone;
use crate::percpu::LISTS;
use crate::tune::{Decay, Tuner};
use crate::zone::CHUNK;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Most chunks for which lists are held at a time.
const CHUNKS_A_HOLD: u32 = 8;

/// When a run empties idle lists, and how often it defers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Number of runs without a trace of use after which lists at or below `high_min` are emptied. 0: never.
    pub idle_after: u32,
    /// How many runs in a row may defer the rest because the zone lock is taken. 0: the first one waits.
    pub max_deferrals: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { idle_after: 3, max_deferrals: 8 }
    }
}

/// What a run has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Decayed {
    /// Frames that went back to the zone.
    pub drained: u64,
    /// How many times it took the zone lock.
    pub chunks: u32,
    /// How many times it found the lock taken, and then waited or ended the run.
    pub contended: u32,
    /// Frames that are left for [`PcpLists::decay_rest`](super::PcpLists::decay_rest), because the zone lock was taken.
    pub left: u32,
    /// The lists could not be held: another thread drains them, or has died in them. They were not drained.
    pub missed: bool,
    /// Whether the next run will have something to do, as far as is known now.
    pub again: bool,
}

impl Decayed {
    pub(super) const NO_REST: Decayed =
        Decayed { drained: 0, chunks: 0, contended: 0, left: 0, missed: false, again: true };
    pub(super) const MISSED: Decayed =
        Decayed { drained: 0, chunks: 0, contended: 0, left: 0, missed: true, again: true };

    /// Whether the rest was deferred.
    pub const fn is_deferred(&self) -> bool {
        self.left > 0
    }

    /// Adds two results, such as those of a CPU's lists for two zones.
    pub const fn and(self, other: Decayed) -> Decayed {
        Decayed {
            drained: self.drained + other.drained,
            chunks: self.chunks + other.chunks,
            contended: self.contended + other.contended,
            left: self.left.saturating_add(other.left),
            missed: self.missed || other.missed,
            again: self.again || other.again,
        }
    }
}

/// What is remembered of a CPU's lists from run to run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunHistory {
    /// Number of visits to the zone. Wraps around.
    visits: u32,
    /// The number of visits that the last run knew of, and a digest of the list lengths after it.
    seen: (u32, u32),
    /// Number of runs in a row without a trace of use.
    idle_runs: u32,
    /// The number of frames that the last run wanted to leave.
    keep: u32,
    /// Number of deferred runs in a row.
    deferrals: u32,
    /// The list to take the next chunk from.
    list: u32,
    /// Frames that the last run, or its rest, deferred.
    left: u32,
}

impl RunHistory {
    pub(super) const WORDS: usize = 8;

    pub(super) fn to_words(self) -> [u32; RunHistory::WORDS] {
        [self.visits, self.seen.0, self.seen.1, self.idle_runs, self.keep, self.deferrals, self.list, self.left]
    }

    pub(super) fn from_words(
        [visits, seen_visits, seen_counts, idle_runs, keep, deferrals, list, left]: [u32; RunHistory::WORDS],
    ) -> RunHistory {
        RunHistory { visits, seen: (seen_visits, seen_counts), idle_runs, keep, deferrals, list, left }
    }

    /// Counts a visit to the zone. Works on the words in place, for callers that need nothing else.
    #[inline]
    pub(super) fn visited_in(words: &[AtomicU32]) {
        words[0].store(words[0].load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Counts a visit to the zone.
    #[inline]
    pub(super) fn visited(&mut self) {
        self.visits = self.visits.wrapping_add(1);
    }

    fn is_used(&self, counts: &[u32; LISTS]) -> bool {
        self.seen != (self.visits, digest(counts))
    }

    /// Begins a run: computes how many frames to drain, and whether the next run will have something to do after that.
    pub(super) fn begin(&mut self, tuner: &mut Tuner, counts: &[u32; LISTS], pace: &Pace) -> Decay {
        let count = frames_in(counts);
        self.idle_runs = if self.is_used(counts) { 0 } else { self.idle_runs.saturating_add(1) };
        let mut decay = tuner.decay(count);
        let is_idle = pace.idle_after > 0 && self.idle_runs >= pace.idle_after && count <= tuner.limits().high_min;
        if is_idle {
            tuner.forget();
            decay = Decay { drain: count, again: false };
        }
        self.keep = count - decay.drain;
        // Set again when the run ends.
        self.left = 0;
        Decay { again: decay.again || (pace.idle_after > 0 && self.keep > 0), ..decay }
    }

    /// What the last run deferred, less what was used since. `None` if it deferred nothing. The next run handles what
    /// was freed since, by its own formula.
    pub(super) fn rest(&mut self, tuner: &Tuner, counts: &[u32; LISTS]) -> Option<u32> {
        // If this attempt does not finish, it sets `left` again. If that cannot be recorded, the next run handles it.
        let left = Some(core::mem::take(&mut self.left)).filter(|&left| left > 0)?;
        // If the lists were used, they are not idle after all: keep `high_min`.
        let low = if self.is_used(counts) { tuner.limits().high_min } else { 0 };
        Some(left.min(frames_in(counts).saturating_sub(self.keep.max(low))))
    }

    /// Whether this run waits for the zone lock.
    fn waits(&self, pace: &Pace) -> bool {
        self.deferrals >= pace.max_deferrals
    }

    /// Ends a run. The next run notices visits to the zone that happened meanwhile.
    pub(super) fn end(&mut self, began: &RunHistory, counts: &[u32; LISTS], decayed: &Decayed, list: u32) {
        self.seen = (began.visits, digest(counts));
        self.deferrals = if decayed.is_deferred() { self.deferrals.saturating_add(1) } else { 0 };
        self.list = list;
        self.left = decayed.left;
    }
}

/// A hash of all counts. Different counts usually have different digests.
fn digest(counts: &[u32; LISTS]) -> u32 {
    counts.iter().fold(0, |digest: u32, &count| digest.wrapping_mul(0x9e37_79b1).rotate_left(5) ^ count)
}

/// The lists of a CPU, while no one else can change them.
pub(super) trait HeldLists {
    fn count(&self, list: usize) -> u32;

    /// Copies the oldest blocks without the `skip` oldest; returns how many.
    fn copy_oldest(&self, list: usize, skip: u32, into: &mut [u32]) -> usize;

    /// Removes the `blocks` oldest blocks.
    fn forget_oldest(&mut self, list: usize, blocks: u32);
}

impl HeldLists for ListWords<'_, '_> {
    fn count(&self, list: usize) -> u32 {
        ListWords::count(self, list)
    }

    fn copy_oldest(&self, list: usize, skip: u32, into: &mut [u32]) -> usize {
        ListWords::copy_oldest(self, list, skip, into)
    }

    fn forget_oldest(&mut self, list: usize, blocks: u32) {
        ListWords::forget_oldest(self, list, blocks);
    }
}

/// Moves the coldest blocks of a CPU's lists to the zone.
pub(super) struct DecayRun<'z, 'm> {
    zone: &'z Zone<'m>,
    /// Frames in a chunk.
    batch: u32,
    waits: bool,
    /// Frames that are still to be drained.
    pub(super) left: u32,
    /// The list to take the next chunk from.
    list: usize,
    pub(super) decayed: Decayed,
}

impl<'z, 'm> DecayRun<'z, 'm> {
    /// For a run that has begun.
    pub(super) fn new(
        zone: &'z Zone<'m>,
        batch: u32,
        memory: &RunHistory,
        pace: &Pace,
        decay: Decay,
    ) -> DecayRun<'z, 'm> {
        DecayRun {
            zone,
            batch,
            waits: memory.waits(pace),
            left: decay.drain,
            list: memory.list as usize % LISTS,
            decayed: Decayed { again: decay.again, ..Decayed::default() },
        }
    }

    /// The list that the next run starts with.
    pub(super) fn next(&self) -> u32 {
        u32::try_from(self.list).unwrap_or(0)
    }

    /// Returns several chunks to the zone. The result is whether to continue.
    pub(super) fn go(&mut self, lists: &mut impl HeldLists) -> bool {
        let mut given = [0; LISTS];
        let goes_on = self.some_chunks(lists, &mut given);
        // All at once, because the remaining entries have to move.
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
            self.decayed.drained += u64::from(blocks) << order.get();
            self.list = (list + 1) % LISTS;
        }
        self.left > 0
    }

    /// The next list, round robin, that has blocks no larger than what is to be drained. If all blocks are larger, a
    /// list with the smallest of them. The kernel does the same; else an excess of less than a block would stay forever.
    fn next_list(&self, has_some: impl Fn(usize) -> bool) -> Option<usize> {
        let fits = |&list: &usize| has_some(list) && order_of(list).frames() <= self.left;
        let in_turn = (0..LISTS).map(|n| (self.list + n) % LISTS);
        let any = || (0..LISTS).find(|&list| has_some(list));
        (self.left > 0).then(|| in_turn.clone().find(fits).or_else(any)).flatten()
    }

    /// Returns a chunk. False if the lock is taken and the run does not wait for it.
    fn give(&mut self, chunk: &[u32], list: usize) -> bool {
        let order = order_of(list);
        if !self.zone.try_give_back(chunk, order) {
            self.decayed.contended += 1;
            if !self.waits {
                self.decayed.left = self.left;
                return false;
            }
            self.zone.give_back(chunk, order);
        }
        self.decayed.chunks += 1;
        true
    }
}
