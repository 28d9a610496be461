//! Hot memory put on huge pages: what is said against what the kernel says of the same processes.

mod support;

use isotherm_sys::madvise::PidFd;
use isotherm_units::{Addr, PmdNo};
use isotherm_workload::{Child, Index};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{
    AS_NOBODY, ISOTHERM, Running, Script, Stage, alone, can_collapse, huge_bytes, is_root, open_stage, read,
    shows_huge_pages, skip, until, wait, workload,
};

const HUGE: u64 = 2 << 20;

/// An index of 256 MiB, most of whose reads go to 20 MiB in the middle.
fn index() -> Child {
    let index = Index { pages: 65_536, centre: 0.5, deviation: 0.02, stride: 1, seed: 5 };
    let mut command = Command::new(ISOTHERM);
    command.arg("demo-workload");
    Child::start(command, &index).unwrap()
}

/// Whether the kernel moves pages to the nodes that use them.
fn balances_nodes() -> bool {
    !["", "0"].contains(&read(Path::new("/proc/sys/kernel/numa_balancing")).trim())
}

const NEEDS: &str = "the page-table source, and transparent huge pages not set to `always`";

/// An `isotherm run` with a socket of its own.
struct Daemon<'a> {
    stage: &'a Stage,
    running: Running,
}

impl<'a> Daemon<'a> {
    fn start(stage: &'a Stage, args: &str) -> Daemon<'a> {
        let mut running = stage.start_isotherm(&format!("run --socket s.sock {args}"));
        running.until_it_says("status at");
        Daemon { stage, running }
    }

    fn status(&self) -> Value {
        self.stage.json("status --json --socket s.sock")
    }

    fn collapsed(&self) -> u64 {
        self.status()["collapsed"].as_u64().unwrap()
    }

    fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let came = until(Duration::from_secs(40), || {
            wait(Duration::from_millis(200));
            last = self.status();
            is_so(&last)
        });
        assert!(came, "{what} never came: {last:#}\n{}", self.running.err());
        last
    }
}

#[test]
fn a_dry_run_prints_what_the_real_run_then_does() {
    need!(can_collapse(), NEEDS);
    let _turn = alone();
    let (stage, child) = (Stage::new(), index());
    let pid = child.pid();
    stage.isotherm(&format!("record -o r -d 8s -w 2s -p {pid}")).ended(0);
    let plan = stage.json("collapse --from r --dry-run --json");
    assert_eq!((huge_bytes(pid), &plan["dry_run"]), (0, &Value::Bool(true)), "a dry run does nothing");
    let done = stage.json("collapse --from r --json --max-collapse-cpu 200 --max-stall 200 --per-second 1000");
    assert_eq!(plan["blocks"], done["blocks"]);
    assert_eq!(plan["processes"][0]["collapsed"], done["processes"][0]["collapsed"]);
    let collapsed = done["processes"][0]["collapsed"].as_u64().unwrap();
    assert!((5..64).contains(&collapsed), "{done:#}");
    assert_eq!(huge_bytes(pid), collapsed * HUGE, "as many as was said, and the kernel says so");
    assert!(done["gain"]["heat_on_huge_after"].as_f64().unwrap() > 0.9, "{:#}", done["gain"]);
    need!(shows_huge_pages(), "PAGEMAP_SCAN (Linux 6.7), to see that what is huge is left alone");
    let again = stage.json("collapse --from r --json");
    assert_eq!(again["processes"][0]["collapsed"], 0, "they are huge already: {again:#}");
}

#[test]
fn a_machine_without_room_is_not_waited_for_without_an_end() {
    need!(can_collapse(), NEEDS);
    let (stage, child) = (Stage::new(), index());
    let pid = child.pid();
    let ran = stage.isotherm(&format!("collapse -p {pid} -d 5s --headroom 99")).ended(0);
    ran.says("stopped after 30 s of waiting: available memory is low").says("huge ranges are left as they are");
    assert_eq!(huge_bytes(pid), 0);
}

#[test]
fn the_hot_huge_ranges_are_collapsed_and_the_cold_ones_are_not() {
    need!(can_collapse(), NEEDS);
    let _turn = alone();
    let (stage, child) = (Stage::new(), index());
    let ran = stage.isotherm(&format!("collapse -p {} -d 8s --verbose", child.pid())).ended(0);
    let ran =
        ran.prints("heat on huge pages: 0.0% -> ").prints("too cold").prints("dTLB misses").prints("grown by 0 B");
    let first = child.memory().start.0;
    let pmds: Vec<u64> = ran
        .out
        .lines()
        .filter(|l| l.ends_with("collapse"))
        .map(|l| u64::from_str_radix(l.split_whitespace().nth(1).unwrap().trim_start_matches("0x"), 16).unwrap())
        .collect();
    let index = Index { pages: 65_536, centre: 0.5, deviation: 0.02, stride: 1, seed: 5 };
    let share: f64 = pmds
        .iter()
        .filter_map(|b| index.weights().get(usize::try_from(b.checked_sub(first)? / HUGE).ok()?).copied())
        .sum();
    assert!(share > 0.9 && pmds.len() < 64, "{} huge ranges with {share} of the reads\n{ran}", pmds.len());
}

