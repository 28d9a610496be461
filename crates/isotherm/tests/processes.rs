//! Processes that make it hard for who watches them: dead and not buried, in another namespace, thousands of them, watched by two.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{
    ISOTHERM, Script, Stage, alone, busy_demo, installed, is_root, own_cgroup, read, sees_pages, skip, until, workload,
};

/// Threads of a child, all traced by a tracer that never waits for any: killed, they stay for as long as it lives.
const TRACED: &str = "
import os, threading
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
child = os.fork()
if child == 0:
    at = reserve(8 << 20)
    ctypes.memset(at, 1, 8 << 20)
    for _ in range(3): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    time.sleep(600)
while len(os.listdir(f'/proc/{child}/task')) < 4: time.sleep(0.01)
for tid in os.listdir(f'/proc/{child}/task'):
    if libc.ptrace(0x4206, int(tid), 0, 0) != 0: sys.exit('no ptrace')
";

#[test]
fn a_process_whose_tracer_never_waits_for_it_does_not_hang_the_recording() {
    need!(sees_pages(), "the page-table source");
    let script = Script::start(&format!(
        "{TRACED}\nprint(child, flush=True)\ntime.sleep(3)\nos.kill(child, 9)\ntime.sleep(600)"
    ));
    let Some(script) = script else { return skip("python3") };
    let child = script.numbers()[0];
    let stage = Stage::new();
    let ran =
        stage.start_isotherm(&format!("record -o r -d 6s -w 500ms -p {child}")).end_within(Duration::from_secs(20));
    ran.ended(0);
    let report = stage.json("report processes r --json");
    assert!(report.to_string().contains(&format!("\"pid\":{child}")), "{report}");
}

#[test]
fn a_process_that_has_ended_and_is_traced_has_nothing_to_watch() {
    need!(sees_pages(), "the page-table source");
    let script = Script::start(&format!(
        "{TRACED}\nos.kill(child, 9)\ntime.sleep(0.5)\nprint(child, flush=True)\ntime.sleep(600)"
    ));
    let Some(script) = script else { return skip("python3") };
    let child = script.numbers()[0];
    let stage = Stage::new();
    let ran = stage.start_isotherm(&format!("record -o r -d 6s -p {child}"));
    ran.end_within(Duration::from_secs(20)).ended(1).says("no user memory");
}

/// Schemes go by both, so a process that is moved to keep them off has to be taken for what it is.
#[test]
fn the_name_and_the_cgroup_of_a_process_are_those_that_it_has_now() {
    need!(sees_pages() && is_root(), "root, and the page-table source");
    let Some(dir) = own_cgroup("moved") else { return skip("a cgroup of its own") };
    let script = Script::start(&format!(
        "
import os
print('', flush=True)
time.sleep(3)
open('{}/cgroup.procs', 'w').write(str(os.getpid()))
open('/proc/self/comm', 'w').write('renamed')
time.sleep(600)",
        dir.display()
    ));
    let Some(script) = script else { return skip("python3") };
    let stage = Stage::new();
    // With 1% the next listing may come after the end, on a busy machine.
    stage.isotherm(&format!("record -o r -d 8s -w 1s --max-cpu 20 -p {}", script.pid())).ended(0);
    let (processes, cgroups) = (stage.json("report processes r --json"), stage.json("report cgroups r --json"));
    drop(script);
    until(Duration::from_secs(5), || fs::remove_dir(&dir).is_ok());
    assert_eq!(processes["report"]["processes"][0]["comm"], "renamed", "{processes}");
    let name = dir.file_name().unwrap().to_string_lossy();
    assert!(cgroups.to_string().contains(&*name), "{cgroups}");
}

