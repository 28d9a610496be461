//! Many CPUs whose housekeeping meets at a few zone locks: a simulation of events, exact and seeded.
//!
//! Once an interval each CPU gives some frames of its set back to the zone, in chunks of a batch, the zone's lock
//! taken and released for each. When all do so at the same instant they form a herd: of k CPUs with a chunk each, all
//! but one find the lock taken, and wait k (k - 1) / 2 holds together. When they do so is a
//! [`Schedule`](isotherm_frames::housekeep::Schedule)'s choice, and nothing here knows which: the same code runs the
//! kernels' schedules and ours. Beside them bursts of the foreground come to the same locks, the shepherd kicks CPUs,
//! and CPUs go and come.
//!
//! We simulate because no machine here has 72 CPUs, and because threads that outnumber CPUs show the scheduler's waits
//! and not the lock's. What is real in it: the schedules, which are those that `isotherm-frames` runs by, and lock
//! holds that were timed ([`Holds`]). What is assumed is in the options of [`Herd`], each with its default's reason.
//! Not in the model: that a lock handed from CPU to CPU makes the next hold longer, which makes herds worse; and that a
//! CPU which waits for the lock cannot begin a burst of its own, which spares it a wait.
//!
//! Pure: no clock, no I/O, randomness from a seed. Each kind of chance has a generator of its own, so that runs under
//! two schedules have the same bursts in the foreground. 1,024 CPUs for a minute take some 15 ms.
//!
//! | module | job |
//! |---|---|
//! | [`options`] | what is assumed |
//! | [`holds`] | how long the lock is held |
//! | [`outcome`] | what was counted |
//! | `lock` | first come, first served |
//! | `random` | the kinds of chance |
//! | `cpu` | one CPU's run, and who is online |
//! | `run` | the events |

mod cpu;
pub mod holds;
mod lock;
pub mod options;
pub mod outcome;
mod random;
mod run;
#[cfg(test)]
mod tests;

pub use holds::Holds;
pub use options::{Begin, Deferral, Foreground, Herd, Latency, Plug, Rate, Seating, Shepherd, Work};
pub use outcome::{Extent, Outcome, Waits};

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
