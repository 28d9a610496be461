//! What a running command may still do, as the kernel tells it, and what the commands that it starts may.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;
use support::{AS_NOBODY, Running, Stage, installed, is_root, open_stage, read, until, workload};

const LONG: Duration = Duration::from_secs(20);
/// CAP_CHOWN, SETUID, SETPCAP, NET_ADMIN, NET_RAW, SYS_MODULE, SYS_RAWIO, SYS_CHROOT, SYS_BOOT, SYS_TIME, MKNOD.
const UNUSED: u64 = 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 13 | 1 << 16 | 1 << 17 | 1 << 18 | 1 << 22 | 1 << 25 | 1 << 27;

/// The capability sets and the flag of a process, by name.
fn field(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in\n{status}"));
    u64::from_str_radix(value.trim(), 16).unwrap()
}

fn status_of(pid: u32) -> String {
    read(&Path::new("/proc").join(pid.to_string()).join("status"))
}

/// The lines of a status that are about privileges.
fn privileges(status: &str) -> Vec<&str> {
    status.lines().filter(|l| ["Cap", "NoNewPrivs", "Uid", "Gid"].iter().any(|name| l.starts_with(name))).collect()
}

#[test]
fn what_watches_keeps_the_capabilities_that_it_uses_and_no_others() {
    need!(is_root(), "root");
    let (stage, child) = (Stage::new(), workload(16));
    for command in [format!("record -o rec -p {}", child.pid()), format!("report wss -d 60s -p {}", child.pid())] {
        let mut running = stage.start_isotherm(&command);
        running.until_it_says("isotherm: ");
        let (own, status) = (read(Path::new("/proc/self/status")), status_of(running.pid()));
        for set in ["CapPrm:", "CapEff:"] {
            let (before, after) = (field(&own, set), field(&status, set));
            assert_eq!(after & UNUSED, 0, "{command}: {set} {after:x}");
            // CAP_SYS_PTRACE, as far as there was one.
            assert_eq!(after & 1 << 19, before & 1 << 19, "{command}: {set} {after:x}");
        }
        assert_eq!(field(&status, "NoNewPrivs:"), 1, "{command}");
        // Threads have what the process has.
        for thread in fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap() {
            let of_thread = read(&thread.unwrap().path().join("status"));
            // Or less: a thread that only waits for the end of the output has none.
            let kept = |status: &str| field(status, "CapPrm:");
            assert_eq!(kept(&of_thread) & !kept(&status), 0, "{command}");
            assert_eq!(field(&of_thread, "NoNewPrivs:"), 1, "{command}");
        }
        running.signal("TERM");
        running.end().ended(0);
    }
}

/// What has no other name for it: the kernel takes a program that gained capabilities by its `exec` for a privileged one, and
/// `prctl(PR_GET_DUMPABLE)` is then not 1.
#[test]
fn a_command_that_is_started_is_not_taken_for_a_privileged_one() {
    // No script that starts it: the next `exec` would not gain anything.
    let python = ["/usr/bin/python3", "/usr/local/bin/python3"].into_iter().find(|p| Path::new(p).exists());
    need!(is_root() && python.is_some(), "root and python3");
    let stage = Stage::new();
    let script = "import ctypes, time\nprint(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)\ntime.sleep(2)\n";
    fs::write(stage.path("dumpable.py"), script).unwrap();
    let record = format!("record -o rec -d 10s --source referenced -- {} dumpable.py", python.unwrap());
    let ran = stage.isotherm(&record).ended(0);
    assert_eq!(ran.out.trim(), "1", "{ran}");
}

