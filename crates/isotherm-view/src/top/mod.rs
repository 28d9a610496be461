//! The live view: processes or cgroups by heat, and the heat map of one of them.
//!
//! There are three parts. [`TopState`] holds everything that is shown and reacts to snapshots and keys, without a
//! terminal. [`mod@draw`] draws it on a frame of any size. [`run_top`] is the session that connects both to the terminal.
//! It and `input`, which reads its keys, are the only parts of this crate that do I/O. Snapshots arrive over a channel
//! from a monitor or a replay, so drawing never delays access checks.

mod draw;
mod input;
mod keys;
mod session;
mod state;

pub use draw::draw;
pub use keys::{Action, Command, KEYS, Key, KeyHelp};
pub use session::run_top;
pub use state::{SortColumn, TopOptions, TopState, View};
