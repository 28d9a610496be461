//! From arguments to a running monitor: targets resolved, the source opened, the machine described, signals heard.

use crate::cli::{SourceArg, TargetArgs, Usage, WatchArgs};
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use isotherm_heat::{Granularity, RunInfo, Snapshot};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sources::choose::{self, Wanted};
use isotherm_sources::{AccessSource, RealClock};
use isotherm_sys::clock;
use isotherm_sys::host::{HostFacts, HostRoots};
use isotherm_sys::proc::Proc;
use std::ops::ControlFlow;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set when the user or the system asks us to end.
#[derive(Clone, Debug)]
pub struct Stop(pub Arc<AtomicBool>);

impl Stop {
    /// Hears SIGINT, SIGTERM and SIGHUP from now on.
    pub fn on_signals() -> Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            // A second signal ends us at once, in case a clean end hangs on something.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&flag)).context("hear signals")?;
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("hear signals")?;
        }
        Ok(Stop(flag))
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A command that we started to watch it. Asked to end when we do.
#[derive(Debug)]
pub struct Started(process::Child);

impl Started {
    fn new(command: &[String]) -> Result<Started> {
        let (program, args) = command.split_first().context("no command given")?;
        let child = process::Command::new(program).args(args).spawn();
        Ok(Started(child.with_context(|| format!("start {program}"))?))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // Unlike SIGKILL, this lets it end in its own way; the pid is ours until we wait for it.
            let _ = isotherm_sys::signal::terminate(self.0.id());
        }
        let _ = self.0.wait();
    }
}

/// Everything a command needs to watch.
#[derive(Debug)]
pub struct Watching {
    pub monitor: Monitor<RealClock>,
    pub run: RunInfo,
    pub window_ns: u64,
    started: Option<Started>,
}

/// Opens the source that was asked for.
pub fn open_source(wanted: SourceArg) -> Result<Box<dyn AccessSource>> {
    let wanted = match wanted {
        SourceArg::Auto => Wanted::Best,
        SourceArg::PageTable => Wanted::PageTable,
        SourceArg::Referenced => Wanted::Referenced,
    };
    Ok(choose::open(wanted)?)
}

impl Watching {
    /// Starts to watch. Fails if nothing was named, or if what was named cannot be watched.
    pub fn begin(targets: &TargetArgs, args: &WatchArgs, default_window_ns: u64) -> Result<Watching> {
        if targets.is_empty() {
            return Err(Usage("name what to watch: -p PID, --cgroup PATH, --all, or -- COMMAND".into()).into());
        }
        let source = open_source(args.source)?;
        let started = if targets.command.is_empty() { None } else { Some(Started::new(&targets.command)?) };
        let selection = selection(targets, started.as_ref());
        let follower = Follower::new(&selection, Proc::default())?;
        let settings = settings(args, &*source);
        let window_ns = args.window.unwrap_or(default_window_ns);
        let run = run_info(&*source, settings, window_ns);
        let monitor = Monitor::new(source, follower, RealClock, settings);
        Ok(Watching { monitor, run, window_ns, started })
    }

    /// Watches window by window, for `duration_ns` or until stopped or nothing is left, and hands each snapshot to `each`.
    pub fn snapshots(
        &mut self,
        duration_ns: Option<u64>,
        stop: &Stop,
        bar: &ProgressBar,
        mut each: impl FnMut(Snapshot) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let began = self.monitor.now();
        let end = duration_ns.map_or(u64::MAX, |d| began.saturating_add(d));
        let mut window_end = began;
        loop {
            window_end = window_end.saturating_add(self.window_ns).max(self.monitor.now()).min(end);
            let watched = self.monitor.watch(window_end, &stop.0);
            self.reap();
            watched?;
            bar.set_position(self.monitor.now().saturating_sub(began) / 1_000_000);
            let flow = each(self.monitor.snapshot(clock::unix_ns()))?;
            let nothing_left = self.monitor.now() < window_end && !self.monitor.is_watching();
            if flow.is_break() || stop.is_set() || nothing_left || self.monitor.now() >= end {
                bar.finish_and_clear();
                return Ok(());
            }
        }
    }

    /// Lets a command that we started, and that has ended, be seen as ended.
    fn reap(&mut self) {
        if let Some(started) = &mut self.started {
            let _ = started.0.try_wait();
        }
    }

    /// Says on standard error what could not be watched.
    pub fn tell_refused(&self) {
        for (pid, why) in self.monitor.refused().iter().take(3) {
            eprintln!("isotherm: process {pid} is left out: {why}");
        }
        let more = self.monitor.refused().len().saturating_sub(3);
        if more > 0 {
            eprintln!("isotherm: {more} more processes are left out for such reasons");
        }
    }
}

fn selection(targets: &TargetArgs, started: Option<&Started>) -> Selection {
    let children = !targets.no_children;
    match (started, &targets.cgroup) {
        (Some(started), _) => Selection::Pids { pids: vec![started.0.id()], children },
        (None, Some(path)) => Selection::Cgroup(path.clone()),
        (None, None) if targets.all => Selection::All,
        (None, None) => Selection::Pids { pids: targets.pids.clone(), children },
    }
}

fn settings(args: &WatchArgs, source: &dyn AccessSource) -> Settings {
    // By mapping, one look at a GiB costs 60 ms and more: with 1% it would take minutes to say anything.
    let default_cpu = if source.describe().granularity == Granularity::Page { 1.0 } else { 5.0 };
    Settings {
        max_regions: usize::try_from(args.max_regions).unwrap_or(usize::MAX),
        max_slowdown_pct: args.max_slowdown,
        max_cpu_pct: args.max_cpu.unwrap_or(default_cpu),
        seed: clock::unix_ns(),
    }
}

/// Describes this run and the machine.
pub fn run_info(source: &dyn AccessSource, settings: Settings, window_ns: u64) -> RunInfo {
    let host = HostFacts::read(&HostRoots::default(), isotherm_units::PAGE_SIZE);
    let description = source.describe();
    RunInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        source: description.name.to_owned(),
        source_note: description.note,
        window_ns,
        max_regions: settings.max_regions as u64,
        max_slowdown_pct: settings.max_slowdown_pct,
        max_cpu_pct: settings.max_cpu_pct,
        command: std::env::args().collect(),
        kernel: host.kernel.map(|k| k.text).unwrap_or_default(),
        cpu: host.cpu_model.unwrap_or_default(),
        cpus: host.cpus.unwrap_or_default(),
        memory: host.memory.unwrap_or_default(),
    }
}
