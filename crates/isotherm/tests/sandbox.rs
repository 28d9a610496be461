//! The sandbox of real commands: what the kernel says of them while they run, what `doctor` and `status` say, and which capability is
//! missed by name when it is missing.

mod support;

use std::path::Path;
use support::{AS_NOBODY, Running, Stage, installed, is_root, open_stage, read, sees_pages, until, wait, workload};

/// A field of `/proc/PID/status`.
fn field(pid: u32, name: &str) -> String {
    let status = read(&Path::new("/proc").join(pid.to_string()).join("status"));
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in\n{status}")).trim().to_owned()
}

/// Whether the mount that holds `path` is read-only to a process.
fn is_read_only(pid: u32, path: &str) -> bool {
    let mounts = read(&Path::new("/proc").join(pid.to_string()).join("mountinfo"));
    let options = mounts.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>()).find(|words| words[4] == path);
    options.unwrap_or_else(|| panic!("no mount at {path} in\n{mounts}"))[5].split(',').any(|option| option == "ro")
}

/// Waits until a filter is in force.
fn confined(running: &mut Running) -> u32 {
    let pid = running.pid();
    assert!(until(std::time::Duration::from_secs(20), || field(pid, "Seccomp") == "2"), "{}", running.err());
    pid
}

#[test]
fn a_recorder_filters_its_calls_and_writes_to_its_folder_only() {
    need!(is_root() && sees_pages(), "root, and the page-table source");
    let (stage, child) = (Stage::new(), workload(16));
    let mut recorder = stage.start_isotherm(&format!("record -o r -w 250ms -p {}", child.pid()));
    let pid = confined(&mut recorder);
    assert_eq!(field(pid, "NoNewPrivs"), "1");
    assert!(is_read_only(pid, "/"));
    assert!(!is_read_only(pid, stage.path("").to_str().unwrap().trim_end_matches('/')));
    assert!(is_read_only(pid, "/proc/sys"));
    // CAP_BPF, CAP_PERFMON, CAP_SYSLOG and CAP_SYS_RESOURCE have done what they were for.
    let kept = u64::from_str_radix(&field(pid, "CapPrm"), 16).unwrap();
    if support::kernel_since(5, 19) {
        assert_eq!(kept & (1 << 39 | 1 << 38 | 1 << 34 | 1 << 24), 0, "{kept:x}");
    }
    wait(std::time::Duration::from_secs(1));
    recorder.signal("TERM");
    recorder.end().ended(0).never_says("the sandbox lacks");
    stage.isotherm("report processes r").ended(0);
}

#[test]
fn without_the_sandbox_nothing_is_filtered() {
    let (stage, child) = (Stage::new(), workload(16));
    let mut recorder = stage.start_isotherm(&format!("--no-sandbox record -o r -p {}", child.pid()));
    recorder.until_it_says("into r/");
    assert_eq!(field(recorder.pid(), "Seccomp"), field(std::process::id(), "Seccomp"));
    recorder.signal("TERM");
    recorder.end().ended(0);
}

#[test]
fn a_command_that_is_started_is_not_in_the_sandbox() {
    let stage = Stage::new();
    let before = field(std::process::id(), "Seccomp");
    let command = "sh -c 'sleep 1; grep -w Seccomp: /proc/self/status; touch elsewhere; true | cat; sleep 1'";
    let ran = stage.shell(&format!("mkdir rec; $isotherm record -o rec/r -w 250ms -d 3s -- {command}")).ended(0);
    assert_eq!(ran.out.split_whitespace().last(), Some(before.as_str()), "{ran}");
    assert!(stage.path("elsewhere").exists());
}

#[test]
fn the_doctor_tries_the_sandbox() {
    let report = Stage::new().json("doctor --json");
    let findings = report["findings"].as_array().unwrap();
    let sandbox = findings.iter().find(|finding| finding["name"] == "sandbox").unwrap();
    let detail = sandbox["detail"].as_str().unwrap();
    assert!(detail.contains("filter of system calls"), "{sandbox}");
    if is_root() {
        assert_eq!(sandbox["state"], "present", "{sandbox}");
    } else {
        assert!(!detail.contains("starting a program") && !detail.contains("a connection"), "{sandbox}");
    }
}

#[test]
fn the_status_of_a_daemon_has_its_sandbox() {
    need!(sees_pages(), "the page-table source");
    let (stage, child) = (Stage::new(), workload(16));
    let mut daemon = stage.start_isotherm(&format!("run -n --socket s.sock -p {}", child.pid()));
    daemon.until_it_says("status at");
    let has_begun = || stage.json("status --json --socket s.sock")["sandbox"]["system_calls"] == "on";
    assert!(until(std::time::Duration::from_secs(10), has_begun), "{}", stage.json("status --json --socket s.sock"));
    daemon.signal("TERM");
    daemon.end().ended(0);
    assert!(!stage.path("s.sock").exists(), "the socket is removed in the sandbox");
}

/// What page tables take, and what is missing without it.
const FOR_PAGES: [&str; 5] = ["bpf", "perfmon", "sys_ptrace", "sys_nice", "syslog"];

#[test]
fn each_capability_for_page_tables_is_missed_by_its_name() {
    need!(is_root() && installed("setpriv") && sees_pages(), "root, setpriv, and the page-table source");
    need!(support::kernel_since(5, 19), "Linux 5.19");
    let ((stage, isotherm), child) = (open_stage(), workload(16));
    let record = |n: usize, kept: &[&str]| {
        let some = kept.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(",");
        let with = format!("{AS_NOBODY} --inh-caps -all,{some} --ambient-caps -all,{some}");
        let out = stage.path(&format!("r{n}")).display().to_string();
        stage.shell(&format!("{with} {isotherm} record --source page-table -o {out} -d 1s -p {}", child.pid()))
    };
    // Another user's pagemap takes CAP_DAC_READ_SEARCH as well.
    let all: Vec<&str> = FOR_PAGES.into_iter().chain(["dac_read_search"]).collect();
    record(9, &all).ended(0).never_says("CAP_");
    for (n, missing) in FOR_PAGES.into_iter().enumerate() {
        let kept: Vec<&str> = all.iter().copied().filter(|name| *name != missing).collect();
        let ran = record(n, &kept);
        if missing == "sys_ptrace" && ran.code == Some(0) {
            // Later kernels let CAP_PERFMON read maps and give advice; 6.18 does.
            assert!(support::kernel_since(6, 13), "{ran}");
            continue;
        }
        if missing == "syslog" && ran.code == Some(0) {
            // Everyone may see addresses, or the direct map is where it always is.
            let restrict = |name: &str| read(&Path::new("/proc/sys/kernel").join(name)).trim().parse::<i32>().unwrap();
            let shown = restrict("kptr_restrict") == 0 && restrict("perf_event_paranoid") <= 1;
            let random = read(Path::new("/proc/kallsyms")).contains(" page_offset_base\n");
            assert!(shown || !random || read(Path::new("/proc/cmdline")).contains("nokaslr"), "{ran}");
            continue;
        }
        let name = format!("CAP_{}", missing.to_uppercase());
        assert!(ran.err.contains(&name), "without {name}:\n{ran}");
    }
}
