//! Per-CPU sets: a few blocks of the usual orders for each CPU, in front of a zone, so that most allocations see no lock.
//!
//! Three tiers behind one trait, [`Front`]:
//!
//! | tier | what | `alloc` and `free_unique`, as measured |
//! |---|---|---|
//! | [`OwnedSet`] | a handle that one thread has; plain memory, no unsafe code | 7 ns |
//! | [`Sets`], [`Tier::Restartable`] | shared by all threads; each works on its CPU's stacks by restartable sequences | 6 ns |
//! | [`Sets`], [`Tier::Locked`] | shared by all threads; each tries its CPU's lock, and goes to the zone if that is taken | 15 ns |
//!
//! A set has lists for the orders 0 to 3 of each migrate type and two for order 9, as the kernel's have; other orders go to the
//! zone. How much a set takes at once, how much it may keep and what it gives back is decided by [`crate::tune`]. Blocks are taken
//! back last in, first out; what is given to the zone is of the list that grew, from below its newest 64. What a set keeps without need goes
//! back by housekeeping only: [`Sets::tidy`], [`crate::housekeep`].
//!
//! What waits in a set is marked so in the zone's books, which is how a second free of the same block is found without a lock. The mark
//! is set by a compare-and-swap, as the zone's own frees are, so that of several frees of a block at the same instant one wins and the
//! others are told. That costs 4 to 11 ns. Whoever owns blocks in a way that rules a second free out, as a guard that is dropped once,
//! leaves it away with [`Sets::free_unique`].
//!
//! Difference from the kernel in the shared tiers: its factors decay with every call, ours with every visit to the zone, since the
//! calls in between leave no trace that would cost less than the decay is worth.
//!
//! | file | job |
//! |---|---|
//! | `shared` | [`Sets`]: handing out and taking back; the way to the zone when a list is empty or full |
//! | `drain`, `tidy` | [`Sets`]: all of a set given back, also around a fork; one turn of housekeeping |
//! | `owned` | [`OwnedSet`], the same for one thread |
//! | `cpu_lists` | the two tiers behind one type: the only place that knows which it is |
//! | `locked`, `stock` | lists behind a lock; lists as plain words |
//! | `turn` | what a turn of housekeeping gives back, for any lists that are held |
//! | `aside` | what a CPU's set knows beside its blocks: tuner, and the memory of turns |
//! | `exchange` | what all tiers do alike between a list and the zone |
//! | `config`, `error`, `tier`, `front`, `lists`, `retry` | what is asked for; the trait; which list is whose; how long to try |

mod aside;
mod config;
mod cpu_lists;
mod drain;
mod error;
mod exchange;
mod front;
mod lists;
mod locked;
mod owned;
mod retry;
mod shared;
mod stock;
mod tidy;
mod tier;
mod turn;

pub use config::SetsConfig;
pub use error::SetsError;
pub use front::Front;
pub use owned::OwnedSet;
pub use shared::Sets;
pub use tier::Tier;
pub use turn::{Pace, Tidied};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
