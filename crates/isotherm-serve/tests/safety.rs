//! What must not open, hang or fill the server: wrong tokens, foreign names, slow and huge requests, too many connections.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use rustix::process::Resource;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, PATIENCE, region, snapshot, wait_until};

fn shown(args: &[&str]) -> Bench {
    let bench = Bench::start(args);
    bench.publish(&snapshot(0, vec![region(0, 0.5)]));
    bench
}

#[test]
fn only_the_token_and_our_own_names_open() {
    let bench = shown(&["--host", "heat.example"]);
    let overview = format!("{}api/overview", bench.base);
    let status = |headers: &[(&str, &str)]| bench.get_with(&overview, headers).status;
    assert_eq!(status(&[]), 200);
    assert_eq!((status(&[("Host", "heat.example")]), status(&[("Host", "localhost")])), (200, 200));
    assert_eq!((status(&[("Host", "evil.example")]), status(&[("Host", "")])), (421, 421));
    assert_eq!(status(&[("Origin", "http://evil.example")]), 403);
    assert_eq!(status(&[("Origin", &format!("http://{}", bench.at))]), 200);
    let last = if bench.base.ends_with("0/") { "1/" } else { "0/" };
    let wrong = format!("{}{last}", &bench.base[..bench.base.len() - 2]);
    for path in ["/api/overview", "/", "//api/overview", &format!("{wrong}api/overview"), "/metrics/", "/healthz/x"] {
        let answer = bench.get_with(path, &[]);
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.text().contains("worker") && !answer.text().contains(bench.base.trim_matches('/')), "{path}");
    }
    assert_eq!(bench.get_with("/healthz", &[("Host", "evil.example")]).status, 421);
}

#[test]
fn connections_stay_open_for_those_with_the_token_only() {
    let bench = shown(&[]);
    let overview = format!("{}api/overview", bench.base);
    let request = |path: &str, host: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for (path, host, status) in [
        ("/healthz", "localhost", 200),
        ("/readyz", "localhost", 200),
        ("/metrics", "localhost", 401),
        ("/wrong/api/overview", "localhost", 404),
        (&overview, "evil.example", 421),
    ] {
        let answer = bench.raw(request(path, host).as_bytes());
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")), "{path} at {host}");
    }
    let mut stream = BufReader::new(bench.connect());
    for path in [&overview, &format!("{}none", bench.base), &overview] {
        stream.get_mut().write_all(request(path, "localhost").as_bytes()).unwrap();
        let answer = support::next(&mut stream).unwrap();
        assert_eq!((answer.status == 404, answer.header("connection")), (path.ends_with("none"), None), "{path}");
    }
}

