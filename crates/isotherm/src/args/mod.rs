//! What commands have in common on the command line, one group of arguments a file, by meaning.
//!
//! Values are checked for form here; what they mean on this machine is found out by those who use them. Nothing here knows a
//! command: a command's own arguments are in its file under `commands/`, and take groups from here.

pub mod budgets;
pub mod color;
pub mod hints;
pub mod input;
pub mod sampling;
pub mod socket;
pub mod source;
pub mod targets;
pub mod thresholds;
pub mod usage;
pub mod values;
pub mod watching;
