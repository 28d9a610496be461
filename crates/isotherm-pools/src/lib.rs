//! Pools: memory behind the frames of [`isotherm_frames`], allocated as owned blocks.
//!
//! A [`Pool`] is a range of addresses, a backing, and a zone that records which frames are free. Frame `f` has the same
//! address for as long as the pool exists: `(f - first frame) * 4 KiB` from its start. The start is chosen so that the
//! address of a block is aligned to its size, as its frame number is.
//!
//! | backing | made by | shared | after a fork |
//! |---|---|---|---|
//! | anonymous memory | [`PoolBuilder::anonymous`] | no | the child has its own copy |
//! | a memfd | [`PoolBuilder::memfd`] | by its descriptor | only the parent uses it |
//! | huge pages of 2 MiB or 1 GiB, as a memfd | [`PoolBuilder::huge`] | by its descriptor | only the parent uses it |
//! | a DAX device | [`PoolBuilder::dax`] | by the device | only the parent uses it |
//! | nothing: frame numbers only | [`PoolBuilder::numbers`] | - | the child has its own metadata |
//!
//! Blocks can be allocated in two ways. [`Block`] and [`Blocks`] own their memory and free it when dropped; using them
//! is safe. Frame numbers ([`Pool::alloc_frame`] and similar) are for the C bindings, and for callers that keep numbers
//! in data structures such as page tables of a guest. Freeing a frame that has a new owner by now would remove memory
//! from under a live block. So that is `unsafe`, even though double frees are detected and refused.
//!
//! Per-CPU lists ([`isotherm_frames::pcp`]) stand in front of the zone, so most calls take no lock.
//!
//! **Contents.** A block holds what its last owner left in it. Memory of a fresh anonymous, memfd or hugetlb pool is
//! zero. Memory that [`Pool::trim`] returned to the system is zero again. A DAX device holds what it held before.
//! [`Pool::alloc_zeroed`] clears.
//!
//! **Fork.** After a fork, two processes could allocate the same frames, or a child could wait for a lock whose owner
//! it does not have. So every call first checks a page that the kernel wipes in children (a load and a branch), and a
//! child gets [`Error::Forked`]. If the fork happened within [`Pool::while_quiet`], the child can continue to use a
//! pool that is not shared. There is no `pthread_atfork` handler: forks that only run a program cost nothing here.
//!
//! System calls and the `unsafe` that they need are in `memory` and `signals`. The few other places that need it are
//! marked one by one.

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
    Offline, Order, Pace, PcpError, Request, Shuffling, Switch, Tier, Urgency, Watermarks, WrongFree, ZoneStats,
};
pub use isotherm_units::Bytes;
pub use pool::{Pool, PoolStats};

/// Compiles and runs the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/frames-and-pools.md")]
struct Guide;

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
