//! A monitor that is none, the real server as a child, and requests written byte by byte.

use isotherm_heat::{Histogram, Interval, Mapping, Region};
use isotherm_stream::{Broadcaster, HostRow, MappingRow, ProcessRow, RegionRow, Snapshot};
use isotherm_units::{Addr, AddrRange, PMD_SIZE};
use rustix::net::{AddressFamily, SocketType};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long an event may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// When the first window begins, milliseconds since the epoch.
pub const START_MS: u64 = 1_700_000_000_000;
/// Where the memory of the process begins.
pub const BASE: u64 = 0x7f00_0000_0000;

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A monitor, and the server that shows it.
pub struct Bench {
    pub monitor: Broadcaster,
    pub server: Child,
    /// `ADDR:PORT`, and the base with its slashes.
    pub at: String,
    pub base: String,
    _dir: TempDir,
    _stdout: BufReader<ChildStdout>,
}

impl Bench {
    pub fn start(args: &[&str]) -> Bench {
        Bench::start_with(args, |_| {})
    }

    pub fn start_with(args: &[&str], prepare: impl FnOnce(&mut Command)) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let monitor = Broadcaster::open(&socket, None).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_isotherm-serve"));
        command.arg("--connect").arg(&socket).args(args).stdout(Stdio::piped());
        if !args.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        prepare(&mut command);
        let mut server = command.spawn().unwrap();
        let mut stdout = BufReader::new(server.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http").unwrap_or_else(|| panic!("{line:?}"));
        let address = address.split(' ').next().unwrap();
        let (at, base) = address.trim_start_matches("s").trim_start_matches("://").split_once('/').unwrap();
        let bench = Bench { at: at.into(), base: format!("/{base}"), monitor, server, _dir: dir, _stdout: stdout };
        wait_until("the server to listen to the monitor", || bench.monitor.clients() == 1);
        bench
    }

    /// Sends a snapshot and waits until the server shows it.
    pub fn publish(&self, snapshot: &Snapshot) {
        self.monitor.publish(snapshot).unwrap();
        let at_ms = snapshot.host.end_unix_ns / 1_000_000;
        wait_until("the snapshot to be shown", || {
            let answer = self.get("api/overview");
            answer.status == 200 && answer.json()["at_ms"] == at_ms
        });
    }

    /// What is below the base.
    pub fn get(&self, path: &str) -> Answer {
        self.get_with(&format!("{}{path}", self.base), &[])
    }

    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.request("GET", path, headers)
    }

    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            text += &format!("Host: {}\r\n", self.at);
        }
        headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
        self.raw(format!("{text}\r\n").as_bytes())
    }

    /// Sends these bytes, and reads until the server closes.
    pub fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        // The server may refuse before it has read everything.
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        Answer::parse(&bytes)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A connection for which the kernel takes little: what is not read stays in the server.
    pub fn connect_narrow(&self) -> TcpStream {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
        rustix::net::connect(&socket, &self.at.parse::<SocketAddr>().unwrap()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Resident memory of the server, bytes.
    pub fn rss(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// An answer; status 0 if there was none.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Answer {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = end.map_or((bytes, &[][..]), |end| (&bytes[..end], &bytes[end + 4..]));
        let head = String::from_utf8_lossy(head).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let answer = Answer { status, head, body: body.to_vec() };
        if answer.header("transfer-encoding") == Some("chunked") { answer.unchunked() } else { answer }
    }

    fn unchunked(mut self) -> Answer {
        let (mut rest, mut body) = (self.body.as_slice(), Vec::new());
        while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
            let len = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
            if len == 0 {
                break;
            }
            body.extend(&rest[end + 2..end + 2 + len]);
            rest = &rest[end + 4 + len..];
        }
        self.body = body;
        self
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The next answer of a connection that stays open; `None` if it has been closed.
pub fn next(stream: &mut BufReader<TcpStream>) -> Option<Answer> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if !matches!(stream.read_line(&mut head), Ok(1..)) {
            return None;
        }
    }
    let mut answer = Answer::parse(head.as_bytes());
    let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    answer.body = vec![0; length];
    stream.read_exact(&mut answer.body).unwrap();
    Some(answer)
}

/// The snapshot of window `n`, each a second long, with these regions of one process.
pub fn snapshot(n: u64, regions: Vec<Region>) -> Snapshot {
    let (mut heat, mut idle) = (Histogram::default(), Histogram::default());
    for region in &regions {
        heat.add(region.interval, region.resident_pages);
        idle.add(Interval::from_ns(region.idle_ns), region.resident_pages);
    }
    let end = regions.last().map_or(Addr(BASE), |region| region.range.end);
    let id = (42, 4711);
    let mapping =
        Mapping { range: AddrRange::new(Addr(BASE), end), name: "[heap]".into(), perms: "rw-p".parse().unwrap() };
    Snapshot {
        host: HostRow {
            start_unix_ns: (START_MS + n * 1000) * 1_000_000,
            end_unix_ns: (START_MS + (n + 1) * 1000) * 1_000_000,
            hostname: "here".into(),
            source: "page-table".into(),
            version: "0.1.0".into(),
            elapsed_ns: 1_000_000_000,
            monitor_cpu_ns: 5_000_000,
            ..HostRow::default()
        },
        processes: vec![ProcessRow {
            pid: id.0,
            start_ticks: id.1,
            comm: "worker".into(),
            cgroup: "/system.slice/worker.service".into(),
            heat,
            idle,
            cgroup_limit_bytes: Some(1 << 30),
            ..ProcessRow::default()
        }],
        mappings: vec![MappingRow { pid: id.0, start_ticks: id.1, mapping }],
        regions: regions.into_iter().map(|region| RegionRow { pid: id.0, start_ticks: id.1, region }).collect(),
        ..Snapshot::default()
    }
}

/// Huge range `n` of the process: 512 pages of this interval in seconds, or unmeasured ones (0).
pub fn region(n: u64, interval_s: f64) -> Region {
    let is_measured = interval_s > 0.0;
    let interval =
        if is_measured { Interval::from_octaves((interval_s * 1000.0).log2()) } else { Interval::UNMEASURED };
    let start = BASE + n * PMD_SIZE;
    Region {
        range: AddrRange::new(Addr(start), Addr(start + PMD_SIZE)),
        resident_pages: 512,
        measured_pages: if is_measured { 512 } else { 0 },
        huge_pages: 0,
        interval,
        rate_hz: 1.0,
        age_ns: 3_000_000_000,
        idle_ns: 5_000_000_000,
        sampled_pages: 0,
        estimated_pages: 0,
        hot_pages: None,
    }
}
