//! Changes memory while a pool is in use: grows and shrinks it, and returns the memory behind free blocks.

use crate::backing::Backing;
use crate::error::Error;
use crate::memory;
use crate::pool::Pool;
use crate::ranges::{insert, part, remove};
use crate::shared::{Shared, back};
use isotherm_frames::{AddError, FrameNo, FrameRange, FrameState, MigrateType, Offline, PAGE_BLOCK_ORDER};
use isotherm_units::{Bytes, PAGE_SHIFT};
use std::sync::atomic::Ordering;

impl Pool {
    /// Adds the frames of `range`, with memory behind them. The range must lie in the span and have no memory yet.
    pub fn grow(&self, range: FrameRange) -> Result<(), Error> {
        let shared = self.0.here()?;
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
        if let Err(error) = shared.frames.zone().add(range, MigrateType::Movable) {
            shared.take_memory(range)?;
            return Err(error.into());
        }
        insert(&mut ranges, range);
        Ok(())
    }

    /// Removes the frames of `range` and returns the memory behind them to the system, or begins to. Until the result
    /// is [`Offline::Done`], none of them is allocated any more; call again when those in use have been freed.
    /// [`Pool::keep`] cancels the removal. The range must not leave a part of 1,024 frames or of a huge page behind.
    ///
    /// Memory that the system does not take back stays in the pool and can be allocated again; the rest of the range is
    /// removed.
    pub fn shrink(&self, range: FrameRange) -> Result<Offline, Error> {
        let shared = self.0.here()?;
        let mut ranges = shared.ranges();
        shared.check_within(range)?;
        shared.check_unit(range)?;
        let outcome = shared.frames.offline(range)?;
        let mut first = Ok(outcome);
        if outcome == Offline::Done {
            for gone in remove(&mut ranges, range) {
                if let Err(error) = shared.take_memory(gone) {
                    first = first.and(Err(error));
                    // Its memory is still there. The zone has just released these frames, so it can take them again.
                    match shared.frames.zone().add(gone, MigrateType::Movable) {
                        Ok(()) => insert(&mut ranges, gone),
                        Err(error) => first = first.and(Err(error.into())),
                    }
                }
            }
        }
        first
    }

    /// Cancels what [`Pool::shrink`] began.
    pub fn keep(&self, range: FrameRange) -> Result<(), Error> {
        let shared = self.0.here()?;
        let _ranges = shared.ranges();
        shared.check_within(range)?;
        Ok(shared.frames.zone().keep(range)?)
    }

    /// Returns the memory behind free blocks of at least 2 MiB to the system. The blocks stay in the pool; they are
    /// zero and take memory again when touched. Returns how much memory was processed, resident or not. Does nothing
    /// for huge pages, which are reserved (see [`Pool::shrink`]), and for DAX. Takes a system call for each such block.
    ///
    /// It takes one block at a time out of the zone. An allocation that finds none meanwhile waits until the block is
    /// back and tries again before it fails. A [`Request`](crate::Request) that does not wait reports that it would
    /// have to. If free blocks are shuffled, they are shuffled again at the end.
    pub fn trim(&self) -> Result<Bytes, Error> {
        let shared = self.0.here()?;
        shared.frames.pcp().drain_all();
        if !matches!(shared.source.backing, Backing::Anonymous | Backing::Memfd) {
            return Ok(Bytes(0));
        }
        shared.trimmed.store(true, Ordering::Relaxed);
        let ranges = shared.ranges();
        let passed = shared.trim_all(&ranges);
        // The blocks came back in the order of their addresses.
        let zone = shared.frames.zone();
        if zone.shuffling().is_on() {
            zone.shuffle();
        }
        passed
    }
}

impl Shared {
    /// What is removed must lie within the span. A range that does not is a mistake, and is not clipped.
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

    /// Removes the memory behind frames that no one owns or can get. On an error the memory is still there, zero or not.
    fn take_memory(&self, range: FrameRange) -> Result<(), Error> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let part = part(self.span, range);
        let doing = || format!("return {} to the system", Bytes(part.1 as u64));
        #[expect(unsafe_code, reason = "takes memory away")]
        // SAFETY: the zone has just released these frames or never got them, so no block of them exists.
        unsafe {
            // Unmap last: whichever step fails, the mapping is still there.
            if let Some(file) = &self.source.file
                && self.source.backing != Backing::Dax
            {
                memory::punch(file, part).map_err(|e| Error::system(doing(), e))?;
            }
            memory.unback(part).map_err(|e| Error::system(doing(), e))
        }
    }

    /// Returns the memory behind the large free blocks of these ranges; the result is how much.
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

    /// Returns the memory behind the block that starts at `frame`, if the block is large and free. The result is how
    /// many frames to advance, and whether the memory was returned.
    fn trim_at(&self, frame: FrameNo) -> Result<(u64, bool), Error> {
        let zone = self.frames.zone();
        let page_block = 1 << PAGE_BLOCK_ORDER;
        let order = match zone.state(frame) {
            FrameState::Free(order) if order.get() >= PAGE_BLOCK_ORDER => order,
            _ => return Ok((page_block, false)),
        };
        let frames = u64::from(order.frames());
        let part = part(self.span, FrameRange::new(frame, frame.plus(frames)));
        let _passing = self.trimming();
        // It was allocated meanwhile, so it is not free.
        if zone.alloc_at(frame, order, MigrateType::Movable).is_err() {
            return Ok((page_block, false));
        }
        #[expect(unsafe_code, reason = "clears memory")]
        // SAFETY: the block is ours for now, so nothing else refers to it.
        let discarded = unsafe {
            match (self.source.backing, &self.memory, &self.source.file) {
                (Backing::Anonymous, Some(memory), _) => memory.discard(part).map(|()| true),
                (Backing::Memfd, _, Some(file)) => memory::punch(file, part).map(|()| true),
                _ => Ok(false),
            }
        };
        zone.free(frame, order)?;
        let trimmed =
            discarded.map_err(|e| Error::system(format!("return {} to the system", Bytes(part.1 as u64)), e))?;
        Ok((frames, trimmed))
    }
}
