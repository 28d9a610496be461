//! What a herd is: the machine, and what is assumed about it.

use super::error::{HerdError, MOST_CPUS};
use isotherm_frames::housekeep::Interval;

/// A machine and its housekeeping. [`Herd::new`] has the defaults that each field's description gives a reason for;
/// [`Herd::run`] runs it.
#[derive(Clone, Debug)]
pub struct Herd {
    /// CPUs, numbered from 0: 1 to [`MOST_CPUS`].
    pub cpus: u32,
    /// NUMA nodes, each with a zone and its lock; CPUs are dealt out in blocks, as evenly as can be. A CPU uses the
    /// zone of its own node only. Default 1: the most that can meet at a lock.
    pub nodes: u32,
    /// For how long housekeeping comes due, in ns; what is begun by then is finished. Default a minute: 60 intervals
    /// are enough for medians of a few seeds to agree within some percent.
    pub duration_ns: u64,
    /// The interval that the schedule is asked with. Default a second, as in kernels.
    pub interval: Interval,
    /// When the first run of each CPU is due. Default [`Begin::Scheduled`].
    pub begin: Begin,
    /// What a CPU's place is. Default [`Seating::Numbers`].
    pub seating: Seating,
    /// What a run finds to do.
    pub work: Work,
    /// Who else wants the locks.
    pub foreground: Foreground,
    /// From being due to running.
    pub latency: Latency,
    /// Who looks after CPUs that have work and no run due. Default nobody.
    pub shepherd: Option<Shepherd>,
    /// What a run does that finds the lock taken. Default `None`: it waits.
    pub deferral: Option<Deferral>,
    /// CPUs that go and come, in any order. Those at 0 make what the machine begins with. Default none.
    pub hotplug: Vec<Plug>,
}

/// When the first run of each CPU is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Begin {
    /// When the schedule says, asked at 0.
    #[default]
    Scheduled,
    /// At 0, all of them: as after a boot, where kernels' first run is the shepherd's doing, for all CPUs at once.
    AtOnce,
}

/// What [`Seat::place`](isotherm_frames::housekeep::Seat) is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Seating {
    /// The CPU's number among those of its node that exist: never changes.
    #[default]
    Numbers,
    /// Its rank among those of its node that are online: changes for all above it when one goes or comes. A run that is
    /// due already stays; the next is at the new place.
    Ranks,
}

/// What a run finds to do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Work {
    /// The share of runs that drain anything, 0 to 1. Default 0.5: many sets are at their low mark already, and there
    /// is nothing to measure it by; the herd's size follows it.
    pub share: f64,
    /// Chunks that such a run drains at the least.
    pub least: u32,
    /// Chunks that it drains at the most, all numbers between being alike. Default 1 to 8: a run gives back an eighth
    /// of what a set may keep, as kernels' decay does; so of 504 to 4,032 frames, in chunks of 63. The kernel's limit
    /// is 32.
    pub most: u32,
}

impl Work {
    /// Runs that never find anything: what is left is the foreground.
    pub const NONE: Work = Work { share: 0.0, least: 0, most: 0 };
}

impl Default for Work {
    fn default() -> Work {
        Work { share: 0.5, least: 1, most: 8 }
    }
}

/// How often the foreground comes to a zone.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rate {
    /// So many bursts a second on the whole machine, on CPUs at random.
    Machine(f64),
    /// So many bursts a second on each CPU that is online.
    EachCpu(f64),
}

/// Refills and frees in bulk: what programs need of the zone meanwhile. They wait for the lock, always.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Foreground {
    /// How often, at random times. Default 200 a second on the whole machine: nearly idle, so that what housekeeping
    /// does to itself is not covered by what the foreground does; of 63 frames each, 50 MB/s taken or given back.
    pub rate: Rate,
    /// Chunks of each burst, one after the other. Default 1.
    pub burst: u32,
}

impl Foreground {
    /// Nobody.
    pub const NONE: Foreground = Foreground { rate: Rate::Machine(0.0), burst: 1 };
}

impl Default for Foreground {
    fn default() -> Foreground {
        Foreground { rate: Rate::Machine(200.0), burst: 1 }
    }
}

/// From the instant at which a run is due to that at which it begins: timer, and queue of work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Latency {
    /// The mean of what is drawn for each run, exponentially distributed. Default 100 us: what a timer and a queue of
    /// work take on a machine that does other things.
    pub mean_ns: u64,
    /// The share of runs that are later still. Default 1%.
    pub late_share: f64,
    /// By how much at the most, all up to it being alike. Default 3 ms: a slice of another task, or a tick.
    pub late_most_ns: u64,
}

