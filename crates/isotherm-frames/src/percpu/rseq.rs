//! Whether this process has restartable sequences, and on which CPU a thread runs.

use super::arch;
use super::error::NoRseq;
use super::layout::Area;

/// Proof that this process has restartable sequences. [`Stacks`](super::Stacks) need it.
#[derive(Clone, Copy, Debug)]
pub struct Rseq(pub(super) Area);

impl Rseq {
    /// Checks for them, and registers the process for `membarrier`. Takes a few system calls; the result holds for the process.
    pub fn check() -> Result<Rseq, NoRseq> {
        let area = arch::area()?;
        let cpu_id = arch::cpu_id(area);
        if cpu_id < 0 {
            return Err(NoRseq::ThreadNotRegistered { cpu_id });
        }
        arch::allow_restarts()?;
        Ok(Rseq(area))
    }

    /// The CPU that this thread ran on just now. Below 1 ns. Falls back to [`current_cpu`] if the thread is not registered.
    #[inline]
    pub fn cpu(&self) -> u32 {
        u32::try_from(arch::cpu_id(self.0)).unwrap_or_else(|_| current_cpu())
    }
}

/// The CPU that this thread ran on just now, by `sched_getcpu`: some 5 ns. 0 if it is unknown.
#[inline]
pub fn current_cpu() -> u32 {
    #[cfg(all(feature = "std", target_os = "linux", not(miri)))]
    // SAFETY: takes no arguments and writes nothing.
    let cpu = unsafe { libc::sched_getcpu() };
    #[cfg(not(all(feature = "std", target_os = "linux", not(miri))))]
    let cpu = 0;
    u32::try_from(cpu).unwrap_or(0)
}
