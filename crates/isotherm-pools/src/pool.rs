//! The pool itself: blocks handed out and taken back, as owners or as numbers.

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

/// Frame numbers for which room is made at a time in bulk.
const BULK: usize = 64 << 10;

/// Memory that is handed out in blocks. A handle: clones are the same pool, which goes when the last of them and of the blocks that
/// hold it has gone.
#[derive(Clone)]
pub struct Pool(pub(crate) Handle);

impl fmt::Debug for Pool {
    /// Not the books, of which there may be gigabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("span", &self.span()).field("backing", &self.backing()).finish_non_exhaustive()
    }
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

impl Pool {
    pub(crate) fn new(shared: Shared, housekeeping: Option<Housekeeping>) -> Result<Pool, Error> {
        // Its first call sets the clock. Were that the thread's, a child forked meanwhile would wait for ever for a thread that it does not
        // have. Nobody can be in `while_quiet` before there is a pool.
        now_ns();
        let shared = Arc::new(shared);
        let started = housekeeping.map(|settings| HousekeepingThread::start(Arc::clone(&shared), settings)).transpose();
        Ok(Pool(Handle { _housekeeping: started?.map(Arc::new), shared }))
    }

    /// Starts a thread that keeps house for this pool's per-CPU sets, beside the one that it may have been built with. It ends when
    /// the result is dropped; the pool lives as long. For those who build the pool before they know, and for a child after a fork,
    /// which has none of its parent's threads. Its interval is at least
    /// [`Housekeeping::MIN_INTERVAL`].
    pub fn start_housekeeping(&self, settings: Housekeeping) -> Result<HousekeepingThread, Error> {
        self.0.here()?;
        settings.check()?;
        HousekeepingThread::start(Arc::clone(&self.0.shared), settings)
    }

    /// [`Error::Forked`] in a child that the pool is not for, as every call there. For those who decide by it.
    pub fn check(&self) -> Result<(), Error> {
        self.0.here().map(drop)
    }

    /// What is behind the frames.
    pub fn backing(&self) -> Backing {
        self.0.source.backing
    }

    /// Why it has small pages where huge ones were asked for, if it has ([`PoolBuilder::or_anonymous`](crate::PoolBuilder::or_anonymous)).
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
        let frame = self.0.with_memory()?.alloc(order, migrate)?;
        Ok(Block::new(&self.0, frame, order))
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
        let shared = self.0.with_memory()?;
        let frame = match shared.frames.request(request) {
            Ok(frame) => frame,
            Err(error) if request.no_wait => shared.try_again(error, request)?,
            Err(error) => shared.once_more(error, |frames| frames.request(request))?,
        };
        Ok(Block::new(&self.0, frame, request.order))
    }

    /// Hands out the block that starts at `frame`, if it is free.
    pub fn alloc_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<Block<'_>, Error> {
        self.0.with_memory()?.alloc_at(frame, order, migrate)?;
        Ok(Block::new(&self.0, frame, order))
    }

    /// Hands out `count` blocks, or as many as there are; an error if there is none.
    pub fn alloc_bulk(&self, order: Order, migrate: MigrateType, count: usize) -> Result<Blocks<'_>, Error> {
        self.0.with_memory()?;
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
        Ok(Blocks::new(&self.0, frames, order))
    }

    /// Hands out a block as a number: the caller gives it back with [`Pool::free_frame`], or makes a [`Block`] of it.
    #[inline]
    pub fn alloc_frame(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, Error> {
        Ok(self.0.here()?.alloc(order, migrate)?)
    }

    /// The same for the block that starts at `frame`, if it is free.
    pub fn alloc_frame_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<(), Error> {
        Ok(self.0.here()?.alloc_at(frame, order, migrate)?)
    }

    /// The same for as many as `frames` has room for, or as there are: how many. An error if there is none.
    pub fn alloc_frames(&self, order: Order, migrate: MigrateType, frames: &mut [FrameNo]) -> Result<usize, Error> {
        let shared = self.0.here()?;
        let mut got = shared.frames.sets().alloc_bulk(order, migrate, frames);
        if got < frames.len() && shared.trimmed.load(Ordering::Relaxed) {
            let _none_passes = shared.passing();
            got += shared.frames.sets().alloc_bulk(order, migrate, &mut frames[got..]);
        }
        if got == 0 && !frames.is_empty() {
            let free_blocks = shared.frames.zone().stats().free_blocks;
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
        self.0.give_back(&[frame], order)
    }

    /// The same for several. Those that cannot be taken back are left out, and the first of them is the error.
    ///
    /// # Safety
    /// As for [`Pool::free_frame`].
    #[expect(unsafe_code, reason = "takes memory away from whoever has it")]
    pub unsafe fn free_frames(&self, frames: &[FrameNo], order: Order) -> Result<(), Error> {
        self.0.give_back(frames, order)
    }

    /// Makes a block of a number that was handed out: the way back of [`Block::into_raw`].
    ///
    /// # Safety
    /// The block was handed out by this pool as `order`, and nobody else has it.
    #[expect(unsafe_code, reason = "makes an owner")]
    pub unsafe fn block(&self, frame: FrameNo, order: Order) -> Result<Block<'_>, Error> {
        self.0.with_memory()?;
        Ok(Block::new(&self.0, frame, order))
    }

    /// The address of a frame within the span; `None` beyond it, and for a pool without memory. Only of a block that the caller has
    /// may anything be read or written there.
    pub fn address_of(&self, frame: FrameNo) -> Option<NonNull<u8>> {
        self.0.address_of(frame)
    }

    /// The frame that an address lies in.
    pub fn frame_of(&self, address: *const u8) -> Option<FrameNo> {
        let offset = self.0.memory.as_ref()?.offset(address)?;
        Some(self.0.span.start.plus(offset as u64 >> PAGE_SHIFT))
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

    /// Its frames by what they are.
    pub fn stats(&self) -> Result<PoolStats, Error> {
        let shared = self.0.here()?;
        let frames = &shared.frames;
        let (backing, span) = (shared.source.backing, shared.span);
        Ok(PoolStats {
            backing,
            span,
            tier: frames.sets().tier(),
            waiting: frames.waiting(),
            zone: frames.zone().stats(),
        })
    }

    /// Gives what waits in per-CPU sets back to the zone, where it merges: how many frames. Done by itself before an allocation fails.
    pub fn drain(&self) -> Result<u64, Error> {
        Ok(self.0.here()?.frames.sets().drain_all())
    }

    /// Recomputes the books and compares. Slow; for tests and for those who suspect a bug.
    pub fn validate(&self) -> Result<(), Error> {
        Ok(self.0.here()?.frames.zone().validate()?)
    }

    /// Runs `act` while nobody else is in the pool. A `fork` within it gives the child books that are in order: unless the memory is
    /// shared, it goes on with a copy of pool and blocks; what other threads were just taking or giving back is lost to it. `act`
    /// must not call the pool.
    ///
    /// For several pools, nest the calls, everywhere in the same order.
    pub fn while_quiet<T>(&self, act: impl FnOnce() -> T) -> Result<T, Error> {
        let shared = self.0.here()?;
        let _ranges = shared.ranges();
        let _passing = shared.passing();
        let (result, is_child) = shared.frames.sets().while_quiet(|| {
            let result = act();
            (result, !shared.mark.is_here())
        });
        if is_child && !shared.source.backing.is_shared() {
            // A set that a thread had died in, here passed over, may be half changed: each block is looked at once, where there is only
            // this thread.
            shared.frames.sets().drain_all();
            shared.mark.set();
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests;
