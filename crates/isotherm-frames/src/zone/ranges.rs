//! Adds ranges to a zone, at its creation and later.
//!
//! Frames are added as the largest aligned blocks that fit, in random order if shuffling is on. The lock is held for 64
//! blocks at a time, so concurrent allocations hardly notice. Only the heads of blocks are written: adding a TiB takes
//! as long as 262,144 list entries.

use super::alloc::Zone;
use super::lists::End;
use super::metadata::{PAGE_BLOCK_FRAMES, ZoneMetadata};
use super::shuffling::permute;
use crate::memory::set8;
use crate::state::{self, PageBlock};
use crate::{FrameRange, MAX_ORDER, MigrateType, Order, PAGE_BLOCK_ORDER};
use core::sync::atomic::Ordering::Relaxed;
use isotherm_rng::Rng;
use thiserror::Error;

/// Blocks of the largest order that are added each time the lock is held.
const BLOCKS_A_HOLD: usize = 64;

/// Why a range was not added. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AddError {
    /// The range is empty.
    #[error("add {0:?}: the range is empty")]
    Empty(FrameRange),
    /// The range is not within the span of the zone.
    #[error("add {range:?}: outside the span {span:?} of the zone")]
    OutsideSpan {
        /// The range that was to be added.
        range: FrameRange,
        /// The zone's span.
        span: FrameRange,
    },
    /// Some of it is present already.
    #[error("add {range:?}: {frame:?} is present already")]
    Overlaps {
        /// The range that was to be added.
        range: FrameRange,
        /// Its first frame that is present.
        frame: crate::FrameNo,
    },
    /// Frames next to it are being removed, and removal works on 1,024 frames at a time.
    #[error(
        "add {range:?}: {frame:?}, in the same 1,024 frames, is being removed; keep it, or wait until it is removed"
    )]
    NextToLeaving {
        /// The range that was to be added.
        range: FrameRange,
        /// A neighbouring frame that is being removed.
        frame: crate::FrameNo,
    },
    /// Colours are counted in granules, so a range must consist of whole ones.
    #[error("add {range:?}: the zone is coloured by granules of {granule:?}; align both ends to {}", granule.frames())]
    PartOfGranule {
        /// The range that was to be added.
        range: FrameRange,
        /// The order of a granule.
        granule: Order,
    },
}

