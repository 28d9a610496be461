//! The home of system calls: advice to other processes, perf rings, `/proc` and cgroup readers.
//!
//! A thin layer: it reads, writes and opens what it is asked to, and makes no decisions. `isotherm-host` interprets a
//! machine's files and finds out which events, counters and caches it has. The sources decide which accesses are looked
//! for. Code here that goes beyond single calls enforces rules that must hold for every caller: ownership of DAMON
//! ([`damon`]), one monitor per process ([`target_lock`]), a reserve of descriptors ([`descriptors`]), and rings that
//! follow threads and CPUs ([`perf`]).
//!
//! All crates above this one that watch or change processes are safe code without system calls of their own. There are
//! two exceptions: `isotherm-bpf` has the BPF programs, and the allocator crates `isotherm-frames`, `-pools` and `-c`
//! have the `unsafe` code they need. The interface of this crate is safe: types own descriptors and mappings, and
//! errors name the attempted operation. Readers of `/proc`, `/sys` and cgroups take a root path, so that tests run on
//! made-up machines.

pub mod caps;
pub mod cgroup_names;
pub mod clear_refs;
pub mod clock;
pub mod counter;
pub mod cpus;
pub mod damon;
pub mod descriptors;
pub mod files;
pub mod folio_sizes;
pub mod frames;
pub mod free;
pub mod heap;
pub mod lru;
pub mod lru_gen;
pub mod madvise;
pub mod memory;
pub mod mounts;
pub mod move_pages;
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
pub mod room;
pub mod roots;
pub mod runtime_dir;
pub mod signal;
pub mod target_lock;
pub mod tiers;
pub mod tracepoint;

/// The page size of this kernel, in bytes.
pub fn page_size() -> u64 {
    // SAFETY: sysconf takes an integer and returns one.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0)
}
