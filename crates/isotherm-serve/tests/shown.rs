//! The real server with a monitor that is none: what it shows is what was sent.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use isotherm_heat::{Cost, Granularity, RunInfo, TargetFacts, TargetHeat};
use isotherm_record::{Options, Writer};
use isotherm_stream::{EventRow, PlanRow, Snapshot};
use isotherm_units::PMD_SIZE;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use support::{BASE, Bench, START_MS, region, snapshot, wait_until};

const ID: &str = "42-4711";

#[test]
fn nothing_is_shown_before_the_first_snapshot_and_all_after_it() {
    let bench = Bench::start(&[]);
    assert_eq!((bench.get("api/overview").status, bench.get("metrics").status), (503, 503));
    let ready = |bench: &Bench| bench.get_with("/readyz", &[]).status;
    assert_eq!((bench.get_with("/healthz", &[]).status, ready(&bench)), (200, 503));
    bench.publish(&snapshot(0, vec![region(0, 0.5), region(1, 5.0), region(2, 0.0)]));
    assert_eq!(ready(&bench), 200);

    let overview = bench.get("api/overview");
    for (header, value) in
        [("cache-control", "no-store"), ("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer")]
    {
        assert_eq!(overview.header(header), Some(value));
    }
    assert!(
        overview.header("content-security-policy").unwrap().starts_with("default-src 'self'; img-src 'self' blob:")
    );
    let overview = overview.json();
    assert_eq!(overview["window_ms"], 1000);
    assert_eq!(overview["mode"], "live");
    assert_eq!(overview["host"]["monitor_cpu_pct"], 0.5);
    let process = &overview["processes"][0];
    assert_eq!((process["id"].as_str(), process["comm"].as_str()), (Some(ID), Some("worker")));
    let classes =
        serde_json::json!({ "hot": PMD_SIZE, "warm": PMD_SIZE, "cold": 0, "idle": 0, "unmeasured": PMD_SIZE });
    for row in [process, &overview["totals"], &overview["cgroups"][0]] {
        assert_eq!(row["classes"], classes);
        assert_eq!(row["resident_bytes"], 3 * PMD_SIZE);
        assert_eq!(row["wss"]["10s"], 2 * PMD_SIZE);
        assert_eq!(row["wss_history"], serde_json::json!([2 * PMD_SIZE]));
    }
    assert_eq!(overview["cgroups"][0]["unit"], "worker.service");
}

#[test]
fn the_plan_is_shown_as_it_was_sent_with_names_and_the_largest_first() {
    let bench = Bench::start(&[]);
    let mut sent = snapshot(0, vec![region(0, 0.5)]);
    bench.publish(&sent);
    assert_eq!(bench.get("api/plan").json()["rows"], serde_json::json!([]), "none was made yet");
    let row = |action: &str, mapping_start_addr, bytes, why_not: &str| PlanRow {
        pid: 42,
        start_ticks: 4711,
        action: action.into(),
        mapping_start_addr,
        huge_ranges: 2,
        bytes,
        why_not: why_not.into(),
    };
    let gone = PlanRow { pid: 43, ..row("collapse", None, 1 << 40, "") };
    sent = snapshot(1, vec![region(0, 0.5)]);
    sent.plan = vec![row("collapse", None, 0, "accessed too seldom"), gone, row("page-out", Some(BASE), 8192, "")];
    bench.publish(&sent);
    let plan = bench.get("api/plan").json();
    assert_eq!((&plan["at_ms"], &plan["left_out"]), (&(START_MS + 2000).into(), &0.into()));
    let of = |action, mapping, bytes, why_not| {
        serde_json::json!({
            "id": ID, "pid": 42, "comm": "worker", "cgroup": "/system.slice/worker.service", "action": action,
            "mapping": mapping, "huge_ranges": 2, "bytes": bytes, "why_not": why_not,
        })
    };
    let heap = serde_json::json!({ "start": format!("{BASE:x}"), "name": "[heap]" });
    let expected = [of("page-out", heap, 8192, ""), of("collapse", serde_json::Value::Null, 0, "accessed too seldom")];
    assert_eq!(plan["rows"], serde_json::json!(expected));
}

#[test]
fn an_event_that_comes_with_several_snapshots_is_shown_once() {
    let bench = Bench::start(&[]);
    let event = |n: u64| EventRow { at_unix_ns: (START_MS + n) * 1_000_000, text: format!("event {n}") };
    for n in 0..3 {
        bench.publish(&Snapshot { events: (0..=n).map(event).collect(), ..snapshot(n, vec![region(0, 0.5)]) });
    }
    let shown = bench.get("api/overview").json()["events"].clone();
    let expected = [0, 1, 2].map(|n| serde_json::json!({ "at_ms": START_MS + n, "text": format!("event {n}") }));
    assert_eq!(shown, serde_json::json!(expected));
}

