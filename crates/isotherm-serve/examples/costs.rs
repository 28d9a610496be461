//! What the server costs: the time to encode, decode and show a snapshot of a host, scrapes, tiles, memory.
//!
//! `cargo run --release -p isotherm-serve --example costs -- PROCESSES REGIONS SNAPSHOTS`: with so many regions for each process. Starts
//! the server next to it (build it first), and ends with a line of results.

use isotherm_heat::{Histogram, Interval, Region};
use isotherm_stream::{Broadcaster, HostRow, ProcessRow, RegionRow, Snapshot, encode, header};
use isotherm_units::{Addr, AddrRange};
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Snapshot `n`, a second long. Regions have different heat in each, so that nothing can be shared.
fn snapshot(n: u64, processes: u32, regions: u64) -> Snapshot {
    let mut rows = Vec::new();
    let all = (0..processes).map(|pid| {
        let mut heat = Histogram::default();
        for at in 0..regions {
            let start = 0x7f00_0000_0000 + at * 0x40_0000;
            let code = u8::try_from((at * 7 + n * 13 + u64::from(pid)) % 200 + 2).unwrap_or(2);
            let region = Region {
                range: AddrRange::new(Addr(start), Addr(start + 0x20_0000)),
                resident_pages: 512,
                measured_pages: 512,
                huge_pages: 0,
                interval: Interval::from_code(code),
                rate_hz: 1.0,
                age_ns: n,
                idle_ns: 5_000_000_000,
                sampled_pages: 0,
                estimated_pages: 0,
                hot_pages: None,
            };
            heat.add(region.interval, 512);
            rows.push(RegionRow { pid, start_ticks: 1, region });
        }
        let cgroup = format!("/system.slice/service-{pid}.service");
        let idle = heat.clone();
        ProcessRow { pid, start_ticks: 1, comm: format!("worker-{pid}"), cgroup, heat, idle, ..ProcessRow::default() }
    });
    let processes = all.collect();
    let (start_unix_ns, end_unix_ns) = ((1_700_000_000 + n) * 1_000_000_000, (1_700_000_001 + n) * 1_000_000_000);
    Snapshot {
        host: HostRow { start_unix_ns, end_unix_ns, ..HostRow::default() },
        processes,
        regions: rows,
        ..Snapshot::default()
    }
}

fn get(at: &str, path: &str) -> Outcome<Vec<u8>> {
    let mut stream = TcpStream::connect(at)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    if bytes.starts_with(b"HTTP/1.1 200") { Ok(bytes) } else { Err(format!("{path}: no answer").into()) }
}

/// The median of some runs, milliseconds.
fn median_ms(runs: usize, mut run: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut times = Vec::new();
    for _ in 0..runs {
        let began = Instant::now();
        run()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[runs / 2].as_secs_f64() * 1000.0)
}

fn proc_field(pid: u32, file: &str, find: impl Fn(&str) -> Option<f64>) -> Outcome<f64> {
    find(&std::fs::read_to_string(format!("/proc/{pid}/{file}"))?).ok_or_else(|| "no such field".into())
}

/// Resident memory of a process.
fn rss_kb(pid: u32) -> Outcome<f64> {
    proc_field(pid, "status", |text| {
        text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().trim_end_matches(" kB").parse::<f64>().ok())
    })
}

/// CPU time of a process: fields 14 and 15, user and system, in ticks of 10 ms.
fn cpu_s(pid: u32) -> Outcome<f64> {
    proc_field(pid, "stat", |text| {
        let ticks = text.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
        Some(ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0)
    })
}

fn start() -> Outcome<(Broadcaster, Child, String)> {
    let (ours, theirs) = UnixStream::pair()?;
    let monitor = Broadcaster::over(ours)?;
    let program =
        std::env::current_exe()?.parent().and_then(|dir| dir.parent()).ok_or("no folder")?.join("isotherm-serve");
    let mut server = Command::new(program)
        .args(["--fd", "0", "--no-token", "--listen", "127.0.0.1:0"])
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let at = line.trim().trim_start_matches("listening on http://").trim_end_matches('/').to_owned();
    Ok((monitor, server, at))
}

fn main() -> Outcome<()> {
    let number = |place: usize, default: u64| -> Outcome<u64> {
        std::env::args().nth(place).map_or(Ok(default), |text| Ok(text.parse()?))
    };
    let (processes, regions, snapshots) = (u32::try_from(number(1, 500)?)?, number(2, 100)?, number(3, 300)?);
    let one = snapshot(0, processes, regions);
    let encoded = encode(&one)?;
    let encode_ms = median_ms(9, || encode(&one).map(drop).map_err(Into::into))?;
    let stream = [header().as_slice(), &encoded].concat();
    let decode_ms =
        median_ms(9, || isotherm_stream::Reader::new(stream.as_slice()).next().map(drop).map_err(Into::into))?;

    let (monitor, mut server, at) = start()?;
    let pid = server.id();
    let before_kb = rss_kb(pid)?;
    for n in 0..snapshots {
        monitor.publish(&snapshot(n, processes, regions))?;
        let newest = format!("\"at_ms\":{}", (1_700_000_001 + n) * 1000);
        while !get(&at, "/api/process/0-1").is_ok_and(|text| String::from_utf8_lossy(&text).contains(&newest)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let cpu_s = cpu_s(pid)?;
    let after_kb = rss_kb(pid)?;
    let layout = String::from_utf8_lossy(&get(&at, "/api/process/0-1")?).into_owned();
    let layout =
        layout.split("\"layout\":\"").nth(1).and_then(|rest| rest.split('"').next()).ok_or("no layout")?.to_owned();
    let tile = |side: u32| {
        let to = 1_700_000_000_000 + snapshots * 1000;
        format!(
            "/api/tile/0-1?layout={layout}&from=1700000000000&to={to}&lo=0&hi={}&w={side}&h={side}&show=hot",
            regions * 0x20_0000
        )
    };
    let scrape_bytes = get(&at, "/metrics")?.len();
    let scrape_ms = median_ms(99, || get(&at, "/metrics").map(drop))?;
    let small_ms = median_ms(29, || get(&at, &tile(256)).map(drop))?;
    let large_ms = median_ms(9, || get(&at, &tile(1024)).map(drop))?;
    let overview_ms = median_ms(29, || get(&at, "/api/overview").map(drop))?;
    drop(monitor);
    server.wait()?;
    println!(
        "RESULT processes={processes} regions={} snapshots={snapshots} frame_bytes={} encode_ms={encode_ms:.2} decode_ms={decode_ms:.2} server_cpu_s={cpu_s:.2} rss_before_kb={before_kb} rss_after_kb={after_kb} scrape_bytes={scrape_bytes} scrape_ms={scrape_ms:.2} tile_256_ms={small_ms:.2} tile_1024_ms={large_ms:.2} overview_ms={overview_ms:.2}",
        u64::from(processes) * regions,
        encoded.len(),
    );
    Ok(())
}
