//! Modelled hosts of up to 5 TB: DAMON's algorithm at its defaults, the same tuned, and ours, on equal terms.
//!
//! Nothing here is measured on real memory. `isotherm-sim` answers every access check, at the measured costs of reads,
//! clears and DAMON's checks. Our code is real, and its CPU time is added.
//!
//! A page is hot if it is accessed at least once a second. DAMON's regions are used as reported: a region accessed in a
//! share p of samples of s seconds has -ln(1 - p) / s accesses per second and page. It is scored at each of its last
//! aggregations, and the one with the median F1 is reported.

use anyhow::Result;
use isotherm_bench::adaptive::{Attrs, Context};
use isotherm_bench::{Log, take_no_options};
use isotherm_heat::source::{
    AccessSource, Attached, BitsSink, ClearedProcess, ClearedSink, Description, Layout, PageSource, Progress,
    SourceResult,
};
use isotherm_heat::{Clock, Ns, Score};
use isotherm_monitor::{Follower, Mode, Monitor, Selection, Settings};
use isotherm_sim::{Claim, Host, MASIM_PID, Masim, ModelClock, ModelSource, PageProbe, Physical, Scope};
use isotherm_sys::clock::thread_cpu_ns;
use isotherm_sys::proc::Proc;
use isotherm_units::{AddrRange, Bytes, PmdNo};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const S: Ns = 1_000_000_000;
const GB: u64 = 1_000_000_000;
const HOT_NS: Ns = S;
const SEED: u64 = 1;
/// Monitoring time of each way, in modelled time.
const DAMON_TIME: Ns = 100 * S;
const TUNED_TIME: Ns = 1800 * S;
const OUR_TIME: Ns = 600 * S;
const HOST_TIME: Ns = 1800 * S;
/// CPU that the model's costs may take for ours, in percent. The CPU time of our own code is added.
const CPU_PCT: f64 = 0.7;
/// The report includes the first time at which F1 is this good.
const GOOD: f64 = 0.95;
const SMALL: &str = "/tenants/small";

fn main() -> Result<()> {
    take_no_options();
    let mut log = Log::new("bench-scale");
    log.line("all memory and all costs of touching it are modelled; hot: accessed once a second or oftener\n");
    log.line(format!(
        "{:<34} {:<28} {:>9} {:>7} {:>6} {:>11} {:>11} {:>8} {:>9}",
        "memory", "way", "precision", "recall", "F1", "reads/s", "clears/s", "CPU %", "good at"
    ));
    masims(&mut log)?;
    log.line("");
    small_cgroup(&mut log)?;
    log.finish()
}

/// The result of one way on one host.
struct Outcome {
    score: Score,
    reads_s: f64,
    clears_s: f64,
    cpu_pct: f64,
    good_at: Option<Ns>,
}

impl Outcome {
    fn tell(&self, log: &mut Log, memory: &str, way: &str) {
        let good = self.good_at.map_or_else(|| "never".to_owned(), |ns| format!("{} s", ns / S));
        log.line(format!(
            "{memory:<34} {way:<28} {:>9.3} {:>7.3} {:>6.3} {:>11.0} {:>11.0} {:>8.2} {good:>9}",
            self.score.precision(),
            self.score.recall(),
            self.score.f1(),
            self.reads_s,
            self.clears_s,
            self.cpu_pct
        ));
    }
}

fn masims(log: &mut Log) -> Result<()> {
    let sizes = [
        ("1 GB, 100 MB hot", GB, GB / 10, 1),
        ("10 GB, 1 GB hot", 10 * GB, GB, 1),
        ("100 GB, 10 GB hot", 100 * GB, 10 * GB, 1),
        ("5 TB, 10 GB hot", 5000 * GB, 10 * GB, 1),
        ("5 TB, 10 GB hot in 20 spans", 5000 * GB, 10 * GB, 20),
    ];
    for (name, total, hot, spans) in sizes {
        let host = Arc::new(Masim::new(Bytes(total), Bytes(hot)).spans(spans).host()?);
        let scope = Scope::Process(MASIM_PID);
        let default = damon(&host, scope, &Memory::Virtual(vec![MASIM_PID]), Attrs::default(), DAMON_TIME)?;
        default.tell(log, name, "DAMON, defaults");
        let tuned = damon(&host, scope, &Memory::Virtual(vec![MASIM_PID]), Attrs::tuned(), TUNED_TIME)?;
        tuned.tell(log, name, "DAMON, tuned");
        let sampled = ours(&host, scope, Mode::Sampled, 1000, OUR_TIME)?;
        sampled.tell(log, name, "Isotherm, sampled");
        if total <= 100 * GB {
            ours(&host, scope, Mode::Whole, 1000, OUR_TIME)?.tell(log, name, "Isotherm, whole");
        }
        if total == 5000 * GB && spans == 1 {
            log.result("precision_5t", sampled.score.precision());
            log.result("recall_5t", sampled.score.recall());
            log.result("cpu_pct_5t", sampled.cpu_pct);
        }
    }
    Ok(())
}

