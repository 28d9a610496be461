//! Options of a simulation: the machine, and the assumptions about it.

use super::error::{DrainModelError, MAX_CPUS};
use isotherm_frames::housekeep::Interval;

/// A machine and its periodic drains. [`DrainModel::new`] has the defaults, and the description of each field gives the
/// reason for its default. [`DrainModel::run`] runs it.
#[derive(Clone, Debug)]
pub struct DrainModel {
    /// CPUs, numbered from 0: 1 to [`MAX_CPUS`].
    pub cpus: u32,
    /// NUMA nodes, each with a zone and its lock. Each node gets a range of consecutive CPUs, and the ranges are as
    /// equal as possible. A CPU uses the zone of its own node only. Default 1, which puts the most CPUs on one lock.
    pub nodes: u32,
    /// Time in which runs come due, in ns. Runs that have begun by then are finished. Default one minute: with 60
    /// intervals, the medians of a few seeds agree within a few percent.
    pub duration_ns: u64,
    /// The interval passed to the schedule. Default one second, as in kernels.
    pub interval: Interval,
    /// When the first run of each CPU is due. Default [`Begin::Scheduled`].
    pub begin: Begin,
    /// The meaning of a CPU's place. Default [`Placing::Numbers`].
    pub placing: Placing,
    /// How much a run finds to drain.
    pub work: Work,
    /// Other users of the locks.
    pub foreground: Foreground,
    /// The delay between the due time and the start of a run.
    pub latency: Latency,
    /// Kicks CPUs that have work and no run due. Default none.
    pub shepherd: Option<Shepherd>,
    /// What a run does if the lock is taken. Default `None`: it waits.
    pub deferral: Option<Deferral>,
    /// CPUs that go offline or come online, in any order. Those at time 0 set the initial state. Default none.
    pub hotplug: Vec<Plug>,
}

/// When the first run of each CPU is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Begin {
    /// At the time that the schedule returns for time 0.
    #[default]
    Scheduled,
    /// All at time 0: as after a boot, when the shepherd starts the first run of all CPUs at once.
    AtOnce,
}

/// The meaning of [`CpuPosition::place`](isotherm_frames::housekeep::CpuPosition).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placing {
    /// The CPU's number among all CPUs of its node. It never changes.
    #[default]
    Numbers,
    /// Its rank among the online CPUs of its node. It changes for all higher CPUs when one goes offline or comes
    /// online. A run that is already due stays at its time; the next run uses the new place.
    Ranks,
}

/// How much a run finds to drain.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Work {
    /// The share of runs that drain at least one chunk, 0 to 1. Default 0.5: many pcp lists are already at their low
    /// mark. There is no measurement of this. The amount of contention depends on it.
    pub share: f64,
    /// Minimum number of chunks that such a run drains.
    pub least: u32,
    /// Maximum number of chunks that it drains; all numbers from `least` to `most` are equally likely. Default 1 to 8:
    /// a run returns an eighth of the maximum size of a pcp list, as the kernel's decay does. That is for lists of 504
    /// to 4,032 frames, in chunks of 63. The kernel's limit is 32.
    pub most: u32,
}

impl Work {
    /// Runs that never find anything, so that only the foreground is left.
    pub const NONE: Work = Work { share: 0.0, least: 0, most: 0 };
}

impl Default for Work {
    fn default() -> Work {
        Work { share: 0.5, least: 1, most: 8 }
    }
}

/// How often foreground work takes the lock of a zone.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rate {
    /// Bursts per second on the whole machine, on random CPUs.
    Machine(f64),
    /// Bursts per second on each online CPU.
    EachCpu(f64),
}

/// Bulk refills and frees by programs. They always wait for the lock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Foreground {
    /// How often, at random times. Default 200 a second on the whole machine. That is nearly idle, so that foreground
    /// work does not hide the contention between drains. With 63 frames each it is 50 MB/s taken or returned.
    pub rate: Rate,
    /// Chunks of each burst, one after another. Default 1.
    pub burst: u32,
}

impl Foreground {
    /// No foreground work.
    pub const NONE: Foreground = Foreground { rate: Rate::Machine(0.0), burst: 1 };
}

impl Default for Foreground {
    fn default() -> Foreground {
        Foreground { rate: Rate::Machine(200.0), burst: 1 }
    }
}

/// The delay between the time at which a run is due and its start: timer and work queue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Latency {
    /// Mean of the delay of each run, exponentially distributed. Default 100 us, which a timer and a work queue take on
    /// a machine with other load.
    pub mean_ns: u64,
    /// The share of runs with an extra delay. Default 1%.
    pub late_share: f64,
    /// Maximum extra delay, uniformly distributed. Default 3 ms: a time slice of another task, or a tick.
    pub late_most_ns: u64,
}

