//! The truth, recomputed slowly: for tests, soaks, and those who suspect a bug.

use super::alloc::Zone;
use super::books::{Books, PAGE_BLOCK_FRAMES};
use super::lists::{KINDS, Kind};
use crate::memory::get8;
use crate::{FrameNo, FrameState, MAX_ORDER, MigrateType, ORDERS, Order, state};
use thiserror::Error;

/// Books that contradict each other: a bug, or metadata that someone else wrote to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the books of the zone are wrong at {frame:?}: {what}")]
pub struct Inconsistent {
    /// Where.
    pub frame: FrameNo,
    /// What.
    pub what: &'static str,
}

/// What a walk over all frames counts.
#[derive(Default)]
struct Counted {
    present: u64,
    free: u64,
    isolated: u64,
    blocks: [[u32; KINDS]; ORDERS],
}

impl Zone<'_> {
    /// Recomputes everything from the states of the frames and compares. Holds the lock throughout: 10 to 30 ns a frame.
    pub fn validate(&self) -> Result<(), Inconsistent> {
        let _changing = self.changing.lock();
        let mut books = self.books.lock();
        if let Some(colours) = &mut books.placement.colours {
            colours.settle();
        }
        self.check(&books).map_err(|(index, what)| Inconsistent { frame: self.frame(index), what })
    }

    fn check(&self, books: &Books<'_>) -> Result<(), (u32, &'static str)> {
        let counted = self.count(books)?;
        for order in Order::all() {
            for kind in MigrateType::ALL.map(Kind::Of).into_iter().chain([Kind::Isolated]) {
                check_list(books, order, kind, counted.blocks[order.get() as usize][kind.index()])?;
            }
        }
        let totals = [
            (counted.present, books.present, "the number of frames that are there"),
            (counted.free, books.free(), "the number of free frames"),
            (counted.isolated, books.isolated, "the number of isolated frames"),
        ];
        match totals.into_iter().find(|(counted, booked, _)| counted != booked) {
            Some((_, _, what)) => Err((0, what)),
            None => self.check_colours(books),
        }
    }

    fn count(&self, books: &Books<'_>) -> Result<Counted, (u32, &'static str)> {
        let mut counted = Counted::default();
        let end = u32::try_from(self.states.len()).unwrap_or(u32::MAX);
        let mut index = 0;
        while index < end {
            if !books.page_block(index).is_present() {
                if let Some(wrong) = (index..index + PAGE_BLOCK_FRAMES).find(|&i| self.state_byte(i) != state::INSIDE) {
                    return Err((wrong, "a frame of a page block that is not there has a state"));
                }
                index += PAGE_BLOCK_FRAMES;
                continue;
            }
            index += self.count_block(books, index, &mut counted)?;
        }
        Ok(counted)
    }

    /// One block, or one missing frame; how many frames to go on by.
    fn count_block(&self, books: &Books<'_>, index: u32, counted: &mut Counted) -> Result<u32, (u32, &'static str)> {
        let (state, order) = books.block_at(index);
        match state {
            FrameState::Hole => return Ok(1),
            FrameState::Inside => return Err((index, "a frame is there that no block covers")),
            _ => {}
        }
        let frames = order.frames();
        if index & (frames - 1) != 0 {
            return Err((index, "a block is not aligned"));
        }
        if let Some(wrong) = (index + 1..index + frames).find(|&i| self.state_byte(i) != state::INSIDE) {
            return Err((wrong, "a frame within a block has a state of its own"));
        }
        if let Some(absent) =
            (index..index + frames).step_by(PAGE_BLOCK_FRAMES as usize).find(|&i| !books.page_block(i).is_present())
        {
            return Err((absent, "a block covers a page block that is not there"));
        }
        counted.present += u64::from(frames);
        if let FrameState::Free(_) = state {
            self.count_free(books, index, order, counted)?;
        }
        Ok(frames)
    }

    fn count_free(
        &self,
        books: &Books<'_>,
        index: u32,
        order: Order,
        counted: &mut Counted,
    ) -> Result<(), (u32, &'static str)> {
        let kind = books.kind(index);
        counted.blocks[order.get() as usize][kind.index()] += 1;
        if kind == Kind::Isolated {
            counted.isolated += u64::from(order.frames());
        } else {
            counted.free += u64::from(order.frames());
        }
        let buddy = index ^ order.frames();
        if order.get() < MAX_ORDER && get8(self.states, buddy) == state::free(order) && books.kind(buddy) == kind {
            return Err((index, "two free buddies were not merged"));
        }
        Ok(())
    }

    fn check_colours(&self, books: &Books<'_>) -> Result<(), (u32, &'static str)> {
        let Some(colours) = &books.placement.colours else { return Ok(()) };
        let granule = colours.granule();
        let free_block = |g: u32| books.covering(g << granule.get()).filter(|(_, order)| *order >= granule);
        let is_free = |g: u32| free_block(g).is_some_and(|(head, _)| !books.page_block(head).is_isolated());
        let is_used = |g: u32| {
            let first = g << granule.get();
            books.page_block(first).is_present()
                && state::decode(self.state_byte(first)) != FrameState::Hole
                && free_block(g).is_none()
        };
        colours.agree(is_free, is_used)
    }
}

/// Walks a list: every block in it is what the list says, linked both ways, and there are as many as were counted.
fn check_list(books: &Books<'_>, order: Order, kind: Kind, counted: u32) -> Result<(), (u32, &'static str)> {
    let mut before = None;
    let mut next = books.lists.first(order, kind);
    for _ in 0..counted {
        let Some(block) = next else { return Err((before.unwrap_or(0), "a list is shorter than it should be")) };
        if get8(books.states, block) != state::free(order) || books.kind(block) != kind {
            return Err((block, "a block is in a list of other blocks"));
        }
        if books.lists.before(block, order) != before {
            return Err((block, "a block's links disagree"));
        }
        (before, next) = (Some(block), books.lists.after(block, order));
    }
    if next.is_some() || books.lists.blocks(order, kind) != counted {
        return Err((next.unwrap_or(0), "a list is longer than it should be"));
    }
    Ok(())
}
