//! What happens to recorders and daemons.

use crate::Fault;
use crate::support::{Stage, installed, is_root, sees_pages, signal, until, wait, workload};
use crate::watch::{Tally, Watch};
use isotherm_workload::Child;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

type Played = Result<Tally, &'static str>;

const PAGES: &str = "the page-table source";
const READABLE: &str = "what was recorded can be read";
const SOON: Duration = Duration::from_secs(5);
/// When to kill: while opening, attaching, checking, and writing.
const PHASES_MS: [u64; 8] = [20, 60, 120, 250, 500, 900, 1500, 2600];

pub const FAULTS: &[Fault] = &[
    Fault { name: "SIGKILL of a recorder, at eight moments", holds: READABLE, play: recorder_is_killed },
    Fault { name: "SIGKILL of a daemon, at eight moments", holds: "the next one serves", play: daemon_is_killed },
    Fault { name: "a recorder is stopped and continued", holds: READABLE, play: recorder_is_stopped },
    Fault { name: "two recorders on one target", holds: "the second is refused", play: two_recorders },
    Fault { name: "two daemons on one socket", holds: "the second is refused", play: two_daemons },
    Fault { name: "the terminal of a recorder goes", holds: "it ends in order", play: terminal_of_record },
    Fault { name: "the terminal of a report goes", holds: "it ends", play: terminal_of_report },
    Fault { name: "the terminal of a daemon goes", holds: "it ends in order", play: terminal_of_run },
    Fault { name: "the terminal of top goes", holds: "it ends", play: terminal_of_top },
    Fault { name: "the reader of a report goes", holds: "it ends, without failing", play: reader_goes },
    Fault { name: "32 descriptors for a recorder", holds: "it works, or says what is short", play: few_descriptors },
    Fault {
        name: "little address space for a recorder",
        holds: "it works, or says what is short",
        play: little_memory,
    },
    Fault { name: "the disk is full", holds: READABLE, play: disk_is_full },
    Fault { name: "the folder of a recording is removed", holds: "the recorder ends with an error", play: folder_goes },
    Fault { name: "the cgroup that is watched is removed", holds: "the recording is complete", play: cgroup_goes },
    Fault { name: "the cgroup that is watched is frozen", holds: "recording goes on", play: cgroup_freezes },
    Fault { name: "a recorder of itself", holds: "it goes on, or is refused", play: of_itself },
    Fault { name: "the clock is set back by an hour", holds: "snapshots stay in order", play: clock_goes_back },
    Fault { name: "every CPU is busy", holds: "recording goes on, with all snapshots", play: busy },
];

fn read_recording(stage: &Stage) {
    if stage.path("r").join("run.json").exists() || stage.path("r").is_dir() {
        let ran = stage.isotherm("report processes r");
        // It may have been killed before it has written anything.
        let is_empty = ["nothing", "it has no files", "none was completed"].iter().any(|says| ran.err.contains(says));
        assert!(ran.code == Some(0) || is_empty, "{ran}");
    }
}

fn recorder_is_killed() -> Played {
    let child = workload(16);
    for ms in PHASES_MS {
        let stage = Stage::new();
        let recorder = stage.start_isotherm(&format!("record -o r -w 250ms -p {}", child.pid()));
        wait(Duration::from_millis(ms));
        recorder.signal("KILL");
        drop(recorder);
        read_recording(&stage);
        // Nothing that it held is in the way of the next one.
        stage.isotherm(&format!("record --overwrite -o r -d 500ms -w 250ms -p {}", child.pid())).ended(0);
    }
    Ok(Tally { times: 8, ..Tally::default() })
}

fn daemon_is_killed() -> Played {
    if !sees_pages() {
        return Err(PAGES);
    }
    let (stage, child) = (Stage::new(), workload(16));
    let run = format!("run -n --socket s.sock -p {}", child.pid());
    for ms in PHASES_MS {
        let daemon = stage.start_isotherm(&run);
        wait(Duration::from_millis(ms));
        daemon.signal("KILL");
        drop(daemon);
    }
    let mut daemon = stage.start_isotherm(&run);
    daemon.until_it_says("status at");
    assert_eq!(stage.json("status --json --socket s.sock")["pid"], daemon.pid());
    daemon.signal("TERM");
    daemon.end().ended(0);
    Ok(Tally { times: 8, ..Tally::default() })
}

fn recorder_is_stopped() -> Played {
    let watch = Watch::of(&[]);
    watch.recorder.signal("STOP");
    wait(Duration::from_secs(3));
    watch.recorder.signal("CONT");
    wait(Duration::from_secs(2));
    // The snapshots of the time while it was stopped are not lost by it.
    Ok(Tally { lost_snapshots: 0, ..watch.end() })
}

