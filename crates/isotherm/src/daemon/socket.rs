//! The control socket of a running `isotherm run`: a Unix socket with one request per line, and one line in reply.
//!
//! The reply to `status` is a JSON object. The reply to `hint PID START-END [LEVEL]` is `ok COUNT`. The reply to any other request, and to
//! one that fails, is `error: WHY`. It comes from a thread of its own, so it also comes where the one that watches hangs, and says so. `isotherm_schemes::request` reads requests. Only root and the user who started the daemon may connect. [`super::place`] owns the
//! path.

use crate::daemon::place;
use crate::output;
use anyhow::{Context, Result, bail};
use isotherm_schemes::request::{ExternalHint, Request};
use isotherm_schemes::state::{Shared, lock};
use isotherm_schemes::{Named, Wait};
use isotherm_stream::place::{Place, connect_within};
use isotherm_sys::{clock, peer};
use isotherm_systemd::Pulse;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The longest line that is read.
const MAX_LINE: u64 = 4096;
/// Connections served at once.
const MAX_CONNECTIONS: usize = 32;
/// A client that sends or reads nothing for this long is disconnected.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client waits for each step.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(50);
/// The answer beyond [`MAX_CONNECTIONS`], and how long a client tries again after it.
const TOO_MANY: &str = "too many connections";
const CROWDED: Duration = Duration::from_secs(2);

/// A socket that is removed when it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    /// Released after the listener is closed.
    _place: Place,
    /// A refused connection has been reported.
    reported: AtomicBool,
}

impl ControlSocket {
    /// Listens at `path`. Replaces a socket left behind by a crash. Fails if another process answers there.
    pub fn open(path: &Path) -> Result<ControlSocket> {
        let (listener, place) = place::listen(path)?;
        listener.set_nonblocking(true).context("prepare the socket")?;
        Ok(ControlSocket { listener, _place: place, reported: AtomicBool::new(false) })
    }

    /// Answers requests until `is_over` returns true. `pulse` is that of the thread that watches.
    pub fn answer(&self, (shared, pulse): (&Shared, &Arc<Pulse>), is_over: impl Fn() -> bool) {
        let open = Arc::new(AtomicUsize::new(0));
        while !is_over() {
            match self.listener.accept() {
                Ok((stream, _)) if !self.admits(&stream) => {
                    refuse(&stream, "only root and the user who started this may connect")
                }
                Ok((stream, _)) if open.load(Ordering::Relaxed) < MAX_CONNECTIONS => {
                    let (shared, pulse, place) = (Arc::clone(shared), Arc::clone(pulse), Connection::among(&open));
                    let serve = move || {
                        let _place = place;
                        // A client that disconnects early is no error.
                        let _ = converse(&stream, &shared, &pulse);
                    };
                    // Where no thread can be had, the client is disconnected, and may try again: others need the socket later.
                    let _ = std::thread::Builder::new().spawn(serve);
                }
                Ok((stream, _)) => refuse(&stream, TOO_MANY),
                Err(_) => std::thread::sleep(TICK),
            }
        }
    }

    /// The mode of the socket limits who may connect. The user of each connection is checked as well, because the mode may have been
    /// changed, or a descriptor passed on.
    fn admits(&self, stream: &UnixStream) -> bool {
        match peer::uid(stream) {
            Ok(uid) if may_connect(uid, rustix::process::geteuid().as_raw()) => true,
            Ok(uid) => {
                if !self.reported.swap(true, Ordering::Relaxed) {
                    output::warn(format_args!("refused a connection of user {uid}; further ones are refused silently"));
                }
                false
            }
            Err(_) => false,
        }
    }
}

/// One of the connections that are served at a time, however it ends.
struct Connection(Arc<AtomicUsize>);

impl Connection {
    fn among(open: &Arc<AtomicUsize>) -> Connection {
        open.fetch_add(1, Ordering::Relaxed);
        Connection(Arc::clone(open))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn may_connect(peer: u32, own: u32) -> bool {
    peer == 0 || peer == own
}

/// Answers with an error. Does not wait for a client that does not read it.
fn refuse(mut stream: &UnixStream, why: &str) {
    let _ = stream.set_nonblocking(true);
    let _ = writeln!(stream, "error: {why}");
}

fn converse(stream: &UnixStream, shared: &Shared, pulse: &Pulse) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut line = Vec::new();
        if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() as u64 == MAX_LINE && !line.ends_with(b"\n") {
            return writeln!(writer, "error: a line of more than {MAX_LINE} bytes");
        }
        let reply = match std::str::from_utf8(&line) {
            Ok(text) => reply(text.trim(), shared, pulse).unwrap_or_else(|why| format!("error: {why}")),
            Err(_) => "error: not UTF-8".to_owned(),
        };
        writeln!(writer, "{reply}")?;
    }
}

fn reply(line: &str, shared: &Shared, pulse: &Pulse) -> Result<String, String> {
    match Request::parse(line)? {
        Request::Status => {
            let mut status = lock(shared).status();
            if pulse.is_late(clock::monotonic_ns()) {
                (status.paused, status.waiting) = (None, Some(Named::Known(Wait::NoWindow)));
            }
            output::json_line(&status).map_err(|e| e.to_string())
        }
        Request::Hint(ExternalHint { pid, range, level }) => {
            let added = lock(shared).hint(pid, range, level, clock::monotonic_ns())?;
            Ok(format!("ok {added}"))
        }
    }
}

/// The client's side: one line each way.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
    path: PathBuf,
}

