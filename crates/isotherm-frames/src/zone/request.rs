//! What is to be handed out, and why it was not.

use super::watermark::Urgency;
use crate::{FrameNo, FrameState, MigrateType, ORDERS, Order};
use thiserror::Error;

/// Why no frame was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AllocError {
    /// There is no free block of this order or a larger one.
    #[error("allocate {order:?}: none is free; of each order there are {free_blocks:?}")]
    Exhausted {
        /// What was asked for.
        order: Order,
        /// Free blocks by order.
        free_blocks: [u32; ORDERS],
    },
    /// There are frames, but they are kept for more urgent needs.
    #[error("allocate {order:?}: {free} frames are free, and the last {kept} are kept for more urgent needs")]
    Kept {
        /// What was asked for.
        order: Order,
        /// Free frames.
        free: u64,
        /// Frames that this urgency has to leave.
        kept: u64,
    },
    /// Someone holds the lock, and the caller would not wait.
    #[error("allocate {0:?} without waiting: the zone is locked")]
    Locked(Order),
    /// That very block is not free.
    #[error("allocate {order:?} at {frame:?}: {state:?} there")]
    Taken {
        /// Its first frame.
        frame: FrameNo,
        /// Its order.
        order: Order,
        /// What that frame is.
        state: FrameState,
    },
}

/// What to hand out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// The order of the block.
    pub order: Order,
    /// Its migrate type.
    pub migrate: MigrateType,
    /// How badly it is needed.
    pub urgency: Urgency,
    /// Whether to fail rather than wait for the lock: for signal handlers, and for those who must not sleep.
    pub no_wait: bool,
}

impl Request {
    /// A block of `order` and `migrate`, of normal urgency.
    #[inline]
    pub const fn new(order: Order, migrate: MigrateType) -> Request {
        Request { order, migrate, urgency: Urgency::Normal, no_wait: false }
    }
}
