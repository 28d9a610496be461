//! Many blocks at once: bulk calls, and the refills and drains of per-CPU lists.
//!
//! A run of blocks is cut from one larger block with one list operation; the kernel splits it down one block at a time.
//! The lock is held for one [`CHUNK`] at a time.

use super::alloc::Zone;
use super::metadata::ZoneMetadata;
use super::request::AllocError;
use super::watermark::Urgency;
use crate::state::{self, FreeError};
use crate::{FrameNo, MigrateType, Order};

/// Blocks that are taken or returned each time the lock is held.
pub(crate) const CHUNK: usize = 64;

/// What kind of blocks to take.
#[derive(Clone, Copy)]
struct Wanted {
    order: Order,
    migrate: MigrateType,
    /// To be cached on a per-CPU list, not to be allocated.
    into_list: bool,
}

impl Wanted {
    /// The state byte of each block.
    fn byte(self) -> u8 {
        if self.into_list { state::cached(self.order) } else { state::allocated(self.order, self.migrate) }
    }
}

impl Zone<'_> {
    /// Allocates blocks of `order` until `frames` is full or none is left; returns how many. Takes the first blocks
    /// that fit, so many of them are contiguous. Uses normal urgency: the watermark `min` stays free.
    ///
    /// Takes a few ns per frame, because the lock is taken once for 64.
    pub fn alloc_bulk(&self, order: Order, migrate: MigrateType, frames: &mut [FrameNo]) -> usize {
        let mut done = 0;
        for chunk in frames.chunks_mut(CHUNK) {
            let mut metadata = self.metadata.lock();
            let most = self.above_min(&metadata, order).min(chunk.len());
            let wanted = Wanted { order, migrate, into_list: false };
            let got = self.take_many(&mut metadata, wanted, most, |at, index| chunk[at] = self.frame(index));
            done += got;
            if got < chunk.len() {
                metadata.events.failed += 1;
                break;
            }
        }
        done
    }

    /// Frees blocks. Skips those that it refuses and returns the first error; all others are freed.
    pub fn free_bulk(&self, frames: &[FrameNo], order: Order) -> Result<(), FreeError> {
        let mut first = Ok(());
        for chunk in frames.chunks(CHUNK) {
            let mut metadata = self.metadata.lock();
            for &frame in chunk {
                match self.index(frame) {
                    Some(index) if self.take_back(index, order) => metadata.release(index, order),
                    _ => {
                        metadata.events.refused += 1;
                        first = first.and(Err(self.wrong_free(frame, order)));
                    }
                }
            }
        }
        first
    }

    /// Takes blocks for a per-CPU list and marks them as cached. Returns fewer if colours of the smallest load run out,
    /// because a list must not cache worse blocks while the zone has better ones. Returns at least one block, or an error.
    pub(crate) fn refill(
        &self,
        order: Order,
        migrate: MigrateType,
        into: &mut [u32],
        no_wait: bool,
    ) -> Result<usize, AllocError> {
        let mut metadata = self.enter(order, no_wait)?;
        self.check_watermark(&mut metadata, order, Urgency::Normal)?;
        let most = self.above_min(&metadata, order).min(into.len());
        let wanted = Wanted { order, migrate, into_list: true };
        let got = self.take_many(&mut metadata, wanted, most, |at, index| into[at] = index);
        if got == 0 {
            metadata.events.failed += 1;
            return Err(AllocError::Exhausted { order, free_blocks: metadata.free_blocks() });
        }
        Ok(got)
    }

    /// How many blocks of `order` can be taken before the watermark `min` is reached.
    fn above_min(&self, metadata: &ZoneMetadata<'_>, order: Order) -> usize {
        usize::try_from(metadata.free().saturating_sub(self.watermarks().min) >> order.get()).unwrap_or(usize::MAX)
    }

    /// Takes cached blocks back from a per-CPU list. Skips and counts blocks whose state is not cached.
    pub(crate) fn give_back(&self, blocks: &[u32], order: Order) {
        for chunk in blocks.chunks(CHUNK) {
            self.release_waiting(&mut self.metadata.lock(), chunk, order);
        }
    }

    /// As `give_back`, for one chunk. If the lock is taken, returns false and changes nothing.
    pub(crate) fn try_give_back(&self, chunk: &[u32], order: Order) -> bool {
        let Some(mut metadata) = self.metadata.try_lock() else { return false };
        self.release_waiting(&mut metadata, chunk, order);
        true
    }

    fn release_waiting(&self, metadata: &mut ZoneMetadata<'_>, chunk: &[u32], order: Order) {
        for &index in chunk {
            if self.state_byte(index) == state::cached(order) {
                metadata.release(index, order);
            } else {
                metadata.events.wrong_state += 1;
            }
        }
    }

    /// Takes up to `most` blocks, marks each as `wanted` says, and calls `each` with its number and index.
    fn take_many(
        &self,
        metadata: &mut ZoneMetadata<'_>,
        wanted: Wanted,
        most: usize,
        mut each: impl FnMut(usize, u32),
    ) -> usize {
        let Wanted { order, migrate, into_list } = wanted;
        let byte = wanted.byte();
        let level = metadata.placement.colours.as_mut().and_then(|c| c.lowest());
        let mut got = 0;
        while got < most {
            let left = u32::try_from(most - got).unwrap_or(u32::MAX);
            let Some(run) = metadata.take_run(order, migrate, left) else { break };
            for block in 0..run.blocks {
                let index = run.first + (block << order.get());
                self.set_state_byte(index, byte);
                each(got, index);
                got += 1;
            }
            if level.is_some() && into_list && metadata.placement.colours.as_mut().and_then(|c| c.lowest()) != level {
                break;
            }
        }
        got
    }

    #[cold]
    pub(crate) fn wrong_free(&self, frame: FrameNo, order: Order) -> FreeError {
        match self.index(frame) {
            Some(_) => FreeError::found(frame, order, self.state(frame)),
            None => FreeError { frame, order, why: state::WrongFree::Foreign },
        }
    }
}
