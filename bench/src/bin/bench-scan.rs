//! The cost of access checks: reading and clearing accessed bits, compared with `clear_refs` and `smaps`; the effect on
//! the target; the CPU and memory of the monitor; and how soon new hot memory is found.

use anyhow::{Context, Result};
use isotherm_bench::memory::Growth;
use isotherm_bench::reading::PassCost;
use isotherm_bench::{
    BenchClock, Log, become_workload, busy, in_own_thread, known_pages, median, monitor_of, spread, start,
};
use isotherm_heat::source::AccessSource;
use isotherm_heat::{Clock, Ns};
use isotherm_monitor::{CLEAR_TICK, Monitor, Settings};
use isotherm_sources::RealClock;
use isotherm_sources::page_table::PageTable;
use isotherm_sys::clear_refs::{self, Clear};
use isotherm_sys::clock;
use isotherm_sys::madvise::PidFd;
use isotherm_sys::proc::Proc;
use isotherm_units::{AddrRange, PmdNo};
use isotherm_workload::{Child, Layout, Pattern};
use std::path::Path;
use std::sync::atomic::AtomicBool;

const S: Ns = 1_000_000_000;
const ROUNDS: usize = 3;
/// Huge ranges advised per call when the cost of clearing is measured.
const PMDS_A_CALL: usize = 8;

fn main() -> Result<()> {
    become_workload()?;
    let mut log = Log::new("bench-scan");
    let mut reads = Vec::new();
    let mut small = Vec::new();
    for huge in [false, true] {
        log.line(format!(
            "\n{} pages, in use all over; medians of {ROUNDS} rounds in turn, ns of CPU time of the caller a 4 KiB page",
            if huge { "2 MiB" } else { "4 KiB" }
        ));
        log.line(format!(
            "{:>6} {:>9} {:>11} {:>11} {:>11} {:>10}   longest page fault of the target, ms: unwatched, MADV_COLD, clear_refs, smaps",
            "GiB", "read", "MADV_COLD", "clear_refs", "read smaps", "x faster"
        ));
        for gib in [1, 4, 8, 14] {
            let costs = scan(gib, huge)?;
            log.line(costs.row(gib));
            if !huge {
                reads.push(median(&costs.read));
                small.push(costs);
            }
        }
    }
    let all = |f: fn(&Costs) -> &Vec<f64>| median(&small.iter().flat_map(|c| f(c).iter().copied()).collect::<Vec<_>>());
    let (read, smaps) = (all(|c| &c.read), all(|c| &c.smaps));
    log.result("read_ns_per_page", read);
    log.result("clear_ns_per_page", all(|c| &c.cold));
    log.result("smaps_read_ns_per_page", smaps);
    log.result("read_speedup_vs_smaps", smaps / read);
    log.result("growth_14g_over_1g", reads[3] / reads[0]);
    slowdown(&mut log)?;
    new_hot(&mut log)?;
    memory(&mut log)?;
    log.finish()
}

/// Nanoseconds of CPU time per page, one value per round, and the longest page fault of the target in milliseconds.
#[derive(Default)]
struct Costs {
    read: Vec<f64>,
    cold: Vec<f64>,
    refs: Vec<f64>,
    smaps: Vec<f64>,
    fault_ms: [f64; 4],
}

impl Costs {
    fn row(&self, gib: usize) -> String {
        let [none, cold, refs, smaps] = self.fault_ms;
        format!(
            "{gib:>6} {:>9.2} {:>11.1} {:>11.1} {:>11.1} {:>10.1}   {none:.2}, {cold:.2}, {refs:.2}, {smaps:.2}",
            median(&self.read),
            median(&self.cold),
            median(&self.refs),
            median(&self.smaps),
            median(&self.smaps) / median(&self.read)
        )
    }
}

