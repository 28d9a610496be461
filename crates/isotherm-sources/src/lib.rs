//! The back ends: how accessed bits are read and cleared on this machine, and how accesses are reported by it.
//!
//! Each implements [`isotherm_heat::source`]'s traits as far as it can, and has no policy: `isotherm-heat` asks and understands the
//! answers, driven by `isotherm-monitor`. Adding one means a module here and a line in [`choose`].
//!
//! - [`page_table`]: page by page, through BPF. The default where it can be had.
//! - [`referenced`]: mapping by mapping, through `clear_refs` and `smaps`. Needs no privilege.
//! - [`damon`]: regions, as the kernel's own monitor finds them. Where nobody else uses it.
//! - [`perf`]: sampled accesses with addresses, as perf events report them. [`fused`] has them beside page tables.
//! - [`replay`]: a recording or a made-up history. Needs nothing.
//!
//! Beside them, [`mglru`] reads what the kernel's own LRU knows of pages, as hints: no source, for it has no accessed bits.

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