#[test]
fn a_process_is_seen_page_by_page_from_within_its_own_pid_namespace() {
    need!(sees_pages() && is_root(), "root, and the page-table source");
    need!(installed("unshare"), "unshare");
    let _turn = alone();
    let stage = Stage::new();
    let command = "unshare --pid --fork --mount-proc $isotherm demo --source page-table --size 64MiB -d 4s --unwatched 500ms --max-cpu 200 --json";
    let found = stage.shell(command).ended(0).json();
    let number = |key: &str| found[key].as_f64().unwrap();
    assert!(number("recall") >= 0.95 && number("precision") >= 0.95, "{found}");
}

/// A shell in a pid namespace of its own, in which `--all` means what it has started.
fn in_namespace(stage: &Stage, script: &str) -> support::Ran {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", script]);
    stage.start(command).end()
}

/// How many processes of a recording's last snapshot there are, and how many of them had ended.
fn recorded(stage: &Stage) -> (usize, usize) {
    let report = stage.json("report processes r --json");
    let rows = report["report"]["processes"].as_array().expect("processes");
    (rows.len(), rows.iter().filter(|row| row["exited"] == true).count())
}

#[test]
fn two_thousand_processes_are_watched_under_a_soft_limit_of_1024_descriptors() {
    need!(sees_pages() && is_root(), "root, and the page-table source");
    need!(installed("unshare"), "unshare");
    let hard = Command::new("bash").args(["-c", "ulimit -Hn"]).output().unwrap();
    let hard = String::from_utf8_lossy(&hard.stdout).trim().parse::<u64>().unwrap_or(u64::MAX);
    need!(hard >= 8192, "a hard limit of 8,192 descriptors");
    let _turn = alone();
    let stage = Stage::new();
    let script = "for i in $(seq 2000); do sleep 600 & done; ulimit -Sn 1024; $isotherm record -o r -d 20s -w 5s --all";
    in_namespace(&stage, script).ended(0).never_says("waits for file descriptors");
    let (processes, ended) = recorded(&stage);
    assert!(processes >= 2000 && ended == 0, "{processes} processes, {ended} of them reported gone");
}

#[test]
fn without_descriptors_for_all_some_are_watched_and_the_others_wait() {
    need!(sees_pages() && is_root(), "root, and the page-table source");
    need!(installed("unshare"), "unshare");
    let stage = Stage::new();
    let script = "for i in $(seq 100); do sleep 600 & done; ulimit -n 256; $isotherm record -o r -d 6s -w 1s --all";
    in_namespace(&stage, script).ended(0).says("waits for file descriptors").says("ulimit -n");
    let (processes, ended) = recorded(&stage);
    assert!((20..100).contains(&processes) && ended == 0, "{processes} processes, {ended} of them reported gone");
}

#[test]
fn a_command_starts_with_the_limit_on_descriptors_that_its_user_has() {
    let stage = Stage::new();
    let ran = stage.shell("ulimit -Sn 200; $isotherm record -o r -d 10s -- bash -c 'ulimit -n > limit; sleep 1'");
    ran.ended(0);
    assert_eq!(read(&stage.path("limit")).trim(), "200");
}

/// The child of a process.
fn child_of(pid: u32) -> Option<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    read(Path::new(&path)).split_whitespace().next()?.parse().ok()
}

/// Ctrl-C in a terminal reaches both; here it reaches the demo only, which has to end its child.
#[test]
fn a_demo_that_is_interrupted_ends_its_workload_and_leaves_no_file() {
    need!(sees_pages(), "the page-table source");
    let stage = Stage::new();
    std::fs::create_dir(stage.path("tmp")).unwrap();
    let (known, busy) = ("demo --size 16MiB --unwatched 500ms".to_owned(), busy_demo());
    for (command, signal) in [(&known, "INT"), (&busy, "INT"), (&busy, "KILL")] {
        let mut demo = stage.start_shell(&format!("export TMPDIR=$PWD/tmp; exec $isotherm {command} -d 600s"));
        demo.until_it_says("accessed bits page by page");
        let child = child_of(demo.pid()).expect("it watches a child");
        demo.signal(signal);
        if signal == "KILL" {
            assert!(until(Duration::from_secs(20), || demo.has_ended()), "{command}");
        } else {
            demo.end().ended(1).says("stopped before the end");
        }
        // What has ended and is not waited for yet has no memory.
        let has_ended = || !read(Path::new(&format!("/proc/{child}/status"))).contains("VmRSS");
        assert!(until(Duration::from_secs(20), has_ended), "{command}: the workload goes on");
        assert_eq!(std::fs::read_dir(stage.path("tmp")).unwrap().count(), 0, "{command}");
    }
}

