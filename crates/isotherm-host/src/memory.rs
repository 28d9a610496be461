//! The memory of the machine: huge pages, NUMA nodes and the caches in front of them, reclaim.

use crate::cache::MemorySideCache;
use crate::kernel::KernelConfig;
use isotherm_sys::cpus::list_len;
use isotherm_sys::files::Tree;
use isotherm_sys::proc::meminfo;
use isotherm_units::Bytes;

/// Settings of transparent huge pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thp {
    /// Whether the kernel has them.
    pub present: Option<bool>,
    /// `always`, `madvise` or `never`.
    pub enabled: Option<String>,
    /// When a page fault may compact memory for a huge page.
    pub defrag: Option<String>,
    /// Whether khugepaged may compact memory.
    pub khugepaged_defrag: Option<bool>,
    /// Pages that khugepaged scans in one pass.
    pub khugepaged_pages_to_scan: Option<u64>,
    /// Its pause between passes.
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
    /// The number of its CPUs; 0 for memory alone, such as CXL.
    pub cpus: Option<u32>,
    /// Its memory.
    pub memory: Option<Bytes>,
    /// Caches in front of its memory, by level; an empty list is "none", as far as the firmware reports.
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

/// Shuffling of the kernel's free lists, which spreads allocations over a direct-mapped memory-side cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shuffle {
    /// Whether the kernel supports it (`CONFIG_SHUFFLE_PAGE_ALLOCATOR`).
    pub built_in: Option<bool>,
    /// Whether it is on. Only root can read this.
    pub on: Option<bool>,
}

impl Shuffle {
    pub(super) fn read(sys: &Tree<'_>, config: Option<&KernelConfig>) -> Shuffle {
        const FILE: &str = "module/page_alloc/parameters/shuffle";
        // If the file exists, the kernel supports it. Its absence alone proves nothing: parameters are listed only
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
