//! Heat: what is known of each page, what to look at next, and the snapshot made of it.
//!
//! Fed by `isotherm-sources`, read by faces, recordings and planners. Pure: time and randomness are arguments, nothing here
//! does I/O, so that every decision can be replayed in a test.

#![forbid(unsafe_code)]

mod interval;
mod snapshot;

pub use interval::{Histogram, Interval, STEPS_PER_OCTAVE};
pub use snapshot::{Classes, Cost, Granularity, Mapping, Region, RunInfo, Snapshot, TargetHeat, TargetId, Thresholds};
