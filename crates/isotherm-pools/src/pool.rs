//! The pool itself: calls are checked here for a fork and against the backing, and go on to the zone.

use crate::backing::Source;
use crate::front::Front;
use crate::memory::{self, ForkMark, Span};
use crate::{Backing, Block, Blocks, Bytes, Error, PoolBuilder};
use isotherm_frames::{
    AddError, AllocError, FrameNo, FrameRange, FrameState, MigrateType, Offline, Order, PAGE_BLOCK_ORDER, Request,
    Tier, ZoneConfig, ZoneStats,
};
use isotherm_units::{PAGE_SHIFT, PAGE_SIZE};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Frame numbers for which room is made at a time in bulk.
const BULK: usize = 64 << 10;

/// Memory that is handed out in blocks. A handle: clones are the same pool, which goes when the last of them and of the blocks that
/// hold it has gone.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

impl fmt::Debug for Pool {
    /// Not the books, of which there may be gigabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("span", &self.span()).field("backing", &self.backing()).finish_non_exhaustive()
    }
}

struct Shared {
    front: Front,
    /// `None`: frame numbers only.
    memory: Option<Span>,
    source: Source,
    /// All frames that may ever be.
    span: FrameRange,
    /// Ranges that have frames, sorted. Held while some come and go.
    ranges: Mutex<Vec<FrameRange>>,
    /// Held by `trim` while it has a block that it is about to give back again, and by allocations that try once more. The locks are
    /// taken in the order `ranges`, `passing`, those of sets and zone.
    passing: Mutex<()>,
    /// Whether there was a `trim` at all: without, an allocation that fails has nothing to wait for.
    trimmed: AtomicBool,
    mark: ForkMark,
}

/// A pool's frames by what they are, and what has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolStats {
    /// What is behind the frames.
    pub backing: Backing,
    /// All frames that may ever be.
    pub span: FrameRange,
    /// How the per-CPU sets keep threads apart.
    pub tier: Tier,
    /// Frames that wait in per-CPU sets: free, but not in `zone.free`.
    pub waiting: u64,
    /// The books.
    pub zone: ZoneStats,
}

impl PoolStats {
    /// Frames that nobody has: free in the zone, or waiting in a set.
    pub const fn free(&self) -> u64 {
        self.zone.free + self.waiting
    }
}

fn to_usize(bytes: Bytes) -> Result<usize, Error> {
    usize::try_from(bytes.0).map_err(|e| Error::system(format!("map {bytes}"), std::io::Error::other(e)))
}

impl Pool {
    pub(crate) fn new(wanted: &PoolBuilder, source: Source, bytes: Bytes, span: Bytes) -> Result<Pool, Error> {
        let first = wanted.first_frame;
        let range = |bytes: Bytes| FrameRange::new(first, first.plus(bytes.pages()));
        let config = ZoneConfig {
            watermarks: wanted.watermarks,
            shuffle: wanted.decided(),
            colouring: wanted.colouring,
            seed: wanted.seed_or_random(),
            ..ZoneConfig::new(range(span))
        };
        // The memory first: what cannot be had is known before books are made for it.
        let memory = match source.backing {
            Backing::Numbers => None,
            backing => {
                let align = source.align();
                let phase = Bytes(Bytes::of_pages(first.0).0 % align.0);
                let reserved = Span::reserve(to_usize(span)?, to_usize(align)?, to_usize(phase)?, backing.is_shared());
                Some(reserved.map_err(|e| Error::system(format!("reserve {span} of addresses"), e))?)
            }
        };
        let mark = ForkMark::new().map_err(|e| Error::system("mark a page to be wiped in children (Linux 4.14)", e))?;
        if let Some(memory) = &memory {
            back(memory, &source, (0, to_usize(bytes)?))?;
        }
        let front = Front::new(&config, range(bytes), wanted.cpus, wanted.tier)?;
        let ranges = Mutex::new(vec![range(bytes)]);
        Ok(Pool(Arc::new(Shared {
            front,
            memory,
            source,
            span: range(span),
            ranges,
            passing: Mutex::new(()),
            trimmed: AtomicBool::new(false),
            mark,
        })))
    }

