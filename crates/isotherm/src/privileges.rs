//! Drops privileges that a command does not use, before anything is read, so that a bug can do less harm.
//!
//! This drops capabilities. A command that starts no program also sets `no_new_privs`, so that it cannot regain them. This is no
//! sandbox: the capabilities kept for watching, CAP_SYS_ADMIN among them, are powerful.
//!
//! A program that we start (`-- COMMAND`, `--work`) gets the capabilities that the caller would have given it. Root's come from the
//! bounding set, which is never reduced. A user's come from the ambient set, which is kept if a program is started. In that case only the
//! effective set is reduced. Otherwise `exec` would give root's program more permitted capabilities than we had before it. The kernel
//! treats such a program as privileged: it gets no core dumps, and its perf events are removed.
//!
//! A user may have capabilities by the file of this program (`setcap`) or by a unit. They are for processes: files that such a user names are
//! opened with the user's own rights ([`as_user`]), or CAP_DAC_READ_SEARCH, which pagemap takes, would open every file of the machine.
//! docs/reference/platform.md lists what each capability is for.

use anyhow::{Context, Result};
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

/// To read and write files as before: other users' recordings, sockets, and files in sticky directories.
const FOR_FILES: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::FOWNER);

/// To watch and to change other processes, to end those that were started, and to give the socket of the stream to a group. The sandbox
/// leaves less.
const FOR_WATCHING: CapabilitySet = FOR_FILES
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::KILL);

/// To start a program as another user, and without any capability that exec would give it.
const FOR_ANOTHER_USER: CapabilitySet =
    CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::SETPCAP);

/// What a command does, as far as privileges go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It reads and writes files and sockets.
    Files,
    /// It watches processes, and starts none.
    Watching,
    /// It watches processes, and starts a program of the user's.
    Starting,
    /// It watches processes, and starts a program of ours as another user.
    Serving,
    /// It reports what the caller may do, or is a workload. Nothing is dropped.
    Everything,
}

/// Drops what a command does not need. Call it before the first thread is started, because threads inherit capabilities. Errors, as from
/// a seccomp filter, are ignored: the command also works with more privileges.
pub fn drop_unused(needs: Needs) {
    let Ok(had) = capabilities(None) else { return };
    if let Some(kept) = kept(needs, had, geteuid().is_root()) {
        if !matches!(needs, Needs::Starting | Needs::Serving) {
            let _ = clear_ambient_capability_set();
        }
        let _ = set_capabilities(None, kept);
    }
    if matches!(needs, Needs::Files | Needs::Watching) {
        let _ = set_no_new_privs(true);
    }
}

/// Opens what the user has named, without the capabilities that reach files of others. Root has them for that. Fails where they cannot be set aside.
pub fn as_user<T>(open: impl FnOnce() -> Result<T>) -> Result<T> {
    let had = capabilities(None).context("read our capabilities")?;
    if geteuid().is_root() || !had.effective.intersects(FOR_FILES) {
        return open();
    }
    let own = CapabilitySets { effective: had.effective - FOR_FILES, ..had };
    set_capabilities(None, own).context("set aside the capabilities that reach files of others")?;
    let opened = open();
    // They are permitted, so this cannot be refused; and with less, processes are out of reach, and no file is open that should not be.
    let _ = set_capabilities(None, had);
    opened
}

/// Leaves nothing to programs that this thread starts from now on: no capability that exec gives to root or from the ambient set, and none
/// from a program's file. What this process has itself stays. Errors are ignored, as above.
pub fn none_for_programs() {
    let _ = clear_ambient_capability_set();
    for capability in CapabilitySet::all().iter() {
        let _ = remove_capability_from_bounding_set(capability);
    }
    let _ = set_no_new_privs(true);
}

/// The capabilities to keep of those that this process `had`. `None` to keep all.
fn kept(needs: Needs, had: CapabilitySets, is_root: bool) -> Option<CapabilitySets> {
    let needed = match needs {
        Needs::Files if is_root => FOR_FILES,
        Needs::Files => CapabilitySet::empty(),
        // Without CAP_SYS_PTRACE, a process can only be read by one that has all of its capabilities. So all are kept.
        Needs::Watching | Needs::Starting | Needs::Serving if !had.permitted.contains(CapabilitySet::SYS_PTRACE) => {
            return None;
        }
        Needs::Watching => FOR_WATCHING,
        Needs::Starting => return Some(CapabilitySets { effective: had.effective & FOR_WATCHING, ..had }),
        Needs::Serving => {
            return Some(CapabilitySets { effective: had.effective & FOR_WATCHING.union(FOR_ANOTHER_USER), ..had });
        }
        Needs::Everything => return None,
    };
    Some(CapabilitySets {
        permitted: had.permitted & needed,
        effective: had.effective & needed,
        inheritable: had.inheritable & needed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_to_a_command_is_kept_and_the_rest_is_not() {
        let all = CapabilitySet::all();
        let had = CapabilitySets { effective: all, permitted: all, inheritable: all };
        let none = CapabilitySet::empty();
        let watches = kept(Needs::Watching, had, true).unwrap();
        assert_eq!((watches.permitted, watches.inheritable), (FOR_WATCHING, FOR_WATCHING));
        let starts = kept(Needs::Starting, had, true).unwrap();
        assert_eq!((starts.effective, starts.permitted, starts.inheritable), (FOR_WATCHING, all, all));
        assert!(!FOR_WATCHING.intersects(CapabilitySet::SETUID | CapabilitySet::NET_RAW | CapabilitySet::SYS_MODULE));
        let own = CapabilitySets { effective: none, permitted: CapabilitySet::NET_BIND_SERVICE, inheritable: none };
        assert_eq!(kept(Needs::Watching, own, true), None, "processes of ours with the same would be out of reach");
        assert_eq!(kept(Needs::Files, own, true).unwrap().permitted, none);
        let files = |is_root| kept(Needs::Files, had, is_root).unwrap().permitted;
        assert_eq!((files(true), files(false)), (FOR_FILES, none), "other users' files are open to root alone");
        assert_eq!(kept(Needs::Everything, had, true), None);
    }
}
