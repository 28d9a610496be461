//! Turns arguments into a running monitor: resolves targets, opens the source, describes the machine and stops on signals.

use crate::args::targets::TargetArgs;
use crate::args::usage::Usage;
use crate::args::watching::{ModeArg, WatchArgs};
use crate::output;
use crate::played::{self, Played};
use crate::request;
use crate::sandbox::Uses;
use crate::service::for_program;
pub use crate::stop::Stop;
use crate::stop::{USERS_MAY_TAKE, end_child};
use crate::wall_time::WallTime;
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use isotherm_heat::Clock;
use isotherm_heat::source::AccessSource;
use isotherm_heat::{Granularity, RunInfo, Snapshot, TargetHeat};
use isotherm_host::{HostRoots, Machine};
use isotherm_monitor::{CLEAR_TICK, Follower, Mode, Monitor, Selection, Settings};
use isotherm_schemes::collapse::{Rules, benefit};
use isotherm_schemes::page_out::{IdlePmd, IdleWindow};
use isotherm_schemes::{PmdFacts, TargetWindow};
use isotherm_sources::RealClock;
use isotherm_sources::choose;
use isotherm_sources::damon::Damon;
use isotherm_sys::proc::Proc;
use isotherm_sys::target_lock::TargetLocks;
use isotherm_sys::{clock, descriptors, random};
use isotherm_systemd::Pulse;
use isotherm_units::{PMD_SIZE, human};
use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::process::{self, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Listing and snapshots may take this share of the CPU budget before snapshots are made less often.
const MAX_BOOKKEEPING: f64 = 0.7;
const SETTLED_NS: u64 = 10_000_000_000;
/// The first window may be this much late: in it all processes are opened, of which a host may have thousands.
const FIRST_WINDOW_NS: u64 = 300_000_000_000;
/// Of a sampled target with more huge ranges than this, 128 GiB, those with less benefit than the default asks for are skipped in any case: a
/// window goes through all others.
const MAX_COLD_PMDS: u64 = 1 << 16;

/// Where the standard output of a command goes that we start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutput {
    /// Where ours goes, to which nothing is printed.
    AsOurs,
    /// To standard error: a report is printed on ours, which may be read by another program.
    OnStderr,
    /// Nowhere, and it reads nothing: a view owns the terminal.
    Nowhere,
}

/// A command that we started in order to watch it. It gets SIGTERM when we end.
#[derive(Debug)]
pub struct Started(process::Child);

impl Started {
    /// Starts `command`, if there is one, with its standard output where `output` says.
    pub fn of(command: &[OsString], output: CommandOutput) -> Result<Option<Started>> {
        if command.is_empty() { Ok(None) } else { Started::new(command, output).map(Some) }
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    fn new(command: &[OsString], output: CommandOutput) -> Result<Started> {
        let (program, args) = command.split_first().context("no command given")?;
        let mut command = process::Command::new(program);
        match output {
            CommandOutput::AsOurs => {}
            CommandOutput::OnStderr => _ = command.stdout(io::stderr()),
            CommandOutput::Nowhere => {
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            }
        }
        let child = for_program(command.args(args)).spawn();
        Ok(Started(child.with_context(|| format!("start {}", program.display()))?))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        end_child(&mut self.0, "the command", USERS_MAY_TAKE);
    }
}

/// Ready to watch, with nothing started yet. Callers do other work that may fail between this and [`Prepared::start`].
pub struct Prepared {
    source: Box<dyn AccessSource>,
    settings: Settings,
    selection: Option<Selection>,
    command: Vec<OsString>,
    children: bool,
    clock: Box<dyn Clock>,
    replay_unix_ns: Option<u64>,
    window_ns: u64,
    /// CPU time of this thread before the source was opened.
    cpu_before: u64,
    /// Other monitors may watch the same processes.
    beside: bool,
    command_output: CommandOutput,
    /// What watching goes on doing.
    uses: Uses,
    pub run: RunInfo,
}

impl Prepared {
    /// Opens the source. Fails if nothing was named or no source is available.
    pub fn new(targets: &TargetArgs, args: &WatchArgs, default_window_ns: u64) -> Result<Prepared> {
        let window_ns = args.window.unwrap_or(default_window_ns);
        if let Some(played) = played::open(targets, args)? {
            return Prepared::of_played(played, args, window_ns);
        }
        let physical = args.is_of_machine();
        if physical && !targets.is_empty() {
            return Err(Usage(
                "this source watches physical memory as a whole: name no targets, or take --source damon or perf"
                    .into(),
            )
            .into());
        }
        if targets.is_empty() && !physical {
            return Err(Usage("name what to watch: -p PID, --cgroup PATH, --all, or -- COMMAND".into()).into());
        }
        let cpu_before = RealClock.cpu();
        let source = choose::open_request(&request::of(targets, args)?)?;
        let settings = settings(args, &*source)?;
        if let Some(option) = args.for_pages().filter(|_| !knows_pages(&*source)) {
            output::warn(format_args!(
                "{option} makes no difference: it is for the page-table source, which this machine or your privileges do not offer (`isotherm doctor`)"
            ));
        }
        Ok(Prepared {
            run: run_info(&*source, settings, window_ns),
            uses: Uses::watching(args, &*source),
            source,
            settings,
            selection: if physical { Some(physical_memory()) } else { selection(targets) },
            command: targets.command.clone(),
            children: !targets.no_children,
            clock: Box::new(RealClock),
            replay_unix_ns: None,
            window_ns,
            cpu_before,
            beside: args.beside,
            command_output: CommandOutput::AsOurs,
        })
    }

