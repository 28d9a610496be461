//! Selects blocks: from the list with the smallest sufficient block, from page blocks of another type, or by colour.
//!
//! Without colours, the rules are the kernel's: take the head of the list; else claim a page block for the type that
//! has run out; else steal a block from one. With colours, the [`colour`](crate::colour) module picks a granule. If it
//! finds none, the free lists decide.

use super::lists::{End, Kind};
use super::metadata::{PAGE_BLOCK_FRAMES, Placement, ZoneMetadata};
use crate::colour::Pick;
use crate::state::PageBlock;
use crate::{FrameState, MAX_ORDER, MigrateType, Order, PAGE_BLOCK_ORDER};

/// Smallest order for which a movable request claims a page block (half of a page block's order). Smaller blocks are
/// not worth it.
const WORTH_CLAIMING: u32 = PAGE_BLOCK_ORDER / 2;
/// Candidates for blocks larger than a granule, taken from the head of their list.
const CANDIDATES: u32 = 8;

/// The order of the part that `most` blocks of `order` are cut from. This is the next power of two if less than a
/// fourth of it is left over. Else it is the one below, and the missing blocks are another run.
#[inline]
fn part_for(order: Order, most: u32) -> Order {
    let most = most.max(1);
    let up = most.next_power_of_two();
    let blocks = if most > up / 4 * 3 { up.ilog2() } else { most.ilog2() };
    Order::new(order.get() + blocks).unwrap_or(Order::MAX)
}

/// Contiguous blocks of one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Index of the first block.
    pub(crate) first: u32,
    /// Number of blocks.
    pub(crate) blocks: u32,
}

/// A part that was split off a free block and is in no list.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Index of its first frame.
    first: u32,
    order: Order,
    /// The order of the block that it was split off.
    from: Order,
}

impl ZoneMetadata<'_> {
    /// Takes up to `most` contiguous blocks of `order`.
    pub(crate) fn take_run(&mut self, order: Order, migrate: MigrateType, most: u32) -> Option<Run> {
        if self.placement.colours.is_some() {
            return self.take_run_by_colour(order, migrate, most);
        }
        self.take_run_anywhere(order, migrate, most)
    }

    /// As `take_run`, in the order of the free lists.
    #[inline]
    fn take_run_anywhere(&mut self, order: Order, migrate: MigrateType, most: u32) -> Option<Run> {
        loop {
            if let Some(found) = self.lists.smallest(order, Kind::Of(migrate)) {
                let to = part_for(order, most).min(found);
                return self.take_first(found, Kind::Of(migrate), to).map(|part| self.took(part, order, most));
            }
            if !self.claim(order, migrate) {
                return self.steal(order, migrate);
            }
        }
    }

    /// Takes the first block of a list, or its first part of order `to`.
    #[inline]
    fn take_first(&mut self, found: Order, kind: Kind, to: Order) -> Option<Part> {
        let index = self.lists.first(found, kind)?;
        self.lists.unlink(index, found, kind);
        Some(Part { first: self.split(index, found, to, index), order: to, from: found })
    }

    /// Accounts for up to `most` blocks of `order` at the start of a part. The rest of the part stays free.
    #[inline]
    fn took(&mut self, part: Part, order: Order, most: u32) -> Run {
        let run = Run { first: part.first, blocks: (part.order.frames() >> order.get()).min(most.max(1)) };
        let frames = run.blocks << order.get();
        let mut left = part.first + frames;
        let end = part.first + part.order.frames();
        while left < end {
            let piece = Order::new(left.trailing_zeros().min((end - left).ilog2())).unwrap_or(Order::FRAME);
            self.insert(left, piece, End::Head);
            left += piece.frames();
        }
        self.less_free(u64::from(frames));
        if let Some(colours) = &mut self.placement.colours {
            colours.taken(part.first, frames, part.from);
        }
        run
    }

    /// Takes the block of `order` that starts at `index`, if it is free and may be allocated.
    pub(crate) fn take_at(&mut self, index: u32, order: Order) -> Option<Run> {
        let (head, from) = self.covering(index)?;
        if from < order || self.page_block(head).is_isolated() {
            return None;
        }
        self.remove(head, from);
        let first = self.split(head, from, order, index);
        Some(self.took(Part { first, order, from }, order, 1))
    }

    /// Changes the type of a page block of another type to this one, if most of it is free or used by this type. True
    /// if there is something to take now.
    ///
    /// Starts with the largest blocks. What is claimed is then large, and the next request of this type need not mix types.
    fn claim(&mut self, order: Order, migrate: MigrateType) -> bool {
        for current in (order.get()..=MAX_ORDER).rev().filter_map(Order::new) {
            let other = migrate.fallbacks().map(Kind::Of).into_iter().find_map(|k| self.lists.first(current, k));
            let Some(index) = other else { continue };
            if current.get() < WORTH_CLAIMING && migrate == MigrateType::Movable {
                return false;
            }
            if current.get() >= PAGE_BLOCK_ORDER {
                self.claim_whole(index, current, migrate);
                return true;
            }
            if self.claim_page_block(index, migrate) {
                return true;
            }
        }
        false
    }

    /// Changes the type of a free block of whole page blocks.
    fn claim_whole(&mut self, index: u32, order: Order, migrate: MigrateType) {
        self.remove(index, order);
        self.set_type(index, order, migrate);
        self.insert(index, order, End::Head);
        self.events.claimed += 1;
    }

    /// Changes the type of a frame's page block, if at least half of it is free or used by that type.
    fn claim_page_block(&mut self, index: u32, migrate: MigrateType) -> bool {
        let first = index & !(PAGE_BLOCK_FRAMES - 1);
        let was = self.page_block(first).migrate();
        let (mut free, mut movable) = (0, 0);
        let mut index = first;
        while index < first + PAGE_BLOCK_FRAMES {
            let (state, order) = self.block_at(index);
            match state {
                FrameState::Free(_) => free += order.frames(),
                FrameState::Allocated(_, MigrateType::Movable) => movable += order.frames(),
                _ => {}
            }
            index += order.frames();
        }
        let alike = match (migrate, was) {
            (MigrateType::Movable, _) => movable,
            (_, MigrateType::Movable) => PAGE_BLOCK_FRAMES - free - movable,
            _ => 0,
        };
        if free + alike < PAGE_BLOCK_FRAMES / 2 {
            return false;
        }
        self.retype_page_block(first, PageBlock::present(migrate));
        self.events.claimed += 1;
        true
    }

    /// Takes one block from a page block of another type, which keeps its type.
    fn steal(&mut self, order: Order, migrate: MigrateType) -> Option<Run> {
        for current in (order.get()..=MAX_ORDER).filter_map(Order::new) {
            for kind in migrate.fallbacks().map(Kind::Of) {
                if let Some(part) = self.take_first(current, kind, order) {
                    self.events.stolen += 1;
                    return Some(self.took(part, order, 1));
                }
            }
        }
        None
    }
}

