//! What the stories share: a stage with a directory of its own, programs on it that are gone when it is struck, and a way to
//! say that a story cannot be told here.
//!
//! Each test has its own [`Stage`], so any number of them run side by side. Whatever a test starts is ended when the test ends,
//! also when it fails.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(missing_docs, reason = "no library")]

pub mod serving;

use isotherm_sys::proc::Proc;
use isotherm_workload::{Child, Pattern};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The program under test.
pub const ISOTHERM: &str = env!("CARGO_BIN_EXE_isotherm");

/// What ends within a second on an idle machine gets much more on a busy one: what spins, or never ends, fails in any case.
pub const SOON: Duration = Duration::from_secs(15);

/// No command of any story takes longer.
const TOO_LONG: Duration = Duration::from_secs(90);

/// Says that a test was not run, and why. `make test` counts these lines.
pub fn skip(why: &str) {
    // Not `eprintln!`, which the test harness swallows when the test passes.
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("skipped: needs {why}\n").as_bytes());
}

/// Returns from the test with a line if something is missing.
#[macro_export]
macro_rules! need {
    ($there:expr, $what:expr) => {
        if !$there {
            return $crate::support::skip($what);
        }
    };
}

/// A directory, in which commands are run.
pub struct Stage {
    dir: TempDir,
    env: Vec<(String, String)>,
}

impl Stage {
    pub fn new() -> Stage {
        hear_hangups();
        Stage { dir: tempfile::tempdir().unwrap(), env: Vec::new() }
    }

    pub fn with_env(mut self, key: &str, value: &str) -> Stage {
        self.env.push((key.into(), value.into()));
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `isotherm` with words of `args`, to its end.
    pub fn isotherm(&self, args: &str) -> Ran {
        self.start_isotherm(args).end()
    }

    /// Starts `isotherm` with the words of `args`.
    pub fn start_isotherm(&self, args: &str) -> Running {
        let mut command = Command::new(ISOTHERM);
        command.args(args.split_whitespace());
        self.start(command)
    }

    /// Runs a line of shell in which `$isotherm` is the program under test.
    pub fn shell(&self, script: &str) -> Ran {
        self.start_shell(script).end()
    }

    /// The same, without waiting for its end.
    pub fn start_shell(&self, script: &str) -> Running {
        let mut command = Command::new("bash");
        command.args(["-c", script]);
        self.start(command)
    }

    pub fn start(&self, mut command: Command) -> Running {
        let log = tempfile::Builder::new().prefix("log").tempdir_in(self.dir.path()).unwrap().keep();
        command.current_dir(self.dir.path()).env("isotherm", ISOTHERM).env_remove("NO_COLOR").env_remove("COLORTERM");
        // Monitors of other tests that run meanwhile are not to be in the way.
        command.env("ISOTHERM_RUNTIME_DIR", self.path("run"));
        command.envs(self.env.iter().cloned()).stdin(Stdio::null());
        command.stdout(File::create(log.join("out")).unwrap()).stderr(File::create(log.join("err")).unwrap());
        let told = format!("{command:?}");
        let process = command.spawn().unwrap_or_else(|e| panic!("{told}: {e}"));
        Running { process, log, told }
    }

    /// A recording of a small workload: a copy of one that the first to ask makes in about two seconds.
    pub fn small_recording(&self, name: &str) -> PathBuf {
        static FILES: OnceLock<Vec<(OsString, Vec<u8>)>> = OnceLock::new();
        let files = FILES.get_or_init(|| {
            let (stage, child) = (Stage::new(), workload(16));
            stage.isotherm(&format!("record -o rec -d 2s -w 500ms -p {}", child.pid())).ended(0);
            let files = fs::read_dir(stage.path("rec")).unwrap().map(Result::unwrap);
            files.map(|file| (file.file_name(), fs::read(file.path()).unwrap())).collect()
        });
        fs::create_dir(self.path(name)).unwrap();
        files.iter().for_each(|(file, bytes)| fs::write(self.path(name).join(file), bytes).unwrap());
        self.path(name)
    }

    /// Each of these commands ends with its exit code and says its hint.
    #[track_caller]
    pub fn refuses<'a>(&self, cases: impl IntoIterator<Item = (&'a str, i32, &'a str)>) {
        for (args, code, hint) in cases {
            self.isotherm(args).ended(code).says(hint);
        }
    }

    /// The JSON that a command prints.
    pub fn json(&self, args: &str) -> Value {
        self.isotherm(args).ended(0).json()
    }
}

/// Begins a command of nobody in particular. Takes root and setpriv.
pub const AS_NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

/// A stage that anyone may write to, with a copy of the program that anyone may run.
pub fn open_stage() -> (Stage, String) {
    let stage = Stage::new();
    fs::set_permissions(stage.path(""), Permissions::from_mode(0o777)).unwrap();
    let copy = stage.path("isotherm");
    fs::copy(ISOTHERM, &copy).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    (stage, copy.display().to_string())
}

