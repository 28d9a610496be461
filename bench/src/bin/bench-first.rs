//! How soon a picture is good, how soon it is exact, and how soon a change is seen: at 1% of a core, page by page.
//!
//! *Good*: precision and recall by page are 0.95 or better, in this and in all later snapshots. What is estimated counts as what
//! it says. *Exact*: both are 0.99 or better, and nothing is unmeasured or estimated ([`GoodSince`]). The worst precision is that of any snapshot
//! that calls anything hot. Each case runs several times, on a new process each time; medians and spread are printed.

use anyhow::{Context, Result};
use isotherm_bench::memory::Growth;
use isotherm_bench::{
    BenchClock, Log, become_workload, busy, in_own_thread, median, monitor_of, only, pages_that_fit, spread, start,
    trials,
};
use isotherm_heat::{Interval, Ns, Score};
use isotherm_monitor::{Monitor, Settings};
use isotherm_units::{Addr, AddrRange, PAGE_SIZE};
use isotherm_workload::{Child, GoodSince, Layout, Pattern};
use std::sync::atomic::AtomicBool;

const S: Ns = 1_000_000_000;
const HOT_NS: Ns = S;
/// Between two snapshots that are scored.
const EVERY: Ns = S / 2;
/// A case ends if its picture is not exact by then.
const LONGEST: Ns = 90 * S;
/// When the memory of the monitor is measured: every page was checked once by then.
const MEMORY_AFTER_S: u64 = 60;
/// The span that turns hot or cold.
const TURNED_PAGES: usize = 64 << 8;

fn main() -> Result<()> {
    become_workload()?;
    let mut log = Log::new("bench-first");
    let trials = trials(5);
    let large = pages_that_fit(14 << 18)?;
    let small = (4 << 18).min(large);
    log.line(format!(
        "processes of {:.1} and {:.1} GiB, a tenth of them hot every 50 ms; 1% of a core; {trials} times each\n",
        gib(large),
        gib(small)
    ));
    pictures(&mut log, small, large, trials)?;
    changes(&mut log, small, large, trials)?;
    small_spans(&mut log, large, trials)?;
    memory(&mut log)?;
    log.finish()
}

fn pictures(log: &mut Log, small: usize, large: usize, trials: usize) -> Result<()> {
    log.line(format!(
        "{:<26} {:>22} {:>22} {:>22} {:>12}",
        "", "good after s", "exact after s", "CPU until good ms", "precision >="
    ));
    let mut precision = Vec::new();
    let mut cpu = Vec::new();
    for (good_key, exact_key, name, pages, layout) in [
        (Some("good_s_14g_one"), Some("exact_s_14g"), "14 GiB, one span", large, Layout::Span),
        (Some("good_s_14g_eight"), None, "14 GiB, eight spans", large, Layout::Areas),
        (None, Some("exact_s_4g"), "4 GiB, one span", small, Layout::Span),
    ] {
        if !name.contains(&only()) {
            continue;
        }
        let pictures =
            (0..trials).map(|trial| first_picture(&pattern(pages, layout, trial))).collect::<Result<Vec<_>>>()?;
        let of = |what: fn(&Picture) -> f64| pictures.iter().map(what).collect::<Vec<f64>>();
        let worst = of(|p| p.worst_precision).into_iter().fold(1.0, f64::min);
        let (good, exact, until_good) = (of(|p| p.good_s), of(|p| p.exact_s), of(|p| p.cpu_ms));
        log.line(format!(
            "{name:<26} {:>22} {:>22} {:>22} {worst:>12.4}",
            spread(&good),
            spread(&exact),
            spread(&until_good)
        ));
        precision.push(worst);
        cpu.push(median(&until_good));
        if let Some(key) = good_key {
            log.result(key, median(&good));
        }
        if let Some(key) = exact_key {
            log.result(key, median(&exact));
        }
    }
    log.result("worst_precision_any_snapshot", precision.into_iter().fold(1.0, f64::min));
    log.result("cpu_ms_until_good", cpu.into_iter().fold(0.0, f64::max));
    Ok(())
}

