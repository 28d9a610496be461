//! A Redis under `redis-benchmark` on every CPU, recorded by `isotherm record` for a minute at its defaults: what it takes of a CPU, and
//! what is not measured by then.
//!
//! Half of the requests are SETs of random keys, and there are more clients than processors, so that each of our reads finds accesses and
//! everything takes longer than in quiet. The CPU time is the kernel's account of the whole process, from its start to the end of its minute:
//! linking, opening, and writing the files are part of it. The monitor's own count, which `--max-cpu` limits, stands beside it.
//!
//! Memory is unmeasured where nothing was found of it yet, by a check or by the pages around it. Of that the part counts as old which is more
//! than what the server has grown by in the last ten seconds. That is an upper bound: pages that replaced freed ones count as old.
//!
//! Segments of a recording are joined as it goes on, out of the monitor's time, and the first ones after a minute. What that takes is measured beside it:
//! the snapshots of the minute are written one by one, each as a segment, until some were joined twice.
//!
//! Needs the packages redis-server and redis-tools, and `isotherm` in the directory of this program. There is no peer: none has a budget
//! to keep.

use anyhow::{Context, Result, ensure};
use isotherm_bench::cpu::Cpu;
use isotherm_bench::daemon::isotherm;
use isotherm_bench::program::{Dir, Program, free_port, start_redis, until};
use isotherm_bench::{Log, become_workload, median, spread, trials};
use isotherm_heat::{Region, RunInfo, Snapshot};
use isotherm_record::{Options, Recording, Writer};
use isotherm_sys::clock::thread_cpu_ns;
use isotherm_units::PAGE_SIZE;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Of 1,000 bytes: 1.7 GiB.
const KEYS: u64 = 1_500_000;
/// SETs of random keys that reach 95% of them.
const FILL: u64 = 3 * KEYS;
/// More than a minute has.
const REQUESTS: u64 = 100_000_000;
const MINUTE: Duration = Duration::from_secs(60);
/// The last look at the process comes this long before its end.
const BEFORE_END: Duration = Duration::from_millis(700);
/// From here on nothing should be unmeasured but what has just come.
const SETTLED_NS: u64 = 30_000_000_000;
const YOUNG_NS: u64 = 10_000_000_000;

fn main() -> Result<()> {
    become_workload()?;
    let mut log = Log::new("bench-record");
    let (trials, dir) = (trials(5), Dir::new()?);
    let runs = (0..trials).map(|trial| run(&mut log, &dir.0, trial)).collect::<Result<Vec<_>>>()?;
    let of = |what: fn(&Ran) -> f64| runs.iter().map(what).collect::<Vec<f64>>();
    for (key, text, values) in [
        ("record_cpu_pct", "CPU of isotherm record, percent of a core", of(|r| r.process_cpu_pct)),
        ("monitor_cpu_pct", "the same by its own count", of(|r| r.monitor_cpu_pct)),
        ("unmeasured_pct_10s", "unmeasured after 10 s, percent", of(|r| r.unmeasured_pct_10s)),
        ("unmeasured_pct_30s", "the most that was unmeasured from 30 s on", of(|r| r.unmeasured_pct_30s)),
        ("unmeasured_old_pct_30s", "the same, of what was there for 10 s", of(|r| r.unmeasured_old_pct_30s)),
        ("resident_mib", "resident memory of the server, MiB", of(|r| r.resident_mib)),
        ("join_ms", "the longest join of segments, ms of CPU", of(|r| r.join_ms)),
        ("segment_ms", "to write a segment of one snapshot, ms of CPU", of(|r| r.segment_ms)),
    ] {
        log.line(format!("{text:<50} {}", spread(&values)));
        log.result(key, median(&values));
    }
    log.finish()
}

#[derive(Clone, Copy, Debug)]
struct Ran {
    process_cpu_pct: f64,
    monitor_cpu_pct: f64,
    unmeasured_pct_10s: f64,
    unmeasured_pct_30s: f64,
    unmeasured_old_pct_30s: f64,
    resident_mib: f64,
    join_ms: f64,
    segment_ms: f64,
}

fn run(log: &mut Log, dir: &Path, trial: usize) -> Result<Ran> {
    let port = free_port()?;
    let server = start_redis(port, &[], dir, dir.join(format!("server-{trial}.log")))?;
    let filled =
        load(port, "set", FILL).args(["-P", "16"]).output().context("is the package redis-tools installed?")?;
    ensure!(filled.status.success(), "redis-benchmark: {}", String::from_utf8_lossy(&filled.stderr));
    let clients = ["set", "get"].map(|request| {
        let mut command = load(port, request, REQUESTS);
        command.args(["-c", "50", "--threads", "2"]);
        Program::start(command, dir.join(format!("{request}-{trial}.log")))
    });
    sleep(Duration::from_secs(3));
    let to = dir.join(format!("recording-{trial}"));
    let process_cpu_pct = record(server.pid(), &to, &dir.join(format!("record-{trial}.log")))?;
    for client in clients {
        // Nobody has stopped before the end.
        ensure!(!client?.has_ended()?, "redis-benchmark has ended");
    }
    let snapshots = Recording::open(&to)?.read_all()?;
    let writing = writing(&snapshots, &dir.join(format!("written-{trial}")))?;
    let ran = seen(&snapshots, process_cpu_pct, writing)?;
    log.line(format!(
        "{:.0} MiB: {:.2}% of a core, {:.2}% by its own count; unmeasured {:.2}% after 10 s, at most {:.2}% from 30 s on; \
         a segment {:.1} ms, a join {:.1} ms",
        ran.resident_mib,
        ran.process_cpu_pct,
        ran.monitor_cpu_pct,
        ran.unmeasured_pct_10s,
        ran.unmeasured_pct_30s,
        ran.segment_ms,
        ran.join_ms
    ));
    fs::remove_dir_all(&to)?;
    Ok(ran)
}

