//! Which 2 MiB blocks become huge pages first.
//!
//! ```text
//!  heat ──> benefit ──> plan ──> queue ──> worker ──> machine (process_madvise, /proc)
//!           (a block's   (hints)    ^       (budgets,
//!            gain)                  │        guards)
//!                       external hints
//! ```
//!
//! Everything but [`machine::Live`] is pure: time is an argument, and the worker is tested on a machine made up.

#![forbid(unsafe_code)]

pub mod budgets;
pub mod collapse;
pub mod gain;
mod guards;
pub mod machine;
mod named;
pub mod outcome;
pub mod plan;
pub mod queue;
pub mod state;
pub mod worker;

pub use budgets::{Budgets, Wait};
pub use named::Named;
pub use outcome::{Counters, Outcome, Refusal};
pub use queue::{Hint, HintQueue, Level, Origin};
pub use worker::{Collapser, Consumer, Server, Step};
