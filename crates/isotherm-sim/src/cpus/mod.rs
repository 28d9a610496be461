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
mod error;
pub mod holds;
mod lock;
pub mod options;
pub mod outcome;
mod random;
mod run;
#[cfg(test)]
mod tests;

pub use error::{HerdError, MOST_CPUS};
pub use holds::Holds;
pub use options::{Begin, Deferral, Foreground, Herd, Latency, Plug, Rate, Seating, Shepherd, Work};
pub use outcome::{Extent, Outcome, Waits};