#[test]
fn run_collapses_what_is_hot_and_takes_hints_and_settings() {
    need!(can_collapse(), NEEDS);
    let _turn = alone();
    let (stage, mut child) = (Stage::new(), index());
    let pid = child.pid();
    // Stalls are not limited: where a collapse takes a tenth of a second, each would be followed by seconds of rest.
    let settings = |more| format!("[targets]\npids = [{pid}]\n[budgets]\nstall_pct = 200.0\nper_second = {more}\n");
    fs::write(stage.path("c.toml"), settings("1000.0")).unwrap();
    let mut daemon = Daemon::start(&stage, "-c c.toml");
    let rss =
        daemon.until("a first look", |s| s["targets"][0]["rss_bytes"].as_u64() > Some(0))["targets"][0]["rss_bytes"]
            .clone();
    // The slower the machine, the more huge ranges beside the hottest are read too seldom to be worth it.
    let status =
        daemon.until("most heat on huge pages", |s| s["targets"][0]["heat_on_huge_share"].as_f64() > Some(0.8));
    assert_eq!(status["targets"][0]["pid"], pid);
    let grown = status["targets"][0]["rss_bytes"].as_f64().unwrap() / rss.as_f64().unwrap();
    assert!(grown < 1.02, "grown by a factor of {grown}");
    let heat = status["counters"]["collapsed"]["heat"].as_u64().unwrap();
    assert!(heat >= 5 && huge_bytes(pid) >= heat * HUGE, "{status:#}");

    // A cold huge range, hinted at from outside; a process that was not named; nonsense.
    let cold = child.memory().start.0 + 4 * HUGE;
    let told = daemon.status();
    let hinted = stage.isotherm(&format!("hint --socket s.sock -p {pid} {:x}-{:x}", cold, cold + HUGE)).ended(0);
    assert!(hinted.err.contains("1 huge range"), "{told:#}\n{hinted}");
    let done = |s: &Value| s["counters"]["collapsed"]["external"] == 1;
    daemon.until("the hint from outside, or a reason", |s| done(s) || s["hints"]["unwritable"] == 1);
    if !done(&daemon.status()) {
        // Nothing touches that huge range, so no page of it is writable; once something does, it is tried again.
        assert!(balances_nodes(), "{told:#}");
        let says_so = || stage.isotherm("status --socket s.sock").out.contains("1 of those deferred: ");
        assert!(until(Duration::from_secs(10), says_so));
        child.heat(4 * 512, 512).unwrap();
        daemon.until("the hint from outside, after a touch", done);
    }
    stage.isotherm("hint --socket s.sock -p 1 200000-400000").ended(1).says("not among the targets");
    fs::write(stage.path("hints"), format!("# a comment\n\n{pid} nonsense\n{pid} {cold:x}-{:x} 7\n", cold + HUGE))
        .unwrap();
    stage.isotherm("hint --socket s.sock -f hints").ended(1).says("hint 3:").says("address range");
    stage.isotherm("status --socket s.sock").ended(0).prints("of the heat on huge pages");

    // Another one at the same socket; other settings; the end.
    stage.isotherm(&format!("run --socket s.sock -p {pid}")).ended(1).says("another isotherm run");
    fs::write(stage.path("c.toml"), settings("3.0")).unwrap();
    daemon.running.signal("HUP");
    daemon.until("the new settings", |s| s["budgets"]["per_second"] == 3.0);
    fs::write(stage.path("c.toml"), "[budgets]\nper_secnd = 3.0\n").unwrap();
    daemon.running.signal("HUP");
    daemon.running.until_it_says("the settings are unchanged");
    daemon.running.signal("TERM");
    let Daemon { running, .. } = daemon;
    running.end().ended(0).prints("heat on huge pages").prints("collapsed on hints from external: 1");
    assert!(!stage.path("s.sock").exists(), "the socket is gone");
}

