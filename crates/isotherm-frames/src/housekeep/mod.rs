//! Housekeeping of per-CPU sets: once an interval, what a CPU keeps above its mark goes back to the zone, and what lies idle goes as
//! a whole.
//!
//! [`schedule`] says when a CPU is due, [`Sets::tidy`](crate::Sets::tidy) does one turn over one set, and [`Housekeeper`] brings the two together. It has
//! no clock and no thread of its own: either the caller asks it for each CPU at the time that it said ([`Housekeeper::tick`]), or a thread
//! does so for all of them (`Housekeeper::run`, with the feature `std`).
//!
//! What is easily got wrong, and how it is here:
//!
//! - *CPUs with nothing to do are not woken.* A CPU whose sets are empty has no next time. [`Housekeeper::shepherd`] looks once an interval which of
//!   them has something again, and gives it its own phase, not the present: else all that began to work since would meet.
//! - *Being late makes no burst.* However many turns were missed, one is made. And where several CPUs share a lock, one that is overdue by
//!   more than its share of the interval goes to its next phase instead, or all would run in the instant in which a machine wakes up; but never
//!   twice in a row, so that who is always late still gets its turn.
//! - *A clock that is set* moves one turn at the most: forward is the same as late, and a time that is further away than it can be is
//!   computed anew.
//! - *CPUs come and go.* The place that the phase comes from is given once and for all; none moves when another goes.

mod keeper;
pub mod schedule;
mod stats;
#[cfg(feature = "std")]
mod thread;

pub use keeper::{Housekeeper, HousekeeperConfig, Run, Slot, Tick};
pub use schedule::{Interval, Schedule, Seat, Spread};
pub use stats::HousekeepingStats;
#[cfg(feature = "std")]
pub use thread::{End, HousekeeperThread, now_ns};
