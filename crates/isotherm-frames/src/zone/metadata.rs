//! A zone's metadata: which blocks are free; splits a block on allocation and merges it on free. All of it needs the
//! zone lock. `take` decides which block is allocated.
//!
//! The rules are those of the Linux allocator, so what is known about it holds here. Buddies differ in one bit. The
//! smallest sufficient block is taken from the head of its list, and the remainder goes back to the head. A freed block
//! goes to the tail if its next larger buddy is free, because both will soon merge into a larger block. Differences
//! from the kernel are documented where they are. One of them: a run of blocks is cut from one large block at once
//! (`take_run`), which makes bulk allocation cheap.
//!
//! Indices are frame numbers less the zone's first, which is a multiple of the largest block. So indices also give the buddies.

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

/// Counters of events since the zone was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Page blocks whose type was changed to serve an allocation of another type.
    pub claimed: u64,
    /// Blocks taken from a page block of another type, which kept its type.
    pub stolen: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Refused frees: double, foreign, or of the wrong order.
    pub refused: u64,
    /// Blocks on a per-CPU list whose state was something else: they were freed twice at the same instant.
    pub wrong_state: u64,
}

/// Where freed blocks go in their lists, and where blocks are taken.
#[derive(Debug)]
pub(crate) struct Placement<'m> {
    /// Free blocks of this order and above go to a random end. `None`: shuffling is off.
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

    /// One random bit; each draw of the generator yields 64.
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

/// The states of frames and page blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameStates<'m> {
    states: &'m [AtomicU8],
    page_blocks: &'m [AtomicU8],
}

impl FrameStates<'_> {
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

/// Everything that the zone lock protects.
#[derive(Debug)]
pub(crate) struct ZoneMetadata<'m> {
    pub(crate) states: &'m [AtomicU8],
    pub(crate) page_blocks: &'m [AtomicU8],
    pub(crate) lists: Lists<'m>,
    pub(crate) placement: Placement<'m>,
    /// Free frames that can be allocated.
    pub(crate) free: &'m AtomicU64,
    /// Free frames that are being removed.
    pub(crate) isolated: u64,
    /// Frames that are present.
    pub(crate) present: u64,
    pub(crate) events: Events,
}

impl<'m> ZoneMetadata<'m> {
    #[inline]
    pub(crate) fn page_block(&self, index: u32) -> PageBlock {
        self.lie().page_block(index)
    }

    /// The kind of list that a free block with this first frame belongs to.
    #[inline]
    pub(crate) fn kind(&self, index: u32) -> Kind {
        let block = self.page_block(index);
        if block.is_isolated() { Kind::Isolated } else { Kind::Of(block.migrate()) }
    }

    /// Marks an unused block as free and inserts it, without merging it.
    #[inline]
    pub(crate) fn insert(&mut self, index: u32, order: Order, end: End) {
        set8(self.states, index, state::free(order));
        self.lists.insert(index, order, self.kind(index), end);
    }

    /// Takes a free block out of its list. The caller sets its state.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32, order: Order) {
        self.lists.unlink(index, order, self.kind(index));
    }

    /// The free block that covers a frame: its first index and its order.
    pub(crate) fn covering(&self, index: u32) -> Option<(u32, Order)> {
        self.lie().covering(index, Order::FRAME)
    }

    /// The states, without the lists and the placement.
    #[inline]
    pub(crate) fn lie(&self) -> FrameStates<'m> {
        FrameStates { states: self.states, page_blocks: self.page_blocks }
    }

    /// Splits a block that is in no list. Returns the head of the part of order `to` that contains frame `want`,
    /// without setting its state. The rest becomes free.
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

    /// Changes the type of the page blocks of a block.
    pub(crate) fn set_type(&mut self, index: u32, order: Order, migrate: MigrateType) {
        for page_block in index >> PAGE_BLOCK_ORDER..(index + order.frames()) >> PAGE_BLOCK_ORDER {
            let block = PageBlock(get8(self.page_blocks, page_block));
            set8(self.page_blocks, page_block, block.with_type(migrate).0);
        }
    }

    /// Moves the free blocks of a page block to the lists of another type, or to those of frames that are being removed.
    pub(crate) fn retype_page_block(&mut self, first: u32, to: PageBlock) {
        self.each_free(first, |metadata, index, order| metadata.remove(index, order));
        set8(self.page_blocks, first >> PAGE_BLOCK_ORDER, to.0);
        self.each_free(first, |metadata, index, order| metadata.insert(index, order, End::Tail));
    }

    /// Calls `act` for every free block that starts in a page block. `act` may remove it from its list or insert it.
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

    /// The state of a frame, and the distance to the next block: one frame where no block starts.
    pub(crate) fn block_at(&self, index: u32) -> (FrameState, Order) {
        let state = state::decode(get8(self.states, index));
        let order = match state {
            FrameState::Free(order) | FrameState::Cached(order) | FrameState::Allocated(order, _) => order,
            FrameState::Hole | FrameState::Inside => Order::FRAME,
        };
        (state, order)
    }

    /// Frees a block that is no longer in use, and merges it with its free buddies.
    #[inline]
    pub(crate) fn release(&mut self, index: u32, order: Order) {
        let own = self.page_block(index);
        let merged = self.merge(index, order, own);
        self.released(index, order, merged, own);
    }

    /// Merges and inserts without updating counters; returns the merged order.
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

    /// Whole page blocks only merge if both stay or both are being removed.
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

    /// Whether the buddy of the merged block, the one of this block and its buddy, is free. If so, this block should be
    /// left alone for a while.
    #[inline]
    fn merges_soon(&self, index: u32, order: Order) -> bool {
        let Some(next) = Order::new(order.get() + 1).filter(|o| o.get() < MAX_ORDER) else { return false };
        let together = index & !order.frames();
        get8(self.states, together ^ next.frames()) == state::free(next)
    }

    /// Free frames that can be allocated.
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

    /// Blocks that can be allocated, by order.
    pub(crate) fn free_blocks(&self) -> [u32; crate::ORDERS] {
        let mut blocks = [0; crate::ORDERS];
        for (order, blocks) in Order::all().zip(&mut blocks) {
            *blocks = MigrateType::ALL.iter().map(|&m| self.lists.blocks(order, Kind::Of(m))).sum();
        }
        blocks
    }
}
