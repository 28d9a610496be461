//! Arguments that commands share, one group per file, by meaning.
//!
//! Only the form of values is checked here. Their users find out what they mean on this machine. Nothing here knows a
//! command: a command's own arguments are in its file under `commands/`, and take groups from here.

pub mod budgets;
pub mod color;
pub mod hints;
pub mod idle;
pub mod input;
pub mod intervals;
pub mod sampling;
pub mod socket;
pub mod source;
pub mod targets;
pub mod thresholds;
pub mod usage;
pub mod values;
pub mod watching;