/// Placement by colour.
impl ZoneMetadata<'_> {
    /// Takes up to `most` contiguous blocks of `order`, placed by colour. If colours give no answer, the free lists decide.
    fn take_run_by_colour(&mut self, order: Order, migrate: MigrateType, most: u32) -> Option<Run> {
        let colours = self.placement.colours.as_mut()?;
        colours.settle();
        let granule = colours.granule();
        let begun = self.lists.smallest(order, Kind::Of(migrate)).is_some_and(|o| o < granule);
        if order > granule {
            return self.take_best_listed(order, migrate);
        }
        if begun {
            return self.take_run_anywhere(order, migrate, most);
        }
        match self.pick(migrate) {
            Some(pick) => self.take_pick(pick, order, migrate, most),
            None => self.take_best_listed(order, migrate),
        }
    }

    fn pick(&mut self, migrate: MigrateType) -> Option<Pick> {
        let lie = self.lie();
        let Placement { colours, rng, .. } = &mut self.placement;
        let colours = colours.as_mut()?;
        let shift = colours.granule().get();
        let fits = |granule: u32| {
            let index = granule << shift;
            let block = lie.page_block(index);
            !block.is_isolated()
                && (block.migrate() == migrate
                    || lie.covering(index, Order::FRAME).is_some_and(|(_, order)| order.get() >= PAGE_BLOCK_ORDER))
        };
        colours.pick(rng, &fits)
    }

    /// Takes what was picked: as much of the run as is in one block and was requested.
    fn take_pick(&mut self, pick: Pick, order: Order, migrate: MigrateType, most: u32) -> Option<Run> {
        let granule = self.placement.colours.as_ref()?.granule();
        let index = pick.granule << granule.get();
        // As much as can be in one block: aligned, free, of neighbouring colours, and requested. Free memory that is
        // aligned and as large as a block has merged into one, so there is no need to search for smaller blocks.
        let run = Order::new(index.trailing_zeros().min(MAX_ORDER).min(granule.get() + pick.run.ilog2()))?;
        let (head, from) = self.lie().covering(index, run).or_else(|| self.lie().covering(index, granule))?;
        if self.page_block(head).migrate() != migrate {
            self.claim_whole(head, from, migrate);
        }
        let part = run.min(from).min(part_for(order, most)).max(order);
        self.remove(head, from);
        let first = self.split(head, from, part, index);
        Some(self.took(Part { first, order: part, from }, order, most))
    }

    /// Of the first blocks of the list that serves this order, takes the one whose colours are least used.
    fn take_best_listed(&mut self, order: Order, migrate: MigrateType) -> Option<Run> {
        let kind = Kind::Of(migrate);
        let Some(found) = self.lists.smallest(order, kind) else { return self.take_run_anywhere(order, migrate, 1) };
        let colours = self.placement.colours.as_ref()?;
        let listed = core::iter::successors(self.lists.first(found, kind), |&block| self.lists.after(block, found));
        let best = listed.take(CANDIDATES as usize).min_by_key(|&block| colours.load_under(block, order))?;
        self.take_at(best, order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_what_is_asked_for_or_leaves_less_than_a_fourth() {
        let part = |order, most| part_for(Order::new(order).unwrap(), most).get();
        // 63 of 64 and 49 of 64, but 48 are 32 and 16 more.
        assert_eq!([0, 1, 2, 63, 49, 48].map(|most| part(0, most)), [0, 0, 1, 6, 6, 5]);
        assert_eq!((part(3, 4), part(9, 2), part(9, 1000)), (5, 10, 10));
    }
}
