//! Programs that people run: Redis and memcached under load, recorded, and every report made of the recording.

mod support;

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use support::{
    Running, Stage, free_port, huge_bytes, installed, is_root, read, resident, sees_pages, start_redis, until,
};

fn connect(port: u16) -> TcpStream {
    let mut stream = None;
    until(Duration::from_secs(10), || {
        stream = TcpStream::connect(("127.0.0.1", port)).ok();
        stream.is_some()
    });
    let stream = stream.expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// A thread that asks a server for the same few keys until dropped.
struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Load {
    fn start(mut ask: impl FnMut() + Send + 'static) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut asked = 0;
            while !stopped.load(Ordering::Relaxed) {
                ask();
                asked += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            asked
        });
        Load { stop, thread: Some(thread) }
    }

    /// Ends it, and returns how many rounds it made.
    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().expect("the server answered")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Records a server for five seconds and holds every report against what is known of it.
fn record_and_report(stage: &Stage, server: &Running, comm: &str, load: Load) {
    let pid = server.pid();
    stage.isotherm(&format!("record -w 1s -d 5s -p {pid}")).ended(0).says("snapshots");
    let resident = resident(pid);
    assert!(load.end() > 10, "the load went on all the time, in rounds of 2,000 requests");

    let row = stage.json("report processes --json")["report"]["processes"][0].clone();
    let bytes = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"));
    assert_eq!((&row["pid"], &row["comm"]), (&Value::from(pid), &Value::from(comm)));
    let off = (bytes("resident_bytes") / resident - 1.0).abs();
    assert!(off < 0.1, "VmRSS is {resident}, and said to be resident: {row}");
    assert!(0.0 < bytes("hot_bytes") && bytes("hot_bytes") < 0.6 * bytes("resident_bytes"), "{row}");
    let sum: f64 = ["hot", "warm", "cold", "idle", "unmeasured"].iter().map(|k| bytes(&format!("{k}_bytes"))).sum();
    assert!((sum - bytes("resident_bytes")).abs() < 0.01 * sum, "the parts make up the whole: {row}");
    assert!(bytes("unmeasured_bytes") < 0.5 * bytes("resident_bytes"), "{row}");

    let wss = stage.json("report wss --json")["report"].clone();
    assert_eq!(wss["targets"][0]["points"].as_array().unwrap().len(), 5, "{wss}");
    assert!(wss["total"]["max_bytes"].as_f64().unwrap() > 0.0, "{wss}");

    let access = stage.json("report access --json");
    let regions = support::regions(&access);
    let in_regions: f64 = regions.iter().map(|r| r["resident_bytes"].as_f64().unwrap()).sum();
    assert!((in_regions / bytes("resident_bytes") - 1.0).abs() < 0.01, "regions hold {in_regions}: {row}");
    let named = |name: &str| regions.iter().any(|r| r["mapping"].as_str().unwrap().contains(name));
    assert!(named("redis") || named("memcached"), "the program itself is mapped");
    assert!(named("libc") && named("[stack]"), "and so are its libraries and stack");
    // Its data: the largest region has no file behind it.
    let largest = regions.iter().max_by_key(|r| r["resident_bytes"].as_u64()).unwrap();
    assert!(["", "[heap]"].contains(&largest["mapping"].as_str().unwrap()), "{largest}");
    let text = stage.isotherm("report access").ended(0).prints(&format!("{pid} {comm}")).out;
    assert!(text.contains("(anon)") || text.contains("[heap]"), "{text}");

    let histogram = stage.json("report histogram --json")["report"].clone();
    assert_eq!(histogram["groups"].as_array().unwrap().len(), 1, "{histogram}");
    let cgroups = stage.json("report cgroups --json")["report"].clone();
    assert!(cgroups["cgroups"].as_array().unwrap().iter().any(|c| c["processes"] == 1), "{cgroups}");

    stage.isotherm("report wss").ended(0).prints("working set");
    stage.isotherm("report histogram --per-process").ended(0).prints(comm);
    stage.isotherm("report processes").ended(0).prints(comm);
    stage.isotherm("report cgroups").ended(0);
    for sort in ["address", "heat", "size", "age"] {
        stage.isotherm(&format!("report access --sort {sort} --min-size 64KiB --max-interval 1s")).ended(0);
    }
    stage.isotherm(&format!("report heatmap --only {pid}")).ended(0).prints(comm);
    stage.isotherm("report heatmap --only 1").ended(1).says("process 1 was not watched");
    stage.isotherm("report heatmap -o map.png").ended(0).says("wrote map.png");
    assert!(fs::read(stage.path("map.png")).unwrap().starts_with(b"\x89PNG\r\n"));
    stage.isotherm("report heatmap -o map.html").ended(0);
    let html = read(&stage.path("map.html"));
    assert!(html.contains("</html>") && html.contains(comm), "a whole page");
    assert!(!html.contains("src=\"http") && !html.contains("href=\"http"), "that needs no network");
}

fn ask_redis(stream: &mut BufReader<TcpStream>, commands: &str, answers: usize) {
    stream.get_mut().write_all(commands.as_bytes()).unwrap();
    for _ in 0..answers {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if let Some(length) = line.strip_prefix('$').and_then(|l| l.trim().parse::<usize>().ok()) {
            stream.read_exact(&mut vec![0; length + 2]).unwrap();
        }
    }
}

/// A redis of the test's own, with a connection to it.
struct Redis {
    server: Running,
    port: u16,
    stream: BufReader<TcpStream>,
}

impl Redis {
    fn start(stage: &Stage) -> Redis {
        let (server, port) = start_redis(stage);
        Redis { server, port, stream: BufReader::new(connect(port)) }
    }

    /// Sets this many keys to a value of that many bytes, batch by batch.
    fn fill(&mut self, keys: usize, batch: usize, bytes: usize) {
        let value = "x".repeat(bytes);
        for first in (0..keys).step_by(batch) {
            let sets: String = (first..first + batch).map(|key| format!("SET key:{key} {value}\r\n")).collect();
            ask_redis(&mut self.stream, &sets, batch);
        }
    }
}

#[test]
fn redis_under_load() {
    need!(installed("redis-server"), "redis-server");
    need!(sees_pages(), "the page-table source");
    let stage = Stage::new();
    let mut redis = Redis::start(&stage);
    // 40,000 values of 2 KiB, of which a twentieth is asked for.
    redis.fill(40_000, 100, 2048);
    let Redis { server, mut stream, .. } = redis;
    let load = Load::start(move || {
        let gets: String = (0..2000).map(|i| format!("GET key:{i}\r\n")).collect();
        ask_redis(&mut stream, &gets, 2000);
    });
    record_and_report(&stage, &server, "redis-server", load);
}

/// Ranges that were hot are checked every minute, and are not read in between.
#[test]
fn memory_that_redis_gives_back_while_it_is_hot_is_gone_within_seconds() {
    need!(installed("redis-server"), "redis-server");
    need!(sees_pages(), "the page-table source");
    let stage = Stage::new();
    let mut redis = Redis::start(&stage);
    redis.fill(4000, 20, 32 << 10);
    let pid = redis.server.pid();
    let mut stream = BufReader::new(connect(redis.port));
    // Reads all of each value, and answers with a number.
    let load = Load::start(move || {
        let counts: String = (0..4000).map(|key| format!("BITCOUNT key:{key}\r\n")).collect();
        ask_redis(&mut stream, &counts, 4000);
    });
    let before = resident(pid);
    let mut recorder = stage.start_isotherm(&format!("record -w 1s -d 30s -p {pid}"));
    recorder.until_it_says("page by page");
    std::thread::sleep(Duration::from_secs(10));
    load.end();
    ask_redis(&mut redis.stream, "FLUSHALL SYNC\r\nMEMORY PURGE\r\n", 2);
    need!(until(Duration::from_secs(10), || resident(pid) < before / 2.0), "a redis whose allocator gives memory back");
    recorder.end().ended(0);
    let points = stage.json("report heatmap --json");
    let resident_pages = |snapshot: &Value| -> u64 {
        let regions = snapshot["targets"][0]["regions"].as_array().unwrap();
        regions.iter().map(|region| region["resident_pages"].as_u64().unwrap()).sum()
    };
    let resident_pages: Vec<u64> = points.as_array().unwrap().iter().map(resident_pages).collect();
    let (most, last) = (*resident_pages.iter().max().unwrap(), *resident_pages.last().unwrap());
    let bytes = [most, last].map(|pages| pages as f64 * 4096.0);
    assert!(bytes[0] > 0.9 * before && bytes[1] < 1.3 * resident(pid), "{resident_pages:?}");
}

#[test]
fn memcached_under_load() {
    need!(installed("memcached"), "memcached");
    need!(sees_pages(), "the page-table source");
    let stage = Stage::new();
    let port = free_port();
    let mut command = Command::new("memcached");
    command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-m", "256", "-t", "2"]);
    if is_root() {
        command.args(["-u", "nobody"]);
    }
    let server = stage.start(command);
    let mut cache = BufReader::new(connect(port));
    let value = "x".repeat(2048);
    for batch in 0..400 {
        let sets: String =
            (0..100).map(|i| format!("set key{} 0 0 2048 noreply\r\n{value}\r\n", batch * 100 + i)).collect();
        cache.get_mut().write_all(sets.as_bytes()).unwrap();
    }
    let load = Load::start(move || {
        for key in 0..2000 {
            cache.get_mut().write_all(format!("get key{key}\r\n").as_bytes()).unwrap();
            let mut line = String::new();
            while line != "END\r\n" {
                line.clear();
                assert!(cache.read_line(&mut line).unwrap() > 0, "memcached hung up");
            }
        }
    });
    record_and_report(&stage, &server, "memcached", load);
}

/// Reads any of the first 33,000 keys, 500 at a time.
fn ask_for_a_third(port: u16) -> Load {
    let mut stream = BufReader::new(connect(port));
    let mut next = 0_u32;
    Load::start(move || {
        let mut commands = String::new();
        for _ in 0..500 {
            next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            commands.push_str(&format!("GET key:{}\r\n", (next >> 8) % 33_000));
        }
        ask_redis(&mut stream, &commands, 500);
    })
}

fn share_on_huge(status: &Value) -> Option<f64> {
    status["targets"][0]["heat_on_huge_share"].as_f64()
}

/// Whether most of the heat is on huge pages, and none of the other huge ranges is to have one.
///
/// The busier the machine, the less the server is asked, and the more huge ranges beside the hottest are read too seldom to be worth a huge
/// page. Then there is no hint that waits, and no huge range without one that could have had it. What was refused for a minute shows in
/// neither: only the machine's own reasons for that will do.
fn has_all_that_is_worth_it(status: &Value) -> bool {
    /// Reasons that say that a huge range is not worth it, has a huge page, or can have none.
    const SETTLED: [&str; 5] = ["cold", "already-huge", "sparse", "straddles", "file"];
    /// What a busy machine says to every try.
    const BUSY: [&str; 2] = ["busy", "no-huge-page"];
    let reasons_in = |counts: &Value, known: &[&str]| {
        counts.as_object().is_some_and(|counts| counts.keys().all(|why| known.contains(&why.as_str())))
    };
    let (hints, left_out) = (&status["hints"], &status["targets"][0]["left_out"]);
    share_on_huge(status) > Some(0.5)
        && hints["queued"] == 0
        && hints["put_off"] == 0
        && reasons_in(left_out, &SETTLED)
        && reasons_in(&status["counters"]["refused"], &[&SETTLED[..], &BUSY].concat())
}

/// `isotherm run` on a server: heat moves to huge pages and stays there, memory does not grow, and a snapshot pauses it.
#[test]
fn redis_is_put_on_huge_pages_but_not_during_a_bgsave() {
    need!(installed("redis-server"), "redis-server");
    let enabled = read(Path::new("/sys/kernel/mm/transparent_hugepage/enabled"));
    need!(sees_pages() && enabled.contains("[madvise]"), "the page-table source, and huge pages set to `madvise`");
    let stage = Stage::new();
    let mut redis = Redis::start(&stage);
    // 100 MiB of values; the first third of the keys is read all the time.
    redis.fill(100_000, 500, 1000);
    let load = ask_for_a_third(redis.port);
    let pid = redis.server.pid();
    let before = resident(pid);
    let mut daemon = stage.start_isotherm(&format!("run --socket s.sock --no-children -p {pid} --per-second 100"));
    daemon.until_it_says("status at");
    let status = || stage.json("status --socket s.sock --json");
    let is_done = until(Duration::from_secs(60), || share_on_huge(&status()) > Some(0.8)) || {
        // Twice in a row, so that it is no moment between two windows.
        until(Duration::from_secs(10), || {
            let is_so = || has_all_that_is_worth_it(&status());
            is_so() && {
                std::thread::sleep(Duration::from_secs(2));
                is_so()
            }
        })
    };
    assert!(is_done, "{:#}\n{}", status(), daemon.err());
    assert!(huge_bytes(pid) > 20 << 20, "{} bytes on huge pages", huge_bytes(pid));
    let grown = resident(pid) / before;
    assert!(grown < 1.03, "grown by a factor of {grown}");
    // Slow enough to be seen: ten seconds in all.
    ask_redis(&mut redis.stream, "CONFIG SET rdb-key-save-delay 100\r\nBGSAVE\r\n", 2);
    let paused = until(Duration::from_secs(10), || {
        // Something to do, or it would not have to pause: more becomes hot.
        ask_redis(&mut redis.stream, &(60_000..66_000).map(|k| format!("GET key:{k}\r\n")).collect::<String>(), 6000);
        status()["paused"].is_string()
    });
    assert!(paused, "{:#}", status());
    let during = status()["collapsed"].clone();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(status()["collapsed"], during, "nothing is collapsed while the copy is alive");
    assert!(load.end() > 50);
    daemon.signal("TERM");
    daemon.end().ended(0).prints("heat on huge pages");
}
