//! One ring per CPU, for a process, a cgroup or the whole host.
//!
//! ```text
//!   CPU 0                             CPU 1
//!   owner ── ring                     owner ── ring          owner: an event that never happens
//!     ▲ ▲ ▲                             ▲ ▲ ▲
//!     │ │ └─ part 2, thread 8           │ │ └─ ...           written to that ring with PERF_EVENT_IOC_SET_OUTPUT
//!     │ └─── part 1, thread 7           │ └─── ...
//!     └───── part 1, thread 8           └───── ...
//! ```
//!
//! The host and a cgroup take one event for each part and CPU. A process takes one for each part, CPU and thread: the
//! kernel allows no ring for an event of a thread on all CPUs, since all its inherited copies would write to that ring.
//! The ring belongs to an event of our own, so that sampled events can be closed and opened again without losing what
//! they have written.
//!
//! [`following`] follows the threads of a process, so that none is missed and none is sampled twice. [`threads`] holds
//! their state. [`sideband`] records thread starts while their events are opened.
//!
//! [`super::Ring`] is the same for one event; [`super::mapping`] holds the memory of a ring.

mod following;
mod plan;
mod sideband;
#[cfg(test)]
mod tests;
mod threads;

use super::attr::{self, Of, Reading};
use super::error::{self, RingError};
use super::event::Event;
use super::mapping::{Mapping, data_len, page_size};
use super::record::{Raw, Raws, Record, Tally};
use super::ring::fill_in;
use super::sampling::{self, Part, Rate, Whom};
use crate::{cpus, descriptors};
use plan::{Opened, Plan, Refused, Seat};
use sideband::SidebandEvents;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use threads::Followed;

/// If less may be locked in memory than was asked for, a ring is halved down to this.
const MIN_PAGES: usize = 8;
/// Totals so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How often the events have happened, by the kernel's own count.
    pub counted: u64,
    /// Time enabled, in nanoseconds, summed over CPUs; of threads, only the time they ran.
    pub enabled_ns: u64,
    /// Time counted. It is less if the events were multiplexed with others.
    pub running_ns: u64,
    /// Samples drained.
    pub samples: u64,
    /// Samples that had no room, as far as reported. The kernel reports losses with the next sample that has room.
    pub lost: u64,
    /// How often samples came too fast and were throttled.
    pub throttles: u64,
    /// Records that could not be understood.
    pub malformed: u64,
}

impl std::ops::Add for Totals {
    type Output = Totals;

    fn add(self, other: Totals) -> Totals {
        Totals {
            counted: self.counted + other.counted,
            enabled_ns: self.enabled_ns + other.enabled_ns,
            running_ns: self.running_ns + other.running_ns,
            samples: self.samples + other.samples,
            lost: self.lost + other.lost,
            throttles: self.throttles + other.throttles,
            malformed: self.malformed + other.malformed,
        }
    }
}

/// What [`Rings::refit`] has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refit {
    /// CPUs that are sampled now and were not before.
    pub cpus_came: Vec<u32>,
    /// CPUs that were sampled and are not any more.
    pub cpus_went: Vec<u32>,
    /// Threads that had come without being sampled, and are sampled now.
    pub threads_came: usize,
    /// The process has ended: there is nothing left to sample.
    pub ended: bool,
}

impl Refit {
    /// Whether nothing has changed.
    pub fn is_none(&self) -> bool {
        *self == Refit::default()
    }
}

/// A CPU's ring, and what is written to it. Fields are dropped in order: first the memory, then its owner.
#[derive(Debug)]
struct Slot {
    cpu: u32,
    mapping: Mapping,
    owner: OwnedFd,
    events: Vec<Opened>,
    /// As of the last check, see [`Rings::is_dead`].
    enabled_ns: u64,
}

