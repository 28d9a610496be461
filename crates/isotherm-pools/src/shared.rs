//! What all handles of a pool share: its frames, its memory, and the locks between those who change them.
//!
//! Every call checks for a fork here. Growing, shrinking and trimming are in `resize`.

use crate::backing::Backing;
use crate::error::Error;
use crate::frames::Frames;
use crate::memory::{self, ForkDetector, Span};
use crate::ranges::offset_in;
use crate::source::Source;
use isotherm_frames::{AllocError, FrameNo, FrameRange, MigrateType, Order, PcpLists, Request, Tier, ZoneConfig};
use isotherm_units::Bytes;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// What all handles of a pool share.
pub(crate) struct Shared {
    pub(crate) frames: Frames,
    /// `None`: frame numbers only.
    pub(crate) memory: Option<Span>,
    pub(crate) source: Source,
    /// All frames that can ever belong to the pool.
    pub(crate) span: FrameRange,
    /// Ranges that have frames, sorted. Locked while ranges are added or removed.
    pub(crate) ranges: Mutex<Vec<FrameRange>>,
    /// Held by `trim` while it has taken a block out of the zone, and by allocations that try again. The locks are
    /// taken in the order `ranges`, `trimming`, then those of the per-CPU lists and the zone.
    pub(crate) trimming: Mutex<()>,
    /// Whether there was a `trim` at all. Without one, a failed allocation has nothing to wait for.
    pub(crate) trimmed: AtomicBool,
    pub(crate) mark: ForkDetector,
}

fn to_usize(bytes: Bytes) -> Result<usize, Error> {
    usize::try_from(bytes.0).map_err(|e| Error::system(format!("map {bytes}"), std::io::Error::other(e)))
}

impl Shared {
    /// Creates the memory for the span of `config`, of which the first `bytes` are present, and lists for `cpus` CPUs.
    pub(crate) fn new(
        source: Source,
        config: &ZoneConfig,
        bytes: Bytes,
        cpus: Option<u32>,
        tier: Tier,
    ) -> Result<Shared, Error> {
        let (first, span) = (config.span.start, Bytes::of_pages(config.span.len()));
        let there = FrameRange::new(first, first.plus(bytes.pages()));
        // The memory first, so that a failure is known before metadata is created for it.
        let memory = reserve(&source, first, span)?;
        let mark =
            ForkDetector::new().map_err(|e| Error::system("mark a page to be wiped in children (Linux 4.14)", e))?;
        if let Some(memory) = &memory {
            back(memory, &source, (0, to_usize(bytes)?))?;
        }
        Ok(Shared {
            frames: Frames::new(config, there, cpus, tier)?,
            memory,
            source,
            span: config.span,
            ranges: Mutex::new(vec![there]),
            trimming: Mutex::new(()),
            trimmed: AtomicBool::new(false),
            mark,
        })
    }

    /// Every call begins with this. A child must not touch metadata that belongs to its parent, or that was being
    /// written at the fork.
    #[inline]
    pub(crate) fn here(&self) -> Result<&Shared, Error> {
        if self.mark.is_here() { Ok(self) } else { Err(Error::Forked) }
    }

    #[inline]
    pub(crate) fn with_memory(&self) -> Result<&Shared, Error> {
        let shared = self.here()?;
        if shared.memory.is_some() { Ok(shared) } else { Err(Error::NoMemory) }
    }

    pub(crate) fn ranges(&self) -> MutexGuard<'_, Vec<FrameRange>> {
        // A panic leaves a valid list of ranges.
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn trimming(&self) -> MutexGuard<'_, ()> {
        self.trimming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn alloc(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        match self.frames.pcp().alloc(order, migrate) {
            Ok(frame) => Ok(frame),
            Err(error) => self.once_more(error, |frames| frames.pcp().alloc(order, migrate)),
        }
    }

    pub(crate) fn alloc_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<(), AllocError> {
        let failed = self.frames.pcp().alloc_at(frame, order, migrate);
        failed.or_else(|error| self.once_more(error, |frames| frames.pcp().alloc_at(frame, order, migrate)))
    }