#[test]
fn what_reads_files_keeps_only_what_opens_them() {
    need!(is_root(), "root");
    let stage = Stage::new();
    let made = std::process::Command::new("mkfifo").arg(stage.path("hints")).status().unwrap();
    assert!(made.success());
    let _listener = std::os::unix::net::UnixListener::bind(stage.path("s.sock")).unwrap();
    // It waits for somebody to write hints.
    let hint = stage.start_isotherm("hint --socket s.sock -f hints");
    let kept = || field(&status_of(hint.pid()), "CapPrm:");
    assert!(until(LONG, || kept() & UNUSED == 0), "{:x}", kept());
    // CAP_DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER.
    assert_eq!(kept() & !0b1110, 0, "{:x}", kept());
    assert_eq!(field(&status_of(hint.pid()), "NoNewPrivs:"), 1);
}

#[test]
fn a_command_that_is_started_has_what_its_caller_has() {
    need!(installed("setpriv"), "setpriv");
    let (stage, isotherm) = open_stage();
    let status = "cat /proc/self/status; sleep 2";
    let mut callers = vec![String::new()];
    if is_root() {
        let some = "+net_raw,+net_bind_service";
        // A user with an ambient capability; one that may also watch; and root with one in its inheritable set.
        callers.push(format!("{AS_NOBODY} --inh-caps {some} --ambient-caps {some}"));
        let more = format!("{some},+sys_ptrace,+sys_nice,+dac_read_search");
        callers.push(format!("{AS_NOBODY} --inh-caps {more} --ambient-caps {more}"));
        callers.push(format!("setpriv --inh-caps {some} --ambient-caps {some}"));
    }
    for (n, caller) in callers.iter().enumerate() {
        let expected = stage.shell(&format!("{caller} sh -c '{status}'")).ended(0);
        let record =
            format!("{caller} {isotherm} record -o {}/rec{n} -d 1s --source referenced", stage.path("").display());
        let found = stage.shell(&format!("{record} -- sh -c '{status}'")).ended(0);
        assert_eq!(privileges(&found.out), privileges(&expected.out), "{caller}");
        let kept = field(&expected.out, "CapBnd:");
        assert_eq!(field(&found.out, "CapBnd:"), kept, "{caller}");
    }
}

#[test]
fn files_that_a_user_names_are_opened_with_the_rights_of_the_user() {
    need!(is_root() && installed("setpriv"), "root and setpriv");
    let (stage, isotherm) = open_stage();
    fs::write(stage.path("theirs"), "secret word\n").unwrap();
    fs::set_permissions(stage.path("theirs"), fs::Permissions::from_mode(0o600)).unwrap();
    // What start.md gives the file of the program, and what would give more.
    let caps = "+sys_ptrace,+sys_nice,+syslog,+dac_read_search,+dac_override";
    let caller = format!("{AS_NOBODY} --inh-caps {caps} --ambient-caps {caps} {isotherm}");
    let theirs = stage.path("theirs").display().to_string();
    let _listens = UnixListener::bind(stage.path("s.sock")).unwrap();
    stage.shell("chmod 666 s.sock").ended(0);
    for command in [
        format!("hint --socket {} -f {theirs}", stage.path("s.sock").display()),
        format!("run -p 1 -c {theirs} -d 1s"),
        format!("run -p 1 -c {theirs} -d 1s -- true"),
        format!("report wss --model {theirs}"),
        format!("report wss {theirs}"),
    ] {
        let ran = stage.shell(&format!("{caller} {command}"));
        assert!(ran.code.is_some_and(|code| code > 0), "{ran}");
        let printed = format!("{}{}", ran.out, ran.err);
        assert!(!printed.contains("secret"), "{command}: {printed}");
    }
    stage.shell(&format!("{caller} report wss {theirs}")).ended(1).says("Permission denied");
    // Nor are they written to.
    stage.shell("chmod 777 . && ln -s theirs map.html").ended(0);
    let link = stage.path("map.html").display().to_string();
    let watched = "--source referenced -d 1s -p $$";
    stage.shell(&format!("{caller} report heatmap {watched} -o {link}")).ended(1).says("Permission denied");
    stage.shell(&format!("{caller} record {watched} -o {theirs}")).ended(1);
    assert_eq!(read(&stage.path("theirs")), "secret word\n");
}

