//! The zone: one block handed out or taken back, and what is known of its frames.

use super::books::{Books, Events, Placement};
use super::config::{ConfigError, ZoneConfig};
use super::lists::{Kind, Lists};
use super::request::{AllocError, Request};
use super::shuffling::Shuffling;
use super::watermark::{Urgency, Watermarks};
use crate::colour::Colours;
use crate::lock::{Held, Lock};
use crate::memory::{Link, Metadata, get8, set8};
use crate::state::{self, FreeError, PageBlock, WrongFree};
use crate::{FrameNo, FrameRange, FrameState, MigrateType, ORDERS, Order, PAGE_BLOCK_ORDER};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// A zone's frames by what they are, and what has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneStats {
    /// Frames that are there.
    pub present: u64,
    /// Those that are free and can be handed out. Frames in per-CPU sets are not free.
    pub free: u64,
    /// Those that are free and on their way out.
    pub isolated: u64,
    /// Free blocks by order.
    pub free_blocks: [u32; ORDERS],
    /// Free blocks by order and migrate type.
    pub free_by_type: [[u32; MigrateType::COUNT]; ORDERS],
    /// What has happened.
    pub events: Events,
    /// How often the lock was found taken.
    pub contended: u64,
    /// Whether free blocks are shuffled, and why.
    pub shuffle: Shuffling,
}

/// Frames of one or more ranges, to be handed out. See the [module](super).
pub struct Zone<'m> {
    pub(super) base: FrameNo,
    pub(super) states: &'m [AtomicU8],
    pub(super) page_blocks: &'m [AtomicU8],
    /// Free frames that can be handed out: written under the lock, read without.
    free: &'m AtomicU64,
    /// Room for a number a page block, for whoever holds `changing`.
    pub(super) scratch: &'m [AtomicU32],
    /// Held while ranges come and go and while lists are shuffled: one of these at a time. The locks are taken in the order
    /// `changing`, `shuffle`, `books`.
    pub(super) changing: Lock<()>,
    pub(super) watermarks: Watermarks,
    pub(crate) books: Lock<Books<'m>>,
    pub(super) shuffle: Lock<Shuffling>,
}

/// Its span only: what is in it are millions of bytes.
impl core::fmt::Debug for Zone<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Zone").field("span", &self.span()).finish_non_exhaustive()
    }
}

