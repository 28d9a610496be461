//! A zone: frames of one or more ranges, and everything that can be asked of them.
//!
//! The zone does not touch the frames it hands out, and need not be able to: they are numbers. What it knows of them is in the
//! [`Metadata`] that the caller gives it, 9 bytes a frame and a few for placing them. One lock protects the books of a zone;
//! per-CPU sets ([`crate::sets`]) stand in front of it so that most allocations never see it, and every method here is safe to call
//! from any thread beside them.
//!
//! Frame numbers keep their meaning: buddies, page blocks and colours are those of the numbers given, so a zone over frames of
//! physical memory has physical page blocks. Its span is fixed when it is made; ranges within it come ([`Zone::add`]) and go
//! ([`Zone::offline`]) while it is in use.

pub(crate) mod books;
pub(crate) mod bulk;
pub(crate) mod lists;
mod offline;
mod ranges;
mod shuffle;
mod validate;
mod watermark;

pub use books::Events;
pub use offline::{Offline, OfflineError};
pub use ranges::AddError;
pub use shuffle::{Shuffler, Shuffling, Switch};
pub use validate::Inconsistent;
pub use watermark::{Urgency, Watermarks};

use crate::colour::{Colouring, Colours};
use crate::lock::{Held, Lock};
use crate::memory::{Link, Metadata, bytes_for, get8, set8};
use crate::state::{self, FreeError, PageBlock, WrongFree};
use crate::{FrameNo, FrameRange, FrameState, MigrateType, ORDERS, Order, PAGE_BLOCK_ORDER};
use books::{Books, Placement};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use lists::Lists;
use thiserror::Error;

/// The most frames that a zone may span: 8 TiB.
pub const MOST_FRAMES: u64 = 1 << 31;

/// What a zone is to be.
#[derive(Clone, Copy, Debug)]
pub struct ZoneConfig {
    /// Frames that may ever belong to it. Rounded outwards to blocks of 1,024.
    pub span: FrameRange,
    /// Free frames that are kept back.
    pub watermarks: Watermarks,
    /// Whether free blocks are shuffled.
    pub shuffle: Shuffling,
    /// A direct-mapped cache to place frames for.
    pub colouring: Option<Colouring>,
    /// Seed of what is random here: the same seed and calls give the same frames.
    pub seed: u64,
}

impl ZoneConfig {
    /// A zone over `span` without watermarks, shuffling or colouring.
    pub fn new(span: FrameRange) -> ZoneConfig {
        ZoneConfig { span, watermarks: Watermarks::default(), shuffle: Shuffling::default(), colouring: None, seed: 0 }
    }

    /// Bytes of metadata that a zone like this needs.
    ///
    /// Where no frames are, they stay untouched if they were zero: a mapping may be larger than what ever becomes resident.
    pub fn metadata_bytes(&self) -> Result<usize, ConfigError> {
        let (_, frames) = self.checked_span()?;
        let page_blocks = frames >> PAGE_BLOCK_ORDER;
        Ok(bytes_for::<AtomicU64>(1)
            + bytes_for::<Link>(frames)
            + bytes_for::<Link>(page_blocks)
            + bytes_for::<AtomicU8>(frames)
            + bytes_for::<AtomicU8>(page_blocks)
            + bytes_for::<AtomicU32>(page_blocks)
            + self.colouring.map_or(0, |c| c.metadata_bytes(frames)))
    }

    /// The first frame and how many there are, both multiples of the largest block.
    fn checked_span(&self) -> Result<(FrameNo, usize), ConfigError> {
        let largest = u64::from(Order::MAX.frames());
        if self.span.is_empty() {
            return Err(ConfigError::EmptySpan(self.span));
        }
        let start = self.span.start.0 & !(largest - 1);
        let end = self.span.end.0.checked_next_multiple_of(largest).ok_or(ConfigError::SpanTooLarge(self.span))?;
        let frames = usize::try_from(end - start).map_err(|_| ConfigError::SpanTooLarge(self.span))?;
        if end - start > MOST_FRAMES {
            return Err(ConfigError::SpanTooLarge(self.span));
        }
        if let Some(colouring) = &self.colouring {
            colouring.check(end - start).map_err(ConfigError::Colouring)?;
        }
        Ok((FrameNo(start), frames))
    }
}

