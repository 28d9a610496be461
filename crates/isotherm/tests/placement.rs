//! `isotherm placement`: held against frames that the test reads and counts by itself, on children with a known layout, on Redis, and with
//! bad input.

mod support;

use isotherm_host::{HostFacts, HostRoots, placement_caches};
use isotherm_sys::lru_gen::zones::Zones;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{AS_NOBODY, Script, Stage, installed, is_root, open_stage, read, sees_pages, signal, until, workload};

/// The frames of a process, each once, and how many of its pages have one. `None` if they are hidden from us.
fn frames_of(pid: u32) -> Option<(BTreeSet<u64>, u64)> {
    let proc = Path::new("/proc").join(pid.to_string());
    let pagemap = File::open(proc.join("pagemap")).ok()?;
    let (mut frames, mut pages) = (BTreeSet::new(), 0);
    for line in read(&proc.join("maps")).lines().filter(|line| !line.contains("[v")) {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap() / 4096);
        let mut entries = vec![0; usize::try_from(end - start).unwrap() * 8];
        pagemap.read_exact_at(&mut entries, start * 8).ok()?;
        for entry in entries.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap())) {
            if entry >> 63 == 1 {
                let frame = entry & ((1 << 55) - 1);
                if frame == 0 {
                    return None;
                }
                frames.insert(frame);
                pages += 1;
            }
        }
    }
    Some((frames, pages))
}

fn sees_frames() -> bool {
    frames_of(std::process::id()).is_some()
}

/// Percent of accesses that miss if all frames are accessed alike: each colour hits once for all that lies on it.
fn miss_pct(frames: &BTreeSet<u64>, colours: u64) -> f64 {
    let mut on: BTreeMap<u64, u64> = BTreeMap::new();
    frames.iter().for_each(|frame| *on.entry(frame % colours).or_default() += 1);
    (1.0 - on.len() as f64 / frames.len() as f64) * 100.0
}

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {path} in {report}"))
}

/// The frames of each node. Where there is one node only, all are on it.
fn by_node(frames: &BTreeSet<u64>, report: &Value) -> BTreeMap<u64, BTreeSet<u64>> {
    let nodes = report["nodes"].as_array().unwrap();
    let zones = Zones::read(Path::new("/proc")).unwrap();
    let mut of: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for frame in frames {
        let node = if nodes.len() == 1 { nodes[0]["node"].as_u64() } else { zones.node_of(*frame).map(u64::from) };
        if let Some(node) = node {
            of.entry(node).or_default().insert(*frame);
        }
    }
    of
}

/// Holds a report of one stopped process, or a few, against what the test counts; `colours_of` has the colours of a node's cache.
fn agrees(report: &Value, frames: &BTreeSet<u64>, pages: u64, colours_of: impl Fn(u64) -> Option<u64>) {
    let near = |told: f64, counted: f64, what: &str| {
        // The kernel may move, join or drop a page at any time.
        assert!((told - counted).abs() <= counted * 0.005 + 0.5, "{what}: {told} told, {counted} counted");
    };
    near(number(report, "/frames"), frames.len() as f64, "frames");
    let resident: f64 =
        report["targets"].as_array().unwrap().iter().map(|t| t["resident_pages"].as_f64().unwrap()).sum();
    let zeros: f64 = report["targets"].as_array().unwrap().iter().map(|t| t["zero_pages"].as_f64().unwrap()).sum();
    near(resident + zeros, pages as f64, "pages");
    near(number(report, "/shared_pages") + number(report, "/frames") + zeros, pages as f64, "shared pages");
    let (counted, none) = (by_node(frames, report), BTreeSet::new());
    let (mut on_nodes, mut behind, mut missed) = (number(report, "/unknown_node_frames"), 0.0, 0.0);
    for node in report["nodes"].as_array().unwrap() {
        let id = node["node"].as_u64().unwrap();
        let of_node = counted.get(&id).unwrap_or(&none);
        near(number(node, "/frames"), of_node.len() as f64, "frames of a node");
        on_nodes += number(node, "/frames");
        let Some(colours) = colours_of(id) else {
            assert!(node["cache"].is_null() && node["rates"].is_null(), "{node}");
            continue;
        };
        assert_eq!(number(node, "/cache/colours"), colours as f64);
        if !of_node.is_empty() {
            near(number(node, "/rates/placed_pct"), miss_pct(of_node, colours), "rate of a node");
            behind += of_node.len() as f64;
            missed += miss_pct(of_node, colours) * of_node.len() as f64;
        }
        let on_colours: f64 = node["picture"].as_array().unwrap().iter().map(|c| c["frames"].as_f64().unwrap()).sum();
        assert_eq!(on_colours, number(node, "/frames"), "the picture has every frame");
    }
    assert_eq!(on_nodes, number(report, "/frames"), "each frame is on one node, or on none");
    if behind > 0.0 {
        near(number(report, "/rates/placed_pct"), missed / behind, "rate");
        rates_make_sense(report);
    }
}