impl<'m> Zone<'m> {
    /// A zone without frames. [`Zone::add`] gives it some.
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
            books: Lock::new(Books {
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

    /// The frames that may ever belong to it.
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

    /// The place of a frame in the books.
    #[inline]
    pub(crate) fn index(&self, frame: FrameNo) -> Option<u32> {
        let index = frame.0.wrapping_sub(self.base.0);
        // `MOST_FRAMES` fits.
        if index < self.states.len() as u64 { u32::try_from(index).ok() } else { None }
    }

    #[inline]
    pub(crate) fn frame(&self, index: u32) -> FrameNo {
        self.base.plus(u64::from(index))
    }

    /// The byte of a frame's state, for those who read and write it.
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

    /// Changes it if it is still what it was.
    #[inline]
    pub(crate) fn swap_state_byte(&self, index: u32, from: u8, to: u8) -> bool {
        self.states[index as usize].compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// A block in a set was something else by its mark.
    #[cold]
    pub(crate) fn mistaken(&self) {
        self.books.lock().events.mistaken += 1;
    }

    #[inline]
    pub(crate) fn page_block(&self, index: u32) -> PageBlock {
        PageBlock(get8(self.page_blocks, index >> PAGE_BLOCK_ORDER))
    }

    /// Whether the byte of a page block, by its number, says that it is there.
    pub(super) fn is_present(&self, page_block: u32) -> bool {
        PageBlock(get8(self.page_blocks, page_block)).is_present()
    }

    /// What a frame is at this moment.
    pub fn state(&self, frame: FrameNo) -> FrameState {
        let Some(index) = self.index(frame) else { return FrameState::Hole };
        match state::decode(self.state_byte(index)) {
            FrameState::Inside if !self.page_block(index).is_present() => FrameState::Hole,
            state => state,
        }
    }

    /// Hands out a block of `order`: its first frame. The block is aligned to its size.
    #[inline]
    pub fn alloc(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        self.request(Request::new(order, migrate))
    }

    /// Hands out a block.
    pub fn request(&self, request: Request) -> Result<FrameNo, AllocError> {
        let Request { order, migrate, .. } = request;
        let mut books = self.enter(order, request.no_wait)?;
        self.check_watermark(&mut books, order, request.urgency)?;
        let Some(run) = books.take_run(order, migrate, 1) else {
            books.events.failed += 1;
            return Err(AllocError::Exhausted { order, free_blocks: books.free_blocks() });
        };
        self.set_state_byte(run.first, state::allocated(order, migrate));
        Ok(self.frame(run.first))
    }

    /// Hands out the block of `order` that starts at `frame`, if it is free. Watermarks do not count here: who names a frame, to
    /// reserve it or to take over what is in use already, cannot do with another.
    pub fn alloc_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<(), AllocError> {
        let taken = || AllocError::Taken { frame, order, state: self.state(frame) };
        let index = self.index(frame).filter(|_| frame.is_aligned(order.get())).ok_or_else(taken)?;
        let mut books = self.books.lock();
        let run = books.take_at(index, order).ok_or_else(taken)?;
        self.set_state_byte(run.first, state::allocated(order, migrate));
        Ok(())
    }

    pub(super) fn enter(&self, order: Order, no_wait: bool) -> Result<Held<'_, Books<'m>>, AllocError> {
        if no_wait { self.books.try_lock().ok_or(AllocError::Locked(order)) } else { Ok(self.books.lock()) }
    }

    pub(super) fn check_watermark(
        &self,
        books: &mut Books<'m>,
        order: Order,
        urgency: Urgency,
    ) -> Result<(), AllocError> {
        let kept = self.watermarks.kept_from(urgency);
        if kept > 0 && books.free() < kept.saturating_add(u64::from(order.frames())) {
            books.events.failed += 1;
            return Err(AllocError::Kept { order, free: books.free(), kept });
        }
        Ok(())
    }

    /// Takes a block back. On an error nothing has changed.
    pub fn free(&self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        let Some(index) = self.index(frame) else { return Err(self.foreign(frame, order)) };
        let mut books = self.books.lock();
        if !self.take_back(index, order) {
            books.events.refused += 1;
            return Err(FreeError::found(frame, order, self.state(frame)));
        }
        books.release(index, order);
        Ok(())
    }

    /// Marks a block that is handed out as one that is not. False if it was not, or someone who frees it into a set at this instant,
    /// without the lock, was faster.
    #[inline]
    pub(crate) fn take_back(&self, index: u32, order: Order) -> bool {
        let byte = self.state_byte(index);
        state::is_allocated(byte, order) && self.swap_state_byte(index, byte, state::cached(order))
    }

    #[cold]
    pub(crate) fn foreign(&self, frame: FrameNo, order: Order) -> FreeError {
        self.books.lock().events.refused += 1;
        FreeError { frame, order, why: WrongFree::Foreign }
    }

    #[cold]
    pub(crate) fn refuse(&self, frame: FrameNo, order: Order) -> FreeError {
        self.books.lock().events.refused += 1;
        FreeError::found(frame, order, self.state(frame))
    }

    /// Free frames that can be handed out at this moment. Without the lock.
    #[inline]
    pub fn free_frames(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Whether fewer frames are free than the low watermark: time to give some back.
    pub fn is_low(&self) -> bool {
        self.free_frames() < self.watermarks.low
    }

    /// The zone's frames by what they are.
    pub fn stats(&self) -> ZoneStats {
        let contended = self.books.raw().contended();
        let shuffle = *self.shuffle.lock();
        let books = self.books.lock();
        let mut free_by_type = [[0; MigrateType::COUNT]; ORDERS];
        for (order, by_type) in Order::all().zip(&mut free_by_type) {
            for (migrate, blocks) in MigrateType::ALL.into_iter().zip(by_type) {
                *blocks = books.lists.blocks(order, Kind::Of(migrate));
            }
        }
        ZoneStats {
            present: books.present,
            free: books.free(),
            isolated: books.isolated,
            free_blocks: books.free_blocks(),
            free_by_type,
            events: books.events,
            contended,
            shuffle,
        }
    }

    /// With colouring: `into[n]` gets how many colours have n granules in use. False without.
    pub fn loads(&self, into: &mut [u64]) -> bool {
        into.fill(0);
        let mut books = self.books.lock();
        let Some(colours) = &mut books.placement.colours else { return false };
        colours.settle();
        colours.histogram(into);
        true
    }

    /// Runs `act` while nobody else can be in the zone: around a `fork`, so that the child finds no lock that its only thread
    /// does not hold. `act` must not ask this zone anything: it would wait for itself.
    pub fn while_quiet<T>(&self, act: impl FnOnce() -> T) -> T {
        let _changing = self.changing.lock();
        let _shuffle = self.shuffle.lock();
        let _books = self.books.lock();
        act()
    }
}
