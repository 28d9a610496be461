//! The server program: how it is found, what it is given, and as which user it runs.

use crate::args::usage::Usage;
use crate::stop::{OURS_MAY_TAKE, Stop, end_child};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where it is installed, seen from the folder above that of our own program (PREFIX).
const INSTALLED: &str = "libexec/isotherm";
const PROGRAM: &str = "isotherm-serve";
/// A signal to both of us is here after so long at most.
const SAME_SIGNAL: Duration = Duration::from_millis(200);
/// As whom root runs it: the first of these that there is.
const USERS: [&str; 2] = ["isotherm-serve", "nobody"];

/// What is passed on to the server. `isotherm-serve --help` says more.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// The address to listen at; without a port, the first that is free from 4780 on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub listen: Option<String>,
    /// A file with the token; a new one is written to it if it is not there
    #[arg(long, value_name = "FILE", conflicts_with = "no_token")]
    pub token_file: Option<PathBuf>,
    /// Ask for no token; on loopback only
    #[arg(long)]
    pub no_token: bool,
    /// A further name or address under which clients reach the server
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// Certificates in PEM, for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the first of them
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Listen beyond loopback without TLS: the token and the answers can be read on the way
    #[arg(long)]
    pub insecure: bool,
    /// Memory for what has been received, MiB
    #[arg(long, value_name = "MIB")]
    pub history_mib: Option<u32>,
    /// Cgroups with all metrics, 1000 at most; the others have up to five each
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Metrics for processes, too
    #[arg(long)]
    pub processes: bool,
    /// As which user root runs it: a name or a number [default: isotherm-serve, or else nobody]
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
}

impl ServerArgs {
    /// As the server takes them, after where snapshots come from.
    fn to_arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: Option<OsString>| {
            arguments.extend(value.into_iter().flat_map(|value| [OsString::from(name), value]));
        };
        add("--listen", self.listen.clone().map(Into::into));
        add("--token-file", self.token_file.clone().map(Into::into));
        add("--tls-cert", self.tls_cert.clone().map(Into::into));
        add("--tls-key", self.tls_key.clone().map(Into::into));
        add("--history-mib", self.history_mib.map(|mib| mib.to_string().into()));
        add("--top", self.top.map(|top| top.to_string().into()));
        self.host.iter().for_each(|name| add("--host", Some(name.into())));
        let flags = [("--no-token", self.no_token), ("--insecure", self.insecure), ("--processes", self.processes)];
        arguments.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.into()));
        arguments
    }
}

/// What the server shows.
#[derive(Debug)]
pub enum Shown<'a> {
    /// What comes from this end of a socket.
    Snapshots(UnixStream),
    /// A recording.
    Recording(&'a Path),
}

/// The running server. Dropping it ends it.
#[derive(Debug)]
pub struct Server(Child);

impl Server {
    /// Starts it. It prints its address itself.
    pub fn start(args: &ServerArgs, shown: Shown<'_>) -> Result<Server> {
        let program = find()?;
        let mut command = Command::new(&program);
        let as_user = match shown {
            Shown::Snapshots(end) => {
                command.args(["--fd", "0"]).stdin(Stdio::from(OwnedFd::from(end)));
                user(args, None)
            }
            Shown::Recording(path) => {
                command.arg("--recording").arg(path).stdin(Stdio::null());
                user(args, Some(path))
            }
        }?;
        // If we are killed, so is it.
        command.arg(format!("--ends-with-parent={}", std::process::id())).args(args.to_arguments()).env_clear();
        if let Some(as_user) = as_user {
            // Our groups are gone with that; and whatever capability we have, unless it is root's recording.
            command.gid(as_user.gid).uid(as_user.uid);
        }
        let child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        Ok(Server(child))
    }

    /// Fails if it has ended, unless we are to end: Ctrl-C reaches both.
    pub fn check(&mut self, stop: &Stop) -> Result<()> {
        let Some(status) = self.0.try_wait().context("wait for the server")? else { return Ok(()) };
        // It may have had the signal before us.
        std::thread::sleep(SAME_SIGNAL);
        if stop.is_set() {
            return Ok(());
        }
        let what = format!("the server has ended ({status}); what it printed says why");
        // Its arguments are ours.
        if status.code() == Some(2) { Err(Usage(what).into()) } else { bail!(what) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end_child(&mut self.0, PROGRAM, OURS_MAY_TAKE);
    }
}

/// The program of the same build, or the installed one.
fn find() -> Result<PathBuf> {
    let own = std::env::current_exe().context("find our own program")?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let installed = beside.parent().unwrap_or(beside).join(INSTALLED);
    let found = [beside, &installed].map(|folder| folder.join(PROGRAM)).into_iter().find(|path| path.is_file());
    found.with_context(|| {
        format!(
            "{PROGRAM} is neither in {} nor in {}: install it, or build it (make build-serve)",
            beside.display(),
            installed.display()
        )
    })
}

/// A user, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
}

/// As whom to run it. `None`: as ourselves, since only root can choose. A recording is shown by its owner, since others may not read it; by root
/// if it is root's, but without any capability ([`crate::privileges::none_for_programs`]), and in the sandbox.
fn user(args: &ServerArgs, recording: Option<&Path>) -> Result<Option<User>> {
    if !rustix::process::geteuid().is_root() {
        let wanted = args.user.is_some();
        return if wanted {
            Err(Usage("--user: only root can run it as somebody else".to_owned()).into())
        } else {
            Ok(None)
        };
    }
    if let (Some(path), None) = (recording, &args.user) {
        let owned = fs::metadata(path).with_context(|| format!("open recording {}", path.display()))?;
        return Ok(Some(User { uid: owned.uid(), gid: owned.gid() }));
    }
    // Read from the file and not through the C library, whose services would be loaded into a process with privileges.
    let users = fs::read_to_string("/etc/passwd").context("read /etc/passwd, for the user of the server")?;
    match &args.user {
        Some(name) => user_in(&users, name).map(Some).with_context(|| format!("no user {name} in /etc/passwd")),
        None => {
            let found = USERS.iter().find_map(|name| user_in(&users, name));
            found
                .map(Some)
                .with_context(|| format!("neither {} nor {} is in /etc/passwd: give --user", USERS[0], USERS[1]))
        }
    }
}

fn user_in(users: &str, name: &str) -> Option<User> {
    let of = |line: &str| {
        let mut fields = line.split(':');
        let (own, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let is_meant = own == name || uid == name;
        Some(User { uid: uid.parse().ok()?, gid: gid.parse().ok()? }).filter(|_| is_meant)
    };
    users.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ServerArgs,
    }

    #[test]
    fn what_is_given_is_passed_on_and_nothing_else() {
        let of = |line: &[&str]| {
            let arguments = Line::parse_from([&["x"], line].concat()).args.to_arguments();
            arguments.iter().map(|argument| argument.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(&[]), "");
        let line = "--listen [::1]:9 --host a --host b --top 7 --history-mib 9 --processes --no-token --user 5";
        let passed = "--listen [::1]:9 --history-mib 9 --top 7 --host a --host b --no-token --processes";
        assert_eq!(of(&line.split(' ').collect::<Vec<_>>()), passed);
    }

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nnobody:x:65534:65533:nobody:/:/bin/false\n";
        assert_eq!(user_in(users, "nobody"), Some(User { uid: 65534, gid: 65533 }));
        assert_eq!(user_in(users, "65534"), user_in(users, "nobody"));
        assert_eq!((user_in(users, "no"), user_in(users, "broken")), (None, None));
    }
}
