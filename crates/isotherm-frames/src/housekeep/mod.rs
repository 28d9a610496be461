//! Periodic drain of per-CPU lists: once per interval, what a CPU holds above its `high` goes back to the zone, and
//! idle lists are emptied.
//!
//! [`schedule`] computes when a CPU is due. [`PcpLists::decay`](crate::PcpLists::decay) does one run over the lists of one CPU.
//! [`Housekeeper`] combines them. It has neither a clock nor a thread: either the caller calls [`Housekeeper::tick`]
//! for each CPU at the time that the last call returned, or a thread does this for all CPUs (`Housekeeper::run`, with
//! the feature `std`).
//!
//! Cases that are easy to get wrong, and how they are handled:
//!
//! - *CPUs with nothing to do are not woken.* A CPU whose lists are empty has no due time. Once per interval,
//!   [`Housekeeper::shepherd`] checks which of them have work again. Each gets its own phase and not the present time;
//!   else all CPUs that began to work since the last check would run at the same instant.
//! - *Being late causes no burst.* However many runs were missed, only one is done. If several CPUs share a lock, a CPU
//!   that is overdue by more than its share of the interval skips to its next phase. Else all CPUs would run at the
//!   instant at which a machine wakes up. A CPU never skips twice in a row, so one that is always late still gets its run.
//! - *A clock that is set* moves at most one run. Set forward, the CPU is late. Set back, its due time is further away
//!   than possible and is computed anew.
//! - *CPUs come and go.* The place that determines a CPU's phase never changes, so no CPU moves when another goes.

mod keeper;
pub mod schedule;
mod stats;
#[cfg(feature = "std")]
mod thread;

pub use keeper::{Housekeeper, HousekeeperConfig, Run, Slot, Tick};
pub use schedule::{CpuPosition, Interval, Schedule, Spread};
pub use stats::HousekeepingStats;
#[cfg(feature = "std")]
pub use thread::{End, HousekeeperThread, now_ns};