fn rates_make_sense(report: &Value) {
    let rate = |path: &str| number(report, &format!("/rates/{path}"));
    for path in [
        "placed_pct",
        "shuffled/min_pct",
        "shuffled/max_pct",
        "shuffled_below_placed_pct",
        "coloured/mean_pct",
        "unavoidable_pct",
        "crowded_pct",
    ] {
        assert!((0.0..=100.0).contains(&rate(path)), "{path}: {report}");
    }
    assert!(
        rate("shuffled/min_pct") <= rate("shuffled/mean_pct") && rate("shuffled/mean_pct") <= rate("shuffled/max_pct")
    );
    assert!(rate("coloured/mean_pct") <= rate("shuffled/mean_pct") + 0.5, "{report}");
    assert!(rate("coloured_by_heat_pct") <= rate("coloured/mean_pct") + 0.01, "{report}");
    assert!(rate("unavoidable_pct") <= rate("coloured_by_heat_pct") + 0.01, "{report}");
    assert!(rate("unavoidable_pct") <= rate("placed_pct") + 0.01, "{report}");
}

// --- Bad input

#[test]
fn what_makes_no_sense_is_wrong_usage() {
    let stage = Stage::new();
    let me = std::process::id();
    stage.isotherm("placement --cache-size 1GiB").ended(2).says("-p PID, --cgroup PATH, --all");
    stage.isotherm(&format!("placement -p {me} --cache-size much")).ended(2).says("64MiB");
    stage.isotherm(&format!("placement -p {me} --cache-size 5000")).ended(2).says("whole number of pages");
    stage.isotherm(&format!("placement -p {me} --cache-size 0")).ended(2).says("at least one page");
    stage.isotherm(&format!("placement -p {me} --cache-size 4095")).ended(2).says("a cache of 4095 bytes");
    stage.isotherm("placement --cache-size 1GiB -- sleep 1").ended(2).says("--watch");
    stage.isotherm("placement --all --cache-size 1GiB --source damon-paddr").ended(2).says("running processes");
    stage.isotherm(&format!("placement -p {me} --cache-size 1GiB --sample-period 5")).ended(2).says("--watch");
    stage.isotherm(&format!("placement --all --from x --cache-size 1GiB -p {me}")).ended(2);
}

#[test]
fn without_a_cache_it_says_how_to_model_one() {
    let nodes = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let has_cache = nodes.filter(|node| node.path().join("memory_side_cache").exists()).count() > 0;
    need!(!has_cache, "a machine without a memory-side cache");
    let ran = Stage::new().isotherm(&format!("placement -p {}", std::process::id())).ended(1);
    ran.says("memory-side cache").says("--cache-size");
}

#[test]
fn without_privilege_it_names_the_one_that_lacks() {
    need!(is_root() && installed("setpriv"), "root and setpriv, to become nobody");
    let (stage, isotherm) = open_stage();
    // A child of its own: every other file of it may be read.
    let script = format!(
        "{AS_NOBODY} sh -c 'sleep 30 & {isotherm} placement -p $! --cache-size 1MiB; code=$?; kill $!; exit $code'"
    );
    stage.shell(&script).ended(1).says("CAP_SYS_ADMIN").never_says("MISS");
}

