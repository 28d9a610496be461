//! Bad input and bad luck: what `isotherm` says, how it exits, and what it leaves behind.

mod support;

use isotherm_heat::Snapshot;
use isotherm_record::Recording;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{ISOTHERM, Stage, installed, is_root, read, signal, until, wait, workload};

const REPORTS: [&str; 6] = ["access", "heatmap", "wss", "histogram", "processes", "cgroups"];

/// Waits until a recording that goes on has what `is_so` looks for. How soon that is depends on how busy the machine is: processes
/// are listed once a second, as far as the budget allows.
fn until_recorded(stage: &Stage, name: &str, what: &str, is_so: impl Fn(&[Snapshot]) -> bool) {
    let is_there = until(Duration::from_secs(40), || {
        wait(Duration::from_millis(200));
        let so_far = Recording::open(stage.path(name)).and_then(|r| r.read_all()).unwrap_or_default();
        is_so(&so_far)
    });
    assert!(is_there, "{what} was never recorded");
}

/// Waits until a recording has all of these processes.
fn until_seen(stage: &Stage, name: &str, pids: &[u32]) {
    let has = |snapshots: &[Snapshot], pid| snapshots.iter().flat_map(|s| &s.targets).any(|t| t.id.pid == pid);
    until_recorded(stage, name, &format!("one of {pids:?}"), |snapshots| pids.iter().all(|pid| has(snapshots, *pid)));
}

