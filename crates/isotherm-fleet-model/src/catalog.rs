//! The services of the modelled fleet: what memory each has and what happens to it.
//!
//! Sizes and shares are made up, after what is common: caches whose larger part is cold, servers with a day curve, agents that are the same
//! everywhere, a few that leak, a few with far more memory than they need.

/// Kinds of mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// `[heap]`.
    Heap,
    /// Anonymous memory.
    Anon,
    /// A file.
    File,
    /// `[stack]`.
    Stack,
    /// Shared memory.
    Shared,
}

/// A part of the memory of a service, with pages of like heat.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where it is.
    pub mapped: Mapped,
    /// Its share of the size of the service.
    pub share: f64,
    /// The time between two accesses to a page, seconds. 0: it is not accessed after it was filled.
    pub interval_s: f64,
    /// How far the intervals of its pages spread: standard deviation in octaves.
    pub octaves: f64,
    /// The share on huge pages.
    pub huge: f64,
}

/// How the cgroup of a service is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `/system.slice/NAME.service`.
    Unit,
    /// `/system.slice/system-NAME.slice/NAME@N.service`, several a host.
    Instances,
    /// A pod: each deploy has another one.
    Pod,
}

/// A service as it is on all hosts.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// The name of its unit or its command.
    pub name: &'static str,
    /// How its cgroup is named.
    pub layout: Layout,
    /// The share of hosts that have it.
    pub on_hosts: f64,
    /// Its mean size.
    pub size_mib: f64,
    /// Its memory.
    pub parts: &'static [Part],
    /// By how much its load goes up and down in a day, as a share of its mean. Its first parts grow and become hotter with it.
    pub day: f64,
    /// What it leaks, as a share of its size each day.
    pub leak_per_day: f64,
    /// Mean time between restarts, hours; 0 for none.
    pub deploy_hours: f64,
    /// Its memory limit, times its size; 0 for none.
    pub limit: f64,
    /// Its memory request, times its size; 0 for none.
    pub request: f64,
    /// The share of what is never accessed that leaves by page-out in the end.
    pub paged_out: f64,
    /// The hour of the night in which something reads all its memory, such as a backup.
    pub scanned_at_hour: Option<f64>,
}

const fn part(mapped: Mapped, share: f64, interval_s: f64, octaves: f64, huge: f64) -> Part {
    Part { mapped, share, interval_s, octaves, huge }
}

use Layout::{Instances, Pod, Unit};
use Mapped::{Anon, File, Heap, Shared, Stack};

const SERVER: &[Part] = &[
    part(Anon, 0.25, 0.08, 0.6, 0.3),
    part(Heap, 0.2, 6.0, 0.7, 0.0),
    part(Stack, 0.01, 0.02, 0.3, 0.0),
    part(File, 0.14, 45.0, 0.8, 0.0),
    part(Anon, 0.4, 0.0, 0.4, 0.5),
];
const JVM: &[Part] = &[
    part(Anon, 0.35, 0.15, 0.7, 0.9),
    part(Anon, 0.25, 25.0, 0.9, 0.8),
    part(File, 0.1, 12.0, 0.6, 0.0),
    part(Heap, 0.05, 1.5, 0.5, 0.0),
    part(Anon, 0.25, 0.0, 0.4, 0.8),
];
const CACHE: &[Part] = &[
    part(Heap, 0.15, 0.5, 0.8, 0.1),
    part(Heap, 0.2, 30.0, 0.9, 0.1),
    part(Heap, 0.2, 900.0, 0.8, 0.1),
    part(File, 0.02, 5.0, 0.5, 0.0),
    part(Heap, 0.43, 0.0, 0.4, 0.1),
];
const DATABASE: &[Part] = &[
    part(Shared, 0.3, 0.3, 0.8, 0.0),
    part(Shared, 0.3, 60.0, 0.9, 0.0),
    part(Heap, 0.05, 0.1, 0.5, 0.0),
    part(File, 0.05, 20.0, 0.6, 0.0),
    part(Shared, 0.3, 0.0, 0.4, 0.0),
];
const AGENT: &[Part] =
    &[part(Heap, 0.2, 2.0, 0.5, 0.0), part(File, 0.4, 30.0, 0.7, 0.0), part(Anon, 0.4, 0.0, 0.4, 0.0)];
const BATCH: &[Part] =
    &[part(Anon, 0.7, 0.04, 0.5, 0.6), part(File, 0.1, 3.0, 0.5, 0.0), part(Anon, 0.2, 0.0, 0.3, 0.2)];

const PLAIN: Template = Template {
    name: "",
    layout: Unit,
    on_hosts: 1.0,
    size_mib: 64.0,
    parts: AGENT,
    day: 0.0,
    leak_per_day: 0.0,
    deploy_hours: 0.0,
    limit: 0.0,
    request: 0.0,
    paged_out: 0.0,
    scanned_at_hour: None,
};

