//! The home of system calls: advice to other processes, perf rings, `/proc` and cgroup readers.
//!
//! Everything that watches or changes processes and is above this crate is safe code without system calls of its own. The BPF
//! programs are in `isotherm-bpf`, so that this crate builds without clang and libbpf; the crates that hand out frames,
//! `isotherm-frames`, `-pools` and `-c`, have what they need of `unsafe` themselves. A safe interface comes out: descriptors and
//! mappings are owned by types, errors say what was attempted. Readers of `/proc`, `/sys` and cgroups take a root path, so that
//! tests run on made-up machines.

pub mod clear_refs;
pub mod clock;
pub mod counter;
pub mod damon;
pub mod descriptors;
pub mod frames;
pub mod free;
pub mod host;
pub mod lru;
pub mod lru_gen;
pub mod madvise;
pub mod memory;
pub mod pagemap;
mod pagemap_scan;
pub mod pagemap_zero;
pub mod peer;
pub mod perf;
pub mod pressure;
pub mod probe;
pub mod proc;
pub mod random;
pub mod signal;
pub mod target_lock;
pub mod tracepoint;

/// The page size of this kernel, in bytes.
pub fn page_size() -> u64 {
    // SAFETY: sysconf takes an integer and returns one.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0)
}
