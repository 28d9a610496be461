//! What this machine and kernel offer: facts, and the conclusions from them.
//!
//! [`HostFacts`] is read once at the start, from files only, and draws no conclusions; [`mod@assess`] turns facts into
//! findings and reads nothing. Since the two are separate, every machine can be tested without having it: a test takes
//! a capable one and removes a thing. The choice of a source and `isotherm doctor` both use the findings.
//!
//! A fact is an `Option`: `None` means that it could not be found out, which is common in containers, and does not mean
//! "no". What is unknown is worth a try; what is absent is not.
//!
//! Free memory changes by the second, so it is not among those facts: [`isotherm_sys::free`] reads it each time.
//!
//! Nothing here writes or loads anything. Files are opened for reading; [`tlb`] opens counters, and [`cache_probe`]
//! reads memory of our own.

#![forbid(unsafe_code)]

mod assess;
mod cache;
pub mod cache_probe;
pub mod events;
mod facts;
mod kernel;
mod machine;
mod memory;
mod placement;
mod pmu;
#[cfg(test)]
mod tests;
pub mod tlb;

pub use assess::{Area, Finding, State, assess};
pub use cache::{Doubt, Indexing, MemorySideCache, WritePolicy};
pub use facts::HostFacts;
pub use isotherm_sys::roots::HostRoots;
pub use kernel::{KernelConfig, Lockdown, Release};
pub use machine::Machine;
pub use memory::{Mglru, NumaNode, Shuffle, Thp};
pub use placement::{PlacementCache, PlacementCaches, placement_caches, placement_caches_below};
pub use pmu::Pmu;
