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
mod scans;
mod verdict;

pub use budget::{Budget, Change, SAMPLE_NS, Seen, Why};
pub(crate) use events::best_of_processor;
pub use events::{Chosen, choose, cost_pct, try_out};
pub use verdict::{Evidence, Useless, Verdict};

use crate::process::Process;
use crate::resident;
use crate::{
    AccessSource, Accesses, Cleared, ClearedProcess, Description, Error, Layout, Listened, Progress, Reports, Sink,
};
use inbox::{Decoding, Inbox, ListenerId};
use isotherm_heat::{Access, Granularity, Mapping, Ns, Silence, TargetId};
use isotherm_sys::clock;
use isotherm_sys::damon;
use isotherm_sys::host::HostRoots;
use isotherm_sys::perf::named::{Kind, RawEvent};
use isotherm_sys::perf::{Rate, Record, RingError, Rings, Totals, Whom};
use isotherm_sys::proc::Proc;
use isotherm_units::{AddrRange, BlockNo};
use scans::Scans;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Rings are read no more often than this, whoever asks.
const DRAIN_PAUSE: Ns = 20_000_000;
/// Counters, budgets and processors are looked at this often, or less often where that is dear: a storm of faults fills a ring within
/// a quarter of a second.
const TEND_PAUSE: Ns = 200_000_000;
const TEND_SHARE: u64 = 50;
/// Memory for rings, all processors together, and what a ring has at least and at most.
const RINGS_BYTES: usize = 16 << 20;
const LEAST_RING: usize = 128 << 10;
const MOST_RING: usize = 4 << 20;
/// A clock tick of `/proc/PID/stat`: 100 a second on all machines.
const TICK_NS: Ns = 10_000_000;
/// Events that left no sample are called lost beyond this share: counters and rings are not read at the same moment.
const COUNT_SLACK: f64 = 0.05;

/// Who is listened to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Each process that is attached, with the threads it has and will start. Takes a descriptor for each thread and processor.
    #[default]
    Processes,
    /// Processes that we start, from their first instruction on: events that they inherit.
    Descendants,
    /// The processes of a cgroup, by its directory in the hierarchy of the perf_event controller.
    Cgroup(PathBuf),
    /// Everything, one descriptor a processor. Takes `CAP_PERFMON`.
    Host,
}

/// What to sample and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Events by name; empty for the best there is.
    pub events: Vec<String>,
    /// An event by its numbers, instead of names.
    pub raw: Option<RawEvent>,
    /// How often; `None`: as fits the event.
    pub rate: Option<Rate>,
    /// Physical addresses, of the whole machine: there is one target, [`Perf::PHYSICAL`].
    pub physical: bool,
    /// Who is listened to.
    pub over: Over,
    /// What interrupts may take of a core, in percent. Over 100: no limit.
    pub max_slowdown_pct: f64,
}

impl Default for Options {
    fn default() -> Options {
        let over = Over::default();
        Options { events: Vec::new(), raw: None, rate: None, physical: false, over, max_slowdown_pct: 1.0 }
    }
}

/// Rings, and whom they hear.
#[derive(Debug)]
struct Listener {
    id: ListenerId,
    rings: Rings,
}

/// A target that is attached.
#[derive(Clone, Copy, Debug)]
struct Attached {
    /// `None` for physical memory.
    process: Option<Process>,
    /// CPU ticks it had used when it was attached.
    ticks: u64,
}

/// The source.
#[derive(Debug)]
pub struct Perf {
    roots: HostRoots,
    proc: Proc,
    chosen: Chosen,
    physical: bool,
    over: Over,
    listeners: Vec<Listener>,
    next_listener: ListenerId,
    inbox: Inbox,
    attached: BTreeMap<u32, Attached>,
    budget: Budget,
    /// Looked at only if the kernel's scans make the event.
    scans: Option<Scans>,
    ram: Vec<AddrRange>,
    /// Of listeners that are no more.
    past: Totals,
    /// CPU ticks of targets that have ended.
    past_ticks: u64,
    missing: Missing,
    since: Ns,
    drained_at: Ns,
    tend_at: Ns,
    share: f64,
    judged: bool,
    news: Vec<String>,
}

