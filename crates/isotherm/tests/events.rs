//! Sampled accesses from the command line: events found, tried, recorded, refused.

mod support;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use support::{
    AS_NOBODY, ISOTHERM, Stage, faulting_workload_by, installed, is_root, open_stage, read, sees_pages, workload,
};

fn faulting() -> isotherm_workload::Child {
    faulting_workload_by(Command::new(ISOTHERM), 16)
}

/// Whether page faults of processes of our own can be sampled.
fn may_sample() -> bool {
    state_of(&Stage::new(), "faults") == "works"
}

fn state_of(stage: &Stage, event: &str) -> String {
    let listed = stage.json("doctor --events --json");
    let found = listed.as_array().unwrap().iter().find(|e| e["name"] == event).cloned();
    found.unwrap_or_else(|| panic!("{event} is not in {listed}"))["state"].as_str().unwrap().to_owned()
}

fn number(json: &Value, key: &str) -> f64 {
    json[key].as_f64().unwrap_or_else(|| panic!("no {key} in {json}"))
}

#[test]
fn events_are_listed_with_what_this_machine_has_of_them() {
    let stage = Stage::new();
    let listed = stage.json("events list --json");
    for event in listed.as_array().unwrap() {
        let state = event["state"].as_str().unwrap();
        assert!(["works", "opens", "absent", "refused", "not decoded"].contains(&state), "{event}");
        assert!(!event["detail"].as_str().unwrap().is_empty(), "{event}");
    }
    for name in ["mem-loads", "mem-stores", "stlb-loads", "ibs-op", "spe", "faults"] {
        state_of(&stage, name);
    }
    stage.isotherm("doctor --events").ended(0).prints("mem-loads").prints("isotherm events try");
}

#[test]
fn an_event_is_tried_on_a_running_process() {
    need!(may_sample(), "perf events");
    let (stage, child) = (Stage::new(), faulting());
    let tried = stage.json(&format!("events try faults -p {} -d 3s --json", child.pid()));
    assert_eq!(tried["verdict"], "useful", "{tried}");
    assert!(number(&tried, "in_mappings_pct") > 90.0, "{tried}");
    assert!(number(&tried, "samples_per_s") > 500.0 && number(&tried, "events_per_s") > 500.0, "{tried}");
    assert_eq!(number(&tried, "processes"), 1.0, "{tried}");
    stage.isotherm(&format!("events try faults -p {} -d 1s", child.pid())).ended(0).prints("verdict    ");
    // The clock of the task is counted and sampled, and is no access.
    let ran = stage.isotherm(&format!("events try raw:1:1 -p {} -d 4s --json", child.pid())).ended(0);
    assert_eq!(ran.json()["verdict"], "no-addresses", "{ran}");
    ran.says("is of no use here: its samples carry no address");
}

#[test]
fn a_command_is_tried_from_its_beginning() {
    need!(may_sample(), "perf events");
    let stage = Stage::new();
    // All of it is written within milliseconds, long before a list of processes is made for the second time. It does not end then: how
    // soon the first list is made depends on how busy the machine is.
    fs::write(stage.path("script"), "printf -v text '%8388608s' text; sleep 20 & wait").unwrap();
    let tried = stage.json("events try faults -d 3s --max-slowdown 200 --json -- bash script");
    assert!(number(&tried, "pages") > 2000.0, "8 MiB were written to: {tried}");
}

#[test]
fn a_program_that_executes_another_is_tried_on() {
    need!(may_sample(), "perf events");
    let stage = Stage::new();
    // It faults pages of one mapping, and ends with its input. Mappings of a shell come and go, and listings with them.
    let pattern = r#"{"pages":4096,"hot_pages":409,"layout":"mixed","interval_ns":40000000,"huge":false,"shared":null,"faults":true,"seed":11}"#;
    fs::write(stage.path("script"), format!("sleep 1; exec {ISOTHERM} demo-workload '{pattern}' < <(exec sleep 20)"))
        .unwrap();
    let tried = stage.json("events try faults -d 8s --max-slowdown 200 --json -- bash script");
    assert_eq!(tried["verdict"], "useful", "{tried}");
    // Those of the script are a few hundred.
    assert!(number(&tried, "samples_per_s") > 500.0 && number(&tried, "in_mappings_pct") > 90.0, "{tried}");
}

#[test]
fn samples_are_recorded_and_reported() {
    need!(may_sample(), "perf events");
    let (stage, child) = (Stage::new(), faulting());
    let ran = stage.isotherm(&format!("record -d 4s --source perf -p {}", child.pid())).ended(0);
    let ran = ran.says("sampled accesses: ").says("samples");
    // Why not something better, if nothing was said.
    if !ran.err.contains("mem-loads (") && !ran.err.contains("ibs-op (") {
        ran.says("faults (page faults").says("no event of the processor samples memory accesses here");
    }
    let report = stage.json("report access --json");
    let cost = &report["report"]["cost"];
    assert!(number(cost, "samples") > 1000.0, "{report}");
    let regions = report["report"]["targets"][0]["regions"].as_array().unwrap();
    assert!(regions.iter().any(|r| number(r, "sampled_bytes") > 0.0), "{report}");
}

