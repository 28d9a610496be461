//! Removes ranges from a zone while it is in use.
//!
//! First the zone stops allocating from the range: its free blocks move to separate lists, and blocks that are freed
//! later follow them. (Blocks that are already cached on per-CPU lists are still allocated from there until the lists
//! are drained.) Once all blocks of the range are free, it is removed. Making users free their frames and draining
//! per-CPU lists is up to the caller, between two calls.

use super::alloc::Zone;
use super::metadata::{PAGE_BLOCK_FRAMES, ZoneMetadata};
use crate::memory::set8;
use crate::state::{self, PageBlock};
use crate::{FrameNo, FrameRange, FrameState, Order, PAGE_BLOCK_ORDER};
use thiserror::Error;

/// The progress of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offline {
    /// The range is removed.
    Done,
    /// The zone no longer allocates from it, but some is still in use: call again when that has been freed.
    Pending {
        /// Frames in use.
        in_use: u64,
        /// Frames on per-CPU lists: drain these.
        in_lists: u64,
    },
}

/// Why a range cannot be removed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum OfflineError {
    /// None of its frames is present.
    #[error("take {0:?} offline: none of its frames is present")]
    Absent(FrameRange),
    /// Only part of a block of 1,024 frames would be removed.
    #[error("take {range:?} offline: {frame:?}, in the same 1,024 frames, would stay; align the range to 1,024 frames")]
    Unaligned {
        /// The range that was to be removed.
        range: FrameRange,
        /// A frame that is present in the same 1,024 frames but outside the range.
        frame: FrameNo,
    },
}

impl<'m> Zone<'m> {
    /// Removes the frames of `range`, or begins to. Call it until it returns [`Offline::Done`], or cancel with [`Zone::keep`].
    pub fn offline(&self, range: FrameRange) -> Result<Offline, OfflineError> {
        let _changing = self.changing.lock();
        let (start, end) = self.whole_range(range)?;
        self.each_largest(start, end, |metadata, index| metadata.isolate(index, true));
        let (in_use, in_lists) = self.count_used(start, end);
        if in_use + in_lists > 0 {
            return Ok(Offline::Pending { in_use, in_lists });
        }
        self.each_largest(start, end, ZoneMetadata::forget);
        Ok(Offline::Done)
    }

    /// Cancels what [`Zone::offline`] began: the frames of `range` can be allocated again.
    pub fn keep(&self, range: FrameRange) -> Result<(), OfflineError> {
        let _changing = self.changing.lock();
        let (start, end) = self.whole_range(range)?;
        self.each_largest(start, end, |metadata, index| metadata.isolate(index, false));
        Ok(())
    }

    /// The largest blocks that a range touches, if they have no present frames outside the range.
    fn whole_range(&self, range: FrameRange) -> Result<(u32, u32), OfflineError> {
        let absent = OfflineError::Absent(range);
        let span = self.span();
        let range_start = range.start.max(span.start);
        let range_end = range.end.min(span.end);
        if range_start >= range_end {
            return Err(absent);
        }
        let start = self.index(range_start).ok_or(absent)?;
        let end = start + u32::try_from(range_end.0 - range_start.0).map_err(|_| absent)?;
        let frames = Order::MAX.frames();
        let (outer_start, outer_end) = (start & !(frames - 1), end.next_multiple_of(frames));
        let beside = self.first_present(outer_start, start).or_else(|| self.first_present(end, outer_end));
        if let Some(index) = beside {
            return Err(OfflineError::Unaligned { range, frame: self.frame(index) });
        }
        self.first_present(start, end).ok_or(absent)?;
        Ok((outer_start, outer_end))
    }

    fn each_largest(&self, start: u32, end: u32, act: impl Fn(&mut ZoneMetadata<'m>, u32)) {
        for index in (start..end).step_by(Order::MAX.frames() as usize) {
            let mut metadata = self.metadata.lock();
            act(&mut metadata, index);
        }
    }

    /// Counts frames in use and on per-CPU lists. Takes the lock for 1,024 frames at a time: what is free in a range
    /// that is being removed stays free, and what is freed meanwhile is counted next time.
    fn count_used(&self, start: u32, end: u32) -> (u64, u64) {
        let largest = (start..end).step_by(Order::MAX.frames() as usize);
        largest.map(|first| self.metadata.lock().count_used(first)).fold((0, 0), |sum, n| (sum.0 + n.0, sum.1 + n.1))
    }
}

impl ZoneMetadata<'_> {
    /// Of 1,024 frames, those in use and those on per-CPU lists.
    fn count_used(&self, first: u32) -> (u64, u64) {
        let (mut in_use, mut in_lists) = (0, 0);
        let mut index = first;
        while index < first + Order::MAX.frames() {
            if !self.page_block(index).is_present() {
                index += PAGE_BLOCK_FRAMES;
                continue;
            }
            let (state, order) = self.block_at(index);
            match state {
                FrameState::Allocated(..) => in_use += u64::from(order.frames()),
                FrameState::Cached(_) => in_lists += u64::from(order.frames()),
                _ => {}
            }
            index += order.frames();
        }
        (in_use, in_lists)
    }

    /// Moves the free blocks of 1,024 frames to the lists of frames that are being removed, or back.
    fn isolate(&mut self, first: u32, isolated: bool) {
        let mut index = first;
        while index < first + Order::MAX.frames() {
            let page_block = self.page_block(index);
            if page_block.is_present() && page_block.is_isolated() != isolated {
                self.retype_page_block(index, page_block.isolated(isolated));
                self.account_isolated(index, isolated);
            }
            index += PAGE_BLOCK_FRAMES;
        }
    }

    fn account_isolated(&mut self, first: u32, isolated: bool) {
        let mut index = first;
        while index < first + PAGE_BLOCK_FRAMES {
            let (state, order) = self.block_at(index);
            if let FrameState::Free(_) = state {
                let frames = u64::from(order.frames());
                if isolated {
                    self.less_free(frames);
                    self.isolated += frames;
                } else {
                    self.more_free(frames);
                    self.isolated -= frames;
                }
                if let Some(colours) = &mut self.placement.colours {
                    colours.appeared(index, order, !isolated);
                }
            }
            index += order.frames();
        }
    }

    /// Removes 1,024 frames, all of them free or absent.
    fn forget(&mut self, first: u32) {
        let end = first + Order::MAX.frames();
        let mut index = first;
        while index < end {
            let (state, order) = self.block_at(index);
            if let FrameState::Free(_) = state
                && self.page_block(index).is_present()
            {
                self.remove(index, order);
                self.isolated -= u64::from(order.frames());
                self.present -= u64::from(order.frames());
            }
            index += order.frames();
        }
        (first..end).for_each(|i| set8(self.states, i, state::INSIDE));
        for page_block in first >> PAGE_BLOCK_ORDER..end >> PAGE_BLOCK_ORDER {
            set8(self.page_blocks, page_block, PageBlock(0).0);
        }
    }
}
