//! CPU time of a program.

use anyhow::{Context, Result};
use isotherm_sys::proc::Proc;
use std::fs;

/// The unit of `/proc/PID/stat`: `USER_HZ` is 100 on every machine that this runs on.
const TICK_NS: u64 = 10_000_000;

/// CPU time that a process has used.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// In nanoseconds if the kernel reports it; otherwise the sum of user and system time.
    pub total_ns: f64,
    /// In ticks, and in most cases sampled by the kernel: for 3 s, accurate to a few percent.
    pub user_ns: f64,
    /// The same of the kernel.
    pub system_ns: f64,
    /// Time for which it was runnable but had no core; 0 if the kernel does not report it.
    pub waited_ns: f64,
}

impl Cpu {
    /// What process `pid` has used so far.
    pub fn of(pid: u32) -> Result<Cpu> {
        let stat = Proc::default().stat(pid).context("read the CPU time of a program")?;
        let ns = |ticks: u64| (ticks * TICK_NS) as f64;
        let (user_ns, system_ns) = (ns(stat.utime), ns(stat.stime));
        let (total_ns, waited_ns) = schedstat(pid).unwrap_or((user_ns + system_ns, 0.0));
        Ok(Cpu { total_ns, user_ns, system_ns, waited_ns })
    }

    /// What was used after `before`.
    pub fn since(self, before: Cpu) -> Cpu {
        Cpu {
            total_ns: self.total_ns - before.total_ns,
            user_ns: self.user_ns - before.user_ns,
            system_ns: self.system_ns - before.system_ns,
            waited_ns: self.waited_ns - before.waited_ns,
        }
    }
}

/// Time for which all threads have run, and waited for a core, if the kernel records that (`CONFIG_SCHED_INFO`). The
/// time of threads that have ended would be lost, but neither Redis nor the daemon ends threads while it runs.
fn schedstat(pid: u32) -> Option<(f64, f64)> {
    let (mut run, mut waited) = (0.0, 0.0);
    for thread in fs::read_dir(Proc::default().path(pid, "task")).ok()? {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        let mut words = text.split_whitespace().map(str::parse::<f64>);
        run += words.next()?.ok()?;
        waited += words.next()?.ok()?;
    }
    Some((run, waited))
}
