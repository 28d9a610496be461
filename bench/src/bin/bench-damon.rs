//! The kernel's DAMON and our page-table source on the same process, in alternation: CPU time of each, and what each
//! found.
//!
//! Runs only in a guest of the lab (`make bench-damon` boots one): a kernel has one DAMON, and on a real machine it may
//! be in use. A guest is emulated, so times are ten to twenty times those of hardware and are not meaningful. Both
//! sides are slowed down equally, so their ratio is meaningful.
//!
//! DAMON's cost is the CPU time of its kernel thread, as the scheduler counts it, plus that of our thread which reads
//! its reports. Our cost is the CPU time of the monitor's thread, which also does all of its work in the kernel.
//! Neither includes the cost to the monitored process for bits that were cleared and are set again.
//!
//! An emulated processor keeps as many translations as it has room for, until another process runs on it. DAMON does
//! not flush them and finds no access to pages whose translation is kept: alone in a guest, it finds next to nothing.
//! So a busy process runs on each processor, as other processes would on a machine that is worth monitoring. We flush
//! what we clear, and do not depend on this.

use anyhow::{Context, Result};
use isotherm_bench::neighbours::{Neighbour, Neighbours};
use isotherm_bench::regions::{hot_ranges, score_ranges};
use isotherm_bench::{BenchClock, Log, become_workload, median, need_lab, spread, start};
use isotherm_heat::source::{AccessSource, RegionSource};
use isotherm_heat::{Clock, KernelRegion, Ns, Score};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sources::choose::{self, Wanted};
use isotherm_sources::damon::{Damon, Space};

use isotherm_sys::damon::Attributes;
use isotherm_sys::proc::Proc;
use isotherm_units::{AddrRange, PAGE_SIZE};
use isotherm_workload::{Child, Layout, Pattern};
use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const MS: Ns = 1_000_000;
const S: Ns = 1_000_000_000;
const ROUNDS: usize = 3;
/// Monitoring time of each side in a round, and the part at its end of which results are the mean.
const WATCH: Ns = 40 * S;
const ASKED: Ns = 5 * S;
/// Results are also read at these times, to see how fast each finds hot pages.
const AFTER: [Ns; 3] = [5 * S, 15 * S, 40 * S];
/// Keys of those results: DAMON's, and ours at its defaults.
const RECALLS_AFTER: [(&str, &str); 3] = [
    ("damon_recall_5s", "our_recall_5s"),
    ("damon_recall_15s", "our_recall_15s"),
    ("damon_recall_40s", "our_recall_40s"),
];
const ASK_EVERY: Ns = S;
/// Threshold for hot: hot pages are touched many times in this time, and the others never.
const HOT_NS: Ns = S;
const MIB: usize = 128;
const HOT_PAGES: usize = (MIB << 8) / 8;
/// A recall below this counts as finding nothing.
const NEXT_TO_NOTHING: f64 = 0.05;

/// One way to monitor.
#[derive(Clone, Debug)]
enum Arm {
    Damon(Attributes),
    Ours(Settings),
}

/// The result of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    recall: f64,
    precision: f64,
    /// The recall at each of [`AFTER`].
    after: [f64; 3],
    kdamond_pct: f64,
    /// CPU of our own thread, after it starts to monitor.
    our_pct: f64,
    /// CPU time of our own thread until then: for opening files, loading programs into the kernel, and trying them on
    /// our own memory.
    start_ms: f64,
    /// Regions of the kernel's DAMON at the end; both are 0 if it reported nothing.
    regions: usize,
    aggregation_ms: f64,
}

impl Watched {
    fn cpu_pct(&self) -> f64 {
        self.kdamond_pct + self.our_pct
    }
}

