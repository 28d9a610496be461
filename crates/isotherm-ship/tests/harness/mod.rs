//! A monitor, a shipper that is killed, and the rows that a store should have in the end.
//!
//! The monitor sends windows of a minute whose time is a few hours from now, so that no hour ends by the clock while a test runs. It goes
//! on after the last five minutes that the spool has, as a monitor does that runs all the time. So the rows in the store have to be those
//! of a run without faults, each once.

use isotherm_heat::Histogram;
use isotherm_rollup::objects::Object;
use isotherm_rollup::service::Rules;
use isotherm_rollup::{Host, Options, Rollup};
use isotherm_ship::status::Report;
use isotherm_stream::{HostRow, ProcessRow, Snapshot, encode, header};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

pub const MINUTE_NS: u64 = 60_000_000_000;
pub const HOUR_NS: u64 = 60 * MINUTE_NS;
/// Hours that are sent.
pub const HOURS: u64 = 2;
/// Windows that are sent. The last one closes the last hour, and is in no object.
const WINDOWS: u64 = 60 * HOURS + 1;
/// How long an event may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The start of the first hour.
pub fn start_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    (now.as_secs() / 3600 + 2) * HOUR_NS
}

/// Window `n`, from 0, of a host with two services. Each minute differs from all others.
pub fn window(start_ns: u64, n: u64) -> Snapshot {
    let begin = start_ns + n * MINUTE_NS;
    let host = HostRow {
        start_unix_ns: begin,
        end_unix_ns: begin + MINUTE_NS,
        hostname: "modelled".into(),
        version: "0.1.0".into(),
        source: "model".into(),
        cpus: 2,
        memory_bytes: 1 << 34,
        elapsed_ns: (n + 1) * MINUTE_NS,
        ..HostRow::default()
    };
    let process = |pid: u32, service: &str| ProcessRow {
        pid,
        start_ticks: 1,
        comm: "worker".into(),
        cgroup: format!("/system.slice/{service}.service"),
        heat: Histogram::from(vec![(20, 1000 + n), (90, 77 * u64::from(pid))]),
        idle: Histogram::from(vec![(90, 5 * n + 1)]),
        ..ProcessRow::default()
    };
    Snapshot { host, processes: vec![process(1, "redis"), process(2, "web")], ..Snapshot::default() }
}

/// A monitor at a socket. It serves one reader at a time.
pub struct Monitor {
    pub socket: PathBuf,
    pub start_ns: u64,
    /// The window that the next reader gets first.
    next: Arc<AtomicU64>,
}

impl Monitor {
    pub fn start(folder: &Path) -> Monitor {
        let (socket, start_ns, next) = (folder.join("stream.sock"), start_ns(), Arc::new(AtomicU64::new(0)));
        let listener = UnixListener::bind(&socket).unwrap();
        let from = Arc::clone(&next);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let from = Arc::clone(&from);
                // A reader that was killed ends its thread with an error.
                std::thread::spawn(move || -> std::io::Result<()> {
                    stream.write_all(&header())?;
                    for n in from.load(Ordering::SeqCst)..WINDOWS {
                        stream.write_all(&encode(&window(start_ns, n)).unwrap())?;
                    }
                    // A monitor does not end.
                    loop {
                        std::thread::park();
                    }
                });
            }
        });
        Monitor { socket, start_ns, next }
    }

    /// Goes on after what a spool has.
    pub fn goes_on_after(&self, spool: &Path) {
        let covered = Report::read(spool).map_or(0, |report| report.covered_until_unix_ns());
        self.next.store(covered.saturating_sub(self.start_ns) / MINUTE_NS, Ordering::SeqCst);
    }

    /// The end of the last hour.
    pub fn end_ns(&self) -> u64 {
        self.start_ns + HOURS * HOUR_NS
    }
}

