//! What targets do.

use crate::Fault;
use crate::support::{AS_NOBODY, Script, Stage, installed, is_root, sees_pages, until, wait};
use crate::watch::{Tally, Watch};
use isotherm_record::Recording;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

type Played = Result<Tally, &'static str>;

const PYTHON: &str = "python3";
const PAGES: &str = "the page-table source";
const GOES_ON: &str = "recording goes on, with all snapshots of others";

pub const FAULTS: &[Fault] = &[
    Fault { name: "a target exits", holds: GOES_ON, play: exits },
    Fault { name: "a target is killed", holds: GOES_ON, play: is_killed },
    Fault { name: "a target executes another program", holds: "it is recorded as ended, and as new", play: executes },
    Fault { name: "a target executes a setuid program", holds: GOES_ON, play: executes_setuid },
    Fault { name: "a target is stopped and continued", holds: GOES_ON, play: is_stopped },
    Fault { name: "a target is traced and never waited for", holds: GOES_ON, play: is_traced },
    Fault { name: "a target forks 1,000 children", holds: GOES_ON, play: forks_thousand },
    Fault { name: "a target forks and ends, again and again", holds: GOES_ON, play: forks_on },
    Fault { name: "the pid of a target is reused", holds: "the stranger is not watched", play: pid_is_reused },
    Fault { name: "a target maps 65,000 areas", holds: GOES_ON, play: maps_areas },
    Fault { name: "a target maps 1 TiB sparsely", holds: GOES_ON, play: maps_tebibyte },
    Fault { name: "a target remaps memory in a loop", holds: GOES_ON, play: remaps },
    Fault { name: "a target unmaps all it has in a loop", holds: GOES_ON, play: unmaps },
    Fault { name: "a target locks its memory", holds: GOES_ON, play: locks },
    Fault { name: "a target shares its memory with a child", holds: GOES_ON, play: shares },
    Fault { name: "a target registers userfaultfd", holds: "the target does not hang", play: userfaults },
    Fault { name: "the main thread of a target exits", holds: "its other threads are watched", play: main_exits },
    Fault { name: "a target with control characters in its name", holds: "no message has them", play: name_controls },
    Fault { name: "a mapping with control characters in its name", holds: "no report has them", play: file_controls },
    Fault { name: "a target in a pid namespace of its own", holds: "it is watched", play: in_namespace },
    Fault { name: "a target in a mount namespace of its own", holds: "it is watched", play: in_mount_namespace },
    Fault { name: "a target changes its user", holds: GOES_ON, play: changes_user },
    Fault { name: "a target makes itself undumpable", holds: GOES_ON, play: undumpable },
    Fault { name: "a target with seccomp in strict mode", holds: GOES_ON, play: strict },
    Fault { name: "a target at its limit of address space", holds: GOES_ON, play: limited },
];

/// Plays a script in Python as the target.
fn script(code: &str, then: impl FnOnce(&Script, &Watch)) -> Played {
    if !sees_pages() {
        return Err(PAGES);
    }
    let Some(target) = Script::start(&format!("import os, signal, threading\n{code}")) else { return Err(PYTHON) };
    let watch = Watch::of(&[target.pid()]);
    then(&target, &watch);
    drop(target);
    Ok(watch.end())
}

/// A script that only goes on, for some time.
fn going_on(code: &str) -> Played {
    script(code, |_, _| wait(Duration::from_secs(3)))
}

fn exits() -> Played {
    going_on(
        "print(flush=True)\nheat_until = time.time() + 3\nat = reserve(8 << 20)\nwhile time.time() < heat_until: touch(at)",
    )
}

fn is_killed() -> Played {
    script("print(flush=True)\nheat([reserve(4096)])", |target, _| {
        crate::support::signal(target.pid(), "KILL");
        wait(Duration::from_secs(1));
    })
}

fn executes() -> Played {
    let code = "print(flush=True)\ntime.sleep(2.5)\nos.execvp('sleep', ['sleep', '600'])";
    script(code, |target, watch| {
        wait(Duration::from_secs(4));
        assert!(!watch.recorder.err().contains("panicked"), "{}", watch.recorder.err());
        assert!(fs::read_to_string(format!("/proc/{}/comm", target.pid())).unwrap().contains("sleep"));
    })
}

