//! Which of the listed processes have frames to read, and their names.

use super::error::Error;
use crate::heat::Process;
use isotherm_sys::proc::Proc;

/// A process as it was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub pid: u32,
    /// Whether the user named it, so that it must be there.
    pub named: bool,
}

/// These processes, without heat. A process that the user named has to exist. Kernel threads have no frames to read:
/// with `all_named` they are kept, so that the reader reports the error.
pub fn resident(listed: impl IntoIterator<Item = Listed>, all_named: bool, proc: &Proc) -> Result<Vec<Process>, Error> {
    let mut processes = Vec::new();
    for Listed { pid, named } in listed {
        match proc.stat(pid) {
            // A kernel thread that the user did not name has no frames, so nothing is lost.
            Ok(stat) if stat.is_kernel_thread() && !all_named => {}
            Ok(stat) => processes.push(Process {
                start_ticks: Some(stat.start_ticks),
                comm: stat.comm,
                named,
                ..Process::of(pid)
            }),
            Err(error) if named && error.is_gone() => return Err(Error::NoSuch(pid)),
            Err(error) if named => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(processes)
}

/// Fills in the missing names of processes that still exist.
pub fn fill_in_names(processes: &mut [Process], proc: &Proc) {
    for process in processes.iter_mut().filter(|process| process.comm.is_empty()) {
        process.comm = proc.stat(process.pid).map(|stat| stat.comm).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has a pid beyond 4194304.
    const NONE: u32 = 1 << 30;

    #[test]
    fn who_is_gone_is_an_error_only_if_named() {
        let (proc, own) = (Proc::default(), std::process::id());
        let listed = |named| [own, NONE].map(|pid| Listed { pid, named });
        let mut found = resident(listed(false), false, &proc).unwrap();
        assert!(found.len() == 1 && found[0].pid == own && found[0].start_ticks.is_some(), "{found:?}");
        assert!(matches!(resident(listed(true), true, &proc), Err(Error::NoSuch(NONE))));
        let comm = std::mem::take(&mut found[0].comm);
        fill_in_names(&mut found, &proc);
        assert_eq!(found[0].comm, comm);
    }
}