/// Lets what we start hear hang-ups, also if the tests were started with `nohup`: a signal that is handled here is at its default there.
fn hear_hangups() {
    static HEARD: std::sync::Once = std::sync::Once::new();
    HEARD.call_once(|| {
        let heard = std::sync::Arc::default();
        signal_hook::flag::register(signal_hook::consts::SIGHUP, heard).unwrap();
    });
}

/// A command that goes on. Killed when dropped.
pub struct Running {
    process: std::process::Child,
    log: PathBuf,
    told: String,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// What it has written to standard error so far.
    pub fn err(&self) -> String {
        read(&self.log.join("err"))
    }

    pub fn out(&self) -> String {
        read(&self.log.join("out"))
    }

    pub fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Waits until it has said `text` on standard error.
    pub fn until_it_says(&mut self, text: &str) {
        let told = until(Duration::from_secs(20), || self.err().contains(text));
        assert!(told, "{} never said {text:?}, but:\n{}", self.told, self.err());
    }

    /// Waits for its end.
    pub fn end(self) -> Ran {
        self.end_within(TOO_LONG)
    }

    pub fn end_within(mut self, time: Duration) -> Ran {
        let ended = until(time, || self.has_ended());
        let (out, err) = (self.out(), self.err());
        assert!(ended, "{} has not ended after {time:?}\nstdout: {out}\nstderr: {err}", self.told);
        let code = self.process.wait().unwrap().code();
        Ran { told: self.told.clone(), code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A command that has ended.
pub struct Ran {
    told: String,
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// It ended with this exit code, and no thread panicked on the way.
    #[track_caller]
    pub fn ended(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self}");
        self.never_says("panicked")
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Ran {
        assert!(self.err.contains(text), "standard error lacks {text:?}\n{self}");
        self
    }

    #[track_caller]
    pub fn prints(self, text: &str) -> Ran {
        // A sentence may be broken at the width of the terminal.
        let unbroken = self.out.replace('\n', " ");
        assert!(self.out.contains(text) || unbroken.contains(text), "standard output lacks {text:?}\n{self}");
        self
    }

    #[track_caller]
    pub fn never_says(self, text: &str) -> Ran {
        assert!(!self.err.contains(text) && !self.out.contains(text), "{text:?} was said\n{self}");
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("no JSON: {e}\n{self}"))
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let out: String = self.out.chars().take(4000).collect();
        write!(f, "{}\nexit code {:?}\nstdout: {out}\nstderr: {}", self.told, self.code, self.err)
    }
}

pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

/// Looks every 20 ms whether something is so, for some time.
pub fn until(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if began.elapsed() > time {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn wait(time: Duration) {
    std::thread::sleep(time);
}

pub fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// A workload of `mib`, a tenth of it hot at 25 Hz: it leaves most of a core to others.
pub fn workload(mib: usize) -> Child {
    workload_by(Command::new(ISOTHERM), mib)
}

/// The same, started by way of another command.
pub fn workload_by(command: Command, mib: usize) -> Child {
    patterned(command, mib, false)
}

/// The same, with a second thread that faults pages of its own, some 20,000 a second.
pub fn faulting_workload_by(command: Command, mib: usize) -> Child {
    patterned(command, mib, true)
}

fn patterned(mut command: Command, mib: usize, faults: bool) -> Child {
    let pages = mib * 256;
    // As JSON, so that what a pattern gains stays at its default here.
    let pattern = serde_json::json!({
        "pages": pages, "hot_pages": pages / 10, "layout": "mixed", "interval_ns": 40_000_000, "huge": false, "shared": null,
        "faults": faults, "seed": 11,
    });
    let pattern: Pattern = serde_json::from_value(pattern).unwrap();
    command.arg("demo-workload");
    Child::start(command, &pattern).unwrap()
}

/// A Python program that has said what it has to say. Killed when dropped.
pub struct Script {
    process: std::process::Child,
    /// Its first line.
    pub line: String,
}

impl Script {
    /// Runs Python code after [`PRELUDE`]; `None` without Python.
    pub fn start(code: &str) -> Option<Script> {
        let python = ["/usr/bin/python3", "/usr/local/bin/python3"].into_iter().find(|p| Path::new(p).exists())?;
        let mut command = Command::new(python);
        command.args(["-c", &format!("{PRELUDE}\n{code}")]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Some(Script { process, line: line.trim().to_owned() })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The numbers in its first line.
    pub fn numbers(&self) -> Vec<u64> {
        self.line.split_whitespace().map(|w| w.parse().unwrap_or_else(|_| panic!("said {:?}", self.line))).collect()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Memory as C has it, for scripts: `reserve`, `touch`, and `heat`, which never returns.
pub const PRELUDE: &str = "
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PRIVATE, NORESERVE, HUGETLB = 0x22, 0x4000, 0x40000
def reserve(size, flags=0):
    at = libc.mmap(None, size, 3, PRIVATE | flags, -1, 0)
    if at == ctypes.c_void_p(-1).value: sys.exit('mmap failed')
    return at
def touch(at): ctypes.memset(at, 1, 1)
def heat(pages):
    while True:
        for at in pages: touch(at)
        time.sleep(0.02)
";

/// `mib` MiB, each page with contents of its own, of which the first four are accessed all the time. Compares all of them on SIGUSR1.
pub fn idle_and_hot(mib: usize, verdict: &Path) -> Option<Script> {
    Script::start(&format!(
        "
import signal
size, hot = {mib} << 20, 4 << 20
at = reserve(size)
def filling(page): return 1 + page * 7 % 251
for page in range(size >> 12): ctypes.memset(at + (page << 12), filling(page), 4096)
def compare(*_):
    same = all(ctypes.string_at(at + (p << 12), 4096) == bytes([filling(p)]) * 4096 for p in range(hot >> 12, size >> 12))
    with open('{verdict}', 'w') as f: f.write('same' if same else 'changed')
signal.signal(signal.SIGUSR1, compare)
print(at, flush=True)
heat([at + page for page in range(0, hot, 4096)])
",
        verdict = verdict.display()
    ))
}

/// Has a script of [`idle_and_hot`] compare its memory, during which `meanwhile` happens.
pub fn is_unchanged(script: &Script, verdict: &Path, meanwhile: impl FnOnce()) -> bool {
    let _ = fs::remove_file(verdict);
    signal(script.pid(), "USR1");
    meanwhile();
    assert!(until(Duration::from_secs(60), || fs::read_to_string(verdict).is_ok_and(|text| !text.is_empty())));
    fs::read_to_string(verdict).unwrap() == "same"
}

/// Bytes of a process on huge pages, as the kernel says.
pub fn huge_bytes(pid: u32) -> u64 {
    let rollup = read(&Path::new("/proc").join(pid.to_string()).join("smaps_rollup"));
    let line = rollup.lines().find_map(|l| l.strip_prefix("AnonHugePages:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// Bytes of a process that are resident.
pub fn resident(pid: u32) -> f64 {
    isotherm_sys::proc::Proc::default().status(pid).unwrap().rss.unwrap().0 as f64
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A redis-server of the test's own that writes nothing to disk, and its port. It may not listen yet.
pub fn start_redis(stage: &Stage) -> (Running, u16) {
    let port = free_port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    (stage.start(command), port)
}

/// The demo with a store on every CPU, small: 64 MiB, or 4 MiB for each thread. It is left alone for half a second only, before and after: nobody
/// asks here what being watched costs it.
pub fn busy_demo() -> String {
    let threads = std::thread::available_parallelism().unwrap().get();
    format!("demo --busy --unwatched 500ms --size {}MiB", (4 * threads).max(64))
}

/// Whether a program is installed.
pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A new cgroup of the test's own below the root. The test removes it, after the processes in it.
pub fn own_cgroup(name: &str) -> Option<PathBuf> {
    let root = Proc::default().cgroups().ok()?.find("/").ok()?.dir;
    let dir = root.join(format!("isotherm-test-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).ok().map(|()| dir)
}

pub fn is_root() -> bool {
    read(Path::new("/proc/self/status")).lines().any(|l| l.starts_with("Uid:\t0\t"))
}

/// Whether this machine and user have the source that sees pages.
pub fn sees_pages() -> bool {
    static SEES: OnceLock<bool> = OnceLock::new();
    let source = || Stage::new().json("doctor --json")["source"].clone();
    *SEES.get_or_init(|| source().as_str().is_some_and(|source| source.starts_with("page-table")))
}

/// Whether memory that asks for nothing has small pages at first and can be collapsed.
pub fn can_collapse() -> bool {
    let enabled = read(Path::new("/sys/kernel/mm/transparent_hugepage/enabled"));
    sees_pages() && !enabled.is_empty() && !enabled.contains("[always]")
}

/// Whether the kernel is of this version or a later one.
pub fn kernel_since(major: u32, minor: u32) -> bool {
    let release = read(Path::new("/proc/sys/kernel/osrelease"));
    let mut numbers = release.split(['.', '-']).map_while(|n| n.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// Whether the kernel shows which memory is huge (PAGEMAP_SCAN).
pub fn shows_huge_pages() -> bool {
    kernel_since(6, 7)
}

/// Held by tests whose workload keeps a core busy: two of them at a time would measure each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All regions in an access report.
pub fn regions(access: &Value) -> Vec<&Value> {
    let targets = access["report"]["targets"].as_array().expect("targets");
    targets.iter().flat_map(|t| t["regions"].as_array().expect("regions")).collect()
}

/// The interval said of an address, in nanoseconds; `None` if none is known.
pub fn interval_at(access: &Value, address: u64) -> Option<u64> {
    let holds = |r: &&Value| r["start"].as_u64().unwrap() <= address && address < r["end"].as_u64().unwrap();
    regions(access).into_iter().find(holds)?["interval_ns"].as_u64()
}
