//! The state of each frame and of each page block, one byte each.
//!
//! A block of 2^order frames is described by the byte of its first frame, the head; the bytes of the others are 0. So
//! one store changes the state of a block, and a block of 4 MiB is added without touching the other 1,023 bytes. A
//! frame with byte 0 that no head covers is always in a page block that is not present. Single missing frames in a
//! present page block are marked as holes.

use crate::{FrameNo, MigrateType, Order};
use thiserror::Error;

const ORDER: u8 = 0x0f;
const TYPE_SHIFT: u32 = 4;
const TYPE: u8 = 0x30;
const KIND: u8 = 0xc0;
const FREE: u8 = 0x40;
const CACHED: u8 = 0x80;
const ALLOCATED: u8 = 0xc0;

/// Not the first frame of a block.
pub(crate) const INSIDE: u8 = 0;
/// A frame that is not present.
pub(crate) const HOLE: u8 = 0x10;

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "an order is 10 at the most")]
const fn bits(order: Order) -> u8 {
    order.get() as u8
}

/// The byte of the head of a free block.
#[inline]
pub(crate) const fn free(order: Order) -> u8 {
    FREE | bits(order)
}

/// The byte of the head of a block that is cached on a per-CPU list.
#[inline]
pub(crate) const fn cached(order: Order) -> u8 {
    CACHED | bits(order)
}

/// The byte of the head of an allocated block.
#[inline]
pub(crate) const fn allocated(order: Order, migrate: MigrateType) -> u8 {
    ALLOCATED | bits(order) | (migrate as u8) << TYPE_SHIFT
}

/// Whether this is the head of an allocated block of this order, whatever its type.
#[inline]
pub(crate) const fn is_allocated(byte: u8, order: Order) -> bool {
    byte & !TYPE == ALLOCATED | bits(order)
}

/// The state of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameState {
    /// Not present: never added, or taken offline.
    Hole,
    /// In a block, but not its first frame.
    Inside,
    /// First frame of a free block.
    Free(Order),
    /// First frame of a block that is cached on a per-CPU list.
    Cached(Order),
    /// First frame of an allocated block, with the type it was allocated as.
    Allocated(Order, MigrateType),
}

pub(crate) fn decode(byte: u8) -> FrameState {
    let Some(order) = Order::new(u32::from(byte & ORDER)) else { return FrameState::Hole };
    match byte & KIND {
        FREE => FrameState::Free(order),
        CACHED => FrameState::Cached(order),
        ALLOCATED => FrameState::Allocated(order, type_of(byte >> TYPE_SHIFT)),
        _ if byte == INSIDE => FrameState::Inside,
        _ => FrameState::Hole,
    }
}

/// The type in the two lowest bits.
#[inline]
pub(crate) const fn type_of(bits: u8) -> MigrateType {
    match bits & 3 {
        0 => MigrateType::Unmovable,
        2 => MigrateType::Reclaimable,
        _ => MigrateType::Movable,
    }
}

/// The byte of a page block: its type, whether any of it is present, and whether it is being removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageBlock(pub(crate) u8);

impl PageBlock {
    pub(crate) const ISOLATED: u8 = 0x80;
    pub(crate) const PRESENT: u8 = 0x40;

    pub(crate) const fn present(migrate: MigrateType) -> PageBlock {
        PageBlock(PageBlock::PRESENT | migrate as u8)
    }

    #[inline]
    pub(crate) const fn migrate(self) -> MigrateType {
        type_of(self.0)
    }

    #[inline]
    pub(crate) const fn is_isolated(self) -> bool {
        self.0 & PageBlock::ISOLATED != 0
    }

    #[inline]
    pub(crate) const fn is_present(self) -> bool {
        self.0 & PageBlock::PRESENT != 0
    }

    pub(crate) const fn with_type(self, migrate: MigrateType) -> PageBlock {
        PageBlock(self.0 & !3 | migrate as u8)
    }

    pub(crate) const fn isolated(self, isolated: bool) -> PageBlock {
        PageBlock(if isolated { self.0 | PageBlock::ISOLATED } else { self.0 & !PageBlock::ISOLATED })
    }
}

/// Why a free was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("free {frame:?}, {order:?}: {why}")]
pub struct FreeError {
    /// The frame to be freed.
    pub frame: FrameNo,
    /// With this order.
    pub order: Order,
    /// What is wrong.
    pub why: WrongFree,
}

/// What was wrong with a free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WrongFree {
    /// The frame lies outside the zone.
    #[error("not a frame of this zone")]
    Foreign,
    /// No frame was ever added there, or it was taken offline.
    #[error("frame not present: never added, or taken offline")]
    Hole,
    /// It is free already.
    #[error("it is free already")]
    AlreadyFree,
    /// It was allocated as a block of another order.
    #[error("it was allocated as a block of {0:?}")]
    OtherOrder(Order),
    /// The frame is not the first of its block. Free the block by its first frame, unless the block is free already.
    #[error("it is not the first frame of a block; free the block by its first frame")]
    InsideBlock,
}

impl FreeError {
    #[cold]
    pub(crate) fn found(frame: FrameNo, order: Order, state: FrameState) -> FreeError {
        let why = match state {
            FrameState::Hole => WrongFree::Hole,
            FrameState::Inside => WrongFree::InsideBlock,
            FrameState::Free(_) | FrameState::Cached(_) => WrongFree::AlreadyFree,
            FrameState::Allocated(other, _) => WrongFree::OtherOrder(other),
        };
        FreeError { frame, order, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_byte_of_its_own() {
        let mut seen = [false; 256];
        let mut check = |byte: u8, state: FrameState| {
            assert_eq!(decode(byte), state, "{byte:#x}");
            assert!(!std::mem::replace(&mut seen[usize::from(byte)], true), "{byte:#x} twice");
        };
        check(INSIDE, FrameState::Inside);
        check(HOLE, FrameState::Hole);
        for order in Order::all() {
            check(free(order), FrameState::Free(order));
            check(cached(order), FrameState::Cached(order));
            for migrate in MigrateType::ALL {
                check(allocated(order, migrate), FrameState::Allocated(order, migrate));
                assert!(is_allocated(allocated(order, migrate), order));
            }
            assert!(!is_allocated(cached(order), order) && !is_allocated(free(order), order));
        }
        assert!(!is_allocated(allocated(Order::HUGE, MigrateType::Movable), Order::FRAME));
    }

    #[test]
    fn no_byte_is_beyond_description() {
        for byte in 0..=u8::MAX {
            let _ = decode(byte);
        }
    }

    #[test]
    fn a_page_block_keeps_its_type_while_isolated() {
        let block = PageBlock::present(MigrateType::Reclaimable).isolated(true);
        assert!(block.is_present() && block.is_isolated());
        assert_eq!(block.migrate(), MigrateType::Reclaimable);
        let block = block.with_type(MigrateType::Unmovable).isolated(false);
        assert_eq!(block, PageBlock::present(MigrateType::Unmovable));
        assert!(!PageBlock(0).is_present());
    }
}
