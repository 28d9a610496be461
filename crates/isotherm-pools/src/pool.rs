//! The pool: allocates and frees blocks, as owners or as numbers.

use crate::backing::Backing;
use crate::block::{Block, Blocks};
use crate::error::Error;
use crate::handle::Handle;
use crate::housekeeping::{Housekeeping, HousekeepingThread};
use crate::shared::Shared;
use isotherm_frames::housekeep::now_ns;
use isotherm_frames::{AllocError, FrameNo, FrameRange, MigrateType, Order, Request, Tier, ZoneStats};
use isotherm_units::PAGE_SHIFT;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Frame numbers that room is made for at a time in bulk allocations.
const BULK: usize = 64 << 10;

/// Memory that is allocated in blocks. This is a handle: clones refer to the same pool. The pool is dropped with the
/// last handle and the last block that holds it.
#[derive(Clone)]
pub struct Pool(pub(crate) Handle);

impl fmt::Debug for Pool {
    /// Omits the metadata, which may have gigabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("span", &self.span()).field("backing", &self.backing()).finish_non_exhaustive()
    }
}

/// Frames of a pool by state, and counters of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolStats {
    /// What backs the frames.
    pub backing: Backing,
    /// All frames that can ever belong to it.
    pub span: FrameRange,
    /// What keeps threads apart on per-CPU lists.
    pub tier: Tier,
    /// Frames on per-CPU lists: free, but not in `zone.free`.
    pub cached: u64,
    /// The stats of the zone.
    pub zone: ZoneStats,
}

impl PoolStats {
    /// Frames that are not in use: free in the zone or cached on a per-CPU list.
    pub const fn free(&self) -> u64 {
        self.zone.free + self.cached
    }
}

impl Pool {
    pub(crate) fn new(shared: Shared, housekeeping: Option<Housekeeping>) -> Result<Pool, Error> {
        // The first call starts the clock. If the thread made it, a child that is forked meanwhile would wait forever
        // for a thread that it does not have. No thread can be in `while_quiet` before there is a pool.
        now_ns();
        let shared = Arc::new(shared);
        let started = housekeeping.map(|settings| HousekeepingThread::start(Arc::clone(&shared), settings)).transpose();
        Ok(Pool(Handle { _housekeeping: started?.map(Arc::new), shared }))
    }

    /// Starts a thread that periodically drains this pool's per-CPU lists, in addition to the one that it may have been
    /// built with. The thread ends when the result is dropped; the pool lives at least as long. For callers that decide
    /// after building the pool, and for a child after a fork, which has none of its parent's threads. The interval is
    /// at least [`Housekeeping::MIN_INTERVAL`].
    pub fn start_housekeeping(&self, settings: Housekeeping) -> Result<HousekeepingThread, Error> {
        self.0.here()?;
        settings.check()?;
        HousekeepingThread::start(Arc::clone(&self.0.shared), settings)
    }

    /// Returns [`Error::Forked`] in a child that cannot use the pool, as every call there does.
    pub fn check(&self) -> Result<(), Error> {
        self.0.here().map(drop)
    }

    /// What backs the frames.
    pub fn backing(&self) -> Backing {
        self.0.source.backing
    }

    /// Why it has small pages instead of the requested huge ones, if so
    /// ([`PoolBuilder::or_anonymous`](crate::PoolBuilder::or_anonymous)).
    pub fn instead_of(&self) -> Option<&Error> {
        self.0.source.instead_of.as_ref()
    }

    /// All frames that can ever belong to it.
    pub fn span(&self) -> FrameRange {
        self.0.span
    }

