//! Runs a shipper: opens everything, confines the process, and waits for snapshots, answers of the store, time and signals.
//!
//! One thread does all of it but reading the stream, and what the store hands to threads of its own. So the spool has one user, and what a
//! crash can interrupt has one order.

use crate::PROGRAM;
use crate::args::Args;
use crate::clock;
use crate::feed::{self, Event};
use crate::host;
use crate::plan::{Moment, Planner};
use crate::rows::{self, Rows};
use crate::shipper::Shipper;
use crate::spool::{ObjectId, Spool};
use crate::store::{self, Put, Settings, Store, To};
use anyhow::{Context, Result, bail};
use isotherm_rollup::service::Rules;
use isotherm_sandbox::{Files, Reach};
use isotherm_stream::Message;
use isotherm_systemd::{Manager, Priority, messages};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;

/// Threads of the store: files are written, and names are looked up.
const STORE_THREADS: usize = 4;
/// Tries in a row after which `--once` gives up.
const ONCE_TRIES: u32 = 5;
/// How often the status is written at most.
const STATUS_NS: u64 = 1_000_000_000;
/// What trusting a server takes besides what is in `/etc`.
const CERTIFICATES: [&str; 3] = ["/usr/share/ca-certificates", "/usr/lib/ssl", "/usr/local/share/ca-certificates"];

/// Puts that are under way.
type Puts = JoinSet<(ObjectId, store::Result<Put>)>;

/// Runs until a signal asks for the end, or once.
pub fn ship(args: &Args, spool: &Path, to: &To) -> Result<()> {
    // Others may read what is in the store, and nobody else writes to it.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask | rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    let manager = Manager::of_this_process();
    let signals = isotherm_systemd::end_signals().context("handle signals")?;
    let inputs = Inputs::of(args)?;
    // `--once` reads nothing for so long that it could change.
    let hangups = if args.connect.is_some() { isotherm_systemd::reload_signals()? } else { None };
    let settings = inputs.settings()?;
    let rules = inputs.rules()?;
    let host = host::read(args.hostname.as_deref())?;
    let now = clock::now();
    let opened = Spool::open(spool, args.spool_size)?;
    let spool = std::fs::canonicalize(spool).context("find the spool")?;
    let connect =
        args.connect.as_deref().map(std::path::absolute).transpose().context("find the socket of the monitor")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(STORE_THREADS)
        .build()
        .context("start a runtime")?;
    let store = Store::open(to, &settings, args.timeout)?;
    if !args.no_sandbox {
        confine(&spool, &store, &settings, &inputs);
    }
    let hash = crate::hash(host.key.as_bytes());
    let rows = Rows::new(host, rules, opened.covered_until_unix_ns(), args.every);
    let shipper = Shipper::new(rows, opened, Planner::new(args.plan(), hash), random()?, now);
    let mut running = Running { shipper, store, puts: JoinSet::new(), spool, to, inputs, written_ns: 0, manager };
    running.ready();
    let outcome = runtime.block_on(async {
        match connect {
            Some(path) => running.follow(path, signals, hangups).await,
            None => running.once(signals).await,
        }
    });
    running.manager.stopping();
    running.report(clock::now(), true);
    // Puts that are under way are cut off: what the store has of them, it has already when they are sent again.
    runtime.shutdown_background();
    outcome
}

/// A shipper and its edges.
struct Running<'a> {
    shipper: Shipper<Rows>,
    store: Store,
    puts: Puts,
    spool: PathBuf,
    to: &'a To,
    inputs: Inputs,
    /// When the status was written.
    written_ns: u64,
    manager: Manager,
}

