//! Heat that is known beforehand, found on the machine that the tests run on.
//!
//! What is asserted leaves room for a busy machine, and none for a monitor that guesses.

mod support;

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{
    AS_NOBODY, ISOTHERM, Script, Stage, alone, busy_demo, installed, interval_at, is_root, open_stage, read,
    sees_pages, skip, workload, workload_by,
};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

fn demo(stage: &Stage, seconds: u32, flags: &str) -> Value {
    stage.json(&format!("demo --size 256MiB --duration {seconds}s --unwatched 500ms --json {flags}"))
}

fn number(json: &Value, key: &str) -> f64 {
    json[key].as_f64().unwrap_or_else(|| panic!("no {key} in {json}"))
}

// --- The demo

#[test]
fn the_demo_finds_hot_pages_and_only_those() {
    need!(sees_pages(), "the page-table source");
    let _turn = alone();
    let found = demo(&Stage::new(), 16, "");
    assert!(number(&found, "recall") >= 0.95 && number(&found, "precision") >= 0.95, "{found}");
    assert!(number(&found, "hot_bytes_error_pct") < 5.0 && found["granularity"] == "page", "{found}");
    // Good in the first half of what was watched, from then on, and exact in the end.
    let (good_s, exact_s) = (number(&found, "good_s"), number(&found, "exact_s"));
    assert!(good_s <= number(&found, "seconds") / 2.0 && good_s <= exact_s, "{found}");
    // The budget is 1%; what is over comes from starting up, and from a monitor that was not optimized.
    assert!(number(&found, "monitor_cpu_pct") < 4.0 && found["read_errors"] == 0, "{found}");
    assert!(number(&found, "slowdown_estimated_pct") <= 1.1, "{found}");
}

#[test]
fn the_demo_finds_hot_huge_pages() {
    need!(sees_pages(), "the page-table source");
    let enabled = read(Path::new("/sys/kernel/mm/transparent_hugepage/enabled"));
    need!(!enabled.is_empty() && !enabled.contains("[never]"), "transparent huge pages");
    let _turn = alone();
    let found = demo(&Stage::new(), 6, "--huge");
    assert!(number(&found, "recall") >= 0.95 && number(&found, "precision") >= 0.95, "{found}");
}

#[test]
fn the_busy_demo_finds_what_its_store_has_counted() {
    need!(sees_pages(), "the page-table source");
    let _turn = alone();
    let found = Stage::new().json(&format!("{} --duration 6s --json", busy_demo()));
    assert!(number(&found, "recall") >= 0.85 && number(&found, "precision") >= 0.9, "{found}");
    assert!(number(&found, "hot_bytes_error_pct") < 20.0 && found["scored_by"] == "page", "{found}");
    // Keys are within a few percent of the hottest one, and items that are written go around in a twentieth of the memory.
    let [memory, hot, near] = ["memory_bytes", "hot_bytes", "near_bytes"].map(|key| number(&found, key));
    assert!(hot > memory / 20.0 && hot < memory / 2.0 && near < hot, "{found}");
    let threads = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(number(&found, "threads") == threads && number(&found, "operations_per_s") > 0.0, "{found}");
    // Every CPU is busy, as far as other programs leave it free.
    let cpus = number(&found, "cpus");
    assert!(cpus > 0.0 && cpus < threads + 0.5, "{found}");
    assert!(number(&found, "slowdown_estimated_pct") <= 1.1 && found["read_errors"] == 0, "{found}");
}