/// The process id that a script has written to a file.
fn pid_in(stage: &Stage, name: &str) -> u32 {
    let mut found = None;
    until(Duration::from_secs(20), || {
        found = read(&stage.path(name)).trim().parse().ok();
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("nothing was written to {name}"))
}

// --- Processes that cannot be watched

/// The pid of a process that has just ended.
fn nobody() -> u32 {
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    gone.id()
}

#[test]
fn a_process_that_is_not_there_is_an_error_that_names_it() {
    let stage = Stage::new();
    let pid = nobody();
    for command in ["record -o rec", "report wss -d 1s", "record -o ref --source referenced"] {
        stage.isotherm(&format!("{command} -p {pid}")).ended(1).says(&pid.to_string());
    }
}

#[test]
fn process_0_is_no_process() {
    // To the kernel it is the parent of all; to us it must not mean everything.
    let ran = Stage::new().start_isotherm("record -d 3s -p 0").end_within(Duration::from_secs(10));
    assert!(matches!(ran.code, Some(1 | 2)), "{ran}");
}

#[test]
fn a_kernel_thread_has_nothing_to_watch() {
    need!(read(Path::new("/proc/2/comm")).trim() == "kthreadd", "to see kernel threads");
    let stage = Stage::new();
    stage.isotherm("record -p 2").ended(1).says("process 2 has no user memory");
    stage.isotherm("record -o ref --source referenced -p 2").ended(1).says("no user memory");
}

#[test]
fn a_zombie_has_ended() {
    let stage = Stage::new();
    let mut zombie = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", zombie.id());
    assert!(until(Duration::from_secs(5), || read(Path::new(&stat)).contains(") Z ")));
    stage.isotherm(&format!("record -p {}", zombie.id())).ended(1).says("has ended");
    stage.isotherm(&format!("record -o ref --source referenced -p {}", zombie.id())).ended(1).says("has ended");
    zombie.wait().unwrap();
}

#[test]
fn a_start_that_failed_leaves_no_recording_in_the_way_of_the_next() {
    let stage = Stage::new();
    stage.isotherm(&format!("record -p {}", nobody())).ended(1);
    stage.isotherm("record -- sleep 0.3").ended(0);
}

#[test]
fn the_living_are_recorded_though_one_of_those_named_is_not_there() {
    let stage = Stage::new();
    let (child, gone) = (workload(16), nobody());
    stage.isotherm(&format!("record -d 1s -p {gone},{}", child.pid())).ended(0).says(&format!("process {gone}"));
    let report = stage.json("report processes --json");
    assert_eq!(report["report"]["processes"].as_array().unwrap().len(), 1, "{report}");
}

// --- Words that make no sense

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_to_write() {
    let stage = Stage::new();
    for (args, hint) in [
        ("record", "-p PID"),
        ("report wss", "there is no heat.isotherm"),
        ("frobnicate", "unrecognized subcommand"),
        ("report frobnicate", "unrecognized subcommand"),
        ("record -p many", "invalid digit"),
        ("record -p -1", "-1"),
        ("record -p 99999999999", "99999999999"),
        ("record -p 1 --all", "cannot be used with"),
        ("record --all -- sleep 1", "cannot be used with"),
        ("record -p 1 -d 0s", "longer than nothing"),
        ("record -p 1 -d 5", "500ms, 10s or 2m"),
        ("record -p 1 -w 1ms", "50ms or longer"),
        ("record -p 1 --max-cpu 0", "above 0"),
        ("record -p 1 --max-regions 0", "max-regions"),
        ("record -p 1 --source tea-leaves", "page-table"),
        ("report access rec --min-size much", "64MiB"),
        ("report processes rec --hot 10s --warm 1s", "grow in this order"),
        ("report wss rec -p 1", "cannot be used with"),
        ("report heatmap rec -o map.gif", ".png or .html"),
        ("report heatmap rec -o map", ".png or .html"),
        ("demo -o map.gif", ".png or .html"),
    ] {
        stage.isotherm(args).ended(2).says(hint);
    }
}

#[test]
fn with_nothing_said_the_help_is_shown() {
    Stage::new().isotherm("").ended(2).says("Usage:").says("isotherm demo");
    Stage::new().isotherm("--help").ended(0).prints("isotherm demo");
    Stage::new().isotherm("--version").ended(0).prints(env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_workload_that_cannot_be_is_refused_before_it_starts() {
    let stage = Stage::new();
    stage.isotherm("demo --size 1MiB").ended(1).says("16MiB or more");
    stage.isotherm("demo --size 900TiB").ended(1).says("does not fit");
}

// --- Where recordings are read from

#[test]
fn what_is_no_recording_is_not_read_as_one() {
    let stage = Stage::new();
    stage.isotherm("report wss nowhere").ended(1).says("nowhere").says("check the name");
    fs::create_dir(stage.path("foreign")).unwrap();
    fs::write(stage.path("foreign/notes.txt"), "not heat").unwrap();
    stage.isotherm("report wss foreign").ended(1).says("not an Isotherm recording");
    stage.isotherm("report wss foreign/notes.txt").ended(1).says("not a directory");
    fs::write(stage.path("foreign/snapshots-000001.parquet"), "not Parquet").unwrap();
    stage.isotherm("report wss foreign").ended(1).says("foreign");
}

#[test]
fn a_recording_that_was_cut_off_is_told_from_one_that_is_whole() {
    let stage = Stage::new();
    let recording = stage.small_recording("rec");
    for file in fs::read_dir(&recording).unwrap() {
        let path = file.unwrap().path();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        for report in REPORTS {
            stage.isotherm(&format!("report {report} rec")).ended(1).says("rec");
        }
        fs::write(&path, &whole).unwrap();
    }
    stage.isotherm("report wss rec").ended(0);
}

// --- Where recordings and pictures are written to

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let stage = Stage::new();
    stage.isotherm("record -o /dev/null/rec -- sleep 5").ended(1).says("/dev/null/rec");
    stage.isotherm("record -o no/such/place -- sleep 5").ended(1).says("no/such/place");
}

#[test]
fn a_command_is_not_started_if_its_recording_cannot_be() {
    let stage = Stage::new();
    fs::write(stage.path("taken"), "a file").unwrap();
    fs::write(stage.path("script"), "echo ran > ran; sleep 1").unwrap();
    stage.isotherm("record -o taken -- sh script").ended(1).says("taken");
    wait(Duration::from_millis(300));
    assert!(!stage.path("ran").exists(), "the command ran, and nothing was recorded");
    assert_eq!(read(&stage.path("taken")), "a file");
}

#[test]
fn a_recording_that_is_there_is_only_replaced_if_asked() {
    let stage = Stage::new();
    stage.isotherm("record -- sleep 0.3").ended(0);
    stage.isotherm("record -- sleep 0.3").ended(1).says("overwrite");
    stage.isotherm("record --overwrite -- sleep 0.3").ended(0);
}

#[test]
fn files_of_others_are_never_touched() {
    let stage = Stage::new();
    fs::create_dir(stage.path("mine")).unwrap();
    fs::write(stage.path("mine/thesis.txt"), "years of work").unwrap();
    for flags in ["", "--overwrite"] {
        stage.isotherm(&format!("record {flags} -o mine -- sleep 0.3")).ended(1).says("other files");
    }
    assert_eq!(read(&stage.path("mine/thesis.txt")), "years of work");
}

#[test]
fn a_picture_that_cannot_be_written_is_named() {
    let stage = Stage::new();
    stage.small_recording("rec");
    stage.isotherm("report heatmap rec -o no/such/map.png").ended(1).says("no/such/map.png");
    // A device that is always full.
    need!(Path::new("/dev/full").exists(), "/dev/full");
    std::os::unix::fs::symlink("/dev/full", stage.path("full.html")).unwrap();
    stage.isotherm("report heatmap rec -o full.html").ended(1).says("full.html");
    stage.shell("$isotherm report access rec > /dev/full").ended(1).says("No space left");
}

#[test]
fn a_full_disk_ends_the_recording_and_keeps_what_was_recorded() {
    need!(is_root() && installed("unshare"), "root and unshare, to mount a small disk");
    let stage = Stage::new();
    let child = workload(16);
    // In a mount namespace of its own, the disk is gone when the shell is.
    let ran = stage.shell(&format!(
        "mkdir disk && unshare -m bash -c 'mount -t tmpfs -o size=160k tmpfs disk || exit 77
         $isotherm record -o disk/rec -w 500ms -p {}; code=$?; cp -r disk/rec kept; exit $code'",
        child.pid()
    ));
    need!(ran.code != Some(77), "to be allowed to mount a small disk");
    ran.ended(1).says("kept and readable").says("free space on that disk");
    let kept = Recording::open(stage.path("kept")).unwrap();
    assert!(!kept.is_empty(), "two seconds fit");
    stage.isotherm("report wss kept").ended(0).prints("working set");
}

// --- Readers that go away, and programs that read

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let stage = Stage::new();
    stage.small_recording("rec");
    for report in REPORTS.iter().flat_map(|r| [format!("{r} rec"), format!("{r} rec --json")]) {
        let mut command = Command::new(ISOTHERM);
        command.arg("report").args(report.split(' ')).current_dir(stage.path(""));
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(process.stdout.take());
        let ended = process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && said.is_empty(), "{report}: {} {said}", ended.status);
    }
    let ran = stage.shell("$isotherm report access rec | head -1; exit ${PIPESTATUS[0]}").ended(0);
    assert_eq!((ran.out.lines().count(), ran.err.as_str()), (1, ""));
}

