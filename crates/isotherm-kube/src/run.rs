//! The program: opens everything, confines itself, and keeps the file of assignments up to date.

use crate::api::{Api, Server};
use crate::args::Args;
use crate::assign::{self, Permitted, Reason};
use crate::cgroups;
use crate::follow::{Timing, Update, follow};
use crate::pods::Pods;
use anyhow::{Context, Result, anyhow, bail};
use isotherm_sandbox::{Files, Reach};
use isotherm_schemes::assigned::Assignments;
use isotherm_schemes::settings::File;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

/// As `isotherm run` reads settings.
const MAX_SETTINGS: u64 = 1 << 16;
/// How often pods are compared with cgroups: one appears after its pod, and goes before it.
const CHECK: Duration = Duration::from_secs(5);
/// Updates are taken together for this long, so that a pod that changes without end does not cause as many files.
const TOGETHER: Duration = Duration::from_millis(200);
/// Updates that wait.
const QUEUE: usize = 64;
/// Lines of refusals at a time.
const MAX_NOTES: usize = 20;

/// Runs until a signal asks for the end.
pub fn run(args: &Args) -> Result<()> {
    let (Some(config), Some(node)) = (&args.config, &args.node) else { bail!("--config and --node are missing") };
    let settings = read_settings(config)?;
    let permitted = Permitted::of(&settings);
    let Some(out) = settings.assignments.clone().filter(|_| !permitted.names().is_empty()) else {
        bail!("{}: no [[scheme]] has assigned = true, so pods may ask for nothing", config.display());
    };
    let server = match &args.server {
        Some(server) => server.clone(),
        None => Server::from_environment(|name| std::env::var(name).ok()).map_err(|why| anyhow!(why))?,
    };
    let api = Api { server, node: node.clone(), token_file: args.token_file.clone(), ca_file: args.ca_file.clone() };
    let timing =
        Timing { period: Duration::from_secs(args.period_s), first_pause: Duration::from_millis(args.pause_ms) };
    let folder = out
        .parent()
        .filter(|folder| folder.is_dir())
        .with_context(|| format!("{}: its folder is not there", out.display()))?;
    let signals = isotherm_systemd::end_signals().context("handle signals")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    note(format_args!("pods of {} may ask for: {}", node, permitted.names().join(", ")));
    if !args.no_sandbox {
        confine(args, folder);
    }
    let mut keeper = Keeper {
        permitted,
        root: args.cgroups.clone(),
        out,
        pods: Pods::default(),
        written: None,
        refused: BTreeSet::new(),
        failed: None,
    };
    runtime.block_on(keeper.keep(api, timing, signals))
}

fn read_settings(path: &Path) -> Result<File> {
    let mut text = String::new();
    let file = fs::File::open(path).with_context(|| format!("read {}", path.display()))?;
    file.take(MAX_SETTINGS + 1).read_to_string(&mut text).with_context(|| format!("read {}", path.display()))?;
    if text.len() as u64 > MAX_SETTINGS {
        bail!("read {}: it is longer than {MAX_SETTINGS} bytes", path.display());
    }
    File::parse(&text).with_context(|| format!("read {}", path.display()))
}

/// From here on: connections, cgroups and the account to read, the folder of the file to write; no listener, program or capability.
fn confine(args: &Args, folder: &Path) {
    // Kubelet replaces the files of an account by links, so it is the folder that has to be reached.
    let account = [&args.token_file, &args.ca_file].into_iter().flat_map(|file| Files::folders_of(file));
    let mut read: Vec<PathBuf> = std::iter::once(args.cgroups.clone()).chain(account).collect();
    // Within a cluster the server is an address.
    read.extend(Files::of_names());
    let in_force = isotherm_sandbox::client_only(&Files { read, written: vec![folder.to_owned()] }, Reach::Network);
    for what in in_force.shortfalls("it") {
        note(what);
    }
}

