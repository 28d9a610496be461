//! Sampling with `perf_event_open(2)`: events, the rings that the kernel writes their samples to, and what is in them.
//!
//! [`crate::counter`] counts; this samples. A [`Ring`] belongs to one event on one thread or one CPU. [`Rings`] are one
//! per CPU, for a process, a cgroup or the whole host, and follow CPUs and threads that come and go. Both return
//! [`Record`]s and know nothing of the events themselves: tracepoints ([`crate::tracepoint`]), page faults and a CPU's
//! memory samples all come this way.
//!
//! A full ring loses samples, and a ring that is far too small can lose most of them and report none lost. So the
//! event's own count is kept next to the samples read: compare [`Ring::count`], or [`Totals::counted`], with the
//! samples that came out.

pub(crate) mod attr;
mod error;
mod event;
pub mod ibs;
mod mapping;
mod record;
mod ring;
mod rings;
mod sample;
mod sampling;

pub use error::{Obstacle, RingError};
pub use event::Event;
pub use record::{Record, decode};
pub use ring::{Ring, Scope};
pub use rings::{Refit, Rings, Totals};
pub use sample::{Fields, Sample};
pub use sampling::{Part, Rate, Sampling, Whom};
