//! The zone: allocates and frees single blocks, and reports the state of frames.

use super::config::{ConfigError, ZoneConfig};
use super::lists::{Kind, Lists};
use super::metadata::{Events, Placement, ZoneMetadata};
use super::request::{AllocError, Request};
use super::shuffling::Shuffling;
use super::watermark::{Urgency, Watermarks};
use crate::colour::Colours;
use crate::lock::{Held, Lock};
use crate::memory::{Link, Metadata, get8, set8};
use crate::state::{self, FreeError, PageBlock, WrongFree};
use crate::{FrameNo, FrameRange, FrameState, MigrateType, ORDERS, Order, PAGE_BLOCK_ORDER};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Frames of a zone by state, and counters of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneStats {
    /// Frames that are present.
    pub present: u64,
    /// Frames that are free and can be allocated. Frames on per-CPU lists are not free.
    pub free: u64,
    /// Free frames that are being removed.
    pub isolated: u64,
    /// Free blocks by order.
    pub free_blocks: [u32; ORDERS],
    /// Free blocks by order and migrate type.
    pub free_by_type: [[u32; MigrateType::COUNT]; ORDERS],
    /// Counters of events.
    pub events: Events,
    /// How many times the lock was found taken.
    pub contended: u64,
    /// Whether free blocks are shuffled, and why.
    pub shuffle: Shuffling,
}

/// An allocator for the frames of one or more ranges. See the [module](super).
pub struct Zone<'m> {
    pub(super) base: FrameNo,
    pub(super) states: &'m [AtomicU8],
    pub(super) page_blocks: &'m [AtomicU8],
    /// Free frames that can be allocated. Written under the lock, read without.
    free: &'m AtomicU64,
    /// Room for a number for each page block, for the holder of `changing`.
    pub(super) scratch: &'m [AtomicU32],
    /// Held while ranges are added or removed and while lists are shuffled; only one of these runs at a time. The locks
    /// are taken in the order `changing`, `shuffle`, `metadata`.
    pub(super) changing: Lock<()>,
    pub(super) watermarks: Watermarks,
    pub(crate) metadata: Lock<ZoneMetadata<'m>>,
    pub(super) shuffle: Lock<Shuffling>,
}

/// Prints only the span; the metadata has millions of bytes.
impl core::fmt::Debug for Zone<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Zone").field("span", &self.span()).finish_non_exhaustive()
    }
}