/// Keeps the file.
struct Keeper {
    permitted: Permitted,
    root: PathBuf,
    out: PathBuf,
    pods: Pods,
    /// What the file has. Nothing is written before the first list: what the last run has written stays true for pods that are there.
    written: Option<String>,
    /// What was reported, for pods that are still there.
    refused: BTreeSet<(String, String, Reason)>,
    /// Why the last write failed.
    failed: Option<String>,
}

impl Keeper {
    async fn keep(&mut self, api: Api, timing: Timing, signals: UnixStream) -> Result<()> {
        let mut signals = tokio::net::UnixStream::from_std(signals).context("wait for signals")?;
        let (sender, mut updates) = mpsc::channel(QUEUE);
        let following = tokio::spawn(async move { follow(&api, timing, &sender).await });
        let mut check = tokio::time::interval(CHECK);
        let mut is_listed = false;
        loop {
            tokio::select! {
                asked = signals.read_u8() => {
                    asked.context("wait for signals")?;
                    following.abort();
                    return Ok(());
                }
                update = updates.recv() => {
                    let Some(update) = update else { bail!("a task has failed; please report this") };
                    is_listed |= self.take(update);
                    tokio::time::sleep(TOGETHER).await;
                    while let Ok(update) = updates.try_recv() {
                        is_listed |= self.take(update);
                    }
                }
                _ = check.tick() => {}
            }
            if is_listed {
                self.write_if_changed();
            }
        }
    }

    /// Returns whether all pods are known now.
    fn take(&mut self, update: Update) -> bool {
        match update {
            Update::Listed(pods) => {
                self.pods.replace(pods);
                if self.pods.is_full() {
                    note(format_args!("more than {} pods ask for a scheme: the rest gets none", crate::pods::MAX_PODS));
                }
                return true;
            }
            Update::Event(event) => self.pods.apply(event),
            Update::Note(why) => note(why),
        }
        false
    }

    fn write_if_changed(&mut self) {
        let text = self.assignments().text();
        if self.written.as_ref() == Some(&text) {
            return;
        }
        match replace(&self.out, &text) {
            Ok(()) => {
                note(format_args!("{} pods have a scheme", text.lines().count().saturating_sub(1)));
                (self.written, self.failed) = (Some(text), None);
            }
            Err(error) => {
                let why = format!("{error:#}; it is tried again");
                if self.failed.as_ref() != Some(&why) {
                    note(&why);
                }
                self.failed = Some(why);
            }
        }
    }

    /// What pods ask for, may have, and have a cgroup for. Reports what is refused, once.
    fn assignments(&mut self) -> Assignments {
        let (granted, mut refused) = assign::sort(self.pods.iter(), &self.permitted);
        let mut assignments = Assignments::default();
        for one in granted {
            match cgroups::find(&self.root, &one.pod.uid) {
                Some(cgroup) if assignments.add(one.scheme, &cgroup) => {}
                _ => refused.push((one.pod, Reason::NoCgroup)),
            }
        }
        let key = |pod: &crate::wire::Pod, reason| (pod.uid.clone(), pod.scheme.clone().unwrap_or_default(), reason);
        let new: Vec<_> = refused.iter().filter(|(pod, reason)| !self.refused.contains(&key(pod, *reason))).collect();
        new.iter().take(MAX_NOTES).for_each(|(pod, reason)| note(assign::refusal(pod, *reason)));
        if new.len() > MAX_NOTES {
            note(format_args!("{} more pods are refused", new.len() - MAX_NOTES));
        }
        self.refused = refused.iter().map(|(pod, reason)| key(pod, *reason)).collect();
        assignments
    }
}

/// Replaces a file at once: who reads it sees the old text or the new one. Readable by its group, as which `isotherm run` may run.
fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    // What a crash has left, or another program has put there: it is not followed.
    let _ = fs::remove_file(&new);
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().with_context(|| format!("write {}", path.display()))
}

fn note(what: impl std::fmt::Display) {
    eprintln!("isotherm-kube: {what}");
}