fn two_recorders() -> Played {
    if !sees_pages() {
        return Err(PAGES);
    }
    let watch = Watch::of(&[]);
    watch
        .stage
        .isotherm(&format!("record -o other -d 1s -p {}", watch.anchor()))
        .ended(1)
        .says("is watched by process");
    Ok(watch.end())
}

fn two_daemons() -> Played {
    if !sees_pages() {
        return Err(PAGES);
    }
    let (stage, child) = (Stage::new(), workload(16));
    let run = format!("run -n --socket s.sock -p {}", child.pid());
    let mut first = stage.start_isotherm(&run);
    first.until_it_says("status at");
    stage.isotherm(&run).ended(1).says("another isotherm run");
    stage.json("status --json --socket s.sock");
    first.signal("TERM");
    first.end().ended(0);
    Ok(Tally::once())
}

/// A line of shell on a terminal of its own, which goes after some time. The program must then end by itself.
fn on_terminal(line: &str) -> Result<Stage, &'static str> {
    if !installed("script") || !installed("setsid") {
        return Err("script and setsid");
    }
    let (stage, child) = (Stage::new(), workload(16));
    let line = format!("stty rows 24 cols 80; echo $$ > pid; exec $isotherm {line} -p {}", child.pid());
    let mut command = Command::new("setsid");
    command.args(["script", "-qfec", &line, "/dev/null"]).env("SHELL", "/bin/bash").env("TERM", "xterm");
    let terminal = stage.start(command);
    let pid = || fs::read_to_string(stage.path("pid")).ok()?.trim().parse::<u32>().ok();
    assert!(until(SOON, || pid().is_some()), "it never started");
    wait(Duration::from_secs(2));
    assert!(is_alive(pid().unwrap()), "it has ended before: {}", terminal.out());
    terminal.signal("KILL");
    let ended = until(SOON, || !is_alive(pid().unwrap()));
    if !ended {
        signal(pid().unwrap(), "KILL");
    }
    assert!(ended, "it goes on without its terminal");
    Ok(stage)
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

fn terminal_of_record() -> Played {
    let stage = on_terminal("record -o r -w 250ms")?;
    stage.isotherm("report processes r").ended(0);
    Ok(Tally::once())
}

fn terminal_of_report() -> Played {
    on_terminal("report access -d 60s").map(|_| Tally::once())
}

fn terminal_of_run() -> Played {
    if !sees_pages() {
        return Err(PAGES);
    }
    let stage = on_terminal("run -n --socket s.sock")?;
    assert!(!stage.path("s.sock").exists(), "its socket is left");
    Ok(Tally::once())
}

fn terminal_of_top() -> Played {
    on_terminal("top -w 500ms").map(|_| Tally::once())
}

fn reader_goes() -> Played {
    let (stage, child) = (Stage::new(), workload(16));
    let line = format!("set -o pipefail; $isotherm report access -d 2s -p {} | true", child.pid());
    stage.shell(&line).ended(0);
    Ok(Tally::once())
}

/// A recorder behind `ulimit`. It works, or ends with an error that names what is short.
fn limited(ulimit: &str, names: &[&str]) -> Played {
    let (stage, child) = (Stage::new(), workload(16));
    let ran = stage.shell(&format!("ulimit {ulimit}; exec $isotherm record -o r -d 2s -w 500ms -p {}", child.pid()));
    assert!(!ran.err.contains("panicked"), "{ran}");
    let explained = names.iter().any(|name| ran.err.contains(name));
    assert!(ran.code == Some(0) || (ran.code == Some(1) && explained), "{ran}");
    Ok(Tally::once())
}

fn few_descriptors() -> Played {
    limited("-n 32", &["descriptor", "ulimit -n", "open files"])
}

fn little_memory() -> Played {
    limited("-v 120000", &["memory", "ENOMEM", "map"])
}

