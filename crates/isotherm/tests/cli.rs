//! Bad input and bad luck: what `isotherm` says, how it exits, and what it leaves behind.
//!
//! By command: what is recorded ([`record`], of whole cgroups [`cgroups`]), what is reported of it ([`report`]), and what a fleet keeps
//! ([`rollup`]); here is wrong usage
//! and the rest. One binary, for linking each takes longer than most of its tests.

#[path = "cli/cgroups.rs"]
mod cgroups;
#[path = "cli/record.rs"]
mod record;
#[path = "cli/report.rs"]
mod report;
#[path = "cli/rollup.rs"]
mod rollup;
mod support;

use isotherm_heat::Snapshot;
use isotherm_record::Recording;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use support::{Stage, until, wait, workload};

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
        ("record -p 1 --source referenced --mode sampled", "--mode is for the page-table source"),
        ("record -p 1 --source damon --sample-interval 1s", "--sample-interval is for the page-table source"),
        ("report wss -p 1 --source perf --max-region 1GiB", "--max-region is for the page-table source"),
        ("report access rec --min-size much", "64MiB"),
        ("report processes rec --hot 10s --warm 1s", "grow in this order"),
        ("report wss rec -p 1", "cannot be used with"),
        ("report heatmap rec -o map.gif", ".png or .html"),
        ("report heatmap rec -o map", ".png or .html"),
        ("demo -o map.gif", ".png or .html"),
        ("demo --busy --huge", "cannot be used with"),
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
    for busy in ["", "--busy"] {
        stage.isotherm(&format!("demo --size 900TiB {busy}")).ended(1).says("does not fit").says("a smaller --size");
    }
    // Slabs of all classes of every thread: 4 MiB each.
    let threads = std::thread::available_parallelism().unwrap().get();
    if threads > 4 {
        stage.isotherm("demo --size 16MiB --busy").ended(1).says(&format!("{threads} threads")).says("or more");
    }
}

// --- Commands that watch nothing, and one that needs a terminal

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
fn top_without_a_terminal_says_so() {
    let stage = Stage::new();
    let child = workload(16);
    let ran = stage.isotherm(&format!("top -p {}", child.pid())).ended(1).says("terminal");
    assert_eq!(ran.out, "", "nothing is drawn into a file");
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
echo \"test others ... skipped: needs a sun\"; echo ok
echo \"test a_story ... $result\"; [ $result = ok ] || exit 101
";
    fs::write(stage.path("bin/cargo"), cargo).unwrap();
    fs::set_permissions(stage.path("bin/cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |result: &str| stage.shell(&format!("result={result} PATH=$PWD/bin:$PATH bash scripts/test.sh"));
    run("ok").ended(0).prints("skipped tests: 2").prints("a moon").prints("needs a sun\n");
    run("FAILED").ended(1).prints("test a_story ... FAILED");
}
