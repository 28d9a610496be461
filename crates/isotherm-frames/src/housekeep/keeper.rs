//! Who keeps house: for each CPU when it is due, and what was done. See the [module](super).

use super::schedule::{Interval, Schedule, Seat, Spread};
use super::stats::HousekeepingStats;
use crate::Sets;
use crate::lock::Lock;
use crate::sets::{Pace, Tidied};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Nothing is due.
const NEVER: u64 = u64::MAX;
/// After what part of the interval a turn that was put off is gone on with: so that eight of them are a sixteenth.
const REST_PART: u64 = 128;
/// And at the latest: it is about a lock that is held for microseconds.
const REST_MOST_NS: u64 = 10_000_000;
/// Into how many slots an interval is divided at the most, when it is asked whether a CPU is late.
const MOST_SLOTS: u32 = 64;

/// How a housekeeper is to work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HousekeeperConfig<'c> {
    /// From one turn of a CPU to the next.
    pub interval: Interval,
    /// How patient it is.
    pub pace: Pace,
    /// The node of each CPU, by its number; those that are left out are of node 0. Phases are spread among CPUs of the same node only:
    /// for a housekeeper a node, which has that node's zone and its CPUs online, so that these alone share the lock. CPUs of two nodes
    /// with equal phases begin together. Hence not heeded by a housekeeper of several zones, where each CPU comes to each zone, in the
    /// same order: it spreads all CPUs.
    pub nodes: &'c [u32],
}

impl HousekeeperConfig<'_> {
    /// One node, the rest as usual.
    pub fn new(interval: Interval) -> HousekeeperConfig<'static> {
        HousekeeperConfig { interval, pace: Pace::default(), nodes: &[] }
    }
}

impl Default for HousekeeperConfig<'_> {
    /// Once a second, as in kernels.
    fn default() -> Self {
        HousekeeperConfig::new(Interval::SECOND)
    }
}

/// What a housekeeper knows of a CPU. The caller has the memory: one for each CPU that is possible.
#[derive(Debug)]
#[repr(align(128))]
pub struct Slot {
    node: u32,
    place: u32,
    /// CPUs of its node that are online.
    cpus: AtomicU32,
    /// When it is due, or [`NEVER`]: written by whoever has `desk`, read by all.
    due_ns: AtomicU64,
    is_online: AtomicBool,
    desk: Lock<Desk>,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            node: 0,
            place: 0,
            cpus: AtomicU32::new(0),
            due_ns: AtomicU64::new(NEVER),
            is_online: AtomicBool::new(false),
            desk: Lock::new(Desk::default()),
        }
    }
}

#[derive(Debug, Default)]
struct Desk {
    /// The next turn, also while the rest of the last is still to come.
    turn_ns: Option<u64>,
    /// When that rest is gone on with.
    rest_ns: Option<u64>,
    /// Was late the last time, and went to its next phase.
    was_put_off: bool,
    stats: HousekeepingStats,
}

impl Desk {
    fn due_ns(&self) -> Option<u64> {
        [self.turn_ns, self.rest_ns].into_iter().flatten().min()
    }
}

/// What a call of [`Housekeeper::tick`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Run {
    /// No such CPU, or it is offline.
    Offline,
    /// Another thread is at it, and will know when it is due next. Until then it is worth no look, for a small part of the interval.
    Elsewhere,
    /// It was not due yet.
    NotDue,
    /// It was overdue by more than its share of the interval, and goes to its next phase.
    PutOff,
    /// A turn over the CPU's sets.
    Turn,
    /// The rest of one that was put off because someone had a zone's lock.
    Rest,
}

/// The outcome of [`Housekeeper::tick`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tick {
    /// What was done.
    pub run: Run,
    /// And with what result, for [`Run::Turn`] and [`Run::Rest`].
    pub tidied: Tidied,
    /// When it is to be called again for this CPU. `None`: not before [`Housekeeper::shepherd`] has found work for it.
    pub next_due_ns: Option<u64>,
}

impl Tick {
    fn nothing(run: Run, next_due_ns: Option<u64>) -> Tick {
        Tick { run, tidied: Tidied::default(), next_due_ns }
    }

    /// Whether it was due.
    pub const fn was_due(&self) -> bool {
        matches!(self.run, Run::PutOff | Run::Turn | Run::Rest)
    }
}

/// Keeps house for the sets of one or several zones. See the [module](super).
///
/// Can be called from any thread; two that meet at a CPU do not wait for each other. All times are nanoseconds of one clock, which is the
/// caller's; beside a thread that keeps house by `run`, it has to be that thread's, `housekeep::now_ns`.
///
/// To begin with all CPUs are offline: [`Housekeeper::online`].
#[derive(Debug)]
pub struct Housekeeper<'h, 'm, S = Spread> {
    sets: &'h [Sets<'m>],
    slots: &'h [Slot],
    schedule: S,
    interval: Interval,
    pace: Pace,
    /// Held while CPUs come and go.
    changing: Lock<()>,
}

