//! A page-frame allocator that controls placement.
//!
//! It follows the Linux page allocator, in user space: zones over ranges of frames, blocks of 2^0 to 2^10 frames that
//! split and merge with their buddies, page blocks with migrate types, and per-CPU lists whose sizes tune themselves.
//! It adds what the kernel lacks: bulk calls that cut runs of frames out of one block, exact shuffling of the free
//! lists, and colouring. With colouring, no two frames in use compete for a place in a direct-mapped memory-side cache
//! as long as there is another choice.
//!
//! Frames are numbers ([`FrameNo`]), and the caller supplies the memory for their metadata. So the allocator can manage
//! memory that it never touches or cannot address: the memory of a virtual machine, hugetlb and DAX pools, a modelled
//! host. The crate `isotherm-pools` puts memory behind the numbers.
//!
//! | module | job |
//! |---|---|
//! | [`zone`] | free lists, splitting and merging, migrate types, watermarks, hotplug, bulk; one lock |
//! | [`pcp`] | per-CPU lists in front of a zone, in three tiers |
//! | [`colour`] | placement for a direct-mapped cache |
//! | [`percpu`] | stacks popped and pushed with restartable sequences |
//! | [`tune`] | how large the lists of a CPU may be: the kernel's formulas |
//! | [`housekeep`] | periodic drain of lists that are too large or idle; CPUs spread over the interval |
//!
//! Without the feature `std` there is no operating system to wait with: locks spin, and the tier that needs restartable
//! sequences is absent.

#![cfg_attr(not(any(test, feature = "std")), no_std)]

pub mod colour;
pub mod housekeep;
mod kind;
mod lock;
mod memory;
pub mod pcp;
pub mod percpu;
mod state;
pub mod tune;
pub mod zone;
mod zones;

pub use colour::{Choice, Colouring};
pub use housekeep::{Housekeeper, HousekeeperConfig, HousekeepingStats, Interval};
pub use isotherm_units::{FrameNo, FrameRange};
pub use kind::{MAX_ORDER, MigrateType, ORDERS, Order, PAGE_BLOCK_ORDER};
pub use memory::Metadata;
pub use pcp::{Decayed, Front, OwnedPcpLists, Pace, PcpConfig, PcpError, PcpLists, Tier};
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

/// Compiles and runs the examples of the design page.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../../../docs/design/frames.md")]
struct Guide;

/// The example of the README, compiled and run.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