fn small_cgroup(log: &mut Log) -> Result<()> {
    let host = Arc::new(Host::two_tib());
    let scope = Scope::Cgroup(SMALL);
    let pids: Vec<u32> = host.processes().iter().map(|p| p.pid).collect();
    let name = "2 TiB, cgroup of 20 GiB";
    let mut best_damon: f64 = 0.0;
    for (regions, time) in [(1_000, DAMON_TIME), (20_000, DAMON_TIME / 4)] {
        let attrs = Attrs { max_regions: regions, ..Attrs::default() };
        let found = damon(&host, scope, &Memory::Virtual(pids.clone()), attrs.clone(), time)?;
        found.tell(log, name, &format!("DAMON, vaddr, {regions}"));
        let physical = host.physical(Bytes::of_mib(2), SEED)?;
        let by_frame = damon(&host, scope, &Memory::Physical(physical), attrs, time)?;
        by_frame.tell(log, name, &format!("DAMON, paddr, {regions}"));
        if regions == 1_000 {
            best_damon = found.score.f1().max(by_frame.score.f1());
        }
    }
    for regions in [1_000, 10_000, 20_000] {
        let found = ours(&host, scope, Mode::Sampled, regions, HOST_TIME)?;
        found.tell(log, name, &format!("Isotherm, sampled, {regions}"));
        if regions == 20_000 {
            log.result("f1_cgroup_20k", found.score.f1());
        }
    }
    log.result("f1_cgroup_damon_1k", best_damon);
    Ok(())
}

/// The memory that DAMON's algorithm monitors.
enum Memory {
    /// Address spaces, one target each.
    Virtual(Vec<u32>),
    /// Physical memory, one target.
    Physical(Physical),
}

impl Memory {
    fn ranges(&self, host: &Host) -> Vec<Vec<AddrRange>> {
        match self {
            Memory::Virtual(pids) => {
                let of = |pid: &u32| host.process(*pid).expect("of this host").areas.iter().map(|a| a.range).collect();
                // Adjacent areas are one mapping, so that the layout does not reveal where heat changes.
                pids.iter().map(of).map(|ranges: Vec<_>| isotherm_heat::cover(&ranges, 3)).collect()
            }
            Memory::Physical(physical) => vec![vec![physical.range()]],
        }
    }

    fn check(&self, probe: &PageProbe, target: usize, page: isotherm_units::PageNo, prepared: Ns) -> bool {
        match self {
            Memory::Virtual(pids) => probe.check(pids[target], page, prepared),
            Memory::Physical(physical) => probe.check_frame(physical, page.0, prepared),
        }
    }

    fn claims(&self, context: &Context) -> Vec<Claim> {
        let attrs = context.attrs();
        let (samples, sample_s) = (f64::from(attrs.max_nr_accesses()), attrs.sample_ns as f64 / S as f64);
        let mut claims = Vec::new();
        for (no, tiles) in context.targets().iter().enumerate() {
            for tile in tiles.iter() {
                let rate_hz = -(1.0 - f64::from(tile.of.nr_accesses) / samples).ln() / sample_s;
                if rate_hz < S as f64 / HOT_NS as f64 {
                    continue;
                }
                match self {
                    Memory::Virtual(pids) => claims.push(Claim { pid: pids[no], range: tile.range, hot: 1.0 }),
                    Memory::Physical(physical) => {
                        claims.extend(physical.pages_in(tile.range).map(|(pid, range)| Claim { pid, range, hot: 1.0 }))
                    }
                }
            }
        }
        claims
    }
}

fn damon(host: &Arc<Host>, scope: Scope<'_>, memory: &Memory, attrs: Attrs, time: Ns) -> Result<Outcome> {
    let clock = ModelClock::default();
    let probe = PageProbe::new(host.clone(), clock.clone());
    let mut context = Context::new(attrs, SEED)?;
    for ranges in memory.ranges(host) {
        context.add_target(&ranges);
    }
    let (mut scores, mut good_at, mut ours_ns, mut beside_ns) = (Vec::new(), None, 0, 0);
    while clock.now() < time {
        let began = thread_cpu_ns();
        context.draw(|_| {});
        ours_ns += thread_cpu_ns() - began;
        let mut prepared = 0;
        for _ in 0..context.regions() {
            prepared = probe.prepare();
        }
        clock.sleep_until(prepared + context.attrs().sample_ns);
        context.check(|s| u32::from(memory.check(&probe, s.target, s.page, prepared)));
        let began = thread_cpu_ns();
        if context.end_of_sample().aggregation {
            let now = clock.now();
            let mut claims = Vec::new();
            // Evaluating the result is our work, not DAMON's.
            let mut claiming_ns = 0;
            context.aggregate(|c| {
                let began = thread_cpu_ns();
                claims = memory.claims(c);
                claiming_ns = thread_cpu_ns() - began;
            });
            beside_ns += claiming_ns;
            let began = thread_cpu_ns();
            // Scoring the early ones would only take time.
            if now > time / 2 || good_at.is_none() && scores.len() < 64 {
                let score = host.score(scope, now, HOT_NS, claims);
                good_at = good_at.or((score.f1() >= GOOD).then_some(now));
                scores.push(score);
            }
            beside_ns += thread_cpu_ns() - began;
        }
        ours_ns += thread_cpu_ns() - began;
    }
    let seconds = clock.now() as f64 / S as f64;
    let counts = clock.counts();
    Ok(Outcome {
        score: median_score(&mut scores),
        reads_s: counts.page_checks as f64 / seconds,
        clears_s: counts.page_clears as f64 / seconds,
        cpu_pct: (clock.charged() + ours_ns - beside_ns) as f64 / clock.now() as f64 * 100.0,
        good_at,
    })
}

