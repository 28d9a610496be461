//! Shows what a monitor sends: a web page, its API, and metrics for Prometheus.
//!
//! The monitor has privileges and speaks no HTTP. This program has none and reads no process: it gets snapshots over a Unix
//! socket (`isotherm-stream`), keeps some hours of them in memory, and answers the network. It is a crate of its own so that
//! nothing else compiles an HTTP server.
//!
//! ```text
//! monitor --socket--> feed --> state --> app --> net --> browsers, Prometheus
//!                            (views)   (routes)
//! ```
//!
//! | module | |
//! |---|---|
//! | `args` | the command line |
//! | `end` | signals, and the end of the parent |
//! | `feed`, `recording` | read snapshots, in a thread of their own: from a monitor, or of a recording |
//! | `state` | the newest view of everything, replaced as a whole |
//! | `sums`, `groups` | sums over pages; cgroups |
//! | `moment`, `history`, `footprint`, `merge`, `layout` | what is kept, and thinned |
//! | `tile` | heat maps as bytes |
//! | `metrics` | the table of metrics, and all that is made from it |
//! | `gate`, `hosts`, `token`, `secrets` | who may read; what is replaced meanwhile |
//! | `api`, `reply`, `web`, `bodies` | answers, and their memory |
//! | `app`, `net` | the way of a request; connections and their limits |

#![forbid(unsafe_code)]

mod api;
mod app;
pub mod args;
mod bodies;
mod end;
mod feed;
mod footprint;
mod gate;
mod groups;
mod history;
mod hosts;
mod layout;
mod merge;
pub mod metrics;
mod moment;
mod net;
mod recording;
mod reply;
mod secrets;
mod state;
mod sums;
mod tile;
mod token;
mod web;

use anyhow::{Context, Result, bail};
use app::{App, Service};
use args::Args;
use gate::Gate;
use hosts::HostNames;
use isotherm_record::Recording;
use isotherm_sandbox::Files;
use isotherm_systemd::{Manager, Priority, messages};
use metrics::render::Extent;
use secrets::{Secrets, Stamps};
use state::{Builder, State};
use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use token::Token;
use tokio::io::AsyncReadExt as _;
use tokio::sync::oneshot;

/// Threads that answer, besides the one that reads snapshots and those that render tiles.
const WORKERS: usize = 2;
/// Threads that render tiles.
const RENDERERS: usize = 4;

/// The name of this program in its messages.
pub const PROGRAM: &str = "isotherm-serve";

/// To standard output. A reader that has enough is no error.
fn print(text: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("print to standard output"),
        _ => Ok(()),
    }
}

/// Runs until the monitor ends, a signal asks for it, or something fails. Opens everything, prints the address, confines itself,
/// and only then reads a byte from anybody.
pub fn run(args: &Args) -> Result<()> {
    if let Some(parent) = args.ends_with_parent
        && end::with_parent(parent)?
    {
        return Ok(());
    }
    if let Some(what) = args.print {
        return print(metrics::assets::text(what).as_bytes());
    }
    let source = Source::open(args)?;
    let secrets = Secrets::open(args)?;
    let listener = net::listen(args.address())?;
    let signals = isotherm_systemd::end_signals().context("handle signals")?;
    // One that a monitor has started ends with it, and is not known to whom sends signals.
    let hangups = if args.ends_with_parent.is_some() { None } else { isotherm_systemd::reload_signals()? };
    let at = listener.local_addr().context("find out the port")?;
    let is_tls = secrets.tls.is_some();
    announce(&address_line(at, is_tls, secrets.token.get().as_ref(), args.token_file.as_deref()));
    let manager = Manager::of_this_process();
    if !args.no_sandbox {
        confine(&source, hangups.as_ref().map(|_| secrets.folders()).unwrap_or_default());
    }
    let state = Arc::new(State::default());
    let ended = start_feed(source, args, Arc::clone(&state))?;
    let gate = Gate { names: HostNames::new(args.address().ip, &args.host), token: secrets.token.clone(), is_tls };
    let service = Service::new(App::new(state, gate));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(RENDERERS)
        .enable_all()
        .build()
        .context("start threads that answer")?;
    let status = format!("listening on {at}");
    manager.ready(&status);
    let outcome = runtime.block_on(async {
        tokio::select! {
            never = signs_of_life(&manager) => match never {},
            failed = read_again(hangups, &secrets, &manager, &status) => failed.map(|never| match never {}),
            served = net::serve(listener, secrets.tls.clone(), service) => served.map(|never| match never {}),
            ended = wait_for(ended) => ended,
            asked = end::first(signals) => asked,
        }
    });
    manager.stopping();
    // Answers that are still written are cut off.
    runtime.shutdown_background();
    outcome
}

