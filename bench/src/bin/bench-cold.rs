//! Paging out of cold memory: `isotherm run` against the kernel's ways, at equal amounts, on a store whose hot memory wanders and on idle
//! heaps beside it.
//!
//! Runs only in a guest of the lab (`make bench-cold` boots one), since it changes settings of the kernel and needs swap. The guest's
//! processors are executed in turn and by instruction count, and its clock skips the time in which they are idle: an instruction takes
//! 2 ns by that clock, so CPU time is the number of instructions, and comes out the same each time. What that cannot show is the time
//! that real memory and caches take.
//!
//! For each seed, one way after the other on a scene of its own:
//!
//! ```text
//!   0 s                     SETTLED_S, or later             + MEASURED_S
//!   store and heaps run     as much has left as by ours     refaults, CPU time an operation,
//!   and are watched         (memory.reclaim: now)           which pages are out; ours: a heap turns hot
//! ```
//!
//! DAMON's schemes may take MORE_S longer. What has moved little has few refaults, whatever it chose.
//!
//! *Hot* is a page of the store that was accessed once a second or more often while measured, *cold* one that was not accessed at all.

#[path = "../cold/mod.rs"]
mod cold;

use anyhow::{Context, Result};
use cold::evict::Turns;
use cold::scene::{HEAP_PAGES, Load, STORE_PAGES, Scene};
use cold::ways::{Way, Working, reclaim_by_size};
use cold::{loss, wait};
use isotherm_bench::neighbours::{Neighbour, Neighbours};
use isotherm_bench::{Log, become_workload, median, need_lab, only, spread, trials};
use isotherm_sys::clock;

/// Idle for this long, a page leaves: by ours, and by DAMON.
const AGE_S: u64 = 60;
/// The age, and the time that each way takes to move what there is at its budgets.
const SETTLED_S: f64 = AGE_S as f64 + 90.0;
const MEASURED_S: u32 = 60;
/// What the kernel's ways may take longer, to page out as much as ours: this share of it, since they stop short of their quota.
const MORE_S: f64 = 900.0;
const AS_MUCH: f64 = 0.95;
/// Longer than anything should take.
const PATIENCE_S: f64 = 30.0;

fn main() -> Result<()> {
    become_workload()?;
    need_lab("bench-cold", "changes settings of the kernel")?;
    let mut log = Log::new("bench-cold");
    let trials = trials(5);
    log.line(format!(
        "a store of {} MiB, {} idle heaps of {} MiB; {trials} seeds; pages leave that are idle for {AGE_S} s",
        STORE_PAGES >> 8,
        Load::USUAL.heaps,
        HEAP_PAGES >> 8
    ));
    log.line("under emulation, by instruction count: CPU time is the number of instructions");
    let _neighbours = Neighbours::start(Neighbour::Dozes)?;
    if "ways".contains(&only()) {
        ways(&mut log, trials)?;
    }
    if "loss".contains(&only()) {
        losses(&mut log, trials)?;
    }
    if "evict".contains(&only()) {
        watched_and_not(&mut log, trials)?;
    }
    log.finish()
}

/// What came of one way.
#[derive(Clone, Copy, Debug, Default)]
struct Came {
    settled_s: f64,
    out_mib: f64,
    cold_out: f64,
    hot_out: f64,
    refaults: f64,
    used_pages: f64,
    cpu_ns_per_operation: f64,
    stop_s: f64,
}

impl Came {
    /// Refaults a minute, in percent of the pages that were used.
    fn refaults_pct_min(&self) -> f64 {
        self.refaults / self.used_pages * 100.0 * 60.0 / f64::from(MEASURED_S)
    }
}

fn ways(log: &mut Log, trials: usize) -> Result<()> {
    let mut all: Vec<[Came; Way::ALL.len()]> = Vec::new();
    for seed in 1..=trials as u64 {
        let mut came = [Came::default(); Way::ALL.len()];
        let mut bytes = 0;
        for (way, came) in Way::ALL.into_iter().zip(&mut came) {
            let (of, left) = run(way, seed * 100, bytes).with_context(|| way.text())?;
            *came = of;
            if way == Way::Ours {
                bytes = left;
            }
            log.line(format!(
                "seed {seed}  {:<24} out {:>6.1} MiB after {:>4.0} s  cold out {:.3}  hot out {:.4}  refaults {:>6.0} ({:>7.3} % a minute)  {:>7.1} ns an operation",
                way.text(),
                of.out_mib,
                of.settled_s,
                of.cold_out,
                of.hot_out,
                of.refaults,
                of.refaults_pct_min(),
                of.cpu_ns_per_operation
            ));
        }
        all.push(came);
    }
    conclude(log, &all);
    Ok(())
}

