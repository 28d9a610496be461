//! The command of `--work`: slow, endless or wrong, it neither delays nor ends what it is for, and it leaves nothing behind.

mod support;

use std::path::Path;
use std::time::Duration;
use support::{Running, SOON, Stage, read, sees_pages, until, workload};

const LONG: Duration = Duration::from_secs(30);
const NEEDS: &str = "the page-table source";

/// A file with the id of a process.
fn runs(file: &Path) -> bool {
    let stat = read(&Path::new("/proc").join(read(file).trim()).join("stat"));
    !read(file).trim().is_empty() && !stat.is_empty() && !stat.contains(") Z ")
}

fn start(stage: &Stage, pid: u32, script: &str) -> Running {
    std::fs::write(stage.path("work.sh"), script).unwrap();
    let mut running = stage.start_isotherm(&format!("run -n --socket s.sock -w 200ms --work work.sh -p {pid}"));
    running.until_it_says("status at");
    running
}

/// A stage in which `work.sh` is found as a command.
fn stage() -> Stage {
    let stage = Stage::new();
    let path = std::env::var("PATH").unwrap_or_default();
    let here = stage.path("").display().to_string();
    stage.with_env("PATH", &format!("{here}:{path}"))
}

fn script(lines: &str) -> String {
    format!("#!/bin/sh\n{lines}\n")
}

/// Makes `work.sh` something that can be run.
fn allow(stage: &Stage) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(stage.path("work.sh"), "").unwrap();
    std::fs::set_permissions(stage.path("work.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_slow_command_delays_neither_watching_nor_the_end() {
    need!(sees_pages(), NEEDS);
    let (stage, child) = (stage(), workload(16));
    allow(&stage);
    let run = start(&stage, child.pid(), &script("sleep 600 & echo $! > sleep\necho $$ > shell\nwait"));
    assert!(until(LONG, || runs(&stage.path("sleep"))), "{}", run.err());
    // While it runs, windows go on: nothing is checked before the first one.
    let looked = || stage.json("status --json --socket s.sock")["targets"][0]["huge_bytes"].is_u64();
    assert!(until(LONG, looked), "{}", run.err());
    assert!(runs(&stage.path("sleep")), "not within five seconds: this machine is too slow\n{}", run.err());
    run.signal("TERM");
    run.end_within(SOON).ended(0).never_says("longer than");
    assert!(!runs(&stage.path("sleep")) && !runs(&stage.path("shell")), "it outlives us");
}

#[test]
fn a_command_that_hangs_is_stopped_and_the_run_goes_on() {
    need!(sees_pages(), NEEDS);
    let (stage, child) = (stage(), workload(16));
    allow(&stage);
    let mut run = start(&stage, child.pid(), &script("sleep 600 & echo $! > sleep\nyes"));
    run.until_it_says("took longer than 5s and was stopped");
    assert!(until(SOON, || !runs(&stage.path("sleep"))), "it goes on");
    assert!(!run.has_ended(), "{}", run.err());
    stage.json("status --json --socket s.sock");
    run.signal("TERM");
    let ran = run.end_within(SOON).ended(0);
    assert_eq!(ran.err.matches("CPU per unit of work").count(), 1, "{ran}");
}

#[test]
fn a_command_that_fails_is_reported_by_a_run_and_ends_a_collapse() {
    need!(sees_pages(), NEEDS);
    let (stage, child) = (stage(), workload(16));
    allow(&stage);
    let mut run = start(&stage, child.pid(), &script("echo because >&2; exit 3"));
    run.until_it_says("CPU per unit of work is no longer measured");
    run.until_it_says("because");
    assert!(!until(Duration::from_secs(1), || run.has_ended()), "{}", run.err());
    run.signal("TERM");
    run.end_within(SOON).ended(0);
    let collapse = stage.isotherm(&format!("collapse -d 1s --work work.sh -p {}", child.pid()));
    collapse.ended(1).says("exit status: 3").says("because");
}

#[test]
fn a_command_has_the_limit_on_descriptors_that_its_user_has_and_its_words_are_written_out() {
    need!(sees_pages(), NEEDS);
    let (stage, child) = (stage(), workload(16));
    allow(&stage);
    let lines = script("ulimit -n > limit; printf 'boo\\033[2Jo' >&2; exit 3");
    std::fs::write(stage.path("work.sh"), lines).unwrap();
    let run =
        format!("ulimit -Sn 500; exec $isotherm run -n --socket s.sock -w 200ms --work work.sh -p {}", child.pid());
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &run]);
    let mut run = stage.start(command);
    run.until_it_says("boo");
    assert!(run.err().contains("boo\\x1b[2Jo") && !run.err().contains('\u{1b}'), "{}", run.err());
    assert_eq!(read(&stage.path("limit")).trim(), "500");
}
