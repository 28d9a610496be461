//! When a CPU's housekeeping is due: a function of the CPU, the interval and the time, and of nothing else.
//!
//! Whoever does the housekeeping asks after each run when the next is, and keeps nothing but the answer. The kernel's
//! ways are here too, to be compared with: [`Aligned`], [`Skewed`], [`Proposed`], [`Even`]. What this crate goes by is
//! [`Spread`]:
//!
//! - one interval for all, and a phase for each CPU: a CPU is due at the instants that are its phase modulo the
//!   interval, whatever happened before. A run that is late makes the next one no later, and a clock that is set moves
//!   one run.
//! - The phase is the CPU's place times the golden ratio, modulo one. It depends on no other CPU, so none has to move
//!   when others come or go, and no interval is ever another. Of any CPUs with places below `n`, no two phases are
//!   closer than 0.38/n of the interval, and each that is added falls into the widest gap (the three-distance theorem).
//!
//! What was weighed against it: rank over count is more even ([`Even`] by rank: 1/n), but whenever a CPU comes or goes
//! all others have to move, so that intervals differ and phases meet on the way; number modulo count lets pairs collide
//! as soon as odd CPUs are offline; bits of the number reversed are as far apart, 0.5/n at the least, but leave all
//! CPUs in an eighth of the interval where every eighth is online. Golden phases are as close to each other in strides
//! such as 55 or 89, which no machine numbers its CPUs by.
//!
//! Places are counted among the CPUs that share a zone's lock. With a zone and a housekeeper for each NUMA node these
//! are the node's: CPUs of different nodes cannot be in each other's way then, and may have the same phase. Where each
//! CPU comes to the zones of all nodes, all share them.

use core::fmt::Debug;

/// How long from one run of a CPU to the next; never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Interval(u64);

impl Interval {
    /// A second, as in kernels.
    pub const SECOND: Interval = Interval(1_000_000_000);

    /// So many nanoseconds. `None` for zero, which is no interval: whoever wants no housekeeping has none done.
    pub const fn from_ns(ns: u64) -> Option<Interval> {
        match ns {
            0 => None,
            ns => Some(Interval(ns)),
        }
    }

    /// In nanoseconds.
    pub const fn ns(self) -> u64 {
        self.0
    }
}

/// Where a CPU stands among others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seat {
    /// Its number.
    pub cpu: u32,
    /// Its place among all CPUs that could be online and share its zone's lock, from 0. With one node: its number.
    pub place: u32,
    /// How many of those are online, itself included. Zero counts as one.
    pub cpus: u32,
}

impl Seat {
    /// That of a CPU on a machine with one node.
    pub const fn of_one_node(cpu: u32, cpus: u32) -> Seat {
        Seat { cpu, place: cpu, cpus }
    }
}

/// When housekeeping is due. Times are nanoseconds of any clock that all CPUs share; they saturate at its end.
pub trait Schedule: Debug + Send + Sync {
    /// When a CPU that has run at `now_ns`, or that begins then, is due next: always later.
    fn next_due(&self, seat: Seat, interval: Interval, now_ns: u64) -> u64;

    /// When a CPU is due that was found to have work by the shepherd, which looks after those that had none, or have
    /// just come online. At once, in kernels: and so for all of them at the same instant.
    fn kicked_due(&self, _seat: Seat, _interval: Interval, now_ns: u64) -> u64 {
        now_ns
    }
}

/// For those who choose one when the program runs.
impl<S: Schedule + ?Sized> Schedule for &S {
    fn next_due(&self, seat: Seat, interval: Interval, now_ns: u64) -> u64 {
        (**self).next_due(seat, interval, now_ns)
    }

    fn kicked_due(&self, seat: Seat, interval: Interval, now_ns: u64) -> u64 {
        (**self).kicked_due(seat, interval, now_ns)
    }
}

/// The first instant after `now_ns` that is `phase_ns` modulo the interval.
fn next_at_phase(phase_ns: u64, interval: Interval, now_ns: u64) -> u64 {
    let phase_ns = phase_ns % interval.0;
    let since = (u128::from(now_ns) + u128::from(interval.0) - u128::from(phase_ns)) % u128::from(interval.0);
    // Below the interval, which is a u64.
    let since = u64::try_from(since).unwrap_or(0);
    now_ns.saturating_add(interval.0 - since)
}