#[test]
fn a_picture_is_a_file_of_its_own_with_the_part_that_was_asked_for() {
    let bench = Bench::start(&[]);
    (0..3).for_each(|n| bench.publish(&snapshot(n, vec![region(0, 0.5), region(4, 100.0)])));
    let picture = bench.get(&format!("api/picture/{ID}"));
    assert_eq!(picture.header("content-disposition"), Some("attachment; filename=\"isotherm-42.html\""));
    let data = |html: &str| -> serde_json::Value {
        let (_, from) = html.split_once("type=\"application/json\">").unwrap();
        serde_json::from_str(from.split_once("</script>").unwrap().0).unwrap()
    };
    let whole = data(picture.text());
    let map = &whole["maps"][0];
    assert_eq!((&map["start"], &map["end"]), (&START_MS.into(), &(START_MS + 3000).into()));
    assert_eq!(map["rows"][0][0], format!("{BASE:x}"));
    let last = |map: &serde_json::Value| map["rows"].as_array().unwrap().last().unwrap()[1].clone();
    assert_eq!(last(map), format!("{:x}", BASE + 5 * PMD_SIZE));
    let (from, to, hi) = (START_MS + 1000, START_MS + 2000, BASE + PMD_SIZE);
    let part = format!("api/picture/{ID}?from={from}&to={to}&lo={BASE:x}&hi={hi:x}&show=idle");
    let part = data(bench.get(&part).text());
    assert_eq!(part["scale"], 2);
    assert_eq!(last(&part["maps"][0]), format!("{hi:x}"));
    assert_eq!(bench.get(&format!("api/picture/{ID}?lo=zz&hi=1")).status, 400);
    assert_eq!(bench.get("api/picture/1-1").status, 404);
}

#[test]
fn a_process_has_its_spans_mappings_histograms_and_history() {
    let bench = Bench::start(&[]);
    for n in 0..3 {
        bench.publish(&snapshot(n, vec![region(0, 0.5), region(4, 100.0)]));
    }
    let process = bench.get(&format!("api/process/{ID}")).json();
    let hex = |addr: u64| format!("{addr:x}");
    assert_eq!(
        process["spans"],
        serde_json::json!([
            { "start": hex(BASE), "end": hex(BASE + PMD_SIZE) },
            { "start": hex(BASE + 4 * PMD_SIZE), "end": hex(BASE + 5 * PMD_SIZE) },
        ])
    );
    assert_eq!(process["range_ms"], serde_json::json!([START_MS, START_MS + 3000]));
    assert_eq!(process["mappings"][0]["name"], "[heap]");
    let temperature = process["temperature"].as_array().unwrap();
    // The step of the scale nearest to 0.5 s is 512 ms, where an octave begins; 100 s is in that from 65.5 s on.
    assert_eq!(temperature[0], serde_json::json!({ "interval_ms": 512.0, "bytes": PMD_SIZE }));
    assert_eq!(temperature[1], serde_json::json!({ "interval_ms": 65536.0, "bytes": PMD_SIZE }));
    assert_eq!(temperature[2], serde_json::json!({ "interval_ms": null, "bytes": 0 }));
    let history = process["history"].as_array().unwrap();
    assert_eq!((history.len(), &history[2]["resident"]), (3, &serde_json::json!(2 * PMD_SIZE)));

    let cell = |addr: u64| bench.get(&format!("api/cell/{ID}?at={}&addr={addr:x}", START_MS + 1500)).json();
    let found = cell(BASE + 4 * PMD_SIZE + 5);
    // 1.5 s lie in the second window, which a tile shows there.
    assert_eq!(found["at_ms"], START_MS + 2000);
    assert_eq!((&found["region"]["resident_bytes"], &found["region"]["hot_bytes"]), (&PMD_SIZE.into(), &0.into()));
    assert_eq!((&found["region"]["idle_ms"], &found["region"]["age_ms"]), (&5000.into(), &3000.into()));
    assert_eq!(found["mapping"]["name"], "[heap]");
    let hole = cell(BASE + 2 * PMD_SIZE);
    assert!(hole["region"].is_null() && hole["mapping"]["name"] == "[heap]");
    assert!(cell(0x1000)["mapping"].is_null());

    let mut renamed = snapshot(3, vec![region(0, 0.5)]);
    renamed.processes[0].comm = "renamed".into();
    bench.publish(&renamed);
    let comm = |query: &str| bench.get(&format!("api/process/{ID}{query}")).json()["comm"].clone();
    let at = |ms: u64| comm(&format!("?at={}", START_MS + ms));
    assert_eq!([at(2999), at(3000), at(9000), comm("")], ["worker", "renamed", "renamed", "renamed"]);
}

