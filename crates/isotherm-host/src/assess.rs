//! From facts to findings: what can be used here, what cannot, and what to do about it.
//!
//! Pure: the same facts always give the same findings, in the same order, one for each thing in any state. A thing is
//! present if all its needs are met, absent if one certainly is not, and unknown otherwise. An unknown thing is worth a
//! try. A restriction (such as "own processes only") is in the detail and does not change the state.
//!
//! What leaving memory needs is in [`reclaim`].

mod reclaim;

use crate::cache::{Doubt, MemorySideCache};
use crate::facts::HostFacts;
use crate::kernel::Lockdown;
use crate::placement::{PlacementCache, placement_caches};
use crate::pmu::Pmu;
use isotherm_sys::caps::Cap;
use isotherm_units::{Bytes, PAGE_SIZE};
use serde::Serialize;
use std::fmt;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// A source of heat.
    Source,
    /// A way to clear accessed bits.
    Clear,
    /// Something about the machine's memory.
    Memory,
    /// Something about its CPUs.
    Cpu,
    /// Something that the kernel permits: present if it is not in the way.
    Privilege,
}

/// The state of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It exists and can be used.
    Present,
    /// It does not exist, or is not permitted.
    Absent,
    /// Could not be found out.
    Unknown,
    /// It exists, but somebody else uses it at the moment.
    InUse,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Present => "present",
            State::Absent => "absent",
            State::Unknown => "unknown",
            State::InUse => "in use",
        })
    }
}

/// One thing and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub area: Area,
    /// Its name: stable, for programs too.
    pub name: &'static str,
    /// Its state.
    pub state: State,
    /// What was found.
    pub detail: String,
    /// What to do next; empty if nothing.
    pub advice: String,
}

/// How to get all privileges together. `CAP_SYSLOG` is for kernel addresses, which libbpf needs to resolve the program.
const GRANT: &str =
    "run as root, or: setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_sys_nice,cap_syslog+ep on the isotherm binary";
/// For files of the kernel that only root may write, and for other users' files under `/proc`.
const ROOT: &str = "run as root, or with CAP_DAC_OVERRIDE";
/// For files of other users' processes that only their owners may read.
const READ_OTHERS: &str = "run as root, or add cap_dac_read_search to the capabilities of the isotherm binary (setcap)";
/// For anything in a container that has a user namespace.
const NAMESPACE: &str = "run outside of the user namespace: capabilities inside of it do not count for this";

/// All findings.
pub fn assess(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = vec![
        page_table(facts),
        perf(facts),
        damon(facts),
        referenced(facts),
        replay(),
        madv_cold(facts),
        clear_refs(facts),
        mglru_aging(facts),
        thp(facts),
        collapse(facts),
        reclaim::processes(facts),
        reclaim::cgroups(facts),
        reclaim::psi(facts),
        memory_side_cache(facts),
        shuffle(facts),
        numa(facts),
        pmu(facts),
    ];
    findings.extend(CAPS.iter().map(|(cap, name, purpose)| capability(facts, *cap, name, purpose)));
    findings.extend([lockdown(facts), perf_events(facts), kernel_symbols(facts)]);
    findings
}

/// Capabilities that have a finding of their own, with its name and purpose.
const CAPS: [(Cap, &str, &str); 9] = [
    (Cap::SysAdmin, "cap-sys-admin", "page frame numbers in pagemap; stands in for CAP_BPF and CAP_PERFMON"),
    (Cap::Bpf, "cap-bpf", "loading the page-table reader"),
    (Cap::Perfmon, "cap-perfmon", "BPF programs that read kernel memory, and perf events of all users"),
    (Cap::SysPtrace, "cap-sys-ptrace", "other users' processes"),
    (Cap::SysNice, "cap-sys-nice", "advice such as MADV_COLD to other processes"),
    (Cap::SysResource, "cap-sys-resource", "memory limits of BPF maps before 5.11"),
    (Cap::DacOverride, "cap-dac-override", "other users' files under /proc, and files of the kernel under /sys"),
    (
        Cap::DacReadSearch,
        "cap-dac-read-search",
        "pagemap of other users' processes: which of their huge ranges are huge pages",
    ),
    (Cap::Syslog, "cap-syslog", "kernel addresses in /proc/kallsyms"),
];

