//! `isotherm run`: keeps the hot memory of processes on huge pages until it is stopped, and pages out their cold memory if a scheme says so.
//!
//! [`args`] holds the arguments. [`config`] combines them with the settings file. [`trust`] decides whether root runs the command that a
//! settings file names. [`page_out`] reads what paging out needs to know, [`migrate`] what moving between memory tiers does, [`split`] what
//! splitting huge pages does, and [`reclaim`] what taking files from cgroups does. [`assignments`]
//! reads which cgroups another program gives to schemes. [`record`] records what is seen and done. [`acting`] has the worker's thread.

mod acting;
pub mod args;
mod assignments;
mod check;
pub mod config;
mod host;
mod measure;
mod migrate;
mod page_out;
mod reclaim;
mod record;
mod split;
mod trust;

use crate::acted;
use crate::commands::plan::Plan;
use crate::commands::status;
use crate::daemon::socket::ControlSocket;
use crate::gain;
use crate::generations::Generations;
use crate::journal::journaled;
use crate::output;
use crate::privileges::Needs;
use crate::sandbox::{self, Uses};
use crate::service::Service;
use crate::stop::handle_hangups;
use crate::stream::Publisher;
use crate::swap;
use crate::watch::{Prepared, Stop, Watching, window_of};
use crate::work::runner::{Runner, WorkArgs};
use acting::{Ends, work};
use anyhow::{Result, bail};
use args::RunArgs;
use assignments::AssignmentsFile;
use check::When;
use config::Config;
use indicatif::ProgressBar;
use isotherm_heat::track::SampledExtent;
use isotherm_heat::{Clock, Ns, Rng, Snapshot, TargetHeat, TargetId};
use isotherm_monitor::Monitor;
use isotherm_schemes::bring_back::{BringBack, BringBackMachine, BroughtBack};
use isotherm_schemes::collapse::{Collapse, CollapseMachine};
use isotherm_schemes::machine::DryRun;
use isotherm_schemes::migrate::{Migrate, MigrateMachine, Movable};
use isotherm_schemes::page_out::{IdlePages, PageOut, PageOutMachine};
use isotherm_schemes::plan::HintSource;
use isotherm_schemes::split::rejoin::Rejoin;
use isotherm_schemes::split::{Split, SplitMachine, Splits};
use isotherm_schemes::state::{SampledStatus, Shared, SharedWorker, State, lock};
use isotherm_schemes::{Action, Worker};
use isotherm_sys::clock;
use isotherm_sys::proc::Proc;
use measure::{Measure, measure};
use page_out::PageOutStep;
use record::Recorder;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};

const WINDOW_NS: u64 = 1_000_000_000;
/// A longer window, as after a suspend, hints no more than this.
const LONGEST_WINDOW_NS: u64 = 10 * WINDOW_NS;
/// For so long after something else has cleared accessed bits, what looks idle may not be. Reclaim by the kernel does so too.
const OTHERS_CLEAR_NS: u64 = 600 * WINDOW_NS;

