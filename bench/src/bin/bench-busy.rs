//! What a user sees of a busy server: a key-value store on every CPU, watched at the defaults, and collapsed.
//!
//! The store has items of 256 bytes to 2 KiB in slabs, keys normal around one that wanders, and half of its operations are SETs, each of
//! which moves its item ([`Store`]). It counts its accesses by page. That is the truth: a page is hot if it was accessed once a second or more
//! often over the last ten seconds.
//!
//! - *The first minute*: how much is unmeasured after 10 and 30 s, the working set after 30 s against the truth, and the monitor's CPU.
//! - *The price*: the store's CPU time per operation in twenty windows of 5 s, watched and not by turns. The median of the ten ratios is printed
//!   with its 95% interval. Where that is wide, the machine is too noisy for the figure. So an estimate stands beside it: cleared pages that were
//!   accessed again in the first minute, which is watched from end to end, times what such an access was measured to cost more, in the same run.
//! - *Collapsing*: the price, over a minute of the same store that nobody watches; the share of all accesses that go to huge pages after a quarter of the collapses, and after a minute; and the working set
//!   then: by estimate, as the pages of huge pages were before, and by bits, when one accessed bit stands for 2 MiB. Where heat is nearly
//!   flat over all that is hot, a quarter of it cannot carry most: so ours is also set against the best order, and with keys by Zipf's law.

use anyhow::{Context, Result};
use isotherm_bench::collapsing::Collapsing;
use isotherm_bench::reading::retouch_ns;
use isotherm_bench::turns::{Above, by_turns};
use isotherm_bench::{
    BenchClock, Log, become_workload, in_own_thread, median, monitor_of, only, pages_that_fit, spread, start_server,
    trials,
};
use isotherm_heat::{Clock, Ns};
use isotherm_monitor::Settings;
use isotherm_schemes::Budgets;
use isotherm_sources::RealClock;
use isotherm_units::{PAGES_PER_PMD, PmdNo};
use isotherm_workload::{Keys, PageCounts, Reported, Reuse, Server, Store};
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::Duration;

const S: Ns = 1_000_000_000;
const MINUTE: Duration = Duration::from_secs(60);
const HOT_HZ: f64 = 1.0;
/// Over which rates are taken.
const WINDOW: Ns = 10 * S;
/// As of the keys of YCSB's workloads.
const ZIPF: f64 = 0.99;
/// Of a window of 5 s, after the store has settled.
const SLICE: Duration = Duration::from_millis(4700);

fn main() -> Result<()> {
    become_workload()?;
    let mut log = Log::new("bench-busy");
    let (trials, server) = (trials(5), server()?);
    log.line(format!(
        "store of {:.1} GiB on {} threads, half SETs, keys normal with a deviation of 3%; 1% of a core; {trials} times each\n",
        server.pages as f64 / 262_144.0,
        server.threads
    ));
    if "minute".contains(&only()) {
        first_minutes(&mut log, &server, trials)?;
    }
    if "price".contains(&only()) {
        price(&mut log, &server)?;
    }
    if "collapse".contains(&only()) {
        collapses(&mut log, &server, trials)?;
    }
    if "zipf".contains(&only()) {
        let keys = Keys::Zipf { exponent: ZIPF };
        zipf_collapses(&mut log, &Store { keys, ..server }, trials)?;
    }
    log.finish()
}

fn server() -> Result<Store> {
    // As memcached and Redis do it.
    Ok(Store { reuse: Reuse::Newest, ..Store::on_every_cpu(pages_that_fit(2 << 18)?, 11)? })
}

fn started(store: &Store, trial: usize) -> Result<Server> {
    start_server(&Store { seed: store.seed + trial as u64, ..store.clone() })
}

/// How many pages are hot, by the accesses since the last call.
fn hot_pages(server: &mut Server, now: Ns) -> f64 {
    server.counts.rates_hz(now).into_iter().filter(|hz| *hz >= HOT_HZ).count() as f64
}

/// By how much more is reported than there is.
fn error_pct(reported: f64, truth: f64) -> f64 {
    100.0 * (reported / truth - 1.0)
}

fn sizes(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.abs()).collect()
}