/// Samples of some events on all CPUs. Sampling starts when it is opened and ends when it is dropped.
#[derive(Debug)]
pub struct Rings {
    sys: PathBuf,
    plan: Plan,
    /// By CPU.
    slots: Vec<Slot>,
    ring_bytes: usize,
    process: Option<Followed>,
    /// Records taken out of the rings early, for the next drain; with the period that was in force.
    backlog: Vec<u8>,
    backlog_period: Option<u64>,
    scratch: Vec<u8>,
    tally: Tally,
    /// Counts of descriptors that are closed.
    closed: Reading,
}

impl Rings {
    /// Opens all `parts` on all CPUs that have them, as listed in `sys` (`/sys`). They share the rings. Each ring has
    /// at least `bytes_each` bytes, rounded up to a power of two of pages, or as much as may be locked in memory. All
    /// parts need the same fields.
    ///
    /// The CPUs of a host or cgroup start together, the threads of a process one by one. May raise the limit on open
    /// descriptors to the highest that this process is allowed.
    pub fn open(sys: &Path, parts: &[Part], whom: &Whom, bytes_each: usize) -> Result<Rings, RingError> {
        let plan = Plan::new(parts, whom)?;
        let process = match whom {
            Whom::Process(pid) => Some(Followed::of(*pid, || RingError::Gone { event: plan.event() })?),
            Whom::Host | Whom::Cgroup(_) | Whom::Descendants => None,
        };
        let cpus: Vec<u32> = online(sys)?.into_iter().filter(|cpu| !plan.parts_on(*cpu).is_empty()).collect();
        if cpus.is_empty() {
            let what = "none of its processors is online";
            return Err(RingError::Unfit { event: plan.event(), what });
        }
        // The rings have to leave room for a witness. If it has none even without them, the rings will report that.
        let room = process.is_some().then(SidebandEvents::own);
        let (slots, ring_bytes) = slots(&plan, &cpus, data_len(bytes_each, page_size()))?;
        drop(room);
        let mut rings = Rings {
            sys: sys.to_owned(),
            plan,
            slots,
            ring_bytes,
            process,
            backlog: Vec::new(),
            backlog_period: None,
            scratch: Vec::new(),
            tally: Tally::default(),
            closed: Reading::default(),
        };
        rings.start()?;
        Ok(rings)
    }

    /// Passes all records of all rings to `each`, ring by ring: in order of time within a CPU, but not between CPUs.
    pub fn drain(&mut self, mut each: impl FnMut(Record<'_>)) {
        let Rings { plan, slots, process, backlog, backlog_period, scratch, tally, .. } = self;
        let mut one = |raw: Raw<'_>, period: Option<u64>| {
            let mut record = raw.record(plan.fields);
            tally.count(&record);
            fill_in(&mut record, period);
            each(record);
        };
        // Thread starts in the backlog were handled when it was taken out, and may be out of date.
        Raws::new(backlog).for_each(|raw| one(raw, *backlog_period));
        // A backlog can be as long as all rings together. Its memory is not kept.
        *backlog = Vec::new();
        for slot in slots {
            slot.mapping.drain(scratch, |raw| {
                if let Some(followed) = process {
                    followed.record_start(raw);
                }
                one(raw, plan.period);
            });
        }
    }

    /// What came out of the rings so far: the part of [`Rings::totals`] that reads no descriptor. Costs nothing.
    pub fn drained(&self) -> Totals {
        let Tally { samples, lost, throttles, malformed } = self.tally;
        Totals { samples, lost, throttles, malformed, ..Totals::default() }
    }

    /// Totals so far. Reads every descriptor, which takes a while for a process of many threads.
    pub fn totals(&self) -> Totals {
        let share = self.share();
        let open = self.slots.iter().flat_map(|slot| &slot.events).filter_map(|opened| read(opened, share));
        let Reading { value, enabled_ns, running_ns } = open.fold(self.closed, add);
        // For a thread that has ended, the time on CPUs other than its last may be missing.
        let enabled_ns = enabled_ns.max(running_ns);
        Totals { counted: value, enabled_ns, running_ns, ..self.drained() }
    }

