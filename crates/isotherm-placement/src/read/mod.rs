//! Reads the input of a report: processes, their frames, and the nodes and caches of this machine.
//!
//! The only part of this crate that touches a machine. It only reads files. `/proc` and the facts of the host are
//! arguments, so that tests can use made-up ones.

mod error;
mod frames;
mod nodes;
mod processes;

pub use error::Error;
pub use frames::{check_visible, collect};
pub use nodes::{Assumed, Machine};
pub use processes::{Listed, fill_in_names, resident};
