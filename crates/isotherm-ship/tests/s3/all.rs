//! A shipper to a server of the S3 protocol, behind a proxy with faults, that is killed at each step. In the end the store has the rows
//! that were made, each once.
//!
//! Needs the feature `aws` and moto (`scripts/setup.sh fleet`, or MOTO_SERVER: the path of its `moto_server`).

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../harness/proxy.rs"]
mod proxy;

use harness::{Monitor, RowsByTable, Shipper, add_rows, all_is_sent, assert_same, rows_made, wait_until};
use isotherm_rng::Rng;
use isotherm_ship::status::Report;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use proxy::Proxy;
use std::cell::OnceCell;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Steps at which it is killed, besides those of `crash`, which has all of them.
const POINTS: [&str; 8] = [
    "batch.half:6",
    "batch.synced:12",
    "object.written:2",
    "objects.renamed",
    "log.removed:2",
    "put.answered:2",
    "object.counted:3",
    "object.removed:5",
];

/// moto, which ends with this.
struct Server {
    child: Child,
    address: SocketAddr,
    log: tempfile::NamedTempFile,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where moto is.
fn moto() -> Option<PathBuf> {
    let of_tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fleet-venv/bin/moto_server");
    let named = std::env::var_os("MOTO_SERVER").map(PathBuf::from);
    let in_path = std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join("moto_server"))
        .find(|path| path.is_file());
    named.or_else(|| Some(of_tree).filter(|path| path.is_file())).or(in_path)
}

impl Server {
    /// A server with these further arguments; `None` if there is no moto.
    fn spawn(arguments: &[&str]) -> Option<Server> {
        let Some(program) = moto() else {
            println!("skipped: needs moto (scripts/setup.sh fleet)");
            return None;
        };
        // It chooses the port itself: one that was free when a test looked may be another test's when moto, seconds later, wants it.
        let log = tempfile::NamedTempFile::new().unwrap();
        let child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", "0"])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(log.reopen().unwrap())
            .spawn()
            .unwrap();
        let mut server = Server { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), log };
        wait_until("moto", || server.port().is_some());
        server.address.set_port(server.port().unwrap());
        Some(server)
    }

    /// The port in the line `Running on http://127.0.0.1:PORT` of its log, once the line has ended.
    fn port(&self) -> Option<u16> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let (_, from_port) = log.split_once("://127.0.0.1:")?;
        from_port.split_once('\n')?.0.parse().ok()
    }

    /// A server with a bucket.
    fn start() -> Option<Server> {
        let server = Server::spawn(&[])?;
        let created = OnceCell::new();
        let create = || server.request("PUT /fleet HTTP/1.1\r\nContent-Length: 0");
        // A connection that moto resets says nothing about what is tested here, which is a client that asks again.
        wait_until("an answer", || create().is_ok_and(|answer| created.set(answer).is_ok()));
        let created = created.into_inner().unwrap();
        assert!(created.starts_with("HTTP/1.1 200"), "{created}");
        Some(server)
    }

    fn request(&self, head: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        write!(stream, "{head}\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// A client without the proxy.
    fn client(&self) -> AmazonS3 {
        let _ = rustls::crypto::ring::default_provider().install_default();
        AmazonS3Builder::new()
            .with_endpoint(format!("http://{}", self.address))
            .with_allow_http(true)
            .with_access_key_id("key")
            .with_secret_access_key("secret")
            .with_bucket_name("fleet")
            .build()
            .unwrap()
    }

    /// All rows below a prefix, and the number of objects.
    fn rows_below(&self, prefix: &str) -> (RowsByTable, usize) {
        let client = self.client();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut rows, mut objects) = (RowsByTable::new(), 0);
            let mut folders = vec![object_store::path::Path::from(prefix)];
            while let Some(folder) = folders.pop() {
                let found = client.list_with_delimiter(Some(&folder)).await.unwrap();
                folders.extend(found.common_prefixes);
                for object in found.objects {
                    let bytes = client.get(&object.location).await.unwrap().bytes().await.unwrap();
                    add_rows(&mut rows, object.location.as_ref(), bytes.to_vec());
                    objects += 1;
                }
            }
            (rows, objects)
        })
    }
}

/// A host that sends to a prefix of the bucket.
struct Place {
    dir: tempfile::TempDir,
    monitor: Monitor,
    prefix: String,
}

impl Place {
    fn new(prefix: &str) -> Place {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let monitor = Monitor::start(dir.path());
        Place { dir, monitor, prefix: prefix.into() }
    }

    fn spool(&self) -> PathBuf {
        self.dir.path().join("spool")
    }

    fn shipper(&self, proxy: &Proxy, stop_at: Option<&str>) -> Shipper {
        self.shipper_to(
            &[("AWS_ENDPOINT", format!("http://{}", proxy.address)), ("AWS_ALLOW_HTTP", "true".into())],
            stop_at,
        )
    }

    fn shipper_to(&self, endpoint: &[(&str, String)], stop_at: Option<&str>) -> Shipper {
        self.monitor.goes_on_after(&self.spool());
        let (spool, to) = (self.spool(), format!("s3://fleet/{}", self.prefix));
        let (socket, spool) = (self.monitor.socket.to_str().unwrap(), spool.to_str().unwrap());
        let arguments = [
            "--connect",
            socket,
            "--spool",
            spool,
            "--to",
            &to,
            "--spread",
            "0s",
            "--backoff",
            "20ms",
            "--timeout",
            "10s",
        ];
        let credentials = [
            ("AWS_ACCESS_KEY_ID", "key".into()),
            ("AWS_SECRET_ACCESS_KEY", "very-secret".into()),
            ("NO_PROXY", "127.0.0.1,localhost".into()),
        ];
        let environment: Vec<(&str, String)> = credentials.into_iter().chain(endpoint.iter().cloned()).collect();
        Shipper::start(&arguments, &environment, stop_at)
    }

