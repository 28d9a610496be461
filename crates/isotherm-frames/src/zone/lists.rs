//! The free lists: for each order and type, blocks linked through the links of their first frames, and their number.
//!
//! Blocks of whole page blocks have separate links, one for each page block. In an array of links for all frames, those
//! of 4 MiB blocks would be 8 KiB apart, so each would cost a page and a cache miss. The separate links take 4 MiB per
//! TiB, so filling or shuffling a zone stays in the cache.
//!
//! Everything here needs the zone lock. The caller keeps the state and type of each block in step.

use crate::memory::Link;
use crate::{MigrateType, ORDERS, Order, PAGE_BLOCK_ORDER};
use core::sync::atomic::Ordering::Relaxed;

/// No block.
pub(crate) const NIL: u32 = u32::MAX;

/// Which list: that of a type, or that of blocks which are being removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Of(MigrateType),
    Isolated,
}

/// Number of lists for each order.
pub(crate) const KINDS: usize = MigrateType::COUNT + 1;

impl Kind {
    #[inline]
    pub(crate) const fn index(self) -> usize {
        match self {
            Kind::Of(migrate) => migrate as usize,
            Kind::Isolated => MigrateType::COUNT,
        }
    }
}

/// Which end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Taken first.
    Head,
    /// Taken last.
    Tail,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    blocks: u32,
}

/// The links of small blocks by frame, and of large blocks by page block.
#[derive(Clone, Copy, Debug)]
struct Links<'m> {
    small: &'m [Link],
    large: &'m [Link],
}

impl<'m> Links<'m> {
    #[inline]
    fn of(&self, block: u32, order: Order) -> &'m Link {
        if order.get() < PAGE_BLOCK_ORDER {
            &self.small[block as usize]
        } else {
            &self.large[(block >> PAGE_BLOCK_ORDER) as usize]
        }
    }
}

const EMPTY: List = List { head: NIL, tail: NIL, blocks: 0 };

/// All lists of a zone.
#[derive(Debug)]
pub(crate) struct Lists<'m> {
    links: Links<'m>,
    lists: [[List; KINDS]; ORDERS],
    /// For each kind, one bit for each order whose list is not empty.
    filled: [u16; KINDS],
}

impl<'m> Lists<'m> {
    /// Empty lists over as many frames as there are `small` links, and as many page blocks as there are `large` ones.
    pub(crate) fn new(small: &'m [Link], large: &'m [Link]) -> Lists<'m> {
        Lists { links: Links { small, large }, lists: [[EMPTY; KINDS]; ORDERS], filled: [0; KINDS] }
    }

    /// The smallest order, from `order` up, whose list is not empty.
    #[inline]
    pub(crate) fn smallest(&self, order: Order, kind: Kind) -> Option<Order> {
        let filled = self.filled[kind.index()] >> order.get();
        if filled == 0 { None } else { Order::new(order.get() + filled.trailing_zeros()) }
    }

    /// The first block of a list.
    #[inline]
    pub(crate) fn first(&self, order: Order, kind: Kind) -> Option<u32> {
        let head = self.lists[order.get() as usize][kind.index()].head;
        (head != NIL).then_some(head)
    }

    /// The block after `block` in its list.
    pub(crate) fn after(&self, block: u32, order: Order) -> Option<u32> {
        let next = self.links.of(block, order).next.load(Relaxed);
        (next != NIL).then_some(next)
    }

    /// The block before `block` in its list.
    pub(crate) fn before(&self, block: u32, order: Order) -> Option<u32> {
        let prev = self.links.of(block, order).prev.load(Relaxed);
        (prev != NIL).then_some(prev)
    }

    /// Number of blocks in a list.
    #[inline]
    pub(crate) fn blocks(&self, order: Order, kind: Kind) -> u32 {
        self.lists[order.get() as usize][kind.index()].blocks
    }

    /// Adds a block at an end of a list.
    #[inline]
    pub(crate) fn insert(&mut self, block: u32, order: Order, kind: Kind, end: End) {
        let links = self.links;
        let mine = links.of(block, order);
        let list = &mut self.lists[order.get() as usize][kind.index()];
        match end {
            End::Head => {
                mine.prev.store(NIL, Relaxed);
                mine.next.store(list.head, Relaxed);
                match list.head {
                    NIL => list.tail = block,
                    head => links.of(head, order).prev.store(block, Relaxed),
                }
                list.head = block;
            }
            End::Tail => {
                mine.next.store(NIL, Relaxed);
                mine.prev.store(list.tail, Relaxed);
                match list.tail {
                    NIL => list.head = block,
                    tail => links.of(tail, order).next.store(block, Relaxed),
                }
                list.tail = block;
            }
        }
        list.blocks += 1;
        self.filled[kind.index()] |= 1 << order.get();
    }

    /// Removes a block from its list.
    #[inline]
    pub(crate) fn unlink(&mut self, block: u32, order: Order, kind: Kind) {
        let links = self.links;
        let mine = links.of(block, order);
        let list = &mut self.lists[order.get() as usize][kind.index()];
        let (next, prev) = (mine.next.load(Relaxed), mine.prev.load(Relaxed));
        match prev {
            NIL => list.head = next,
            prev => links.of(prev, order).next.store(next, Relaxed),
        }
        match next {
            NIL => list.tail = prev,
            next => links.of(next, order).prev.store(prev, Relaxed),
        }
        list.blocks -= 1;
        if list.head == NIL {
            self.filled[kind.index()] &= !(1 << order.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(lists: &Lists<'_>, kind: Kind) -> Vec<u32> {
        let mut blocks = Vec::new();
        let mut next = lists.first(Order::FRAME, kind);
        while let Some(block) = next {
            blocks.push(block);
            next = lists.after(block, Order::FRAME);
        }
        blocks
    }

    #[test]
    fn blocks_come_and_go_at_both_ends_and_in_the_middle() {
        let links: Vec<Link> = (0..8).map(|_| Link::default()).collect();
        let large: Vec<Link> = (0..1).map(|_| Link::default()).collect();
        let mut lists = Lists::new(&links, &large);
        let kind = Kind::Of(MigrateType::Movable);
        assert_eq!(lists.smallest(Order::FRAME, kind), None);
        for (block, end) in [(3, End::Head), (1, End::Tail), (5, End::Head), (7, End::Tail)] {
            lists.insert(block, Order::FRAME, kind, end);
        }
        assert_eq!(order(&lists, kind), [5, 3, 1, 7]);
        assert_eq!(lists.before(3, Order::FRAME), Some(5));
        lists.unlink(3, Order::FRAME, kind);
        lists.unlink(7, Order::FRAME, kind);
        lists.unlink(5, Order::FRAME, kind);
        assert_eq!((order(&lists, kind), lists.blocks(Order::FRAME, kind)), (vec![1], 1));
        assert_eq!(lists.smallest(Order::FRAME, kind), Some(Order::FRAME));
        lists.unlink(1, Order::FRAME, kind);
        assert_eq!(lists.smallest(Order::FRAME, kind), None);
        lists.insert(2, Order::HUGE, Kind::Isolated, End::Tail);
        assert_eq!(lists.smallest(Order::FRAME, Kind::Isolated), Some(Order::HUGE));
        assert_eq!(lists.smallest(Order::MAX, Kind::Isolated), None);
    }
}
