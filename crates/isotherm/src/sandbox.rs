//! What a command may still do once it has opened what it needs: a policy for each use, applied by [`isotherm_sandbox`].
//!
//! [`crate::privileges`] drops what a command never needs, before it reads anything. This module drops the rest, after the source is open
//! and the user's command has started. A command adds up what it goes on doing ([`Uses`]), and calls [`Uses::enter`] once.
//!
//! Threads that were started before (the wait for the end of standard output, hang-ups) drop all capabilities themselves.

use crate::args::source::{ClearArg, SourceArg};
use crate::args::watching::WatchArgs;
use crate::output;
use isotherm_heat::source::AccessSource;
use isotherm_host::{HostRoots, Release};
use isotherm_sandbox::{Calls, Files, InForce, Part, Policy, Writes};
use isotherm_schemes::state::SandboxStatus;
use rustix::thread::{CapabilitySet, capabilities};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// `--no-sandbox` was given.
static IS_OFF: AtomicBool = AtomicBool::new(false);
/// What is in force, once a policy was applied.
static IN_FORCE: OnceLock<InForce> = OnceLock::new();

/// Applies no policy from now on.
pub fn switch_off() {
    IS_OFF.store(true, Ordering::Relaxed);
}

/// What is in force now.
pub fn in_force() -> InForce {
    IN_FORCE.get().cloned().unwrap_or_else(InForce::none)
}

/// What `isotherm status` reports of it.
pub fn status() -> SandboxStatus {
    let InForce { capabilities, system_calls, mounts, .. } = in_force();
    let text = |part: &Part| match part {
        Part::On => "on".to_owned(),
        Part::Off => "off".to_owned(),
        Part::NoPrivilege(why) => format!("no privilege: {why}"),
        Part::Unsupported(why) => format!("unsupported: {why}"),
    };
    SandboxStatus { capabilities, system_calls: text(&system_calls), mounts: text(&mounts) }
}

/// To read other processes: CAP_SYS_PTRACE for `maps` and `process_madvise`, CAP_DAC_READ_SEARCH for pagemap and `fd`.
const FOR_READING: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);
/// To write files into folders of other users, and into sticky ones.
const FOR_WRITING: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::FOWNER);
/// To open perf events and their rings.
const FOR_PERF: CapabilitySet = CapabilitySet::PERFMON.union(CapabilitySet::IPC_LOCK);
/// To load BPF programs.
const FOR_BPF: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::SYS_ADMIN);

/// What a command goes on doing after it has opened everything.
#[derive(Clone, Debug)]
pub struct Uses {
    capabilities: CapabilitySet,
    calls: Calls,
    writes: Writes,
}

impl Uses {
    /// Reads no other process, and writes nothing.
    pub fn nothing() -> Uses {
        Uses { capabilities: CapabilitySet::empty(), calls: Calls::FILES, writes: Writes::default() }
    }

    /// Watches processes with a source that is open.
    pub fn watching(args: &WatchArgs, source: &dyn AccessSource) -> Uses {
        if args.is_played() {
            return Uses::nothing();
        }
        let uses = Uses::of_source(source.describe().name, args.clear);
        let samples = args.sampling.is_given() || matches!(args.source, SourceArg::Perf | SourceArg::PerfPaddr);
        if samples { uses.perf_events() } else { uses }
    }

    /// Watches processes with the source of this name.
    pub fn of_source(name: &str, clear: ClearArg) -> Uses {
        let mut uses = Uses::nothing().and(FOR_READING, Calls::PROCESSES);
        let clears_refs = match name {
            "page-table" | "page-table+perf" => {
                // CAP_SYS_ADMIN shows the frame numbers of shared pages.
                uses = uses.and(CapabilitySet::SYS_NICE.union(CapabilitySet::SYS_ADMIN), Calls::BPF);
                if !bpf_is_free_of_capabilities() {
                    uses.capabilities |= FOR_BPF;
                }
                clear != ClearArg::Cold
            }
            "referenced" => true,
            "damon" | "damon-paddr" => {
                uses = uses.perf_events().and(FOR_WRITING, Calls::FILES);
                uses.writes.kernel.push("/sys/kernel/mm/damon".into());
                uses.writes.folders.extend(state_folder());
                false
            }
            _ => false,
        };
        if clears_refs {
            uses.capabilities |= CapabilitySet::DAC_OVERRIDE;
            uses.writes.processes = true;
        }
        if clear == ClearArg::Mglru {
            uses = uses.ageing();
        }
        if name.contains("perf") { uses.perf_events() } else { uses }
    }

    /// Reads the frames behind pages of other processes.
    pub fn frames() -> Uses {
        Uses::nothing().and(FOR_READING.union(CapabilitySet::SYS_ADMIN), Calls::PROCESSES)
    }