#[test]
fn who_watches_second_is_refused_and_the_first_sees_all_there_is() {
    need!(sees_pages(), "the page-table source");
    let _turn = alone();
    let stage = Stage::new();
    let mut demo = stage.start_isotherm("demo --size 256MiB -d 8s --unwatched 500ms --json");
    demo.until_it_says("accessed bits page by page");
    let mut child = None;
    assert!(until(Duration::from_secs(5), || {
        child = child_of(demo.pid());
        child.is_some()
    }));
    let child = child.unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    for command in ["record -o r -d 3s", "report wss -d 3s"] {
        let second = stage.isotherm(&format!("{command} -p {child}")).ended(1);
        second.says("is watched by process").says(&demo.pid().to_string()).says("demo --size");
    }
    let found = demo.end().ended(0).json();
    let number = |key: &str| found[key].as_f64().unwrap();
    assert!(number("recall") >= 0.99 && number("precision") >= 0.99, "{found}");
}

/// 64 MiB of which a quarter, page by page, is touched every three seconds, and the rest never again.
const SELDOM: &str = "
at = reserve(64 << 20)
libc.madvise(at, 64 << 20, 15)
ctypes.memset(at, 1, 64 << 20)
print(at, flush=True)
while True:
    for page in range(0, 64 << 8, 4): touch(at + (page << 12))
    time.sleep(3)
";

#[test]
fn a_monitor_beside_another_says_that_bits_were_cleared_by_somebody_else() {
    need!(sees_pages(), "the page-table source");
    let _turn = alone();
    let stage = Stage::new();
    let Some(script) = Script::start(SELDOM) else { return skip("python3") };
    let record = |name: &str, time: &str| {
        let limits = "--max-slowdown 200 --max-cpu 200";
        stage.start_isotherm(&format!("record -o {name} -d {time} -w 1s {limits} -p {} --beside", script.pid()))
    };
    record("alone", "8s").end().ended(0).never_says("cleared by");
    let mut first = record("first", "60s");
    first.until_it_says("into first/");
    std::thread::sleep(Duration::from_secs(6));
    // It shows where one clears what the other has left set. If both happen to clear at the same moments, they see nothing of each other.
    for name in ["second", "third", "fourth"] {
        record(name, "8s").end().ended(0);
        if first.err().contains("cleared by something else") {
            break;
        }
    }
    first.signal("TERM");
    first.end().ended(0).says("cleared by something else").says(&script.pid().to_string());
    // In the recording as well, for later reports.
    let note = stage.isotherm("report processes first").ended(0);
    assert!(note.out.contains("cleared accessed bits"), "{note}");
}

#[test]
fn a_lock_on_a_target_goes_with_its_holder() {
    need!(sees_pages(), "the page-table source");
    let stage = Stage::new();
    let child = workload(16);
    let mut first = stage.start_isotherm(&format!("record -o a -d 60s -p {}", child.pid()));
    first.until_it_says("into a/");
    let held = || stage.isotherm(&format!("record -o b -d 500ms -p {}", child.pid())).code == Some(1);
    assert!(until(Duration::from_secs(10), held), "the second was never refused");
    first.signal("KILL");
    assert!(until(Duration::from_secs(10), || first.has_ended()));
    stage.isotherm(&format!("record -o c -d 1s -p {}", child.pid())).ended(0);
    assert!(Path::new(ISOTHERM).exists());
}
