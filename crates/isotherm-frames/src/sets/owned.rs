//! A set that one thread has for itself: no lock, no locked instruction, nothing unsafe.
//!
//! For programs with a thread for each core, and for everything that is single-threaded anyway. What waits in it is nobody else's
//! until the set is drained or dropped; the handle can be sent to another thread, and does not care on which CPU it runs.

use super::error::SetsError;
use super::exchange::{Mark, Want};
use super::front::Front;
use super::lists::{capacities, list_of, order_of};
use super::stock::{self, Starts, Stock};
use super::turn::{Course, Memory, Pace, Tidied};
use crate::memory::{Metadata, bytes_for};
use crate::percpu::LISTS;
use crate::state;
use crate::tune::{Decay, Marks, Tuner};
use crate::zone::CHUNK;
use crate::{AllocError, FrameNo, FreeError, MigrateType, Order, Zone};
use core::sync::atomic::AtomicU32;

/// Blocks of a zone for one thread. Dropping it gives them back.
///
/// One that is forgotten (`mem::forget`, a thread that never ends) keeps them: as many frames as its marks allow. They are not lost to
/// [`Zone::offline`](crate::Zone::offline), which tells them as waiting in sets, but nobody can drain it for its owner.
pub struct OwnedSet<'z, 'm> {
    zone: &'z Zone<'m>,
    words: &'z [AtomicU32],
    starts: Starts,
    pub(super) tuner: Tuner,
    memory: Memory,
    frames: u32,
}

impl<'z, 'm> OwnedSet<'z, 'm> {
    /// Bytes of metadata that a set with these marks needs.
    pub fn metadata_bytes(marks: Marks) -> usize {
        bytes_for::<AtomicU32>(stock::words(&capacities(marks)))
    }

    /// An empty set. With several, each has its share: `marks` of a zone with as many CPUs as there are sets.
    pub fn new(zone: &'z Zone<'m>, marks: Marks, mut metadata: Metadata<'z>) -> Result<OwnedSet<'z, 'm>, SetsError> {
        let capacities = capacities(marks);
        let needed = OwnedSet::metadata_bytes(marks);
        let given = metadata.len();
        let words = metadata.take(stock::words(&capacities)).ok_or(SetsError::MetadataTooSmall { given, needed })?;
        let starts = stock::starts(&capacities);
        Stock::new(words, &starts).clear();
        Ok(OwnedSet { zone, words, starts, tuner: Tuner::new(marks), memory: Memory::default(), frames: 0 })
    }

    /// The zone behind.
    pub const fn zone(&self) -> &'z Zone<'m> {
        self.zone
    }

    #[inline]
    pub(super) fn stock(&self) -> Stock<'z, '_> {
        Stock::new(self.words, &self.starts)
    }

    /// Frames that wait in it.
    pub const fn waiting(&self) -> u64 {
        self.frames as u64
    }

    /// Hands out a block of `order`: its first frame.
    #[inline]
    pub fn alloc(&mut self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        let Some(list) = list_of(order, migrate) else {
            return self.zone.alloc(order, migrate).or_else(|error| self.last_resort(order, migrate, error));
        };
        loop {
            let Some(index) = self.stock().pop(list) else { return self.refill(list, order, migrate) };
            self.frames -= order.frames();
            self.tuner.on_alloc();
            if self.zone.state_byte(index) == state::cached(order) {
                self.zone.set_state_byte(index, state::allocated(order, migrate));
                return Ok(self.zone.frame(index));
            }
            self.zone.mistaken();
        }
    }

    /// Takes a block back. On an error nothing has changed.
    #[inline]
    pub fn free(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.free_marked(frame, order, Mark::Swapped)
    }

    /// The same without a locked instruction, for callers who alone can free this block: as [`Sets::free_unique`](super::Sets::free_unique).
    #[inline]
    pub fn free_unique(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.free_marked(frame, order, Mark::Stored)
    }

