//! What a daemon says to the service manager that has started it, and to its journal.
//!
//! [`Manager`] speaks `sd_notify(3)`: ready, reloading, stopping, a line of status, and signs of life for the watchdog. [`Pulse`] decides
//! whether there is life. [`end_signals`] is the other way: how the manager asks it to end; [`reload_signals`], to read its settings again.
//! [`Journal`] sends messages with a priority and fields by the journal's own protocol, and [`messages`] uses it where it is there.
//!
//! Crates for both protocols open a socket for each message. Our daemons enter a sandbox that forbids to open any, so sockets are opened and
//! connected once, before it. All of this does nothing where no service manager is: every call is safe everywhere.

#![forbid(unsafe_code)]

mod journal;
mod manager;
pub mod messages;
mod pulse;
mod signals;

pub use journal::{Journal, Priority};
pub use manager::{Manager, VARIABLES};
pub use pulse::Pulse;
pub use signals::{end_signals, reload_signals};
