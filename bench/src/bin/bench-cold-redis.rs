//! A Redis of 512 MiB whose cold memory is paged out by `isotherm run`: resident memory, refaults, and the latency that a client sees before,
//! while memory leaves, and after.
//!
//! Runs only in a guest of the lab (`make bench-cold-redis` boots one), since it needs swap. The processor is executed by instruction count
//! (see bench-cold): a latency is a number of instructions, of client, kernel and server, and of what ran in between; each takes 2 ns.
//! Swap is compressed in memory (zram). A disk would answer later.
//!
//! The client asks for one key at a time, 2,000 a second, out of a fiftieth of all keys. A key that nobody has asked for before is asked
//! for now and then too, twice a minute. Pages of other keys are touched with those that are asked for: a lookup compares the keys of its
//! bucket. Each of those is touched every four seconds. With keys that are asked for once in a minute and a half, an age of 30 s was too
//! short: 1.2% of the working set came back in a minute, the brake stopped it, and the p99 was four times what it was before.

use anyhow::{Context, Result, ensure};
use isotherm_bench::cpu::Cpu;
use isotherm_bench::daemon::Daemon;
use isotherm_bench::program::{Dir, free_port, start_redis};
use isotherm_bench::{Log, become_workload, median, need_lab, spread, trials};
use isotherm_heat::Rng;
use isotherm_sys::proc::Proc;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

const KEYS: u64 = 420_000;
const VALUE_BYTES: usize = 1000;
const PER_S: u32 = 2000;
/// Keys that are asked for.
const ASKED: u64 = KEYS / 50;
/// Between two requests for a key that nobody asks for.
const STRANGER_EVERY: Duration = Duration::from_secs(30);
const SETTINGS: &str = "[[scheme]]\naction = \"page-out\"\nmin_idle = \"60s\"\n";
const BEFORE: Duration = Duration::from_secs(40);
const DURING: Duration = Duration::from_secs(130);
const AFTER: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    become_workload()?;
    need_lab("bench-cold-redis", "pages out, and needs swap")?;
    let mut log = Log::new("bench-cold-redis");
    let trials = trials(3);
    log.line(format!(
        "{KEYS} keys of {VALUE_BYTES} bytes, {PER_S} requests a second; pages leave that are idle for 60 s"
    ));
    let runs = (1..=trials as u64).map(|seed| run(&mut log, seed)).collect::<Result<Vec<_>>>()?;
    let of = |what: fn(&Ran) -> f64| runs.iter().map(what).collect::<Vec<f64>>();
    log.line(format!("p99 while memory leaves, over before: {}", spread(&of(|r| r.during.p99_us / r.before.p99_us))));
    let mut result = |key, what| log.result(key, median(&of(what)));
    result("rss_before_mib", |r| r.before.rss_mib);
    result("rss_after_mib", |r| r.after.rss_mib);
    result("refaults_pct_ws_min", |r| r.refaults_pct_ws_min);
    result("refaults_after", |r| r.after.refaults);
    result("p99_us_before", |r| r.before.p99_us);
    result("p99_us_during", |r| r.during.p99_us);
    result("p99_us_after", |r| r.after.p99_us);
    result("p99_during_over_before", |r| r.during.p99_us / r.before.p99_us);
    result("p99_after_over_before", |r| r.after.p99_us / r.before.p99_us);
    result("p999_after_over_before", |r| r.after.p999_us / r.before.p999_us);
    result("isotherm_cpu_pct_during", |r| r.cpu_pct_during);
    result("isotherm_cpu_pct_after", |r| r.cpu_pct_after);
    log.finish()
}

/// What was seen for a while.
#[derive(Clone, Copy, Debug, Default)]
struct Phase {
    rss_mib: f64,
    /// Page faults of the server that had to read.
    refaults: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    before: Phase,
    during: Phase,
    after: Phase,
    refaults_pct_ws_min: f64,
    /// CPU of `isotherm run`, what it does to the server included, while memory leaves and after.
    cpu_pct_during: f64,
    cpu_pct_after: f64,
}

