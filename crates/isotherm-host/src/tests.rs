//! Machines that we do not have: files for the reader, facts for the assessment.

mod cache;

use super::*;
use crate::events::Kind;
use flate2::{Compression, write::GzEncoder};
use isotherm_sys::caps::{Cap, Caps};
use isotherm_sys::damon;
use isotherm_units::Bytes;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use tempfile::TempDir;

/// `/proc`, `/sys` and `/boot` in a temporary directory.
struct FakeHost {
    dir: TempDir,
}

impl FakeHost {
    fn new(files: &[(&str, &str)]) -> FakeHost {
        let host = FakeHost { dir: TempDir::new().expect("temporary directory") };
        for (name, text) in files {
            host.file(name, text.as_bytes());
        }
        host
    }

    fn file(&self, name: &str, bytes: &[u8]) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().expect("has a parent")).expect("create directory");
        fs::write(path, bytes).expect("write file");
    }

    /// A file as the server has it, which may be not at all.
    fn restore(&self, name: &str) {
        match SERVER.iter().find(|(file, _)| *file == name) {
            Some((_, text)) => self.file(name, text.as_bytes()),
            None => fs::remove_file(self.dir.path().join(name)).expect("is there"),
        }
    }

    fn facts(&self) -> HostFacts {
        let root = |name: &str| self.dir.path().join(name);
        HostFacts::read(&HostRoots { proc: root("proc"), sys: root("sys"), boot: root("boot") }, 4096)
    }
}

