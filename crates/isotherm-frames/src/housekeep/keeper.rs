//! [`Housekeeper`]: when each CPU is due, and what its runs did. See the [module](super).

use super::schedule::{CpuPosition, Interval, Schedule, Spread};
use super::stats::HousekeepingStats;
use crate::PcpLists;
use crate::lock::Lock;
use crate::pcp::{Decayed, Pace};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Nothing is due.
const NEVER: u64 = u64::MAX;
/// A deferred run continues after the interval divided by this, so eight deferrals take a sixteenth of the interval.
const REST_DIVISOR: u64 = 128;
/// And after this long at most: the lock is held for microseconds only.
const MAX_REST_NS: u64 = 10_000_000;
/// The tolerance for late runs is the interval divided by the number of CPUs, but by no more than this.
const MAX_SLOTS: u32 = 64;

/// Configuration of a [`Housekeeper`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HousekeeperConfig<'c> {
    /// Time from one run of a CPU to the next.
    pub interval: Interval,
    /// When runs empty idle lists, and how often they defer.
    pub pace: Pace,
    /// The node of each CPU, by CPU number. CPUs beyond the end are on node 0. Phases are spread only among CPUs of the
    /// same node. Use this with one housekeeper for each node that has the node's zone and only its CPUs online, so
    /// that only these share the zone lock. CPUs of different nodes with equal phases start at the same time. A
    /// housekeeper of several zones ignores the nodes and spreads all CPUs, because each CPU drains into each zone in
    /// the same order.
    pub nodes: &'c [u32],
}

impl HousekeeperConfig<'_> {
    /// One node, and defaults for the rest.
    pub fn new(interval: Interval) -> HousekeeperConfig<'static> {
        HousekeeperConfig { interval, pace: Pace::default(), nodes: &[] }
    }
}

impl Default for HousekeeperConfig<'_> {
    /// Once per second, as in the kernel.
    fn default() -> Self {
        HousekeeperConfig::new(Interval::SECOND)
    }
}

/// State of one CPU. The caller supplies the memory: one slot for each possible CPU.
#[derive(Debug)]
#[repr(align(128))]
pub struct Slot {
    node: u32,
    place: u32,
    /// Number of online CPUs of its node.
    cpus: AtomicU32,
    /// When it is due, or [`NEVER`]. Written by the holder of `pending`, read by all.
    due_ns: AtomicU64,
    is_online: AtomicBool,
    pending: Lock<Pending>,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            node: 0,
            place: 0,
            cpus: AtomicU32::new(0),
            due_ns: AtomicU64::new(NEVER),
            is_online: AtomicBool::new(false),
            pending: Lock::new(Pending::default()),
        }
    }
}

#[derive(Debug, Default)]
struct Pending {
    /// When the next run is due, even if the rest of the last one is still pending.
    run_ns: Option<u64>,
    /// When that rest is due.
    rest_ns: Option<u64>,
    /// The last run was late and was skipped to its next phase.
    was_skipped: bool,
    stats: HousekeepingStats,
}

impl Pending {
    fn due_ns(&self) -> Option<u64> {
        [self.run_ns, self.rest_ns].into_iter().flatten().min()
    }
}

/// What a call of [`Housekeeper::tick`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Run {
    /// No such CPU, or it is offline.
    Offline,
    /// Another thread is working on this CPU and will set its due time. Asking again is useless for a small part of the
    /// interval.
    Elsewhere,
    /// It was not due yet.
    NotDue,
    /// It was overdue by more than its share of the interval, and skips to its next phase.
    Skipped,
    /// A run over the CPU's lists.
    Decay,
    /// The rest of a run that was deferred because a zone lock was taken.
    Rest,
}

/// The outcome of [`Housekeeper::tick`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tick {
    /// What was done.
    pub run: Run,
    /// The result of a [`Run::Decay`] or [`Run::Rest`].
    pub decayed: Decayed,
    /// When to call it again for this CPU. `None`: not before [`Housekeeper::shepherd`] has found work for it.
    pub next_due_ns: Option<u64>,
}

