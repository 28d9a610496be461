//! The back ends: how accessed bits are read and cleared on this machine, and how accesses are reported.
//!
//! Each implements the traits of [`isotherm_heat::source`] as far as it can, and has no policy: `isotherm-heat` makes
//! the requests and interprets the answers, driven by `isotherm-monitor`. A new back end is a module here and a line in
//! [`choose`].
//!
//! - [`page_table`]: page by page, through BPF. The default where it is available.
//! - [`referenced`]: mapping by mapping, through `clear_refs` and `smaps`. Needs no privilege.
//! - [`damon`]: regions, as the kernel's own monitor finds them. Available if nobody else uses it.
//! - [`perf`]: sampled accesses with addresses, as perf events report them. [`fused`] combines them with page tables.
//! - [`replay`]: a recording or a made-up history. Needs nothing.
//!
//! In addition, [`mglru`] reads page generations of the kernel's LRU, as hints. It is no source: it has no accessed
//! bits.

#![forbid(unsafe_code)]

pub mod choose;
pub mod damon;
mod error;
pub mod fused;
pub mod mglru;
pub mod page_table;
pub mod perf;
mod process;
pub mod referenced;
pub mod replay;
mod resident;
mod time;

pub use error::Error;
pub use time::RealClock;
