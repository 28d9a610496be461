//! Why a herd of CPUs cannot be run as asked.

/// The most CPUs that a herd may have.
pub const MOST_CPUS: u32 = 1024;

/// Why there is nothing to run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HerdError {
    /// None, or more than the model is made for.
    #[error("a herd of {0} CPUs: give 1 to {MOST_CPUS}")]
    Cpus(u32),
    /// A node without CPUs, or no node.
    #[error("{nodes} nodes for {cpus} CPUs: give at least one node, and no more than CPUs")]
    Nodes {
        /// Nodes asked for.
        nodes: u32,
        /// CPUs there are.
        cpus: u32,
    },
    /// A share that is none.
    #[error("{what}: {share} is no share; give 0 to 1")]
    Share {
        /// Of what.
        what: &'static str,
        /// What was given.
        share: f64,
    },
    /// A number of events a second that is none.
    #[error("foreground: {0} bursts a second; give 0 or more")]
    Rate(f64),
    /// The least above the most.
    #[error("work: {least} to {most} chunks a run; give the smaller number first")]
    Work {
        /// Given as the least.
        least: u32,
        /// Given as the most.
        most: u32,
    },
    /// A CPU that does not exist goes or comes.
    #[error("CPU {cpu} goes or comes, of {cpus}: give a number below that")]
    NoSuchCpu {
        /// Its number.
        cpu: u32,
        /// CPUs there are.
        cpus: u32,
    },
    /// No sample of a hold.
    #[error("lock holds: no sample; give at least one")]
    NoHolds,
    /// A factor that holds cannot be scaled by.
    #[error("lock holds times {0}: give a factor above 0 that leaves them below 4 s")]
    Factor(f64),
}