    /// The same for a recording or a modelled host.
    fn of_played(played: Played, args: &WatchArgs, window_ns: u64) -> Result<Prepared> {
        let settings = settings(args, &*played.source)?;
        Ok(Prepared {
            run: run_info(&*played.source, settings, window_ns),
            source: played.source,
            settings,
            selection: Some(Selection::OfSource(played.pids)),
            command: Vec::new(),
            children: false,
            clock: played.clock,
            replay_unix_ns: Some(played.begin_unix_ns),
            window_ns,
            cpu_before: 0,
            beside: true,
            command_output: CommandOutput::AsOurs,
            uses: Uses::nothing(),
        })
    }

    /// The same for a report on standard output: what a command that is started prints there goes to standard error.
    pub fn for_report(self) -> Prepared {
        Prepared { command_output: CommandOutput::OnStderr, ..self }
    }

    /// The same for a view that owns the terminal.
    pub fn for_view(self) -> Prepared {
        Prepared { command_output: CommandOutput::Nowhere, ..self }
    }

    /// Whether the source reports which pages are hot, and not only how hot a mapping or region is.
    pub fn knows_pages(&self) -> bool {
        knows_pages(&*self.source)
    }

    /// Fails if the source does not report which pages are idle, which this command needs to know.
    pub fn need_idle_pages(&self, command: &str) -> Result<(), Usage> {
        if self.knows_pages() {
            return Ok(());
        }
        Err(Usage(format!(
            "{command} needs to know which pages are idle, and the source `{}` does not report that: see `isotherm doctor` for what page-table needs",
            self.run.source
        )))
    }

