//! Lists that one thread owns: no lock, no locked instruction, no unsafe code.
//!
//! For programs with a thread for each core, and for single-threaded programs. No other thread can use the blocks that
//! are cached here until the set is drained or dropped. The handle can be sent to another thread, and works on any CPU.

use super::decay_run::{DecayRun, Decayed, Pace, RunHistory};
use super::error::PcpError;
use super::exchange::{CacheMark, Want};
use super::front::Front;
use super::list_words::{self, ListWords, Starts};
use super::lists::{capacities, list_of, order_of};
use crate::memory::{Metadata, bytes_for};
use crate::percpu::LISTS;
use crate::state;
use crate::tune::{Decay, PcpLimits, Tuner};
use crate::zone::CHUNK;
use crate::{AllocError, FrameNo, FreeError, MigrateType, Order, Zone};
use core::sync::atomic::AtomicU32;

/// Cached blocks of a zone for one thread. Dropping it returns them to the zone.
///
/// A handle that is never dropped (`mem::forget`, a thread that never ends) keeps its blocks: as many frames as its
/// limits allow. [`Zone::offline`](crate::Zone::offline) still reports them as cached, but only the owner can drain them.
pub struct OwnedPcpLists<'z, 'm> {
    zone: &'z Zone<'m>,
    words: &'z [AtomicU32],
    starts: Starts,
    pub(super) tuner: Tuner,
    memory: RunHistory,
    frames: u32,
}

impl<'z, 'm> OwnedPcpLists<'z, 'm> {
    /// Bytes of metadata that a set with these limits needs.
    pub fn metadata_bytes(limits: PcpLimits) -> usize {
        bytes_for::<AtomicU32>(list_words::words(&capacities(limits)))
    }

    /// Empty lists. With several owners, give each its share: the `limits` of a zone with as many CPUs as owners.
    pub fn new(
        zone: &'z Zone<'m>,
        limits: PcpLimits,
        mut metadata: Metadata<'z>,
    ) -> Result<OwnedPcpLists<'z, 'm>, PcpError> {
        let capacities = capacities(limits);
        let needed = OwnedPcpLists::metadata_bytes(limits);
        let given = metadata.len();
        let words =
            metadata.take(list_words::words(&capacities)).ok_or(PcpError::MetadataTooSmall { given, needed })?;
        let starts = list_words::starts(&capacities);
        ListWords::new(words, &starts).clear();
        Ok(OwnedPcpLists { zone, words, starts, tuner: Tuner::new(limits), memory: RunHistory::default(), frames: 0 })
    }

    /// The zone behind it.
    pub const fn zone(&self) -> &'z Zone<'m> {
        self.zone
    }

    #[inline]
    pub(super) fn list_words(&self) -> ListWords<'z, '_> {
        ListWords::new(self.words, &self.starts)
    }

    /// Frames that are cached in it.
    pub const fn cached(&self) -> u64 {
        self.frames as u64
    }

    /// Allocates a block of `order`; returns its first frame.
    #[inline]
    pub fn alloc(&mut self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        let Some(list) = list_of(order, migrate) else {
            return self.zone.alloc(order, migrate).or_else(|error| self.last_resort(order, migrate, error));
        };
        loop {
            let Some(index) = self.list_words().pop(list) else { return self.refill(list, order, migrate) };
            self.frames -= order.frames();
            self.tuner.on_alloc();
            if self.zone.state_byte(index) == state::cached(order) {
                self.zone.set_state_byte(index, state::allocated(order, migrate));
                return Ok(self.zone.frame(index));
            }
            self.zone.wrong_state();
        }
    }

    /// Frees a block. On an error nothing has changed.
    #[inline]
    pub fn free(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.free_marked(frame, order, CacheMark::Swapped)
    }

    /// As `free`, without a locked instruction, for callers who alone can free this block: see
    /// [`PcpLists::free_unique`](super::PcpLists::free_unique).
    #[inline]
    pub fn free_unique(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.free_marked(frame, order, CacheMark::Stored)
    }

    #[inline]
    fn free_marked(&mut self, frame: FrameNo, order: Order, mark: CacheMark) -> Result<(), FreeError> {
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
        if !self.list_words().push(list, index) {
            self.give_older(list, self.tuner.limits().batch >> order.get());
            self.list_words().push(list, index);
        }
        // Blocks of more than one frame may go back sooner: the tuner detects streams of them.
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
        let (zone, list_words, mut kept) = (self.zone, self.list_words(), 0);
        let want = Want { order, migrate, blocks, waits_for_more: true };
        let outcome = zone.refill_some(&want, |blocks| {
            let pushed = list_words.push_many(list, blocks);
            kept += u32::try_from(pushed).unwrap_or(0);
            pushed
        });
        self.frames += kept << order.get();
        outcome.or_else(|error| self.last_resort(order, migrate, error))
    }