    /// Changes how often all parts are sampled. A period stays a period and a frequency a frequency.
    ///
    /// Threads that have inherited an event keep the rate of the moment they were started. If a process has had any,
    /// all its events are closed and opened again. Samples are missed for a moment, which is longer with more threads
    /// and CPUs. After an error in this step only a part is sampled: open it anew.
    pub fn set_rate(&mut self, rate: Rate) -> Result<(), RingError> {
        let period = self.plan.at_rate(rate)?;
        if let Some(error) = error::too_frequent(self.plan.event(), rate) {
            return Err(error);
        }
        // The contents of the rings were sampled at the old rate.
        self.gather();
        if let Some(pid) = self.heirs() {
            self.plan.set_rate(rate, period);
            let share = self.share();
            self.slots.iter_mut().for_each(|slot| slot.close(share, &mut self.closed));
            return self.follow(pid);
        }
        let number = rate.number_for_open(self.plan.event());
        for opened in self.slots.iter().flat_map(|slot| &slot.events) {
            attr::set_period(opened.event.as_fd(), number)
                .map_err(|e| RingError::from_io(self.plan.event(), rate, e))?;
        }
        self.plan.set_rate(rate, period);
        Ok(())
    }

    /// Follows CPUs that came or went, and threads that came without inheriting. Returns what has changed. Call it
    /// about once a second. What was left in the ring of a CPU that went comes with the next [`Rings::drain`].
    pub fn refit(&mut self) -> Result<Refit, RingError> {
        let mut refit = Refit::default();
        let online = online(&self.sys)?;
        for at in (0..self.slots.len()).rev() {
            if !online.contains(&self.slots[at].cpu) || self.is_dead(at) {
                refit.cpus_went.insert(0, self.remove(at));
            }
        }
        let (listed, ended) = self.listed_again();
        refit.ended = ended;
        for cpu in online {
            let is_new = !self.slots.iter().any(|slot| slot.cpu == cpu) && !self.plan.parts_on(cpu).is_empty();
            if is_new && !refit.ended && self.add(cpu, &listed)? {
                refit.cpus_came.push(cpu);
            }
        }
        refit.threads_came = self.catch_up(&listed)?;
        Ok(refit)
    }

    /// The precision that the event sources accept (`precise_ip`): the minimum over all parts.
    pub fn precise(&self) -> u8 {
        self.plan.precise()
    }

    /// Bytes of each ring: what was asked for, rounded up, or as much as was possible.
    pub fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// CPUs that are sampled.
    pub fn cpus(&self) -> usize {
        self.slots.len()
    }

    /// Threads of the process that are sampled, as of the last check; 0 for a host or cgroup.
    pub fn threads(&self) -> usize {
        self.process.as_ref().map_or(0, |followed| followed.len())
    }

    /// Opens everything for the first time.
    fn start(&mut self) -> Result<(), RingError> {
        if let Some(followed) = &self.process {
            return self.follow(followed.id.pid);
        }
        for at in (0..self.slots.len()).rev() {
            if let Err(refused) = self.open_on(at, None) {
                self.unless_offline(at, refused)?;
                self.slots.remove(at);
            }
        }
        let event = self.plan.event();
        self.slots.iter().try_for_each(|slot| slot.enable(event)).map_err(|refused| self.plan.error(refused))
    }

    /// Opens all parts that a CPU has, to be written to its ring.
    fn open_on(&mut self, at: usize, tid: Option<u32>) -> Result<(), Refused> {
        let slot = &mut self.slots[at];
        // One of them is enough to report thread starts.
        let mut seat = Seat { cpu: slot.cpu, tid, reports_starts: tid.is_some() };
        for part in self.plan.parts_on(slot.cpu) {
            let opened = self.plan.open(part, seat)?;
            seat.reports_starts = false;
            attr::set_output(opened.event.as_fd(), slot.owner.as_fd())
                .map_err(|source| Refused { event: self.plan.event(), source })?;
            slot.events.push(opened);
        }
        Ok(())
    }

