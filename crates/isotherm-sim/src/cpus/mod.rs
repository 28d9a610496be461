//! Many CPUs whose periodic drains contend for a few zone locks: an event simulation, exact and seeded.
//!
//! Once an interval, each CPU returns some frames of its pcp list to the zone, in chunks of a batch. It takes and
//! releases the zone's lock for each chunk. If all CPUs do so at the same instant, they contend: of k CPUs with a chunk
//! each, all but one find the lock taken, and together they wait k (k - 1) / 2 holds. A
//! [`Schedule`](isotherm_frames::housekeep::Schedule) decides when each CPU drains. Nothing here depends on which
//! schedule it is: the same code runs the kernels' schedules and ours. In addition, bursts of foreground work take the
//! same locks, the shepherd kicks CPUs, and CPUs go offline and come online.
//!
//! We simulate because no machine here has 72 CPUs, and because threads that outnumber CPUs show the scheduler's waits
//! instead of the lock's. Two parts are real: the schedules, which `isotherm-frames` uses, and the lock hold times,
//! which were measured ([`Holds`]). The assumptions are in the options of [`DrainModel`], each with the reason for its
//! default. Two effects are not modelled. A lock that moves from CPU to CPU makes the next hold longer, which makes
//! contention worse. And a CPU that waits for the lock cannot begin a burst, which saves it a wait.
//!
//! Pure: no clock, no I/O, randomness from a seed. Each random quantity has its own generator, so that runs under two
//! schedules have the same foreground bursts. Simulating 1,024 CPUs for a minute takes about 15 ms.
//!
//! | module | job |
//! |---|---|
//! | [`options`] | the assumptions |
//! | [`holds`] | how long the lock is held |
//! | [`outcome`] | the counters |
//! | `lock` | first come, first served |
//! | `random` | the random quantities |
//! | `cpu` | the state of each CPU, and which are online |
//! | `run` | the events |

mod cpu;
mod error;
pub mod holds;
mod lock;
pub mod options;
pub mod outcome;
mod random;
mod run;
#[cfg(test)]
mod tests;

pub use error::{DrainModelError, MAX_CPUS};
pub use holds::Holds;
pub use options::{Begin, Deferral, DrainModel, Foreground, Latency, Placing, Plug, Rate, Shepherd, Work};
pub use outcome::{Extent, Outcome, Waits};