impl Tick {
    fn nothing(run: Run, next_due_ns: Option<u64>) -> Tick {
        Tick { run, decayed: Decayed::default(), next_due_ns }
    }

    /// Whether the CPU was due.
    pub const fn was_due(&self) -> bool {
        matches!(self.run, Run::Skipped | Run::Decay | Run::Rest)
    }
}

/// Drains the per-CPU lists of one or more zones periodically. See the [module](super).
///
/// Any thread may call it. Two threads that meet at a CPU do not wait for each other. All times are nanoseconds of one
/// clock, which the caller chooses. If a thread calls `run`, it must be that thread's clock, `housekeep::now_ns`.
///
/// At first all CPUs are offline: see [`Housekeeper::online`].
#[derive(Debug)]
pub struct Housekeeper<'h, 'm, S = Spread> {
    pcp: &'h [PcpLists<'m>],
    slots: &'h [Slot],
    schedule: S,
    interval: Interval,
    pace: Pace,
    /// Held while a CPU goes online or offline.
    changing: Lock<()>,
}

impl<'h, 'm, S: Schedule> Housekeeper<'h, 'm, S> {
    /// A housekeeper for as many CPUs as there are slots, numbered from 0. Any of them may be missing. Without lists,
    /// nothing is ever due.
    ///
    /// If nodes are given and there is one zone, it compares the nodes of every two CPUs.
    pub fn new(
        pcp: &'h [PcpLists<'m>],
        slots: &'h mut [Slot],
        schedule: S,
        config: &HousekeeperConfig<'_>,
    ) -> Housekeeper<'h, 'm, S> {
        // With several zones, the CPUs of all nodes contend for each zone lock.
        let nodes = if pcp.len() > 1 { &[] } else { config.nodes };
        let node_of = |cpu: usize| nodes.get(cpu).copied().unwrap_or(0);
        for (cpu, slot) in slots.iter_mut().enumerate() {
            let place =
                if nodes.is_empty() { cpu } else { (0..cpu).filter(|&other| node_of(other) == node_of(cpu)).count() };
            *slot = Slot { node: node_of(cpu), place: u32::try_from(place).unwrap_or(u32::MAX), ..Slot::default() };
        }
        Housekeeper { pcp, slots, schedule, interval: config.interval, pace: config.pace, changing: Lock::new(()) }
    }

    /// Time from one run of a CPU to the next.
    pub const fn interval(&self) -> Interval {
        self.interval
    }

    /// Number of CPUs that have a slot.
    pub fn cpus(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Whether a CPU is online.
    pub fn is_online(&self, cpu: u32) -> bool {
        self.slot(cpu).is_some_and(|slot| slot.is_online.load(Relaxed))
    }

    /// Inputs of the schedule for a CPU; `None` if it has no slot.
    pub fn position(&self, cpu: u32) -> Option<CpuPosition> {
        let slot = self.slot(cpu)?;
        Some(CpuPosition { cpu, place: slot.place, cpus: slot.cpus.load(Relaxed) })
    }

    fn slot(&self, cpu: u32) -> Option<&'h Slot> {
        self.slots.get(cpu as usize)
    }

    /// A CPU has come online: the shepherd checks it from now on. Returns false if it has no slot or was online already.
    pub fn online(&self, cpu: u32) -> bool {
        let _serialised = self.changing.lock();
        let Some(slot) = self.slot(cpu) else { return false };
        let is_new = !slot.is_online.swap(true, Relaxed);
        self.count_online(slot.node);
        is_new
    }

    /// A CPU has gone offline: it is no longer due, and its lists are drained into the zones. Returns how many frames.
    /// Waits for a run over it that is in progress. If another thread holds its lists, retries for at most 0.1 s per
    /// zone; a thread that died in them holds them forever. Also drains a CPU that is offline already: threads that
    /// were still running there may have used its lists since.
    pub fn offline(&self, cpu: u32) -> u64 {
        let _serialised = self.changing.lock();
        let Some(slot) = self.slot(cpu) else { return 0 };
        slot.is_online.store(false, Relaxed);
        self.count_online(slot.node);
        let mut pending = slot.pending.lock();
        (pending.run_ns, pending.rest_ns, pending.was_skipped) = (None, None, false);
        slot.tell(&pending);
        let drained = self.pcp.iter().map(|pcp| pcp.drain_offline(cpu)).sum();
        pending.stats.drained = pending.stats.drained.wrapping_add(drained);
        drained
    }

    /// Counts the online CPUs of a node and stores the number in the slot of each.
    fn count_online(&self, node: u32) {
        let of_node = || self.slots.iter().filter(|slot| slot.node == node);
        let online = of_node().filter(|slot| slot.is_online.load(Relaxed)).count();
        let online = u32::try_from(online).unwrap_or(u32::MAX);
        of_node().for_each(|slot| slot.cpus.store(online, Relaxed));
    }

    /// Does what is due for a CPU, which need not be the calling one. Call it at the time that the last call returned,
    /// either on each CPU for itself or from one thread for all.
    ///
    /// Takes a few ns if nothing is due.
    pub fn tick(&self, cpu: u32, now_ns: u64) -> Tick {
        let Some((slot, position)) = self.slot(cpu).zip(self.position(cpu)) else {
            return Tick::nothing(Run::Offline, None);
        };
        let due_ns = slot.due_ns();
        if due_ns.is_some_and(|due| due > now_ns && due - now_ns <= self.interval.ns()) {
            return Tick::nothing(Run::NotDue, due_ns);
        }
        let Some(mut pending) = slot.pending.try_lock() else {
            return Tick::nothing(Run::Elsewhere, due_ns.map(|due| due.max(self.soon_ns(now_ns))));
        };
        if !slot.is_online.load(Relaxed) {
            return Tick::nothing(Run::Offline, None);
        }
        let run = self.due_run(&mut pending, position, now_ns);
        let decayed = match run {
            Run::Decay | Run::Rest => self.decay(&mut pending, position, run == Run::Rest, now_ns),
            _ => Decayed::default(),
        };
        slot.tell(&pending);
        Tick { run, decayed, next_due_ns: pending.due_ns() }
    }

    fn due_run(&self, pending: &mut Pending, position: CpuPosition, now_ns: u64) -> Run {
        self.clamp_future_times(pending, position, now_ns);
        let Some(late_ns) = pending.due_ns().and_then(|due| now_ns.checked_sub(due)) else { return Run::NotDue };
        if late_ns > self.tolerance_ns(position) {
            pending.stats.late += 1;
            if position.cpus > 1 && !pending.was_skipped {
                pending.stats.skipped += 1;
                pending.was_skipped = true;
                // The rest is dropped as well: the next run drains everything above `high`.
                pending.rest_ns = None;
                pending.run_ns = Some(self.schedule.next_due(position, self.interval, now_ns));
                return Run::Skipped;
            }
        }
        pending.was_skipped = false;
        let is_run = pending.run_ns.is_some_and(|turn| turn <= now_ns);
        if is_run { Run::Decay } else { Run::Rest }
    }

    /// Handles a clock that was set back: recomputes due times that are further away than they can be.
    fn clamp_future_times(&self, pending: &mut Pending, position: CpuPosition, now_ns: u64) {
        let is_far = |due: u64| due.saturating_sub(now_ns) > self.interval.ns();
        if let Some(turn) = pending.run_ns.filter(|&due| is_far(due)) {
            // Some schedules are that far ahead by design; asked again, they return no earlier time.
            pending.run_ns = Some(turn.min(self.schedule.next_due(position, self.interval, now_ns)));
        }
        if pending.rest_ns.is_some_and(is_far) {
            pending.rest_ns = Some(now_ns);
        }
    }

    /// By how much a CPU may be late: its share of the interval, in which no other CPU is due.
    fn tolerance_ns(&self, position: CpuPosition) -> u64 {
        self.interval.ns() / u64::from(position.cpus.clamp(1, MAX_SLOTS))
    }

    fn decay(&self, pending: &mut Pending, position: CpuPosition, is_rest: bool, now_ns: u64) -> Decayed {
        let one = |pcp: &PcpLists<'_>| {
            if is_rest { pcp.decay_rest(position.cpu, &self.pace) } else { pcp.decay(position.cpu, &self.pace) }
        };
        let decayed = self.pcp.iter().map(one).fold(Decayed::default(), Decayed::and);
        pending.stats.count(&decayed, is_rest);
        if !is_rest {
            pending.run_ns = decayed.again.then(|| self.schedule.next_due(position, self.interval, now_ns));
        }
        pending.rest_ns = decayed.is_deferred().then_some(self.soon_ns(now_ns));
        decayed
    }

    /// When to try again for a lock that another thread holds for a moment.
    fn soon_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add((self.interval.ns() / REST_DIVISOR).clamp(1, MAX_REST_NS))
    }

    /// Finds CPUs that have work but no due time, and gives each one by [`Schedule::kicked_due`]. Returns how many.
    /// Call it once per interval, from any thread, at any time.
    ///
    /// Reads some 20 words for each online CPU.
    pub fn shepherd(&self, now_ns: u64) -> u32 {
        (0..self.cpus()).map(|cpu| u32::from(self.kick_if_needed(cpu, now_ns))).sum()
    }

    /// Checks one CPU; returns whether it was kicked.
    fn kick_if_needed(&self, cpu: u32, now_ns: u64) -> bool {
        let Some((slot, position)) = self.slot(cpu).zip(self.position(cpu)) else { return false };
        let is_sound = |due: u64| due.saturating_sub(now_ns) <= self.interval.ns();
        if !slot.is_online.load(Relaxed) || slot.due_ns().is_some_and(is_sound) {
            return false;
        }
        // The holder of the lock sets the due time itself.
        let Some(mut pending) = slot.pending.try_lock() else { return false };
        self.clamp_future_times(&mut pending, position, now_ns);
        let has_work = || self.pcp.iter().any(|pcp| pcp.needs_decay(cpu, &self.pace));
        let is_kicked = slot.is_online.load(Relaxed) && pending.due_ns().is_none() && has_work();
        if is_kicked {
            pending.run_ns = Some(self.schedule.kicked_due(position, self.interval, now_ns));
            pending.stats.kicked += 1;
        }
        slot.tell(&pending);
        is_kicked
    }

    /// When a CPU is due; `None` if it has nothing to do.
    pub fn due_ns(&self, cpu: u32) -> Option<u64> {
        self.slot(cpu)?.due_ns()
    }

    /// When the first of all CPUs is due.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.slots.iter().filter_map(Slot::due_ns).min()
    }

    /// Counters of a CPU; `None` if it has no slot. Waits for a run over it that is in progress.
    pub fn stats_of(&self, cpu: u32) -> Option<HousekeepingStats> {
        Some(self.slot(cpu)?.pending.lock().stats)
    }

    /// The counters of all CPUs, added up.
    pub fn stats(&self) -> HousekeepingStats {
        let each = self.slots.iter().map(|slot| slot.pending.lock().stats);
        each.fold(HousekeepingStats::default(), HousekeepingStats::and)
    }
}

impl Slot {
    fn due_ns(&self) -> Option<u64> {
        // Acquire: pairs with the Release of `tell`.
        Some(self.due_ns.load(Acquire)).filter(|&due| due != NEVER)
    }

    /// Publishes the due time of the desk.
    fn tell(&self, pending: &Pending) {
        // Release: pairs with the Acquire of `due_ns`.
        self.due_ns.store(pending.due_ns().unwrap_or(NEVER), Release);
    }
}

#[cfg(test)]
mod tests;
