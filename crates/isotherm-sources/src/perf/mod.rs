//! Accesses as the kernel reports them: samples of perf events, with addresses.
//!
//! A CPU that samples memory accesses (Intel PEBS, AMD IBS) reports one in N as it happens. Elsewhere page faults
//! report first touches, and on machines with several nodes NUMA hint faults report repeated accesses. The cost follows
//! the number of samples and not the size of memory. [`isotherm_sys::perf`] opens events and reads rings, and
//! [`isotherm_heat`] makes heat of the reports. This module decides what is in between: which event, which targets, how
//! often, and whether it is of any use.
//!
//! Compared with page tables, samples do not distinguish rare accesses from none, and accesses that hardware prefetches
//! for are not seen at all. In return they show how hot the hottest pages are, which an accessed bit cannot, and they
//! clear no accessed bit. [`crate::fused`] combines the two.
//!
//! ```text
//!  rings of each listener ──> inbox (by process) ──> monitor
//!        ^    └── counts ──> budget (how often), verdict (of what use) ──> messages for users
//!        └───────────────────────┘
//! ```

mod budget;
mod demux;
mod events;
mod listeners;
mod missing;
mod news;
mod options;
mod scans;
mod source;
mod verdict;

pub use budget::{Budget, Change, SAMPLE_NS, Seen, Why};
pub(crate) use events::best_of_processor;
pub use events::{Chosen, Tried, choose, cost_pct, try_out};
pub use options::{Options, Over};
pub use verdict::{Evidence, Useless, Verdict};

use crate::Error;
use crate::process::Process;
use crate::resident::Residency;
use demux::{Decoding, ListenerId, SampleDemux};
use isotherm_heat::source::Attached;
use isotherm_heat::{Mapping, Ns, Silence, TargetId};
use isotherm_host::HostRoots;
use isotherm_host::events::Kind;
use isotherm_sys::clock;
use isotherm_sys::damon;
use isotherm_sys::perf::{Rate, RingError, Totals, Whom};
use isotherm_sys::proc::Proc;
use isotherm_units::AddrRange;
use listeners::{Listeners, Request};
use missing::Missing;
use news::News;
use scans::Scans;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Rings are read no more often than this, however many callers there are.
const DRAIN_PAUSE: Ns = 20_000_000;
/// The budget is checked this often: a storm of faults fills a ring within a quarter of a second.
const BUDGET_PAUSE: Ns = 200_000_000;
/// Counters, CPUs, threads and the verdict are checked this often, or less often where that is expensive.
const TEND_PAUSE: Ns = 1_000_000_000;
const TEND_SHARE: u64 = 200;
/// A clock tick of `/proc/PID/stat`: 100 a second on all machines.
const TICK_NS: Ns = 10_000_000;

/// A target that is attached.
#[derive(Clone, Copy, Debug)]
struct Listening {
    /// `None` for physical memory.
    process: Option<Process>,
    /// CPU ticks it had used when it was attached, and at the last check.
    ticks: (u64, u64),
    residency: Residency,
}

/// The source.
#[derive(Debug)]
pub struct Perf {
    roots: HostRoots,
    proc: Proc,
    chosen: Chosen,
    physical: bool,
    over: Over,
    listeners: Listeners,
    /// Sampling the host was tried and denied.
    host_is_denied: bool,
    demux: SampleDemux,
    attached: BTreeMap<u32, Listening>,
    budget: Budget,
    /// Only for events that come from the kernel's NUMA scans.
    scans: Option<Scans>,
    ram: Vec<AddrRange>,
    /// CPU ticks of targets that have ended.
    past_ticks: u64,
    missing: Missing,
    since: Ns,
    drained_at: Ns,
    budget_at: Ns,
    tend_at: Ns,
    /// As of the last read of the counters, and how long that took.
    totals: Totals,
    asking_ns: Ns,
    judged: bool,
    news: News,
}

impl Perf {
    /// The pid that stands for physical memory.
    pub const PHYSICAL: u32 = options::PHYSICAL_PID;

    /// Chooses an event and starts to sample, unless sampling starts with each process. Fails if the event is not
    /// available.
    pub fn open(options: &Options) -> Result<Perf, Error> {
        Perf::open_at(&HostRoots::default(), options)
    }

    /// The same with the kernel's files elsewhere.
    pub fn open_at(roots: &HostRoots, options: &Options) -> Result<Perf, Error> {
        Perf::open_chosen(roots, options, choose(roots, options, options.is_physical())?)
    }

