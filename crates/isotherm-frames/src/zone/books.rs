//! A zone's books: which blocks are free, split when one is taken, merged when one comes back. All of it under the zone's lock. Which
//! block is taken is decided in `take`.
//!
//! The rules are the Linux allocator's, so that what is known about it holds here: buddies differ in one bit; the smallest block
//! that does is taken, from the head of its list, and what is left over goes back to the head; a freed block goes to the tail if its
//! next buddy is free, since both together will soon be a larger one. What is not the kernel's is said where it is done: runs of
//! blocks are cut from one large one at once (`take_run`), which is what bulk allocation costs least with.
//!
//! Indices are frame numbers less the zone's first, which is a multiple of the largest block, so buddies are found in them as well.

use super::lists::{End, Kind, Lists};
use crate::colour::Colours;
use crate::memory::{get8, set8};
use crate::state::{self, PageBlock};
use crate::{FrameState, MAX_ORDER, MigrateType, Order, PAGE_BLOCK_ORDER};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU64};
use isotherm_rng::Rng;

/// Frames of a page block.
pub(crate) const PAGE_BLOCK_FRAMES: u32 = 1 << PAGE_BLOCK_ORDER;

/// What has happened, counted since the zone was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Page blocks whose type was changed for an allocation of another type.
    pub claimed: u64,
    /// Blocks taken from a page block of another type, which kept its type.
    pub stolen: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Frees refused: double, foreign, or of the wrong order.
    pub refused: u64,
    /// Blocks that waited in a per-CPU set and were found to be something else: freed twice at the same instant.
    pub mistaken: u64,
}

/// Where blocks go that come back, and where they are taken.
#[derive(Debug)]
pub(crate) struct Placement<'m> {
    /// Free blocks from this order up go to a random end. `None`: shuffling is off.
    pub(crate) shuffle: Option<Order>,
    pub(crate) rng: Rng,
    bits: u64,
    bits_left: u32,
    pub(crate) colours: Option<Colours<'m>>,
}

impl<'m> Placement<'m> {
    pub(crate) fn new(seed: u64, colours: Option<Colours<'m>>) -> Placement<'m> {
        Placement { shuffle: None, rng: Rng::new(seed), bits: 0, bits_left: 0, colours }
    }

    /// One random bit; a draw of the generator lasts for 64.
    fn bit(&mut self) -> bool {
        if self.bits_left == 0 {
            (self.bits, self.bits_left) = (self.rng.next_u64(), u64::BITS);
        }
        let bit = self.bits & 1 == 1;
        self.bits >>= 1;
        self.bits_left -= 1;
        bit
    }
}

/// What lies where: the states of frames and page blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lie<'m> {
    states: &'m [AtomicU8],
    page_blocks: &'m [AtomicU8],
}

impl Lie<'_> {
    #[inline]
    pub(crate) fn page_block(&self, index: u32) -> PageBlock {
        PageBlock(get8(self.page_blocks, index >> PAGE_BLOCK_ORDER))
    }

    /// The free block that covers a frame, if it is of this order or a larger one.
    #[inline]
    pub(crate) fn covering(&self, index: u32, least: Order) -> Option<(u32, Order)> {
        (least.get()..=MAX_ORDER)
            .filter_map(Order::new)
            .map(|order| (index & !(order.frames() - 1), order))
            .find(|&(head, order)| get8(self.states, head) == state::free(order))
    }
}

/// Everything that a zone's lock protects.
#[derive(Debug)]
pub(crate) struct Books<'m> {
    pub(crate) states: &'m [AtomicU8],
    pub(crate) page_blocks: &'m [AtomicU8],
    pub(crate) lists: Lists<'m>,
    pub(crate) placement: Placement<'m>,
    /// Free frames that can be handed out.
    pub(crate) free: &'m AtomicU64,
    /// Free frames on their way out.
    pub(crate) isolated: u64,
    /// Frames that are there.
    pub(crate) present: u64,
    pub(crate) events: Events,
}

impl<'m> Books<'m> {
    #[inline]
    pub(crate) fn page_block(&self, index: u32) -> PageBlock {
        self.lie().page_block(index)
    }

    /// The list that a free block with this first frame is in.
    #[inline]
    pub(crate) fn kind(&self, index: u32) -> Kind {
        let block = self.page_block(index);
        if block.is_isolated() { Kind::Isolated } else { Kind::Of(block.migrate()) }
    }

    /// Makes a block that nobody has free, as it is, without looking for its buddy.
    #[inline]
    pub(crate) fn insert(&mut self, index: u32, order: Order, end: End) {
        set8(self.states, index, state::free(order));
        self.lists.insert(index, order, self.kind(index), end);
    }

