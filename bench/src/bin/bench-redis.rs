//! What hints save Redis: CPU of the server for each operation, with the daemon and without, and what it costs in latency and
//! memory; also while Redis saves (forks).
//!
//! Two servers with the same keys, of which only B gets hints, are loaded in turn by `isotherm_bench::redis`, in slices of a
//! second, A B B A: what the machine does to one it does to the other, so only ratios within a pair of slices are quoted. CPU is
//! the kernel's account of the server, not the time it took, which a generator or a neighbour on the same cores would change.
//! Many short slices and not few long ones, as what neighbours do comes and goes. The slices of a pair are the same commands.
//! Two servers that are treated alike have been seen to differ by up to three percent in a run, so the pairs are also measured
//! before the daemon starts, and `cpu_saved_since_pct` is what B saves relative to that.
//!
//! Needs the package redis-server, and `isotherm` next to this program.
//!
//! `--without-hints` leaves the daemon out: what is then said to be saved is the noise. `--quick` is a smoke test: 100,000 keys.

use anyhow::{Context, Result, bail, ensure};
use isotherm_bench::redis::{CONNECTIONS, Load, PIPELINE, VALUE_BYTES, ask};
use isotherm_bench::{Log, median, spread};
use isotherm_sys::clock;
use isotherm_sys::proc::Proc;
use isotherm_sys::signal;
use isotherm_units::{Bytes, PAGE_SIZE};
use serde_json::Value;
use std::fs::{self, File};
use std::io::IsTerminal;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Seeds of the commands, one after another from each of these on.
const FILL_SEED: u64 = 1_000;
const WARM_UP_SEED: u64 = 2_000;
const BEFORE_SEED: u64 = 3_000;
const PAIR_SEED: u64 = 3_500;
const SAVE_SEED: u64 = 4_000;

/// The longest warm-up when there is no daemon.
const UNHINTED_WARM_UP: Duration = Duration::from_secs(20);
/// The daemon is done when it has collapsed nothing for so long.
const SETTLED: Duration = Duration::from_secs(10);
/// A program that was started has to answer, and one that was told to end has to be gone, in this time.
const PROMPT: Duration = Duration::from_secs(15);
/// 3 GB to a slow disk.
const SAVED_WITHIN: Duration = Duration::from_secs(300);
/// What `/proc/PID/stat` counts in: `USER_HZ` is 100 on every machine that this runs on.
const TICK_NS: u64 = 10_000_000;
/// What a server needs for a key: the value in jemalloc's class of 1,280 bytes, key, object, entry, bucket.
const BYTES_A_KEY: u64 = 1_400;

fn main() -> Result<()> {
    let plan = Plan::from_args(std::env::args().skip(1))?;
    let dir = Dir::new()?;
    let mut log = Log::new(plan.name());
    plan.check_memory()?;
    log.line(plan.describe());
    let mut servers = [Server::start("A", &dir.0, plan.keys)?, Server::start("B", &dir.0, plan.keys)?];
    log.line(version()?);
    fill(&mut servers, plan.keys)?;

    // Some load first, as filling leaves memory in a better order than it stays in.
    warm_up(&plan, &mut servers, None)?;
    let equal = measure_pairs(&plan, &mut servers, BEFORE_SEED)?;
    let before = resident(&servers)?;
    let hints = if plan.hints { Some(Hints::start(servers[1].pid(), &dir.0)?) } else { None };
    log.line(warm_up(&plan, &mut servers, hints.as_ref())?);
    let (began, daemon_before) = (Instant::now(), daemon_cpu_ns(hints.as_ref())?);
    let pairs = measure_pairs(&plan, &mut servers, PAIR_SEED)?;
    let daemon_ns = daemon_cpu_ns(hints.as_ref())? - daemon_before;
    report_pairs(&mut log, &equal, &pairs);
    report_daemon(&mut log, hints.as_ref(), daemon_ns, began.elapsed(), &pairs)?;
    report_memory(&mut log, &servers, before)?;
    while_saving(&plan, &mut log, &mut servers, hints.as_ref())?;
    log.finish()
}

