//! Reads the page tables of other processes through BPF: accessed bits on stock kernels, without writing anything.
//!
//! [`Walker`] owns the loaded program (`walk.bpf.c`, which documents how the tables are walked and under which lock)
//! and the two arrays that it shares with us. `isotherm-sources` decides what to ask and how often. We attach an
//! `iter/task` program to one thread and look mappings up with `bpf_find_vma`. An `iter/task_vma` would step through
//! every mapping of the process before the one asked about, and would wait for the lock where `bpf_find_vma` uses
//! trylock.

mod answer;
mod error;
mod mapped;
mod self_check;
#[cfg(test)]
mod tests;
mod walker;

pub use answer::{Answer, Folio, FolioPmd, Kind, Op, Pass};
pub use error::Error;
pub use walker::{MAX_FOLIO_REQUESTS, MAX_REQUESTS, Walker};
