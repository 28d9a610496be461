//! One service on one host, from moment to moment: its truth, and the rows that a monitor would send of it.
//!
//! Its parts have intervals that spread around a middle ([`Spread`]). The load of the day makes its active parts larger and hotter. What is
//! not accessed has no interval: a monitor reports eight times its idle time, and so does this. Idle memory that is found accessed follows
//! from the intervals: of pages with an interval of 10 s, a tenth is found accessed each second, after 10 s.

use crate::catalog::{Layout, Mapped, Part, Template};
use crate::spread::{Spread, whole};
use isotherm_heat::{CgroupMemory, Histogram, Interval, Mapping, Region};
use isotherm_rng::Rng;
use isotherm_stream::{IdleRow, MappingRow, ProcessRow, RegionRow, Snapshot};
use isotherm_units::{Addr, AddrRange, Bytes, PMD_SIZE};

const MIB: f64 = 1_048_576.0;
const PAGE: f64 = 4096.0;
const DAY_S: f64 = 86_400.0;
/// How long something reads all memory in the night.
const SCAN_S: f64 = 1800.0;
/// Until when a service that was started has all of its memory.
const WARM_S: f64 = 1500.0;
/// Idle time until a monitor reports eight times of it.
const EXTRAPOLATED: f64 = 8.0;

/// What is true of a service at a moment, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// All memory.
    pub resident: f64,
    /// Accessed within ten minutes.
    pub wss_10m: f64,
    /// Accessed within a second, and on small pages.
    pub hot_not_huge: f64,
    /// Not accessed within ten minutes.
    pub cold_10m: f64,
    /// Not accessed within an hour.
    pub cold_1h: f64,
    /// In swap.
    pub swapped: f64,
}

/// A service on a host.
#[derive(Debug)]
pub struct Running {
    /// What it is.
    pub template: &'static Template,
    seed: u64,
    pid: u32,
    /// How much larger than the mean it is here.
    scale: f64,
    /// The hour of its highest load.
    peak_s: f64,
    started_s: f64,
    next_deploy_s: f64,
    generation: u64,
    out_pages: f64,
    left_bytes: f64,
    refaulted_bytes: f64,
}

impl Running {
    /// On a host. It was started some time before `from_s`, seconds since the epoch.
    pub fn new(template: &'static Template, seed: u64, pid: u32, from_s: f64) -> Running {
        let mut rng = Rng::new(seed);
        let scale = 0.8 * (2.0_f64).powf(rng.unit() * 0.65);
        let peak_s = (13.0 + 4.0 * rng.unit()) * 3600.0;
        let age_s = if template.deploy_hours > 0.0 { template.deploy_hours * 3600.0 * rng.unit() } else { 5.0 * DAY_S };
        let mut running = Running {
            template,
            seed,
            pid,
            scale,
            peak_s,
            started_s: from_s - age_s,
            next_deploy_s: f64::INFINITY,
            generation: 0,
            out_pages: 0.0,
            left_bytes: 0.0,
            refaulted_bytes: 0.0,
        };
        running.plan_deploy(from_s);
        // What has left before then.
        running.page_out(from_s, 0.0);
        running.monitor_started();
        running
    }

    fn plan_deploy(&mut self, now_s: f64) {
        let mut rng = Rng::new(self.seed ^ (self.generation + 1) << 40);
        let hours = self.template.deploy_hours;
        self.next_deploy_s =
            if hours > 0.0 { now_s + hours * 3600.0 * (0.3 + 1.4 * rng.unit()) } else { f64::INFINITY };
    }

    /// Starts it anew if it is time.
    pub fn advance(&mut self, now_s: f64) {
        if now_s >= self.next_deploy_s {
            self.started_s = now_s;
            self.generation += 1;
            (self.out_pages, self.left_bytes, self.refaulted_bytes) = (0.0, 0.0, 0.0);
            self.plan_deploy(now_s);
        }
    }

    /// Counters begin at 0 with the monitor.
    pub fn monitor_started(&mut self) {
        (self.left_bytes, self.refaulted_bytes) = (0.0, 0.0);
    }

    /// Whether it ran for so long.
    pub fn runs_since(&self, unix_s: f64) -> bool {
        self.started_s <= unix_s
    }

