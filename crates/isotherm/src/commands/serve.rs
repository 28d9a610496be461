//! `isotherm serve`: starts the server (`isotherm-serve`), which answers HTTP without any privilege, and gives it snapshots of processes that are
//! watched here, those that an `isotherm run` sends (`--connect`), or a recording.
//!
//! There are two processes so that the one which talks to the network can do nothing else. [`server`] starts it, as another user if we are root.
//! It gets snapshots over its standard input, a socket on which nothing is read from it; a recording it reads by itself.

mod server;

use crate::args::targets::TargetArgs;
use crate::args::usage::Usage;
use crate::args::values::positive_duration_ns;
use crate::args::watching::WatchArgs;
use crate::commands::plan::Plan;
use crate::output;
use crate::privileges::{self, Needs};
use crate::sandbox::Uses;
use crate::stream::Publisher;
use crate::watch::{Prepared, Stop};
use anyhow::{Context, Result};
use clap::Args;
use indicatif::ProgressBar;
use isotherm_sys::clock;
use server::{Server, ServerArgs, Shown};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Windows of what is watched for it: what a page shows is two seconds old at most.
const WINDOW_NS: u64 = 1_000_000_000;
/// How often it is checked whether the server is there and whether to stop.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Show what an `isotherm run --stream PATH` sends
    #[arg(long, value_name = "PATH", conflicts_with = "input")]
    pub connect: Option<PathBuf>,
    /// Show a recording
    #[arg(short, long, value_name = "DIR")]
    pub input: Option<PathBuf>,
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// End after this time [default: until Ctrl-C]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub duration: Option<u64>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Where snapshots come from.
#[derive(Debug)]
pub struct ServePlan {
    from: From,
    duration: Option<u64>,
    server: ServerArgs,
}

#[derive(Debug)]
enum From {
    Socket(PathBuf),
    Recording(PathBuf),
    Processes(Box<(TargetArgs, WatchArgs)>),
}

impl ServeArgs {
    /// Watches all processes if nothing else is named.
    pub fn plan(self) -> Result<ServePlan, Usage> {
        let ServeArgs { connect, input, mut targets, watch, duration, server } = self;
        if watch.is_played() {
            return Err(Usage("serve shows a recording with --input, without --replay or --model".to_owned()));
        }
        if (connect.is_some() || input.is_some()) && !targets.is_empty() {
            return Err(Usage(
                "processes are named for what is watched here: leave out --connect or --input, or them".to_owned(),
            ));
        }
        if connect.is_some() || input.is_some() {
            watch.check_unused("what is shown here was or is watched elsewhere")?;
        }
        let from = match (connect, input) {
            (Some(socket), _) => From::Socket(socket),
            (_, Some(recording)) => From::Recording(recording),
            _ => {
                targets.all |= targets.is_empty() && !watch.is_of_machine();
                From::Processes(Box::new((targets, watch)))
            }
        };
        Ok(ServePlan { from, duration, server })
    }
}

impl Plan for ServePlan {
    fn needs(&self) -> Needs {
        Needs::Serving
    }

    fn run(&self) -> Result<()> {
        let stop = Stop::on_signals()?;
        if !self.starts_a_command() {
            // A command would have to get what its caller would have given it.
            privileges::none_for_programs();
        }
        match &self.from {
            From::Socket(path) => self.shown(Shown::Snapshots(connected(path)?), &stop),
            From::Recording(path) => self.shown(Shown::Recording(path), &stop),
            From::Processes(what) => self.watched(&what.0, &what.1, &stop),
        }
    }
}

/// The server gets the end of a socket that we opened, so it need not be allowed to connect there.
fn connected(path: &Path) -> Result<UnixStream> {
    UnixStream::connect(path).with_context(|| {
        format!("connect to {}: is an `isotherm run --stream` there that we may connect to?", path.display())
    })
}

impl ServePlan {
    fn starts_a_command(&self) -> bool {
        matches!(&self.from, From::Processes(what) if !what.0.command.is_empty())
    }

    /// Nothing is watched here. The server reads a recording itself, in its sandbox: one may come from anywhere.
    fn shown(&self, what: Shown<'_>, stop: &Stop) -> Result<()> {
        let mut server = Server::start(&self.server, what)?;
        Uses::nothing().ending_a_command().enter();
        let began = clock::monotonic_ns();
        let is_over = || self.duration.is_some_and(|d| clock::monotonic_ns() - began >= d);
        while !stop.is_set() && !is_over() {
            server.check(stop)?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn watched(&self, targets: &TargetArgs, watch: &WatchArgs, stop: &Stop) -> Result<()> {
        let prepared = Prepared::new(targets, watch, WINDOW_NS)?;
        let (ours, theirs) = UnixStream::pair().context("open a pair of sockets for the server")?;
        let mut server = Server::start(&self.server, Shown::Snapshots(theirs))?;
        let mut publisher = Publisher::to(ours)?;
        let mut watching = prepared.start(Uses::nothing().ending_a_command())?;
        watching.follow_clock();
        publisher.of_run(&watching.run);
        output::note(&watching.run.source_note);
        let mut is_reported = false;
        watching.windows(self.duration, stop, &ProgressBar::hidden(), |monitor, snapshot| {
            publisher.publish(monitor, &snapshot, None);
            // The page is empty then, and the service goes on: what may be watched may come later.
            if !std::mem::replace(&mut is_reported, true) && snapshot.targets.is_empty() {
                let why = monitor.refused().iter().next().map(|(pid, why)| format!("; process {pid}: {why}"));
                output::warn(format_args!("no process is watched so far{}", why.unwrap_or_default()));
            }
            server.check(stop)?;
            Ok(ControlFlow::Continue(()))
        })?;
        watching.report_refused();
        Ok(())
    }
}
