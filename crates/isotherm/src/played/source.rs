//! A source that brings its clock.

use isotherm_heat::Clock;
use isotherm_heat::source::AccessSource;

/// A source with a clock of its own.
pub struct Played {
    pub source: Box<dyn AccessSource>,
    pub clock: Box<dyn Clock>,
    /// The processes to watch.
    pub pids: Vec<u32>,
    /// What the wall clock is taken to show when it begins.
    pub begin_unix_ns: u64,
}