impl Latency {
    /// All runs begin when they are due.
    pub const NONE: Latency = Latency { mean_ns: 0, late_share: 0.0, late_most_ns: 0 };
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { mean_ns: 100_000, late_share: 0.01, late_most_ns: 3_000_000 }
    }
}

/// Once an interval, finds CPUs that have work and makes their run due at the time that the schedule's
/// [`kicked_due`](isotherm_frames::housekeep::Schedule::kicked_due) returns for the time of the kick.
///
/// A kicked CPU skips the run that would be due next, unless that has the same time. So its frames are drained once an
/// interval with or without a kick, and the amount to drain does not depend on the share of kicks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shepherd {
    /// The share of CPUs that are kicked, drawn anew each time, 0 to 1. CPUs that run at that instant, or are about to,
    /// are not kicked. The real share is not known for any machine; kernels kick each CPU whose last run found nothing
    /// to fold.
    pub share: f64,
    /// Position of the shepherd's run in each interval. Kernels' own rounding puts it at 0.
    pub phase_ns: u64,
}

impl Shepherd {
    /// The shepherd runs at the start of each interval.
    pub const fn kicking(share: f64) -> Shepherd {
        Shepherd { share, phase_ns: 0 }
    }
}

/// What a run does if the lock is taken: it retries the remaining chunks later, up to `most` times, and then waits for
/// the lock for each chunk.
///
/// The defaults are those of `isotherm-frames`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deferral {
    /// The delay before a retry, in addition to the [`Latency`] of a run. Default a 128th of a second, several times as
    /// long as 72 CPUs contend with holds of 9 us.
    pub back_off_ns: u64,
    /// Maximum number of retries in a run. Default 8, so that all of them take a sixteenth of a one-second interval.
    pub most: u32,
}

impl Default for Deferral {
    fn default() -> Deferral {
        Deferral { back_off_ns: Interval::SECOND.ns() / 128, most: 8 }
    }
}

/// A CPU that goes offline or comes online.
///
/// A CPU that goes offline in the middle of a drain leaves chunks behind. The code that takes it offline drains them at
/// once, and waits for the lock. A CPU that comes online asks the schedule at that moment when its next run is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plug {
    /// When, in ns.
    pub at_ns: u64,
    /// Its number.
    pub cpu: u32,
    /// Whether it comes online. No change if it already is in that state.
    pub online: bool,
}

impl Plug {
    /// Every `step`th CPU (at least 1) from `first` on goes offline or comes online.
    pub fn stride(at_ns: u64, first: u32, step: u32, cpus: u32, online: bool) -> impl Iterator<Item = Plug> {
        (first..cpus).step_by(step.max(1) as usize).map(move |cpu| Plug { at_ns, cpu, online })
    }
}

impl DrainModel {
    /// `cpus` CPUs on one node, with the defaults for everything else.
    pub fn new(cpus: u32) -> DrainModel {
        DrainModel {
            cpus,
            nodes: 1,
            duration_ns: 60 * Interval::SECOND.ns(),
            interval: Interval::SECOND,
            begin: Begin::default(),
            placing: Placing::default(),
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

    pub(super) fn check(&self) -> Result<(), DrainModelError> {
        if !(1..=MAX_CPUS).contains(&self.cpus) {
            return Err(DrainModelError::Cpus(self.cpus));
        }
        if !(1..=self.cpus).contains(&self.nodes) {
            return Err(DrainModelError::Nodes { nodes: self.nodes, cpus: self.cpus });
        }
        let shares = [
            ("runs that drain", self.work.share),
            ("runs that are late", self.latency.late_share),
            ("CPUs that are kicked", self.shepherd.map_or(0.0, |shepherd| shepherd.share)),
        ];
        if let Some(&(what, share)) = shares.iter().find(|(_, share)| !(0.0..=1.0).contains(share)) {
            return Err(DrainModelError::Share { what, share });
        }
        let (Rate::Machine(rate) | Rate::EachCpu(rate)) = self.foreground.rate;
        if !rate.is_finite() || rate < 0.0 {
            return Err(DrainModelError::Rate(rate));
        }
        let Work { least, most, .. } = self.work;
        if least > most {
            return Err(DrainModelError::Work { least, most });
        }
        match self.hotplug.iter().find(|plug| plug.cpu >= self.cpus) {
            Some(plug) => Err(DrainModelError::NoSuchCpu { cpu: plug.cpu, cpus: self.cpus }),
            None => Ok(()),
        }
    }
}
