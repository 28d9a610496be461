//! Schedules: when the drain of a CPU is due. A schedule is a function of the CPU, the interval and the time, and keeps
//! no state.
//!
//! The caller asks after each run when the next one is due, and stores the answer. This crate uses [`Spread`]. For
//! comparison there are also [`Skewed`], which is what the kernel does, and [`Aligned`], [`Proposed`] and [`Even`].
//!
//! - `Spread` has one interval for all CPUs and a phase for each. A CPU is due at the instants that equal its phase
//!   modulo the interval, whatever happened before. A late run does not delay the next one, and a clock that is set
//!   moves one run.
//! - The phase is the CPU's place times the golden ratio, modulo one. It depends on no other CPU, so none moves when
//!   others come or go, and the interval is always the same. Among CPUs with places below `n`, no two phases are closer
//!   than 0.38/n of the interval, and each new phase falls into the widest gap (the three-distance theorem).
//!
//! Alternatives that were rejected:
//!
//! - Rank over count ([`Even`] by rank) is more even: 1/n. But whenever a CPU comes or goes all others move, so
//!   intervals vary and phases collide on the way.
//! - Number modulo count makes pairs of CPUs collide as soon as odd CPUs are offline.
//! - Bit reversal of the number has gaps of at least 0.5/n. But if only every eighth CPU is online, all of them fall
//!   into one eighth of the interval.
//!
//! Golden-ratio phases come as close as 0.38/n only at strides such as 55 or 89, by which no machine numbers its CPUs.
//!
//! Places are counted among the CPUs that share a zone lock. With a zone and a housekeeper for each NUMA node, these
//! are the CPUs of the node. CPUs of different nodes then cannot contend, and may have the same phase. If each CPU
//! drains into the zones of all nodes, all CPUs share the places.

use core::fmt::Debug;

/// Time from one run of a CPU to the next; never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Interval(u64);

impl Interval {
    /// One second, as in the kernel.
    pub const SECOND: Interval = Interval(1_000_000_000);

    /// An interval of `ns` nanoseconds. `None` for zero, which is not an interval: to switch the drain off, do not run it.
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

/// The position of a CPU among the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CpuPosition {
    /// Its number.
    pub cpu: u32,
    /// Its place among all CPUs that could be online and share its zone's lock, from 0. With one node: its number.
    pub place: u32,
    /// How many of those are online, this CPU included. Zero counts as one.
    pub cpus: u32,
}

impl CpuPosition {
    /// The seat of a CPU on a machine with one node.
    pub const fn of_one_node(cpu: u32, cpus: u32) -> CpuPosition {
        CpuPosition { cpu, place: cpu, cpus }
    }
}

/// When the drain of a CPU is due. Times are nanoseconds of a clock that all CPUs share; they saturate at its end.
pub trait Schedule: Debug + Send + Sync {
    /// When a CPU that ran or was started at `now_ns` is due next. Always later than `now_ns`.
    fn next_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64;

    /// When a CPU is due in which the shepherd found work. The shepherd checks CPUs that had none, or that just came
    /// online. The default is at once, as in the kernel, and therefore at the same instant for all of them.
    fn kicked_due(&self, _seat: CpuPosition, _interval: Interval, now_ns: u64) -> u64 {
        now_ns
    }
}

/// For callers that choose a schedule at run time.
impl<S: Schedule + ?Sized> Schedule for &S {
    fn next_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        (**self).next_due(position, interval, now_ns)
    }

    fn kicked_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        (**self).kicked_due(position, interval, now_ns)
    }
}

/// The first instant after `now_ns` that is `phase_ns` modulo the interval.
fn next_at_phase(phase_ns: u64, interval: Interval, now_ns: u64) -> u64 {
    let phase_ns = phase_ns % interval.0;
    let since = (u128::from(now_ns) + u128::from(interval.0) - u128::from(phase_ns)) % u128::from(interval.0);
    // `since` is below the interval, which is a u64.
    let since = u64::try_from(since).unwrap_or(0);
    now_ns.saturating_add(interval.0 - since)
}

/// `interval` times `part` / `of`. If `of` is zero, it stands for 2^64.
fn share(interval: Interval, part: u64, of: u64) -> u64 {
    let of = if of == 0 { 1 << 64 } else { u128::from(of) };
    u64::try_from(u128::from(interval.0) * u128::from(part) / of).unwrap_or(u64::MAX)
}

/// All CPUs at the same instants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aligned;

impl Schedule for Aligned {
    fn next_due(&self, _: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        next_at_phase(0, interval, now_ns)
    }
}

/// What the kernel does, up to and including 7.2: an interval from now, rounded to whole seconds, then offset by three
/// timer ticks for each CPU number (`round_jiffies_relative`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skewed {
    /// Ticks a second (`CONFIG_HZ`); zero counts as one.
    pub hz: u32,
}

impl Skewed {
    /// Offset between neighbouring CPUs, in ticks.
    pub const TICKS_APART: u64 = 3;

    /// The due time, rounded. All arguments are in ticks.
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
    fn next_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        let tick_ns = (1_000_000_000 / u64::from(self.hz.max(1))).max(1);
        let now = now_ns / tick_ns;
        let wanted = now.saturating_add((interval.0 / tick_ns).max(1));
        self.rounded(now, wanted, position.cpu).saturating_mul(tick_ns)
    }
}

/// The first version of the proposal to spread `vmstat_update`: the interval plus the CPU's share of another interval.
/// So each CPU has its own period, and those of the last CPUs are almost twice that of the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Proposed;

impl Schedule for Proposed {
    fn next_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        let cpus = position.cpus.max(1);
        let extra = share(interval, u64::from(position.cpu % cpus), u64::from(cpus));
        now_ns.saturating_add(interval.0).saturating_add(extra)
    }
}

/// The phase is the place's share of the interval. With the rank among online CPUs as place, it is as even as possible,
/// but every CPU moves when one goes. With the CPU number as place, two CPUs get the same phase as soon as numbers
/// exceed the count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Even;

impl Schedule for Even {
    fn next_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        let cpus = position.cpus.max(1);
        next_at_phase(share(interval, u64::from(position.place % cpus), u64::from(cpus)), interval, now_ns)
    }

    fn kicked_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        self.next_due(position, interval, now_ns)
    }
}

/// One interval for all CPUs, and phases by the golden ratio: see the [module](self). Kicked CPUs also wait for their phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spread;

impl Spread {
    /// 2^64 over the golden ratio, rounded to odd.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// The phase of the CPU at that place.
    pub fn phase_ns(place: u32, interval: Interval) -> u64 {
        share(interval, u64::from(place).wrapping_mul(Spread::STEP), 0)
    }
}

impl Schedule for Spread {
    fn next_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        next_at_phase(Spread::phase_ns(position.place, interval), interval, now_ns)
    }

    fn kicked_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        self.next_due(position, interval, now_ns)
    }
}

#[cfg(test)]
mod tests;