#[test]
fn every_report_is_there_as_json() {
    let stage = Stage::new();
    stage.small_recording("rec");
    for (report, keys) in [
        ("access", &["start_unix_ns", "end_unix_ns", "wss_interval_ns", "targets", "cost"][..]),
        ("wss", &["interval_ns", "targets", "total", "cost"]),
        ("histogram", &["end_unix_ns", "groups", "cost"]),
        ("processes", &["end_unix_ns", "thresholds", "processes", "total", "total_is_approximate", "cost"]),
        ("cgroups", &["end_unix_ns", "thresholds", "cgroups", "total", "total_is_approximate", "cost"]),
    ] {
        let json = stage.json(&format!("report {report} rec --json"));
        assert_eq!(json["run"]["version"], env!("CARGO_PKG_VERSION"), "{report}");
        let found: Vec<&str> = json["report"].as_object().unwrap().keys().map(String::as_str).collect();
        for key in keys {
            assert!(found.contains(key), "{report} has no {key}: {found:?}");
        }
    }
    let snapshots = stage.json("report heatmap rec --json");
    assert!(snapshots.as_array().unwrap().len() >= 3, "2 s in windows of 500 ms");
    assert!(snapshots[0]["targets"].is_array());
}

#[test]
fn the_doctor_has_an_opinion() {
    let stage = Stage::new();
    stage.isotherm("doctor").ended(0).prints("source: ").prints("Privileges");
    let json = stage.json("doctor --json");
    assert!(["page-table", "referenced"].contains(&json["source"].as_str().unwrap()), "{json}");
    for finding in json["findings"].as_array().unwrap() {
        assert!(!finding["name"].as_str().unwrap().is_empty() && finding["state"].is_string(), "{finding}");
    }
}

