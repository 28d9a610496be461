//! A page-frame allocator that places what it hands out.

#![cfg_attr(not(any(test, feature = "std")), no_std)]

mod kind;

pub use isotherm_units::{FrameNo, FrameRange};
pub use kind::{MAX_ORDER, MigrateType, ORDERS, Order, PAGE_BLOCK_ORDER};
