//! That this process has restartable sequences, and on which CPU a thread is.

use super::arch;
use super::error::NoRseq;
use super::layout::Area;

/// That this process has restartable sequences: what [`Stacks`](super::Stacks) are made with.
#[derive(Clone, Copy, Debug)]
pub struct Rseq(pub(super) Area);

impl Rseq {
    /// Looks for them, and registers the process for `membarrier`. A few system calls; the answer holds for the
    /// process.
    pub fn check() -> Result<Rseq, NoRseq> {
        let area = arch::area()?;
        let cpu_id = arch::cpu_id(area);
        if cpu_id < 0 {
            return Err(NoRseq::ThreadNotRegistered { cpu_id });
        }
        arch::allow_restarts()?;
        Ok(Rseq(area))
    }

    /// The CPU that this thread was on just now. Below 1 ns; as [`current_cpu`] where the thread is not registered.
    #[inline]
    pub fn cpu(&self) -> u32 {
        u32::try_from(arch::cpu_id(self.0)).unwrap_or_else(|_| current_cpu())
    }
}

/// The CPU that this thread was on just now, by `sched_getcpu`: some 5 ns. 0 where there is no telling.
#[inline]
pub fn current_cpu() -> u32 {
    #[cfg(all(feature = "std", target_os = "linux", not(miri)))]
    // SAFETY: takes nothing and writes nothing.
    let cpu = unsafe { libc::sched_getcpu() };
    #[cfg(not(all(feature = "std", target_os = "linux", not(miri))))]
    let cpu = 0;
    u32::try_from(cpu).unwrap_or(0)
}