/// Why there is no zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No frame could ever belong to it.
    #[error("a zone over {0:?}: no frames; give a span with an end above its start")]
    EmptySpan(FrameRange),
    /// More than [`MOST_FRAMES`].
    #[error("a zone over {0:?}: more than 2^31 frames (8 TiB); make several zones")]
    SpanTooLarge(FrameRange),
    /// The metadata does not suffice.
    #[error("a zone with {given} bytes of metadata: it needs {needed}; see ZoneConfig::metadata_bytes")]
    MetadataTooSmall {
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Colours that cannot be counted.
    #[error("colouring a zone: {0}")]
    Colouring(&'static str),
}

/// Why no frame was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AllocError {
    /// There is no free block of this order or a larger one.
    #[error("allocate {order:?}: none is free; of each order there are {free_blocks:?}")]
    Exhausted {
        /// What was asked for.
        order: Order,
        /// Free blocks by order.
        free_blocks: [u32; ORDERS],
    },
    /// There are frames, but they are kept for more urgent needs.
    #[error("allocate {order:?}: {free} frames are free, and the last {kept} are kept for more urgent needs")]
    Kept {
        /// What was asked for.
        order: Order,
        /// Free frames.
        free: u64,
        /// Frames that this urgency has to leave.
        kept: u64,
    },
    /// Someone holds the lock, and the caller would not wait.
    #[error("allocate {0:?} without waiting: the zone is locked")]
    Locked(Order),
    /// That very block is not free.
    #[error("allocate {order:?} at {frame:?}: {state:?} there")]
    Taken {
        /// Its first frame.
        frame: FrameNo,
        /// Its order.
        order: Order,
        /// What that frame is.
        state: FrameState,
    },
}

/// What to hand out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// The order of the block.
    pub order: Order,
    /// Its migrate type.
    pub migrate: MigrateType,
    /// How badly it is needed.
    pub urgency: Urgency,
    /// Whether to fail rather than wait for the lock: for signal handlers, and for those who must not sleep.
    pub no_wait: bool,
}

impl Request {
    /// A block of `order` and `migrate`, of normal urgency.
    #[inline]
    pub const fn new(order: Order, migrate: MigrateType) -> Request {
        Request { order, migrate, urgency: Urgency::Normal, no_wait: false }
    }
}

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

/// Frames of one or more ranges, to be handed out. See the [module](self).
pub struct Zone<'m> {
    base: FrameNo,
    states: &'m [AtomicU8],
    page_blocks: &'m [AtomicU8],
    /// Free frames that can be handed out: written under the lock, read without.
    free: &'m AtomicU64,
    /// Room for a number a page block, for whoever holds `changing`.
    scratch: &'m [AtomicU32],
    /// Held while ranges come and go and while lists are shuffled: one of these at a time. The locks are taken in the order
    /// `changing`, `shuffle`, `books`.
    changing: Lock<()>,
    watermarks: Watermarks,
    pub(crate) books: Lock<Books<'m>>,
    shuffle: Lock<Shuffling>,
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

    pub(crate) fn enter(&self, order: Order, no_wait: bool) -> Result<Held<'_, Books<'m>>, AllocError> {
        if no_wait { self.books.try_lock().ok_or(AllocError::Locked(order)) } else { Ok(self.books.lock()) }
    }

    fn check_watermark(&self, books: &mut Books<'m>, order: Order, urgency: Urgency) -> Result<(), AllocError> {
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
                *blocks = books.lists.blocks(order, lists::Kind::Of(migrate));
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