    /// Allocates a block of `order`, with whatever its last owner left in it.
    ///
    /// If the pool has no such block, the error lists the free blocks of each order.
    #[inline]
    pub fn alloc(&self, order: Order, migrate: MigrateType) -> Result<Block<'_>, Error> {
        let frame = self.0.with_memory()?.alloc(order, migrate)?;
        Ok(Block::new(&self.0, frame, order))
    }

    /// As [`Pool::alloc`], but the block is zero. Writes to the whole block: some 0.1 ns per byte, and a page fault for
    /// each new page.
    pub fn alloc_zeroed(&self, order: Order, migrate: MigrateType) -> Result<Block<'_>, Error> {
        let mut block = self.alloc(order, migrate)?;
        block.as_mut_slice().fill(0);
        Ok(block)
    }

    /// Allocates a block for a request that has an urgency or does not wait. Straight from the zone. Before it fails it
    /// drains the per-CPU lists, unless the request does not wait.
    pub fn request(&self, request: Request) -> Result<Block<'_>, Error> {
        let shared = self.0.with_memory()?;
        let frame = match shared.frames.request(request) {
            Ok(frame) => frame,
            Err(error) if request.no_wait => shared.try_again(error, request)?,
            Err(error) => shared.once_more(error, |frames| frames.request(request))?,
        };
        Ok(Block::new(&self.0, frame, request.order))
    }

    /// Allocates the block that starts at `frame`, if it is free.
    pub fn alloc_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<Block<'_>, Error> {
        self.0.with_memory()?.alloc_at(frame, order, migrate)?;
        Ok(Block::new(&self.0, frame, order))
    }

    /// Allocates `count` blocks, or as many as there are. Having none is an error.
    pub fn alloc_bulk(&self, order: Order, migrate: MigrateType, count: usize) -> Result<Blocks<'_>, Error> {
        self.0.with_memory()?;
        // Make room for what there is and not for `count`, which may be any number.
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
        Ok(Blocks::new(&self.0, frames, order))
    }

    /// Allocates a block as a number. The caller frees it with [`Pool::free_frame`], or makes a [`Block`] of it.
    #[inline]
    pub fn alloc_frame(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, Error> {
        Ok(self.0.here()?.alloc(order, migrate)?)
    }

    /// As [`Pool::alloc_frame`], for the block that starts at `frame`, if it is free.
    pub fn alloc_frame_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<(), Error> {
        Ok(self.0.here()?.alloc_at(frame, order, migrate)?)
    }

    /// As [`Pool::alloc_frame`], for as many blocks as `frames` has room for or as there are; returns how many. Having
    /// none is an error.
    pub fn alloc_frames(&self, order: Order, migrate: MigrateType, frames: &mut [FrameNo]) -> Result<usize, Error> {
        let shared = self.0.here()?;
        let mut got = shared.frames.pcp().alloc_bulk(order, migrate, frames);
        if got < frames.len() && shared.trimmed.load(Ordering::Relaxed) {
            let _none_passes = shared.trimming();
            got += shared.frames.pcp().alloc_bulk(order, migrate, &mut frames[got..]);
        }
        if got == 0 && !frames.is_empty() {
            let free_blocks = shared.frames.zone().stats().free_blocks;
            return Err(AllocError::Exhausted { order, free_blocks }.into());
        }
        Ok(got)
    }

    /// Frees a block that was allocated as a number. If it is free already, was allocated with another order, or is not
    /// a block of this pool, it is refused and nothing changes.
    ///
    /// # Safety
    /// The block must not have been allocated again since: its memory would be freed while the new owner uses it. For a
    /// pool without memory this is always met.
    #[expect(unsafe_code, reason = "removes memory from its owner")]
    #[inline]
    pub unsafe fn free_frame(&self, frame: FrameNo, order: Order) -> Result<(), Error> {
        self.0.give_back(&[frame], order)
    }

    /// As [`Pool::free_frame`], for several blocks. Skips those that it refuses and returns the first error.
    ///
    /// # Safety
    /// As for [`Pool::free_frame`].
    #[expect(unsafe_code, reason = "removes memory from its owner")]
    pub unsafe fn free_frames(&self, frames: &[FrameNo], order: Order) -> Result<(), Error> {
        self.0.give_back(frames, order)
    }

    /// Makes a [`Block`] of an allocated number: the inverse of [`Block::into_raw`].
    ///
    /// # Safety
    /// The block was allocated by this pool with this `order`, and nothing else owns it.
    #[expect(unsafe_code, reason = "creates an owner")]
    pub unsafe fn block(&self, frame: FrameNo, order: Order) -> Result<Block<'_>, Error> {
        self.0.with_memory()?;
        Ok(Block::new(&self.0, frame, order))
    }

    /// The address of a frame within the span; `None` outside it, and for a pool without memory. Only memory of blocks
    /// that the caller owns may be read or written.
    pub fn address_of(&self, frame: FrameNo) -> Option<NonNull<u8>> {
        self.0.address_of(frame)
    }

    /// The frame that contains an address.
    pub fn frame_of(&self, address: *const u8) -> Option<FrameNo> {
        let offset = self.0.memory.as_ref()?.offset(address)?;
        Some(self.0.span.start.plus(offset as u64 >> PAGE_SHIFT))
    }

    /// The descriptor of the memory, for others to map, such as a virtual machine: frame `f` is at
    /// `(f - first frame) * 4096`. `None` for anonymous memory and frame numbers.
    ///
    /// # Safety
    /// Nothing may write through it to a block while a slice of that block is in use here: references to memory that
    /// changes are undefined behaviour.
    #[expect(unsafe_code, reason = "others can reach the memory")]
    pub unsafe fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.source.file.as_ref().map(AsFd::as_fd)
    }

    /// Its frames by state.
    pub fn stats(&self) -> Result<PoolStats, Error> {
        let shared = self.0.here()?;
        let frames = &shared.frames;
        let (backing, span) = (shared.source.backing, shared.span);
        Ok(PoolStats { backing, span, tier: frames.pcp().tier(), cached: frames.cached(), zone: frames.zone().stats() })
    }

    /// Returns what is cached on per-CPU lists to the zone, where it merges; returns how many frames. Also done before
    /// an allocation fails.
    pub fn drain(&self) -> Result<u64, Error> {
        Ok(self.0.here()?.frames.pcp().drain_all())
    }

    /// Recomputes and compares the metadata. Slow; for tests and when you suspect a bug.
    pub fn validate(&self) -> Result<(), Error> {
        Ok(self.0.here()?.frames.zone().validate()?)
    }

    /// Runs `act` while no other thread is in a call for the pool. A `fork` within it gives the child intact metadata.
    /// Unless the memory is shared, the child continues with a copy of the pool and its blocks. Blocks that other
    /// threads were allocating or freeing are lost to it. `act` must not call the pool.
    ///
    /// For several pools, nest the calls, in the same order everywhere.
    pub fn while_quiet<T>(&self, act: impl FnOnce() -> T) -> Result<T, Error> {
        let shared = self.0.here()?;
        let _ranges = shared.ranges();
        let _passing = shared.trimming();
        let (result, is_child) = shared.frames.pcp().while_quiet(|| {
            let result = act();
            (result, !shared.mark.is_here())
        });
        if is_child && !shared.source.backing.is_shared() {
            // If a thread has died in the lists of a CPU, they were skipped and may be half changed. Drain them once
            // here, where there is only this thread: that checks each block.
            shared.frames.pcp().drain_all();
            shared.mark.set();
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests;
