//! A page-frame allocator that places what it hands out.
//!
//! It has the Linux allocator's ideas, in user space: zones over ranges of frames, blocks of 2^0 to 2^10 frames that split and merge
//! with their buddies, page blocks with migrate types, per-CPU sets in front whose sizes tune themselves. What the kernel does not
//! have: bulk calls that cut runs of frames out of one block, exact shuffling of the free lists, and colouring, which leaves no two
//! frames in use competing for a place in a direct-mapped memory-side cache as long as there is another choice.
//!
//! Frames are numbers ([`FrameNo`]), and the books about them live in memory that the caller gives: so it can manage what it never
//! touches or cannot address, such as the memory of a virtual machine, hugetlb and DAX pools, or a modelled host. The crate
//! `isotherm-pools` puts memory behind the numbers.
//!
//! | module | job |
//! |---|---|
//! | [`zone`] | free lists, splitting and merging, migrate types, watermarks, hotplug, bulk; one lock |
//! | [`sets`] | per-CPU sets in front of a zone, in three tiers |
//! | [`colour`] | placement for a direct-mapped cache |
//! | [`percpu`] | stacks popped and pushed with restartable sequences |
//! | [`tune`] | how large a set may be: the kernel's formulas |
//! | [`housekeep`] | what sets keep too much, and idle ones, given back once an interval; CPUs spread over it |
//!
//! Without the feature `std` there is no operating system to wait with: locks spin, and the tier that needs restartable sequences
//! is absent.

#![cfg_attr(not(any(test, feature = "std")), no_std)]

pub mod colour;
pub mod housekeep;
mod kind;
mod lock;
mod memory;
pub mod percpu;
pub mod sets;
mod state;
pub mod tune;
pub mod zone;
mod zones;

pub use colour::{Choice, Colouring};
pub use housekeep::{Housekeeper, HousekeeperConfig, HousekeepingStats, Interval};
pub use isotherm_units::{FrameNo, FrameRange};
pub use kind::{MAX_ORDER, MigrateType, ORDERS, Order, PAGE_BLOCK_ORDER};
pub use memory::Metadata;
pub use sets::{Front, OwnedSet, Pace, Sets, SetsConfig, SetsError, Tidied, Tier};
pub use state::{FrameState, FreeError, WrongFree};
pub use zone::{
    AddError, AllocError, ConfigError, Offline, OfflineError, Request, Shuffling, Switch, Urgency, Watermarks, Zone,
    ZoneConfig, ZoneStats,
};
pub use zones::Zones;

/// The square root, rounded down.
const fn isqrt(n: u64) -> u64 {
    n.isqrt()
}

/// The examples of the guide, compiled and run.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../../../docs/design/frames.md")]
struct Guide;
