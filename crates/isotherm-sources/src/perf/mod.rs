//! Accesses as the kernel reports them: samples of perf events, with addresses.
//!
//! A processor that samples memory accesses (Intel PEBS, AMD IBS) tells of one in so many as it happens; where there is none, page faults
//! tell of first touches, and on machines with several nodes NUMA hint faults tell of accesses again and again. What that costs
//! follows the samples taken and not the size of memory. [`isotherm_sys::perf`] opens events and reads rings, [`isotherm_heat`] makes
//! heat of what is reported; here is what lies between: which event, who is listened to, how often, and whether it is of any use.
//!
//! What is lost, compared with page tables: what is seldom accessed is not told from what is never, and accesses that hardware
//! prefetches for are not seen at all. What is gained: how hot the hottest pages are, which an accessed bit cannot tell, and no
//! accessed bit is cleared. [`crate::fused`] puts the two together.
//!
//! ```text
//!  rings of each listener ──> inbox (by process) ──> monitor
//!        ^    └── counts ──> budget (how often), verdict (of what use) ──> news for people
//!        └───────────────────────┘
//! ```

mod budget;
mod events;
mod inbox;
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
use inbox::{Decoding, Inbox, ListenerId};
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

/// Rings are read no more often than this, whoever asks.
const DRAIN_PAUSE: Ns = 20_000_000;
/// The budget is looked at this often: a storm of faults fills a ring within a quarter of a second.
const BUDGET_PAUSE: Ns = 200_000_000;
/// Counters, processors, threads and the use of it all are looked at this often, or less often where that is dear.
const TEND_PAUSE: Ns = 1_000_000_000;
const TEND_SHARE: u64 = 200;
/// A clock tick of `/proc/PID/stat`: 100 a second on all machines.
const TICK_NS: Ns = 10_000_000;

/// A target that is attached.
#[derive(Clone, Copy, Debug)]
struct Listening {
    /// `None` for physical memory.
    process: Option<Process>,
    /// CPU ticks it had used when it was attached, and when it was last looked at.
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
    /// Was tried in vain.
    host_is_denied: bool,
    inbox: Inbox,
    attached: BTreeMap<u32, Listening>,
    budget: Budget,
    /// Looked at only if the kernel's scans make the event.
    scans: Option<Scans>,
    ram: Vec<AddrRange>,
    /// CPU ticks of targets that have ended.
    past_ticks: u64,
    missing: Missing,
    since: Ns,
    drained_at: Ns,
    budget_at: Ns,
    tend_at: Ns,
    /// As of the last time that the events were asked, and what asking took.
    totals: Totals,
    asking_ns: Ns,
    judged: bool,
    news: News,
}

impl Perf {
    /// The pid that stands for physical memory.
    pub const PHYSICAL: u32 = options::PHYSICAL_PID;

    /// Chooses an event and begins to listen, unless that is to begin with each process. Fails if it cannot be had.
    pub fn open(options: &Options) -> Result<Perf, Error> {
        Perf::open_at(&HostRoots::default(), options)
    }

    /// The same with the kernel's files elsewhere.
    pub fn open_at(roots: &HostRoots, options: &Options) -> Result<Perf, Error> {
        Perf::open_chosen(roots, options, choose(roots, options, options.is_physical())?)
    }