fn run(log: &mut Log, seed: u64) -> Result<Ran> {
    let dir = Dir::new()?;
    let port = free_port()?;
    let server = start_redis(port, &["--enable-debug-command", "yes"], &dir.0, dir.0.join("log"))?;
    let mut client = Client::connect(port, seed)?;
    client.ask(&["DEBUG", "POPULATE", &KEYS.to_string(), "key", &VALUE_BYTES.to_string()])?;
    client.load(Duration::from_secs(5))?;
    let before = client.phase(server.pid(), BEFORE)?;
    let daemon = Daemon::start(&[server.pid()], SETTINGS)?;
    let began = Cpu::of(daemon.pid())?;
    let during = client.phase(server.pid(), DURING)?;
    let meanwhile = Cpu::of(daemon.pid())?;
    let after = client.phase(server.pid(), AFTER)?;
    let ended = Cpu::of(daemon.pid())?;
    let share = |cpu: Cpu, length: Duration| 100.0 * cpu.total_ns / length.as_nanos() as f64;
    let (cpu_pct_during, cpu_pct_after) = (share(meanwhile.since(began), DURING), share(ended.since(meanwhile), AFTER));
    let page_out: Value = daemon.target(server.pid())?["page_out"].clone();
    for (name, phase) in [("before", before), ("during", during), ("after", after)] {
        log.line(format!(
            "seed {seed}  {name:<7} {:>6.1} MiB resident, {:>4.0} refaults, p50 {:>6.1} us, p99 {:>7.1} us, p99.9 {:>7.1} us",
            phase.rss_mib, phase.refaults, phase.p50_us, phase.p99_us, phase.p999_us
        ));
    }
    log.line(format!("seed {seed}  isotherm: {cpu_pct_during:.2}% of a CPU, then {cpu_pct_after:.2}%; {page_out}"));
    let refaults_pct_ws_min = page_out["refaults_pct_minute"].as_f64().context("no refaults in the status")?;
    Ok(Ran { before, during, after, refaults_pct_ws_min, cpu_pct_during, cpu_pct_after })
}

/// One connection with one request in flight.
struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
    rng: Rng,
    next_stranger: Instant,
}

impl Client {
    fn connect(port: u16, seed: u64) -> Result<Client> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let replies = BufReader::new(stream.try_clone()?);
        Ok(Client { stream, replies, rng: Rng::new(seed), next_stranger: Instant::now() })
    }

    /// Sends a command and reads its answer.
    fn ask(&mut self, words: &[&str]) -> Result<()> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.write_all(text.as_bytes())?;
        let mut line = String::new();
        self.replies.read_line(&mut line)?;
        ensure!(!line.starts_with('-'), "{words:?}: the server answered {line:?}");
        if let Some(length) = line.strip_prefix('$').and_then(|text| text.trim().parse::<usize>().ok()) {
            self.replies.read_exact(&mut vec![0; length + 2])?;
        }
        Ok(())
    }

    fn key(&mut self) -> u64 {
        let now = Instant::now();
        if now >= self.next_stranger {
            self.next_stranger = now + STRANGER_EVERY;
            return self.rng.below(KEYS / 4);
        }
        KEYS / 2 + self.rng.below(ASKED)
    }

    /// Asks for keys for a while. Returns how long each answer took, in nanoseconds.
    fn load(&mut self, length: Duration) -> Result<Vec<u64>> {
        let (began, gap) = (Instant::now(), Duration::from_secs(1) / PER_S);
        let (mut took, mut due) = (Vec::new(), began);
        while began.elapsed() < length {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            due += gap;
            let key = format!("key:{}", self.key());
            let asked = Instant::now();
            self.ask(&["GET", &key])?;
            took.push(u64::try_from(asked.elapsed().as_nanos())?);
        }
        took.sort_unstable();
        Ok(took)
    }

    fn phase(&mut self, pid: u32, length: Duration) -> Result<Phase> {
        let faults = || Ok::<u64, anyhow::Error>(Proc::default().stat(pid)?.majflt);
        let before = faults()?;
        let took = self.load(length)?;
        let quantile = |share: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the number of requests")]
            let at = (took.len() as f64 * share) as usize;
            took.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1000.0)
        };
        let rss = Proc::default().status(pid)?.rss.context("a server without memory")?;
        Ok(Phase {
            rss_mib: rss.0 as f64 / 1_048_576.0,
            refaults: (faults()? - before) as f64,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
        })
    }
}
