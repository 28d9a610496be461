//! `isotherm reclaim`: what leaves for swap and what stays, on a machine that has swap (a guest of the lab), and what is said on one that has
//! none.

mod support;

use isotherm_heat::{Mask, TargetId};
use isotherm_schemes::Refusal;
use isotherm_schemes::machine::{Live, Machine};
use isotherm_schemes::page_out::{PageOutMachine, PagedOut, PagesToLeave};
use isotherm_sys::free::Swap;
use isotherm_sys::proc::Proc;
use isotherm_units::{Addr, Bytes, PmdNo};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{
    Running, Script, Stage, idle_and_hot, is_root, is_unchanged, own_cgroup, sees_pages, skip, until, workload,
};

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

/// A cgroup is watched for as long as processes may join it.
#[test]
fn a_cgroup_without_processes_that_can_be_watched_is_not_waited_for_for_ever() {
    need!(sees_pages(), "the page-table source");
    need!(is_root(), "root, to make a cgroup");
    let stage = Stage::new();
    let Some(dir) = own_cgroup("ends") else { return skip("a cgroup of its own") };
    let sleeps = stage.start_shell(&format!("echo $$ > {}/cgroup.procs && exec sleep 3", dir.display()));
    until(Duration::from_secs(5), || fs::read_to_string(dir.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty()));
    let reclaim = stage.start_isotherm(&format!("reclaim --idle 2s -d 4s --dry-run --cgroup {}", dir.display()));
    reclaim.end_within(Duration::from_secs(60)).ended(1).says("nothing is left to act on");
    sleeps.end().ended(0);
    assert!(until(Duration::from_secs(5), || fs::remove_dir(&dir).is_ok()));
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
    let PagedOut { performed, left } = live.page_out(id, pmd, found.private);
    assert_eq!((performed.result, performed.pages, left), (Ok(()), 0, Mask::NONE), "nothing has left");
    assert_eq!(live.pages_to_leave(id, pmd, few), Ok(found));
}

/// Settings that page out what is idle for ten seconds, and nothing else.
const PAGE_OUT: &str = "[[scheme]]\naction = \"page-out\"\nmin_idle = \"10s\"\n[budgets]\nper_second = 1000.0\ncpu_pct = 200.0\nstall_pct = 200.0\npressure_pct = 101.0\n";

#[test]
fn a_scheme_that_pages_out_needs_swap_and_a_dry_run_counts_what_would_leave() {
    need!(sees_pages(), "the page-table source");
    need!(!has_swap(), "a machine without swap");
    let (child, stage) = (workload(32), Stage::new());
    let settings = stage.path("page-out.toml");
    fs::write(&settings, PAGE_OUT).unwrap();
    let run = format!("run -p {} -c {} --max-cpu 200 --max-slowdown 200", child.pid(), settings.display());
    stage.isotherm(&format!("{run} -d 2s")).ended(1).says("no swap");
    // Files need none.
    let both = stage.path("both.toml");
    fs::write(&both, format!("{PAGE_OUT}[[scheme]]\naction = \"reclaim\"\ncgroups = [\"/nowhere\"]\n")).unwrap();
    stage.isotherm(&format!("run -p {} -c {} -d 2s", child.pid(), both.display())).ended(0).says("no swap");
    let alone = stage.path("bring-back.toml");
    fs::write(&alone, "[[scheme]]\naction = \"bring-back\"\n").unwrap();
    stage.isotherm(&format!("run -p 1 -c {} -d 2s", alone.display())).ended(2).says("none pages out");
    for (more, why) in
        [("--all", "named only"), ("-p 1 --beside", "leave out --beside"), ("-p 1 --hints mglru", "--hints heat")]
    {
        stage.isotherm(&format!("run {more} -c {} -d 2s", settings.display())).ended(2).says(why);
    }
    let status = stage.json(&format!("{run} -d 18s --dry-run --record r --json"));
    // A tenth of it is hot: 14 huge ranges are idle as a whole.
    let counted = status["counters"]["paged_out"]["heat"].as_u64().unwrap_or(0);
    assert!((13..=25).contains(&counted), "{status:#}");
    let left = status["counters"]["left_pages"].as_u64().unwrap() * 4096;
    assert!((26 * MIB..40 * MIB).contains(&left), "each once: {status:#}");
    let reported = &status["targets"][0]["page_out"];
    assert_eq!(
        (&reported["out_bytes"], &reported["refaulted_bytes"]),
        (&0.into(), &0.into()),
        "nothing has left: {status:#}"
    );
    assert_eq!(status["collapsed"], 0, "no scheme collapses");
    let recorded = stage.json("report processes r --json")["report"]["processes"][0].clone();
    assert_eq!((&recorded["pid"], recorded.get("acted")), (&child.pid().into(), None), "nothing was done");
    stage.isotherm(&format!("{run} -d 2s --dry-run --record r")).ended(1).says("already");
    stage.isotherm(&format!("{run} -d 2s --dry-run --record r --overwrite")).ended(0).says("snapshots");
}

