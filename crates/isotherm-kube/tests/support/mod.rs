//! The fake API server, and the program with a folder of its own.

#![allow(missing_docs, reason = "no library")]
#![allow(unreachable_pub, reason = "no library")]

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto::ring};

pub const UID_A: &str = "8d5b1f4e-0a7c-4b52-9d2e-6f2f0d3c1a77";
pub const UID_B: &str = "0f1c2d3e-4a5b-6c7d-8e9f-a0b1c2d3e4f5";
pub const SETTINGS: &str = "[[scheme]]\naction = \"page-out\"\nname = \"cold\"\nassigned = true\nnamespaces = [\"db\"]\n\
    [[scheme]]\naction = \"collapse\"\nname = \"huge\"\nassigned = true\n";
const SETTLE: Duration = Duration::from_millis(20);

pub fn skip(why: &str) {
    let _ = std::io::stderr().write_all(format!("skipped: needs {why}\n").as_bytes());
}

pub fn slice(above: &str, uid: &str) -> String {
    format!("{above}-pod{}.slice", uid.replace('-', "_"))
}

/// A pod as the API server sends its metadata.
pub fn pod(uid: &str, namespace: &str, scheme: Option<&str>) -> String {
    let annotations =
        scheme.map_or("null".to_owned(), |scheme| format!("{{\"other\":\"x\",\"isotherm.dev/scheme\":{scheme:?}}}"));
    format!(
        "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{{\"name\":\"pod-0\",\"namespace\":\"{namespace}\",\
         \"uid\":\"{uid}\",\"resourceVersion\":\"VERSION\",\"annotations\":{annotations}}}}}"
    )
}

fn event(kind: &str, version: &str, pod: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{}}}", pod.replace("VERSION", version))
}

pub fn added(version: &str, pod: &str) -> String {
    event("ADDED", version, pod)
}

pub fn modified(version: &str, pod: &str) -> String {
    event("MODIFIED", version, pod)
}

pub fn deleted(version: &str, pod: &str) -> String {
    event("DELETED", version, pod)
}

pub fn bookmark(version: &str) -> String {
    event("BOOKMARK", version, "{\"metadata\":{\"resourceVersion\":\"VERSION\",\"creationTimestamp\":null}}")
}

/// An answer that is sent whole.
pub struct Answer {
    status: u16,
    body: String,
}

impl Answer {
    pub fn page(version: &str, next: Option<&str>, pods: &[String]) -> Answer {
        let next = next.unwrap_or_default();
        let items = pods.join(",").replace("VERSION", version);
        Answer::body(&format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"metadata\":{{\"resourceVersion\":\"{version}\",\"continue\":\"{next}\"}},\"items\":[{items}]}}"
        ))
    }

    pub fn body(body: &str) -> Answer {
        Answer { status: 200, body: body.to_owned() }
    }

    pub fn status(status: u16, message: &str) -> Answer {
        Answer { status, body: format!("{{\"kind\":\"Status\",\"message\":\"{message}\",\"code\":{status}}}") }
    }
}

/// A request, in lower case but for the path.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    headers: Vec<String>,
}

impl Asked {
    pub fn has(&self, name: &str, value: &str) -> bool {
        self.headers.iter().any(|line| {
            line.split_once(':').is_some_and(|(key, rest)| key.eq_ignore_ascii_case(name) && rest.contains(value))
        })
    }
}

enum Step {
    Line(String),
    End,
    Drop,
}

/// A watch that a test plays. It is given to the next request for one.
pub struct Watch(Sender<Step>);

impl Watch {
    pub fn send(&self, line: &str) {
        self.0.send(Step::Line(line.to_owned())).unwrap();
    }

    pub fn end(&self) {
        self.0.send(Step::End).unwrap();
    }

    pub fn drop_connection(&self) {
        self.0.send(Step::Drop).unwrap();
    }
}

#[derive(Default)]
struct Plan {
    answers: VecDeque<Answer>,
    watches: VecDeque<Receiver<Step>>,
    asked: Vec<Asked>,
    token: Option<String>,
}

/// Answers with what a test has planned: pages in order, and watches in order.
pub struct Server {
    plan: Arc<Mutex<Plan>>,
    url: String,
}

trait Stream: Read + Write + Send {
    fn cut(&self);
}

