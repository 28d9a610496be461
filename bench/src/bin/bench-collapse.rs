//! Collapse hints compared with khugepaged's order, with everything huge, and with nothing: on an index that is bound
//! by TLB misses, and on a sparse heap. All four use the same system call on the same kinds of processes, in
//! alternating order.
//!
//! The truth of the index is known (the distribution of its keys), so "90% of the heat" means 90% of the reads done,
//! not of an estimate.

use anyhow::{Result, ensure};
use isotherm_bench::collapsing::{Collapsing, collapser, id_of};
use isotherm_bench::{Log, become_workload, median, spread, start};
use isotherm_heat::{Ns, TargetId};
use isotherm_schemes::collapse::COLLAPSE;
use isotherm_schemes::{Budgets, Counters, Hint, HintQueue, Level, Origin, Outcome, RetryScheduler, Step};
use isotherm_sys::clock;
use isotherm_sys::proc::Proc;
use isotherm_sys::signal;
use isotherm_units::{PMD_SIZE, PmdNo};
use isotherm_workload::{Child, Index};
use std::hint::black_box;
use std::time::Duration;

const S: Ns = 1_000_000_000;
const ROUNDS: usize = 2;
const GIB_PAGES: usize = 1 << 18;
/// Share of the heat that has to be on huge pages.
const HEAT_SHARE: f64 = 0.9;
/// Speeds are measured in alternating slices, since the drift of the host is larger than the effect.
const SLICES: usize = 10;
const SLICE: Duration = Duration::from_secs(2);
/// Time until the caches no longer hold the data of another process.
const SETTLED: Duration = Duration::from_millis(300);
/// Time for which hints are served at default settings.
const SERVED: Duration = Duration::from_secs(50);
const NAP: Duration = Duration::from_millis(5);

fn main() -> Result<()> {
    become_workload()?;
    let mut log = Log::new("bench-collapse");
    log.line("index: dependent reads over 4 GiB, keys normal around 2/3 with a deviation of 1/32; sparse: one page in ten of 4 GiB");
    log.line("speeds: CPU time per read, median of alternating slices, without a monitor; the cost of monitoring is target_slowdown_pct");
    let index = Index { pages: 4 * GIB_PAGES, centre: 2.0 / 3.0, deviation: 1.0 / 32.0, stride: 1, seed: 11 };
    let rows = (0..ROUNDS).map(|round| measure_round(&mut log, &index, round)).collect::<Result<Vec<_>>>()?;
    let of = |f: fn(&Round) -> f64| rows.iter().map(f).collect::<Vec<f64>>();
    let sparse = sparse(&mut log, &Index { deviation: 0.3, stride: 10, ..index })?;
    log.result("hint_collapses_to_90pct_heat", median(&of(|r| r.hinted.to_90)));
    log.result("rr_collapses_to_90pct_heat", median(&of(|r| r.round_robin_to_90)));
    log.result("order_gain", median(&of(|r| r.round_robin_to_90 / r.hinted.to_90)));
    log.result("gain_kept", median(&of(|r| (r.none_ns - r.hints_ns) / (r.none_ns - r.all_ns))));
    log.result("speedup_all_pct", median(&of(|r| 100.0 * (r.none_ns / r.all_ns - 1.0))));
    log.result("speedup_hints_pct", median(&of(|r| 100.0 * (r.none_ns / r.hints_ns - 1.0))));
    log.result("huge_share", median(&of(|r| r.hinted.collapsed as f64 / r.all_pmds)));
    log.result("sparse_rss_growth_pct", sparse.0);
    log.result("sparse_rss_growth_all_pct", sparse.1);
    log.result("reaction_s", median(&of(|r| r.hinted.reaction_s)));
    log.result("queue_ns_per_hint", queue_cost());
    log.result("target_slowdown_pct", median(&of(|r| r.hinted.slowdown_pct)));
    log.result("monitor_cpu_pct", median(&of(|r| r.hinted.monitor_cpu_pct)));
    log.result("collapse_cpu_ms", median(&of(|r| r.hinted.counters.cpu_ns as f64 / 1e6)));
    log.finish()
}

/// The result of one round.
struct Round {
    none_ns: f64,
    all_ns: f64,
    hints_ns: f64,
    all_pmds: f64,
    round_robin_to_90: f64,
    hinted: Hinted,
}

/// CPU time per read of `child`, which is the only one running.
fn slice(child: &Child) -> Result<f64> {
    signal::resume(child.pid())?;
    std::thread::sleep(SETTLED);
    let from = clock::monotonic_ns();
    std::thread::sleep(SLICE);
    let ns = child.cpu_ns_per_access(from, clock::monotonic_ns());
    signal::pause(child.pid())?;
    ns.ok_or_else(|| anyhow::anyhow!("the workload said nothing in {} s", SLICE.as_secs()))
}