/// Memory is idle for the last six to eight of 18 seconds, and may leave at 1 MiB a second.
#[test]
fn a_dry_run_keeps_to_a_quota() {
    need!(sees_pages(), "the page-table source");
    need!(!has_swap(), "a machine without swap");
    let (child, stage) = (workload(32), Stage::new());
    let settings = stage.path("page-out.toml");
    fs::write(&settings, PAGE_OUT.replace("min_idle", "quota = { size = \"1MiB\" }\nmin_idle")).unwrap();
    let limits = "--max-cpu 200 --max-slowdown 200";
    let run = format!("run --socket s.sock -p {} -c {} {limits}", child.pid(), settings.display());
    let status = stage.json(&format!("{run} -d 18s --dry-run --json"));
    let left = status["counters"]["left_pages"].as_u64().unwrap() * 4096;
    assert!((4 * MIB..12 * MIB).contains(&left), "{status:#}");
    assert_eq!((&status["quotas"][0]["scheme"], &status["quotas"][0]["size_bytes"]), (&1.into(), &MIB.into()));
    assert!(status["quotas"][0]["used_up"].as_u64().unwrap() >= 3, "{status:#}");
}

#[test]
fn idle_memory_leaves_for_swap_and_comes_back_as_it_was() {
    need!(sees_pages(), "the page-table source");
    need!(std::env::var_os("ISOTHERM_LAB").is_some() && has_swap(), "a guest of the lab with swap");
    let stage = Stage::new();
    let verdict = stage.path("verdict");
    let Some(script) = idle_and_hot(48, &verdict) else { return skip("python3") };
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
    assert!(is_unchanged(&script, &verdict, || {}));
    assert!(memory_of(script.pid()).1.0 < swapped.0 / 4, "it came back");
}

