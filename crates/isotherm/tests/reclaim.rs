//! `isotherm reclaim`: what leaves for swap and what stays, on a machine that has swap (a guest of the lab), and what is said on one that has
//! none.

mod support;

use isotherm_heat::{Mask, TargetId};
use isotherm_schemes::Refusal;
use isotherm_schemes::machine::{Live, Machine};
use isotherm_schemes::page_out::{PageOutMachine, PagesToLeave};
use isotherm_sys::free::Swap;
use isotherm_sys::proc::Proc;
use isotherm_units::{Addr, Bytes, PmdNo};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{Script, Stage, is_root, sees_pages, skip, until, workload};

const MIB: u64 = 1 << 20;

fn has_swap() -> bool {
    Swap::read(Path::new("/proc")).is_some_and(|swap| swap.total.0 > 0)
}

/// Resident and swapped memory of a process.
fn memory_of(pid: u32) -> (Bytes, Bytes) {
    let status = Proc::default().status(pid).unwrap();
    (status.rss.unwrap(), status.swap.unwrap())
}

#[test]
fn processes_are_named_and_watched_for_longer_than_the_age() {
    let stage = Stage::new();
    stage.isotherm("reclaim --all").ended(2).says("named only");
    stage.isotherm("reclaim -p 1 --idle 1m -d 1m").ended(2).says("longer than --idle");
    // What was recorded is not what is idle now, and with another monitor what is in use may look idle.
    stage.isotherm("reclaim --replay old.isotherm").ended(2).says("without --replay");
    stage.isotherm("reclaim -p 1 --beside").ended(2).says("leave out --beside");
}

#[test]
fn without_swap_nothing_leaves_and_a_dry_run_says_what_would() {
    need!(sees_pages(), "the page-table source");
    need!(!has_swap(), "a machine without swap");
    let (child, stage) = (workload(32), Stage::new());
    stage.isotherm(&format!("reclaim -p {} --idle 2s -d 4s", child.pid())).ended(1).says("no swap");
    let report = stage.json(&format!("reclaim -p {} --idle 2s -d 6s --dry-run --json", child.pid()));
    let process = &report["processes"][0];
    let bytes = |name: &str| process[name].as_u64().unwrap();
    // A tenth of it is hot.
    assert!((26 * MIB..32 * MIB).contains(&bytes("left_bytes")), "{report:#}");
    assert!(bytes("left_bytes") <= bytes("idle_bytes") && bytes("idle_bytes") < bytes("resident_bytes"), "{report:#}");
    assert_eq!(memory_of(child.pid()).1, Bytes(0));
    let text = stage.isotherm(&format!("reclaim -p {} --idle 2s -d 6s --dry-run", child.pid())).ended(0);
    text.prints("would leave memory").says("no swap");
}

#[test]
fn what_the_kernel_claims_to_have_paged_out_is_not_believed() {
    need!(is_root(), "root, to advise another process");
    need!(!has_swap(), "a machine without swap");
    let script =
        Script::start("at = reserve(8 << 20); ctypes.memset(at, 1, 8 << 20); print(at, flush=True); time.sleep(600)");
    let Some(script) = script else { return skip("python3") };
    let start_ticks = Proc::default().identity(script.pid()).unwrap().start_ticks;
    let (mut live, id) = (Live::new(), TargetId { pid: script.pid(), start_ticks });
    let pmd = PmdNo(Addr(script.numbers()[0]).pmd().0 + 1);
    assert_eq!(live.pages_to_leave(id, pmd, Mask::ALL), Err(Refusal::NotNamed));
    live.admit(id, &|_| None).unwrap();
    let few: Mask = (0..20).chain(100..200).collect();
    let found = live.pages_to_leave(id, pmd, few).unwrap();
    assert_eq!(found, PagesToLeave { present: 120, private: few });
    let done = live.page_out(id, pmd, found.private);
    assert_eq!((done.result, done.pages), (Ok(()), 0), "nothing has left");
    assert_eq!(live.pages_to_leave(id, pmd, few), Ok(found));
}

/// 48 MiB, each page with contents of its own, of which the first four are accessed all the time. Compares all of them when it is told to.
fn idle_and_hot(verdict: &Path) -> Option<Script> {
    Script::start(&format!(
        "
import signal
size, hot = 48 << 20, 4 << 20
at = reserve(size)
def filling(page): return 1 + page * 7 % 251
for page in range(size >> 12): ctypes.memset(at + (page << 12), filling(page), 4096)
def compare(*_):
    same = all(ctypes.string_at(at + (p << 12), 4096) == bytes([filling(p)]) * 4096 for p in range(hot >> 12, size >> 12))
    with open('{}', 'w') as f: f.write('same' if same else 'changed')
signal.signal(signal.SIGUSR1, compare)
print(at, flush=True)
heat([at + page for page in range(0, hot, 4096)])
",
        verdict.display()
    ))
}

#[test]
fn idle_memory_leaves_for_swap_and_comes_back_as_it_was() {
    need!(sees_pages(), "the page-table source");
    need!(std::env::var_os("ISOTHERM_LAB").is_some() && has_swap(), "a guest of the lab with swap");
    let stage = Stage::new();
    let verdict = stage.path("verdict");
    let Some(script) = idle_and_hot(&verdict) else { return skip("python3") };
    let (resident, swapped) = memory_of(script.pid());
    assert!(resident.0 > 48 * MIB && swapped == Bytes(0));
    let budgets = "--per-second 10000 --max-reclaim-cpu 200 --max-pressure 101 --max-cpu 200 --max-slowdown 200";
    let report = stage.json(&format!("reclaim -p {} --idle 6s -d 20s {budgets} --json", script.pid()));
    let left = report["processes"][0]["left_bytes"].as_u64().unwrap();
    // 44 MiB of the mapping are idle, and some of Python itself.
    assert!(left >= 40 * MIB, "{report:#}");
    let (resident_after, swapped) = memory_of(script.pid());
    assert!(swapped.0 >= left * 9 / 10 && swapped.0 <= left * 11 / 10, "{swapped} in swap: {report:#}");
    assert!(resident_after.0 >= 4 * MIB, "what is hot stays: {resident_after}");
    assert_eq!(report["counters"]["left_pages"].as_u64().unwrap() * 4096, left);
    let told = Command::new("kill").args(["-USR1", &script.pid().to_string()]).status().unwrap();
    assert!(told.success());
    until(Duration::from_secs(60), || fs::read_to_string(&verdict).is_ok_and(|text| !text.is_empty()));
    assert_eq!(fs::read_to_string(&verdict).unwrap(), "same");
    assert!(memory_of(script.pid()).1.0 < swapped.0 / 4, "it came back");
}
