//! How well the frames of processes are placed for a direct-mapped memory-side cache: their miss rate where they are,
//! and in other placements.
//!
//! - [`read`] reads frames from the page tables of processes. It is the only part that touches the machine, behind the
//!   feature of that name.
//! - [`heat`] weights each frame by how often its pages are accessed, if that is known.
//! - [`placed`] splits frames by node, since a cache serves its own node only.
//! - [`compute`] computes each node with the arithmetic of [`direct_mapped`].
//! - The result is a [`report`]: plain data. `isotherm-view` draws it. Options and progress bars belong to the command
//!   line. Nothing here writes.
//!
//! Frames come from processes, not from `/proc/kpageflags`. That file would include page cache and kernel memory, but
//! it does not show the owner of a frame or its heat.

#![forbid(unsafe_code)]

mod colours;
pub mod compute;
pub mod direct_mapped;
pub mod heat;
pub mod placed;
pub mod progress;
mod rates;
#[cfg(feature = "read")]
pub mod read;
pub mod report;
#[cfg(all(test, feature = "read"))]
mod tests;