/// All services.
pub const SERVICES: &[Template] = &[
    Template { name: "systemd-journald", size_mib: 48.0, ..PLAIN },
    Template { name: "ssh", size_mib: 12.0, ..PLAIN },
    Template { name: "node-exporter", size_mib: 30.0, limit: 8.0, ..PLAIN },
    Template { name: "log-agent", size_mib: 180.0, leak_per_day: 0.25, deploy_hours: 400.0, limit: 4.0, ..PLAIN },
    Template { name: "containerd", size_mib: 120.0, on_hosts: 0.7, ..PLAIN },
    Template { name: "kubelet", size_mib: 150.0, on_hosts: 0.7, day: 0.1, ..PLAIN },
    Template {
        name: "redis-server",
        size_mib: 6144.0,
        on_hosts: 0.3,
        parts: CACHE,
        day: 0.3,
        limit: 1.3,
        paged_out: 0.6,
        ..PLAIN
    },
    Template { name: "memcached", size_mib: 4096.0, on_hosts: 0.25, parts: CACHE, day: 0.4, limit: 1.25, ..PLAIN },
    Template {
        name: "postgresql",
        layout: Instances,
        size_mib: 8192.0,
        on_hosts: 0.2,
        parts: DATABASE,
        day: 0.25,
        limit: 1.5,
        scanned_at_hour: Some(2.0),
        ..PLAIN
    },
    Template {
        name: "shop-web",
        layout: Pod,
        size_mib: 1024.0,
        on_hosts: 0.6,
        parts: SERVER,
        day: 0.5,
        deploy_hours: 20.0,
        limit: 2.0,
        request: 1.0,
        ..PLAIN
    },
    Template {
        name: "shop-cart",
        layout: Pod,
        size_mib: 1536.0,
        on_hosts: 0.5,
        parts: JVM,
        day: 0.4,
        deploy_hours: 30.0,
        limit: 1.5,
        request: 1.2,
        ..PLAIN
    },
    Template {
        name: "shop-search",
        layout: Pod,
        size_mib: 6144.0,
        on_hosts: 0.3,
        parts: JVM,
        day: 0.5,
        deploy_hours: 60.0,
        limit: 4.0,
        request: 4.0,
        paged_out: 0.5,
        ..PLAIN
    },
    Template {
        name: "shop-pay",
        layout: Pod,
        size_mib: 768.0,
        on_hosts: 0.4,
        parts: JVM,
        day: 0.3,
        deploy_hours: 90.0,
        leak_per_day: 0.35,
        limit: 6.0,
        request: 2.0,
        ..PLAIN
    },
    Template {
        name: "ads-ranker",
        layout: Pod,
        size_mib: 12_288.0,
        on_hosts: 0.2,
        parts: CACHE,
        day: 0.6,
        deploy_hours: 48.0,
        limit: 1.3,
        request: 1.1,
        paged_out: 0.7,
        ..PLAIN
    },
    Template {
        name: "ads-server",
        layout: Pod,
        size_mib: 2048.0,
        on_hosts: 0.4,
        parts: SERVER,
        day: 0.5,
        deploy_hours: 25.0,
        limit: 5.0,
        request: 5.0,
        ..PLAIN
    },
    Template {
        name: "mail-filter",
        size_mib: 900.0,
        on_hosts: 0.3,
        parts: SERVER,
        day: 0.2,
        leak_per_day: 0.12,
        limit: 3.0,
        ..PLAIN
    },
    Template {
        name: "video-encode",
        layout: Pod,
        size_mib: 3072.0,
        on_hosts: 0.3,
        parts: BATCH,
        day: 0.7,
        deploy_hours: 8.0,
        limit: 2.5,
        request: 2.0,
        ..PLAIN
    },
    Template {
        name: "report-batch",
        layout: Instances,
        size_mib: 2048.0,
        on_hosts: 0.3,
        parts: BATCH,
        day: 0.8,
        deploy_hours: 24.0,
        limit: 4.0,
        ..PLAIN
    },
    Template { name: "nginx", size_mib: 256.0, on_hosts: 0.7, parts: SERVER, day: 0.5, limit: 3.0, ..PLAIN },
    Template {
        name: "build-cache",
        size_mib: 10_240.0,
        on_hosts: 0.1,
        parts: CACHE,
        day: 0.3,
        limit: 1.2,
        paged_out: 0.5,
        scanned_at_hour: Some(3.5),
        ..PLAIN
    },
    Template {
        name: "metrics-store",
        size_mib: 5120.0,
        on_hosts: 0.1,
        parts: DATABASE,
        leak_per_day: 0.05,
        deploy_hours: 120.0,
        limit: 2.0,
        ..PLAIN
    },
];