fn measure_round(log: &mut Log, index: &Index, round: usize) -> Result<Round> {
    let weights = index.weights();
    let mut with_hints = start(index)?;
    let hinted = hints(&mut with_hints, &weights)?;
    signal::pause(with_hints.pid())?;
    let (none, all) = (start(index)?, start(index)?);
    signal::pause(none.pid())?;
    let all_pmds = collapse_until(&all, &pmds_of(&all), boundless(), |_| false)?.len() as f64;
    signal::pause(all.pid())?;
    let mut ns = [Vec::new(), Vec::new(), Vec::new()];
    for turn in 0..SLICES * 3 {
        // A different one begins each time.
        let which = (turn + turn / 3) % 3;
        ns[which].push(slice([&none, &all, &with_hints][which])?);
    }
    drop((none, all, with_hints));
    let round_robin_to_90 = round_robin(index, &weights)?;
    let [none_ns, all_ns, hints_ns] = [0, 1, 2].map(|i| median(&ns[i]));
    log.line(format!(
        "round {}: ns a read: nothing {}, all huge {}, hints {}",
        round + 1,
        spread(&ns[0]),
        spread(&ns[1]),
        spread(&ns[2])
    ));
    log.line(format!(
        "         90% of the heat after {} collapses, by address after {round_robin_to_90}; {} of {all_pmds} huge ranges collapsed; a new hot huge range after {:.1} s",
        hinted.to_90, hinted.collapsed, hinted.reaction_s
    ));
    Ok(Round { none_ns, all_ns, hints_ns, all_pmds, round_robin_to_90, hinted })
}

fn pmds_of(child: &Child) -> Vec<PmdNo> {
    child.memory().pmds().collect()
}

/// No budget, and no guard except the kernel's.
fn boundless() -> Budgets {
    Budgets {
        per_second: 1e9,
        cpu_pct: 1e9,
        stall_pct: 1e9,
        growth_pct: 1e9,
        min_present: 1,
        headroom_pct: 0.0,
        free_blocks: 0,
        pressure_pct: 100.0,
        io_pressure_pct: 100.0,
        cgroup_margin_pct: 0.0,
    }
}

/// Collapses `pmds` in order until `enough` returns true for the huge ranges done. Returns the collapsed huge ranges.
fn collapse_until(
    child: &Child,
    pmds: &[PmdNo],
    budgets: Budgets,
    mut enough: impl FnMut(&[PmdNo]) -> bool,
) -> Result<Vec<PmdNo>> {
    let now = clock::monotonic_ns;
    let process = id_of(child)?;
    let mut worker = collapser(budgets, now());
    ensure!(worker.admit(process, now()).is_ok(), "the workload cannot be collapsed");
    let mut queue = HintQueue::new(pmds.len().max(1));
    let level = Level::new(0);
    for pmd in pmds {
        queue.add(Hint { process, pmd: *pmd, action: COLLAPSE, level, origin: Origin::RoundRobin, since: now() });
    }
    let mut retry = RetryScheduler::new(pmds.len());
    let mut done = Vec::new();
    while !enough(&done) {
        match retry.step(now(), &mut queue, &mut worker) {
            Step::Did(hint, Outcome::Done { .. }) => done.push(hint.pmd),
            Step::Did(..) | Step::Deferred(..) => {}
            Step::Idle(None) => break,
            Step::Wait(..) | Step::Idle(_) => std::thread::sleep(NAP),
        }
    }
    Ok(done)
}

/// The number of collapses in this order that put 90% of the heat on huge pages; infinity if all of them did not.
fn to_90(child: &Child, weights: &[f64], order: &[PmdNo]) -> f64 {
    let first = child.memory().start.pmd().0;
    let mut heat = 0.0;
    let enough = order.iter().position(|pmd| {
        let index = usize::try_from(pmd.0 - first).unwrap_or(usize::MAX);
        heat += weights.get(index).copied().unwrap_or_default();
        heat >= HEAT_SHARE
    });
    enough.map_or(f64::INFINITY, |n| n as f64 + 1.0)
}

/// khugepaged's order, with the same calls.
fn round_robin(index: &Index, weights: &[f64]) -> Result<f64> {
    let child = start(index)?;
    let pmds = pmds_of(&child);
    let order = collapse_until(&child, &pmds, boundless(), |done| to_90(&child, weights, done).is_finite())?;
    Ok(to_90(&child, weights, &order))
}

struct Hinted {
    to_90: f64,
    collapsed: usize,
    reaction_s: f64,
    slowdown_pct: f64,
    monitor_cpu_pct: f64,
    counters: Counters,
}