#[test]
fn processes_that_are_none_are_errors_that_name_them() {
    need!(sees_frames(), "CAP_SYS_ADMIN, to see frames");
    let stage = Stage::new();
    let mut gone = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", gone.id());
    assert!(until(Duration::from_secs(5), || read(Path::new(&stat)).contains(") Z ")));
    stage.isotherm(&format!("placement --cache-size 1MiB -p {}", gone.id())).ended(1).says("has ended");
    gone.wait().unwrap();
    let none = format!("there is no process {}", gone.id());
    stage.isotherm(&format!("placement --cache-size 1MiB -p {}", gone.id())).ended(1).says(&none);
    if read(Path::new("/proc/2/comm")).trim() == "kthreadd" {
        stage.isotherm("placement --cache-size 1MiB -p 2").ended(1).says("process 2 has no user memory");
    }
    stage.isotherm("placement --cache-size 1MiB --from nowhere").ended(1).says("nowhere");
}

// --- Frames

#[test]
fn a_known_layout_is_told_as_it_is() {
    need!(sees_frames(), "CAP_SYS_ADMIN, to see frames");
    // A terabyte of which 3,000 pages are there, every other one; then a fork, which shares them all.
    let code = "
import os
at = reserve(1 << 40, NORESERVE)
libc.madvise(at, 1 << 40, 15)
for i in range(3000): touch(at + i * 8192)
pid = os.fork()
if pid == 0: time.sleep(60)
print(at, pid, flush=True)
time.sleep(60)
";
    let Some(script) = Script::start(code) else { return support::skip("Python") };
    let child = u32::try_from(script.numbers()[1]).unwrap();
    let stage = Stage::new();
    for pid in [script.pid(), child] {
        signal(pid, "STOP");
    }
    let one = stage.json(&format!("placement --json --no-children --cache-size 4MiB -p {}", script.pid()));
    assert!(number(&one, "/targets/0/resident_pages") >= 3000.0, "{one}");
    assert!(number(&one, "/targets/0/absent_pages") >= ((1_u64 << 28) - 3000) as f64, "{one}");
    let nodes = one["nodes"].as_array().unwrap();
    assert!(nodes.iter().all(|node| node["cache"]["modelled"] == true), "{one}");
    let both = stage.json(&format!("placement --json --cache-size 4MiB -p {}", script.pid()));
    assert_eq!(both["targets"].as_array().unwrap().len(), 2, "{both}");
    assert!(number(&both, "/shared_pages") >= 3000.0, "pages of the fork are those of its parent: {both}");
    let more = number(&both, "/frames") - number(&one, "/frames");
    assert!(more < 2000.0, "{more} frames of its own");
    let text = stage.isotherm(&format!("placement --seed 1 --cache-size 4MiB -p {}", script.pid())).ended(0);
    let text =
        text.prints("assumed, not measured").prints("every resident page has the same weight").prints("as placed");
    let text =
        text.prints("as if shuffled").prints("as if coloured").prints("unavoidable").prints("page_alloc.shuffle");
    let again = stage.isotherm(&format!("placement --seed 1 --cache-size 4MiB -p {}", script.pid())).ended(0);
    assert_eq!(text.out, again.out, "the same seed, the same draws");
    signal(child, "KILL");
}

#[test]
fn pages_that_were_only_read_are_zero_pages_and_no_frames() {
    need!(sees_frames(), "CAP_SYS_ADMIN, to see frames");
    // 64 MiB of small pages and, if the system has them, 64 MiB of huge ones: MADV_NOHUGEPAGE and MADV_HUGEPAGE.
    let code = "
for advice in [15, 14]:
    at = reserve(64 << 20)
    libc.madvise(at, 64 << 20, advice)
    for i in range(16384): ctypes.string_at(at + i * 4096, 1)
print(at, flush=True)
time.sleep(60)
";
    let Some(script) = Script::start(code) else { return support::skip("Python") };
    signal(script.pid(), "STOP");
    let stage = Stage::new();
    let report = stage.json(&format!("placement --json --cache-size 64MiB -p {}", script.pid()));
    let zeros = number(&report, "/targets/0/zero_pages");
    assert!((32_768.0..33_000.0).contains(&zeros), "{report}");
    let of_others = number(&report, "/targets/0/resident_pages");
    assert!(of_others < 16_384.0 && number(&report, "/shared_pages") < 4096.0, "{report}");
    assert_eq!(number(&report, "/frames") + number(&report, "/shared_pages"), of_others, "{report}");
    let text = stage.isotherm(&format!("placement --cache-size 64MiB -p {}", script.pid())).ended(0);
    text.prints("MiB of zero pages");
}

