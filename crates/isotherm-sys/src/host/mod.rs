//! What this machine and kernel offer: facts, and what follows from them.
//!
//! [`HostFacts`] is read once at the start, from files only, and judges nothing; [`assess`] turns facts into findings and
//! reads nothing. Apart, every machine can be tested without having it: a test takes a capable one and removes a thing.
//! Choosing a source and `isotherm doctor` both go by the findings.
//!
//! A fact is an `Option`: `None` says that it could not be found out, which is common in containers, and is not "no". What
//! is unknown is worth a try; what is absent is not.
//!
//! What memory is free changes by the second, so it is no part of those facts: [`crate::free`] reads it each time.
//!
//! Nothing here writes, loads or opens anything but files for reading.

mod assess;
mod cache;
mod files;
mod kernel;
mod memory;
mod pmu;
#[cfg(test)]
mod tests;

pub use assess::{Area, Finding, State, assess};
pub use cache::{
    Doubt, Indexing, MemorySideCache, PlacementCache, PlacementCaches, WritePolicy, placement_caches,
    placement_caches_below,
};
pub use kernel::{Cap, Caps, KernelConfig, Lockdown, Release};
pub use memory::{Damon, Mglru, NumaNode, Shuffle, Thp};
pub use pmu::Pmu;

pub use files::{Tree, list_numbers};
pub(crate) use memory::meminfo;

use crate::proc::Proc;
use files::list_len;
use isotherm_units::Bytes;
use std::path::{Path, PathBuf};

/// Where the kernel's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/boot`, for the kernel's configuration.
    pub boot: PathBuf,
}

impl Default for HostRoots {
    fn default() -> HostRoots {
        HostRoots { proc: "/proc".into(), sys: "/sys".into(), boot: "/boot".into() }
    }
}

/// What is known about the machine. `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// The architecture this program was built for, as in `std::env::consts::ARCH`.
    pub arch: String,
    /// Bytes in a base page, as given by the caller.
    pub page_size: u64,
    /// The kernel.
    pub kernel: Option<Release>,
    /// How it was built.
    pub config: Option<KernelConfig>,
    /// Whether it describes its types to BPF programs.
    pub btf: Option<bool>,
    /// How far it protects itself; unknown where securityfs is not mounted.
    pub lockdown: Option<Lockdown>,
    /// Our effective capabilities.
    pub caps: Option<Caps>,
    /// Whether those count: they do only in the first user namespace.
    pub initial_user_namespace: Option<bool>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i32>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Option<i32>,
    /// `kernel.kptr_restrict`.
    pub kptr_restrict: Option<i32>,
    /// Whether `/proc/kallsyms` shows addresses to us.
    pub symbols_visible: Option<bool>,
    /// `kernel.yama.ptrace_scope`.
    pub ptrace_scope: Option<i32>,
    /// `kernel.numa_balancing`.
    pub numa_balancing: Option<i32>,
    /// Whether `/proc/PID/clear_refs` is there.
    pub clear_refs: Option<bool>,
    /// Whether `/proc/PID/smaps` is there.
    pub smaps: Option<bool>,
    /// Whether `/proc/PID/pagemap` is there.
    pub pagemap: Option<bool>,
    /// Whether `/proc/kpageflags` is there.
    pub kpageflags: Option<bool>,
    /// Transparent huge pages.
    pub thp: Thp,
    /// NUMA nodes with their memory-side caches.
    pub nodes: Option<Vec<NumaNode>>,
    /// Event sources.
    pub pmus: Option<Vec<Pmu>>,
    /// The multi-generation LRU.
    pub mglru: Mglru,
    /// DAMON.
    pub damon: Damon,
    /// Whether tracepoints can be reached through tracefs.
    pub tracefs: Option<bool>,
    /// Whether the bitmap of idle page tracking is there.
    pub page_idle: Option<bool>,
    /// Whether the kernel shuffles its free lists.
    pub shuffle: Shuffle,
    /// Whether pressure stall information is there.
    pub psi: Option<bool>,
    /// Model name of the processor.
    pub cpu_model: Option<String>,
    /// Processors online.
    pub cpus: Option<u32>,
    /// Memory of the machine.
    pub memory: Option<Bytes>,
    /// Swap space.
    pub swap: Option<Bytes>,
}