    /// Opens perf events for new targets.
    pub fn perf_events(self) -> Uses {
        self.and(FOR_PERF.union(CapabilitySet::SYS_ADMIN), Calls::PERF)
    }

    /// Reads what a BPF program collects that is loaded and attached.
    pub fn bpf_maps(self) -> Uses {
        let capabilities = if bpf_is_free_of_capabilities() { CapabilitySet::empty() } else { FOR_BPF };
        self.and(capabilities, Calls::BPF)
    }

    /// Makes huge pages, and counts TLB misses.
    pub fn collapsing(self) -> Uses {
        self.and(FOR_READING.union(CapabilitySet::SYS_NICE), Calls::PROCESSES).perf_events()
    }

    /// Pages memory out.
    pub fn paging_out(self) -> Uses {
        self.and(FOR_READING.union(CapabilitySet::SYS_NICE), Calls::PROCESSES)
    }

    /// Moves pages between memory tiers.
    pub fn migrating(self) -> Uses {
        self.and(FOR_READING, Calls::PROCESSES.and(Calls::MIGRATE))
    }

    /// Asks memory cgroups for their files.
    pub fn reclaiming(mut self) -> Uses {
        self.writes.kernel.push("/sys/fs/cgroup".into());
        self.and(CapabilitySet::empty(), Calls::FILES)
    }

    /// Ages memory cgroups through MGLRU.
    pub fn ageing(mut self) -> Uses {
        self.writes.kernel.push("/sys/kernel/debug".into());
        self.bpf_maps().and(FOR_WRITING.union(CapabilitySet::SYS_ADMIN), Calls::PROCESSES)
    }

    /// Opens the same source again when its settings change.
    pub fn opening_again(mut self) -> Uses {
        self.writes.processes = true;
        // MGLRU, if hints come from it by then.
        self.writes.kernel.push("/sys/kernel/debug".into());
        self.and(FOR_BPF.union(FOR_WRITING), Calls::BPF_LOAD).collapsing()
    }

    /// Answers clients of a socket, and removes it in the end.
    pub fn serving(self, socket: &Path) -> Uses {
        self.writing(socket).and(CapabilitySet::empty(), Calls::SERVE)
    }

    /// Writes this file, or folder, or replaces it.
    pub fn writing(mut self, path: &Path) -> Uses {
        self.writes.folders.extend(folders_of(path));
        self.and(FOR_WRITING, Calls::FILES)
    }

    /// Ends a command that it has started, which may have changed its user.
    pub fn ending_a_command(self) -> Uses {
        self.and(CapabilitySet::KILL, Calls::PROCESSES)
    }

    /// Both.
    pub fn with(mut self, other: Uses) -> Uses {
        self.writes.folders.extend(other.writes.folders);
        self.writes.kernel.extend(other.writes.kernel);
        self.writes.processes |= other.writes.processes;
        self.and(other.capabilities, other.calls)
    }

    fn and(self, capabilities: CapabilitySet, calls: Calls) -> Uses {
        Uses { capabilities: self.capabilities | capabilities, calls: self.calls.and(calls), ..self }
    }

    /// Drops everything else, for good. Prints one warning if the kernel lacks a part of the sandbox. Does nothing the second time: what
    /// was dropped cannot be had again, and a daemon that opens things again has said so the first time.
    pub fn enter(self) {
        if IS_OFF.load(Ordering::Relaxed) || IN_FORCE.get().is_some() {
            return;
        }
        let entered = isotherm_sandbox::enter(&self.policy());
        if let Some(warning) = entered.warning() {
            output::warn(warning);
        }
        let _ = IN_FORCE.set(entered);
    }

    fn policy(self) -> Policy {
        // Without CAP_SYS_PTRACE, a process can only be read by one that has all of its capabilities. So all are kept.
        let may_read_all = capabilities(None).is_ok_and(|had| had.permitted.contains(CapabilitySet::SYS_PTRACE));
        let reads_none = !self.capabilities.contains(CapabilitySet::SYS_PTRACE);
        Policy {
            capabilities: (may_read_all || reads_none).then_some(self.capabilities),
            calls: self.calls,
            writes: self.writes,
        }
    }
}

/// For a command that reads and writes files, and no other process. `read` and `written` are what its user has named.
pub fn files_only(read: &[&Path], written: &[&Path]) {
    if IS_OFF.load(Ordering::Relaxed) {
        return;
    }
    // Of the rest of the machine: the terminal, random numbers, time zones, and the number of CPUs.
    let of_the_machine = [
        "/dev",
        "/etc",
        "/usr/share",
        "/proc/self",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/sys/devices/system",
        "/sys/fs/cgroup",
    ];
    let files = Files {
        read: read.iter().map(|path| path.to_path_buf()).chain(of_the_machine.map(PathBuf::from)).collect(),
        written: written
            .iter()
            .flat_map(|path| folders_of(path))
            .chain(["/dev/tty".into(), "/dev/null".into()])
            .collect(),
    };
    let entered = isotherm_sandbox::files_only(&files);
    if let Some(warning) = entered.warning() {
        output::warn(warning);
    }
    let _ = IN_FORCE.set(entered);
}