fn main() -> Result<()> {
    become_workload()?;
    need_lab("bench-damon", "starts the kernel's DAMON")?;
    let mut log = Log::new("bench-damon");
    let pattern = Pattern {
        pages: MIB << 8,
        hot_pages: HOT_PAGES,
        layout: Layout::Spans,
        interval_ns: 0,
        huge: false,
        shared: None,
        faults: false,
        seed: 7,
    };
    let child = start(&pattern)?;
    let _neighbours = Neighbours::start(Neighbour::Spins)?;
    let arms = arms(child.pid())?;
    introduce(&mut log, &pattern, &arms);
    let mut found: Vec<Vec<Watched>> = vec![Vec::new(); arms.len()];
    for _ in 0..ROUNDS {
        for ((_, arm), found) in arms.iter().zip(&mut found) {
            // In a separate thread, so that the CPU time counted is only that of this run.
            let watched = std::thread::scope(|scope| {
                let watch = scope.spawn(|| match arm {
                    Arm::Damon(attributes) => watch_with_damon(&child, &pattern, *attributes),
                    Arm::Ours(settings) => watch_with_ours(&child, &pattern, *settings),
                });
                watch.join().expect("no panic")
            })?;
            found.push(watched);
        }
    }
    tell(&mut log, &arms, &found);
    tell_recalls(&mut log, &arms, &found);
    conclude(log, &arms, &found)
}

fn arms(pid: u32) -> Result<Vec<(&'static str, Arm)>> {
    let pages = monitored_pages(pid)?;
    let defaults = Attributes { goal: None, ..Attributes::default() };
    // One pass over this many regions takes a tenth of a second or more of CPU time here. With 5 ms between passes it
    // would use a whole processor and still fall behind. So, in its favour, it gets intervals that it can more nearly
    // keep.
    let by_page = Attributes {
        sample_us: 500_000,
        aggregation_us: 2_000_000,
        min_regions: pages,
        max_regions: pages,
        ..defaults
    };
    let unlimited = Settings { max_cpu_pct: 200.0, max_slowdown_pct: 200.0, ..Settings::default() };
    Ok(vec![
        ("DAMON, defaults", Arm::Damon(defaults)),
        ("ours, defaults (1%)", Arm::Ours(Settings::default())),
        ("DAMON, a region a page", Arm::Damon(by_page)),
        ("ours, no limits", Arm::Ours(unlimited)),
    ])
}

/// Pages in the kernel's cover of the memory of a process: everything except the two largest holes.
fn monitored_pages(pid: u32) -> Result<u64> {
    let maps = Proc::default().maps(pid)?;
    let (first, last) = (maps.first().context("no memory")?, maps.last().context("no memory")?);
    let mut holes: Vec<u64> = maps.windows(2).map(|two| two[1].range.start.0 - two[0].range.end.0).collect();
    holes.sort_unstable();
    let left_out: u64 = holes.iter().rev().take(2).sum();
    Ok((last.range.end.0 - first.range.start.0 - left_out) / PAGE_SIZE)
}