    /// The same with an event that is chosen already.
    pub(crate) fn open_chosen(roots: &HostRoots, options: &Options, chosen: Chosen) -> Result<Perf, Error> {
        let physical = options.is_physical();
        let over = if physical { Over::Host } else { options.over.clone() };
        let now = clock::monotonic_ns();
        let mut perf = Perf {
            proc: Proc::at(&roots.proc),
            listeners: Listeners::new(roots),
            host_is_denied: false,
            demux: SampleDemux::new(Decoding { ibs: chosen.kind == Kind::Ibs, physical }),
            budget: Budget::new(now, chosen.rate, options.max_slowdown_pct, chosen.period_step()),
            scans: (chosen.silence == Silence::Scanned && !physical).then(Scans::default),
            chosen,
            physical,
            attached: BTreeMap::new(),
            ram: if physical { damon::system_ram(&roots.proc)? } else { Vec::new() },
            past_ticks: 0,
            missing: Missing::default(),
            since: now,
            drained_at: 0,
            budget_at: now + BUDGET_PAUSE,
            tend_at: now + TEND_PAUSE,
            totals: Totals::default(),
            asking_ns: 0,
            judged: false,
            news: News::default(),
            roots: roots.clone(),
            over,
        };
        perf.begin()?;
        Ok(perf)
    }

    fn begin(&mut self) -> Result<(), Error> {
        match self.over.clone() {
            // A trial on ourselves shows at once whether it is available.
            Over::Processes => {
                let ourselves = Whom::Process(std::process::id());
                let request =
                    Request { whom: &ourselves, physical: self.physical, rate: self.budget.rate(), ring_bytes: 1 };
                listeners::open(&self.roots, &mut self.chosen, &request)?;
            }
            Over::Descendants => drop(self.listen(Whom::Descendants)?),
            Over::Cgroup(dir) => self.listen_to_cgroup(dir)?,
            Over::Host => drop(self.listen(Whom::Host)?),
        }
        Ok(())
    }

    /// The chosen event, and what was granted.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// The same source, with the reason for its choice.
    #[must_use]
    pub(crate) fn because(mut self, why: String) -> Perf {
        self.chosen.why = why;
        self
    }

    /// The evidence about the event so far.
    pub fn evidence(&mut self) -> Evidence {
        self.ask();
        self.evidence_so_far()
    }

    /// The same as of the last read of the counters.
    fn evidence_so_far(&mut self) -> Evidence {
        let observed_ns = clock::monotonic_ns().saturating_sub(self.since);
        Evidence {
            observed_ns,
            // On a machine there is always something running.
            target_cpu_ns: if self.physical { observed_ns } else { self.target_ticks() * TICK_NS },
            events: self.totals.counted,
            heard: self.totals.samples,
            lost: self.totals.lost,
            ..self.demux.evidence()
        }
    }

    /// Sets where `pid` has memory, if another source has listed it.
    pub(crate) fn set_mappings(&mut self, pid: u32, mappings: &[Mapping]) {
        self.demux.set_spans(pid, mappings.iter().map(|m| m.range));
    }

    /// The current rate.
    pub fn rate(&self) -> Rate {
        self.budget.rate()
    }

    fn listen(&mut self, whom: Whom) -> Result<ListenerId, Error> {
        let rate = self.budget.rate();
        self.listeners.open(&mut self.chosen, self.physical, rate, whom)
    }