#[test]
fn idle_memory_leaves_while_run_goes_on_and_too_many_refaults_stop_it() {
    need!(sees_pages(), "the page-table source");
    need!(std::env::var_os("ISOTHERM_LAB").is_some() && has_swap(), "a guest of the lab with swap");
    let stage = Stage::new();
    let verdict = stage.path("verdict");
    let settings = stage.path("page-out.toml");
    fs::write(&settings, PAGE_OUT).unwrap();
    let Some(script) = idle_and_hot(48, &verdict) else { return skip("python3") };
    let run = "run --socket s.sock --record r --max-cpu 200 --max-slowdown 200";
    let mut run = stage.start_isotherm(&format!("{run} -p {} -c {}", script.pid(), settings.display()));
    run.until_it_says("status at");
    let reported = || stage.json("status --json --socket s.sock")["targets"][0]["page_out"].clone();
    let bytes = |name: &str| reported()[name].as_u64().unwrap_or(0);
    assert!(until(Duration::from_secs(60), || bytes("out_bytes") >= 40 * MIB), "{:#}", reported());
    let swapped = memory_of(script.pid()).1;
    assert!(swapped.0 >= 40 * MIB, "{swapped} in swap: {:#}", reported());
    assert_eq!(reported()["stays"], Value::Null, "{:#}", reported());
    // All of it is read at once.
    assert!(is_unchanged(&script, &verdict, || {}));
    let read = Instant::now();
    assert!(until(Duration::from_secs(20), || reported()["stays"] == "refaults"), "{:#}", reported());
    assert!(read.elapsed() < Duration::from_secs(5), "it has stopped after {:?}", read.elapsed());
    assert!(until(Duration::from_secs(20), || bytes("refaulted_bytes") >= 36 * MIB), "{:#}", reported());
    assert!(until(Duration::from_secs(20), || bytes("out_bytes") < 8 * MIB), "{:#}", reported());
    assert!(bytes("min_idle_ns") >= 20_000_000_000, "{:#}", reported());
    let resident = memory_of(script.pid()).0;
    std::thread::sleep(Duration::from_secs(15));
    assert!(memory_of(script.pid()).0.0 + MIB >= resident.0, "nothing leaves while it is paused: {:#}", reported());
    run.signal("INT");
    run.end().ended(0).prints("came back");
    // The recording has what was done beside what was seen.
    let recorded = stage.json("report processes r --json")["report"]["processes"][0]["acted"].clone();
    let of = |name: &str| recorded[name].as_u64().unwrap_or(0);
    assert!(of("left_bytes") >= 40 * MIB && of("refaulted_bytes") >= 36 * MIB, "{recorded:#}");
    assert!(of("out_bytes") < 8 * MIB, "{recorded:#}");
    stage.isotherm("report processes r").ended(0).prints("CAME BACK");
}

/// While it watches, while memory leaves, and while it comes back.
#[test]
fn killed_at_any_moment_nothing_is_lost_and_the_next_run_goes_on() {
    need!(sees_pages(), "the page-table source");
    need!(std::env::var_os("ISOTHERM_LAB").is_some() && has_swap(), "a guest of the lab with swap");
    let stage = Stage::new();
    let (settings, verdict) = (stage.path("page-out.toml"), stage.path("verdict"));
    let slowly = PAGE_OUT.replace("min_idle", "quota = { size = \"2MiB\" }\nmin_idle");
    fs::write(&settings, slowly.replace("[budgets]", "[[scheme]]\naction = \"bring-back\"\n[budgets]")).unwrap();
    let Some(script) = idle_and_hot(48, &verdict) else { return skip("python3") };
    let swapped = || memory_of(script.pid()).1.0;
    let watch = format!("run --socket s.sock --journal j --max-cpu 200 --max-slowdown 200 -p {}", script.pid());
    let start = || {
        let mut run = stage.start_isotherm(&format!("{watch} -c {}", settings.display()));
        run.until_it_says("status at");
        run
    };
    let kill = |run: Running| {
        run.signal("KILL");
        assert_eq!(run.end().code, None);
    };
    kill(start());
    assert_eq!(swapped(), 0);
    let run = start();
    assert!(until(Duration::from_secs(60), || swapped() >= 4 * MIB), "{}", run.err());
    kill(run);
    let left = swapped();
    assert!(left < 40 * MIB, "in the middle: {left} bytes");
    std::thread::sleep(Duration::from_secs(4));
    assert!(swapped() <= left, "nothing goes on without it");
    assert!(is_unchanged(&script, &verdict, || {}));
    let run = start();
    assert!(until(Duration::from_secs(60), || swapped() >= 24 * MIB), "{}", run.err());
    assert!(is_unchanged(&script, &verdict, || kill(run)));
    // What is idle of Python itself was not accessed.
    let left = swapped();
    assert!(left < 10 * MIB, "{left} bytes are out");
    stage.isotherm("undo --journal j").ended(0).prints("0 of 0").prints("comes back when it is accessed");
}