impl Client {
    pub fn connect(path: &Path) -> Result<Client> {
        let stream = connect_within(path, ANSWER_TIMEOUT).map_err(|error| {
            if error.kind() == io::ErrorKind::WouldBlock {
                return no_answer(path);
            }
            let text =
                format!("connect to {}: is `isotherm run` there, under this user, with this --socket?", path.display());
            anyhow::Error::new(error).context(text)
        })?;
        Ok(Client { reader: BufReader::new(stream), path: path.to_owned() })
    }

    /// Asks, and tries again for a while if the daemon has too many connections: those of others end soon.
    pub fn ask(&mut self, line: &str) -> Result<String> {
        let until = Instant::now() + CROWDED;
        loop {
            let reply = self.ask_once(line)?;
            if reply.strip_prefix("error: ") != Some(TOO_MANY) || Instant::now() >= until {
                return Ok(reply);
            }
            std::thread::sleep(TICK);
            *self = Client::connect(&self.path)?;
        }
    }

    fn ask_once(&mut self, line: &str) -> Result<String> {
        let path = &self.path;
        let fault = |what: &'static str| {
            move |error: io::Error| match error.kind() {
                io::ErrorKind::WouldBlock => no_answer(path),
                _ => anyhow::Error::new(error).context(what),
            }
        };
        match writeln!(self.reader.get_mut(), "{line}") {
            // The daemon has closed it. It may have said why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written.map_err(fault("write to the socket"))?,
        }
        let mut reply = String::new();
        self.reader.read_line(&mut reply).map_err(fault("read from the socket"))?;
        if reply.is_empty() {
            bail!("`isotherm run` has closed the connection");
        }
        Ok(reply.trim_end().to_owned())
    }
}

fn no_answer(path: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{} does not answer within {ANSWER_TIMEOUT:?}: the `isotherm run` there is stopped, or another program listens; see `fuser {}`",
        path.display(),
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_schemes::Budgets;
    use isotherm_schemes::collapse::Rules;
    use isotherm_schemes::state::State;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Mutex;

    fn shared() -> Shared {
        Arc::new(Mutex::new(State::new(Rules::default(), Budgets::default())))
    }

    #[test]
    fn malformed_requests_are_answered_and_the_next_one_is_served() {
        let shared = shared();
        for line in ["", "hint", "hint 1 1", "bogus", "status now"] {
            assert!(reply(line, &shared, &Pulse::default()).is_err(), "{line:?}");
        }
        let error = reply("hint 1 0-200000", &shared, &Pulse::default()).unwrap_err();
        assert!(error.contains("not among the targets"), "{error}");
        assert_eq!(status(&shared, &Pulse::default())["collapsed"], 0);
    }

    fn status(shared: &Shared, pulse: &Pulse) -> serde_json::Value {
        serde_json::from_str(&reply("status", shared, pulse).unwrap()).unwrap()
    }

    #[test]
    fn a_status_says_that_windows_have_ceased_to_end() {
        let (shared, pulse) = (shared(), Pulse::with_grace(0));
        pulse.next_due(u64::MAX);
        assert!(status(&shared, &pulse)["waiting"].is_null());
        pulse.next_due(0);
        assert_eq!(status(&shared, &pulse)["waiting"], "no-window");
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        // As a crash leaves it: bound by somebody who is gone.
        drop(UnixListener::bind(&path).unwrap());
        let socket_server = ControlSocket::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = ControlSocket::open(&path).unwrap_err().to_string();
        assert!(second.contains("another isotherm run"), "{second}");
        drop(socket_server);
        assert!(!path.exists());
        fs::write(&path, "a file").unwrap();
        let third = format!("{:#}", ControlSocket::open(&path).unwrap_err());
        assert!(third.contains("no socket"), "{third}");
    }

    #[test]
    fn only_root_and_our_own_user_may_connect() {
        assert!(may_connect(0, 1000) && may_connect(1000, 1000) && may_connect(0, 0));
        assert!(!may_connect(1001, 1000) && !may_connect(1000, 0));
    }

    #[test]
    fn endless_lines_and_binary_are_survived() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let socket_server = ControlSocket::open(&path).unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        let shared = shared();
        std::thread::scope(|scope| {
            scope.spawn(|| socket_server.answer((&shared, &Arc::default()), || over.load(Ordering::Relaxed)));
            let mut long = Client::connect(&path).unwrap();
            assert!(long.ask(&"x".repeat(10_000)).unwrap().contains("more than 4096"));
            let mut binary = UnixStream::connect(&path).unwrap();
            binary.write_all(b"\xff\xfe\n").unwrap();
            let mut reply = String::new();
            BufReader::new(&binary).read_line(&mut reply).unwrap();
            assert_eq!(reply, "error: not UTF-8\n");
            let mut after = Client::connect(&path).unwrap();
            assert!(after.ask("status").unwrap().starts_with('{'));
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_client_waits_for_the_connections_of_others_to_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (socket, shared) = (ControlSocket::open(&path).unwrap(), shared());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| socket.answer((&shared, &Arc::default()), || is_over.load(Ordering::Relaxed)));
            let others: Vec<_> = (0..MAX_CONNECTIONS).map(|_| UnixStream::connect(&path).unwrap()).collect();
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                drop(others);
            });
            let answer = Client::connect(&path).and_then(|mut client| client.ask("status"));
            is_over.store(true, Ordering::Relaxed);
            assert!(answer.as_ref().unwrap().starts_with('{'), "{answer:?}");
        });
    }
}
