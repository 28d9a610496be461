//! Privileges that no command of ours uses are given up before anything is read: a fault of ours then has less to misuse.
//!
//! This drops capabilities and, where no program is started, the way to get more. It is no sandbox: what is kept for watching
//! (CAP_SYS_ADMIN among them) is powerful. A command that is started (`-- COMMAND`, `--work`) keeps what the caller would have
//! given it: root's comes from the bounding set, which stays; a user's from the ambient set, which then stays too. And then only the
//! effective set is reduced: a program that gets more permitted capabilities by its `exec` than were there before it, as one of
//! root's would, is taken for a privileged one by the kernel, which gives it no core dumps and takes perf events from it.
//! docs/reference/platform.md says what each capability is for.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
};

/// To read and write files as before: other users' recordings, sockets, and directories in which only an owner may delete.
const FOR_FILES: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::FOWNER);

/// To watch and to change other processes, and to end those that were started.
const FOR_WATCHING: CapabilitySet = FOR_FILES
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::KILL);

/// What a command does, as far as privileges go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It reads and writes files and sockets.
    Files,
    /// It watches processes, and starts none.
    Watching,
    /// It watches processes, and starts a program of the user's.
    Starting,
    /// It reports what the caller may do, or is a workload: nothing is given up.
    Everything,
}

/// Gives up what a command does not need. Threads inherit, so this comes before the first one. Where it is refused, by a filter of
/// system calls for one, there is nothing to do about it: the command works as well with more.
pub fn drop_unused(needs: Needs) {
    let Ok(had) = capabilities(None) else { return };
    if let Some(kept) = kept(needs, had) {
        if needs != Needs::Starting {
            let _ = clear_ambient_capability_set();
        }
        let _ = set_capabilities(None, kept);
    }
    if matches!(needs, Needs::Files | Needs::Watching) {
        let _ = set_no_new_privs(true);
    }
}

/// What is left of the capabilities that this process `had`; `None` for all.
fn kept(needs: Needs, had: CapabilitySets) -> Option<CapabilitySets> {
    let needed = match needs {
        Needs::Files => FOR_FILES,
        // Without CAP_SYS_PTRACE a process can be read only by one that has all of its capabilities.
        Needs::Watching | Needs::Starting if !had.permitted.contains(CapabilitySet::SYS_PTRACE) => return None,
        Needs::Watching => FOR_WATCHING,
        Needs::Starting => return Some(CapabilitySets { effective: had.effective & FOR_WATCHING, ..had }),
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
        let watches = kept(Needs::Watching, had).unwrap();
        assert_eq!((watches.permitted, watches.inheritable), (FOR_WATCHING, FOR_WATCHING));
        let starts = kept(Needs::Starting, had).unwrap();
        assert_eq!((starts.effective, starts.permitted, starts.inheritable), (FOR_WATCHING, all, all));
        assert!(!FOR_WATCHING.intersects(CapabilitySet::SETUID | CapabilitySet::NET_RAW | CapabilitySet::SYS_MODULE));
        let own = CapabilitySets { effective: none, permitted: CapabilitySet::NET_BIND_SERVICE, inheritable: none };
        assert_eq!(kept(Needs::Watching, own), None, "processes of ours with the same would be out of reach");
        assert_eq!(kept(Needs::Files, own).unwrap().permitted, none);
        assert_eq!(kept(Needs::Everything, had), None);
    }
}