/// A shipper that runs.
pub struct Shipper {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Shipper {
    /// Starts one. `stop_at` is a point at which it stops.
    pub fn start(arguments: &[&str], environment: &[(&str, String)], stop_at: Option<&str>) -> Shipper {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isotherm-ship"));
        command.args(arguments).envs(environment.iter().cloned()).stderr(Stdio::piped()).stdin(Stdio::null());
        // At a terminal, SIGHUP ends it.
        command.stdout(Stdio::null());
        if let Some(at) = stop_at {
            command.env("ISOTHERM_SHIP_STOP_AT", at);
        }
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                println!("  {line}");
                let _ = sender.send(line);
            }
        });
        Shipper { child, lines }
    }

    /// Waits until it has stopped at its point. False if `is_over` before that.
    pub fn has_stopped(&self, is_over: impl Fn() -> bool) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(Duration::from_millis(20)) {
                Ok(line) if line.starts_with("stopped at ") => return true,
                Ok(_) => {}
                Err(_) if is_over() => return false,
                Err(_) => assert!(Instant::now() < until, "waited for a point"),
            }
        }
    }

    /// SIGHUP, and waits for a message with this in it.
    pub fn hang_up(&self, says: &str) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        self.until_it_says(says);
    }

    /// Waits for a message with this in it.
    pub fn until_it_says(&self, what: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.lines.recv_timeout(until - Instant::now()).unwrap().contains(what) {}
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }
}

pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "waited for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a spool has sent all hours.
pub fn all_is_sent(spool: &Path, monitor: &Monitor) -> bool {
    Report::read(spool).is_ok_and(|report| {
        report.waiting.objects == 0
            && report.waiting.open_hours == 0
            && report.covered_until_unix_ns() >= monitor.end_ns()
    })
}

/// Rows as text, each with how often it occurs.
pub type RowsByTable = BTreeMap<String, BTreeMap<String, u64>>;

/// Adds the rows of an object.
pub fn add_rows(rows: &mut RowsByTable, path: &str, bytes: Vec<u8>) {
    let table = path.split("v1/").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    for row in reader.get_row_iter(None).unwrap() {
        *rows.entry(table.clone()).or_default().entry(row.unwrap().to_string()).or_default() += 1;
    }
}

/// The rows of a run without faults.
pub fn rows_made(monitor: &Monitor) -> RowsByTable {
    let mut rollup = Rollup::new(this_host(), Rules::default(), Options::default());
    (0..WINDOWS).for_each(|n| rollup.push(&window(monitor.start_ns, n)));
    let batches = rollup.take_rows(0);
    let mut rows = RowsByTable::new();
    for object in Object::all_of(&this_host(), &batches).unwrap() {
        add_rows(&mut rows, &object.path, object.bytes);
    }
    // 12 intervals an hour; two services.
    let count = |table: &str| rows[table].values().sum::<u64>();
    assert_eq!((count("hosts"), count("wss")), (12 * HOURS, 24 * HOURS));
    rows
}

fn this_host() -> Host {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let name = rustix::system::uname();
    Host::new(&read("/etc/machine-id"), name.nodename().to_str().unwrap(), &read("/proc/sys/kernel/random/boot_id"))
}

/// That two sets of rows are the same, with a short message if not.
pub fn assert_same(found: &RowsByTable, made: &RowsByTable) {
    for (table, rows) in made {
        let there = found.get(table).cloned().unwrap_or_default();
        let missing: Vec<&String> = rows.keys().filter(|row| !there.contains_key(*row)).collect();
        let twice: Vec<&String> = there.iter().filter(|(_, times)| **times > 1).map(|(row, _)| row).collect();
        let strange: Vec<&String> = there.keys().filter(|row| !rows.contains_key(*row)).collect();
        assert!(
            missing.is_empty() && twice.is_empty() && strange.is_empty(),
            "{table}: {} of {} rows missing, {} twice, {} that were not made; the first: {:?} {:?} {:?}",
            missing.len(),
            rows.len(),
            twice.len(),
            strange.len(),
            missing.first(),
            twice.first(),
            strange.first(),
        );
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), made.keys().collect::<Vec<_>>(), "the same tables");
}
