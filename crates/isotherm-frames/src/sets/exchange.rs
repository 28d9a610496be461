//! What all tiers do alike between a list and the zone.

use super::lists::whole_chunks;
use crate::state;
use crate::tune::Pressure;
use crate::zone::CHUNK;
use crate::{AllocError, FrameNo, MigrateType, Order, Zone};
use core::sync::atomic::Ordering::Relaxed;

/// How a block is marked as waiting in a set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// By a compare-and-swap: of several at once one wins.
    Swapped,
    /// By a load and a store: nobody else does.
    Stored,
}

/// What a list without blocks is to get.
pub(super) struct Want {
    pub(super) order: Order,
    pub(super) migrate: MigrateType,
    /// As the tuner says.
    pub(super) blocks: u32,
    /// Whether the zone's lock is waited for once there is a block to hand out.
    pub(super) waits_for_more: bool,
}

impl Zone<'_> {
    /// Takes some blocks: one of them is the answer, `keep` puts others into a list and says how many had room there, from the first on.
    /// The rest goes back.
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
            // Last in, first out: so that they are handed out as they came.
            some[..got].reverse();
            let others = if answer.is_none() { got - 1 } else { got };
            answer = answer.or(some.get(others).copied());
            let kept = keep(&some[..others]);
            self.give_back(&some[kept..others], order);
            left -= got;
            // No more of them, or no room: the CPU is another one by now, or someone drains it.
            if got < asked || kept < others {
                break;
            }
        }
        let Some(index) = answer else { return self.alloc(order, migrate) };
        self.set_state_byte(index, state::allocated(order, migrate));
        Ok(self.frame(index))
    }

    /// Takes so many blocks back from a list: not its newest, which are the most likely to be in the processor's caches, unless there
    /// are no others. Takes and puts from and to its top; how many there were.
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
        // What the rest did not have, the newest must give, the older of them first.
        let (give, keep) = newest[..kept].split_at(left.min(kept));
        self.give_back(give, order);
        let pushed = push(keep);
        self.give_back(&keep[pushed..], order);
        (blocks - left) + give.len() + (keep.len() - pushed)
    }

    /// Marks a block that is handed out as waiting in a set; false if it is not handed out as that.
    #[inline]
    pub(super) fn mark_cached(&self, index: u32, order: Order, mark: Mark) -> bool {
        match mark {
            Mark::Swapped => self.take_back(index, order),
            Mark::Stored => {
                let byte = self.byte(index);
                let is_allocated = state::is_allocated(byte.load(Relaxed), order);
                if is_allocated {
                    byte.store(state::cached(order), Relaxed);
                }
                is_allocated
            }
        }
    }

    /// How short of frames it is, for tuners. Off by what happens meanwhile, which does not matter to them.
    pub(super) fn pressure(&self) -> Pressure {
        let high = self.watermarks().high;
        Pressure { below_high: high > 0 && self.free_frames() < high, reclaiming: false }
    }
}