impl Latency {
    /// Everything begins when it is due.
    pub const NONE: Latency = Latency { mean_ns: 0, late_share: 0.0, late_most_ns: 0 };
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { mean_ns: 100_000, late_share: 0.01, late_most_ns: 3_000_000 }
    }
}

/// Once an interval, finds CPUs that have work and runs their housekeeping when the schedule says
/// ([`kicked_due`](isotherm_frames::housekeep::Schedule::kicked_due)), asked at its own instant.
///
/// A CPU that is kicked does not do the run that would be due next, unless that is the same: its frames are drained
/// once an interval whoever finds them, so that with any share of kicks there is the same to drain.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shepherd {
    /// The share of CPUs that are kicked, drawn anew each time, 0 to 1. Those that run at that instant, or are about
    /// to, are left alone. Not known of any machine; kernels kick each CPU whose last run found nothing to fold.
    pub share: f64,
    /// How far into each interval the shepherd runs. 0 is where kernels' own rounding puts it.
    pub phase_ns: u64,
}

impl Shepherd {
    /// At whole intervals.
    pub const fn kicking(share: f64) -> Shepherd {
        Shepherd { share, phase_ns: 0 }
    }
}

/// What a run does that finds the lock taken: leaves its rest for later, so many times, and then waits for every chunk.
///
/// The defaults are those of `isotherm-frames`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deferral {
    /// How much later, to which the [`Latency`] of a run is added. Default a 128th of a second, several times as
    /// long as a herd of 72 CPUs lasts with holds of 9 us.
    pub back_off_ns: u64,
    /// How often at the most in a run. Default 8: so all of them are a sixteenth of a second's interval.
    pub most: u32,
}

impl Default for Deferral {
    fn default() -> Deferral {
        Deferral { back_off_ns: Interval::SECOND.ns() / 128, most: 8 }
    }
}

/// A CPU that goes or comes.
///
/// One that goes in the middle of a drain leaves chunks behind: who takes it offline drains them at once, and waits for
/// the lock. One that comes is due when the schedule says, asked at that instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plug {
    /// When, in ns.
    pub at_ns: u64,
    /// Its number.
    pub cpu: u32,
    /// Whether it comes. One that is as told already stays so.
    pub online: bool,
}

impl Plug {
    /// Every `step`th CPU (at least 1) from `first` on goes, or comes.
    pub fn stride(at_ns: u64, first: u32, step: u32, cpus: u32, online: bool) -> impl Iterator<Item = Plug> {
        (first..cpus).step_by(step.max(1) as usize).map(move |cpu| Plug { at_ns, cpu, online })
    }
}

impl Herd {
    /// So many CPUs on one node, everything else as usual.
    pub fn new(cpus: u32) -> Herd {
        Herd {
            cpus,
            nodes: 1,
            duration_ns: 60 * Interval::SECOND.ns(),
            interval: Interval::SECOND,
            begin: Begin::default(),
            seating: Seating::default(),
            work: Work::default(),
            foreground: Foreground::default(),
            latency: Latency::default(),
            shepherd: None,
            deferral: None,
            hotplug: Vec::new(),
        }
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: u32) -> u32 {
        let node = u64::from(cpu) * u64::from(self.nodes) / u64::from(self.cpus.max(1));
        u32::try_from(node).unwrap_or(u32::MAX)
    }

    pub(super) fn check(&self) -> Result<(), HerdError> {
        if !(1..=MOST_CPUS).contains(&self.cpus) {
            return Err(HerdError::Cpus(self.cpus));
        }
        if !(1..=self.cpus).contains(&self.nodes) {
            return Err(HerdError::Nodes { nodes: self.nodes, cpus: self.cpus });
        }
        let shares = [
            ("runs that drain", self.work.share),
            ("runs that are late", self.latency.late_share),
            ("CPUs that are kicked", self.shepherd.map_or(0.0, |shepherd| shepherd.share)),
        ];
        if let Some(&(what, share)) = shares.iter().find(|(_, share)| !(0.0..=1.0).contains(share)) {
            return Err(HerdError::Share { what, share });
        }
        let (Rate::Machine(rate) | Rate::EachCpu(rate)) = self.foreground.rate;
        if !rate.is_finite() || rate < 0.0 {
            return Err(HerdError::Rate(rate));
        }
        let Work { least, most, .. } = self.work;
        if least > most {
            return Err(HerdError::Work { least, most });
        }
        match self.hotplug.iter().find(|plug| plug.cpu >= self.cpus) {
            Some(plug) => Err(HerdError::NoSuchCpu { cpu: plug.cpu, cpus: self.cpus }),
            None => Ok(()),
        }
    }
}
