//! Clocks of this process. Only the outer layers read them; `isotherm-heat` gets the time as an argument.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to; the clocks used below always exist.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    let positive = |n: i64| u64::try_from(n).unwrap_or(0);
    positive(t.tv_sec) * 1_000_000_000 + positive(t.tv_nsec)
}

/// Nanoseconds since boot, without jumps.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time that all threads of this process have used.
pub fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time that the calling thread has used.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds since the Unix epoch.
pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