    /// The same with what was chosen already.
    pub(crate) fn open_chosen(roots: &HostRoots, options: &Options, chosen: Chosen) -> Result<Perf, Error> {
        let physical = options.is_physical();
        let over = if physical { Over::Host } else { options.over.clone() };
        let now = clock::monotonic_ns();
        let mut perf = Perf {
            proc: Proc::at(&roots.proc),
            listeners: Listeners::new(roots),
            host_is_denied: false,
            inbox: Inbox::new(Decoding { ibs: chosen.kind == Kind::Ibs, physical }),
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
            // Whether it may be had at all is told at once, by trying it on ourselves.
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

    /// What was chosen, and how it turned out.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// The same source, with the reason why it is this one.
    #[must_use]
    pub(crate) fn because(mut self, why: String) -> Perf {
        self.chosen.why = why;
        self
    }

    /// What is known of the event's use so far.
    pub fn evidence(&mut self) -> Evidence {
        self.ask();
        self.evidence_so_far()
    }

    /// The same as of the last time that the events were asked.
    fn evidence_so_far(&mut self) -> Evidence {
        let listened_ns = clock::monotonic_ns().saturating_sub(self.since);
        Evidence {
            listened_ns,
            // A machine is never all asleep.
            target_cpu_ns: if self.physical { listened_ns } else { self.target_ticks() * TICK_NS },
            events: self.totals.counted,
            heard: self.totals.samples,
            lost: self.totals.lost,
            ..self.inbox.evidence()
        }
    }

    /// Takes in where `pid` has memory, when somebody else has listed it.
    pub(crate) fn set_mappings(&mut self, pid: u32, mappings: &[Mapping]) {
        self.inbox.set_spans(pid, mappings.iter().map(|m| m.range));
    }

    /// How often it is sampled now.
    pub fn rate(&self) -> Rate {
        self.budget.rate()
    }

    fn listen(&mut self, whom: Whom) -> Result<ListenerId, Error> {
        let rate = self.budget.rate();
        self.listeners.open(&mut self.chosen, self.physical, rate, whom)
    }

    /// The same for a cgroup; where the kernel has no perf events of cgroups, for the host, of which the cgroup's processes are picked.
    fn listen_to_cgroup(&mut self, dir: PathBuf) -> Result<(), Error> {
        match self.listen(Whom::Cgroup(dir)) {
            Err(Error::Ring(error @ RingError::Cgroup { .. })) => {
                self.over = Over::Host;
                self.news.tell(format!("the whole host is sampled, and the cgroup's processes are picked: {error}"));
                self.listen(Whom::Host).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// The listener that hears process `pid`; a new one if there is none yet.
    fn listener_for(&mut self, pid: u32) -> Result<ListenerId, Error> {
        if self.over == Over::Processes {
            if self.listeners.are_many() {
                self.go_to_host("so many processes are dearer to listen to one by one");
            }
            if self.over == Over::Processes {
                return self.listen(Whom::Process(pid));
            }
        }
        Ok(self.listeners.newest().unwrap_or_default())
    }

    /// Listens to the whole host from here on, if we may, instead of what was listened to.
    fn go_to_host(&mut self, why: &str) {
        if self.host_is_denied {
            return;
        }
        match self.listen(Whom::Host) {
            Ok(host) => {
                self.over = Over::Host;
                self.hear_only(host);
                self.news.tell(format!("the whole host is sampled from here on, and what is watched is picked: {why}"));
            }
            Err(_) => self.host_is_denied = true,
        }
    }

    /// All processes are heard by `listener` from here on; the others are closed.
    fn hear_only(&mut self, listener: ListenerId) {
        for old in self.listeners.ids().into_iter().filter(|id| *id != listener) {
            self.listeners.close(old, &mut self.inbox);
        }
        self.attached.keys().for_each(|pid| self.inbox.moved(*pid, listener));
    }

    /// Samples as was decided, from now on.
    fn change_rate(&mut self, change: Change) -> Result<(), Error> {
        if self.over != Over::Descendants {
            self.listeners.set_rate(change.to)?;
            self.budget.made(change);
            return Ok(());
        }
        // Events that a process has inherited keep the rate of its beginning.
        self.budget.made(change);
        self.go_to_host("what a process inherits keeps the rate of its beginning");
        if self.over == Over::Descendants {
            self.go_to_each();
        }
        Ok(())
    }

    /// Each process that is known gets events of its own, instead of those that it has inherited.
    fn go_to_each(&mut self) {
        self.over = Over::Processes;
        for old in self.listeners.ids() {
            self.listeners.close(old, &mut self.inbox);
        }
        for pid in self.attached.keys().copied().collect::<Vec<_>>() {
            match self.listener_for(pid) {
                Ok(listener) => self.inbox.moved(pid, listener),
                Err(error) if error.is_gone() => {}
                Err(error) => self.news.tell_once(format!("process {pid} is sampled no more: {error}")),
            }
        }
        // What is missed from here on would look like room.
        self.budget.stay();
        self.news.tell("processes that are started from here on are sampled from when they are noticed".into());
    }

    /// Moves what is in the rings into the inbox.
    fn drain(&mut self, now: Ns) {
        if now >= self.drained_at + DRAIN_PAUSE {
            self.drained_at = now;
            self.listeners.drain(&mut self.inbox);
        }
    }

    /// What has to be done now and then. Nothing that goes wrong with it is the fault of the process that is asked about.
    fn tend(&mut self, now: Ns) {
        if now >= self.budget_at {
            self.budget_at = now + BUDGET_PAUSE;
            self.look_at_budget(now);
        }
        if now >= self.tend_at {
            let began = clock::thread_cpu_ns();
            self.look_at_listeners();
            self.judge();
            let took = clock::thread_cpu_ns() - began;
            self.tend_at = now + TEND_PAUSE.max(took * TEND_SHARE);
        }
    }

    fn look_at_budget(&mut self, now: Ns) {
        let Totals { samples, lost, throttles, .. } = self.listeners.drained();
        let Some(change) = self.budget.look(now, Seen { samples, lost, throttles }) else { return };
        match self.change_rate(change) {
            Ok(()) => self.news.tell(format!("{}: {change}", self.chosen.names())),
            Err(error) => {
                self.news.tell_once(format!("{}: the rate could not be changed: {error}", self.chosen.names()))
            }
        }
    }

    fn look_at_listeners(&mut self) {
        let (news, stale) = self.listeners.look();
        news.into_iter().for_each(|sentence| self.news.tell(sentence));
        for old in stale {
            let Some(whom) = self.listeners.whom(old).cloned() else { continue };
            match self.listen(whom) {
                Ok(new) => {
                    self.hear_only(new);
                    self.news.tell("the cgroup was made anew, and is listened to again".into());
                }
                Err(error) => {
                    self.news.tell_once(format!("the cgroup was made anew and cannot be listened to: {error}"))
                }
            }
        }
        self.ask();
        let Totals { counted, samples, lost, .. } = self.totals;
        self.missing.look(counted, self.inbox.weighed(), samples, lost);
    }

    /// Asks the events how often they have happened.
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
                self.news.tell(format!("{} is of no use here: {why}; {}", self.chosen.names(), why.advice()));
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
        self.inbox.open(pid, listener, &self.listeners.ids(), now);
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
        self.inbox.open(pid, host, &[host], clock::monotonic_ns());
        self.attached.insert(pid, Listening { process: None, ticks: (0, 0), residency: Residency::default() });
        Ok(Attached::here(TargetId { pid, start_ticks: 0 }, "paddr".into()))
    }
}

fn ticks_of(proc: &Proc, pid: u32) -> Option<u64> {
    proc.stat(pid).ok().filter(|stat| !stat.has_ended()).map(|stat| stat.utime + stat.stime)
}
