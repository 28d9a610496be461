//! `isotherm split` against the truth: how much of the memory behind huge pages is unused, by probes; what is given back of a heap of
//! zeros; and what probing costs the target.
//!
//! Beside it what the accessed bits of the huge pages say by themselves, which is all that a monitor knows that does not split: a huge page
//! is in use if any of its pages is.
//!
//! The price is that of a busy server: a store of 2 GiB on every CPU, all of it on huge pages, in windows of equal length in which it is probed
//! and in which it is not, by turns. A target that sleeps most of the time does not show it: what an access costs it varies by more than that.

use anyhow::{Context, Result, ensure};
use isotherm_bench::collapsing::{collapser, id_of};
use isotherm_bench::turns::{Above, by_turns};
use isotherm_bench::{Log, become_workload, median, only, pages_that_fit, spread, start, start_server, trials};
use isotherm_heat::Rng;
use isotherm_schemes::collapse::COLLAPSE;
use isotherm_schemes::{Budgets, Hint, HintQueue, Level, Origin, RetryScheduler, Step};
use isotherm_sys::clock;
use isotherm_sys::proc::Proc;
use isotherm_units::PAGES_PER_PMD;
use isotherm_workload::{Child, Index, Layout, Pattern, Store};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const S: u64 = 1_000_000_000;
/// 512 MiB.
const PAGES: usize = 128 << 10;
/// How long the probes are watched, and the windows without them last.
const WATCHED: Duration = Duration::from_secs(15);

fn main() -> Result<()> {
    become_workload()?;
    let mut log = Log::new("bench-split");
    let trials = trials(5);
    if "shares".contains(&only()) {
        shares(&mut log, trials)?;
    }
    if "returned".contains(&only()) {
        let returned: Vec<f64> = (0..trials).map(|_| returned(&mut log)).collect::<Result<_>>()?;
        log.result("returned_share", median(&returned));
    }
    if "price".contains(&only()) {
        price(&mut log)?;
    }
    log.finish()
}

/// How far off the shares are, of targets with several layouts.
fn shares(log: &mut Log, trials: usize) -> Result<()> {
    let (mut ours, mut by_bits) = (Vec::new(), Vec::new());
    log.line(format!("{:<34} {:>9} {:>16} {:>9}", "512 MiB on huge pages", "unused %", "by probes %", "by bits %"));
    for seed in 1..=trials as u64 {
        for layout in [Layout::Scattered, Layout::Spans] {
            let one = unused(seed, layout)?;
            log.line(format!(
                "{:<34} {:>9.1} {:>8.1} +- {:>4.1} {:>9.1}",
                format!("{layout:?}, seed {seed}"),
                one.truth * 100.0,
                one.estimate * 100.0,
                one.half_interval * 100.0,
                one.by_bits * 100.0
            ));
            ours.push((one.estimate - one.truth).abs() * 100.0);
            by_bits.push((one.by_bits - one.truth).abs() * 100.0);
        }
    }
    log.line(format!("error in points: by probes {}, by bits {}", spread(&ours), spread(&by_bits)));
    log.result("idle_share_error_points", median(&ours));
    log.result("idle_share_error_points_max", ours.iter().copied().fold(0.0, f64::max));
    log.result("by_bits_error_points", median(&by_bits));
    Ok(())
}

/// What was said of one target, and the truth. Shares are 0 to 1.
struct Unused {
    truth: f64,
    estimate: f64,
    half_interval: f64,
    by_bits: f64,
}

/// A target on huge pages of which a random part is accessed every 100 ms.
fn unused(seed: u64, layout: Layout) -> Result<Unused> {
    let mut rng = Rng::new(seed);
    let hot_pages = PAGES * (5 + usize::try_from(rng.below(60))?) / 100;
    let pattern =
        Pattern { pages: PAGES, hot_pages, layout, interval_ns: S / 10, huge: true, shared: None, faults: false, seed };
    let hot = pattern.hot();
    let used_pmds = hot.chunks(PAGES_PER_PMD).filter(|pmd| pmd.iter().any(|hot| *hot)).count();
    let child = start(&pattern)?;
    std::thread::sleep(Duration::from_secs(1));
    let report = split(&child, "--dry-run")?;
    let row = largest(&report)?;
    Ok(Unused {
        truth: 1.0 - hot.iter().filter(|hot| **hot).count() as f64 / PAGES as f64,
        estimate: number(&row["judged"]["unused"]["mean"])?,
        half_interval: number(&row["judged"]["unused"]["half_interval"])?,
        by_bits: 1.0 - used_pmds as f64 / (PAGES / PAGES_PER_PMD) as f64,
    })
}

