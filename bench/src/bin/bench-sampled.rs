//! A real process, sampled and monitored completely in alternation: what each mode finds, how soon, and for how much
//! CPU.
//!
//! Both are scored by the regions of their snapshots, at most 1,000 of them: a page counts as hot if its region is. If
//! hot memory is in spans of a few MiB, the regions of samples cannot show where. In that case the reported size is
//! compared.

use anyhow::Result;
use isotherm_bench::{
    BenchClock, Log, become_workload, in_own_thread, median, monitor_of, only, pages_that_fit, start,
};
use isotherm_heat::{Ns, Score};
use isotherm_monitor::{Mode, Settings};
use isotherm_workload::{Child, Layout, Pattern};
use std::sync::atomic::AtomicBool;

const S: Ns = 1_000_000_000;
const HOT_NS: Ns = S;
/// Maximum time, and maximum time after the picture is good.
const SECONDS: u64 = 90;
const ENOUGH_S: u64 = 45;
const EVERY_S: usize = 3;
const ROUNDS: usize = 2;
/// Precision and recall from which a picture counts as good.
const GOOD: f64 = 0.95;
/// 14 GiB, or as much as fits into the machine.
const PAGES: usize = 14 << 18;

fn main() -> Result<()> {
    become_workload()?;
    let mut log = Log::new("bench-sampled");
    let pages = pages_that_fit(PAGES)?;
    log.line(format!(
        "a process of {:.1} GiB, a tenth of it hot; 1,000 regions, 1% of a core",
        pages as f64 / 262_144.0
    ));
    log.line(format!("good: precision and recall of regions {GOOD} or better; CPU until then in ms\n"));
    log.line(format!(
        "{:<28} {:<8} {:>9} {:>7} {:>9} {:>8} {:>7} {:>9} {:>11}",
        "hot memory", "mode", "precision", "recall", "amount", "good at", "CPU ms", "CPU %", "slow-down %"
    ));
    let mut all = All::default();
    for (name, layout) in
        [("one span", Layout::Span), ("eight spans", Layout::Areas), ("1 to 4 MiB all over", Layout::Spans)]
    {
        if name.contains(&only()) {
            one(&mut log, &mut all, name, &pattern(pages, layout))?;
        }
    }
    log.result("sampled_precision", all.precision);
    log.result("sampled_recall", all.recall);
    log.result("sampled_cpu_over_whole", median(&all.cpu_ratios));
    log.result("sampled_amount_error_pct_max", all.amount_error_pct);
    log.finish()
}

fn pattern(pages: usize, layout: Layout) -> Pattern {
    let hot_pages = pages / 10;
    Pattern { pages, hot_pages, layout, interval_ns: 50_000_000, huge: false, shared: None, faults: false, seed: 11 }
}

/// The worst results of sampling, for layouts that regions can show.
struct All {
    precision: f64,
    recall: f64,
    amount_error_pct: f64,
    /// CPU until the picture was good: sampled divided by whole.
    cpu_ratios: Vec<f64>,
}

impl Default for All {
    fn default() -> All {
        All { precision: 1.0, recall: 1.0, amount_error_pct: 0.0, cpu_ratios: Vec::new() }
    }
}

/// The result of one mode.
struct Row {
    score: Score,
    /// Pages reported hot by the histogram, divided by the pages that are hot.
    amount: f64,
    good: Option<Good>,
    cpu_pct: f64,
    slowdown_pct: f64,
}

/// When the picture was good, and the cost until then.
#[derive(Clone, Copy)]
struct Good {
    after_s: u64,
    cpu_ms: f64,
}

fn one(log: &mut Log, all: &mut All, name: &str, pattern: &Pattern) -> Result<()> {
    let child = start(pattern)?;
    for _ in 0..ROUNDS {
        let sampled = in_own_thread(|| watch(&child, pattern, Mode::Sampled))?;
        tell(log, name, "sampled", &sampled);
        let whole = in_own_thread(|| watch(&child, pattern, Mode::Whole))?;
        tell(log, name, "whole", &whole);
        all.amount_error_pct = all.amount_error_pct.max((sampled.amount - 1.0).abs() * 100.0);
        if pattern.layout == Layout::Spans {
            continue;
        }
        all.precision = all.precision.min(sampled.score.precision());
        all.recall = all.recall.min(sampled.score.recall());
        if let (Some(sampled), Some(whole)) = (sampled.good, whole.good) {
            all.cpu_ratios.push(sampled.cpu_ms / whole.cpu_ms);
        }
    }
    Ok(())
}

fn watch(child: &Child, pattern: &Pattern, mode: Mode) -> Result<Row> {
    let settings = Settings { mode, ..Settings::default() };
    let clock = BenchClock::default();
    let mut monitor = monitor_of(vec![child.pid()], clock.clone(), settings)?;
    let began = monitor.now();
    let mut row = None;
    let mut good = None;
    let stop = AtomicBool::new(false);
    for second in (0..=SECONDS).step_by(EVERY_S).skip(1) {
        monitor.watch(began + second * S, &stop)?;
        let snapshot = monitor.snapshot(0);
        let cost = monitor.cost(monitor.now());
        let cpu_ns = cost.monitor_cpu_ns;
        let target = snapshot.targets.iter().find(|t| t.id.pid == child.pid());
        let Some(target) = target else { anyhow::bail!("the workload is gone") };
        let score = clock.beside(|| pattern.score_regions(child.memory(), &target.regions, HOT_NS));
        if good.is_none() && score.precision() >= GOOD && score.recall() >= GOOD {
            good = Some(Good { after_s: second, cpu_ms: cpu_ns as f64 / 1e6 });
        }
        row = Some(Row {
            score,
            amount: target.temperature.within_ns(HOT_NS) as f64 / pattern.hot_pages as f64,
            good,
            cpu_pct: cpu_ns as f64 / cost.elapsed_ns as f64 * 100.0,
            slowdown_pct: cost.slowdown_pct,
        });
        if good.is_some() && second >= ENOUGH_S {
            break;
        }
    }
    row.ok_or_else(|| anyhow::anyhow!("nothing was watched"))
}

fn tell(log: &mut Log, name: &str, mode: &str, row: &Row) {
    let good = row
        .good
        .map_or(("never".to_owned(), "-".to_owned()), |g| (format!("{} s", g.after_s), format!("{:.0}", g.cpu_ms)));
    log.line(format!(
        "{name:<28} {mode:<8} {:>9.4} {:>7.4} {:>8.1}% {:>8} {:>7} {:>9.2} {:>11.2}",
        row.score.precision(),
        row.score.recall(),
        row.amount * 100.0,
        good.0,
        good.1,
        row.cpu_pct,
        row.slowdown_pct
    ));
}