impl Running<'_> {
    fn ready(&self) {
        self.manager.ready(&format!("sending to {}", self.to.name()));
    }

    async fn follow(&mut self, path: PathBuf, signals: UnixStream, hangups: Option<UnixStream>) -> Result<()> {
        let mut hangups = hangups.map(tokio::net::UnixStream::from_std).transpose().context("wait for signals")?;
        let mut events = feed::start(path).context("start a thread that reads snapshots")?;
        let first = first(signals);
        tokio::pin!(first);
        let longest = self.manager.period().unwrap_or(Duration::MAX);
        loop {
            let now = self.step();
            self.manager.alive();
            let wait = Duration::from_nanos(self.shipper.wait_ns(now)).min(longest);
            tokio::select! {
                asked = &mut first => {
                    asked?;
                    self.shipper.finish(clock::now());
                    return Ok(());
                }
                event = events.recv() => self.event(event)?,
                Some(put) = self.puts.join_next() => self.put(put)?,
                () = next(&mut hangups) => self.read_again(),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Takes in rules and credentials that have changed. If they cannot be read, those before stay in force.
    fn read_again(&mut self) {
        self.manager.reloading(clock::now().mono_ns);
        match self.inputs.read(self.to, &self.store) {
            Ok((rules, store)) => {
                self.shipper.roll().set_rules(rules);
                self.store = store;
                messages::print(PROGRAM, Priority::Notice, "the rules and the credentials were read again");
            }
            Err(error) => {
                let what = format!("{error:#}; those from before stay in force");
                messages::print(PROGRAM, Priority::Warning, &what);
            }
        }
        self.ready();
    }

    /// Sends what there is.
    async fn once(&mut self, signals: UnixStream) -> Result<()> {
        let first = first(signals);
        tokio::pin!(first);
        self.shipper.close_past_hours(clock::now());
        while !self.shipper.is_idle() {
            let now = self.step();
            let wait = Duration::from_nanos(self.shipper.wait_ns(now));
            tokio::select! {
                asked = &mut first => return asked,
                Some(put) = self.puts.join_next() => self.put(put)?,
                () = tokio::time::sleep(wait) => {}
            }
            if self.shipper.failures() >= ONCE_TRIES {
                self.step();
                bail!(
                    "the store refused {ONCE_TRIES} tries in a row; what is in the spool stays there, run this again"
                );
            }
        }
        self.step();
        Ok(())
    }

    /// What is due: closes hours, starts puts, prints and writes what is new.
    fn step(&mut self) -> Moment {
        let now = clock::now();
        self.shipper.tick(now);
        for (id, bytes) in self.shipper.to_send(now) {
            let store = self.store.clone();
            self.puts.spawn(async move {
                let put = store.put(&id.path, bytes).await;
                (id, put)
            });
        }
        self.report(now, false);
        now
    }

    fn event(&mut self, event: Option<Event>) -> Result<()> {
        let now = clock::now();
        match event {
            Some(Event::Message(Message::Snapshot(snapshot))) => self.shipper.snapshot(*snapshot, now),
            Some(Event::Message(Message::Lost(count))) => self.shipper.lost(count),
            Some(Event::Connected) => self.shipper.monitor(None, now),
            Some(Event::Ended(why)) => self.shipper.monitor(Some(why), now),
            None => bail!("read snapshots: the thread for it has failed; please report this"),
        }
        Ok(())
    }

    fn put(&mut self, put: std::result::Result<(ObjectId, store::Result<Put>), tokio::task::JoinError>) -> Result<()> {
        let (id, put) = put.context("send an object: a task has failed; please report this")?;
        self.shipper.put(&id, put, clock::now());
        Ok(())
    }

    /// Prints what is new, and writes the status once a second, or now if it is the last.
    fn report(&mut self, now: Moment, is_last: bool) {
        let notes = self.shipper.notes();
        notes.iter().for_each(|(priority, note)| messages::print(PROGRAM, *priority, note));
        let since = now.mono_ns.saturating_sub(self.written_ns);
        if !is_last && notes.is_empty() && since < STATUS_NS {
            return;
        }
        self.written_ns = now.mono_ns;
        let mut status = self.shipper.status(now).clone();
        status.pid = std::process::id();
        status.to = self.to.name();
        // Nobody may read it, and the spool has what matters.
        let _ = status.write(&self.spool);
    }
}

/// What can be read again.
#[derive(Debug)]
struct Inputs {
    settings: Option<PathBuf>,
    credentials: Option<PathBuf>,
    timeout: Duration,
}

impl Inputs {
    fn of(args: &Args) -> Result<Inputs> {
        // In the sandbox, relative paths lead nowhere.
        let absolute = |path: &Option<PathBuf>| path.as_ref().map(std::path::absolute).transpose();
        let settings = absolute(&args.settings).context("find the settings")?;
        let credentials = absolute(&args.credentials).context("find the credentials")?;
        Ok(Inputs { settings, credentials, timeout: args.timeout })
    }

    /// Settings of the store.
    fn settings(&self) -> Result<Settings> {
        let variables = std::env::vars_os();
        let mut settings = Settings::from_environment(
            variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        );
        if let Some(path) = &self.credentials {
            settings.add_file(path).map_err(anyhow::Error::msg)?;
        }
        Ok(settings)
    }

    /// Rules for names of services.
    fn rules(&self) -> Result<Rules> {
        rows::read_rules(self.settings.as_deref())
    }

    /// The rules, and the store with the credentials as they are now.
    fn read(&self, to: &To, store: &Store) -> Result<(Rules, Store)> {
        let (rules, settings) = (self.rules()?, self.settings()?);
        // A folder has no credentials, and to look it up on a mount that does not answer would hold up the only thread.
        let is_folder = store.folder().is_some();
        Ok((rules, if is_folder { store.clone() } else { Store::open(to, &settings, self.timeout)? }))
    }

    /// The folders in which they lie: what an editor has saved is another file of the same name, or behind the same link.
    fn folders(&self) -> impl Iterator<Item = PathBuf> {
        [&self.settings, &self.credentials].into_iter().flatten().flat_map(|file| Files::folders_of(file))
    }
}

/// Waits for the next signal.
async fn next(signals: &mut Option<tokio::net::UnixStream>) {
    let came = match signals {
        Some(signals) => signals.read_u8().await.is_ok(),
        None => false,
    };
    if !came {
        std::future::pending::<()>().await;
    }
}

/// Waits for the first signal.
async fn first(signals: UnixStream) -> Result<()> {
    let mut stream = tokio::net::UnixStream::from_std(signals).context("wait for signals")?;
    stream.read_u8().await.context("wait for signals")?;
    Ok(())
}

/// From here on: the spool, the store, and sockets that connect; no program, no listener, no capability.
fn confine(spool: &Path, store: &Store, settings: &Settings, inputs: &Inputs) {
    let mut files = Files {
        read: settings.files().iter().flat_map(|file| Files::folders_of(file)).collect(),
        written: vec![spool.to_owned()],
    };
    let reach = match store.folder() {
        Some(folder) => {
            files.written.push(folder.to_owned());
            Reach::Machine
        }
        None => {
            files.read.extend(Files::of_names());
            files.read.extend(CERTIFICATES.map(PathBuf::from));
            files
                .read
                .extend(["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from));
            Reach::Network
        }
    };
    files.read.extend(inputs.folders());
    let in_force = isotherm_sandbox::client_only(&files, reach);
    for what in in_force.shortfalls("it") {
        messages::print(PROGRAM, Priority::Warning, &what);
    }
}

fn random() -> Result<u64> {
    getrandom::u64().context("get random bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_again_does_not_look_up_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("store");
        let to = To::Folder(folder.clone());
        let inputs = Inputs { settings: None, credentials: None, timeout: Duration::from_secs(10) };
        let store = Store::open(&to, &Settings::from_environment(std::iter::empty()), inputs.timeout).unwrap();
        std::fs::remove_dir(&folder).unwrap();
        let (_, again) = inputs.read(&to, &store).unwrap();
        assert!(!folder.exists(), "to open a store makes its folder");
        assert_eq!(again.folder(), store.folder());
    }
}