    /// Starts the command, if there is one, and the monitor. Then drops what is needed for neither watching nor the caller's other `uses`.
    pub fn start(self, uses: Uses) -> Result<Watching> {
        let started = Started::of(&self.command, self.command_output)?;
        let of_command =
            || Selection::Pids { pids: started.iter().map(Started::pid).collect(), children: self.children };
        let follower = Follower::new(&self.selection.unwrap_or_else(of_command), Proc::default())?;
        // Each target takes a few descriptors.
        descriptors::raise_limit();
        let monitor = Monitor::new(self.source, follower, self.clock, self.settings).counting_from(self.cpu_before);
        let monitor = if self.beside { monitor } else { alone(monitor) };
        let uses = uses.with(self.uses);
        if started.is_some() { uses.ending_a_command() } else { uses }.enter();
        Ok(Watching {
            monitor,
            run: self.run,
            window_ns: self.window_ns,
            started,
            reported_stretch: false,
            reported_sampled: false,
            silent: false,
            replay_unix_ns: self.replay_unix_ns,
            in_order: Some(WallTime::default()),
            pulse: Arc::default(),
        })
    }
}

/// Everything a command needs to watch.
#[derive(Debug)]
pub struct Watching {
    pub monitor: Monitor<Box<dyn Clock>>,
    pub run: RunInfo,
    pub window_ns: u64,
    started: Option<Started>,
    reported_stretch: bool,
    reported_sampled: bool,
    /// Print nothing, because a terminal view owns the screen.
    silent: bool,
    /// Wall time when a replay begins; `None` when watching the machine.
    replay_unix_ns: Option<u64>,
    /// Keeps the times of snapshots in order; `None`: they are those of the clock.
    in_order: Option<WallTime>,
    /// Gets the end of each window before it begins.
    pub pulse: Arc<Pulse>,
}

impl Watching {
    /// Starts to watch, for a report and nothing else. Fails if nothing was named, or if what was named cannot be watched.
    pub fn begin(targets: &TargetArgs, args: &WatchArgs, default_window_ns: u64, uses: Uses) -> Result<Watching> {
        Prepared::new(targets, args, default_window_ns)?.for_report().start(uses)
    }

    /// Prints nothing on standard error while watching, because a terminal view owns the screen.
    pub fn silence(&mut self) {
        self.reported_stretch = true;
        self.reported_sampled = true;
        self.silent = true;
    }

    /// From now on snapshots have the times of the clock, also where it is set back: for those who compare them with the time of other
    /// programs and hosts.
    pub fn follow_clock(&mut self) {
        self.in_order = None;
    }

    /// Wall time: now, or in the recording that is played.
    fn unix_ns(&mut self) -> u64 {
        if let Some(begin) = self.replay_unix_ns {
            return begin + self.monitor.now();
        }
        let now = clock::unix_ns();
        let Some(in_order) = &mut self.in_order else { return now };
        let (ordered, set_back) = in_order.at(now, clock::monotonic_ns());
        if let Some(by_ns) = set_back.filter(|_| !self.silent) {
            warn_set_back(by_ns);
        }
        ordered
    }

    /// Watches window by window and passes each snapshot to `each`. Ends after `duration_ns`, when stopped, or when no target is left.
    pub fn snapshots(
        &mut self,
        duration_ns: Option<u64>,
        stop: &Stop,
        bar: &ProgressBar,
        mut each: impl FnMut(Snapshot) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.windows(duration_ns, stop, bar, |_, snapshot| each(snapshot))
    }

    /// The same, and passes the monitor for callers that need pages as well.
    pub fn windows(
        &mut self,
        duration_ns: Option<u64>,
        stop: &Stop,
        bar: &ProgressBar,
        mut each: impl FnMut(&mut Monitor<Box<dyn Clock>>, Snapshot) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let began = self.monitor.now();
        let end = duration_ns.map_or(u64::MAX, |d| began.saturating_add(d));
        let (mut window_end, mut grace) = (began, FIRST_WINDOW_NS);
        loop {
            window_end = window_end.saturating_add(self.affordable_window_ns()).max(self.monitor.now()).min(end);
            let window = window_end.saturating_sub(self.monitor.now()).saturating_add(std::mem::take(&mut grace));
            self.pulse.next_due(clock::monotonic_ns().saturating_add(window));
            let watched = self.monitor.watch(window_end, &stop.0);
            let ended = self.reap();
            watched.map_err(|error| match ended {
                Some(status) => anyhow::Error::from(error).context(format!("the command has ended ({status})")),
                None => error.into(),
            })?;
            bar.set_position(self.monitor.now().saturating_sub(began) / 1_000_000);
            self.report_sampled();
            self.print_news();
            let unix_ns = self.unix_ns();
            let snapshot = self.monitor.snapshot(unix_ns);
            let flow = each(&mut self.monitor, snapshot)?;
            let nothing_left = self.monitor.now() < window_end && !self.monitor.is_watching();
            if flow.is_break() || stop.is_set() || nothing_left || self.monitor.now() >= end {
                bar.finish_and_clear();
                return Ok(());
            }
        }
    }