impl HostFacts {
    /// Reads all facts. The size of a base page is the caller's to ask for: it comes from a system call, not from a file.
    pub fn read(roots: &HostRoots, page_size: u64) -> HostFacts {
        let (proc, sys) = (Tree::at(&roots.proc), Tree::at(&roots.sys));
        let kernel = proc.text("sys/kernel/osrelease").and_then(|text| Release::parse(&text));
        let meminfo = proc.text("meminfo");
        let memory = |key| meminfo.as_deref().and_then(|text| memory::meminfo(text, key));
        let config = KernelConfig::read(&proc, &roots.boot, kernel.as_ref());
        HostFacts {
            arch: std::env::consts::ARCH.to_owned(),
            page_size,
            shuffle: Shuffle::read(&sys, config.as_ref()),
            config,
            kernel,
            btf: sys.exists("kernel/btf/vmlinux"),
            lockdown: Lockdown::read(&sys),
            caps: capabilities(&proc),
            initial_user_namespace: kernel::initial_user_namespace(&proc),
            perf_event_paranoid: proc.number("sys/kernel/perf_event_paranoid"),
            unprivileged_bpf_disabled: proc.number("sys/kernel/unprivileged_bpf_disabled"),
            kptr_restrict: proc.number("sys/kernel/kptr_restrict"),
            symbols_visible: kernel::symbols_visible(&proc),
            ptrace_scope: proc.number("sys/kernel/yama/ptrace_scope"),
            numa_balancing: proc.number("sys/kernel/numa_balancing"),
            clear_refs: proc.exists("self/clear_refs"),
            smaps: proc.exists("self/smaps"),
            pagemap: proc.exists("self/pagemap"),
            kpageflags: proc.exists("kpageflags"),
            thp: Thp::read(&sys),
            nodes: NumaNode::read_all(&sys),
            pmus: Pmu::read_all(roots, &sys),
            mglru: Mglru::read(&sys),
            damon: Damon::read(&Proc::at(&roots.proc), &sys),
            tracefs: tracefs(&sys),
            page_idle: sys.exists("kernel/mm/page_idle/bitmap"),
            psi: proc.exists("pressure/memory"),
            cpu_model: proc.text("cpuinfo").and_then(|text| cpu_model(&text)),
            cpus: cpus_online(&roots.sys),
            memory: memory("MemTotal"),
            swap: memory("SwapTotal"),
        }
    }

    /// Whether the kernel was built with an option; unknown without its configuration.
    pub fn option(&self, name: &str) -> Option<bool> {
        self.config.as_ref().map(|config| config.has(name))
    }

    /// Whether we may do what a capability is for. Without one counts in any namespace; with one only in the first.
    pub fn may(&self, cap: Cap) -> Option<bool> {
        if self.initial_user_namespace == Some(false) {
            return Some(false);
        }
        self.caps.map(|caps| caps.allows(cap))
    }

    /// Whether the kernel is of this version or later; unknown if its version is.
    pub fn kernel_since(&self, major: u32, minor: u32) -> Option<bool> {
        self.kernel.as_ref().map(|kernel| kernel.version >= (major, minor))
    }
}

fn capabilities(proc: &Tree<'_>) -> Option<Caps> {
    let status = proc.text("self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok().map(Caps)
}

/// How many processors are online; unknown if the kernel does not say.
pub fn cpus_online(sys: &Path) -> Option<u32> {
    Tree::at(sys).text("devices/system/cpu/online").and_then(|list| list_len(&list))
}

/// Whether we may have any perf event, whatever the settings; unknown if our capabilities are.
pub fn may_sample(proc: &Path) -> Option<bool> {
    let proc = Tree::at(proc);
    let initial = kernel::initial_user_namespace(&proc)?;
    Some(initial && capabilities(&proc)?.allows(Cap::Perfmon))
}

/// Mounted at its own place, or inside debugfs as on older systems. The directory alone is only where it would be mounted.
fn tracefs(sys: &Tree<'_>) -> Option<bool> {
    let places = [sys.exists("kernel/tracing/events"), sys.exists("kernel/debug/tracing/events")];
    if places.contains(&Some(true)) {
        return Some(true);
    }
    places.into_iter().collect::<Option<Vec<bool>>>().map(|_| false)
}

/// `model name` on x86; other architectures have it in other words or not at all.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    const KEYS: [&str; 3] = ["model name", "cpu model", "Model"];
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        KEYS.contains(&key.trim()).then(|| value.trim().to_owned())
    })
}