impl<'m> Zone<'m> {
    /// A zone without frames. Add some with [`Zone::add`].
    pub fn new(config: &ZoneConfig, mut metadata: Metadata<'m>) -> Result<Zone<'m>, ConfigError> {
        let (base, frames) = config.checked_span()?;
        let too_small = ConfigError::MetadataTooSmall { given: metadata.len(), needed: config.metadata_bytes()? };
        let page_blocks = frames >> PAGE_BLOCK_ORDER;
        let free = &metadata.take::<AtomicU64>(1).ok_or(too_small)?[0];
        free.store(0, Ordering::Relaxed);
        let links = metadata.take::<Link>(frames).ok_or(too_small)?;
        let large_links = metadata.take::<Link>(page_blocks).ok_or(too_small)?;
        let states = metadata.take(frames).ok_or(too_small)?;
        let page_block_bytes = metadata.take(page_blocks).ok_or(too_small)?;
        let scratch = metadata.take(page_blocks).ok_or(too_small)?;
        let colours = match &config.colouring {
            Some(colouring) => Some(Colours::new(colouring, base, frames, &mut metadata).ok_or(too_small)?),
            None => None,
        };
        let mut placement = Placement::new(config.seed, colours);
        placement.shuffle = config.shuffle.order();
        Ok(Zone {
            base,
            states,
            page_blocks: page_block_bytes,
            free,
            scratch,
            changing: Lock::new(()),
            watermarks: config.watermarks,
            metadata: Lock::new(ZoneMetadata {
                states,
                page_blocks: page_block_bytes,
                lists: Lists::new(links, large_links),
                placement,
                free,
                isolated: 0,
                present: 0,
                events: Events::default(),
            }),
            shuffle: Lock::new(config.shuffle),
        })
    }

    /// The frames that can ever belong to it.
    pub fn span(&self) -> FrameRange {
        FrameRange::new(self.base, self.base.plus(self.states.len() as u64))
    }

    /// Its watermarks.
    pub const fn watermarks(&self) -> Watermarks {
        self.watermarks
    }

    /// Whether a frame lies in its span.
    #[inline]
    pub fn contains(&self, frame: FrameNo) -> bool {
        self.index(frame).is_some()
    }

    /// The index of a frame in the metadata.
    #[inline]
    pub(crate) fn index(&self, frame: FrameNo) -> Option<u32> {
        let index = frame.0.wrapping_sub(self.base.0);
        // `MAX_FRAMES` fits.
        if index < self.states.len() as u64 { u32::try_from(index).ok() } else { None }
    }

    #[inline]
    pub(crate) fn frame(&self, index: u32) -> FrameNo {
        self.base.plus(u64::from(index))
    }

    /// The byte of a frame's state, for callers that read and write it.
    #[inline]
    pub(crate) fn byte(&self, index: u32) -> &AtomicU8 {
        &self.states[index as usize]
    }

    #[inline]
    pub(crate) fn state_byte(&self, index: u32) -> u8 {
        get8(self.states, index)
    }

    #[inline]
    pub(crate) fn set_state_byte(&self, index: u32, byte: u8) {
        set8(self.states, index, byte);
    }

    /// Changes the byte if it is still `from`.
    #[inline]
    pub(crate) fn swap_state_byte(&self, index: u32, from: u8, to: u8) -> bool {
        self.states[index as usize].compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Counts a block on a per-CPU list whose state was not cached.
    #[cold]
    pub(crate) fn wrong_state(&self) {
        self.metadata.lock().events.wrong_state += 1;
    }

    #[inline]
    pub(crate) fn page_block(&self, index: u32) -> PageBlock {
        PageBlock(get8(self.page_blocks, index >> PAGE_BLOCK_ORDER))
    }

    /// Whether a page block, given by its number, is present.
    pub(super) fn is_present(&self, page_block: u32) -> bool {
        PageBlock(get8(self.page_blocks, page_block)).is_present()
    }

    /// The state of a frame at this moment.
    pub fn state(&self, frame: FrameNo) -> FrameState {
        let Some(index) = self.index(frame) else { return FrameState::Hole };
        match state::decode(self.state_byte(index)) {
            FrameState::Inside if !self.page_block(index).is_present() => FrameState::Hole,
            state => state,
        }
    }

    /// Allocates a block of `order`, aligned to its size; returns its first frame.
    #[inline]
    pub fn alloc(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        self.request(Request::new(order, migrate))
    }

    /// Allocates a block.
    pub fn request(&self, request: Request) -> Result<FrameNo, AllocError> {
        let Request { order, migrate, .. } = request;
        let mut metadata = self.enter(order, request.no_wait)?;
        self.check_watermark(&mut metadata, order, request.urgency)?;
        let Some(run) = metadata.take_run(order, migrate, 1) else {
            metadata.events.failed += 1;
            return Err(AllocError::Exhausted { order, free_blocks: metadata.free_blocks() });
        };
        self.set_state_byte(run.first, state::allocated(order, migrate));
        Ok(self.frame(run.first))
    }

    /// Allocates the block of `order` that starts at `frame`, if it is free. Ignores the watermarks: a caller that
    /// names a frame, to reserve it or to take over what is already in use, cannot use another one.
    pub fn alloc_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<(), AllocError> {
        let taken = || AllocError::Taken { frame, order, state: self.state(frame) };
        let index = self.index(frame).filter(|_| frame.is_aligned(order.get())).ok_or_else(taken)?;
        let mut metadata = self.metadata.lock();
        let run = metadata.take_at(index, order).ok_or_else(taken)?;
        self.set_state_byte(run.first, state::allocated(order, migrate));
        Ok(())
    }

    pub(super) fn enter(&self, order: Order, no_wait: bool) -> Result<Held<'_, ZoneMetadata<'m>>, AllocError> {
        if no_wait { self.metadata.try_lock().ok_or(AllocError::Locked(order)) } else { Ok(self.metadata.lock()) }
    }

    pub(super) fn check_watermark(
        &self,
        metadata: &mut ZoneMetadata<'m>,
        order: Order,
        urgency: Urgency,
    ) -> Result<(), AllocError> {
        let kept = self.watermarks.kept_from(urgency);
        if kept > 0 && metadata.free() < kept.saturating_add(u64::from(order.frames())) {
            metadata.events.failed += 1;
            return Err(AllocError::Kept { order, free: metadata.free(), kept });
        }
        Ok(())
    }

    /// Frees a block. On an error nothing has changed.
    pub fn free(&self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        let Some(index) = self.index(frame) else { return Err(self.foreign(frame, order)) };
        let mut metadata = self.metadata.lock();
        if !self.take_back(index, order) {
            metadata.events.refused += 1;
            return Err(FreeError::found(frame, order, self.state(frame)));
        }
        metadata.release(index, order);
        Ok(())
    }

    /// Marks an allocated block as no longer allocated. False if it was not allocated, or if a concurrent free to a
    /// per-CPU list, which takes no lock, was faster.
    #[inline]
    pub(crate) fn take_back(&self, index: u32, order: Order) -> bool {
        let byte = self.state_byte(index);
        state::is_allocated(byte, order) && self.swap_state_byte(index, byte, state::cached(order))
    }

    #[cold]
    pub(crate) fn foreign(&self, frame: FrameNo, order: Order) -> FreeError {
        self.metadata.lock().events.refused += 1;
        FreeError { frame, order, why: WrongFree::Foreign }
    }

    #[cold]
    pub(crate) fn refuse(&self, frame: FrameNo, order: Order) -> FreeError {
        self.metadata.lock().events.refused += 1;
        FreeError::found(frame, order, self.state(frame))
    }

    /// Free frames that can be allocated at this moment. Takes no lock.
    #[inline]
    pub fn free_frames(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Whether free frames are below the low watermark: time to give some back.
    pub fn is_low(&self) -> bool {
        self.free_frames() < self.watermarks.low
    }

    /// The zone's frames by state.
    pub fn stats(&self) -> ZoneStats {
        let contended = self.metadata.raw().contended();
        let shuffle = *self.shuffle.lock();
        let metadata = self.metadata.lock();
        let mut free_by_type = [[0; MigrateType::COUNT]; ORDERS];
        for (order, by_type) in Order::all().zip(&mut free_by_type) {
            for (migrate, blocks) in MigrateType::ALL.into_iter().zip(by_type) {
                *blocks = metadata.lists.blocks(order, Kind::Of(migrate));
            }
        }
        ZoneStats {
            present: metadata.present,
            free: metadata.free(),
            isolated: metadata.isolated,
            free_blocks: metadata.free_blocks(),
            free_by_type,
            events: metadata.events,
            contended,
            shuffle,
        }
    }

    /// With colouring: sets `into[n]` to the number of colours that have n granules in use. Without colouring: returns false.
    pub fn loads(&self, into: &mut [u64]) -> bool {
        into.fill(0);
        let mut metadata = self.metadata.lock();
        let Some(colours) = &mut metadata.placement.colours else { return false };
        colours.settle();
        colours.histogram(into);
        true
    }

    /// Runs `act` while no other thread can be in the zone. Use it around a `fork`, so that the child finds no lock
    /// that its only thread does not hold. `act` must not call this zone: it would deadlock.
    pub fn while_quiet<T>(&self, act: impl FnOnce() -> T) -> T {
        let _changing = self.changing.lock();
        let _shuffle = self.shuffle.lock();
        let _books = self.metadata.lock();
        act()
    }
}
