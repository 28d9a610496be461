//! Identity of a process, for sources that look up its pid in `/proc` each time: pids are reused, and a process that
//! executes another program keeps its pid.

use crate::Error;
use isotherm_heat::TargetId;
use isotherm_sys::proc::Proc;

/// A monitored process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub id: TargetId,
    /// Distinguishes its program from another that it executes later.
    image: Option<(u64, u64)>,
}

impl Process {
    /// Its identity and its name. Fails if it has ended, or has no memory of its own.
    pub fn find(proc: &Proc, pid: u32) -> Result<(Process, String), Error> {
        let stat = proc.stat(pid)?;
        if stat.has_ended() {
            return Err(Error::Gone(pid));
        }
        if !stat.has_memory() {
            return Err(Error::NoMemory(pid));
        }
        let image = stat.image();
        Ok((Process { id: TargetId { pid, start_ticks: stat.start_ticks }, image }, stat.comm))
    }

    /// Checks that it still exists and executes the same program.
    pub fn check(&self, proc: &Proc) -> Result<(), Error> {
        let pid = self.id.pid;
        let stat = proc.stat(pid)?;
        if stat.start_ticks != self.id.start_ticks || stat.has_ended() {
            return Err(Error::Gone(pid));
        }
        match (self.image, stat.image()) {
            (Some(before), Some(now)) if before != now => Err(Error::Replaced(pid)),
            _ => Ok(()),
        }
    }
}
