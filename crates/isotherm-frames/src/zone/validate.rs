//! Recomputes the metadata slowly: for tests, soak runs, and when you suspect a bug.

use super::alloc::Zone;
use super::lists::{KINDS, Kind};
use super::metadata::{PAGE_BLOCK_FRAMES, ZoneMetadata};
use crate::memory::get8;
use crate::{FrameNo, FrameState, MAX_ORDER, MigrateType, ORDERS, Order, state};
use thiserror::Error;

/// The metadata contradicts itself: a bug, or something else wrote to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the metadata of the zone is wrong at {frame:?}: {what}")]
pub struct Inconsistent {
    /// The frame at which the contradiction was found.
    pub frame: FrameNo,
    /// What is wrong.
    pub what: &'static str,
}

/// Counters of a walk over all frames.
#[derive(Default)]
struct Counted {
    present: u64,
    free: u64,
    isolated: u64,
    blocks: [[u32; KINDS]; ORDERS],
}

impl Zone<'_> {
    /// Recomputes everything from the states of the frames and compares. Holds the lock throughout: 10 to 30 ns per frame.
    pub fn validate(&self) -> Result<(), Inconsistent> {
        let _changing = self.changing.lock();
        let mut metadata = self.metadata.lock();
        if let Some(colours) = &mut metadata.placement.colours {
            colours.settle();
        }
        self.check(&metadata).map_err(|(index, what)| Inconsistent { frame: self.frame(index), what })
    }

    fn check(&self, metadata: &ZoneMetadata<'_>) -> Result<(), (u32, &'static str)> {
        let counted = self.count(metadata)?;
        for order in Order::all() {
            for kind in MigrateType::ALL.map(Kind::Of).into_iter().chain([Kind::Isolated]) {
                check_list(metadata, order, kind, counted.blocks[order.get() as usize][kind.index()])?;
            }
        }
        let totals = [
            (counted.present, metadata.present, "the number of present frames"),
            (counted.free, metadata.free(), "the number of free frames"),
            (counted.isolated, metadata.isolated, "the number of isolated frames"),
        ];
        match totals.into_iter().find(|(counted, booked, _)| counted != booked) {
            Some((_, _, what)) => Err((0, what)),
            None => self.check_colours(metadata),
        }
    }

    fn count(&self, metadata: &ZoneMetadata<'_>) -> Result<Counted, (u32, &'static str)> {
        let mut counted = Counted::default();
        let end = u32::try_from(self.states.len()).unwrap_or(u32::MAX);
        let mut index = 0;
        while index < end {
            if !metadata.page_block(index).is_present() {
                if let Some(wrong) = (index..index + PAGE_BLOCK_FRAMES).find(|&i| self.state_byte(i) != state::INSIDE) {
                    return Err((wrong, "a frame of an absent page block has a state"));
                }
                index += PAGE_BLOCK_FRAMES;
                continue;
            }
            index += self.count_block(metadata, index, &mut counted)?;
        }
        Ok(counted)
    }

    /// Counts one block or one hole; returns how many frames to advance.
    fn count_block(
        &self,
        metadata: &ZoneMetadata<'_>,
        index: u32,
        counted: &mut Counted,
    ) -> Result<u32, (u32, &'static str)> {
        let (state, order) = metadata.block_at(index);
        match state {
            FrameState::Hole => return Ok(1),
            FrameState::Inside => return Err((index, "a present frame is not covered by any block")),
            _ => {}
        }
        let frames = order.frames();
        if index & (frames - 1) != 0 {
            return Err((index, "a block is not aligned"));
        }
        if let Some(wrong) = (index + 1..index + frames).find(|&i| self.state_byte(i) != state::INSIDE) {
            return Err((wrong, "a frame within a block has a state"));
        }
        if let Some(absent) =
            (index..index + frames).step_by(PAGE_BLOCK_FRAMES as usize).find(|&i| !metadata.page_block(i).is_present())
        {
            return Err((absent, "a block covers an absent page block"));
        }
        counted.present += u64::from(frames);
        if let FrameState::Free(_) = state {
            self.count_free(metadata, index, order, counted)?;
        }
        Ok(frames)
    }

    fn count_free(
        &self,
        metadata: &ZoneMetadata<'_>,
        index: u32,
        order: Order,
        counted: &mut Counted,
    ) -> Result<(), (u32, &'static str)> {
        let kind = metadata.kind(index);
        counted.blocks[order.get() as usize][kind.index()] += 1;
        if kind == Kind::Isolated {
            counted.isolated += u64::from(order.frames());
        } else {
            counted.free += u64::from(order.frames());
        }
        let buddy = index ^ order.frames();
        if order.get() < MAX_ORDER && get8(self.states, buddy) == state::free(order) && metadata.kind(buddy) == kind {
            return Err((index, "two free buddies were not merged"));
        }
        Ok(())
    }

    fn check_colours(&self, metadata: &ZoneMetadata<'_>) -> Result<(), (u32, &'static str)> {
        let Some(colours) = &metadata.placement.colours else { return Ok(()) };
        let granule = colours.granule();
        let free_block = |g: u32| metadata.covering(g << granule.get()).filter(|(_, order)| *order >= granule);
        let is_free = |g: u32| free_block(g).is_some_and(|(head, _)| !metadata.page_block(head).is_isolated());
        let is_used = |g: u32| {
            let first = g << granule.get();
            metadata.page_block(first).is_present()
                && state::decode(self.state_byte(first)) != FrameState::Hole
                && free_block(g).is_none()
        };
        colours.agree(is_free, is_used)
    }
}

/// Walks a list and checks that every block belongs in it, that it is linked both ways, and that it has `counted` blocks.
fn check_list(metadata: &ZoneMetadata<'_>, order: Order, kind: Kind, counted: u32) -> Result<(), (u32, &'static str)> {
    let mut before = None;
    let mut next = metadata.lists.first(order, kind);
    for _ in 0..counted {
        let Some(block) = next else { return Err((before.unwrap_or(0), "a list is shorter than it should be")) };
        if get8(metadata.states, block) != state::free(order) || metadata.kind(block) != kind {
            return Err((block, "a block is in a list of other blocks"));
        }
        if metadata.lists.before(block, order) != before {
            return Err((block, "a block's links disagree"));
        }
        (before, next) = (Some(block), metadata.lists.after(block, order));
    }
    if next.is_some() || metadata.lists.blocks(order, kind) != counted {
        return Err((next.unwrap_or(0), "a list is longer than it should be"));
    }
    Ok(())
}