    /// Its limit in bytes.
    pub fn limit_bytes(&self) -> Option<u64> {
        let bytes = whole(self.template.limit * self.template.size_mib * self.scale.max(1.0)) << 20;
        (bytes > 0).then_some(bytes)
    }

    fn cgroup(&self) -> String {
        let name = self.template.name;
        match self.template.layout {
            Layout::Unit => format!("/system.slice/{name}.service"),
            Layout::Instances => format!("/system.slice/system-{name}.slice/{name}@main.service"),
            Layout::Pod => {
                let mut rng = Rng::new(self.seed ^ self.generation.wrapping_mul(0x9e37_79b9));
                let [a, b, c, d, e, f] = std::array::from_fn(|_| rng.next_u64());
                let uid = format!(
                    "{:08x}_{:04x}_4{:03x}_9{:03x}_{:012x}",
                    a >> 32,
                    a & 0xffff,
                    b & 0xfff,
                    c & 0xfff,
                    d >> 16
                );
                let id = format!("{d:016x}{e:016x}{f:016x}{a:016x}");
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{id}.scope"
                )
            }
        }
    }

    fn load(&self, now_s: f64) -> f64 {
        let noise = Rng::new(self.seed ^ whole(now_s / 600.0)).unit() - 0.5;
        let wave = ((now_s - self.peak_s) / DAY_S * std::f64::consts::TAU).cos();
        (1.0 + self.template.day * (wave * 0.85 + noise * 0.3)).max(0.15)
    }

    /// Since when what is not accessed was not: the start, or the end of the last scan. And how far a scan is, if one runs.
    fn idle_s(&self, now_s: f64) -> (f64, bool) {
        let age_s = (now_s - self.started_s).max(1.0);
        let Some(hour) = self.template.scanned_at_hour else { return (age_s, false) };
        let since_s = (now_s - hour * 3600.0).rem_euclid(DAY_S);
        if since_s < SCAN_S { (age_s.min(DAY_S), true) } else { (age_s.min(since_s - SCAN_S + 60.0), false) }
    }

    /// Its parts at a moment, as pages around a middle; without those in swap.
    fn parts(&self, now_s: f64) -> Vec<(Part, Spread)> {
        let (load, warm) = (self.load(now_s), ((now_s - self.started_s) / WARM_S).clamp(0.2, 1.0));
        let (idle_s, _) = self.idle_s(now_s);
        let pages = self.template.size_mib * MIB / PAGE * self.scale;
        let mut parts: Vec<(Part, Spread)> = Vec::with_capacity(self.template.parts.len() + 1);
        for part in self.template.parts {
            let is_cold = part.interval_s == 0.0;
            let grows = if is_cold { 1.0 } else { 0.5 + 0.5 * load };
            let out = if is_cold { self.out_pages } else { 0.0 };
            let spread = Spread {
                pages: (pages * part.share * grows * warm - out).max(0.0),
                middle_s: if is_cold { idle_s * EXTRAPOLATED } else { part.interval_s / load },
                octaves: part.octaves,
            };
            parts.push((*part, spread));
        }
        let leaked = pages * self.template.leak_per_day * (now_s - self.started_s).max(0.0) / DAY_S;
        if leaked >= 1.0 {
            // Leaked ever since it was started: half of it in the last half of the time.
            let middle_s = (now_s - self.started_s) * 0.5 * EXTRAPOLATED;
            let part = Part { mapped: Mapped::Heap, share: 0.0, interval_s: 0.0, octaves: 0.7, huge: 0.0 };
            parts.push((part, Spread { pages: leaked, middle_s, octaves: 0.7 }));
        }
        parts
    }

    /// What leaves and comes back in a window that ends now.
    fn page_out(&mut self, now_s: f64, window_s: f64) {
        let (idle_s, is_scanned) = self.idle_s(now_s);
        let cold = self.template.parts.iter().filter(|part| part.interval_s == 0.0).map(|part| part.share).sum::<f64>();
        let most = self.template.size_mib * MIB / PAGE * self.scale * cold * self.template.paged_out;
        let wanted = if is_scanned { 0.0 } else { most * ((idle_s - 7200.0) / 21_600.0).clamp(0.0, 1.0) };
        // Some of it is needed after all: a tenth of a percent in an hour.
        let back = self.out_pages * 0.001 * window_s / 3600.0 + (self.out_pages - wanted).max(0.0);
        let back = back.min(self.out_pages);
        let left = (wanted - (self.out_pages - back)).max(0.0);
        self.out_pages += left - back;
        self.left_bytes += left * PAGE;
        self.refaulted_bytes += back * PAGE;
    }

    /// Adds its rows to a snapshot of a window that ends now, and returns the truth.
    pub fn add_to(&mut self, snapshot: &mut Snapshot, now_s: f64, window_s: f64) -> Moment {
        self.page_out(now_s, window_s);
        let parts = self.parts(now_s);
        let start_ticks = whole(self.started_s * 100.0) ^ self.generation;
        let id = (self.pid, start_ticks);
        let (mut heat, mut huge, mut idle) = (Histogram::default(), Histogram::default(), Histogram::default());
        let mut at = 0x5500_0000_0000_u64;
        for (part, spread) in &parts {
            spread.add_to(&mut heat);
            spread.for_each(|code, pages| huge.add(code, whole(as_f64(pages) * part.huge)));
            idle_of(part, spread).add_to(&mut idle);
            at = add_memory(snapshot, id, (part, spread), at);
        }
        self.add_accessed(snapshot, id, &parts, (now_s, window_s));
        let truth = truth_of(&parts, self.out_pages);
        let out_bytes = whole(self.out_pages * PAGE);
        let kernel = Bytes(whole(truth.resident * 0.03) + (2 << 20));
        let file = Bytes(whole(truth.resident * 0.25));
        snapshot.processes.push(ProcessRow {
            pid: self.pid,
            start_ticks,
            comm: self.template.name.chars().take(15).collect(),
            cgroup: self.cgroup(),
            heat,
            heat_huge: huge,
            idle,
            swapped_bytes: Some(out_bytes),
            cgroup_memory: Some(CgroupMemory {
                anon: Bytes(whole(truth.resident * 0.9)),
                file,
                slab: kernel,
                swap: Bytes(out_bytes),
            }),
            cgroup_limit_bytes: self.limit_bytes(),
            left_bytes: whole(self.left_bytes),
            refaulted_bytes: whole(self.refaulted_bytes),
            out_bytes,
            ..ProcessRow::default()
        });
        truth
    }

    /// Idle pages that were found accessed.
    fn add_accessed(
        &self,
        snapshot: &mut Snapshot,
        (pid, start_ticks): (u32, u64),
        parts: &[(Part, Spread)],
        (now_s, window_s): (f64, f64),
    ) {
        let (idle_s, is_scanned) = self.idle_s(now_s);
        let mut found = Histogram::default();
        for (part, spread) in parts {
            if part.interval_s > 0.0 {
                spread.for_each(|interval, pages| {
                    if interval >= Interval::HOT {
                        found.add(interval, whole(as_f64(pages) * interval.rate_hz() * window_s));
                    }
                });
            } else if is_scanned {
                found.add(Interval::from_ns(whole(idle_s * 1e9)), whole(spread.pages * window_s / SCAN_S));
            }
        }
        snapshot.idle.extend(found.iter().map(|(interval, pages)| IdleRow { pid, start_ticks, interval, pages }));
    }
}

