//! How soon a picture is good, how soon it is exact, and how soon a change is seen: at 1% of a core, page by page. DAMON's algorithm,
//! and `clear_refs` with `smaps`, watch the same processes after ours.
//!
//! *Good*: precision and recall by page are 0.95 or better, in this and in all later snapshots. What is estimated counts as what
//! it says. *Exact*: both are 0.99 or better, and nothing is unmeasured or estimated. The worst precision is that of any snapshot
//! that calls anything hot. Each case is done once in each trial, and reads three times, on a new process, so that all cases see the same
//! changes of the machine.
//!
//! A case ends when there is nothing left to wait for: ten seconds after its picture was exact (with eight spans: good, as it stays
//! until then). Spans turn hot and cold a minute to a minute and a half after the start, each trial at another moment: by then checks of memory that
//! does not change are far apart, and how soon a change is found must not depend on when the next one is due.

use anyhow::{Result, ensure};
use isotherm_bench::first::{Comparison, Figures, OurPicture, Ours, PEERS, PeerTrial, SETTLED, Until, Workload};
use isotherm_bench::memory::Growth;
use isotherm_bench::reading::{EntryCopy, PassCost, bare_clear};
use isotherm_bench::{Log, become_workload, busy, in_own_thread, median, only, pages_that_fit, trials};
use isotherm_heat::Ns;
use isotherm_heat::source::AccessSource;
use isotherm_monitor::Settings;
use isotherm_sources::page_table::PageTable;
use isotherm_workload::{Layout, Pattern};
use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// When the memory of the monitor is measured: every page was checked once by then.
const MEMORY_AFTER_S: u64 = 60;
const READS: usize = 20;
const OURS: &str = "Isotherm";