    /// Every call begins with this: a child must not touch books that are the parent's, or were being written when it was forked.
    #[inline]
    fn here(&self) -> Result<&Shared, Error> {
        if self.0.mark.is_here() { Ok(&self.0) } else { Err(Error::Forked) }
    }

    #[inline]
    fn with_memory(&self) -> Result<&Shared, Error> {
        let shared = self.here()?;
        if shared.memory.is_some() { Ok(shared) } else { Err(Error::NoMemory) }
    }

    /// What is behind the frames.
    pub fn backing(&self) -> Backing {
        self.0.source.backing
    }

    /// Why it has small pages where huge ones were asked for, if it has ([`PoolBuilder::or_anonymous`]).
    pub fn instead_of(&self) -> Option<&Error> {
        self.0.source.instead_of.as_ref()
    }

    /// All frames that may ever belong to it.
    pub fn span(&self) -> FrameRange {
        self.0.span
    }

    /// Hands out a block of `order`, with whatever its last user left in it.
    ///
    /// An error of a pool without such a block says what is left of each order.
    #[inline]
    pub fn alloc(&self, order: Order, migrate: MigrateType) -> Result<Block<'_>, Error> {
        let frame = self.with_memory()?.alloc(order, migrate)?;
        Ok(Block::new(self, frame, order))
    }

    /// The same, all zero. Touches the whole block, some 0.1 ns a byte and a page fault for each page that is new.
    pub fn alloc_zeroed(&self, order: Order, migrate: MigrateType) -> Result<Block<'_>, Error> {
        let mut block = self.alloc(order, migrate)?;
        block.as_mut_slice().fill(0);
        Ok(block)
    }

    /// Hands out a block as a request with an urgency says, or one that does not wait. Straight from the zone; what waits in per-CPU
    /// sets is given back before it fails, unless it does not wait.
    pub fn request(&self, request: Request) -> Result<Block<'_>, Error> {
        let shared = self.with_memory()?;
        let frame = match shared.front.request(request) {
            Ok(frame) => frame,
            Err(error) if request.no_wait => shared.try_again(error, request)?,
            Err(error) => shared.once_more(error, |front| front.request(request))?,
        };
        Ok(Block::new(self, frame, request.order))
    }

    /// Hands out the block that starts at `frame`, if it is free.
    pub fn alloc_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<Block<'_>, Error> {
        self.with_memory()?.alloc_at(frame, order, migrate)?;
        Ok(Block::new(self, frame, order))
    }

    /// Hands out `count` blocks, or as many as there are; an error if there is none.
    pub fn alloc_bulk(&self, order: Order, migrate: MigrateType, count: usize) -> Result<Blocks<'_>, Error> {
        self.with_memory()?;
        // Room for what there is, not for what is asked, which may be any number.
        let mut frames = Vec::new();
        while frames.len() < count {
            let had = frames.len();
            frames.resize(had + (count - had).min(BULK), FrameNo(0));
            match self.alloc_frames(order, migrate, &mut frames[had..]) {
                Ok(got) => frames.truncate(had + got),
                Err(error) if had == 0 => return Err(error),
                Err(_) => frames.truncate(had),
            }
            if frames.len() < count.min(had + BULK) {
                break;
            }
        }
        Ok(Blocks::new(self, frames, order))
    }

    /// Hands out a block as a number: the caller gives it back with [`Pool::free_frame`], or makes a [`Block`] of it.
    #[inline]
    pub fn alloc_frame(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, Error> {
        Ok(self.here()?.alloc(order, migrate)?)
    }

    /// The same for the block that starts at `frame`, if it is free.
    pub fn alloc_frame_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<(), Error> {
        Ok(self.here()?.alloc_at(frame, order, migrate)?)
    }

    /// The same for as many as `frames` has room for, or as there are: how many. An error if there is none.
    pub fn alloc_frames(&self, order: Order, migrate: MigrateType, frames: &mut [FrameNo]) -> Result<usize, Error> {
        let shared = self.here()?;
        let mut got = shared.front.alloc_bulk(order, migrate, frames);
        if got < frames.len() && shared.trimmed.load(Ordering::Relaxed) {
            let _none_passes = shared.passing();
            got += shared.front.alloc_bulk(order, migrate, &mut frames[got..]);
        }
        if got == 0 && !frames.is_empty() {
            let free_blocks = shared.front.zone().stats().free_blocks;
            return Err(AllocError::Exhausted { order, free_blocks }.into());
        }
        Ok(got)
    }

    /// Takes a block back that was handed out as a number. One that is free already, or was handed out as another order, or is no
    /// block of this pool, is refused and nothing changes.
    ///
    /// # Safety
    /// Nobody else may have been handed the block since: his memory would be handed out again while he uses it. For a pool without
    /// memory there is nothing to fear.
    #[expect(unsafe_code, reason = "takes memory away from whoever has it")]
    #[inline]
    pub unsafe fn free_frame(&self, frame: FrameNo, order: Order) -> Result<(), Error> {
        self.give_back(&[frame], order)
    }

    /// The same for several. Those that cannot be taken back are left out, and the first of them is the error.
    ///
    /// # Safety
    /// As for [`Pool::free_frame`].
    #[expect(unsafe_code, reason = "takes memory away from whoever has it")]
    pub unsafe fn free_frames(&self, frames: &[FrameNo], order: Order) -> Result<(), Error> {
        self.give_back(frames, order)
    }

    /// Takes back a block that only its owner could give.
    #[inline]
    pub(crate) fn give_back_owned(&self, frame: FrameNo, order: Order) -> Result<(), Error> {
        Ok(self.here()?.front.free_unique(frame, order)?)
    }

    #[inline]
    pub(crate) fn give_back(&self, frames: &[FrameNo], order: Order) -> Result<(), Error> {
        let front = &self.here()?.front;
        match *frames {
            [frame] => front.free(frame, order)?,
            _ => front.free_bulk(frames, order)?,
        }
        Ok(())
    }

    /// Makes a block of a number that was handed out: the way back of [`Block::into_raw`].
    ///
    /// # Safety
    /// The block was handed out by this pool as `order`, and nobody else has it.
    #[expect(unsafe_code, reason = "makes an owner")]
    pub unsafe fn block(&self, frame: FrameNo, order: Order) -> Result<Block<'_>, Error> {
        self.with_memory()?;
        Ok(Block::new(self, frame, order))
    }

    /// The address of a frame within the span; `None` beyond it, and for a pool without memory. Only of a block that the caller has
    /// may anything be read or written there.
    pub fn address_of(&self, frame: FrameNo) -> Option<NonNull<u8>> {
        let shared = &*self.0;
        let memory = shared.memory.as_ref().filter(|_| shared.span.contains(frame))?;
        Some(memory.address(offset_in(shared.span, frame)))
    }

    /// The frame that an address lies in.
    pub fn frame_of(&self, address: *const u8) -> Option<FrameNo> {
        let offset = self.0.memory.as_ref()?.offset(address)?;
        Some(self.0.span.start.plus(offset as u64 >> PAGE_SHIFT))
    }

    /// The address of a frame that was handed out by a pool with memory.
    #[inline]
    pub(crate) fn memory_of(&self, frame: FrameNo) -> NonNull<u8> {
        self.address_of(frame).expect("a frame that was handed out lies in the span of a pool with memory")
    }

    /// The descriptor of what is behind it, to be mapped by others, such as a virtual machine: frame `f` is at
    /// `(f - first frame) * 4096`. `None` for anonymous memory and mere numbers.
    ///
    /// # Safety
    /// Nobody may write through it to a block while a slice of that block is in use here: references to memory that changes are
    /// undefined behaviour.
    #[expect(unsafe_code, reason = "others can reach the memory")]
    pub unsafe fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.source.file.as_ref().map(AsFd::as_fd)
    }

    /// Puts memory behind `range`, which lies in the span and has none yet, and hands it out from now on.
    pub fn grow(&self, range: FrameRange) -> Result<(), Error> {
        let shared = self.here()?;
        let mut ranges = shared.ranges();
        shared.check_unit(range)?;
        if range.is_empty() || range.start < shared.span.start || range.end > shared.span.end {
            return Err(AddError::OutsideSpan { range, span: shared.span }.into());
        }
        if let Some(there) = ranges.iter().find(|r| r.overlaps(range)) {
            return Err(AddError::Overlaps { range, frame: there.start.max(range.start) }.into());
        }
        if let Some(memory) = &shared.memory {
            back(memory, &shared.source, part(shared.span, range))?;
        }
        if let Err(error) = shared.front.zone().add(range, MigrateType::Movable) {
            shared.take_memory(range)?;
            return Err(error.into());
        }
        insert(&mut ranges, range);
        Ok(())
    }

    /// Takes the frames of `range` away and gives the memory behind them back to the system, or starts to: until it says
    /// [`Offline::Done`] none of them is handed out any more, and it is to be called again when those in use have come back.
    /// [`Pool::keep`] calls it off. The range must not leave a part of 1,024 frames behind, nor of a huge page.
    ///
    /// What the system will not take back stays in the pool, to be handed out again; the rest of the range is gone.
    pub fn shrink(&self, range: FrameRange) -> Result<Offline, Error> {
        let shared = self.here()?;
        let mut ranges = shared.ranges();
        shared.check_within(range)?;
        shared.check_unit(range)?;
        let outcome = shared.front.offline(range)?;
        let mut first = Ok(outcome);
        if outcome == Offline::Done {
            for gone in remove(&mut ranges, range) {
                if let Err(error) = shared.take_memory(gone) {
                    first = first.and(Err(error));
                    // Its memory is still there. The zone has just let go of these frames, so it takes them again.
                    match shared.front.zone().add(gone, MigrateType::Movable) {
                        Ok(()) => insert(&mut ranges, gone),
                        Err(error) => first = first.and(Err(error.into())),
                    }
                }
            }
        }
        first
    }

    /// Calls off what [`Pool::shrink`] began.
    pub fn keep(&self, range: FrameRange) -> Result<(), Error> {
        let shared = self.here()?;
        let _ranges = shared.ranges();
        shared.check_within(range)?;
        Ok(shared.front.zone().keep(range)?)
    }

    /// Gives the memory behind free blocks of at least 2 MiB back to the system; they stay in the pool, zero, and take memory again
    /// when touched. How much was passed, resident or not. Nothing for huge pages, which are a promise of the kernel (see
    /// [`Pool::shrink`]), nor for DAX. A system call for each such block.
    ///
    /// One block at a time is taken out of the zone for that. An allocation that finds none meanwhile waits until it is back and tries
    /// once more before it fails; a [`Request`] that does not wait says that it would have had to. Where free blocks are shuffled, they
    /// are shuffled anew at the end.
    pub fn trim(&self) -> Result<Bytes, Error> {
        let shared = self.here()?;
        shared.front.drain();
        if !matches!(shared.source.backing, Backing::Anonymous | Backing::Memfd) {
            return Ok(Bytes(0));
        }
        shared.trimmed.store(true, Ordering::Relaxed);
        let ranges = shared.ranges();
        let passed = shared.trim_all(&ranges);
        // They came back in the order of their addresses.
        let zone = shared.front.zone();
        if zone.shuffling().is_on() {
            zone.shuffle();
        }
        passed
    }

    /// Its frames by what they are.
    pub fn stats(&self) -> Result<PoolStats, Error> {
        let shared = self.here()?;
        let front = &shared.front;
        let (backing, span) = (shared.source.backing, shared.span);
        Ok(PoolStats { backing, span, tier: front.tier(), waiting: front.waiting(), zone: front.zone().stats() })
    }

    /// Gives what waits in per-CPU sets back to the zone, where it merges: how many frames. Done by itself before an allocation fails.
    pub fn drain(&self) -> Result<u64, Error> {
        Ok(self.here()?.front.drain())
    }

    /// Recomputes the books and compares. Slow; for tests and for those who suspect a bug.
    pub fn validate(&self) -> Result<(), Error> {
        Ok(self.here()?.front.zone().validate()?)
    }

    /// Runs `act` while nobody else is in the pool. A `fork` within it gives the child books that are in order: unless the memory is
    /// shared, it goes on with a copy of pool and blocks; what other threads were just taking or giving back is lost to it. `act`
    /// must not call the pool.
    ///
    /// For several pools, nest the calls, everywhere in the same order.
    pub fn while_quiet<T>(&self, act: impl FnOnce() -> T) -> Result<T, Error> {
        let shared = self.here()?;
        let _ranges = shared.ranges();
        let _passing = shared.passing();
        let (result, is_child) = shared.front.while_quiet(|| {
            let result = act();
            (result, !shared.mark.is_here())
        });
        if is_child && !shared.source.backing.is_shared() {
            // A set that a thread had died in, here passed over, may be half changed: each block is looked at once, where there is only
            // this thread.
            shared.front.drain();
            shared.mark.set();
        }
        Ok(result)
    }
}

