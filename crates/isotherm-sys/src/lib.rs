//! The home of system calls: advice to other processes, perf rings, `/proc` and cgroup readers.
//!
//! Thin: it reads, writes and opens what it is asked to, and decides nothing. What a machine's files mean, and which events, counters or
//! caches it therefore has, is the business of `isotherm-host`; which access is looked for, of the sources. What is kept here beyond single
//! calls is what has to hold for whoever calls: who owns DAMON ([`damon`]), one monitor for each process ([`target_lock`]), descriptors
//! kept in reserve ([`descriptors`]), rings that follow threads and processors ([`perf`]).
//!
//! Everything that watches or changes processes and is above this crate is safe code without system calls of its own (`isotherm-bpf` has
//! the BPF programs; the crates that hand out frames, `isotherm-frames`, `-pools` and `-c`, have what they need of `unsafe` themselves). A
//! safe interface comes out: descriptors and mappings are owned by types, errors say what was attempted. Readers of `/proc`,
//! `/sys` and cgroups take a root path, so that tests run on made-up machines.

pub mod caps;
pub mod clear_refs;
pub mod clock;
pub mod counter;
pub mod cpus;
pub mod damon;
pub mod descriptors;
pub mod files;
pub mod frames;
pub mod free;
pub mod lru;
pub mod lru_gen;
pub mod madvise;
pub mod memory;
pub mod page_time;
pub mod pagemap;
mod pagemap_scan;
pub mod pagemap_zero;
pub mod peer;
pub mod perf;
pub mod pressure;
pub mod proc;
pub mod random;
mod rlimit;
pub mod roots;
pub mod runtime_dir;
pub mod signal;
pub mod target_lock;
pub mod tracepoint;

/// The page size of this kernel, in bytes.
pub fn page_size() -> u64 {
    // SAFETY: sysconf takes an integer and returns one.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0)
}