fn executes_setuid() -> Played {
    if !is_root() || !installed("setpriv") {
        return Err("root and setpriv");
    }
    let stage = Stage::new();
    fs::set_permissions(stage.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let program = stage.path("sleep-as-root");
    fs::copy("/bin/sleep", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let line = format!("sleep 2.5; exec {} 600", program.display());
    let target = stage.start_shell(&format!("exec {AS_NOBODY} bash -c '{line}'"));
    wait(Duration::from_millis(300));
    let watch = Watch::of(&[target.pid()]);
    wait(Duration::from_secs(3));
    drop(target);
    Ok(watch.end())
}

fn is_stopped() -> Played {
    script("print(flush=True)\nheat([reserve(4096)])", |target, _| {
        for name in ["STOP", "CONT", "STOP"] {
            crate::support::signal(target.pid(), name);
            wait(Duration::from_secs(1));
        }
    })
}

fn is_traced() -> Played {
    let code = "
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
child = os.fork()
if child == 0:
    at = reserve(8 << 20)
    ctypes.memset(at, 1, 8 << 20)
    time.sleep(600)
time.sleep(0.2)
if libc.ptrace(0x4206, child, 0, 0) != 0: sys.exit('no ptrace')
print(child, flush=True)
time.sleep(3)
os.kill(child, 9)
time.sleep(600)";
    going_on(code)
}

fn forks_thousand() -> Played {
    let code = "
print(flush=True)
time.sleep(2)
children = []
for _ in range(1000):
    child = os.fork()
    if child == 0:
        time.sleep(12)
        os._exit(0)
    children.append(child)
for child in children: os.waitpid(child, 0)
time.sleep(600)";
    script(code, |_, watch| {
        let most = || crate::watch::descriptors(watch.recorder.pid());
        let mut highest = 0;
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_secs(18) {
            highest = highest.max(most());
            wait(Duration::from_millis(100));
        }
        assert!(highest > 100, "at most {highest} descriptors: the children were not watched");
    })
}

fn forks_on() -> Played {
    let code = "
print(flush=True)
until = time.time() + 4
while time.time() < until:
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
time.sleep(600)";
    script(code, |_, _| wait(Duration::from_secs(4)))
}

/// In a pid namespace of its own, where a process of a chosen pid can be made without a setting of the machine.
fn pid_is_reused() -> Played {
    if !sees_pages() || !is_root() || !installed("unshare") {
        return Err("root, unshare, and the page-table source");
    }
    if Script::start("print()").is_none() {
        return Err(PYTHON);
    }
    let stage = Stage::new();
    let code = "
import ctypes, os, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def clone_as(pid):
    tids = (ctypes.c_int * 1)(pid)
    args = struct.pack('11Q', 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(tids), 1, 0)
    return libc.syscall(435, ctypes.create_string_buffer(args, 88), 88)
first = os.fork()
if first == 0: time.sleep(600)
time.sleep(0.2)
recorder = os.spawnlp(os.P_NOWAIT, 'bash', 'bash', '-c', f'exec $isotherm record -o r -w 500ms -d 6s --no-children -p {first},{os.getpid()}')
time.sleep(2.5)
os.kill(first, 9)
os.waitpid(first, 0)
again = clone_as(first)
if again == 0:
    time.sleep(600)
    os._exit(0)
if again != first: sys.exit(f'no set_tid: {again}, errno {ctypes.get_errno()}')
_, status = os.waitpid(recorder, 0)
print(first, os.waitstatus_to_exitcode(status))
";
    fs::write(stage.path("reuse.py"), code).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "python3", "reuse.py"]);
    let ran = stage.start(command).end();
    if ran.err.contains("no set_tid") {
        return Err("clone3 with set_tid");
    }
    let numbers: Vec<u32> = ran.out.split_whitespace().map(|w| w.parse().unwrap()).collect();
    assert_eq!(numbers.get(1), Some(&0), "{ran}");
    let snapshots = Recording::open(stage.path("r")).unwrap().read_all().unwrap();
    let starts: std::collections::BTreeSet<u64> = snapshots
        .iter()
        .flat_map(|s| &s.targets)
        .filter(|t| t.id.pid == numbers[0])
        .map(|t| t.id.start_ticks)
        .collect();
    assert_eq!(starts.len(), 1, "the stranger with pid {} was watched: {starts:?}", numbers[0]);
    Ok(Tally::once())
}

