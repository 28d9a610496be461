//! Allocation requests, and why they fail.

use super::watermark::Urgency;
use crate::{FrameNo, FrameState, MigrateType, ORDERS, Order};
use thiserror::Error;

/// Why an allocation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AllocError {
    /// There is no free block of this order or a larger one.
    #[error("allocate {order:?}: no free block; free blocks by order: {free_blocks:?}")]
    Exhausted {
        /// The order that was requested.
        order: Order,
        /// Free blocks by order.
        free_blocks: [u32; ORDERS],
    },
    /// There are free frames, but they are reserved for more urgent requests.
    #[error("allocate {order:?}: {free} frames are free, and the last {kept} are reserved for more urgent requests")]
    Kept {
        /// The order that was requested.
        order: Order,
        /// Free frames.
        free: u64,
        /// Frames that a request of this urgency must leave free.
        kept: u64,
    },
    /// Another thread holds the lock, and the request does not wait.
    #[error("allocate {0:?} without waiting: the zone is locked")]
    Locked(Order),
    /// The requested block is not free.
    #[error("allocate {order:?} at {frame:?}: not free, but {state:?}")]
    Taken {
        /// Its first frame.
        frame: FrameNo,
        /// Its order.
        order: Order,
        /// The state of that frame.
        state: FrameState,
    },
}

/// An allocation request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// The order of the block.
    pub order: Order,
    /// Its migrate type.
    pub migrate: MigrateType,
    /// How far below the watermark it may go.
    pub urgency: Urgency,
    /// Whether to fail instead of waiting for the lock: for signal handlers, and for callers that must not sleep.
    pub no_wait: bool,
}

impl Request {
    /// A block of `order` and `migrate`, with normal urgency.
    #[inline]
    pub const fn new(order: Order, migrate: MigrateType) -> Request {
        Request { order, migrate, urgency: Urgency::Normal, no_wait: false }
    }
}
