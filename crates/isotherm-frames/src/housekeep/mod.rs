//! Housekeeping of per-CPU sets: see [`schedule`] for when it is due.

pub mod schedule;

pub use schedule::{Interval, Schedule, Seat, Spread};