/// Something that a thing requires.
struct Need {
    /// Whether it is met.
    met: Option<bool>,
    /// What to report if it is not met, or if that is unknown.
    lacking: String,
    /// What to do then.
    advice: String,
}

impl Need {
    fn new(met: Option<bool>, lacking: impl Into<String>, advice: impl Into<String>) -> Need {
        Need { met, lacking: lacking.into(), advice: advice.into() }
    }

    /// A capability.
    fn cap(facts: &HostFacts, cap: Cap, advice: &str) -> Need {
        let advice = if facts.initial_user_namespace == Some(false) { NAMESPACE } else { advice };
        Need::new(facts.may(cap), cap.name(), advice)
    }

    /// A kernel not older than this.
    fn kernel(facts: &HostFacts, major: u32, minor: u32) -> Need {
        let here = facts.kernel.as_ref().map_or("of unknown version".to_owned(), |kernel| format!("this is {kernel}"));
        let lacking = format!("Linux {major}.{minor} or later ({here})");
        Need::new(facts.kernel_since(major, minor), lacking, format!("boot Linux {major}.{minor} or later"))
    }
}

/// A thing that is present when all its needs are met. `detail` is for that case.
fn by_needs(area: Area, name: &'static str, needs: &[Need], detail: impl Into<String>) -> Finding {
    let lacks = |state: Option<bool>| needs.iter().filter(move |need| need.met == state);
    let (state, unmet, head): (_, Vec<&Need>, _) = if lacks(Some(false)).next().is_some() {
        (State::Absent, lacks(Some(false)).collect(), "needs ")
    } else if lacks(None).next().is_some() {
        (State::Unknown, lacks(None).collect(), "unknown whether there is ")
    } else {
        return Finding { area, name, state: State::Present, detail: detail.into(), advice: String::new() };
    };
    let lacking: Vec<&str> = unmet.iter().map(|need| need.lacking.as_str()).collect();
    // Several needs often have one remedy: print it once.
    let mut advice: Vec<&str> = Vec::new();
    for need in &unmet {
        if !advice.contains(&need.advice.as_str()) {
            advice.push(&need.advice);
        }
    }
    Finding { area, name, state, detail: format!("{head}{}", lacking.join(", ")), advice: advice.join("; ") }
}

/// A finding without needs: it is there or not.
fn plain(area: Area, name: &'static str, there: Option<bool>, detail: impl Into<String>) -> Finding {
    let state = match there {
        Some(true) => State::Present,
        Some(false) => State::Absent,
        None => State::Unknown,
    };
    Finding { area, name, state, detail: detail.into(), advice: String::new() }
}

impl Finding {
    fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = advice.into();
        self
    }
}

/// What a thing can reach, if other users' processes need these capabilities.
fn reach(facts: &HostFacts, caps: &[Cap]) -> &'static str {
    if caps.iter().all(|&cap| facts.may(cap) == Some(true)) { "any process" } else { "own processes only" }
}

fn page_table(facts: &HostFacts) -> Finding {
    let needs = [
        Need::new(Some(facts.arch == "x86_64"), "x86-64", "use the referenced source"),
        Need::new(Some(facts.page_size == PAGE_SIZE), "4 KiB pages", "boot a kernel with 4 KiB pages"),
        // bpf_find_vma and bpf_loop.
        Need::kernel(facts, 5, 17),
        Need::new(facts.btf, "BTF (/sys/kernel/btf/vmlinux)", "use a kernel with CONFIG_DEBUG_INFO_BTF=y"),
        Need::cap(facts, Cap::Bpf, GRANT),
        Need::cap(facts, Cap::Perfmon, GRANT),
        Need::cap(facts, Cap::SysPtrace, GRANT),
        unlocked(facts),
        visible_symbols(facts),
    ];
    by_needs(Area::Source, "page-table", &needs, "accessed bits of every page, read by BPF")
}

/// Where lockdown cannot be read, it is usually not built in. That alone must not make everything unknown.
fn unlocked(facts: &HostFacts) -> Need {
    let met = facts.lockdown != Some(Lockdown::Confidentiality);
    Need::new(Some(met), "lockdown not at confidentiality", "boot with lockdown=integrity, or without")
}