#[test]
fn only_reading_is_possible() {
    let bench = shown(&[]);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
        let answer = bench.request(method, &format!("{}api/overview", bench.base), &[]);
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let body = [("Content-Length", "1000000000")];
    assert_eq!(bench.get_with(&format!("{}api/overview", bench.base), &body).status, 413);
    let head = bench.request("HEAD", &format!("{}api/overview", bench.base), &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn paths_do_not_leave_the_page() {
    let bench = shown(&["--no-token"]);
    for path in [
        "/../Cargo.toml",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/index.html/..",
        "/./index.html",
        "//index.html",
        "/api/../metrics",
        "/api/process/..%2foverview",
        "/app.js%00",
        "/api/",
        "/\\index.html",
    ] {
        let status = bench.get_with(path, &[]).status;
        assert!(matches!(status, 400 | 404), "{path}: {status}");
    }
    assert_eq!(
        bench.raw(format!("GET http://{}/ HTTP/1.1\r\nHost: {}\r\n\r\n", bench.at, bench.at).as_bytes()).status,
        400
    );
    let twice = format!("GET / HTTP/1.1\r\nHost: {}\r\nHost: evil.example\r\n\r\n", bench.at);
    assert!(matches!(bench.raw(twice.as_bytes()).status, 400 | 421));
}

#[test]
fn a_megabyte_of_headers_is_refused_and_takes_no_memory() {
    let bench = shown(&["--no-token"]);
    let before = bench.rss();
    let mut request = format!("GET / HTTP/1.1\r\nHost: {}\r\n", bench.at).into_bytes();
    (0..16_384).for_each(|n| request.extend(format!("X-{n:05}: {:060}\r\n", 0).as_bytes()));
    assert!(request.len() > 1 << 20);
    for _ in 0..50 {
        let status = bench.raw(&request).status;
        assert!(matches!(status, 431 | 400 | 0), "{status}");
    }
    let one_line = [b"GET /".as_slice(), &[b'a'; 1 << 20], b" HTTP/1.1\r\n\r\n"].concat();
    let status = bench.raw(&one_line).status;
    assert!(matches!(status, 414 | 431 | 400 | 0), "{status}");
    let after = bench.rss();
    assert!(after < 2 * before, "{before} bytes before, {after} after");
    assert_eq!(bench.get("").status, 200);
}

#[test]
fn a_slow_head_is_cut_off_and_others_are_served() {
    let bench = shown(&["--no-token"]);
    let began = Instant::now();
    let mut slow: Vec<TcpStream> = (0..100).map(|_| bench.connect()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap());
    assert_eq!(bench.get("").status, 200);
    let (mut stream, mut open) = (slow.pop().unwrap(), true);
    let mut buffer = [0; 1024];
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    while open {
        // One byte now and then does not buy time.
        let _ = stream.write_all(b"x");
        open = matches!(stream.read(&mut buffer), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(began.elapsed() < PATIENCE, "it is still open");
    }
    assert_eq!(bench.get("").status, 200);
}

#[test]
fn the_five_hundred_and_thirteenth_connection_is_closed() {
    let bench = shown(&[]);
    let before = bench.rss();
    let request = format!("GET {}api/overview HTTP/1.1\r\nHost: {}\r\n\r\n", bench.base, bench.at);
    // One after the other, so that none waits for long. Those beyond the limit are closed at once, which may show as a refused
    // write.
    let ask = |_| {
        let mut stream = BufReader::new(bench.connect());
        let _ = stream.get_mut().write_all(request.as_bytes());
        (support::next(&mut stream).map(|answer| answer.status), stream)
    };
    let (statuses, open): (Vec<Option<u16>>, Vec<_>) = (0..600).map(ask).unzip();
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(Some(200)), count(None)), (512, 88));
    let during = bench.rss();
    assert!(during < 4 * before, "{before} bytes before, {during} with 512 connections");
    drop(open);
    wait_until("places to be free", || bench.get("").status == 200);
}

/// As many descriptors as the system allows us.
fn max_open() -> usize {
    let mut limits = rustix::process::getrlimit(Resource::Nofile);
    limits.current = limits.maximum;
    let _ = rustix::process::setrlimit(Resource::Nofile, limits);
    limits.current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap())
}

#[test]
fn ten_thousand_connections_take_no_memory_and_no_snapshot() {
    const CONNECTIONS: usize = 10_000;
    if max_open() < CONNECTIONS + 500 {
        println!("skipped: needs {} open files (ulimit -Hn)", CONNECTIONS + 500);
        return;
    }
    let bench = shown(&[]);
    let mut arrivals = bench.connect();
    write!(arrivals, "GET {}api/live HTTP/1.1\r\nHost: {}\r\n\r\n", bench.base, bench.at).unwrap();
    let mut arrivals = BufReader::new(arrivals).lines().map(Result::unwrap);
    // It listens once the head of the answer is there. A snapshot published before would be awaited for ever.
    assert!(arrivals.any(|line| line.is_empty()));
    let mut arrivals = arrivals.filter(|line| line.starts_with("data:"));
    let requests = [
        String::new(),
        "GET / HTTP/1.1\r\nHost: ".to_owned(),
        format!("GET {}api/overview HTTP/1.1\r\nHost: {}\r\n\r\n", bench.base, bench.at),
        format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(32 << 10)),
    ];
    let mut windows = 1..;
    let mut lags = || {
        let mut sample = || {
            let began = Instant::now();
            bench.monitor.publish(&snapshot(windows.next().unwrap(), vec![region(0, 0.5)])).unwrap();
            let _ = arrivals.next().unwrap();
            began.elapsed()
        };
        let mut lags: Vec<Duration> = (0..20).map(|_| sample()).collect();
        lags.sort_unstable();
        (lags[10], lags[19])
    };
    let (quiet, before) = (lags(), bench.rss());
    let mut open = Vec::with_capacity(CONNECTIONS);
    let mut flooded = Vec::new();
    for n in 0..CONNECTIONS {
        let mut stream = bench.connect();
        let _ = stream.write_all(requests[n % requests.len()].as_bytes());
        open.push(stream);
        if n % 2000 == 1999 {
            flooded.push(lags());
        }
    }
    let during = bench.rss();
    println!("lag of a snapshot, median and most of 20: quiet {quiet:?}, under connections {flooded:?}");
    println!("{before} bytes before, {during} with {CONNECTIONS} connections");
    assert!(during < 4 * before, "{before} bytes before, {during} with {CONNECTIONS} connections");
    drop(open);
    wait_until("places to be free", || bench.get("").status == 200);
    // Each was awaited, so none was lost on the way either.
    assert_eq!(bench.get("api/overview").json()["lost_snapshots"], 0);
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    let bench = Bench::start(&["--no-token"]);
    bench.publish(&snapshot(0, (0..1000).map(|n| region(n, 0.5)).collect()));
    let layout = bench.get("api/process/42-4711").json()["layout"].as_str().unwrap().to_owned();
    let tile = format!("/api/tile/42-4711?layout={layout}&from=0&to=9&lo=0&hi=999999&w=2048&h=2048&show=hot");
    let stuck: Vec<TcpStream> = (0..10)
        .map(|_| {
            let mut stream = bench.connect();
            write!(stream, "GET {tile} HTTP/1.1\r\nHost: {}\r\n\r\n", bench.at).unwrap();
            stream
        })
        .collect();
    let answer = bench.get_with(&tile, &[]);
    assert_eq!((answer.status, answer.body.len()), (200, 2048 * 2048));
    drop(stuck);
}

