//! Facts about the machine, read once, from files only.
//!
//! The modules next to this one define the parts and read them; this one combines them. [`mod@crate::assess`] draws the
//! conclusions.

use crate::kernel::{self, KernelConfig, Lockdown, Release};
use crate::machine::Machine;
use crate::memory::{Mglru, NumaNode, Shuffle, Thp};
use crate::pmu::Pmu;
use isotherm_sys::caps::{self, Cap, Caps};
use isotherm_sys::damon;
use isotherm_sys::files::Tree;
use isotherm_sys::proc::Proc;
use isotherm_sys::roots::HostRoots;
use isotherm_units::Bytes;

/// Facts about the machine. `None` is unknown.
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
    /// Whether it has BTF for BPF programs.
    pub btf: Option<bool>,
    /// Its lockdown mode; unknown where securityfs is not mounted.
    pub lockdown: Option<Lockdown>,
    /// Our effective capabilities.
    pub caps: Option<Caps>,
    /// Whether the capabilities count: they do only in the first user namespace.
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
    pub damon: damon::Usage,
    /// Whether tracepoints can be reached through tracefs.
    pub tracefs: Option<bool>,
    /// Whether the bitmap of idle page tracking is there.
    pub page_idle: Option<bool>,
    /// Whether the kernel shuffles its free lists.
    pub shuffle: Shuffle,
    /// Whether pressure stall information is there.
    pub psi: Option<bool>,
    /// Whether cgroups of version 2 control memory.
    pub memory_cgroups: Option<bool>,
    /// Model name of the CPU.
    pub cpu_model: Option<String>,
    /// CPUs online.
    pub cpus: Option<u32>,
    /// Memory of the machine.
    pub memory: Option<Bytes>,
    /// Swap space.
    pub swap: Option<Bytes>,
}

impl HostFacts {
    /// Reads all facts. The caller passes the size of a base page, which comes from a system call and not from a file.
    pub fn read(roots: &HostRoots, page_size: u64) -> HostFacts {
        let (proc, sys) = (Tree::at(&roots.proc), Tree::at(&roots.sys));
        let Machine { kernel, cpu_model, cpus, memory, swap } = Machine::read(roots);
        let config = KernelConfig::read(&proc, &roots.boot, kernel.as_ref());
        HostFacts {
            arch: std::env::consts::ARCH.to_owned(),
            page_size,
            shuffle: Shuffle::read(&sys, config.as_ref()),
            config,
            kernel,
            btf: sys.exists("kernel/btf/vmlinux"),
            lockdown: Lockdown::read(&sys),
            caps: Caps::effective(&proc),
            initial_user_namespace: caps::initial_user_namespace(&proc),
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
            damon: damon::Usage::read(&Proc::at(&roots.proc), &sys),
            tracefs: tracefs(&sys),
            page_idle: sys.exists("kernel/mm/page_idle/bitmap"),
            psi: proc.exists("pressure/memory"),
            memory_cgroups: memory_cgroups(&sys),
            cpu_model,
            cpus,
            memory,
            swap,
        }
    }

    /// Whether the kernel was built with an option; unknown without its configuration.
    pub fn option(&self, name: &str) -> Option<bool> {
        self.config.as_ref().map(|config| config.has(name))
    }

    /// Whether we may do what a capability is for. A missing one counts in any namespace, a present one only in the
    /// first.
    pub fn may(&self, cap: Cap) -> Option<bool> {
        if self.initial_user_namespace == Some(false) {
            return Some(false);
        }
        self.caps.map(|caps| caps.allows(cap))
    }

    /// Whether the kernel is of this version or later; unknown if its version is.
    pub fn kernel_since(&self, major: u32, minor: u32) -> Option<bool> {
        self.kernel.as_ref().map(|kernel| kernel.is_since(major, minor))
    }
}

/// Mounted at its own place, or inside debugfs as on older systems. The directory alone does not mean that it is
/// mounted.
fn tracefs(sys: &Tree<'_>) -> Option<bool> {
    let places = [sys.exists("kernel/tracing/events"), sys.exists("kernel/debug/tracing/events")];
    if places.contains(&Some(true)) {
        return Some(true);
    }
    places.into_iter().collect::<Option<Vec<bool>>>().map(|_| false)
}

/// The controllers are listed in the root of the hierarchy of version 2, at its usual place. A mount of version 1 has no such file.
fn memory_cgroups(sys: &Tree<'_>) -> Option<bool> {
    const LIST: &str = "fs/cgroup/cgroup.controllers";
    match sys.text(LIST) {
        Some(controllers) => Some(controllers.split_whitespace().any(|name| name == "memory")),
        None => sys.exists(LIST).filter(|there| !there),
    }
}