/// Pages by idle time: on average, half of an interval has passed.
fn idle_of(part: &Part, spread: &Spread) -> Spread {
    let factor = if part.interval_s > 0.0 { 0.5 } else { 1.0 / EXTRAPOLATED };
    Spread { middle_s: spread.middle_s * factor, ..*spread }
}

/// A mapping with one region. Returns where the next may begin.
fn add_memory(
    snapshot: &mut Snapshot,
    (pid, start_ticks): (u32, u64),
    (part, spread): (&Part, &Spread),
    at: u64,
) -> u64 {
    let pages = whole(spread.pages);
    if pages == 0 {
        return at;
    }
    let bytes = (pages * 4096).next_multiple_of(PMD_SIZE);
    let range = AddrRange::new(Addr(at), Addr(at + bytes));
    let interval = Interval::from_ns(whole(spread.middle_s * 1e9));
    let region = Region {
        range,
        resident_pages: pages,
        measured_pages: pages,
        huge_pages: whole(as_f64(pages) * part.huge),
        interval,
        rate_hz: if part.interval_s > 0.0 { rate(spread) } else { 0.0 },
        age_ns: 0,
        idle_ns: whole(idle_of(part, spread).middle_s * 1e9),
        sampled_pages: 0,
        estimated_pages: 0,
        hot_pages: None,
    };
    let (name, perms) = match part.mapped {
        Mapped::Heap => ("[heap]", "rw-p"),
        Mapped::Anon => ("", "rw-p"),
        Mapped::File => ("/usr/lib/service.so", "r-xp"),
        Mapped::Stack => ("[stack]", "rw-p"),
        Mapped::Shared => ("/dev/shm/buffers", "rw-s"),
    };
    let perms = perms.parse().unwrap_or_default();
    snapshot.regions.push(RegionRow { pid, start_ticks, region });
    snapshot.mappings.push(MappingRow { pid, start_ticks, mapping: Mapping { range, name: name.into(), perms } });
    at + bytes + (1 << 30)
}

