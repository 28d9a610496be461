//! Hot pages in fast memory: `isotherm run` with schemes that promote and demote, against the kernel's NUMA balancing for tiers, on a store
//! whose pages are all on slow memory when it starts: because idle heap fills fast memory, or, with room there, because they were moved.
//!
//! Runs only in a guest of the lab (`make bench-tier` boots one) that has a second node without processors, which the firmware reports
//! as slower. The processor is executed by instruction count, and the guest's clock skips the time in which it is idle (see
//! bench-cold). No memory of the guest is slower than other memory: where pages are is measured, and no speed.
//!
//! Fast memory is *full* as programs leave it: the store begins on it and goes on on the slow node. Then nothing can go up before
//! something has gone down.

use anyhow::{Context, Result, ensure};
use isotherm_bench::daemon::Daemon;
use isotherm_bench::{
    Log, become_workload, idle_heap, median, need_lab, spread, start, start_server, store_with_cold_keys, trials,
};
use isotherm_sys::clock;
use isotherm_sys::move_pages::{Place, move_to, places};
use isotherm_sys::tiers::Tiers;
use isotherm_units::PageNo;
use isotherm_workload::{Child, Server};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

const STORE_PAGES: usize = 24 << 10;
const PER_S: f64 = 20_000.0;
/// Accessed this often over the last ten seconds, a page is hot.
const HOT_HZ: f64 = 1.0;
/// What the idle heap leaves free of fast memory: more than twice what will be hot, a part of which the kernel keeps for itself.
const LEFT_PAGES: u64 = 12 << 10;
/// Budgets are ten times the defaults: a call of the kernel takes as many instructions here as anywhere, at a tenth of their speed.
const SETTINGS: &str = "\
[[scheme]]
action = \"promote\"
[[scheme]]
action = \"demote\"
min_idle = \"10s\"
[watch]
max_cpu = 10.0
[budgets]
cpu_pct = 100.0
per_second = 100.0
stall_pct = 100.0
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Ours,
    /// `numa_balancing` 2, and demotion.
    Kernel,
}

/// Fast memory when the store starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fast {
    Full,
    Room,
}

const CASES: [(Fast, Way); 4] =
    [(Fast::Full, Way::Ours), (Fast::Full, Way::Kernel), (Fast::Room, Way::Ours), (Fast::Room, Way::Kernel)];

fn main() -> Result<()> {
    become_workload()?;
    need_lab("bench-tier", "changes settings of the kernel")?;
    let tiers = Tiers::read(Path::new("/sys"));
    ensure!(tiers.are_several(), "all memory of this machine is in one tier: {tiers:?}");
    let mut log = Log::new("bench-tier");
    let trials = trials(5);
    log.line(format!("tiers: {:?}; a store of {} MiB; {trials} seeds", tiers.nodes(), STORE_PAGES >> 8));
    let mut came: Vec<[Came; CASES.len()]> = Vec::new();
    for seed in 1..=trials as u64 {
        let mut of_seed = [Came::default(); CASES.len()];
        for ((fast, way), came) in CASES.into_iter().zip(&mut of_seed) {
            *came = run(fast, way, seed, &tiers).with_context(|| format!("{fast:?}, {way:?}"))?;
            log.line(format!(
                "seed {seed}  {:<5} {:<7} hot pages on fast memory: {:>5.1} % at the start, {:>5.1} % after 30 s, {:>5.1} % after 60 s; {:>6.0} pages moved, {:.0} by our counters, {:.0} up again",
                format!("{fast:?}"),
                format!("{way:?}"),
                came.start_pct,
                came.after_30_pct,
                came.after_60_pct,
                came.moved,
                came.counted,
                came.back
            ));
        }
        came.push(of_seed);
    }
    conclude(log, &came)
}

/// What came of one case.
#[derive(Clone, Copy, Debug, Default)]
struct Came {
    start_pct: f64,
    after_30_pct: f64,
    after_60_pct: f64,
    /// Pages that the kernel has moved, by its counter.
    moved: f64,
    /// Pages that were moved, by ours, and of those up again after they had gone down.
    counted: f64,
    back: f64,
}

