//! `isotherm report`: what it reads, who reads it, and the terminals it is shown on.

use crate::need;
use crate::support::{ISOTHERM, Ran, Stage, installed, sees_pages, workload};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const REPORTS: [&str; 8] = ["access", "heatmap", "wss", "histogram", "processes", "cgroups", "cold", "refaults"];

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

// --- Where pictures are written to

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
fn a_report_of_a_recording_refuses_what_is_for_watching_and_a_picture_what_is_for_programs() {
    let stage = Stage::new();
    stage.small_recording("heat.isotherm");
    stage.isotherm("report wss -d 30s").ended(2).says("what to watch");
    stage.isotherm("report wss").ended(0);
    stage.isotherm("report heatmap --json -o map.html").ended(2).says("--json");
    let all = stage.json("report heatmap --json");
    let pid = all[0]["targets"][0]["id"]["pid"].as_u64().unwrap();
    let only = stage.json(&format!("report heatmap --json --only {pid}"));
    let pids = |json: &serde_json::Value| -> Vec<u64> {
        json.as_array()
            .unwrap()
            .iter()
            .flat_map(|s| s["targets"].as_array().unwrap())
            .map(|t| t["id"]["pid"].as_u64().unwrap())
            .collect()
    };
    assert!(pids(&only).iter().all(|found| *found == pid) && !pids(&only).is_empty(), "{:?}", pids(&all));
    stage.isotherm(&format!("report heatmap --only {pid} -o map.html")).ended(0);
}

#[test]
fn a_replay_is_reported_to_its_end_or_for_as_long_as_was_said() {
    let stage = Stage::new();
    stage.small_recording("rec");
    let seen_ns = |options: &str| -> u64 {
        let json = stage.json(&format!("report heatmap --json --replay rec {options}"));
        let windows = json.as_array().unwrap().iter();
        let length = |window: &serde_json::Value| {
            window["end_unix_ns"].as_u64().unwrap() - window["start_unix_ns"].as_u64().unwrap()
        };
        windows.map(length).sum()
    };
    let (whole, half) = (seen_ns(""), seen_ns("-d 1s"));
    assert!((900_000_000..=1_100_000_000).contains(&half), "{half} ns of {whole}");
    assert!(whole > 1_400_000_000, "{whole} ns");
}

#[test]
fn nothing_is_watched_for_a_picture_that_cannot_be_written() {
    let stage = Stage::new();
    stage.isotherm("report heatmap -o no/such/map.png -- touch started").ended(1).says("create no/such/map.png");
    assert!(!stage.path("started").exists());
    stage.isotherm("demo -o no/such/map.png").ended(1).says("create no/such/map.png").never_says("workload");
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_watched() {
    let stage = Stage::new();
    stage.small_recording("rec");
    let twice = "leave one of them out";
    stage.refuses([
        ("report wss rec --replay other", 2, twice),
        ("report wss rec --source damon-paddr", 2, twice),
        ("collapse --source referenced -d 1h -- touch started", 2, "which pages are hot"),
        ("collapse --from rec -w 5s", 2, "--window is for watching"),
        ("serve --input rec --max-regions 50", 2, "--max-regions is for watching"),
        ("hint -p 812", 2, "START-END"),
        ("hint -p 812 nonsense", 2, "nonsense"),
        ("migrate -p 1 --promote-only --replay rec", 2, "migrate: "),
        ("convert rec no/such/place", 1, "no/such/place"),
    ]);
    assert!(!stage.path("started").exists());
}

// --- Readers that go away, and programs that read

#[test]
fn what_a_watched_command_prints_is_not_in_the_report() {
    need!(sees_pages(), "the page-table source");
    let stage = Stage::new();
    let script = "$isotherm report wss -d 2s --json -- sh -c 'echo of the command; exec sleep 9'";
    let ran = stage.shell(script).ended(0).says("of the command");
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["report"]["targets"].as_array().unwrap().len(), 1, "{json}");
    let script = "$isotherm run -n -d 2s --json --socket s.sock -- sh -c 'echo of the command; exec sleep 9'";
    let ran = stage.shell(script).ended(0).says("of the command");
    serde_json::from_str::<serde_json::Value>(&ran.out).unwrap();
}

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
        ("cold", &["end_unix_ns", "watched_ns", "by", "rows", "total", "cost"]),
        ("refaults", &["max_pct", "targets", "total", "not_counted", "cost"]),
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
    let region = &snapshots[2]["targets"][0]["regions"][0];
    assert!(region["hot_pages"].as_u64() <= region["measured_pages"].as_u64(), "{region}");
    assert!(region["hot_pages"].is_u64(), "{region}");
}