/// Within the sandbox, too: the source is opened again.
#[test]
fn settings_for_which_watching_starts_over_are_taken() {
    need!(can_collapse(), NEEDS);
    let _turn = alone();
    let (stage, child) = (Stage::new(), index());
    let pid = child.pid();
    let write = |window: &str, per_second: &str| {
        let text = format!(
            "[targets]\npids = [{pid}]\n[watch]\nwindow = \"{window}\"\n[budgets]\nper_second = {per_second}\n"
        );
        fs::write(stage.path("c.toml"), text).unwrap();
    };
    write("1s", "3.0");
    let mut daemon = Daemon::start(&stage, "-c c.toml");
    daemon.until("a first look", |s| s["targets"][0]["rss_bytes"].as_u64() > Some(0));
    write("700ms", "5.0");
    daemon.running.signal("HUP");
    daemon.running.until_it_says("watching restarted");
    daemon.until("the new settings", |s| s["budgets"]["per_second"] == 5.0);
    daemon.until("another look", |s| s["targets"][0]["pid"] == pid && s["targets"][0]["rss_bytes"].as_u64() > Some(0));
    daemon.running.signal("TERM");
    let Daemon { running, .. } = daemon;
    running.end().ended(0).never_says("the settings are unchanged");
}

#[test]
fn a_dry_run_of_run_touches_nothing() {
    need!(can_collapse(), NEEDS);
    let _turn = alone();
    let (stage, child) = (Stage::new(), index());
    let daemon = Daemon::start(&stage, &format!("-n --json -p {}", child.pid()));
    daemon.until("something to collapse", |s| s["collapsed"].as_u64() > Some(0));
    daemon.running.signal("TERM");
    let Daemon { running, .. } = daemon;
    let status = running.end().ended(0).json();
    assert!(status["dry_run"] == true && status["collapsed"].as_u64() > Some(0), "{status:#}");
    assert_eq!(huge_bytes(child.pid()), 0);
}

#[test]
fn a_target_that_ends_ends_the_run() {
    need!(can_collapse(), NEEDS);
    let stage = Stage::new();
    let child = index();
    let daemon = Daemon::start(&stage, &format!("-p {}", child.pid()));
    daemon.until("a first look", |s| s["targets"][0]["rss_bytes"].as_u64() > Some(0));
    drop(child);
    daemon.running.end().ended(0);
}

#[test]
fn memory_that_refuses_is_named_and_left_alone() {
    need!(can_collapse(), NEEDS);
    let stage = Stage::new();
    // The demo's workload says MADV_NOHUGEPAGE.
    let child = workload(64);
    let script = Script::start(
        "
libc.prctl(41, 1, 0, 0, 0)
at = reserve(64 << 20)
ctypes.memset(at, 1, 64 << 20)
print(at, flush=True)
heat([at + (page << 12) for page in range(2048)])",
    );
    let Some(script) = script else { return skip("python3") };
    let runs = [child.pid(), script.pid()].map(|pid| stage.start_isotherm(&format!("collapse -p {pid} -d 5s")));
    let [advised, disabled] = runs.map(|run| run.end());
    advised.ended(0).prints("0 of ").prints("MADV_NOHUGEPAGE");
    disabled.ended(1).prints("PR_SET_THP_DISABLE").says("nothing was done, the process was skipped");
    assert_eq!((huge_bytes(child.pid()), huge_bytes(script.pid())), (0, 0));
}

#[test]
fn a_sparse_heap_does_not_grow() {
    need!(can_collapse(), NEEDS);
    let _turn = alone();
    let stage = Stage::new();
    let index = Index { pages: 65_536, centre: 0.5, deviation: 0.3, stride: 10, seed: 5 };
    let mut command = Command::new(ISOTHERM);
    command.arg("demo-workload");
    let child = Child::start(command, &index).unwrap();
    stage.isotherm(&format!("collapse -p {} -d 5s", child.pid())).ended(0).prints("too sparse");
    assert_eq!(huge_bytes(child.pid()), 0);
}

#[test]
fn while_a_forked_copy_is_alive_nothing_is_collapsed() {
    need!(can_collapse(), NEEDS);
    let _turn = alone();
    let script = Script::start(
        "
import os
size = 64 << 20
at = reserve(size)
ctypes.memset(at, 1, size)
child = os.fork()
if child == 0:
    time.sleep(20)
    os._exit(0)
print(at, child, flush=True)
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
while True:
    # Reads only: what is written would be copied, and shared no more.
    ctypes.string_at(at, size)
    if os.waitpid(-1, os.WNOHANG)[0] if child else 0:
        child = 0
        # Until then no page is writable, and kernels (6.12 is one) collapse no such pmd.
        ctypes.memset(at, 2, size)
    time.sleep(0.05)",
    );
    let Some(script) = script else { return skip("python3") };
    let fork = u32::try_from(script.numbers()[1]).unwrap();
    let stage = Stage::new();
    let daemon = Daemon::start(&stage, &format!("--no-children --max-stall 200 -p {}", script.pid()));
    let status = daemon.until("the pause", |s| s["paused"].is_string());
    assert_eq!(status["targets"][0]["paused_for"], fork, "{status:#}");
    wait(Duration::from_secs(2));
    assert_eq!((daemon.collapsed(), huge_bytes(script.pid())), (0, 0));
    support::signal(fork, "KILL");
    // A few: where each takes a tenth of a second, the process is left alone for two seconds after it.
    daemon.until("the end of the pause, and collapses", |s| s["paused"].is_null() && s["collapsed"].as_u64() > Some(2));
}

