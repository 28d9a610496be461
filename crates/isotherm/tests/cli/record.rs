//! `isotherm record`: whom it watches, where it writes, and how it ends.

use crate::need;
use crate::support::{Stage, installed, is_root, read, signal, until, wait, workload};
use crate::{until_recorded, until_seen};
use isotherm_heat::Snapshot;
use isotherm_record::Recording;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
    stage.isotherm("record -- sleep 2").ended(0);
}

#[test]
fn the_living_are_recorded_though_one_of_those_named_is_not_there() {
    let stage = Stage::new();
    let (child, gone) = (workload(16), nobody());
    stage.isotherm(&format!("record -d 1s -p {gone},{}", child.pid())).ended(0).says(&format!("process {gone}"));
    let report = stage.json("report processes --json");
    assert_eq!(report["report"]["processes"].as_array().unwrap().len(), 1, "{report}");
}

// --- Where recordings are written to

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
    stage.isotherm("record -- sleep 2").ended(0);
    stage.isotherm("record -- sleep 2").ended(1).says("overwrite");
    stage.isotherm("record --overwrite -- sleep 2").ended(0);
    // Nothing could be watched, so there is nothing to replace it with.
    let reported = || stage.isotherm("report processes --json").ended(0).out;
    let before = reported();
    stage.isotherm("record --overwrite -p 4194304").ended(1);
    stage.isotherm("record --overwrite -- no-such-command").ended(1);
    assert_eq!(reported(), before);
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

#[test]
fn a_disk_of_its_own_and_a_link_are_places_for_a_recording() {
    need!(is_root() && installed("unshare"), "root and unshare, to mount a disk");
    let stage = Stage::new();
    let child = workload(16);
    let record = format!("$isotherm record -w 500ms -d 2s -p {}", child.pid());
    let ran = stage.shell(&format!(
        "mkdir disk elsewhere elsewhere/rec && ln -s elsewhere/rec link && unshare -m bash -c 'mount -t tmpfs tmpfs disk || exit 77
         {record} -o disk && {record} -o link; code=$?; cp -r disk kept; exit $code'"
    ));
    need!(ran.code != Some(77), "to be allowed to mount a disk");
    ran.ended(0);
    for at in ["kept", "elsewhere/rec"] {
        stage.isotherm(&format!("report processes {at}")).ended(0).prints("RESIDENT");
    }
}

#[test]
fn a_failed_start_says_why_and_leaves_the_folder_of_its_user() {
    let stage = Stage::new();
    fs::create_dir(stage.path("mine")).unwrap();
    let gone = nobody();
    stage.isotherm(&format!("record -o mine -p {gone}")).ended(1).says(&format!("process {gone}"));
    assert_eq!(fs::read_dir(stage.path("mine")).unwrap().count(), 0);
    stage.isotherm(&format!("record -o ours -p {gone}")).ended(1);
    assert!(!stage.path("ours").exists());
}

// --- Ends

#[test]
fn a_signal_ends_a_recording_in_order() {
    let stage = Stage::new();
    let child = workload(16);
    for name in ["INT", "TERM", "HUP"] {
        let mut recorder = stage.start_isotherm(&format!("record -o {name} -w 500ms -p {}", child.pid()));
        recorder.until_it_says("into");
        wait(Duration::from_millis(2500));
        recorder.signal(name);
        recorder.end_within(Duration::from_secs(20)).ended(0).says("snapshots");
        let recording = Recording::open(stage.path(name)).unwrap();
        assert!(recording.len() >= 2 && recording.notes().is_empty(), "{} {:?}", recording.len(), recording.notes());
    }
}

#[test]
fn a_command_that_was_started_is_ended_with_the_recording() {
    let stage = Stage::new();
    for end in ["-d 3s", "-d 1h"] {
        fs::write(stage.path("script"), "echo $$ > pid.new; mv pid.new pid; exec sleep 1000").unwrap();
        let mut recorder = stage.start_isotherm(&format!("record --overwrite {end} -- sh script"));
        recorder.until_it_says("into");
        if end == "-d 1h" {
            assert!(until(Duration::from_secs(10), || stage.path("pid").exists()));
            recorder.signal("TERM");
        }
        recorder.end_within(Duration::from_secs(10)).ended(0);
        let pid = read(&stage.path("pid"));
        assert!(!pid.is_empty(), "the command has not run");
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "the command lives on");
        fs::remove_file(stage.path("pid")).unwrap();
    }
}

#[test]
fn a_command_that_will_not_end_does_not_hold_us() {
    let stage = Stage::new();
    fs::write(stage.path("script"), "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done").unwrap();
    let recorder = stage.start_isotherm("record -d 1s -- sh script");
    // It has to be let go or killed, and said so; not to be waited for without an end.
    let ended = recorder.end_within(Duration::from_secs(25));
    let _ = Command::new("kill").args(["-KILL", read(&stage.path("pid")).trim()]).stderr(Stdio::null()).status();
    ended.ended(0).says("is killed");
}

#[test]
fn a_command_that_saves_for_some_seconds_when_it_ends_may_do_so() {
    let stage = Stage::new();
    fs::write(stage.path("script"), "trap 'sleep 4; touch saved; exit' TERM; while :; do sleep 0.1; done").unwrap();
    stage.isotherm("record -d 2s -- sh script").ended(0).says("waiting up to 10 s for the command to end");
    assert!(stage.path("saved").exists());
}

#[test]
fn a_recorder_that_is_killed_loses_seconds_not_the_recording() {
    let stage = Stage::new();
    let child = workload(16);
    let mut recorder = stage.start_isotherm(&format!("record -o rec -w 250ms -p {}", child.pid()));
    recorder.until_it_says("into");
    wait(Duration::from_secs(10));
    let killed_at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    recorder.signal("KILL");
    assert_eq!(recorder.end().code, None, "killed");
    let recording = Recording::open(stage.path("rec")).unwrap();
    let last = recording.read_all().unwrap().last().expect("ten seconds hold a snapshot").end_unix_ns;
    let lost = killed_at.saturating_sub(Duration::from_nanos(last));
    assert!(lost < Duration::from_secs(8), "lost {lost:?}");
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
    assert!(began.elapsed() < Duration::from_secs(20));
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
    ran.never_says("has ended").never_says("is skipped").never_says("gone");
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