/// Where snapshots come from.
#[derive(Debug)]
enum Source {
    /// The socket of a monitor.
    Monitor(UnixStream),
    /// A pair of sockets with the monitor that has started us. Its end is ours.
    Parent(UnixStream),
    /// A recording.
    Recording(Box<Recording>),
}

impl Source {
    fn open(args: &Args) -> Result<Source> {
        if let Some(path) = &args.connect {
            let doing =
                || format!("connect to {}: is the monitor running, and may this user read its socket?", path.display());
            return Ok(Source::Monitor(UnixStream::connect(path).with_context(doing)?));
        }
        if let Some(path) = &args.recording {
            // After this, relative paths lead nowhere.
            let path = std::fs::canonicalize(path).with_context(|| format!("open recording {}", path.display()))?;
            let recording = Recording::open(path)?;
            recording.notes().iter().for_each(|note| messages::print(PROGRAM, Priority::Notice, note));
            return Ok(Source::Recording(Box::new(recording)));
        }
        let Some(number) = args.fd else { bail!("nothing to show: give --connect, --fd or --recording") };
        let doing = || format!("read descriptor {number}: it has to be one end of a pair of Unix sockets");
        let stream = UnixStream::from(isotherm_sys::descriptors::inherited(number).with_context(doing)?);
        stream.local_addr().with_context(doing)?;
        stream.set_nonblocking(false).with_context(doing)?;
        Ok(Source::Parent(stream))
    }

    /// What is still opened later.
    fn files(&self) -> Files {
        match self {
            Source::Monitor(_) | Source::Parent(_) => Files::default(),
            Source::Recording(recording) => Files { read: vec![recording.path().to_owned()], ..Files::default() },
        }
    }

    /// Shows what it has. Returns whether the server ends with it.
    fn show(self, builder: &mut Builder, state: &State) -> Result<bool> {
        match self {
            Source::Monitor(stream) => {
                feed::follow(stream, builder, state)?;
                bail!("the monitor has ended; start it, and then this again")
            }
            Source::Parent(stream) => feed::follow(stream, builder, state).map(|()| true).map_err(Into::into),
            Source::Recording(recording) => recording::show(&recording, builder, state).map(|()| false),
        }
    }
}

/// The line that programs which start this one wait for: the address ends with the first blank after it. A token that is in a
/// file stays there, because what is printed may be kept in a log.
fn address_line(at: SocketAddr, is_tls: bool, token: Option<&Token>, token_file: Option<&Path>) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    match (token, token_file) {
        (None, _) => format!("listening on {scheme}://{at}/"),
        (Some(_), Some(file)) => format!("listening on {scheme}://{at}/  (token in {})", file.display()),
        (Some(token), None) => format!("listening on {scheme}://{at}/{}/", token.reveal()),
    }
}