#[test]
fn a_quota_spreads_what_leaves_over_time() {
    need!(sees_pages(), "the page-table source");
    need!(std::env::var_os("ISOTHERM_LAB").is_some() && has_swap(), "a guest of the lab with swap");
    let stage = Stage::new();
    let settings = stage.path("page-out.toml");
    fs::write(&settings, PAGE_OUT.replace("min_idle", "quota = { size = \"2MiB\" }\nmin_idle")).unwrap();
    let Some(script) = idle_and_hot(48, &stage.path("verdict")) else { return skip("python3") };
    let run = "run --socket s.sock --max-cpu 200 --max-slowdown 200";
    let mut run = stage.start_isotherm(&format!("{run} -p {} -c {}", script.pid(), settings.display()));
    run.until_it_says("status at");
    let left =
        || stage.json("status --json --socket s.sock")["targets"][0]["page_out"]["left_bytes"].as_u64().unwrap_or(0);
    assert!(until(Duration::from_secs(60), || left() > 0));
    let (began, before) = (Instant::now(), left());
    std::thread::sleep(Duration::from_secs(8));
    let (seconds, more) = (began.elapsed().as_secs_f64(), (left() - before) as f64 / MIB as f64);
    // A window may be long here: five intervals at once are the most.
    assert!(more <= 2.0 * (seconds + 5.0) + 2.0 && more >= 2.0, "{more} MiB in {seconds} s");
    assert!(memory_of(script.pid()).1.0 < 40 * MIB, "most is there yet");
    stage.isotherm("status --socket s.sock").ended(0).prints("scheme 1: ").prints("used up in");
    run.signal("INT");
    run.end().ended(0);
}

/// 32 MiB that are idle. On SIGUSR1 each eighth page is read, on SIGUSR2 the others; then the major faults of that are written there.
fn read_in_two_steps(faults: &Path) -> Option<Script> {
    Script::start(&format!(
        "
import signal
size = 32 << 20
at = reserve(size)
ctypes.memset(at, 1, size)
pages = range(at, at + size, 4096)
def read(some):
    for page in some: ctypes.c_ubyte.from_address(page).value
def major(): return int(open('/proc/self/stat').read().rsplit(')', 1)[1].split()[9])
def begin(*_): read(pages[::8])
def go_on(*_):
    before = major()
    read(pages)
    with open('{faults}', 'w') as f: f.write(str(major() - before) + '\\n')
signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, go_on)
print(at, flush=True)
while True: time.sleep(1)
",
        faults = faults.display()
    ))
}

#[test]
fn what_is_likely_to_come_back_next_is_read_before_it_is_accessed() {
    need!(sees_pages(), "the page-table source");
    need!(std::env::var_os("ISOTHERM_LAB").is_some() && has_swap(), "a guest of the lab with swap");
    let stage = Stage::new();
    let (settings, faults) = (stage.path("page-out.toml"), stage.path("faults"));
    // Pages that are read in the second step, of all pages but those of Python.
    let rest: u64 = (32 * MIB / 4096) * 7 / 8;
    let mut major = Vec::new();
    for brings_back in [false, true] {
        let more = if brings_back { "[[scheme]]\naction = \"bring-back\"\n" } else { "" };
        fs::write(&settings, PAGE_OUT.replace("[budgets]", &format!("{more}[budgets]"))).unwrap();
        let _ = fs::remove_file(&faults);
        let Some(script) = read_in_two_steps(&faults) else { return skip("python3") };
        assert_eq!(script.numbers().len(), 1, "it has started");
        let watch = format!("--max-cpu 200 --max-slowdown 200 -p {}", script.pid());
        let mut run = stage.start_isotherm(&format!("run --socket s.sock {watch} -c {}", settings.display()));
        run.until_it_says("status at");
        let reported = || stage.json("status --json --socket s.sock")["targets"][0].clone();
        let out = || reported()["page_out"]["out_bytes"].as_u64().unwrap_or(0);
        assert!(until(Duration::from_secs(60), || out() >= 31 * MIB), "{:#}", reported());
        support::signal(script.pid(), "USR1");
        assert!(until(Duration::from_secs(20), || reported()["page_out"]["stays"] == "refaults"), "{:#}", reported());
        let asked = || reported()["bring_back"]["asked_bytes"].as_u64();
        if brings_back {
            let most = rest * 4096 * 9 / 10;
            assert!(until(Duration::from_secs(20), || asked().is_some_and(|asked| asked >= most)), "{:#}", reported());
            assert!(reported()["bring_back"]["read_bytes"].as_u64().unwrap() >= most * 3 / 4, "{:#}", reported());
        } else {
            assert_eq!(asked(), None, "no scheme says so");
        }
        support::signal(script.pid(), "USR2");
        let written = || fs::read_to_string(&faults).ok().filter(|text| text.ends_with('\n'));
        assert!(until(Duration::from_secs(60), || written().is_some()));
        major.push(written().unwrap().trim().parse::<u64>().unwrap());
        run.signal("INT");
        run.end().ended(0);
    }
    assert!(major[0] >= rest * 3 / 4 && major[1] <= rest / 8, "major faults without and with it: {major:?} of {rest}");
}