/// The store's CPU time per operation in windows with probes and without, by turns. The probes are collapsed again at the end of each, so all
/// windows begin alike.
fn price(log: &mut Log) -> Result<()> {
    let store = Store::on_every_cpu(pages_that_fit(2 << 18)?, 11)?;
    let server = start_server(&store)?;
    collapse_all(&server.child)?;
    let per_operation = |from| {
        let ns = server.child.cpu_ns_per_access(from, clock::monotonic_ns());
        ns.context("the store has not reported")
    };
    let mut probes = Vec::new();
    let probed = || {
        let from = clock::monotonic_ns();
        let report = split(&server.child, "--dry-run")?;
        let cost = per_operation(from)?;
        probes.push(number(&largest(&report)?["probes"])?);
        Ok(cost)
    };
    let alone = || {
        let from = clock::monotonic_ns();
        std::thread::sleep(WATCHED);
        per_operation(from)
    };
    let Above { median, low, high } = by_turns(probed, alone)?;
    log.line(format!(
        "store of {:.1} GiB, {} of its huge pages are probes: CPU time per operation {median:+.2}%, 95% interval {low:+.2} to {high:+.2}",
        store.pages as f64 / 262_144.0,
        spread(&probes)
    ));
    log.result("target_slowdown_pct", median);
    log.result("target_slowdown_interval_pct", high - low);
    Ok(())
}

/// The share of the zeros that are given back, of a heap that has grown by being made huge: one page in 16 is in use.
fn returned(log: &mut Log) -> Result<f64> {
    let index = Index { pages: 64 << 10, centre: 0.5, deviation: 0.3, stride: 16, seed: 3 };
    let child = start(&index)?;
    std::thread::sleep(Duration::from_secs(1));
    let sparse = resident(&child)?;
    collapse_all(&child)?;
    let huge = resident(&child)?;
    ensure!(huge > 2.0 * sparse, "the heap has not grown: {sparse} to {huge} bytes");
    let report = split(&child, "")?;
    let left = resident(&child)?;
    let share = (huge - left) / (huge - sparse);
    log.line(format!(
        "sparse heap: {:.0} MiB, {:.0} MiB huge, {:.0} MiB after {} splits",
        sparse / 1048576.0,
        huge / 1048576.0,
        left / 1048576.0,
        largest(&report)?["split"]
    ));
    Ok(share)
}

fn resident(child: &Child) -> Result<f64> {
    Ok(Proc::default().status(child.pid())?.rss.context("no VmRSS")?.0 as f64)
}

fn collapse_all(child: &Child) -> Result<()> {
    let process = id_of(child)?;
    let budgets = Budgets {
        per_second: 1e6,
        cpu_pct: 1000.0,
        stall_pct: 1000.0,
        growth_pct: 1e6,
        min_present: 0,
        pressure_pct: 1000.0,
        ..Budgets::default()
    };
    let mut worker = collapser(budgets, clock::monotonic_ns());
    ensure!(worker.admit(process, clock::monotonic_ns()).is_ok(), "the workload cannot be collapsed");
    let (mut queue, mut retry) = (HintQueue::new(1 << 16), RetryScheduler::new(1 << 16));
    for pmd in child.memory().pmds() {
        queue.add(Hint { process, pmd, action: COLLAPSE, level: Level::new(0), origin: Origin::Heat, since: 0 });
    }
    loop {
        match retry.step(clock::monotonic_ns(), &mut queue, &mut worker) {
            Step::Did(..) | Step::Deferred(..) => {}
            Step::Wait(..) | Step::Idle(Some(_)) => std::thread::sleep(Duration::from_millis(5)),
            Step::Idle(None) => return Ok(()),
        }
    }
}

/// Runs `isotherm split` at its default budgets.
fn split(child: &Child, more: &str) -> Result<Value> {
    let isotherm = std::env::current_exe()?.with_file_name("isotherm");
    let journal = std::env::temp_dir().join(format!("isotherm-bench-split-{}", std::process::id()));
    let mut command = Command::new(&isotherm);
    command.args(["split", "--idle", "4s", "--json", "-p", &child.pid().to_string(), "--journal"]);
    command.arg(&journal).arg("-d").arg(format!("{}s", WATCHED.as_secs())).args(more.split_whitespace());
    let output = command.output().with_context(|| format!("run {}: has `make build` been run?", isotherm.display()))?;
    let _ = std::fs::remove_file(&journal);
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {error}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The row of the mapping with most memory on huge pages: the workload's own.
fn largest(report: &Value) -> Result<&Value> {
    let rows = report["mappings"].as_array().context("no mappings in the report")?;
    rows.iter().max_by_key(|row| row["huge_bytes"].as_u64()).context("no memory on huge pages")
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("{value} is no number"))
}
