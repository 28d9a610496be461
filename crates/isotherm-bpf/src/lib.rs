//! The two BPF programs and what loads them: the only crate that needs clang to build, and libbpf.
//!
//! [`page_table`] reads accessed bits of other processes, for the sources of `isotherm-sources`. [`vmstat`] watches the periodic
//! drain of per-CPU lists and the waits for zone locks, for `isotherm herd`. They share the kernel types of `kernel_types.h` and
//! nothing else. They stand apart from `isotherm-sys`, so that whoever needs a system call or a reader of `/proc` builds without
//! a BPF toolchain. No policy: what to ask, and what an answer means, is decided by those who call.

pub mod page_table;
mod skeletons;
pub mod vmstat;