impl Stream for TcpStream {
    fn cut(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Stream for StreamOwned<ServerConnection, TcpStream> {
    fn cut(&self) {
        let _ = self.sock.shutdown(Shutdown::Both);
    }
}

impl Server {
    fn start(tls: Option<Arc<ServerConfig>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let plan: Arc<Mutex<Plan>> = Arc::default();
        let shared = Arc::clone(&plan);
        // Ends with the process of the test.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (plan, tls) = (Arc::clone(&shared), tls.clone());
                thread::spawn(move || {
                    let stream: Box<dyn Stream> = match tls {
                        Some(config) => Box::new(StreamOwned::new(ServerConnection::new(config).unwrap(), stream)),
                        None => Box::new(stream),
                    };
                    answer(stream, &plan);
                });
            }
        });
        Server { plan, url }
    }

    pub fn answers(&self, answers: impl IntoIterator<Item = Answer>) {
        self.plan.lock().unwrap().answers.extend(answers);
    }

    pub fn watch(&self) -> Watch {
        let (sender, receiver) = mpsc::channel();
        self.plan.lock().unwrap().watches.push_back(receiver);
        Watch(sender)
    }

    /// All other tokens get 401.
    pub fn expects_token(&self, token: &str) {
        self.plan.lock().unwrap().token = Some(token.to_owned());
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.plan.lock().unwrap().asked.clone()
    }

    #[track_caller]
    pub fn until_asked(&self, time: Duration, is_it: impl Fn(&Asked) -> bool) -> Asked {
        let mut found = None;
        let came = until(time, || {
            found = self.asked().into_iter().find(|asked| is_it(asked));
            found.is_some()
        });
        assert!(came, "not asked for: {:?}", self.asked());
        found.unwrap()
    }
}

fn answer(mut stream: Box<dyn Stream>, plan: &Mutex<Plan>) {
    let Some(asked) = head(&mut *stream) else { return };
    let is_watch = asked.path.contains("watch=true");
    let is_refused = plan.lock().unwrap().token.as_ref().is_some_and(|token| !asked.has("authorization", token));
    plan.lock().unwrap().asked.push(asked);
    let whole = if is_refused {
        Some(Answer::status(401, "Unauthorized"))
    } else {
        let mut plan = plan.lock().unwrap();
        // A planned refusal of a watch comes before its stream.
        let refusal = plan.answers.front().is_some_and(|answer| answer.status == 410);
        if !is_watch || refusal {
            Some(plan.answers.pop_front().unwrap_or_else(|| Answer::status(503, "nothing planned")))
        } else {
            None
        }
    };
    if let Some(Answer { status, body }) = whole {
        let _ = write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let _ = stream.flush();
        return;
    }
    let planned = plan.lock().unwrap().watches.pop_front();
    let Some(steps) = planned else {
        let _ = write!(stream, "HTTP/1.1 503 X\r\nContent-Length: 2\r\n\r\n{{}}");
        let _ = stream.flush();
        return;
    };
    play(stream, &steps);
}

fn play(mut stream: Box<dyn Stream>, steps: &Receiver<Step>) {
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let _ = stream.flush();
    while let Ok(step) = steps.recv() {
        match step {
            // In two pieces, as the network may deliver it.
            Step::Line(line) => {
                let line = line + "\n";
                let (a, b) = line.split_at(line.len() / 2);
                for piece in [a, b] {
                    let _ = write!(stream, "{:x}\r\n{piece}\r\n", piece.len());
                    let _ = stream.flush();
                }
            }
            Step::End => {
                let _ = write!(stream, "0\r\n\r\n");
                let _ = stream.flush();
                return;
            }
            Step::Drop => return stream.cut(),
        }
    }
}

fn head(stream: &mut dyn Stream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let mut one = [0];
    while !bytes.ends_with(b"\r\n\r\n") && bytes.len() < 1 << 16 {
        stream.read_exact(&mut one).ok()?;
        bytes.push(one[0]);
    }
    let text = String::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    let path = lines.next()?.strip_prefix("GET ")?.split(' ').next()?.to_owned();
    Some(Asked { path, headers: lines.map(str::to_owned).collect() })
}

