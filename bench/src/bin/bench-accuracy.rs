//! Precision and recall against the truth: sizes, layouts, access rates, working sets that fit the TLB, memory shared
//! by four processes.
//!
//! Everything runs at default settings (1% slow-down, 1% CPU), so a large target is monitored for as long as its first
//! access checks take.

use anyhow::Result;
use isotherm_bench::{BenchClock, Log, become_workload, in_own_thread, monitor_of, start};
use isotherm_heat::{Ns, Score};
use isotherm_monitor::{Monitor, Settings};
use isotherm_workload::{Child, Layout, Pattern};
use std::sync::atomic::AtomicBool;

const S: Ns = 1_000_000_000;
const MS: Ns = 1_000_000;
/// Threshold for hot: four times the interval of the slowest hot page here, and far below the idle time of the cold
/// ones.
const HOT_NS: Ns = 4 * S;

/// Target for precision and recall.
const AIM: f64 = 0.99;
const SCORED_EVERY_S: usize = 3;
const SHARED_SECONDS: u64 = 30;

/// The worst results of all workloads.
struct Worst {
    precision: f64,
    recall: f64,
    wss_error_pct: f64,
    /// Time until precision and recall both reached the target.
    right_after_s: f64,
}

impl Worst {
    fn add(&mut self, score: &Score) {
        self.precision = self.precision.min(score.precision());
        self.recall = self.recall.min(score.recall());
        self.wss_error_pct = self.wss_error_pct.max(score.size_error_pct());
    }
}

fn main() -> Result<()> {
    become_workload()?;
    // All rates at 10 GiB take seven more minutes.
    let (full, only) = (isotherm_bench::full(), isotherm_bench::only());
    let mut log = Log::new("bench-accuracy");
    let mut worst = Worst { precision: 1.0, recall: 1.0, wss_error_pct: 0.0, right_after_s: 0.0 };
    log.line(format!(
        "{:<34} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9}",
        "workload", "precision", "recall", "wss err %", "cpu %", "slow %", "0.99 at s"
    ));
    for (gib, seconds) in [(1, 9), (4, 18), (10, 54)] {
        for layout in [Layout::Span, Layout::Spans, Layout::Scattered] {
            for (rate, interval_ns) in [("flat out", 0), ("100 ms", 100 * MS), ("1 s", S)] {
                if gib == 10 && interval_ns != 100 * MS && !full {
                    continue;
                }
                let pages = gib << 18;
                let pattern = pattern(pages, pages / 10, layout, interval_ns);
                let name = format!("{gib} GiB, {layout:?}, {rate}");
                if name.contains(&only) {
                    one(&mut log, &mut worst, &name, &pattern, seconds)?;
                }
            }
        }
    }
    for huge in [false, true] {
        for (name, hot_pages) in [("64 KiB", 16), ("1 MiB", 256), ("4 MiB", 1024)] {
            let pattern = Pattern { huge, ..pattern(1 << 18, hot_pages, Layout::Span, 0) };
            let kind = if huge { "huge pages" } else { "small pages" };
            let name = format!("1 GiB, {name} hot, {kind}");
            if name.contains(&only) {
                one(&mut log, &mut worst, &name, &pattern, 12)?;
            }
        }
    }
    let shared_error_pct = if "512 MiB shared".contains(&only) { shared(&mut log, &mut worst)? } else { f64::NAN };
    log.result("precision_min", worst.precision);
    log.result("recall_min", worst.recall);
    log.result("wss_error_pct_max", worst.wss_error_pct);
    log.result("shared_resident_error_pct", shared_error_pct);
    log.result("seconds_to_99_max", worst.right_after_s);
    log.finish()
}

fn pattern(pages: usize, hot_pages: usize, layout: Layout, interval_ns: Ns) -> Pattern {
    Pattern { pages, hot_pages, layout, interval_ns, huge: false, shared: None, faults: false, seed: 7 }
}

/// A monitor at default settings.
struct Bench {
    monitor: Monitor<BenchClock>,
    clock: BenchClock,
}

impl Bench {
    fn new(pids: Vec<u32>) -> Result<Bench> {
        let clock = BenchClock::default();
        Ok(Bench { monitor: monitor_of(pids, clock.clone(), Settings::default())?, clock })
    }

    fn watch(&mut self, seconds: u64) -> Result<()> {
        self.monitor.watch(self.monitor.now() + seconds * S, &AtomicBool::new(false))?;
        Ok(())
    }

    fn score(&self, child: &Child, pattern: &Pattern) -> Score {
        let pages = self.monitor.pages_of(child.pid()).expect("watched page by page");
        self.clock.beside(|| pattern.score_pages(child.memory(), pages, self.monitor.now(), HOT_NS))
    }
}