fn median_score(scores: &mut Vec<Score>) -> Score {
    scores.drain(..scores.len() / 2);
    scores.sort_by(|a, b| a.f1().total_cmp(&b.f1()));
    scores.get(scores.len() / 2).copied().unwrap_or_default()
}

fn ours(host: &Arc<Host>, scope: Scope<'_>, mode: Mode, max_regions: usize, time: Ns) -> Result<Outcome> {
    let clock = ModelClock::default();
    let in_model = Rc::new(Cell::new(0));
    let source = Timed { of: ModelSource::new(host.clone(), clock.clone()), cpu_ns: in_model.clone() };
    let pids = host.processes().iter().map(|p| p.pid).collect();
    let follower = Follower::new(&Selection::OfSource(pids), Proc::default())?;
    let settings = Settings { mode, max_regions, max_cpu_pct: CPU_PCT, seed: SEED, ..Settings::default() };
    let mut monitor = Monitor::new(Box::new(source), follower, clock.clone(), settings);
    let (mut scores, mut good_at) = (Vec::new(), None);
    let stop = AtomicBool::new(false);
    let mut ours_ns = 0;
    for no in 1..=100 {
        let (began, modelled) = (thread_cpu_ns(), in_model.get());
        monitor.watch(time / 100 * no, &stop)?;
        let snapshot = monitor.snapshot(clock.now());
        ours_ns += thread_cpu_ns() - began - (in_model.get() - modelled);
        let regions = snapshot.targets.iter().flat_map(|t| t.regions.iter().map(|r| (t.id.pid, r)));
        let hot = regions.filter(|(_, r)| r.interval.ns().is_some_and(|ns| ns <= HOT_NS));
        let claims = hot.map(|(pid, r)| Claim { pid, range: r.range, hot: 1.0 });
        let score = host.score(scope, clock.now(), HOT_NS, claims);
        good_at = good_at.or((score.f1() >= GOOD).then_some(clock.now()));
        scores.push(score);
    }
    let seconds = clock.now() as f64 / S as f64;
    let counts = clock.counts();
    Ok(Outcome {
        score: median_score(&mut scores),
        reads_s: (counts.tables_read + counts.huge_read) as f64 / seconds,
        clears_s: (counts.pmds_cleared + counts.huge_cleared) as f64 / seconds,
        cpu_pct: (clock.charged() + ours_ns) as f64 / clock.now() as f64 * 100.0,
        good_at,
    })
}

/// Separates the CPU time of the model's answers from ours: the model finishes before the findings are passed on.
struct Timed {
    of: ModelSource,
    cpu_ns: Rc<Cell<Ns>>,
}

impl Timed {
    fn time<T>(&mut self, f: impl FnOnce(&mut ModelSource) -> T) -> T {
        let began = thread_cpu_ns();
        let result = f(&mut self.of);
        self.cpu_ns.set(self.cpu_ns.get() + thread_cpu_ns() - began);
        result
    }
}

impl AccessSource for Timed {
    fn describe(&self) -> Description {
        self.of.describe()
    }

    fn attach(&mut self, pid: u32) -> SourceResult<Attached> {
        self.of.attach(pid)
    }

    fn detach(&mut self, pid: u32) {
        self.of.detach(pid);
    }

    fn layout(&mut self, pid: u32) -> SourceResult<Layout> {
        self.time(|of| of.layout(pid))
    }

    fn as_pages(&mut self) -> Option<&mut dyn PageSource> {
        Some(self)
    }
}

impl PageSource for Timed {
    fn read(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        let mut found = Vec::with_capacity(pmds.len());
        let progress = self.time(|of| of.read(pid, pmds, &mut |at, pmd, bits| found.push((at, pmd, bits))));
        found.into_iter().for_each(|(at, pmd, bits)| sink(at, pmd, bits));
        progress
    }

    fn clear(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        let mut done = Vec::with_capacity(pmds.len());
        let progress = self.time(|of| of.clear(pid, pmds, &mut |at, pmd, cleared| done.push((at, pmd, cleared))));
        done.into_iter().for_each(|(at, pmd, cleared)| sink(at, pmd, cleared));
        progress
    }

    fn clear_process(&mut self, pid: u32, stuck: &[PmdNo], all: &[PmdNo]) -> SourceResult<ClearedProcess> {
        self.time(|of| of.clear_process(pid, stuck, all))
    }
}