impl Plan for RunArgs {
    fn needs(&self) -> Needs {
        // The settings may name a command, now or when they are read again.
        if self.work.is_some() || self.config.is_some() { Needs::Starting } else { self.targets.needs() }
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(args: &RunArgs) -> Result<()> {
    let service = Service::of_this_process();
    let stop = Stop::on_end_signals()?;
    let reload = Arc::new(AtomicBool::new(false));
    handle_hangups(&stop, &reload)?;
    let mut config = Config::load(args)?;
    let socket_server = ControlSocket::open(&config.socket)?;
    check::fit(args, &mut config, When::Start)?;
    let generations = Generations::open(config.hints)?;
    let runner = Runner::start(&WorkArgs { work: args.work.clone(), config: args.config.clone() })?;
    let (machine, publisher) = (machine(args, &config)?, publisher(&config)?);
    let mut watching = begin(&config, uses_of(args, &config), &service)?;
    let recorder = Recorder::begin(args, &watching.run)?;
    let between = BetweenPlanAndWorker::default();
    let mut worker = worker(machine, &config, &between);
    let shared: Shared = Arc::new(Mutex::new(state_of(&config, between)));
    let over = AtomicBool::new(false);
    output::note(format_args!("{}; status at {}", watching.run.source_note, config.socket.display()));
    service.ready(&watching.run.source_note);
    let ends = Ends { over: &over, stop: &stop };
    let ended = std::thread::scope(|scope| -> Result<()> {
        // If this one or one that acts panics, the others end, and so does the command. Otherwise the scope would wait for them for ever.
        let _on_panic = ends.on_panic();
        scope.spawn(|| {
            let _on_panic = ends.on_panic();
            work(&mut worker, &shared, &service.pulse, || ends.is_near());
        });
        reclaim::start(scope, config.reclaims(), (&shared, config.dry_run, &service.pulse), ends);
        scope.spawn(|| socket_server.answer((&shared, &service.pulse), || over.load(Ordering::Relaxed)));
        scope.spawn(|| service.keep_alive(|| over.load(Ordering::Relaxed)));
        let (to_measure, orders) = mpsc::channel();
        scope.spawn(|| measure((orders, runner), &shared, || ends.is_near()));
        let signals = Signals { stop: &stop, reload: &reload };
        let able = Able::of(&config);
        let mut feeder =
            Feeder::new((args, able), (&shared, &to_measure, &service), (generations, publisher, recorder));
        let outcome = watch(&mut feeder, &mut config, &mut watching, &signals);
        over.store(true, Ordering::Relaxed);
        service.stopping();
        outcome.and(feeder.recorder.finish())
    });
    watching.report_refused();
    ended?;
    conclude(args, &shared)
}

/// Listens for those who show snapshots, if the settings say so.
fn publisher(config: &Config) -> Result<Option<Publisher>> {
    let stream = config.stream.as_deref().map(|path| Publisher::listen(path, config.stream_group.as_deref()));
    stream.transpose()
}

/// A machine on which all actions can be performed.
trait ActionMachine: CollapseMachine + PageOutMachine + MigrateMachine + BringBackMachine + SplitMachine {}

impl<M: CollapseMachine + PageOutMachine + MigrateMachine + BringBackMachine + SplitMachine> ActionMachine for M {}

/// What planners and actions share.
#[derive(Default)]
struct BetweenPlanAndWorker {
    idle: IdlePages,
    movable: Movable,
    brought_back: BroughtBack,
    splits: Splits,
}

/// The worker that acts on hints, on a machine that any thread may use.
type Serving = SharedWorker<Box<dyn ActionMachine + Send>>;

/// The machine, before the sandbox forbids to open a journal.
fn machine(args: &RunArgs, config: &Config) -> Result<Box<dyn ActionMachine + Send>> {
    Ok(if config.dry_run {
        if !args.dry_run {
            output::note("only counts what it would do: the settings say `dry_run = true`");
        }
        Box::new(DryRun::new(BTreeMap::new()))
    } else {
        Box::new(journaled(args.journal.as_deref())?)
    })
}

fn state_of(config: &Config, between: BetweenPlanAndWorker) -> State {
    let BetweenPlanAndWorker { idle, movable, brought_back, splits } = between;
    let state = State::new(config.rules, config.budgets).with_schemes(config.schemes.clone(), idle);
    state.with_movable(movable).with_brought_back(brought_back).with_splits(splits)
}

fn worker(machine: Box<dyn ActionMachine + Send>, config: &Config, between: &BetweenPlanAndWorker) -> Serving {
    let mut actions: Vec<Box<dyn Action<_> + Send>> = vec![Box::new(Collapse { files: config.rules.files })];
    if config.pages_out() {
        actions.push(Box::new(PageOut::kept_at(between.idle.clone())));
        // A scheme may ask for it when the settings are read again.
        actions.push(Box::new(BringBack::new(between.brought_back.clone())));
    }
    if config.migrates() {
        actions.push(Box::new(Migrate::new(between.movable.clone())));
    }
    if config.splits() {
        actions.push(Box::new(Split::kept_at(between.splits.clone())));
        actions.push(Box::new(Rejoin::default()));
    }
    SharedWorker::new(Worker::new(machine, actions, config.budgets, clock::monotonic_ns()))
}

/// What is done besides watching: all for which something is opened later, too, if the settings can be read again.
fn uses_of(args: &RunArgs, config: &Config) -> Uses {
    let uses = Uses::nothing().collapsing().serving(&config.socket);
    let uses = config.stream.iter().fold(uses, |uses, stream| uses.serving(stream));
    let uses = args.record.iter().fold(uses, |uses, recording| uses.writing(recording));
    let uses = if config.pages_out() || config.splits() { uses.paging_out() } else { uses };
    let uses = if config.migrates() { uses.migrating() } else { uses };
    let uses = if config.reclaims() { uses.reclaiming() } else { uses };
    let uses = if config.hints == HintSource::Heat { uses } else { uses.ageing() };
    if args.config.is_some() { uses.opening_again() } else { uses }
}

/// Starts to watch. Fails if the source does not report single pages.
fn begin(config: &Config, uses: Uses, service: &Service) -> Result<Watching> {
    let prepared = Prepared::new(&config.targets, &config.watch, WINDOW_NS)?.for_report();
    if !prepared.knows_pages() {
        anyhow::bail!(
            "run needs to know which pages are hot, and the source `{}` does not report that ({}): see `isotherm doctor` for what page-table needs",
            prepared.run.source,
            prepared.run.source_note
        );
    }
    let mut watching = prepared.start(uses)?;
    watching.pulse = Arc::clone(&service.pulse);
    watching.follow_clock();
    Ok(watching)
}

/// The user's requests by signals.
struct Signals<'a> {
    stop: &'a Stop,
    /// The settings are to be read again.
    reload: &'a AtomicBool,
}

/// Watches window by window and gives hints. Starts over when new settings name other targets.
fn watch(feeder: &mut Feeder<'_>, config: &mut Config, watching: &mut Watching, signals: &Signals<'_>) -> Result<()> {
    let (args, shared) = (feeder.args, feeder.shared);
    let ends = args.duration.map(|d| clock::monotonic_ns().saturating_add(d));
    let mut begins = true;
    loop {
        if begins {
            feeder.begin(config, watching);
        }
        let left = ends.map(|end| end.saturating_sub(clock::monotonic_ns()));
        let mut anew = None;
        watching.windows(left, signals.stop, &ProgressBar::hidden(), |monitor, mut snapshot| {
            // Before hints are made by schemes: what has a quota waits until a window has seen new ones.
            feeder.assign(config, false);
            feeder.note_memory();
            feeder.check_collapsed(monitor, &snapshot);
            feeder.feed(config.work.is_some(), monitor, &snapshot)?;
            feeder.note_others(&snapshot);
            if !signals.stop.is_set() {
                feeder.page_out(monitor, &snapshot);
                feeder.migrate(monitor, &snapshot);
                feeder.split(monitor, &snapshot);
                feeder.reclaim(monitor, &snapshot);
            }
            feeder.publish(monitor, &mut snapshot);
            let is_reload = signals.reload.swap(false, Ordering::Relaxed);
            if is_reload {
                feeder.service.reloading();
                anew = reloaded(args, config, (shared, feeder.able));
            }
            if is_reload && anew.is_none() {
                feeder.assign(config, true);
                feeder.service.ready("watching");
            }
            Ok(if anew.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let Some(new) = anew else { return Ok(()) };
        let begun = begin_again(&new, feeder);
        begins = begun.is_ok();
        match begun {
            Ok(begun) => {
                apply(&new, shared);
                *watching = begun;
                *config = new;
                output::note("settings read again; watching restarted");
            }
            Err(error) => output::warn(format_args!("the settings are unchanged: {error:#}")),
        }
        feeder.service.ready("watching");
    }
}

/// Starts to watch with other settings.
fn begin_again(config: &Config, feeder: &mut Feeder<'_>) -> Result<Watching> {
    let pids = &config.targets.pids;
    if !pids.is_empty() && pids.iter().all(|pid| feeder.proc.identity(*pid).is_err()) {
        bail!("none of the processes {pids:?} is there");
    }
    let generations = Generations::open(config.hints)?;
    let watching = begin(config, uses_of(feeder.args, config), feeder.service)?;
    feeder.generations = generations;
    Ok(watching)
}

/// Reads the settings again. They are in force then, unless watching has to start over for them: then they are returned, and nothing has
/// changed. Nor does a file with errors change anything.
fn reloaded(args: &RunArgs, config: &mut Config, (shared, able): (&Shared, Able)) -> Option<Config> {
    let mut new = match Config::load(args).and_then(|mut new| check::fit(args, &mut new, When::Reload).map(|()| new)) {
        Ok(new) => new,
        Err(error) => {
            output::warn(format_args!("the settings are unchanged: {error:#}"));
            return None;
        }
    };
    if std::mem::replace(&mut new.rules.files, config.rules.files) != config.rules.files {
        output::note("`files` is unchanged until the next start");
    }
    if std::mem::replace(&mut new.dry_run, config.dry_run) != config.dry_run {
        output::note("`dry_run` is unchanged until the next start");
    }
    if new.pages_out() && !able.pages_out {
        output::note("schemes that page out begin with the next start");
    }
    if new.migrates() && !able.migrates {
        output::note("schemes that promote or demote begin with the next start");
    }
    if new.splits() && !able.splits {
        output::note("schemes that split begin with the next start");
    }
    if new.reclaims() && !able.reclaims {
        output::note("schemes that reclaim begin with the next start");
    }
    if new.socket != config.socket {
        output::note("`socket` is unchanged until the next start");
    }
    if (&new.stream, &new.stream_group) != (&config.stream, &config.stream_group) {
        output::note("`stream` is unchanged until the next start");
    }
    if !new.watches_like(config) {
        if config.targets.command.is_empty() {
            return Some(new);
        }
        output::note("the way the command is watched is unchanged: it would have to be started again");
    }
    apply(&new, shared);
    *config = new;
    output::note("settings read again");
    None
}

/// What these settings say of rules, budgets and schemes is in force.
fn apply(config: &Config, shared: &Shared) {
    let mut state = lock(shared);
    state.reload(config.rules, config.budgets, config.round_robin);
    state.set_schemes(config.schemes.clone());
}

/// What the worker was started for, besides collapsing.
#[derive(Clone, Copy)]
struct Able {
    pages_out: bool,
    /// Pages move between memory tiers.
    migrates: bool,
    splits: bool,
    /// Idle files leave cgroups.
    reclaims: bool,
    /// All of this is only counted.
    is_dry: bool,
}

impl Able {
    fn of(config: &Config) -> Able {
        let (pages_out, migrates, splits) = (config.pages_out(), config.migrates(), config.splits());
        Able { pages_out, migrates, splits, reclaims: config.reclaims(), is_dry: config.dry_run }
    }
}

/// Windows so far, and when pages were last made to leave.
#[derive(Default)]
struct Turns {
    windows: u64,
    paged_out_at: Ns,
}

/// Feeds windows into the shared state.
struct Feeder<'a> {
    args: &'a RunArgs,
    shared: &'a Shared,
    to_measure: &'a Sender<Measure>,
    proc: Proc,
    /// The processes of the first window are measured, and no others.
    measured: bool,
    generations: Generations,
    able: Able,
    /// When something else was last seen to clear accessed bits of a process.
    others_clear: BTreeMap<TargetId, Ns>,
    turns: Turns,
    /// Counts idle files.
    files: reclaim::Counting,
    publisher: Option<Publisher>,
    recorder: Recorder,
    service: &'a Service,
    assignments: AssignmentsFile,
}

impl<'a> Feeder<'a> {
    fn new(
        (args, able): (&'a RunArgs, Able),
        (shared, to_measure, service): (&'a Shared, &'a Sender<Measure>, &'a Service),
        (generations, publisher, recorder): (Generations, Option<Publisher>, Recorder),
    ) -> Feeder<'a> {
        Feeder {
            args,
            shared,
            to_measure,
            proc: Proc::default(),
            measured: false,
            generations,
            able,
            others_clear: BTreeMap::new(),
            turns: Turns::default(),
            files: reclaim::Counting::default(),
            publisher,
            recorder,
            service,
            assignments: AssignmentsFile::default(),
        }
    }
}

impl Feeder<'_> {
    /// Begins with the first window after a start of watching.
    fn begin(&mut self, config: &Config, watching: &Watching) {
        self.measured = false;
        let mut state = lock(self.shared);
        state.begin();
        state.describe(&watching.run.source, self.able.is_dry, config.round_robin, config.hints);
        state.set_sandbox(sandbox::status());
        state.set_intervals_goal(watching.monitor.settings().intervals_goal);
        drop(state);
        if let Some(publisher) = &mut self.publisher {
            publisher.of_run(&watching.run);
        }
        self.assign(config, true);
    }

    /// Gives schemes the cgroups that are assigned to them, where these or the schemes have changed.
    fn assign(&mut self, config: &Config, schemes_changed: bool) {
        let Some(path) = &config.assignments else { return };
        let changed = self.assignments.refresh(path);
        if let Some(note) = self.assignments.take_note() {
            output::note(note);
        }
        if changed || schemes_changed {
            let schemes = config.schemes.iter().map(|scheme| scheme.assigned(self.assignments.assignments()));
            lock(self.shared).set_schemes(schemes.collect());
        }
    }

    /// Sends the snapshot to those who listen, and records it, with what was done.
    fn publish(&mut self, monitor: &mut Monitor<Box<dyn Clock>>, snapshot: &mut Snapshot) {
        let heard = self.publisher.as_mut().filter(|publisher| publisher.is_heard());
        if heard.is_none() && !self.recorder.is_on() {
            return;
        }
        let status = lock(self.shared).status();
        acted::note(snapshot, &status);
        if let Some(publisher) = heard {
            publisher.publish(monitor, snapshot, Some(&status));
        }
        self.recorder.push(snapshot);
    }

    /// Processes that are alive. Where a quota is for many, each is the first now and then: not in steady turns, or the same one would be it whenever
    /// an interval of so many windows begins.
    fn in_turn<'s>(&self, snapshot: &'s Snapshot) -> Vec<&'s TargetHeat> {
        let mut targets: Vec<&TargetHeat> = snapshot.alive().collect();
        let first = Rng::new(self.turns.windows).below(targets.len().max(1) as u64);
        targets.rotate_left(usize::try_from(first).unwrap_or(0));
        targets
    }

    fn feed(&mut self, has_work: bool, monitor: &Monitor<Box<dyn Clock>>, snapshot: &Snapshot) -> Result<()> {
        self.turns.windows += 1;
        let alive = self.in_turn(snapshot);
        let ids: Vec<TargetId> = alive.iter().map(|t| t.id).collect();
        let now = clock::monotonic_ns();
        let min_benefit_hz = {
            let mut state = lock(self.shared);
            state.keep(&ids);
            state.set_unchecked(monitor.unchecked());
            state.min_benefit_hz()
        };
        self.generations.age(&ids.iter().map(|id| id.pid).collect::<Vec<_>>())?;
        for gone in snapshot.targets.iter().filter(|t| t.exited) {
            self.generations.forget(gone.id.pid);
        }
        for target in alive.into_iter().filter(|t| monitor.mappings_of(t.id.pid).is_some()) {
            let mut window = window_of(monitor, target, min_benefit_hz);
            self.generations.add_to(&mut window)?;
            let rss = self.proc.status(target.id.pid).ok().and_then(|s| s.rss).unwrap_or_default();
            let sampled = monitor.sampled_extent_of(target.id.pid).map(sampled_status);
            let mut state = lock(self.shared);
            state.set_cgroup(target.id, &target.comm, &target.cgroup);
            state.feed(&window, rss, now);
            state.set_sampled(target.id, sampled);
        }
        if !self.measured && !ids.is_empty() {
            self.measured = true;
            let pids = ids.iter().map(|id| id.pid).collect();
            let _ = self.to_measure.send(Measure { pids, has_work });
        }
        Ok(())
    }
}

impl Feeder<'_> {
    /// Reads what was collapsed in this window. A range that has become huge is checked before all others that were never checked.
    fn check_collapsed(&self, monitor: &mut Monitor<Box<dyn Clock>>, snapshot: &Snapshot) {
        for target in snapshot.alive() {
            let collapsed = lock(self.shared).take_collapsed(target.id);
            // In a dry run nothing has changed.
            if !collapsed.is_empty() && !self.able.is_dry {
                monitor.read_now(target.id.pid, &collapsed);
            }
        }
    }
}