impl Perf {
    /// The pid that stands for physical memory.
    pub const PHYSICAL: u32 = 0;

    /// Chooses an event and begins to listen, unless that is to begin with each process. Fails if it cannot be had.
    pub fn open(options: &Options) -> Result<Perf, Error> {
        Perf::open_at(&HostRoots::default(), options)
    }

    /// The same with the kernel's files elsewhere.
    pub fn open_at(roots: &HostRoots, options: &Options) -> Result<Perf, Error> {
        let physical = options.physical || options.raw.is_some_and(|raw| raw.physical);
        let chosen = choose(roots, options, physical)?;
        let over = if physical { Over::Host } else { options.over.clone() };
        let now = clock::monotonic_ns();
        let mut perf = Perf {
            proc: Proc::at(&roots.proc),
            inbox: Inbox::new(Decoding { ibs: chosen.kind == Kind::Ibs, physical }),
            budget: Budget::new(now, chosen.rate, options.max_slowdown_pct),
            scans: (chosen.silence == Silence::Scanned && !physical).then(Scans::default),
            chosen,
            physical,
            listeners: Vec::new(),
            next_listener: 0,
            attached: BTreeMap::new(),
            ram: if physical { damon::system_ram(&roots.proc)? } else { Vec::new() },
            past: Totals::default(),
            past_ticks: 0,
            missing: Missing::default(),
            since: now,
            drained_at: 0,
            tend_at: now + TEND_PAUSE,
            share: 1.0,
            judged: false,
            news: Vec::new(),
            roots: roots.clone(),
            over,
        };
        match perf.over.clone() {
            // Whether it may be had at all is told at once, by trying it on ourselves.
            Over::Processes => drop(perf.rings(&Whom::Process(std::process::id()), LEAST_RING)?),
            Over::Descendants => perf.listen(&Whom::Descendants)?,
            Over::Cgroup(dir) => perf.listen_to_cgroup(dir)?,
            Over::Host => perf.listen(&Whom::Host)?,
        }
        Ok(perf)
    }

