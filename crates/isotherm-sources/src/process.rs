//! Which process a pid stands for, for sources that look it up in `/proc` each time: a pid is used again, and a process that
//! executes another program keeps its own.

use crate::Error;
use isotherm_heat::TargetId;
use isotherm_sys::proc::Proc;

/// A process that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub id: TargetId,
    /// What tells its program from another that it executes later.
    image: Option<(u64, u64)>,
}

impl Process {
    /// Who it is, and its name. Fails if it has no memory of its own.
    pub fn find(proc: &Proc, pid: u32) -> Result<(Process, String), Error> {
        let stat = proc.stat(pid)?;
        if stat.is_kernel_thread() || stat.is_zombie() {
            return Err(Error::NoMemory(pid));
        }
        let image = stat.image();
        Ok((Process { id: TargetId { pid, start_ticks: stat.start_ticks }, image }, stat.comm))
    }

    /// Whether it is still there and executes the same program.
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