/// Serves hints at default settings for [`SERVED`]. Then a cold huge range turns hot.
fn hints(child: &mut Child, weights: &[f64]) -> Result<Hinted> {
    let daemon = Collapsing::new(child, Budgets::default())?;
    let began = clock::monotonic_ns();
    let (cost, reaction_s, before) = std::thread::scope(|scope| -> Result<_> {
        let watching = scope.spawn(|| daemon.watch(|_| {}));
        scope.spawn(|| daemon.work());
        std::thread::sleep(SERVED);
        let before = daemon.order();
        let reaction_s = reaction(child, &daemon);
        daemon.stop();
        Ok((watching.join().expect("no panic")?, reaction_s?, before))
    })?;
    let counters = daemon.counters();
    Ok(Hinted {
        to_90: to_90(child, weights, &before),
        collapsed: before.len(),
        reaction_s,
        // Pages touched again (estimated), plus all time in which it was blocked or had no CPU (measured).
        slowdown_pct: cost.slowdown_pct + 100.0 * child.off_cpu_share(began, clock::monotonic_ns()).unwrap_or(f64::NAN),
        monitor_cpu_pct: 100.0 * cost.monitor_cpu_ns as f64 / cost.elapsed_ns as f64,
        counters,
    })
}

/// Time from a cold huge range turning hot to its collapse; infinity after half a minute.
fn reaction(child: &mut Child, daemon: &Collapsing) -> Result<f64> {
    const PMD: usize = 10;
    let pmd = PmdNo(child.memory().start.pmd().0 + PMD as u64);
    ensure!(!daemon.order().contains(&pmd), "the huge range that is to become hot is huge already");
    child.heat(PMD * 512, 512)?;
    let began = clock::monotonic_ns();
    while clock::monotonic_ns() - began < 30 * S {
        if daemon.order().contains(&pmd) {
            return Ok((clock::monotonic_ns() - began) as f64 / 1e9);
        }
        std::thread::sleep(NAP);
    }
    Ok(f64::INFINITY)
}

/// Growth of a sparse heap in percent: with hints at default settings, and with everything huge.
fn sparse(log: &mut Log, index: &Index) -> Result<(f64, f64)> {
    let proc = Proc::default();
    let rss = |child: &Child| -> Result<f64> { Ok(proc.status(child.pid())?.rss.unwrap_or_default().0 as f64) };
    let growth = |before: f64, after: f64| 100.0 * (after / before - 1.0);
    let child = start(index)?;
    // After its start, so that the memory that it allocates for itself is included.
    std::thread::sleep(Duration::from_secs(1));
    let before = rss(&child)?;
    let daemon = Collapsing::new(&child, Budgets::default())?;
    std::thread::scope(|scope| -> Result<()> {
        let watching = scope.spawn(|| daemon.watch(|_| {}));
        scope.spawn(|| daemon.work());
        std::thread::sleep(Duration::from_secs(20));
        daemon.stop();
        watching.join().expect("no panic").map(drop)
    })?;
    let hints = growth(before, rss(&child)?);
    drop(child);
    let child = start(index)?;
    std::thread::sleep(Duration::from_secs(1));
    let before = rss(&child)?;
    let done = collapse_until(&child, &pmds_of(&child), boundless(), |_| false)?;
    let all = growth(before, rss(&child)?);
    log.line(format!(
        "sparse heap of {:.0} MiB: grows by {hints:.1}% with hints, by {all:.0}% with all {} huge ranges collapsed ({:.0} MiB)",
        before / 1e6,
        done.len(),
        (done.len() as u64 * PMD_SIZE) as f64 / 1e6
    ));
    Ok((hints, all))
}

/// Nanoseconds to add a hint to the queue and take it out again: 200,000 hints of 16 processes, with a warm queue.
fn queue_cost() -> f64 {
    const HINTS: u64 = 200_000;
    let mut queue = HintQueue::new(usize::try_from(HINTS).unwrap_or(usize::MAX));
    let hint = |i: u64| Hint {
        process: TargetId { pid: u32::try_from(i % 16).unwrap_or(0) + 1, start_ticks: 1 },
        pmd: PmdNo(i / 16),
        action: COLLAPSE,
        level: Level::new(u8::try_from(i % 7).unwrap_or(0)),
        origin: Origin::Heat,
        since: 0,
    };
    let mut times = Vec::new();
    for _ in 0..7 {
        let began = clock::thread_cpu_ns();
        for i in 0..HINTS {
            black_box(queue.add(hint(i)));
        }
        while let Some(hint) = queue.take() {
            black_box(hint);
        }
        times.push((clock::thread_cpu_ns() - began) as f64 / HINTS as f64);
    }
    median(&times[1..])
}