    fn is_done(&self) -> bool {
        let is_over =
            |report: Report| report.waiting.objects == 0 && report.covered_until_unix_ns() > self.monitor.end_ns();
        all_is_sent(&self.spool(), &self.monitor) || Report::read(&self.spool()).is_ok_and(is_over)
    }

    /// Lets a shipper finish, and compares the rows.
    fn check(&self, server: &Server, proxy: &Proxy) {
        let shipper = self.shipper(proxy, None);
        let is_running = || Report::read(&self.spool()).is_ok_and(|report| report.running);
        wait_until("all to be sent", || is_running() && self.is_done());
        assert!(shipper.terminate().success(), "SIGTERM ends it with 0");
        let (rows, objects) = server.rows_below(&self.prefix);
        assert_same(&rows, &rows_made(&self.monitor));
        let counts = Report::read(&self.spool()).unwrap().counts;
        assert_eq!(counts.sent_objects, objects as u64, "{counts:?}");
        assert_eq!((counts.dropped_objects, counts.dropped_batches), (0, 0));
        println!(
            "  {} objects, {} of them there already when they were sent",
            counts.sent_objects, counts.already_there_objects
        );
    }
}

#[test]
fn rows_are_in_the_store_once_wherever_it_is_killed() {
    let Some(server) = Server::start() else { return };
    if !cfg!(debug_assertions) {
        println!("skipped: needs a build with debug assertions (points at which to stop)");
        return;
    }
    let seed = 20_261_124;
    println!("seed {seed}");
    let proxy = Proxy::start(server.address, seed);
    for (number, point) in POINTS.into_iter().enumerate() {
        println!("killed at {point}");
        let place = Place::new(&format!("points/{number}"));
        let shipper = place.shipper(&proxy, Some(point));
        assert!(shipper.has_stopped(|| place.is_done()), "it never came by {point}");
        shipper.kill();
        place.check(&server, &proxy);
    }
}

#[test]
fn rows_are_in_the_store_once_after_faults_kills_and_an_outage() {
    let Some(server) = Server::start() else { return };
    let seed = 77;
    println!("seed {seed}");
    let mut random = Rng::new(seed);
    let proxy = Proxy::start(server.address, seed);
    let done = &proxy.done;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    for number in 0..6 {
        let place = Place::new(&format!("faults/{number}"));
        // The store is away for the first of them, so that all objects wait.
        done.is_away.store(true, Ordering::Relaxed);
        let shipper = place.shipper(&proxy, None);
        wait_until("objects to wait", || Report::read(&place.spool()).is_ok_and(|report| report.waiting.objects == 8));
        shipper.kill();
        done.is_away.store(false, Ordering::Relaxed);
        for _ in 0..4 {
            let shipper = place.shipper(&proxy, None);
            std::thread::sleep(Duration::from_millis(20 + random.below(150)));
            shipper.kill();
        }
        place.check(&server, &proxy);
    }
    println!("{done:?}");
    for counter in [&done.passed, &done.refused, &done.denied, &done.cut_before, &done.cut_after, &done.doubled] {
        assert!(count(counter) > 0, "each kind of fault occurs: {done:?}");
    }
}

/// Makes an authority and a certificate of it for localhost: `ca.pem`, `cert.pem`, `key.pem`. False if there is no openssl.
fn make_certificates(folder: &Path) -> bool {
    std::fs::write(
        folder.join("leaf"),
        "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n",
    )
    .unwrap();
    [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout key.pem -out leaf.csr -subj /CN=localhost",
        "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out cert.pem -extfile leaf",
    ]
    .iter()
    .all(|line| {
        Command::new("openssl")
            .args(line.split(' '))
            .current_dir(folder)
            .output()
            .is_ok_and(|done| done.status.success())
    })
}

/// In the sandbox a name has to be found, a server trusted, and a connection encrypted. An untrusted server gets nothing.
#[test]
fn objects_go_over_tls_to_a_server_that_is_trusted_and_found_by_name() {
    let dir = tempfile::tempdir().unwrap();
    if !make_certificates(dir.path()) {
        println!("skipped: needs openssl");
        return;
    }
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let Some(server) = Server::spawn(&["-s", "-c", &path("cert.pem"), "-k", &path("key.pem")]) else { return };
    let endpoint = ("AWS_ENDPOINT", format!("https://localhost:{}", server.address.port()));
    let place = Place::new("tls");
    let report = || Report::read(&place.spool()).ok();
    let error = || report()?.shipper?.last_error.map(|error| error.what);
    let says = |text: &str| error().is_some_and(|error| error.contains(text));
    let shipper = place.shipper_to(std::slice::from_ref(&endpoint), None);
    wait_until("it to be refused", || says("UnknownIssuer"));
    shipper.kill();
    let shipper = place.shipper_to(&[endpoint, ("SSL_CERT_FILE", path("ca.pem"))], None);
    // There is no bucket: the answer came over the connection.
    wait_until("an answer", || says("NoSuchBucket"));
    shipper.kill();
}

#[test]
fn credentials_are_printed_nowhere() {
    let Some(server) = Server::start() else { return };
    let proxy = Proxy::start(server.address, 5);
    proxy.done.is_away.store(true, Ordering::Relaxed);
    let place = Place::new("secret");
    let shipper = place.shipper(&proxy, None);
    let status = || std::fs::read_to_string(place.spool().join("status.json")).unwrap_or_default();
    wait_until("an error", || status().contains("put v1/"));
    shipper.kill();
    assert!(!status().contains("very-secret") && !status().contains("Signature"), "{}", status());
}