    /// The same for a cgroup. If the kernel has no perf events for cgroups, samples the host and picks the processes of
    /// the cgroup.
    fn listen_to_cgroup(&mut self, dir: PathBuf) -> Result<(), Error> {
        match self.listen(Whom::Cgroup(dir)) {
            Err(Error::Ring(error @ RingError::Cgroup { .. })) => {
                self.over = Over::Host;
                self.news.add(format!("the whole host is sampled, and the cgroup's processes are picked: {error}"));
                self.listen(Whom::Host).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// The listener that samples process `pid`; a new one if there is none yet.
    fn listener_for(&mut self, pid: u32) -> Result<ListenerId, Error> {
        if self.over == Over::Processes {
            if self.listeners.are_many() {
                self.go_to_host("sampling this many processes one by one is more expensive");
            }
            if self.over == Over::Processes {
                return self.listen(Whom::Process(pid));
            }
        }
        Ok(self.listeners.newest().unwrap_or_default())
    }

    /// From here on samples the whole host instead, if that is permitted.
    fn go_to_host(&mut self, why: &str) {
        if self.host_is_denied {
            return;
        }
        match self.listen(Whom::Host) {
            Ok(host) => {
                self.over = Over::Host;
                self.use_only(host);
                self.news.add(format!("the whole host is sampled from here on, and what is watched is picked: {why}"));
            }
            Err(_) => self.host_is_denied = true,
        }
    }

    /// From here on `listener` samples all processes; the others are closed.
    fn use_only(&mut self, listener: ListenerId) {
        for old in self.listeners.ids().into_iter().filter(|id| *id != listener) {
            self.listeners.close(old, &mut self.demux);
        }
        self.attached.keys().for_each(|pid| self.demux.moved(*pid, listener));
    }

    /// Applies a change of the rate.
    fn change_rate(&mut self, change: Change) -> Result<(), Error> {
        if self.over != Over::Descendants {
            self.listeners.set_rate(change.to)?;
            self.budget.made(change);
            return Ok(());
        }
        // Events that a process has inherited keep their initial rate.
        self.budget.made(change);
        self.go_to_host("events that a process inherits keep their initial rate");
        if self.over == Over::Descendants {
            self.go_to_each();
        }
        Ok(())
    }

    /// Gives each known process events of its own, instead of those that it has inherited.
    fn go_to_each(&mut self) {
        self.over = Over::Processes;
        for old in self.listeners.ids() {
            self.listeners.close(old, &mut self.demux);
        }
        for pid in self.attached.keys().copied().collect::<Vec<_>>() {
            match self.listener_for(pid) {
                Ok(listener) => self.demux.moved(pid, listener),
                Err(error) if error.is_gone() => {}
                Err(error) => self.news.add_once(format!("process {pid} is sampled no more: {error}")),
            }
        }
        // What is missed from here on would look like unused budget.
        self.budget.stay();
        self.news.add(
            "processes started from now on are sampled once they are detected, not from their first instruction".into(),
        );
    }

    /// Moves what is in the rings into the inbox.
    fn drain(&mut self, now: Ns) {
        if now >= self.drained_at + DRAIN_PAUSE {
            self.drained_at = now;
            self.listeners.drain(&mut self.demux);
        }
    }

    /// Periodic work. Its failures are not failures of the process that is asked about.
    fn tend(&mut self, now: Ns) {
        if now >= self.budget_at {
            self.budget_at = now + BUDGET_PAUSE;
            self.check_budget(now);
        }
        if now >= self.tend_at {
            let began = clock::thread_cpu_ns();
            self.check_listeners();
            self.judge();
            let took = clock::thread_cpu_ns() - began;
            self.tend_at = now + TEND_PAUSE.max(took * TEND_SHARE);
        }
    }

    fn check_budget(&mut self, now: Ns) {
        let Totals { samples, lost, throttles, .. } = self.listeners.drained();
        let Some(change) = self.budget.update(now, Seen { samples, lost, throttles }) else { return };
        match self.change_rate(change) {
            Ok(()) => self.news.add(format!("{}: {change}", self.chosen.names())),
            Err(error) => {
                self.news.add_once(format!("{}: the rate could not be changed: {error}", self.chosen.names()))
            }
        }
    }

    fn check_listeners(&mut self) {
        let (news, stale) = self.listeners.update();
        news.into_iter().for_each(|sentence| self.news.add(sentence));
        for old in stale {
            let Some(whom) = self.listeners.whom(old).cloned() else { continue };
            match self.listen(whom) {
                Ok(new) => {
                    self.use_only(new);
                    self.news.add("the cgroup was created again; sampling continues".into());
                }
                Err(error) => {
                    self.news.add_once(format!("the cgroup was created again and cannot be sampled: {error}"))
                }
            }
        }
        self.ask();
        let Totals { counted, samples, lost, .. } = self.totals;
        if !self.chosen.counts_what_it_drops() {
            self.missing.update(counted, self.demux.weighed(), samples, lost);
        }
    }

    /// Reads how often the events have happened.
    fn ask(&mut self) {
        let began = clock::thread_cpu_ns();
        self.totals = self.listeners.totals();
        self.asking_ns = clock::thread_cpu_ns() - began;
    }

    fn judge(&mut self) {
        if self.judged {
            return;
        }
        match self.evidence_so_far().verdict() {
            Verdict::TooEarly => {}
            Verdict::Useful => self.judged = true,
            Verdict::Useless(why) => {
                self.judged = true;
                self.news.add(format!("{} is of no use here: {why}; {}", self.chosen.names(), why.advice()));
            }
        }
    }

    fn target_ticks(&mut self) -> u64 {
        let mut sum = self.past_ticks;
        for (pid, attached) in &mut self.attached {
            attached.ticks.1 = ticks_of(&self.proc, *pid).unwrap_or(attached.ticks.1);
            sum += attached.ticks.1.saturating_sub(attached.ticks.0);
        }
        sum
    }

    fn attach_process(&mut self, pid: u32) -> Result<Attached, Error> {
        let (process, comm) = Process::find(&self.proc, pid)?;
        let listener = self.listener_for(pid)?;
        let now = clock::monotonic_ns();
        self.drain(now);
        self.demux.open(pid, listener, &self.listeners.ids(), now);
        if let Some(scans) = &mut self.scans {
            scans.open(&self.proc, pid, now);
        }
        let ticks = ticks_of(&self.proc, pid).unwrap_or(0);
        self.attached
            .insert(pid, Listening { process: Some(process), ticks: (ticks, ticks), residency: Residency::default() });
        Ok(Attached::here(process.id, comm))
    }

    fn attach_physical(&mut self, pid: u32) -> Result<Attached, Error> {
        if pid != Perf::PHYSICAL {
            let source = std::io::Error::other("physical addresses are watched as a whole; name no process");
            return Err(Error::Io { attempted: format!("watch process {pid} by physical addresses"), source });
        }
        let host = self.listeners.newest().unwrap_or_default();
        self.demux.open(pid, host, &[host], clock::monotonic_ns());
        self.attached.insert(pid, Listening { process: None, ticks: (0, 0), residency: Residency::default() });
        Ok(Attached::here(TargetId { pid, start_ticks: 0 }, "paddr".into()))
    }
}

fn ticks_of(proc: &Proc, pid: u32) -> Option<u64> {
    proc.stat(pid).ok().filter(|stat| !stat.has_ended()).map(|stat| stat.utime + stat.stime)
}