/// What to do, by the arguments.
struct Plan {
    keys: u32,
    slice: Duration,
    pairs: usize,
    /// How long a server is loaded while it saves: a save of 3 GB outlasts a slice by far.
    save: Duration,
    /// The longest that the warm-up may take.
    warm_up: Duration,
    hints: bool,
    quick: bool,
}

impl Plan {
    fn from_args(args: impl Iterator<Item = String>) -> Result<Plan> {
        let (mut hints, mut quick) = (true, false);
        for arg in args {
            match arg.as_str() {
                "--without-hints" => hints = false,
                "--quick" => quick = true,
                other => bail!("no option {other:?}: there are --without-hints and --quick"),
            }
        }
        let (seconds, ms) = (Duration::from_secs, Duration::from_millis);
        let full = Plan {
            keys: 3_000_000,
            slice: seconds(1),
            pairs: 45,
            save: seconds(9),
            warm_up: seconds(180),
            hints,
            quick,
        };
        let short =
            Plan { keys: 100_000, slice: ms(500), pairs: 3, save: seconds(1), warm_up: seconds(3), hints, quick };
        Ok(if quick { short } else { full })
    }

    /// Each kind of run by a name of its own, so that none is kept in place of another.
    fn name(&self) -> &'static str {
        match (self.quick, self.hints) {
            (false, true) => "bench-redis",
            (false, false) => "bench-redis-without-hints",
            (true, true) => "bench-redis-quick",
            (true, false) => "bench-redis-quick-without-hints",
        }
    }

    fn describe(&self) -> String {
        let range = f64::from(self.keys);
        format!(
            "{} keys of {VALUE_BYTES} bytes, GET and SET 1:1, Gaussian (median {:.0}, deviation {:.0}), pipeline {PIPELINE}, \
             {CONNECTIONS} connections\n{} pairs of slices of {} s, A B B A, before and after; hints for B: {}; seeds from {FILL_SEED} (fill), \
             {WARM_UP_SEED} (warm-up), {BEFORE_SEED} and {PAIR_SEED} (pairs), {SAVE_SEED} (saves)",
            self.keys,
            range * 2.0 / 3.0,
            range / 20.0,
            self.pairs,
            self.slice.as_secs_f64(),
            if self.hints { "yes" } else { "no, so all differences are noise" }
        )
    }

    /// Two servers, of which one forks and has nearly all of its memory copied, and some air.
    fn check_memory(&self) -> Result<()> {
        let needed = Bytes(u64::from(self.keys) * BYTES_A_KEY * 3 + (1 << 30));
        let text = fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
        let kib = |line: &str| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
        let available = Bytes(1024 * text.lines().find_map(kib).context("no MemAvailable in /proc/meminfo")?);
        ensure!(available >= needed, "two servers need {needed} of memory, and {available} are available");
        Ok(())
    }
}

/// A directory for all that the programs write; gone with this.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Result<Dir> {
        let path = std::env::temp_dir().join(format!("isotherm-bench-redis-{}", std::process::id()));
        // Not with its parents and not if it is there: whoever waits for us there is not followed.
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Dir(path))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until `done`, and says whether it was before the time was up.
fn until(time: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let end = Instant::now() + time;
    while !done()? {
        if Instant::now() >= end {
            return Ok(false);
        }
        sleep(Duration::from_millis(50));
    }
    Ok(true)
}

/// A program of which all output goes to a file; ended with this.
struct Program {
    process: Child,
    log: PathBuf,
}