/// Prints the spread of each figure, and keeps its median: key, text, and the values of all trials.
fn print<const N: usize>(log: &mut Log, rows: [(&'static str, &str, Vec<f64>); N]) {
    for (key, text, values) in rows {
        log.line(format!("{text:<56} {}", spread(&values)));
        log.result(key, median(&values));
    }
}

#[derive(Debug, Default)]
struct Minute {
    unmeasured_pct_10s: f64,
    unmeasured_pct_30s: f64,
    wss_error_pct: f64,
    wss_counted_error_pct: f64,
    hot_mib: f64,
    within_a_second_mib: f64,
    monitor_cpu_pct: f64,
    /// Cleared pages that were accessed again, a second.
    retouched_per_s: f64,
    /// CPU time of the store, of one CPU.
    store_cpus: f64,
}

impl Minute {
    /// By how much more CPU time an operation takes, in percent, where an access to a cleared page takes so much longer.
    fn slowdown_pct(&self, retouch_ns: f64) -> f64 {
        100.0 * self.retouched_per_s * retouch_ns / (self.store_cpus * 1e9)
    }
}

fn first_minutes(log: &mut Log, store: &Store, trials: usize) -> Result<()> {
    let minutes = (0..trials).map(|trial| first_minute(store, trial)).collect::<Result<Vec<_>>>()?;
    let of = |what: fn(&Minute) -> f64| minutes.iter().map(what).collect::<Vec<f64>>();
    let wss_error = of(|m| m.wss_error_pct);
    log.line(format!(
        "{:.0} MiB are hot, {:.0} MiB were accessed within the last second; the working set after 30 s is off by {}%, pages counted as hot by {}%",
        median(&of(|m| m.hot_mib)),
        median(&of(|m| m.within_a_second_mib)),
        spread(&wss_error),
        spread(&of(|m| m.wss_counted_error_pct))
    ));
    let rows = [
        ("unmeasured_pct_10s", "unmeasured after 10 s, percent", of(|m| m.unmeasured_pct_10s)),
        ("unmeasured_pct_30s", "unmeasured after 30 s, percent", of(|m| m.unmeasured_pct_30s)),
        ("wss_error_pct_30s", "error of the working set after 30 s, percent", sizes(&wss_error)),
        ("wss_counted_error_pct_30s", "the same of pages counted as hot", sizes(&of(|m| m.wss_counted_error_pct))),
        ("monitor_cpu_pct", "CPU of the monitor over 60 s, percent of a core", of(|m| m.monitor_cpu_pct)),
    ];
    print(log, rows);
    let retouch_ns = retouch_ns()?;
    log.line(format!("an access to a cleared page takes {retouch_ns:.0} ns longer"));
    log.result("retouch_ns", retouch_ns);
    let slowdown: Vec<f64> = minutes.iter().map(|minute| minute.slowdown_pct(retouch_ns)).collect();
    let of_core = minutes.iter().map(|minute| minute.slowdown_pct(retouch_ns) * minute.store_cpus).collect();
    let rows = [
        ("slowdown_estimated_pct", "CPU time per operation by pages accessed again, percent", slowdown),
        ("slowdown_of_core_pct", "the same, percent of a core", of_core),
    ];
    print(log, rows);
    Ok(())
}

fn first_minute(store: &Store, trial: usize) -> Result<Minute> {
    let mut server = started(store, trial)?;
    let memory = server.child.memory();
    let path = server.counts.path().context("the counts have no path")?;
    let mut last_second = PageCounts::open(&path, store.pages)?;
    in_own_thread(|| {
        let clock = BenchClock::default();
        let mut monitor = monitor_of(vec![server.child.pid()], clock.clone(), Settings::default())?;
        let (began, pid, pages) = (monitor.now(), server.child.pid(), store.pages as f64);
        let from = RealClock.now();
        let mut minute = Minute::default();
        for second in 1..=60 {
            monitor.watch(began + second * S, &AtomicBool::new(false))?;
            drop(monitor.snapshot(monitor.now()));
            clock.beside(|| {
                let reported = || Reported::of(monitor.pages_of(pid), memory, monitor.now(), S);
                match second {
                    10 => minute.unmeasured_pct_10s = 100.0 * reported().unmeasured_pages as f64 / pages,
                    20 => drop(server.counts.rates_hz(RealClock.now())),
                    29 => drop(last_second.rates_hz(RealClock.now())),
                    30 => {
                        let reported = reported();
                        let truth = hot_pages(&mut server, RealClock.now());
                        minute.hot_mib = truth / 256.0;
                        let accessed = last_second.rates_hz(RealClock.now()).into_iter().filter(|hz| *hz > 0.0);
                        minute.within_a_second_mib = accessed.count() as f64 / 256.0;
                        minute.wss_error_pct = error_pct(reported.working_set as f64, truth);
                        minute.wss_counted_error_pct = error_pct(reported.hot_pages as f64, truth);
                        minute.unmeasured_pct_30s = 100.0 * reported.unmeasured_pages as f64 / pages;
                    }
                    _ => {}
                }
            });
        }
        let cost = monitor.cost(monitor.now());
        minute.monitor_cpu_pct = 100.0 * cost.monitor_cpu_ns as f64 / cost.elapsed_ns as f64;
        minute.store_cpus = server.child.speed(from, RealClock.now()).context("the store reported nothing")?.0;
        minute.retouched_per_s = cost.pages_retouched as f64 / (cost.elapsed_ns as f64 / 1e9);
        Ok(minute)
    })
}

fn price(log: &mut Log, store: &Store) -> Result<()> {
    let server = started(store, 0)?;
    let above = in_own_thread(|| {
        let mut monitor = monitor_of(vec![server.child.pid()], RealClock, Settings::default())?;
        let per_operation = |from: Ns| {
            let ns = server.child.cpu_ns_per_access(from, RealClock.now());
            ns.context("the store reported nothing")
        };
        // What is checked for the first time costs most, and only once.
        monitor.watch(monitor.now() + WINDOW, &AtomicBool::new(false))?;
        let slice_ns = u64::try_from(SLICE.as_nanos())?;
        let watched = || {
            let from = RealClock.now();
            monitor.watch(from + slice_ns, &AtomicBool::new(false))?;
            per_operation(from)
        };
        let alone = || {
            let from = RealClock.now();
            sleep(SLICE);
            per_operation(from)
        };
        by_turns(watched, alone)
    })?;
    let Above { median, low, high } = above;
    log.line(format!("CPU time per operation, watched and not: {median:+.2}%, 95% interval {low:+.2} to {high:+.2}"));
    log.result("slowdown_measured_pct", median);
    log.result("slowdown_interval_pct", high - low);
    Ok(())
}

#[derive(Debug, Default)]
struct Collapsed {
    collapses: f64,
    heat_at_25pct: f64,
    best_at_25pct: f64,
    vs_best_at_25pct: f64,
    heat_60s: f64,
    wss_error_pct: f64,
    wss_by_bits_error_pct: f64,
    monitor_cpu_pct: f64,
    collapse_cpu_pct: f64,
    price: Price,
}

/// What the store pays in the minute in which it is collapsed, over one like it that nobody watches.
#[derive(Clone, Copy, Debug, Default)]
struct Price {
    /// CPU time per operation, percent more.
    cpu_pct: f64,
    /// Of the time of its threads, how much less they ran, in percent: they waited for the kernel, or for a CPU, which the monitor and the worker
    /// take from a store that keeps all of them busy.
    stall_pct: f64,
}

/// A minute of a store.
struct Ran {
    cpu_ns_per_operation: f64,
    /// CPUs of which it had the time.
    cpus: f64,
}

impl Ran {
    fn since(server: &Server, from: Ns) -> Result<Ran> {
        let now = RealClock.now();
        let (speed, per_operation) = (server.child.speed(from, now), server.child.cpu_ns_per_access(from, now));
        let ((cpus, _), cpu_ns_per_operation) = speed.zip(per_operation).context("the store reported nothing")?;
        Ok(Ran { cpu_ns_per_operation, cpus })
    }

    /// By how much it paid more than the other.
    fn above(&self, other: &Ran, threads: usize) -> Price {
        Price {
            cpu_pct: error_pct(self.cpu_ns_per_operation, other.cpu_ns_per_operation),
            stall_pct: 100.0 * (other.cpus - self.cpus) / threads as f64,
        }
    }
}

/// A minute of a store that nobody watches.
fn left_alone(store: &Store, trial: usize) -> Result<Ran> {
    let server = started(store, trial)?;
    let from = RealClock.now();
    sleep(MINUTE);
    Ran::since(&server, from)
}

fn collapsed_each(store: &Store, trials: usize) -> Result<Vec<Collapsed>> {
    (0..trials).map(|trial| collapsed(store, trial)).collect()
}

/// With a few keys that are much hotter than the others.
fn zipf_collapses(log: &mut Log, store: &Store, trials: usize) -> Result<()> {
    let all = collapsed_each(store, trials)?;
    let of = |what: fn(&Collapsed) -> f64| all.iter().map(what).collect::<Vec<f64>>();
    log.line(format!(
        "\nkeys by Zipf's law with an exponent of {ZIPF}; collapses in 60 s: {}",
        spread(&of(|c| c.collapses))
    ));
    let rows = [
        ("zipf_heat_on_huge_at_25pct", "accesses to huge pages after 25% of them, share", of(|c| c.heat_at_25pct)),
        ("zipf_heat_vs_best_at_25pct", "the same over that of the best order", of(|c| c.vs_best_at_25pct)),
        ("zipf_heat_on_huge_60s", "accesses to huge pages after all of them, share", of(|c| c.heat_60s)),
    ];
    print(log, rows);
    Ok(())
}

fn collapses(log: &mut Log, store: &Store, trials: usize) -> Result<()> {
    let all = collapsed_each(store, trials)?;
    let of = |what: fn(&Collapsed) -> f64| all.iter().map(what).collect::<Vec<f64>>();
    log.line(format!("collapses in 60 s: {}", spread(&of(|c| c.collapses))));
    let wss_error = of(|c| c.wss_error_pct);
    log.line(format!("the working set by estimate is then off by {}%", spread(&wss_error)));
    let rows = [
        ("heat_on_huge_at_25pct", "accesses to huge pages after 25% of them, share", of(|c| c.heat_at_25pct)),
        ("heat_on_best_at_25pct", "the same if the hottest had come first, share", of(|c| c.best_at_25pct)),
        ("heat_vs_best_at_25pct", "ours over that, of each trial", of(|c| c.vs_best_at_25pct)),
        ("heat_on_huge_60s", "accesses to huge pages after all of them, share", of(|c| c.heat_60s)),
        ("wss_after_collapse_error_pct", "error of the working set then, by estimate, percent", sizes(&wss_error)),
        ("wss_by_bits_error_pct", "the same by bits, percent", sizes(&of(|c| c.wss_by_bits_error_pct))),
        ("collapse_monitor_cpu_pct", "CPU of the monitor, percent of a core", of(|c| c.monitor_cpu_pct)),
        ("collapse_cpu_pct", "CPU of the worker, percent of a core", of(|c| c.collapse_cpu_pct)),
        ("collapse_price_cpu_pct", "CPU time per operation, over that of a store left alone", of(|c| c.price.cpu_pct)),
        ("collapse_price_stall_pct", "time that its threads did not run, percent more", of(|c| c.price.stall_pct)),
    ];
    print(log, rows);
    Ok(())
}

fn collapsed(store: &Store, trial: usize) -> Result<Collapsed> {
    // One first and then the other, by turns: what the machine does besides falls on both.
    let before = if trial.is_multiple_of(2) { Some(left_alone(store, trial)?) } else { None };
    let mut server = started(store, trial)?;
    let (memory, pid) = (server.child.memory(), server.child.pid());
    let collapsing = Collapsing::new(&server.child, Budgets::default())?;
    drop(server.counts.rates_hz(RealClock.now()));
    let from = RealClock.now();
    let (cost, reported) = std::thread::scope(|scope| -> Result<_> {
        let watching = scope.spawn(|| {
            let mut last = Reported::default();
            let cost =
                collapsing.watch(|monitor| last = Reported::of(monitor.pages_of(pid), memory, monitor.now(), S))?;
            anyhow::Ok((cost, last))
        });
        scope.spawn(|| collapsing.work());
        sleep(MINUTE);
        collapsing.stop();
        watching.join().expect("no panic")
    })?;
    let ran = Ran::since(&server, from)?;
    let rates = server.counts.rates_hz(RealClock.now());
    let by_pmd: Vec<f64> = rates.chunks(PAGES_PER_PMD).map(|pages| pages.iter().sum()).collect();
    let index = |pmd: &PmdNo| usize::try_from(pmd.0.wrapping_sub(memory.start.pmd().0)).ok();
    // Of its other memory, the tables of items, no accesses are counted.
    let of = |pmd: &PmdNo| index(pmd).and_then(|at| by_pmd.get(at)).copied().unwrap_or(0.0);
    let heat = |pmds: &[PmdNo]| pmds.iter().map(of).sum::<f64>() / rates.iter().sum::<f64>();
    let order = collapsing.order();
    let quarter = order.len().div_ceil(4);
    let mut best: Vec<PmdNo> = memory.pmds().collect();
    best.sort_by(|a, b| of(b).total_cmp(&of(a)));
    sleep(Duration::from_nanos(WINDOW));
    let truth = hot_pages(&mut server, RealClock.now());
    let seconds = cost.elapsed_ns as f64 / 1e9;
    let (ours_at_25pct, best_at_25pct) = (heat(&order[..quarter]), heat(&best[..quarter]));
    drop(server);
    let alone = before.map_or_else(|| left_alone(store, trial), Ok)?;
    let price = ran.above(&alone, store.threads);
    Ok(Collapsed {
        collapses: order.len() as f64,
        heat_at_25pct: ours_at_25pct,
        best_at_25pct,
        vs_best_at_25pct: ours_at_25pct / best_at_25pct,
        heat_60s: heat(&order),
        wss_error_pct: error_pct(reported.working_set_by_estimate as f64, truth),
        wss_by_bits_error_pct: error_pct(reported.working_set as f64, truth),
        monitor_cpu_pct: cost.monitor_cpu_ns as f64 / 1e7 / seconds,
        collapse_cpu_pct: collapsing.counters().cpu_ns as f64 / 1e7 / seconds,
        price,
    })
}
