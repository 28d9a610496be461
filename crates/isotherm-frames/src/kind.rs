//! How frames are classified: the order of a block, its migrate type, the state of a frame.

use core::fmt;

/// log2 of the frames of the largest block: 1,024 frames, 4 MiB.
pub const MAX_ORDER: u32 = 10;
/// Number of orders: 0 to [`MAX_ORDER`].
pub const ORDERS: usize = MAX_ORDER as usize + 1;
/// log2 of the frames of a page block, the unit that has a migrate type: 512 frames, 2 MiB.
pub const PAGE_BLOCK_ORDER: u32 = 9;

const MAX: u8 = 10;
const HUGE: u8 = 9;
const _: () = assert!(MAX as u32 == MAX_ORDER && HUGE as u32 == PAGE_BLOCK_ORDER);

/// log2 of the number of frames of a block, 0 to [`MAX_ORDER`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Order(u8);

impl Order {
    /// One frame.
    pub const FRAME: Order = Order(0);
    /// 512 frames: a huge page.
    pub const HUGE: Order = Order(HUGE);
    /// The largest block.
    pub const MAX: Order = Order(MAX);

    /// The order with this number; `None` above [`MAX_ORDER`].
    #[expect(clippy::cast_possible_truncation, reason = "MAX_ORDER fits")]
    pub const fn new(order: u32) -> Option<Order> {
        if order <= MAX_ORDER { Some(Order(order as u8)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }

    /// Number of frames in a block of this order.
    pub const fn frames(self) -> u32 {
        1 << self.0
    }

    /// All orders, the smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Order> {
        (0..=MAX).map(Order)
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What the owner of a block can do while it uses it. Blocks of a type are grouped, so that blocks that cannot move are
/// not scattered among those that can.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum MigrateType {
    /// Has to stay where it is.
    Unmovable = 0,
    /// Its owner can switch to another frame.
    #[default]
    Movable = 1,
    /// Its owner can give it back on request.
    Reclaimable = 2,
}

impl MigrateType {
    /// Number of types.
    pub const COUNT: usize = 3;

    /// All types, by number.
    pub const ALL: [MigrateType; MigrateType::COUNT] =
        [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable];

    /// The types to fall back to when there is no free block of this type, the first choice first. This is the kernel's order.
    pub const fn fallbacks(self) -> [MigrateType; 2] {
        match self {
            MigrateType::Unmovable => [MigrateType::Reclaimable, MigrateType::Movable],
            MigrateType::Movable => [MigrateType::Reclaimable, MigrateType::Unmovable],
            MigrateType::Reclaimable => [MigrateType::Unmovable, MigrateType::Movable],
        }
    }
}

impl fmt::Display for MigrateType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MigrateType::Unmovable => "unmovable",
            MigrateType::Movable => "movable",
            MigrateType::Reclaimable => "reclaimable",
        })
    }
}
