//! The memory of the machine: huge pages, nodes and the caches in front of them, reclaim, DAMON.

use super::HostRoots;
use super::cache::MemorySideCache;
use super::files::{Tree, list_len};
use super::kernel::KernelConfig;
use crate::proc::Proc;
use isotherm_units::Bytes;

/// Settings of transparent huge pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thp {
    /// Whether the kernel has them.
    pub present: Option<bool>,
    /// `always`, `madvise` or `never`.
    pub enabled: Option<String>,
    /// When a page fault may compact memory for one.
    pub defrag: Option<String>,
    /// Whether khugepaged may compact memory.
    pub khugepaged_defrag: Option<bool>,
    /// Pages khugepaged looks at in one go.
    pub khugepaged_pages_to_scan: Option<u64>,
    /// Its pause between.
    pub khugepaged_sleep_ms: Option<u64>,
    /// Size of a huge page.
    pub huge_size: Option<Bytes>,
}

impl Thp {
    pub(super) fn read(sys: &Tree<'_>) -> Thp {
        let file = |name: &str| format!("kernel/mm/transparent_hugepage/{name}");
        Thp {
            present: sys.exists("kernel/mm/transparent_hugepage"),
            enabled: sys.choice(&file("enabled")),
            defrag: sys.choice(&file("defrag")),
            khugepaged_defrag: sys.yes(&file("khugepaged/defrag")),
            khugepaged_pages_to_scan: sys.number(&file("khugepaged/pages_to_scan")),
            khugepaged_sleep_ms: sys.number(&file("khugepaged/scan_sleep_millisecs")),
            huge_size: sys.number(&file("hpage_pmd_size")).map(Bytes),
        }
    }
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// How many processors it has; 0 is memory alone, such as CXL.
    pub cpus: Option<u32>,
    /// Its memory.
    pub memory: Option<Bytes>,
    /// Caches in front of its memory, by level; an empty list is "none", as far as the firmware tells.
    pub caches: Vec<MemorySideCache>,
}

impl NumaNode {
    /// All nodes; `None` if the kernel does not list them.
    pub(super) fn read_all(sys: &Tree<'_>) -> Option<Vec<NumaNode>> {
        let ids = sys.numbered("devices/system/node", "node")?;
        Some(ids.into_iter().map(|id| NumaNode::read(sys, id)).collect())
    }

    fn read(sys: &Tree<'_>, id: u32) -> NumaNode {
        let dir = format!("devices/system/node/node{id}");
        let memory = sys.text(&format!("{dir}/meminfo")).and_then(|text| meminfo(&text, "MemTotal"));
        NumaNode {
            id,
            cpus: sys.text(&format!("{dir}/cpulist")).and_then(|list| list_len(&list)),
            memory,
            caches: MemorySideCache::read_all(sys, &dir, memory),
        }
    }
}

/// A line of `/proc/meminfo`, or of a node's (which begins with `Node 0 `).
pub(crate) fn meminfo(text: &str, key: &str) -> Option<Bytes> {
    text.lines().find_map(|line| {
        let (head, value) = line.split_once(':')?;
        if head.rsplit(' ').next() != Some(key) {
            return None;
        }
        let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kilobytes.checked_mul(1024).map(Bytes)
    })
}

/// Shuffling of the kernel's free lists, which spreads allocations over a direct-mapped memory-side cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shuffle {
    /// Whether the kernel can (`CONFIG_SHUFFLE_PAGE_ALLOCATOR`).
    pub built_in: Option<bool>,
    /// Whether it does. What says so is readable for root only.
    pub on: Option<bool>,
}

impl Shuffle {
    pub(super) fn read(sys: &Tree<'_>, config: Option<&KernelConfig>) -> Shuffle {
        const FILE: &str = "module/page_alloc/parameters/shuffle";
        // The file is the kernel's own word. Without it nothing follows from its absence alone: parameters are listed only
        // where sysfs has modules at all, so the configuration decides.
        let built_in = match sys.exists(FILE) {
            Some(true) => Some(true),
            _ => config.and_then(|config| if config.has(SHUFFLE_OPTION) { None } else { Some(false) }),
        };
        Shuffle { built_in, on: if built_in == Some(false) { Some(false) } else { sys.yes(FILE) } }
    }
}

/// The option of the kernel's configuration.
pub(super) const SHUFFLE_OPTION: &str = "CONFIG_SHUFFLE_PAGE_ALLOCATOR";

