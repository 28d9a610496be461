//! Sampling with `perf_event_open(2)`: an event, the ring that the kernel writes its samples to, and what is in them.
//!
//! [`crate::counter`] counts; this samples. A [`Ring`] belongs to one event in one thread or on one processor and gives back raw
//! records; [`Sample`] takes those apart by the fields that were asked for. Both know nothing of the event itself: tracepoints
//! ([`crate::tracepoint`]), page faults and a processor's memory samples all come this way.
//!
//! A ring that is full loses samples, and a ring that is far too small can lose most of them and report none lost. So the
//! event's own count is kept next to the samples read: compare [`Ring::count`] with what came out.

pub(crate) mod attr;
mod event;
pub mod named;
mod ring;
mod sample;

pub use event::Event;
pub use ring::{Record, Records, Ring, RingError, Sampling, Scope};
pub use sample::{Fields, Sample};