    /// What was chosen, and how it turned out.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// What is known of the event's use so far.
    pub fn evidence(&self) -> Evidence {
        let totals = self.totals();
        Evidence {
            listened_ns: clock::monotonic_ns().saturating_sub(self.since),
            target_cpu_ns: self.target_ticks() * TICK_NS,
            events: totals.counted,
            lost: totals.lost,
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

    fn rings(&mut self, whom: &Whom, bytes: usize) -> Result<Rings, Error> {
        let open = |chosen: &Chosen| {
            let parts = chosen.parts(self.physical, self.budget.rate());
            Rings::open(&self.roots.sys, &parts, whom, bytes)
        };
        let rings = match open(&self.chosen) {
            Err(RingError::Denied { .. }) if self.chosen.kind == Kind::Faults && !self.chosen.user_faults_only => {
                self.chosen.user_faults_only = true;
                open(&self.chosen)?
            }
            other => other?,
        };
        self.chosen.precise = Some(rings.precise());
        Ok(rings)
    }

    /// Adds a listener, the last of the list from here on.
    fn listen(&mut self, whom: &Whom) -> Result<(), Error> {
        let rings = self.rings(whom, ring_bytes(&self.roots))?;
        self.listeners.push(Listener { id: self.next_listener, rings });
        self.next_listener += 1;
        Ok(())
    }

    /// The same for a cgroup; where the kernel has no perf events of cgroups, for the host, of which the cgroup's processes are picked.
    fn listen_to_cgroup(&mut self, dir: PathBuf) -> Result<(), Error> {
        match self.listen(&Whom::Cgroup(dir)) {
            Err(Error::Ring(error @ RingError::Cgroup { .. })) => {
                self.over = Over::Host;
                self.news.push(format!("the whole host is sampled, and the cgroup's processes are picked: {error}"));
                self.listen(&Whom::Host)
            }
            other => other,
        }
    }

    /// Drops the listener at that place; what it has counted is kept.
    fn unlisten(&mut self, at: usize) {
        let ended = self.listeners.remove(at);
        self.past = self.past + ended.rings.totals();
    }

    /// The listener that hears process `pid`; a new one if there is none yet.
    fn listener_for(&mut self, pid: u32) -> Result<ListenerId, Error> {
        if self.over != Over::Processes {
            return Ok(0);
        }
        self.listen(&Whom::Process(pid))?;
        Ok(self.next_listener - 1)
    }

    /// Samples at another rate from now on.
    ///
    /// Events that a process has inherited keep the rate of its beginning. So when the rate of what we start is to change, each
    /// process that is known gets events of its own instead; one that is started later is listened to when it is noticed.
    fn change_rate(&mut self, rate: Rate) -> Result<(), Error> {
        if self.over != Over::Descendants {
            return Ok(self.listeners.iter_mut().try_for_each(|listener| listener.rings.set_rate(rate))?);
        }
        self.over = Over::Processes;
        self.drained_at = 0;
        self.drain(clock::monotonic_ns());
        self.unlisten(0);
        for pid in self.attached.keys().copied().collect::<Vec<_>>() {
            match self.listener_for(pid) {
                Ok(listener) => self.inbox.moved(pid, listener),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        self.news.push(
            "what the first processes start is listened to from when it is noticed, not from its beginning".into(),
        );
        Ok(())
    }

    /// Moves what is in the rings into the inbox.
    fn drain(&mut self, now: Ns) {
        if now < self.drained_at + DRAIN_PAUSE {
            return;
        }
        self.drained_at = now;
        let inbox = &mut self.inbox;
        for listener in &mut self.listeners {
            listener.rings.drain(|record| {
                if let Record::Sample(sample) = record {
                    inbox.take(listener.id, &sample);
                }
            });
        }
    }

    /// What is done now and then: processors and threads that came or went, losses, the budget, the verdict.
    fn tend(&mut self, now: Ns) -> Result<(), Error> {
        if now < self.tend_at {
            return Ok(());
        }
        let began = clock::thread_cpu_ns();
        self.refit_rings()?;
        let totals = self.totals();
        self.share = running_share(&totals);
        self.missing.look(totals.counted, self.inbox.weighed(), totals.samples, totals.lost);
        let seen = Seen { samples: totals.samples, lost: totals.lost, throttles: totals.throttles };
        if let Some(change) = self.budget.look(now, seen) {
            self.news.push(format!("{}: {change}", self.chosen.names()));
            self.change_rate(change.to)?;
        }
        self.judge();
        let took = clock::thread_cpu_ns() - began;
        self.tend_at = now + TEND_PAUSE.max(took * TEND_SHARE);
        Ok(())
    }

    fn refit_rings(&mut self) -> Result<(), Error> {
        for listener in &mut self.listeners {
            let refit = listener.rings.refit()?;
            for (cpus, what) in [(&refit.cpus_went, "went offline"), (&refit.cpus_came, "came online")] {
                self.news.extend(cpus.iter().map(|cpu| format!("processor {cpu} {what}")));
            }
        }
        Ok(())
    }

    fn judge(&mut self) {
        if self.judged {
            return;
        }
        match self.evidence().verdict() {
            Verdict::TooEarly => {}
            Verdict::Useful => self.judged = true,
            Verdict::Useless(why) => {
                self.judged = true;
                self.news.push(format!("{} is of no use here: {why}; {}", self.chosen.names(), why.advice()));
            }
        }
    }

    fn totals(&self) -> Totals {
        self.listeners.iter().fold(self.past, |sum, listener| sum + listener.rings.totals())
    }

    fn target_ticks(&self) -> u64 {
        let used = |(pid, attached): (&u32, &Attached)| {
            let now = self.proc.stat(*pid).map_or(attached.ticks, |stat| stat.utime + stat.stime);
            now.saturating_sub(attached.ticks)
        };
        self.past_ticks + self.attached.iter().map(used).sum::<u64>()
    }

    fn attach_physical(&mut self, pid: u32) -> Result<(TargetId, String), Error> {
        if pid != Perf::PHYSICAL {
            let source = std::io::Error::other("it watches physical memory as a whole; take --source perf");
            return Err(Error::Io { attempted: format!("watch process {pid} by physical addresses"), source });
        }
        self.inbox.open(pid, 0, clock::monotonic_ns());
        self.attached.insert(pid, Attached { process: None, ticks: 0 });
        Ok((TargetId { pid, start_ticks: 0 }, "paddr".into()))
    }
}

/// Events that happened and left no sample behind, nor a word that it was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Missing {
    samples: u64,
    counted: u64,
}

impl Missing {
    /// Takes in counters: of events, of those that samples stand for, of samples, of samples told to be lost. What was counted the
    /// last time has to be among the samples by now.
    fn look(&mut self, counted: u64, weighed: u64, samples: u64, lost: u64) {
        let before = std::mem::replace(&mut self.counted, counted) as f64;
        let each = (weighed as f64 / samples.max(1) as f64).max(1.0);
        let unheard = before - weighed as f64 - lost as f64 * each;
        if samples > 0 && unheard > before * COUNT_SLACK {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "positive, as it is above a share"
            )]
            let missing = (unheard / each) as u64;
            self.samples = self.samples.max(missing);
        }
    }
}

/// For which share of the time the event was really on: a processor that has too few counters takes turns.
fn running_share(totals: &Totals) -> f64 {
    if totals.enabled_ns == 0 { 1.0 } else { (totals.running_ns as f64 / totals.enabled_ns as f64).min(1.0) }
}

fn ring_bytes(roots: &HostRoots) -> usize {
    let cpus = isotherm_sys::host::cpus_online(&roots.sys).unwrap_or(1);
    (RINGS_BYTES / cpus.max(1) as usize).clamp(LEAST_RING, MOST_RING)
}

impl AccessSource for Perf {
    fn describe(&self) -> Description {
        let (name, what) =
            if self.physical { ("perf-paddr", "physical addresses of the whole machine; ") } else { ("perf", "") };
        let over = match &self.over {
            Over::Processes => "each process on its own",
            Over::Descendants => "what we start, from its beginning",
            Over::Cgroup(_) => "the cgroup as a whole",
            Over::Host => "one ring a processor for the whole host",
        };
        let silence = match self.chosen.silence {
            Silence::Scanned => {
                "nothing is told hotter than the kernel scans for hint faults, once in a second to a minute"
            }
            Silence::Cold => "what was not sampled is known to be cold only as far as samples reach",
            Silence::Unknown => "first touches only: nothing is told of memory that is there already",
        };
        Description {
            name,
            granularity: Granularity::Region,
            accesses: Accesses::Only(self.chosen.silence),
            note: format!("sampled accesses: {}; {what}{over}; {silence}", self.chosen),
        }
    }