const SERVER: &[(&str, &str)] = &[
    ("proc/sys/kernel/osrelease", "6.12.41+deb13-amd64\n"),
    ("proc/sys/kernel/perf_event_paranoid", "-1\n"),
    ("proc/sys/kernel/unprivileged_bpf_disabled", "2\n"),
    ("proc/sys/kernel/kptr_restrict", "1\n"),
    ("proc/sys/kernel/yama/ptrace_scope", "0\n"),
    ("proc/sys/kernel/numa_balancing", "1\n"),
    ("proc/self/status", "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"),
    ("proc/self/uid_map", "         0          0 4294967295\n"),
    ("proc/self/clear_refs", ""),
    ("proc/self/smaps", ""),
    ("proc/self/pagemap", ""),
    ("proc/kpageflags", ""),
    // As before Linux 6.15: symbols of per-CPU data come first.
    (
        "proc/kallsyms",
        "0000000000000000 A fixed_percpu_data\n0000000000001000 A cpu_debug_store\nffffffff81000000 T _text\n",
    ),
    ("proc/pressure/memory", ""),
    ("proc/meminfo", "MemTotal:       24576000 kB\nSwapTotal:             0 kB\n"),
    ("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\n"),
    ("proc/2/stat", "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 10 0 0 0 0 0 0\n"),
    ("sys/kernel/btf/vmlinux", ""),
    ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n"),
    ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n"),
    ("sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "1\n"),
    ("sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan", "4096\n"),
    ("sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "10000\n"),
    ("sys/kernel/mm/lru_gen/enabled", "0x0007\n"),
    ("sys/kernel/debug/lru_gen", ""),
    ("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n"),
    ("sys/kernel/tracing/events/header_page", ""),
    ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc\n"),
    ("sys/module/page_alloc/parameters/shuffle", "N\n"),
    ("sys/devices/system/cpu/online", "0-1,4-7\n"),
    ("sys/devices/system/node/possible", "0-1\n"),
    ("sys/devices/system/node/node0/cpulist", "0-1,4-7\n"),
    ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       16384000 kB\nNode 0 MemFree: 5 kB\n"),
    ("sys/devices/system/node/node0/memory_side_cache/index1/size", "268435456\n"),
    ("sys/devices/system/node/node0/memory_side_cache/index1/indexing", "0\n"),
    ("sys/devices/system/node/node0/memory_side_cache/index1/line_size", "64\n"),
    ("sys/devices/system/node/node0/memory_side_cache/index1/write_policy", "0\n"),
    ("sys/devices/system/node/node10/cpulist", "\n"),
    ("sys/devices/system/node/node10/meminfo", "Node 10 MemTotal:       8192000 kB\n"),
    ("sys/bus/event_source/devices/cpu/type", "4\n"),
    ("sys/bus/event_source/devices/cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
    ("sys/bus/event_source/devices/cpu/events/mem-loads-aux", "event=0x03,umask=0x82\n"),
    ("sys/bus/event_source/devices/cpu/format/event", "config:0-7\n"),
    ("sys/bus/event_source/devices/cpu/format/umask", "config:8-15\n"),
    ("sys/bus/event_source/devices/cpu/format/ldlat", "config1:0-15\n"),
    ("sys/bus/event_source/devices/software/type", "1\n"),
    (
        "boot/config-6.12.41+deb13-amd64",
        "CONFIG_DAMON_VADDR=y\n# CONFIG_DAMON_PADDR is not set\nCONFIG_SMP=y\nCONFIG_LRU_GEN=m\n",
    ),
];

#[test]
fn the_files_of_a_server_are_read() {
    let facts = FakeHost::new(SERVER).facts();
    assert_eq!(facts.kernel.as_ref().unwrap().version, (6, 12));
    assert_eq!((facts.btf, facts.lockdown), (Some(true), Some(Lockdown::Integrity)));
    assert_eq!(facts.may(Cap::Bpf), Some(true));
    assert_eq!((facts.perf_event_paranoid, facts.kptr_restrict, facts.ptrace_scope), (Some(-1), Some(1), Some(0)));
    assert_eq!((facts.symbols_visible, facts.unprivileged_bpf_disabled), (Some(true), Some(2)));
    assert_eq!((facts.clear_refs, facts.kpageflags, facts.page_idle), (Some(true), Some(true), Some(false)));
    assert_eq!(facts.thp.enabled.as_deref(), Some("madvise"));
    assert_eq!((facts.thp.khugepaged_pages_to_scan, facts.thp.huge_size), (Some(4096), Some(Bytes(2 << 20))));
    assert_eq!((facts.mglru.enabled, facts.mglru.debugfs), (Some(7), Some(true)));
    assert_eq!((facts.damon.in_use(), facts.damon.threads), (Some(false), Some(0)));
    assert_eq!((facts.tracefs, facts.shuffle.on, facts.psi), (Some(true), Some(false), Some(true)));
    assert_eq!(facts.memory_cgroups, Some(true));
    assert_eq!((facts.cpus, facts.cpu_model.as_deref()), (Some(6), Some("Some CPU @ 2.0GHz")));
    assert_eq!((facts.memory, facts.swap), (Some(Bytes(24_576_000 << 10)), Some(Bytes(0))));
    assert_eq!((facts.option("CONFIG_DAMON_VADDR"), facts.option("CONFIG_DAMON_PADDR")), (Some(true), Some(false)));
    assert_eq!(facts.option("CONFIG_LRU_GEN"), Some(true));
}

#[test]
fn nodes_come_with_their_caches() {
    let nodes = FakeHost::new(SERVER).facts().nodes.unwrap();
    let cache = MemorySideCache {
        level: 1,
        size: Some(Bytes(256 << 20)),
        indexing: Some(Indexing::Direct),
        line_size: Some(Bytes(64)),
        write_policy: Some(WritePolicy::WriteBack),
        extended_linear: None,
        doubts: vec![],
    };
    assert_eq!(
        nodes,
        [
            NumaNode { id: 0, cpus: Some(6), memory: Some(Bytes(16_384_000 << 10)), caches: vec![cache] },
            NumaNode { id: 10, cpus: Some(0), memory: Some(Bytes(8_192_000 << 10)), caches: vec![] },
        ]
    );
}

#[test]
fn event_sources_tell_how_they_sample_memory() {
    let host = FakeHost::new(SERVER);
    host.file("sys/bus/event_source/devices/ibs_op/type", b"11\n");
    host.file("sys/bus/event_source/devices/ibs_op/format/cnt_ctl", b"config:19\n");
    host.file("sys/bus/event_source/devices/arm_spe_0/type", b"12\n");
    host.file("sys/bus/event_source/devices/arm_spe_0/format/load_filter", b"config:33\n");
    host.file("sys/bus/event_source/devices/arm_spe_0/format/store_filter", b"config:34\n");
    let pmus = host.facts().pmus.unwrap();
    let memory: Vec<_> = pmus.iter().map(|pmu| (&*pmu.name, pmu.type_id, pmu.memory.clone())).collect();
    let expected = [
        ("arm_spe_0", Some(12), Some(Ok(Kind::Spe))),
        ("cpu", Some(4), Some(Ok(Kind::Memory))),
        ("ibs_op", Some(11), Some(Ok(Kind::Ibs))),
        ("software", Some(1), None),
    ];
    assert_eq!(memory, expected);
}

#[test]
fn half_a_unit_is_absent_with_what_is_wrong() {
    let host = FakeHost::new(SERVER);
    host.file("sys/bus/event_source/devices/cpu/format/ldlat", b"");
    let facts = host.facts();
    assert!(matches!(facts.pmus.as_ref().unwrap()[0].memory, Some(Err(_))), "{:?}", facts.pmus);
    let pmu = finding(&facts, "pmu");
    assert_eq!(pmu.state, State::Absent);
    assert!(pmu.detail.contains("cpu: read ") && pmu.detail.contains("format/ldlat"), "{}", pmu.detail);
    assert!(finding(&facts, "perf").detail.contains("page faults only"));
}

#[test]
fn a_packed_configuration_goes_before_the_plain_one() {
    let host = FakeHost::new(SERVER);
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(b"CONFIG_DAMON_PADDR=y\n").expect("to memory");
    host.file("proc/config.gz", &gz.finish().expect("to memory"));
    let facts = host.facts();
    assert_eq!((facts.option("CONFIG_DAMON_VADDR"), facts.option("CONFIG_DAMON_PADDR")), (Some(false), Some(true)));
    // A broken one is passed over.
    host.file("proc/config.gz", b"\x1f\x8bnonsense");
    assert_eq!(host.facts().option("CONFIG_DAMON_VADDR"), Some(true));
}

#[test]
fn a_machine_without_files_is_unknown_and_not_without_everything() {
    let facts = FakeHost::new(&[]).facts();
    let expected = HostFacts { arch: std::env::consts::ARCH.to_owned(), page_size: 4096, ..HostFacts::default() };
    assert_eq!(facts, expected);
    for finding in assess(&facts) {
        assert!(
            finding.name == "replay" || finding.state == State::Unknown || cfg!(not(target_arch = "x86_64")),
            "{finding:?}"
        );
    }
}

#[test]
fn nonsense_in_files_is_unknown() {
    let garbage: Vec<(&str, &str)> = SERVER.iter().map(|(name, _)| (*name, "\u{0}[[-,-]: \n:::")).collect();
    let facts = FakeHost::new(&garbage).facts();
    assert_eq!((facts.kernel, facts.caps, facts.perf_event_paranoid), (None, None, None));
    assert_eq!((facts.cpus, facts.memory, facts.lockdown), (None, None, None));
}

#[test]
fn only_cgroups_of_version_2_with_their_controller_control_memory() {
    let host = FakeHost::new(SERVER);
    host.file("sys/fs/cgroup/cgroup.controllers", b"cpu memory.old pids\n");
    assert_eq!(host.facts().memory_cgroups, Some(false), "disabled at boot");
    fs::remove_file(host.dir.path().join("sys/fs/cgroup/cgroup.controllers")).expect("is there");
    host.file("sys/fs/cgroup/memory/memory.usage_in_bytes", b"1\n");
    assert_eq!(host.facts().memory_cgroups, Some(false), "version 1");
}

#[test]
fn any_user_of_damon_is_noticed() {
    type Case = (&'static str, &'static str);
    let cases: [Case; 4] = [
        ("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n"),
        ("sys/module/damon_reclaim/parameters/enabled", "Y\n"),
        ("sys/module/damon_stat/parameters/enabled", "Y\n"),
        ("proc/77/stat", "77 (kdamond.0) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 10 0 0 0 0 0 0\n"),
    ];
    for (name, text) in cases {
        let host = FakeHost::new(SERVER);
        host.file(name, text.as_bytes());
        assert_eq!(host.facts().damon.in_use(), Some(true), "{name}");
    }
    // A process cannot pass for a kernel thread by its name.
    let host = FakeHost::new(SERVER);
    host.file("proc/77/stat", b"77 (kdamond.0) S 1 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 10 0 0 0 0 0 0\n");
    assert_eq!(host.facts().damon.in_use(), Some(false));
}

#[test]
fn running_kdamonds_are_counted_apart_from_those_set_up() {
    let host = FakeHost::new(SERVER);
    for (name, text) in [("nr_kdamonds", "2\n"), ("0/state", "off\n"), ("1/state", "on\n")] {
        host.file(&format!("sys/kernel/mm/damon/admin/kdamonds/{name}"), text.as_bytes());
    }
    let damon = host.facts().damon;
    assert_eq!((damon.kdamonds, damon.running, damon.in_use()), (Some(2), 1, Some(true)));
}

#[test]
fn releases_of_all_kinds() {
    for (text, version) in [
        ("6.18.44", Some((6, 18))),
        ("5.4-rc1", Some((5, 4))),
        ("7.0+", Some((7, 0))),
        ("x", None),
        ("", None),
        ("6", None),
    ] {
        assert_eq!(Release::parse(text).map(|r| r.version), version, "{text}");
    }
}

#[test]
fn admin_stands_in_for_what_was_split_from_it_only() {
    let admin = Caps(1 << Cap::SysAdmin as u8);
    let allowed = [Cap::Bpf, Cap::Perfmon, Cap::SysPtrace, Cap::SysNice, Cap::Syslog].map(|cap| admin.allows(cap));
    assert_eq!(allowed, [true, true, false, false, false]);
}

/// A machine on which everything works.
fn capable_host() -> HostFacts {
    let on = |option: &str| (option.to_owned(), "y".to_owned());
    let set: BTreeMap<String, String> =
        ["CONFIG_DAMON_VADDR", "CONFIG_DAMON_PADDR", "CONFIG_ADVISE_SYSCALLS"].map(on).into();
    HostFacts {
        arch: "x86_64".to_owned(),
        config: Some(KernelConfig { source: "config".into(), set }),
        shuffle: Shuffle { built_in: Some(true), on: Some(true) },
        swap: Some(Bytes(8 << 30)),
        lockdown: Some(Lockdown::Off),
        caps: Some(Caps::ALL),
        ..FakeHost::new(SERVER).facts()
    }
}

/// What differs from the capable host: the names with their new states, in order.
fn changes(facts: &HostFacts) -> Vec<(&'static str, State)> {
    let before = assess(&capable_host());
    let after = assess(facts);
    assert_eq!(before.len(), after.len());
    before.iter().zip(&after).filter(|(b, a)| b.state != a.state).map(|(_, a)| (a.name, a.state)).collect()
}

#[test]
fn a_capable_host_has_everything() {
    let findings = assess(&capable_host());
    for finding in &findings {
        assert_eq!((finding.state, &*finding.advice), (State::Present, ""), "{finding:?}");
        assert!(!finding.detail.is_empty(), "{finding:?}");
    }
    let mut names: Vec<_> = findings.iter().map(|f| f.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), findings.len(), "names are unique");
}

fn drop_cap(facts: &mut HostFacts, caps: &[Cap]) {
    facts.caps = caps.iter().fold(facts.caps, |left, &cap| left.map(|caps| caps.without(cap)));
}

fn drop_option(facts: &mut HostFacts, option: &str) {
    facts.config.as_mut().expect("has one").set.remove(option);
}

/// The capable host's memory-side cache.
fn cache(facts: &mut HostFacts) -> &mut MemorySideCache {
    &mut facts.nodes.as_mut().expect("has some")[0].caches[0]
}

/// A change to the capable host, and what it costs.
type Loss = (&'static str, fn(&mut HostFacts), &'static [(&'static str, State)]);

use State::{Absent, InUse, Unknown};

const LOSSES: &[Loss] = &[
    ("other architecture", |f| f.arch = "riscv64".to_owned(), &[("page-table", Absent)]),
    ("large pages", |f| f.page_size = 65536, &[("page-table", Absent)]),
    (
        "5.16",
        |f| f.kernel = Release::parse("5.16.1"),
        &[("page-table", Absent), ("collapse", Absent), ("memory-reclaim", Absent)],
    ),
    ("5.17", |f| f.kernel = Release::parse("5.17.0"), &[("collapse", Absent), ("memory-reclaim", Absent)]),
    ("6.10", |f| f.kernel = Release::parse("6.10.0"), &[("memory-reclaim", Absent)]),
    ("6.11", |f| f.kernel = Release::parse("6.11.0"), &[]),
    (
        "5.9",
        |f| f.kernel = Release::parse("5.9.0"),
        &[
            ("page-table", Absent),
            ("madv-cold", Absent),
            ("collapse", Absent),
            ("reclaim", Absent),
            ("memory-reclaim", Absent),
        ],
    ),
    (
        "kernel unknown",
        |f| f.kernel = None,
        &[
            ("page-table", Unknown),
            ("madv-cold", Unknown),
            ("collapse", Unknown),
            ("reclaim", Unknown),
            ("memory-reclaim", Unknown),
        ],
    ),
    ("no BTF", |f| f.btf = Some(false), &[("page-table", Absent)]),
    ("BTF unknown", |f| f.btf = None, &[("page-table", Unknown)]),
    ("integrity", |f| f.lockdown = Some(Lockdown::Integrity), &[("mglru-aging", Absent)]),
    (
        "confidentiality",
        |f| f.lockdown = Some(Lockdown::Confidentiality),
        &[("page-table", Absent), ("mglru-aging", Absent), ("lockdown", Absent)],
    ),
    ("lockdown unknown", |f| f.lockdown = None, &[("lockdown", Unknown)]),
    // CAP_SYS_ADMIN stands in for these two ...
    ("no CAP_BPF, but admin", |f| drop_cap(f, &[Cap::Bpf, Cap::Perfmon]), &[]),
    ("no CAP_SYS_ADMIN", |f| drop_cap(f, &[Cap::SysAdmin]), &[("cap-sys-admin", Absent)]),
    // ... and without it they are missed.
    (
        "no CAP_BPF",
        |f| drop_cap(f, &[Cap::SysAdmin, Cap::Bpf]),
        &[("page-table", Absent), ("cap-sys-admin", Absent), ("cap-bpf", Absent)],
    ),
    (
        "no CAP_PERFMON",
        |f| drop_cap(f, &[Cap::SysAdmin, Cap::Perfmon]),
        &[("page-table", Absent), ("damon", Absent), ("cap-sys-admin", Absent), ("cap-perfmon", Absent)],
    ),
    (
        "no CAP_PERFMON, paranoid",
        |f| {
            drop_cap(f, &[Cap::SysAdmin, Cap::Perfmon]);
            f.perf_event_paranoid = Some(3);
        },
        &[
            ("page-table", Absent),
            ("perf", Absent),
            ("damon", Absent),
            ("cap-sys-admin", Absent),
            ("cap-perfmon", Absent),
            ("perf-events", Absent),
        ],
    ),
    ("paranoid", |f| f.perf_event_paranoid = Some(4), &[]),
    ("no CAP_SYS_PTRACE", |f| drop_cap(f, &[Cap::SysPtrace]), &[("page-table", Absent), ("cap-sys-ptrace", Absent)]),
    (
        "no CAP_SYS_NICE",
        |f| drop_cap(f, &[Cap::SysNice]),
        &[("madv-cold", Absent), ("collapse", Absent), ("reclaim", Absent), ("cap-sys-nice", Absent)],
    ),
    ("no CAP_SYS_RESOURCE", |f| drop_cap(f, &[Cap::SysResource]), &[("cap-sys-resource", Absent)]),
    (
        "no CAP_DAC_OVERRIDE",
        |f| drop_cap(f, &[Cap::DacOverride]),
        &[("damon", Absent), ("mglru-aging", Absent), ("memory-reclaim", Absent), ("cap-dac-override", Absent)],
    ),
    ("no CAP_DAC_READ_SEARCH, but its stronger one", |f| drop_cap(f, &[Cap::DacReadSearch]), &[]),
    (
        "no CAP_DAC_READ_SEARCH",
        |f| drop_cap(f, &[Cap::DacOverride, Cap::DacReadSearch]),
        &[
            ("damon", Absent),
            ("mglru-aging", Absent),
            ("memory-reclaim", Absent),
            ("cap-dac-override", Absent),
            ("cap-dac-read-search", Absent),
        ],
    ),
    (
        "no capability",
        |f| f.caps = Some(Caps(0)),
        &[
            ("page-table", Absent),
            ("damon", Absent),
            ("madv-cold", Absent),
            ("mglru-aging", Absent),
            ("collapse", Absent),
            ("reclaim", Absent),
            ("memory-reclaim", Absent),
            ("cap-sys-admin", Absent),
            ("cap-bpf", Absent),
            ("cap-perfmon", Absent),
            ("cap-sys-ptrace", Absent),
            ("cap-sys-nice", Absent),
            ("cap-sys-resource", Absent),
            ("cap-dac-override", Absent),
            ("cap-dac-read-search", Absent),
            ("cap-syslog", Absent),
        ],
    ),
    (
        "user namespace",
        |f| f.initial_user_namespace = Some(false),
        &[
            ("page-table", Absent),
            ("damon", Absent),
            ("madv-cold", Absent),
            ("mglru-aging", Absent),
            ("collapse", Absent),
            ("reclaim", Absent),
            ("memory-reclaim", Absent),
            ("cap-sys-admin", Absent),
            ("cap-bpf", Absent),
            ("cap-perfmon", Absent),
            ("cap-sys-ptrace", Absent),
            ("cap-sys-nice", Absent),
            ("cap-sys-resource", Absent),
            ("cap-dac-override", Absent),
            ("cap-dac-read-search", Absent),
            ("cap-syslog", Absent),
        ],
    ),
    // Worth a try: the base may be the fixed one.
    (
        "addresses hidden",
        |f| {
            f.symbols_visible = Some(false);
            f.kptr_restrict = Some(2);
        },
        &[("page-table", Unknown), ("kernel-symbols", Absent)],
    ),
    ("no clear_refs", |f| f.clear_refs = Some(false), &[("referenced", Absent), ("clear-refs", Absent)]),
    ("no smaps", |f| f.smaps = Some(false), &[("referenced", Absent)]),
    ("no event sources", |f| f.pmus = None, &[("perf", Unknown), ("pmu", Unknown)]),
    // Page faults are left.
    ("no PMU", |f| f.pmus.as_mut().expect("has some").retain(|p| p.memory.is_none()), &[("pmu", Absent)]),
    ("no perf events", |f| f.pmus = Some(Vec::new()), &[("perf", Absent), ("pmu", Absent)]),
    ("no DAMON", |f| f.damon = damon::Usage { sysfs: Some(false), ..damon::Usage::default() }, &[("damon", Absent)]),
    ("DAMON in use", |f| f.damon.kdamonds = Some(1), &[("damon", InUse)]),
    ("DAMON unknown", |f| f.damon = damon::Usage::default(), &[("damon", Unknown)]),
    ("DAMON has paddr only", |f| drop_option(f, "CONFIG_DAMON_VADDR"), &[]),
    (
        "DAMON has no operations",
        |f| {
            drop_option(f, "CONFIG_DAMON_VADDR");
            drop_option(f, "CONFIG_DAMON_PADDR");
        },
        &[("damon", Absent)],
    ),
    ("no tracefs", |f| f.tracefs = Some(false), &[("damon", Absent)]),
    ("no configuration", |f| f.config = None, &[("damon", Unknown)]),
    ("no madvise", |f| drop_option(f, "CONFIG_ADVISE_SYSCALLS"), &[("madv-cold", Absent), ("reclaim", Absent)]),
    ("no MGLRU", |f| f.mglru = Mglru { present: Some(false), ..Mglru::default() }, &[("mglru-aging", Absent)]),
    ("MGLRU off", |f| f.mglru.enabled = Some(0), &[("mglru-aging", Absent)]),
    ("MGLRU without batches", |f| f.mglru.enabled = Some(5), &[("mglru-aging", Absent)]),
    ("no debugfs", |f| f.mglru.debugfs = Some(false), &[("mglru-aging", Absent)]),
    ("debugfs unknown", |f| f.mglru.debugfs = None, &[("mglru-aging", Unknown)]),
    ("no THP", |f| f.thp = Thp { present: Some(false), ..Thp::default() }, &[("thp", Absent), ("collapse", Absent)]),
    ("no swap", |f| f.swap = Some(Bytes(0)), &[("reclaim", Absent)]),
    ("swap unknown", |f| f.swap = None, &[("reclaim", Unknown)]),
    ("no memory cgroups", |f| f.memory_cgroups = Some(false), &[("memory-reclaim", Absent)]),
    ("cgroups unknown", |f| f.memory_cgroups = None, &[("memory-reclaim", Unknown)]),
    ("no PSI", |f| f.psi = Some(false), &[("psi", Absent)]),
    ("THP off", |f| f.thp.enabled = Some("never".to_owned()), &[]),
    (
        "no cache",
        |f| f.nodes.as_mut().expect("has some").iter_mut().for_each(|node| node.caches.clear()),
        &[("memory-side-cache", Absent)],
    ),
    ("one node", |f| f.nodes.as_mut().expect("has some").truncate(1), &[("numa", Absent)]),
    ("nodes unknown", |f| f.nodes = None, &[("memory-side-cache", Unknown), ("numa", Unknown)]),
    ("no shuffle", |f| f.shuffle.on = Some(false), &[("shuffle", Absent)]),
    ("shuffle hidden", |f| f.shuffle.on = None, &[("shuffle", Unknown)]),
    ("no way to shuffle", |f| f.shuffle = Shuffle { built_in: Some(false), on: Some(false) }, &[("shuffle", Absent)]),
    ("a doubtful cache", |f| cache(f).doubts.push(Doubt::SameLevel(1)), &[("memory-side-cache", Unknown)]),
    ("a cache with a doubt that does not matter", |f| cache(f).doubts.push(Doubt::Missing("write_policy")), &[]),
    ("a cache of unknown indexing", |f| cache(f).indexing = None, &[("memory-side-cache", Unknown)]),
    ("an associative cache", |f| cache(f).indexing = Some(Indexing::Associative), &[]),
];

#[test]
fn each_loss_costs_what_depends_on_it_and_nothing_else() {
    for (loss, remove, expected) in LOSSES {
        let mut facts = capable_host();
        remove(&mut facts);
        assert_eq!(changes(&facts), *expected, "{loss}");
    }
}

fn finding(facts: &HostFacts, name: &str) -> Finding {
    assess(facts).into_iter().find(|finding| finding.name == name).expect("always listed")
}

#[test]
fn advice_names_the_privilege_or_the_option() {
    let advice = |name: &str, remove: fn(&mut HostFacts)| {
        let mut facts = capable_host();
        remove(&mut facts);
        finding(&facts, name).advice
    };
    let grant = advice("page-table", |f| f.caps = Some(Caps(0)));
    assert!(grant.contains("run as root, or: setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_sys_nice"), "{grant}");
    assert_eq!(grant.matches("setcap").count(), 1, "said once for several capabilities: {grant}");
    assert!(advice("page-table", |f| f.btf = Some(false)).contains("CONFIG_DEBUG_INFO_BTF"));
    assert!(advice("clear-refs", |f| f.clear_refs = Some(false)).contains("CONFIG_PROC_PAGE_MONITOR"));
    assert!(advice("madv-cold", |f| f.initial_user_namespace = Some(false)).contains("user namespace"));
    let hidden = |f: &mut HostFacts| (f.symbols_visible, f.kptr_restrict) = (Some(false), Some(2));
    assert!(advice("kernel-symbols", hidden).contains("kptr_restrict to 0 or 1"));
    assert!(advice("memory-side-cache", |f| f.shuffle.on = Some(false)).contains("page_alloc.shuffle=1"));
    let cannot = |f: &mut HostFacts| f.shuffle = Shuffle { built_in: Some(false), on: Some(false) };
    assert!(advice("memory-side-cache", cannot).contains("CONFIG_SHUFFLE_PAGE_ALLOCATOR"));
    assert!(advice("memory-side-cache", |f| f.shuffle.on = None).contains("run as root"));
    assert!(advice("memory-side-cache", |f| cache(f).indexing = None).contains("doctor --probe-cache"));
    assert!(advice("memory-reclaim", |f| f.kernel = Release::parse("6.1.0")).contains("boot Linux 6.11"));
    assert!(advice("psi", |f| f.psi = Some(false)).contains("psi=1"));
    assert!(advice("damon", |f| f.damon.threads = Some(1)).contains("leave it to its user"));
}

#[test]
fn details_say_how_far_a_thing_reaches() {
    let mut facts = capable_host();
    assert!(finding(&facts, "madv-cold").detail.contains("any process"));
    drop_cap(&mut facts, &[Cap::SysPtrace]);
    assert!(finding(&facts, "madv-cold").detail.contains("own processes only"));
    assert_eq!(
        finding(&facts, "memory-side-cache").detail,
        "node 0: 256.0 MiB, direct-mapped, write-back, lines of 64 bytes, level 1; frames 256.0 MiB apart \
         compete for a line; page_alloc.shuffle is on"
    );
    assert!(finding(&facts, "perf").detail.contains("cpu (PEBS)"));
}

#[test]
fn every_loss_comes_with_a_reason() {
    for (loss, remove, _) in LOSSES {
        let mut facts = capable_host();
        remove(&mut facts);
        for finding in assess(&facts) {
            assert!(!finding.detail.is_empty(), "{loss}: {finding:?}");
            let by_needs = matches!(finding.area, Area::Source | Area::Clear);
            assert!(finding.state == State::Present || !by_needs || !finding.advice.is_empty(), "{loss}: {finding:?}");
        }
    }
}

#[test]
fn this_machine_can_be_read() {
    let facts = HostFacts::read(&HostRoots::default(), 4096);
    assert!(facts.kernel.is_some() && facts.memory.is_some() && facts.cpus.is_some());
    assert_eq!(assess(&facts).len(), assess(&capable_host()).len());
}