/// The result of one workload.
struct Row {
    score: Score,
    cpu_pct: f64,
    slowdown_pct: f64,
    /// Time at which precision and recall were first both 0.99 or better.
    right_after_s: Option<u64>,
}

fn one(log: &mut Log, worst: &mut Worst, name: &str, pattern: &Pattern, seconds: u64) -> Result<()> {
    let child = start(pattern)?;
    let row = in_own_thread(|| watch_and_score(&child, pattern, seconds))?;
    worst.add(&row.score);
    worst.right_after_s = worst.right_after_s.max(row.right_after_s.map_or(f64::INFINITY, |s| s as f64));
    tell(log, name, &row);
    Ok(())
}

fn watch_and_score(child: &Child, pattern: &Pattern, seconds: u64) -> Result<Row> {
    let mut bench = Bench::new(vec![child.pid()])?;
    let mut score = Score::default();
    let mut right_after_s = None;
    for second in (0..seconds).step_by(SCORED_EVERY_S) {
        bench.watch(SCORED_EVERY_S as u64)?;
        score = bench.score(child, pattern);
        if score.precision() >= AIM && score.recall() >= AIM {
            right_after_s = right_after_s.or(Some(second + SCORED_EVERY_S as u64));
        }
    }
    let cost = bench.monitor.cost(bench.monitor.now());
    let cpu_pct = cost.monitor_cpu_ns as f64 / cost.elapsed_ns as f64 * 100.0;
    Ok(Row { score, cpu_pct, slowdown_pct: cost.slowdown_pct, right_after_s })
}

fn tell(log: &mut Log, name: &str, row: &Row) {
    let unknown = match row.score.unmeasured_pages {
        0 => String::new(),
        pages => format!("  {pages} pages unmeasured"),
    };
    let right_after = row.right_after_s.map_or("-".to_owned(), |s| s.to_string());
    log.line(format!(
        "{name:<34} {:>9.4} {:>9.4} {:>9.2} {:>8.2} {:>8.2} {right_after:>9}{unknown}",
        row.score.precision(),
        row.score.recall(),
        row.score.size_error_pct(),
        row.cpu_pct,
        row.slowdown_pct,
    ));
}

/// 512 MiB of shared memory that four processes map, with all of them touching the same tenth.
fn shared(log: &mut Log, worst: &mut Worst) -> Result<f64> {
    let pages = 512 << 8;
    let path = std::env::temp_dir().join(format!("isotherm-bench-{}", std::process::id()));
    let path = if std::path::Path::new("/dev/shm").is_dir() {
        std::path::Path::new("/dev/shm").join(path.file_name().expect("has a name"))
    } else {
        path
    };
    let file = std::fs::OpenOptions::new().create_new(true).write(true).open(&path)?;
    file.set_len((pages as u64 + 512) * 4096)?;
    let pattern = Pattern { shared: Some(path.clone()), ..pattern(pages, pages / 10, Layout::Spans, 50 * MS) };
    let children: Result<Vec<Child>> = (0..4).map(|_| start(&pattern)).collect();
    std::fs::remove_file(&path)?;
    let children = children?;
    let mut bench = Bench::new(children.iter().map(Child::pid).collect())?;
    bench.watch(SHARED_SECONDS)?;
    let cost = bench.monitor.cost(bench.monitor.now());
    for (i, child) in children.iter().enumerate() {
        let score = bench.score(child, &pattern);
        worst.add(&score);
        let cpu_pct = cost.monitor_cpu_ns as f64 / cost.elapsed_ns as f64 * 100.0;
        let row = Row { score, cpu_pct, slowdown_pct: cost.slowdown_pct, right_after_s: None };
        tell(log, &format!("512 MiB shared, process {} of 4", i + 1), &row);
    }
    let snapshot = bench.monitor.snapshot(0);
    let resident: u64 = snapshot.targets.iter().map(|t| t.temperature.resident()).sum();
    let elsewhere: u64 = snapshot.targets.iter().map(|t| t.counted_elsewhere_pages).sum();
    let private: u64 = resident - 4 * pages as u64;
    // The rest after shared pages are counted once: the shared memory, and the small private memory of each process.
    let once = resident - elsewhere;
    let error_pct = 100.0 * once.abs_diff(pages as u64).saturating_sub(private) as f64 / pages as f64;
    log.line(format!(
        "shared memory counted once: {:.1} MiB of {:.1} MiB mapped by all together",
        once as f64 / 256.0,
        resident as f64 / 256.0
    ));
    Ok(error_pct)
}
