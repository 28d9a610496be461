//! The settings of a kdamond, in DAMON's own terms, and the files they are written to.

use super::Error;
use isotherm_units::AddrRange;

/// Which memory is monitored, and by what means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// Virtual memory of processes. The kernel finds out what they map, again at each update.
    Vaddr,
    /// Fixed ranges of virtual memory of processes.
    Fvaddr,
    /// Physical memory.
    Paddr,
}

impl Operations {
    /// The keyword in `operations`.
    pub const fn keyword(self) -> &'static str {
        match self {
            Operations::Vaddr => "vaddr",
            Operations::Fvaddr => "fvaddr",
            Operations::Paddr => "paddr",
        }
    }

    /// What the kernel has to be built with.
    pub const fn option(self) -> &'static str {
        match self {
            Operations::Vaddr | Operations::Fvaddr => "CONFIG_DAMON_VADDR",
            Operations::Paddr => "CONFIG_DAMON_PADDR",
        }
    }
}

/// How it is monitored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Microseconds between two samples.
    pub sample_us: u64,
    /// Microseconds of one aggregation: at its end, regions are reported. Not less than `sample_us`.
    pub aggregation_us: u64,
    /// Microseconds between two checks of what is mapped.
    pub update_us: u64,
    /// At least this many regions over all targets, if possible. At least 3.
    pub min_regions: u64,
    /// At most this many regions over all targets. Not less than `min_regions`.
    pub max_regions: u64,
    /// Lets the kernel choose the first two, if it can.
    pub goal: Option<Goal>,
}

impl Default for Attributes {
    /// The defaults of the kernel's documentation, but mappings are checked every second instead of every minute.
    fn default() -> Attributes {
        Attributes {
            sample_us: 5_000,
            aggregation_us: 100_000,
            update_us: 1_000_000,
            min_regions: 10,
            max_regions: 1000,
            goal: Some(Goal::default()),
        }
    }
}

impl Attributes {
    /// How often a region can be found accessed in one aggregation.
    pub fn max_nr_accesses(&self) -> u64 {
        (self.aggregation_us / self.sample_us.max(1)).max(1)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |why: &str| Err(Error::Settings(why.to_owned()));
        if self.sample_us == 0 || self.sample_us > self.aggregation_us {
            return wrong("the sampling interval has to be above 0 and not above the aggregation interval");
        }
        if self.min_regions < 3 || self.max_regions < self.min_regions {
            return wrong("there have to be at least 3 regions, and not more at least than at most");
        }
        Ok(())
    }
}

/// Auto-tuning of intervals (Linux 6.15 and later): the kernel samples as often as it takes to find this many accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The ratio of accesses found to accesses that could be found, in hundredths of a percent.
    pub access_bp: u64,
    /// Aggregations between two adjustments. 0: off.
    pub aggregations: u64,
    /// Lower bound of the sampling interval.
    pub min_sample_us: u64,
    /// Upper bound of the sampling interval.
    pub max_sample_us: u64,
}

impl Default for Goal {
    /// The ratio that the kernel's documentation recommends. The longest interval is shorter than there, so that a
    /// report comes every few seconds.
    fn default() -> Goal {
        Goal { access_bp: 400, aggregations: 3, min_sample_us: 5_000, max_sample_us: 200_000 }
    }
}

/// One monitoring target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The process, for virtual memory.
    pub pid: Option<u32>,
    /// The initial ranges: required for [`Operations::Fvaddr`] and [`Operations::Paddr`], none for
    /// [`Operations::Vaddr`], where the kernel finds them.
    pub ranges: Vec<AddrRange>,
}

impl Target {
    /// The virtual memory of a process.
    pub fn process(pid: u32) -> Target {
        Target { pid: Some(pid), ranges: Vec::new() }
    }
}

/// Names of files below `kdamonds` with their contents, in the order of writing.
pub(super) type Plan = Vec<(String, String)>;

pub(super) const NR_KDAMONDS: &str = "nr_kdamonds";
pub(super) const STATE: &str = "0/state";
pub(super) const THREAD: &str = "0/pid";
pub(super) const NR_CONTEXTS: &str = "0/contexts/nr_contexts";
pub(super) const AVAILABLE: &str = "0/contexts/0/avail_operations";
pub(super) const OPERATIONS: &str = "0/contexts/0/operations";
pub(super) const GOAL: &str = "0/contexts/0/monitoring_attrs/intervals/intervals_goal/access_bp";
pub(super) const NR_SCHEMES: &str = "0/contexts/0/schemes/nr_schemes";
const ATTRS: &str = "0/contexts/0/monitoring_attrs";
pub(super) const TARGETS: &str = "0/contexts/0/targets";

/// The files that hold the attributes, once there is a context. `tunes`: the kernel has the goal's files.
pub(super) fn plan_of_attributes(operations: Operations, attributes: &Attributes, tunes: bool) -> Plan {
    let mut plan = vec![(OPERATIONS.to_owned(), operations.keyword().to_owned())];
    let mut set = |file: &str, value: u64| plan.push((format!("{ATTRS}/{file}"), value.to_string()));
    set("intervals/sample_us", attributes.sample_us);
    set("intervals/aggr_us", attributes.aggregation_us);
    set("intervals/update_us", attributes.update_us);
    if let Some(goal) = attributes.goal.filter(|_| tunes) {
        set("intervals/intervals_goal/access_bp", goal.access_bp);
        set("intervals/intervals_goal/aggrs", goal.aggregations);
        set("intervals/intervals_goal/min_sample_us", goal.min_sample_us);
        set("intervals/intervals_goal/max_sample_us", goal.max_sample_us);
    }
    set("nr_regions/min", attributes.min_regions);
    set("nr_regions/max", attributes.max_regions);
    plan
}

/// The files that hold the targets.
pub(super) fn plan_of_targets(targets: &[Target]) -> Plan {
    let mut plan = vec![(format!("{TARGETS}/nr_targets"), targets.len().to_string())];
    for (i, target) in targets.iter().enumerate() {
        if let Some(pid) = target.pid {
            plan.push((format!("{TARGETS}/{i}/pid_target"), pid.to_string()));
        }
        plan.push((format!("{TARGETS}/{i}/regions/nr_regions"), target.ranges.len().to_string()));
        for (j, range) in target.ranges.iter().enumerate() {
            plan.push((format!("{TARGETS}/{i}/regions/{j}/start"), range.start.0.to_string()));
            plan.push((format!("{TARGETS}/{i}/regions/{j}/end"), range.end.0.to_string()));
        }
    }
    plan
}
