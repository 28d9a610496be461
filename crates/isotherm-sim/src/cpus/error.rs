//! Why a simulation of CPUs cannot run with the given options.

/// Maximum number of CPUs in a simulation.
pub const MAX_CPUS: u32 = 1024;

/// Why a simulation cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DrainModelError {
    /// No CPUs, or more than the model supports.
    #[error("{0} CPUs: give 1 to {MAX_CPUS}")]
    Cpus(u32),
    /// A node without CPUs, or no node.
    #[error("{nodes} nodes for {cpus} CPUs: give at least one node, and no more than CPUs")]
    Nodes {
        /// Nodes requested.
        nodes: u32,
        /// CPUs in the machine.
        cpus: u32,
    },
    /// A share that is not between 0 and 1.
    #[error("{what}: {share} is not a share; give 0 to 1")]
    Share {
        /// What it is a share of.
        what: &'static str,
        /// The value given.
        share: f64,
    },
    /// A rate below 0, or not a number.
    #[error("foreground: {0} bursts a second; give 0 or more")]
    Rate(f64),
    /// The minimum is above the maximum.
    #[error("work: {least} to {most} chunks a run; give the smaller number first")]
    Work {
        /// The minimum given.
        least: u32,
        /// The maximum given.
        most: u32,
    },
    /// A CPU that does not exist goes offline or comes online.
    #[error("hotplug of CPU {cpu}: the machine has {cpus} CPUs; give a number below that")]
    NoSuchCpu {
        /// Its number.
        cpu: u32,
        /// CPUs in the machine.
        cpus: u32,
    },
    /// No sample of a hold time.
    #[error("lock holds: no sample; give at least one")]
    NoHolds,
    /// A factor that hold times cannot be scaled by.
    #[error("lock holds times {0}: give a factor above 0 that leaves them below 4 s")]
    Factor(f64),
}
