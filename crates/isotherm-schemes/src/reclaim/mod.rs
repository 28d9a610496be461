//! The action that takes idle files from memory cgroups: the kernel is asked to reclaim as much of them as is known to be idle
//! (`memory.reclaim` with `swappiness=0`).
//!
//! It is unlike the other actions. Pages of a file belong to no process, can be mapped by several, and come back from the file instead of
//! from swap; no call from outside makes a chosen one leave. So the unit is a cgroup, and which pages leave is the kernel's choice, by its
//! lists. [`idle`] counts what is idle, page by page, and [`users`] what others use of it; [`reclaimer`] makes of that how much to ask for, in small steps, with the
//! brake of paging out; [`worker`] asks, in a thread of its own, since the kernel may take seconds; [`kernel`] is the machine.
//!
//! Anonymous memory stays. There the pages themselves can be named ([`crate::page_out`]), and by size alone hot pages leave as well.

pub mod idle;
mod kernel;
pub mod reclaimer;
pub mod users;
pub mod worker;

pub use kernel::{AskMachine, Asker};
