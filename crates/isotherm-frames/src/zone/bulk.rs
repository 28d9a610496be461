//! Many blocks at once: what callers ask for in bulk, and what per-CPU sets take and give back.
//!
//! A run of blocks is cut from one larger block with one list operation, where the kernel splits it down to single frames one by
//! one. The lock is held for one [`CHUNK`] at a time.

use super::alloc::Zone;
use super::books::Books;
use super::request::AllocError;
use super::watermark::Urgency;
use crate::state::{self, FreeError};
use crate::{FrameNo, MigrateType, Order};

/// Blocks that are taken or given under one hold of the lock.
pub(crate) const CHUNK: usize = 64;

/// What many blocks are taken as.
#[derive(Clone, Copy)]
struct Wanted {
    order: Order,
    migrate: MigrateType,
    /// To wait in a per-CPU set, not to be handed out.
    into_set: bool,
}

impl Wanted {
    /// The state of each of them.
    fn byte(self) -> u8 {
        if self.into_set { state::cached(self.order) } else { state::allocated(self.order, self.migrate) }
    }
}

impl Zone<'_> {
    /// Hands out blocks of `order` until `frames` is full or none is left; how many. Their places are the first that do, so many of
    /// them follow each other. Of normal urgency: the watermark `min` stays free.
    ///
    /// A few ns a frame: the lock is taken once for 64.
    pub fn alloc_bulk(&self, order: Order, migrate: MigrateType, frames: &mut [FrameNo]) -> usize {
        let mut done = 0;
        for chunk in frames.chunks_mut(CHUNK) {
            let mut books = self.books.lock();
            let most = self.above_min(&books, order).min(chunk.len());
            let wanted = Wanted { order, migrate, into_set: false };
            let got = self.take_many(&mut books, wanted, most, |at, index| chunk[at] = self.frame(index));
            done += got;
            if got < chunk.len() {
                books.events.failed += 1;
                break;
            }
        }
        done
    }

    /// Takes blocks back. Those that cannot be are left out, and the first such is the error; all others are free.
    pub fn free_bulk(&self, frames: &[FrameNo], order: Order) -> Result<(), FreeError> {
        let mut first = Ok(());
        for chunk in frames.chunks(CHUNK) {
            let mut books = self.books.lock();
            for &frame in chunk {
                match self.index(frame) {
                    Some(index) if self.take_back(index, order) => books.release(index, order),
                    _ => {
                        books.events.refused += 1;
                        first = first.and(Err(self.wrong_free(frame, order)));
                    }
                }
            }
        }
        first
    }

    /// For a per-CPU set: blocks that are marked as waiting in it. Fewer where colours of the best load run out: a set must not
    /// hold worse ones while there are better. At least one, or an error.
    pub(crate) fn refill(
        &self,
        order: Order,
        migrate: MigrateType,
        into: &mut [u32],
        no_wait: bool,
    ) -> Result<usize, AllocError> {
        let mut books = self.enter(order, no_wait)?;
        self.check_watermark(&mut books, order, Urgency::Normal)?;
        let most = self.above_min(&books, order).min(into.len());
        let wanted = Wanted { order, migrate, into_set: true };
        let got = self.take_many(&mut books, wanted, most, |at, index| into[at] = index);
        if got == 0 {
            books.events.failed += 1;
            return Err(AllocError::Exhausted { order, free_blocks: books.free_blocks() });
        }
        Ok(got)
    }

    /// How many blocks of `order` can be taken before the watermark `min` is reached.
    fn above_min(&self, books: &Books<'_>, order: Order) -> usize {
        usize::try_from(books.free().saturating_sub(self.watermarks().min) >> order.get()).unwrap_or(usize::MAX)
    }

    /// From a per-CPU set: blocks that waited in it. One that is marked as anything else is passed over and counted.
    pub(crate) fn give_back(&self, blocks: &[u32], order: Order) {
        for chunk in blocks.chunks(CHUNK) {
            self.release_waiting(&mut self.books.lock(), chunk, order);
        }
    }

    /// The same for one chunk, unless someone has the lock: then false, and nothing has changed.
    pub(crate) fn try_give_back(&self, chunk: &[u32], order: Order) -> bool {
        let Some(mut books) = self.books.try_lock() else { return false };
        self.release_waiting(&mut books, chunk, order);
        true
    }

    fn release_waiting(&self, books: &mut Books<'_>, chunk: &[u32], order: Order) {
        for &index in chunk {
            if self.state_byte(index) == state::cached(order) {
                books.release(index, order);
            } else {
                books.events.mistaken += 1;
            }
        }
    }

    /// Takes up to `most` blocks, marks each as what is wanted, and tells `each` its number and index.
    fn take_many(&self, books: &mut Books<'_>, wanted: Wanted, most: usize, mut each: impl FnMut(usize, u32)) -> usize {
        let Wanted { order, migrate, into_set } = wanted;
        let byte = wanted.byte();
        let level = books.placement.colours.as_mut().and_then(|c| c.lowest());
        let mut got = 0;
        while got < most {
            let left = u32::try_from(most - got).unwrap_or(u32::MAX);
            let Some(run) = books.take_run(order, migrate, left) else { break };
            for block in 0..run.blocks {
                let index = run.first + (block << order.get());
                self.set_state_byte(index, byte);
                each(got, index);
                got += 1;
            }
            if level.is_some() && into_set && books.placement.colours.as_mut().and_then(|c| c.lowest()) != level {
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