/// What takes idle memory.
impl Feeder<'_> {
    /// Notes of which processes something else clears the accessed bits.
    fn note_others(&mut self, snapshot: &Snapshot) {
        let now = clock::monotonic_ns();
        let cleared = snapshot.alive().filter(|t| t.facts.cleared_by_others_pages > 0);
        self.others_clear.extend(cleared.map(|t| (t.id, now)));
        self.others_clear
            .retain(|id, at| now.saturating_sub(*at) < OTHERS_CLEAR_NS && snapshot.alive().any(|t| t.id == *id));
    }

    fn migrate(&self, monitor: &Monitor<Box<dyn Clock>>, snapshot: &Snapshot) {
        if !self.able.migrates {
            return;
        }
        let now = clock::monotonic_ns();
        for target in self.in_turn(snapshot) {
            migrate::step(self.shared, monitor, target, self.others_clear.contains_key(&target.id), now);
        }
    }

    fn split(&self, monitor: &mut Monitor<Box<dyn Clock>>, snapshot: &Snapshot) {
        for target in snapshot.alive().filter(|_| self.able.splits) {
            split::step(self.shared, monitor, target, self.others_clear.contains_key(&target.id), &self.proc);
        }
    }

    fn reclaim(&mut self, monitor: &mut Monitor<Box<dyn Clock>>, snapshot: &Snapshot) {
        if !self.able.reclaims {
            return;
        }
        self.files.step((self.shared, &self.proc), monitor, snapshot, &self.others_clear);
    }

    /// For the watermarks and quotas of schemes.
    fn note_memory(&self) {
        if !self.able.pages_out && !self.able.reclaims && !lock(self.shared).has_quotas() {
            return;
        }
        let memory = host::memory(&self.proc);
        lock(self.shared).note_memory(memory, clock::monotonic_ns());
    }

    fn page_out(&mut self, monitor: &mut Monitor<Box<dyn Clock>>, snapshot: &Snapshot) {
        if !self.able.pages_out {
            return;
        }
        let now = clock::monotonic_ns();
        let has_swap = self.able.is_dry || swap::is_there();
        let window_ns = now.saturating_sub(std::mem::replace(&mut self.turns.paged_out_at, now)).min(LONGEST_WINDOW_NS);
        for target in self.in_turn(snapshot) {
            let others_clear = self.others_clear.contains_key(&target.id);
            PageOutStep { shared: self.shared, target, window_ns, others_clear, has_swap }.take(monitor);
        }
    }
}