/// Puts memory behind a part that has none.
fn back(memory: &Span, source: &Source, part: (usize, usize)) -> Result<(), Error> {
    let (offset, len) = part;
    if source.backing != Backing::Dax
        && let Some(file) = &source.file
    {
        let end = (offset + len) as u64;
        let is = file.metadata().map_err(|e| Error::system("look at a memfd", e))?.len();
        if end > is {
            memory::set_len(file, end).map_err(|e| Error::system(format!("make a memfd {} long", Bytes(end)), e))?;
        }
    }
    #[expect(unsafe_code, reason = "replaces what was there")]
    // SAFETY: this part of the reservation has no memory, or no frame in it was ever handed out: callers hold `ranges` and found
    // it in none, or are making the pool.
    let backed = unsafe { memory.back(part, source.file.as_ref()) };
    backed.map_err(|e| source.explain(Bytes(len as u64), e))
}

impl Shared {
    fn ranges(&self) -> MutexGuard<'_, Vec<FrameRange>> {
        // What a panic leaves behind is a list of ranges all the same.
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passing(&self) -> MutexGuard<'_, ()> {
        self.passing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn alloc(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        match self.front.alloc(order, migrate) {
            Ok(frame) => Ok(frame),
            Err(error) => self.once_more(error, |front| front.alloc(order, migrate)),
        }
    }