fn introduce(log: &mut Log, pattern: &Pattern, arms: &[(&'static str, Arm)]) {
    log.line("under emulation (QEMU, TCG): ratios of CPU time are meant, not times; a busy process on each processor");
    log.line(format!(
        "workload: one process, {MIB} MiB of small pages, {} of them in spans of 1 to 4 MiB touched as fast as it goes, the \
         others never",
        pattern.hot_pages
    ));
    log.line(format!(
        "each monitors {} s in alternation, {ROUNDS} rounds; found: what it reports, over the last {} s; hot: at least once in {} s",
        WATCH / S,
        ASKED / S,
        HOT_NS / S
    ));
    for (name, arm) in arms {
        log.line(match arm {
            Arm::Damon(a) => format!(
                "{name}: vaddr, sample {} ms, aggregation {} ms, update {} ms, {} to {} regions in all that it watches",
                a.sample_us / 1000,
                a.aggregation_us / 1000,
                a.update_us / 1000,
                a.min_regions,
                a.max_regions
            ),
            Arm::Ours(s) => {
                format!("{name}: page-table, at most {}% CPU and {}% slow-down", s.max_cpu_pct, s.max_slowdown_pct)
            }
        });
    }
    log.line(match scheduled_ns(std::process::id()) {
        Some(_) => "kdamond's CPU time is from its schedstat, in nanoseconds",
        None => "kdamond's CPU time is from its stat, in ticks of 10 ms",
    });
}

fn watch_with_ours(child: &Child, pattern: &Pattern, settings: Settings) -> Result<Watched> {
    let clock = BenchClock::default();
    let (began, cpu) = (clock.now(), clock.cpu());
    let follower = Follower::new(&Selection::Pids { pids: vec![child.pid()], children: false }, Proc::default())?;
    let source = choose::open(Wanted::PageTable)?;
    let opened = clock.cpu();
    let mut monitor = Monitor::new(source, follower, clock.clone(), settings);
    let mut scores = Scores::default();
    for at in moments() {
        monitor.watch(began + at, &AtomicBool::new(false))?;
        clock.beside(|| {
            if let Some(pages) = monitor.pages_of(child.pid()) {
                scores.add(at, &pattern.score_pages(child.memory(), pages, monitor.now(), HOT_NS));
            }
        });
    }
    let passed = (clock.now() - began) as f64;
    let our_pct = (clock.cpu() - opened) as f64 / passed * 100.0;
    Ok(Watched { our_pct, start_ms: (opened - cpu) as f64 / 1e6, ..scores.mean() })
}

fn watch_with_damon(child: &Child, pattern: &Pattern, attributes: Attributes) -> Result<Watched> {
    let clock = BenchClock::default();
    let (began, cpu) = (clock.now(), clock.cpu());
    let mut source = Damon::open(Space::Processes, attributes)?;
    let opened = clock.cpu();
    source.attach(child.pid())?;
    source.layout(child.pid())?;
    let hot = clock.beside(|| pattern.hot());
    let (mut scores, mut regions, mut aggregation_ms) = (Scores::default(), 0, 0.0);
    // It begins with the first read. Its thread is new, so all of that thread's time belongs to this run.
    let mut next = began;
    let mut thread = None;
    while next <= began + WATCH {
        let reported = source.regions(child.pid())?.unwrap_or_default().regions;
        thread = source.thread().or(thread);
        if moments().any(|at| began + at == next) {
            clock.beside(|| scores.add(next - began, &score(child.memory(), &hot, &reported)));
            regions = reported.len();
            aggregation_ms = reported.first().map_or(0.0, |r| r.aggregation_ns as f64 / 1e6);
        }
        next += if next < began + S { 200 * MS } else { ASK_EVERY };
        std::thread::sleep(Duration::from_nanos(next.saturating_sub(clock.now())));
    }
    let passed = (clock.now() - began) as f64;
    let kdamond = cpu_ns(thread.context("DAMON never started")?)?;
    let ours = clock.cpu() - opened;
    source.close()?;
    let pct = |ns: Ns| ns as f64 / passed * 100.0;
    let (kdamond_pct, our_pct, start_ms) = (pct(kdamond), pct(ours), (opened - cpu) as f64 / 1e6);
    Ok(Watched { kdamond_pct, our_pct, start_ms, regions, aggregation_ms, ..scores.mean() })
}

/// Scored by page, as for ours: all pages of a region are as hot as the region.
fn score(memory: AddrRange, hot: &[bool], reported: &[KernelRegion]) -> Score {
    score_ranges(memory, hot, hot_ranges(reported, HOT_NS))
}

/// When results are read, since the beginning.
fn moments() -> impl Iterator<Item = Ns> {
    (1..=WATCH / ASK_EVERY).map(|turn| turn * ASK_EVERY).filter(|at| *at >= WATCH - ASKED || AFTER.contains(at))
}

/// The results of each read.
#[derive(Debug, Default)]
struct Scores {
    /// When, and the recall and the precision then.
    reads: Vec<(Ns, f64, f64)>,
}

impl Scores {
    fn add(&mut self, at: Ns, score: &Score) {
        // If nothing is reported hot, nothing is correct either.
        let precision = if score.said_hot_pages() == 0.0 { 0.0 } else { score.precision() };
        self.reads.push((at, score.recall(), precision));
    }

    fn mean(&self) -> Watched {
        let last: Vec<_> = self.reads.iter().filter(|(at, ..)| *at >= WATCH - ASKED).collect();
        let mean =
            |of: fn(&(Ns, f64, f64)) -> f64| last.iter().map(|read| of(read)).sum::<f64>() / last.len().max(1) as f64;
        let recall_at = |at| self.reads.iter().find(|(of, ..)| *of == at).map_or(0.0, |(_, recall, _)| *recall);
        let after = AFTER.map(recall_at);
        Watched { recall: mean(|read| read.1), precision: mean(|read| read.2), after, ..Watched::default() }
    }
}

/// CPU time of another thread.
fn cpu_ns(thread: u32) -> Result<Ns> {
    if let Some(ns) = scheduled_ns(thread) {
        return Ok(ns);
    }
    let stat = Proc::default().stat(thread)?;
    Ok((stat.utime + stat.stime) * 10 * MS)
}

fn scheduled_ns(thread: u32) -> Option<Ns> {
    fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?.split_whitespace().next()?.parse().ok()
}

fn of(found: &[Watched], value: impl Fn(&Watched) -> f64) -> Vec<f64> {
    found.iter().map(value).collect()
}

fn tell(log: &mut Log, arms: &[(&'static str, Arm)], found: &[Vec<Watched>]) {
    log.line(format!(
        "{:<24} {:>22} {:>22} {:>24} {:>24} {:>9}   {}",
        "median (and range) of",
        "recall",
        "precision",
        "kdamond CPU %",
        "our thread CPU %",
        "start ms",
        "reported by the kernel"
    ));
    for ((name, arm), found) in arms.iter().zip(found) {
        let kernel = match arm {
            Arm::Ours(_) => String::new(),
            Arm::Damon(_) => {
                let (regions, length) = (of(found, |w| w.regions as f64), of(found, |w| w.aggregation_ms));
                format!("   {:.0} regions in {:.0} ms", median(&regions), median(&length))
            }
        };
        let kdamond = match arm {
            Arm::Ours(_) => "-".to_owned(),
            Arm::Damon(_) => spread(&of(found, |w| w.kdamond_pct)),
        };
        log.line(format!(
            "{name:<24} {:>22} {:>22} {kdamond:>24} {:>24} {:>9.0}{kernel}",
            spread(&of(found, |w| w.recall)),
            spread(&of(found, |w| w.precision)),
            spread(&of(found, |w| w.our_pct)),
            median(&of(found, |w| w.start_ms)),
        ));
    }
}

fn tell_recalls(log: &mut Log, arms: &[(&'static str, Arm)], found: &[Vec<Watched>]) {
    let heads = AFTER.map(|at| format!("{:>22}", format!("after {} s", at / S)));
    log.line(format!("{:<24} {}", "recall, median (and range)", heads.join(" ")));
    for ((name, _), found) in arms.iter().zip(found) {
        let each = [0, 1, 2].map(|at| format!("{:>22}", spread(&of(found, |w| w.after[at]))));
        log.line(format!("{name:<26} {}", each.join(" ")));
    }
}

fn conclude(mut log: Log, arms: &[(&'static str, Arm)], found: &[Vec<Watched>]) -> Result<()> {
    let recall = |arm: usize| median(&of(&found[arm], |w| w.recall));
    // DAMON at its defaults, unless it needs one region per page to find anything.
    let damon = if recall(0) < NEXT_TO_NOTHING && recall(2) >= NEXT_TO_NOTHING { 2 } else { 0 };
    // Ours without limits, not at the default budget. A share of an emulated processor does a tenth of the work or
    // less, and many pages are then not checked in time. Without limits it finds everything there is, and it is the
    // more expensive of the two.
    let (budgeted, ours) = (1, 3);
    let ratio = |ours: usize| {
        let each = found[damon].iter().zip(&found[ours]);
        median(&each.map(|(d, o)| d.cpu_pct() / o.cpu_pct()).collect::<Vec<f64>>())
    };
    log.line(format!(
        "below: \"{}\" (kdamond and our thread that reads it) over \"{}\", median of the rounds, without start-up",
        arms[damon].0, arms[ours].0
    ));
    log.line(format!(
        "over \"{}\" it is {:.2}, but that is 1% of an emulated processor, for which it finds {:.2}",
        arms[budgeted].0,
        ratio(budgeted),
        recall(budgeted)
    ));
    log.result("kdamond_cpu_over_ours", ratio(ours));
    log.result("damon_recall", recall(damon));
    log.result("our_recall", recall(ours));
    for (at, (damons, ours)) in RECALLS_AFTER.into_iter().enumerate() {
        log.result(damons, median(&of(&found[damon], |w| w.after[at])));
        log.result(ours, median(&of(&found[budgeted], |w| w.after[at])));
    }
    log.finish()
}