impl Program {
    fn start(mut command: Command, log: PathBuf) -> Result<Program> {
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let twin = file.try_clone().with_context(|| format!("open {} twice", log.display()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(twin);
        let process = command.spawn().with_context(|| format!("start {command:?}"))?;
        Ok(Program { process, log })
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it is `ready`; an error if it has ended or takes too long.
    fn until_ready(&mut self, what: &str, ready: impl Fn() -> bool) -> Result<()> {
        let process = &mut self.process;
        let mut ended = None;
        let answered = until(PROMPT, || {
            ended = process.try_wait().with_context(|| format!("wait for {what}"))?;
            Ok(ended.is_some() || ready())
        })?;
        match ended {
            Some(status) => bail!("{what} has ended with {status} and said:\n{}", self.said()),
            None => ensure!(answered, "{what} does not answer after {PROMPT:?} and said:\n{}", self.said()),
        }
        Ok(())
    }

    /// The last lines of its output.
    fn said(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Asked first: the daemon has things to undo in others, and Redis to end a child that saves.
        let _ = signal::terminate(self.pid());
        let ended = until(PROMPT, || Ok(self.process.try_wait()?.is_some()));
        if !matches!(ended, Ok(true)) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// A Redis server and the connections to it.
struct Server {
    name: &'static str,
    program: Program,
    port: u16,
    dir: PathBuf,
    load: Load,
}

impl Server {
    /// On a free port of this machine only, and with nothing on disk unless asked.
    fn start(name: &'static str, dir: &Path, keys: u32) -> Result<Server> {
        let dir = dir.join(name);
        fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        let port = free_port()?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.args(["--daemonize", "no", "--protected-mode", "no", "--dir"]).arg(&dir);
        let mut program = Program::start(command, dir.join("log")).context("is the package redis-server installed?")?;
        let answers = || ask(port, "PING").is_ok_and(|answer| answer.starts_with("+PONG"));
        program.until_ready("redis-server", answers)?;
        let load = Load::connect(port, keys)?;
        Ok(Server { name, program, port, dir, load })
    }

    fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Loads it for a while.
    fn slice(&mut self, seed: u64, length: Duration) -> Result<Slice> {
        let (began, own, before) = (Instant::now(), clock::thread_cpu_ns(), Cpu::of(self.pid())?);
        let run = self.load.run(seed, length).with_context(|| format!("load server {}", self.name))?;
        let (took, after) = (began.elapsed(), Cpu::of(self.pid())?);
        let mut batch_ns = run.batch_ns;
        batch_ns.sort_unstable();
        let generator_ns = (clock::thread_cpu_ns() - own) as f64;
        Ok(Slice { operations: run.operations as f64, took, cpu: after.since(before), generator_ns, batch_ns })
    }

    /// Begins to save in a child.
    fn save(&self) -> Result<()> {
        let answer = ask(self.port, "BGSAVE")?;
        ensure!(
            answer.starts_with("+Background saving started"),
            "asked for BGSAVE, server {} says {answer}",
            self.name
        );
        Ok(())
    }

    fn is_saving(&self) -> Result<bool> {
        let info = ask(self.port, "INFO persistence")?;
        ensure!(info.contains("rdb_last_bgsave_status:ok"), "a BGSAVE failed: {}", self.program.said());
        Ok(info.contains("rdb_bgsave_in_progress:1"))
    }

    /// Waits for the end of a save, and returns the size of the dump, which is deleted.
    fn saved(&self) -> Result<Bytes> {
        let ended = until(SAVED_WITHIN, || Ok(!self.is_saving()?))?;
        ensure!(ended, "a BGSAVE is not done after {SAVED_WITHIN:?}");
        let dump = self.dir.join("dump.rdb");
        let size = fs::metadata(&dump).with_context(|| format!("look for {}", dump.display()))?.len();
        fs::remove_file(&dump).with_context(|| format!("delete {}", dump.display()))?;
        Ok(Bytes(size))
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("look for a free port")?;
    Ok(listener.local_addr().context("look for a free port")?.port())
}

/// What the server calls itself.
fn version() -> Result<String> {
    let output = Command::new("redis-server").arg("--version").output().context("ask redis-server for its version")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn fill(servers: &mut [Server; 2], keys: u32) -> Result<()> {
    let terminal = std::io::stderr().is_terminal();
    for server in servers {
        let (name, mut told) = (server.name, 0);
        let tell = |set: u32| {
            if terminal && (set >= told + 100_000 || set == keys) {
                told = set;
                eprint!("\rfilling server {name}: {set} of {keys} keys");
            }
        };
        server.load.fill(FILL_SEED, tell).with_context(|| format!("fill server {name}"))?;
        if terminal {
            eprintln!();
        }
        let size = ask(server.port, "DBSIZE")?;
        ensure!(size.trim() == format!(":{keys}"), "filled with {keys} keys, server {name} has {}", size.trim());
    }
    Ok(())
}

/// CPU time that a process has used.
#[derive(Clone, Copy)]
struct Cpu {
    /// To the nanosecond if the kernel says so; else the sum of the others.
    total_ns: f64,
    /// By the tick, and mostly sampled by the kernel: of 3 s, right to a few percent.
    user_ns: f64,
    system_ns: f64,
    /// For which it could have run, had there been a core for it; 0 if the kernel does not say.
    waited_ns: f64,
}

impl Cpu {
    fn of(pid: u32) -> Result<Cpu> {
        let stat = Proc::default().stat(pid).context("read the CPU time of a server")?;
        let ns = |ticks: u64| (ticks * TICK_NS) as f64;
        let (user_ns, system_ns) = (ns(stat.utime), ns(stat.stime));
        let (total_ns, waited_ns) = schedstat(pid).unwrap_or((user_ns + system_ns, 0.0));
        Ok(Cpu { total_ns, user_ns, system_ns, waited_ns })
    }

    fn since(self, before: Cpu) -> Cpu {
        Cpu {
            total_ns: self.total_ns - before.total_ns,
            user_ns: self.user_ns - before.user_ns,
            system_ns: self.system_ns - before.system_ns,
            waited_ns: self.waited_ns - before.waited_ns,
        }
    }
}

/// For how long all threads have run, and waited for a core, where the kernel keeps that (`CONFIG_SCHED_INFO`). Neither Redis nor
/// the daemon ends threads on the way, whose time would be lost.
fn schedstat(pid: u32) -> Option<(f64, f64)> {
    let (mut run, mut waited) = (0.0, 0.0);
    for thread in fs::read_dir(Proc::default().path(pid, "task")).ok()? {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        let mut words = text.split_whitespace().map(str::parse::<f64>);
        run += words.next()?.ok()?;
        waited += words.next()?.ok()?;
    }
    Some((run, waited))
}

/// What one server did in one stretch of load.
struct Slice {
    operations: f64,
    took: Duration,
    cpu: Cpu,
    /// CPU time of the load generator.
    generator_ns: f64,
    /// Sorted.
    batch_ns: Vec<u64>,
}

impl Slice {
    fn total(&self) -> f64 {
        self.cpu.total_ns / self.operations
    }

    fn user(&self) -> f64 {
        self.cpu.user_ns / self.operations
    }

    fn system(&self) -> f64 {
        self.cpu.system_ns / self.operations
    }

    fn p99(&self) -> f64 {
        milliseconds(&self.batch_ns, 990)
    }

    fn operations_a_second(&self) -> f64 {
        self.operations / self.took.as_secs_f64()
    }

    /// What percentage of the slice a time is.
    fn percent(&self, ns: f64) -> f64 {
        100.0 * ns / self.took.as_nanos() as f64
    }
}

/// The value that so many of 1,000 are at or below.
fn milliseconds(sorted_ns: &[u64], per_mille: usize) -> f64 {
    sorted_ns.get(sorted_ns.len().saturating_sub(1) * per_mille / 1000).map_or(f64::NAN, |ns| *ns as f64 / 1e6)
}

/// The daemon that hints for one server.
struct Hints {
    program: Program,
    isotherm: PathBuf,
    socket: PathBuf,
    pid: u32,
}

/// What the daemon says of itself.
struct HintsStatus {
    collapsed: u64,
    paused: Option<String>,
    heat_on_huge: Option<f64>,
}

impl Hints {
    fn start(pid: u32, dir: &Path) -> Result<Hints> {
        let own = std::env::current_exe().context("look for isotherm next to this program")?;
        let (isotherm, socket) = (own.with_file_name("isotherm"), dir.join("socket"));
        let mut command = Command::new(&isotherm);
        command.args(["run", "-p", &pid.to_string(), "--no-children", "--socket"]).arg(&socket);
        let mut program = Program::start(command, dir.join("daemon.log")).context("has `make build` been run?")?;
        program.until_ready("isotherm run", || socket.exists())?;
        Ok(Hints { program, isotherm, socket, pid })
    }

    fn status(&self) -> Result<HintsStatus> {
        let asking = || format!("ask the daemon for its status; it said:\n{}", self.program.said());
        let mut command = Command::new(&self.isotherm);
        command.arg("status").arg("--socket").arg(&self.socket).arg("--json");
        let output = command.output().with_context(asking)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} ended with {}: {error}\n{}", output.status, asking());
        let status: Value = serde_json::from_slice(&output.stdout).with_context(asking)?;
        let target = status["targets"].as_array().and_then(|t| t.iter().find(|t| t["pid"] == self.pid));
        Ok(HintsStatus {
            collapsed: status["collapsed"].as_u64().with_context(|| format!("no `collapsed` in {status}"))?,
            paused: status["paused"].as_str().map(str::to_owned),
            heat_on_huge: target.and_then(|t| t["heat_on_huge_share"].as_f64()),
        })
    }
}

fn daemon_cpu_ns(hints: Option<&Hints>) -> Result<f64> {
    hints.map_or(Ok(0.0), |h| Ok(Cpu::of(h.program.pid()).with_context(|| h.program.said())?.total_ns))
}

/// Loads both servers in turn until the daemon has found what there is to collapse, or time is up. Says which.
fn warm_up(plan: &Plan, servers: &mut [Server; 2], hints: Option<&Hints>) -> Result<String> {
    let began = Instant::now();
    let (mut collapsed, mut since) = (0, began);
    let mut seed = WARM_UP_SEED;
    // Without a daemon there is nothing to wait for but for values to have moved about.
    let longest = if hints.is_some() { plan.warm_up } else { plan.warm_up.min(UNHINTED_WARM_UP) };
    while began.elapsed() < longest {
        seed += 1;
        for server in &mut *servers {
            server.slice(seed, plan.slice)?;
        }
        let Some(hints) = hints else { continue };
        let now = hints.status()?.collapsed;
        if now != collapsed {
            (collapsed, since) = (now, Instant::now());
        } else if collapsed > 0 && since.elapsed() >= SETTLED {
            // More than none: the first looks take a while, in which nothing is collapsed either.
            break;
        }
    }
    let took = format!("warm-up: {:.0} s", began.elapsed().as_secs_f64());
    Ok(match hints {
        Some(_) => format!(
            "{took}, {collapsed} blocks collapsed, the last {:.0} s before its end",
            since.elapsed().as_secs_f64()
        ),
        None => took,
    })
}

/// Slices of A and B, which begin in turn, so that what changes steadily does not favour one.
fn measure_pairs(plan: &Plan, servers: &mut [Server; 2], seed: u64) -> Result<Vec<[Slice; 2]>> {
    let [a, b] = servers;
    let mut pairs = Vec::new();
    for pair in 0..plan.pairs {
        let seed = seed + pair as u64;
        pairs.push(if pair % 2 == 0 {
            let first = a.slice(seed, plan.slice)?;
            [first, b.slice(seed, plan.slice)?]
        } else {
            let first = b.slice(seed, plan.slice)?;
            [a.slice(seed, plan.slice)?, first]
        });
    }
    Ok(pairs)
}

fn report_pairs(log: &mut Log, equal: &[[Slice; 2]], pairs: &[[Slice; 2]]) {
    // A server that is neither busy nor waiting for a core waits for the generator; if it waits for a core, there are neighbours.
    log.line(format!(
        "\nmedians of slices; busy, waiting for a core, generator busy: % of the time; CPU of the server in ns an operation\n\
         {:>6} {:>9} {:>6} {:>8} {:>10} {:>8} {:>8} {:>8}  batch ms: {:>6} {:>6} {:>6}",
        "server", "op/s", "busy", "waiting", "generator", "user", "system", "total", "p50", "p99", "p99.9"
    ));
    for (index, name) in ["A", "B"].into_iter().enumerate() {
        let of = |f: &dyn Fn(&Slice) -> f64| median(&pairs.iter().map(|p| f(&p[index])).collect::<Vec<_>>());
        log.line(format!(
            "{name:>6} {:>9.0} {:>6.1} {:>8.1} {:>10.1} {:>8.0} {:>8.0} {:>8.0}            {:>6.2} {:>6.2} {:>6.2}",
            of(&Slice::operations_a_second),
            of(&|s| s.percent(s.cpu.total_ns)),
            of(&|s| s.percent(s.cpu.waited_ns)),
            of(&|s| s.percent(s.generator_ns)),
            of(&Slice::user),
            of(&Slice::system),
            of(&Slice::total),
            of(&|s| milliseconds(&s.batch_ns, 500)),
            of(&Slice::p99),
            of(&|s| milliseconds(&s.batch_ns, 999))
        ));
    }
    log.line(
        "saved by B, % of A, median over pairs (smallest to largest), middle half of the pairs, all slices together:",
    );
    let before = saved(log, "CPU before", equal, Slice::total, |s| s.cpu.total_ns);
    let total = saved(log, "CPU", pairs, Slice::total, |s| s.cpu.total_ns);
    let user = saved(log, "user CPU", pairs, Slice::user, |s| s.cpu.user_ns);
    saved(log, "system CPU", pairs, Slice::system, |s| s.cpu.system_ns);
    let since = 100.0 * (1.0 - (100.0 - total) / (100.0 - before));
    log.line(format!("  CPU, relative to before: {since:.2}"));
    let p99: Vec<f64> = pairs.iter().map(|[a, b]| b.p99() / a.p99()).collect();
    log.line(format!("p99 of batches, B / A: {}", spread(&p99)));
    log.result("cpu_saved_pct", total);
    log.result("user_cpu_saved_pct", user);
    log.result("cpu_saved_before_pct", before);
    log.result("cpu_saved_since_pct", since);
    log.result("p99_ratio", median(&p99));
}

/// Percent of A's cost for each operation that B saves: the median over pairs, which is returned; beside it that of the sums,
/// in which outliers count, and the kernel's sampling of user and system time less.
fn saved(log: &mut Log, what: &str, pairs: &[[Slice; 2]], cost: fn(&Slice) -> f64, ns: fn(&Slice) -> f64) -> f64 {
    let percent = |[a, b]: &[Slice; 2]| 100.0 * (1.0 - cost(b) / cost(a));
    let each: Vec<f64> = pairs.iter().map(percent).collect();
    let sum = |i: usize, f: fn(&Slice) -> f64| pairs.iter().map(|p| f(&p[i])).sum::<f64>();
    let mean = |i: usize| sum(i, ns) / sum(i, |s| s.operations);
    let (low, high) = middle_half(&each);
    let all = 100.0 * (1.0 - mean(1) / mean(0));
    log.line(format!("  {what:<11} {:<28} {low:>6.2} to {high:>6.2} {all:>8.2}", spread(&each)));
    median(&each)
}

/// What half of the values lie between: the spread without the few pairs that a neighbour has spoilt.
fn middle_half(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |quarters: usize| sorted.get(sorted.len().saturating_sub(1) * quarters / 4).copied().unwrap_or(f64::NAN);
    (at(1), at(3))
}

/// What the daemon itself took meanwhile, next to what the server used.
fn report_daemon(log: &mut Log, hints: Option<&Hints>, ns: f64, time: Duration, pairs: &[[Slice; 2]]) -> Result<()> {
    let Some(hints) = hints else { return Ok(()) };
    let core_pct = 100.0 * ns / time.as_nanos() as f64;
    let of_server_pct = 100.0 * ns / pairs.iter().map(|[_, b]| b.cpu.total_ns).sum::<f64>();
    let status = hints.status()?;
    log.line(format!(
        "daemon: {core_pct:.2}% of a core, {of_server_pct:.2}% of what server B used; {} blocks collapsed{}",
        status.collapsed,
        status.heat_on_huge.map(|s| format!("; of the heat on huge pages: {s:.2}")).unwrap_or_default()
    ));
    log.result("daemon_cpu_pct", core_pct);
    Ok(())
}

fn resident(servers: &[Server; 2]) -> Result<[u64; 2]> {
    let mut bytes = [0; 2];
    for (server, bytes) in servers.iter().zip(&mut bytes) {
        let status = Proc::default().status(server.pid()).context("read the memory of a server")?;
        *bytes = status.rss.context("a server without memory")?.0;
    }
    Ok(bytes)
}

fn report_memory(log: &mut Log, servers: &[Server; 2], before: [u64; 2]) -> Result<()> {
    let after = resident(servers)?;
    let [a, b] = [0, 1].map(|i| 100.0 * (after[i] as f64 / before[i] as f64 - 1.0));
    let usage = Proc::default().smaps_rollup(servers[1].pid()).context("read the huge pages of server B")?;
    let huge_share = usage.anon_huge.0 as f64 / (usage.rss.0 as f64).max(PAGE_SIZE as f64);
    log.line(format!(
        "resident: A {} {a:+.2}%, B {} {b:+.2}% since before the hints; in huge pages of B: {:.1}%",
        Bytes(after[0]),
        Bytes(after[1]),
        100.0 * huge_share
    ));
    log.result("rss_growth_pct", b - a);
    log.result("huge_share", huge_share);
    Ok(())
}

/// Latency while a child of the server saves, and whether the daemon keeps its hands off.
fn while_saving(plan: &Plan, log: &mut Log, servers: &mut [Server; 2], hints: Option<&Hints>) -> Result<()> {
    let needed = Bytes(u64::from(plan.keys) * BYTES_A_KEY * 3 / 2);
    let free = free_space(&servers[0].dir)?;
    if free < needed {
        log.line(format!("BGSAVE: left out, as a dump takes {needed} and {free} are free in the temporary directory"));
        return Ok(());
    }
    let (mut batch_ns, mut paused, mut size) = ([Vec::new(), Vec::new()], None, Bytes(0));
    for (turn, index) in [0, 1, 1, 0].into_iter().enumerate() {
        let server = &mut servers[index];
        let seed = SAVE_SEED + turn as u64;
        let (slice, pause) = while_asking_for_pause(hints, || {
            server.save()?;
            server.slice(seed, plan.save)
        })?;
        batch_ns[index].extend(slice.batch_ns);
        // A pause while A saves is none of ours: the daemon does not know A.
        if index == 1 {
            paused = paused.or(pause);
        }
        size = server.saved()?;
    }
    batch_ns.iter_mut().for_each(|ns| ns.sort_unstable());
    let [a, b] = [0, 1].map(|i| milliseconds(&batch_ns[i], 990));
    let pause = hints.map(|_| format!("; the daemon: {}", paused.as_deref().unwrap_or("not paused")));
    let longest = |i: usize| milliseconds(&batch_ns[i], 1000);
    log.line(format!(
        "with BGSAVE ({size}): p99 of batches A {a:.2} ms, B {b:.2} ms, longest {:.0} and {:.0} ms{}",
        longest(0),
        longest(1),
        pause.unwrap_or_default()
    ));
    log.result("bgsave_p99_ratio", b / a);
    if hints.is_some() {
        log.result("bgsave_paused", f64::from(u8::from(paused.is_some())));
    }
    Ok(())
}

/// Does `what`, and asks the daemon meanwhile, for a save may be over before `what` is. Returns why it was paused, if it was.
fn while_asking_for_pause<T>(hints: Option<&Hints>, what: impl FnOnce() -> Result<T>) -> Result<(T, Option<String>)> {
    let Some(hints) = hints else { return Ok((what()?, None)) };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut paused = None;
            let end = Instant::now() + SAVED_WITHIN;
            // To its end even if paused, so that A and B are asked as often.
            while !done.load(Ordering::Relaxed) && Instant::now() < end {
                paused = paused.or(hints.status()?.paused);
                sleep(Duration::from_millis(500));
            }
            anyhow::Ok(paused)
        });
        let result = what();
        done.store(true, Ordering::Relaxed);
        let paused = asking.join().expect("no panic")?;
        Ok((result?, paused))
    })
}

/// What `df` says, as the standard library does not.
fn free_space(dir: &Path) -> Result<Bytes> {
    let output = Command::new("df").args(["--output=avail", "-B1"]).arg(dir).output().context("run df")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let bytes = text.lines().nth(1).and_then(|line| line.trim().parse().ok());
    Ok(Bytes(bytes.with_context(|| format!("no free space in what df says of {}: {text}", dir.display()))?))
}
