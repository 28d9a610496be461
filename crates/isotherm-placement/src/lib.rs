//! How well the frames of processes are placed for a direct-mapped memory-side cache: what they would miss where they lie, and where they
//! might.
//!
//! Frames are read from the page tables of processes ([`read`], the only part that touches the machine, behind the feature of that name),
//! weighed by how often each page is accessed if that is known ([`heat`]), split by node, since a cache serves its own node only
//! ([`placed`]), and computed node by node ([`compute`], by the arithmetic of [`direct_mapped`]). What comes out is a [`report`]: plain
//! data. Drawing it belongs to `isotherm-view`, options and progress bars to the command line. Nothing here writes.
//!
//! Frames are those of processes, not of `/proc/kpageflags`: that would count page cache and kernel memory as well, but not whose a frame
//! is nor how hot.

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