#[test]
fn page_tables_may_have_samples_beside_them() {
    need!(may_sample() && sees_pages(), "the page-table source and perf events");
    let (stage, child) = (Stage::new(), faulting());
    let ran = stage.isotherm(&format!("record -d 4s --event faults -p {}", child.pid())).ended(0);
    ran.says("accessed bits page by page").says("sampled accesses: faults");
    let report = stage.json("report processes --json");
    let row = &report["report"]["processes"][0];
    assert!(number(row, "hot_bytes") > 1e6, "a tenth of 16 MiB is hot: {report}");
    // The same where all regions are taken and not those of a snapshot.
    let all = format!("report access -d 4s --source page-table --event faults --hottest 50 --json -p {}", child.pid());
    let report = stage.json(&all);
    let regions = report["report"]["targets"][0]["regions"].as_array().unwrap();
    assert!(regions.iter().any(|r| number(r, "sampled_bytes") > 0.0), "{report}");
}

#[test]
fn what_auto_chooses_is_said_with_the_reason() {
    let (stage, child) = (Stage::new(), workload(16));
    let ran = stage.isotherm(&format!("record -d 1s --source auto -p {}", child.pid())).ended(0);
    let has_samples = ran.err.contains("sampled accesses: ");
    if !has_samples {
        ran.says("no event of the processor samples memory accesses here");
    }
}

#[test]
fn events_that_make_no_sense_are_refused_by_name() {
    let (stage, child) = (Stage::new(), workload(16));
    let pid = child.pid();
    for (args, code, hint) in [
        ("events try tea-leaves", 1, "tea-leaves"),
        ("events try nosuch/event=1/", 1, "nosuch"),
        ("events try raw:1", 1, "raw:1"),
        ("record -d 1s --source perf --event faults,raw:1:1", 1, "not alike"),
        ("record -d 1s --source perf --event raw:4294967295:0", 1, "event 4294967295:0x0"),
        ("record -d 1s --source perf --perf-event 1000", 2, "FREQ PHYS TYPE CONFIG"),
        ("record -d 1s --source perf --event ,", 2, "names no event"),
        ("record -d 1s --source referenced --event faults", 2, "--source perf"),
        ("record -d 1s --clear cold --event faults", 2, "--clear"),
        ("record -d 1s --source perf --sample-period 0", 2, "sample-period"),
        ("record -d 1s --source perf --sample-period 5 --sample-frequency 5", 2, "cannot be used with"),
        ("record -d 1s --source perf-paddr", 2, "name no targets"),
        ("record -d 1s --source perf --perf-event 1000,1,1,5,0,0", 2, "FREQ PHYS TYPE CONFIG"),
    ] {
        stage.isotherm(&format!("{args} -p {pid}")).ended(code).says(hint);
    }
    stage.isotherm("events try faults").ended(2).says("-p PID");
    // Numbers are one word to the shell.
    let raw =
        |source: &str, phys: u8| format!("$isotherm record -d 1s {source} --perf-event '1000 {phys} 1 5 0 0' -p {pid}");
    stage.shell(&raw("--source perf", 1)).ended(2).says("name no targets");
    stage.shell(&raw("--source page-table", 1)).ended(2);
}

#[test]
fn without_privilege_ones_own_faults_are_told_but_for_those_in_system_calls() {
    need!(is_root() && installed("setpriv"), "root and setpriv, to become nobody");
    let paranoid = read(Path::new("/proc/sys/kernel/perf_event_paranoid"));
    let paranoid: i32 = paranoid.trim().parse().unwrap_or(2);
    need!(paranoid == 2, "kernel.perf_event_paranoid of 2");
    let (stage, isotherm) = open_stage();
    let ran = stage
        .shell(&format!("{AS_NOBODY} {isotherm} record --source perf -d 2s -- dd if=/dev/zero of=/dev/null bs=8M"));
    ran.ended(0).says("which take CAP_PERFMON");
    // The machine as a whole is not theirs.
    let ran = stage.shell(&format!("{AS_NOBODY} {isotherm} record -o all --source perf -d 1s --all")).ended(1);
    ran.says("CAP_PERFMON").says("perf_event_paranoid");
    let ran = stage.shell(&format!("{AS_NOBODY} {isotherm} record -o phys --source perf-paddr -d 1s")).ended(1);
    ran.says("run as root");
}

#[test]
fn a_kernel_that_allows_no_events_is_told_by_its_setting() {
    need!(
        std::env::var_os("ISOTHERM_LAB").is_some(),
        "the lab (ISOTHERM_LAB=1): it changes kernel.perf_event_paranoid"
    );
    need!(is_root() && installed("setpriv"), "root and setpriv, to become nobody");
    let setting = Path::new("/proc/sys/kernel/perf_event_paranoid");
    let before = read(setting);
    fs::write(setting, "3").unwrap();
    let (stage, isotherm) = open_stage();
    let ran = stage.shell(&format!("{AS_NOBODY} {isotherm} record --source perf -d 1s -- sleep 5"));
    fs::write(setting, before.trim()).unwrap();
    ran.ended(1).says("kernel.perf_event_paranoid").says("3").says("CAP_PERFMON");
}
