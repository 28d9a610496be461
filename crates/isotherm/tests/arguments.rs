//! Arguments and file names that are not UTF-8: Linux allows any byte but 0 and `/`.

mod support;

use isotherm_record::Recording;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use support::{ISOTHERM, Ran, Stage};

/// `caf`, then an e with an acute accent in Latin-1.
const LATIN: &[u8] = b"caf\xe9";

fn isotherm(stage: &Stage, args: &[&[u8]]) -> Ran {
    let mut command = Command::new(ISOTHERM);
    command.args(args.iter().map(|arg| OsStr::from_bytes(arg)));
    stage.start(command).end()
}

#[test]
fn a_command_gets_arguments_that_are_not_utf_8_as_they_are() {
    let stage = Stage::new();
    let script = b"printf %s \"$1\" > got; sleep 1";
    isotherm(&stage, &[b"record", b"-o", b"rec", b"--", b"sh", b"-c", script, b"sh", LATIN]).ended(0);
    assert_eq!(fs::read(stage.path("got")).unwrap(), LATIN);
    let recording = Recording::open(stage.path("rec")).unwrap();
    assert_eq!(recording.run().command.last().unwrap(), "caf\u{fffd}");
}

#[test]
fn files_whose_names_are_not_utf_8_are_written_and_read() {
    let stage = Stage::new();
    let damo = r#"[{"target_id": 5, "intervals": {"sample_us": 5000, "aggr_us": 100000}, "snapshots": [{"start_time": 1,
        "end_time": 100000001, "regions": [{"start": 4096, "end": 81920, "nr_accesses": {"samples": 3}, "age": {"usec": 9}}]}]}]"#;
    fs::write(stage.path("in.json"), damo).unwrap();
    let picture = [LATIN, b".html"].concat();
    isotherm(&stage, &[b"convert", b"in.json", LATIN]).ended(0);
    isotherm(&stage, &[b"report", b"heatmap", LATIN, b"-o", &picture]).ended(0);
    assert!(stage.path("").join(OsStr::from_bytes(&picture)).is_file());
    isotherm(&stage, &[b"report", b"wss", b"-d", b"1s", b"--replay", LATIN]).ended(0);
    isotherm(&stage, &[b"report", b"wss", b"no\xff"]).ended(1).says("check the name");
}
