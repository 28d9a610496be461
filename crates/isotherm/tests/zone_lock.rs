//! `isotherm zone-lock` on this kernel: drains are observed, two CPUs are no herd, what is missing is named. The lab's guest
//! 6.12-cpus has eight CPUs, on which memory is allocated and freed meanwhile.

mod support;

use isotherm_sys::memory::{Memory, PageSize};
use serde_json::Value;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{AS_NOBODY, Stage, installed, is_root, open_stage, skip};

/// Those that nobody ends do so by themselves.
const PRESSURE_FOR: Duration = Duration::from_secs(150);
/// Tells [`allocates_and_frees`] that it is one of those processes, with how many MiB at a time, how long a pause after, in ms, and
/// for how many of every four seconds.
const CHILD: &str = "ISOTHERM_HERD_CHILD";

/// What `isotherm doctor` says of it: present, and a few words.
fn doctored(stage: &Stage) -> (bool, String) {
    let report = stage.json("doctor --json");
    let findings = report["findings"].as_array().unwrap();
    let found =
        findings.iter().find(|f| f["name"] == "zone-lock").unwrap_or_else(|| panic!("no zone-lock in {report}"));
    (found["state"] == "present", found["detail"].as_str().unwrap().to_owned())
}

fn number(json: &Value, key: &str) -> u64 {
    json[key].as_u64().unwrap_or_else(|| panic!("no {key} in {json}"))
}

/// What has to be so of any report, whatever the kernel did.
fn is_consistent(report: &Value) {
    let marks = report["marks"].as_array().unwrap();
    assert_eq!(marks.len() as u64, number(report, "runs"), "{report}");
    let cpus = report["cpus"].as_array().unwrap();
    assert_eq!(cpus.len() as u64, number(report, "cpus_seen"), "{report}");
    assert_eq!(cpus.iter().map(|c| number(c, "runs")).sum::<u64>(), number(report, "runs"), "{report}");
    assert!(marks.iter().all(|m| number(m, "phase_ns") < number(report, "interval_ns")), "{report}");
    let waits = &report["contention"];
    let all = number(&waits["all"], "count");
    let parts = ["housekeeping", "beside", "foreground"].map(|part| number(&waits[part], "count"));
    assert_eq!(parts.iter().sum::<u64>(), all, "{report}");
    let by_caller = waits["by_caller"].as_array().unwrap().iter().map(|row| number(&row["waits"], "count"));
    assert_eq!(by_caller.sum::<u64>(), all, "{report}");
    assert!(number(waits, "spins") >= all, "{report}");
}

#[test]
fn housekeeping_is_seen_and_few_cpus_are_no_herd() {
    let stage = Stage::new();
    let (works, why) = doctored(&stage);
    need!(works, &why);
    // Something to fold on every CPU: counters change where memory is taken and given back.
    let busy = Pressure::start(1, 4, 10, 4);
    let report = stage.json("zone-lock -d 5s --json");
    drop(busy);
    is_consistent(&report);
    assert!(number(&report, "period_ns") >= 5_000_000_000, "{report}");
    if number(&report, "interval_ns") > 1_000_000_000 {
        return skip("vm.stat_interval of a second");
    }
    assert!(number(&report, "runs") >= 2, "{report}");
    assert!(report["hz"].as_u64().is_some_and(|hz| (24..=1200).contains(&hz)), "{report}");
    if number(&report, "cpus_online") <= 2 {
        assert_eq!(report["verdict"]["kind"], "no-herd", "{report}");
        stage.isotherm("herd -d 3s --ascii --width 72").ended(0).prints("verdict: no contention");
    }
}

#[test]
fn ended_early_it_tells_what_it_saw() {
    let stage = Stage::new();
    let (works, why) = doctored(&stage);
    need!(works, &why);
    let running = stage.start_isotherm("zone-lock -d 1h --json");
    std::thread::sleep(Duration::from_secs(3));
    running.signal("INT");
    let report = running.end().ended(0).json();
    is_consistent(&report);
    assert!(number(&report, "period_ns") < 60_000_000_000, "{report}");
}