    /// For an allocation that failed: `trim` may have taken the block that it needed, so it tries again while `trim`
    /// holds none.
    #[cold]
    pub(crate) fn once_more<T>(
        &self,
        error: AllocError,
        alloc: impl FnOnce(&Frames) -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        // Stored before `trim` takes its first block. The zone lock, which this thread has taken since, orders the two.
        if !self.trimmed.load(Ordering::Relaxed) {
            return Err(error);
        }
        let _none_passes = self.trimming();
        alloc(&self.frames)
    }

    /// As `once_more`, for a request that does not wait.
    #[cold]
    pub(crate) fn try_again(&self, error: AllocError, request: Request) -> Result<FrameNo, AllocError> {
        if !self.trimmed.load(Ordering::Relaxed) {
            return Err(error);
        }
        match self.trimming.try_lock() {
            Ok(_none_passes) => self.frames.request(request),
            Err(TryLockError::Poisoned(_none_passes)) => self.frames.request(request),
            Err(TryLockError::WouldBlock) => Err(AllocError::Locked(request.order)),
        }
    }

    /// Frees a block that only its owner can free.
    #[inline]
    pub(crate) fn give_back_owned(&self, frame: FrameNo, order: Order) -> Result<(), Error> {
        Ok(self.here()?.frames.pcp().free_unique(frame, order)?)
    }

    #[inline]
    pub(crate) fn give_back(&self, frames: &[FrameNo], order: Order) -> Result<(), Error> {
        let pcp = self.here()?.frames.pcp();
        match *frames {
            [frame] => pcp.free(frame, order)?,
            _ => pcp.free_bulk(frames, order)?,
        }
        Ok(())
    }

    /// The address of a frame within the span; `None` outside it, and for a pool without memory.
    pub(crate) fn address_of(&self, frame: FrameNo) -> Option<NonNull<u8>> {
        let memory = self.memory.as_ref().filter(|_| self.span.contains(frame))?;
        Some(memory.address(offset_in(self.span, frame)))
    }

    /// The address of an allocated frame of a pool with memory.
    #[inline]
    pub(crate) fn memory_of(&self, frame: FrameNo) -> NonNull<u8> {
        self.address_of(frame).expect("an allocated frame lies in the span of a pool with memory")
    }
}

/// For the drain thread.
impl AsRef<PcpLists<'static>> for Shared {
    fn as_ref(&self) -> &PcpLists<'static> {
        self.frames.pcp()
    }
}

/// Reserves addresses for a span, aligned like its frame numbers. `None` if the pool has only frame numbers.
fn reserve(source: &Source, first: FrameNo, span: Bytes) -> Result<Option<Span>, Error> {
    if source.backing == Backing::Numbers {
        return Ok(None);
    }
    let align = source.align();
    let phase = Bytes(Bytes::of_pages(first.0).0 % align.0);
    let shared = source.backing.is_shared();
    let reserved = Span::reserve(to_usize(span)?, to_usize(align)?, to_usize(phase)?, shared);
    reserved.map(Some).map_err(|e| Error::system(format!("reserve {span} of addresses"), e))
}

/// Puts memory behind a part that has none.
pub(crate) fn back(memory: &Span, source: &Source, part: (usize, usize)) -> Result<(), Error> {
    let (offset, len) = part;
    if source.backing != Backing::Dax
        && let Some(file) = &source.file
    {
        let end = (offset + len) as u64;
        let is = file.metadata().map_err(|e| Error::system("read the size of a memfd", e))?.len();
        if end > is {
            memory::set_len(file, end).map_err(|e| Error::system(format!("make a memfd {} long", Bytes(end)), e))?;
        }
    }
    let explained = |e| source.explain(Bytes(len as u64), e);
    if let (Backing::Huge(_), Some(file)) = (source.backing, &source.file) {
        memory::reserve_huge_pages(file, part).map_err(explained)?;
    }
    #[expect(unsafe_code, reason = "replaces what was there")]
    // SAFETY: this part of the reservation has no memory, or no frame in it was ever allocated: callers hold `ranges`
    // and found it in none of them, or are building the pool.
    let backed = unsafe { memory.back(part, source.file.as_ref()) };
    backed.map_err(explained)
}
