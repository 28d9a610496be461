//! How long a scrape of a host with 1,000 cgroups takes, and how many series it has.
//!
//! A monitor that is none sends a snapshot a second, so that scrapes meet the work that each of them causes. Every answer is checked: the
//! memory in it has to be what was sent.

use super::http::{Answer, Connections};
use super::model::Host;
use super::{Server, quantile, server_program, wait_until};
use crate::Log;
use anyhow::{Context, Result, ensure};
use isotherm_stream::Broadcaster;
use isotherm_sys::clock;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const PROCESSES: u32 = 3000;
const CGROUPS: u32 = 1000;
const SCRAPES: usize = 2000;
/// Between two scrapes: 2,000 of them meet about 50 snapshots.
const PAUSE: Duration = Duration::from_millis(20);
const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_MS: u64 = 1000;
const NS_PER_MS: u64 = 1_000_000;
/// What Prometheus sends.
const GZIP: [(&str, &str); 1] = [("Accept-Encoding", "gzip")];

/// A way to scrape.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    connections: Connections,
    headers: &'static [(&'static str, &'static str)],
}

const WAYS: [Way; 4] = [
    Way { name: "connection kept, plain", connections: Connections::Kept, headers: &[] },
    Way { name: "connection kept, gzip", connections: Connections::Kept, headers: &GZIP },
    Way { name: "new connection, plain", connections: Connections::New, headers: &[] },
    Way { name: "new connection, gzip", connections: Connections::New, headers: &GZIP },
];

/// Measures scrapes.
pub fn scrape(log: &mut Log) -> Result<()> {
    let dir = tempfile::tempdir().context("make a folder for a socket")?;
    let socket = dir.path().join("s");
    let monitor = Broadcaster::open(&socket, None)?;
    let mut command = Command::new(server_program()?);
    command.arg("--connect").arg(&socket);
    let server = Server::start(command)?;
    wait_until("the server to listen to the monitor", || Ok(monitor.clients() == 1))?;
    let host = Host::new(PROCESSES, CGROUPS, 64);
    let (stop, stopped) = channel();
    let (scrapes, published) = std::thread::scope(|scope| {
        let (monitor, host) = (&monitor, &host);
        let publishing = scope.spawn(move || publish(monitor, host, &stopped));
        let scrapes = all_scrapes(&server, host);
        drop(stop);
        (scrapes, publishing.join().expect("no panic"))
    });
    let (scrapes, published) = (scrapes?, published?);
    ensure!(published > 10, "only {published} snapshots were sent meanwhile");
    report(log, &scrapes, published)
}

/// Sends a snapshot a second until the other end of `stopped` is gone. Returns their number.
fn publish(monitor: &Broadcaster, host: &Host, stopped: &Receiver<()>) -> Result<usize> {
    let mut published = 0;
    loop {
        let now_ms = clock::unix_ns() / NS_PER_MS;
        monitor.publish(&host.snapshot(now_ms - WINDOW_MS, now_ms))?;
        published += 1;
        if stopped.recv_timeout(WINDOW) == Err(RecvTimeoutError::Disconnected) {
            return Ok(published);
        }
    }
}

#[derive(Debug, Default)]
struct Scrapes {
    /// Milliseconds, by the way.
    took_ms: [Vec<f64>; WAYS.len()],
    /// Bytes of the last answer.
    bytes: [usize; WAYS.len()],
    series: usize,
}

fn all_scrapes(server: &Server, host: &Host) -> Result<Scrapes> {
    let mut clients = WAYS.map(|way| server.client().with(way.connections));
    let mut asking = server.client();
    wait_until("the first snapshot to be shown", || Ok(server.newest_ms(&mut asking)?.is_some()))?;
    let path = format!("{}metrics", server.base);
    let mut scrapes = Scrapes::default();
    for n in 0..SCRAPES {
        let place = n % WAYS.len();
        let began = Instant::now();
        let answer = clients[place].get(&path, WAYS[place].headers)?;
        scrapes.took_ms[place].push(began.elapsed().as_secs_f64() * 1000.0);
        scrapes.bytes[place] = answer.body.len();
        check(&answer, WAYS[place], host, &mut scrapes.series)?;
        std::thread::sleep(PAUSE);
    }
    Ok(scrapes)
}

/// Fails if the answer is not what was sent.
fn check(answer: &Answer, way: Way, host: &Host, series: &mut usize) -> Result<()> {
    ensure!(answer.status == 200, "scrape: status {}", answer.status);
    ensure!(answer.is_gzip != way.headers.is_empty(), "scrape, {}: gzip is {}", way.name, answer.is_gzip);
    if answer.is_gzip {
        ensure!(answer.body.starts_with(&[0x1f, 0x8b]), "scrape, {}: the body is no gzip", way.name);
        return Ok(());
    }
    let text = std::str::from_utf8(&answer.body).context("read a scrape")?;
    let samples = || text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let memory = samples().filter(|line| line.starts_with("isotherm_memory_bytes{"));
    let bytes: u64 = memory.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum();
    ensure!(bytes == host.resident().0, "a scrape has {bytes} bytes of memory, and {} were sent", host.resident().0);
    *series = samples().count();
    Ok(())
}

fn report(log: &mut Log, scrapes: &Scrapes, published: usize) -> Result<()> {
    log.line(format!(
        "\n{SCRAPES} scrapes of {CGROUPS} cgroups with {PROCESSES} processes, {} series, while {published} snapshots came",
        scrapes.series
    ));
    log.line(format!("{:<26} {:>9} {:>9} {:>9} {:>12}", "", "p50 ms", "p99 ms", "max ms", "bytes"));
    let mut row = |name: &str, values: &[f64], bytes: Option<usize>| -> Result<[f64; 3]> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let figures = [0.5, 0.99, 1.0].map(|share| quantile(&sorted, share));
        let [Some(p50), Some(p99), Some(max)] = figures else { anyhow::bail!("no scrapes {name}") };
        let bytes = bytes.map_or_else(String::new, |bytes| bytes.to_string());
        log.line(format!("{name:<26} {p50:>9.2} {p99:>9.2} {max:>9.2} {bytes:>12}"));
        Ok([p50, p99, max])
    };
    for (way, (values, bytes)) in WAYS.iter().zip(scrapes.took_ms.iter().zip(scrapes.bytes)) {
        row(way.name, values, Some(bytes))?;
    }
    let [p50, p99, max] = row("all", &scrapes.took_ms.concat(), None)?;
    log.result("scrape_p50_ms_1000_cgroups", p50);
    log.result("scrape_p99_ms_1000_cgroups", p99);
    log.result("scrape_max_ms_1000_cgroups", max);
    log.result("series_1000_cgroups", scrapes.series as f64);
    Ok(())
}