fn changes(log: &mut Log, small: usize, large: usize, trials: usize) -> Result<()> {
    log.line("");
    for (key, name, pages) in [("new_hot_s_4g", "4 GiB", small), ("new_hot_s_14g", "14 GiB", large)] {
        if name.contains(&only()) {
            let hot = (0..trials)
                .map(|trial| turned(&pattern(pages, Layout::Span, trial), Turn::Hot))
                .collect::<Result<Vec<_>>>()?;
            log.line(format!("64 MiB of {name} that turn hot are known to be after {} s", spread(&hot)));
            log.result(key, median(&hot));
        }
    }
    if "cold".contains(&only()) {
        let cold = (0..trials)
            .map(|trial| turned(&pattern(small, Layout::Span, trial), Turn::Cold))
            .collect::<Result<Vec<_>>>()?;
        log.line(format!("64 MiB of 4 GiB that turn cold are known to be after {} s", spread(&cold)));
        log.result("gone_cold_s", median(&cold));
    }
    Ok(())
}

fn small_spans(log: &mut Log, large: usize, trials: usize) -> Result<()> {
    if "small spans".contains(&only()) {
        let after =
            (0..trials).map(|trial| after_90_s(&pattern(large, Layout::Spans, trial))).collect::<Result<Vec<_>>>()?;
        let of = |what: fn(&Score) -> f64| after.iter().map(what).collect::<Vec<f64>>();
        let (found, recall) = (of(Score::precision), of(Score::recall));
        log.line(format!(
            "14 GiB, spans of 1 to 4 MiB, after 90 s: precision {}, recall {}",
            spread(&found),
            spread(&recall)
        ));
        log.result("small_spans_precision", median(&found));
        log.result("small_spans_recall", median(&recall));
    }
    Ok(())
}

/// The demo's layout, and a span of 5% that is hot while nothing else is touched.
fn memory(log: &mut Log) -> Result<()> {
    type OfSize = fn(usize) -> Pattern;
    let demo: OfSize = |pages| pattern(pages, Layout::Mixed, 0);
    let idle: OfSize = |pages| Pattern { hot_pages: pages / 20, ..pattern(pages, Layout::Span, 0) };
    for (key, name, of) in
        [("bytes_per_page", "memory, the demo's layout", demo), ("bytes_per_page_idle", "memory, 95% idle", idle)]
    {
        if name.contains(&only()) {
            let growth = Growth::measure(of, MEMORY_AFTER_S)?;
            log.line(format!("{name}: the monitor takes {growth}"));
            log.result(key, growth.bytes_per_page());
        }
    }
    Ok(())
}

fn gib(pages: usize) -> f64 {
    pages as f64 / 262_144.0
}

fn pattern(pages: usize, layout: Layout, trial: usize) -> Pattern {
    let (hot_pages, interval_ns, seed) = (pages / 10, 50_000_000, 11 + trial as u64);
    Pattern { hot_pages, layout, interval_ns, seed, ..busy(pages >> 8, false) }
}

/// What the first pictures of a process were like. Times are from the start of the monitor; `LONGEST` if never.
struct Picture {
    good_s: f64,
    exact_s: f64,
    cpu_ms: f64,
    worst_precision: f64,
}

fn first_picture(pattern: &Pattern) -> Result<Picture> {
    let child = start(pattern)?;
    in_own_thread(|| {
        let clock = BenchClock::default();
        let mut monitor = monitor_of(vec![child.pid()], clock.clone(), Settings::default())?;
        let began = monitor.now();
        let never = LONGEST as f64 / 1e9;
        let (mut since, mut cpu_ms, mut worst_precision) = (GoodSince::default(), f64::NAN, 1.0_f64);
        // Some snapshots more, since good is what stays good.
        let mut left = 10;
        while monitor.now() < began + LONGEST && left > 0 {
            let until = monitor.now() + EVERY;
            monitor.watch(until, &AtomicBool::new(false))?;
            let after_s = (monitor.now() - began) as f64 / 1e9;
            let (score, unmeasured) = clock.beside(|| score(&monitor, &child, pattern));
            if score.said_hot_pages() > 0.0 {
                worst_precision = worst_precision.min(score.precision());
            }
            since.note(after_s, &score, unmeasured == 0);
            if since.good_s == Some(after_s) {
                cpu_ms = monitor.cost(monitor.now()).monitor_cpu_ns as f64 / 1e6;
            }
            left -= u32::from(since.exact_s.is_some());
        }
        let GoodSince { good_s, exact_s } = since;
        Ok(Picture { good_s: good_s.unwrap_or(never), exact_s: exact_s.unwrap_or(never), cpu_ms, worst_precision })
    })
}