/// The last report of a recording that is being made. Null while it has no snapshot.
fn last_access(stage: &Stage) -> Value {
    let ran = stage.isotherm("report access r --json");
    if ran.code == Some(0) { ran.json()["report"]["targets"][0].clone() } else { Value::Null }
}

#[test]
fn what_was_known_before_a_collapse_is_kept_as_an_estimate() {
    need!(can_collapse(), NEEDS);
    // One page in sixteen is hot: 4 MiB.
    let script = Script::start(
        "
at = reserve(64 << 20)
ctypes.memset(at, 1, 64 << 20)
print(at, flush=True)
heat([at + (page << 16) for page in range(1024)])",
    );
    let Some(script) = script else { return skip("python3") };
    let stage = Stage::new();
    let mib = |target: &Value, key: &str| target[key].as_f64().map(|bytes| bytes / f64::from(1 << 20));
    // The interpreter has hot pages too.
    let hot = 3.0..6.0;
    let _recording = stage.start_isotherm(&format!("record -o r -w 200ms -d 2min --max-cpu 50 -p {}", script.pid()));
    let mut last = Value::Null;
    let known = until(Duration::from_secs(40), || {
        last = last_access(&stage);
        mib(&last, "wss_bytes").is_some_and(|wss| hot.contains(&wss))
    });
    assert!(known && last["wss_by_estimate_bytes"].is_null(), "{last:#}");
    let (process, start) = (PidFd::open(script.pid()).unwrap(), Addr(script.numbers()[0]));
    let inner = Addr(start.0.next_multiple_of(HUGE)).pmd()..Addr(start.0 + (64 << 20)).pmd();
    let collapsed = (inner.start.0..inner.end.0).filter(|pmd| process.collapse(PmdNo(*pmd)).is_ok()).count();
    assert!(collapsed > 24, "{collapsed} of 31 huge ranges or 32");
    let is_estimated = until(Duration::from_secs(40), || {
        last = last_access(&stage);
        mib(&last, "wss_bytes") > Some(2.0 * collapsed as f64 - 4.0) && !last["wss_by_estimate_bytes"].is_null()
    });
    assert!(is_estimated, "one bit for each 2 MiB: {last:#}");
    assert!(mib(&last, "wss_by_estimate_bytes").is_some_and(|wss| hot.contains(&wss)), "{last:#}");
    assert!(last["estimate_age_ns"].as_u64() > Some(0), "{last:#}");
    stage.isotherm("report wss r").ended(0).prints("BY ESTIMATE").prints("; by estimate ");
    stage.isotherm("report processes r").ended(0).prints("with one accessed bit for 2 MiB each");
}

#[test]
fn without_privilege_it_says_what_it_takes() {
    need!(is_root(), "root, to become nobody");
    let (stage, isotherm) = open_stage();
    let nobody = format!("{AS_NOBODY} {isotherm}");
    let ran = stage.shell(&format!("sleep 60 & {nobody} collapse -d 1s -p $! ; code=$?; kill $!; exit $code"));
    assert!(ran.code == Some(1) || ran.code == Some(2), "{ran}");
    let ran = stage.shell(&format!("{nobody} collapse -d 1s -- sleep 60"));
    assert_eq!(ran.code, Some(2), "{ran}");
    ran.says("doctor").never_says("panicked");
}

#[test]
fn wrong_usage_is_told() {
    let stage = Stage::new();
    fs::write(stage.path("file.sock"), "a file").unwrap();
    stage.refuses([
        ("collapse", 2, "name what to watch"),
        ("collapse --from nowhere", 1, "nowhere"),
        ("collapse -p 1 --per-second 0", 2, "above 0"),
        ("status --socket nowhere.sock", 1, "isotherm run"),
        ("hint --socket nowhere.sock -p 1 1-2", 1, "isotherm run"),
        ("run --socket nowhere/s.sock -p 1", 1, "nowhere/s.sock"),
        ("run --socket file.sock -p 1", 1, "no socket"),
    ]);
}
