//! `/proc/PID/clear_refs`: clears accessed bits of a whole process, or flushes its TLB.
//!
//! The kernel holds the mmap *write* lock for the whole walk, so page faults of the target wait. Callers measure the
//! time and use it rarely. It clears what `MADV_COLD` refuses: locked mappings and pages that several processes map.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Which accessed bits to clear. None of these flushes the TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clear {
    /// Of all mappings.
    All,
    /// Of anonymous mappings.
    Anonymous,
    /// Of mappings with a file, shared memory included.
    File,
}

/// Clears accessed bits of process `pid` below `proc`.
pub fn clear(proc: &Path, pid: u32, which: Clear) -> io::Result<()> {
    let digit = match which {
        Clear::All => b"1",
        Clear::Anonymous => b"2",
        Clear::File => b"3",
    };
    write(proc, pid, digit)
}

/// Flushes the TLB entries of process `pid`: `4` clears soft-dirty bits and flushes.
///
/// Only for kernels without soft-dirty ([`crate::pagemap::kernel_has_soft_dirty`]): with it, every page would be
/// write-protected and fault once.
pub fn flush_tlb(proc: &Path, pid: u32) -> io::Result<()> {
    write(proc, pid, b"4")
}

fn write(proc: &Path, pid: u32, digit: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(proc.join(pid.to_string()).join("clear_refs"))?.write_all(digit)
}
