//! What makes cold memory leave: of processes, page by page, and files of cgroups; and by what it is braked.

use super::{Area, Finding, Need, ROOT, advising, by_needs, reach};
use crate::facts::HostFacts;
use isotherm_sys::caps::Cap;

/// What `isotherm reclaim` and the action `page-out` need, beside a source that shows pages.
pub(super) fn processes(facts: &HostFacts) -> Finding {
    let swap = facts.swap.map(|swap| swap.0 > 0);
    let [kernel, advice, cap] = advising(facts);
    let needs =
        [kernel, advice, cap, Need::new(swap, "swap", "add swap (zram, a file, a partition) with mkswap and swapon")];
    let detail = format!(
        "process_madvise(MADV_PAGEOUT) to {} of swap; {}",
        facts.swap.unwrap_or_default(),
        reach(facts, &[Cap::SysPtrace, Cap::DacReadSearch])
    );
    by_needs(Area::Memory, "reclaim", &needs, detail)
}

/// What the action `reclaim` needs: files leave a cgroup, and no swap is needed.
pub(super) fn cgroups(facts: &HostFacts) -> Finding {
    let needs = [
        // swappiness=0 in memory.reclaim: without it, anonymous memory leaves as well.
        Need::kernel(facts, 6, 11),
        Need::new(
            facts.memory_cgroups,
            "the memory controller of cgroup v2 (/sys/fs/cgroup/cgroup.controllers)",
            "boot with systemd.unified_cgroup_hierarchy=1, and without cgroup_disable=memory",
        ),
        Need::cap(facts, Cap::DacOverride, ROOT),
    ];
    by_needs(
        Area::Memory,
        "memory-reclaim",
        &needs,
        "memory.reclaim with swappiness=0, where that file of a cgroup can be written: its idle files leave",
    )
}

/// What brakes both while memory is short, and what a goal by pressure follows.
pub(super) fn psi(facts: &HostFacts) -> Finding {
    let needs = [Need::new(
        facts.psi,
        "/proc/pressure/memory",
        "use a kernel with CONFIG_PSI=y, and boot it with psi=1: what leaves is not braked by pressure otherwise",
    )];
    by_needs(Area::Memory, "psi", &needs, "how long the host and each cgroup wait for memory: a brake on what leaves")
}