fn sampled_status(extent: SampledExtent) -> SampledStatus {
    let SampledExtent { regions, interval_ns, aggregated_in, .. } = extent;
    SampledStatus { regions, interval_ns, aggregated_in_ns: aggregated_in }
}

/// Prints the final status and the gain.
fn conclude(args: &RunArgs, shared: &Shared) -> Result<()> {
    let status = lock(shared).status();
    output::report(args.json, &status, |out| {
        status::tell(&status, out)?;
        Ok(gain::tell(&status.gain, out)?)
    })
}

#[cfg(test)]
mod tests {
    use super::config::tests::args;
    use super::*;
    use isotherm_schemes::Budgets;
    use isotherm_schemes::collapse::Rules;

    #[test]
    fn files_and_dry_run_stay_as_they_were_when_the_settings_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        let written = |text: &str| std::fs::write(&path, format!("[targets]\npids = [7]\n[rules]\n{text}")).unwrap();
        written("");
        let args = args(&["-c", path.to_str().unwrap()]);
        let mut config = Config::load(&args).unwrap();
        let shared: Shared = Arc::new(Mutex::new(State::new(Rules::default(), Budgets::default())));
        let able = Able::of(&config);
        // The worker checks each range again, and was started without files: hints for them would all be refused. Its machine acts.
        let dry = "dry_run = true\n[targets]\npids = [7]\n[rules]\nfiles = true\nmin_benefit_hz = 9.0\n";
        std::fs::write(&path, dry).unwrap();
        assert!(reloaded(&args, &mut config, (&shared, able)).is_none());
        assert_eq!((config.rules.files, config.dry_run, config.rules.min_benefit_hz), (false, false, 9.0));
        assert_eq!(lock(&shared).min_benefit_hz(), 9.0);
    }
}
