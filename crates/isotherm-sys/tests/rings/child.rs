//! The test program as its own child: each role does something that the parent knows of, or tries what it may not.
//!
//! A child says on its standard output where its memory is, and does a round of work for each line it gets. The lines of the test
//! harness around it are passed over.

use super::{MIB, SYS, faults, fields};
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_sys::perf::{Event, Part, Rate, Record, RingError, Rings, Sampling, Whom};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

/// Says that something was not tested, and why. `make test` counts these lines.
pub fn skip(why: &str) {
    // Not `eprintln!`, which the test harness swallows.
    let _ = std::io::stderr().write_all(format!("skipped: needs {why}\n").as_bytes());
}

const ROLE: &str = "ISOTHERM_RINGS_CHILD";
const NOBODY: u32 = 65534;
/// Before each line to the parent, to tell it from what the harness prints.
const MARK: &str = "child: ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Touches each page once a round: half of them in two threads that are there, half in two that start for it.
    Touch,
    /// Starts a process each round.
    Forks,
    /// Starts threads without end, which touch pages one after the other.
    Spawn,
    /// Uses a processor.
    Spin,
    Unprivileged,
    Filtered,
    FewDescriptors,
}

const ROLES: [Role; 7] =
    [Role::Touch, Role::Forks, Role::Spawn, Role::Spin, Role::Unprivileged, Role::Filtered, Role::FewDescriptors];

/// A child, seen from its parent. Killed on drop.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    start: u64,
    pub pages: usize,
}