    fn attach(&mut self, pid: u32) -> Result<(TargetId, String), Error> {
        if self.physical {
            return self.attach_physical(pid);
        }
        let (process, comm) = Process::find(&self.proc, pid)?;
        let listener = self.listener_for(pid)?;
        let now = clock::monotonic_ns();
        self.drain(now);
        self.inbox.open(pid, listener, now);
        if let Some(scans) = &mut self.scans {
            scans.open(&self.proc, pid, now);
        }
        let ticks = self.proc.stat(pid).map_or(0, |stat| stat.utime + stat.stime);
        self.attached.insert(pid, Attached { process: Some(process), ticks });
        Ok((process.id, comm))
    }

    fn detach(&mut self, pid: u32) {
        if let Some(attached) = self.attached.remove(&pid) {
            let last = self.proc.stat(pid).map_or(0, |stat| stat.utime + stat.stime);
            self.past_ticks += last.saturating_sub(attached.ticks);
        }
        if let Some(scans) = &mut self.scans {
            scans.close(pid);
        }
        let Some(listener) = self.inbox.close(pid) else { return };
        if self.over == Over::Processes && !self.inbox.is_heard(listener) {
            let Some(at) = self.listeners.iter().position(|l| l.id == listener) else { return };
            self.unlisten(at);
        }
    }