/// Without addresses the reader tries the fixed base of the direct map, which is right if KASLR is off: worth a try.
fn visible_symbols(facts: &HostFacts) -> Need {
    let met = facts.symbols_visible.filter(|&visible| visible);
    Need::new(met, "a view of kernel addresses, or a direct map at its fixed place", symbols_advice(facts))
}

fn symbols_advice(facts: &HostFacts) -> String {
    match facts.kptr_restrict {
        Some(2..) => "set kernel.kptr_restrict to 0 or 1: at 2 addresses are hidden from root too".to_owned(),
        _ => format!("kernel addresses need CAP_SYSLOG: {GRANT}"),
    }
}

/// PMUs that sample memory accesses; `None` if the event sources are unknown.
fn memory_pmus(facts: &HostFacts) -> Option<Vec<String>> {
    let works = |pmu: &Pmu| Some(format!("{} ({})", pmu.name, pmu.memory.as_ref()?.as_ref().ok()?));
    Some(facts.pmus.as_ref()?.iter().filter_map(works).collect())
}

/// PMUs that are of the kind, but cannot be used: half of a PMU, as in some virtual machines. With the reason.
fn broken_pmus(facts: &HostFacts) -> Vec<String> {
    let broken = |pmu: &Pmu| Some(format!("; {}: {}", pmu.name, pmu.memory.as_ref()?.as_ref().err()?));
    facts.pmus.iter().flatten().filter_map(broken).collect()
}

fn perf(facts: &HostFacts) -> Finding {
    let needs = [
        Need::new(
            facts.pmus.as_ref().map(|pmus| !pmus.is_empty()),
            "perf events",
            "use a kernel with CONFIG_PERF_EVENTS=y",
        ),
        perf_allowed(facts),
    ];
    let what = match memory_pmus(facts).unwrap_or_default() {
        none if none.is_empty() => "page faults only: no unit here samples memory accesses".to_owned(),
        units => format!("memory accesses sampled by {}", units.join(", ")),
    };
    // The mappings of each target are read, too.
    let detail = format!("{what}; {}", reach(facts, &[Cap::Perfmon, Cap::SysPtrace]));
    by_needs(Area::Source, "perf", &needs, detail)
}

fn perf_allowed(facts: &HostFacts) -> Need {
    // Above 2 some distributions refuse everything without the capability.
    let own = facts.perf_event_paranoid.map(|paranoid| paranoid <= 2);
    let met = if facts.may(Cap::Perfmon) == Some(true) { Some(true) } else { own };
    let advice = if facts.initial_user_namespace == Some(false) { NAMESPACE } else { GRANT };
    Need::new(met, "CAP_PERFMON, or kernel.perf_event_paranoid at 2 or less for own processes", advice)
}

fn damon(facts: &HostFacts) -> Finding {
    let option = |name| facts.option(name);
    let operations = match (option("CONFIG_DAMON_VADDR"), option("CONFIG_DAMON_PADDR")) {
        (Some(vaddr), Some(paddr)) => Some(vaddr || paddr),
        _ => None,
    };
    let needs = [
        Need::new(facts.damon.sysfs, "/sys/kernel/mm/damon/admin", "use a kernel with CONFIG_DAMON_SYSFS=y"),
        Need::new(operations, "CONFIG_DAMON_VADDR or CONFIG_DAMON_PADDR", "use a kernel with CONFIG_DAMON_VADDR=y"),
        Need::new(
            facts.tracefs,
            "tracefs, for the damon_aggregated tracepoint",
            "mount -t tracefs tracefs /sys/kernel/tracing",
        ),
        Need::cap(facts, Cap::DacOverride, ROOT),
        Need::cap(facts, Cap::Perfmon, GRANT),
        Need::new(
            facts.damon.in_use().map(|_| true),
            "another user of DAMON",
            "read /sys/kernel/mm/damon/admin as root",
        ),
    ];
    let finding = by_needs(Area::Source, "damon", &needs, "the kernel's own monitor, through sysfs");
    if facts.damon.in_use() == Some(true) && finding.state != State::Absent {
        return damon_in_use(facts, finding);
    }
    finding
}

fn damon_in_use(facts: &HostFacts, finding: Finding) -> Finding {
    let detail = format!("in use by {}", facts.damon.users());
    Finding { state: State::InUse, detail, ..finding }.advise(
        "leave it to its user, and take another source; what an Isotherm that was killed has left, the next one cleans up",
    )
}