fn announce(line: &str) {
    let mut out = std::io::stdout();
    // Nobody may read it: the server runs all the same.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// From here on: no file but those of a recording and in `folders`, no new connection, no program, no capability.
fn confine(source: &Source, folders: Vec<PathBuf>) {
    let mut files = source.files();
    files.read.extend(folders);
    let in_force = isotherm_sandbox::server_only(&files);
    for what in in_force.shortfalls("the server") {
        messages::print(PROGRAM, Priority::Warning, &what);
    }
}

/// Reads snapshots in a thread. The receiver gets how it ended, and whether the server ends with it.
fn start_feed(source: Source, args: &Args, state: Arc<State>) -> Result<oneshot::Receiver<Result<bool>>> {
    let (ended, receiver) = oneshot::channel();
    let extent = Extent { top: args.top, processes: args.processes };
    let bytes = usize::try_from(args.history_mib).unwrap_or(usize::MAX).saturating_mul(1 << 20);
    let mut builder = Builder::new(bytes, extent, matches!(source, Source::Recording(_)));
    // Nobody waits for it if the server has failed.
    let read = move || drop(ended.send(source.show(&mut builder, &state)));
    std::thread::Builder::new().name("feed".into()).spawn(read).context("start a thread that reads snapshots")?;
    Ok(receiver)
}

/// Shows the service manager that this runtime goes on.
async fn signs_of_life(manager: &Manager) -> Infallible {
    let Some(period) = manager.period() else { return std::future::pending().await };
    loop {
        manager.alive();
        tokio::time::sleep(period).await;
    }
}

/// How often it is looked up whether the files of the token and the certificates have changed.
const RENEWED_EVERY: Duration = Duration::from_secs(60);

/// Reads the token and the certificates again at each byte of `hangups`, and when their files have changed.
async fn read_again(
    hangups: Option<UnixStream>,
    secrets: &Secrets,
    manager: &Manager,
    status: &str,
) -> Result<Infallible> {
    let Some(hangups) = hangups else { return std::future::pending().await };
    let mut hangups = tokio::net::UnixStream::from_std(hangups).context("wait for signals")?;
    let mut seen = secrets.stamps();
    loop {
        tokio::select! {
            asked = hangups.read_u8() => {
                if asked.is_err() {
                    return std::future::pending().await;
                }
                manager.reloading(isotherm_sys::clock::monotonic_ns());
                seen = secrets.stamps();
                renew(secrets);
                manager.ready(status);
            }
            () = tokio::time::sleep(RENEWED_EVERY) => renew_if_changed(secrets, &mut seen),
        }
    }
}

/// Once for each change, whether or not it can be read: a file that is wrong is reported once.
fn renew_if_changed(secrets: &Secrets, seen: &mut Stamps) {
    let now = secrets.stamps();
    if now != *seen {
        *seen = now;
        renew(secrets);
    }
}

fn renew(secrets: &Secrets) {
    match secrets.read_again() {
        Ok(()) => messages::print(PROGRAM, Priority::Notice, "the token and the certificates were read again"),
        Err(error) => {
            let what = format!("{error:#}; those from before stay in force");
            messages::print(PROGRAM, Priority::Warning, &what);
        }
    }
}

/// Waits until the server has to end.
async fn wait_for(ended: oneshot::Receiver<Result<bool>>) -> Result<()> {
    let is_over = ended.await.context("read snapshots: the thread for it has failed; please report this")??;
    if !is_over {
        std::future::pending::<()>().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn a_token_that_was_replaced_is_read_without_a_signal() {
        let dir = tempfile::tempdir().unwrap();
        let [file, new] = ["token", "new"].map(|name| dir.path().join(name));
        let write = |path: &Path, token: &str| {
            std::fs::write(path, token).unwrap();
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        };
        let [first, second] = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];
        write(&file, first);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let args = Args::parse_from(["isotherm-serve", "--connect", "/none", "--token-file", &text(&file)]);
        let secrets = Secrets::open(&args).unwrap();
        let token = || secrets.token.get().unwrap().reveal().to_owned();
        let mut seen = secrets.stamps();
        renew_if_changed(&secrets, &mut seen);
        assert_eq!(token(), first);
        write(&new, second);
        std::fs::rename(&new, &file).unwrap();
        renew_if_changed(&secrets, &mut seen);
        assert_eq!(token(), second);
        // One that is wrong changes nothing.
        write(&new, "short");
        std::fs::rename(&new, &file).unwrap();
        renew_if_changed(&secrets, &mut seen);
        assert_eq!((token().as_str(), seen == secrets.stamps()), (second, true));
    }

    #[test]
    fn the_address_is_printed_with_the_token_unless_a_file_has_it() {
        let (at, token) = ("127.0.0.1:4780".parse().unwrap(), Token::random().unwrap());
        let line = |is_tls, token, file: Option<&str>| address_line(at, is_tls, token, file.map(Path::new));
        assert_eq!(line(false, None, None), "listening on http://127.0.0.1:4780/");
        assert_eq!(line(true, Some(&token), None), format!("listening on https://127.0.0.1:4780/{}/", token.reveal()));
        let with_file = line(false, Some(&token), Some("/run/token"));
        assert_eq!(with_file, "listening on http://127.0.0.1:4780/  (token in /run/token)");
    }
}
