//! Privileges that no command of ours uses are given up before anything is read: a fault of ours then has less to misuse.
//!
//! This drops capabilities and, where no program is started, the way to get more. It is no sandbox: what is kept for watching
//! (CAP_SYS_ADMIN among them) is powerful. A command that is started (`-- COMMAND`, `--work`) keeps what the caller would have
//! given it: root's comes from the bounding set, which stays; a user's from the ambient set, which then stays too. And then only the
//! effective set is reduced: a program that gets more permitted capabilities by its `exec` than were there before it, as one of
//! root's would, is taken for a privileged one by the kernel, which gives it no core dumps and takes perf events from it.
//! docs/platform.md says what each capability is for.

use crate::cli::{Command, EventsCommand, InputArgs, ReportKind, TargetArgs};
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
enum Kind {
    /// Reads and writes files and sockets.
    Files,
    /// Watches processes; starts none.
    Watches,
    /// Watches processes, and starts a program of the user's.
    Starts,
    /// Reports what the caller may do, or is a workload.
    Untouched,
}

impl Kind {
    fn of(command: &Command) -> Kind {
        match command {
            Command::Convert(_) | Command::Hint(_) | Command::Status(_) => Kind::Files,
            Command::Report(args) => Kind::of_report(input(&args.kind)),
            Command::Record(args) => Kind::of_targets(&args.targets),
            Command::Top(args) => Kind::of_targets(&args.targets),
            Command::Placement(args) => Kind::of_targets(&args.targets),
            Command::Collapse(args) if args.work.is_some() => Kind::Starts,
            Command::Collapse(args) => Kind::of_targets(&args.targets),
            // The settings may name a command, if not now then when they are read again.
            Command::Run(args) if args.work.is_some() || args.config.is_some() => Kind::Starts,
            Command::Run(args) => Kind::of_targets(&args.targets),
            Command::Events(args) => match &args.what {
                EventsCommand::Try(args) => Kind::of_targets(&args.targets),
                EventsCommand::List { .. } => Kind::Watches,
            },
            Command::Herd(_) => Kind::Watches,
            Command::Demo(_) => Kind::Starts,
            Command::Doctor(_) | Command::Workload(_) => Kind::Untouched,
        }
    }

    fn of_report(input: &InputArgs) -> Kind {
        if input.is_recorded() { Kind::Files } else { Kind::of_targets(&input.targets) }
    }

    fn of_targets(targets: &TargetArgs) -> Kind {
        if targets.command.is_empty() { Kind::Watches } else { Kind::Starts }
    }
}

fn input(report: &ReportKind) -> &InputArgs {
    match report {
        ReportKind::Access(args) => &args.input,
        ReportKind::Heatmap(args) => &args.input,
        ReportKind::Wss(args) => &args.input,
        ReportKind::Histogram(args) => &args.input,
        ReportKind::Processes(args) | ReportKind::Cgroups(args) => &args.input,
    }
}

/// Gives up what `command` does not use. Threads inherit, so this comes before the first one. Where it is refused, by a filter of
/// system calls for one, there is nothing to do about it: the command works as well with more.
pub fn drop_unused(command: &Command) {
    let kind = Kind::of(command);
    let Ok(had) = capabilities(None) else { return };
    if let Some(kept) = kept(kind, had) {
        if kind != Kind::Starts {
            let _ = clear_ambient_capability_set();
        }
        let _ = set_capabilities(None, kept);
    }
    if matches!(kind, Kind::Files | Kind::Watches) {
        let _ = set_no_new_privs(true);
    }
}

/// What is left of the capabilities that this process `had`; `None` for all.
fn kept(kind: Kind, had: CapabilitySets) -> Option<CapabilitySets> {
    let needed = match kind {
        Kind::Files => FOR_FILES,
        // Without CAP_SYS_PTRACE a process can be read only by one that has all of its capabilities.
        Kind::Watches | Kind::Starts if !had.permitted.contains(CapabilitySet::SYS_PTRACE) => return None,
        Kind::Watches => FOR_WATCHING,
        Kind::Starts => return Some(CapabilitySets { effective: had.effective & FOR_WATCHING, ..had }),
        Kind::Untouched => return None,
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
    use crate::cli::Cli;
    use clap::Parser;

    fn kind_of(line: &str) -> Kind {
        Kind::of(&Cli::parse_from(["isotherm"].into_iter().chain(line.split_whitespace())).command)
    }

    #[test]
    fn a_command_that_starts_no_program_is_known_as_such() {
        for line in ["report wss", "report access rec", "convert a b", "status", "hint -p 1 1-2"] {
            assert_eq!(kind_of(line), Kind::Files, "{line}");
        }
        for line in
            ["report wss -p 1", "record -a", "top", "run -p 1", "collapse -p 1", "herd", "events try faults -p 1"]
        {
            assert_eq!(kind_of(line), Kind::Watches, "{line}");
        }
        for line in
            ["report wss -- x", "record -- x", "run -p 1 --work x", "run -c x", "collapse -p 1 --work x", "demo"]
        {
            assert_eq!(kind_of(line), Kind::Starts, "{line}");
        }
        assert_eq!(kind_of("doctor"), Kind::Untouched);
    }

    #[test]
    fn what_is_given_to_a_command_is_kept_and_the_rest_is_not() {
        let all = CapabilitySet::all();
        let had = CapabilitySets { effective: all, permitted: all, inheritable: all };
        let none = CapabilitySet::empty();
        let watches = kept(Kind::Watches, had).unwrap();
        assert_eq!((watches.permitted, watches.inheritable), (FOR_WATCHING, FOR_WATCHING));
        let starts = kept(Kind::Starts, had).unwrap();
        assert_eq!((starts.effective, starts.permitted, starts.inheritable), (FOR_WATCHING, all, all));
        assert!(!FOR_WATCHING.intersects(CapabilitySet::SETUID | CapabilitySet::NET_RAW | CapabilitySet::SYS_MODULE));
        let own = CapabilitySets { effective: none, permitted: CapabilitySet::NET_BIND_SERVICE, inheritable: none };
        assert_eq!(kept(Kind::Watches, own), None, "processes of ours with the same would be out of reach");
        assert_eq!(kept(Kind::Files, own).unwrap().permitted, none);
        assert_eq!(kept(Kind::Untouched, had), None);
    }
}