fn maps_areas() -> Played {
    let code = "
at = reserve(65000 * 8192)
for n in range(65000):
    if libc.mprotect(at + n * 8192, 4096, 1) != 0: break
print(flush=True)
heat([reserve(4096)])";
    script(code, |_, _| wait(Duration::from_secs(4)))
}

fn maps_tebibyte() -> Played {
    let code = "
size = 1 << 40
at = reserve(size, NORESERVE)
pages = [at + n * (size >> 10) for n in range(1024)]
for page in pages: touch(page)
print(flush=True)
heat(pages)";
    script(code, |_, _| wait(Duration::from_secs(4)))
}

fn remaps() -> Played {
    let code = "
libc.mremap.restype = ctypes.c_void_p
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
at, size = reserve(8 << 20), 8 << 20
ctypes.memset(at, 1, size)
print(flush=True)
until = time.time() + 6
while time.time() < until:
    grown = libc.mremap(at, size, 2 * size, 1)
    at = libc.mremap(grown, 2 * size, size, 1)
    touch(at)
time.sleep(600)";
    script(code, |_, _| wait(Duration::from_secs(4)))
}

fn unmaps() -> Played {
    let code = "
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
print(flush=True)
until = time.time() + 6
while time.time() < until:
    at = reserve(8 << 20)
    ctypes.memset(at, 1, 8 << 20)
    libc.munmap(at, 8 << 20)
time.sleep(600)";
    script(code, |_, _| wait(Duration::from_secs(4)))
}

fn locks() -> Played {
    going_on(
        "at = reserve(8 << 20)\nlibc.mlock(at, 8 << 20)\nprint(flush=True)\nheat([at + (n << 12) for n in range(2048)])",
    )
}

fn shares() -> Played {
    let code = "
at = libc.mmap(None, 16 << 20, 3, 0x21, -1, 0)
ctypes.memset(at, 1, 16 << 20)
private = reserve(16 << 20)
ctypes.memset(private, 1, 16 << 20)
if os.fork() == 0:
    libc.prctl(1, 9, 0, 0, 0)
    heat([at, private])
print(flush=True)
heat([at + (n << 12) for n in range(256)])";
    going_on(code)
}

/// A thread waits for a missing page that nobody supplies; the rest of the process goes on.
fn userfaults() -> Played {
    let code = "
import fcntl, struct
uffd = libc.syscall(323, os.O_CLOEXEC | os.O_NONBLOCK)
if uffd < 0:
    print('no userfaultfd', flush=True)
    time.sleep(600)
fcntl.ioctl(uffd, 0xc018aa3f, bytearray(struct.pack('QQQ', 0xaa, 0, 0)))
at = reserve(4 << 20)
fcntl.ioctl(uffd, 0xc020aa00, bytearray(struct.pack('QQQQ', at, 4 << 20, 1, 0)))
if os.fork() == 0:
    libc.prctl(1, 9, 0, 0, 0)
    time.sleep(600)
print('ready', flush=True)
heat([reserve(4096)])";
    script(code, |target, watch| {
        assert!(!watch.recorder.err().contains("panicked"));
        wait(Duration::from_secs(3));
        let before = cpu_ticks(target.pid());
        wait(Duration::from_secs(1));
        assert!(target.line != "ready" || cpu_ticks(target.pid()) >= before);
    })
}

fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    after.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum()
}

