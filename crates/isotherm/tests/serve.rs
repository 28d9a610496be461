//! `isotherm serve` with the real server: what a scraper and a page get of a process whose hot memory is known, and of a recording.

mod support;

use serde_json::Value;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};
use support::serving::{address, get, server};
use support::{Stage, is_root, resident, sees_pages, until, workload};

const MIB: f64 = (1 << 20) as f64;

/// The sum of the series of a metric with this label, in bytes.
fn sum(metrics: &str, name: &str, label: &str) -> f64 {
    let lines = metrics.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
    });
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

fn children_of(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// CPU time that a process has taken, s.
fn cpu_s(pid: u32) -> f64 {
    let stat = isotherm_sys::proc::Proc::default().stat(pid).unwrap();
    (stat.utime + stat.stime) as f64 / 100.0
}

#[test]
fn a_scrape_has_what_is_hot_and_all_that_is_resident() {
    need!(sees_pages(), "the page-table source");
    need!(server().is_some(), "isotherm-serve (cargo build -p isotherm-serve)");
    let (child, stage) = (workload(64), Stage::new());
    let watch = format!("--max-cpu 200 --max-slowdown 200 -p {}", child.pid());
    let mut run = stage.start_isotherm(&format!("serve --listen 127.0.0.1:0 {watch}"));
    let (host, base) = address(&mut run);
    let metrics = || get(&host, &format!("{base}metrics"));
    let memory = |text: &str, class: &str| sum(text, "isotherm_memory_bytes", &format!("class=\"{class}\""));
    // All of it is known, and has been for long enough to be called idle. A tenth of 64 MiB is hot, and the stack and the code that does it.
    let truth = resident(child.pid());
    let all =
        |text: &str| ["hot", "warm", "cold", "idle", "unmeasured"].iter().map(|class| memory(text, class)).sum::<f64>();
    let is_right = |text: &str| {
        sum(text, "isotherm_unmeasured_bytes", "cgroup") == 0.0
            && memory(text, "idle") > 40.0 * MIB
            && (6.4 * MIB..7.4 * MIB).contains(&memory(text, "hot"))
            && (all(text) - truth).abs() <= truth * 0.01 + 0.5 * MIB
    };
    let found = until(Duration::from_secs(60), || {
        let (status, text) = metrics();
        status == 200 && is_right(&text)
    });
    assert!(found, "{truth} bytes resident: {}", metrics().1);
    let (status, overview) = get(&host, &format!("{base}api/overview"));
    let overview: Value = serde_json::from_str(&overview).unwrap();
    assert_eq!((status, overview["processes"][0]["pid"].as_u64()), (200, Some(child.pid().into())), "{overview:#}");
    assert_eq!(get(&host, "/metrics").0, 401, "without the token");
    assert!(get(&host, &base).1.contains("<script"), "a page");
    let server = children_of(run.pid());
    assert_eq!(server.len(), 1, "{server:?}");
    if is_root() {
        let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("/proc/{}", server[0])).unwrap());
        assert_ne!(uid, 0, "the server runs as somebody else");
    }
    // As Ctrl-C does it.
    let both = [server[0], run.pid()].map(|pid| pid.to_string());
    assert!(Command::new("kill").arg("-INT").args(both).status().unwrap().success());
    run.end().ended(0);
    assert!(TcpStream::connect(&host).is_err(), "the server has ended with it");
}

#[test]
fn sending_snapshots_takes_no_cpu_beyond_the_budget() {
    need!(sees_pages(), "the page-table source");
    need!(server().is_some(), "isotherm-serve (cargo build -p isotherm-serve)");
    let (child, stage) = (workload(16), Stage::new());
    let mut run = stage.start_isotherm(&format!("serve --listen 127.0.0.1:0 -p {}", child.pid()));
    let (host, base) = address(&mut run);
    let sent = || sum(&get(&host, &format!("{base}metrics")).1, "isotherm_snapshots_total", "");
    assert!(until(Duration::from_secs(60), || sent() >= 1.0), "{}", run.err());
    let (began, before, first) = (Instant::now(), cpu_s(run.pid()), sent());
    assert!(until(Duration::from_secs(60), || sent() >= first + 5.0), "{}", run.err());
    // The budget is 1%. Waking up for nothing all the time takes most of a CPU.
    let share = (cpu_s(run.pid()) - before) / began.elapsed().as_secs_f64();
    assert!(share < 0.15, "{:.0}% of a CPU", share * 100.0);
    run.signal("INT");
    run.end().ended(0);
}

#[test]
fn a_recording_is_shown_and_a_server_that_ends_ends_it_all() {
    need!(sees_pages(), "the page-table source");
    need!(server().is_some(), "isotherm-serve (cargo build -p isotherm-serve)");
    let (child, stage) = (workload(16), Stage::new());
    stage.isotherm(&format!("record -p {} -d 6s --window 1s -o r.isotherm", child.pid())).ended(0);
    let mut run = stage.start_isotherm("serve --listen 127.0.0.1:0 --input r.isotherm");
    let (host, base) = address(&mut run);
    let overview = || serde_json::from_str::<Value>(&get(&host, &format!("{base}api/overview")).1).unwrap_or_default();
    let held =
        || overview()["range_ms"].as_array().map_or(0, |range| range[1].as_u64().unwrap() - range[0].as_u64().unwrap());
    assert!(until(Duration::from_secs(20), || held() >= 4000), "{:#}", overview());
    assert_eq!(overview()["processes"][0]["pid"].as_u64(), Some(child.pid().into()));
    let server = children_of(run.pid());
    assert_eq!(server.len(), 1, "{server:?}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", server[0])).unwrap();
    for set in ["CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000")), "no capability, also as root: {status}");
    }
    support::signal(server[0], "KILL");
    run.end().ended(1).says("the server has ended");
    // The other way round.
    let mut run = stage.start_isotherm("serve --listen 127.0.0.1:0 --input r.isotherm");
    let (host, _) = address(&mut run);
    assert!(TcpStream::connect(&host).is_ok());
    run.signal("KILL");
    assert!(until(Duration::from_secs(20), || TcpStream::connect(&host).is_err()), "the server ends with its command");
}
