//! Zone-lock contention by the kernel's periodic drain of per-CPU page lists: one set of types, and what follows from them.
//!
//! `vmstat_update` runs on each CPU about once a second and gives pages of its lists back to the zone, under the zone's lock.
//! [`Observed`] is what was seen of that in some time: `isotherm-bpf` fills it on a running kernel, tests write it by hand.
//! [`VmstatReport::of`] works out the rest: [`phases`] has what one CPU does and what CPUs do together, [`callers`] who waits and
//! where, [`verdict`] whether CPUs meet on the lock and what can be done. `isotherm-view` draws the report as text.
//!
//! Pure: no clock, nothing is read, no BPF. The same observation gives the same report. So the observer and the faces share types
//! without either needing the other.

#![forbid(unsafe_code)]

pub mod callers;
mod observed;
pub mod phases;
mod report;
#[cfg(test)]
mod tests;
pub mod verdict;

pub use observed::{Cause, Observed, Run, Runs, SeenWaiters, Wait, Waits};
pub use report::VmstatReport;