fn referenced(facts: &HostFacts) -> Finding {
    let needs = [page_monitor(facts.clear_refs, "/proc/PID/clear_refs"), page_monitor(facts.smaps, "/proc/PID/smaps")];
    let detail = format!("one figure per mapping; {}", reach(facts, &[Cap::SysPtrace, Cap::DacOverride]));
    by_needs(Area::Source, "referenced", &needs, detail)
}

fn page_monitor(there: Option<bool>, file: &str) -> Need {
    Need::new(there, file, "use a kernel with CONFIG_PROC_PAGE_MONITOR=y")
}

fn replay() -> Finding {
    plain(Area::Source, "replay", Some(true), "recordings, needs nothing")
}

/// What process_madvise needs. MADV_COLD and MADV_PAGEOUT themselves are older.
fn advising(facts: &HostFacts) -> [Need; 3] {
    [
        Need::kernel(facts, 5, 10),
        // On unless it was disabled on purpose, so an unreadable configuration is no reason to doubt.
        Need::new(
            facts.option("CONFIG_ADVISE_SYSCALLS").or(Some(true)),
            "CONFIG_ADVISE_SYSCALLS",
            "use a kernel with CONFIG_ADVISE_SYSCALLS=y",
        ),
        Need::cap(facts, Cap::SysNice, GRANT),
    ]
}

fn madv_cold(facts: &HostFacts) -> Finding {
    let needs = advising(facts);
    let detail = format!(
        "exact, with a TLB flush; not for locked, hugetlb or shared pages; {}",
        reach(facts, &[Cap::SysPtrace])
    );
    by_needs(Area::Clear, "madv-cold", &needs, detail)
}

fn clear_refs(facts: &HostFacts) -> Finding {
    let needs = [page_monitor(facts.clear_refs, "/proc/PID/clear_refs")];
    let detail =
        format!("stops page faults of the target meanwhile, no TLB flush; {}", reach(facts, &[Cap::DacOverride]));
    by_needs(Area::Clear, "clear-refs", &needs, detail)
}

fn mglru_aging(facts: &HostFacts) -> Finding {
    /// The LRU itself, and clearing leaf bits during aging.
    const PARTS: u64 = 1 | 2;
    let mglru = &facts.mglru;
    let mut needs = vec![Need::new(mglru.present, "/sys/kernel/mm/lru_gen", "use a kernel with CONFIG_LRU_GEN=y")];
    // If the kernel has no MGLRU, its settings do not matter.
    if mglru.present != Some(false) {
        let enabled = mglru.enabled.map(|parts| parts & PARTS == PARTS);
        needs.extend([
            Need::new(enabled, "MGLRU switched on", "have the administrator set /sys/kernel/mm/lru_gen/enabled to y"),
            Need::new(
                mglru.debugfs,
                "/sys/kernel/debug/lru_gen",
                "mount debugfs, and use a kernel with CONFIG_DEBUG_FS=y",
            ),
            Need::cap(facts, Cap::DacOverride, ROOT),
            // From integrity on, no file of debugfs is opened that can be written.
            Need::new(
                Some(matches!(facts.lockdown, Some(Lockdown::Off) | None)),
                "lockdown off",
                "boot without lockdown (it comes with Secure Boot)",
            ),
        ]);
    }
    by_needs(Area::Clear, "mglru-aging", &needs, "ages whole cgroups, no TLB flush")
}

fn thp(facts: &HostFacts) -> Finding {
    let thp = &facts.thp;
    let word = |setting: &Option<String>| setting.clone().unwrap_or_else(|| "unknown".to_owned());
    let detail = format!("enabled: {}, defrag: {}", word(&thp.enabled), word(&thp.defrag));
    let finding = plain(Area::Memory, "thp", thp.present, detail);
    match (thp.present, thp.enabled.as_deref()) {
        (Some(false), _) => finding.advise("use a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y"),
        (_, Some("never")) => finding.advise(
            "huge pages are switched off: heat is measured all the same, ask the administrator before collapsing",
        ),
        _ => finding,
    }
}