#[expect(clippy::cast_possible_truncation, reason = "a rate as regions have it")]
fn rate(spread: &Spread) -> f32 {
    (1.0 / spread.middle_s) as f32
}

fn truth_of(parts: &[(Part, Spread)], out_pages: f64) -> Moment {
    let mut truth = Moment { swapped: out_pages * PAGE, ..Moment::default() };
    for (part, spread) in parts {
        // What is not accessed has no interval, however short the time for which it was not.
        let within = |seconds: f64| if part.interval_s > 0.0 { spread.within(seconds) } else { 0.0 };
        truth.resident += spread.pages * PAGE;
        truth.wss_10m += within(600.0) * PAGE;
        truth.hot_not_huge += within(1.0) * (1.0 - part.huge) * PAGE;
        truth.cold_10m += (spread.pages - within(600.0)) * PAGE;
        truth.cold_1h += (spread.pages - within(3600.0)) * PAGE;
    }
    truth
}

#[expect(clippy::cast_precision_loss, reason = "pages of a model")]
fn as_f64(pages: u64) -> f64 {
    pages as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::SERVICES;

    #[test]
    fn rows_have_the_memory_of_the_truth() {
        for (template, seed) in SERVICES.iter().zip(1..) {
            let mut running = Running::new(template, seed, 1, 1e9);
            let mut snapshot = Snapshot::default();
            let truth = running.add_to(&mut snapshot, 1e9 + 50_000.0, 150.0);
            let row = &snapshot.processes[0];
            let resident = as_f64(row.heat.resident()) * PAGE;
            assert!((resident / truth.resident - 1.0).abs() < 1e-3, "{}: {resident} {}", template.name, truth.resident);
            let by_regions: u64 = snapshot.regions.iter().map(|row| row.region.resident_pages).sum();
            assert!(by_regions.abs_diff(row.heat.resident()) <= 6, "{}", template.name);
            assert!(row.heat_huge.iter().all(|(code, pages)| pages <= row.heat.at(code)));
            let wss = as_f64(row.heat.within_ns(600_000_000_000)) * PAGE;
            assert!((wss / truth.wss_10m - 1.0).abs() < 0.06, "{}: {wss} {}", template.name, truth.wss_10m);
        }
    }

    #[test]
    fn a_pod_has_another_cgroup_after_a_deploy_and_counts_anew() {
        let template = SERVICES.iter().find(|t| t.name == "shop-search").unwrap();
        let mut running = Running::new(template, 5, 1, 1e9);
        let mut rows = Snapshot::default();
        running.add_to(&mut rows, 1e9 + 30_000.0, 150.0);
        running.advance(1e9 + 1e6);
        running.add_to(&mut rows, 1e9 + 1e6 + 150.0, 150.0);
        let [before, after] = &rows.processes[..] else { panic!() };
        assert!(before.swapped_bytes > Some(0) && after.swapped_bytes == Some(0) && after.left_bytes == 0);
        assert!(before.cgroup != after.cgroup && before.start_ticks != after.start_ticks);
        assert!(before.heat.resident() > after.heat.resident(), "it has not filled up yet");
    }
}
