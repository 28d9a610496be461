//! The live view: processes or cgroups by heat, and the heat map of one of them.
//!
//! Three parts. [`TopState`] is all that is shown and reacts to snapshots and keys, without a terminal. [`draw`] draws it on a
//! frame of any size. [`run_top`] is the session that connects both with the terminal, and with `input`, which reads its
//! keys, the only place of this crate that does I/O. Snapshots come over a channel from a monitor or a replay, so drawing never
//! delays access checks.

mod draw;
mod input;
mod keys;
mod session;
mod state;

pub use draw::draw;
pub use keys::{Action, Command, KEYS, Key, KeyHelp};
pub use session::run_top;
pub use state::{SortColumn, TopOptions, TopState, View};