    /// `Ok` if the cause is a CPU that has just gone offline, which is normal.
    fn unless_offline(&self, at: usize, refused: Refused) -> Result<(), RingError> {
        if refused.is(libc::ENODEV) && !online(&self.sys)?.contains(&self.slots[at].cpu) {
            return Ok(());
        }
        Err(self.error(refused, self.threads().max(1)))
    }

    fn error(&self, refused: Refused, threads: usize) -> RingError {
        if !refused.is(libc::EMFILE) && !refused.is(libc::ENFILE) {
            return self.plan.error(refused);
        }
        let on_all: usize = self.slots.iter().map(|slot| self.plan.descriptors_on(slot.cpu)).sum();
        RingError::Descriptors {
            event: refused.event,
            threads,
            cpus: self.slots.len(),
            needed: threads * on_all + self.slots.len(),
            limit: descriptors::limit(),
        }
    }

    /// A thread has an event on each CPU, and the time of all of them advances wherever it runs.
    fn share(&self) -> u64 {
        let of_threads = self.process.is_some() || self.plan.whom == Whom::Descendants;
        if of_threads { self.slots.len().max(1) as u64 } else { 1 }
    }

    /// Takes everything out of the rings for later, and handles the thread starts in it.
    fn gather(&mut self) {
        let from = self.backlog.len();
        if from == 0 {
            self.backlog_period = self.plan.period;
        }
        self.slots.iter_mut().for_each(|slot| slot.mapping.save(&mut self.backlog));
        if let Some(followed) = &mut self.process {
            Raws::new(&self.backlog[from..]).for_each(|raw| followed.record_start(raw));
        }
    }

    /// Whether a CPU was offline and is back since the last check. Its events are then dead for good, and their time
    /// stands still.
    fn is_dead(&mut self, at: usize) -> bool {
        // In a cgroup, time also stands still while none of its tasks runs.
        if self.plan.whom != Whom::Host {
            return false;
        }
        let slot = &mut self.slots[at];
        let Some(Ok(now)) = slot.events.first().map(|opened| attr::read(&opened.event)) else { return false };
        std::mem::replace(&mut slot.enabled_ns, now.enabled_ns) == now.enabled_ns
    }

    /// Drops a ring; its records and counts are kept.
    fn remove(&mut self, at: usize) -> u32 {
        let share = self.share();
        // An event between the last look into the ring and the last reading would be counted and not sampled.
        self.slots[at].disable();
        // It may hold reports of thread starts.
        self.gather();
        let mut slot = self.slots.remove(at);
        slot.close(share, &mut self.closed);
        slot.cpu
    }

    /// Adds a ring, if the CPU is still online. A thread that is started meanwhile by one whose events are not open yet
    /// is missed on this CPU.
    fn add(&mut self, cpu: u32, listed: &[u32]) -> Result<bool, RingError> {
        let (slots, _) = slots(&self.plan, &[cpu], self.ring_bytes)?;
        let at = self.slots.len();
        self.slots.extend(slots);
        let opened = if self.process.is_some() {
            self.gather();
            // Threads without events get theirs later, on all CPUs.
            let known: Vec<u32> = listed.iter().copied().filter(|tid| !self.is_unknown(*tid)).collect();
            known.into_iter().try_for_each(|tid| match self.open_on(at, Some(tid)) {
                Err(refused) if refused.is(libc::ESRCH) => Ok(()),
                other => other,
            })
        } else {
            self.open_on(at, None)
        };
        if let Err(refused) = opened.and_then(|()| self.slots[at].enable(self.plan.event())) {
            let result = self.unless_offline(at, refused);
            self.slots.truncate(at);
            return result.map(|()| false);
        }
        self.slots.sort_unstable_by_key(|slot| slot.cpu);
        Ok(true)
    }
}

impl Slot {
    fn enable(&self, event: Event) -> Result<(), Refused> {
        self.enable_from(0, event)
    }

