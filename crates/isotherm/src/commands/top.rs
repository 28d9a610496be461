//! `isotherm top`: the monitor in one thread, the terminal in another.

use crate::acted::Asked;
use crate::args::socket::default_socket;
use crate::args::targets::TargetArgs;
use crate::args::thresholds::ThresholdArgs;
use crate::args::usage::Usage;
use crate::args::watching::WatchArgs;
use crate::commands::plan::Plan;
use crate::output;
use crate::privileges::Needs;
use crate::sandbox::Uses;
use crate::watch::{Prepared, Stop};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use isotherm_heat::Thresholds;
use isotherm_view::top::{TopOptions, run_top};
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;

const WINDOW_NS: u64 = 2_000_000_000;

#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    #[command(flatten)]
    pub thresholds: ThresholdArgs,
    /// Socket of the `isotherm run` whose actions are shown [default: as for `isotherm status`]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// What to watch, and the bounds of the classes that are shown.
pub struct TopPlan {
    targets: TargetArgs,
    watch: WatchArgs,
    thresholds: Thresholds,
    socket: Option<PathBuf>,
}

impl TopArgs {
    /// Watches all processes if none were named.
    pub fn plan(self) -> Result<TopPlan, Usage> {
        let TopArgs { mut targets, watch, thresholds, socket } = self;
        let thresholds = thresholds.bounds()?;
        targets.all |= targets.is_empty() && !watch.is_played() && !watch.is_of_machine();
        Ok(TopPlan { targets, watch, thresholds, socket })
    }
}

impl Plan for TopPlan {
    fn needs(&self) -> Needs {
        self.targets.needs()
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(plan: &TopPlan) -> Result<()> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        bail!("top needs a terminal; `isotherm report processes` prints the same once");
    }
    let stop = Stop::on_signals()?;
    let (targets, watch) = (plan.targets.clone(), plan.watch.clone());
    let asked = actions_of(plan)?;
    let (to_main, from_monitor) = mpsc::channel();
    let (to_view, snapshots) = mpsc::channel();
    let watching_stop = stop.clone();
    let monitor = std::thread::spawn(move || -> Result<Vec<String>> {
        // The source stays in the thread that opened it.
        let prepared = Prepared::new(&targets, &watch, WINDOW_NS);
        let mut watching = match prepared.and_then(|prepared| prepared.for_view().start(Uses::nothing())) {
            Ok(watching) => watching,
            Err(error) => {
                let _ = to_main.send(Err(error));
                return Ok(Vec::new());
            }
        };
        watching.silence();
        let answers = asked.map(|asked| asked.ask(Arc::clone(&watching_stop.0)));
        let _ = to_main.send(Ok(watching.run.clone()));
        let hidden = indicatif::ProgressBar::hidden();
        watching.snapshots(None, &watching_stop, &hidden, |mut snapshot| {
            answers.iter().for_each(|answers| answers.note(&mut snapshot));
            let heard = to_view.send(Arc::new(snapshot)).is_ok();
            Ok(if heard { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(watching.refused())
    });
    let run = from_monitor.recv().context("the monitor ended before it began")??;
    // The terminal needs none.
    isotherm_sandbox::drop_capabilities();
    let options = TopOptions { thresholds: plan.thresholds, ..TopOptions::default() };
    let shown = run_top(run, options, &snapshots, &stop.0);
    stop.0.store(true, std::sync::atomic::Ordering::Relaxed);
    drop(snapshots);
    let watched = monitor.join().map_err(|_| anyhow!("the monitor thread panicked"))?;
    shown.context("draw on the terminal")?;
    // The terminal is back to normal, so the processes that were missing from the lists are reported now.
    watched?.iter().for_each(output::note);
    Ok(())
}

/// The daemon whose actions are shown, if one answers; one that the user has named has to.
fn actions_of(plan: &TopPlan) -> Result<Option<Asked>> {
    // What is played from a recording has its own.
    if plan.watch.is_played() {
        return Ok(None);
    }
    match &plan.socket {
        Some(socket) => {
            let asked = Asked::connect(socket);
            asked.map(Some).with_context(|| format!("no `isotherm run` answers at {}", socket.display()))
        }
        None => Ok(default_socket().ok().and_then(|socket| Asked::connect(&socket))),
    }
}
