//! What all tiers have in common between a list and the zone.

use super::lists::whole_chunks;
use crate::state;
use crate::tune::Pressure;
use crate::zone::CHUNK;
use crate::{AllocError, FrameNo, MigrateType, Order, Zone};
use core::sync::atomic::Ordering::Relaxed;

/// How a block is marked as cached on a per-CPU list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheMark {
    /// By a compare-and-swap: of several concurrent frees, one wins.
    Swapped,
    /// By a load and a store: the caller guarantees that no one else frees the block.
    Stored,
}

/// What to refill an empty list with.
pub(super) struct Want {
    pub(super) order: Order,
    pub(super) migrate: MigrateType,
    /// Number of blocks, from the tuner.
    pub(super) blocks: u32,
    /// Whether to wait for the zone lock even after the first block was obtained.
    pub(super) waits_for_more: bool,
}

impl Zone<'_> {
    /// Takes blocks from the zone. One of them is the result. `keep` pushes others to a list and returns how many it
    /// accepted, from the first on. The rest goes back to the zone.
    pub(super) fn refill_some(
        &self,
        want: &Want,
        mut keep: impl FnMut(&[u32]) -> usize,
    ) -> Result<FrameNo, AllocError> {
        let (order, migrate) = (want.order, want.migrate);
        let mut left = whole_chunks(want.blocks, order);
        let mut answer = None;
        let mut buffer = [0; CHUNK];
        while left > 0 {
            let some = &mut buffer[..left.min(CHUNK)];
            let asked = some.len();
            let got = match self.refill(order, migrate, some, answer.is_some() && !want.waits_for_more) {
                Ok(got) => got,
                Err(error) if answer.is_none() => return Err(error),
                Err(_) => break,
            };
            // Lists are last in, first out: reverse the blocks, so that they are allocated in the order in which they came.
            some[..got].reverse();
            let others = if answer.is_none() { got - 1 } else { got };
            answer = answer.or(some.get(others).copied());
            let kept = keep(&some[..others]);
            self.give_back(&some[kept..others], order);
            left -= got;
            // The zone has no more, or the list has no room: the thread has moved to another CPU, or someone drains
            // this one.
            if got < asked || kept < others {
                break;
            }
        }
        let Some(index) = answer else { return self.alloc(order, migrate) };
        self.set_state_byte(index, state::allocated(order, migrate));
        Ok(self.frame(index))
    }

    /// Returns `blocks` blocks of a list to the zone. Spares its newest, which are most likely in the processor's
    /// caches, unless there are no others. Pops and pushes at the top of the list. Returns how many went back.
    pub(super) fn give_older(
        &self,
        order: Order,
        blocks: usize,
        mut pop: impl FnMut(&mut [u32]) -> usize,
        push: impl FnOnce(&[u32]) -> usize,
    ) -> usize {
        let (mut newest, mut older) = ([0; CHUNK], [0; CHUNK]);
        let kept = pop(&mut newest);
        let mut left = blocks;
        while left > 0 {
            let some = &mut older[..left.min(CHUNK)];
            let got = pop(some);
            self.give_back(&some[..got], order);
            left -= got;
            if got < CHUNK {
                break;
            }
        }
        // If the older blocks were not enough, the newest make up for it, the oldest of them first.
        let (give, keep) = newest[..kept].split_at(left.min(kept));
        self.give_back(give, order);
        let pushed = push(keep);
        self.give_back(&keep[pushed..], order);
        (blocks - left) + give.len() + (keep.len() - pushed)
    }

    /// Marks an allocated block as cached. False if it is not allocated with this order.
    #[inline]
    pub(super) fn mark_cached(&self, index: u32, order: Order, mark: CacheMark) -> bool {
        match mark {
            CacheMark::Swapped => self.take_back(index, order),
            CacheMark::Stored => {
                let byte = self.byte(index);
                let is_allocated = state::is_allocated(byte.load(Relaxed), order);
                if is_allocated {
                    byte.store(state::cached(order), Relaxed);
                }
                is_allocated
            }
        }
    }

    /// How short of frames the zone is, for tuners. It may be slightly out of date, which tuners tolerate.
    pub(super) fn pressure(&self) -> Pressure {
        let high = self.watermarks().high;
        Pressure { below_high: high > 0 && self.free_frames() < high, reclaiming: false }
    }
}