#[test]
fn what_a_report_cost_is_said_once() {
    let stage = Stage::new();
    stage.small_recording("rec");
    for report in REPORTS {
        let ran = stage.isotherm(&format!("report {report} rec")).ended(0);
        assert_eq!(ran.out.matches("cost over").count(), 1, "{ran}");
    }
}

// --- Terminals

/// Runs a line of shell on a terminal of its own.
fn on_a_terminal(stage: &Stage, script: &str) -> support::Ran {
    fs::write(stage.path("on-terminal"), script).unwrap();
    stage.shell("TERM=xterm-256color script -qec 'bash on-terminal' /dev/null")
}

#[test]
fn colours_are_for_terminals_of_people_who_want_them() {
    need!(installed("script"), "script(1)");
    let stage = Stage::new();
    stage.small_recording("rec");
    let map = "$isotherm report heatmap rec";
    for (what, colored) in [
        (map.to_owned(), true),
        (format!("NO_COLOR=1 {map}"), false),
        (format!("NO_COLOR= {map}"), true),
        (format!("{map} --color never"), false),
        (format!("{map} --ascii"), false),
        (format!("{map} | cat"), false),
        (format!("NO_COLOR=1 {map} --color always | cat"), true),
        ("NO_COLOR=1 $isotherm report access rec".to_owned(), false),
    ] {
        let ran = on_a_terminal(&stage, &what).ended(0);
        assert_eq!(ran.out.contains("\x1b["), colored, "{what}\n{ran}");
    }
    let plain = stage.isotherm("report heatmap rec --ascii").ended(0);
    assert!(plain.out.is_ascii(), "{plain}");
}

#[test]
fn a_terminal_of_20_columns_is_wide_enough() {
    need!(installed("script"), "script(1)");
    let stage = Stage::new();
    stage.small_recording("rec");
    for (columns, rows) in [(20, 10), (2, 1), (500, 200)] {
        for report in REPORTS {
            let script = format!("stty cols {columns} rows {rows}; NO_COLOR=1 $isotherm report {report} rec");
            let ran = on_a_terminal(&stage, &script).ended(0);
            let widest = ran.out.lines().map(|l| l.trim_end_matches('\r').chars().count()).max().unwrap_or(0);
            assert!(columns < 20 || widest <= columns, "{report}: {widest} of {columns} columns\n{ran}");
        }
    }
}

#[test]
fn top_without_a_terminal_says_so() {
    let stage = Stage::new();
    let child = workload(16);
    let ran = stage.isotherm(&format!("top -p {}", child.pid())).ended(1).says("terminal");
    assert_eq!(ran.out, "", "nothing is drawn into a file");
}

// --- Ends

#[test]
fn a_signal_ends_a_recording_in_order() {
    let stage = Stage::new();
    let child = workload(16);
    for name in ["INT", "TERM", "HUP"] {
        let mut recorder = stage.start_isotherm(&format!("record -o {name} -w 500ms -p {}", child.pid()));
        recorder.until_it_says("into");
        wait(Duration::from_millis(1200));
        recorder.signal(name);
        recorder.end_within(Duration::from_secs(5)).ended(0).says("snapshots");
        let recording = Recording::open(stage.path(name)).unwrap();
        assert!(recording.len() >= 2 && recording.notes().is_empty(), "{} {:?}", recording.len(), recording.notes());
    }
}