    fn layout(&mut self, pid: u32) -> Result<Layout, Error> {
        let attached = self.attached.get(&pid).ok_or(Error::Gone(pid))?;
        let (mappings, resident) = match &attached.process {
            None => resident::of_ram(&self.ram),
            Some(process) => {
                process.check(&self.proc)?;
                resident::of_process(&self.proc, pid)?
            }
        };
        self.set_mappings(pid, &mappings);
        Ok(Layout { blocks: Vec::new(), mappings, resident })
    }

    /// Nothing: there are no bits here.
    fn read(&mut self, _: u32, _: &[BlockNo], _: &mut Sink<'_>) -> Result<Progress, Error> {
        Ok(Progress::default())
    }

    fn clear(&mut self, _: u32, _: &[BlockNo], _: &mut dyn FnMut(Ns, BlockNo, Cleared)) -> Result<Progress, Error> {
        Ok(Progress::default())
    }

    fn clear_process(&mut self, _: u32, _: &[BlockNo], _: &[BlockNo]) -> Result<ClearedProcess, Error> {
        Ok(ClearedProcess { at: clock::monotonic_ns(), stall_ns: 0, flushed: false, blocks: Vec::new() })
    }

    fn accesses(&mut self, pid: u32, sink: &mut dyn FnMut(Access)) -> Result<Listened, Error> {
        let now = clock::monotonic_ns();
        self.tend(now)?;
        self.drain(now);
        self.inbox.hand_over(pid, now, sink);
        let until = match &mut self.scans {
            Some(scans) => {
                scans.look(&self.proc, now);
                scans.heard_until(pid, now)
            }
            None => now,
        };
        let weight = match self.budget.rate() {
            Rate::Period(n) => u32::try_from(n).ok(),
            Rate::Frequency(_) => None,
        };
        Ok(Listened { until, share: self.share, weight })
    }

    fn reports(&self) -> Reports {
        let totals = self.totals();
        Reports {
            samples: totals.samples,
            lost: totals.lost + self.missing.samples + self.inbox.dropped(),
            events: totals.counted,
        }
    }

    fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_without_a_sample_are_missing() {
        let mut missing = Missing::default();
        missing.look(1000, 0, 0, 0);
        missing.look(1000, 1000, 100, 0);
        assert_eq!(missing.samples, 0, "what was counted first is heard later");
        // 1000 more events of ten a sample: half came, a fifth was told to be lost.
        missing.look(2000, 1500, 150, 20);
        missing.look(2000, 1500, 150, 20);
        assert_eq!(missing.samples, 30);
        missing.look(4000, 3460, 346, 20);
        missing.look(4000, 3460, 346, 20);
        assert_eq!(missing.samples, 34, "of all so far");
        let mut missing = Missing { samples: 0, counted: 1000 };
        missing.look(1000, 960, 96, 0);
        assert_eq!(missing.samples, 0, "4% is no more than other processors' counters make");
    }

    #[test]
    fn an_event_that_takes_turns_is_on_for_its_share() {
        let totals = |enabled_ns, running_ns| Totals { enabled_ns, running_ns, ..Totals::default() };
        assert_eq!(running_share(&totals(0, 0)), 1.0);
        assert_eq!(running_share(&totals(1000, 250)), 0.25);
        assert_eq!(running_share(&totals(1000, 1001)), 1.0);
    }
}
