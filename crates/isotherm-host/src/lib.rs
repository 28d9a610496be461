//! What this machine and kernel offer: facts, and what follows from them.
//!
//! [`HostFacts`] is read once at the start, from files only, and judges nothing; [`assess`] turns facts into findings and
//! reads nothing. Apart, every machine can be tested without having it: a test takes a capable one and removes a thing.
//! Choosing a source and `isotherm doctor` both go by the findings.
//!
//! A fact is an `Option`: `None` says that it could not be found out, which is common in containers, and is not "no". What
//! is unknown is worth a try; what is absent is not.
//!
//! What memory is free changes by the second, so it is no part of those facts: [`isotherm_sys::free`] reads it each time.
//!
//! Nothing here writes or loads anything. Files are opened for reading; [`tlb`] opens counters, and [`cache_probe`] reads memory of our own.

#![forbid(unsafe_code)]

mod assess;
mod cache;
pub mod cache_probe;
pub mod events;
mod facts;
mod kernel;
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
pub use memory::{Mglru, NumaNode, Shuffle, Thp};
pub use placement::{PlacementCache, PlacementCaches, placement_caches, placement_caches_below};
pub use pmu::Pmu;