#[test]
fn a_command_that_was_started_is_ended_with_the_recording() {
    let stage = Stage::new();
    for end in ["-d 1s", "-d 1h"] {
        fs::write(stage.path("script"), "echo $$ > pid; exec sleep 1000").unwrap();
        let mut recorder = stage.start_isotherm(&format!("record --overwrite {end} -- sh script"));
        recorder.until_it_says("into");
        if end == "-d 1h" {
            wait(Duration::from_secs(1));
            recorder.signal("TERM");
        }
        recorder.end_within(Duration::from_secs(10)).ended(0);
        let pid = read(&stage.path("pid"));
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "the command lives on");
    }
}

#[test]
fn a_command_that_will_not_end_does_not_hold_us() {
    let stage = Stage::new();
    fs::write(stage.path("script"), "trap '' TERM; echo $$ > pid; for i in $(seq 200); do sleep 0.1; done").unwrap();
    let recorder = stage.start_isotherm("record -d 1s -- sh script");
    // It has to be let go or killed, and said so; not to be waited for without an end.
    let ended = recorder.end_within(Duration::from_secs(15));
    let _ = Command::new("kill").args(["-KILL", read(&stage.path("pid")).trim()]).stderr(Stdio::null()).status();
    ended.ended(0);
}

#[test]
fn a_recorder_that_is_killed_loses_seconds_not_the_recording() {
    let stage = Stage::new();
    let child = workload(16);
    let mut recorder = stage.start_isotherm(&format!("record -o rec -w 250ms -p {}", child.pid()));
    recorder.until_it_says("into");
    wait(Duration::from_secs(5));
    let killed_at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    recorder.signal("KILL");
    assert_eq!(recorder.end().code, None, "killed");
    let recording = Recording::open(stage.path("rec")).unwrap();
    let last = recording.read_all().unwrap().last().expect("five seconds hold a snapshot").end_unix_ns;
    let lost = killed_at.saturating_sub(Duration::from_nanos(last));
    assert!(lost < Duration::from_secs(4), "lost {lost:?}");
    stage.isotherm("report wss rec").ended(0).says("isotherm: ").prints("working set");
}

#[test]
fn a_target_that_ends_ends_the_recording() {
    let stage = Stage::new();
    let child = workload(16);
    let mut recorder = stage.start_isotherm(&format!("record -w 500ms -d 1h -p {}", child.pid()));
    recorder.until_it_says("into");
    wait(Duration::from_secs(2));
    drop(child);
    recorder.end_within(Duration::from_secs(10)).ended(0);
    let snapshots = Recording::open(stage.path("heat.isotherm")).unwrap().read_all().unwrap();
    assert!(snapshots.last().unwrap().targets.iter().all(|t| t.exited), "its end is recorded");
    // The report is of when it was alive.
    let report = stage.json("report processes --json");
    assert!(report["report"]["processes"][0]["resident_bytes"].as_u64().unwrap() > 16 << 20, "{report}");
}

#[test]
fn a_target_that_executes_another_program_is_followed_into_it() {
    let stage = Stage::new();
    fs::write(stage.path("script"), "until [ -e go ]; do sleep 0.1; done; exec sleep 60").unwrap();
    let recorder = stage.start_isotherm("record --no-children -w 500ms -d 1h -- bash script");
    let is_recorded = |name: &str| {
        let has = |snapshots: &[Snapshot]| snapshots.iter().flat_map(|s| &s.targets).any(|t| t.comm == name);
        until_recorded(&stage, "heat.isotherm", name, has);
    };
    is_recorded("bash");
    fs::write(stage.path("go"), "").unwrap();
    is_recorded("sleep");
    recorder.signal("INT");
    recorder.end().ended(0);
    let recording = Recording::open(stage.path("heat.isotherm")).unwrap();
    let snapshots = recording.read_all().unwrap();
    let first = snapshots.iter().flat_map(|s| &s.targets).find(|t| t.comm == "bash").expect("bash was watched");
    let all = || snapshots.iter().flat_map(|s| &s.targets);
    let names: Vec<&str> = all().filter(|t| t.id == first.id).map(|t| t.comm.as_str()).collect();
    assert!(names.contains(&"sleep"), "one process, two programs: {names:?}");
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let stage = Stage::new();
    stage.isotherm("record -- no-such-command --flag").ended(1).says("start no-such-command");
    assert!(!stage.path("heat.isotherm").exists());
}

