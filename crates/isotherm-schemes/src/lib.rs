//! Acts on heat: which huge range of which process comes first, within budgets, and what came of it.
//!
//! ```text
//!  facts ────> plan ────> queue ────> retry ────> worker ────> machine (process_madvise, /proc)
//!  (of a       (hints)      ^         (order,     (budgets,
//!   window)                 │          again)      guards)
//!                    external hints
//! ```
//!
//! What people write is read in [`settings`] (the file of `isotherm run`) and [`request`] (lines of its socket). [`assigned`] is the file in
//! which `isotherm-kube` gives cgroups to schemes.
//!
//! Each action is a module: [`collapse`] makes huge pages of hot huge ranges, [`page_out`] pages idle pages out, [`split`] splits huge pages of which
//! little is in use, [`migrate`] moves hot pages to fast memory and idle ones to slow, [`bring_back`] reads from swap what
//! is likely to be accessed next. [`reclaim`] takes idle files from memory cgroups, beside queue and worker. All other modules are shared by actions, and most name
//! none; [`action`] is the interface, and [`scheme`] the table of which is for which processes. [`state`], which a daemon's threads share, and [`pass`],
//! one pass over named processes, plan with the rules of collapsing. [`quota`] is how much may leave by a scheme. [`journal`] is what was done, to be undone. [`preview`] is
//! what some actions would do, for a picture.
//!
//! Everything but [`machine::Live`], [`machine::DryRun`] and the modules `kernel` of the actions is pure: time is an argument, and tests run the worker on a fake machine. Heat
//! comes as data, so this crate needs no source and no BPF.

#![forbid(unsafe_code)]

pub mod action;
pub mod assigned;
pub mod bring_back;
pub mod budgets;
pub mod collapse;
pub mod damo;
pub mod facts;
pub mod gain;
mod guards;
pub mod journal;
pub mod machine;
pub mod migrate;
mod named;
pub mod outcome;
pub mod page_out;
pub mod pass;
pub mod plan;
pub mod preview;
pub mod queue;
pub mod quota;
pub mod reclaim;
pub mod request;
pub mod retry;
pub mod scheme;
pub mod settings;
pub mod split;
pub mod state;
pub mod worker;

pub use action::Action;
pub use budgets::{Budgets, Wait};
pub use facts::{PmdFacts, TargetWindow};
pub use named::Named;
pub use outcome::{Counters, Outcome, Refusal};
pub use queue::{ActionId, Hint, HintQueue, Level, Origin};
pub use retry::{Consumer, RetryScheduler, Step};
pub use worker::Worker;