/// What `isotherm collapse` and `run` need.
fn collapse(facts: &HostFacts) -> Finding {
    let needs = [
        Need::kernel(facts, 6, 1),
        Need::new(facts.thp.present, "transparent huge pages", "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y"),
        Need::cap(facts, Cap::SysNice, GRANT),
    ];
    let setting = match facts.thp.enabled.as_deref() {
        Some("never") => {
            "; the setting `never` does not stop MADV_COLLAPSE on kernels so far: name only processes that may have huge pages"
        }
        Some("always") => "; with the setting `always`, Redis and some others switch huge pages off for themselves",
        _ => "",
    };
    // Of other users' processes pagemap is opened, which only its owner may read.
    let detail =
        format!("process_madvise(MADV_COLLAPSE); {}{setting}", reach(facts, &[Cap::SysPtrace, Cap::DacReadSearch]));
    by_needs(Area::Memory, "collapse", &needs, detail)
}

fn memory_side_cache(facts: &HostFacts) -> Finding {
    let (Some(nodes), Some(placement)) = (&facts.nodes, placement_caches(facts)) else {
        return plain(Area::Memory, "memory-side-cache", None, "the kernel lists no nodes");
    };
    let mut found: Vec<String> =
        nodes.iter().flat_map(|node| node.caches.iter().map(|c| one_cache(node.id, c))).collect();
    if found.is_empty() {
        return plain(Area::Memory, "memory-side-cache", Some(false), "the firmware reports none");
    }
    let sure = placement.direct.iter().any(PlacementCache::is_sure);
    let nothing_competes = placement.direct.is_empty() && placement.unclear.is_empty();
    let mut advice = Vec::new();
    if !sure && !nothing_competes {
        advice.push("isotherm doctor --probe-cache asks the memory itself");
    }
    if !placement.direct.is_empty() {
        found.push(shuffle_word(facts).to_owned());
        advice.extend(shuffle_advice(facts));
    }
    // If the report is doubtful, it is unknown.
    plain(Area::Memory, "memory-side-cache", (sure || nothing_competes).then_some(true), found.join("; "))
        .advise(advice.join("; "))
}

/// A cache with its consequences for frames, and the reasons to doubt it.
fn one_cache(node: u32, cache: &MemorySideCache) -> String {
    let mut text = format!("node {node}: {cache}");
    if let Some(frames) = cache.conflict_distance() {
        text += &format!("; frames {} apart compete for a line", Bytes::of_pages(frames));
    }
    let doubts: Vec<String> = cache.doubts.iter().map(Doubt::to_string).collect();
    if !doubts.is_empty() {
        text += &format!("; doubtful: {}", doubts.join(", "));
    }
    text
}

fn shuffle_word(facts: &HostFacts) -> &'static str {
    match (facts.shuffle.on, facts.shuffle.built_in) {
        (Some(true), _) => "page_alloc.shuffle is on",
        (Some(false), Some(false)) => "this kernel cannot shuffle its free lists",
        (Some(false), _) => "page_alloc.shuffle is off",
        (None, _) => "whether page_alloc.shuffle is on is unknown",
    }
}

/// What to do to make the kernel shuffle; `None` if it does.
fn shuffle_advice(facts: &HostFacts) -> Option<&'static str> {
    match (facts.shuffle.on, facts.shuffle.built_in) {
        (Some(true), _) => None,
        (Some(false), Some(false)) => Some(
            "use a kernel with CONFIG_SHUFFLE_PAGE_ALLOCATOR=y, boot it with page_alloc.shuffle=1, and measure conflicts before and after",
        ),
        (Some(false), _) => Some("boot with page_alloc.shuffle=1, and measure conflicts before and after"),
        (None, Some(true)) => Some("run as root to see whether page_alloc.shuffle is on"),
        (None, _) => Some("see whether the kernel's command line has page_alloc.shuffle=1"),
    }
}

/// The advice belongs to the cache, if there is one: without a cache, shuffling gains nothing.
fn shuffle(facts: &HostFacts) -> Finding {
    let detail = match (facts.shuffle.on, facts.shuffle.built_in) {
        (Some(false), Some(false)) => "the kernel is built without CONFIG_SHUFFLE_PAGE_ALLOCATOR",
        (None, Some(true)) => "free lists shuffled at boot (page_alloc.shuffle): readable for root only",
        _ => "free lists shuffled at boot (page_alloc.shuffle)",
    };
    plain(Area::Memory, "shuffle", facts.shuffle.on, detail)
}