impl Child {
    pub fn start(role: Role) -> Child {
        let mut process = command(&std::env::current_exe().unwrap(), role).stdin(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut child = Child { process, input, output, start: 0, pages: 0 };
        let said = child.hear();
        let mut words = said.split(' ').map(|word| word.parse::<u64>().unwrap());
        child.start = words.next().unwrap();
        child.pages = usize::try_from(words.next().unwrap()).unwrap();
        child
    }

    /// Runs a role that needs nobody, as somebody without privileges if asked. Fails if it does.
    pub fn alone(role: Role, as_nobody: bool) {
        let dir = tempfile::TempDir::new().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // A place that everybody can reach.
        let copy = dir.path().join("rings");
        fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let mut command = command(&copy, role);
        if as_nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().filter(|l| l.starts_with("skipped:")).for_each(|l| println!("{l}"));
        assert!(output.status.success(), "{role:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A round of work; returns when it is done.
    pub fn go(&mut self) {
        self.input.as_mut().unwrap().write_all(b"go\n").unwrap();
        assert_eq!(self.hear(), "done");
    }

    /// Ends it in good order.
    pub fn end(&mut self) {
        self.input = None;
        assert!(self.process.wait().unwrap().success());
    }

    pub fn page_of(&self, addr: u64) -> Option<usize> {
        let page = usize::try_from(addr.checked_sub(self.start)? / 4096).ok()?;
        (page < self.pages).then_some(page)
    }

    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the child has ended");
            if let Some(at) = line.find(MARK) {
                return line[at + MARK.len()..].trim().to_owned();
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(program: &Path, role: Role) -> Command {
    let mut command = Command::new(program);
    command.args(["as_child", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, format!("{role:?}")).stdout(Stdio::piped());
    command
}

/// Plays the role that this process was started for, if it was.
pub fn run() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match ROLES.into_iter().find(|r| format!("{r:?}") == role).unwrap() {
        Role::Touch => touch(),
        Role::Forks => forks(),
        Role::Spawn => spawn(),
        Role::Spin => spin(),
        Role::Unprivileged => unprivileged(),
        Role::Filtered => filtered(),
        Role::FewDescriptors => few_descriptors(),
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{text}").unwrap();
    out.flush().unwrap();
}

fn say_memory(memory: &Memory) {
    say(&format!("{} {}", memory.range().start.0, memory.pages()));
}

/// Whether there is another round.
fn told_to_go() -> bool {
    std::io::stdin().read_line(&mut String::new()).unwrap() > 0
}

fn touch() {
    let memory = Memory::anonymous(8 << 20, PageSize::Small).unwrap();
    let quarter = memory.pages() / 4;
    let touch = |part: usize| (part * quarter..(part + 1) * quarter).for_each(|page| memory.write(page));
    let (begin, done) = (Barrier::new(3), Barrier::new(3));
    let ends = AtomicBool::new(false);
    let (memory, touch, begin, done, ends) = (&memory, &touch, &begin, &done, &ends);
    std::thread::scope(|scope| {
        for part in [0, 1] {
            scope.spawn(move || {
                loop {
                    begin.wait();
                    if ends.load(Ordering::SeqCst) {
                        return;
                    }
                    touch(part);
                    done.wait();
                }
            });
        }
        say_memory(memory);
        while told_to_go() {
            memory.discard(0, memory.pages());
            begin.wait();
            done.wait();
            std::thread::scope(|scope| [2, 3].into_iter().for_each(|part| drop(scope.spawn(move || touch(part)))));
            say("done");
        }
        ends.store(true, Ordering::SeqCst);
        begin.wait();
    });
}

fn forks() {
    say("0 0");
    while told_to_go() {
        Command::new("true").status().unwrap();
        say("done");
    }
}

fn spawn() {
    let memory = Memory::anonymous(256 << 20, PageSize::Small).unwrap();
    say_memory(&memory);
    let (next, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (memory, next, ends) = (&memory, &next, &ends);
        // Each lives for a while and starts the next.
        fn live<'a>(
            scope: &'a std::thread::Scope<'a, '_>,
            memory: &'a Memory,
            next: &'a AtomicUsize,
            ends: &'a AtomicBool,
        ) {
            scope.spawn(move || {
                for step in 0..24 {
                    if ends.load(Ordering::SeqCst) {
                        return;
                    }
                    let page = next.fetch_add(1, Ordering::SeqCst);
                    if page < memory.pages() {
                        memory.write(page);
                    }
                    if step == 12 {
                        live(scope, memory, next, ends);
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
        }
        (0..12).for_each(|_| live(scope, memory, next, ends));
        assert!(!told_to_go());
        ends.store(true, Ordering::SeqCst);
    });
}

fn spin() {
    let ends = AtomicBool::new(false);
    say("0 0");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        assert!(!told_to_go());
        ends.store(true, Ordering::Relaxed);
    });
}

fn paranoid() -> i32 {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    text.trim().parse().unwrap()
}

fn open(whom: &Whom, bytes: usize) -> Result<Rings, RingError> {
    Rings::open(Path::new(SYS), &faults(Rate::Period(1)), whom, bytes)
}

/// Nobody, without capabilities.
fn unprivileged() {
    if !(1..=2).contains(&paranoid()) {
        return skip("kernel.perf_event_paranoid at 1 or 2");
    }
    let text = open(&Whom::Host, MIB).unwrap_err().to_string();
    for word in ["permission denied", &format!("perf_event_paranoid is {}", paranoid()), "CAP_PERFMON", "3 and 4"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    if paranoid() == 2 {
        let kernel = Sampling::new(Event::MINOR_FAULTS, Rate::Period(1), fields());
        let own = Whom::Process(std::process::id());
        let refused = Rings::open(Path::new(SYS), &[Part::everywhere(kernel)], &own, MIB);
        assert!(matches!(refused, Err(RingError::Denied { .. })), "the kernel's part is not theirs: {refused:?}");
    }
    own_process_with_small_rings();
    memory_runs_out();
}

fn own_process_with_small_rings() {
    let mut rings = open(&Whom::Process(std::process::id()), 64 * MIB).unwrap();
    assert!(rings.ring_bytes() < 64 * MIB && rings.ring_bytes() >= 32 << 10, "{}", rings.ring_bytes());
    let memory = Memory::anonymous(1 << 20, PageSize::Small).unwrap();
    memory.populate();
    let mut seen = 0;
    rings.drain(|r| {
        seen += usize::from(matches!(r, Record::Sample(s) if memory.range().contains(isotherm_units::Addr(s.addr))));
    });
    assert_eq!(seen, memory.pages());
}

fn memory_runs_out() {
    set_limit(libc::RLIMIT_MEMLOCK, 0, 0);
    let mut all = Vec::new();
    let error = loop {
        match open(&Whom::Process(std::process::id()), MIB) {
            Ok(rings) => all.push(rings),
            Err(e) => break e,
        }
        assert!(all.len() < 10_000, "no limit");
    };
    let text = error.to_string();
    assert!(matches!(error, RingError::TooLarge { .. }), "{text}");
    for word in ["perf_event_mlock_kb", "RLIMIT_MEMLOCK) is 0 KiB", "CAP_IPC_LOCK", "1048576"] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

fn filtered() {
    // Three filters in turn would answer together: the kernel takes the strictest, and of these the last. So one is enough.
    forbid_perf(libc::EPERM);
    let text = open(&Whom::Host, MIB).unwrap_err().to_string();
    assert!(text.contains("seccomp") && text.contains("whatever the privileges"), "{text}");
    let own = open(&Whom::Process(std::process::id()), MIB).unwrap_err().to_string();
    assert!(own.contains("seccomp"), "{own}");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            forbid_perf(libc::ENOSYS);
            open(&Whom::Host, MIB).unwrap_err().to_string()
        });
        let text = other.join().unwrap();
        assert!(text.contains("seccomp"), "{text}");
    });
}

fn few_descriptors() {
    const THREADS: usize = 100;
    let stop = Mutex::new(());
    let held = stop.lock().unwrap();
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|_| drop(scope.spawn(|| drop(stop.lock()))));
        // The soft limit is raised as far as it goes.
        set_limit(libc::RLIMIT_NOFILE, 40, 4096);
        let rings = open(&Whom::Process(std::process::id()), 64 << 10).unwrap();
        assert!(rings.threads() > THREADS, "{}", rings.threads());
        let needed = (rings.threads() * 2 + 1) * rings.cpus();
        drop(rings);
        set_limit(libc::RLIMIT_NOFILE, 40, 64);
        let error = open(&Whom::Process(std::process::id()), 64 << 10).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, RingError::Descriptors { .. }), "{text}");
        for word in [&format!("need {needed} descriptors"), "64 may be open", "ulimit -n", "CAP_PERFMON"] {
            assert!(text.contains(word), "{word} in {text}");
        }
        drop(held);
    });
}

fn set_limit(which: libc::__rlimit_resource_t, soft: u64, hard: u64) {
    let limits = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: reads two numbers, which outlive the call.
    assert_eq!(unsafe { libc::setrlimit(which, &raw const limits) }, 0);
}

/// Has this thread's `perf_event_open` answered with `errno`, as the profile of a container does.
fn forbid_perf(errno: i32) {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let number = u32::try_from(libc::SYS_perf_event_open).unwrap();
    let refuse = libc::SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap();
    let mut steps = [
        // The number of the call is the first word.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: the first call takes numbers; the second reads the program, whose four steps outlive it.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(set, "{}", std::io::Error::last_os_error());
}

/// A cgroup of our own, removed when dropped.
#[derive(Debug)]
pub struct Cgroup {
    pub path: PathBuf,
}

impl Cgroup {
    /// `None` if there can be none here, or none that is sampled.
    pub fn make(path: &Path) -> Option<Cgroup> {
        fs::create_dir(path).ok()?;
        let cgroup = Cgroup { path: path.to_owned() };
        cgroup.path.join("cgroup.procs").exists().then_some(cgroup)
    }

    pub fn join(&self, pid: u32) {
        fs::write(self.path.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Empty once its last process was waited for; the kernel may take a moment to notice.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