    /// Takes a free block out of its list. Its state is the caller's to set.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32, order: Order) {
        self.lists.unlink(index, order, self.kind(index));
    }

    /// The free block that covers a frame: its first index and order.
    pub(crate) fn covering(&self, index: u32) -> Option<(u32, Order)> {
        self.lie().covering(index, Order::FRAME)
    }

    /// What lies where, apart from the lists and the placement.
    #[inline]
    pub(crate) fn lie(&self) -> Lie<'m> {
        Lie { states: self.states, page_blocks: self.page_blocks }
    }

    /// Cuts the part of order `to` that holds frame `want` out of a block that is in no list; the rest becomes free. The head of
    /// the part is returned, its state not yet set.
    #[inline]
    pub(crate) fn split(&mut self, index: u32, from: Order, to: Order, want: u32) -> u32 {
        let mut head = index;
        for order in (to.get()..from.get()).rev().filter_map(Order::new) {
            let upper = head + order.frames();
            if want >= upper {
                self.insert(head, order, End::Head);
                head = upper;
            } else {
                self.insert(upper, order, End::Head);
            }
        }
        head
    }

    /// Gives the page blocks of a block another type.
    pub(crate) fn set_type(&mut self, index: u32, order: Order, migrate: MigrateType) {
        for page_block in index >> PAGE_BLOCK_ORDER..(index + order.frames()) >> PAGE_BLOCK_ORDER {
            let block = PageBlock(get8(self.page_blocks, page_block));
            set8(self.page_blocks, page_block, block.with_type(migrate).0);
        }
    }

    /// Moves what is free in a page block to the lists of another type, or to those of what is on its way out.
    pub(crate) fn retype_page_block(&mut self, first: u32, to: PageBlock) {
        self.each_free(first, |books, index, order| books.remove(index, order));
        set8(self.page_blocks, first >> PAGE_BLOCK_ORDER, to.0);
        self.each_free(first, |books, index, order| books.insert(index, order, End::Tail));
    }

    /// Every free block that starts in a page block. The act may take it out of its list or put it into one.
    fn each_free(&mut self, first: u32, mut act: impl FnMut(&mut Self, u32, Order)) {
        let mut index = first;
        while index < first + PAGE_BLOCK_FRAMES {
            let (state, order) = self.block_at(index);
            if let FrameState::Free(_) = state {
                act(self, index, order);
            }
            index += order.frames();
        }
    }

    /// What starts at a frame, and how far to the next: one frame where nothing starts.
    pub(crate) fn block_at(&self, index: u32) -> (FrameState, Order) {
        let state = state::decode(get8(self.states, index));
        let order = match state {
            FrameState::Free(order) | FrameState::Cached(order) | FrameState::Allocated(order, _) => order,
            FrameState::Hole | FrameState::Inside => Order::FRAME,
        };
        (state, order)
    }

    /// Takes a block back, which nobody has any more, and merges it with its buddies as far as they are free.
    #[inline]
    pub(crate) fn release(&mut self, index: u32, order: Order) {
        let own = self.page_block(index);
        let merged = self.merge(index, order, own);
        self.released(index, order, merged, own);
    }

    /// The same without telling anyone: how large it has become.
    #[inline]
    pub(crate) fn merge(&mut self, index: u32, order: Order, own: PageBlock) -> Order {
        let mut head = index;
        let mut merged = order;
        while let Some(next) = Order::new(merged.get() + 1) {
            let buddy = head ^ merged.frames();
            if get8(self.states, buddy) != state::free(merged) || !self.may_merge(own, buddy, merged) {
                break;
            }
            self.remove(buddy, merged);
            if merged.get() >= PAGE_BLOCK_ORDER {
                self.set_type(buddy, merged, own.migrate());
            }
            set8(self.states, head.max(buddy), state::INSIDE);
            head = head.min(buddy);
            merged = next;
        }
        let end = self.end(head, merged);
        self.insert(head, merged, end);
        merged
    }

    #[inline]
    fn released(&mut self, index: u32, order: Order, merged: Order, page_block: PageBlock) {
        let frames = u64::from(order.frames());
        if page_block.is_isolated() {
            self.isolated += frames;
            if let Some(colours) = &mut self.placement.colours {
                colours.given_up(index, order, merged);
            }
            return;
        }
        self.more_free(frames);
        if let Some(colours) = &mut self.placement.colours {
            colours.given(index, order, merged);
        }
    }

    /// Whole page blocks merge only if both stay or both are on their way out.
    #[inline]
    fn may_merge(&self, own: PageBlock, buddy: u32, order: Order) -> bool {
        order.get() < PAGE_BLOCK_ORDER || own.is_isolated() == self.page_block(buddy).is_isolated()
    }

    #[inline]
    fn end(&mut self, index: u32, order: Order) -> End {
        match self.placement.shuffle {
            Some(from) if order >= from => {
                if self.placement.bit() {
                    End::Head
                } else {
                    End::Tail
                }
            }
            _ if self.merges_soon(index, order) => End::Tail,
            _ => End::Head,
        }
    }

    /// Whether the buddy of what this block and its buddy would be together is free: then this one is better left alone for a while.
    #[inline]
    fn merges_soon(&self, index: u32, order: Order) -> bool {
        let Some(next) = Order::new(order.get() + 1).filter(|o| o.get() < MAX_ORDER) else { return false };
        let together = index & !order.frames();
        get8(self.states, together ^ next.frames()) == state::free(next)
    }

    /// Free frames that can be handed out.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        self.free.load(Relaxed)
    }

    #[inline]
    pub(crate) fn more_free(&self, frames: u64) {
        self.free.store(self.free() + frames, Relaxed);
    }

    #[inline]
    pub(crate) fn less_free(&self, frames: u64) {
        self.free.store(self.free() - frames, Relaxed);
    }

    /// Blocks that can be handed out, by order.
    pub(crate) fn free_blocks(&self) -> [u32; crate::ORDERS] {
        let mut blocks = [0; crate::ORDERS];
        for (order, blocks) in Order::all().zip(&mut blocks) {
            *blocks = MigrateType::ALL.iter().map(|&m| self.lists.blocks(order, Kind::Of(m))).sum();
        }
        blocks
    }
}