#[test]
fn answers_that_nobody_reads_take_bounded_memory() {
    let bench = Bench::start(&["--no-token"]);
    bench.publish(&snapshot(0, vec![region(0, 0.5)]));
    let layout = bench.get("api/process/42-4711").json()["layout"].as_str().unwrap().to_owned();
    // 4 MiB each: 16 of them fill the 64 MiB for answers.
    let tile = format!("/api/tile/42-4711?layout={layout}&from=0&to=9&lo=0&hi=999999&w=2048&h=2048&show=hot");
    let before = bench.rss();
    let ask = |_| {
        let mut stream = bench.connect_narrow();
        write!(stream, "GET {tile} HTTP/1.1\r\nHost: {}\r\n\r\n", bench.at).unwrap();
        stream
    };
    let stuck: Vec<TcpStream> = (0..80).map(ask).collect();
    // Every one of them has an answer, or the beginning of it.
    let mut statuses = [0; 12];
    let held = stuck.iter().filter(|stream| {
        stream.peek(&mut statuses).unwrap();
        statuses.ends_with(b"200")
    });
    assert_eq!(held.count(), 16);
    let during = bench.rss();
    assert!(during < before + (100 << 20), "{before} bytes before, {during} with 80 requests for 4 MiB");
    assert_eq!(bench.get_with(&tile, &[]).status, 429);
    assert_eq!(bench.get("api/overview").status, 200);
    drop(stuck);
    wait_until("memory to be free", || bench.get_with(&tile, &[]).status == 200);
}

