//! Precision and recall against the truth: sizes, layouts, access rates, sets that fit the TLB, memory shared by four processes.
//!
//! Everything at default settings (1% of slow-down, 1% of CPU), so a large target is watched for as long as its first looks take.

use anyhow::Result;
use isotherm_bench::{Log, become_workload, start};
use isotherm_heat::Ns;
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sources::RealClock;
use isotherm_sources::choose::{self, Wanted};
use isotherm_sys::proc::Proc;
use isotherm_workload::{Child, Layout, Pattern, Score};
use std::sync::atomic::AtomicBool;

const S: Ns = 1_000_000_000;
const MS: Ns = 1_000_000;
/// What counts as hot: four times the slowest hot page here, and far below the idle time of the cold ones.
const HOT_NS: Ns = 4 * S;

/// The worst of everything.
struct Worst {
    precision: f64,
    recall: f64,
    wss_error_pct: f64,
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
    // All rates at 10 GiB take seven minutes more.
    let full = std::env::args().any(|a| a == "--full");
    let mut log = Log::new("bench-accuracy");
    let mut worst = Worst { precision: 1.0, recall: 1.0, wss_error_pct: 0.0 };
    log.line(format!(
        "{:<34} {:>9} {:>9} {:>9} {:>8} {:>8}",
        "workload", "precision", "recall", "wss err %", "cpu %", "slow %"
    ));
    for (gib, seconds) in [(1, 9), (4, 18), (10, 45)] {
        for layout in [Layout::Span, Layout::Spans, Layout::Scattered] {
            for (rate, interval_ns) in [("flat out", 0), ("100 ms", 100 * MS), ("1 s", S)] {
                if gib == 10 && interval_ns != 100 * MS && !full {
                    continue;
                }
                let pages = gib << 18;
                let pattern = pattern(pages, pages / 10, layout, interval_ns);
                one(&mut log, &mut worst, &format!("{gib} GiB, {layout:?}, {rate}"), &pattern, seconds)?;
            }
        }
    }
    for huge in [false, true] {
        for (name, hot_pages) in [("64 KiB", 16), ("1 MiB", 256), ("4 MiB", 1024)] {
            let pattern = Pattern { huge, ..pattern(1 << 18, hot_pages, Layout::Span, 0) };
            let kind = if huge { "huge pages" } else { "small pages" };
            one(&mut log, &mut worst, &format!("1 GiB, {name} hot, {kind}"), &pattern, 12)?;
        }
    }
    let shared_error_pct = shared(&mut log, &mut worst)?;
    log.result("precision_min", worst.precision);
    log.result("recall_min", worst.recall);
    log.result("wss_error_pct_max", worst.wss_error_pct);
    log.result("shared_resident_error_pct", shared_error_pct);
    log.finish()
}

fn pattern(pages: usize, hot_pages: usize, layout: Layout, interval_ns: Ns) -> Pattern {
    Pattern { pages, hot_pages, layout, interval_ns, huge: false, shared: None, faults: false, seed: 7 }
}

fn monitor(pids: Vec<u32>) -> Result<Monitor<RealClock>> {
    let source = choose::open(Wanted::PageTable)?;
    let follower = Follower::new(&Selection::Pids { pids, children: false }, Proc::default())?;
    Ok(Monitor::new(source, follower, RealClock, Settings::default()))
}

fn watch(monitor: &mut Monitor<RealClock>, seconds: u64) -> Result<()> {
    monitor.watch(monitor.now() + seconds * S, &AtomicBool::new(false))?;
    Ok(())
}

fn score(monitor: &Monitor<RealClock>, child: &Child, pattern: &Pattern) -> Score {
    let pages = monitor.pages_of(child.pid()).expect("watched page by page");
    pattern.score_pages(child.memory(), pages, monitor.now(), HOT_NS)
}

fn one(log: &mut Log, worst: &mut Worst, name: &str, pattern: &Pattern, seconds: u64) -> Result<()> {
    let child = start(pattern)?;
    // In a thread of its own, so that the CPU time counted is this monitor's alone.
    let (score, cost) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| -> Result<_> {
            let mut monitor = monitor(vec![child.pid()])?;
            watch(&mut monitor, seconds)?;
            Ok((score(&monitor, &child, pattern), monitor.cost(monitor.now())))
        });
        watching.join().expect("no panic")
    })?;
    worst.add(&score);
    tell(log, name, &score, cost.monitor_cpu_ns as f64 / cost.elapsed_ns as f64 * 100.0, cost.slowdown_pct);
    Ok(())
}

fn tell(log: &mut Log, name: &str, score: &Score, cpu_pct: f64, slowdown_pct: f64) {
    let unknown = if score.unmeasured > 0 { format!("  {} pages unmeasured", score.unmeasured) } else { String::new() };
    log.line(format!(
        "{name:<34} {:>9.4} {:>9.4} {:>9.2} {cpu_pct:>8.2} {slowdown_pct:>8.2}{unknown}",
        score.precision(),
        score.recall(),
        score.size_error_pct()
    ));
}

/// 512 MiB of shared memory that four processes map, and all touch the same tenth of.
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
    let mut monitor = monitor(children.iter().map(Child::pid).collect())?;
    watch(&mut monitor, 30)?;
    for (i, child) in children.iter().enumerate() {
        let score = score(&monitor, child, &pattern);
        worst.add(&score);
        tell(log, &format!("512 MiB shared, process {} of 4", i + 1), &score, f64::NAN, f64::NAN);
    }
    let snapshot = monitor.snapshot(0);
    let resident: u64 = snapshot.targets.iter().map(|t| t.temperature.resident()).sum();
    let elsewhere: u64 = snapshot.targets.iter().map(|t| t.counted_elsewhere_pages).sum();
    let private: u64 = resident - 4 * pages as u64;
    // What is left after shared pages are counted once: the shared memory, and the little that each has of its own.
    let once = resident - elsewhere;
    let error_pct = 100.0 * once.abs_diff(pages as u64).saturating_sub(private) as f64 / pages as f64;
    log.line(format!(
        "shared memory counted once: {:.1} MiB of {:.1} MiB mapped by all together",
        once as f64 / 256.0,
        resident as f64 / 256.0
    ));
    Ok(error_pct)
}
