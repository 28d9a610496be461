//! Ranges that come to a zone, at its creation and later.
//!
//! Frames arrive as the largest aligned blocks that fit, in random order where shuffling is on, 64 at a time under the
//! lock, so that whoever allocates meanwhile hardly notices. Only the heads of blocks are written to: a TiB is added in the time
//! that 262,144 list entries take.

use super::alloc::Zone;
use super::books::{Books, PAGE_BLOCK_FRAMES};
use super::lists::End;
use super::shuffling::permute;
use crate::memory::set8;
use crate::state::{self, PageBlock};
use crate::{FrameRange, MAX_ORDER, MigrateType, Order, PAGE_BLOCK_ORDER};
use core::sync::atomic::Ordering::Relaxed;
use isotherm_rng::Rng;
use thiserror::Error;

/// Blocks of the largest order that are added under one hold of the lock.
const BLOCKS_A_HOLD: usize = 64;

/// Why a range was not added. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AddError {
    /// No frames.
    #[error("add {0:?}: no frames in it")]
    Empty(FrameRange),
    /// Not within the span of the zone.
    #[error("add {range:?}: outside the span {span:?} that the zone was made for")]
    OutsideSpan {
        /// What was to be added.
        range: FrameRange,
        /// The zone's span.
        span: FrameRange,
    },
    /// Some of it is there already.
    #[error("add {range:?}: {frame:?} is there already")]
    Overlaps {
        /// What was to be added.
        range: FrameRange,
        /// The first that is there.
        frame: crate::FrameNo,
    },
    /// Frames beside it are on their way out, and what leaves or stays is decided for 1,024 frames at a time.
    #[error("add {range:?}: {frame:?}, in the same 1,024 frames, is on its way out; keep it, or wait until it is gone")]
    BesideLeaving {
        /// What was to be added.
        range: FrameRange,
        /// A frame beside it that is leaving.
        frame: crate::FrameNo,
    },
    /// Colours are counted in granules, of which a range may not have parts.
    #[error("add {range:?}: the zone is coloured by granules of {granule:?}; align both ends to {}", granule.frames())]
    PartOfGranule {
        /// What was to be added.
        range: FrameRange,
        /// The order of a granule.
        granule: Order,
    },
}

impl Zone<'_> {
    /// Adds the frames of `range`, all free, as page blocks of type `migrate`. Any range within the zone's span will do, aligned or
    /// not, as long as none of its frames is there already. A page block of which a part is there keeps its type.
    ///
    /// With shuffling on, its largest blocks come in random order, and if there were others before, all are shuffled together.
    pub fn add(&self, range: FrameRange, migrate: MigrateType) -> Result<(), AddError> {
        let _changing = self.changing.lock();
        let (start, end) = self.check_range(range)?;
        let had_frames = self.books.lock().present > 0;
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
        if let Some(granule) = self.books.lock().placement.colours.as_ref().map(|c| c.granule())
            && !(range.start.is_aligned(granule.get()) && range.end.is_aligned(granule.get()))
        {
            return Err(AddError::PartOfGranule { range, granule });
        }
        let end = start + len;
        if let Some(index) = self.first_present(start, end) {
            return Err(AddError::Overlaps { range, frame: self.frame(index) });
        }
        match self.leaving_beside(start, end) {
            Some(index) => Err(AddError::BesideLeaving { range, frame: self.frame(index) }),
            None => Ok((start, end)),
        }
    }

    /// A frame on its way out in the first or last largest block that a range touches; in those between there is none.
    fn leaving_beside(&self, start: u32, end: u32) -> Option<u32> {
        let frames = Order::MAX.frames();
        let largest = [start, end - 1].map(|index| index & !(frames - 1));
        let mut halves = largest.into_iter().flat_map(|first| [first, first + PAGE_BLOCK_FRAMES]);
        let leaving = halves.find(|&half| self.page_block(half).is_isolated())?;
        self.first_present(leaving, leaving + PAGE_BLOCK_FRAMES)
    }

    /// The first frame from `start` on, before `end`, that is there.
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

    /// Marks page blocks as there, and in those that are there only in part the frames that are not.
    fn mark_present(&self, start: u32, end: u32, migrate: MigrateType) {
        let mut index = start;
        while index < end {
            let first = index & !(PAGE_BLOCK_FRAMES - 1);
            let next = first + PAGE_BLOCK_FRAMES;
            let _books = self.books.lock();
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

    /// Adds what is less than a largest block, merging it with what is there.
    fn add_piecemeal(&self, start: u32, end: u32) {
        let mut books = self.books.lock();
        let mut index = start;
        while index < end {
            let order = largest_at(index, end);
            let page_block = books.page_block(index);
            books.merge(index, order, page_block);
            books.account_added(index, order);
            index += order.frames();
        }
    }

    /// Adds whole largest blocks, in random order if they are to be shuffled.
    fn add_whole(&self, start: u32, end: u32) {
        let blocks = (end.saturating_sub(start) >> MAX_ORDER) as usize;
        let places = &self.scratch[..blocks];
        for (place, index) in places.iter().zip((start..end).step_by(Order::MAX.frames() as usize)) {
            place.store(index, Relaxed);
        }
        let seed = {
            let mut books = self.books.lock();
            books.placement.shuffle.is_some().then(|| books.placement.rng.next_u64())
        };
        if let Some(seed) = seed {
            permute(places, &mut Rng::new(seed));
        }
        for some in places.chunks(BLOCKS_A_HOLD) {
            let mut books = self.books.lock();
            for place in some {
                let index = place.load(Relaxed);
                books.insert(index, Order::MAX, End::Tail);
                books.account_added(index, Order::MAX);
            }
        }
    }
}

impl Books<'_> {
    fn account_added(&mut self, index: u32, order: Order) {
        self.present += u64::from(order.frames());
        self.more_free(u64::from(order.frames()));
        if let Some(colours) = &mut self.placement.colours {
            colours.appeared(index, order, true);
        }
    }
}

/// The largest blocks between two frames: the first, and where the last ends. Empty as start >= end if there is none.
fn whole_blocks(start: u32, end: u32) -> (u32, u32) {
    let frames = Order::MAX.frames();
    (start.next_multiple_of(frames), end & !(frames - 1))
}

/// The largest order of a block that starts at `index` and does not pass `end`.
fn largest_at(index: u32, end: u32) -> Order {
    let aligned = index.trailing_zeros().min(MAX_ORDER);
    Order::new(aligned.min((end - index).ilog2())).unwrap_or(Order::FRAME)
}