/// With the capabilities of isotherm.service.
const AS_THE_UNIT: &str = "setpriv --bounding-set -all,+bpf,+perfmon,+sys_ptrace,+sys_nice,+syslog,+dac_read_search";
/// A Python that every user may start.
const PYTHON: &str = "/usr/bin/python3";
const NEEDS_SCRIPTS_OF_OTHERS: &str = "root, setpriv and /usr/bin/python3";

fn has_scripts_of_others() -> bool {
    is_root() && installed("setpriv") && Path::new(PYTHON).exists()
}

/// Starts a script as another user, and waits until it says that it is ready.
fn start_of_another(stage: &Stage, code: &str, argument: &str) -> Running {
    let script = stage.path("script.py");
    fs::write(&script, code).unwrap();
    let mut running = stage.start_shell(&format!("exec {AS_NOBODY} {PYTHON} -u {} {argument}", script.display()));
    running.until_it_says("ready");
    running
}

/// 8 MiB that two processes map, which advice does not clear, and 8 MiB that one of them writes to.
const SHARING: &str = "
import mmap, os, sys, time
own, shared = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), mmap.mmap(-1, 8 << 20)
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        shared[:] = bytes(8 << 20)
        time.sleep(0.2)
    os._exit(0)
print('ready', file=sys.stderr, flush=True)
while True:
    own[:] = bytes(8 << 20)
    shared[:] = bytes(8 << 20)
    time.sleep(0.05)
";

#[test]
fn without_clear_refs_the_rest_of_another_users_process_is_watched() {
    need!(has_scripts_of_others(), NEEDS_SCRIPTS_OF_OTHERS);
    let (stage, isotherm) = open_stage();
    let sharing = start_of_another(&stage, SHARING, "");
    let doctor = stage.shell(&format!("{AS_THE_UNIT} {isotherm} doctor --json")).out;
    need!(doctor.contains("\"source\": \"page-table\""), "the page-table source");
    let watch = format!("{isotherm} report wss --json -d 5s -p {}", sharing.pid());
    let ran = stage.shell(&format!("{AS_THE_UNIT} {watch}")).ended(0).never_says("is skipped");
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let hot = report["report"]["targets"][0]["max_bytes"].as_u64().unwrap_or_default();
    assert!(hot >= 8 << 20, "{ran}");
    // Where it is the only way, the process cannot be watched, and that is said when it is found out.
    let only = format!("{AS_THE_UNIT} {isotherm} report wss -d 4s --clear refs -p {}", sharing.pid());
    stage.shell(&only).says(&format!("process {} is no longer watched: write /proc/", sharing.pid()));
}

/// Listens at a socket of its own, as a program of another user does.
const LISTENING: &str = "
import os, socket, sys, time
os.umask(0o077)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print('ready', file=sys.stderr, flush=True)
time.sleep(60)
";

#[test]
fn a_socket_of_another_user_is_not_taken_for_one_that_was_left() {
    need!(has_scripts_of_others(), NEEDS_SCRIPTS_OF_OTHERS);
    let (stage, isotherm) = open_stage();
    stage.shell("mkdir open && chmod 777 open").ended(0);
    let socket = stage.path("open/s");
    let _theirs = start_of_another(&stage, LISTENING, &socket.display().to_string());
    let run = format!("{AS_THE_UNIT} {isotherm} run --dry-run -d 1s -p $$ --socket {}", socket.display());
    let ran = stage.shell(&run).ended(1);
    ran.says("answers");
    assert!(socket.exists(), "it is still theirs");
}

#[test]
fn what_other_users_keep_to_themselves_is_still_open_to_root() {
    need!(is_root() && installed("setpriv"), "root and setpriv");
    let (stage, _) = open_stage();
    stage.small_recording("rec");
    let theirs = "mkdir theirs && mv rec theirs && chown -R 65534:65534 theirs && chmod 700 theirs theirs/rec";
    stage.shell(theirs).ended(0);
    stage.isotherm("report wss theirs/rec").ended(0);
    stage.isotherm("convert theirs/rec theirs/rec.data").ended(0);
}