/// The multi-generation LRU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mglru {
    /// Whether the kernel has it.
    pub present: Option<bool>,
    /// Which parts are on: 1 itself, 2 clearing leaf bits in batches, 4 clearing non-leaf bits.
    pub enabled: Option<u64>,
    /// Whether its debugfs file, through which aging is started, is there.
    pub debugfs: Option<bool>,
}

impl Mglru {
    pub(super) fn read(sys: &Tree<'_>) -> Mglru {
        let enabled = sys.text("kernel/mm/lru_gen/enabled");
        let hex = |text: String| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        Mglru {
            present: sys.exists("kernel/mm/lru_gen"),
            enabled: enabled.and_then(hex),
            debugfs: sys.exists("kernel/debug/lru_gen"),
        }
    }
}

/// The kernel's DAMON. Only ever looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damon {
    /// Whether its sysfs files are there.
    pub sysfs: Option<bool>,
    /// `nr_kdamonds`: monitors somebody has set up, running or not.
    pub kdamonds: Option<u64>,
    /// How many of those are on.
    pub running: u64,
    /// Kernel modules that use it and are on: `damon_reclaim`, `damon_lru_sort`, `damon_stat`.
    pub modules: Vec<String>,
    /// Kernel threads called `kdamond`: users that show nowhere else. `None` where kernel threads are not visible.
    pub threads: Option<u64>,
}

impl Damon {
    /// Whether somebody uses it. Set up and switched off counts: changing their settings would be taking over.
    pub fn in_use(&self) -> Option<bool> {
        let used =
            self.kdamonds.is_some_and(|n| n > 0) || !self.modules.is_empty() || self.threads.is_some_and(|n| n > 0);
        match (used, self.sysfs) {
            (true, _) => Some(true),
            // Nothing to see is only an answer if we could see.
            (false, Some(false)) => Some(false),
            (false, _) => self.kdamonds.map(|_| false),
        }
    }

    /// Looks again. The facts of the host are read once, and this changes whenever somebody starts it.
    pub fn look(roots: &HostRoots) -> Damon {
        Damon::read(&Proc::at(&roots.proc), &Tree::at(&roots.sys))
    }

    /// Who uses it, as far as can be told.
    pub fn users(&self) -> String {
        let mut users = Vec::new();
        if !self.modules.is_empty() {
            let names: Vec<String> = self.modules.iter().map(|m| format!("the kernel module {m}")).collect();
            users.push(names.join(" and "));
        }
        if let Some(set_up @ 1..) = self.kdamonds {
            users.push(format!("somebody through sysfs ({set_up} set up, {} running)", self.running));
        }
        match self.threads {
            Some(threads @ 1..) if users.is_empty() => {
                users.push(format!("{threads} kernel threads that show nowhere else"))
            }
            _ => {}
        }
        if users.is_empty() { "nobody".to_owned() } else { users.join(", and ") }
    }

    pub(super) fn read(proc: &Proc, sys: &Tree<'_>) -> Damon {
        const DIR: &str = "kernel/mm/damon/admin/kdamonds";
        const MODULES: [&str; 3] = ["damon_reclaim", "damon_lru_sort", "damon_stat"];
        let on = |id: &u32| sys.text(&format!("{DIR}/{id}/state")).as_deref() == Some("on");
        let enabled = |module: &&str| sys.yes(&format!("module/{module}/parameters/enabled")) == Some(true);
        Damon {
            sysfs: sys.exists("kernel/mm/damon/admin"),
            kdamonds: sys.number(&format!("{DIR}/nr_kdamonds")),
            running: sys.numbered(DIR, "").unwrap_or_default().iter().filter(|id| on(id)).count() as u64,
            modules: MODULES.iter().filter(|module| enabled(module)).map(|&module| module.to_owned()).collect(),
            threads: kdamond_threads(proc),
        }
    }
}

/// Counts the kernel threads of DAMON; `None` in a pid namespace, where there are none of any kind to see.
fn kdamond_threads(proc: &Proc) -> Option<u64> {
    let stats = proc.pids().ok()?.into_iter().filter_map(|pid| proc.stat(pid).ok());
    let kernel: Vec<_> = stats.filter(|stat| stat.is_kernel_thread()).collect();
    let count = kernel.iter().filter(|stat| stat.comm.starts_with("kdamond")).count() as u64;
    (!kernel.is_empty()).then_some(count)
}