    /// The requested window, or a longer one if snapshots at that rate would use up the CPU budget.
    fn affordable_window_ns(&mut self) -> u64 {
        // The first snapshots run with cold CPU caches, so their cost says little about later ones.
        let settled = self.monitor.elapsed_ns() > SETTLED_NS;
        let share = if settled { self.monitor.bookkeeping_share() } else { 0.0 };
        if share > MAX_BOOKKEEPING && !self.reported_stretch {
            self.reported_stretch = true;
            output::warn("snapshots of these targets are expensive: taking them less often, to stay within --max-cpu");
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few windows")]
        let stretched = (self.window_ns as f64 * (share / MAX_BOOKKEEPING).clamp(1.0, 16.0)) as u64;
        stretched
    }

    /// Reports once that targets are only sampled, and why.
    fn report_sampled(&mut self) {
        let sampled = self.monitor.sampled();
        if sampled.0 == 0 || std::mem::replace(&mut self.reported_sampled, true) {
            return;
        }
        if self.monitor.settings().sample_interval_ns < CLEAR_TICK {
            let shortest = Duration::from_nanos(CLEAR_TICK);
            output::note(format_args!(
                "access checks begin every {shortest:?}: a shorter --sample-interval makes no difference"
            ));
        }
        output::note(format_args!(
            "{sampled} is sampled, at most {} regions, each as hot as the huge ranges checked in it{}",
            self.run.max_regions,
            if self.monitor.settings().mode == Mode::Auto {
                "; one check of all of it would take more than five minutes at --max-cpu (--mode whole does it)"
            } else {
                ""
            }
        ));
    }

    /// Prints the messages of the source.
    fn print_news(&mut self) {
        for sentence in self.monitor.news() {
            if !self.silent {
                output::note(sentence);
            }
        }
    }

    /// Reaps the command that we started if it has ended, so that it no longer counts as running. Returns how it has ended then.
    fn reap(&mut self) -> Option<ExitStatus> {
        self.started.as_mut().and_then(|started| started.0.try_wait().ok().flatten())
    }

    /// Prints on standard error which processes could not be watched.
    pub fn report_refused(&self) {
        self.refused().iter().for_each(output::note);
    }

    /// Which processes could not be watched, and why: one sentence each for the first three.
    pub fn refused(&self) -> Vec<String> {
        let all = self.monitor.refused();
        let mut lines: Vec<String> =
            all.iter().take(3).map(|(pid, why)| format!("process {pid} is skipped: {why}")).collect();
        let more = all.len().saturating_sub(3);
        if more > 0 {
            lines.push(format!("{more} more processes are skipped for such reasons"));
        }
        lines
    }
}

/// Reports that the clock was set back, where times go on as before.
pub fn warn_set_back(by_ns: u64) {
    let by = human::duration(by_ns);
    output::warn(format_args!("the clock was set back by {by}: times of snapshots go on as before"));
}

/// Locks the targets, so that no other monitor watches them. Without a directory for locks, other monitors are not excluded. Bits that
/// they clear are still noticed.
pub fn alone<C: Clock>(monitor: Monitor<C>) -> Monitor<C> {
    match TargetLocks::shared() {
        Some(Ok(locks)) => monitor.exclusive(locks),
        Some(Err(_)) | None => monitor,
    }
}

/// The selected targets. `None` if the target is a command that is yet to be started.
pub fn selection(targets: &TargetArgs) -> Option<Selection> {
    if !targets.command.is_empty() {
        return None;
    }
    Some(match &targets.cgroup {
        Some(path) => Selection::Cgroup(path.clone()),
        None if targets.all => Selection::All,
        None => Selection::Pids { pids: targets.pids.clone(), children: !targets.no_children },
    })
}

/// The target that stands for physical memory. It is no process, although pid 0 is the parent of all processes.
fn physical_memory() -> Selection {
    Selection::OfSource(vec![Damon::PHYSICAL])
}

fn knows_pages(source: &dyn AccessSource) -> bool {
    source.describe().granularity == Granularity::Page
}

fn settings(args: &WatchArgs, source: &dyn AccessSource) -> Result<Settings, Usage> {
    let (sample_interval_ns, intervals_goal) = args.intervals.resolve()?;
    Ok(Settings {
        mode: match args.mode {
            ModeArg::Auto => Mode::Auto,
            ModeArg::Whole => Mode::Whole,
            ModeArg::Sampled => Mode::Sampled,
        },
        max_regions: usize::try_from(args.max_regions).unwrap_or(usize::MAX),
        max_region: args.max_region,
        sample_interval_ns,
        intervals_goal,
        max_slowdown_pct: args.max_slowdown_pct(),
        max_cpu_pct: args.max_cpu.unwrap_or_else(|| default_max_cpu(source)),
        seed: args.seed.unwrap_or_else(random::seed),
    })
}

/// The default CPU budget of a monitor, percent of one core.
pub fn default_max_cpu(source: &dyn AccessSource) -> f64 {
    // By mapping, one access check of a GiB costs 60 ms or more. With 1%, the first results would take minutes.
    if source.describe().granularity == Granularity::Mapping { 5.0 } else { 1.0 }
}

/// Describes this run and the machine.
pub fn run_info(source: &dyn AccessSource, settings: Settings, window_ns: u64) -> RunInfo {
    let machine = Machine::read(&HostRoots::default());
    let description = source.describe();
    RunInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        source: description.name.to_owned(),
        source_note: description.note,
        window_ns,
        max_regions: settings.max_regions as u64,
        max_slowdown_pct: settings.max_slowdown_pct,
        max_cpu_pct: settings.max_cpu_pct,
        sample_interval_ns: settings.sample_interval_ns,
        intervals_goal: settings.intervals_goal,
        // Recorded as JSON for people to read, so it may lose bytes. A command that is started gets its original arguments.
        command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        kernel: machine.kernel.map(|k| k.text).unwrap_or_default(),
        cpu: machine.cpu_model.unwrap_or_default(),
        cpus: machine.cpus.unwrap_or_default(),
        memory: machine.memory.unwrap_or_default(),
    }
}

/// The input of a planner for a watched target. Of a sampled one, huge ranges of a benefit below `min_benefit_hz` are left out. If hints come
/// from MGLRU, the caller adds the generations.
pub fn window_of<'a>(
    monitor: &'a Monitor<Box<dyn Clock>>,
    target: &'a TargetHeat,
    min_benefit_hz: f64,
) -> TargetWindow<'a> {
    TargetWindow {
        id: target.id,
        comm: target.comm.as_str().into(),
        mappings: monitor.mappings_of(target.id.pid).unwrap_or_default().into(),
        facts: facts_of(monitor, target, min_benefit_hz),
        generations: Vec::new(),
    }
}