/// The score by page, and how many pages are not measured, estimated ones among them.
fn score(monitor: &Monitor<BenchClock>, child: &Child, pattern: &Pattern) -> (Score, u64) {
    let Some(target) = monitor.pages_of(child.pid()) else { return (Score::of(pattern.hot_pages as f64), u64::MAX) };
    let memory = child.memory();
    let mut unmeasured = 0;
    target.for_pmds_in(memory.start.pmd()..memory.end.pmd(), monitor.now(), |_, view| {
        let unknown = view.runs.iter().filter(|run| run.interval == Interval::UNMEASURED || run.estimated);
        unmeasured += unknown.map(|run| u64::from(run.pages)).sum::<u64>();
    });
    (pattern.score_pages(memory, target, monitor.now(), HOT_NS), unmeasured)
}

fn after_90_s(pattern: &Pattern) -> Result<Score> {
    let child = start(pattern)?;
    in_own_thread(|| {
        let clock = BenchClock::default();
        let mut monitor = monitor_of(vec![child.pid()], clock.clone(), Settings::default())?;
        let until = monitor.now() + 90 * S;
        monitor.watch(until, &AtomicBool::new(false))?;
        Ok(score(&monitor, &child, pattern).0)
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Hot,
    Cold,
}

/// Seconds until 99% of a span that turns hot, or cold, is known to be.
fn turned(pattern: &Pattern, turn: Turn) -> Result<f64> {
    let mut child = start(pattern)?;
    let hot = pattern.hot();
    let is_candidate = |i: &usize| hot[*i..*i + TURNED_PAGES].iter().all(|is| *is == (turn == Turn::Cold));
    let first = (0..hot.len() - TURNED_PAGES).step_by(512).find(is_candidate).context("no such span")?;
    let start = child.memory().start.0 + first as u64 * PAGE_SIZE;
    let span = AddrRange::new(Addr(start), Addr(start + TURNED_PAGES as u64 * PAGE_SIZE));
    let pid = child.pid();
    in_own_thread(|| {
        let mut monitor = monitor_of(vec![pid], BenchClock::default(), Settings::default())?;
        let settled = monitor.now() + 60 * S;
        monitor.watch(settled, &AtomicBool::new(false))?;
        let wanted = TURNED_PAGES as u64 * 99 / 100;
        let turned = |monitor: &Monitor<BenchClock>| {
            let mut pages = 0;
            let Some(target) = monitor.pages_of(pid) else { return 0 };
            target.for_pmds_in(span.start.pmd()..span.end.pmd(), monitor.now(), |_, view| {
                let is_so = |i: Interval| i.ns().is_some_and(|ns| (ns <= HOT_NS) == (turn == Turn::Hot));
                pages += view.runs.iter().filter(|r| is_so(r.interval)).map(|r| u64::from(r.pages)).sum::<u64>();
            });
            pages
        };
        anyhow::ensure!(turned(&monitor) < wanted / 10, "the span was taken for what it turns to before it did");
        match turn {
            Turn::Hot => child.heat(first, TURNED_PAGES)?,
            Turn::Cold => child.cool(first, TURNED_PAGES)?,
        }
        let began = monitor.now();
        while turned(&monitor) < wanted {
            if monitor.now() > began + 120 * S {
                break;
            }
            let until = monitor.now() + S / 20;
            monitor.watch(until, &AtomicBool::new(false))?;
        }
        Ok((monitor.now() - began) as f64 / 1e9)
    })
}