    #[inline]
    fn free_marked(&mut self, frame: FrameNo, order: Order, mark: Mark) -> Result<(), FreeError> {
        let Some(index) = self.zone.index(frame) else { return Err(self.zone.foreign(frame, order)) };
        let page_block = self.zone.page_block(index);
        let Some(list) = list_of(order, page_block.migrate()).filter(|_| !page_block.is_isolated()) else {
            return self.zone.free(frame, order);
        };
        if !self.zone.mark_cached(index, order, mark) {
            return Err(self.zone.refuse(frame, order));
        }
        self.tuner.on_free(order);
        self.frames += order.frames();
        if !self.stock().push(list, index) {
            self.give_older(list, self.tuner.marks().batch >> order.get());
            self.stock().push(list, index);
        }
        // Blocks of more than one frame may go back sooner: streams of them are recognised by the tuner.
        if self.frames >= self.tuner.high() || order != Order::FRAME {
            self.drain_some(list);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self, list: usize, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        self.memory.visited();
        let blocks = self.tuner.refill(order, self.frames, self.zone.pressure());
        let (zone, stock, mut kept) = (self.zone, self.stock(), 0);
        let want = Want { order, migrate, blocks, waits_for_more: true };
        let outcome = zone.refill_some(&want, |blocks| {
            let pushed = stock.push_many(list, blocks);
            kept += u32::try_from(pushed).unwrap_or(0);
            pushed
        });
        self.frames += kept << order.get();
        outcome.or_else(|error| self.last_resort(order, migrate, error))
    }

    /// The zone has none: what waits here of other orders and types may do.
    fn last_resort(&mut self, order: Order, migrate: MigrateType, error: AllocError) -> Result<FrameNo, AllocError> {
        if Front::drain(self) == 0 { Err(error) } else { self.zone.alloc(order, migrate) }
    }

    /// Gives back what the tuner says, of the list that grew, and not its newest.
    #[inline(never)]
    fn drain_some(&mut self, list: usize) {
        let order = order_of(list);
        let drain = self.tuner.drain(self.frames, self.zone.pressure());
        if drain == 0 {
            return;
        }
        self.give_older(list, drain >> order.get());
    }

    /// Gives `blocks` of a list to the zone, at least one: see [`Zone::give_older`].
    #[cold]
    fn give_older(&mut self, list: usize, blocks: u32) {
        self.memory.visited();
        let (order, stock) = (order_of(list), self.stock());
        let pop = |into: &mut [u32]| stock.pop_many(list, into);
        let given = self.zone.give_older(order, blocks.max(1) as usize, pop, |blocks| stock.push_many(list, blocks));
        self.frames -= u32::try_from(given).unwrap_or(0) << order.get();
    }

    /// Gives all of a list to the zone.
    fn empty(&mut self, list: usize) {
        let order = order_of(list);
        let mut buffer = [0; CHUNK];
        while let got @ 1.. = self.stock().pop_many(list, &mut buffer) {
            self.zone.give_back(&buffer[..got], order);
            self.frames -= u32::try_from(got).unwrap_or(0) << order.get();
        }
    }
}

/// Housekeeping, which only the owner can do.
impl OwnedSet<'_, '_> {
    /// One turn of housekeeping, by the owner: as [`Sets::tidy`](super::Sets::tidy). There is no other way to have an owned set tidied.
    pub fn tidy(&mut self, pace: &Pace) -> Tidied {
        let counts = self.counts();
        let decay = self.memory.begin(&mut self.tuner, &counts, pace);
        self.turn(pace, decay)
    }

    /// Goes on with a turn that was put off: as [`Sets::tidy_rest`](super::Sets::tidy_rest).
    pub fn tidy_rest(&mut self, pace: &Pace) -> Tidied {
        let counts = self.counts();
        match self.memory.rest(&self.tuner, &counts) {
            Some(drain) => self.turn(pace, Decay { drain, again: true }),
            None => Tidied::NO_REST,
        }
    }

    fn counts(&self) -> [u32; LISTS] {
        core::array::from_fn(|list| self.stock().count(list))
    }

    fn turn(&mut self, pace: &Pace, decay: Decay) -> Tidied {
        let batch = self.tuner.marks().batch;
        let mut course = Course::new(self.zone(), batch, &self.memory, pace, decay);
        while course.left > 0 && course.go(&mut self.stock()) {}
        let tidied = course.tidied;
        self.frames -= u32::try_from(tidied.drained).unwrap_or(self.frames);
        let (counts, began) = (self.counts(), self.memory);
        self.memory.end(&began, &counts, &tidied, course.next());
        Tidied { again: tidied.again || tidied.is_deferred(), ..tidied }
    }
}

impl core::fmt::Debug for OwnedSet<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OwnedSet").field("zone", self.zone).field("waiting", &self.frames).finish_non_exhaustive()
    }
}

impl Front for OwnedSet<'_, '_> {
    #[inline]
    fn alloc(&mut self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        OwnedSet::alloc(self, order, migrate)
    }

    #[inline]
    fn free(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        OwnedSet::free(self, frame, order)
    }

    #[inline]
    fn free_unique(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        OwnedSet::free_unique(self, frame, order)
    }

    fn drain(&mut self) -> u64 {
        let before = self.waiting();
        for list in 0..LISTS {
            self.empty(list);
        }
        before
    }
}

impl Drop for OwnedSet<'_, '_> {
    fn drop(&mut self) {
        Front::drain(self);
    }
}