#[test]
fn the_demo_draws_what_it_found() {
    let _turn = alone();
    let stage = Stage::new();
    let ran = stage.isotherm("demo --size 16MiB --duration 2s --unwatched 500ms -o map.png").ended(0);
    ran.prints("accuracy").prints("cost");
    assert!(fs::read(stage.path("map.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn by_mapping_the_demo_finds_how_much_is_hot() {
    let _turn = alone();
    let found = demo(&Stage::new(), 6, "--source referenced");
    assert!(found["granularity"] == "mapping" && found["source"] == "referenced", "{found}");
    // Which pages are hot cannot be known by mapping, how many can.
    assert!(number(&found, "hot_bytes_error_pct") < 25.0, "{found}");
}

#[test]
fn what_cannot_be_cleared_does_not_look_hot_beside_private_memory() {
    need!(sees_pages(), "the page-table source");
    let stage = Stage::new();
    let file = stage.path("mapped by two");
    fs::write(&file, vec![1; 400 << 10]).unwrap();
    // In one huge range, private memory comes first and then pages of a file that another process maps too, as libraries are mapped.
    let script = || {
        Script::start(&format!(
            "
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
own, shared, huge = 64 << 10, 400 << 10, 2 << 20
start = reserve(2 * huge)
at = (start + huge - 1) // huge * huge
# Nothing else is mapped in this huge range.
libc.munmap(start, 2 * huge)
libc.mmap(at, own, 3, PRIVATE | 0x10, -1, 0)
file = open('{}')
libc.mmap(at + own, shared, 1, 0x11, file.fileno(), 0)
for page in range(at, at + own, 4096): touch(page)
for page in range(at + own, at + own + shared, 4096): ctypes.c_ubyte.from_address(page).value
print(at, flush=True)
time.sleep(600)
",
            file.display()
        ))
    };
    let (Some(one), Some(_other)) = (script(), script()) else { return skip("python3") };
    stage.isotherm(&format!("record -d 1s -p {}", one.pid())).ended(0);
    let found = process(&stage, "", one.pid());
    // Python's own pages are hot while it goes to sleep, if at all.
    assert!(found["hot_bytes"].as_u64().unwrap() <= 64 << 10, "{found}");
}

#[test]
fn the_hottest_regions_are_listed_where_a_snapshot_has_no_room_for_them() {
    need!(sees_pages(), "the page-table source");
    let _turn = alone();
    // 40 hot spans of 256 KiB, with as much idle memory behind each.
    let script = Script::start(
        "
at = reserve(20 << 20)
for page in range(at, at + (20 << 20), 4096): touch(page)
print(at, flush=True)
heat([page for page in range(at, at + (20 << 20), 4096) if (page - at) >> 18 & 1 == 0])
",
    );
    let Some(script) = script else { return skip("python3") };
    let at: u64 = script.line.trim().parse().unwrap();
    let report = Stage::new().json(&format!(
        "report access -d 4s --max-regions 10 --hottest 60 --max-interval 1s --json -p {}",
        script.pid()
    ));
    let regions = report["report"]["targets"][0]["regions"].as_array().unwrap();
    let is_span = |region: &&Value| {
        let (start, size) = (region["start"].as_u64().unwrap(), region["size_bytes"].as_u64().unwrap());
        start >= at && (start - at).is_multiple_of(2 << 18) && size == 1 << 18
    };
    let spans = regions.iter().filter(is_span).count();
    assert!(spans >= 36, "{spans} of 40 among {}: {report}", regions.len());
}

/// What `report processes` says of one process.
fn process(stage: &Stage, recording: &str, pid: u32) -> Value {
    let json = stage.json(&format!("report processes --json {recording}"));
    let rows = json["report"]["processes"].as_array().unwrap();
    rows.iter().find(|r| r["pid"] == pid).unwrap_or_else(|| panic!("{pid} is not in {json}")).clone()
}

#[test]
fn both_sources_agree_on_how_much_is_hot() {
    need!(sees_pages(), "the page-table source");
    // A copy of the program that nobody else runs: pages of a file are marked as accessed in the page cache too, when any process that
    // has touched them ends (as those of other tests do), and the kernel counts that as referenced by all who map the file.
    let (stage, copy) = open_stage();
    let child = workload_by(Command::new(copy), 256);
    for source in ["page-table", "referenced"] {
        stage.isotherm(&format!("record -o {source} --source {source} -d 6s -p {}", child.pid())).ended(0);
        let row = process(&stage, source, child.pid());
        assert_a_tenth_of_256_mib_is_hot(source, &row);
        assert!(number(&row, "resident_bytes") >= 256.0 * MIB as f64, "{row}");
    }
}

/// Some 11 MiB of the program's own file are mapped. The kernel reports a part of them as accessed, now more, now less:
/// fault-around maps 16 pages at a time, and as accessed; a folio that is being written back cannot be split for one of its pages.
fn assert_a_tenth_of_256_mib_is_hot(source: &str, row: &Value) {
    let hot = number(row, "hot_bytes") / MIB as f64;
    assert!(
        (24.5..25.6 + 11.0).contains(&hot),
        "25.6 MiB are hot, and at most 11 MiB of the program; {source} says {hot:.1}: {row}"
    );
}

/// Its stack ends where user space does, in a huge range whose last page the kernel lets nobody name.
#[test]
fn a_process_without_address_randomisation_is_watched_like_any_other() {
    need!(sees_pages() && installed("setarch"), "the page-table source and setarch");
    let stage = Stage::new();
    let mut fixed = Command::new("setarch");
    fixed.arg("-R").arg(ISOTHERM);
    let child = workload_by(fixed, 256);
    stage.isotherm(&format!("record -o fixed -d 6s -p {}", child.pid())).ended(0).never_says("skipped");
    assert_a_tenth_of_256_mib_is_hot("page-table", &process(&stage, "fixed", child.pid()));
}

// --- Without privilege

#[test]
fn without_privilege_the_demo_works_and_says_what_is_lost() {
    need!(is_root() && installed("setpriv"), "root and setpriv, to become nobody");
    let _turn = alone();
    let (stage, isotherm) = open_stage();
    let ran = stage
        .shell(&format!("{AS_NOBODY} {isotherm} demo --size 64MiB --duration 4s --unwatched 500ms --json"))
        .ended(0);
    let ran = ran.says("page-table is not available").says("not which pages");
    let found = ran.json();
    assert!(found["source"] == "referenced" && found["granularity"] == "mapping", "{found}");
    stage.shell(&format!("{AS_NOBODY} {isotherm} doctor")).ended(0).prints("source: referenced");
}

#[test]
fn without_privilege_ones_own_processes_can_be_recorded() {
    need!(is_root() && installed("setpriv"), "root and setpriv, to become nobody");
    let (stage, isotherm) = open_stage();
    let mut nobody = Command::new("setpriv");
    nobody.args(AS_NOBODY.split(' ').skip(1)).arg(&isotherm);
    let child = workload_by(nobody, 64);
    let ran = stage.shell(&format!("{AS_NOBODY} {isotherm} record -d 6s -p {}", child.pid())).ended(0);
    ran.says("not which pages");
    let row = process(&stage, "", child.pid());
    let hot = number(&row, "hot_bytes") / MIB as f64;
    assert!((5.0..10.0).contains(&hot), "6.4 MiB are hot, not {hot:.1}: {row}");
    for report in ["access", "heatmap", "wss", "histogram", "processes", "cgroups"] {
        stage.shell(&format!("{AS_NOBODY} {isotherm} report {report}")).ended(0);
    }
    stage.shell(&format!("{AS_NOBODY} {isotherm} report access")).ended(0).prints("by mapping");
}

#[test]
fn without_privilege_what_belongs_to_others_is_refused_with_advice() {
    need!(is_root() && installed("setpriv"), "root and setpriv, to become nobody");
    let (stage, isotherm) = open_stage();
    let roots = workload(16);
    let ran = stage.shell(&format!("{AS_NOBODY} {isotherm} record -o theirs -p {}", roots.pid())).ended(1);
    ran.says("permission denied").says("root");
    let ran = stage.shell(&format!("{AS_NOBODY} {isotherm} record -o pt --source page-table -- sleep 5")).ended(1);
    ran.says("CAP_BPF");
    // What is left out is summed up, not listed.
    let all = stage.shell(&format!("{AS_NOBODY} {isotherm} record -o all -d 1s --all"));
    assert!(all.err.lines().count() < 12, "{all}");
}

// --- Memory of unusual shape

#[test]
fn of_65_000_mappings_the_hot_pages_are_found() {
    need!(sees_pages(), "the page-table source");
    let limit = read(Path::new("/proc/sys/vm/max_map_count")).trim().parse().unwrap_or(0);
    need!(limit >= 65_530, "vm.max_map_count of 65530");
    // Every other page is read-only, so that no two neighbours are one mapping.
    let script = Script::start(
        "
count = 65400
at = reserve(count << 12)
libc.madvise(at, count << 12, 15)
ctypes.memset(at, 1, count << 12)
for page in range(0, count, 2):
    if libc.mprotect(at + (page << 12), 4096, 1): sys.exit('mprotect failed')
print(at, flush=True)
heat([at + (page << 12) for page in range(20001, 21001, 2)])",
    );
    let Some(script) = script else { return skip("python3") };
    let at = script.numbers()[0];
    let stage = Stage::new();
    // Without optimization, on a busy machine, listing and snapshots of so many mappings take most of 1% of a core for 15 s.
    stage.isotherm(&format!("record -d 30s --max-cpu 2 -p {}", script.pid())).ended(0);
    let report = stage.json("report access --json");
    let row = process(&stage, "", script.pid());
    let unknown = number(&row, "unmeasured_bytes") / number(&row, "resident_bytes");
    assert!(unknown < 0.2, "after 30 s, {:.0}% of the memory is unknown: {row}", 100.0 * unknown);
    assert!(number(&row, "hot_bytes") >= (450 << 12) as f64, "{row}");
    // Every other page around is cold, and as many runs as that are shown as one mixed region: the middle on the log scale, of pages
    // of which some may not be known to be hot yet.
    let [hot, cold] = [20_501, 45_000].map(|page| interval_at(&report, at + (page << 12)).expect("measured"));
    assert!(
        hot < 10 * SECOND && hot < cold / 3,
        "every other page touched at 50 Hz, said every {hot} ns; where none is touched, every {cold} ns"
    );
}

#[test]
fn ten_pages_in_a_tebibyte_are_found_at_once() {
    need!(sees_pages(), "the page-table source");
    let script = Script::start(
        "
size = 1 << 40
at = reserve(size, NORESERVE)
libc.madvise(at, size, 15)
pages = [at + i * (size // 10) + 0x5000 for i in range(10)]
for page in pages: touch(page)
print(*pages, flush=True)
heat(pages)",
    );
    let Some(script) = script else { return skip("python3") };
    let stage = Stage::new();
    let began = Instant::now();
    stage.isotherm(&format!("record -d 4s -p {}", script.pid())).ended(0);
    let report = stage.json("report access --json");
    assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
    for page in script.numbers() {
        let interval = interval_at(&report, page);
        assert!(
            interval.is_some_and(|ns| ns < SECOND),
            "{page:#x} is touched at 50 Hz, and said every {interval:?} ns"
        );
    }
    stage.isotherm("report heatmap -o map.png").ended(0);
    stage.isotherm("report heatmap").ended(0);
}

#[test]
fn locked_memory_is_told_hot_from_idle() {
    need!(sees_pages(), "the page-table source");
    let script = Script::start(
        "
size = 64 << 20
at = reserve(size)
libc.madvise(at, size, 15)
if libc.mlock(at, size): print('denied', flush=True); sys.exit()
print(at, flush=True)
heat([at + (page << 12) for page in range(4096, 6144)])",
    );
    let Some(script) = script else { return skip("python3") };
    need!(script.line != "denied", "to be allowed to lock 64 MiB of memory");
    let at = script.numbers()[0];
    let stage = Stage::new();
    stage.isotherm(&format!("record -d 8s -p {}", script.pid())).ended(0);
    let report = stage.json("report access --json");
    let hot = interval_at(&report, at + (5000 << 12));
    assert!(hot.is_some_and(|ns| ns < SECOND), "touched at 50 Hz, and said every {hot:?} ns");
    let idle = interval_at(&report, at + (10_000 << 12));
    assert!(idle.is_none_or(|ns| ns > SECOND), "never touched, and said every {idle:?} ns");
    let hot_mib = number(&process(&stage, "", script.pid()), "hot_bytes") / MIB as f64;
    assert!((7.5..12.0).contains(&hot_mib), "8 MiB are hot, not {hot_mib}");
}

#[test]
fn hugetlb_memory_is_seen_or_said_to_be_unknown() {
    need!(sees_pages(), "the page-table source");
    let free = read(Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")).trim().parse().unwrap_or(0);
    need!(free >= 4, "four free hugetlb pages");
    let script = Script::start(
        "
at = reserve(8 << 20, HUGETLB)
ctypes.memset(at, 1, 8 << 20)
print(at, flush=True)
heat([at])",
    );
    let Some(script) = script else { return skip("python3") };
    let stage = Stage::new();
    stage.isotherm(&format!("record -d 4s -p {}", script.pid())).ended(0);
    let report = stage.json("report access --json");
    let target = &report["report"]["targets"][0];
    assert!(number(target, "resident_bytes") >= 8.0 * MIB as f64, "{target}");
    let hot = interval_at(&report, script.numbers()[0]);
    let unknown = number(target, "unclearable_bytes");
    assert!(hot.is_some_and(|ns| ns < SECOND) || unknown >= 8.0 * MIB as f64, "{hot:?} {target}");
}

#[test]
fn memory_that_two_processes_share_is_counted_once() {
    need!(sees_pages(), "the page-table source");
    let script = Script::start(
        "
import mmap, os
shared = mmap.mmap(-1, 32 << 20)
shared.write(b'x' * (32 << 20))
at = ctypes.addressof(ctypes.c_char.from_buffer(shared))
pages = [at + (page << 12) for page in range(8192)]
if os.fork() == 0:
    parent = os.getppid()
    for page in pages: ctypes.string_at(page, 1)
    while os.getppid() == parent: time.sleep(0.1)
    os._exit(0)
time.sleep(1)
print(at, flush=True)
while True: time.sleep(1)",
    );
    let Some(script) = script else { return skip("python3") };
    let stage = Stage::new();
    stage.isotherm(&format!("record -d 6s -p {}", script.pid())).ended(0);
    let json = stage.json("report processes --json");
    let rows = json["report"]["processes"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{json}");
    for row in rows {
        assert!(number(row, "resident_bytes") >= 32.0 * MIB as f64, "{row}");
    }
    let total = number(&json["report"]["total"], "resident_bytes") / MIB as f64;
    assert!((32.0..60.0).contains(&total), "32 MiB in two processes, and both programs, are {total} MiB");
}

#[test]
fn memory_shared_with_a_process_that_has_ended_counts_for_the_one_that_is_left() {
    need!(sees_pages() && is_root(), "root and the page-table source");
    // The parent comes first, so the pages count for it, and not for its child. Then it ends.
    let script = Script::start(
        "
import os
size = 32 << 20
at = reserve(size)
libc.madvise(at, size, 15)
ctypes.memset(at, 1, size)
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
while True: time.sleep(1)",
    );
    let Some(script) = script else { return skip("python3") };
    let child = u32::try_from(script.numbers()[0]).unwrap();
    let stage = Stage::new();
    let mut record = stage.start_isotherm(&format!("record -o r -d 12s --max-cpu 50 -p {} -p {child}", script.pid()));
    record.until_it_says("accessed bits");
    std::thread::sleep(Duration::from_secs(7));
    let elsewhere = || number(&process(&stage, "r", child), "counted_elsewhere_bytes");
    let while_both = elsewhere();
    support::signal(script.pid(), "KILL");
    record.end().ended(0);
    let alone = elsewhere();
    support::signal(child, "KILL");
    assert!(while_both >= (30 * MIB) as f64 && alone == 0.0, "{while_both} bytes, and then {alone}");
}

/// A clear of a huge range leaves pages that several processes map, and a sampled process checks nothing else.
#[test]
fn shared_memory_of_a_sampled_process_is_measured() {
    need!(sees_pages(), "the page-table source");
    let script = Script::start(
        "
import mmap, os
size = 256 << 20
shared = mmap.mmap(-1, size)
shared.write(b'x' * size)
at = ctypes.addressof(ctypes.c_char.from_buffer(shared))
ready, wait = os.pipe()
if os.fork() == 0:
    parent = os.getppid()
    for page in range(size >> 12): ctypes.string_at(at + (page << 12), 1)
    os.write(wait, b'x')
    while os.getppid() == parent: time.sleep(0.1)
    os._exit(0)
os.read(ready, 1)
print(at, flush=True)
while True:
    ctypes.memset(at + size // 4, 1, size // 4)
    time.sleep(0.02)",
    );
    let Some(script) = script else { return skip("python3") };
    let stage = Stage::new();
    // By huge range: the second quarter is hot. What is shared is measured by clears of the whole process, which a busy machine puts further apart: then it
    // is recorded once more.
    let recorded = |name: &str| {
        stage.isotherm(&format!("record -o {name} -d 30s --max-cpu 5 -p {} --mode sampled", script.pid())).ended(0);
        let report = stage.json(&format!("report access --json {name}"));
        // The child has the same addresses.
        let targets = report["report"]["targets"].as_array().unwrap().iter();
        let own: Vec<&Value> = targets.filter(|t| t["pid"] == script.pid()).collect();
        let own = json!({ "report": { "targets": own } });
        let at = |no: u64| interval_at(&own, script.numbers()[0] + no * 2 * MIB + MIB);
        (0..128).map(at).collect::<Option<Vec<u64>>>()
    };
    let intervals = recorded("first").or_else(|| recorded("second")).expect("it is measured");
    let hot: Vec<bool> = intervals.iter().map(|ns| *ns <= SECOND).collect();
    let right = hot[32..64].iter().filter(|h| **h).count();
    let reported = hot.iter().filter(|h| **h).count();
    assert!(right >= 31 && reported <= right + 2, "{right} of 32 are found, and {reported} reported: {hot:?}");
}
