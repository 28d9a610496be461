//! A real Prometheus scrapes the real server: no scrape fails, and every expression of the dashboard has data.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use isotherm_serve::args::Print;
use isotherm_serve::metrics::assets;
use isotherm_stream::{ActionRow, Snapshot};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, PATIENCE, region, snapshot};

struct Prometheus {
    child: Child,
    at: String,
}

impl Prometheus {
    /// `None` if it is not installed.
    fn start(folder: &Path, target: &str) -> Option<Prometheus> {
        let config = format!(
            "global: {{scrape_interval: 4s, scrape_timeout: 4s, evaluation_interval: 4s}}\nscrape_configs:\n- job_name: isotherm\n  static_configs: [{{targets: ['{target}']}}]\n"
        );
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={at}")).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().ok().map(|child| Prometheus { child, at })
    }

    /// How many series an expression has now, and the sum of their values. `None` while Prometheus does not answer.
    fn query(&self, expression: &str) -> Option<(usize, f64)> {
        let server = format!("http://{}", self.at);
        let done =
            Command::new("promtool").args(["query", "instant", "-o", "json", &server, expression]).output().ok()?;
        let series: Vec<serde_json::Value> = serde_json::from_slice(&done.stdout).ok()?;
        let value = |one: &serde_json::Value| one["value"][1].as_str().unwrap_or("NaN").parse::<f64>().unwrap();
        Some((series.len(), series.iter().map(value).sum()))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Window `n`, of a process in which something happens: it has hot and idle memory, a limit, refaults, and actions are done.
fn busy(n: u64) -> Snapshot {
    let mut busy = snapshot(n, vec![region(0, 0.5), region(1, 5.0), region(2, 300.0), region(3, 0.0)]);
    busy.host.elapsed_ns = (n + 1) * 1_000_000_000;
    busy.host.monitor_cpu_ns = (n + 1) * 5_000_000;
    (busy.host.max_cpu_pct, busy.host.max_slowdown_pct, busy.host.slowdown_pct) = (1.0, 1.0, 0.2);
    let process = &mut busy.processes[0];
    (process.left_bytes, process.out_bytes, process.refaulted_bytes) = (n << 20, n << 19, n << 12);
    busy.actions = vec![ActionRow { action: "page-out".into(), result: "done".into(), huge_ranges: n, bytes: n << 20 }];
    busy
}

/// The expressions of all panels, for all instances and cgroups.
fn expressions() -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_str(&assets::text(Print::Dashboard)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let all = targets.filter_map(|target| target["expr"].as_str());
    all.map(|expression| {
        expression.replace("$instance", ".*").replace("$cgroup", ".*").replace("$__rate_interval", "1m")
    })
    .collect()
}

#[test]
fn every_expression_of_the_dashboard_has_data_and_no_scrape_fails() {
    let (bench, folder) = (Bench::start(&["--no-token"]), tempfile::tempdir().unwrap());
    let mut windows = 0..;
    // Before it, a scrape fails with 503.
    bench.publish(&busy(windows.next().unwrap()));
    let Some(prometheus) = Prometheus::start(folder.path(), &bench.at) else {
        println!("skipped: needs prometheus");
        return;
    };
    let mut missing = expressions();
    assert!(missing.len() >= 10, "{missing:?}");
    let began = Instant::now();
    while !missing.is_empty() {
        bench.publish(&busy(windows.next().unwrap()));
        missing.retain(|expression| prometheus.query(expression).is_none_or(|(series, _)| series == 0));
        assert!(began.elapsed() < 3 * PATIENCE, "no data for {missing:#?}");
        std::thread::sleep(Duration::from_millis(300));
    }
    let figure = |expression: &str| prometheus.query(expression).unwrap();
    assert_eq!(figure("min_over_time(up[1h])"), (1, 1.0));
    // 4 regions of 512 pages.
    assert_eq!(figure("sum(isotherm_memory_bytes)").1, 4.0 * 512.0 * 4096.0);
}