#[test]
fn a_short_command_is_recorded_and_so_is_its_end() {
    let stage = Stage::new();
    let began = Instant::now();
    stage.isotherm("record -- sleep 1").ended(0).says(" snapshot");
    assert!(began.elapsed() < Duration::from_secs(5));
    // Its end falls on the second at which processes are listed: it is seen then, or with the next window.
    let snapshots = Recording::open(stage.path("heat.isotherm")).unwrap().len();
    assert!((1..=2).contains(&snapshots), "{snapshots} snapshots");
}

#[test]
fn what_a_command_prints_is_not_mixed_with_a_report() {
    let stage = Stage::new();
    let json = stage.json("report processes --json -d 2s -- sleep 10");
    assert_eq!(json["report"]["processes"][0]["comm"], "sleep", "{json}");
}

#[test]
fn children_come_and_go_without_a_word() {
    let stage = Stage::new();
    // The short-lived ones come last: when the recording ends, the monitor has just seen some that were gone at once.
    let forks = "sleep 60 & echo $! > child; sh -c 'sleep 60 & echo $! > grandchild; wait' &
until [ -e go ]; do sleep 0.1; done
kill $(cat child grandchild); wait; for i in $(seq 1500); do /bin/true; done";
    fs::write(stage.path("forks"), forks).unwrap();
    let recorder = stage.start_isotherm("record -w 500ms -d 1h -- sh forks");
    until_seen(&stage, "heat.isotherm", &[pid_in(&stage, "child"), pid_in(&stage, "grandchild")]);
    fs::write(stage.path("go"), "").unwrap();
    let ran = recorder.end().ended(0);
    // That a child has ended before it could be looked at is no news.
    ran.never_says("has ended").never_says("is left out").never_says("gone");
}

#[test]
fn children_are_left_alone_if_asked() {
    let stage = Stage::new();
    let script = "sleep 60 & a=$!; sleep 60 & b=$!; trap 'kill $a $b' TERM; echo $a > a; echo $b > b; wait";
    fs::write(stage.path("script"), script).unwrap();
    let recorder = stage.start_isotherm("record -w 500ms -d 1h -o family -- sh script");
    until_seen(&stage, "family", &[pid_in(&stage, "a"), pid_in(&stage, "b")]);
    recorder.signal("INT");
    recorder.end().ended(0);
    stage.isotherm("record --no-children -d 3s -o alone -- sh script").ended(0);
    let count = |name| {
        let json = stage.json(&format!("report processes --json {name}"));
        json["report"]["processes"].as_array().unwrap().len()
    };
    assert_eq!((count("alone"), count("family")), (1, 3));
}

// --- Cgroups, and everything

/// A cgroup of our own, removed when dropped.
struct Cgroup {
    dir: std::path::PathBuf,
    name: String,
}

impl Cgroup {
    fn make(name: &str) -> Option<Cgroup> {
        let name = format!("isotherm-test-{name}-{}", std::process::id());
        let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let root = roots.into_iter().find(|r| Path::new(r).join("cgroup.procs").exists())?;
        let dir = Path::new(root).join(&name);
        fs::create_dir(&dir).ok()?;
        Some(Cgroup { dir, name })
    }