/// The folder that `path` is in, or will be. Where it is a folder already, also that, which may be a mount of its own; where it is a link to a
/// file, the folder of the file.
fn folders_of(path: &Path) -> Vec<PathBuf> {
    let Ok(path) = std::path::absolute(path) else { return Vec::new() };
    let real = path.canonicalize().ok();
    let inner = real.as_deref().and_then(|real| if real.is_dir() { Some(real) } else { real.parent() });
    let outer = path.parent().unwrap_or(&path).canonicalize().ok();
    let mut folders: Vec<PathBuf> = outer.into_iter().chain(inner.map(Path::to_owned)).collect();
    folders.dedup();
    folders
}

/// Where the lock on DAMON, and its record, are.
fn state_folder() -> Option<PathBuf> {
    Some(isotherm_sys::damon::Places::default().state).filter(|folder| folder.is_dir())
}

/// Whether loaded BPF programs can be used without capabilities, whatever `kernel.unprivileged_bpf_disabled` is.
fn bpf_is_free_of_capabilities() -> bool {
    Release::running(&HostRoots::default()).is_some_and(|kernel| kernel.is_since(5, 19))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: CapabilitySet = FOR_READING.union(FOR_WRITING).union(FOR_PERF).union(FOR_BPF);

    #[test]
    fn each_use_keeps_what_the_platform_page_says() {
        let kept = |uses: Uses| uses.capabilities;
        let since_5_19 = bpf_is_free_of_capabilities();
        let cold = kept(Uses::of_source("page-table", ClearArg::Cold));
        assert!(cold.contains(FOR_READING | CapabilitySet::SYS_NICE | CapabilitySet::SYS_ADMIN));
        assert!(!cold.contains(CapabilitySet::DAC_OVERRIDE));
        assert_eq!(cold.contains(CapabilitySet::BPF), !since_5_19);
        assert!(kept(Uses::of_source("page-table", ClearArg::Auto)).contains(CapabilitySet::DAC_OVERRIDE));
        assert_eq!(kept(Uses::of_source("referenced", ClearArg::Auto)), FOR_READING | CapabilitySet::DAC_OVERRIDE);
        // Events of a new target are opened in the sandbox.
        for name in ["perf", "page-table+perf"] {
            assert!(kept(Uses::of_source(name, ClearArg::Cold)).contains(FOR_PERF), "{name}");
        }
        assert!(kept(Uses::nothing().collapsing()).contains(FOR_READING | FOR_PERF | CapabilitySet::SYS_NICE));
        assert!(kept(Uses::nothing().opening_again()).contains(EVERYTHING));
        assert_eq!(kept(Uses::nothing().writing(Path::new("r"))), FOR_WRITING);
        assert_eq!(kept(Uses::nothing().ending_a_command()), CapabilitySet::KILL);
        assert_eq!(kept(Uses::nothing()), CapabilitySet::empty());
        assert_eq!(kept(Uses::nothing().bpf_maps()).is_empty(), since_5_19);
    }

    #[test]
    fn what_is_written_is_the_folder_of_a_file_and_proc_where_bits_are_cleared() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        let uses = Uses::nothing().writing(Path::new("r")).writing(Path::new("/no/such/folder/r"));
        assert_eq!(uses.writes.folders, [here]);
        assert!(!uses.writes.processes);
        assert!(Uses::of_source("page-table", ClearArg::Auto).writes.processes);
        assert!(!Uses::of_source("page-table", ClearArg::Cold).writes.processes);
        let both = Uses::nothing().with(Uses::of_source("damon", ClearArg::Auto));
        assert_eq!(both.writes.kernel, [PathBuf::from("/sys/kernel/mm/damon")]);
        assert_eq!(folders_of(Path::new("/heat.isotherm")), [PathBuf::from("/")]);
    }

    #[test]
    fn a_folder_that_is_there_and_what_a_link_leads_to_are_written_too() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let [disk, elsewhere] = ["disk", "elsewhere"].map(|name| root.join(name));
        [&disk, &elsewhere].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        std::fs::write(elsewhere.join("map.png"), "").unwrap();
        std::os::unix::fs::symlink("elsewhere/map.png", root.join("map.png")).unwrap();
        assert_eq!(folders_of(&disk), [root.clone(), disk]);
        assert_eq!(folders_of(&root.join("map.png")), [root.clone(), elsewhere.clone()]);
        assert_eq!(folders_of(&elsewhere.join("map.png")), [elsewhere]);
        assert_eq!(folders_of(&root.join("new")), [root]);
    }
}