/// Requests for random keys.
fn load(port: u16, request: &str, count: u64) -> Command {
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port.to_string(), "-t", request, "-d", "1000", "-q"]);
    command.args(["-n", &count.to_string(), "-r", &KEYS.to_string()]);
    command
}

/// Records for a minute. Returns the share of a core that it took until shortly before the end, in percent.
fn record(pid: u32, to: &Path, said: &Path) -> Result<f64> {
    let mut command = isotherm();
    command.args(["record", "-d", "60s", "-p", &pid.to_string(), "-o"]).arg(to);
    let began = Instant::now();
    let mut recorder = Program::start(command, said.to_owned())?;
    sleep(MINUTE.saturating_sub(BEFORE_END));
    let cpu = Cpu::of(recorder.pid()).with_context(|| format!("isotherm record said: {}", recorder.said()))?;
    let took = began.elapsed();
    ensure!(
        until(Duration::from_secs(20), || recorder.has_ended())?,
        "isotherm record does not end: {}",
        recorder.said()
    );
    Ok(100.0 * cpu.total_ns / took.as_nanos() as f64)
}

/// CPU time of this thread to write a snapshot, the median, and of the longest join. Half an hour's worth of snapshots is written: joins of joins are in it.
fn writing(snapshots: &[Snapshot], to: &Path) -> Result<[f64; 2]> {
    const SNAPSHOTS: usize = 1100;
    let at_once = Options { flush_interval: Duration::ZERO, ..Options::default() };
    let mut writer = Writer::create(to, &RunInfo::default(), at_once)?;
    let mut took_ms = Vec::with_capacity(SNAPSHOTS);
    for snapshot in snapshots.iter().cycle().take(SNAPSHOTS) {
        let began = thread_cpu_ns();
        writer.push(snapshot)?;
        took_ms.push((thread_cpu_ns() - began) as f64 / 1e6);
    }
    writer.discard()?;
    let segment_ms = median(&took_ms);
    let longest_ms = took_ms.iter().copied().fold(0.0, f64::max);
    Ok([segment_ms, longest_ms - segment_ms])
}

/// What the snapshots show, beside what the process took.
fn seen(snapshots: &[Snapshot], process_cpu_pct: f64, [segment_ms, join_ms]: [f64; 2]) -> Result<Ran> {
    let (first, last) = snapshots.first().zip(snapshots.last()).context("an empty recording")?;
    let since = |snapshot: &Snapshot| snapshot.end_unix_ns.saturating_sub(first.start_unix_ns);
    let pages = |snapshot: &Snapshot, of: fn(&Region) -> u64| {
        snapshot.targets.iter().flat_map(|target| &target.regions).map(of).sum::<u64>() as f64
    };
    let resident = |snapshot: &Snapshot| pages(snapshot, |region| region.resident_pages);
    let unmeasured = |snapshot: &Snapshot| resident(snapshot) - pages(snapshot, |region| region.measured_pages);
    let (mut unmeasured_pct, mut unmeasured_old_pct) = (0.0_f64, 0.0_f64);
    for (index, snapshot) in snapshots.iter().enumerate().filter(|(_, snapshot)| since(snapshot) >= SETTLED_NS) {
        let before = snapshots[..index].iter().rev().find(|before| since(before) + YOUNG_NS <= since(snapshot));
        let grown = before.map_or(0.0, |before| (resident(snapshot) - resident(before)).max(0.0));
        let share = |pages: f64| 100.0 * pages / resident(snapshot);
        unmeasured_pct = unmeasured_pct.max(share(unmeasured(snapshot)));
        unmeasured_old_pct = unmeasured_old_pct.max(share((unmeasured(snapshot) - grown).max(0.0)));
    }
    let after_10s = snapshots.iter().find(|s| since(s) + 100_000_000 >= YOUNG_NS).context("no snapshot after 10 s")?;
    Ok(Ran {
        process_cpu_pct,
        monitor_cpu_pct: 100.0 * last.cost.monitor_cpu_ns as f64 / last.cost.elapsed_ns as f64,
        unmeasured_pct_10s: 100.0 * unmeasured(after_10s) / resident(after_10s),
        unmeasured_pct_30s: unmeasured_pct,
        unmeasured_old_pct_30s: unmeasured_old_pct,
        resident_mib: resident(last) * PAGE_SIZE as f64 / f64::from(1 << 20),
        join_ms,
        segment_ms,
    })
}