fn run(fast: Fast, way: Way, seed: u64, tiers: &Tiers) -> Result<Came> {
    fs::write("/proc/sys/kernel/numa_balancing", if way == Way::Kernel { "2" } else { "0" })?;
    fs::write("/sys/kernel/mm/numa/demotion_enabled", if way == Way::Kernel { "1" } else { "0" })?;
    let free = tiers.free_of_fast().context("free memory of the fast nodes")?.0.pages();
    let left = if fast == Fast::Full { LEFT_PAGES } else { LEFT_PAGES + STORE_PAGES as u64 };
    let heap = start(&idle_heap(usize::try_from(free.saturating_sub(left))?, seed))?;
    let mut server = start_server(&store_with_cold_keys(STORE_PAGES, Some(PER_S), seed))?;
    if fast == Fast::Room {
        let first = server.child.memory().start.page().0;
        let all: Vec<PageNo> = (first..first + STORE_PAGES as u64).map(PageNo).collect();
        move_to(server.child.pid(), &all, *tiers.below(0).first().context("no slow node")?)?;
    }
    let start_pct = recently_hot_on_fast_pct(&mut server, tiers, 3.0)?;
    let mut came = Came { start_pct, ..Came::default() };
    let before = migrated()?;
    let daemon =
        if way == Way::Ours { Some(Daemon::start(&[server.child.pid(), heap.pid()], SETTINGS)?) } else { None };
    wait(20.0);
    came.after_30_pct = recently_hot_on_fast_pct(&mut server, tiers, 10.0)?;
    wait(20.0);
    came.after_60_pct = recently_hot_on_fast_pct(&mut server, tiers, 10.0)?;
    if let Some(daemon) = &daemon {
        let of = |child: &Child| Ok::<Value, anyhow::Error>(daemon.target(child.pid())?["migrate"].clone());
        for counters in [of(&server.child)?, of(&heap)?] {
            let pages = |key: &str| counters[key].as_f64().unwrap_or_default() / 4096.0;
            came.counted += pages("promoted_bytes") + pages("demoted_bytes");
            came.back += pages("back_bytes");
        }
    }
    came.moved = migrated()? - before;
    Ok(came)
}

/// Of the pages that are hot in the next so many seconds, how many are on fast memory then.
fn recently_hot_on_fast_pct(server: &mut Server, tiers: &Tiers, seconds: f64) -> Result<f64> {
    server.counts.rates_hz(clock::monotonic_ns());
    wait(seconds);
    hot_on_fast_pct(server, tiers)
}

/// Of the pages that were hot since the last call, how many are on fast memory.
fn hot_on_fast_pct(server: &mut Server, tiers: &Tiers) -> Result<f64> {
    let rates = server.counts.rates_hz(clock::monotonic_ns());
    let first = server.child.memory().start.page().0;
    let hot: Vec<PageNo> = (first..).zip(rates).filter(|(_, hz)| *hz >= HOT_HZ).map(|(page, _)| PageNo(page)).collect();
    let on_fast = |place: &Place| matches!(place, Place::Node(node) if tiers.is_fast(*node));
    let fast = places(server.child.pid(), &hot)?.iter().filter(|place| on_fast(place)).count();
    Ok(fast as f64 / hot.len().max(1) as f64 * 100.0)
}

/// Pages that the kernel has moved since boot, for whatever reason.
fn migrated() -> Result<f64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("pgmigrate_success "));
    line.context("no pgmigrate_success in /proc/vmstat")?.parse().context("pgmigrate_success")
}

fn wait(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

fn conclude(mut log: Log, came: &[[Came; CASES.len()]]) -> Result<()> {
    let of = |case: usize, what: fn(&Came) -> f64| came.iter().map(|all| what(&all[case])).collect::<Vec<f64>>();
    let error = |c: &Came| (c.counted / c.moved.max(1.0) - 1.0).abs() * 100.0;
    let back = |c: &Came| c.back / c.counted.max(1.0) * 100.0;
    for (case, (fast, way)) in CASES.into_iter().enumerate() {
        log.line(format!(
            "fast memory: {:<5} {:<7} hot pages on it after 30 s: {} %, after 60 s: {} %",
            format!("{fast:?}"),
            format!("{way:?}"),
            spread(&of(case, |c| c.after_30_pct)),
            spread(&of(case, |c| c.after_60_pct))
        ));
    }
    let mut result = |key, case, what| log.result(key, median(&of(case, what)));
    result("hot_on_fast_pct_30s", 0, |c| c.after_30_pct);
    result("hot_on_fast_pct_60s", 0, |c| c.after_60_pct);
    result("ping_pong_pct", 0, back);
    result("counter_error_pct", 0, error);
    result("start_hot_on_fast_pct", 0, |c| c.start_pct);
    result("numa_balancing_hot_on_fast_pct_30s", 1, |c| c.after_30_pct);
    result("numa_balancing_hot_on_fast_pct_60s", 1, |c| c.after_60_pct);
    result("room_hot_on_fast_pct_30s", 2, |c| c.after_30_pct);
    result("room_numa_balancing_hot_on_fast_pct_30s", 3, |c| c.after_30_pct);
    result("room_numa_balancing_hot_on_fast_pct_60s", 3, |c| c.after_60_pct);
    log.finish()
}