fn main_exits() -> Played {
    let code = "
at = reserve(8 << 20)
ctypes.memset(at, 1, 8 << 20)
def go_on():
    until = time.time() + 8
    while time.time() < until:
        for n in range(64): touch(at + (n << 12))
        time.sleep(0.02)
    os._exit(0)
threading.Thread(target=go_on).start()
print(flush=True)
time.sleep(2.5)
libc.pthread_exit(0)";
    script(code, |target, _| {
        let state = || fs::read_to_string(format!("/proc/{}/stat", target.pid())).unwrap_or_default();
        assert!(until(Duration::from_secs(5), || state().contains(") Z ")), "{}", state());
        wait(Duration::from_secs(1));
        assert!(until(Duration::from_secs(10), || fs::read_dir(format!("/proc/{}/task", target.pid()))
            .map_or(0, Iterator::count)
            <= 1));
    })
}

/// What a terminal acts on.
const CONTROLS: &str = r"'\x1b]0;owned\x07\x1b[2J'";

fn name_controls() -> Played {
    let code = format!("libc.prctl(15, {CONTROLS}.encode()[:15], 0, 0, 0)\nprint(flush=True)\nheat([reserve(4096)])");
    script(&code, |_, watch| {
        wait(Duration::from_secs(1));
        for report in ["processes", "access", "wss"] {
            let ran =
                watch.stage.isotherm(&format!("report {report} -d 500ms --beside -p {}", watch.anchor())).ended(0);
            assert!(!ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'), "{ran}");
        }
        assert!(!watch.recorder.err().contains('\u{1b}'));
    })
}

fn file_controls() -> Played {
    let code = format!(
        "import mmap, tempfile
dir = tempfile.mkdtemp()
path = dir + '/' + {CONTROLS}
open(path, 'wb').write(b'x' * (4 << 20))
f = open(path, 'r+b')
m = mmap.mmap(f.fileno(), 0)
os.unlink(path)
os.rmdir(dir)
print(flush=True)
while True:
    for n in range(1024): m[n << 12] = 1
    time.sleep(0.02)"
    );
    let mut printed = String::new();
    let tally = script(&code, |target, watch| {
        wait(Duration::from_secs(1));
        let ran = watch.stage.isotherm(&format!("report access -d 1s --beside -p {}", target.pid())).ended(0);
        printed = ran.out;
    })?;
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
    Ok(tally)
}

/// A process in namespaces of its own, made by `unshare` with these options.
fn unshared(options: &[&str]) -> Played {
    if !is_root() || !installed("unshare") || !sees_pages() {
        return Err("root, unshare, and the page-table source");
    }
    let mut command = Command::new("unshare");
    command.args(options).args([
        "python3",
        "-c",
        "import time\na = bytearray(8 << 20)\nwhile True:\n a[0] = 1\n time.sleep(0.02)",
    ]);
    let mut target = command.stdin(Stdio::null()).spawn().map_err(|_| PYTHON)?;
    wait(Duration::from_millis(500));
    let watch = Watch::of(&[target.id()]);
    wait(Duration::from_secs(1));
    let report = watch.stage.json(&format!("report processes -d 1s --beside --json -p {}", target.id()));
    assert!(!report["report"]["processes"].as_array().unwrap().is_empty(), "{report}");
    target.kill().unwrap();
    target.wait().unwrap();
    Ok(watch.end())
}

fn in_namespace() -> Played {
    unshared(&["--pid", "--fork", "--mount-proc", "--kill-child"])
}

fn in_mount_namespace() -> Played {
    unshared(&["--mount"])
}

fn changes_user() -> Played {
    if !is_root() {
        return Err("root");
    }
    going_on(
        "print(flush=True)\ntime.sleep(2.2)\nos.setgroups([])\nos.setresgid(65534, 65534, 65534)\nos.setresuid(65534, 65534, 65534)\nheat([reserve(4096)])",
    )
}

fn undumpable() -> Played {
    going_on("print(flush=True)\ntime.sleep(2)\nlibc.prctl(4, 0, 0, 0, 0)\nheat([reserve(4096)])")
}

fn strict() -> Played {
    going_on("at = reserve(4096)\nprint(flush=True)\nlibc.prctl(22, 1, 0, 0, 0)\nwhile True: pass")
}

fn limited() -> Played {
    going_on(
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))\nprint(flush=True)\nheld = []\nwhile True:\n try: held.append(bytearray(1 << 20))\n except MemoryError: time.sleep(0.05)",
    )
}