    /// The zone has none: blocks of other orders and types that are cached here may help.
    fn last_resort(&mut self, order: Order, migrate: MigrateType, error: AllocError) -> Result<FrameNo, AllocError> {
        if Front::drain(self) == 0 { Err(error) } else { self.zone.alloc(order, migrate) }
    }

    /// Returns as much as the tuner says, from the list that grew, but not its newest blocks.
    #[inline(never)]
    fn drain_some(&mut self, list: usize) {
        let order = order_of(list);
        let drain = self.tuner.drain(self.frames, self.zone.pressure());
        if drain == 0 {
            return;
        }
        self.give_older(list, drain >> order.get());
    }

    /// Returns `blocks` blocks of a list to the zone, at least one: see [`Zone::give_older`].
    #[cold]
    fn give_older(&mut self, list: usize, blocks: u32) {
        self.memory.visited();
        let (order, list_words) = (order_of(list), self.list_words());
        let pop = |into: &mut [u32]| list_words.pop_many(list, into);
        let given =
            self.zone.give_older(order, blocks.max(1) as usize, pop, |blocks| list_words.push_many(list, blocks));
        self.frames -= u32::try_from(given).unwrap_or(0) << order.get();
    }

    /// Returns all blocks of a list to the zone.
    fn empty(&mut self, list: usize) {
        let order = order_of(list);
        let mut buffer = [0; CHUNK];
        while let got @ 1.. = self.list_words().pop_many(list, &mut buffer) {
            self.zone.give_back(&buffer[..got], order);
            self.frames -= u32::try_from(got).unwrap_or(0) << order.get();
        }
    }
}

/// The periodic drain, which only the owner can run.
impl OwnedPcpLists<'_, '_> {
    /// One run of the periodic drain, as [`PcpLists::decay`](super::PcpLists::decay). Only the owner can call it, and nothing
    /// else drains an owned set periodically.
    pub fn decay(&mut self, pace: &Pace) -> Decayed {
        let counts = self.counts();
        let decay = self.memory.begin(&mut self.tuner, &counts, pace);
        self.decay_run(pace, decay)
    }

    /// Continues a deferred run, as [`PcpLists::decay_rest`](super::PcpLists::decay_rest).
    pub fn decay_rest(&mut self, pace: &Pace) -> Decayed {
        let counts = self.counts();
        match self.memory.rest(&self.tuner, &counts) {
            Some(drain) => self.decay_run(pace, Decay { drain, again: true }),
            None => Decayed::NO_REST,
        }
    }

    fn counts(&self) -> [u32; LISTS] {
        core::array::from_fn(|list| self.list_words().count(list))
    }

    fn decay_run(&mut self, pace: &Pace, decay: Decay) -> Decayed {
        let batch = self.tuner.limits().batch;
        let mut run = DecayRun::new(self.zone(), batch, &self.memory, pace, decay);
        while run.left > 0 && run.go(&mut self.list_words()) {}
        let decayed = run.decayed;
        self.frames -= u32::try_from(decayed.drained).unwrap_or(self.frames);
        let (counts, began) = (self.counts(), self.memory);
        self.memory.end(&began, &counts, &decayed, run.next());
        Decayed { again: decayed.again || decayed.is_deferred(), ..decayed }
    }
}

impl core::fmt::Debug for OwnedPcpLists<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OwnedPcpLists").field("zone", self.zone).field("waiting", &self.frames).finish_non_exhaustive()
    }
}

impl Front for OwnedPcpLists<'_, '_> {
    #[inline]
    fn alloc(&mut self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        OwnedPcpLists::alloc(self, order, migrate)
    }

    #[inline]
    fn free(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        OwnedPcpLists::free(self, frame, order)
    }

    #[inline]
    fn free_unique(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        OwnedPcpLists::free_unique(self, frame, order)
    }

    fn drain(&mut self) -> u64 {
        let before = self.cached();
        for list in 0..LISTS {
            self.empty(list);
        }
        before
    }
}

impl Drop for OwnedPcpLists<'_, '_> {
    fn drop(&mut self) {
        Front::drain(self);
    }
}