/// 8 MiB of which an eighth is swept through each three seconds, so that each page is accessed every 24 s; and 32 MiB accessed all the time.
fn swept() -> Option<Script> {
    Script::start(
        "
size, hot = 40 << 20, 32 << 20
at = reserve(size)
ctypes.memset(at, 1, size)
print(at, flush=True)
cold = [at + page for page in range(hot, size, 4096)]
warm = [at + page for page in range(0, hot, 4096)]
part, began = 0, time.monotonic()
while True:
    for address in warm: ctypes.c_ubyte.from_address(address).value
    if time.monotonic() - began > 3 * part:
        for address in cold[part % 8 * len(cold) // 8 : (part % 8 + 1) * len(cold) // 8]: ctypes.c_ubyte.from_address(address).value
        part += 1
    time.sleep(0.01)
",
    )
}

#[test]
fn what_a_recording_predicts_to_come_back_is_what_comes_back() {
    need!(sees_pages(), "the page-table source");
    need!(std::env::var_os("ISOTHERM_LAB").is_some() && has_swap(), "a guest of the lab with swap");
    let stage = Stage::new();
    let settings = stage.path("page-out.toml");
    // What comes back in a minute may be all of the working set: it will be half of it.
    fs::write(&settings, PAGE_OUT.replace("[budgets]", "max_refaults = 100.0\n[budgets]")).unwrap();
    let Some(script) = swept() else { return skip("python3") };
    let watch = format!("--max-cpu 200 --max-slowdown 200 -p {}", script.pid());
    stage.isotherm(&format!("record {watch} -d 75s -o r.isotherm")).ended(0);
    let predicted = stage.json("report refaults --json r.isotherm");
    let age = |row: &&Value| row["age_ns"].as_u64() == Some(10_000_000_000);
    let row = predicted["report"]["total"]["ages"]
        .as_array()
        .unwrap()
        .iter()
        .find(age)
        .unwrap_or_else(|| panic!("{predicted:#}"));
    let mut run = stage.start_isotherm(&format!("run --socket s.sock {watch} -c {}", settings.display()));
    run.until_it_says("status at");
    let refaulted = || {
        let reported = stage.json("status --json --socket s.sock");
        reported["targets"][0]["page_out"]["refaulted_bytes"].as_u64().unwrap_or(0)
    };
    // All pages have been known for longer than the age, and the first sweep over what is out is over.
    std::thread::sleep(Duration::from_secs(50));
    let (before, began) = (refaulted(), Instant::now());
    std::thread::sleep(Duration::from_secs(48));
    let pages = (refaulted() - before) as f64 / 4096.0;
    let measured = pages / began.elapsed().as_secs_f64() * 60.0;
    run.signal("INT");
    run.end().ended(0);
    let predicted = row["refaults_per_min"].as_f64().unwrap_or_else(|| panic!("{row:#}"));
    let ratio = predicted / measured;
    assert!((0.8..1.2).contains(&ratio), "{predicted:.0} pages a minute predicted, {measured:.0} came back: {row:#}");
}