    fn add(&self, pid: u32) {
        let mut file = fs::OpenOptions::new().write(true).open(self.dir.join("cgroup.procs")).unwrap();
        file.write_all(pid.to_string().as_bytes()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Empty only when its processes are reaped.
        until(Duration::from_secs(5), || fs::remove_dir(&self.dir).is_ok());
    }
}

#[test]
fn a_cgroup_that_is_not_there_is_an_error_that_says_where_it_was_looked_for() {
    let stage = Stage::new();
    for path in ["/no/such/group", "no-such-group", "/sys/fs/cgroup/no-such-group"] {
        stage.isotherm(&format!("record -d 1s --cgroup {path}")).ended(1).says(path).says("looked in");
    }
    stage.isotherm("record -d 1s --cgroup ../../../etc").ended(1);
    assert!(!stage.path("heat.isotherm").exists());
}

#[test]
fn a_cgroup_is_watched_by_any_of_its_names_and_those_who_join_later_too() {
    let Some(cgroup) = Cgroup::make("join") else { return support::skip("to be allowed to make a cgroup") };
    let stage = Stage::new();
    let (early, late) = (workload(16), workload(16));
    cgroup.add(early.pid());
    let name = &cgroup.name;
    for (i, path) in [cgroup.dir.display().to_string(), name.clone(), format!("/{name}")].iter().enumerate() {
        stage.isotherm(&format!("record -o by{i} -d 1s --cgroup {path}")).ended(0);
        let json = stage.json(&format!("report cgroups by{i} --json"));
        let rows = json["report"]["cgroups"].as_array().unwrap();
        let row = rows.iter().find(|r| r["path"].as_str().unwrap().ends_with(name)).expect("a row for the cgroup");
        assert_eq!(row["processes"], 1, "{json}");
    }
    let mut recorder = stage.start_isotherm(&format!("record -w 500ms -d 1h --cgroup {name}"));
    recorder.until_it_says("into");
    until_seen(&stage, "heat.isotherm", &[early.pid()]);
    cgroup.add(late.pid());
    until_seen(&stage, "heat.isotherm", &[late.pid()]);
    recorder.signal("INT");
    recorder.end().ended(0);
    let processes = stage.json("report processes --json")["report"]["processes"].clone();
    assert_eq!(processes.as_array().unwrap().len(), 2, "{processes}");
}

#[test]
fn an_empty_cgroup_makes_an_empty_recording() {
    let Some(cgroup) = Cgroup::make("empty") else { return support::skip("to be allowed to make a cgroup") };
    let stage = Stage::new();
    stage.isotherm(&format!("record -d 1s --cgroup {}", cgroup.name)).ended(0);
    stage.isotherm("report wss").ended(1).says("nothing was watched");
}

#[test]
fn all_processes_are_watched_but_the_watcher() {
    let stage = Stage::new();
    let child = workload(16);
    let recorder = stage.start_isotherm("record --all -d 3s");
    let watcher = recorder.pid();
    recorder.end().ended(0);
    let json = stage.json("report processes --json");
    let pids: Vec<&Value> = json["report"]["processes"].as_array().unwrap().iter().map(|p| &p["pid"]).collect();
    assert!(pids.iter().any(|p| **p == child.pid()), "{pids:?} lacks {}", child.pid());
    assert!(pids.iter().all(|p| **p != watcher), "{pids:?} has the watcher {watcher}");
}

#[test]
fn a_target_that_is_stopped_is_idle_and_no_trouble() {
    let stage = Stage::new();
    let child = workload(16);
    signal(child.pid(), "STOP");
    stage.isotherm(&format!("record -d 2s -p {}", child.pid())).ended(0);
    signal(child.pid(), "CONT");
    let json = stage.json("report processes --json");
    // What it touched on its way into the stop may have been seen, once: a few pages of 16 MiB.
    let hot = json["report"]["processes"][0]["hot_bytes"].as_u64().unwrap();
    assert!(hot <= 64 << 10, "{json}");
}

/// What decides whether a change is good has to be right itself: a failure that it hid went unnoticed for a while.
#[test]
fn the_test_script_fails_when_a_test_does() {
    let stage = Stage::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test.sh");
    fs::create_dir_all(stage.path("scripts")).unwrap();
    fs::create_dir_all(stage.path("bin")).unwrap();
    fs::copy(script, stage.path("scripts/test.sh")).unwrap();
    let cargo = "#!/bin/bash
echo \"     Running tests/live.rs (target/x)\"; echo \"skipped: needs a moon\"
echo \"test a_story ... $result\"; [ $result = ok ] || exit 101
";
    fs::write(stage.path("bin/cargo"), cargo).unwrap();
    fs::set_permissions(stage.path("bin/cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |result: &str| stage.shell(&format!("result={result} PATH=$PWD/bin:$PATH bash scripts/test.sh"));
    run("ok").ended(0).prints("skipped tests: 1").prints("a moon");
    run("FAILED").ended(1).prints("test a_story ... FAILED");
}
