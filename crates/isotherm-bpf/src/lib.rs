//! The two BPF programs and their loaders. No other crate needs clang to build, or libbpf.
//!
//! [`page_table`] reads accessed bits of other processes, for the sources of `isotherm-sources`. [`vmstat`] observes
//! the periodic drain of per-CPU lists and the waits for zone locks, for `isotherm zone-lock`. They share the kernel
//! types of `kernel_types.h` and nothing else. They are separate from `isotherm-sys`, so that users of a system call or
//! of a reader of `/proc` build without a BPF toolchain. No policy: callers decide what to ask, and what an answer means.

pub mod page_table;
mod skeletons;
pub mod vmstat;