type RunCase = fn(&mut Bench, &'static str) -> Result<()>;

/// The cases of a trial in their order, by name. `--only` selects those that contain its text. Reads take three seconds, and the speed of a
/// shared machine changes by half for minutes: with one measurement in eleven minutes, two slow ones of five decided the median.
const CASES: [(&str, RunCase); 9] = [
    ("one span of 14 GiB", one_span),
    ("reads", reads),
    ("eight spans of 14 GiB", eight_spans),
    ("small spans of 14 GiB", small_spans),
    ("one span of 4 GiB", four_gib),
    ("reads", reads),
    ("memory, demo's layout", memory_demo),
    ("memory, 95% idle", memory_idle),
    ("reads", reads),
];

/// Memory turns hot or cold so much later in each trial. It divides no period of checks.
const BETWEEN_TRIALS: Ns = 7_300_000_000;

/// One run of this program.
struct Bench {
    log: Log,
    figures: Figures,
    comparison: Comparison,
    began: Instant,
    small: usize,
    large: usize,
    trial: usize,
    trials: usize,
    /// When the picture of 14 GiB with one span was exact in this trial.
    exact_s: Option<f64>,
}

fn main() -> Result<()> {
    become_workload()?;
    let cases: Vec<_> = CASES.into_iter().filter(|(name, _)| name.contains(&only())).collect();
    let names = BTreeSet::from(CASES.map(|(name, _)| name));
    ensure!(!cases.is_empty(), "no case contains {:?}: give a part of {names:?}", only());
    let large = pages_that_fit(14 << 18)?;
    let mut bench = Bench {
        log: Log::new("bench-first"),
        figures: Figures::default(),
        comparison: Comparison::default(),
        began: Instant::now(),
        small: (4 << 18).min(large),
        large,
        trial: 0,
        trials: trials(5),
        exact_s: None,
    };
    let (large, small, trials) = (gib(bench.large), gib(bench.small), bench.trials);
    bench.log.line(format!(
        "processes of {large:.1} and {small:.1} GiB, a tenth of them hot every 50 ms; 1% of a core; {trials} times each\n"
    ));
    for trial in 0..trials {
        bench.trial = trial;
        for (name, run) in &cases {
            run(&mut bench, name)?;
        }
    }
    let Bench { mut log, figures, comparison, .. } = bench;
    comparison.log(&mut log);
    figures.log(&mut log);
    log.finish()
}

impl Bench {
    /// Prints what was just found, after the time since the start.
    fn progress(&mut self, case: &str, monitor: &str, text: &str) {
        let (s, trial, trials) = (self.began.elapsed().as_secs(), self.trial + 1, self.trials);
        self.log.line(format!("[{s:>5} s] {trial}/{trials} {case:<22} {monitor:<28} {text}"));
    }

    /// From the start of our monitor until memory turns hot or cold.
    fn settled(&self) -> Ns {
        SETTLED + self.trial as u64 * BETWEEN_TRIALS
    }

    /// A process whose layout depends on the trial.
    fn start(&self, pages: usize, layout: Layout) -> Result<Workload> {
        Workload::start(pattern(pages, layout, self.trial))
    }

    /// Takes in our picture of a case. Its CPU time counts where `counts_cpu`.
    fn note(&mut self, case: &'static str, ours: &OurPicture) {
        let OurPicture { picture, exact_s, worst_precision } = ours;
        self.progress(case, OURS, &format!("{}; exact after {exact_s:.2} s", picture.text()));
        self.comparison.add(case, OURS, *picture);
        self.figures.add("worst_precision_any_snapshot", case, *worst_precision);
        self.figures.add("cpu_ms_until_good", case, picture.cpu_ms);
    }

    /// All peers, one after the other, on a process that nobody else watches.
    fn peers(&mut self, case: &'static str, workload: &mut Workload, turns_hot: bool) -> Result<()> {
        for keys in &PEERS {
            let (picture, new_hot_s, stall_ms) = in_own_thread(|| {
                let mut peer = PeerTrial::begin(keys, workload)?;
                let picture = peer.picture(workload)?;
                let new_hot_s = if turns_hot { Some(peer.new_hot_s(workload)?) } else { None };
                Ok((picture, new_hot_s, peer.longest_stall_ms()))
            })?;
            let mut text = picture.text();
            self.figures.add(if turns_hot { keys.good_one } else { keys.good_eight }, case, picture.good_s_or_limit());
            self.figures.add(keys.cpu_ms, case, picture.cpu_ms);
            if let Some(s) = new_hot_s {
                text += &format!("; 64 MiB that turn hot after {s:.2} s");
                self.figures.add(keys.new_hot, case, s);
            }
            if let Some((key, ms)) = keys.longest_stall_ms.zip(stall_ms) {
                text += &format!("; longest stall {ms:.0} ms");
                self.figures.add(key, case, ms);
            }
            self.progress(case, keys.name, &text);
            self.comparison.add(case, keys.name, picture);
        }
        Ok(())
    }
}

fn one_span(bench: &mut Bench, case: &'static str) -> Result<()> {
    let mut workload = bench.start(bench.large, Layout::Span)?;
    let settled = bench.settled();
    let (ours, new_hot_s) = in_own_thread(|| {
        let mut monitor = Ours::open(&workload)?;
        let picture = monitor.picture(&workload, Until::Exact)?;
        monitor.watch_to(settled)?;
        let span = workload.take_span(false, |_| true)?;
        let new_hot_s = monitor.new_hot_s(&mut workload, span)?;
        workload.cool(span)?;
        Ok((picture, new_hot_s))
    })?;
    bench.note(case, &ours);
    bench.progress(case, OURS, &format!("64 MiB that turn hot are known to be after {new_hot_s:.2} s"));
    bench.figures.add("good_s_14g_one", case, ours.picture.good_s_or_limit());
    bench.figures.add("exact_s_14g", case, ours.exact_s);
    bench.exact_s = Some(ours.exact_s);
    bench.figures.add("new_hot_s_14g", case, new_hot_s);
    bench.peers(case, &mut workload, true)
}

fn eight_spans(bench: &mut Bench, case: &'static str) -> Result<()> {
    let mut workload = bench.start(bench.large, Layout::Areas)?;
    let ours = in_own_thread(|| Ours::open(&workload)?.picture(&workload, Until::Good))?;
    bench.note(case, &ours);
    bench.figures.add("good_s_14g_eight", case, ours.picture.good_s_or_limit());
    bench.peers(case, &mut workload, false)
}

/// Spans of 1 to 4 MiB: the picture when it is exact, or after 90 s.
fn small_spans(bench: &mut Bench, case: &'static str) -> Result<()> {
    let workload = bench.start(bench.large, Layout::Spans)?;
    let ours = in_own_thread(|| Ours::open(&workload)?.picture(&workload, Until::Exact))?;
    let OurPicture { picture, exact_s, worst_precision } = &ours;
    bench.progress(case, OURS, &format!("{}; exact after {exact_s:.2} s", picture.text()));
    bench.comparison.add(case, OURS, *picture);
    bench.figures.add("worst_precision_any_snapshot", case, *worst_precision);
    bench.figures.add("small_spans_precision", case, picture.last.precision());
    bench.figures.add("small_spans_recall", case, picture.last.recall());
    Ok(())
}

fn four_gib(bench: &mut Bench, case: &'static str) -> Result<()> {
    let mut workload = bench.start(bench.small, Layout::Span)?;
    let settled = bench.settled();
    let (ours, new_hot_s, gone_cold_s) = in_own_thread(|| {
        let mut monitor = Ours::open(&workload)?;
        let picture = monitor.picture(&workload, Until::Exact)?;
        monitor.watch_to(settled)?;
        // What turns cold first has been hot for as long as what turns hot was cold. The other span does not matter to it.
        let (hot, cold) = (workload.take_span(true, |_| true)?, workload.take_span(false, |_| true)?);
        let gone_cold_s = monitor.gone_cold_s(&mut workload, hot)?;
        Ok((picture, monitor.new_hot_s(&mut workload, cold)?, gone_cold_s))
    })?;
    bench.note(case, &ours);
    bench.progress(
        case,
        OURS,
        &format!("64 MiB that turn hot are known to be after {new_hot_s:.2} s, and cold after {gone_cold_s:.2} s"),
    );
    bench.figures.add("exact_s_4g", case, ours.exact_s);
    bench.figures.add("new_hot_s_4g", case, new_hot_s);
    bench.figures.add("gone_cold_s", case, gone_cold_s);
    Ok(())
}

/// Reads as a background scan does them: of a process whose bits are clear, but for a tenth. And what the machine takes without us: to copy the
/// entries, and to clear the bits.
fn reads(bench: &mut Bench, case: &'static str) -> Result<()> {
    let workload = bench.start(bench.small, Layout::Span)?;
    let mut source = PageTable::open()?;
    let pid = workload.pid();
    source.attach(pid)?;
    source.layout(pid)?;
    let pmds: Vec<_> = workload.memory().pmds().collect();
    let clear_ns = bare_clear(pid, workload.memory())?.cpu_ns_per_page();
    // Each hot page is accessed every 50 ms.
    sleep(Duration::from_millis(200));
    let (mut costs, mut copies) = (Vec::new(), Vec::new());
    let copied = EntryCopy::new(pmds.len());
    for _ in 0..READS {
        costs.push(PassCost::measure(&mut source, pid, &pmds)?.cpu_ns_per_page());
        copies.push(copied.measure().cpu_ns_per_page());
    }
    let (ns, copy_ns) = (median(&costs), median(&copies));
    bench.progress(
        case,
        OURS,
        &format!(
            "{ns:.2} ns of CPU time a page, median of {READS} reads; a copy of as many bytes {copy_ns:.2} ns; \
             a first clear {clear_ns:.0} ns"
        ),
    );
    bench.figures.add("read_ns_per_page", case, ns);
    bench.figures.add("copy_ns_per_page", case, copy_ns);
    bench.figures.add("read_over_copy", case, ns / copy_ns);
    bench.figures.add("clear_ns_per_page", case, clear_ns);
    if let Some(exact_s) = bench.exact_s {
        let clear_s = clear_ns * bench.large as f64 / 1e9 / (Settings::default().max_cpu_pct / 100.0);
        bench.figures.add("exact_over_clear_14g", case, exact_s / clear_s);
    }
    Ok(())
}

/// Memory of the monitor for the demo's layout.
fn memory_demo(bench: &mut Bench, case: &'static str) -> Result<()> {
    let trial = bench.trial;
    memory(bench, case, "bytes_per_page", |pages| pattern(pages, Layout::Mixed, trial))
}

/// The same with a span of 5% that is hot while nothing else is touched.
fn memory_idle(bench: &mut Bench, case: &'static str) -> Result<()> {
    let trial = bench.trial;
    memory(bench, case, "bytes_per_page_idle", |pages| Pattern {
        hot_pages: pages / 20,
        ..pattern(pages, Layout::Span, trial)
    })
}

fn memory(bench: &mut Bench, case: &'static str, key: &'static str, of: impl Fn(usize) -> Pattern) -> Result<()> {
    let growth = Growth::measure(of, MEMORY_AFTER_S)?;
    bench.progress(case, OURS, &format!("the monitor takes {growth}"));
    bench.figures.add(key, case, growth.bytes_per_page());
    Ok(())
}

fn gib(pages: usize) -> f64 {
    pages as f64 / 262_144.0
}

fn pattern(pages: usize, layout: Layout, trial: usize) -> Pattern {
    let (hot_pages, interval_ns, seed) = (pages / 10, 50_000_000, 11 + trial as u64);
    Pattern { hot_pages, layout, interval_ns, seed, ..busy(pages >> 8, false) }
}