#[test]
fn what_is_missing_is_named() {
    need!(is_root() && installed("setpriv"), "root and setpriv");
    let (stage, copy) = open_stage();
    stage.shell(&format!("{AS_NOBODY} {copy} zone-lock -d 1s")).ended(1).says("CAP_SYSLOG");
    // With sight of the kernel's symbols, and still without BPF.
    let without = "setpriv --bounding-set=-bpf,-perfmon,-sys_admin --inh-caps=-all";
    if stage.shell(&format!("{without} true")).code != Some(0) {
        return skip("a setpriv that knows CAP_BPF");
    }
    stage.shell(&format!("{without} {copy} zone-lock -d 1s")).ended(1).says("CAP_BPF and CAP_PERFMON");
}

#[test]
fn wrong_arguments_are_refused() {
    let stage = Stage::new();
    for wrong in ["zone-lock -d 0s", "zone-lock --width 5", "zone-lock -d soon", "zone-lock -p 1"] {
        stage.isotherm(wrong).ended(2);
    }
}

/// Phases of eight CPUs, drawn, while all of them allocate and free: a little all the time; now and then, so that the shepherd finds
/// them all idle and starts them together; and as much as they can.
#[test]
fn under_memory_pressure_the_phases_of_all_cpus_are_seen() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    need!(std::env::var_os("ISOTHERM_LAB").is_some() && cpus >= 4, "a guest of the lab with 4 CPUs or more");
    let stage = Stage::new();
    let (works, why) = doctored(&stage);
    need!(works, &why);
    let steady = Pressure::start(cpus, 1, 50, 4);
    show(&stage, "a little all the time", "zone-lock -d 10s --width 110");
    let report = stage.json("zone-lock -d 6s --json");
    drop(steady);
    is_consistent(&report);
    let online = cpus as u64;
    assert_eq!(number(&report, "cpus_online"), online);
    let seen = report["cpus"].as_array().unwrap().iter().filter(|c| number(c, "runs") >= 3).count() as u64;
    assert!(seen >= online / 2, "{seen} of {online} CPUs ran three times or more");
    let bursts = Pressure::start(cpus, 1, 100, 1);
    show(&stage, "one second of four", "zone-lock -d 20s --width 110");
    drop(bursts);
    // More than a CPU's set holds, so that pages go through the zone.
    let heavy = Pressure::start(cpus, 32, 0, 4);
    show(&stage, "as much as they can", "zone-lock -d 5s --width 110");
    drop(heavy);
}

/// Past the harness, which keeps what passing tests print to itself: pictures are what the guest is there for.
fn show(stage: &Stage, what: &str, command: &str) {
    let drawn = stage.isotherm(command).ended(0).prints("verdict: ");
    let _ = write!(std::io::stderr(), "\n--- {what}: isotherm {command}\n{}", drawn.out);
}

/// Processes that allocate and free all the time, one a CPU. Killed when dropped.
struct Pressure(Vec<Child>);

impl Pressure {
    /// Each allocates and frees `mib` at a time, and then pauses; in the first `seconds` of every four, all of them in the same.
    fn start(processes: usize, mib: u64, pause_ms: u64, seconds: u64) -> Pressure {
        let start = |cpu: usize| {
            let program = std::env::current_exe().unwrap();
            let mut command = if processes > 1 && installed("taskset") {
                let mut command = Command::new("taskset");
                command.args(["-c", &cpu.to_string()]).arg(program);
                command
            } else {
                Command::new(program)
            };
            command
                .args(["--exact", "allocates_and_frees", "--ignored"])
                .env(CHILD, format!("{mib} {pause_ms} {seconds}"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        Pressure((0..processes).map(start).collect())
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// No test: what the processes of [`Pressure`] do.
#[test]
#[ignore = "started by other tests"]
fn allocates_and_frees() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let [mib, pause_ms, seconds] = what.split(' ').map(|n| n.parse::<u64>().unwrap()).collect::<Vec<_>>()[..] else {
        panic!("{what}")
    };
    let began = Instant::now();
    while began.elapsed() < PRESSURE_FOR {
        let memory = Memory::anonymous(mib << 20, PageSize::Small).unwrap();
        for page in 0..memory.pages() {
            memory.write(page);
        }
        drop(memory);
        std::thread::sleep(Duration::from_millis(pause_ms));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        if now.as_secs() % 4 >= seconds {
            let next = Duration::from_secs(now.as_secs() / 4 * 4 + 4);
            std::thread::sleep(next.saturating_sub(now));
        }
    }
}