    /// Starts its events from the `first` on; messages name `event` for all of them.
    fn enable_from(&self, first: usize, event: Event) -> Result<(), Refused> {
        for opened in &self.events[first..] {
            let leader = opened.leader.as_ref().map(OwnedFd::as_fd);
            let enabled = leader.into_iter().chain([opened.event.as_fd()]).try_for_each(attr::enable);
            enabled.map_err(|source| Refused { event, source })?;
        }
        Ok(())
    }

    /// Stops its events.
    fn disable(&self) {
        self.events.iter().for_each(stop);
    }

    /// Closes its events and keeps their counts.
    fn close(&mut self, share: u64, closed: &mut Reading) {
        self.close_if(share, closed, |_| true);
    }

    fn close_if(&mut self, share: u64, closed: &mut Reading, is_meant: impl Fn(&Opened) -> bool) {
        for opened in self.events.extract_if(.., |opened| is_meant(opened)) {
            // While this process starts another program, a fork holds copies of all descriptors. The event would go on,
            // with all that was inherited from it, until that program runs.
            stop(&opened);
            *closed = read(&opened, share).map_or(*closed, |reading| add(*closed, reading));
        }
    }
}

/// Stops an event and all that were inherited from it. One that cannot be stopped has gone, with its CPU or its process.
fn stop(opened: &Opened) {
    let _ = attr::disable(opened.event.as_fd());
}

/// What a descriptor has counted, with its share of the time it was enabled.
fn read(opened: &Opened, share: u64) -> Option<Reading> {
    let reading = attr::read(&opened.event).ok()?;
    Some(Reading { enabled_ns: reading.enabled_ns / share, ..reading })
}

fn add(a: Reading, b: Reading) -> Reading {
    Reading {
        value: a.value.saturating_add(b.value),
        enabled_ns: a.enabled_ns.saturating_add(b.enabled_ns),
        running_ns: a.running_ns.saturating_add(b.running_ns),
    }
}

/// The online CPUs.
fn online(sys: &Path) -> Result<Vec<u32>, RingError> {
    let path = sys.join("devices/system/cpu/online");
    let list = fs::read_to_string(&path).and_then(|text| {
        cpus::list_numbers(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text.trim().to_owned()))
    });
    list.map_err(|source| RingError::Online { path, source })
}

/// Empty rings of `len` bytes each, or of as much as may be locked in memory. All have the same size.
fn slots(plan: &Plan, cpus: &[u32], len: usize) -> Result<(Vec<Slot>, usize), RingError> {
    let event = plan.event();
    let own = |cpu: &u32| error::with_room(|| attr::open(sampling::dummy(), Of::Own, Some(*cpu), None));
    let owners = cpus.iter().map(own).collect::<io::Result<Vec<OwnedFd>>>();
    let owners = owners.map_err(|source| match source.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => RingError::Descriptors {
            event,
            threads: 1,
            cpus: cpus.len(),
            needed: cpus.iter().map(|cpu| 1 + plan.descriptors_on(*cpu)).sum(),
            limit: descriptors::limit(),
        },
        _ => RingError::from_io(event, plan.rate(), source),
    })?;
    let (mappings, had) = map_all(&owners, len).map_err(|e| RingError::from_map(event, len, cpus.len(), e))?;
    let slots = cpus.iter().zip(owners).zip(mappings);
    let slot = |((cpu, owner), mapping): ((&u32, OwnedFd), Mapping)| Slot {
        cpu: *cpu,
        mapping,
        owner,
        events: Vec::new(),
        enabled_ns: 0,
    };
    Ok((slots.map(slot).collect(), had))
}

fn map_all(owners: &[OwnedFd], wanted: usize) -> io::Result<(Vec<Mapping>, usize)> {
    let least = wanted.min(MIN_PAGES * page_size());
    let mut len = wanted;
    loop {
        match owners.iter().map(|owner| Mapping::new(owner.as_fd(), len)).collect::<io::Result<Vec<Mapping>>>() {
            Ok(mappings) => return Ok((mappings, len)),
            Err(e) if len > least && matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) => len /= 2,
            Err(e) => return Err(e),
        }
    }
}