/// `interval` times `part` / `of`, of 2^64 if `of` is zero.
fn share(interval: Interval, part: u64, of: u64) -> u64 {
    let of = if of == 0 { 1 << 64 } else { u128::from(of) };
    u64::try_from(u128::from(interval.0) * u128::from(part) / of).unwrap_or(u64::MAX)
}

/// All CPUs at the same instants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aligned;

impl Schedule for Aligned {
    fn next_due(&self, _: Seat, interval: Interval, now_ns: u64) -> u64 {
        next_at_phase(0, interval, now_ns)
    }
}

/// What kernels do, 7.2 included: an interval from now, rounded to whole seconds, but three ticks of the timer apart
/// from one CPU to the next (`round_jiffies_relative`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skewed {
    /// Ticks a second (`CONFIG_HZ`); zero counts as one.
    pub hz: u32,
}

impl Skewed {
    /// Ticks from one CPU to the next.
    pub const TICKS_APART: u64 = 3;

    /// In ticks.
    fn rounded(self, now: u64, wanted: u64, cpu: u32) -> u64 {
        let hz = u64::from(self.hz.max(1));
        let skew = u64::from(cpu) * Skewed::TICKS_APART;
        let skewed = wanted.saturating_add(skew);
        let over = skewed % hz;
        let whole = if over < hz / 4 { skewed - over } else { (skewed - over).saturating_add(hz) };
        match whole.saturating_sub(skew) {
            rounded if rounded > now => rounded,
            _ => wanted,
        }
    }
}

impl Schedule for Skewed {
    fn next_due(&self, seat: Seat, interval: Interval, now_ns: u64) -> u64 {
        let tick_ns = (1_000_000_000 / u64::from(self.hz.max(1))).max(1);
        let now = now_ns / tick_ns;
        let wanted = now.saturating_add((interval.0 / tick_ns).max(1));
        self.rounded(now, wanted, seat.cpu).saturating_mul(tick_ns)
    }
}

/// The first version of the proposal to spread `vmstat_update`: an interval and the CPU's share of another. So each
/// CPU has a period of its own, the last ones twice that of the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Proposed;

impl Schedule for Proposed {
    fn next_due(&self, seat: Seat, interval: Interval, now_ns: u64) -> u64 {
        let cpus = seat.cpus.max(1);
        let extra = share(interval, u64::from(seat.cpu % cpus), u64::from(cpus));
        now_ns.saturating_add(interval.0).saturating_add(extra)
    }
}

/// The place's share of the interval. With the rank among the online CPUs for a place it is as even as can be, and
/// every CPU moves when one goes; with its number, two have the same phase as soon as numbers exceed the count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Even;

impl Schedule for Even {
    fn next_due(&self, seat: Seat, interval: Interval, now_ns: u64) -> u64 {
        let cpus = seat.cpus.max(1);
        next_at_phase(share(interval, u64::from(seat.place % cpus), u64::from(cpus)), interval, now_ns)
    }

    fn kicked_due(&self, seat: Seat, interval: Interval, now_ns: u64) -> u64 {
        self.next_due(seat, interval, now_ns)
    }
}

/// One interval for all, phases by the golden ratio: see the module. The shepherd's are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spread;

impl Spread {
    /// 2^64 over the golden ratio, rounded to odd.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// How far into each interval the CPU at that place is due.
    pub fn phase_ns(place: u32, interval: Interval) -> u64 {
        share(interval, u64::from(place).wrapping_mul(Spread::STEP), 0)
    }
}

impl Schedule for Spread {
    fn next_due(&self, seat: Seat, interval: Interval, now_ns: u64) -> u64 {
        next_at_phase(Spread::phase_ns(seat.place, interval), interval, now_ns)
    }

    fn kicked_due(&self, seat: Seat, interval: Interval, now_ns: u64) -> u64 {
        self.next_due(seat, interval, now_ns)
    }
}

#[cfg(test)]
mod tests;
