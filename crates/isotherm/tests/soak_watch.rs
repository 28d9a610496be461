//! `make soak-watch`: `isotherm run --all` over processes that come and go, for SOAK_SECONDS (3600). Not part of `cargo test`.
//!
//! In a pid namespace of its own, so that `--all` means what this program has started: some processes that stay, which must never be
//! missing, and about 200 short ones a second that fork, remap memory, and exit. Prints what the daemon's memory, descriptors and threads
//! grow by, as slopes of straight lines through all readings after the first tenth of the time.

#[macro_use]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use support::{Running, Stage, installed, is_root, read, sees_pages, skip, wait};

const READ_EVERY: Duration = Duration::from_secs(5);
/// Processes that stay.
const STAYING: usize = 5;

/// Starts the daemon, what stays and what churns, and prints the pids of the daemon and of what stays as the namespace has them.
const NAMESPACE: &str = "
import ctypes, os, random, signal, subprocess, sys, time
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def memory(size):
    at = libc.mmap(None, size, 3, 0x22, -1, 0)
    ctypes.memset(at, 1, size)
    return at
def stay():
    at = memory(16 << 20)
    while True:
        ctypes.memset(at, 1, 1 << 20)
        time.sleep(0.05)
def short():
    at = memory(1 << 20)
    if random.random() < 0.3 and os.fork() == 0: os._exit(0)
    if random.random() < 0.3: at = libc.mremap(at, 1 << 20, 4 << 20, 1)
    if random.random() < 0.1: os.execvp('true', ['true'])
    time.sleep(random.random() * 0.2)
    os._exit(0)
seed = int(sys.argv[2])
random.seed(seed)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
stays = []
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0: stay()
    stays.append(pid)
with open('stays', 'w') as f: f.write(' '.join(map(str, stays)))
next_at = time.monotonic()
while not os.path.exists('over'):
    if os.fork() == 0: short()
    next_at += 0.005
    time.sleep(max(0, next_at - time.monotonic()))
";

fn main() -> ExitCode {
    if !is_root() || !installed("unshare") || !installed("python3") || !sees_pages() {
        skip("root, unshare, python3, and the page-table source (soak-watch)");
        return ExitCode::SUCCESS;
    }
    let seconds = std::env::var("SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3600_u64);
    let soak = Soak::start();
    let (readings, lost) = soak.read_for(Duration::from_secs(seconds));
    let settled = &readings[readings.len() / 10..];
    let slope = |of: fn(&Reading) -> f64| slope_per_hour(settled, of);
    println!("{} readings in {seconds} s; the last: {:?}", readings.len(), readings.last());
    println!(
        "RESULT seconds={seconds} rss_kib_per_h={:.1} fds_per_h={:.2} threads_per_h={:.2} targets_lost={lost} processes={}",
        slope(|r| r.rss_kib),
        slope(|r| r.descriptors),
        slope(|r| r.threads),
        seconds * 200
    );
    if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Soak {
    stage: Stage,
    /// The namespace, with all that runs in it.
    namespace: Running,
}

/// One reading of the daemon.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at_s: f64,
    rss_kib: f64,
    descriptors: f64,
    threads: f64,
}

impl Soak {
    fn start() -> Soak {
        let stage = Stage::new();
        fs::write(stage.path("churn.py"), NAMESPACE).unwrap();
        let seed = std::process::id();
        println!("seed {seed}");
        let script = format!(
            "python3 churn.py {STAYING} {seed} & sleep 1; $isotherm run -n --all --socket s.sock & \
             wait %2"
        );
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", &script]);
        let mut namespace = stage.start(command);
        namespace.until_it_says("status at");
        wait(Duration::from_secs(10));
        Soak { stage, namespace }
    }

    /// Readings, and how often one of the processes that stay was missing from the status.
    fn read_for(&self, time: Duration) -> (Vec<Reading>, usize) {
        let daemon = self.daemon();
        let stays: BTreeSet<u64> = read(&self.stage.path("stays")).split(' ').map(|pid| pid.parse().unwrap()).collect();
        let (began, mut readings, mut lost) = (Instant::now(), Vec::new(), 0);
        while began.elapsed() < time {
            wait(READ_EVERY);
            readings.push(reading(daemon, began));
            let status = self.stage.json("status --json --socket s.sock");
            let seen: BTreeSet<u64> =
                status["targets"].as_array().unwrap().iter().filter_map(|t| t["pid"].as_u64()).collect();
            lost += stays.difference(&seen).count();
        }
        fs::write(self.stage.path("over"), "").unwrap();
        (readings, lost)
    }

    /// The daemon's pid outside of its namespace: the one `isotherm` below ours.
    fn daemon(&self) -> u32 {
        let mut below = vec![self.namespace.pid()];
        while let Some(pid) = below.pop() {
            if read(Path::new(&format!("/proc/{pid}/comm"))).trim() == "isotherm" {
                return pid;
            }
            let children = read(Path::new(&format!("/proc/{pid}/task/{pid}/children")));
            below.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        panic!("no isotherm below {}", self.namespace.pid());
    }
}

fn reading(pid: u32, began: Instant) -> Reading {
    let status = read(Path::new(&format!("/proc/{pid}/status")));
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse().unwrap_or(f64::NAN)
    };
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count) as f64;
    Reading { at_s: began.elapsed().as_secs_f64(), rss_kib: field("VmRSS:"), descriptors, threads: field("Threads:") }
}

/// The slope of a straight line through the readings, by least squares.
fn slope_per_hour(readings: &[Reading], of: impl Fn(&Reading) -> f64) -> f64 {
    let count = readings.len() as f64;
    let mean = |of: &dyn Fn(&Reading) -> f64| readings.iter().map(of).sum::<f64>() / count;
    let (at, value) = (mean(&|r| r.at_s), mean(&of));
    let above: f64 = readings.iter().map(|r| (r.at_s - at) * (of(r) - value)).sum();
    let below: f64 = readings.iter().map(|r| (r.at_s - at).powi(2)).sum();
    3600.0 * above / below
}