/// Each way in alternation, round by round, on one target.
fn scan(gib: usize, huge: bool) -> Result<Costs> {
    let child = start(&Pattern { faults: true, ..busy(gib << 10, huge) })?;
    let pages = (gib << 18) as f64;
    let mut source = PageTable::open()?;
    source.attach(child.pid())?;
    source.layout(child.pid())?;
    let pmds: Vec<PmdNo> = child.memory().pmds().collect();
    let pidfd = PidFd::open(child.pid())?;
    let mut costs = Costs::default();
    let mut faults: [Vec<(Ns, Ns)>; 4] = Default::default();
    // CPU time of the caller, that of the kernel and of its BPF programs included. How much time passes depends on what else the
    // machine does.
    let per_page = |from: Ns| (clock::thread_cpu_ns() - from) as f64 / pages;
    for _ in 0..ROUNDS {
        let mut mark = |way: usize, from: Ns| faults[way].push((from, clock::monotonic_ns()));
        let began = clock::monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(300));
        mark(0, began);

        costs.read.push(PassCost::measure(&mut source, child.pid(), &pmds)?.cpu_ns_per_page());

        let (began, cpu) = (clock::monotonic_ns(), clock::thread_cpu_ns());
        for run in pmds.chunks(PMDS_A_CALL) {
            pidfd.advise_cold(&[AddrRange::new(run[0].addr(), run[run.len() - 1].next().addr())])?;
        }
        costs.cold.push(per_page(cpu));
        mark(1, began);
        settle();

        let (began, cpu) = (clock::monotonic_ns(), clock::thread_cpu_ns());
        clear_refs::clear(Path::new("/proc"), child.pid(), Clear::All)?;
        costs.refs.push(per_page(cpu));
        mark(2, began);
        settle();

        let (began, cpu) = (clock::monotonic_ns(), clock::thread_cpu_ns());
        let referenced: u64 =
            Proc::default().smaps(child.pid())?.map(|e| e.map(|e| e.usage.referenced.0).unwrap_or(0)).sum();
        costs.smaps.push(per_page(cpu));
        mark(3, began);
        anyhow::ensure!(referenced > 0, "smaps shows nothing referenced of a busy process");
    }
    settle();
    for (way, times) in faults.iter().enumerate() {
        costs.fault_ms[way] = longest_fault_ms(&child, times);
    }
    Ok(costs)
}

/// Time for the target to touch its memory again and to report.
fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(400));
}

fn longest_fault_ms(child: &Child, times: &[(Ns, Ns)]) -> f64 {
    // A report covers the 50 ms before it.
    let within = |at: Ns| times.iter().any(|(from, to)| *from < at && at < *to + 60_000_000);
    child.progress().iter().filter(|p| within(p.at)).map(|p| p.slowest_fault_ns).max().unwrap_or(0) as f64 / 1e6
}

fn watch<C: Clock>(monitor: &mut Monitor<C>, ns: Ns) -> Result<()> {
    let end = monitor.now() + ns;
    while monitor.now() < end {
        monitor.watch((monitor.now() + 2 * S).min(end), &AtomicBool::new(false))?;
        let snapshot = monitor.snapshot(clock::unix_ns());
        anyhow::ensure!(!snapshot.targets.is_empty(), "the target is gone");
    }
    Ok(())
}

/// Length of one measurement of CPU per access.
const STRETCH: Ns = 3 * S;

/// A target that is busy in all of its 4 GiB, and a twin that is not monitored. The machine affects both equally, so
/// the target's CPU per access is divided by the twin's, stretch by stretch: before and after, while monitored at
/// default settings for a minute, and while everything is cleared once a second.
fn slowdown(log: &mut Log) -> Result<()> {
    let child = start(&busy(4 << 10, false))?;
    let twin = start(&busy(4 << 10, false))?;
    let before = stretches(5, || Ok(()))?;
    let (watched, cost) = in_own_thread(|| {
        let mut monitor = monitor_of(vec![child.pid()], RealClock, Settings::default())?;
        // A minute: what the first credit overspends is paid back by then.
        let watched = stretches(20, || watch(&mut monitor, STRETCH))?;
        Ok((watched, monitor.cost(monitor.now())))
    })?;
    let after = stretches(5, || Ok(()))?;
    let pidfd = PidFd::open(child.pid())?;
    let pmds: Vec<PmdNo> = child.memory().pmds().collect();
    let cleared = stretches(5, || {
        let began = clock::monotonic_ns();
        for second in 1..=STRETCH / S {
            for run in pmds.chunks(PMDS_A_CALL) {
                pidfd.advise_cold(&[AddrRange::new(run[0].addr(), run[run.len() - 1].next().addr())])?;
            }
            sleep_until(began + second * S);
        }
        Ok(())
    })?;
    let unwatched: Vec<(Ns, Ns)> = before.into_iter().chain(after).collect();
    let relative =
        |times: &[(Ns, Ns)]| times.iter().map(|t| relative_cost(&child, &twin, *t)).collect::<Result<Vec<f64>>>();
    let base = median(&relative(&unwatched)?);
    let percent = |times: &[(Ns, Ns)]| -> Result<Vec<f64>> {
        Ok(relative(times)?.iter().map(|r| 100.0 * (r / base - 1.0)).collect())
    };
    let (noise, default, unbudgeted) = (percent(&unwatched)?, percent(&watched)?, percent(&cleared)?);
    let cpu_pct = 100.0 * cost.monitor_cpu_ns as f64 / cost.elapsed_ns as f64;
    log.line("\nslow-down of a target busy all over its 4 GiB: % of CPU for each access, relative to a twin that is not watched");
    log.line(format!("  not watched             {}", spread(&noise)));
    log.line(format!(
        "  default settings        {}  (estimated from pages touched again: {:.2})",
        spread(&default),
        cost.slowdown_pct
    ));
    log.line(format!("  all cleared each second {}", spread(&unbudgeted)));
    log.line(format!("  CPU of the monitor      {cpu_pct:.2}% of a core over a minute, opening the source included"));
    log.result("target_slowdown_pct", median(&default));
    log.result("target_slowdown_estimated_pct", cost.slowdown_pct);
    log.result("slowdown_unbudgeted_pct", median(&unbudgeted));
    log.result("monitor_cpu_pct_4g_minute", cpu_pct);
    Ok(())
}

