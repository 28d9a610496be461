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
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory that is handed out in blocks. A handle: clones are the same pool, which goes when the last of them and of the blocks that
/// hold it has gone.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    front: Front,
    /// `None`: frame numbers only.
    memory: Option<Span>,
    source: Source,
    /// All frames that may ever be.
    span: FrameRange,
    /// Ranges that have frames, sorted. Held while some come and go.
    ranges: Mutex<Vec<FrameRange>>,
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
        let too_far = Error::Span { bytes, span };
        if first.0.checked_add(span.pages()).is_none_or(|end| end > u64::MAX >> PAGE_SHIFT) {
            return Err(too_far);
        }
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
        Ok(Pool(Arc::new(Shared { front, memory, source, span: range(span), ranges, mark })))
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

    /// All frames that may ever belong to it.
    pub fn span(&self) -> FrameRange {
        self.0.span
    }

    /// Hands out a block of `order`, with whatever its last user left in it.
    ///
    /// An error of a pool without such a block says what is left of each order.
    #[inline]
    pub fn alloc(&self, order: Order, migrate: MigrateType) -> Result<Block<'_>, Error> {
        let frame = self.with_memory()?.front.alloc(order, migrate)?;
        Ok(Block::new(self, frame, order))
    }

    /// The same, all zero. Touches the whole block, some 0.1 ns a byte and a page fault for each page that is new.
    pub fn alloc_zeroed(&self, order: Order, migrate: MigrateType) -> Result<Block<'_>, Error> {
        let mut block = self.alloc(order, migrate)?;
        block.as_mut_slice().fill(0);
        Ok(block)
    }

    /// Hands out a block as a request with an urgency says, or one that does not wait.
    pub fn request(&self, request: Request) -> Result<Block<'_>, Error> {
        let frame = self.with_memory()?.front.zone().request(request)?;
        Ok(Block::new(self, frame, request.order))
    }

    /// Hands out the block that starts at `frame`, if it is free.
    pub fn alloc_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<Block<'_>, Error> {
        self.with_memory()?.front.alloc_at(frame, order, migrate)?;
        Ok(Block::new(self, frame, order))
    }

    /// Hands out `count` blocks, or as many as there are; an error if there is none.
    pub fn alloc_bulk(&self, order: Order, migrate: MigrateType, count: usize) -> Result<Blocks<'_>, Error> {
        self.with_memory()?;
        let mut frames = vec![FrameNo(0); count];
        let got = self.alloc_frames(order, migrate, &mut frames)?;
        frames.truncate(got);
        Ok(Blocks::new(self, frames, order))
    }

    /// Hands out a block as a number: the caller gives it back with [`Pool::free_frame`], or makes a [`Block`] of it.
    #[inline]
    pub fn alloc_frame(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, Error> {
        Ok(self.here()?.front.alloc(order, migrate)?)
    }

    /// The same for the block that starts at `frame`, if it is free.
    pub fn alloc_frame_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<(), Error> {
        Ok(self.here()?.front.alloc_at(frame, order, migrate)?)
    }

    /// The same for as many as `frames` has room for, or as there are: how many. An error if there is none.
    pub fn alloc_frames(&self, order: Order, migrate: MigrateType, frames: &mut [FrameNo]) -> Result<usize, Error> {
        let front = &self.here()?.front;
        let got = front.alloc_bulk(order, migrate, frames);
        if got == 0 && !frames.is_empty() {
            return Err(AllocError::Exhausted { order, free_blocks: front.zone().stats().free_blocks }.into());
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
    pub fn shrink(&self, range: FrameRange) -> Result<Offline, Error> {
        let shared = self.here()?;
        let mut ranges = shared.ranges();
        shared.check_unit(range)?;
        let outcome = shared.front.offline(range)?;
        if outcome == Offline::Done {
            for gone in remove(&mut ranges, range) {
                shared.take_memory(gone)?;
            }
        }
        Ok(outcome)
    }

    /// Calls off what [`Pool::shrink`] began.
    pub fn keep(&self, range: FrameRange) -> Result<(), Error> {
        let shared = self.here()?;
        let _ranges = shared.ranges();
        Ok(shared.front.zone().keep(range)?)
    }

    /// Gives the memory behind free blocks of at least 2 MiB back to the system; they stay in the pool, zero, and take memory again
    /// when touched. How much was passed, resident or not. Nothing for huge pages, which are a promise of the kernel (see
    /// [`Pool::shrink`]), nor for DAX. A system call for each such block.
    pub fn trim(&self) -> Result<Bytes, Error> {
        let shared = self.here()?;
        shared.front.drain();
        let mut passed = 0;
        for range in shared.ranges().iter() {
            let first = range.start.0.next_multiple_of(1 << PAGE_BLOCK_ORDER);
            let mut frame = FrameNo(first);
            while frame < range.end {
                let (frames, trimmed) = shared.trim_at(frame)?;
                passed += u64::from(trimmed) * frames;
                frame = frame.plus(frames);
            }
        }
        Ok(Bytes::of_pages(passed))
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
            file.set_len(end).map_err(|e| Error::system(format!("make a memfd {} long", Bytes(end)), e))?;
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

    fn check_unit(&self, range: FrameRange) -> Result<(), Error> {
        let unit = self.source.unit;
        let ends = [range.start, range.end].map(|f| f.0.wrapping_sub(self.span.start.0) << PAGE_SHIFT);
        match ends.into_iter().find(|end| !end.is_multiple_of(unit.0)) {
            Some(end) => Err(Error::Unaligned { what: "an end of the range", value: Bytes(end), unit }),
            None => Ok(()),
        }
    }

    /// Takes away what is behind frames that nobody has and nobody gets.
    fn take_memory(&self, range: FrameRange) -> Result<(), Error> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let part = part(self.span, range);
        let doing = || format!("give {} back", Bytes(part.1 as u64));
        #[expect(unsafe_code, reason = "takes memory away")]
        // SAFETY: the zone has just let go of these frames or never got them, so no block of them exists.
        unsafe {
            memory.unback(part).map_err(|e| Error::system(doing(), e))?;
            match &self.source.file {
                Some(file) if self.source.backing != Backing::Dax => {
                    memory::punch(file, part).map_err(|e| Error::system(doing(), e))
                }
                _ => Ok(()),
            }
        }
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
}