    fn alloc_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<(), AllocError> {
        let failed = self.front.alloc_at(frame, order, migrate);
        failed.or_else(|error| self.once_more(error, |front| front.alloc_at(frame, order, migrate)))
    }

    /// For an allocation that failed: `trim` may have had the block that it needed, so once more while that has none.
    #[cold]
    fn once_more<T>(
        &self,
        error: AllocError,
        alloc: impl FnOnce(&Front) -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        // Stored before `trim` takes its first block, by the zone's lock, which was taken here since.
        if !self.trimmed.load(Ordering::Relaxed) {
            return Err(error);
        }
        let _none_passes = self.passing();
        alloc(&self.front)
    }

    /// The same for one that does not wait.
    #[cold]
    fn try_again(&self, error: AllocError, request: Request) -> Result<FrameNo, AllocError> {
        if !self.trimmed.load(Ordering::Relaxed) {
            return Err(error);
        }
        match self.passing.try_lock() {
            Ok(_none_passes) => self.front.request(request),
            Err(TryLockError::Poisoned(_none_passes)) => self.front.request(request),
            Err(TryLockError::WouldBlock) => Err(AllocError::Locked(request.order)),
        }
    }

    /// What leaves lies in the span as a whole: a range that does not is a mistake rather than one to be cut.
    fn check_within(&self, range: FrameRange) -> Result<(), Error> {
        let span = self.span;
        let is_within = range.start >= span.start && range.end <= span.end;
        if is_within { Ok(()) } else { Err(Error::OutsideSpan { range, span }) }
    }

