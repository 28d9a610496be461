//! Per-CPU lists (pcp lists): blocks of the usual orders for each CPU, in front of a zone, so that most allocations
//! take no zone lock. In the API, the lists of one CPU or one thread are a *set*.
//!
//! There are three tiers behind one trait, [`Front`]:
//!
//! | tier | what | `alloc` and `free_unique`, as measured |
//! |---|---|---|
//! | [`OwnedPcpLists`] | a handle that one thread owns; plain memory, no unsafe code | 7 ns |
//! | [`PcpLists`], [`Tier::Restartable`] | shared by all threads; each works on its CPU's stacks by restartable sequences | 6 ns |
//! | [`PcpLists`], [`Tier::Locked`] | shared by all threads; each tries its CPU's lock, and goes to the zone if that is taken | 15 ns |
//!
//! As in the kernel, a set has lists for the orders 0 to 3 of each migrate type and two for order 9. Other orders go to
//! the zone. [`crate::tune`] decides how much a set takes at once, how much it may cache and what it returns. Lists are
//! last in, first out. What goes back to the zone comes from the list that grew, from below its newest 64 blocks. What
//! a set caches without need only goes back by the periodic drain: [`PcpLists::decay`], [`crate::housekeep`].
//!
//! A cached block is marked as cached in the zone's frame state, so a second free of the same block is found without a
//! lock. The mark is set by a compare-and-swap, as in frees straight to the zone. Of several concurrent frees of a
//! block, one wins and the others get an error. That costs 4 to 11 ns. Owners that cannot free twice, such as a guard
//! that is dropped once, avoid the cost with [`PcpLists::free_unique`].
//!
//! The shared tiers differ from the kernel in one way: the kernel's factors decay with every call, ours with every
//! visit to the zone. Recording the calls in between would cost more than the decay is worth.
//!
//! | file | job |
//! |---|---|
//! | `shared` | [`PcpLists`]: allocate and free; the way to the zone when a list is empty or full |
//! | `drain`, `decay` | [`PcpLists`]: drain all lists of a CPU, also around a fork; one run of the periodic drain |
//! | `owned` | [`OwnedPcpLists`], the same for one thread |
//! | `cpu_lists` | the two shared tiers behind one type: the only place that knows which it is |
//! | `locked`, `list_words` | lists behind a lock; lists as plain words |
//! | `decay_run` | what a drain run returns to the zone, for any lists that are held |
//! | `state` | state of a CPU other than its blocks: tuner, and what is remembered between runs |
//! | `exchange` | what all tiers have in common between a list and the zone |
//! | `config`, `error`, `tier`, `front`, `lists`, `retry` | configuration; the trait; which list holds what; how long to retry |

mod config;
mod cpu_lists;
mod cpu_state;
mod decay;
mod decay_run;
mod drain;
mod error;
mod exchange;
mod front;
mod list_words;
mod lists;
mod locked;
mod owned;
mod retry;
mod shared;
mod tier;

pub use config::PcpConfig;
pub use decay_run::{Decayed, Pace};
pub use error::PcpError;
pub use front::Front;
pub use owned::OwnedPcpLists;
pub use shared::PcpLists;
pub use tier::Tier;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