/// Runs `what` `count` times for one [`STRETCH`] each. Returns the start and end of each.
fn stretches(count: usize, mut what: impl FnMut() -> Result<()>) -> Result<Vec<(Ns, Ns)>> {
    let mut times = Vec::new();
    for _ in 0..count {
        let began = clock::monotonic_ns();
        what()?;
        sleep_until(began + STRETCH);
        times.push((began, clock::monotonic_ns()));
    }
    Ok(times)
}

fn sleep_until(at: Ns) {
    std::thread::sleep(std::time::Duration::from_nanos(at.saturating_sub(clock::monotonic_ns())));
}

fn relative_cost(child: &Child, twin: &Child, (from, to): (Ns, Ns)) -> Result<f64> {
    let cost = |c: &Child| c.cpu_ns_per_access(from, to).context("a target reported nothing");
    Ok(cost(child)? / cost(twin)?)
}

/// Seconds until a cold span of 64 MiB that turns hot is reported hot, in a target of 4 GiB with half a GiB hot.
fn new_hot(log: &mut Log) -> Result<()> {
    const SPAN_PAGES: usize = 64 << 8;
    let mut found = Vec::new();
    let pattern = Pattern { hot_pages: 1 << 17, layout: Layout::Span, ..busy(4 << 10, false) };
    let hot = pattern.hot();
    // The first cold stretch that is long enough, aligned to a huge range.
    let first =
        (0..hot.len()).step_by(512).find(|i| !hot[*i..*i + SPAN_PAGES].contains(&true)).context("no cold span")?;
    for trial in 0..3 {
        let mut child = start(&pattern)?;
        let from = first + trial * 4096;
        let start = child.memory().start.0 + from as u64 * 4096;
        let span = AddrRange::new(isotherm_units::Addr(start), isotherm_units::Addr(start + SPAN_PAGES as u64 * 4096));
        found.push(in_own_thread(|| {
            let (clock, pid) = (BenchClock::default(), child.pid());
            let mut monitor = monitor_of(vec![pid], clock.clone(), Settings::default())?;
            // Looking is not charged to the monitor.
            let hot = |monitor: &Monitor<BenchClock>| clock.beside(|| known_pages(monitor, pid, span, |ns| ns <= S));
            // Until the first access checks are complete at 1% of CPU: a span that is not known to be cold cannot turn
            // hot.
            watch(&mut monitor, 40 * S)?;
            anyhow::ensure!(hot(&monitor) == 0, "the span was taken to be hot before it was");
            child.heat(from, SPAN_PAGES)?;
            let began = monitor.now();
            while hot(&monitor) < SPAN_PAGES as u64 * 99 / 100 {
                anyhow::ensure!(monitor.now() < began + 60 * S, "not found within a minute");
                // As often as it wakes up by itself.
                let until = monitor.now() + CLEAR_TICK;
                monitor.watch(until, &AtomicBool::new(false))?;
            }
            Ok((monitor.now() - began) as f64 / 1e9)
        })?);
    }
    log.line(format!(
        "\na cold span of 64 MiB turning hot is known to be (99% of its pages) after {} s",
        spread(&found)
    ));
    log.result("seconds_to_find_new_hot", median(&found));
    Ok(())
}

fn memory(log: &mut Log) -> Result<()> {
    let growth = Growth::measure(|pages| busy(pages >> 8, false), 4)?;
    log.line(format!("\nmemory of the monitor: {growth}"));
    log.result("monitor_bytes_per_page", growth.bytes_per_page());
    Ok(())
}