#[test]
fn requests_that_cannot_be_answered_say_why() {
    let bench = Bench::start(&[]);
    bench.publish(&snapshot(0, vec![region(0, 0.5)]));
    for (path, status) in [
        ("api/process/1-2", 404),
        ("api/process/x", 400),
        ("api/process/42-4711?at=x", 400),
        ("api/cell/42-4711?at=1", 400),
        ("api/cell/42-4711?at=1&addr=xyz", 400),
        ("api/tile/1-2?layout=x&from=0&to=1&lo=0&hi=1&w=1&h=1&show=hot", 404),
        ("api/tile/42-4711?layout=x&from=0&to=1&lo=0&hi=1&w=0&h=1&show=hot", 400),
        ("api/tile/42-4711?layout=x&from=0&to=1&lo=0&hi=1&w=2049&h=1&show=hot", 400),
        ("api/tile/42-4711?layout=x&from=1&to=1&lo=0&hi=1&w=1&h=1&show=hot", 400),
        ("api/tile/42-4711?layout=x&from=0&to=1&lo=0&hi=1&w=1&h=1&show=cold", 400),
    ] {
        let answer = bench.get(path);
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.json()["error"].as_str().unwrap().starts_with("read "), "{path}");
    }
}

#[test]
fn tiles_show_the_regions_at_their_times_and_addresses() {
    let bench = Bench::start(&[]);
    // Huge range 0 is hot in every second window, 1 always cold, 3 unmeasured.
    for n in 0..10 {
        let first = if n % 2 == 0 { 0.5 } else { 100.0 };
        bench.publish(&snapshot(n, vec![region(0, first), region(1, 100.0), region(3, 0.0)]));
    }
    let layout = bench.get(&format!("api/process/{ID}")).json()["layout"].as_str().unwrap().to_owned();
    let tile = |from: u64, to: u64, lo: u64, hi: u64, w: usize, h: usize, show: &str| {
        let query = format!("layout={layout}&from={from}&to={to}&lo={lo}&hi={hi}&w={w}&h={h}&show={show}");
        let answer = bench.get(&format!("api/tile/{ID}?{query}"));
        assert_eq!((answer.status, answer.body.len()), (200, w * h), "{query}");
        answer
    };
    // Two columns a window, and two cells a huge range; one window before the first and one after the last.
    let all = tile(START_MS - 1000, START_MS + 11_000, 0, 3 * PMD_SIZE, 24, 6, "hot");
    assert_eq!(all.header("x-tile-newest-ms"), Some((START_MS + 10_000).to_string().as_str()));
    for (number, column) in all.body.chunks(6).enumerate() {
        let window = number / 2;
        let hot = if window % 2 == 1 { 254 } else { 2 };
        let expected = if (1..=10).contains(&window) { [hot, hot, 2, 2, 1, 1] } else { [0; 6] };
        assert_eq!(column, expected, "column {number}");
    }
    // 100 s are 2 + 252 * (1 - log(100e3)/log(3.6e6)) = 61.8; idle for 5 s is 2 + 252 * (1 - log(5)/log(3600)) = 204.5, to an even number.
    assert_eq!(tile(START_MS, START_MS + 1000, PMD_SIZE, 2 * PMD_SIZE, 1, 1, "interval").body, [62]);
    assert_eq!(tile(START_MS, START_MS + 1000, PMD_SIZE, 3 * PMD_SIZE, 1, 2, "idle").body, [204, 1]);
    // A part of one window and one huge range fills the tile.
    assert!(tile(START_MS + 2100, START_MS + 2900, 4096, 8192, 50, 50, "hot").body.iter().all(|value| *value == 254));

    // A cell shows the window that its tile shows.
    for n in 0..10 {
        let at = START_MS + n * 1000 + 500;
        let hot = tile(at, at + 1, 0, PMD_SIZE, 1, 1, "hot").body[0] == 254;
        let cell = bench.get(&format!("api/cell/{ID}?at={at}&addr={BASE:x}")).json();
        assert_eq!(cell["region"]["hot_bytes"] == PMD_SIZE, hot, "window {n}: {cell}");
        assert_eq!(hot, n % 2 == 0);
    }

    bench.publish(&snapshot(10, vec![region(0, 0.5), region(9, 0.5)]));
    let stale = bench.get(&format!("api/tile/{ID}?layout={layout}&from=0&to=1&lo=0&hi=1&w=1&h=1&show=hot"));
    let newer = bench.get(&format!("api/process/{ID}")).json()["layout"].clone();
    assert_eq!((stale.status, &stale.json()["layout"]), (409, &newer));
    assert_ne!(newer, layout.as_str());
}