    fn check_unit(&self, range: FrameRange) -> Result<(), Error> {
        let unit = self.source.unit;
        let ends = [range.start, range.end].map(|f| f.0.wrapping_sub(self.span.start.0) << PAGE_SHIFT);
        match ends.into_iter().find(|end| !end.is_multiple_of(unit.0)) {
            Some(end) => Err(Error::Unaligned { what: "an end of the range", value: Bytes(end), unit }),
            None => Ok(()),
        }
    }

    /// Takes away what is behind frames that nobody has and nobody gets. On an error the memory is still there, zero or not.
    fn take_memory(&self, range: FrameRange) -> Result<(), Error> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let part = part(self.span, range);
        let doing = || format!("give {} back", Bytes(part.1 as u64));
        #[expect(unsafe_code, reason = "takes memory away")]
        // SAFETY: the zone has just let go of these frames or never got them, so no block of them exists.
        unsafe {
            // The mapping last: whichever fails, it is there.
            if let Some(file) = &self.source.file
                && self.source.backing != Backing::Dax
            {
                memory::punch(file, part).map_err(|e| Error::system(doing(), e))?;
            }
            memory.unback(part).map_err(|e| Error::system(doing(), e))
        }
    }

    /// Gives back what is behind the large free blocks of these ranges: how much.
    fn trim_all(&self, ranges: &[FrameRange]) -> Result<Bytes, Error> {
        let mut passed = 0;
        for range in ranges {
            let first = range.start.0.next_multiple_of(1 << PAGE_BLOCK_ORDER);
            let mut frame = FrameNo(first);
            while frame < range.end {
                let (frames, trimmed) = self.trim_at(frame)?;
                passed += u64::from(trimmed) * frames;
                frame = frame.plus(frames);
            }
        }
        Ok(Bytes::of_pages(passed))
    }

    /// Gives back what is behind the block that starts at `frame`, if it is large and free: how many frames to go on by, and whether.
    fn trim_at(&self, frame: FrameNo) -> Result<(u64, bool), Error> {
        let zone = self.front.zone();
        let page_block = 1 << PAGE_BLOCK_ORDER;
        let order = match zone.state(frame) {
            FrameState::Free(order) if order.get() >= PAGE_BLOCK_ORDER => order,
            _ => return Ok((page_block, false)),
        };
        let frames = u64::from(order.frames());
        let part = part(self.span, FrameRange::new(frame, frame.plus(frames)));
        let _passing = self.passing();
        // Taken meanwhile: then it is not free.
        if zone.alloc_at(frame, order, MigrateType::Movable).is_err() {
            return Ok((page_block, false));
        }
        #[expect(unsafe_code, reason = "clears memory")]
        // SAFETY: the block is ours for the moment, so nobody refers to it.
        let discarded = unsafe {
            match (self.source.backing, &self.memory, &self.source.file) {
                (Backing::Anonymous, Some(memory), _) => memory.discard(part).map(|()| true),
                (Backing::Memfd, _, Some(file)) => memory::punch(file, part).map(|()| true),
                _ => Ok(false),
            }
        };
        zone.free(frame, order)?;
        let trimmed = discarded.map_err(|e| Error::system(format!("give {} back", Bytes(part.1 as u64)), e))?;
        Ok((frames, trimmed))
    }
}