#[test]
fn what_a_report_cost_and_what_it_was_made_with_are_said_once() {
    let stage = Stage::new();
    stage.small_recording("rec");
    for report in REPORTS {
        let ran = stage.isotherm(&format!("report {report} rec")).ended(0);
        assert_eq!(ran.out.matches("cost over").count(), 1, "{ran}");
        assert_eq!(ran.out.matches("\nsource: ").count(), 1, "{ran}");
    }
}

// --- What a process leaves alone

#[test]
fn cold_memory_is_found_by_mapping_with_what_would_come_back() {
    need!(sees_pages(), "the page-table source");
    const MIB: u64 = 1 << 20;
    let (child, stage) = (workload(64), Stage::new());
    stage.isotherm(&format!("record -p {} -d 17s --window 1s --max-cpu 10", child.pid())).ended(0);
    let cold = stage.json("report cold --json")["report"].clone();
    // A tenth of the 64 MiB is accessed every 40 ms; watched for 17 s, nothing is idle for a minute.
    let idle = |row: &serde_json::Value| (row["idle"][0]["bytes"].as_u64(), row["idle"][1]["bytes"].as_u64());
    let (ten_s, minute) = idle(&cold["rows"][0]);
    let hot = 6 * MIB;
    let most = cold["rows"][0]["resident_bytes"].as_u64().unwrap() - hot;
    assert!((55 * MIB..most).contains(&ten_s.unwrap()) && minute.is_none(), "{cold}");
    let mappings = stage.json("report cold --by mapping --json")["report"]["rows"].clone();
    assert!(idle(&mappings[0]).0 > Some(55 * MIB) && mappings[0]["start"].is_u64(), "{mappings}");
    let refaults = stage.json("report refaults --json")["report"]["targets"][0].clone();
    assert_eq!(
        (&refaults["ages"][0]["age_ns"], refaults["ages"].as_array().unwrap().len()),
        (&10_000_000_000_u64.into(), 1)
    );
    assert_eq!(refaults["ages"][0]["idle_bytes"].as_u64(), ten_s);
    // What is hot never counts as idle, so next to nothing would come back.
    assert!(refaults["ages"][0]["refaults_per_min"].as_f64() < Some(500.0), "{refaults}");
    let text = stage.isotherm("report cold --by cgroup").ended(0);
    text.prints("10 S").prints("watch longer than that");
    stage.isotherm("report refaults").ended(0).prints("watch for 20 s or longer");
}

// --- Terminals

/// Runs a line of shell on a terminal of its own.
fn on_a_terminal(stage: &Stage, script: &str) -> Ran {
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
fn a_heat_map_shows_what_was_asked_for_and_says_which() {
    let stage = Stage::new();
    stage.small_recording("rec");
    let shown = [
        (
            "",
            0,
            ". none 1 0.1% 4 1% 7 10% 9 100% ? unmeasured\nshare of each cell that is hot: accessed at least every 1 s\n",
        ),
        (" --show share", 0, "share of each cell that is hot"),
        (" --show interval", 1, "9 8 ms ? unmeasured\nmean access interval of each cell\n"),
        (" --show idle", 2, "8 1 s 9 < 1 s ? unmeasured\neach cell has been idle for at least so long"),
    ];
    for (option, index, legend) in shown {
        let mut ran = stage.isotherm(&format!("report heatmap rec --ascii{option}")).ended(0);
        // On a slow host cells may be estimated, and the last line says so at its end.
        ran.out = ran.out.replace("; ~ and a to j where it is estimated\n", "\n");
        ran.prints(legend);
        stage.isotherm(&format!("report heatmap rec -o map.html{option}")).ended(0);
        let page = fs::read_to_string(stage.path("map.html")).unwrap();
        assert!(page.contains(&format!("\"scale\":{index},")), "{option}");
    }
    stage.isotherm("report heatmap rec --show heat").ended(2).says("share, interval, idle");
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