impl Zone<'_> {
    /// Adds the frames of `range` as free, in page blocks of type `migrate`. The range must lie within the zone's span,
    /// and none of its frames may be present already. It need not be aligned. A page block that is already present in
    /// part keeps its type.
    ///
    /// With shuffling on, its largest blocks are added in random order. If the zone had frames before, all of them are
    /// shuffled together.
    pub fn add(&self, range: FrameRange, migrate: MigrateType) -> Result<(), AddError> {
        let _changing = self.changing.lock();
        let (start, end) = self.check_range(range)?;
        let had_frames = self.metadata.lock().present > 0;
        self.mark_present(start, end, migrate);
        let (first_whole, past_whole) = whole_blocks(start, end);
        self.add_piecemeal(start, first_whole.min(end));
        self.add_whole(first_whole, past_whole);
        self.add_piecemeal(past_whole.max(first_whole).max(start).min(end), end);
        if had_frames {
            self.shuffle_held();
        }
        Ok(())
    }

    fn check_range(&self, range: FrameRange) -> Result<(u32, u32), AddError> {
        let span = self.span();
        if range.is_empty() {
            return Err(AddError::Empty(range));
        }
        let outside = AddError::OutsideSpan { range, span };
        let start = self.index(range.start).ok_or(outside)?;
        let len = u32::try_from(range.len()).map_err(|_| outside)?;
        if range.end > span.end {
            return Err(outside);
        }
        if let Some(granule) = self.metadata.lock().placement.colours.as_ref().map(|c| c.granule())
            && !(range.start.is_aligned(granule.get()) && range.end.is_aligned(granule.get()))
        {
            return Err(AddError::PartOfGranule { range, granule });
        }
        let end = start + len;
        if let Some(index) = self.first_present(start, end) {
            return Err(AddError::Overlaps { range, frame: self.frame(index) });
        }
        match self.leaving_next_to(start, end) {
            Some(index) => Err(AddError::NextToLeaving { range, frame: self.frame(index) }),
            None => Ok((start, end)),
        }
    }

    /// A frame that is being removed, in the first or last of the largest blocks that a range touches. The blocks
    /// between them have none.
    fn leaving_next_to(&self, start: u32, end: u32) -> Option<u32> {
        let frames = Order::MAX.frames();
        let largest = [start, end - 1].map(|index| index & !(frames - 1));
        let mut halves = largest.into_iter().flat_map(|first| [first, first + PAGE_BLOCK_FRAMES]);
        let leaving = halves.find(|&half| self.page_block(half).is_isolated())?;
        self.first_present(leaving, leaving + PAGE_BLOCK_FRAMES)
    }

    /// The first present frame from `start` on, before `end`.
    pub(super) fn first_present(&self, start: u32, end: u32) -> Option<u32> {
        let mut index = start;
        while index < end {
            let next = (index / PAGE_BLOCK_FRAMES + 1) * PAGE_BLOCK_FRAMES;
            if self.page_block(index).is_present() {
                let there = (index..next.min(end)).find(|&i| self.state_byte(i) != state::HOLE);
                if there.is_some() {
                    return there;
                }
            }
            index = next;
        }
        None
    }

    /// Marks page blocks as present. In those of which only a part is added, marks the other frames as holes.
    fn mark_present(&self, start: u32, end: u32, migrate: MigrateType) {
        let mut index = start;
        while index < end {
            let first = index & !(PAGE_BLOCK_FRAMES - 1);
            let next = first + PAGE_BLOCK_FRAMES;
            let _books = self.metadata.lock();
            if !self.page_block(index).is_present() {
                if index > first || end < next {
                    (first..next).for_each(|i| self.set_state_byte(i, state::HOLE));
                }
                set8(self.page_blocks, index >> PAGE_BLOCK_ORDER, PageBlock::present(migrate).0);
            }
            if self.state_byte(index) == state::HOLE {
                (index..next.min(end)).for_each(|i| self.set_state_byte(i, state::INSIDE));
            }
            index = next;
        }
    }

    /// Adds parts that are smaller than a largest block, and merges them with present blocks.
    fn add_piecemeal(&self, start: u32, end: u32) {
        let mut metadata = self.metadata.lock();
        let mut index = start;
        while index < end {
            let order = largest_at(index, end);
            let page_block = metadata.page_block(index);
            metadata.merge(index, order, page_block);
            metadata.account_added(index, order);
            index += order.frames();
        }
    }

    /// Adds whole largest blocks, in random order if shuffling is on.
    fn add_whole(&self, start: u32, end: u32) {
        let blocks = (end.saturating_sub(start) >> MAX_ORDER) as usize;
        let places = &self.scratch[..blocks];
        for (place, index) in places.iter().zip((start..end).step_by(Order::MAX.frames() as usize)) {
            place.store(index, Relaxed);
        }
        let seed = {
            let mut metadata = self.metadata.lock();
            metadata.placement.shuffle.is_some().then(|| metadata.placement.rng.next_u64())
        };
        if let Some(seed) = seed {
            permute(places, &mut Rng::new(seed));
        }
        for some in places.chunks(BLOCKS_A_HOLD) {
            let mut metadata = self.metadata.lock();
            for place in some {
                let index = place.load(Relaxed);
                metadata.insert(index, Order::MAX, End::Tail);
                metadata.account_added(index, Order::MAX);
            }
        }
    }
}

impl ZoneMetadata<'_> {
    fn account_added(&mut self, index: u32, order: Order) {
        self.present += u64::from(order.frames());
        self.more_free(u64::from(order.frames()));
        if let Some(colours) = &mut self.placement.colours {
            colours.appeared(index, order, true);
        }
    }
}

/// The largest blocks between two frames: the start of the first and the end of the last. If there is none, start >= end.
fn whole_blocks(start: u32, end: u32) -> (u32, u32) {
    let frames = Order::MAX.frames();
    (start.next_multiple_of(frames), end & !(frames - 1))
}

/// The largest order of a block that starts at `index` and does not pass `end`.
fn largest_at(index: u32, end: u32) -> Order {
    let aligned = index.trailing_zeros().min(MAX_ORDER);
    Order::new(aligned.min((end - index).ilog2())).unwrap_or(Order::FRAME)
}