/// The input of the planner that pages out: these idle pages of a watched target.
pub fn idle_window_of<'a>(
    monitor: &'a Monitor<Box<dyn Clock>>,
    target: &'a TargetHeat,
    idle: Vec<IdlePmd>,
) -> IdleWindow<'a> {
    let mappings = monitor.mappings_of(target.id.pid).unwrap_or_default().into();
    IdleWindow { id: target.id, comm: target.comm.as_str().into(), mappings, idle }
}

/// The facts about the huge ranges of a target: from its pages, or from its regions if it is sampled. Regions with less benefit than asked for
/// are skipped, because they hold millions of huge ranges.
fn facts_of(monitor: &Monitor<Box<dyn Clock>>, target: &TargetHeat, min_benefit_hz: f64) -> Vec<PmdFacts> {
    match monitor.pages_of(target.id.pid) {
        Some(pages) => benefit::of_pages(pages, monitor.now()),
        None => {
            let pmds: u64 = target.regions.iter().map(|region| region.range.len().0 / PMD_SIZE).sum();
            let at_least_hz = if pmds > MAX_COLD_PMDS { Rules::default().min_benefit_hz } else { 0.0 };
            benefit::of_warm_regions(&target.regions, min_benefit_hz.max(at_least_hz))
        }
    }
}