impl<'h, 'm, S: Schedule> Housekeeper<'h, 'm, S> {
    /// For the CPUs 0 to as many as there are slots, of which any may be missing. No sets: nothing is ever due.
    ///
    /// Compares the nodes of each two CPUs, if nodes are given and there is one zone.
    pub fn new(
        sets: &'h [Sets<'m>],
        slots: &'h mut [Slot],
        schedule: S,
        config: &HousekeeperConfig<'_>,
    ) -> Housekeeper<'h, 'm, S> {
        // CPUs of all nodes meet at each of several zones.
        let nodes = if sets.len() > 1 { &[] } else { config.nodes };
        let node_of = |cpu: usize| nodes.get(cpu).copied().unwrap_or(0);
        for (cpu, slot) in slots.iter_mut().enumerate() {
            let place =
                if nodes.is_empty() { cpu } else { (0..cpu).filter(|&other| node_of(other) == node_of(cpu)).count() };
            *slot = Slot { node: node_of(cpu), place: u32::try_from(place).unwrap_or(u32::MAX), ..Slot::default() };
        }
        Housekeeper { sets, slots, schedule, interval: config.interval, pace: config.pace, changing: Lock::new(()) }
    }

    /// From one turn of a CPU to the next.
    pub const fn interval(&self) -> Interval {
        self.interval
    }

    /// CPUs that it has slots for.
    pub fn cpus(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Whether a CPU is online.
    pub fn is_online(&self, cpu: u32) -> bool {
        self.slot(cpu).is_some_and(|slot| slot.is_online.load(Relaxed))
    }

    /// Where a CPU stands; `None` if it has no slot.
    pub fn seat(&self, cpu: u32) -> Option<Seat> {
        let slot = self.slot(cpu)?;
        Some(Seat { cpu, place: slot.place, cpus: slot.cpus.load(Relaxed) })
    }

    fn slot(&self, cpu: u32) -> Option<&'h Slot> {
        self.slots.get(cpu as usize)
    }

    /// A CPU has come: the shepherd looks after it from now on. False for one without a slot, and one that is online.
    pub fn online(&self, cpu: u32) -> bool {
        let _one_at_a_time = self.changing.lock();
        let Some(slot) = self.slot(cpu) else { return false };
        let is_new = !slot.is_online.swap(true, Relaxed);
        self.count_online(slot.node);
        is_new
    }

    /// A CPU has gone: it is due no more, and everything in its sets goes back to the zones; how many frames. Waits for a turn over it
    /// that is under way, and a tenth of a second at the most for each zone for others who have its set, dead ones too. Also for one that is offline already: threads that were on their way
    /// may have used its sets since.
    pub fn offline(&self, cpu: u32) -> u64 {
        let _one_at_a_time = self.changing.lock();
        let Some(slot) = self.slot(cpu) else { return 0 };
        slot.is_online.store(false, Relaxed);
        self.count_online(slot.node);
        let mut desk = slot.desk.lock();
        (desk.turn_ns, desk.rest_ns, desk.was_put_off) = (None, None, false);
        slot.tell(&desk);
        let drained = self.sets.iter().map(|sets| sets.drain_for_good(cpu)).sum();
        desk.stats.drained = desk.stats.drained.wrapping_add(drained);
        drained
    }

    /// How many CPUs of a node are online, told to each of them.
    fn count_online(&self, node: u32) {
        let of_node = || self.slots.iter().filter(|slot| slot.node == node);
        let online = of_node().filter(|slot| slot.is_online.load(Relaxed)).count();
        let online = u32::try_from(online).unwrap_or(u32::MAX);
        of_node().for_each(|slot| slot.cpus.store(online, Relaxed));
    }

    /// Does what is due for a CPU, which need not be the caller's. To be called at the time that the last call said, which a CPU does for
    /// itself, or someone for all.
    ///
    /// A few ns if it is not due.
    pub fn tick(&self, cpu: u32, now_ns: u64) -> Tick {
        let Some((slot, seat)) = self.slot(cpu).zip(self.seat(cpu)) else { return Tick::nothing(Run::Offline, None) };
        let due_ns = slot.due_ns();
        if due_ns.is_some_and(|due| due > now_ns && due - now_ns <= self.interval.ns()) {
            return Tick::nothing(Run::NotDue, due_ns);
        }
        let Some(mut desk) = slot.desk.try_lock() else {
            return Tick::nothing(Run::Elsewhere, due_ns.map(|due| due.max(self.soon_ns(now_ns))));
        };
        if !slot.is_online.load(Relaxed) {
            return Tick::nothing(Run::Offline, None);
        }
        let run = self.what_is_due(&mut desk, seat, now_ns);
        let tidied = match run {
            Run::Turn | Run::Rest => self.tidy(&mut desk, seat, run == Run::Rest, now_ns),
            _ => Tidied::default(),
        };
        slot.tell(&desk);
        Tick { run, tidied, next_due_ns: desk.due_ns() }
    }

    fn what_is_due(&self, desk: &mut Desk, seat: Seat, now_ns: u64) -> Run {
        self.mind_the_clock(desk, seat, now_ns);
        let Some(late_ns) = desk.due_ns().and_then(|due| now_ns.checked_sub(due)) else { return Run::NotDue };
        if late_ns > self.tolerance_ns(seat) {
            desk.stats.late += 1;
            if seat.cpus > 1 && !desk.was_put_off {
                desk.stats.put_off += 1;
                desk.was_put_off = true;
                // A rest goes with it: the turn takes whatever is above the mark.
                desk.rest_ns = None;
                desk.turn_ns = Some(self.schedule.next_due(seat, self.interval, now_ns));
                return Run::PutOff;
            }
        }
        desk.was_put_off = false;
        let is_turn = desk.turn_ns.is_some_and(|turn| turn <= now_ns);
        if is_turn { Run::Turn } else { Run::Rest }
    }

    /// A turn that is further away than it can be: the clock was set back.
    fn mind_the_clock(&self, desk: &mut Desk, seat: Seat, now_ns: u64) {
        let is_far = |due: u64| due.saturating_sub(now_ns) > self.interval.ns();
        if let Some(turn) = desk.turn_ns.filter(|&due| is_far(due)) {
            // Some schedules are that far ahead by themselves; those do not say less if they are asked again.
            desk.turn_ns = Some(turn.min(self.schedule.next_due(seat, self.interval, now_ns)));
        }
        if desk.rest_ns.is_some_and(is_far) {
            desk.rest_ns = Some(now_ns);
        }
    }

    /// By how much a CPU may be late: its share of the interval, in which no other's begins.
    fn tolerance_ns(&self, seat: Seat) -> u64 {
        self.interval.ns() / u64::from(seat.cpus.clamp(1, MOST_SLOTS))
    }

    fn tidy(&self, desk: &mut Desk, seat: Seat, is_rest: bool, now_ns: u64) -> Tidied {
        let one = |sets: &Sets<'_>| {
            if is_rest { sets.tidy_rest(seat.cpu, &self.pace) } else { sets.tidy(seat.cpu, &self.pace) }
        };
        let tidied = self.sets.iter().map(one).fold(Tidied::default(), Tidied::and);
        desk.stats.count(&tidied, is_rest);
        if !is_rest {
            desk.turn_ns = tidied.again.then(|| self.schedule.next_due(seat, self.interval, now_ns));
        }
        desk.rest_ns = tidied.is_deferred().then_some(self.soon_ns(now_ns));
        tidied
    }

    /// When to look again for what someone has for a moment.
    fn soon_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add((self.interval.ns() / REST_PART).clamp(1, REST_MOST_NS))
    }

    /// Looks for CPUs that have work and no time for it, and gives them one, by the schedule's [`Schedule::kicked_due`]; how many. To be
    /// called once an interval, by anyone, at any time.
    ///
    /// Looks at some 20 words of each CPU that is online.
    pub fn shepherd(&self, now_ns: u64) -> u32 {
        (0..self.cpus()).map(|cpu| u32::from(self.look_after(cpu, now_ns))).sum()
    }

    /// Whether it was kicked.
    fn look_after(&self, cpu: u32, now_ns: u64) -> bool {
        let Some((slot, seat)) = self.slot(cpu).zip(self.seat(cpu)) else { return false };
        let is_sound = |due: u64| due.saturating_sub(now_ns) <= self.interval.ns();
        if !slot.is_online.load(Relaxed) || slot.due_ns().is_some_and(is_sound) {
            return false;
        }
        // Whoever has it decides himself when it is due.
        let Some(mut desk) = slot.desk.try_lock() else { return false };
        self.mind_the_clock(&mut desk, seat, now_ns);
        let has_work = || self.sets.iter().any(|sets| sets.is_untidy(cpu, &self.pace));
        let is_kicked = slot.is_online.load(Relaxed) && desk.due_ns().is_none() && has_work();
        if is_kicked {
            desk.turn_ns = Some(self.schedule.kicked_due(seat, self.interval, now_ns));
            desk.stats.kicked += 1;
        }
        slot.tell(&desk);
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

    /// Counts of a CPU; `None` if it has no slot. Waits for a turn over it that is under way.
    pub fn stats_of(&self, cpu: u32) -> Option<HousekeepingStats> {
        Some(self.slot(cpu)?.desk.lock().stats)
    }

    /// Those of all CPUs together.
    pub fn stats(&self) -> HousekeepingStats {
        let each = self.slots.iter().map(|slot| slot.desk.lock().stats);
        each.fold(HousekeepingStats::default(), HousekeepingStats::and)
    }
}

impl Slot {
    fn due_ns(&self) -> Option<u64> {
        // Acquire: pairs with the Release of `tell`.
        Some(self.due_ns.load(Acquire)).filter(|&due| due != NEVER)
    }

    /// Tells everyone what is on the desk.
    fn tell(&self, desk: &Desk) {
        // Release: pairs with the Acquire of `due_ns`.
        self.due_ns.store(desk.due_ns().unwrap_or(NEVER), Release);
    }
}

#[cfg(test)]
mod tests;