/// The program, its files and its server.
pub struct Bench {
    dir: TempDir,
    pub server: Server,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::of(None, tempfile::tempdir().unwrap())
    }

    /// `None` without openssl, which makes the certificate.
    pub fn with_tls() -> Option<Bench> {
        let dir = tempfile::tempdir().unwrap();
        certificate(dir.path(), "server")?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        let chain = vec![CertificateDer::from_pem_file(dir.path().join("server.crt")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(dir.path().join("server.key")).unwrap();
        let bench = Bench::of(Some(Arc::new(config.with_single_cert(chain, key).unwrap())), dir);
        fs::copy(bench.path("server.crt"), bench.path("account/ca.crt")).unwrap();
        Some(bench)
    }

    fn of(tls: Option<Arc<ServerConfig>>, dir: TempDir) -> Bench {
        let bench = Bench { dir, server: Server::start(tls) };
        for folder in ["cgroup", "out", "account"] {
            fs::create_dir(bench.path(folder)).unwrap();
        }
        bench.settings(SETTINGS);
        bench.rotate_token("token-1");
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn settings(&self, schemes: &str) {
        fs::write(self.path("settings.toml"), format!("assignments = {:?}\n{schemes}", self.path("out/assignments")))
            .unwrap();
    }

    pub fn cgroup(&self, above: &str, name: &str) -> PathBuf {
        let path = self.path("cgroup").join(above).join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// A folder with a new name, and a link to it that is replaced.
    pub fn rotate_token(&self, token: &str) {
        let account = self.path("account");
        fs::create_dir(account.join(token)).unwrap();
        fs::write(account.join(token).join("token"), token).unwrap();
        symlink(token, account.join("..new")).unwrap();
        fs::rename(account.join("..new"), account.join("..data")).unwrap();
        let _ = symlink("..data/token", account.join("token"));
    }

    pub fn trust_another(&self) {
        certificate(self.dir.path(), "other").unwrap();
        fs::copy(self.path("other.crt"), self.path("account/ca.crt")).unwrap();
    }

    pub fn write_file(&self, text: &str) {
        fs::write(self.path("out/assignments"), text).unwrap();
    }

    pub fn file(&self) -> Option<String> {
        fs::read_to_string(self.path("out/assignments")).ok()
    }

    #[track_caller]
    pub fn until_file(&self, time: Duration, lines: &[&str]) {
        let wanted: String = std::iter::once("isotherm-assignments 1")
            .chain(lines.iter().copied())
            .map(|line| format!("{line}\n"))
            .collect();
        assert!(until(time, || self.file().as_ref() == Some(&wanted)), "not {wanted:?} but {:?}", self.file());
    }

    pub fn start(&self) -> Kube {
        let mut child = Command::new(env!("CARGO_BIN_EXE_isotherm-kube"))
            .args(["--node", "node-1", "--pause-ms", "20", "--server", &self.server.url, "-c"])
            .arg(self.path("settings.toml"))
            .arg("--token-file")
            .arg(self.path("account/token"))
            .arg("--ca-file")
            .arg(self.path("account/ca.crt"))
            .arg("--cgroups")
            .arg(self.path("cgroup"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said: Arc<Mutex<String>> = Arc::default();
        let (stderr, kept) = (child.stderr.take().unwrap(), Arc::clone(&said));
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Kube { child, said }
    }
}

/// The running program; it is ended with the test.
pub struct Kube {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Kube {
    #[track_caller]
    pub fn until_says(&mut self, time: Duration, text: &str) {
        let said = || self.said.lock().unwrap().clone();
        assert!(until(time, || said().contains(text)), "{text:?} is not in:\n{}", said());
        assert!(!said().contains("token-"), "tokens are not printed:\n{}", said());
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn waits(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    pub fn ends_by_term(&mut self) -> Option<i32> {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        self.waits()
    }
}

impl Drop for Kube {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn certificate(dir: &Path, name: &str) -> Option<()> {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args([
            "-subj",
            "/CN=kubernetes",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .arg("-keyout")
        .arg(dir.join(format!("{name}.key")))
        .arg("-out")
        .arg(dir.join(format!("{name}.crt")))
        .output();
    made.is_ok_and(|made| made.status.success()).then_some(())
}

pub fn until(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + time;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(SETTLE);
    }
}
