//! Names come from processes and files that anyone may have made. None of them moves the cursor, colours the screen or reorders
//! text.

mod support;

use isotherm_heat::{Cost, Granularity, Histogram, Interval, Mapping, Region, RunInfo, Snapshot, TargetHeat, TargetId};
use isotherm_record::{Options, Writer};
use isotherm_units::{Addr, AddrRange};
use isotherm_view::human::is_deceptive;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use support::{ISOTHERM, Ran, Stage};

/// Clears the screen in 7 and 8 bits, sets the title, reorders text, goes back.
const EVIL: &str = "x\x1b[2J\u{9b}2J\x1b]0;t\x07\u{202e}\u{2066}\x7f\r\u{85}y";

/// A recording in which every name is evil.
fn evil_recording(path: &Path) {
    let range = AddrRange::new(Addr(0x10_0000), Addr(0x50_0000));
    let region = Region {
        range,
        resident_pages: 1024,
        measured_pages: 1024,
        huge_pages: 0,
        interval: Interval::from_ns(40_000_000),
        rate_hz: 25.0,
        age_ns: 1,
        idle_ns: 1,
        sampled_pages: 0,
        estimated_pages: 0,
        hot_pages: None,
    };
    let mut heat = Histogram::default();
    heat.add(region.interval, 1024);
    let target = TargetHeat {
        id: TargetId { pid: 7, start_ticks: 1 },
        comm: EVIL.into(),
        cgroup: format!("/{EVIL}/{EVIL}"),
        exited: false,
        granularity: Granularity::Page,
        regions: vec![region],
        mappings: [Mapping { range, name: format!("/{EVIL}"), perms: "rw-p".parse().unwrap() }].into(),
        temperature: heat.clone(),
        idle: heat,
        counted_elsewhere_pages: 0,
        maybe_shared_pages: 0,
        unclearable_pages: 0,
        behind_huge: None,
        idle_by_mapping: Vec::new(),
        facts: Default::default(),
    };
    let run =
        RunInfo { source: EVIL.into(), source_note: EVIL.into(), command: vec![EVIL.into()], ..RunInfo::default() };
    let mut writer = Writer::create(path, &run, Options::default()).unwrap();
    let second = 1_000_000_000;
    for i in 0..3 {
        let (start_unix_ns, end_unix_ns) = (i * second, (i + 1) * second);
        let targets = vec![target.clone()];
        writer.push(&Snapshot { start_unix_ns, end_unix_ns, targets, cost: Cost::default() }).unwrap();
    }
    writer.finish().unwrap();
}

/// Checks that neither stream holds anything that a terminal acts on but line breaks.
#[track_caller]
fn assert_plain(ran: &Ran) {
    for (stream, text) in [("standard output", &ran.out), ("standard error", &ran.err)] {
        let found = text.chars().find(|c| *c != '\n' && is_deceptive(*c));
        assert!(found.is_none(), "{found:?} on {stream}: {text:?}");
    }
}

fn run(stage: &Stage, args: &[&str]) -> Ran {
    let mut command = Command::new(ISOTHERM);
    command.args(args);
    stage.start(command).end()
}

#[test]
fn reports_of_evil_names_are_plain_text() {
    let stage = Stage::new();
    evil_recording(&stage.path("rec"));
    for report in ["access", "wss", "histogram --per-process", "processes", "cgroups", "heatmap --color never"] {
        let ran = stage.isotherm(&format!("report {report} rec")).ended(0);
        assert!(!ran.out.is_empty());
        assert_plain(&ran);
        assert_plain(&stage.isotherm(&format!("report {report} --replay rec")).ended(0));
    }
    // With colours: no escape sequence but those that set them.
    let coloured = stage.isotherm("report heatmap --color always rec").ended(0);
    for sequence in coloured.out.split('\x1b').skip(1) {
        let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        assert!(sequence.starts_with('[') && sequence[end..].starts_with('m'), "{sequence:?}");
    }
    assert!(!coloured.out.chars().any(|c| !matches!(c, '\n' | '\x1b') && is_deceptive(c)), "{:?}", coloured.out);
}

#[test]
fn json_of_evil_names_is_plain_text_and_reads_back_to_them() {
    let stage = Stage::new();
    evil_recording(&stage.path("rec"));
    for report in ["access", "wss", "histogram --per-process", "processes", "cgroups"] {
        let ran = stage.isotherm(&format!("report {report} --json rec")).ended(0);
        assert_plain(&ran);
        assert_eq!(ran.json()["run"]["command"][0], Value::String(EVIL.into()));
    }
    let access = stage.json("report access --json rec");
    assert_eq!(access["report"]["targets"][0]["comm"], EVIL);
}

#[test]
fn names_of_fields_in_a_file_of_damo_are_written_out_in_messages() {
    let stage = Stage::new();
    let region = json!({"start": 4096, "end": 81920, "nr_accesses": {"samples": 3}, "age": {"usec": 9}});
    let snapshot = json!({"start_time": 1, "end_time": 100_000_001, "regions": [region]});
    let record =
        json!({"target_id": 5, "intervals": {"sample_us": 5000, "aggr_us": 100_000}, "snapshots": [snapshot], EVIL: 1});
    fs::write(stage.path("in.json"), json!([record]).to_string()).unwrap();
    let ran = run(&stage, &["report", "wss", "in.json"]).ended(0).says("\\x1b[2J\\u{9b}2J").says("\\u{202e}");
    assert_plain(&ran);
}

#[test]
fn what_errors_quote_is_written_out() {
    let stage = Stage::new();
    let settings = format!("[budgets]\nper_secnd = \"{}\"\n", EVIL.replace('\r', ""));
    fs::write(stage.path("c.toml"), &settings).unwrap();
    let ran = run(&stage, &["run", "-c", "c.toml"]).ended(1).says("\\x1b[2J").says("c.toml");
    assert_plain(&ran);
    assert!(ran.err.lines().count() > 1, "what is wrong is pointed at: {ran}");
    // A file name, also one that looks like a message of its own.
    let name = format!("{EVIL}\nisotherm: all is well");
    for args in [vec!["report", "wss", &name], vec!["convert", &name, "out"], vec!["run", "-c", &name]] {
        let ran = run(&stage, &args).ended(1).says("\\x1b[2J");
        assert_plain(&ran);
        assert!(ran.err.lines().filter(|line| line.starts_with("isotherm: ")).count() == 1, "{ran}");
    }
    if cfg!(feature = "model") {
        let ran = run(&stage, &["report", "wss", "--model", &name]).ended(1).says("\\x1b[2J");
        assert_plain(&ran);
    }
    let ran = run(&stage, &["report", &name]).ended(2).says("unrecognized subcommand");
    assert_plain(&ran);
    let ran = run(&stage, &["record", "-o", &format!("rec{EVIL}"), "--", "sleep", "2"]).ended(0).says("\\x1b[2J");
    assert_plain(&ran);
}