#[test]
fn tens_of_thousands_of_mappings_are_no_obstacle() {
    need!(sees_frames(), "CAP_SYS_ADMIN, to see frames");
    let code = "
count = 65000
at = reserve(count * 4096)
libc.madvise(at, count * 4096, 15)
for i in range(count): touch(at + i * 4096)
made = sum(libc.mprotect(at + i * 4096, 4096, 1) == 0 for i in range(0, count, 2))
print(made, flush=True)
time.sleep(60)
";
    let Some(script) = Script::start(code) else { return support::skip("Python") };
    assert!(script.numbers()[0] > 10_000, "{}", script.line);
    signal(script.pid(), "STOP");
    let colours = 20_011;
    let report = Stage::new().json(&format!("placement --json --cache-size {} -p {}", colours * 4096, script.pid()));
    let (frames, pages) = frames_of(script.pid()).unwrap();
    assert!(pages > 65_000);
    agrees(&report, &frames, pages, |_| Some(colours));
}

#[test]
fn processes_that_come_and_go_are_left_out() {
    need!(sees_frames(), "CAP_SYS_ADMIN, to see frames");
    let script = "(while true; do true | cat | cat; done) & busy=$!
        for i in 1 2 3; do $isotherm placement --all --json --cache-size 64MiB || code=1; done; kill $busy; exit ${code:-0}";
    Stage::new().shell(script).ended(0).prints("placed_pct");
}

/// The lab's guest 6.12-cache has such a cache, in front of one of two nodes.
#[test]
fn the_machines_own_cache_is_used_for_the_frames_behind_it() {
    let facts = HostFacts::read(&HostRoots::default(), isotherm_sys::page_size());
    let direct = placement_caches(&facts).unwrap_or_default().direct;
    let Some(first) = direct.first() else { return support::skip("a memory-side cache") };
    need!(sees_frames(), "CAP_SYS_ADMIN, to see frames");
    // On a processor of the cache's node, if it has one, so that its memory is behind the cache.
    let processors = read(Path::new(&format!("/sys/devices/system/node/node{}/cpulist", first.node)));
    let processor: i32 = processors.trim().split([',', '-']).next().and_then(|cpu| cpu.parse().ok()).unwrap_or(-1);
    let code = format!(
        "
import os
if {processor} >= 0: os.sched_setaffinity(0, [{processor}])
at = reserve(16 << 20)
for i in range(4096): touch(at + i * 4096)
print(4096, flush=True)
time.sleep(600)
"
    );
    let Some(script) = Script::start(&code) else { return support::skip("Python") };
    signal(script.pid(), "STOP");
    let stage = Stage::new();
    let report = stage.json(&format!("placement --json --seed 1 -p {}", script.pid()));
    let (frames, pages) = frames_of(script.pid()).unwrap();
    assert!(pages > 4096);
    let colours_of = |node: u64| {
        let mut of_node = direct.iter().filter(|cache| u64::from(cache.node) == node);
        let sure = of_node.clone().find(|cache| cache.is_sure());
        sure.or(of_node.next()).map(|cache| cache.frames)
    };
    agrees(&report, &frames, pages, colours_of);
    let node = report["nodes"].as_array().unwrap().iter().find(|node| node["node"] == first.node).unwrap();
    assert_eq!(node["cache"]["modelled"], false);
    let text = stage.isotherm(&format!("placement --seed 1 -p {}", script.pid())).ended(0);
    let text = text.prints(&format!("memory-side cache of node {}", first.node)).prints("as reported by this machine");
    if std::env::var_os("ISOTHERM_LAB").is_some() {
        assert_eq!((node["node"].as_u64(), number(node, "/cache/colours")), (Some(0), 65_536.0), "{node}");
        assert_eq!(node["cache"]["doubts"].as_array().unwrap().len(), 0, "{node}");
        assert!(number(node, "/frames") > 4096.0 * 0.9, "on the node whose processor touched it: {node}");
        assert!(number(node, "/rates/placed_pct") < 50.0, "16 MiB in a cache of 256: {node}");
        text.prints("65536 colours");
    }
    // A model replaces it, on every node.
    let modelled = stage.json(&format!("placement --json --seed 1 --cache-size 4MiB -p {}", script.pid()));
    agrees(&modelled, &frames, pages, |_| Some(1024));
}

