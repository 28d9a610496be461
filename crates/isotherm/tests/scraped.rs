//! A real Prometheus scrapes `isotherm serve` while a process whose hot memory is known and a Redis under load on every CPU are watched,
//! at the defaults. No scrape fails, the text passes promtool, and both processes are reported as they are.
//!
//! For SCRAPE_SECONDS (30): `make soak-serve` takes 600.

#[macro_use]
mod support;

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::serving::{address, get, server};
use support::{Running, Stage, free_port, installed, resident, sees_pages, start_redis, until, wait, workload};

const MIB: f64 = (1 << 20) as f64;
const DEMO_MIB: usize = 1024;
/// The share of it that is hot.
const HOT_SHARE: f64 = 0.1;
/// Until the server has a first snapshot to be scraped, and all of it is known well.
const SETTLED: Duration = Duration::from_secs(20);
/// Until it is known on a machine that takes several times the CPU time for it: the budget is the same.
const SLOW: Duration = Duration::from_secs(180);
/// Over which a median is taken: a window of another's scheduling is no error of the picture.
const MEDIAN_OVER: &str = "20s";

/// A Redis of 200 MB, and what keeps every CPU busy with it until the stage ends: SETs and GETs of random keys.
fn busy_redis(stage: &Stage) -> [Running; 3] {
    let (server, port) = start_redis(stage);
    let port = port.to_string();
    let bench = |test: &str, operations: &str| {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &port, "-q", "-t", test, "-r", "150000", "-d", "1000", "-c", "20", "-n", operations]);
        command
    };
    // Without a server, redis-benchmark may try again for ever.
    let listens = || TcpStream::connect(format!("127.0.0.1:{port}")).is_ok();
    assert!(until(Duration::from_secs(30), listens), "{}", server.err());
    stage.start(bench("set", "300000")).end().ended(0);
    [server, stage.start(bench("set", "100000000")), stage.start(bench("get", "100000000"))]
}

/// A Prometheus that scrapes one target every four seconds. A scrape that takes longer has failed.
struct Prometheus {
    _process: Running,
    url: String,
}

impl Prometheus {
    fn start(stage: &Stage, host: &str, path: &str) -> Prometheus {
        let config = format!(
            "global: {{scrape_interval: 4s, scrape_timeout: 4s}}\nscrape_configs:\n- job_name: isotherm\n  metrics_path: {path}\n  static_configs: [{{targets: ['{host}']}}]\n"
        );
        std::fs::write(stage.path("prometheus.yml"), config).unwrap();
        let at = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new("prometheus");
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=error"]);
        command.arg(format!("--web.listen-address={at}"));
        Prometheus { _process: stage.start(command), url: format!("http://{at}") }
    }

    /// The value of an expression that has one series. `None` while Prometheus does not answer, or has no data.
    fn value(&self, expression: &str) -> Option<f64> {
        let query = ["query", "instant", "-o", "json", &self.url, expression];
        let done = Command::new("promtool").args(query).output().ok()?;
        let series: Vec<serde_json::Value> = serde_json::from_slice(&done.stdout).ok()?;
        assert!(series.len() <= 1, "{expression}: {series:?}");
        series.first()?["value"][1].as_str()?.parse().ok()
    }

    /// The median of a sum over the last windows, for a process.
    fn median(&self, pid: u32, class: &str) -> f64 {
        let sum = format!("sum(isotherm_process_memory_bytes{{pid=\"{pid}\",class=~\"{class}\"}})");
        let over = format!("quantile_over_time(0.5, ({sum})[{MEDIAN_OVER}:1s])");
        self.value(&over).unwrap_or_else(|| panic!("{over} has no data"))
    }
}

/// That the classes add up to what is resident, within a hundredth.
fn adds_up(prometheus: &Prometheus, pid: u32) {
    let (reported, truth) = (prometheus.median(pid, ".*"), resident(pid));
    println!("process {pid}: {:.1} MiB in all classes, {:.1} MiB resident", reported / MIB, truth / MIB);
    assert!((reported / truth - 1.0).abs() <= 0.01, "{reported} bytes in all classes, {truth} resident");
}

/// That `promtool check metrics` finds nothing to complain about.
fn passes_promtool(text: &str) {
    let mut check = Command::new("promtool");
    let mut check = check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut check.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let done = check.wait_with_output().unwrap();
    assert!(done.status.success(), "{}\n{text}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn prometheus_scrapes_a_busy_machine_and_gets_the_truth() {
    need!(sees_pages(), "the page-table source");
    need!(server().is_some(), "isotherm-serve (cargo build -p isotherm-serve)");
    need!(["prometheus", "promtool"].into_iter().all(installed), "prometheus");
    need!(["redis-server", "redis-benchmark"].into_iter().all(installed), "redis-server and redis-tools");
    let seconds = std::env::var("SCRAPE_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(30_u64);
    let (stage, demo) = (Stage::new(), workload(DEMO_MIB));
    let [redis, mut sets, mut gets] = busy_redis(&stage);
    let watched = format!("-p {} -p {}", demo.pid(), redis.pid());
    let mut serve = stage.start_isotherm(&format!("serve --processes --listen 127.0.0.1:0 {watched}"));
    let (host, base) = address(&mut serve);
    // Until it has a snapshot it answers 503, which is a scrape that fails.
    let text = || get(&host, &format!("{base}metrics"));
    assert!(until(SETTLED, || text().0 == 200), "{:?}\n{}", text(), serve.err());
    let prometheus = Prometheus::start(&stage, &host, &format!("{base}metrics"));
    wait(SETTLED + Duration::from_secs(seconds));
    assert!(!sets.has_ended() && !gets.has_ended() && !serve.has_ended(), "{}", serve.err());

    let up = |of: &str| prometheus.value(&format!("{of}(up[1h])")).unwrap();
    println!("{} scrapes in {seconds} s and {SETTLED:?}", up("count_over_time"));
    assert_eq!(up("min_over_time"), 1.0, "no scrape has failed");
    // Prometheus takes some seconds to start on a busy machine.
    assert!(up("count_over_time") >= 0.2 * seconds as f64, "{} scrapes in {seconds} s", up("count_over_time"));
    passes_promtool(&text().1);
    [demo.pid(), redis.pid()].into_iter().for_each(|pid| adds_up(&prometheus, pid));
    let truth = HOT_SHARE * DEMO_MIB as f64 * MIB;
    let mut hot = 0.0_f64;
    let is_right = until(SLOW, || {
        hot = prometheus.median(demo.pid(), "hot");
        (hot / truth - 1.0).abs() <= 0.02
    });
    println!("process {}: {:.1} MiB hot, {:.1} MiB in truth", demo.pid(), hot / MIB, truth / MIB);
    assert!(is_right, "{hot} bytes hot, {truth} in truth");
    serve.signal("INT");
    serve.end().ended(0);
}
