//! Zone-lock contention caused by the kernel's periodic drain of per-CPU page lists: the types of an observation, and
//! its analysis.
//!
//! `vmstat_update` runs on each CPU about once a second and returns pages of its pcp lists to the zone, under the
//! zone's lock. [`Observed`] is an observation of that over some period: `isotherm-bpf` fills it on a running kernel,
//! and tests write it by hand. [`VmstatReport::of`] analyses it: [`phases`] covers the runs of each CPU and of all CPUs
//! together, [`callers`] shows who waits and where, and [`verdict`] decides whether CPUs contend for the lock and what
//! can be done. `isotherm-view` draws the report as text.
//!
//! Pure: no clock, no I/O, no BPF. The same observation always gives the same report. The observer and the front ends
//! share these types and do not depend on each other.

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
