//! Pools: memory behind the frames of [`isotherm_frames`], handed out as owned blocks.
//!
//! A [`Pool`] is a range of addresses, something that backs it, and a zone that knows which frames of it are free. Frame `f` lies
//! at one address for as long as the pool exists: `(f - first frame) * 4 KiB` from its start, and that start is chosen so that a
//! block of any order is aligned to its size in addresses as it is in frame numbers.
//!
//! | backing | made by | shared | after a fork |
//! |---|---|---|---|
//! | anonymous memory | [`PoolBuilder::anonymous`] | no | the child has a copy of its own |
//! | a memfd | [`PoolBuilder::memfd`] | by its descriptor | the parent's alone |
//! | huge pages of 2 MiB or 1 GiB, as a memfd | [`PoolBuilder::huge`] | by its descriptor | the parent's alone |
//! | a DAX device | [`PoolBuilder::dax`] | by the device | the parent's alone |
//! | nothing: frame numbers only | [`PoolBuilder::numbers`] | - | the child has books of its own |
//!
//! Blocks are handed out in two ways. [`Block`] and [`Blocks`] own what they stand for and give it back when dropped; with them, all
//! of this is safe. Frame numbers ([`Pool::alloc_frame`] and its kin) are for those who keep them in structures of their own, such as
//! page tables of a guest, and for the C interface: giving back a frame that someone else has got meanwhile would pull memory away
//! under a living block, so that is `unsafe`, even if freeing twice is found out and refused.
//!
//! Between the two stand per-CPU sets ([`isotherm_frames::sets`]): most calls see no lock.
//!
//! **Contents.** A block holds whatever its last user left in it. Memory of a fresh anonymous, memfd or hugetlb pool is zero, what
//! [`Pool::trim`] gave back is zero again, a DAX device holds what it held. [`Pool::alloc_zeroed`] clears.
//!
//! **Fork.** Forking is where two processes could come to hand out the same frames, or a child to wait for a lock whose owner it does
//! not have. So a page that the kernel wipes in children is looked at before every call (a load and a branch), and a child gets
//! [`Error::Forked`] instead. A pool that is not shared goes on in the child if the fork happened within [`Pool::while_quiet`]. There
//! is no `pthread_atfork` handler: what a library forks to run a program costs nothing here.
//!
//! System calls and the `unsafe` they take are in `memory` and `signals`; the few other places that need it are marked one by one.

#![deny(unsafe_code)]

mod backing;
mod block;
mod builder;
mod detect;
mod error;
mod frames;
mod handle;
mod housekeeping;
mod memory;
mod pool;
mod ranges;
mod resize;
mod shared;
mod signals;
mod source;

pub use backing::{Backing, HugeSize};
pub use block::{Block, Blocks};
pub use builder::PoolBuilder;
pub use error::Error;
pub use housekeeping::{Housekeeping, HousekeepingThread};
pub use isotherm_frames::{
    AddError, AllocError, Choice, Colouring, FrameNo, FrameRange, FrameState, FreeError, Interval, MigrateType,
    Offline, Order, Pace, Request, SetsError, Shuffling, Switch, Tier, Urgency, Watermarks, WrongFree, ZoneStats,
};
pub use isotherm_units::Bytes;
pub use pool::{Pool, PoolStats};

/// The examples of the guide, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/frames-and-pools.md")]
struct Guide;
