//! The calling thread: the CPU on which it runs, and how often it was preempted. Programs that time their threads omit
//! the measurements during which that happened. The standard library does not offer this. It is the only part of this
//! library that makes system calls itself.

use anyhow::{Result, ensure};
use std::io;
use std::mem;

/// CPUs that it may run on, in ascending order.
pub fn allowed_cpus() -> Result<Vec<u32>> {
    // SAFETY: plain data for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: writes at most the size given.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    ensure!(result == 0, io::Error::last_os_error());
    // SAFETY: the number is below the bits of the set.
    let cpus = (0..8 * size_of_val(&set)).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) });
    cpus.map(|cpu| Ok(u32::try_from(cpu)?)).collect()
}

/// Pins it to a CPU: one of [`allowed_cpus`].
pub fn pin(cpu: u32) -> io::Result<()> {
    // SAFETY: plain data for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the number is that of a CPU in such a set.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: reads the set given.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How often it was preempted.
pub fn involuntary_switches() -> i64 {
    // SAFETY: plain data for which zeros are valid.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `usage` is valid for writes; the calling thread always exists.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw
}