/// Runs one way on a scene of its own. Returns how many bytes had left when it had settled, too.
fn run(way: Way, seed: u64, bytes: u64) -> Result<(Came, u64)> {
    let mut scene = Scene::start(seed, Load::USUAL)?;
    let working = way.start(&scene, AGE_S, bytes)?;
    let settled_s = settle(&scene, if matches!(working, Working::Damon) { bytes } else { 0 })?;
    scene.truth();
    if way == Way::BySize {
        reclaim_by_size(&scene, bytes)?;
    }
    // Hot pages that are out are back within a second.
    let (out, left, before) = (scene.store_out()?, scene.swapped()?, scene.refaults()?);
    wait(f64::from(MEASURED_S));
    let truth = scene.truth();
    let mut came = Came {
        settled_s,
        out_mib: left as f64 / 1_048_576.0,
        cold_out: truth.cold_out_share(&scene)?,
        hot_out: truth.hot_out_share(&out),
        refaults: (scene.refaults()? - before) as f64,
        used_pages: truth.used_pages() as f64,
        cpu_ns_per_operation: scene.cpu_ns_per_operation(u64::from(MEASURED_S) * 1_000_000_000)?,
        stop_s: 0.0,
    };
    if let Working::Ours(daemon) = &working {
        let heap = &mut scene.heaps[0];
        heap.heat(0, HEAP_PAGES)?;
        let (began, pid) = (clock::monotonic_ns(), heap.pid());
        let since = || (clock::monotonic_ns() - began) as f64 / 1e9;
        while daemon.target(pid)?["page_out"]["stays"] != "refaults" && since() < PATIENCE_S {
            wait(0.2);
        }
        came.stop_s = since();
    }
    Ok((came, left))
}

/// Waits until about so many bytes have left, for the usual time at the least. Returns how long that took.
fn settle(scene: &Scene, bytes: u64) -> Result<f64> {
    let mut waited_s = SETTLED_S;
    wait(SETTLED_S);
    while (scene.swapped()? as f64) < bytes as f64 * AS_MUCH && waited_s < SETTLED_S + MORE_S {
        wait(PATIENCE_S);
        waited_s += PATIENCE_S;
    }
    Ok(waited_s)
}

fn conclude(log: &mut Log, all: &[[Came; Way::ALL.len()]]) {
    let of = |way: Way, what: &dyn Fn(&Came) -> f64| -> Vec<f64> {
        let at = Way::ALL.iter().position(|w| *w == way).unwrap_or_default();
        all.iter().map(|came| what(&came[at])).collect()
    };
    let ours = |what: &dyn Fn(&Came) -> f64| of(Way::Ours, what);
    let refaults = |way| of(way, &|c| c.refaults);
    let against = |way| -> Vec<f64> {
        refaults(Way::Ours).iter().zip(refaults(way)).map(|(ours, theirs)| (ours + 1.0) / (theirs + 1.0)).collect()
    };
    for way in [Way::BySize, Way::Damos, Way::DamonReclaim] {
        log.line(format!("{:<24} ours has so many refaults for each of its: {}", way.text(), spread(&against(way))));
    }
    let mut result = |key, values: Vec<f64>| log.result(key, median(&values));
    result("cold_out_share", ours(&|c| c.cold_out));
    result("hot_out_share", ours(&|c| c.hot_out));
    result("refaults_pct_ws_min", ours(&Came::refaults_pct_min));
    result("stop_after_flip_s", ours(&|c| c.stop_s));
    result("vs_reclaim_by_size_refaults", against(Way::BySize));
    result("vs_damos_refaults", against(Way::Damos));
    result("vs_damon_reclaim_refaults", against(Way::DamonReclaim));
    result("by_size_hot_out_share", of(Way::BySize, &|c| c.hot_out));
    result("damos_out_mib", of(Way::Damos, &|c| c.out_mib));
    result("damon_reclaim_out_mib", of(Way::DamonReclaim, &|c| c.out_mib));
    result("damon_reclaim_settled_s", of(Way::DamonReclaim, &|c| c.settled_s));
    result("out_mib", ours(&|c| c.out_mib));
}

fn losses(log: &mut Log, trials: usize) -> Result<()> {
    let mut losses = Vec::new();
    for seed in 1..=trials as u64 {
        let of = |way| loss::ns_per_operation(seed * 100, way);
        let (none, ours) = (of(Way::None)?, of(Way::Ours)?);
        log.line(format!("seed {seed}  busy all the time: {none:.1} ns an operation, {ours:.1} with isotherm run"));
        losses.push((ours / none - 1.0) * 100.0);
    }
    log.line(format!("instructions an operation, percent more: {}", spread(&losses)));
    log.result("throughput_loss_pct", median(&losses));
    Ok(())
}

fn watched_and_not(log: &mut Log, trials: usize) -> Result<()> {
    let mut ratios = Vec::new();
    let mut pairs = Vec::new();
    for seed in 1..=trials as u64 {
        let turns = Turns::measure(seed * 100)?;
        log.line(format!("seed {seed}  limit of 1.3 working sets: {turns}"));
        ratios.push(turns.ratio());
        pairs.extend(turns.ratios());
    }
    log.line(format!("refaults, watched over unwatched, of stores: {}", spread(&ratios)));
    log.line(format!("of pairs of turns: {}", spread(&pairs)));
    log.result("watch_refault_ratio", median(&ratios));
    log.result("watch_refault_ratio_of_pairs", median(&pairs));
    Ok(())
}