#[test]
fn a_scrape_has_what_the_last_snapshot_has() {
    let bench = Bench::start(&["--processes"]);
    bench.publish(&snapshot(0, vec![region(0, 0.5)]));
    let scrape = bench.get("metrics");
    assert_eq!(scrape.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let labels = "cgroup=\"/system.slice/worker.service\",unit=\"worker.service\"";
    let hot = format!("isotherm_memory_bytes{{{labels},class=\"hot\",page_size=\"small\"}} {PMD_SIZE}\n");
    assert!(scrape.text().contains(&hot), "{}", scrape.text());
    let accept = [("Accept", "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3")];
    let metrics = format!("{}metrics", bench.base);
    let open = bench.get_with(&metrics, &accept);
    assert!(
        open.header("content-type").unwrap().starts_with("application/openmetrics-text")
            && open.text().ends_with("# EOF\n")
    );
    let packed = bench.get_with(&metrics, &[("Accept-Encoding", "gzip")]);
    assert_eq!((packed.header("content-encoding"), packed.body[..2].to_vec()), (Some("gzip"), vec![0x1f, 0x8b]));
    assert_eq!(bench.get_with("/metrics", &[]).status, 401);
    let token = format!("Bearer {}", bench.base.trim_matches('/'));
    assert_eq!(bench.get_with("/metrics", &[("Authorization", &token)]).status, 200);
    check_by_promtool(scrape.text());

    let mut gone = snapshot(1, vec![]);
    gone.processes[0].exited = true;
    bench.publish(&gone);
    let text = bench.get("metrics").text().to_owned();
    assert!(!text.contains("worker") && text.contains("isotherm_snapshots_total 2\n"), "{text}");
}

fn check_by_promtool(text: &str) {
    let command =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut promtool) = command else {
        println!("skipped: needs promtool");
        return;
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let done = promtool.wait_with_output().unwrap();
    assert!(done.status.success() && done.stdout.is_empty(), "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
fn a_listener_gets_an_event_for_each_snapshot_and_the_thirty_third_is_refused() {
    let bench = Bench::start(&[]);
    let listen = || {
        let mut stream = bench.connect();
        write!(stream, "GET {}api/live HTTP/1.1\r\nHost: {}\r\n\r\n", bench.base, bench.at).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        (line, reader)
    };
    let head = |reader: &mut BufReader<_>| {
        let lines = reader.lines().map(Result::unwrap).take_while(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("\n").to_ascii_lowercase()
    };
    let mut listeners: Vec<_> = (0..32).map(|_| listen()).collect();
    assert!(listeners.iter().all(|(status, _)| status.contains("200")));
    assert!(listen().0.contains("429"));
    bench.publish(&snapshot(0, vec![region(0, 0.5)]));
    let (_, reader) = &mut listeners[7];
    assert!(head(reader).contains("cache-control: no-store"));
    let event: Vec<String> =
        reader.lines().map(Result::unwrap).skip_while(|line| !line.starts_with("event:")).take(2).collect();
    assert_eq!(event[0], "event: snapshot");
    let data: serde_json::Value = serde_json::from_str(event[1].strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(data, serde_json::json!({ "at_ms": START_MS + 1000, "ids": [ID] }));
    drop(listeners);
    wait_until("a place to be free", || listen().0.contains("200"));
}

#[test]
fn the_page_is_served_at_the_base() {
    let bench = Bench::start(&["--no-token"]);
    assert_eq!(bench.base, "/");
    let page = bench.get("");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let etag = page.header("etag").unwrap();
    assert_eq!(bench.get_with("/", &[("If-None-Match", etag)]).status, 304);
    let head = bench.request("HEAD", "/", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn the_server_ends_with_its_monitor() {
    let mut bench = Bench::start(&[]);
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(std::mem::replace(&mut bench.monitor, isotherm_stream::Broadcaster::over(ours).unwrap()));
    let mut status = None;
    wait_until("the server to end", || {
        status = bench.server.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(1));
}

#[test]
fn signals_end_the_server_without_a_failure() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut bench = Bench::start(&[]);
        kill_process(Pid::from_child(&bench.server), signal).unwrap();
        let mut status = None;
        wait_until("the server to end", || {
            status = bench.server.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(0), "{signal:?}");
    }
}

#[test]
fn the_server_ends_with_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let monitor = isotherm_stream::Broadcaster::open(&socket, None).unwrap();
    // A shell that has started the server and is killed. `$$` is its id.
    let script = "\"$0\" \"$@\" --ends-with-parent=$$ & wait";
    let mut shell = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_isotherm-serve"), "--listen", "127.0.0.1:0", "--connect"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let at = line.trim().strip_prefix("listening on http://").unwrap().split('/').next().unwrap();
    std::net::TcpStream::connect(at).unwrap();
    shell.kill().unwrap();
    shell.wait().unwrap();
    // The monitor is still there, so its end is not what ends the server.
    wait_until("the server to end", || std::net::TcpStream::connect(at).is_err());
    drop(monitor);
}

#[test]
fn an_orphan_does_not_start() {
    // No process has this id.
    let args = ["--connect", "/no/such/socket", "--ends-with-parent=2147483647"];
    let done = Command::new(env!("CARGO_BIN_EXE_isotherm-serve")).args(args).output().unwrap();
    assert_eq!((done.status.code(), done.stdout.len()), (Some(0), 0), "{done:?}");
}

#[test]
fn lost_snapshots_are_counted() {
    let bench = Bench::start(&[]);
    let regions: Vec<_> = (0..60_000).map(|n| region(n, 0.5)).collect();
    let sent = 40;
    for n in 0..sent {
        bench.monitor.publish(&snapshot(n, regions.clone())).unwrap();
    }
    let counted = |name: &str| {
        let text = bench.get("metrics").text().to_owned();
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    wait_until("all to arrive or be lost", || {
        counted("isotherm_snapshots_total") + counted("isotherm_lost_snapshots_total") == sent
    });
    assert!(counted("isotherm_lost_snapshots_total") > 0, "the server was quicker than the monitor");
}

#[test]
fn a_recording_is_shown_and_nothing_follows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("heat");
    let mut writer =
        Writer::create(&path, &RunInfo { source: "page-table".into(), ..RunInfo::default() }, Options::default())
            .unwrap();
    for n in 0..5 {
        let sent = snapshot(n, vec![region(0, 0.5), region(1, 100.0)]);
        let target = recorded(&sent);
        let (start_unix_ns, end_unix_ns) = (sent.host.start_unix_ns, sent.host.end_unix_ns);
        writer
            .push(&isotherm_heat::Snapshot { start_unix_ns, end_unix_ns, targets: vec![target], cost: Cost::default() })
            .unwrap();
    }
    writer.finish().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_isotherm-serve"))
        .arg("--recording")
        .arg(&path)
        .args(["--listen", "127.0.0.1:0", "--no-token"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let at = line.trim().strip_prefix("listening on http://").unwrap().trim_end_matches('/').to_owned();
    let mut text = String::new();
    wait_until("the recording to be shown", || {
        let mut stream = std::net::TcpStream::connect(&at).unwrap();
        write!(stream, "GET /api/overview HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").unwrap();
        text = std::io::read_to_string(stream).unwrap();
        text.contains(" 200 OK")
    });
    let is_running = server.try_wait().unwrap().is_none();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(is_running);
    let overview: serde_json::Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(overview["mode"], "recording");
    assert_eq!(overview["range_ms"], serde_json::json!([START_MS, START_MS + 5000]));
    assert_eq!(overview["processes"][0]["classes"]["hot"], PMD_SIZE);
    assert_eq!(overview["processes"][0]["wss_history"].as_array().unwrap().len(), 5);
}

/// The process of a snapshot, as it is recorded.
fn recorded(sent: &isotherm_stream::Snapshot) -> TargetHeat {
    let row = &sent.processes[0];
    TargetHeat {
        id: row.id(),
        comm: row.comm.clone(),
        cgroup: row.cgroup.clone(),
        exited: false,
        granularity: Granularity::Page,
        regions: sent.regions.iter().map(|row| row.region).collect(),
        mappings: sent.mappings.iter().map(|row| row.mapping.clone()).collect(),
        temperature: row.heat.clone(),
        idle: row.idle.clone(),
        counted_elsewhere_pages: 0,
        maybe_shared_pages: 0,
        unclearable_pages: 0,
        behind_huge: None,
        idle_by_mapping: Vec::new(),
        facts: TargetFacts::default(),
    }
}