fn disk_is_full() -> Played {
    if !is_root() || !installed("unshare") {
        return Err("root and unshare");
    }
    let (stage, child) = (Stage::new(), workload(16));
    // A file system of its own, that nobody else sees. Some snapshots fit.
    let script = format!(
        "mkdir small && mount -t tmpfs -o size=64k none small && $isotherm record -o small/r -w 500ms -d 60s -p {}; \
         code=$?; $isotherm report processes small/r && exit $code",
        child.pid()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", &script]);
    let ran = stage.start(command).end();
    assert!(ran.code == Some(1) && ran.err.to_lowercase().contains("no space"), "{ran}");
    assert!(ran.out.contains("isotherm"), "nothing of it can be read: {ran}");
    Ok(Tally::once())
}

fn folder_goes() -> Played {
    let (stage, child) = (Stage::new(), workload(16));
    let mut recorder = stage.start_isotherm(&format!("record -o r -w 250ms -d 60s -p {}", child.pid()));
    recorder.until_it_says("into r/");
    wait(Duration::from_secs(1));
    fs::remove_dir_all(stage.path("r")).unwrap();
    wait(Duration::from_secs(1));
    recorder.signal("TERM");
    let ran = recorder.end_within(Duration::from_secs(20));
    assert!(ran.code == Some(1) && ran.err.contains("r/") && !ran.err.contains("panicked"), "{ran}");
    Ok(Tally::once())
}

/// A cgroup of version 2 of our own, with a process in it.
struct OwnCgroup {
    dir: PathBuf,
    child: Option<Child>,
}

impl OwnCgroup {
    fn new() -> Result<OwnCgroup, &'static str> {
        const NEEDS: &str = "root, and a cgroup of version 2 to be made";
        let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().map(PathBuf::from);
        let root =
            root.into_iter().find(|dir| dir.join("cgroup.procs").exists() && dir.join("cgroup.controllers").exists());
        let dir = root.ok_or(NEEDS)?.join(format!("isotherm-fault-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|_| NEEDS)?;
        let child = workload(16);
        let cgroup = OwnCgroup { dir, child: Some(child) };
        let pid = cgroup.child.as_ref().map_or(0, Child::pid);
        fs::write(cgroup.dir.join("cgroup.procs"), pid.to_string()).map_err(|_| NEEDS)?;
        Ok(cgroup)
    }

    fn remove(&mut self) -> bool {
        self.child = None;
        until(SOON, || fs::remove_dir(&self.dir).is_ok() || !self.dir.exists())
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.dir.join("cgroup.freeze"), "0");
        self.remove();
    }
}

fn cgroup_goes() -> Played {
    let mut cgroup = OwnCgroup::new()?;
    let stage = Stage::new();
    let mut recorder = stage.start_isotherm(&format!("record -o r -w 500ms -d 6s --cgroup {}", cgroup.dir.display()));
    recorder.until_it_says("into r/");
    wait(Duration::from_secs(2));
    assert!(cgroup.remove(), "the cgroup could not be removed while it is watched");
    let ran = recorder.end_within(Duration::from_secs(20));
    assert!(ran.code == Some(0) && !ran.err.contains("panicked"), "{ran}");
    stage.isotherm("report processes r").ended(0);
    Ok(Tally::once())
}

fn cgroup_freezes() -> Played {
    let cgroup = OwnCgroup::new()?;
    let pid = cgroup.child.as_ref().map_or(0, Child::pid);
    let watch = Watch::of(&[pid]);
    fs::write(cgroup.dir.join("cgroup.freeze"), "1").map_err(|_| "cgroup.freeze")?;
    wait(Duration::from_secs(2));
    fs::write(cgroup.dir.join("cgroup.freeze"), "0").unwrap();
    wait(Duration::from_secs(1));
    drop(cgroup);
    Ok(watch.end())
}

fn of_itself() -> Played {
    let stage = Stage::new();
    let ran = stage.shell("exec $isotherm record -o r -d 2s -w 500ms -p $$");
    assert!(matches!(ran.code, Some(0 | 1)) && !ran.err.contains("panicked"), "{ran}");
    Ok(Tally::once())
}

fn clock_goes_back() -> Played {
    if !installed("cc") {
        return Err("a C compiler");
    }
    let stage = Stage::new();
    fs::write(stage.path("back.c"), include_str!("clock_set_back.c")).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o", "back.so", "back.c"]).current_dir(stage.path("")).status();
    assert!(built.unwrap().success());
    let mut watch = Watch::with(stage, &[], "env LD_PRELOAD=./back.so $isotherm");
    watch.recorder.until_it_says("the clock was set back by 1 h");
    wait(Duration::from_secs(3));
    Ok(watch.end())
}

fn busy() -> Played {
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    let spinning: Vec<_> = (0..2 * cpus).map(|_| Spinner::start()).collect();
    let watch = Watch::of(&[]);
    wait(Duration::from_secs(6));
    drop(spinning);
    Ok(watch.end())
}

/// Keeps a CPU busy until it is dropped.
struct Spinner(std::process::Child);

impl Spinner {
    fn start() -> Spinner {
        Spinner(Command::new("bash").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