#[test]
fn it_keeps_no_capability_and_its_system_calls_are_filtered() {
    let bench = shown(&["--no-token"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", bench.server.id())).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!((field("CapEff:"), field("CapPrm:")), ("0".repeat(16), "0".repeat(16)));
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".to_owned(), "2".to_owned()));
}

#[test]
fn usage_that_would_reveal_the_token_is_refused() {
    let code = |args: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_isotherm-serve")).args(args).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (status, text) = code(&["--connect", "s", "--listen", "0.0.0.0:0"]);
    assert!(status == Some(2) && text.contains("--insecure"), "{text}");
    assert_eq!(code(&["--connect", "s", "--listen", "0.0.0.0:0", "--no-token"]).0, Some(2));
    assert_eq!(code(&[]).0, Some(2));
    let (status, text) = code(&["--connect", "/no/such/socket"]);
    assert!(status == Some(1) && text.contains("is the monitor running"), "{text}");
    let (status, text) = code(&["--fd", "99"]);
    assert!(status == Some(1) && text.contains("descriptor 99"), "{text}");
}

#[test]
fn a_pair_of_sockets_is_enough_and_its_end_is_no_failure() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let monitor = isotherm_stream::Broadcaster::over(ours).unwrap();
    // Standard input is the descriptor that a child inherits without further ado.
    let mut server = Command::new(env!("CARGO_BIN_EXE_isotherm-serve"))
        .args(["--fd", "0", "--listen", "127.0.0.1:0", "--no-token"])
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line).unwrap();
    let at = line.trim().strip_prefix("listening on http://").unwrap().trim_end_matches('/').to_owned();
    monitor.publish(&snapshot(0, vec![region(0, 0.5)])).unwrap();
    wait_until("the snapshot to be shown", || {
        let mut stream = TcpStream::connect(&at).unwrap();
        write!(stream, "GET /api/overview HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").unwrap();
        std::io::read_to_string(stream).unwrap().contains("worker")
    });
    drop(monitor);
    let mut status = None;
    wait_until("the server to end", || {
        status = server.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
}

/// Makes a certificate and its key, if openssl is there.
fn certify(cert: &str, key: &str) -> bool {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-keyout", key, "-out", cert])
        .output();
    made.is_ok_and(|made| made.status.success())
}

fn over_tls(at: &str, cert: &str, args: &[&str]) -> String {
    ask_over_tls(at, cert, args, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
}

/// What a server answers that has this certificate, and nothing if it has another.
fn ask_over_tls(at: &str, cert: &str, args: &[&str], request: &str) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", at, "-CAfile", cert, "-verify_return_error", "-quiet"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = client.stdin.take().unwrap();
    // It may refuse before it reads.
    let _ = write!(stdin, "{request}Connection: close\r\n\r\n");
    let done = client.wait_with_output().unwrap();
    drop(stdin);
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn the_token_and_the_certificate_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for folder in ["tokens", "live", "archive"] {
        std::fs::create_dir(path(folder)).unwrap();
    }
    let write = |token: &str| {
        let new = path("tokens/new");
        let made = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
        made.unwrap().write_all(token.as_bytes()).unwrap();
        std::fs::rename(new, path("tokens/token")).unwrap();
    };
    // As certbot keeps them: links, which lead to another file after a renewal.
    let link = |certificate: &str| {
        for of in ["cert", "key"] {
            std::os::unix::fs::symlink(format!("../archive/{certificate}-{of}"), path("live/new")).unwrap();
            std::fs::rename(path("live/new"), path(&format!("live/{of}"))).unwrap();
        }
    };
    let make = |name: &str| certify(&path(&format!("archive/{name}-cert")), &path(&format!("archive/{name}-key")));
    if !make("first") || !make("next") {
        println!("skipped: needs openssl");
        return;
    }
    write("first-token-of-ours");
    link("first");
    let of = ["--token-file", &path("tokens/token"), "--tls-cert", &path("live/cert"), "--tls-key", &path("live/key")];
    let mut bench = Bench::start_with(&of, |command| _ = command.stdin(Stdio::null()).stderr(Stdio::piped()));
    let mut said = BufReader::new(bench.server.stderr.take().unwrap()).lines();
    let mut hang_up = |says: &str| {
        let pid = rustix::process::Pid::from_child(&bench.server);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        let found = said.by_ref().map_while(Result::ok).any(|line| line.contains(says));
        assert!(found, "it did not say {says:?}");
    };
    let status = |cert: &str, token: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n");
        let trusted = path(&format!("archive/{cert}-cert"));
        ask_over_tls(&bench.at, &trusted, &[], &request).get(9..12).map(str::to_owned)
    };
    let is = |status: Option<String>, may: bool| status.is_some_and(|status| (status != "401") == may);
    assert!(is(status("first", "first-token-of-ours"), true) && is(status("first", "second-token-of-ours"), false));
    write("second-token-of-ours");
    link("next");
    hang_up("were read again");
    assert!(is(status("next", "second-token-of-ours"), true) && is(status("next", "first-token-of-ours"), false));
    write("short");
    hang_up("stay in force");
    assert!(is(status("next", "second-token-of-ours"), true));
}

#[test]
fn tls_serves_and_plain_text_gets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    if !certify(&path("cert"), &path("key")) {
        println!("skipped: needs openssl");
        return;
    }
    let bench = Bench::start(&["--tls-cert", &path("cert"), "--tls-key", &path("key"), "--no-token"]);
    assert_eq!(bench.get("").status, 0, "no answer without TLS");
    let client = |args: &[&str]| over_tls(&bench.at, &path("cert"), args);
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(client(&[version]).starts_with("HTTP/1.1 200 OK"), "{version}");
    }
    assert_eq!(client(&["-tls1_1"]), "");
    let (_ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let wrong = Command::new(env!("CARGO_BIN_EXE_isotherm-serve"))
        .args(["--fd", "0", "--tls-cert", &path("key"), "--tls-key", &path("key")])
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("for TLS"), "{wrong:?}");
    assert_eq!(wrong.status.code(), Some(1));
}

#[test]
fn a_token_file_serves_from_start_to_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let file = path.to_str().unwrap();
    let mut made = String::new();
    for _ in 0..2 {
        let bench = Bench::start(&["--token-file", file]);
        assert_eq!(bench.base, "/", "what is printed does not have it");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let token = std::fs::read_to_string(&path).unwrap().trim().to_owned();
        assert_eq!((bench.get("").status, bench.get(&format!("{token}/")).status), (404, 200));
        assert!(made.is_empty() || made == token);
        made = token;
    }
}