fn numa(facts: &HostFacts) -> Finding {
    let count = facts.nodes.as_ref().map(Vec::len);
    let detail = match count {
        Some(1) => "1 node".to_owned(),
        Some(n) => format!(
            "{n} nodes, numa_balancing {}",
            facts.numa_balancing.map_or("unknown".to_owned(), |v| v.to_string())
        ),
        None => "the kernel lists no nodes".to_owned(),
    };
    plain(Area::Memory, "numa", count.map(|n| n > 1), detail)
}

fn pmu(facts: &HostFacts) -> Finding {
    let broken = broken_pmus(facts).concat();
    match memory_pmus(facts) {
        None => plain(Area::Cpu, "pmu", None, "the kernel lists no event sources"),
        Some(units) if units.is_empty() => {
            plain(Area::Cpu, "pmu", Some(false), format!("no unit samples memory accesses{broken}"))
                .advise("in a virtual machine, ask for one with a virtual PMU; else use the page-table source")
        }
        Some(units) => plain(Area::Cpu, "pmu", Some(true), format!("{}{broken}", units.join(", "))),
    }
}

fn capability(facts: &HostFacts, cap: Cap, name: &'static str, purpose: &str) -> Finding {
    let setting =
        |name: &str, value: Option<i32>| value.map_or(String::new(), |v| format!("; {name} is {v}, which {{}}"));
    // Two settings that are often suspected first, but change nothing here.
    let note = match cap {
        Cap::Bpf => setting("kernel.unprivileged_bpf_disabled", facts.unprivileged_bpf_disabled)
            .replace("{}", "does not matter: iterators always need it"),
        Cap::SysPtrace => setting("kernel.yama.ptrace_scope", facts.ptrace_scope)
            .replace("{}", "does not matter: it limits attaching, not reading"),
        _ => String::new(),
    };
    let advice = match cap {
        Cap::DacOverride => ROOT,
        Cap::SysAdmin => "run as root, if frame numbers, or read-only mounts in the sandbox, are wanted",
        Cap::DacReadSearch => READ_OTHERS,
        // Since 5.11 the memory of BPF maps is charged to the cgroup.
        Cap::SysResource if facts.kernel_since(5, 11) == Some(true) => "",
        Cap::SysResource => "run as root, or raise the limit on locked memory (ulimit -l)",
        _ => GRANT,
    };
    let mut finding = by_needs(Area::Privilege, name, &[Need::cap(facts, cap, advice)], "");
    finding.detail = format!("{}: {purpose}{note}", cap.name());
    finding
}

fn lockdown(facts: &HostFacts) -> Finding {
    let (allowed, detail) = match facts.lockdown {
        Some(Lockdown::Off) => (Some(true), "off"),
        Some(Lockdown::Integrity) => (Some(true), "integrity: kernel memory may be read"),
        Some(Lockdown::Confidentiality) => (Some(false), "confidentiality: BPF may not read kernel memory"),
        None => (None, "cannot be read: not built in, or securityfs is not mounted"),
    };
    let finding = plain(Area::Privilege, "lockdown", allowed, detail);
    if allowed == Some(false) { finding.advise("boot with lockdown=integrity, or without") } else { finding }
}

fn perf_events(facts: &HostFacts) -> Finding {
    let level = facts.perf_event_paranoid.map_or("unknown".to_owned(), |level| level.to_string());
    let mut finding = by_needs(Area::Privilege, "perf-events", &[perf_allowed(facts)], "");
    finding.detail = format!("kernel.perf_event_paranoid is {level}; {}", reach(facts, &[Cap::Perfmon]));
    finding
}

fn kernel_symbols(facts: &HostFacts) -> Finding {
    let hidden = facts.kptr_restrict.map_or("unknown".to_owned(), |level| level.to_string());
    let detail = format!("addresses in /proc/kallsyms; kernel.kptr_restrict is {hidden}");
    let finding = plain(Area::Privilege, "kernel-symbols", facts.symbols_visible, detail);
    if finding.state == State::Present { finding } else { finding.advise(symbols_advice(facts)) }
}