/// The offset of a frame of the span.
#[expect(clippy::cast_possible_truncation, reason = "the span is mapped, or is to be: its length is a usize")]
fn offset_in(span: FrameRange, frame: FrameNo) -> usize {
    ((frame.0 - span.start.0) * PAGE_SIZE) as usize
}

/// Offset and length of a range of the span.
fn part(span: FrameRange, range: FrameRange) -> (usize, usize) {
    let start = offset_in(span, range.start);
    (start, offset_in(span, range.end) - start)
}

/// Adds a range that overlaps none.
fn insert(ranges: &mut Vec<FrameRange>, range: FrameRange) {
    let at = ranges.partition_point(|r| r.start < range.start);
    ranges.insert(at, range);
}

/// Cuts `range` out of the ranges: what was in them of it.
fn remove(ranges: &mut Vec<FrameRange>, range: FrameRange) -> Vec<FrameRange> {
    let (mut left, mut gone) = (Vec::new(), Vec::new());
    for &r in ranges.iter() {
        let cut = FrameRange::new(r.start.max(range.start), r.end.min(range.end));
        if cut.is_empty() {
            left.push(r);
            continue;
        }
        gone.push(cut);
        let around = [FrameRange::new(r.start, cut.start), FrameRange::new(cut.end, r.end)];
        left.extend(around.into_iter().filter(|r| !r.is_empty()));
    }
    *ranges = left;
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(start: u64, end: u64) -> FrameRange {
        FrameRange::new(FrameNo(start), FrameNo(end))
    }

    #[test]
    fn ranges_come_sorted_and_are_cut() {
        let mut ranges = vec![frames(0, 10)];
        insert(&mut ranges, frames(20, 30));
        insert(&mut ranges, frames(12, 18));
        assert_eq!(ranges, [frames(0, 10), frames(12, 18), frames(20, 30)]);
        assert_eq!(remove(&mut ranges, frames(4, 22)), [frames(4, 10), frames(12, 18), frames(20, 22)]);
        assert_eq!(ranges, [frames(0, 4), frames(22, 30)]);
        assert_eq!(remove(&mut ranges, frames(24, 26)), [frames(24, 26)]);
        assert_eq!(ranges, [frames(0, 4), frames(22, 24), frames(26, 30)]);
        assert!(remove(&mut ranges, frames(4, 22)).is_empty());
    }

    /// A pool of two ranges whose memfd is exchanged for what gives nothing back.
    fn stubborn() -> Pool {
        let mut pool = PoolBuilder::memfd(Bytes::of_mib(8)).span(Bytes::of_mib(16)).build().unwrap();
        pool.grow(frames(2048, 4096)).unwrap();
        Arc::get_mut(&mut pool.0).unwrap().source.file = Some(std::fs::File::open("/dev/null").unwrap());
        pool
    }

    #[test]
    fn what_the_system_will_not_take_back_stays() {
        let pool = stubborn();
        assert!(matches!(pool.shrink(frames(1024, 3072)), Err(Error::System { .. })));
        let stats = pool.stats().unwrap();
        assert_eq!((stats.zone.present, stats.free(), stats.zone.isolated), (4096, 4096, 0));
        let mut block = pool.alloc_at(FrameNo(2048), Order::MAX, MigrateType::Movable).unwrap();
        block.as_mut_slice().fill(1);
        drop(block);
        assert!(pool.shrink(frames(1024, 3072)).is_err(), "it is in the ranges again");
        assert!(pool.trim().is_err());
        assert_eq!(pool.stats().unwrap().free(), 4096);
        pool.validate().unwrap();
    }

    #[test]
    fn an_allocation_waits_for_a_block_that_is_passing() {
        let pool = PoolBuilder::anonymous(Bytes::of_mib(4)).build().unwrap();
        pool.trim().unwrap();
        // As `trim` does it, only slower.
        let passing = pool.0.passing();
        pool.0.front.zone().alloc_at(FrameNo(0), Order::MAX, MigrateType::Movable).unwrap();
        let hasty = Request { no_wait: true, ..Request::new(Order::MAX, MigrateType::Movable) };
        assert!(matches!(pool.request(hasty), Err(Error::Alloc(AllocError::Locked(_)))));
        std::thread::scope(|s| {
            let waiting = s.spawn(|| pool.alloc(Order::MAX, MigrateType::Movable).map(drop));
            // Until it has failed for the first time.
            while pool.0.front.zone().stats().events.failed < 3 {
                std::thread::yield_now();
            }
            pool.0.front.zone().free(FrameNo(0), Order::MAX).unwrap();
            drop(passing);
            waiting.join().unwrap().unwrap();
        });
        assert!(pool.request(hasty).is_ok());
    }
}