// --- Heat

#[test]
fn heat_weighs_pages_live_and_from_a_recording() {
    need!(sees_frames(), "CAP_SYS_ADMIN, to see frames");
    need!(sees_pages(), "the page-table source");
    let stage = Stage::new();
    let child = workload(32);
    stage.isotherm(&format!("record -o rec -d 4s -w 1s -p {}", child.pid())).ended(0);
    // A tenth of it is hot: half of the workload's pages as cache have room for all accesses but what conflicts.
    let live = stage.json(&format!("placement --json --watch 4s --cache-size 16MiB -p {}", child.pid()));
    let recorded = stage.json("placement --json --from rec --cache-size 16MiB");
    let even = stage.json(&format!("placement --json --cache-size 16MiB -p {}", child.pid()));
    for report in [&live, &recorded] {
        rates_make_sense(report);
        assert!(report["heat"].as_str().is_some_and(|heat| !heat.is_empty()), "{report}");
        assert!(number(report, "/rates/unavoidable_pct") < 10.0, "{report}");
        assert!(number(report, "/frames") > 8000.0, "cold pages have frames too");
    }
    assert!(even["heat"].is_null() && number(&even, "/rates/unavoidable_pct") > 40.0, "{even}");
    assert!(number(&live, "/rates/placed_pct") < number(&even, "/rates/placed_pct"), "{live}");
    stage
        .isotherm("placement --from rec --cache-size 16MiB")
        .ended(0)
        .prints("weighted by heat: rec")
        .prints("hot next to cold");
    let pid = child.pid();
    drop(child);
    stage.isotherm("placement --from rec --cache-size 16MiB").ended(1).says(&pid.to_string());
    // A command is started, watched, and ended.
    stage.isotherm("placement --watch 1s --cache-size 16MiB -- sleep 30").ended(0).prints("sleep");
}

// --- Redis

fn serve_redis(stage: &Stage) -> support::Running {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let server = stage.start(command);
    let mut stream = None;
    until(Duration::from_secs(10), || {
        stream = TcpStream::connect(("127.0.0.1", port)).ok();
        stream.is_some()
    });
    let mut redis = BufReader::new(stream.expect("the server listens"));
    redis.get_mut().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // 30,000 values of 2 KiB.
    let value = "x".repeat(2048);
    for batch in 0..300 {
        let sets: String = (0..100).map(|i| format!("SET key:{} {value}\r\n", batch * 100 + i)).collect();
        redis.get_mut().write_all(sets.as_bytes()).unwrap();
        for _ in 0..100 {
            let mut line = String::new();
            redis.read_line(&mut line).unwrap();
            assert_eq!(line, "+OK\r\n");
        }
    }
    server
}

#[test]
fn redis_behind_a_cache_of_half_its_memory() {
    need!(installed("redis-server"), "redis-server");
    need!(sees_frames(), "CAP_SYS_ADMIN, to see frames");
    let stage = Stage::new();
    let server = serve_redis(&stage);
    signal(server.pid(), "STOP");
    let (frames, pages) = frames_of(server.pid()).unwrap();
    let colours = frames.len() as u64 / 2;
    let report = stage.json(&format!("placement --json --cache-size {} -p {}", colours * 4096, server.pid()));
    agrees(&report, &frames, pages, |_| Some(colours));
    assert!((number(&report, "/rates/unavoidable_pct") - 50.0).abs() < 1.0, "{report}");
    // Elsewhere than at random it would be a wonder.
    assert!(number(&report, "/rates/shuffled/mean_pct") > number(&report, "/rates/unavoidable_pct"), "{report}");
    let text = stage.isotherm(&format!("placement --cache-size {} -p {}", colours * 4096, server.pid())).ended(0);
    text.prints("redis-server").prints("modulo").prints("frames by colour, from 0 on");
}
